//! The heads that a store has seen last: where to look first, and what to plan on. Never what is so.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agent_core::SessionId;

use crate::slot::Entry;

/// The most bytes of objects that are kept.
const MOST: usize = 32 << 20;

#[derive(Debug, Default)]
pub(crate) struct Heads {
    kept: Mutex<Kept>,
    /// Grows with each head that is noted, so that those who wait for one look again.
    noted: tokio::sync::watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Kept {
    heads: HashMap<SessionId, (u64, Arc<Entry>)>,
    bytes: usize,
    clock: u64,
}

impl Heads {
    fn kept(&self) -> MutexGuard<'_, Kept> {
        // A panic while the lock is held leaves a cache, which may be anything.
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

    /// Notes a head, unless a newer one is known.
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

    /// Forgets what is known of a session.
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

/// What an entry takes: its bytes, and its record once more, decoded.
fn cost(entry: &Entry) -> usize {
    entry.size + 4096
}
