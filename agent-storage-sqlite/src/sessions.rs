//! Sessions inside a write transaction: reading a record, carrying out a plan, purging, beating.

use std::collections::HashMap;
use std::sync::Arc;

use agent_core::session::{Plan, plan};
use agent_core::{
    Commit, Committed, Epoch, Error, ErrorKind, Event, Purge, Purged, Result, Session, SessionId,
    SessionState, planted,
};
use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::error::{Fault, Step, corrupt};
use crate::rebuild;
use crate::rows::{checksum, event_checksum, execute, first, first_number, int, number, optional, text};
use crate::session_rows::{
    insert_events, insert_labels, insert_record, replace_labels, update_labels, update_record,
};

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
    row: &Row<'_>,
    at: usize,
    tenant: &str,
    id: SessionId,
) -> rusqlite::Result<Option<Session>> {
    let Some(json) = text(row, at)? else { return Ok(None) };
    if checksum(&[tenant, &id.to_string(), json]) != number(row, at + 1)? {
        return Ok(None);
    }
    Ok(Session::from_json(json).ok())
}

/// The number of a session's log; `None` where it has none.
pub(crate) fn log(conn: &Connection, tenant: &str, id: SessionId) -> rusqlite::Result<Option<i64>> {
    let sql = "SELECT log FROM logs WHERE tenant = ? AND session = ?";
    first_number(conn, sql, params![tenant, id.to_string()])
}

/// Makes sure that what is known holds the record of a session as it is now, where there ever was one. A damaged or
/// missing record is made anew from the log.
fn look(conn: &Connection, known: &mut Known, tenant: &Arc<str>, id: SessionId) -> Step<()> {
    let key = (tenant.clone(), id);
    if known.contains_key(&key) {
        return Ok(());
    }
    // Nothing is written behind events that are gone.
    let sql = "SELECT record, record_crc, log, kept IS NOT NULL OR EXISTS ( \
        SELECT 1 FROM events WHERE events.log = sessions.log AND seq = head) \
        FROM logs JOIN sessions USING (log) WHERE logs.tenant = ? AND session = ?";
    let found = first(conn, sql, params![tenant, id.to_string()], |row| {
        let (log, has_end) = (number(row, 2)?, number(row, 3)? == 1);
        Ok(record(row, 0, tenant, id)?.filter(|_| has_end).map(|session| Stored { log, session }))
    })?;
    let had_record = found.is_some();
    let stored = match found.flatten() {
        Some(stored) => Some(stored),
        None => rebuild::mend(conn, tenant, id, had_record)?,
    };
    known.extend(stored.map(|stored| (key, stored)));
    Ok(())
}

/// Plans a commit against what is there and writes what it comes to. Where it is refused, nothing is written.
pub(crate) fn commit(
    conn: &Connection,
    known: &mut Known,
    holder: Option<&str>,
    tenant: &Arc<str>,
    commit: &Commit,
) -> Step<Committed> {
    look(conn, known, tenant, commit.session)?;
    let key = (tenant.clone(), commit.session);
    let now = known.get(&key);
    let planned = plan(now.map(|now| &now.session), commit)?;
    let Plan::Write { events, after, .. } = &planned else { return Ok(planned.committed()) };
    let log = match now {
        Some(Stored { log, session }) => {
            update_record(conn, tenant, *log, after, holder)?;
            update_labels(conn, tenant, *log, session, after)?;
            *log
        }
        None => {
            check_parent(conn, known, tenant, after)?;
            create(conn, tenant, after, holder)?
        }
    };
    insert_events(conn, tenant, log, after, events)?;
    let done = planned.committed();
    known.insert(key, Stored { log, session: done.session.clone() });
    Ok(done)
}

/// Stores the record of a session that there never was, and returns the number of its log.
fn create(conn: &Connection, tenant: &str, session: &Session, holder: Option<&str>) -> rusqlite::Result<i64> {
    let log = new_log(conn, tenant, &session.id.to_string())?;
    insert_record(conn, tenant, log, session, holder)?;
    insert_labels(conn, tenant, log, session)?;
    Ok(log)
}

/// Gives a session's log a number that no row has, in whatever table: a number of which somebody deleted a part of the rows
/// is not given again. Each of the tables is looked at by its own index.
pub(crate) fn new_log(conn: &Connection, tenant: &str, session: &str) -> rusqlite::Result<i64> {
    let sql = "INSERT INTO logs (log, tenant, session) VALUES (1 + max( \
        ifnull((SELECT max(log) FROM logs), 0), ifnull((SELECT max(log) FROM sessions), 0), \
        ifnull((SELECT max(log) FROM events), 0), ifnull((SELECT max(log) FROM labels), 0), \
        ifnull((SELECT max(log) FROM beats), 0)), ?, ?)";
    execute(conn, sql, params![tenant, session])?;
    Ok(conn.last_insert_rowid())
}

/// A session is not made from one that is deleted.
fn check_parent(conn: &Connection, known: &mut Known, tenant: &Arc<str>, new: &Session) -> Step<()> {
    let Some(parent) = new.origin.parent() else { return Ok(()) };
    look(conn, known, tenant, parent)?;
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
pub(crate) fn write_record(
    conn: &Connection,
    tenant: &str,
    log: i64,
    session: &Session,
    kept: Option<i64>,
) -> rusqlite::Result<()> {
    // Who holds the lease is in no log. Where that is lost, nobody is proven dead, and the lease ends by its time.
    let sql = "SELECT holder FROM sessions WHERE log = ? AND epoch = ?";
    let epoch = session.lease.as_ref().map(|lease| int(lease.epoch.get()));
    let holder =
        conn.query_row(sql, params![log, epoch], |row| row.get::<_, Option<String>>(0)).optional()?;
    execute(conn, "DELETE FROM sessions WHERE log = ?", [log])?;
    insert_record(conn, tenant, log, session, holder.flatten().as_deref())?;
    if kept.is_some() {
        execute(conn, "UPDATE sessions SET kept = ? WHERE log = ?", params![kept, log])?;
    }
    replace_labels(conn, tenant, log, session)
}

/// Removes a deleted session's events after `keep`; the record stays as a tombstone that needs no log.
pub(crate) fn purge(conn: &Connection, known: &mut Known, tenant: &Arc<str>, purge: &Purge) -> Step<Purged> {
    let id = purge.session;
    look(conn, known, tenant, id)?;
    let key = (tenant.clone(), id);
    let Stored { log, session } = known.get(&key).ok_or_else(|| no_session(id))?;
    purge.check(session)?;
    let (log, tombstone) = (*log, session.tombstone());
    let (id, keep) = (id.to_string(), int(purge.keep.get()));
    let removed = execute(conn, "DELETE FROM events WHERE log = ? AND seq > ?", params![log, keep])?;
    bury(conn, tenant, &tombstone, keep)?;
    let sql = "SELECT kept FROM tombstones WHERE tenant = ? AND session = ?";
    let kept = first_number(conn, sql, params![tenant, id])?;
    // The row of the record too, with its columns and labels.
    write_record(conn, tenant, log, &tombstone, kept)?;
    known.insert(key, Stored { log, session: tombstone });
    Ok(Purged::new(removed as u64))
}

/// Stores the tombstone of a session of which the events up to `kept` are left.
pub(crate) fn bury(conn: &Connection, tenant: &str, tombstone: &Session, kept: i64) -> rusqlite::Result<()> {
    let (id, record) = (tombstone.id.to_string(), tombstone.to_json());
    // A second purge may keep less than the first, never more: what is gone is gone.
    execute(
        conn,
        "INSERT INTO tombstones (tenant, session, kept, crc, record) VALUES (?, ?, ?, ?, ?) \
         ON CONFLICT (tenant, session) DO UPDATE \
         SET kept = min(kept, excluded.kept), crc = excluded.crc, record = excluded.record",
        params![tenant, id, kept, checksum(&[tenant, &id, &record]), record],
    )
    .map(drop)
}

/// Notes a sign of life of the holder of the lease `epoch`, where it still is the holder.
pub(crate) fn beat(conn: &Connection, tenant: &str, id: SessionId, epoch: Epoch) -> Step<()> {
    let sql = "SELECT log, epoch FROM logs JOIN sessions USING (log) WHERE logs.tenant = ? AND session = ?";
    let found =
        first(conn, sql, params![tenant, id.to_string()], |row| Ok((number(row, 0)?, optional(row, 1)?)))?;
    let (log, held) = found.ok_or_else(|| no_session(id))?;
    if held == Some(int(epoch.get())) {
        let sql =
            "INSERT INTO beats (log, beat) VALUES (?, 1) ON CONFLICT (log) DO UPDATE SET beat = beat + 1";
        execute(conn, sql, [log])?;
    }
    Ok(())
}

/// An event from its row: `seq`, `crc`, `json` in the columns from `at` on.
pub(crate) fn event(
    row: &Row<'_>,
    at: usize,
    tenant: &str,
    session: &str,
) -> rusqlite::Result<Result<Event>> {
    let seq = crate::rows::seq(number(row, at)?);
    let damaged = |what| Err(corrupt(&format!("event {seq} of session {session}"), what));
    let Some(json) = text(row, at + 2)? else { return Ok(damaged("is no text")) };
    let fits = event_checksum(tenant, session, seq, json) == number(row, at + 1)?;
    if !fits && !planted("ignore-row-checksum") {
        return Ok(damaged("does not fit its checksum"));
    }
    Ok(match Event::from_json(json) {
        Ok(event) if event.seq == seq => Ok(event),
        Ok(_) => damaged("carries another number"),
        Err(_) => damaged("is no event of a format that this version reads"),
    })
}
