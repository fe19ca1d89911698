//! Cache of the heads that a store saw last. Searches start there, and commits are planned on it. It may be out of
//! date.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agent_core::SessionId;

use crate::slot::Entry;

/// Limit on the bytes of objects that are cached.
const MOST: usize = 32 << 20;

#[derive(Debug, Default)]
pub(crate) struct Heads {
    kept: Mutex<CachedHeads>,
    /// Counter of recorded heads; callers that wait for a head check again when it changes.
    noted: tokio::sync::watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct CachedHeads {
    heads: HashMap<SessionId, (u64, Arc<Entry>)>,
    bytes: usize,
    clock: u64,
}

impl Heads {
    fn kept(&self) -> MutexGuard<'_, CachedHeads> {
        // A panic while the lock is held leaves a cache, which need not be complete.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn get(&self, session: SessionId) -> Option<Arc<Entry>> {
        let mut kept = self.kept();
        kept.clock += 1;
        let clock = kept.clock;
        let (used, head) = kept.heads.get_mut(&session)?;
        *used = clock;
        Some(head.clone())
    }

    /// Records a head, unless a newer one is known.
    pub(crate) fn note(&self, session: SessionId, head: &Arc<Entry>) {
        let mut kept = self.kept();
        kept.clock += 1;
        let clock = kept.clock;
        if let Some((_, known)) = kept.heads.get(&session) {
            if known.head.slot > head.head.slot {
                return;
            }
            kept.bytes = kept.bytes.saturating_sub(cost(known));
        }
        kept.bytes += cost(head);
        kept.heads.insert(session, (clock, head.clone()));
        while kept.bytes > MOST && kept.heads.len() > 1 {
            let oldest = kept.heads.iter().min_by_key(|(_, (used, _))| *used).map(|(id, _)| *id);
            let Some((_, gone)) = oldest.and_then(|id| kept.heads.remove(&id)) else { break };
            kept.bytes = kept.bytes.saturating_sub(cost(&gone));
        }
        drop(kept);
        self.noted.send_modify(|count| *count += 1);
    }

    /// Removes a session from the cache.
    pub(crate) fn forget(&self, session: SessionId) {
        let mut kept = self.kept();
        if let Some((_, gone)) = kept.heads.remove(&session) {
            kept.bytes = kept.bytes.saturating_sub(cost(&gone));
        }
    }

    pub(crate) fn watch(&self) -> tokio::sync::watch::Receiver<u64> {
        self.noted.subscribe()
    }
}

/// Returns the memory that an entry takes, in bytes: its object, and its decoded record.
fn cost(entry: &Entry) -> usize {
    entry.size + 4096
}
