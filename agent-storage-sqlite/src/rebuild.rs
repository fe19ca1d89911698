//! What is derived, made anew from what is true: records from logs and tombstones.

use std::sync::Arc;

use agent_core::{Session, SessionId};
use sqlx::sqlite::{SqliteConnection, SqliteRow};
use sqlx::{Row, query, query_scalar, raw_sql};

use crate::error::{Fault, Step, corrupt};
use crate::rows::{checksum, int, number, text};
use crate::sessions::{Stored, event, log, write_record};

/// How many events are in memory at once while a log is folded.
const EVENTS_A_READ: i64 = 64;

/// Makes a session's record anew and stores it; `None` where there is no log and no tombstone.
pub(crate) async fn session(
    conn: &mut SqliteConnection,
    tenant: &Arc<str>,
    id: SessionId,
    had_record: bool,
) -> Step<Option<Stored>> {
    let name = id.to_string();
    let log = log(conn, tenant, id).await?;
    let tombstone = query("SELECT record, crc, kept FROM tombstones WHERE tenant = ? AND session = ?")
        .bind(tenant.clone())
        .bind(name.clone())
        .fetch_optional(&mut *conn)
        .await?;
    let (session, kept) = match (&tombstone, log) {
        (Some(row), _) => (Some(buried(row, tenant, &name)?), Some(number(row, 2)?)),
        (None, Some(log)) => (fold(conn, tenant, id, log).await?, None),
        (None, None) => (None, None),
    };
    let (Some(session), Some(log)) = (session, log) else {
        if had_record || tombstone.is_some() {
            return Err(
                corrupt(&format!("the record of session {id}"), "is damaged, and it has no log").into()
            );
        }
        return Ok(None);
    };
    tracing::warn!(session = %id, "the session's record was damaged or missing, and is made anew from its log");
    write_record(conn, tenant, log, &session, kept).await?;
    Ok(Some(Stored { log, session }))
}

fn buried(row: &SqliteRow, tenant: &str, id: &str) -> Step<Session> {
    let damaged = || corrupt(&format!("the tombstone of session {id}"), "is damaged");
    let json = text(row, 0)?.ok_or_else(damaged)?;
    if checksum(&[tenant, id, json]) != number(row, 1)? {
        return Err(damaged().into());
    }
    Ok(Session::from_json(json).map_err(|_| damaged())?)
}

/// Folds a session's own log.
async fn fold(
    conn: &mut SqliteConnection,
    tenant: &Arc<str>,
    id: SessionId,
    log: i64,
) -> Step<Option<Session>> {
    let name = id.to_string();
    let (mut session, mut after) = (None::<Session>, 0);
    loop {
        let rows = query("SELECT seq, crc, json FROM events WHERE log = ? AND seq > ? ORDER BY seq LIMIT ?")
            .bind(log)
            .bind(after)
            .bind(EVENTS_A_READ)
            .fetch_all(&mut *conn)
            .await?;
        for row in &rows {
            let event = event(row, 0, tenant, &name)??;
            after = int(event.seq.get());
            match &mut session {
                Some(session) => session.apply(&event)?,
                None => session = Some(Session::begin(id, &event)?),
            }
        }
        if rows.is_empty() {
            return Ok(session);
        }
    }
}

/// Whether there are logs or tombstones, and not a single record.
pub(crate) async fn is_needed(conn: &mut SqliteConnection) -> sqlx::Result<bool> {
    query_scalar(
        "SELECT NOT EXISTS (SELECT 1 FROM sessions) \
         AND (EXISTS (SELECT 1 FROM logs) OR EXISTS (SELECT 1 FROM tombstones))",
    )
    .fetch_one(conn)
    .await
}

/// Makes all records anew, where there are none; inside the transaction of an opener.
pub(crate) async fn missing(conn: &mut SqliteConnection) -> sqlx::Result<()> {
    if is_needed(&mut *conn).await? {
        match all(conn).await {
            Ok(_) => {}
            Err(Fault::Sql(error)) => return Err(error),
            // Each session that cannot be folded says so itself when it is loaded.
            Err(Fault::Refused(error)) => tracing::warn!(%error, "records could not be made anew"),
        }
    }
    Ok(())
}

/// Makes all records anew, and returns how many; a log that is damaged keeps the record that it has.
pub(crate) async fn all(conn: &mut SqliteConnection) -> Step<u64> {
    let rows = raw_sql("SELECT tenant, session FROM logs UNION SELECT tenant, session FROM tombstones")
        .fetch_all(&mut *conn)
        .await?;
    let mut made = 0;
    for row in rows {
        let (tenant, name): (String, String) = (row.try_get(0)?, row.try_get(1)?);
        let Ok(id) = name.parse::<SessionId>() else {
            tracing::warn!("events of a session without a valid id are left alone");
            continue;
        };
        match session(conn, &tenant.into(), id, false).await {
            Ok(_) => made += 1,
            Err(Fault::Refused(error)) => {
                tracing::warn!(session = %id, %error, "the record is not made anew");
            }
            Err(fault) => return Err(fault),
        }
    }
    Ok(made)
}
