//! Blobs: a row for each, and a row for each of its chunks. What a commit checks and changes in its transaction, and what
//! a reader finds.
//!
//! A blob is `unfinished` while it is put, then `whole`. A `removed` one is seen by nobody; its chunks are deleted a few
//! at a time, so that no transaction is large.

use agent_core::event::Event;
use agent_core::model::{BlobInfo, NeededBlob};
use agent_core::store::{BlobChunk, BlobQuery, Damaged, Page};
use agent_core::{BlobName, Error, ErrorKind, Result, SessionId};
use bytes::Bytes;
use rusqlite::{Connection, Row, params};

use crate::error::{Fault, Step};
use crate::medium::rows::{checksum, execute, first, first_number, int, number, optional, text};

/// Finds a visible blob.
pub(crate) const FIND: &str = "SELECT name, bytes, crc, blob, named FROM blobs \
    WHERE tenant = ? AND session = ? AND state = 'whole' AND name = ?";
/// Counts the chunks of a blob in the index of the key, without their bytes.
pub(crate) const COUNT: &str = "SELECT count(*) FROM blob_chunks WHERE blob = ? AND n < ?";
/// Stores which event names a blob first.
pub(crate) const NOTE: &str = "UPDATE blobs SET named = ?1 WHERE tenant = ?2 AND session = ?3 AND state = 'whole' \
    AND name = ?4 AND (named IS NULL OR named > ?1)";
/// Reads a chunk of a visible blob.
pub(crate) const CHUNK: &str = "SELECT blob_chunks.crc, data FROM blob_chunks JOIN blobs USING (blob) \
    WHERE blob = ? AND n = ? AND tenant = ? AND state = 'whole'";
/// Reads the visible blobs of a session, in order.
pub(crate) const LIST: &str = "SELECT name, bytes, crc FROM blobs \
    WHERE tenant = ? AND session = ? AND state = 'whole' AND name > ? ORDER BY name";

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
    let (session, name) = (session.to_string(), name.to_string());
    first(conn, FIND, params![tenant, session, name], |row| {
        let info = info(row, tenant, &session)?;
        Ok(StoredBlob { blob: number(row, 3)?, info, named: optional(row, 4)? })
    })
}

/// What mends a damaged blob.
pub(crate) const REMEDY: &str = "put the blob again, or restore the file from a backup";

/// Error for a blob whose rows are damaged.
fn damaged(name: &str, session: &str, what: &str) -> Error {
    Error::corrupt(format!("blob {name} of session {session} {what}; {REMEDY}"))
}

/// Reads name and size of a blob from the columns `name`, `bytes` and `crc`.
fn info(row: &Row<'_>, tenant: &str, session: &str) -> Step<BlobInfo> {
    let name = text(row, 0)?.unwrap_or_default();
    let damaged = || damaged(name, session, "has a row that does not fit its checksum");
    let bytes = u64::try_from(number(row, 1)?).map_err(|_| damaged())?;
    if row_checksum(tenant, session, name, bytes) != number(row, 2)? {
        return Err(damaged().into());
    }
    Ok(BlobInfo::new(name.parse()?, bytes))
}

/// Returns the result for a blob whose row may be damaged; `None` if it is.
pub(crate) fn if_sound<T>(found: Step<Option<T>>) -> Step<Option<T>> {
    match found {
        Err(Fault::Refused(error)) if *error.kind() == ErrorKind::Corrupt => Ok(None),
        found => found,
    }
}

/// Returns whether all chunks of a blob are there. Reads an index, and none of the bytes.
pub(crate) fn is_complete(conn: &Connection, stored: &StoredBlob) -> Step<bool> {
    let chunks = int(stored.info.chunks());
    Ok(first_number(conn, COUNT, params![stored.blob, chunks])? == Some(chunks))
}

/// Checks that the blobs are there that a commit names. A damaged one is not: its writer is told to put it again.
pub(crate) fn require(conn: &Connection, tenant: &str, id: SessionId, needed: &[NeededBlob]) -> Step<()> {
    NeededBlob::check(id, needed, |name| {
        let Some(stored) = if_sound(find(conn, tenant, id, name))? else { return Ok(None) };
        Ok(is_complete(conn, &stored)?.then_some(stored.info.bytes))
    })
}

/// Stores for each blob which event names it first.
pub(crate) fn note_named(conn: &Connection, tenant: &str, id: SessionId, events: &[Event]) -> Step<()> {
    for event in events {
        for name in &event.blobs {
            execute(conn, NOTE, params![int(event.seq.get()), tenant, id.to_string(), name.to_string()])?;
        }
    }
    Ok(())
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
    let read = |blob: i64| {
        first(conn, CHUNK, params![blob, int(index), tenant], |row| {
            let bytes =
                row.get_ref(1)?.as_blob().map_err(rusqlite::Error::from).map(Bytes::copy_from_slice)?;
            Ok(BlobChunk::new(bytes, Some(u32::try_from(number(row, 0)?).unwrap_or(0))))
        })
    };
    if let Some(chunk) = read(found.blob)? {
        return Ok(chunk);
    }
    let Some(now) = find(conn, tenant, session, found.info.name)? else {
        let name = found.info.name;
        let text = format!(
            "blob {name} of session {session} was removed while it was read; put it again to read it"
        );
        return Err(Error::not_found(text).into());
    };
    read(now.blob)?.ok_or_else(|| {
        damaged(&found.info.name.to_string(), &session.to_string(), &format!("has no chunk {index}")).into()
    })
}

/// Reads a page of the visible blobs of a session. A damaged row is listed as damaged.
pub(crate) fn list(conn: &Connection, tenant: &str, query: &BlobQuery) -> Step<Result<Page<BlobInfo>>> {
    let after = match query.after() {
        Ok(after) => after.map(|name| name.to_string()).unwrap_or_default(),
        Err(error) => return Ok(Err(error)),
    };
    let (session, mut found, mut bad) = (query.session.to_string(), Vec::new(), Vec::new());
    let mut statement = conn.prepare_cached(LIST)?;
    let mut rows = statement.query(params![tenant, session, after])?;
    // One more shows that there is another page, on which the damaged rows before it are listed.
    while found.len() <= query.limit
        && let Some(row) = rows.next()?
    {
        match info(row, tenant, &session) {
            Ok(info) => found.push(info),
            Err(Fault::Refused(error)) => {
                let object = format!("blob {} of session {session}", text(row, 0)?.unwrap_or("?"));
                bad.push((found.len(), Damaged::of(object, &error)));
            }
            Err(fault) => return Err(fault),
        }
    }
    let is_last = found.len() <= query.limit;
    Ok(query.page(found).map(|mut page| {
        let bad = bad.into_iter().filter(|(before, _)| is_last || *before < query.limit);
        page.damaged.extend(bad.map(|(_, damaged)| damaged));
        page
    }))
}
