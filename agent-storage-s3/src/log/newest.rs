//! Newest commit of a session, found without reading more than its record.

use std::sync::Arc;

use agent_core::{Result, SessionId, WriteOutcome};

use crate::log::family::void;
use crate::log::slot::{Entry, Kind, RECORD_PART};
use crate::log::slots::Slots;
use crate::medium::object::Age;

/// Takes the first slot of a session that was not created, so that it cannot be. Returns `false` if it was created meanwhile.
pub(crate) async fn give_up(slots: &Slots, id: SessionId) -> Result<bool> {
    void(slots, id, slots.bucket.deadline()).await?;
    let newest = newest(slots, id).await.map_err(|error| error.with_outcome(WriteOutcome::Unknown))?;
    Ok(newest.is_some_and(|newest| newest.head.kind == Kind::Void))
}

/// Returns the newest commit of a session, or the object that takes the slot so that there is none. Reads no more of an object than its
/// record, if the session is not known.
pub(crate) async fn newest(slots: &Slots, id: SessionId) -> Result<Option<Arc<Entry>>> {
    Ok(newest_seen(slots, id).await?.map(|(entry, _)| entry))
}

/// Like [`newest`], with the time since the object was written. Unknown if the session was known.
pub(crate) async fn newest_seen(slots: &Slots, id: SessionId) -> Result<Option<(Arc<Entry>, Age)>> {
    let until = slots.bucket.deadline();
    if slots.heads.get(id).is_some() {
        return Ok(slots.newest(id, until).await?.map(|entry| (entry, Age::UNKNOWN)));
    }
    let mut emptied = None;
    loop {
        let Some(slot) = slots.newest_slot(id, until).await? else { return Ok(None) };
        let key = slots.keys.slot(id, slot);
        let Some(seen) = slots.bucket.see(&key, Some(0..RECORD_PART), until).await? else {
            return Ok(None);
        };
        let (part, age) = (seen.object, seen.age);
        let entry = Arc::new(Entry::parse(&part.bytes, id, slot)?);
        match entry.head.kind {
            // Nothing is committed behind it.
            Kind::Void => return Ok(Some((entry, age))),
            // The slot was the newest when it was listed, and is not any more.
            Kind::Stub if emptied.replace(slot) != Some(slot) => {}
            _ => {
                // The whole object was read, unless it is large.
                if entry.is_whole() && (part.bytes.len() as u64) < RECORD_PART {
                    slots.heads.note(id, &entry);
                }
                return Ok(Some((entry, age)));
            }
        }
    }
}
