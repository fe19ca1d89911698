//! Records that the store remembers, on which commits are planned. Each is compared with its row when it is used.

use std::collections::HashMap;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agent_core::SessionId;
use agent_core::session::SessionRecord;

/// Number of records that are remembered for certain; up to twice as many are kept.
const KNOWN: usize = 512;

/// Session, by its tenant and its id.
pub(crate) type Key = (Arc<str>, SessionId);

/// Record of a session, with its version.
#[derive(Clone, Debug)]
pub(crate) struct Versioned {
    pub(crate) version: i64,
    pub(crate) session: Arc<SessionRecord>,
}

/// Records by tenant and session. A record that is out of date costs one more round trip, and nothing else.
#[derive(Debug, Default)]
pub(crate) struct Known(Mutex<Records>);

#[derive(Debug, Default)]
struct Records {
    recent: HashMap<Key, Versioned>,
    /// Those that were used before [`KNOWN`] others.
    older: HashMap<Key, Versioned>,
}

impl Known {
    pub(crate) fn get(&self, key: &Key) -> Option<Versioned> {
        let mut records = self.lock();
        if let Some((key, found)) = records.older.remove_entry(key) {
            records.insert(key, found);
        }
        records.recent.get(key).cloned()
    }

    pub(crate) fn insert(&self, key: Key, found: Versioned) {
        self.lock().insert(key, found);
    }

    pub(crate) fn remove(&self, key: &Key) {
        let mut records = self.lock();
        records.recent.remove(key);
        records.older.remove(key);
    }

    pub(crate) fn remove_tenant(&self, tenant: &Arc<str>) {
        let mut records = self.lock();
        records.recent.retain(|(of, _), _| of != tenant);
        records.older.retain(|(of, _), _| of != tenant);
    }

    fn lock(&self) -> MutexGuard<'_, Records> {
        // A panic while the lock is held leaves nothing but records that are forgotten.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Records {
    fn insert(&mut self, key: Key, found: Versioned) {
        self.older.remove(&key);
        if self.recent.len() >= KNOWN && !self.recent.contains_key(&key) {
            self.older = mem::take(&mut self.recent);
        }
        self.recent.insert(key, found);
    }
}
