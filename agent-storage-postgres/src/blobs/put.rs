//! Steps of putting a blob: its row, its chunks one by one, and the moment at which it is seen.

use agent_core::model::BlobInfo;
use agent_core::state::SessionState;
use agent_core::{BlobName, Error, SessionId, Timestamp};
use bytes::Bytes;
use sqlx::Row;

use crate::blobs::chunks::{count, row_checksum};
use crate::blobs::removal::names;
use crate::error::{Step, corrupt};
use crate::medium::db::Db;
use crate::medium::rows::int;
use crate::medium::session_rows::owner;
use crate::medium::stored::{Stored, share};

/// Fails if the session is deleted, unless an event that is left names the blob: forks may read it. Returns the owner of
/// the session. If there is none yet, the blob has no owner until the session is created, and nobody sees it: owners who put
/// one blob for one session are not in each other's way.
async fn refuse_deleted(db: &mut Db, id: SessionId, name: BlobName) -> Step<String> {
    let session = match share(db, id).await? {
        Stored::Whole(found) => found.session,
        Stored::Absent => return Ok(String::new()),
        Stored::Broken => return Err(corrupt(&format!("the record of session {id}"), "is damaged").into()),
    };
    if session.status.state == SessionState::Deleted && !names(db, id, name).await? {
        let text =
            format!("session {id} was deleted; it takes no blobs but those that its remaining events name");
        return Err(Error::deleted(text).into());
    }
    Ok(owner(&session).to_owned())
}

/// Error for a put whose row is not there any more.
fn swept_away() -> Error {
    let text = "what was stored of the blob was removed, by a sweep since no part came for an hour, or with its tenant; \
                put it again";
    Error::unavailable(text).timed_out()
}

/// Creates the row of a blob, and returns its number. Content that cannot be published is not read.
pub(crate) async fn begin(db: &mut Db, session: SessionId, info: BlobInfo, now: Timestamp) -> Step<i64> {
    let owner = refuse_deleted(db, session, info.name).await?;
    let name = info.name.to_string();
    let crc = row_checksum(&db.scope.tenant, &session.to_string(), &name, info.bytes);
    let sql = "INSERT INTO @.blobs (tenant, session, owner, state, name, bytes, at, crc) \
        VALUES ($1, $2, $3, 'unfinished', $4, $5, $6, $7) RETURNING blob";
    let insert = db.query(sql).bind(*session.as_uuid()).bind(owner).bind(name);
    let row = db.first(insert.bind(int(info.bytes)).bind(now.as_micros()).bind(crc)).await?;
    Ok(row.ok_or(sqlx::Error::RowNotFound)?.try_get(0)?)
}

/// Stores a chunk. May be repeated.
pub(crate) async fn chunk(
    db: &mut Db,
    blob: i64,
    (index, checksum): (u64, u32),
    bytes: &Bytes,
    now: Timestamp,
) -> Step<()> {
    let sql = "WITH b AS (UPDATE @.blobs SET at = $3 WHERE tenant = $1 AND blob = $2 AND state = 'unfinished' \
        RETURNING blob) INSERT INTO @.blob_chunks (blob, n, crc, data) SELECT b.blob, $4, $5, $6 FROM b \
        ON CONFLICT (blob, n) DO UPDATE SET crc = excluded.crc, data = excluded.data";
    let insert = db.query(sql).bind(blob).bind(now.as_micros()).bind(int(index)).bind(checksum.cast_signed());
    match db.execute(insert.bind(&bytes[..])).await? {
        0 => Err(swept_away().into()),
        _ => Ok(()),
    }
}

/// Makes a blob visible, in place of one that has its name.
pub(crate) async fn publish(db: &mut Db, session: SessionId, info: BlobInfo, blob: i64) -> Step<()> {
    let owner = refuse_deleted(db, session, info.name).await?;
    let sql = "SELECT 1 FROM @.blobs WHERE tenant = $1 AND blob = $2 AND state = 'unfinished' FOR UPDATE";
    if db.first(db.query(sql).bind(blob)).await?.is_none() || count(db, blob).await? != info.chunks() {
        return Err(swept_away().into());
    }
    // What names the blob is read in the log by those who remove blobs, if it was lost.
    let sql = "UPDATE @.blobs SET state = 'removed' WHERE tenant = $1 AND session = $2 AND state = 'whole' AND name = $3 \
        RETURNING named";
    let before = db.first(db.query(sql).bind(*session.as_uuid()).bind(info.name.to_string())).await?;
    let named: Option<i64> = before.map(|row| row.try_get(0)).transpose()?.flatten();
    let sql = "UPDATE @.blobs SET state = 'whole', named = $3, owner = $4 WHERE tenant = $1 AND blob = $2";
    db.execute(db.query(sql).bind(blob).bind(named).bind(owner)).await.map(drop)
}

/// Gives up a put.
pub(crate) async fn discard(db: &mut Db, blob: i64) -> Step<()> {
    let sql = "UPDATE @.blobs SET state = 'removed' WHERE tenant = $1 AND blob = $2 AND state = 'unfinished'";
    db.execute(db.query(sql).bind(blob)).await.map(drop)
}
