//! Sessions inside a write transaction: reads a record, executes a plan, purges, writes a heartbeat.

use std::sync::Arc;

use agent_core::commit::{Commit, Committed};
use agent_core::session::SessionRecord;
use agent_core::state::SessionState;
use agent_core::store::{Purge, Purged};
use agent_core::{Epoch, Error, Plan, SessionId, plan};
use rusqlite::{Connection, params};

use crate::blobs::{chunks, removal};
use crate::error::{Fault, Step};
use crate::log::rebuild;
use crate::log::recent::make_room;
use crate::medium::known::{Known, StoredSession};
use crate::medium::rewrites;
use crate::medium::rows::{execute, first, first_number, int, number, optional};
use crate::medium::session_rows::{
    insert_events, insert_labels, insert_record, update_labels, update_record,
};
use crate::medium::stored::{bury, new_log, no_session, record, write_record};
use crate::places::tenants;

/// Ensures that the cache holds the current record of a session, if the session ever existed. A damaged or missing
/// record is rebuilt from the log.
pub(crate) fn load_known(conn: &Connection, known: &mut Known, tenant: &Arc<str>, id: SessionId) -> Step<()> {
    let key = (tenant.clone(), id);
    if known.contains_key(&key) {
        return Ok(());
    }
    // Nothing is appended after missing events.
    let sql = "SELECT record, record_crc, log, kept IS NOT NULL OR EXISTS ( \
        SELECT 1 FROM events WHERE events.log = sessions.log AND seq = head), is_recent \
        FROM logs JOIN sessions USING (log) WHERE logs.tenant = ? AND session = ?";
    let found = first(conn, sql, params![tenant, id.to_string()], |row| {
        let (log, has_end, is_recent) = (number(row, 2)?, number(row, 3)? == 1, number(row, 4)? != 0);
        Ok(record(row, 0, tenant, id)?.filter(|_| has_end).map(|session| StoredSession {
            log,
            session: Arc::new(session),
            is_recent,
        }))
    })?;
    let had_record = found.is_some();
    let stored = match found.flatten() {
        Some(stored) => Some(stored),
        None => rebuild::mend(conn, tenant, id, had_record)?,
    };
    known.extend(stored.map(|stored| (key, stored)));
    Ok(())
}

/// Plans a commit against the current record and writes the result. If the commit is refused, nothing is written.
pub(crate) fn commit(
    conn: &Connection,
    known: &mut Known,
    holder: Option<&str>,
    tenant: &Arc<str>,
    commit: &Commit,
) -> Step<Committed> {
    load_known(conn, known, tenant, commit.session)?;
    let key = (tenant.clone(), commit.session);
    let now = known.get(&key);
    let planned = match plan(now.map(|now| &*now.session), commit) {
        Ok(planned) => planned,
        Err(error) => return Err(tenants::of_tenant(conn, tenant, error)?.into()),
    };
    let Plan::Write { events, after, blobs, .. } = &planned else { return Ok(planned.committed()) };
    chunks::require(conn, tenant, commit.session, blobs)?;
    let (log, was_recent) = match now {
        Some(stored) => {
            update_record(conn, tenant, stored, after, holder)?;
            update_labels(conn, tenant, stored, after)?;
            (stored.log, stored.is_recent)
        }
        None => {
            check_parent(conn, known, tenant, after)?;
            (create(conn, tenant, after, holder)?, false)
        }
    };
    insert_events(conn, tenant, log, after, events)?;
    if !blobs.is_empty() {
        chunks::note_named(conn, tenant, commit.session, events)?;
    }
    let done = planned.committed();
    known.insert(key, StoredSession { log, session: done.session.clone(), is_recent: true });
    if !was_recent {
        make_room(conn, known, tenant)?;
    }
    Ok(done)
}

/// Stores the record of a new session, and returns the number of its log.
fn create(
    conn: &Connection,
    tenant: &str,
    session: &SessionRecord,
    holder: Option<&str>,
) -> rusqlite::Result<i64> {
    let log = new_log(conn, tenant, &session.id.to_string())?;
    insert_record(conn, tenant, log, session, holder, true)?;
    insert_labels(conn, tenant, log, session)?;
    Ok(log)
}

/// Fails if the session that a new one is created from is deleted.
fn check_parent(conn: &Connection, known: &mut Known, tenant: &Arc<str>, new: &SessionRecord) -> Step<()> {
    let Some(parent) = new.origin.parent() else { return Ok(()) };
    load_known(conn, known, tenant, parent)?;
    let stored = known.get(&(tenant.clone(), parent)).ok_or_else(|| no_session(parent))?;
    if stored.session.status.state == SessionState::Deleted {
        return Err(Fault::Refused(Error::deleted(format!(
            "session {parent} was deleted; it has no new forks or children"
        ))));
    }
    Ok(())
}

/// Removes a deleted session's events after `keep`. The record stays as a tombstone that needs no log.
pub(crate) fn purge(conn: &Connection, known: &mut Known, tenant: &Arc<str>, purge: &Purge) -> Step<Purged> {
    let id = purge.session;
    load_known(conn, known, tenant, id)?;
    let key = (tenant.clone(), id);
    let StoredSession { log, session, .. } = known.get(&key).ok_or_else(|| no_session(id))?;
    purge.check(session)?;
    let (log, tombstone) = (*log, session.tombstone());
    removal::purge(conn, tenant, session, log, purge.keep_through)?;
    let keep = int(purge.keep_through.get());
    let id = id.to_string();
    let removed = execute(conn, "DELETE FROM events WHERE log = ? AND seq > ?", params![log, keep])?;
    let sql = "SELECT kept FROM tombstones WHERE tenant = ? AND session = ?";
    let before = first_number(conn, sql, params![tenant, id])?;
    bury(conn, tenant, &tombstone, keep)?;
    let kept = first_number(conn, sql, params![tenant, id])?;
    // The first purge also takes the texts of the record.
    if removed > 0 || before != kept {
        rewrites::mark(conn)?;
    }
    // Includes the row of the record, with its columns and labels.
    write_record(conn, tenant, log, &tombstone, kept)?;
    known.insert(key, StoredSession { log, session: Arc::new(tombstone), is_recent: false });
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
