//! Rows of one session, read and written: its record, its events, its tombstone.

use std::sync::Arc;

use agent_core::event::Event;
use agent_core::session::SessionRecord;
use agent_core::{Error, Result, SessionId};
use sqlx::Row;
use sqlx::postgres::PgRow;

use crate::error::{Step, corrupt};
use crate::medium::db::Db;
use crate::medium::known::Versioned;
use crate::medium::rows::{checksum, event_checksum, int, seq};
use crate::medium::session_rows::{
    Texts, class, due_at, is_rare, is_shared, labels, listed_at, new_version, owner, waits,
};

/// Error for a session that never existed.
pub(crate) fn no_session(id: SessionId) -> Error {
    Error::not_found(format!("session {id} does not exist"))
}

/// What is stored of a session's record.
#[derive(Debug)]
pub(crate) enum Stored {
    Whole(Versioned),
    /// The record is damaged, or missing although there is a log or a tombstone: it must be rebuilt.
    Broken,
    /// The session does not exist.
    Absent,
}

impl Stored {
    /// Reads the columns `version`, `record` and `record_crc` from index `at` on.
    pub(crate) fn of(row: &PgRow, at: usize, tenant: &str, id: SessionId) -> Step<Self> {
        let (version, json): (i64, &str) = (row.try_get(at)?, row.try_get(at + 1)?);
        let crc: i32 = row.try_get(at + 2)?;
        let session = record(tenant, id, json, crc);
        Ok(session
            .map_or(Self::Broken, |session| Self::Whole(Versioned { version, session: Arc::new(session) })))
    }
}

/// Reads a record; `None` if it is damaged.
pub(crate) fn record(tenant: &str, id: SessionId, json: &str, crc: i32) -> Option<SessionRecord> {
    if checksum(&[tenant, &id.to_string(), json]) != crc {
        return None;
    }
    SessionRecord::from_json(json).ok()
}

const RECORD: &str = "SELECT version, record, record_crc FROM @.sessions WHERE tenant = $1 AND session = $2";
const RECORD_FOR_UPDATE: &str =
    "SELECT version, record, record_crc FROM @.sessions WHERE tenant = $1 AND session = $2 FOR UPDATE";
const RECORD_FOR_SHARE: &str =
    "SELECT version, record, record_crc FROM @.sessions WHERE tenant = $1 AND session = $2 FOR SHARE";

/// Reads a session's record.
pub(crate) async fn read(db: &mut Db, id: SessionId) -> Step<Stored> {
    found(db, RECORD, id).await
}

/// Reads a session's record, and excludes those who change it until the transaction ends.
pub(crate) async fn lock(db: &mut Db, id: SessionId) -> Step<Stored> {
    found(db, RECORD_FOR_UPDATE, id).await
}

/// Like [`lock`], beside others who only need the session to stay as it is.
pub(crate) async fn share(db: &mut Db, id: SessionId) -> Step<Stored> {
    found(db, RECORD_FOR_SHARE, id).await
}

async fn found(db: &mut Db, sql: &'static str, id: SessionId) -> Step<Stored> {
    let row = db.first(db.query(sql).bind(*id.as_uuid())).await?;
    match row {
        Some(row) => Stored::of(&row, 0, &db.scope.tenant, id),
        None if is_left(db, id).await? => Ok(Stored::Broken),
        None => Ok(Stored::Absent),
    }
}

/// Returns whether there is a log or a tombstone of a session.
pub(crate) async fn is_left(db: &mut Db, id: SessionId) -> Step<bool> {
    let sql = "SELECT EXISTS (SELECT 1 FROM @.events WHERE tenant = $1 AND session = $2) \
        OR EXISTS (SELECT 1 FROM @.tombstones WHERE tenant = $1 AND session = $2)";
    let row = db.first(db.query(sql).bind(*id.as_uuid())).await?;
    Ok(row.map(|row| row.try_get(0)).transpose()?.unwrap_or(false))
}

/// Writes a record that was rebuilt, or that a purge has changed, with all rows that repeat parts of it.
pub(crate) async fn write_record(db: &mut Db, session: &SessionRecord, kept: Option<i64>) -> Step<i64> {
    let (id, version, state) = (*session.id.as_uuid(), new_version()?, session.status.state);
    let texts = Texts::of(&db.scope.tenant, session);
    for sql in [
        "DELETE FROM @.labels WHERE tenant = $1 AND session = $2",
        "DELETE FROM @.due WHERE tenant = $1 AND session = $2",
    ] {
        db.execute(db.query(sql).bind(id)).await?;
    }
    // The row stays the same one, so that those who wait for it find it.
    let sql = "INSERT INTO @.sessions VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, \
        $18, $19, $20, $21, $22, $23, $24) ON CONFLICT (tenant, session) DO UPDATE SET (owner, workspace, class, rare, state, \
        reason, creator, parent, head, base, kept, version, epoch, created_at, last_active_at, listed_at, due_at, record_crc, \
        summary_crc, record, summary, shared) = (excluded.owner, excluded.workspace, excluded.class, excluded.rare, excluded.state, \
        excluded.reason, excluded.creator, excluded.parent, excluded.head, excluded.base, excluded.kept, excluded.version, \
        excluded.epoch, excluded.created_at, excluded.last_active_at, excluded.listed_at, excluded.due_at, \
        excluded.record_crc, excluded.summary_crc, excluded.record, excluded.summary, excluded.shared)";
    let insert = db
        .query(sql)
        .bind(id)
        .bind(owner(session).to_owned())
        .bind(*session.workspace.as_uuid())
        .bind(class(state))
        .bind(is_rare(state).then_some(state.as_str()))
        .bind(state.as_str())
        .bind(session.status.reason.as_str())
        .bind(session.creator.to_string())
        .bind(session.origin.parent().map(|parent| *parent.as_uuid()))
        .bind(int(session.head.get()))
        .bind(int(session.lineage.base().get()))
        .bind(kept)
        .bind(version)
        .bind(session.lease.as_ref().map(|lease| int(lease.epoch.get())))
        .bind(session.created_at.as_micros())
        .bind(session.last_active_at.as_micros())
        .bind(listed_at(session))
        .bind(due_at(session))
        .bind(texts.record_crc)
        .bind(texts.summary_crc)
        .bind(texts.record)
        .bind(texts.summary)
        .bind(is_shared(session));
    db.execute(insert).await?;
    let (keys, values) = labels(session);
    let sql = "INSERT INTO @.labels (tenant, key, value, session, owner) \
        SELECT $1, l.key, l.value, $2, $3 FROM unnest($4::text[], $5::text[]) AS l (key, value)";
    db.execute(db.query(sql).bind(id).bind(owner(session).to_owned()).bind(keys).bind(values)).await?;
    if waits(session) {
        let sql = "INSERT INTO @.due (tenant, session, owner, at, state) VALUES ($1, $2, $3, $4, $5)";
        let insert =
            db.query(sql).bind(id).bind(owner(session).to_owned()).bind(due_at(session)).bind(state.as_str());
        db.execute(insert).await?;
    }
    Ok(version)
}

/// Stores the tombstone of a session whose events up to `kept` are left. A second purge may keep less than the first,
/// never more: removed events do not come back. Returns what is kept.
pub(crate) async fn bury(db: &mut Db, tombstone: &SessionRecord, kept: i64) -> Step<i64> {
    let record = tombstone.to_json();
    let crc = checksum(&[&db.scope.tenant, &tombstone.id.to_string(), &record]);
    let sql = "INSERT INTO @.tombstones AS t (tenant, session, owner, kept, crc, record) VALUES ($1, $2, $3, $4, $5, $6) \
        ON CONFLICT (tenant, session) DO UPDATE \
        SET owner = excluded.owner, kept = least(t.kept, excluded.kept), crc = excluded.crc, record = excluded.record RETURNING kept";
    let insert = db.query(sql).bind(*tombstone.id.as_uuid()).bind(owner(tombstone).to_owned()).bind(kept);
    let row = db.first(insert.bind(crc).bind(record)).await?;
    Ok(row.map(|row| row.try_get(0)).transpose()?.unwrap_or(kept))
}

/// Reads an event from the columns `seq`, `crc` and `json`, from index `at` on.
pub(crate) fn event(row: &PgRow, at: usize, tenant: &str, session: &str) -> Step<Result<Event>> {
    let seq = seq(row.try_get(at)?);
    let damaged = |what| Err(corrupt(&format!("event {seq} of session {session}"), what));
    let (crc, json): (i32, &str) = (row.try_get(at + 1)?, row.try_get(at + 2)?);
    if event_checksum(tenant, session, seq, json) != crc {
        return Ok(damaged("does not fit its checksum"));
    }
    Ok(match Event::from_json(json) {
        Ok(event) if event.seq == seq => Ok(event),
        Ok(_) => damaged("carries another number"),
        Err(_) => damaged("is not an event of a format that this version reads"),
    })
}
