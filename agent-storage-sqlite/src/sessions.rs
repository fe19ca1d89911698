//! Sessions inside a write transaction: reading a record, carrying out a plan, purging, beating.

use std::collections::HashMap;
use std::sync::Arc;

use agent_core::session::{Plan, plan};
use agent_core::{
    Commit, Committed, Epoch, Error, ErrorKind, Event, Purge, Purged, Result, Session, SessionId,
    SessionState,
};
use sqlx::sqlite::{SqliteConnection, SqliteRow};
use sqlx::{query, query_scalar, raw_sql};

use crate::batch::{Batch, CREATE, INSERT, bind_new};
use crate::error::{Fault, Step, corrupt};
use crate::rebuild;
use crate::rows::{checksum, event_checksum, int, number, optional, text};

/// A session's record, and the number of its log.
#[derive(Clone, Debug)]
pub(crate) struct Stored {
    pub(crate) log: i64,
    pub(crate) session: Session,
}

/// A session, by its tenant and its id.
pub(crate) type Key = (Arc<str>, SessionId);

/// Records by tenant and session.
pub(crate) type Known = HashMap<Key, Stored>;

/// The error for a session that there never was.
pub(crate) fn no_session(id: SessionId) -> Error {
    Error::new(ErrorKind::NotFound, format!("session {id} does not exist"))
}

/// A record from its row, `record` and `record_crc` in the columns from `at` on, where the row is whole.
pub(crate) fn record(
    row: &SqliteRow,
    at: usize,
    tenant: &str,
    id: SessionId,
) -> sqlx::Result<Option<Session>> {
    let Some(json) = text(row, at)? else { return Ok(None) };
    if checksum(&[tenant, &id.to_string(), json]) != number(row, at + 1)? {
        return Ok(None);
    }
    Ok(Session::from_json(json).ok())
}

/// The number of a session's log; `None` where it has none.
pub(crate) async fn log(conn: &mut SqliteConnection, tenant: &Arc<str>, id: SessionId) -> Step<Option<i64>> {
    let log = query_scalar("SELECT log FROM logs WHERE tenant = ? AND session = ?")
        .bind(tenant.clone())
        .bind(id.to_string())
        .fetch_optional(conn)
        .await?;
    Ok(log)
}

/// Makes sure that what is known holds the record of a session as it is now, where there ever was one. A damaged or
/// missing record is made anew from the log.
async fn look(conn: &mut SqliteConnection, known: &mut Known, tenant: &Arc<str>, id: SessionId) -> Step<()> {
    let key = (tenant.clone(), id);
    if known.contains_key(&key) {
        return Ok(());
    }
    let row = query(
        "SELECT record, record_crc, log FROM logs JOIN sessions USING (log) WHERE logs.tenant = ? AND session = ?",
    )
    .bind(tenant.clone())
    .bind(id.to_string())
    .fetch_optional(&mut *conn)
    .await?;
    let whole = row.as_ref().map(|row| record(row, 0, tenant, id)).transpose()?.flatten();
    let stored = match (whole, &row) {
        (Some(session), Some(row)) => Some(Stored { log: number(row, 2)?, session }),
        _ => rebuild::session(conn, tenant, id, row.is_some()).await?,
    };
    if let Some(stored) = stored {
        known.insert(key, stored);
    }
    Ok(())
}

/// Plans a commit against what is there, the batch so far included, and has the batch write what it comes to.
pub(crate) async fn commit(
    conn: &mut SqliteConnection,
    known: &mut Known,
    batch: &mut Batch,
    tenant: &Arc<str>,
    commit: &Commit,
) -> Step<Committed> {
    let key = (tenant.clone(), commit.session);
    look(conn, known, tenant, commit.session).await?;
    let now = known.get(&key);
    let planned = plan(now.map(|now| &now.session), commit)?;
    let Plan::Write { events, after, .. } = &planned else { return Ok(planned.committed()) };
    let log = match now {
        Some(Stored { log, session }) => {
            let log = *log;
            batch.add_record(tenant, log, after);
            write_labels(conn, tenant, log, session, after).await?;
            log
        }
        None => {
            check_parent(conn, known, tenant, after).await?;
            create(conn, tenant, after, batch.holder()).await?
        }
    };
    batch.add_events(tenant, log, after, events);
    known.insert(key, Stored { log, session: (**after).clone() });
    Ok(planned.committed())
}

/// Stores the record of a session that there never was, and returns the number of its log.
async fn create(
    conn: &mut SqliteConnection,
    tenant: &Arc<str>,
    session: &Session,
    holder: Option<&str>,
) -> Step<i64> {
    let all = query(CREATE).bind(tenant.clone()).bind(session.id.to_string());
    let rows = bind_new(all, tenant, session, holder).fetch_all(&mut *conn).await?;
    let row = rows.first().ok_or(sqlx::Error::RowNotFound)?;
    let log = number(row, 0)?;
    insert_labels(conn, tenant, log, session).await?;
    Ok(log)
}

/// A session is not made from one that is deleted.
async fn check_parent(
    conn: &mut SqliteConnection,
    known: &mut Known,
    tenant: &Arc<str>,
    new: &Session,
) -> Step<()> {
    let Some(parent) = new.origin.parent() else { return Ok(()) };
    look(conn, known, tenant, parent).await?;
    let stored = known.get(&(tenant.clone(), parent)).ok_or_else(|| no_session(parent))?;
    if stored.session.status.state == SessionState::Deleted {
        return Err(Fault::Refused(Error::new(
            ErrorKind::Deleted,
            format!("session {parent} was deleted; nothing is made from it"),
        )));
    }
    Ok(())
}

/// Writes a record that was made anew from the log.
pub(crate) async fn write_record(
    conn: &mut SqliteConnection,
    tenant: &Arc<str>,
    log: i64,
    session: &Session,
    kept: Option<i64>,
) -> Step<()> {
    query("DELETE FROM sessions WHERE log = ?").bind(log).execute(&mut *conn).await?;
    bind_new(query(INSERT), tenant, session, None).bind(log).execute(&mut *conn).await?;
    if kept.is_some() {
        query("UPDATE sessions SET kept = ? WHERE log = ?").bind(kept).bind(log).execute(&mut *conn).await?;
    }
    query("DELETE FROM labels WHERE log = ?").bind(log).execute(&mut *conn).await?;
    insert_labels(conn, tenant, log, session).await
}

/// Whether a commit leaves the rows of the session's labels as they are.
pub(crate) fn keeps_labels(before: &Session, after: &Session) -> bool {
    before.attributes.labels == after.attributes.labels
        && (after.attributes.labels.is_empty() || before.last_active_at == after.last_active_at)
}

async fn write_labels(
    conn: &mut SqliteConnection,
    tenant: &Arc<str>,
    log: i64,
    before: &Session,
    after: &Session,
) -> Step<()> {
    if keeps_labels(before, after) {
        return Ok(());
    }
    if before.attributes.labels == after.attributes.labels {
        query("UPDATE labels SET last_active_at = ? WHERE log = ?")
            .bind(after.last_active_at.as_micros())
            .bind(log)
            .execute(&mut *conn)
            .await?;
        return Ok(());
    }
    query("DELETE FROM labels WHERE log = ?").bind(log).execute(&mut *conn).await?;
    insert_labels(conn, tenant, log, after).await
}

async fn insert_labels(
    conn: &mut SqliteConnection,
    tenant: &Arc<str>,
    log: i64,
    session: &Session,
) -> Step<()> {
    for (key, value) in &session.attributes.labels {
        query(
            "INSERT INTO labels (tenant, key, value, last_active_at, session, log) VALUES (?, ?, ?, ?, ?, ?)",
        )
        .bind(tenant.clone())
        .bind(key.clone())
        .bind(value.clone())
        .bind(session.last_active_at.as_micros())
        .bind(session.id.to_string())
        .bind(log)
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
    look(conn, known, tenant, id).await?;
    let Stored { log, session } = known.get(&(tenant.clone(), id)).ok_or_else(|| no_session(id))?;
    purge.check(session)?;
    let (id, record) = (id.to_string(), session.to_json());
    // What is removed is overwritten with zeros, on pages that become free too.
    raw_sql("PRAGMA secure_delete = ON").execute(&mut *conn).await?;
    let removed = query("DELETE FROM events WHERE log = ? AND seq > ?")
        .bind(*log)
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
    query("UPDATE sessions SET kept = min(coalesce(kept, ?), ?) WHERE log = ?")
        .bind(int(purge.keep.get()))
        .bind(int(purge.keep.get()))
        .bind(*log)
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
    let row =
        query("SELECT log, epoch FROM logs JOIN sessions USING (log) WHERE logs.tenant = ? AND session = ?")
            .bind(tenant.clone())
            .bind(id.to_string())
            .fetch_optional(&mut *conn)
            .await?
            .ok_or_else(|| no_session(id))?;
    if optional(&row, 1)? == Some(int(epoch.get())) {
        query("INSERT INTO beats (log, beat) VALUES (?, 1) ON CONFLICT (log) DO UPDATE SET beat = beat + 1")
            .bind(number(&row, 0)?)
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
