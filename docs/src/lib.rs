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

/// `docs/formats.md`.
#[doc = include_str!("../formats.md")]
pub mod formats {}

/// The root of the project.
pub fn root() -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}
