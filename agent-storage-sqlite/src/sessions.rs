//! Sessions inside a write transaction: reading a record, carrying out a plan, purging, beating.

use std::collections::HashMap;
use std::fmt::Write;
use std::sync::Arc;

use agent_core::session::{Plan, plan};
use agent_core::{
    Commit, Committed, Epoch, Error, ErrorKind, Event, Purge, Purged, Result, Session, SessionId,
    SessionState, SessionSummary, Timestamp,
};
use sqlx::query::Query;
use sqlx::sqlite::{Sqlite, SqliteArguments, SqliteConnection, SqliteRow};
use sqlx::{AssertSqlSafe, query, query_scalar, raw_sql};

use crate::error::{Fault, Step, corrupt};
use crate::rebuild;
use crate::rows::{checksum, event_checksum, int, number, text};

/// The records that a transaction has read or written, by tenant and session.
pub(crate) type Known = HashMap<(Arc<str>, SessionId), Session>;

/// How many events are inserted by one statement. Each number has a prepared statement of its own.
const EVENTS_A_STATEMENT: usize = 8;

/// The error for a session that there never was.
pub(crate) fn no_session(id: SessionId) -> Error {
    Error::new(ErrorKind::NotFound, format!("session {id} does not exist"))
}

/// A record from its row, where the row is whole.
pub(crate) fn record(row: &SqliteRow, tenant: &str, id: SessionId) -> sqlx::Result<Option<Session>> {
    let Some(json) = text(row, 0)? else { return Ok(None) };
    if checksum(&[tenant, &id.to_string(), json]) != number(row, 1)? {
        return Ok(None);
    }
    Ok(Session::from_json(json).ok())
}

/// The record of a session as it is now; `None` where there never was one. A damaged or missing record is made anew
/// from the log.
pub(crate) async fn now(
    conn: &mut SqliteConnection,
    known: &mut Known,
    tenant: &Arc<str>,
    id: SessionId,
) -> Step<Option<Session>> {
    let key = (tenant.clone(), id);
    if let Some(session) = known.get(&key) {
        return Ok(Some(session.clone()));
    }
    let row = query("SELECT record, record_crc FROM sessions WHERE tenant = ? AND id = ?")
        .bind(tenant.clone())
        .bind(id.to_string())
        .fetch_optional(&mut *conn)
        .await?;
    let session = match row.as_ref().map(|row| record(row, tenant, id)).transpose()?.flatten() {
        Some(session) => Some(session),
        None => rebuild::session(conn, tenant, id, row.is_some()).await?,
    };
    if let Some(session) = &session {
        known.insert(key, session.clone());
    }
    Ok(session)
}

/// Plans a commit against what is there, the batch so far included, and writes what it comes to.
pub(crate) async fn commit(
    conn: &mut SqliteConnection,
    known: &mut Known,
    tenant: &Arc<str>,
    commit: &Commit,
) -> Step<Committed> {
    let now = now(conn, known, tenant, commit.session).await?;
    let planned = plan(now.as_ref(), commit)?;
    if let Plan::Write { events, after, .. } = &planned {
        if now.is_none() {
            check_parent(conn, known, tenant, after).await?;
        }
        write(conn, tenant, now.as_ref(), events, after).await?;
        known.insert((tenant.clone(), commit.session), (**after).clone());
    }
    Ok(planned.committed())
}

/// A session is not made from one that is deleted.
async fn check_parent(
    conn: &mut SqliteConnection,
    known: &mut Known,
    tenant: &Arc<str>,
    new: &Session,
) -> Step<()> {
    let Some(parent) = new.origin.parent() else { return Ok(()) };
    let record = now(conn, known, tenant, parent).await?.ok_or_else(|| no_session(parent))?;
    if record.status.state == SessionState::Deleted {
        return Err(Fault::Refused(Error::new(
            ErrorKind::Deleted,
            format!("session {parent} was deleted; nothing is made from it"),
        )));
    }
    Ok(())
}

/// Writes the events and the record after them.
async fn write(
    conn: &mut SqliteConnection,
    tenant: &Arc<str>,
    now: Option<&Session>,
    events: &[Event],
    after: &Session,
) -> Step<()> {
    let id: Arc<str> = after.id.to_string().into();
    let mut rest = events;
    while rest.len() > EVENTS_A_STATEMENT {
        let (some, more) = rest.split_at(EVENTS_A_STATEMENT);
        let sql = insert_events(some.len());
        bind_events(query(AssertSqlSafe(sql)), tenant, &id, some).execute(&mut *conn).await?;
        rest = more;
    }
    // The record goes with the last events: one round trip to SQLite's thread for a usual turn.
    let mut sql = insert_events(rest.len());
    if now.is_some() {
        sql.push_str(UPDATE);
        let all = bind_events(query(AssertSqlSafe(sql)), tenant, &id, rest);
        bind_changing(all, tenant, &id, after)
            .bind(tenant.clone())
            .bind(id.clone())
            .execute(&mut *conn)
            .await?;
    } else {
        sql.push_str(INSERT);
        let all = bind_events(query(AssertSqlSafe(sql)), tenant, &id, rest);
        bind_fixed(bind_changing(all, tenant, &id, after), tenant, &id, after).execute(&mut *conn).await?;
    }
    write_labels(conn, tenant, &id, now, after).await
}

/// Writes a record that was made anew from the log.
pub(crate) async fn write_record(
    conn: &mut SqliteConnection,
    tenant: &Arc<str>,
    session: &Session,
    kept: Option<i64>,
) -> Step<()> {
    let id: Arc<str> = session.id.to_string().into();
    query("DELETE FROM sessions WHERE tenant = ? AND id = ?")
        .bind(tenant.clone())
        .bind(id.clone())
        .execute(&mut *conn)
        .await?;
    let all = bind_changing(query(INSERT), tenant, &id, session);
    bind_fixed(all, tenant, &id, session).execute(&mut *conn).await?;
    if kept.is_some() {
        query("UPDATE sessions SET kept = ? WHERE tenant = ? AND id = ?")
            .bind(kept)
            .bind(tenant.clone())
            .bind(id.clone())
            .execute(&mut *conn)
            .await?;
    }
    query("DELETE FROM labels WHERE tenant = ? AND session = ?")
        .bind(tenant.clone())
        .bind(id.clone())
        .execute(&mut *conn)
        .await?;
    insert_labels(conn, tenant, &id, session).await
}

const UPDATE: &str = "UPDATE sessions SET state = ?, reason = ?, head = ?, epoch = ?, last_active_at = ?, due_at = ?, title = ?, \
    summary_crc = ?, record_crc = ?, summary = ?, record = ? WHERE tenant = ? AND id = ?;";

const INSERT: &str = "INSERT INTO sessions (state, reason, head, epoch, last_active_at, due_at, title, summary_crc, record_crc, \
    summary, record, tenant, id, workspace, base, creator, parent, created_at) \
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);";

type All<'q> = Query<'q, Sqlite, SqliteArguments>;

fn insert_events(count: usize) -> String {
    if count == 0 {
        return String::new();
    }
    let mut sql = String::from("INSERT INTO events (tenant, session, seq, type, crc, json) VALUES ");
    for n in 0..count {
        // Writing to a string cannot fail.
        let _ = write!(sql, "{}(?, ?, ?, ?, ?, ?)", if n == 0 { "" } else { ", " });
    }
    sql.push_str("; ");
    sql
}

fn bind_events<'q>(mut all: All<'q>, tenant: &Arc<str>, session: &Arc<str>, events: &[Event]) -> All<'q> {
    for event in events {
        let json = event.to_json();
        all = all
            .bind(tenant.clone())
            .bind(session.clone())
            .bind(int(event.seq.get()))
            .bind(event.kind.as_str().to_owned())
            .bind(event_checksum(tenant, session, event.seq, &json))
            .bind(json);
    }
    all
}

/// What of a record changes from commit to commit.
fn bind_changing<'q>(all: All<'q>, tenant: &str, id: &str, session: &Session) -> All<'q> {
    let record = session.to_json();
    let summary = serde_json::to_string(&SessionSummary::from(session)).unwrap_or_default();
    all.bind(session.status.state.as_str())
        .bind(session.status.reason.as_str())
        .bind(int(session.head.get()))
        .bind(session.lease.as_ref().map(|lease| int(lease.epoch.get())))
        .bind(session.last_active_at.as_micros())
        .bind(session.due_at().map(Timestamp::as_micros))
        .bind(session.attributes.title.as_ref().map(|title| title.text.clone()))
        .bind(checksum(&[tenant, id, &summary]))
        .bind(checksum(&[tenant, id, &record]))
        .bind(summary)
        .bind(record)
}

/// What of a record never changes.
fn bind_fixed<'q>(all: All<'q>, tenant: &Arc<str>, id: &Arc<str>, session: &Session) -> All<'q> {
    all.bind(tenant.clone())
        .bind(id.clone())
        .bind(session.workspace.as_uuid().to_string())
        .bind(int(session.lineage.base().get()))
        .bind(session.creator.to_string())
        .bind(session.origin.parent().map(|parent| parent.to_string()))
        .bind(session.created_at.as_micros())
}

async fn write_labels(
    conn: &mut SqliteConnection,
    tenant: &Arc<str>,
    id: &Arc<str>,
    now: Option<&Session>,
    after: &Session,
) -> Step<()> {
    let before = now.map(|now| (&now.attributes.labels, now.last_active_at));
    let labels = &after.attributes.labels;
    if before.is_none_or(|(before, _)| before != labels) {
        if before.is_some_and(|(before, _)| !before.is_empty()) {
            query("DELETE FROM labels WHERE tenant = ? AND session = ?")
                .bind(tenant.clone())
                .bind(id.clone())
                .execute(&mut *conn)
                .await?;
        }
        return insert_labels(conn, tenant, id, after).await;
    }
    if !labels.is_empty() && before.is_some_and(|(_, at)| at != after.last_active_at) {
        query("UPDATE labels SET last_active_at = ? WHERE tenant = ? AND session = ?")
            .bind(after.last_active_at.as_micros())
            .bind(tenant.clone())
            .bind(id.clone())
            .execute(&mut *conn)
            .await?;
    }
    Ok(())
}

async fn insert_labels(
    conn: &mut SqliteConnection,
    tenant: &Arc<str>,
    id: &Arc<str>,
    session: &Session,
) -> Step<()> {
    for (key, value) in &session.attributes.labels {
        query("INSERT INTO labels (tenant, key, value, last_active_at, session) VALUES (?, ?, ?, ?, ?)")
            .bind(tenant.clone())
            .bind(key.clone())
            .bind(value.clone())
            .bind(session.last_active_at.as_micros())
            .bind(id.clone())
            .execute(&mut *conn)
            .await?;
    }
    Ok(())
}

/// Removes a deleted session's events after `keep`; the record stays as a tombstone that needs no log.
pub(crate) async fn purge(
    conn: &mut SqliteConnection,
    known: &mut Known,
    tenant: &Arc<str>,
    purge: &Purge,
) -> Step<Purged> {
    let id = purge.session;
    let session = now(conn, known, tenant, id).await?.ok_or_else(|| no_session(id))?;
    purge.check(&session)?;
    let (id, record) = (id.to_string(), session.to_json());
    // What is removed is overwritten with zeros, on pages that become free too.
    raw_sql("PRAGMA secure_delete = ON").execute(&mut *conn).await?;
    let removed = query("DELETE FROM events WHERE tenant = ? AND session = ? AND seq > ?")
        .bind(tenant.clone())
        .bind(id.clone())
        .bind(int(purge.keep.get()))
        .execute(&mut *conn)
        .await;
    raw_sql("PRAGMA secure_delete = FAST").execute(&mut *conn).await?;
    let removed = removed?.rows_affected();
    // A second purge may keep less than the first, never more: what is gone is gone.
    query(
        "INSERT INTO tombstones (tenant, session, kept, crc, record) VALUES (?, ?, ?, ?, ?) \
         ON CONFLICT (tenant, session) DO UPDATE SET kept = min(kept, excluded.kept)",
    )
    .bind(tenant.clone())
    .bind(id.clone())
    .bind(int(purge.keep.get()))
    .bind(checksum(&[tenant, &id, &record]))
    .bind(record)
    .execute(&mut *conn)
    .await?;
    query("UPDATE sessions SET kept = min(coalesce(kept, ?), ?) WHERE tenant = ? AND id = ?")
        .bind(int(purge.keep.get()))
        .bind(int(purge.keep.get()))
        .bind(tenant.clone())
        .bind(id)
        .execute(&mut *conn)
        .await?;
    Ok(Purged::new(removed))
}

/// Notes a sign of life of the holder of the lease `epoch`, where it still is the holder.
pub(crate) async fn beat(
    conn: &mut SqliteConnection,
    tenant: &Arc<str>,
    id: SessionId,
    epoch: Epoch,
) -> Step<()> {
    let holder: Option<Option<i64>> = query_scalar("SELECT epoch FROM sessions WHERE tenant = ? AND id = ?")
        .bind(tenant.clone())
        .bind(id.to_string())
        .fetch_optional(&mut *conn)
        .await?;
    let holder = holder.ok_or_else(|| no_session(id))?;
    if holder == Some(int(epoch.get())) {
        query(
            "INSERT INTO beats (tenant, session, beat) VALUES (?, ?, 1) \
             ON CONFLICT (tenant, session) DO UPDATE SET beat = beat + 1",
        )
        .bind(tenant.clone())
        .bind(id.to_string())
        .execute(&mut *conn)
        .await?;
    }
    Ok(())
}

/// An event from its row: `seq`, `crc`, `json` in the columns from `at` on.
pub(crate) fn event(row: &SqliteRow, at: usize, tenant: &str, session: &str) -> sqlx::Result<Result<Event>> {
    let seq = crate::rows::seq(number(row, at)?);
    let damaged = |what| Err(corrupt(&format!("event {seq} of session {session}"), what));
    let Some(json) = text(row, at + 2)? else { return Ok(damaged("is no text")) };
    if event_checksum(tenant, session, seq, json) != number(row, at + 1)? {
        return Ok(damaged("does not fit its checksum"));
    }
    Ok(match Event::from_json(json) {
        Ok(event) if event.seq == seq => Ok(event),
        Ok(_) => damaged("carries another number"),
        Err(_) => damaged("is no event of a format that this version reads"),
    })
}
