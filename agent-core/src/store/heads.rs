//! For backends: notifies callers that wait for a session's next event.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use crate::base::{Seq, SessionId};

/// For backends: sessions of any tenant whose next event somebody waits for. At most about as many others are also kept.
///
/// ```
/// use agent_core::store::Heads;
/// use agent_core::{Seq, SessionId};
///
/// let (heads, tenant, id) = (Heads::default(), "acme".into(), SessionId::from_uuid(Default::default()));
/// let mut head = heads.watch(&tenant, id);
/// heads.notify(&tenant, id, Seq::new(7));
/// assert_eq!(*head.borrow_and_update(), Seq::new(7));
/// heads.wake(&tenant, id);
/// assert!(head.has_changed().unwrap());
/// ```
#[derive(Debug, Default)]
pub struct Heads(Mutex<Watched>);

#[derive(Debug, Default)]
struct Watched {
    sessions: HashMap<(Arc<str>, SessionId), watch::Sender<Seq>>,
    /// Number of sessions at which those without a waiting caller are removed.
    most: usize,
}

/// Smallest number of sessions at which they are checked for waiting callers.
const FEW: usize = 256;

impl Heads {
    /// Returns a receiver for the future heads of a session. It has 0, or a former head, at first.
    pub fn watch(&self, tenant: &Arc<str>, id: SessionId) -> watch::Receiver<Seq> {
        let mut heads = self.lock();
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

    /// Notifies the receivers of a session's new head.
    pub fn notify(&self, tenant: &Arc<str>, id: SessionId, head: Seq) {
        self.change(tenant, id, |last| *last = head);
    }

    /// Wakes the receivers of a session, which may have another head by now: they have to read it.
    pub fn wake(&self, tenant: &Arc<str>, id: SessionId) {
        self.change(tenant, id, |_| {});
    }

    /// Wakes the receivers of all sessions.
    pub fn wake_all(&self) {
        self.lock().sessions.retain(|_, head| {
            head.send_modify(|_| {});
            head.receiver_count() > 0
        });
    }

    /// Changes what the receivers of a session have, and removes the session if there are none.
    fn change(&self, tenant: &Arc<str>, id: SessionId, change: impl FnOnce(&mut Seq)) {
        let (mut heads, key) = (self.lock(), (tenant.clone(), id));
        let Some(head) = heads.sessions.get(&key) else { return };
        if head.receiver_count() == 0 {
            heads.sessions.remove(&key);
        } else {
            head.send_modify(change);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Watched> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::Timestamp;
    use crate::clock::Effects;

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
        let count = || heads.lock().sessions.len();
        assert!(count() < 1000, "{} sessions are remembered for 100 that somebody waits for", count());
        for (id, mut head) in waiting {
            heads.notify(&tenant, id, Seq::new(7));
            assert_eq!(*head.borrow_and_update(), Seq::new(7));
        }
        heads.wake_all();
        assert_eq!(count(), 0, "nobody waits any more");
    }

    /// Whoever is woken has what it had, and knows that it may be old; the other sessions are not woken.
    #[test]
    fn a_woken_caller_keeps_its_head() {
        let (heads, effects) = (Heads::default(), Effects::seeded(1, Timestamp::from_micros(0)));
        let (tenant, other): (Arc<str>, Arc<str>) = ("default".into(), "acme".into());
        let (first, second) = (effects.new_session_id(), effects.new_session_id());
        let mut one = heads.watch(&tenant, first);
        let mut others = [heads.watch(&tenant, second), heads.watch(&other, first)];
        heads.notify(&tenant, first, Seq::new(7));
        one.borrow_and_update();
        heads.wake(&tenant, first);
        assert!(one.has_changed().unwrap());
        assert_eq!(*one.borrow_and_update(), Seq::new(7));
        assert!(others.iter().all(|head| !head.has_changed().unwrap()));
        heads.wake_all();
        assert!(others.iter_mut().chain([&mut one]).all(|head| head.has_changed().unwrap()));
    }
}
