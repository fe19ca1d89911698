//! Removal of blobs: which ones a log names, and what a sweep, a purge and the deletion of a tenant take away.
//!
//! The column `named` of a blob is derived: what is removed for lack of an event is looked for in the log first.

use std::collections::HashMap;

use agent_core::session::SessionRecord;
use agent_core::store::{SweepBlobs, SweptBlobs};
use agent_core::{BlobName, Error, Seq, SessionId, Timestamp};
use rusqlite::{Connection, params};

use crate::error::{Step, corrupt};
use crate::medium::rows::{each, execute, first, first_number, int, number, optional, seq, text};
use crate::medium::{rewrites, stored};

/// Limits on the rows and, approximately, on the bytes that one transaction deletes.
const ROWS: u32 = 1024;
pub(crate) const DELETED_BYTES: usize = 1 << 20;
/// Time after its last chunk, in microseconds, at which a put that did not end counts as given up.
const GIVEN_UP: i64 = 3_600_000_000;

/// Columns that a sweep reads; `?3` and `?4` are the times between which a put may still go on.
macro_rules! swept {
    ($scope:literal) => {
        concat!(
            "SELECT blob, name, bytes, state = 'whole', at < ?3 OR at > ?4, iif(state = 'whole', 0, ifnull(\
             (SELECT sum(octet_length(data)) FROM blob_chunks WHERE blob_chunks.blob = blobs.blob), 0)), ?2 \
             FROM blobs INDEXED BY blobs_unnamed WHERE tenant = ?1 AND named IS NULL AND state IN ('unfinished', 'whole') AND ",
            $scope
        )
    };
}

/// Reads the unnamed blobs of one session.
pub(crate) const OF_SESSION: &str = swept!("session = ?2");
/// Reads the unnamed blobs of all ids without a session.
pub(crate) const WITHOUT_SESSION: &str = swept!(
    "NOT EXISTS (SELECT 1 FROM logs WHERE logs.tenant = blobs.tenant AND logs.session = blobs.session) \
     AND NOT EXISTS (SELECT 1 FROM tombstones \
     WHERE tombstones.tenant = blobs.tenant AND tombstones.session = blobs.session) \
     AND NOT EXISTS (SELECT 1 FROM sessions INDEXED BY sessions_by_id \
     WHERE sessions.tenant = blobs.tenant AND sessions.id = blobs.session)"
);
/// Finds a removed blob.
pub(crate) const REMOVED: &str = "SELECT blob FROM blobs WHERE tenant = ? AND state = 'removed' LIMIT 1";
/// Finds a blob of a tenant.
pub(crate) const ANY: &str = "SELECT blob FROM blobs WHERE tenant = ? LIMIT 1";
/// Reads the first chunks of a blob, without their bytes.
pub(crate) const CHUNKS: &str =
    "SELECT n, octet_length(data) FROM blob_chunks WHERE blob = ? ORDER BY n LIMIT 32";
/// Reads the blobs of a session that are not removed.
pub(crate) const OF: &str = "SELECT blob, state = 'whole', name, named FROM blobs WHERE tenant = ? AND session = ? AND state <> 'removed'";

/// Blobs that the events of a log name.
#[derive(Debug, Default)]
struct Named {
    /// First event that names each.
    first: HashMap<BlobName, Seq>,
    /// Damage of the log, because of which it may name others, too.
    damage: Option<Error>,
}

impl Named {
    /// Reads a session's own events up to `last`.
    fn read(conn: &Connection, tenant: &str, session: &SessionRecord, log: i64, last: Seq) -> Step<Self> {
        let (mut named, id, mut due) =
            (Self::default(), session.id.to_string(), session.lineage.base().next());
        let damaged = |due: Seq| corrupt(&format!("event {due} of session {id}"), "is missing");
        let sql = "SELECT seq, crc, json FROM events WHERE log = ? AND seq <= ? ORDER BY seq";
        each(conn, sql, params![log, int(last.get())], |row| {
            let at = seq(number(row, 0)?);
            if at != due {
                named.damage.get_or_insert_with(|| damaged(due));
            }
            due = at.next();
            match stored::event(row, 0, tenant, &id)? {
                Ok(event) => {
                    for name in event.blobs {
                        named.first.entry(name).or_insert(at);
                    }
                }
                Err(error) => {
                    named.damage.get_or_insert(error);
                }
            }
            Ok(())
        })?;
        if due <= last {
            named.damage.get_or_insert_with(|| damaged(due));
        }
        Ok(named)
    }

    /// Reads all events that are left of a session; none if there is no such session.
    fn of(conn: &Connection, tenant: &str, id: SessionId) -> Step<Self> {
        let Some(log) = stored::log(conn, tenant, id)? else {
            let sql = "SELECT 1 FROM sessions INDEXED BY sessions_by_id WHERE tenant = ?1 AND id = ?2 \
                UNION ALL SELECT 1 FROM tombstones WHERE tenant = ?1 AND session = ?2";
            return match first_number(conn, sql, params![tenant, id.to_string()])? {
                None => Ok(Self::default()),
                Some(_) => {
                    let what = "has no row in the table logs; run `chat rebuild` to restore the row";
                    Err(corrupt(&format!("session {id}"), what).into())
                }
            };
        };
        let sql = "SELECT record, record_crc FROM sessions WHERE log = ?";
        let record = first(conn, sql, [log], |row| Ok(stored::record(row, 0, tenant, id)?))?.flatten();
        let record = record.ok_or_else(|| corrupt(&format!("the record of session {id}"), "is damaged"))?;
        let last = left(conn, tenant, &record, record.head)?;
        Self::read(conn, tenant, &record, log, last)
    }
}

/// Returns whether an event that is left of a session names a blob.
pub(crate) fn names(conn: &Connection, tenant: &str, id: SessionId, name: BlobName) -> Step<bool> {
    let named = Named::of(conn, tenant, id)?;
    match named.damage {
        _ if named.first.contains_key(&name) => Ok(true),
        Some(damage) => Err(damage.into()),
        None => Ok(false),
    }
}

/// Returns the last event up to `last` that is left of a session.
fn left(conn: &Connection, tenant: &str, session: &SessionRecord, last: Seq) -> Step<Seq> {
    let sql = "SELECT kept FROM tombstones WHERE tenant = ? AND session = ?";
    let kept = first_number(conn, sql, params![tenant, session.id.to_string()])?;
    Ok(kept.map_or(session.head, seq).min(session.head).min(last))
}

/// Takes the blobs that no event names out of sight, and the puts that were given up. With `dry_run` it only counts them.
pub(crate) fn sweep(conn: &Connection, tenant: &str, sweep: SweepBlobs, now: Timestamp) -> Step<SweptBlobs> {
    let (mut gone, mut swept) = (Vec::new(), SweptBlobs::default());
    let sql = if sweep.session.is_some() { OF_SESSION } else { WITHOUT_SESSION };
    let session = sweep.session.map(|id| id.to_string());
    let now = now.as_micros();
    // A time that lies ahead is from a clock that was wrong.
    let (from, until) = (now.saturating_sub(GIVEN_UP), now.saturating_add(GIVEN_UP));
    each(conn, sql, params![tenant, session, from, until], |row| {
        let count = |column| Ok::<_, rusqlite::Error>(u64::try_from(number(row, column)?).unwrap_or(0));
        let (is_whole, is_given_up) = (number(row, 3)? == 1, number(row, 4)? == 1);
        if is_whole || is_given_up {
            let name = text(row, 1)?.and_then(|name| name.parse::<BlobName>().ok());
            gone.push((number(row, 0)?, name.filter(|_| is_whole), count(if is_whole { 2 } else { 5 })?));
        } else {
            swept.unfinished += count(5)?;
        }
        Ok(())
    })?;
    let named = match sweep.session {
        Some(id) if gone.iter().any(|(_, name, _)| name.is_some()) => Named::of(conn, tenant, id)?,
        _ => Named::default(),
    };
    if let Some(damage) = named.damage {
        return Err(damage.into());
    }
    for (blob, name, bytes) in gone {
        let seq = name.and_then(|name| named.first.get(&name));
        if seq.is_none() {
            swept += SweptBlobs::new(1, bytes);
        }
        if sweep.dry_run {
            continue;
        }
        match seq {
            Some(seq) => set_named(conn, blob, Some(*seq))?,
            None => remove(conn, blob)?,
        }
    }
    Ok(swept)
}

fn set_named(conn: &Connection, blob: i64, seq: Option<Seq>) -> Step<()> {
    let seq = seq.map(|seq| int(seq.get()));
    execute(conn, "UPDATE blobs SET named = ?2 WHERE blob = ?1 AND named IS NOT ?2", params![blob, seq])?;
    Ok(())
}

fn remove(conn: &Connection, blob: i64) -> Step<()> {
    execute(conn, "UPDATE blobs SET state = 'removed' WHERE blob = ?", [blob])?;
    Ok(())
}

/// Takes the blobs of a session out of sight that no event up to `keep` names, with the unfinished ones. If a kept event
/// is damaged, also keeps the blobs that such an event named when it was stored.
pub(crate) fn purge(
    conn: &Connection,
    tenant: &str,
    session: &SessionRecord,
    log: i64,
    keep: Seq,
) -> Step<()> {
    let blobs = stored(conn, tenant, session.id)?;
    if blobs.is_empty() {
        return Ok(());
    }
    let keep = left(conn, tenant, session, keep)?;
    let kept = Named::read(conn, tenant, session, log, keep)?;
    for StoredNamed { blob, name, named, is_whole } in blobs {
        let read = name.and_then(|name| kept.first.get(&name).copied());
        let stored = named.filter(|named| kept.damage.is_some() && *named <= keep);
        match read.or(stored).filter(|_| is_whole) {
            Some(seq) => set_named(conn, blob, Some(seq))?,
            None => remove(conn, blob)?,
        }
    }
    Ok(())
}

/// Blob of a session, and the event that is stored as the first that names it.
struct StoredNamed {
    blob: i64,
    is_whole: bool,
    name: Option<BlobName>,
    named: Option<Seq>,
}

fn stored(conn: &Connection, tenant: &str, id: SessionId) -> Step<Vec<StoredNamed>> {
    let mut blobs = Vec::new();
    each(conn, OF, params![tenant, id.to_string()], |row| {
        blobs.push(StoredNamed {
            blob: number(row, 0)?,
            is_whole: number(row, 1)? == 1,
            name: text(row, 2)?.and_then(|name| name.parse().ok()),
            named: optional(row, 3)?.map(seq),
        });
        Ok(())
    })?;
    Ok(blobs)
}

/// Stores again which event names each blob of a session first. Leaves it as it is if the log is damaged.
pub(crate) fn rebuild(conn: &Connection, tenant: &str, id: SessionId) -> Step<()> {
    let blobs = stored(conn, tenant, id)?;
    if blobs.is_empty() {
        return Ok(());
    }
    let named = Named::of(conn, tenant, id)?;
    if named.damage.is_some() {
        return Ok(());
    }
    for StoredNamed { blob, name, is_whole, .. } in blobs {
        let name = name.filter(|_| is_whole);
        set_named(conn, blob, name.and_then(|name| named.first.get(&name).copied()))?;
    }
    Ok(())
}

/// Part of a removal that one transaction has done.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deleted {
    /// True if anything was deleted.
    pub(crate) any: bool,
    /// True if anything is left to delete.
    pub(crate) is_left: bool,
}

/// Deletes some chunks of the tenant's removed blobs, and the rows of those that have none left.
pub(crate) fn delete(conn: &Connection, tenant: &str) -> Step<Deleted> {
    delete_found(conn, tenant, REMOVED)
}

/// Deletes some chunks of a tenant's blobs, and the rows of those that have none left. The tenant is being deleted, so
/// that nobody sees them any more.
pub(crate) fn delete_any(conn: &Connection, tenant: &str) -> Step<Deleted> {
    delete_found(conn, tenant, ANY)
}

fn delete_found(conn: &Connection, tenant: &str, find: &str) -> Step<Deleted> {
    let (mut rows, mut bytes, mut any) = (ROWS, DELETED_BYTES as u64, false);
    while let Some(blob) = first_number(conn, find, [tenant])? {
        if rows == 0 || bytes == 0 {
            return Ok(Deleted { any, is_left: true });
        }
        let mut last = None;
        each(conn, CHUNKS, [blob], |row| {
            if bytes > 0 {
                last = Some(number(row, 0)?);
                bytes = bytes.saturating_sub(u64::try_from(number(row, 1)?).unwrap_or(0));
            }
            Ok(())
        })?;
        if !any {
            any = true;
            rewrites::mark(conn)?;
        }
        rows -= 1;
        if last.is_some() {
            execute(conn, "DELETE FROM blob_chunks WHERE blob = ? AND n <= ?", params![blob, last])?;
        }
        if first_number(conn, "SELECT 1 FROM blob_chunks WHERE blob = ? LIMIT 1", [blob])?.is_none() {
            execute(conn, "DELETE FROM blobs WHERE blob = ?", [blob])?;
        }
    }
    Ok(Deleted { any, is_left: false })
}

#[cfg(test)]
#[path = "removal_tests.rs"]
mod tests;
