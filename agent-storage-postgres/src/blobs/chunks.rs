//! Blobs: a row for each, and a row for each of its chunks. What a commit needs, and what a reader finds.
//!
//! A blob is `unfinished` while it is put, then `whole`. A `removed` one is seen by nobody; its chunks are deleted a few
//! at a time, so that no transaction is large.

use std::collections::HashMap;

use agent_core::model::{BlobInfo, NeededBlob};
use agent_core::store::{BlobChunk, BlobQuery, Damaged, Page};
use agent_core::{BlobName, Error, ErrorKind, SessionId};
use bytes::Bytes;
use sqlx::Row;
use sqlx::postgres::PgRow;

use crate::error::{Fault, Step};
use crate::medium::db::Db;
use crate::medium::rows::{checksum, int};

/// Returns the checksum of the row of a blob, over what never changes.
pub(crate) fn row_checksum(tenant: &str, session: &str, name: &str, bytes: u64) -> i32 {
    checksum(&[tenant, session, name, &bytes.to_string()])
}

/// Visible blob.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StoredBlob {
    pub(crate) blob: i64,
    pub(crate) info: BlobInfo,
}

/// Finds a visible blob of a session.
pub(crate) async fn find(db: &mut Db, session: SessionId, name: BlobName) -> Step<Option<StoredBlob>> {
    let sql = "SELECT name, bytes, crc, blob FROM @.blobs \
        WHERE tenant = $1 AND session = $2 AND state = 'whole' AND name = $3";
    let row = db.first(db.query(sql).bind(*session.as_uuid()).bind(name.to_string())).await?;
    let Some(row) = row else { return Ok(None) };
    let info = info(&row, &db.scope.tenant, &session.to_string())?;
    Ok(Some(StoredBlob { blob: row.try_get(3)?, info }))
}

/// What mends a damaged blob.
pub(crate) const REMEDY: &str = "put the blob again, or restore the database from a backup";

/// Error for a blob whose rows are damaged.
fn damaged(name: &str, session: &str, what: &str) -> Error {
    Error::corrupt(format!("blob {name} of session {session} {what}; {REMEDY}"))
}

/// Reads name and size of a blob from the columns `name`, `bytes` and `crc`.
fn info(row: &PgRow, tenant: &str, session: &str) -> Step<BlobInfo> {
    let (name, bytes, crc): (&str, i64, i32) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
    let damaged = || damaged(name, session, "has a row that does not fit its checksum");
    let bytes = u64::try_from(bytes).map_err(|_| damaged())?;
    if row_checksum(tenant, session, name, bytes) != crc {
        return Err(damaged().into());
    }
    Ok(BlobInfo::new(name.parse()?, bytes))
}

/// Returns the number of chunks of a blob, without their bytes.
pub(crate) async fn count(db: &mut Db, blob: i64) -> Step<u64> {
    let sql = "SELECT count(*) FROM @.blob_chunks WHERE blob = $1";
    let row = db.first(db.of_all(sql).bind(blob)).await?;
    let count: i64 = row.map(|row| row.try_get(0)).transpose()?.unwrap_or(0);
    Ok(u64::try_from(count).unwrap_or(0))
}

/// Checks that the blobs are there that a commit names. A damaged one is not: its writer is told to put it again.
pub(crate) async fn require(db: &mut Db, id: SessionId, needed: &[NeededBlob]) -> Step<()> {
    let mut sizes = HashMap::new();
    for blob in needed {
        let stored = match find(db, id, blob.name).await {
            Err(Fault::Refused(error)) if *error.kind() == ErrorKind::Corrupt => None,
            found => found?,
        };
        if let Some(stored) = stored
            && count(db, stored.blob).await? == stored.info.chunks()
        {
            sizes.insert(blob.name, stored.info.bytes);
        }
    }
    NeededBlob::check(id, needed, |name| Ok::<_, Error>(sizes.get(&name).copied()))?;
    Ok(())
}

/// Reads the chunk `index` of a blob. If the blob was put again since it was found, reads that of the new one, which
/// has the same bytes.
pub(crate) async fn chunk(db: &mut Db, session: SessionId, found: StoredBlob, index: u64) -> Step<BlobChunk> {
    if let Some(chunk) = visible(db, found.blob, index).await? {
        return Ok(chunk);
    }
    let name = found.info.name;
    let Some(now) = find(db, session, name).await? else {
        let text = format!(
            "blob {name} of session {session} was removed while it was read; put it again to read it"
        );
        return Err(Error::not_found(text).into());
    };
    let chunk = visible(db, now.blob, index).await?;
    let what = format!("has no chunk {index}");
    chunk.ok_or_else(|| damaged(&name.to_string(), &session.to_string(), &what).into())
}

async fn visible(db: &mut Db, blob: i64, index: u64) -> Step<Option<BlobChunk>> {
    let sql = "SELECT c.crc, c.data FROM @.blob_chunks c JOIN @.blobs b USING (blob) \
        WHERE b.tenant = $1 AND b.state = 'whole' AND c.blob = $2 AND c.n = $3";
    let Some(row) = db.first(db.query(sql).bind(blob).bind(int(index))).await? else { return Ok(None) };
    let crc: i32 = row.try_get(0)?;
    Ok(Some(BlobChunk::new(Bytes::from(row.try_get::<Vec<u8>, _>(1)?), Some(crc.cast_unsigned()))))
}

/// Reads a page of the visible blobs of a session. A damaged row is listed as damaged.
pub(crate) async fn list(db: &mut Db, query: &BlobQuery) -> Step<Page<BlobInfo>> {
    let after = query.after()?.map(|name| name.to_string()).unwrap_or_default();
    let session = query.session.to_string();
    let (mut after, mut found, mut bad, mut is_end) = (after, Vec::new(), Vec::new(), false);
    let sql = "SELECT name, bytes, crc FROM @.blobs \
        WHERE tenant = $1 AND session = $2 AND state = 'whole' AND name > $3 ORDER BY name LIMIT $4";
    // One more shows that there is another page, on which the damaged rows before it are listed.
    while found.len() <= query.limit && !is_end {
        let most = query.limit + 1;
        let statement =
            db.query(sql).bind(*query.session.as_uuid()).bind(after.clone()).bind(int(most as u64));
        let rows = db.rows(statement).await?;
        is_end = rows.len() < most;
        for row in rows.iter().take(most - found.len()) {
            row.try_get::<&str, _>(0)?.clone_into(&mut after);
            match info(row, &db.scope.tenant, &session) {
                Ok(info) => found.push(info),
                Err(Fault::Refused(error)) => {
                    let object = format!("blob {after} of session {session}");
                    bad.push((found.len(), Damaged::of(object, &error)));
                }
                Err(fault) => return Err(fault),
            }
        }
    }
    let is_last = found.len() <= query.limit;
    let mut page = query.page(found)?;
    let bad = bad.into_iter().filter(|(before, _)| is_last || *before < query.limit);
    page.damaged.extend(bad.map(|(_, damaged)| damaged));
    Ok(page)
}
