//! Commits: planned on the record that is remembered, sent in one round trip, planned again if another record is stored.

use std::sync::Arc;

use agent_core::commit::{Commit, Committed, OptimisticCommit, Planned};
use agent_core::model::NeededBlob;
use agent_core::session::SessionRecord;
use agent_core::{Error, ErrorKind, Plan, Result, SessionId};

use crate::blobs::chunks;
use crate::error::Step;
use crate::log::rebuild;
use crate::log::send::{Sent, parent, send, stored};
use crate::medium::attempts::{Mode, Site, run};
use crate::medium::db::Db;
use crate::medium::known::{Known, Versioned};
use crate::medium::session_rows::Rows;
use crate::medium::stored::{self, Stored, no_session};

/// Number of other records that were stored meanwhile, after which the session is locked.
const LOSSES: u32 = 3;
/// Most repetitions because of blobs and parents, which others change.
const MOST: u32 = 20;

/// Returns what is stored of a session, if it exists. A damaged or missing record is rebuilt from the log.
pub(crate) async fn current(site: &Site, id: SessionId) -> Result<Option<Versioned>> {
    let found = run!(site, Mode::Read, "read a session", db => stored::read(db, id).await)?;
    whole(site, id, found).await
}

/// Rebuilds a record that was found to be broken.
async fn whole(site: &Site, id: SessionId, found: Stored) -> Result<Option<Versioned>> {
    match found {
        Stored::Whole(found) => Ok(Some(found)),
        Stored::Broken => rebuild::mend(site, id).await,
        Stored::Absent => Ok(None),
    }
}

/// Commit on its way.
struct Sending<'a> {
    site: &'a Site,
    planned: OptimisticCommit<Rows>,
    /// Record on which the commit is planned, if the session exists.
    before: Option<Versioned>,
    /// True if that is what the database said last, and no guess.
    is_current: bool,
}

/// Applies a commit.
pub(crate) async fn commit(site: &Site, known: &Known, commit: Commit) -> Result<Committed> {
    let key = (site.scope.tenant.clone(), commit.session);
    let before = known.get(&key);
    let on = before.as_ref().map(|before| (before.version, &*before.session));
    let planned =
        OptimisticCommit::new(commit, on, |events, after| Rows::of(&site.scope.tenant, events, after));
    let mut sending = Sending { site, planned, before, is_current: false };
    let mut losses = 0;
    for _ in 0..MOST {
        let Some(planned) = sending.plan().await? else { continue };
        let Plan::Write { after, blobs, .. } = &planned.plan else { return Ok(planned.plan.committed()) };
        let Some(rows) = &planned.rows else { return Ok(planned.plan.committed()) };
        let before = sending.before.as_ref();
        let sent = if losses < LOSSES {
            run!(@ site.attempts(Mode::Write, "commit").unset(), db => send(db, before, after, blobs, rows).await)?
        } else {
            // Whoever is overtaken again and again has the session alone.
            let made = &sending.planned;
            let (planned, sent) = run!(site, Mode::Shared, "commit", db => locked(db, made).await)?;
            match (planned, sent) {
                (planned, None) => return Ok(planned.plan.committed()),
                (planned, Some(Sent::Applied(version))) => {
                    return Ok(applied(known, key, &planned.plan, version));
                }
                (_, Some(sent)) => sent,
            }
        };
        match sent {
            Sent::Applied(version) => return Ok(applied(known, key, &planned.plan, version)),
            // A row that the owner does not see has the id.
            Sent::Stale(Stored::Absent) if before.is_none() && site.scope.owner.is_some() => {
                return Err(taken(key.1));
            }
            Sent::Stale(found) => {
                losses += 1;
                sending.before = whole(site, key.1, found).await?;
                sending.is_current = true;
            }
            sent => {
                let (after, blobs) = (after.clone(), blobs.clone());
                sending.settle(&sent, &after, &blobs).await?;
            }
        }
    }
    Err(Error::unavailable(format!("others changed session {} again and again; try again", key.1)))
}

fn taken(id: SessionId) -> Error {
    let text = format!("session {id} cannot be created, since its id is in use; choose another id");
    Error::new(ErrorKind::Conflict { head: None }, text)
}

/// Remembers what was stored.
fn applied(known: &Known, key: (Arc<str>, SessionId), plan: &Plan, version: i64) -> Committed {
    let done = plan.committed();
    known.insert(key, stored(version, &done.session));
    done
}

impl Sending<'_> {
    /// Plans on the record; `None` if that was a guess which does not do, and the current one was read.
    async fn plan(&mut self) -> Result<Option<Arc<Planned<Rows>>>> {
        let on = self.before.as_ref().map(|before| (before.version, &*before.session));
        let encode = |events: &[_], after: &SessionRecord| Rows::of(&self.site.scope.tenant, events, after);
        match self.planned.resolve(on, encode) {
            Ok(planned) if self.is_current || planned.rows.is_some() => Ok(Some(planned)),
            Err(error) if self.is_current => Err(error),
            _ => {
                self.before = current(self.site, self.planned.commit().session).await?;
                self.is_current = true;
                Ok(None)
            }
        }
    }

    /// Finds out why a commit was not stored, for another reason than another record. Fails unless it may be sent again.
    async fn settle(&mut self, sent: &Sent, after: &SessionRecord, blobs: &[NeededBlob]) -> Result<()> {
        let (site, id) = (self.site, after.id);
        match sent {
            Sent::DeletedParent => {
                let parent = parent(after);
                let text = format!("session {parent} was deleted; it has no new forks or children");
                return Err(Error::deleted(text));
            }
            Sent::NoParent => {
                // Its record may have to be rebuilt.
                let parent = parent(after);
                current(site, parent).await?.ok_or_else(|| no_session(parent))?;
            }
            Sent::NoBlob => {
                run!(site, Mode::Snapshot, "look for blobs", db => chunks::require(db, id, blobs).await)?;
            }
            _ => {
                // Fails if the log does not end where the record says.
                let whole = site.whole();
                run!(@ whole.attempts(Mode::Alone, "rebuild a session").long(), db => rebuild::again(db, id).await)?;
                self.before = current(site, id).await?;
                self.is_current = true;
            }
        }
        Ok(())
    }
}

/// Plans and sends a commit while its session is locked. Sends nothing if there is nothing to write.
async fn locked(db: &mut Db, made: &OptimisticCommit<Rows>) -> Step<(Arc<Planned<Rows>>, Option<Sent>)> {
    let tenant = db.scope.tenant.clone();
    let before = match stored::lock(db, made.commit().session).await? {
        Stored::Whole(before) => Some(before),
        Stored::Broken | Stored::Absent => None,
    };
    let on = before.as_ref().map(|before| (before.version, &*before.session));
    let planned = made.resolve(on, |events, after| Rows::of(&tenant, events, after))?;
    let (Plan::Write { after, blobs, .. }, Some(rows)) = (&planned.plan, &planned.rows) else {
        return Ok((planned, None));
    };
    let sent = send(db, before.as_ref(), after, blobs, rows).await?;
    Ok((planned.clone(), Some(sent)))
}

/// Stores a heartbeat of the holder of the lease `epoch`, if it is still the holder.
pub(crate) async fn heartbeat(db: &mut Db, id: SessionId, epoch: i64) -> Step<()> {
    let sql = "WITH s AS (SELECT owner, epoch FROM @.sessions WHERE tenant = $1 AND session = $2 FOR KEY SHARE), \
        h AS (INSERT INTO @.heartbeats AS h (tenant, session, owner, heartbeat) SELECT $1, $2, s.owner, 1 FROM s \
        WHERE s.epoch = $3 ON CONFLICT (tenant, session) DO UPDATE SET heartbeat = h.heartbeat + 1) SELECT 1 FROM s";
    let found = db.first(db.query(sql).bind(*id.as_uuid()).bind(epoch)).await?;
    found.map(drop).ok_or_else(|| no_session(id).into())
}
