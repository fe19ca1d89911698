//! Records that the writer remembers and on which callers plan, so that they are not read again for each commit.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use agent_core::SessionId;
use agent_core::session::SessionRecord;
use agent_core::store::KnownSessions;

/// Session, by its tenant and its id.
pub(crate) type Key = (Arc<str>, SessionId);

/// Records by tenant and session. Clones share them.
///
/// What the writer's open transaction has written is among them. If it is rolled back, the writer forgets all of them; a plan
/// on such a record finds another version.
#[derive(Clone, Debug, Default)]
pub(crate) struct Known(Arc<Records>);

#[derive(Debug, Default)]
struct Records {
    sessions: KnownSessions<Remembered>,
    /// Number of times that other connections were found to have written. Only the writer's thread uses it.
    generation: AtomicU64,
}

/// Record of a session, with its version, the number of its log, and whether it is one of the recent sessions.
#[derive(Clone, Debug)]
pub(crate) struct StoredSession {
    pub(crate) log: i64,
    pub(crate) version: i64,
    pub(crate) session: Arc<SessionRecord>,
    pub(crate) is_recent: bool,
}

#[derive(Debug)]
struct Remembered {
    stored: StoredSession,
    generation: u64,
}

impl Known {
    /// Returns what is remembered of a session. It is out of date if another connection has written to the session since.
    pub(crate) fn remembered(&self, key: &Key) -> Option<StoredSession> {
        self.0.sessions.with(key, |found| found.stored.clone())
    }

    /// Returns what is stored of a session, if it is known that no other connection has written since it was remembered.
    pub(crate) fn current(&self, key: &Key) -> Option<StoredSession> {
        let now = self.generation();
        self.0.sessions.with(key, |found| (found.generation == now).then(|| found.stored.clone())).flatten()
    }

    /// Remembers what the writer has read or written.
    pub(crate) fn insert(&self, key: Key, stored: StoredSession) {
        let generation = self.generation();
        self.0.sessions.insert(key, Remembered { stored, generation });
    }

    /// Sets that a session is not one of the recent ones any more.
    pub(crate) fn set_not_recent(&self, key: &Key) {
        self.0.sessions.with(key, |found| found.stored.is_recent = false);
    }

    pub(crate) fn remove(&self, key: &Key) {
        self.0.sessions.remove(key);
    }

    pub(crate) fn remove_tenant(&self, tenant: &str) {
        self.0.sessions.remove_tenant(tenant);
    }

    pub(crate) fn clear(&self) {
        self.0.sessions.clear();
    }

    /// Notes that another connection has written: each record is compared with the file before it counts as current.
    pub(crate) fn others_wrote(&self) {
        self.0.generation.fetch_add(1, Ordering::Relaxed);
    }

    fn generation(&self) -> u64 {
        self.0.generation.load(Ordering::Relaxed)
    }
}
