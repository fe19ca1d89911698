//! Sessions: the commit protocol, and where the newest commit is found.
//!
//! A commit is one object in one slot, which only one writer can win; see `docs/decisions/0008`.

use std::sync::Arc;

use agent_core::commit::{Commit, Committed, Expect};
use agent_core::session::Session;
use agent_core::state::SessionState;
use agent_core::store::Pulse;
use agent_core::{CommitId, Epoch, Error, ErrorKind, Plan, Result, SessionId, WriteOutcome, plan};
use bytes::Bytes;
use tokio::time::Instant;

use crate::error::corrupt;
use crate::keys::last;
use crate::object::{Condition, Object, Put};
use crate::slot::{Entry, Head, Kind, Slot};
use crate::tenant::Tenant;

pub(crate) fn absent(id: SessionId) -> Error {
    Error::new(ErrorKind::NotFound, format!("session {id} does not exist"))
}

impl Tenant {
    /// The object in a slot, if it is taken.
    pub(crate) async fn slot(&self, id: SessionId, slot: Slot, until: Instant) -> Result<Option<Arc<Entry>>> {
        let found = self.bucket.get(&self.keys.slot(id, slot), until).await?;
        found.map(|object| Entry::parse(&object.bytes, id, slot).map(Arc::new)).transpose()
    }

    /// The newest slot, by a list.
    async fn list_newest(&self, id: SessionId, until: Instant) -> Result<Option<Slot>> {
        let found = self.bucket.list(&self.keys.slots(id), None, None, 1, false, until).await?;
        found.keys.first().map(|key| slot_of(key)).transpose()
    }

    /// The newest commit. `None` where there is none.
    pub(crate) async fn newest(&self, id: SessionId, until: Instant) -> Result<Option<Arc<Entry>>> {
        match self.heads.get(id) {
            Some(known) => self.newest_after(id, &known, until).await,
            None => self.newest_cold(id, until).await,
        }
    }

    async fn newest_cold(&self, id: SessionId, until: Instant) -> Result<Option<Arc<Entry>>> {
        let mut emptied = None;
        loop {
            let Some(slot) = self.list_newest(id, until).await? else { return Ok(None) };
            let head = self.slot(id, slot, until).await?;
            // A slot that was listed is never free again.
            let head =
                head.ok_or_else(|| corrupt(&format!("session {id}"), "lists a slot that is not there"))?;
            // One that is empty was the newest when it was listed, and is not any more.
            if head.head.kind != Kind::Stub {
                return Ok(self.noted(id, head));
            }
            if emptied.replace(slot) == Some(slot) {
                return Ok(Some(head));
            }
        }
    }

    /// The newest commit where `known` was that once: the next slot tells, and mostly with one request.
    async fn newest_after(
        &self,
        id: SessionId,
        known: &Arc<Entry>,
        until: Instant,
    ) -> Result<Option<Arc<Entry>>> {
        #[cfg(feature = "planted")]
        if self.bucket.planted == Some(crate::planted::Planted::StaleHead) {
            return Ok(Some(known.clone()));
        }
        if is_deleted(known) {
            // Nothing comes after it, but a purge replaces it.
            let head = self.slot(id, known.head.slot, until).await?;
            return Ok(head.and_then(|head| self.noted(id, head)));
        }
        let Some(next) = self.slot(id, known.next(), until).await? else { return Ok(Some(known.clone())) };
        // There may be more.
        match self.list_newest(id, until).await? {
            Some(slot) if slot != next.head.slot => match self.slot(id, slot, until).await? {
                Some(head) if head.head.kind != Kind::Stub => Ok(self.noted(id, head)),
                _ => self.newest_cold(id, until).await,
            },
            _ => Ok(self.noted(id, next)),
        }
    }

    /// Notes a head; `None` for a slot that was taken so that no session comes to be.
    fn noted(&self, id: SessionId, head: Arc<Entry>) -> Option<Arc<Entry>> {
        if head.head.kind == Kind::Void {
            return None;
        }
        self.heads.note(id, &head);
        Some(head)
    }

    /// The newest commit of a session that must be there, and its record.
    pub(crate) async fn existing(&self, id: SessionId, until: Instant) -> Result<(Arc<Entry>, Arc<Session>)> {
        let head = self.newest(id, until).await?.ok_or_else(|| absent(id))?;
        let record = Arc::new(record(&head)?.clone());
        Ok((head, record))
    }

    /// Applies a commit. The only write of events.
    pub(crate) async fn commit(&self, mut commit: Commit) -> Result<Committed> {
        let (id, until) = (commit.session, self.bucket.deadline());
        self.plant_before(&mut commit);
        let mut known = self.heads.get(id);
        // Whether `known` was read during this call. A refusal, or an answer without a write, needs that.
        let mut confirmed = false;
        if known.is_none() && commit.expect != Expect::Absent {
            known = self.newest_cold(id, until).await?;
            confirmed = true;
        }
        let mut lost = 0;
        loop {
            let now = known.as_deref().map(record).transpose()?;
            let planned = match plan(now, &commit) {
                Ok(planned @ Plan::Write { .. }) => planned,
                other if confirmed => return other.map(Plan::committed),
                _ => {
                    known = self.newest(id, until).await?;
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
                    known = self.newest(id, until).await?;
                    confirmed = true;
                    continue;
                }
                if !self.announce(parent, id, until).await? {
                    // Sent earlier, it may yet land; not after this.
                    self.void(id, until).await?;
                    let first = self.slot(id, Slot::FIRST, until).await?;
                    return match first.filter(|first| first.head.commit == commit.id) {
                        Some(_) => Ok(landed(planned, true)),
                        None => Err(parent_deleted(parent)),
                    };
                }
            }
            let slot = known.as_deref().map_or(Slot::FIRST, Entry::next);
            let body = Entry::encode(known.as_deref(), commit.id, events, after);
            let put = self.bucket.put(&self.keys.slot(id, slot), &body, &Condition::Absent, until).await;
            let (now, doubt) = match put {
                Ok(Put::Stored(_)) => {
                    self.won(id, slot, &body)?;
                    return Ok(planned.committed());
                }
                Ok(Put::Refused { now, doubt }) => (now, doubt),
                Err(error) if self.plant_doubt(&mut commit, &error) && self.bucket.pause(0, until).await => {
                    continue;
                }
                Err(error) => return Err(error),
            };
            match self.whose(id, slot, commit.id, now.as_ref(), doubt)? {
                Whose::Mine => {
                    self.won(id, slot, &body)?;
                    // Where no attempt of this call was in doubt, another call's was the one that landed.
                    return Ok(landed(planned, !doubt));
                }
                Whose::Other(entry) if lost == 0 => {
                    self.heads.note(id, &entry);
                    known = Some(entry);
                    confirmed = false;
                }
                // Who loses twice may be far behind, and does not walk there slot by slot.
                Whose::Other(_) | Whose::Gone => {
                    self.heads.forget(id);
                    known = self.newest_cold(id, until).await?;
                    confirmed = true;
                }
                Whose::Void => return Err(voided(id)),
            }
            lost += 1;
            if lost > 1 && !self.bucket.pause(lost - 2, until).await {
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
        &self,
        id: SessionId,
        slot: Slot,
        commit: CommitId,
        now: Option<&Object>,
        doubt: bool,
    ) -> Result<Whose> {
        // A slot in doubt that cannot be read may be this commit's own.
        let outcome = if doubt { WriteOutcome::Unknown } else { WriteOutcome::NotApplied };
        self.plant_blind(id, now.is_some())?;
        let Some(now) = now else { return Ok(Whose::Gone) };
        let entry = Entry::parse(&now.bytes, id, slot).map_err(|error| error.with_outcome(outcome))?;
        Ok(match entry.head.kind {
            Kind::Void => Whose::Void,
            _ if entry.head.commit == commit => Whose::Mine,
            Kind::Stub => Whose::Gone,
            Kind::Commit | Kind::Purged => Whose::Other(Arc::new(entry)),
        })
    }

    fn won(&self, id: SessionId, slot: Slot, body: &Bytes) -> Result<()> {
        let entry = Entry::parse(body, id, slot)?;
        self.heads.note(id, &Arc::new(entry));
        Ok(())
    }

    /// Before a session is made from another: says so below the parent, then looks whether the parent lives. Who
    /// deletes the parent and asks for its children finds the note, and takes the slot of a child that is yet to come.
    async fn announce(&self, parent: SessionId, id: SessionId, until: Instant) -> Result<bool> {
        let note = self.keys.child(parent, id);
        // Nothing but the note may have happened, whatever fails here.
        let not_applied = |error: Error| error.with_outcome(WriteOutcome::NotApplied);
        self.bucket.put(&note, &Bytes::new(), &Condition::Any, until).await.map_err(not_applied)?;
        let (parent, _) = self.existing(parent, until).await?;
        Ok(!is_deleted(&parent))
    }

    /// The sessions that were made from one, or may yet be. Where that one is deleted, none may from now on.
    pub(crate) async fn children(&self, parent: SessionId, until: Instant) -> Result<Vec<SessionId>> {
        let deleted = match self.newest(parent, until).await? {
            Some(head) => is_deleted(&head),
            None => false,
        };
        let mut children = Vec::new();
        for key in self.bucket.list_all(&self.keys.children(parent), false, until).await? {
            let Ok(child) = last(&key).parse::<SessionId>() else { continue };
            if deleted {
                self.void(child, until).await?;
            }
            children.push(child);
        }
        Ok(children)
    }

    /// Takes the first slot of a session that may be about to come to be, if it is free.
    async fn void(&self, id: SessionId, until: Instant) -> Result<()> {
        let first = agent_core::Seq::ZERO;
        let head = Head {
            format: 1,
            kind: Kind::Void,
            session: id,
            slot: Slot::FIRST,
            commit: self.bucket.effects.new_commit_id(),
            after: None,
            first,
            last: first,
            window: first,
            previous: None,
            kept: None,
            removed: false,
        };
        let key = self.keys.slot(id, Slot::FIRST);
        // Most are there, and a look is cheaper than an attempt.
        if self.bucket.get_range(&key, 0..1, until).await?.is_some() {
            return Ok(());
        }
        self.bucket.put(&key, &Entry::encode_bare(&head, None), &Condition::Absent, until).await.map(drop)
    }

    /// Leaves a sign of life of the lease `epoch`, where that lives.
    pub(crate) async fn beat(&self, id: SessionId, epoch: Epoch) -> Result<()> {
        let until = self.bucket.deadline();
        let (_, session) = self.existing(id, until).await?;
        if session.lease.as_ref().is_none_or(|lease| lease.epoch != epoch) {
            return Ok(());
        }
        // Any other number than before; the chance of the same twice in a row does no more than a lost beat.
        let body = Bytes::from(format!("{epoch} {}\n", self.bucket.effects.random_u64()));
        self.bucket.put(&self.keys.beat(id), &body, &Condition::Any, until).await.map(drop)
    }

    /// The last sign of life of the lease `epoch`.
    pub(crate) async fn pulse(&self, id: SessionId, epoch: Epoch) -> Result<Pulse> {
        let until = self.bucket.deadline();
        self.existing(id, until).await?;
        let found = self.bucket.get(&self.keys.beat(id), until).await?;
        let beat = found.and_then(|object| {
            let text = String::from_utf8_lossy(&object.bytes).into_owned();
            let (of, beat) = text.trim_end().split_once(' ')?;
            (of == epoch.to_string()).then(|| beat.parse::<u64>().ok()).flatten()
        });
        Ok(Pulse::new(beat.unwrap_or(0), false))
    }
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

/// The record after a commit.
pub(crate) fn record(head: &Entry) -> Result<&Session> {
    head.record.as_ref().ok_or_else(|| {
        let object = format!("slot {} of session {}", head.head.slot.0, head.head.session);
        corrupt(&object, "is the newest, and emptied")
    })
}

fn is_deleted(head: &Entry) -> bool {
    head.record.as_ref().is_some_and(|record| record.status.state == SessionState::Deleted)
}

/// The slot of a key.
pub(crate) fn slot_of(key: &str) -> Result<Slot> {
    Slot::parse(last(key)).ok_or_else(|| corrupt(&format!("key {key:?}"), "is no slot's"))
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
