//! Sessions inside a write transaction: reads a record, executes a plan, purges, writes a heartbeat.

use std::sync::Arc;

use agent_core::commit::{Committed, OptimisticCommit};
use agent_core::session::SessionRecord;
use agent_core::state::SessionState;
use agent_core::store::{Purge, Purged};
use agent_core::{Epoch, Error, Plan, SessionId};
use rusqlite::{Connection, params};

use crate::blobs::{chunks, removal};
use crate::error::{Fault, Step};
use crate::log::rebuild;
use crate::log::recent::make_room;
use crate::medium::known::{Known, StoredSession};
use crate::medium::rewrites;
use crate::medium::rows::{execute, first, first_number, int, number, optional};
use crate::medium::session_rows::{
    Changing, Rows, insert_events, insert_labels, insert_record, update_labels, update_record,
};
use crate::medium::stored::{bury, new_log, no_session, record, write_record};
use crate::places::tenants;

/// Returns what is stored of a session, if it ever existed. A damaged or missing record is rebuilt from the log.
pub(crate) fn current(
    conn: &Connection,
    known: &Known,
    tenant: &Arc<str>,
    id: SessionId,
) -> Step<Option<StoredSession>> {
    let key = (tenant.clone(), id);
    if let Some(stored) = known.current(&key) {
        return Ok(Some(stored));
    }
    let found = match known.remembered(&key) {
        Some(remembered) => compared(conn, tenant, id, remembered)?,
        None => None,
    };
    let found = match found {
        Some(found) => Some(found),
        None => read(conn, tenant, id)?,
    };
    if let Some(stored) = &found {
        known.insert(key, stored.clone());
    }
    Ok(found)
}

/// Returns a query for columns of a session's row, and the condition that its log has the last event: nothing is appended
/// after missing events.
macro_rules! session_sql {
    ($columns:literal, $condition:literal) => {
        concat!(
            "SELECT ",
            $columns,
            ", kept IS NOT NULL OR EXISTS ( \
             SELECT 1 FROM events WHERE events.log = sessions.log AND seq = head) AS has_end \
             FROM logs JOIN sessions USING (log) WHERE logs.tenant = ? AND session = ?",
            $condition
        )
    };
}

/// Returns what is stored of a session, if that still is the record which was remembered. Reads no record.
fn compared(
    conn: &Connection,
    tenant: &Arc<str>,
    id: SessionId,
    remembered: StoredSession,
) -> Step<Option<StoredSession>> {
    let sql = session_sql!("is_recent", " AND logs.log = ? AND version = ? AND has_end");
    let values = params![tenant, id.to_string(), remembered.log, remembered.version];
    let is_recent = first_number(conn, sql, values)?;
    Ok(is_recent.map(|is_recent| StoredSession { is_recent: is_recent != 0, ..remembered }))
}

/// Reads a session's record, and rebuilds it from the log if it is damaged or missing.
fn read(conn: &Connection, tenant: &Arc<str>, id: SessionId) -> Step<Option<StoredSession>> {
    let sql = session_sql!("record, record_crc, log, is_recent, version", "");
    let find = || {
        first(conn, sql, params![tenant, id.to_string()], |row| {
            let (log, is_recent, version) = (number(row, 2)?, number(row, 3)? != 0, number(row, 4)?);
            let has_end = number(row, 5)? == 1;
            let session = record(row, 0, tenant, id)?.filter(|_| has_end).map(Arc::new);
            Ok(session.map(|session| StoredSession { log, version, session, is_recent }))
        })
    };
    match find()? {
        Some(Some(stored)) => Ok(Some(stored)),
        found => match rebuild::mend(conn, tenant, id, found.is_some())? {
            Some(_) => Ok(find()?.flatten()),
            None => Ok(None),
        },
    }
}

/// Plans a commit against the current record and writes the result. If the commit is refused, nothing is written.
pub(crate) fn commit(
    conn: &Connection,
    known: &Known,
    holder: Option<&str>,
    tenant: &Arc<str>,
    commit: &OptimisticCommit<Rows>,
) -> Step<Committed> {
    let id = commit.commit().session;
    let now = current(conn, known, tenant, id)?;
    let record = now.as_ref().map(|now| (now.version, &*now.session));
    let planned = match commit.resolve(record, |events, after| Rows::of(tenant, events, after)) {
        Ok(planned) => planned,
        Err(error) => return Err(tenants::of_tenant(conn, tenant, error)?.into()),
    };
    let (Plan::Write { events, after, blobs, .. }, Some(rows)) = (&planned.plan, &planned.rows) else {
        return Ok(planned.plan.committed());
    };
    chunks::require(conn, tenant, id, blobs)?;
    let (log, version) = match &now {
        Some(stored) => {
            let version = update_record(conn, stored, after, &rows.record, holder)?;
            update_labels(conn, tenant, stored, after)?;
            (stored.log, version)
        }
        None => {
            check_parent(conn, known, tenant, after)?;
            create(conn, tenant, after, &rows.record, holder)?
        }
    };
    insert_events(conn, log, events, rows)?;
    if !blobs.is_empty() {
        chunks::note_named(conn, tenant, id, events)?;
    }
    let stored = StoredSession { log, version, session: after.clone(), is_recent: true };
    known.insert((tenant.clone(), id), stored);
    if !now.is_some_and(|now| now.is_recent) {
        make_room(conn, known, tenant)?;
    }
    Ok(planned.plan.committed())
}

/// Stores the record of a new session, and returns the number of its log and the record's version.
fn create(
    conn: &Connection,
    tenant: &str,
    session: &SessionRecord,
    changing: &Changing,
    holder: Option<&str>,
) -> rusqlite::Result<(i64, i64)> {
    let log = new_log(conn, tenant, &session.id.to_string())?;
    let version = insert_record(conn, tenant, log, session, changing, holder, true)?;
    insert_labels(conn, tenant, log, session)?;
    Ok((log, version))
}

/// Fails if the session that a new one is created from is deleted.
fn check_parent(conn: &Connection, known: &Known, tenant: &Arc<str>, new: &SessionRecord) -> Step<()> {
    let Some(parent) = new.origin.parent() else { return Ok(()) };
    let stored = current(conn, known, tenant, parent)?.ok_or_else(|| no_session(parent))?;
    if stored.session.status.state == SessionState::Deleted {
        return Err(Fault::Refused(Error::deleted(format!(
            "session {parent} was deleted; it has no new forks or children"
        ))));
    }
    Ok(())
}

/// Removes a deleted session's events after `keep`. The record stays as a tombstone that needs no log.
pub(crate) fn purge(conn: &Connection, known: &Known, tenant: &Arc<str>, purge: &Purge) -> Step<Purged> {
    let id = purge.session;
    let StoredSession { log, session, .. } =
        current(conn, known, tenant, id)?.ok_or_else(|| no_session(id))?;
    purge.check(&session)?;
    let tombstone = purge.tombstone_of(&session);
    removal::purge(conn, tenant, &session, log, purge.keep_through)?;
    let keep = int(purge.keep_through.get());
    let id = id.to_string();
    let removed = execute(conn, "DELETE FROM events WHERE log = ? AND seq > ?", params![log, keep])?;
    let sql = "SELECT kept FROM tombstones WHERE tenant = ? AND session = ?";
    let before = first_number(conn, sql, params![tenant, id])?;
    bury(conn, tenant, &tombstone, keep)?;
    let kept = first_number(conn, sql, params![tenant, id])?;
    // The first purge also takes the texts of the record, a later one may take the owner's name.
    if removed > 0 || before != kept || tombstone.owner != session.owner {
        rewrites::mark(conn)?;
    }
    // Includes the row of the record, with its columns and labels.
    write_record(conn, tenant, log, &tombstone, kept)?;
    known.remove(&(tenant.clone(), purge.session));
    Ok(Purged::new(removed as u64))
}

/// Stores a heartbeat of the holder of the lease `epoch`, if it is still the holder.
pub(crate) fn heartbeat(conn: &Connection, tenant: &str, id: SessionId, epoch: Epoch) -> Step<()> {
    let sql = "SELECT log, epoch FROM logs JOIN sessions USING (log) WHERE logs.tenant = ? AND session = ?";
    let found =
        first(conn, sql, params![tenant, id.to_string()], |row| Ok((number(row, 0)?, optional(row, 1)?)))?;
    let (log, held) = found.ok_or_else(|| no_session(id))?;
    if held == Some(int(epoch.get())) {
        let sql = "INSERT INTO heartbeats (log, heartbeat) VALUES (?, 1) \
            ON CONFLICT (log) DO UPDATE SET heartbeat = heartbeat + 1";
        execute(conn, sql, [log])?;
    }
    Ok(())
}

#[cfg(test)]
#[path = "commit_tests.rs"]
mod tests;
