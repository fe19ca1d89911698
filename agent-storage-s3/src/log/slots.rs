//! Commits of a session, each in its slot, and the search for the newest.

use std::sync::Arc;

use agent_core::session::SessionRecord;
use agent_core::state::SessionState;
use agent_core::{Error, Result, SessionId};
use tokio::time::Instant;

use crate::error::corrupt;
use crate::layout::keys::{Keys, Slot};
use crate::log::heads::Heads;
use crate::log::slot::{Entry, Kind};
use crate::medium::background::Background;
use crate::medium::object::Bucket;

pub(crate) fn absent(id: SessionId) -> Error {
    Error::not_found(format!("session {id} does not exist"))
}

/// Slots of one tenant.
#[derive(Debug)]
pub(crate) struct Slots {
    pub(crate) bucket: Arc<Bucket>,
    pub(crate) keys: Keys,
    pub(crate) heads: Heads,
    background: Arc<Background>,
}

impl Slots {
    pub(crate) fn new(bucket: Arc<Bucket>, keys: Keys, background: Arc<Background>) -> Self {
        Self { bucket, keys, heads: Heads::default(), background }
    }

    /// Deletes keys of the index that are not in force any more, later.
    pub(crate) fn delete_later(&self, names: impl IntoIterator<Item = String>) {
        self.background.delete(names);
    }

    /// Deletes keys of the index that have not been in force for long, in the background.
    pub(crate) fn delete_now(&self, names: Vec<String>) {
        self.background.delete_now(names);
    }

    /// Returns the object in a slot, if the slot is taken.
    pub(crate) async fn get(&self, id: SessionId, slot: Slot, until: Instant) -> Result<Option<Arc<Entry>>> {
        let found = self.bucket.get(&self.keys.slot(id, slot), until).await?;
        found.map(|object| Entry::parse(&object.bytes, id, slot).map(Arc::new)).transpose()
    }

    /// Finds the newest slot by a list request.
    pub(crate) async fn newest_slot(&self, id: SessionId, until: Instant) -> Result<Option<Slot>> {
        self.first_slot(id, None, until).await
    }

    /// Finds the newest slot whose key sorts after `after`. Keys of other programs are passed over.
    pub(crate) async fn first_slot(
        &self,
        id: SessionId,
        after: Option<String>,
        until: Instant,
    ) -> Result<Option<Slot>> {
        let (folder, mut after) = (self.keys.slots(id), after);
        loop {
            let Some(key) = self.bucket.first(&folder, after.as_deref(), until).await? else {
                return Ok(None);
            };
            if let Some(slot) = self.keys.slot_of(id, &key) {
                return Ok(Some(slot));
            }
            after = Some(key.max(self.keys.before_slots(id)));
        }
    }

    /// Returns the newest commit; `None` if there is none.
    pub(crate) async fn newest(&self, id: SessionId, until: Instant) -> Result<Option<Arc<Entry>>> {
        match self.heads.get(id) {
            Some(known) => self.newest_after(id, &known, until).await,
            None => self.newest_cold(id, until).await,
        }
    }

    pub(crate) async fn newest_cold(&self, id: SessionId, until: Instant) -> Result<Option<Arc<Entry>>> {
        let mut emptied = None;
        loop {
            let Some(slot) = self.newest_slot(id, until).await? else { return Ok(None) };
            let head = self.get(id, slot, until).await?;
            // A slot that was listed is never free again.
            let head =
                head.ok_or_else(|| corrupt(&format!("session {id}"), "lists a slot that does not exist"))?;
            // An empty slot was the newest when it was listed, and is not any more.
            if head.head.kind != Kind::Stub {
                return Ok(self.recorded(id, head));
            }
            if emptied.replace(slot) == Some(slot) {
                return Ok(Some(head));
            }
        }
    }

    /// Returns the newest commit, if `known` was the newest earlier. Reads the next slot, and usually needs one
    /// request.
    async fn newest_after(
        &self,
        id: SessionId,
        known: &Arc<Entry>,
        until: Instant,
    ) -> Result<Option<Arc<Entry>>> {
        if is_deleted(known) {
            // No commit follows it, but a purge replaces it.
            let head = self.get(id, known.head.slot, until).await?;
            return Ok(head.and_then(|head| self.recorded(id, head)));
        }
        let Some(next) = self.get(id, known.next(), until).await? else { return Ok(Some(known.clone())) };
        // There may be newer slots.
        match self.newest_slot(id, until).await? {
            Some(slot) if slot != next.head.slot => match self.get(id, slot, until).await? {
                Some(head) if head.head.kind != Kind::Stub => Ok(self.recorded(id, head)),
                _ => self.newest_cold(id, until).await,
            },
            _ => Ok(self.recorded(id, next)),
        }
    }

    /// Records a head; returns `None` for a slot that was taken so that no session can be created.
    fn recorded(&self, id: SessionId, head: Arc<Entry>) -> Option<Arc<Entry>> {
        if head.head.kind == Kind::Void {
            return None;
        }
        self.heads.note(id, &head);
        Some(head)
    }

    /// Returns the newest commit of a session, which must exist.
    pub(crate) async fn existing(&self, id: SessionId, until: Instant) -> Result<Arc<Entry>> {
        self.newest(id, until).await?.ok_or_else(|| absent(id))
    }

    /// Returns the record of a session, which must exist.
    pub(crate) async fn load(&self, id: SessionId, until: Instant) -> Result<Arc<SessionRecord>> {
        let head = self.existing(id, until).await?;
        record(&head).cloned()
    }
}

/// Returns the record after a commit.
pub(crate) fn record(head: &Entry) -> Result<&Arc<SessionRecord>> {
    head.record.as_ref().ok_or_else(|| {
        let object = format!("slot {} of session {}", head.head.slot.0, head.head.session);
        corrupt(&object, "is the newest slot, and is empty")
    })
}

pub(crate) fn is_deleted(head: &Entry) -> bool {
    head.record.as_ref().is_some_and(|record| record.status.state == SessionState::Deleted)
}
