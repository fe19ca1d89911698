//! Work that a store has put off.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Work that a store has put off because it takes long, and that
/// [`SessionStore::maintain`](crate::SessionStore::maintain) does.
///
/// Nothing is damaged, and no answer of the store depends on the work.
///
/// ```
/// use agent_core::store::Pending;
///
/// let pending = Pending::new("agent.db", "rewrite the file");
/// assert_eq!(pending.to_string(), "agent.db: rewrite the file");
/// ```
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Pending {
    /// Name of the object in the store, for example a file.
    pub object: String,
    /// Description of the work, and of what is the case until it is done.
    pub work: String,
}

impl Pending {
    /// Creates a description of work on an object.
    pub fn new(object: impl Into<String>, work: impl Into<String>) -> Self {
        Self { object: object.into(), work: work.into() }
    }
}

impl fmt::Display for Pending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.object, self.work)
    }
}
