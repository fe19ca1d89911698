//! Steps of putting and removing blobs, each a request to the writer.

use std::sync::Arc;

use agent_core::model::BlobInfo;
use agent_core::state::SessionState;
use agent_core::store::{SweepBlobs, SweptBlobs};
use agent_core::{BlobName, Error, SessionId, Timestamp};
use bytes::Bytes;
use rusqlite::{Connection, params};

use crate::blobs::chunks::{StoredBlob, find, if_sound, is_complete, row_checksum};
use crate::blobs::removal::{DELETED_BYTES, Deleted, delete, names, sweep};
use crate::error::Step;
use crate::log::commit::current;
use crate::medium::known::Known;
use crate::medium::rows::{execute, first_number, int};

/// Part of a put, or of a removal, that the writer does in one transaction.
#[derive(Debug)]
pub(crate) enum BlobStep {
    /// Creates the row of a blob; the answer is its number.
    Begin(SessionId, BlobInfo, Timestamp),
    /// Stores the chunk with this index.
    Chunk {
        session: SessionId,
        name: BlobName,
        blob: i64,
        index: u64,
        checksum: u32,
        bytes: Bytes,
        at: Timestamp,
    },
    /// Makes a blob visible, in place of one that has its name.
    Publish(SessionId, BlobInfo, i64),
    /// Gives up a put.
    Discard(i64),
    /// Takes blobs that no event names out of sight.
    Sweep(SweepBlobs, Timestamp),
    /// Deletes some of the chunks of removed blobs.
    Delete,
}

/// Result of a [`BlobStep`].
#[derive(Clone, Copy, Debug)]
pub(crate) enum BlobAnswer {
    Begun(i64),
    Swept(SweptBlobs),
    Deleted(Deleted),
    Done,
}

impl BlobStep {
    pub(crate) fn size_bytes(&self) -> usize {
        match self {
            Self::Chunk { bytes, .. } => bytes.len(),
            Self::Delete => DELETED_BYTES,
            _ => 0,
        }
    }

    pub(crate) fn run(&self, conn: &Connection, known: &Known, tenant: &Arc<str>) -> Step<BlobAnswer> {
        match self {
            Self::Begin(session, blob, at) => {
                // Content that cannot be published is not read.
                refuse_deleted(conn, known, tenant, *session, blob.name)?;
                let (session, name) = (session.to_string(), blob.name.to_string());
                let crc = row_checksum(tenant, &session, &name, blob.bytes);
                let sql = "INSERT INTO blobs (tenant, session, state, name, bytes, at, crc) \
                    VALUES (?, ?, 'unfinished', ?, ?, ?, ?)";
                execute(conn, sql, params![&**tenant, session, name, int(blob.bytes), at.as_micros(), crc])?;
                return Ok(BlobAnswer::Begun(conn.last_insert_rowid()));
            }
            Self::Chunk { session, name, blob, index, checksum, bytes, at } => {
                refuse_deleted(conn, known, tenant, *session, *name)?;
                let sql = "UPDATE blobs SET at = ? WHERE blob = ? AND state = 'unfinished'";
                if execute(conn, sql, params![at.as_micros(), blob])? == 0 {
                    return Err(swept_away().into());
                }
                let sql = "INSERT OR REPLACE INTO blob_chunks (blob, n, crc, data) VALUES (?, ?, ?, ?)";
                execute(conn, sql, params![blob, int(*index), checksum, &**bytes])?;
            }
            Self::Publish(session, info, blob) => publish(conn, known, tenant, *session, *info, *blob)?,
            Self::Discard(blob) => {
                let sql = "UPDATE blobs SET state = 'removed' WHERE blob = ? AND state = 'unfinished'";
                execute(conn, sql, [blob])?;
            }
            Self::Sweep(request, now) => {
                if let Some(id) = request.session {
                    // Rebuilds a damaged record, and fails if the log does not end where it did.
                    current(conn, known, tenant, id)?;
                }
                return Ok(BlobAnswer::Swept(sweep(conn, tenant, *request, *now)?));
            }
            Self::Delete => return Ok(BlobAnswer::Deleted(delete(conn, tenant)?)),
        }
        Ok(BlobAnswer::Done)
    }
}

/// Error for a put whose row is not there any more.
fn swept_away() -> Error {
    let text = "what was stored of the blob was removed, by a sweep since no part came for an hour, or with its tenant; \
                put it again";
    Error::unavailable(text).timed_out()
}

/// Fails if the session is deleted, unless an event that is left names the blob: forks may read it.
fn refuse_deleted(
    conn: &Connection,
    known: &Known,
    tenant: &Arc<str>,
    id: SessionId,
    name: BlobName,
) -> Step<()> {
    let now = current(conn, known, tenant, id)?;
    let is_deleted = now.is_some_and(|now| now.session.status.state == SessionState::Deleted);
    if is_deleted && !names(conn, tenant, id, name)? {
        let text =
            format!("session {id} was deleted; it takes no blobs but those that its remaining events name");
        return Err(Error::deleted(text).into());
    }
    Ok(())
}

fn publish(
    conn: &Connection,
    known: &Known,
    tenant: &Arc<str>,
    id: SessionId,
    info: BlobInfo,
    blob: i64,
) -> Step<()> {
    refuse_deleted(conn, known, tenant, id, info.name)?;
    let stored = StoredBlob { blob, info, named: None };
    let sql = "SELECT 1 FROM blobs WHERE blob = ? AND state = 'unfinished'";
    if first_number(conn, sql, [blob])?.is_none() || !is_complete(conn, &stored)? {
        return Err(swept_away().into());
    }
    // A damaged row does not say which event names the blob. Who removes blobs reads that in the log.
    let before = if_sound(find(conn, tenant, id, info.name))?;
    let sql = "UPDATE blobs SET state = 'removed' WHERE tenant = ? AND session = ? AND state = 'whole' AND name = ?";
    execute(conn, sql, params![&**tenant, id.to_string(), info.name.to_string()])?;
    let sql = "UPDATE blobs SET state = 'whole', named = ? WHERE blob = ?";
    execute(conn, sql, params![before.and_then(|before| before.named), blob])?;
    Ok(())
}
