//! Rebuilds derived data from its source: records from logs and tombstones, and which event names a blob.

use std::sync::Arc;

use agent_core::session::SessionRecord;
use agent_core::state::{Reason, SessionState};
use agent_core::store::{Damaged, Rebuilt};
use agent_core::{Error, ErrorKind, Result, Seq, SessionId, Timestamp, WorkspaceId};
use sqlx::Row;
use sqlx::types::Uuid;

use crate::blobs::removal;
use crate::error::{Fault, Step, corrupt};
use crate::medium::attempts::{Mode, Site, run};
use crate::medium::db::Db;
use crate::medium::known::Versioned;
use crate::medium::rows::{checksum, int, seq};
use crate::medium::session_rows::owner;
use crate::medium::stored::{self, Stored, bury, event, no_session, record, write_record};

/// Number of events that are read at once.
const EVENTS: i64 = 500;

/// Rebuilds a record that was found to be damaged or missing, unless somebody has done so. Returns `None` if there is no
/// such session.
pub(crate) async fn mend(site: &Site, id: SessionId) -> Result<Option<Versioned>> {
    let whole = site.whole();
    let mended = run!(@ whole.attempts(Mode::Alone, "rebuild a session").long(), db => async {
        match stored::lock(db, id).await? {
            Stored::Whole(found) => Ok(Some(found)),
            Stored::Absent => Ok(None),
            Stored::Broken => session(db, id).await,
        }
    }.await)?;
    if mended.is_some() {
        tracing::warn!(session = %id, "the record of the session was damaged or missing; it is rebuilt from the log");
    }
    if site.scope.owner.is_none() {
        return Ok(mended);
    }
    // The owner may see some of its rows, and not the record.
    Ok(match run!(site, Mode::Read, "read a session", db => stored::read(db, id).await)? {
        Stored::Whole(found) => Some(found),
        Stored::Broken | Stored::Absent => None,
    })
}

/// Writes the rows of a session again, in a transaction that excludes all other writers of the tenant.
pub(crate) async fn again(db: &mut Db, id: SessionId) -> Step<()> {
    session(db, id).await.map(drop)
}

/// Rebuilds and stores a session's record and its tombstone. Returns `None` if there is no trace of it. The transaction
/// excludes all other writers of the tenant.
async fn session(db: &mut Db, id: SessionId) -> Step<Option<Versioned>> {
    let (buried, listed) = (buried(db, id).await?, listed(db, id).await?);
    let (session, kept) = match (buried, listed) {
        (Some((session, kept)), _) => (session, Some(kept)),
        // Of a purged session, only the record is left.
        (None, Some((Some(session), Some(kept)))) if session.status.state == SessionState::Deleted => {
            bury(db, &session, kept).await?;
            (session, Some(kept))
        }
        (None, listed) => {
            let had_record = listed.is_some();
            let end = listed.and_then(|(session, _)| session).map_or(Seq::ZERO, |session| session.head);
            let Folded { session, last, damage } = fold(db, id).await?;
            match (session, damage) {
                (_, Some(damage)) => return Err(damage.into()),
                (Some(session), None) if session.head >= end => (session, None),
                (None, None) if !had_record => return Ok(None),
                (None, None) if last == Seq::ZERO && end == Seq::ZERO => {
                    let what = "is damaged, and it has no log";
                    return Err(corrupt(&format!("the record of session {id}"), what).into());
                }
                (folded, None) => {
                    let found = folded.map_or(Seq::ZERO, |session| session.head);
                    let what = format!("ends at event {found}, but had events up to {end}");
                    return Err(corrupt(&format!("the log of session {id}"), &what).into());
                }
            }
        }
    };
    let version = write_record(db, &session, kept).await?;
    Ok(Some(Versioned { version, session: Arc::new(session) }))
}

/// Returns the record in a session's row, if it is readable, and the last event that was kept; `None` if there is no row.
async fn listed(db: &mut Db, id: SessionId) -> Step<Option<(Option<SessionRecord>, Option<i64>)>> {
    let sql = "SELECT record, record_crc, kept FROM @.sessions WHERE tenant = $1 AND session = $2";
    let Some(row) = db.first(db.query(sql).bind(*id.as_uuid())).await? else { return Ok(None) };
    let session = record(&db.scope.tenant, id, row.try_get(0)?, row.try_get(1)?);
    Ok(Some((session, row.try_get(2)?)))
}

/// Returns the record in a session's tombstone, and the last event that was kept.
async fn buried(db: &mut Db, id: SessionId) -> Step<Option<(SessionRecord, i64)>> {
    let sql = "SELECT record, crc, kept FROM @.tombstones WHERE tenant = $1 AND session = $2";
    let Some(row) = db.first(db.query(sql).bind(*id.as_uuid())).await? else { return Ok(None) };
    let session = record(&db.scope.tenant, id, row.try_get(0)?, row.try_get(1)?);
    let session = session.ok_or_else(|| corrupt(&format!("the tombstone of session {id}"), "is damaged"))?;
    Ok(Some((session, row.try_get(2)?)))
}

/// Log, as far as it can be read.
struct Folded {
    /// Record after the readable events.
    session: Option<SessionRecord>,
    /// Number of the last row.
    last: Seq,
    damage: Option<Error>,
}

/// Folds a session's own log up to the first unreadable event.
async fn fold(db: &mut Db, id: SessionId) -> Step<Folded> {
    let (name, mut folded) = (id.to_string(), Folded { session: None, last: Seq::ZERO, damage: None });
    let sql = "SELECT seq, crc, json FROM @.events WHERE tenant = $1 AND session = $2 AND seq > $3 ORDER BY seq LIMIT $4";
    loop {
        let after = int(folded.last.get());
        let rows = db.rows(db.query(sql).bind(*id.as_uuid()).bind(after).bind(EVENTS)).await?;
        for row in &rows {
            folded.last = seq(row.try_get(0)?);
            if folded.damage.is_some() {
                continue;
            }
            // A record to which an event was applied in part is discarded.
            let next = event(row, 0, &db.scope.tenant, &name)?.and_then(|event| match &folded.session {
                None => SessionRecord::begin(id, &event),
                Some(so_far) => {
                    let mut next = so_far.clone();
                    next.apply(&event).map(|()| next)
                }
            });
            match next {
                Ok(next) => folded.session = Some(next),
                Err(error) => folded.damage = Some(error),
            }
        }
        if rows.len() < usize::try_from(EVENTS).unwrap_or(usize::MAX) {
            return Ok(folded);
        }
    }
}

/// Returns the ids of all sessions of a tenant of which anything is left.
async fn ids(db: &mut Db) -> Step<Vec<SessionId>> {
    let sql = "WITH RECURSIVE e (session) AS (\
        (SELECT session FROM @.events WHERE tenant = $1 ORDER BY session LIMIT 1) UNION ALL \
        SELECT (SELECT x.session FROM @.events x WHERE x.tenant = $1 AND x.session > e.session ORDER BY x.session LIMIT 1) \
        FROM e WHERE e.session IS NOT NULL) \
        SELECT session FROM e WHERE session IS NOT NULL UNION SELECT session FROM @.tombstones WHERE tenant = $1 \
        UNION SELECT session FROM @.sessions WHERE tenant = $1 ORDER BY 1";
    let rows = db.rows(db.query(sql)).await?;
    rows.iter().map(|row| Ok(SessionId::from_uuid(row.try_get::<Uuid, _>(0)?))).collect()
}

/// Rebuilds all records of a tenant, each session in a transaction of its own. A record whose log is damaged is left
/// unchanged, and reported.
pub(crate) async fn all(site: &Site) -> Result<Rebuilt> {
    let ids = run!(@ site.attempts(Mode::Snapshot, "list sessions").long(), db => ids(db).await)?;
    let (mut count, mut damaged) = (0, Vec::new());
    for id in ids {
        let rebuilt = run!(@ site.attempts(Mode::Alone, "rebuild a session").long(), db => async {
            session(db, id).await?;
            removal::rebuild(db, id).await
        }.await);
        match rebuilt {
            Ok(()) => count += 1,
            Err(error) if *error.kind() == ErrorKind::Corrupt => {
                damaged.push(Damaged::of(format!("session {id}"), &error));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(Rebuilt::new(count).with_damaged(damaged))
}

/// Deletes a session whose record cannot be rebuilt: a tombstone replaces the record. All events are kept unchanged
/// until the session is purged.
pub(crate) async fn delete_damaged(
    db: &mut Db,
    id: SessionId,
    (at, reason): (Timestamp, Reason),
) -> Step<Arc<SessionRecord>> {
    match session(db, id).await {
        Ok(None) => return Err(no_session(id).into()),
        Ok(Some(found)) if found.session.status.state == SessionState::Deleted => return Ok(found.session),
        Ok(Some(_)) => {
            let text = format!("session {id} can be read; delete it by a commit");
            return Err(Error::invalid(text).into());
        }
        Err(Fault::Refused(error)) if *error.kind() == ErrorKind::Corrupt => {}
        Err(fault) => return Err(fault),
    }
    let Folded { session: known, last, .. } = fold(db, id).await?;
    let sql = "SELECT workspace FROM @.sessions WHERE tenant = $1 AND session = $2";
    let listed = db.first(db.query(sql).bind(*id.as_uuid())).await?;
    let listed = listed.map(|row| row.try_get(0)).transpose()?.map(WorkspaceId::from_uuid);
    // If nothing names its workspace any more, the session goes to the default workspace.
    let workspace = known.as_ref().map(|known| known.workspace).or(listed).unwrap_or(WorkspaceId::DEFAULT);
    let tombstone = SessionRecord::tombstone_of_damaged(id, workspace, known.as_ref(), last, at, reason);
    let (record, kept) = (tombstone.to_json(), int(tombstone.head.get()));
    let crc = checksum(&[&db.scope.tenant, &id.to_string(), &record]);
    let sql = "INSERT INTO @.tombstones AS t (tenant, session, owner, kept, crc, record) VALUES ($1, $2, $3, $4, $5, $6) \
        ON CONFLICT (tenant, session) DO UPDATE SET record = excluded.record, crc = excluded.crc";
    let insert = db.query(sql).bind(*id.as_uuid()).bind(owner(&tombstone).to_owned()).bind(kept);
    db.execute(insert.bind(crc).bind(record)).await?;
    write_record(db, &tombstone, Some(kept)).await?;
    Ok(Arc::new(tombstone))
}
