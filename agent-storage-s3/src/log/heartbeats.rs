//! Heartbeats of lease holders: the contents of the key that marks the session as running.
//!
//! A session has one such key for as long as a lease lasts: each commit until its end names it. So a head with that
//! lease names the right key, however old it is.

use agent_core::store::LeaseStatus;
use agent_core::{Epoch, Result, SessionId};
use bytes::Bytes;

use crate::log::heads::Heartbeat;
use crate::log::slot::Entry;
use crate::log::slots::Slots;
use crate::medium::object::{Condition, Put};

/// Writes a heartbeat for the lease `epoch`, if it is live.
pub(crate) async fn heartbeat(slots: &Slots, id: SessionId, epoch: Epoch) -> Result<()> {
    let (bucket, until) = (&slots.bucket, slots.bucket.deadline());
    // Any other number than before. If it is the same by chance, that is like one lost heartbeat.
    let body = Bytes::from(format!("{epoch} {}\n", bucket.effects.random_u64()));
    let note = |name, tag: String| {
        if !tag.is_empty() {
            slots.heads.note_heartbeat(id, Heartbeat { epoch, name, tag });
        }
    };
    if let Some(Heartbeat { name, tag, .. }) = slots.heads.heartbeat(id, epoch) {
        let tag = match bucket.put(&name, &body, &Condition::Is(tag), until).await? {
            Put::Stored(tag) => Some(tag),
            Put::Refused { now: Some(now), .. } if now.bytes == body => Some(now.tag),
            // Another holder has written since, or the key was deleted. Without the condition, a holder that was
            // replaced would overwrite the heartbeats of its successor, and make a deleted key again.
            Put::Refused { .. } => None,
        };
        if let Some(tag) = tag {
            note(name, tag);
            return Ok(());
        }
    }
    let head = slots.existing(id, until).await?;
    let Some(name) = name(slots, &head, epoch) else { return Ok(()) };
    if let Put::Stored(tag) = bucket.put(&name, &body, &Condition::Any, until).await? {
        note(name, tag);
    }
    Ok(())
}

/// Returns the last heartbeat of the lease `epoch`.
pub(crate) async fn lease_status(slots: &Slots, id: SessionId, epoch: Epoch) -> Result<LeaseStatus> {
    let until = slots.bucket.deadline();
    let known = slots.heads.get(id).and_then(|head| name(slots, &head, epoch));
    let mut found = match known {
        Some(name) => slots.bucket.get(&name, until).await?,
        None => None,
    };
    if found.is_none() {
        // Another lease may be the newest by now, or there is no such session any more.
        let head = slots.existing(id, until).await?;
        if let Some(name) = name(slots, &head, epoch) {
            found = slots.bucket.get(&name, until).await?;
        }
    }
    let heartbeat = found.and_then(|object| parse(&object.bytes, epoch));
    Ok(LeaseStatus::new(heartbeat.unwrap_or(0), false))
}

/// Returns the name of the key that has the heartbeats of the lease `epoch`; `None` if the lease is another one.
fn name(slots: &Slots, head: &Entry, epoch: Epoch) -> Option<String> {
    let key = head.head.keys.iter().find(|key| key.is_work()).filter(|_| head.has_lease(epoch))?;
    Some(key.name(&slots.keys, head.head.session))
}

/// Returns the number in a heartbeat, if it is one of the lease `epoch`. The key is empty until the first heartbeat.
fn parse(bytes: &Bytes, epoch: Epoch) -> Option<u64> {
    let (of, heartbeat) = std::str::from_utf8(bytes).ok()?.trim_end().split_once(' ')?;
    (of == epoch.to_string()).then(|| heartbeat.parse().ok()).flatten()
}
