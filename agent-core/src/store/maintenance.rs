//! Trait that a backend implements for the maintenance of its data, and its answers.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::base::{Error, Reason, Result, SessionId, TenantId, Timestamp, is_default};
use crate::session::SessionRecord;
use crate::store::page::Damaged;

/// Check, repair and put-off work of a store, handed out by [`SessionStore::maintenance`](crate::SessionStore::maintenance).
///
/// Each method has a default, for a store that needs no such work. Errors and cancel safety are those of
/// [`SessionStore`](crate::SessionStore#errors).
#[async_trait]
pub trait Maintenance: fmt::Debug + Send + Sync + 'static {
    /// Returns faults of the store's own structures that reading all objects would not show.
    ///
    /// Examples are an index without an entry and a page without a link to it. Objects of other programs, which the store
    /// ignores, are reported as [foreign](Damaged::foreign). Writes nothing; may read the whole store.
    ///
    /// The default returns nothing.
    async fn check(&self) -> Result<Vec<Damaged>> {
        Ok(Vec::new())
    }

    /// Rebuilds, from the logs and tombstones, the data that the store derives from them (records, lists, indexes).
    ///
    /// Returns the number of rebuilt sessions, and lists those left unchanged because their logs are damaged. Other
    /// callers may read and write at the same time.
    ///
    /// The default does nothing, for a store that keeps no derived data.
    async fn rebuild(&self) -> Result<Rebuilt> {
        Ok(Rebuilt::default())
    }

    /// Deletes a session that no commit can delete because its record cannot be read. Returns the tombstone.
    ///
    /// The tombstone keeps what is still known of the session's origin. The damaged bytes are kept until the session
    /// is [purged](crate::SessionStore::purge). A running run is fenced. Hosts call `WorkspaceManager::delete_session`.
    ///
    /// A repeated call succeeds. The default refuses, for a store that does not support it.
    ///
    /// # Errors
    ///
    /// `NotFound`; `InvalidInput` if the record can be read: delete the session by a commit; `Unsupported` by
    /// default.
    async fn delete_damaged(
        &self,
        id: SessionId,
        at: Timestamp,
        reason: Reason,
    ) -> Result<Arc<SessionRecord>> {
        let _ = (at, reason);
        Err(Error::unsupported(format!(
            "session {id} is damaged, and this store deletes no damaged sessions; restore it from a copy first"
        )))
    }

    /// Returns the work that the store has put off, for all of its tenants. [`maintain`](Self::maintain) does it, except for
    /// what is [manual](field@Pending::is_manual).
    ///
    /// That is the deletion of a tenant that was interrupted, or that another process is at: its data is in no list, and is
    /// still there. To end it, delete the tenant again. On files, each tenant's handle names its own.
    ///
    /// The default returns nothing, for a store that puts nothing off.
    async fn pending(&self) -> Result<Vec<Pending>> {
        Ok(Vec::new())
    }

    /// Does the work that the store has put off, for all of its tenants, and returns what was done.
    ///
    /// If a [purge](crate::SessionStore::purge) or the [deletion of a tenant](crate::Backend::delete_tenant) reports
    /// [`rewrite_pending`](crate::store::Purged::rewrite_pending), this rewrites the file: the cost grows with the whole file, and
    /// other writers wait. Call it when the host is quiet. If nothing is pending, it returns at once.
    ///
    /// The default does nothing.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped before it returns, or the process ends, the work is done, or pending as before; call it
    /// again.
    ///
    /// # Errors
    ///
    /// `Unavailable` if other processes read or write for too long, `Full` if there is no room: the work is still
    /// pending.
    async fn maintain(&self) -> Result<Vec<Pending>> {
        Ok(Vec::new())
    }
}

/// Maintenance of a store that needs none.
#[derive(Debug)]
pub(crate) struct NoMaintenance;

impl Maintenance for NoMaintenance {}

/// Result of [`Maintenance::rebuild`].
///
/// ```
/// use agent_core::store::{Damaged, Rebuilt};
///
/// let rebuilt = Rebuilt::new(12).with_damaged(vec![Damaged::new("session 019c…", "line 3 is cut off")]);
/// assert_eq!((rebuilt.sessions, rebuilt.damaged.len()), (12, 1));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Rebuilt {
    /// Number of sessions whose derived data was rebuilt.
    pub sessions: u64,
    /// Sessions left unchanged because their logs or tombstones are damaged.
    pub damaged: Vec<Damaged>,
}

impl Rebuilt {
    /// Creates the result for this number of sessions, without damaged ones.
    pub const fn new(sessions: u64) -> Self {
        Self { sessions, damaged: Vec::new() }
    }

    /// Sets the sessions that were left unchanged.
    #[must_use]
    pub fn with_damaged(mut self, damaged: Vec<Damaged>) -> Self {
        self.damaged = damaged;
        self
    }
}

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
    /// True if [`maintain`](Maintenance::maintain) does not do it; `work` then says what does.
    #[serde(default, skip_serializing_if = "is_default")]
    pub is_manual: bool,
}

impl Pending {
    /// Creates a description of work on an object that [`maintain`](Maintenance::maintain) does.
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
