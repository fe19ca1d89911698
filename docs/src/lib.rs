//! The project's pages as modules, so that every snippet in them compiles and runs as a test.
//!
//! This crate is not published, and so may reach out of its folder (`README.md` lies above it).

pub mod machine;
pub mod schemas;

/// `README.md`.
#[doc = include_str!("../../README.md")]
pub mod readme {}

/// `CONTRIBUTING.md`.
#[doc = include_str!("../../CONTRIBUTING.md")]
pub mod contributing {}

/// `docs/guarantees.md`.
#[doc = include_str!("../guarantees.md")]
pub mod guarantees {}

/// `docs/comparison.md`.
#[doc = include_str!("../comparison.md")]
pub mod comparison {}

/// `docs/design.md`.
#[doc = include_str!("../design.md")]
pub mod design {}

/// `docs/formats.md`.
#[doc = include_str!("../formats.md")]
pub mod formats {}

/// `docs/architecture.md`.
#[doc = include_str!("../architecture.md")]
pub mod architecture {}

/// `docs/operations.md`.
#[doc = include_str!("../operations.md")]
pub mod operations {}

/// `docs/threats.md`.
#[doc = include_str!("../threats.md")]
pub mod threats {}

/// `docs/stability.md`.
#[doc = include_str!("../stability.md")]
pub mod stability {}

/// `docs/glossary.md`.
#[doc = include_str!("../glossary.md")]
pub mod glossary {}

/// `docs/cookbook`: one page for each task.
pub mod cookbook {
    /// `open-a-store.md`.
    #[doc = include_str!("../cookbook/open-a-store.md")]
    pub mod open_a_store {}

    /// `converse-and-stream.md`.
    #[doc = include_str!("../cookbook/converse-and-stream.md")]
    pub mod converse_and_stream {}

    /// `tools-with-consent.md`.
    #[doc = include_str!("../cookbook/tools-with-consent.md")]
    pub mod tools_with_consent {}

    /// `many-tenants.md`.
    #[doc = include_str!("../cookbook/many-tenants.md")]
    pub mod many_tenants {}

    /// `list-and-search.md`.
    #[doc = include_str!("../cookbook/list-and-search.md")]
    pub mod list_and_search {}

    /// `fork-and-compare.md`.
    #[doc = include_str!("../cookbook/fork-and-compare.md")]
    pub mod fork_and_compare {}

    /// `send-and-keep-files.md`.
    #[doc = include_str!("../cookbook/send-and-keep-files.md")]
    pub mod send_and_keep_files {}

    /// `after-a-crash.md`.
    #[doc = include_str!("../cookbook/after-a-crash.md")]
    pub mod after_a_crash {}

    /// `follow-live.md`.
    #[doc = include_str!("../cookbook/follow-live.md")]
    pub mod follow_live {}

    /// `retention-and-erasure.md`.
    #[doc = include_str!("../cookbook/retention-and-erasure.md")]
    pub mod retention_and_erasure {}

    /// `write-a-backend.md`.
    #[doc = include_str!("../cookbook/write-a-backend.md")]
    pub mod write_a_backend {}

    /// `write-a-model-provider.md`.
    #[doc = include_str!("../cookbook/write-a-model-provider.md")]
    pub mod write_a_model_provider {}

    /// `return-signed-reasoning.md`.
    #[doc = include_str!("../cookbook/return-signed-reasoning.md")]
    pub mod return_signed_reasoning {}

    /// `test-your-agent.md`.
    #[doc = include_str!("../cookbook/test-your-agent.md")]
    pub mod test_your_agent {}

    /// `operate-and-back-up.md`.
    #[doc = include_str!("../cookbook/operate-and-back-up.md")]
    pub mod operate_and_back_up {}

    /// `serve-over-http.md`.
    #[doc = include_str!("../cookbook/serve-over-http.md")]
    pub mod serve_over_http {}

    /// `choose-scopes-and-limits.md`.
    #[doc = include_str!("../cookbook/choose-scopes-and-limits.md")]
    pub mod choose_scopes_and_limits {}

    /// `metrics.md`.
    #[doc = include_str!("../cookbook/metrics.md")]
    pub mod metrics {}

    /// `troubleshooting.md`.
    #[doc = include_str!("../cookbook/troubleshooting.md")]
    pub mod troubleshooting {}

    /// `agents-and-builds.md`.
    #[doc = include_str!("../cookbook/agents-and-builds.md")]
    pub mod agents_and_builds {}

    /// `postgres.md`.
    #[doc = include_str!("../cookbook/postgres.md")]
    pub mod postgres {}
}

/// The root of the project.
pub fn root() -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}
