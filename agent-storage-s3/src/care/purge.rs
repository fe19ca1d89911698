//! Purge: a deleted session's slots are emptied, and stay taken.

use std::sync::Arc;

use agent_core::store::{Purge, Purged};
use agent_core::{ErrorKind, Result, Seq, SessionId, WriteOutcome};
use bytes::Bytes;
use futures::TryStreamExt;
use tokio::time::Instant;

use crate::blobs::sweep;
use crate::error::corrupt;
use crate::layout::keys::Slot;
use crate::log::index_keys::IndexKey;
use crate::log::slot::{Entry, Head, Kind};
use crate::log::slots::{Slots, absent, record};
use crate::medium::object::{AT_ONCE, Condition, Put};

/// Length of a first part of an object that always contains its header, in bytes.
const HEADER_PART: u64 = 8 << 10;

/// Removes the bytes of a deleted session, except its events up to `keep`.
pub(crate) async fn purge(slots: &Slots, purge: &Purge) -> Result<Purged> {
    let (id, until) = (purge.session, slots.bucket.deadline());
    loop {
        let head = slots.existing(id, until).await?;
        let now = record(&head)?;
        purge.check(now)?;
        let base = now.lineage.base();
        let had = head.head.kept.unwrap_or(now.head);
        let keep = purge.keep_through.max(base).min(had);
        let is_named = purge.tombstone_of(now).owner == now.owner;
        if head.head.kept == Some(keep) && head.head.removed && is_named {
            // A put that came late may have left a blob.
            sweep::purge(slots, id).await?;
            return Ok(Purged::new(0));
        }
        // The events are hidden first, then removed, then recorded as removed: the next purge finishes an
        // interrupted one.
        // The names of keys by value are made of the session's texts.
        let (of_values, keys) = head.head.keys.iter().cloned().partition::<Vec<_>, _>(IndexKey::is_of_value);
        let (keys, former) = renamed(keys, purge, head.head.slot);
        let hidden = Head { kind: Kind::Purged, kept: Some(keep), removed: false, keys, ..head.head.clone() };
        if head.head.kept != Some(keep) || !is_named {
            for key in hidden.keys.iter().filter(|key| !head.head.keys.contains(key)) {
                let name = key.name(&slots.keys, id);
                let put = slots.bucket.put(&name, &Bytes::new(), &Condition::Any, until).await;
                put.map_err(|error| error.with_outcome(WriteOutcome::NotApplied))?;
            }
            if !replace(slots, &head, &hidden, purge, until).await? {
                continue;
            }
        }
        for key in former {
            slots.bucket.delete(&key.name(&slots.keys, id), until).await?;
        }
        slots.delete_later(of_values.iter().map(|key| key.name(&slots.keys, id)));
        empty_slots(slots, purge, head.head.slot, keep).await?;
        sweep::purge(slots, id).await?;
        let until = slots.bucket.deadline();
        let head = slots.existing(id, until).await?;
        if head.head.kept == Some(keep) {
            // Another purge may have given another name meanwhile, which stays.
            let (done, plain) = (Head { removed: true, ..head.head.clone() }, Purge::new(id, purge.head));
            replace(slots, &head, &done, &plain, until).await?;
        }
        return Ok(Purged::new(had.get() - keep.get()));
    }
}

/// Puts the key of the list of the pseudonym in the place of that of the owner. Returns the keys that are in force then, and those
/// that are not any more, whose names are made of the owner's.
fn renamed(keys: Vec<IndexKey>, purge: &Purge, slot: Slot) -> (Vec<IndexKey>, Vec<IndexKey>) {
    let Some(name) = &purge.pseudonym else { return (keys, Vec::new()) };
    let now =
        keys.iter().map(|key| key.of_owner(name, slot).unwrap_or_else(|| key.clone())).collect::<Vec<_>>();
    let former = keys.into_iter().filter(|key| !now.contains(key)).collect();
    (now, former)
}

/// Replaces the newest slot of a deleted session; returns whether it was still the expected one.
async fn replace(
    slots: &Slots,
    now: &Arc<Entry>,
    head: &Head,
    purge: &Purge,
    until: Instant,
) -> Result<bool> {
    let id = now.head.session;
    let key = slots.keys.slot(id, now.head.slot);
    let found = slots.bucket.get(&key, until).await?.ok_or_else(|| absent(id))?;
    let there = Entry::parse(&found.bytes, id, now.head.slot)?;
    if there.head != now.head {
        return Ok(false);
    }
    let body = there.encode_cut(head, purge);
    let put = slots.bucket.put(&key, &body, &Condition::Is(found.tag), until).await?;
    let done = match put {
        Put::Stored(_) => true,
        // Another purge with the same request writes the same, so the two need not be distinguished.
        Put::Refused { now, .. } => now.is_some_and(|now| now.bytes == body),
    };
    if done {
        slots.heads.note(id, &Arc::new(Entry::parse(&body, id, now.head.slot)?));
    }
    Ok(done)
}

/// Empties all slots with events after `keep`, except the newest.
async fn empty_slots(slots: &Slots, purge: &Purge, newest: Slot, keep: Seq) -> Result<()> {
    let id = purge.session;
    let folder = slots.keys.slots(id);
    // A long session takes long; each step has its own time limit.
    let mut pages = slots.bucket.pages(&folder, None, false, None);
    while let Some(page) = pages.try_next().await? {
        let mut found = Vec::new();
        for key in &page.keys {
            match slots.keys.slot_of(id, key) {
                Some(slot) => found.push(slot),
                // An object that is no slot was put there by another program.
                None => slots.bucket.delete(key, slots.bucket.deadline()).await?,
            }
        }
        // The newest come first: everything before the commit that holds `keep` is kept.
        let enough = found.iter().any(|slot| slot.0 <= keep.get());
        let straddling = found.iter().copied().find(|slot| slot.0 <= keep.get());
        let gone = found.iter().copied().filter(|slot| *slot != newest && slot.0 > keep.get());
        let all = gone.chain(straddling.filter(|slot| *slot != newest)).collect::<Vec<_>>();
        futures::stream::iter(all.into_iter().map(Ok))
            .try_for_each_concurrent(AT_ONCE, |slot| empty(slots, purge, slot, keep))
            .await?;
        if enough {
            break;
        }
    }
    Ok(())
}

/// Empties a slot, or truncates it if it has events up to `keep`.
async fn empty(slots: &Slots, purge: &Purge, slot: Slot, keep: Seq) -> Result<()> {
    let id = purge.session;
    let (key, until) = (slots.keys.slot(id, slot), slots.bucket.deadline());
    let gone = || corrupt(&format!("slot {} of session {id}", slot.0), "is gone");
    let part = slots.bucket.get_range(&key, 0..HEADER_PART, until).await?.ok_or_else(gone)?;
    let head = match Entry::parse_head(&part.bytes, id, slot) {
        Err(error) if *error.kind() == ErrorKind::Corrupt => {
            return empty_damaged(slots, id, slot, keep).await;
        }
        head => head?,
    };
    if head.kind == Kind::Stub || head.kept.unwrap_or(head.last) <= keep {
        return Ok(());
    }
    let body = if head.first > keep {
        Entry::encode_bare(&Head { kind: Kind::Stub, kept: None, keys: Vec::new(), ..head }, None)
    } else {
        let found = slots.bucket.get(&key, until).await?.ok_or_else(gone)?;
        match Entry::parse(&found.bytes, id, slot) {
            Err(error) if *error.kind() == ErrorKind::Corrupt => {
                return empty_damaged(slots, id, slot, keep).await;
            }
            entry => entry?.encode_cut(&Head { kept: Some(keep), ..head }, purge),
        }
    };
    // Without a condition: only a purge writes to a slot that is taken, and it only removes.
    slots.bucket.put(&key, &body, &Condition::Any, until).await.map(drop)
}

/// Empties a damaged slot, unless it may have events that are kept, up to `keep`.
async fn empty_damaged(slots: &Slots, id: SessionId, slot: Slot, keep: Seq) -> Result<()> {
    let base = slots.load(id, slots.bucket.deadline()).await?.lineage.base();
    if slot.0 <= keep.get() && keep > base {
        tracing::warn!(session = %id, slot = slot.0, "a damaged slot may have events that a fork reads, and stays");
        return Ok(());
    }
    let stub = Head::bare(Kind::Stub, id, slot, slots.bucket.effects.new_commit_id());
    let (key, body) = (slots.keys.slot(id, slot), Entry::encode_bare(&stub, None));
    slots.bucket.put(&key, &body, &Condition::Any, slots.bucket.deadline()).await.map(drop)
}
