//! Tells those who wait for a session's next event, in this store, that there is one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use agent_core::{Seq, SessionId};
use tokio::sync::watch;

/// A session, by its tenant and its id.
type Key = (Arc<str>, SessionId);

/// The sessions that somebody waits for.
#[derive(Debug, Default)]
pub(crate) struct Heads(Mutex<HashMap<Key, watch::Sender<Seq>>>);

impl Heads {
    /// Waits, from now on, for news of a session.
    pub(crate) fn watch(&self, tenant: &Arc<str>, id: SessionId) -> watch::Receiver<Seq> {
        let mut heads = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        heads.entry((tenant.clone(), id)).or_insert_with(|| watch::Sender::new(Seq::ZERO)).subscribe()
    }

    /// Tells of a session's new head, and forgets those that nobody waits for any more.
    pub(crate) fn tell(&self, tenant: &Arc<str>, id: SessionId, head: Seq) {
        let mut heads = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (tenant.clone(), id);
        if heads.get(&key).is_some_and(|told| told.send(head).is_err()) {
            heads.remove(&key);
        }
    }
}
