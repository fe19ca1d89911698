//! For backends: cache of what a store remembers of sessions.

use std::collections::HashMap;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::base::SessionId;

/// Number of sessions that are remembered for certain.
const KNOWN: usize = 512;

/// For backends: values of the sessions that were used last, by tenant and id. 512 are kept for certain, and at most twice as
/// many. It says nothing about their age: a store compares them with what is stored before it relies on them.
///
/// ```
/// use agent_core::SessionId;
/// use agent_core::store::KnownSessions;
///
/// let (known, id) = (KnownSessions::default(), SessionId::from_uuid(Default::default()));
/// known.insert(("acme".into(), id), "record");
/// assert_eq!(known.get(&("acme".into(), id)), Some("record"));
/// known.remove_tenant("acme");
/// assert_eq!(known.get(&("acme".into(), id)), None);
/// ```
#[derive(Debug)]
pub struct KnownSessions<V>(Mutex<Generations<V>>);

#[derive(Debug)]
struct Generations<V> {
    recent: HashMap<(Arc<str>, SessionId), V>,
    /// Those that were used before [`KNOWN`] others.
    older: HashMap<(Arc<str>, SessionId), V>,
}

impl<V> Default for KnownSessions<V> {
    fn default() -> Self {
        Self(Mutex::new(Generations { recent: HashMap::new(), older: HashMap::new() }))
    }
}

impl<V> KnownSessions<V> {
    /// Returns what is remembered of a session, which is then one of those that were used last.
    pub fn get(&self, key: &(Arc<str>, SessionId)) -> Option<V>
    where
        V: Clone,
    {
        self.with(key, |found| found.clone())
    }

    /// Runs `work` on what is remembered of a session, which is then one of those that were used last.
    pub fn with<R>(&self, key: &(Arc<str>, SessionId), work: impl FnOnce(&mut V) -> R) -> Option<R> {
        let mut known = self.lock();
        if let Some((key, found)) = known.older.remove_entry(key) {
            known.insert(key, found);
        }
        known.recent.get_mut(key).map(work)
    }

    /// Remembers a session.
    pub fn insert(&self, key: (Arc<str>, SessionId), found: V) {
        self.lock().insert(key, found);
    }

    /// Forgets a session.
    pub fn remove(&self, key: &(Arc<str>, SessionId)) {
        let mut known = self.lock();
        known.recent.remove(key);
        known.older.remove(key);
    }

    /// Forgets all sessions of a tenant.
    pub fn remove_tenant(&self, tenant: &str) {
        let mut known = self.lock();
        known.recent.retain(|(of, _), _| **of != *tenant);
        known.older.retain(|(of, _), _| **of != *tenant);
    }

    /// Forgets all sessions.
    pub fn clear(&self) {
        let mut known = self.lock();
        (known.recent, known.older) = Default::default();
    }

    fn lock(&self) -> MutexGuard<'_, Generations<V>> {
        // A panic while the lock is held leaves nothing but sessions that are forgotten.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<V> Generations<V> {
    fn insert(&mut self, key: (Arc<str>, SessionId), found: V) {
        self.older.remove(&key);
        if self.recent.len() >= KNOWN && !self.recent.contains_key(&key) {
            self.older = mem::take(&mut self.recent);
        }
        self.recent.insert(key, found);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::Timestamp;
    use crate::clock::Effects;

    #[test]
    fn sessions_that_are_used_are_remembered_and_their_number_is_bounded() {
        let (known, effects) = (KnownSessions::default(), Effects::seeded(1, Timestamp::from_micros(0)));
        let key = |n: usize| -> (Arc<str>, SessionId) {
            (if n.is_multiple_of(2) { "a" } else { "b" }.into(), effects.new_session_id())
        };
        let keys: Vec<_> = (0..10 * KNOWN).map(key).collect();
        for (n, key) in keys.iter().enumerate() {
            known.insert(key.clone(), n);
            assert_eq!(known.get(&keys[0]), Some(0), "it was used by the one before");
        }
        let count = |of: &str| {
            let known = known.lock();
            known.recent.keys().chain(known.older.keys()).filter(|(tenant, _)| **tenant == *of).count()
        };
        assert!((KNOWN..=2 * KNOWN).contains(&(count("a") + count("b"))), "{} {}", count("a"), count("b"));
        for (n, key) in keys.iter().enumerate().skip(9 * KNOWN + 1) {
            assert_eq!(known.get(key), Some(n), "one of the last");
        }
        known.with(&keys[0], |value| *value = 7);
        assert_eq!(known.get(&keys[0]), Some(7));
        known.remove(&keys[0]);
        assert_eq!(known.get(&keys[0]), None);
        known.remove_tenant("a");
        assert_eq!(count("a"), 0);
        assert!(count("b") > 0);
        known.clear();
        assert_eq!(count("b"), 0);
    }
}
