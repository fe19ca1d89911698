//! Notifies callers in this store that wait for a session's next event.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use agent_core::{Seq, SessionId};
use tokio::sync::watch;

/// Session, by its tenant and its id.
type Key = (Arc<str>, SessionId);

/// Sessions with a waiting caller. At most about as many others are also kept.
#[derive(Debug, Default)]
pub(crate) struct Heads(Mutex<Waited>);

#[derive(Debug, Default)]
struct Waited {
    sessions: HashMap<Key, watch::Sender<Seq>>,
    /// Number of sessions at which those without a waiting caller are removed.
    most: usize,
}

/// Smallest number of sessions at which they are checked for waiting callers.
const FEW: usize = 256;

impl Heads {
    /// Returns a receiver for the future heads of a session.
    pub(crate) fn watch(&self, tenant: &Arc<str>, id: SessionId) -> watch::Receiver<Seq> {
        let mut heads = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if heads.sessions.len() >= heads.most.max(FEW) {
            heads.sessions.retain(|_, head| head.receiver_count() > 0);
            // So that each search of all of them is paid by as many new ones.
            heads.most = 2 * heads.sessions.len();
        }
        heads
            .sessions
            .entry((tenant.clone(), id))
            .or_insert_with(|| watch::Sender::new(Seq::ZERO))
            .subscribe()
    }

    /// Notifies the receivers of a session's new head, and removes the session if there are none.
    pub(crate) fn notify(&self, tenant: &Arc<str>, id: SessionId, head: Seq) {
        let mut heads = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (tenant.clone(), id);
        if heads.sessions.get(&key).is_some_and(|sender| sender.send(head).is_err()) {
            heads.sessions.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use agent_core::Timestamp;
    use agent_core::clock::Effects;

    use super::*;

    /// Sessions that were waited for once are removed; waiting callers are notified, regardless of how many others
    /// came and left.
    #[test]
    fn heads_without_waiters_are_removed() {
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
            heads.notify(&tenant, id, Seq::new(7));
            assert_eq!(*head.borrow_and_update(), Seq::new(7));
        }
    }
}
