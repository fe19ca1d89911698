//! Write-ahead log that a process left behind because it was killed, or because its disk failed.

use std::fs::OpenOptions;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::time::Duration;

use agent_core::Result;
use rusqlite::config::DbConfig;
use rusqlite::{MAIN_DB, OpenFlags};

use crate::error::is_busy;
use crate::medium::{files, path};
use crate::schema::connect::connect;
use crate::schema::tables::check;

/// Number of bytes written at a time.
const CHUNK: usize = 1 << 20;

/// Writes the log beside the database at `path` again, byte for byte, and syncs it, if no process has the database
/// open.
///
/// The system reports a failed sync only once. A COMMIT whose sync failed may have left its transaction whole in the
/// system's memory but not on the disk. The next process that opens the file would take it for durable, sync the log
/// without effect, and begin to move the transaction into the database. If the power failed then, neither file would
/// hold all of it. Bytes that are written again are also synced again. The outer error is SQLite's.
pub(super) fn renew(path: &Path) -> rusqlite::Result<Result<()>> {
    let log = match files::beside(path, "-wal") {
        Ok(log) if files::len(&log).unwrap_or(0) > 0 => log,
        Ok(_) => return Ok(Ok(())),
        Err(error) => return Ok(Err(error)),
    };
    let conn = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    if conn.is_readonly(MAIN_DB)? {
        // Nor will anything be moved into the database.
        return Ok(Ok(()));
    }
    conn.busy_timeout(Duration::ZERO)?;
    // The connection discards what it has read of the log, and moves nothing into the database.
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    conn.execute_batch("PRAGMA locking_mode = EXCLUSIVE")?;
    // From its first read on, this connection is alone. If the file is busy, others have it open and know what was
    // synced.
    match check(&conn, path) {
        Ok(Ok(_)) => {
            Ok(write_again(&log).map_err(|error| path::failed("write again, and sync,", &log, error)))
        }
        // Not a file of this library; opening it reports that.
        Ok(Err(_)) => Ok(Ok(())),
        Err(error) if is_busy(&error) => Ok(Ok(())),
        Err(error) => Err(error),
    }
}

fn write_again(log: &Path) -> io::Result<()> {
    let mut file = OpenOptions::new().read(true).write(true).open(log)?;
    let mut bytes = Vec::new();
    let mut at = 0;
    loop {
        bytes.clear();
        let count = (&mut file).take(CHUNK as u64).read_to_end(&mut bytes)?;
        if count == 0 {
            return file.sync_all();
        }
        file.seek(SeekFrom::Start(at))?;
        file.write_all(&bytes)?;
        at += count as u64;
    }
}
