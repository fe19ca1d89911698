//! Commit protocol: a commit is one object in one slot, which only one writer can win; see `docs/decisions/0008`.

use std::sync::Arc;

use agent_core::commit::{Commit, Committed, Precondition};
use agent_core::model::NeededBlob;
use agent_core::{Error, ErrorKind, Plan, Result, SessionId, WriteOutcome, plan};
use bytes::Bytes;
use tokio::time::Instant;

use crate::error::{corrupt, is_damage};
use crate::layout::keys::Slot;
use crate::log::blob_names;
use crate::log::family::{Announced, announce, void};
use crate::log::index_keys::{IndexKey, needed};
use crate::log::slot::{Entry, Kind, Own};
use crate::log::slots::{Slots, record};
use crate::medium::object::{Condition, Object, Put};

/// Applies a commit. Events are written nowhere else.
pub(crate) async fn commit(slots: &Slots, commit: Commit) -> Result<Committed> {
    let mut attempts = Attempts::new(slots, commit).await?;
    loop {
        if let Some(done) = attempts.attempt().await? {
            return Ok(done);
        }
    }
}

/// Commit that is tried until its outcome is known.
struct Attempts<'a> {
    slots: &'a Slots,
    commit: Commit,
    id: SessionId,
    until: Instant,
    /// Newest known commit.
    known: Option<Arc<Entry>>,
    /// True if `known` was read during this call. A refusal, or an answer without a write, requires that.
    confirmed: bool,
    /// Number of times that another writer won the slot.
    lost: u32,
}

/// Owner of a slot that could not be won.
enum Whose {
    Mine,
    Other(Arc<Entry>),
    /// The slot was emptied: the head is far ahead.
    Gone,
    Void,
}

impl<'a> Attempts<'a> {
    async fn new(slots: &'a Slots, commit: Commit) -> Result<Self> {
        let (id, until) = (commit.session, slots.bucket.deadline());
        let mut attempts =
            Self { slots, id, until, known: slots.heads.get(id), confirmed: false, lost: 0, commit };
        if attempts.known.is_none() && attempts.commit.precondition != Precondition::MustNotExist {
            attempts.reload().await?;
        }
        Ok(attempts)
    }

    /// Checks whether the known commit is still the newest.
    async fn refresh(&mut self) -> Result<()> {
        self.known = self.slots.newest(self.id, self.until).await?;
        self.confirmed = true;
        Ok(())
    }

    /// Finds the newest commit without using what is known.
    async fn reload(&mut self) -> Result<()> {
        self.known = self.slots.newest_cold(self.id, self.until).await?;
        self.confirmed = true;
        Ok(())
    }

    /// Plans on the known commit, and tries to win the slot after it. Returns `None` if a newer commit became known,
    /// so that the caller tries again.
    async fn attempt(&mut self) -> Result<Option<Committed>> {
        let now = self.known.as_deref().map(record).transpose()?;
        let planned = plan(now.map(Arc::as_ref), &self.commit);
        let Ok(Plan::Write { events, after, blobs, .. }) = &planned else {
            if self.confirmed {
                return planned.map(|plan| Some(plan.committed()));
            }
            self.refresh().await?;
            return Ok(None);
        };
        let slot = self.known.as_deref().map_or(Slot::FIRST, Entry::next);
        if !self.require_blobs(blobs, slot).await? {
            return Ok(None);
        }
        if let Some(head) = self.known.as_deref().filter(|head| !head.is_whole()) {
            return Err(corrupt(
                &format!("slot {} of session {}", head.head.slot.0, self.id),
                "is cut short",
            ));
        }
        if let (None, Some(parent)) = (&self.known, after.origin.parent()) {
            if !self.confirmed {
                // The session may exist already, and its parent may have been deleted since.
                self.refresh().await?;
                return Ok(None);
            }
            match announce(self.slots, parent, self.id, self.until).await? {
                Announced::Recorded => {}
                Announced::Refused => return Err(parent_deleted(parent)),
                Announced::Late => {
                    self.close_orphan(parent).await?;
                    return Ok(Some(landed(&planned?, true)));
                }
            }
        }
        let own = Own::new(events);
        let base = self.base(&own).await?;
        let in_force = self.known.as_deref().map_or(&[][..], |known| &known.head.keys);
        let keys = needed(after, &self.slots.bucket.settings.index, in_force, slot);
        self.put_keys(&keys, slot).await?;
        let before = self.known.clone();
        let body =
            Entry::encode(before.as_deref(), base.as_deref(), self.commit.id, &own, after, keys.clone());
        let replayed = self.win(slot, &body).await?;
        if replayed.is_some() {
            self.supersede(before.map_or_else(Vec::new, |before| before.head.keys.clone()), &keys);
        } else {
            self.withdraw(keys, slot);
        }
        replayed.map(|replayed| planned.map(|plan| landed(&plan, replayed))).transpose()
    }

    /// Checks that the blobs of the commit are there. Returns false if the known commit was confirmed instead.
    async fn require_blobs(&mut self, blobs: &[NeededBlob], slot: Slot) -> Result<bool> {
        let Err(error) = blob_names::require(self.slots, self.id, blobs, slot, self.until).await else {
            return Ok(true);
        };
        let is_refusal = matches!(error.kind(), ErrorKind::BlobMissing { .. } | ErrorKind::InvalidInput);
        if is_refusal && !self.confirmed {
            // The commit may have been applied, and its blobs removed with the session since.
            self.refresh().await?;
            return Ok(false);
        }
        if is_refusal && slot == Slot::FIRST && self.is_void().await? {
            return Err(voided(self.id));
        }
        Err(error.with_outcome(WriteOutcome::NotApplied))
    }

    /// Supersedes the keys that were put for a slot that another commit won. The winner may name the same keys; an emptied
    /// slot does not show it.
    fn withdraw(&self, keys: Vec<IndexKey>, slot: Slot) {
        let covers = |known: &Arc<Entry>| known.head.slot >= slot && known.head.kind != Kind::Stub;
        if let Some(known) = self.known.clone().filter(covers) {
            let mine = keys.into_iter().filter(|key| key.slot == slot).collect();
            self.supersede(mine, &known.head.keys);
        }
    }

    /// Returns whether the first slot was taken so that the session cannot be created.
    async fn is_void(&self) -> Result<bool> {
        let first = self.slots.get(self.id, Slot::FIRST, self.until).await?;
        Ok(first.is_some_and(|first| first.head.kind == Kind::Void))
    }

    /// Puts the keys that the commit in `slot` brings into force. They are there before it is, so that none is ever
    /// missing.
    async fn put_keys(&self, keys: &[IndexKey], slot: Slot) -> Result<()> {
        let Slots { bucket, keys: names, .. } = self.slots;
        let put = |key: &IndexKey| {
            let name = key.name(names, self.id);
            async move { bucket.put(&name, &Bytes::new(), &Condition::Any, self.until).await }
        };
        let new = keys.iter().filter(|key| key.slot == slot).map(put);
        let done = futures::future::try_join_all(new).await;
        // The commit itself was not sent. A key that is left is not in force.
        done.map(drop).map_err(|error| error.with_outcome(WriteOutcome::NotApplied))
    }

    /// Deletes those of `keys` later that are not in force any more.
    fn supersede(&self, keys: Vec<IndexKey>, in_force: &[IndexKey]) {
        let old = keys.into_iter().filter(|key| !in_force.contains(key));
        self.slots.delete_later(old.map(|key| key.name(&self.slots.keys, self.id)));
    }

    /// Returns the object whose lines this commit carries besides those of the known one: if it closes a small window,
    /// the one that closed the small window before.
    async fn base(&self, own: &Own) -> Result<Option<Arc<Entry>>> {
        let Some(slot) = self.known.as_deref().and_then(|known| known.base_slot(own)) else {
            return Ok(None);
        };
        if let Some(base) = self.slots.heads.base(self.id, slot) {
            return Ok(Some(base));
        }
        match self.slots.get(self.id, slot, self.until).await {
            Ok(base) => Ok(base),
            // Its own slot keeps the damage, and the commit does not need it.
            Err(error) if is_damage(&error) => Ok(None),
            Err(error) => Err(error.with_outcome(WriteOutcome::NotApplied)),
        }
    }

    /// Takes the first slot so that the session cannot be created, because the parent was deleted while that was under way.
    ///
    /// # Errors
    ///
    /// `Deleted`, unless an earlier attempt has created the session.
    async fn close_orphan(&self, parent: SessionId) -> Result<()> {
        // A commit that was sent earlier may still arrive, but cannot win any more after this.
        void(self.slots, self.id, self.until).await?;
        let first = self.slots.get(self.id, Slot::FIRST, self.until).await?;
        let made = first.is_some_and(|first| first.head.commit == self.commit.id);
        if made { Ok(()) } else { Err(parent_deleted(parent)) }
    }

    /// Tries to win a slot. Returns `None` if another commit has it, else whether this commit had it already.
    async fn win(&mut self, slot: Slot, body: &Bytes) -> Result<Option<bool>> {
        let Slots { bucket, keys, heads, .. } = self.slots;
        let put = bucket.put(&keys.slot(self.id, slot), body, &Condition::Absent, self.until).await?;
        let replayed = match put {
            Put::Stored(_) => false,
            Put::Refused { now, doubt } => match self.whose(slot, now.as_ref(), doubt)? {
                // If no attempt of this call was in doubt, an attempt of another call was stored.
                Whose::Mine => !doubt,
                Whose::Other(winner) => return self.give_way(Some(winner)).await.map(|()| None),
                Whose::Gone => return self.give_way(None).await.map(|()| None),
                Whose::Void => return Err(voided(self.id)),
            },
        };
        heads.note(self.id, &Arc::new(Entry::parse(body, self.id, slot)?));
        Ok(Some(replayed))
    }

    /// Returns the owner of a taken slot, by the commit id in it.
    fn whose(&self, slot: Slot, now: Option<&Object>, doubt: bool) -> Result<Whose> {
        // A slot in doubt that cannot be read may belong to this commit.
        let outcome = if doubt { WriteOutcome::Unknown } else { WriteOutcome::NotApplied };
        let Some(now) = now else { return Ok(Whose::Gone) };
        let entry = Entry::parse(&now.bytes, self.id, slot).map_err(|error| error.with_outcome(outcome))?;
        Ok(match entry.head.kind {
            Kind::Void => Whose::Void,
            _ if entry.head.commit == self.commit.id => Whose::Mine,
            Kind::Stub => Whose::Gone,
            Kind::Commit | Kind::Purged => Whose::Other(Arc::new(entry)),
        })
    }

    /// Handles a lost slot: learns the newest commit, and pauses if this happens repeatedly.
    async fn give_way(&mut self, winner: Option<Arc<Entry>>) -> Result<()> {
        match winner {
            Some(winner) if self.lost == 0 => {
                self.slots.heads.note(self.id, &winner);
                (self.known, self.confirmed) = (Some(winner), false);
            }
            // A caller that loses twice may be far behind, so it searches the head instead of trying slot by slot.
            _ => {
                self.slots.heads.forget(self.id);
                self.reload().await?;
                if self.known.is_none() {
                    // The slot is taken, but the session does not exist: its tenant was deleted.
                    return Err(voided(self.id));
                }
            }
        }
        self.lost += 1;
        if self.lost > 1 && !self.slots.bucket.pause(self.lost - 2, self.until).await {
            let text = format!(
                "cannot commit to session {}: other commits were faster each time; try again",
                self.id
            );
            return Err(Error::unavailable(text).timed_out());
        }
        Ok(())
    }
}

/// Returns the result for a commit that is stored.
fn landed(planned: &Plan, replayed: bool) -> Committed {
    let mut done = planned.committed();
    done.replayed = replayed;
    done
}

fn parent_deleted(parent: SessionId) -> Error {
    Error::deleted(format!("session {parent} was deleted; it has no new forks or children"))
}

fn voided(id: SessionId) -> Error {
    Error::deleted(format!(
        "session {id} was not created: its id was given up, since its parent was deleted meanwhile, or the blobs that \
         were put for it were removed; use another id"
    ))
}
