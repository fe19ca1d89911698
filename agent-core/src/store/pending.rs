//! Work that a store has put off.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::base::{TenantId, is_default};

/// Work that a store has put off because it takes long, or that was interrupted.
///
/// Nothing is damaged, and no answer of the store depends on the work.
///
/// ```
/// use agent_core::store::Pending;
///
/// let pending = Pending::new("agent.db", "rewrite the file");
/// assert_eq!(pending.to_string(), "agent.db: rewrite the file");
/// assert!(!pending.is_manual && Pending::of_deletion("agent.db", &"acme".parse()?).is_manual);
/// # Ok::<(), agent_core::Error>(())
/// ```
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Pending {
    /// Name of the object in the store, for example a file.
    pub object: String,
    /// Description of the work, and of what is the case until it is done.
    pub work: String,
    /// True if [`maintain`](crate::SessionStore::maintain) does not do it; `work` then says what does.
    #[serde(default, skip_serializing_if = "is_default")]
    pub is_manual: bool,
}

impl Pending {
    /// Creates a description of work on an object that [`maintain`](crate::SessionStore::maintain) does.
    pub fn new(object: impl Into<String>, work: impl Into<String>) -> Self {
        Self { object: object.into(), work: work.into(), is_manual: false }
    }

    /// For backends: describes the deletion of a tenant that has begun and not ended, by what is left of it.
    pub fn of_deletion(object: impl Into<String>, tenant: &TenantId) -> Self {
        let work = format!(
            "the deletion of tenant {tenant} has begun and not ended, and its data is still there; unless another process \
             is at it, delete the tenant again"
        );
        Self { is_manual: true, ..Self::new(object, work) }
    }
}

impl fmt::Display for Pending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.object, self.work)
    }
}
