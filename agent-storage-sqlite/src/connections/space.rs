//! Room on the disk that blobs leave for everything else.

use std::path::Path;

use agent_core::{Error, ErrorKind};
use rusqlite::Connection;

use crate::connections::blob_steps::BlobStep;
use crate::connections::request::Request;
use crate::error::{Fault, Step};
use crate::medium::files;
use crate::medium::rows::first_number;

/// Size of the write-ahead log, in bytes, above which the writer truncates it.
pub(crate) const LOG_BYTES: u64 = 16 << 20;
/// Space that stays free beside the write-ahead log when a blob makes the database larger. What reuses free pages may
/// use it, so that after a put that was refused, text and smaller blobs are stored in the pages which it gave back.
const KEPT_BYTES: u64 = 4 << 20;

/// Space that the chunks of a transaction may still use.
///
/// A full disk is worse than a refused blob: to delete anything, SQLite first writes to its log, and it writes the log
/// from its start again only when the database has grown by all that is in the log.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Room(Option<Left>);

#[derive(Clone, Copy, Debug)]
struct Left {
    /// Free bytes, without those that the log needs, and those by which the database is going to grow.
    free: u64,
    /// Bytes of free pages in the database.
    spare: u64,
}

impl Room {
    /// Takes the room of a request inside its transaction. Fails with `Full` if it is a chunk of a blob, and too little is
    /// left. `log` is the path of the write-ahead log.
    pub(crate) fn take(&mut self, conn: &Connection, path: &Path, log: &Path, request: &Request) -> Step<()> {
        let Request::Blob(BlobStep::Chunk { bytes, .. }) = request else { return Ok(()) };
        let left = match &mut self.0 {
            Some(left) => left,
            None => self.0.insert(measure(conn, path, log)?),
        };
        // Once for the log, and once for the database.
        let bytes = 2 * bytes.len() as u64;
        let growth = bytes.saturating_sub(left.spare);
        let due = if growth > 0 { growth + KEPT_BYTES } else { 0 };
        if left.free <= due {
            let text = format!(
                "cannot write a blob to {}: too little space is left, and the rest is kept for text and for removals; \
                 make room, then put it again",
                path.display()
            );
            return Err(Error::new(ErrorKind::Full, text).into());
        }
        left.spare = left.spare.saturating_sub(bytes);
        left.free -= growth;
        Ok(())
    }
}

fn measure(conn: &Connection, path: &Path, log: &Path) -> Step<Left> {
    let number = |sql| {
        let found = first_number(conn, sql, []).map_err(Fault::Sql)?;
        Ok::<_, Fault>(found.and_then(|found| u64::try_from(found).ok()).unwrap_or(0))
    };
    let page = number("PRAGMA page_size")?;
    let size = page * number("PRAGMA page_count")?;
    let growth = size.saturating_sub(files::len(path).unwrap_or(0));
    let log = LOG_BYTES.saturating_sub(files::len(log).unwrap_or(0));
    let free = free_bytes(path).saturating_sub(log).min(growth_limit(path));
    Ok(Left { free: free.saturating_sub(growth), spare: page * number("PRAGMA freelist_count")? })
}

/// Returns the free space of the file system of `path`; the largest number if the system does not say. Some network
/// file systems state that they have no blocks at all.
#[cfg(unix)]
fn free_bytes(path: &Path) -> u64 {
    rustix::fs::statvfs(path)
        .ok()
        .filter(|stat| stat.f_blocks > 0)
        .map_or(u64::MAX, |stat| stat.f_bavail.saturating_mul(stat.f_frsize))
}

/// Returns the number of bytes by which the system lets the file at `path` grow.
#[cfg(unix)]
fn growth_limit(path: &Path) -> u64 {
    let most = rustix::process::getrlimit(rustix::process::Resource::Fsize).current.unwrap_or(u64::MAX);
    most.saturating_sub(files::len(path).unwrap_or(0))
}

#[cfg(not(unix))]
fn free_bytes(_: &Path) -> u64 {
    u64::MAX
}

#[cfg(not(unix))]
fn growth_limit(_: &Path) -> u64 {
    u64::MAX
}
