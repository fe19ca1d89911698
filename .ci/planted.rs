//! Mistakes that are made on purpose, so that the tests that must notice are seen to (`.ci/planted`).

use std::sync::OnceLock;

/// Whether the mistake of this name is to be made: the one that the environment names as `AGENT_PLANTED`.
pub(crate) fn planted(mistake: &str) -> bool {
    static PLANTED: OnceLock<Option<String>> = OnceLock::new();
    PLANTED.get_or_init(|| std::env::var("AGENT_PLANTED").ok()).as_deref() == Some(mistake)
}
