//! Ages by which retention selects, and the label of a session's own.

use std::time::Duration;

use crate::base::text::quoted;
use crate::base::{Error, Result};

/// Label of a session's own limit of inactivity, in whole seconds.
pub const INACTIVE_AFTER_LABEL: &str = "retention.inactive_after_s";
/// Maximum of a session's own limit of inactivity, and of each age by which retention selects: 36,500 days.
pub const AGE_MAX: Duration = Duration::from_secs(36_500 * 24 * 3600);

/// Returns the time of a label; `None` if it is none, or beyond the maximum.
pub(super) fn age(label: &str) -> Option<Duration> {
    label.parse().ok().map(Duration::from_secs).filter(|age| *age <= AGE_MAX)
}

/// Checks the value of a label that a session gets.
///
/// # Errors
///
/// `InvalidInput` if it should be a time and is none, or is beyond the maximum.
pub(super) fn check_label(key: &str, value: &str) -> Result<()> {
    if key != INACTIVE_AFTER_LABEL || age(value).is_some() {
        return Ok(());
    }
    let (seconds, days) = (AGE_MAX.as_secs(), AGE_MAX.as_secs() / (24 * 3600));
    Err(Error::invalid(format!(
        "label {INACTIVE_AFTER_LABEL} is {}; give whole seconds, at most {seconds} ({days} days)",
        quoted(value)
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::NewEvent;
    use crate::model::Patch;
    use crate::session::NewSession;
    use crate::{MemoryStore, SessionStoreExt, WorkspaceId, clock::Effects};

    #[tokio::test]
    async fn age_beyond_the_maximum_is_named() {
        let effects = Effects::default();
        let store = MemoryStore::new().sessions(&effects);
        let new = || NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
        let session = store.create(new()).await.unwrap();
        for patch in [
            Patch::new().with_inactive_after(AGE_MAX + Duration::from_secs(1)),
            Patch::new().with_inactive_after(Duration::MAX),
            Patch::new().with_label(INACTIVE_AFTER_LABEL, "a week"),
        ] {
            let updated = NewEvent::updated(patch.clone());
            let errors = [
                store.create(new().with_patch(&patch)).await.unwrap_err(),
                store.append(session.id, session.head, vec![updated]).await.unwrap_err(),
            ];
            for error in errors {
                assert!(error.to_string().contains("at most 3153600000 (36500 days)"), "{error}");
            }
        }
        let most = Patch::new().with_inactive_after(AGE_MAX);
        let session = store.create(new().with_patch(&most)).await.unwrap();
        assert_eq!(session.attributes.inactive_after(), Some(AGE_MAX));
    }
}
