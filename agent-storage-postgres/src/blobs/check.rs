//! Check of the rows of blobs without their bytes, which a reader checks.

use agent_core::BlobName;
use agent_core::model::{BLOB_CHUNK_BYTES, BlobInfo};
use sqlx::Row;
use sqlx::types::Uuid;

use crate::blobs::chunks::{REMEDY, row_checksum};
use crate::error::Step;
use crate::medium::db::Db;
use crate::medium::rows::int;

/// Reads the rows of all whole blobs with the chunks that each has, and how many of them have the length that they should
/// have. The length of a chunk is read without the chunk.
const ROWS: &str = "SELECT b.session, b.name, b.bytes, b.crc, b.named, count(c.n), \
    count(c.n) FILTER (WHERE octet_length(c.data) = least($2, b.bytes - c.n * $2)) \
    FROM @.blobs b LEFT JOIN @.blob_chunks c ON c.blob = b.blob WHERE b.tenant = $1 AND b.state = 'whole' \
    GROUP BY b.blob ORDER BY b.session, b.name";

/// Reports damaged rows of the tenant's blobs, at most `most`.
pub(crate) async fn check(db: &mut Db, most: usize, found: &mut Vec<String>) -> Step<()> {
    let limit = found.len() + most;
    for row in db.rows(db.query(ROWS).bind(int(BLOB_CHUNK_BYTES as u64))).await? {
        let session = row.try_get::<Uuid, _>(0)?.to_string();
        let (name, bytes, crc): (&str, i64, i32) = (row.try_get(1)?, row.try_get(2)?, row.try_get(3)?);
        let (chunks, sound): (i64, i64) = (row.try_get(5)?, row.try_get(6)?);
        let fits = u64::try_from(bytes)
            .ok()
            .filter(|bytes| row_checksum(&db.scope.tenant, &session, name, *bytes) == crc);
        let info = fits.and_then(|bytes| Some(BlobInfo::new(name.parse::<BlobName>().ok()?, bytes)));
        let what = match info.map(|info| int(info.chunks())) {
            None => "has a row that does not fit its checksum".to_owned(),
            Some(due) if chunks < due => format!("has {chunks} of {due} chunks"),
            Some(due) if (chunks, sound) != (due, due) => {
                "has chunks of another number or length than its row says".to_owned()
            }
            Some(_) => continue,
        };
        if found.len() < limit {
            found.push(format!("blob {name} of session {session} {what}; {REMEDY}"));
        }
    }
    Ok(())
}
