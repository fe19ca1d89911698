//! The commit protocol: a commit is one object in one slot, which only one writer can win; see `docs/decisions/0008`.

use std::sync::Arc;

use agent_core::commit::{Commit, Committed, Expect};
use agent_core::{CommitId, Error, ErrorKind, Plan, Result, SessionId, WriteOutcome, plan};
use bytes::Bytes;

use crate::error::corrupt;
use crate::family::{announce, void};
use crate::object::{Condition, Object, Put};
use crate::planting::{plant_before, plant_blind, plant_doubt};
use crate::slot::{Entry, Kind, Slot};
use crate::slots::{Slots, record};

/// Applies a commit. The only write of events.
pub(crate) async fn commit(slots: &Slots, mut commit: Commit) -> Result<Committed> {
    let (id, until) = (commit.session, slots.bucket.deadline());
    plant_before(&slots.bucket, &mut commit);
    let mut known = slots.heads.get(id);
    // Whether `known` was read during this call. A refusal, or an answer without a write, needs that.
    let mut confirmed = false;
    if known.is_none() && commit.expect != Expect::Absent {
        known = slots.newest_cold(id, until).await?;
        confirmed = true;
    }
    let mut lost = 0;
    loop {
        let now = known.as_deref().map(record).transpose()?;
        let planned = match plan(now, &commit) {
            Ok(planned @ Plan::Write { .. }) => planned,
            other if confirmed => return other.map(Plan::committed),
            _ => {
                known = slots.newest(id, until).await?;
                confirmed = true;
                continue;
            }
        };
        let Plan::Write { events, after, .. } = &planned else { continue };
        if let Some(head) = known.as_deref().filter(|head| !head.is_whole()) {
            return Err(corrupt(&format!("slot {} of session {id}", head.head.slot.0), "is cut short"));
        }
        if let (None, Some(parent)) = (&known, after.origin.parent()) {
            if !confirmed {
                // It may have come to be already, and its parent may be gone since.
                known = slots.newest(id, until).await?;
                confirmed = true;
                continue;
            }
            if !announce(slots, parent, id, until).await? {
                // Sent earlier, it may yet land; not after this.
                void(slots, id, until).await?;
                let first = slots.get(id, Slot::FIRST, until).await?;
                return match first.filter(|first| first.head.commit == commit.id) {
                    Some(_) => Ok(landed(planned, true)),
                    None => Err(parent_deleted(parent)),
                };
            }
        }
        let slot = known.as_deref().map_or(Slot::FIRST, Entry::next);
        let body = Entry::encode(known.as_deref(), commit.id, events, after);
        let put = slots.bucket.put(&slots.keys.slot(id, slot), &body, &Condition::Absent, until).await;
        let (now, doubt) = match put {
            Ok(Put::Stored(_)) => {
                won(slots, id, slot, &body)?;
                return Ok(planned.committed());
            }
            Ok(Put::Refused { now, doubt }) => (now, doubt),
            Err(error)
                if plant_doubt(&slots.bucket, &mut commit, &error) && slots.bucket.pause(0, until).await =>
            {
                continue;
            }
            Err(error) => return Err(error),
        };
        match whose(slots, id, slot, commit.id, now.as_ref(), doubt)? {
            Whose::Mine => {
                won(slots, id, slot, &body)?;
                // Where no attempt of this call was in doubt, another call's was the one that landed.
                return Ok(landed(planned, !doubt));
            }
            Whose::Other(entry) if lost == 0 => {
                slots.heads.note(id, &entry);
                known = Some(entry);
                confirmed = false;
            }
            // Who loses twice may be far behind, and does not walk there slot by slot.
            Whose::Other(_) | Whose::Gone => {
                slots.heads.forget(id);
                known = slots.newest_cold(id, until).await?;
                confirmed = true;
            }
            Whose::Void => return Err(voided(id)),
        }
        lost += 1;
        if lost > 1 && !slots.bucket.pause(lost - 2, until).await {
            return Err(Error::new(
                ErrorKind::Unavailable,
                format!("cannot commit to session {id}: others were faster each time; try again"),
            )
            .timed_out());
        }
    }
}

/// Whose a taken slot is: the commit id in there says it.
fn whose(
    slots: &Slots,
    id: SessionId,
    slot: Slot,
    commit: CommitId,
    now: Option<&Object>,
    doubt: bool,
) -> Result<Whose> {
    // A slot in doubt that cannot be read may be this commit's own.
    let outcome = if doubt { WriteOutcome::Unknown } else { WriteOutcome::NotApplied };
    plant_blind(&slots.bucket, id, now.is_some())?;
    let Some(now) = now else { return Ok(Whose::Gone) };
    let entry = Entry::parse(&now.bytes, id, slot).map_err(|error| error.with_outcome(outcome))?;
    Ok(match entry.head.kind {
        Kind::Void => Whose::Void,
        _ if entry.head.commit == commit => Whose::Mine,
        Kind::Stub => Whose::Gone,
        Kind::Commit | Kind::Purged => Whose::Other(Arc::new(entry)),
    })
}

fn won(slots: &Slots, id: SessionId, slot: Slot, body: &Bytes) -> Result<()> {
    let entry = Entry::parse(body, id, slot)?;
    slots.heads.note(id, &Arc::new(entry));
    Ok(())
}

/// The answer for a commit that turned out to have landed.
fn landed(planned: Plan, replayed: bool) -> Committed {
    let mut done = planned.committed();
    done.replayed = replayed;
    done
}

/// Whose a slot is that could not be won.
enum Whose {
    Mine,
    Other(Arc<Entry>),
    /// It was emptied: the head is far ahead.
    Gone,
    Void,
}

fn parent_deleted(parent: SessionId) -> Error {
    Error::new(ErrorKind::Deleted, format!("session {parent} was deleted; nothing is made from it"))
}

fn voided(id: SessionId) -> Error {
    Error::new(
        ErrorKind::Deleted,
        format!("session {id} was not made, since what it was to be made from was deleted meanwhile"),
    )
}
