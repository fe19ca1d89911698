//! Children of sessions, recorded under the parent's key, so that no session is created from a deleted one.

use agent_core::state::SessionState;
use agent_core::{Error, Result, SessionId, WriteOutcome};
use bytes::Bytes;
use tokio::time::Instant;

use crate::layout::keys::{Slot, last};
use crate::log::slot::{Entry, Head};
use crate::log::slots::{Slots, is_deleted};
use crate::medium::object::Condition;

/// Result of announcing a session that is to be created from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Announced {
    /// The parent is not deleted, and a later deletion finds the note.
    Recorded,
    /// The parent is deleted. There is a note: an attempt to create the session may be under way that has seen the parent
    /// alive.
    Late,
    /// The parent is deleted, and nobody has begun to create the session from it, nor can begin to.
    Refused,
}

/// Announces that a session is about to be created from another: writes a note under the parent's key, then looks
/// whether the parent is not deleted. A caller that deletes the parent and lists its children finds the note, and
/// takes the first slot of a child that does not exist yet.
pub(crate) async fn announce(
    slots: &Slots,
    parent: SessionId,
    id: SessionId,
    until: Instant,
) -> Result<Announced> {
    let note = slots.keys.child(parent, id);
    // If this fails, at most the note has been written.
    let not_applied = |error: Error| error.with_outcome(WriteOutcome::NotApplied);
    if is_gone(slots, parent, until).await.map_err(not_applied)? {
        // A note that is needed was put before the parent was deleted, so that this look finds it. Without one the id is free.
        let found_note = slots.bucket.get(&note, until).await.map_err(not_applied)?;
        return Ok(if found_note.is_some() { Announced::Late } else { Announced::Refused });
    }
    slots.bucket.put(&note, &Bytes::new(), &Condition::Any, until).await.map_err(not_applied)?;
    Ok(if is_gone(slots, parent, until).await? { Announced::Late } else { Announced::Recorded })
}

async fn is_gone(slots: &Slots, parent: SessionId, until: Instant) -> Result<bool> {
    Ok(slots.load(parent, until).await?.status.state == SessionState::Deleted)
}

/// Returns the sessions that were created from one, or may still be. If that one is deleted, no more can be created
/// from now on.
pub(crate) async fn children(slots: &Slots, parent: SessionId, until: Instant) -> Result<Vec<SessionId>> {
    let deleted = match slots.newest(parent, until).await? {
        Some(head) => is_deleted(&head),
        None => false,
    };
    let mut children = Vec::new();
    for key in slots.bucket.list_all(&slots.keys.children(parent), false, until).await?.keys {
        let Ok(child) = last(&key).parse::<SessionId>() else { continue };
        if deleted {
            void(slots, child, until).await?;
        }
        children.push(child);
    }
    Ok(children)
}

/// Takes the first slot of a session that may be about to be created, if the slot is free.
pub(crate) async fn void(slots: &Slots, id: SessionId, until: Instant) -> Result<()> {
    let key = slots.keys.slot(id, Slot::FIRST);
    // Most sessions exist, and a read is cheaper than an attempt.
    if slots.bucket.get_range(&key, 0..1, until).await?.is_some() {
        return Ok(());
    }
    let head = Head::void(id, slots.bucket.effects.new_commit_id());
    slots.bucket.put(&key, &Entry::encode_bare(&head, None), &Condition::Absent, until).await.map(drop)
}
