//! Mistakes that are made on purpose, so that the tests that must notice are seen to (`.ci/planted`): none, but in a build
//! with `--cfg planted`.

/// Whether the mistake of this name is to be made: the one that the environment names as `AGENT_PLANTED`.
#[cfg(planted)]
pub fn planted(mistake: &str) -> bool {
    static PLANTED: std::sync::OnceLock<Option<String>> = std::sync::OnceLock::new();
    PLANTED.get_or_init(|| std::env::var("AGENT_PLANTED").ok()).as_deref() == Some(mistake)
}

/// No mistake is made on purpose.
#[cfg(not(planted))]
#[inline]
pub const fn planted(_: &str) -> bool {
    false
}
