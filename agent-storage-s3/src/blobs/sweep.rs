//! Deletion of blobs that no event names, by a sweep or a purge; see `docs/decisions/0037`. The head of the session is
//! read before the names in its log: then the slot of each commit that could name a deleted blob is taken.

use std::collections::HashSet;

use agent_core::store::{SweepBlobs, SweptBlobs};
use agent_core::{Result, SessionId, WriteOutcome};
use futures::TryStreamExt;

use crate::error::is_damage;
use crate::layout::keys::last;
use crate::log::blob_names::{Copy, named};
use crate::log::newest::{give_up, newest};
use crate::log::slot::Kind;
use crate::log::slots::{Slots, is_deleted};
use crate::medium::object::{AT_ONCE, ORPHAN_MICROS};

/// Removes the blobs that no event names: of one session, or of all ids without one.
pub(crate) async fn sweep(slots: &Slots, sweep: &SweepBlobs) -> Result<SweptBlobs> {
    let Some(id) = sweep.session else { return without_sessions(slots, sweep.dry_run).await };
    let copies = copies(slots, id).await?;
    if copies.is_empty() {
        return Ok(SweptBlobs::default());
    }
    let head = match newest(slots, id).await? {
        Some(head) if head.head.kind == Kind::Void => return remove(slots, copies, sweep.dry_run).await,
        Some(head) => head,
        // The session may still be created. Only a sweep of all such ids gives one up.
        None => return Ok(SweptBlobs::default().with_unfinished(bytes(&copies))),
    };
    let names = named(slots, id).await?;
    let unnamed = copies.into_iter().filter(|copy| !names.contains(&copy.name));
    let is_over = |copy: &Copy| is_deleted(&head) || copy.is_beyond_reach(head.head.last);
    let (over, young): (Vec<_>, Vec<_>) = unnamed.partition(is_over);
    Ok(remove(slots, over, sweep.dry_run).await?.with_unfinished(bytes(&young)))
}

/// Removes the blobs of a purged session that no event which is left names.
pub(crate) async fn purge(slots: &Slots, id: SessionId) -> Result<()> {
    let copies = copies(slots, id).await?;
    if copies.is_empty() {
        return Ok(());
    }
    match named(slots, id).await {
        Ok(names) => {
            let over = copies.into_iter().filter(|copy| !names.contains(&copy.name));
            remove(slots, over.collect(), false).await.map(drop)
        }
        // A fork may read them.
        Err(error) if is_damage(&error) => {
            tracing::warn!(session = %id, %error, "what is left of a log is damaged, so the blobs of the session stay");
            Ok(())
        }
        Err(error) => Err(error),
    }
}

/// Removes the blobs of all ids for which blobs were put long ago, and no session was created.
async fn without_sessions(slots: &Slots, dry_run: bool) -> Result<SweptBlobs> {
    let mut swept = SweptBlobs::default();
    match sweep_without_sessions(slots, dry_run, &mut swept).await {
        // A part was done.
        Err(error) if swept.blobs > 0 && !dry_run => Err(error.with_outcome(WriteOutcome::Unknown)),
        done => done.map(|()| swept),
    }
}

async fn sweep_without_sessions(slots: &Slots, dry_run: bool, swept: &mut SweptBlobs) -> Result<()> {
    let Slots { bucket, keys, .. } = slots;
    let folder = keys.early_all();
    let mut pages = bucket.pages(&folder, None, false, None);
    while let Some(page) = pages.try_next().await? {
        for (note, age) in page.keys.iter().zip(page.ages) {
            let Ok(id) = last(note).parse::<SessionId>() else { continue };
            match newest(slots, id).await? {
                // The age is a courtesy: whether the session may still be created is decided by its slot.
                None if age.is_over(ORPHAN_MICROS) => {
                    *swept += remove_early(slots, id, copies(slots, id).await?, dry_run).await?;
                }
                None => {
                    let young = bytes(&copies(slots, id).await?);
                    *swept += SweptBlobs::default().with_unfinished(young);
                }
                Some(head) if head.head.kind == Kind::Void => {
                    *swept += remove(slots, copies(slots, id).await?, dry_run).await?;
                    // A put that was sent before may still arrive. For so long the note stays.
                    if age.is_over(2 * ORPHAN_MICROS) {
                        delete_note(slots, note, dry_run).await?;
                    }
                }
                // From now on the blobs belong to the session.
                Some(_) => delete_note(slots, note, dry_run).await?,
            }
        }
    }
    Ok(())
}

async fn delete_note(slots: &Slots, note: &str, dry_run: bool) -> Result<()> {
    if dry_run { Ok(()) } else { slots.bucket.delete(note, slots.bucket.deadline()).await }
}

/// Removes the blobs of an id without a session, after its first slot was taken, so that none is created.
async fn remove_early(slots: &Slots, id: SessionId, copies: Vec<Copy>, dry_run: bool) -> Result<SweptBlobs> {
    // Without a copy, too: a put that was cut off has left a note only.
    if dry_run {
        return remove(slots, copies, dry_run).await;
    }
    match give_up(slots, id).await? {
        true => remove(slots, copies, dry_run).await,
        false => Ok(SweptBlobs::default()),
    }
}

fn bytes(copies: &[Copy]) -> u64 {
    copies.iter().filter_map(|copy| copy.bytes).sum()
}

/// Returns the objects that hold the blobs of a session.
async fn copies(slots: &Slots, id: SessionId) -> Result<Vec<Copy>> {
    let all = slots.bucket.list_all(&slots.keys.blobs(id), false, slots.bucket.deadline()).await?;
    Ok(Copy::of(all))
}

async fn remove(slots: &Slots, copies: Vec<Copy>, dry_run: bool) -> Result<SweptBlobs> {
    let names: HashSet<_> = copies.iter().map(|copy| copy.name).collect();
    let bytes = bytes(&copies);
    if !dry_run {
        futures::stream::iter(copies.into_iter().map(Ok))
            .try_for_each_concurrent(AT_ONCE, |copy| async move {
                slots.bucket.delete(&copy.key, slots.bucket.deadline()).await
            })
            .await
            // Others may be gone, and their id given up.
            .map_err(|error| error.with_outcome(WriteOutcome::Unknown))?;
    }
    Ok(SweptBlobs::new(names.len() as u64, bytes))
}
