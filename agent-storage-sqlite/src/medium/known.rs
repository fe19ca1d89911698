//! Records that the writer remembers and on which callers plan, so that they are not read again for each commit.

use std::collections::HashMap;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agent_core::SessionId;
use agent_core::session::SessionRecord;

/// Number of records that are remembered for certain; up to twice as many are kept.
const KNOWN: usize = 512;

/// Session, by its tenant and its id.
pub(crate) type Key = (Arc<str>, SessionId);

/// Records by tenant and session. Clones share them.
///
/// What the writer's open transaction has written is among them. If it is rolled back, the writer forgets all of them; a plan
/// on such a record finds another version.
#[derive(Clone, Debug, Default)]
pub(crate) struct Known(Arc<Mutex<Records>>);

#[derive(Debug, Default)]
struct Records {
    recent: HashMap<Key, Remembered>,
    /// Those that were used before [`KNOWN`] others.
    older: HashMap<Key, Remembered>,
    /// Number of times that other connections were found to have written.
    generation: u64,
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
        self.records().find(key).map(|found| found.stored.clone())
    }

    /// Returns what is stored of a session, if it is known that no other connection has written since it was remembered.
    pub(crate) fn current(&self, key: &Key) -> Option<StoredSession> {
        let mut records = self.records();
        let generation = records.generation;
        records.find(key).filter(|found| found.generation == generation).map(|found| found.stored.clone())
    }

    /// Remembers what the writer has read or written.
    pub(crate) fn insert(&self, key: Key, stored: StoredSession) {
        let mut records = self.records();
        let generation = records.generation;
        records.insert(key, Remembered { stored, generation });
    }

    /// Sets that a session is not one of the recent ones any more.
    pub(crate) fn set_not_recent(&self, key: &Key) {
        if let Some(found) = self.records().find(key) {
            found.stored.is_recent = false;
        }
    }

    pub(crate) fn remove(&self, key: &Key) {
        let mut records = self.records();
        records.recent.remove(key);
        records.older.remove(key);
    }

    pub(crate) fn remove_tenant(&self, tenant: &Arc<str>) {
        let mut records = self.records();
        records.recent.retain(|(of, _), _| of != tenant);
        records.older.retain(|(of, _), _| of != tenant);
    }

    pub(crate) fn clear(&self) {
        let mut records = self.records();
        (records.recent, records.older) = Default::default();
    }

    /// Notes that another connection has written: each record is compared with the file before it counts as current.
    pub(crate) fn others_wrote(&self) {
        self.records().generation += 1;
    }

    fn records(&self) -> MutexGuard<'_, Records> {
        // A panic while the lock is held leaves nothing but records that are forgotten.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Records {
    /// Finds a session, which is then one of those that were used last.
    fn find(&mut self, key: &Key) -> Option<&mut Remembered> {
        if let Some((key, found)) = self.older.remove_entry(key) {
            self.insert(key, found);
        }
        self.recent.get_mut(key)
    }

    fn insert(&mut self, key: Key, record: Remembered) {
        self.older.remove(&key);
        if self.recent.len() >= KNOWN && !self.recent.contains_key(&key) {
            self.older = mem::take(&mut self.recent);
        }
        self.recent.insert(key, record);
    }
}
