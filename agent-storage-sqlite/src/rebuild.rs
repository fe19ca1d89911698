//! What is derived, made anew from what is true: records from logs and tombstones.

use std::sync::Arc;

use agent_core::{Session, SessionId};
use rusqlite::{Connection, params};

use crate::error::{Fault, Step, corrupt};
use crate::rows::{checksum, each, first, number, text};
use crate::sessions::{Stored, event, log, write_record};

/// As [`session`], for a record that was found to be damaged or missing.
pub(crate) fn mend(
    conn: &Connection,
    tenant: &Arc<str>,
    id: SessionId,
    had_record: bool,
) -> Step<Option<Stored>> {
    let mended = session(conn, tenant, id, had_record)?;
    if mended.is_some() {
        tracing::warn!(session = %id, "the session's record was damaged or missing, and is made anew from its log");
    }
    Ok(mended)
}

/// Makes a session's record anew and stores it; `None` where there is no log and no tombstone.
fn session(conn: &Connection, tenant: &Arc<str>, id: SessionId, had_record: bool) -> Step<Option<Stored>> {
    let name = id.to_string();
    let log = log(conn, tenant, id)?;
    let buried = buried(conn, tenant, &name)?;
    let is_buried = buried.is_some();
    let (session, kept) = match (buried, log) {
        (Some((session, kept)), _) => (Some(session), Some(kept)),
        (None, Some(log)) => (fold(conn, tenant, id, log)?, None),
        (None, None) => (None, None),
    };
    let (Some(session), Some(log)) = (session, log) else {
        if had_record || is_buried {
            return Err(
                corrupt(&format!("the record of session {id}"), "is damaged, and it has no log").into()
            );
        }
        return Ok(None);
    };
    write_record(conn, tenant, log, &session, kept)?;
    Ok(Some(Stored { log, session }))
}

/// The record in a session's tombstone, and the last event that was kept.
fn buried(conn: &Connection, tenant: &str, id: &str) -> Step<Option<(Session, i64)>> {
    let damaged = || corrupt(&format!("the tombstone of session {id}"), "is damaged");
    let sql = "SELECT record, crc, kept FROM tombstones WHERE tenant = ? AND session = ?";
    first(conn, sql, params![tenant, id], |row| {
        let json = text(row, 0)?.ok_or_else(damaged)?;
        if checksum(&[tenant, id, json]) != number(row, 1)? {
            return Err(damaged().into());
        }
        Ok((Session::from_json(json).map_err(|_| damaged())?, number(row, 2)?))
    })
}

/// Folds a session's own log.
fn fold(conn: &Connection, tenant: &str, id: SessionId, log: i64) -> Step<Option<Session>> {
    let name = id.to_string();
    let mut session = None::<Session>;
    let mut statement =
        conn.prepare_cached("SELECT seq, crc, json FROM events WHERE log = ? ORDER BY seq")?;
    let mut rows = statement.query([log])?;
    while let Some(row) = rows.next()? {
        let event = event(row, 0, tenant, &name)??;
        match &mut session {
            Some(session) => session.apply(&event)?,
            None => session = Some(Session::begin(id, &event)?),
        }
    }
    Ok(session)
}

/// Whether there are logs or tombstones, and not a single record.
pub(crate) fn is_needed(conn: &Connection) -> rusqlite::Result<bool> {
    conn.query_row(
        "SELECT NOT EXISTS (SELECT 1 FROM sessions) \
         AND (EXISTS (SELECT 1 FROM logs) OR EXISTS (SELECT 1 FROM tombstones))",
        [],
        |row| row.get(0),
    )
}

/// Makes all records anew, where there are none; inside the transaction of an opener.
pub(crate) fn missing(conn: &Connection) -> rusqlite::Result<()> {
    if is_needed(conn)? {
        match all(conn) {
            Ok(_) => {}
            Err(Fault::Sql(error)) => return Err(error),
            // Each session that cannot be folded says so itself when it is loaded.
            Err(Fault::Refused(error)) => tracing::warn!(%error, "records could not be made anew"),
        }
    }
    Ok(())
}

/// Makes all records anew, and returns how many; a log that is damaged keeps the record that it has.
pub(crate) fn all(conn: &Connection) -> Step<u64> {
    let sql = "SELECT tenant, session FROM logs UNION SELECT tenant, session FROM tombstones";
    let mut names = Vec::<(String, String)>::new();
    each(conn, sql, [], |row| {
        names.push((row.get(0)?, row.get(1)?));
        Ok(())
    })?;
    let mut made = 0;
    for (tenant, name) in names {
        let Ok(id) = name.parse::<SessionId>() else {
            tracing::warn!("events of a session without a valid id are left alone");
            continue;
        };
        match session(conn, &tenant.into(), id, false) {
            Ok(_) => made += 1,
            Err(Fault::Refused(error)) => {
                tracing::warn!(session = %id, %error, "the record is not made anew");
            }
            Err(fault) => return Err(fault),
        }
    }
    Ok(made)
}
