//! Rows of one session: its log, its events, its record, its tombstone.

use agent_core::event::Event;
use agent_core::session::SessionRecord;
use agent_core::{Error, Result, SessionId};
use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::error::corrupt;
use crate::medium::rows::{checksum, event_checksum, execute, first_number, int, number, text};
use crate::medium::session_rows::{Changing, insert_record, replace_labels};

/// Error for a session that never existed.
pub(crate) fn no_session(id: SessionId) -> Error {
    Error::not_found(format!("session {id} does not exist"))
}

/// Reads a record from the columns `record` and `record_crc`, from index `at` on; `None` if the row is damaged.
pub(crate) fn record(
    row: &Row<'_>,
    at: usize,
    tenant: &str,
    id: SessionId,
) -> rusqlite::Result<Option<SessionRecord>> {
    let Some(json) = text(row, at)? else { return Ok(None) };
    if checksum(&[tenant, &id.to_string(), json]) != number(row, at + 1)? {
        return Ok(None);
    }
    Ok(SessionRecord::from_json(json).ok())
}

/// Returns the number of a session's log; `None` if it has none.
pub(crate) fn log(conn: &Connection, tenant: &str, id: SessionId) -> rusqlite::Result<Option<i64>> {
    let sql = "SELECT log FROM logs WHERE tenant = ? AND session = ?";
    first_number(conn, sql, params![tenant, id.to_string()])
}

/// Assigns a session's log a number that no row of any table has, so that a number is not reused if another program
/// deleted some of its rows. Searches each table by its own index.
pub(crate) fn new_log(conn: &Connection, tenant: &str, session: &str) -> rusqlite::Result<i64> {
    let sql = "INSERT INTO logs (log, tenant, session) VALUES (1 + max( \
        ifnull((SELECT max(log) FROM logs), 0), ifnull((SELECT max(log) FROM sessions), 0), \
        ifnull((SELECT max(log) FROM events), 0), ifnull((SELECT max(log) FROM labels), 0), \
        ifnull((SELECT max(log) FROM heartbeats), 0)), ?, ?)";
    execute(conn, sql, params![tenant, session])?;
    Ok(conn.last_insert_rowid())
}

/// Writes a record that was rebuilt from the log.
pub(crate) fn write_record(
    conn: &Connection,
    tenant: &str,
    log: i64,
    session: &SessionRecord,
    kept: Option<i64>,
) -> rusqlite::Result<()> {
    // The log does not name the holder of the lease. If the row is lost, the holder is not proven dead, and the
    // lease ends after its ttl.
    let sql = "SELECT holder FROM sessions WHERE log = ? AND epoch = ?";
    let epoch = session.lease.as_ref().map(|lease| int(lease.epoch.get()));
    let holder =
        conn.query_row(sql, params![log, epoch], |row| row.get::<_, Option<String>>(0)).optional()?;
    execute(conn, "DELETE FROM sessions WHERE log = ?", [log])?;
    let changing = Changing::of(tenant, session);
    insert_record(conn, tenant, log, session, &changing, holder.flatten().as_deref(), false)?;
    if kept.is_some() {
        execute(conn, "UPDATE sessions SET kept = ? WHERE log = ?", params![kept, log])?;
    }
    replace_labels(conn, tenant, log, session)
}

/// Stores the tombstone of a session whose events up to `kept` are left.
pub(crate) fn bury(
    conn: &Connection,
    tenant: &str,
    tombstone: &SessionRecord,
    kept: i64,
) -> rusqlite::Result<()> {
    let (id, record) = (tombstone.id.to_string(), tombstone.to_json());
    // A second purge may keep less than the first, never more: removed events do not come back.
    execute(
        conn,
        "INSERT INTO tombstones (tenant, session, kept, crc, record) VALUES (?, ?, ?, ?, ?) \
         ON CONFLICT (tenant, session) DO UPDATE \
         SET kept = min(kept, excluded.kept), crc = excluded.crc, record = excluded.record",
        params![tenant, id, kept, checksum(&[tenant, &id, &record]), record],
    )
    .map(drop)
}

/// Reads an event from the columns `seq`, `crc` and `json`, from index `at` on.
pub(crate) fn event(
    row: &Row<'_>,
    at: usize,
    tenant: &str,
    session: &str,
) -> rusqlite::Result<Result<Event>> {
    let seq = crate::medium::rows::seq(number(row, at)?);
    let damaged = |what| Err(corrupt(&format!("event {seq} of session {session}"), what));
    let Some(json) = text(row, at + 2)? else { return Ok(damaged("is no text")) };
    let fits = event_checksum(tenant, session, seq, json) == number(row, at + 1)?;
    if !fits {
        return Ok(damaged("does not fit its checksum"));
    }
    Ok(match Event::from_json(json) {
        Ok(event) if event.seq == seq => Ok(event),
        Ok(_) => damaged("carries another number"),
        Err(_) => damaged("is not an event of a format that this version reads"),
    })
}
