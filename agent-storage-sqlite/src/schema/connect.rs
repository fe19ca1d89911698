//! Connections.

use std::path::Path;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use crate::config::{Access, SqliteConfig};

/// Number of statements that a connection keeps prepared. It is more than there are, except for lists with all their
/// filters.
const STATEMENTS: usize = 128;

/// Opens a connection for reading.
pub(crate) fn reader(config: &SqliteConfig) -> rusqlite::Result<Connection> {
    let conn = attach(config)?;
    conn.busy_timeout(config.busy_timeout)?;
    conn.execute_batch(&format!("PRAGMA query_only = ON; PRAGMA cache_size = -{}", config.reader_cache_kib))?;
    Ok(conn)
}

/// Opens a connection with the access that the file allows.
pub(crate) fn attach(config: &SqliteConfig) -> rusqlite::Result<Connection> {
    match config.access {
        Access::Write => connect(&config.path, OpenFlags::SQLITE_OPEN_READ_WRITE),
        Access::Read => connect(&config.path, OpenFlags::SQLITE_OPEN_READ_ONLY),
        Access::Still => {
            let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
            connect(Path::new(&still_uri(&config.path)), flags)
        }
    }
}

/// Opens a connection to an existing file. Only one thread uses it at a time, so it needs no lock of its own.
pub(crate) fn connect(path: &Path, flags: OpenFlags) -> rusqlite::Result<Connection> {
    let conn = Connection::open_with_flags(path, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    conn.set_prepared_statement_cache_capacity(STATEMENTS);
    // Plans do not depend on bound values; otherwise SQLite would prepare some statements again for each value.
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    // The library has no triggers. A trigger of another program could undo acknowledged writes.
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false)?;
    conn.execute_batch("PRAGMA foreign_keys = ON; PRAGMA trusted_schema = OFF; PRAGMA cell_size_check = ON")?;
    Ok(conn)
}

/// Returns a URI of the file with which SQLite neither looks for a log beside it nor creates one.
pub(crate) fn still_uri(path: &Path) -> String {
    #[cfg(unix)]
    let bytes = std::os::unix::ffi::OsStrExt::as_bytes(path.as_os_str());
    #[cfg(not(unix))]
    let text = format!("/{}", path.display()).replace('\\', "/");
    #[cfg(not(unix))]
    let bytes = text.as_bytes();
    let mut uri = "file:".to_owned();
    for byte in bytes {
        match byte {
            b'/' | b'.' | b'-' | b'_' | b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' => {
                uri.push(char::from(*byte));
            }
            byte => uri.push_str(&format!("%{byte:02x}")),
        }
    }
    uri.push_str("?immutable=1");
    uri
}
