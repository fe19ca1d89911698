//! Retention settings of a session: two labels, so that every store keeps and finds them.

use std::time::Duration;

use crate::model::age::{INACTIVE_AFTER_LABEL, age};
use crate::model::attributes::{Attributes, Patch};

/// Label of a pinned session; its value is the reason.
pub const PIN_LABEL: &str = "retention.pin";

impl Patch {
    /// Pins the session: no sweep changes it, and no garbage collection removes its workspace.
    ///
    /// `why` has 1 to 512 bytes without control characters. An explicit deletion of the session is still possible.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/setup.rs"));
    /// use std::time::Duration;
    /// use agent_core::model::Patch;
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # let (store, _, session) = session().await?;
    /// let patch = Patch::new().pin("legal hold 4711").with_inactive_after(Duration::from_secs(3600));
    /// let session = store.update(session.id, session.head, patch).await?.session;
    /// assert_eq!(session.attributes.pinned(), Some("legal hold 4711"));
    /// assert_eq!(session.attributes.inactive_after(), Some(Duration::from_secs(3600)));
    ///
    /// let session = store.update(session.id, session.head, Patch::new().unpin()).await?.session;
    /// assert_eq!(session.attributes.pinned(), None);
    /// # Ok(()) }
    /// ```
    pub fn pin(self, why: impl Into<String>) -> Self {
        self.with_label(PIN_LABEL, why)
    }

    /// Removes the pin.
    pub fn unpin(self) -> Self {
        self.without_label(PIN_LABEL)
    }

    /// Sets the time without activity after which a sweep suspends or ends the session, independent of the sweep's
    /// policy for others. At most [`AGE_MAX`](crate::model::AGE_MAX); fractions of a second are dropped.
    pub fn with_inactive_after(self, after: Duration) -> Self {
        self.with_label(INACTIVE_AFTER_LABEL, after.as_secs().to_string())
    }
}

impl Attributes {
    /// Returns the reason for which the session is pinned, if it is.
    pub fn pinned(&self) -> Option<&str> {
        self.labels.get(PIN_LABEL).map(String::as_str)
    }

    /// Returns the session's own limit of inactivity, if it has a valid one.
    pub fn inactive_after(&self) -> Option<Duration> {
        age(self.labels.get(INACTIVE_AFTER_LABEL)?)
    }
}
