//! Rebuilds derived data from its source: records from logs and tombstones, and which event names a blob.

use std::sync::Arc;

use agent_core::session::SessionRecord;
use agent_core::state::{Reason, SessionState};
use agent_core::store::{Damaged, Rebuilt};
use agent_core::{Error, ErrorKind, Seq, SessionId, TenantId, Timestamp, WorkspaceId};
use rusqlite::{Connection, params};

use crate::blobs::removal;
use crate::error::{Fault, Step, corrupt};
use crate::medium::rows::{checksum, each, execute, first, first_number, int, number, optional, seq, text};
use crate::medium::stored::{bury, event, log, new_log, no_session, record, write_record};

/// Like [`session`], for a record that was found to be damaged or missing.
pub(crate) fn mend(
    conn: &Connection,
    tenant: &Arc<str>,
    id: SessionId,
    had_record: bool,
) -> Step<Option<Arc<SessionRecord>>> {
    let mended = session(conn, tenant, id, had_record)?;
    if mended.is_some() {
        tracing::warn!(session = %id, "the record of the session was damaged or missing; it is rebuilt from the log");
    }
    Ok(mended)
}

/// Rebuilds and stores a session's record, and its row in `logs` and its tombstone if another program deleted those.
/// Returns `None` if there is no log and no tombstone.
fn session(
    conn: &Connection,
    tenant: &Arc<str>,
    id: SessionId,
    had_record: bool,
) -> Step<Option<Arc<SessionRecord>>> {
    let name = id.to_string();
    let buried = buried(conn, tenant, &name)?;
    let is_buried = buried.is_some();
    let log = match log(conn, tenant, id)? {
        Some(log) => Some(log),
        None => find_log(conn, tenant, id, is_buried)?,
    };
    let Some(log) = log else {
        if had_record {
            return Err(
                corrupt(&format!("the record of session {id}"), "is damaged, and it has no log").into()
            );
        }
        return Ok(None);
    };
    let listed = listed(conn, tenant, id, log)?;
    let (session, kept) = match (buried, listed) {
        (Some((session, kept)), _) => (session, Some(kept)),
        // Of a purged session, only the record is left.
        (None, Some((session, Some(kept)))) if session.status.state == SessionState::Deleted => {
            bury(conn, tenant, &session, kept)?;
            (session, Some(kept))
        }
        (None, listed) => {
            let end = listed.map_or(Seq::ZERO, |(session, _)| session.head);
            let folded = fold(conn, tenant, id, log)?;
            let found = folded.as_ref().map_or(Seq::ZERO, |session| session.head);
            match folded {
                Some(session) if found >= end => (session, None),
                _ => {
                    let what = format!("ends at event {found}, but had events up to {}", end.max(found));
                    return Err(corrupt(&format!("the log of session {id}"), &what).into());
                }
            }
        }
    };
    write_record(conn, tenant, log, &session, kept)?;
    Ok(Some(Arc::new(session)))
}

/// Finds the number of a session's log whose row in `logs` another program deleted, from the row of the session's
/// record, and stores the row in `logs` again. Events of another session would fail their checksums. A session of
/// which only a tombstone is left gets a new number.
fn find_log(conn: &Connection, tenant: &str, id: SessionId, is_buried: bool) -> Step<Option<i64>> {
    let sql = "SELECT log FROM sessions INDEXED BY sessions_by_id WHERE tenant = ? AND id = ? \
        AND NOT EXISTS (SELECT 1 FROM logs WHERE logs.log = sessions.log)";
    let named = first_number(conn, sql, params![tenant, id.to_string()])?;
    let log = match named {
        Some(log) => log,
        None if is_buried => return Ok(Some(new_log(conn, tenant, &id.to_string())?)),
        None => return Ok(None),
    };
    let sql = "INSERT INTO logs (log, tenant, session) VALUES (?, ?, ?)";
    execute(conn, sql, params![log, tenant, id.to_string()])?;
    Ok(Some(log))
}

/// Returns the record in a session's row, and the last event that was kept; `None` if there is no record or it is
/// damaged.
fn listed(
    conn: &Connection,
    tenant: &str,
    id: SessionId,
    log: i64,
) -> Step<Option<(SessionRecord, Option<i64>)>> {
    let sql = "SELECT record, record_crc, kept FROM sessions WHERE log = ?";
    let found = first(conn, sql, [log], |row| {
        let kept = optional(row, 2)?;
        Ok(record(row, 0, tenant, id)?.map(|session| (session, kept)))
    })?;
    Ok(found.flatten())
}

/// Returns the record in a session's tombstone, and the last event that was kept.
fn buried(conn: &Connection, tenant: &str, id: &str) -> Step<Option<(SessionRecord, i64)>> {
    let damaged = || corrupt(&format!("the tombstone of session {id}"), "is damaged");
    let sql = "SELECT record, crc, kept FROM tombstones WHERE tenant = ? AND session = ?";
    first(conn, sql, params![tenant, id], |row| {
        let json = text(row, 0)?.ok_or_else(damaged)?;
        if checksum(&[tenant, id, json]) != number(row, 1)? {
            return Err(damaged().into());
        }
        Ok((SessionRecord::from_json(json).map_err(|_| damaged())?, number(row, 2)?))
    })
}

/// Folds a session's own log.
fn fold(conn: &Connection, tenant: &str, id: SessionId, log: i64) -> Step<Option<SessionRecord>> {
    let name = id.to_string();
    let mut session = None::<SessionRecord>;
    let mut statement =
        conn.prepare_cached("SELECT seq, crc, json FROM events WHERE log = ? ORDER BY seq")?;
    let mut rows = statement.query([log])?;
    while let Some(row) = rows.next()? {
        let event = event(row, 0, tenant, &name)??;
        match &mut session {
            Some(session) => session.apply(&event)?,
            None => session = Some(SessionRecord::begin(id, &event)?),
        }
    }
    Ok(session)
}

/// Returns whether there are logs or tombstones, but no record at all.
pub(crate) fn is_needed(conn: &Connection) -> rusqlite::Result<bool> {
    conn.query_row(
        "SELECT NOT EXISTS (SELECT 1 FROM sessions) \
         AND (EXISTS (SELECT 1 FROM logs) OR EXISTS (SELECT 1 FROM tombstones))",
        [],
        |row| row.get(0),
    )
}

/// Rebuilds all records, if there are none; inside the transaction that opens the store.
pub(crate) fn missing(conn: &Connection) -> rusqlite::Result<()> {
    if is_needed(conn)? {
        match all(conn, None) {
            Ok(rebuilt) => {
                for damage in rebuilt.damaged {
                    tracing::warn!(%damage, "a record could not be rebuilt");
                }
            }
            Err(Fault::Sql(error)) => return Err(error),
            // A session that cannot be folded reports that when it is loaded.
            Err(Fault::Refused(error)) => tracing::warn!(%error, "records could not be rebuilt"),
        }
    }
    Ok(())
}

/// Rebuilds all records, of one tenant or of all. A record whose log is damaged is left unchanged, and reported.
pub(crate) fn all(conn: &Connection, only: Option<&str>) -> Step<Rebuilt> {
    let sql = "SELECT tenant, session FROM (SELECT tenant, session FROM logs WHERE ?1 IS NULL OR tenant = ?1 \
        UNION SELECT tenant, session FROM tombstones WHERE ?1 IS NULL OR tenant = ?1 \
        UNION SELECT tenant, id FROM sessions WHERE ?1 IS NULL OR tenant = ?1) \
        WHERE tenant NOT IN (SELECT tenant FROM deletions)";
    let mut names = Vec::<(String, String)>::new();
    each(conn, sql, [only], |row| {
        names.push((row.get(0)?, row.get(1)?));
        Ok(())
    })?;
    let mut done = Rebuilt::default();
    for (tenant, name) in names {
        let object = match only.is_some() || tenant == TenantId::default().as_str() {
            true => format!("session {name}"),
            false => format!("tenant {tenant}, session {name}"),
        };
        let Ok(id) = name.parse::<SessionId>() else {
            done.damaged.push(Damaged::new(object, "its id is damaged"));
            continue;
        };
        let rebuilt = session(conn, &tenant.as_str().into(), id, true)
            .and_then(|_| removal::rebuild(conn, &tenant, id));
        match rebuilt {
            Ok(()) => done.sessions += 1,
            Err(Fault::Refused(error)) => done.damaged.push(Damaged::of(object, &error)),
            Err(fault) => return Err(fault),
        }
    }
    Ok(done)
}

/// Deletes a session whose record cannot be rebuilt: a tombstone replaces the record. All events are kept unchanged
/// until the session is purged.
pub(crate) fn delete_damaged(
    conn: &Connection,
    tenant: &Arc<str>,
    id: SessionId,
    (at, reason): (Timestamp, Reason),
) -> Step<Arc<SessionRecord>> {
    match session(conn, tenant, id, true) {
        Ok(None) => return Err(no_session(id).into()),
        Ok(Some(session)) if session.status.state == SessionState::Deleted => return Ok(session),
        Ok(Some(_)) => {
            let text = format!("session {id} can be read; delete it by a commit");
            return Err(Error::invalid(text).into());
        }
        Err(Fault::Refused(error)) if *error.kind() == ErrorKind::Corrupt => {}
        Err(fault) => return Err(fault),
    }
    let name = id.to_string();
    let number = log(conn, tenant, id)?;
    let (known, last) = match number {
        Some(log) => readable(conn, tenant, id, log)?,
        None => (None, Seq::ZERO),
    };
    if number.is_none() && !is_there(conn, tenant, &name)? {
        return Err(no_session(id).into());
    }
    let listed = first(conn, "SELECT workspace FROM sessions WHERE log = ?", params![number], |row| {
        Ok(text(row, 0)?.and_then(|workspace| workspace.parse::<WorkspaceId>().ok()))
    })?;
    // If nothing names its workspace any more, the session goes to the default workspace.
    let workspace = known.as_ref().map(|known| known.workspace).or(listed.flatten());
    let workspace = workspace.unwrap_or(WorkspaceId::DEFAULT);
    let tombstone = SessionRecord::tombstone_of_damaged(id, workspace, known.as_ref(), last, at, reason);
    let Some(log) = number.map_or_else(|| find_log(conn, tenant, id, true), |log| Ok(Some(log)))? else {
        return Err(no_session(id).into());
    };
    let (record, kept) = (tombstone.to_json(), int(tombstone.head.get()));
    execute(
        conn,
        "INSERT INTO tombstones (tenant, session, kept, crc, record) VALUES (?, ?, ?, ?, ?) \
         ON CONFLICT (tenant, session) DO UPDATE SET record = excluded.record, crc = excluded.crc",
        params![&**tenant, name, kept, checksum(&[tenant, &name, &record]), record],
    )?;
    write_record(conn, tenant, log, &tombstone, Some(kept))?;
    Ok(Arc::new(tombstone))
}

fn is_there(conn: &Connection, tenant: &str, name: &str) -> Step<bool> {
    let sql = "SELECT 1 FROM tombstones WHERE tenant = ? AND session = ?";
    Ok(first(conn, sql, params![tenant, name], |_| Ok(()))?.is_some())
}

/// Folds a log up to the first unreadable event; returns the record and the number of the log's last row.
fn readable(conn: &Connection, tenant: &str, id: SessionId, log: i64) -> Step<(Option<SessionRecord>, Seq)> {
    let (name, mut known, mut last, mut whole) = (id.to_string(), None::<SessionRecord>, Seq::ZERO, true);
    each(conn, "SELECT seq, crc, json FROM events WHERE log = ? ORDER BY seq", [log], |row| {
        last = seq(number(row, 0)?);
        if !whole {
            return Ok(());
        }
        // A record to which an event was applied in part is discarded.
        let next = event(row, 0, tenant, &name)?.and_then(|event| match &known {
            None => SessionRecord::begin(id, &event),
            Some(so_far) => {
                let mut next = so_far.clone();
                next.apply(&event).map(|()| next)
            }
        });
        match next {
            Ok(next) => known = Some(next),
            Err(_) => whole = false,
        }
        Ok(())
    })?;
    Ok((known, last))
}
