//! SQLite databases of other programs, which are only read.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use agent_core::{Error, ErrorKind, Result};
use rusqlite::limits::Limit;
use rusqlite::{Connection, OpenFlags};

use crate::lines;

/// First bytes of every SQLite database.
const MAGIC: &[u8; 16] = b"SQLite format 3\0";

/// Maximum number of bytes of a value. Queries leave a larger one in the database.
pub(crate) const VALUE_MAX_BYTES: i64 = 16 << 20;
/// Number of bytes of a value or a row above which a query fails, which it does not by the length of a value alone.
const MEMORY_MAX_BYTES: i32 = 64 << 20;

/// Opens a database for reading, as it is now: what is written later is not seen. Nothing that its schema names is executed but functions
/// without effects.
///
/// # Errors
///
/// `InvalidInput` if the file is no database, else those of files.
pub(crate) fn open(path: &Path) -> Result<Connection> {
    let place = path.display().to_string();
    let failed = |source| lines::failed(&place, source);
    let none = || Error::invalid(format!("{place} is no SQLite database"));
    if !std::fs::metadata(path).map_err(failed)?.is_file() {
        return Err(none());
    }
    let mut magic = Vec::new();
    File::open(path).map_err(failed)?.take(16).read_to_end(&mut magic).map_err(failed)?;
    if magic != MAGIC {
        return Err(none());
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let opened = Connection::open_with_flags(path, flags).and_then(|connection| {
        connection.set_limit(Limit::SQLITE_LIMIT_LENGTH, MEMORY_MAX_BYTES)?;
        connection.execute_batch(
            "PRAGMA query_only = ON; PRAGMA trusted_schema = OFF; PRAGMA cell_size_check = ON; PRAGMA mmap_size = 0; PRAGMA cache_size = -8192; BEGIN",
        )?;
        Ok(connection)
    });
    opened.map_err(|source| error(&place, source))
}

/// Returns whether the database has a table of this name, which is neither a view nor made by a module.
pub(crate) fn has_table(connection: &Connection, place: &str, name: &str) -> Result<bool> {
    let query = "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = ?1 AND rootpage > 0";
    let found: i64 =
        connection.query_row(query, [name], |row| row.get(0)).map_err(|source| error(place, source))?;
    Ok(found > 0)
}

/// Returns the error of a database that cannot be read.
pub(crate) fn error(place: &str, source: rusqlite::Error) -> Error {
    use rusqlite::ErrorCode::{CannotOpen, DatabaseBusy, DatabaseLocked, PermissionDenied, SystemIoFailure};
    let kind = match source.sqlite_error_code() {
        Some(DatabaseBusy | DatabaseLocked | CannotOpen | SystemIoFailure) => ErrorKind::Unavailable,
        Some(PermissionDenied) => ErrorKind::Denied,
        // It is damaged, or its tables are others.
        _ => ErrorKind::InvalidInput,
    };
    Error::new(kind, format!("{place} cannot be read: {source}")).with_source(source)
}
