//! Tells those who wait for a session's next event, in this store, that there is one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use agent_core::{Seq, SessionId};
use tokio::sync::watch;

/// A session, by its tenant and its id.
type Key = (Arc<str>, SessionId);

/// The sessions that somebody waits for, and at most as many others, but for a few.
#[derive(Debug, Default)]
pub(crate) struct Heads(Mutex<Waited>);

#[derive(Debug, Default)]
struct Waited {
    sessions: HashMap<Key, watch::Sender<Seq>>,
    /// With so many, those that nobody waits for any more are forgotten.
    most: usize,
}

/// The fewest with which it is looked which of them nobody waits for.
const FEW: usize = 256;

impl Heads {
    /// Waits, from now on, for news of a session.
    pub(crate) fn watch(&self, tenant: &Arc<str>, id: SessionId) -> watch::Receiver<Seq> {
        let mut heads = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if heads.sessions.len() >= heads.most.max(FEW) {
            heads.sessions.retain(|_, head| head.receiver_count() > 0);
            // So that each look at all of them pays for as many new ones.
            heads.most = 2 * heads.sessions.len();
        }
        heads
            .sessions
            .entry((tenant.clone(), id))
            .or_insert_with(|| watch::Sender::new(Seq::ZERO))
            .subscribe()
    }

    /// Tells of a session's new head, and forgets those that nobody waits for any more.
    pub(crate) fn tell(&self, tenant: &Arc<str>, id: SessionId, head: Seq) {
        let mut heads = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (tenant.clone(), id);
        if heads.sessions.get(&key).is_some_and(|told| told.send(head).is_err()) {
            heads.sessions.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use agent_core::Timestamp;
    use agent_core::clock::Effects;

    use super::*;

    /// Nothing stays of a session that somebody waited for once; those who wait are told, however many came and went.
    #[test]
    fn heads_of_sessions_used_once_are_forgotten() {
        let (heads, effects) = (Heads::default(), Effects::seeded(1, Timestamp::from_micros(0)));
        let tenant: Arc<str> = "default".into();
        let waiting: Vec<_> = (0..100)
            .map(|_| {
                let id = effects.new_session_id();
                (id, heads.watch(&tenant, id))
            })
            .collect();
        for _ in 0..100_000 {
            drop(heads.watch(&tenant, effects.new_session_id()));
        }
        let count = heads.0.lock().unwrap().sessions.len();
        assert!(count < 1000, "{count} sessions are remembered for 100 that somebody waits for");
        for (id, mut head) in waiting {
            heads.tell(&tenant, id, Seq::new(7));
            assert_eq!(*head.borrow_and_update(), Seq::new(7));
        }
    }
}
