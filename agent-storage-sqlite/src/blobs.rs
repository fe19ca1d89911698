//! Blobs: a row for each, and a row for each of its chunks. What a put, a commit, a sweep and a purge change in a
//! transaction, and what a reader finds.
//!
//! A blob is `unfinished` while it is put, then `whole`. A `removed` one is seen by nobody; its chunks are deleted a few
//! at a time, so that no transaction is large.

use std::collections::HashMap;

use agent_core::event::Event;
use agent_core::model::{BlobInfo, NeededBlob};
use agent_core::store::{BlobChunk, BlobQuery, Page, SweepBlobs, SweptBlobs};
use agent_core::{BlobName, Error, ErrorKind, Result, Seq, SessionId, Timestamp};
use bytes::Bytes;
use rusqlite::{Connection, Row, params};

use crate::error::{Step, corrupt};
use crate::rows::{checksum, each, execute, first, first_number, int, number, optional, text};
use crate::stored;

/// Number of chunks that one transaction deletes.
const CHUNKS: i64 = 16;
/// Time after its last chunk, in microseconds, at which a put that did not end counts as given up.
const GIVEN_UP: i64 = 3_600_000_000;

/// Returns the checksum of the row of a blob, over what never changes.
pub(crate) fn row_checksum(tenant: &str, session: &str, name: &str, bytes: u64) -> i64 {
    checksum(&[tenant, session, name, &bytes.to_string()])
}

/// Visible blob.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StoredBlob {
    pub(crate) blob: i64,
    pub(crate) info: BlobInfo,
    pub(crate) named: Option<i64>,
}

/// Finds a visible blob of a session.
pub(crate) fn find(
    conn: &Connection,
    tenant: &str,
    session: SessionId,
    name: BlobName,
) -> Step<Option<StoredBlob>> {
    let sql = "SELECT name, bytes, crc, blob, named FROM blobs \
        WHERE tenant = ? AND session = ? AND state = 'whole' AND name = ?";
    let (session, name) = (session.to_string(), name.to_string());
    first(conn, sql, params![tenant, session, name], |row| {
        let info = info(row, tenant, &session)?;
        Ok(StoredBlob { blob: number(row, 3)?, info, named: optional(row, 4)? })
    })
}

/// Reads name and size of a blob from the columns `name`, `bytes` and `crc`.
fn info(row: &Row<'_>, tenant: &str, session: &str) -> Step<BlobInfo> {
    let damaged = || corrupt(&format!("the row of a blob of session {session}"), "does not fit its checksum");
    let name = text(row, 0)?.unwrap_or_default();
    let bytes = u64::try_from(number(row, 1)?).map_err(|_| damaged())?;
    if row_checksum(tenant, session, name, bytes) != number(row, 2)? {
        return Err(damaged().into());
    }
    Ok(BlobInfo::new(name.parse()?, bytes))
}

/// Returns whether all chunks of a blob are there. Reads an index, and none of the bytes.
pub(crate) fn is_complete(conn: &Connection, stored: &StoredBlob) -> Step<bool> {
    let sql = "SELECT count(*) FROM blob_chunks WHERE blob = ? AND n < ?";
    let chunks = int(stored.info.chunks());
    Ok(first_number(conn, sql, params![stored.blob, chunks])? == Some(chunks))
}

/// Checks that the blobs are there that a commit names.
pub(crate) fn require(conn: &Connection, tenant: &str, id: SessionId, needed: &[NeededBlob]) -> Step<()> {
    NeededBlob::check(id, needed, |name| {
        let Some(stored) = find(conn, tenant, id, name)? else { return Ok(None) };
        Ok(is_complete(conn, &stored)?.then_some(stored.info.bytes))
    })
}

/// Stores for each blob which event names it first.
pub(crate) fn note_named(conn: &Connection, tenant: &str, id: SessionId, events: &[Event]) -> Step<()> {
    for event in events {
        for name in &event.blobs {
            let sql = "UPDATE blobs SET named = ?1 WHERE tenant = ?2 AND session = ?3 AND state = 'whole' \
                AND name = ?4 AND (named IS NULL OR named > ?1)";
            execute(conn, sql, params![int(event.seq.get()), tenant, id.to_string(), name.to_string()])?;
        }
    }
    Ok(())
}

/// Condition of the rows of blobs of ids without a session.
const WITHOUT_SESSION: &str = "NOT EXISTS (SELECT 1 FROM logs WHERE logs.tenant = blobs.tenant \
    AND logs.session = blobs.session) AND NOT EXISTS (SELECT 1 FROM tombstones \
    WHERE tombstones.tenant = blobs.tenant AND tombstones.session = blobs.session)";

pub(crate) fn sweep(conn: &Connection, tenant: &str, sweep: SweepBlobs, now: Timestamp) -> Step<SweptBlobs> {
    let (mut gone, mut swept) = (Vec::new(), SweptBlobs::default());
    let scope = if sweep.session.is_some() { "session = ?2" } else { WITHOUT_SESSION };
    let session = sweep.session.map(|id| id.to_string());
    let sql = format!(
        "SELECT blob, name, bytes, state = 'whole', at < ?3, ifnull((SELECT sum(octet_length(data)) FROM blob_chunks \
         WHERE blob_chunks.blob = blobs.blob AND state <> 'whole'), 0), ?2 FROM blobs \
         WHERE tenant = ?1 AND {scope} AND (state = 'unfinished' OR (state = 'whole' AND named IS NULL))"
    );
    let given_up = now.as_micros().saturating_sub(GIVEN_UP);
    each(conn, &sql, params![tenant, session, given_up], |row| {
        let count = |column| Ok::<_, rusqlite::Error>(u64::try_from(number(row, column)?).unwrap_or(0));
        let (is_whole, is_given_up) = (number(row, 3)? == 1, number(row, 4)? == 1);
        if is_whole || is_given_up {
            let bytes = if is_whole { count(2)? } else { count(5)? };
            gone.push((number(row, 0)?, is_whole, text(row, 1)?.unwrap_or_default().to_owned(), bytes));
        } else {
            swept.unfinished += count(5)?;
        }
        Ok(())
    })?;
    if let Some(id) = sweep.session
        && gone.iter().any(|(_, is_whole, ..)| *is_whole)
    {
        let named = named(conn, tenant, id)?;
        for (_, _, name, _) in gone.extract_if(.., |(_, is_whole, name, _)| {
            *is_whole && name.parse::<BlobName>().is_ok_and(|name| named.contains_key(&name))
        }) {
            let seq = name.parse::<BlobName>().ok().and_then(|name| named.get(&name).copied());
            if !sweep.dry_run {
                let sql = "UPDATE blobs SET named = ? WHERE tenant = ? AND session = ? AND state = 'whole' AND name = ?";
                execute(conn, sql, params![seq.map(|seq| int(seq.get())), tenant, session, name])?;
            }
        }
    }
    for (blob, _, _, bytes) in gone {
        swept += SweptBlobs::new(1, bytes);
        if !sweep.dry_run {
            execute(conn, "UPDATE blobs SET state = 'removed' WHERE blob = ?", [blob])?;
        }
    }
    Ok(swept)
}

/// Returns the blobs that the events of a session's log name, each with the first such event.
fn named(conn: &Connection, tenant: &str, id: SessionId) -> Step<HashMap<BlobName, Seq>> {
    let Some(log) = stored::log(conn, tenant, id)? else { return Ok(HashMap::new()) };
    let (mut named, mut before, session) = (HashMap::new(), None::<Seq>, id.to_string());
    each(conn, "SELECT seq, crc, json FROM events WHERE log = ? ORDER BY seq", [log], |row| {
        let event = stored::event(row, 0, tenant, &session)??;
        if before.is_some_and(|before| before.next() != event.seq) {
            return Err(
                corrupt(&format!("event {} of session {id}", event.seq), "follows missing events").into()
            );
        }
        before = Some(event.seq);
        for name in event.blobs {
            named.entry(name).or_insert(event.seq);
        }
        Ok(())
    })?;
    Ok(named)
}

/// Takes the blobs of a session out of sight that no event up to `keep` names, with the unfinished ones.
pub(crate) fn purge(conn: &Connection, tenant: &str, id: SessionId, keep: i64) -> Step<()> {
    let session = id.to_string();
    let sql =
        "SELECT 1 FROM blobs WHERE tenant = ? AND session = ? AND state = 'whole' AND named IS NULL LIMIT 1";
    if keep > 0 && first_number(conn, sql, params![tenant, session])?.is_some() {
        // Of a blob that was put again in place of a damaged row, only the log says which event names it.
        for (name, seq) in named(conn, tenant, id)? {
            let sql = "UPDATE blobs SET named = ? WHERE tenant = ? AND session = ? AND state = 'whole' AND name = ?";
            execute(conn, sql, params![int(seq.get()), tenant, session, name.to_string()])?;
        }
    }
    let sql = "UPDATE blobs SET state = 'removed' WHERE tenant = ? AND session = ? AND state <> 'removed' \
        AND (state = 'unfinished' OR named IS NULL OR named > ?)";
    execute(conn, sql, params![tenant, session, keep])?;
    Ok(())
}

/// Deletes some chunks of the tenant's removed blobs, and the rows of those that have none left. Returns whether any are
/// left.
pub(crate) fn delete(conn: &Connection, tenant: &str) -> Step<bool> {
    let sql = "DELETE FROM blob_chunks WHERE rowid IN (SELECT blob_chunks.rowid FROM blobs \
        JOIN blob_chunks USING (blob) WHERE tenant = ? AND state = 'removed' LIMIT ?)";
    if execute(conn, sql, params![tenant, CHUNKS])? as i64 == CHUNKS {
        return Ok(true);
    }
    execute(conn, "DELETE FROM blobs WHERE tenant = ? AND state = 'removed'", [tenant])?;
    Ok(false)
}

/// Takes all blobs of a tenant out of sight, which is being deleted, and deletes some of their chunks. Returns whether
/// any are left.
pub(crate) fn remove_tenant(conn: &Connection, tenant: &str) -> Step<bool> {
    execute(conn, "UPDATE blobs SET state = 'removed' WHERE tenant = ? AND state <> 'removed'", [tenant])?;
    delete(conn, tenant)
}

/// Reads the chunk `index` of a blob. If the blob was put again since it was found, reads that of the new one, which
/// has the same bytes.
pub(crate) fn chunk(
    conn: &Connection,
    tenant: &str,
    session: SessionId,
    found: StoredBlob,
    index: u64,
) -> Step<BlobChunk> {
    let sql = "SELECT blob_chunks.crc, data FROM blob_chunks JOIN blobs USING (blob) WHERE blob = ? AND n = ? AND state = 'whole'";
    let read = |blob: i64| {
        first(conn, sql, params![blob, int(index)], |row| {
            let bytes =
                row.get_ref(1)?.as_blob().map_err(rusqlite::Error::from).map(Bytes::copy_from_slice)?;
            Ok(BlobChunk::new(bytes, Some(u32::try_from(number(row, 0)?).unwrap_or(0))))
        })
    };
    if let Some(chunk) = read(found.blob)? {
        return Ok(chunk);
    }
    let Some(now) = find(conn, tenant, session, found.info.name)? else {
        let text = format!("blob {} of session {session} was removed while it was read", found.info.name);
        return Err(Error::new(ErrorKind::NotFound, text).into());
    };
    read(now.blob)?.ok_or_else(|| {
        let what = format!("has no chunk {index}; put the blob again, or restore the file from a backup");
        corrupt(&format!("blob {} of session {session}", found.info.name), &what).into()
    })
}

/// Reads a page of the visible blobs of a session.
pub(crate) fn list(conn: &Connection, tenant: &str, query: &BlobQuery) -> Step<Result<Page<BlobInfo>>> {
    let after = match query.after() {
        Ok(after) => after.map(|name| name.to_string()).unwrap_or_default(),
        Err(error) => return Ok(Err(error)),
    };
    let (session, mut found) = (query.session.to_string(), Vec::new());
    let sql = "SELECT name, bytes, crc FROM blobs WHERE tenant = ? AND session = ? AND state = 'whole' AND name > ? \
        ORDER BY name LIMIT ?";
    // One more shows that there is another page.
    each(conn, sql, params![tenant, session, after, int(query.limit as u64 + 1)], |row| {
        found.push(info(row, tenant, &session)?);
        Ok(())
    })?;
    Ok(query.page(found))
}
