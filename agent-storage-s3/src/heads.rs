//! Cache of the heads that a store saw last. Searches start there, and commits are planned on it. It may be out of
//! date.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agent_core::SessionId;

use crate::keys::Slot;
use crate::slot::Entry;

/// Limit on the bytes of objects that are cached.
const MOST: usize = 32 << 20;

#[derive(Debug, Default)]
pub(crate) struct Heads {
    kept: Mutex<CachedHeads>,
    /// Counter of recorded heads; callers that wait for a head check again when it changes.
    noted: tokio::sync::watch::Sender<u64>,
}

/// Head of a session, and the object that closed the window before it if that was seen.
#[derive(Clone, Debug)]
struct Known {
    head: Arc<Entry>,
    base: Option<Arc<Entry>>,
}

#[derive(Debug, Default)]
struct CachedHeads {
    heads: HashMap<SessionId, (u64, Known)>,
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
        let (used, known) = kept.heads.get_mut(&session)?;
        *used = clock;
        Some(known.head.clone())
    }

    /// Returns the object in a slot that closed the window before the known head's.
    pub(crate) fn base(&self, session: SessionId, slot: Slot) -> Option<Arc<Entry>> {
        let kept = self.kept();
        let (_, known) = kept.heads.get(&session)?;
        known.base.clone().filter(|base| base.head.slot == slot)
    }

    /// Records a head, unless a newer one is known.
    pub(crate) fn note(&self, session: SessionId, head: &Arc<Entry>) {
        let mut kept = self.kept();
        kept.clock += 1;
        let clock = kept.clock;
        let before = kept.heads.get(&session).map(|(_, known)| known.clone());
        if before.as_ref().is_some_and(|before| before.head.head.slot > head.head.slot) {
            return;
        }
        let mut base = None;
        if let Some(before) = before {
            kept.bytes = kept.bytes.saturating_sub(cost(&before));
            let seen = [Some(before.head), before.base].into_iter().flatten();
            base = seen.into_iter().find(|seen| Some(seen.head.slot) == head.head.previous);
        }
        let known = Known { head: head.clone(), base };
        kept.bytes += cost(&known);
        kept.heads.insert(session, (clock, known));
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

/// Returns the memory that a head takes, in bytes: its objects, and their decoded records.
fn cost(known: &Known) -> usize {
    let entry = |entry: &Entry| entry.size + 4096;
    entry(&known.head) + known.base.as_deref().map_or(0, entry)
}
