//! What a session says of its own retention: two labels, so that every store keeps and finds them.

use std::time::Duration;

use crate::model::attributes::{Attributes, Patch};

/// The label of a pinned session; its value says why.
pub const PIN_LABEL: &str = "retention.pin";
/// The label of a session's own limit of inactivity, in whole seconds.
pub const INACTIVE_AFTER_LABEL: &str = "retention.inactive_after_s";

impl Patch {
    /// Pins the session: no sweep touches it, and no gc the workspace that it belongs to. `why` has 1 to 512 bytes
    /// without control characters. Who deletes it by name deletes it all the same.
    pub fn pin(self, why: impl Into<String>) -> Self {
        self.label(PIN_LABEL, why)
    }

    /// Takes the pin away.
    pub fn unpin(self) -> Self {
        self.without_label(PIN_LABEL)
    }

    /// Sets after what time without activity a sweep sets the session aside, or ends it, whatever its policy says for
    /// others. Parts of a second are dropped.
    pub fn inactive_after(self, after: Duration) -> Self {
        self.label(INACTIVE_AFTER_LABEL, after.as_secs().to_string())
    }
}

impl Attributes {
    /// Why the session is pinned, if it is.
    pub fn pinned(&self) -> Option<&str> {
        self.labels.get(PIN_LABEL).map(String::as_str)
    }

    /// The session's own limit of inactivity, where it has one that can be read.
    pub fn inactive_after(&self) -> Option<Duration> {
        self.labels.get(INACTIVE_AFTER_LABEL)?.parse().ok().map(Duration::from_secs)
    }
}
