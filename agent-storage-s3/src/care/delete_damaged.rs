//! Deletes a session whose newest commit cannot be read, so that no commit can: takes a slot behind it with a tombstone.
//! All objects stay as they are until the session is purged.

use std::sync::Arc;

use agent_core::commit::{COMMIT_MAX_EVENTS, Commit};
use agent_core::session::{NewSession, SessionRecord};
use agent_core::state::Reason;
use agent_core::{
    Error, ErrorKind, Plan, Result, Seq, SessionId, Timestamp, WorkspaceId, WriteOutcome, plan,
};
use bytes::Bytes;
use futures::TryStreamExt;
use tokio::time::Instant;

use crate::error::corrupt;
use crate::layout::keys::{Slot, last};
use crate::layout::line::{Tag, lines};
use crate::log::index_keys::{IndexKey, needed};
use crate::log::slot::{Entry, Head, Kind};
use crate::log::slots::{Slots, absent, is_deleted, record};
use crate::medium::object::{Condition, Put};

/// Limit on the events of one commit, those that a store adds included: as many slots behind a commit of unknown length,
/// no other commit can be.
const COMMIT_REACH: u64 = 4 * COMMIT_MAX_EVENTS as u64;

/// What is still known of a damaged session.
#[derive(Debug)]
struct Known {
    /// Newest record that can be read.
    record: Option<Arc<SessionRecord>>,
    /// Last event; at least the number of the newest slot.
    last: Seq,
    /// Last event that an earlier purge has left.
    kept: Option<Seq>,
    /// Number of slots behind it that the newest commit may have, and the one behind that; zero if its end is known.
    reach: u64,
    newest: Slot,
    /// Keys of the index that were in force.
    keys: Vec<IndexKey>,
}

/// Result of a look at the newest slot.
enum Found {
    Deleted(Arc<SessionRecord>),
    Damaged(Known),
}

/// Deletes a session whose newest commit is damaged; returns its tombstone.
///
/// Who has read the newest commit before it was damaged takes the slot behind it, unless the tombstone is there. If its
/// number is not known any more, the tombstone is farther behind: what is written in between is not seen.
pub(crate) async fn delete_damaged(
    slots: &Slots,
    id: SessionId,
    at: Timestamp,
    reason: Reason,
) -> Result<Arc<SessionRecord>> {
    let Slots { bucket, keys, .. } = slots;
    let (until, mut lost) = (bucket.deadline(), 0);
    loop {
        let known = match find(slots, id, until).await? {
            Found::Deleted(tombstone) => return Ok(tombstone),
            Found::Damaged(known) => known,
        };
        let origin = match &known.record {
            Some(record) => Some(record.clone()),
            None => of_parent(slots, id, until).await?,
        };
        let workspace = origin.as_ref().map_or(WorkspaceId::DEFAULT, |origin| origin.workspace);
        let tombstone =
            SessionRecord::tombstone_of_damaged(id, workspace, origin.as_deref(), known.last, at, reason);
        let slot = Slot(tombstone.head.next().get().saturating_add(known.reach));
        let new = needed(&tombstone, &bucket.settings.index, &known.keys, slot);
        for key in new.iter().filter(|key| key.slot == slot) {
            let put = bucket.put(&key.name(keys, id), &Bytes::new(), &Condition::Any, until).await;
            // The tombstone was not sent. A key that is left is not in force.
            put.map_err(|error| error.with_outcome(WriteOutcome::NotApplied))?;
        }
        let head = Head {
            after: Some(known.newest),
            // Nothing is removed yet, and what can be read is there for forks.
            kept: Some(known.kept.unwrap_or(tombstone.head)),
            keys: new.clone(),
            ..Head::bare(Kind::Purged, id, slot, bucket.effects.new_commit_id())
        };
        let body = Entry::encode_bare(&head, Some(&tombstone));
        match bucket.put(&keys.slot(id, slot), &body, &Condition::Absent, until).await? {
            Put::Stored(_) => {
                slots.heads.forget(id);
                slots.heads.note(id, &Arc::new(Entry::parse(&body, id, slot)?));
                let over = known.keys.iter().filter(|key| !new.contains(key));
                slots.delete_later(over.map(|key| key.name(keys, id)));
                return Ok(Arc::new(tombstone));
            }
            // Another writer, or another deletion, or an earlier attempt.
            Put::Refused { .. } if bucket.pause(lost, until).await => lost += 1,
            Put::Refused { .. } => {
                let text =
                    format!("cannot delete session {id}: other writers were faster each time; try again");
                return Err(Error::unavailable(text).timed_out());
            }
        }
    }
}

/// Looks at the newest slot, and for the newest record that can be read.
///
/// # Errors
///
/// `NotFound`; `InvalidInput` if the newest commit can be read, so that another can follow it.
async fn find(slots: &Slots, id: SessionId, until: Instant) -> Result<Found> {
    let Slots { bucket, keys, .. } = slots;
    let (folder, mut known) = (keys.slots(id), None::<Known>);
    let mut pages = bucket.pages(&folder, None, false, Some(until));
    while let Some(listed) = pages.try_next().await? {
        for key in &listed.keys {
            let Some(slot) = keys.slot_of(id, key) else { continue };
            let bytes = bucket.get(key, until).await?.map(|object| object.bytes).unwrap_or_default();
            let entry = match Entry::parse(&bytes, id, slot) {
                Err(error) if *error.kind() == ErrorKind::Corrupt => None,
                entry => Some(entry?),
            };
            match (&mut known, entry) {
                (None, Some(entry)) if entry.head.kind == Kind::Void => return Err(absent(id)),
                (None, Some(entry)) if is_deleted(&entry) => {
                    return Ok(Found::Deleted(record(&entry)?.clone()));
                }
                (None, Some(entry)) if entry.record.is_some() && entry.is_whole() => {
                    let text = format!("session {id} can be read; delete it by a commit");
                    return Err(Error::invalid(text));
                }
                (None, _) => known = Some(of_damaged(&bytes, id, slot)),
                (Some(known), Some(Entry { record: Some(record), head, .. })) => {
                    known.last = known.last.max(record.head);
                    known.record = Some(record);
                    if known.keys.is_empty() {
                        known.keys = head.keys;
                    }
                }
                (Some(_), _) => {}
            }
            if let Some(known) = known.take_if(|known| known.record.is_some()) {
                return Ok(Found::Damaged(known));
            }
        }
    }
    known.map(Found::Damaged).ok_or_else(|| absent(id))
}

/// Returns what the damaged object in the newest slot still says: its header and its record are lines of their own.
fn of_damaged(bytes: &Bytes, id: SessionId, slot: Slot) -> Known {
    let header = Entry::parse_head(bytes, id, slot).ok().filter(|head| head.kind != Kind::Stub);
    let lines = lines(bytes);
    let record = lines.iter().find_map(|line| line.json(Tag::Record));
    let record = record.and_then(|json| SessionRecord::from_json(json).ok());
    let record = record.filter(|record| record.id == id && record.head.get() >= slot.0).map(Arc::new);
    let end = header.as_ref().map(|head| head.last).or(record.as_ref().map(|record| record.head));
    Known {
        last: end.unwrap_or(Seq::new(slot.0)),
        kept: header.as_ref().and_then(|head| head.kept),
        reach: if end.is_none() { COMMIT_REACH } else { 0 },
        newest: slot,
        keys: header.map_or_else(Vec::new, |head| head.keys),
        record,
    }
}

/// Returns a record for a session of which none can be read, if there is a note that it was made from another: as if it was a
/// fork of all of that one. So the purge of that one finds the forks of this one, and keeps what they read.
async fn of_parent(slots: &Slots, id: SessionId, until: Instant) -> Result<Option<Arc<SessionRecord>>> {
    let Slots { bucket, keys, .. } = slots;
    let notes = bucket.list_all(&keys.all_children(), false, until).await?.keys;
    let is_its = |note: &&String| last(note).parse::<SessionId>().is_ok_and(|child| child == id);
    let parent =
        notes.iter().find(is_its).and_then(|note| note.rsplit('/').nth(1)?.parse::<SessionId>().ok());
    let Some(parent) = parent else { return Ok(None) };
    let loaded = slots.load(parent, until).await.map_err(|error| match error.kind() {
        ErrorKind::Corrupt => {
            let what =
                format!("was made from session {parent}, which cannot be read either; delete that one first");
            corrupt(&format!("session {id}"), &what).with_source(error)
        }
        _ => error,
    })?;
    let commit = Commit::create(&bucket.effects, NewSession::fork(id, &loaded));
    match plan(None, &commit)? {
        Plan::Write { after, .. } => Ok(Some(after)),
        _ => Ok(None),
    }
}
