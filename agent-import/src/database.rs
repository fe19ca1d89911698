//! Databases of SQLite, read and nothing else.
//!
//! A database is not trusted: nothing that its schema names is run, such as a view or a trigger, and no value is taken into memory that is
//! larger than a line may be.

use std::collections::{HashMap, HashSet};
use std::io::Read;
use std::path::{Path, PathBuf};

use agent_core::{Error, ErrorKind, Result};
use rusqlite::config::DbConfig;
use rusqlite::limits::Limit;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OpenFlags, Row};

use crate::lines::{self, LINE_MAX_BYTES};

/// Maximum number of bytes of a value; that of a line.
pub(crate) const VALUE_MAX_BYTES: i64 = LINE_MAX_BYTES as i64;
/// Number of bytes of a row above which a query fails.
const MEMORY_MAX_BYTES: i32 = 64 << 20;

/// Maximum number of sessions of one database.
const SESSIONS_MAX: usize = 1_000_000;

/// Returns the file that is named, or the one of this name in the folder that is named.
pub(crate) fn file(path: &Path, name: &str) -> PathBuf {
    if path.is_dir() { path.join(name) } else { path.to_owned() }
}

/// Opens a database to read it.
pub(crate) fn open(path: &Path) -> Result<Connection> {
    let place = path.display().to_string();
    let refused = |source| lines::failed(&place, source);
    if !std::fs::metadata(path).map_err(refused)?.is_file() {
        return Err(Error::invalid(format!("{place} is no regular file; name a database")));
    }
    let mut header = [0; 20];
    let read = std::fs::File::open(path).and_then(|mut file| file.read_exact(&mut header));
    if read.is_err() || !header.starts_with(b"SQLite format 3\0") {
        return Err(Error::invalid(format!("{place} is no database of SQLite")));
    }
    let opened = || -> rusqlite::Result<Connection> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let mut log = path.as_os_str().to_owned();
        log.push("-wal");
        // Without a log beside it nobody has it open, and files beside it would be made only to read it.
        let conn = match address(path).filter(|_| header[18] == 2 && !Path::new(&log).exists()) {
            Some(address) => Connection::open_with_flags(address, flags | OpenFlags::SQLITE_OPEN_URI)?,
            None => Connection::open_with_flags(path, flags)?,
        };
        conn.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
        conn.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
        conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false)?;
        conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_VIEW, false)?;
        conn.set_limit(Limit::SQLITE_LIMIT_LENGTH, MEMORY_MAX_BYTES)?;
        conn.pragma_update(None, "query_only", true)?;
        conn.busy_timeout(std::time::Duration::from_secs(5))?;
        Ok(conn)
    };
    opened().map_err(|source| failed(&place, source))
}

/// Returns the address of a file that nobody changes. `None` if its name is no text.
fn address(path: &Path) -> Option<String> {
    let path = std::path::absolute(path).ok()?;
    let mut address = "file:".to_owned();
    for byte in path.to_str()?.bytes() {
        match byte {
            b'/' | b'.' | b'-' | b'_' | b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => {
                address.push(char::from(byte));
            }
            _ => address.push_str(&format!("%{byte:02X}")),
        }
    }
    Some(address + "?immutable=1")
}

/// Returns the error of a database that cannot be read.
pub(crate) fn failed(place: &str, source: rusqlite::Error) -> Error {
    use rusqlite::ErrorCode::{CannotOpen, DatabaseBusy, DatabaseLocked, PermissionDenied, SystemIoFailure};
    let kind = match source.sqlite_error_code() {
        Some(CannotOpen | DatabaseBusy | DatabaseLocked | SystemIoFailure) => ErrorKind::Unavailable,
        Some(PermissionDenied) => ErrorKind::Denied,
        _ => ErrorKind::InvalidInput,
    };
    Error::new(kind, format!("the database {place} cannot be read: {source}")).with_source(source)
}

/// Returns whether the database has a table of this name, which is neither a view nor made by a module.
pub(crate) fn has_table(conn: &Connection, place: &str, name: &str) -> Result<bool> {
    let query = "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = ?1 AND rootpage > 0";
    let found: i64 =
        conn.query_row(query, [name], |row| row.get(0)).map_err(|source| failed(place, source))?;
    Ok(found > 0)
}

/// Returns the columns of a table. A view, a virtual table and a column that is computed are none.
///
/// # Errors
///
/// `InvalidInput` if there is no such table, or it has not the columns that are needed.
pub(crate) fn columns(
    conn: &Connection,
    place: &str,
    table: &str,
    needed: &[&str],
) -> Result<HashSet<String>> {
    let found = || -> rusqlite::Result<HashSet<String>> {
        let sql = "SELECT name FROM pragma_table_info(?1) WHERE EXISTS (SELECT 1 FROM sqlite_schema \
                   WHERE type = 'table' AND name = ?1 AND sql LIKE 'CREATE TABLE %')";
        let mut statement = conn.prepare(sql)?;
        let mut rows = statement.query([table])?;
        let mut names = HashSet::new();
        while let Some(row) = rows.next()? {
            names.extend(text(row, 0));
        }
        Ok(names)
    };
    let names = found().map_err(|source| failed(place, source))?;
    match needed.iter().find(|name| !names.contains(**name)) {
        Some(name) => Err(Error::invalid(format!(
            "the database {place} has no table {table} with a column {name}, so that it is none of this format"
        ))),
        None => Ok(names),
    }
}

/// Returns the expression of a column whose larger values are not read.
pub(crate) fn bounded(column: &str) -> String {
    format!("CASE WHEN octet_length({column}) <= {LINE_MAX_BYTES} THEN {column} END")
}

/// Returns a column, or nothing in its place if a version of the program has none.
pub(crate) fn optional(columns: &HashSet<String>, column: &str) -> String {
    if columns.contains(column) { bounded(column) } else { "NULL".to_owned() }
}

/// Returns a value as text; `None` if it has none, or is no UTF-8.
pub(crate) fn text(row: &Row<'_>, column: usize) -> Option<String> {
    match row.get_ref(column).ok()? {
        ValueRef::Null => None,
        ValueRef::Integer(number) => Some(number.to_string()),
        ValueRef::Real(number) => Some(number.to_string()),
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => String::from_utf8(bytes.to_vec()).ok(),
    }
}

/// Returns all rows of a query, with what a function makes of each.
pub(crate) fn all<T>(
    conn: &Connection,
    place: &str,
    sql: &str,
    params: &[&str],
    each: impl Fn(&Row<'_>) -> Option<T>,
) -> Result<Vec<T>> {
    let read = || -> rusqlite::Result<Vec<T>> {
        let mut statement = conn.prepare_cached(sql)?;
        let mut rows = statement.query(rusqlite::params_from_iter(params))?;
        let mut found = Vec::new();
        while let Some(row) = rows.next()? {
            found.extend(each(row));
        }
        Ok(found)
    };
    read().map_err(|source| failed(place, source))
}

/// Returns what a function makes of the row with this number; `None` if it is not there any more.
pub(crate) fn one<T>(
    conn: &Connection,
    place: &str,
    sql: &str,
    rowid: i64,
    each: impl Fn(&Row<'_>) -> T,
) -> Result<Option<T>> {
    let read = || -> rusqlite::Result<Option<T>> {
        let mut statement = conn.prepare_cached(sql)?;
        let mut rows = statement.query([rowid])?;
        Ok(rows.next()?.map(each))
    };
    read().map_err(|source| failed(place, source))
}

/// Session of a database.
#[derive(Clone, Debug)]
pub(crate) struct Listed {
    pub(crate) rowid: i64,
    pub(crate) id: String,
    pub(crate) parent: Option<String>,
}

/// Returns the sessions of a query of `(rowid, id, parent)` with each after its parent, otherwise in their order.
pub(crate) fn sessions(conn: &Connection, place: &str, sql: &str) -> Result<Vec<Listed>> {
    let mut listed = all(conn, place, sql, &[], |row| {
        Some(Listed { rowid: row.get(0).ok()?, id: text(row, 1)?, parent: text(row, 2) })
    })?;
    if listed.len() > SESSIONS_MAX {
        return Err(Error::limit(format!("the database {place} has more than {SESSIONS_MAX} sessions")));
    }
    let parents: HashMap<&str, &str> =
        listed.iter().filter_map(|it| Some((&*it.id, it.parent.as_deref()?))).collect();
    let depth = |session: &Listed| {
        let (mut depth, mut at) = (0_u32, session.parent.as_deref());
        while let Some(parent) = at.filter(|_| depth < 64) {
            (depth, at) = (depth + 1, parents.get(parent).copied());
        }
        depth
    };
    let mut depths: Vec<(u32, usize)> = listed.iter().map(depth).zip(0..).collect();
    depths.sort_unstable();
    let mut taken: Vec<Option<Listed>> = listed.drain(..).map(Some).collect();
    Ok(depths.into_iter().filter_map(|(_, at)| taken[at].take()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_come_after_their_parents_also_in_a_circle()
    -> std::result::Result<(), Box<dyn std::error::Error>> {
        let conn = Connection::open_in_memory()?;
        conn.execute_batch(
            "CREATE TABLE s (id, parent); INSERT INTO s VALUES ('c','b'),('b','a'),('a',NULL),('x','y'),('y','x'),('z','gone')",
        )?;
        let found = sessions(&conn, "here", "SELECT rowid, id, parent FROM s ORDER BY rowid")?;
        let ids: String = found.into_iter().map(|it| it.id).collect();
        assert_eq!(ids, "abzcxy");
        Ok(())
    }

    #[test]
    fn only_tables_count_and_nothing_is_written() -> std::result::Result<(), Box<dyn std::error::Error>> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("a b?.db");
        let conn = Connection::open(&path)?;
        conn.execute_batch(
            "PRAGMA journal_mode = wal; CREATE TABLE t (a, b AS (a || 'x')); INSERT INTO t VALUES (1);
             CREATE VIEW v AS WITH RECURSIVE r(a) AS (SELECT 1 UNION ALL SELECT a + 1 FROM r) SELECT a FROM r;",
        )?;
        conn.close().map_err(|(_, error)| error)?;
        let conn = open(&path)?;
        assert!(columns(&conn, "here", "t", &["a"])?.contains("a"));
        assert!(columns(&conn, "here", "t", &["b"]).is_err());
        assert!(columns(&conn, "here", "v", &["a"]).is_err());
        assert!(conn.execute("INSERT INTO t VALUES (2)", []).is_err());
        assert!(conn.query_row("SELECT a FROM v", [], |_| Ok(())).is_err());
        assert_eq!(std::fs::read_dir(folder.path())?.count(), 1);
        std::fs::write(folder.path().join("none"), "SQLite format 3\0, but no more of it")?;
        let error = open(&folder.path().join("none")).and_then(|conn| columns(&conn, "none", "t", &[]));
        assert_eq!(error.map_err(|error| error.kind().clone()), Err(ErrorKind::InvalidInput));
        Ok(())
    }
}
