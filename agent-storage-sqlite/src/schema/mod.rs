//! The file's tables: how a connection is opened, what is checked before it is used, and the migrations.

mod log;
mod open;

use std::collections::HashSet;
use std::path::Path;
use std::time::Duration;

use agent_core::{Error, ErrorKind, Result, planted};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use crate::config::{Access, SqliteConfig, Sync};
use crate::error::{Step, corrupt};
use crate::rows::first_number;
use crate::{place, rebuild};

/// `AGNT`: by this a file says whose it is.
pub(crate) const APPLICATION_ID: i64 = 0x4147_4e54;

/// The scripts that lead from each version of the schema to the next, from the first on.
const MIGRATIONS: [&str; 1] = [include_str!("migrations/0001_first.sql")];
const INDEXES: &str = include_str!("indexes.sql");
const VIEWS: &str = include_str!("views.sql");

/// The first version of SQLite without the WAL-reset bug that could damage a file.
const SQLITE_MIN: [u32; 3] = [3, 51, 3];

/// After how many pages the write-ahead log is moved into the database. A page that many commits change is moved once for
/// all of them: with SQLite's own 1,000 a lone session has its log moved after every hundred turns.
const LOG_PAGES: u32 = 2048;

/// How many statements a connection keeps prepared: more than there are, but for lists with all their filters.
const STATEMENTS: usize = 128;

pub(crate) use open::open;

/// Opens a connection that reads.
pub(crate) fn reader(config: &SqliteConfig) -> rusqlite::Result<Connection> {
    let conn = attach(config)?;
    conn.busy_timeout(config.busy_timeout)?;
    conn.execute_batch(&format!("PRAGMA query_only = ON; PRAGMA cache_size = -{}", config.reader_cache_kib))?;
    Ok(conn)
}

/// Opens a connection as the file allows.
pub(crate) fn attach(config: &SqliteConfig) -> rusqlite::Result<Connection> {
    match config.access {
        Access::Write => connect(&config.path, OpenFlags::SQLITE_OPEN_READ_WRITE),
        Access::Read => connect(&config.path, OpenFlags::SQLITE_OPEN_READ_ONLY),
        Access::Still => {
            let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
            connect(Path::new(&open::still_uri(&config.path)), flags)
        }
    }
}

/// Opens a connection that writes. It waits by itself for other processes, with jitter. The outer error is SQLite's.
pub(crate) fn writer(config: &SqliteConfig) -> rusqlite::Result<Result<Connection>> {
    if config.sync != Sync::Off
        && let Err(error) = log::renew(&config.path)?
    {
        return Ok(Err(error));
    }
    let synchronous = match config.sync {
        Sync::Full if planted("synchronous-normal") => "NORMAL",
        Sync::Full => "FULL",
        Sync::Normal => "NORMAL",
        Sync::Off => "OFF",
    };
    let conn = connect(&config.path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    conn.busy_timeout(Duration::ZERO)?;
    conn.execute_batch(&format!(
        "PRAGMA synchronous = {synchronous}; PRAGMA fullfsync = ON; PRAGMA checkpoint_fullfsync = ON; \
         PRAGMA secure_delete = ON; PRAGMA journal_size_limit = 67108864; PRAGMA wal_autocheckpoint = {LOG_PAGES}; \
         PRAGMA cache_size = -{}", config.writer_cache_kib
    ))?;
    if let Some(pages) = config.max_pages {
        conn.execute_batch(&format!("PRAGMA max_page_count = {pages}"))?;
    }
    Ok(Ok(conn))
}

/// Opens a connection to a file that is there. Only one thread uses it at a time, so that it needs no lock of its own.
pub(crate) fn connect(path: &Path, flags: OpenFlags) -> rusqlite::Result<Connection> {
    let conn = Connection::open_with_flags(path, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    conn.set_prepared_statement_cache_capacity(STATEMENTS);
    // Plans do not depend on what is bound; else SQLite would prepare some statements anew for each new value.
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    // The library has none. One that another program made could swallow what is acknowledged.
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false)?;
    conn.execute_batch("PRAGMA foreign_keys = ON; PRAGMA trusted_schema = OFF; PRAGMA cell_size_check = ON")?;
    Ok(conn)
}

/// One attempt. The outer error is SQLite's, and worth another where it says that others are at work.
fn prepare(config: &SqliteConfig) -> rusqlite::Result<Result<Connection>> {
    if let Err(error) = check_sqlite(rusqlite::version()) {
        return Ok(Err(error));
    }
    let conn = match writer(config)? {
        Ok(conn) => conn,
        Err(error) => return Ok(Err(error)),
    };
    let checked = check(&conn, &config.path)?;
    if checked.is_err() {
        // What a refused file's log holds stays there: closing the last connection would move it, and remove the log.
        conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    }
    match checked {
        // A database without a single table.
        Ok(0) if !config.create => return Ok(Err(place::no_store(&config.path))),
        Ok(version) if version == MIGRATIONS.len() => {
            if let Err(error) = check_tables(&names(&conn)?, &config.path) {
                return Ok(Err(error));
            }
        }
        Ok(_) => {}
        Err(error) => return Ok(Err(error)),
    }
    // Stays in the file; asked for first, since it cannot change inside a transaction.
    let mode: String = conn.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0))?;
    if mode != "wal" {
        return Ok(Err(Error::new(
            ErrorKind::Unsupported,
            format!("{} cannot have a write-ahead log; use a local disk", config.path.display()),
        )));
    }
    if !is_whole(&conn)? {
        conn.execute_batch("BEGIN IMMEDIATE")?;
        // Others may have been here first: what was looked at before the lock is looked at again.
        match check(&conn, &config.path)? {
            Ok(version) => migrate(&conn, version)?,
            Err(error) => return Ok(Err(error)),
        }
        rebuild::missing(&conn)?;
        conn.execute_batch("COMMIT")?;
    }
    Ok(Ok(conn))
}

fn check_sqlite(version: &str) -> Result<()> {
    let mut parts = version.split('.').map(|part| part.parse().unwrap_or(0));
    let number = [(); 3].map(|()| parts.next().unwrap_or(0));
    if number >= SQLITE_MIN {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::Unsupported,
        format!("SQLite {version} has a bug that can damage the file; build with 3.51.3 or newer"),
    ))
}

/// Whose the file is, and of which version of the schema.
fn check(conn: &Connection, path: &Path) -> rusqlite::Result<Result<usize>> {
    // In one statement, so that all three are of one moment: another opener may be at work.
    let (application, version, objects): (i64, i64, i64) = conn.query_row(
        "SELECT a.application_id, u.user_version, (SELECT count(*) FROM sqlite_schema) \
         FROM pragma_application_id a, pragma_user_version u",
        [],
        |row| row.try_into(),
    )?;
    if application != APPLICATION_ID && (application != 0 || version != 0 || objects != 0) {
        return Ok(Err(Error::new(
            ErrorKind::InvalidInput,
            format!("{} is a database of another application; name another file", path.display()),
        )));
    }
    match usize::try_from(version) {
        Ok(0) if objects != 0 => Ok(Err(Error::new(
            ErrorKind::Unsupported,
            format!(
                "{} has schema 0, and tables of this library: another program has set its version; if that is all that \
                 was changed, take it back with PRAGMA user_version = {}, else restore the file from a backup",
                path.display(),
                MIGRATIONS.len()
            ),
        ))),
        Ok(version) if version <= MIGRATIONS.len() => Ok(Ok(version)),
        _ => Ok(Err(Error::new(
            ErrorKind::Unsupported,
            format!(
                "{} has schema {version}, this version knows up to {}; update the library",
                path.display(),
                MIGRATIONS.len()
            ),
        ))),
    }
}

/// Whether the schema is this version's and nothing that is derived is missing.
fn is_whole(conn: &Connection) -> rusqlite::Result<bool> {
    let version: i64 = conn.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    if usize::try_from(version).ok() != Some(MIGRATIONS.len()) {
        return Ok(false);
    }
    Ok(has_derived(&names(conn)?) && !rebuild::is_needed(conn)?)
}

/// The names of all that is in the schema.
fn names(conn: &Connection) -> rusqlite::Result<HashSet<String>> {
    let mut statement = conn.prepare("SELECT name FROM sqlite_schema")?;
    let names = statement.query_map([], |row| row.get(0))?;
    names.collect()
}

/// The names of what a script makes by these words.
fn made_by(script: &'static str, words: &str) -> impl Iterator<Item = &'static str> {
    script.split(words).skip(1).filter_map(|rest| rest.split_whitespace().next())
}

/// Whether all indexes and views are there.
fn has_derived(names: &HashSet<String>) -> bool {
    made_by(INDEXES, "CREATE INDEX IF NOT EXISTS ")
        .chain(made_by(VIEWS, "CREATE VIEW IF NOT EXISTS "))
        .all(|name| names.contains(name))
}

/// Fails if a table is not there.
fn check_tables(names: &HashSet<String>, path: &Path) -> Result<()> {
    let mut tables = MIGRATIONS.iter().flat_map(|script| made_by(script, "CREATE TABLE "));
    let missing = tables.find(|table| !names.contains(*table));
    missing.map_or(Ok(()), |table| {
        Err(corrupt(&path.display().to_string(), &format!("has no table {table} any more")))
    })
}

/// Inside a write transaction, after another connection has written: whether the file is still of this version, and whose.
/// `seen` is SQLite's `schema_version` when all of the schema was there; indexes and views that another program has dropped
/// since are made anew. Three statements, unless something is wrong.
pub(crate) fn check_again(
    conn: &Connection,
    path: &Path,
    seen: &mut Option<i64>,
) -> rusqlite::Result<Result<()>> {
    let number = |sql| first_number(conn, sql, []);
    let version = number("PRAGMA user_version")?;
    if number("PRAGMA application_id")? != Some(APPLICATION_ID)
        || version.and_then(|version| usize::try_from(version).ok()) != Some(MIGRATIONS.len())
    {
        return Ok(check(conn, path)?.and_then(|version| {
            let text = format!(
                "{} has schema {version}, and had {} when it was opened; open it again",
                path.display(),
                MIGRATIONS.len()
            );
            Err(Error::new(ErrorKind::Unsupported, text))
        }));
    }
    if *seen != number("PRAGMA schema_version")? {
        let names = names(conn)?;
        if let Err(error) = check_tables(&names, path) {
            return Ok(Err(error));
        }
        if !has_derived(&names) {
            tracing::warn!(file = %path.display(), "another program dropped indexes or views; they are made anew");
            make_derived(conn)?;
        }
        *seen = number("PRAGMA schema_version")?;
    }
    Ok(Ok(()))
}

/// What of a schema there is: type, name, table, and the statement that makes it.
type Object = (String, String, String, String);

fn objects(conn: &Connection) -> rusqlite::Result<Vec<Object>> {
    let sql = "SELECT type, name, tbl_name, sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY name";
    let mut statement = conn.prepare(sql)?;
    let objects = statement.query_map([], |row| row.try_into())?;
    objects.collect()
}

/// What in the schema is not as this library makes it, and bears on what it stores.
pub(crate) fn foreign(conn: &Connection) -> Step<Vec<String>> {
    let model = Connection::open_in_memory()?;
    for script in MIGRATIONS {
        model.execute_batch(script)?;
    }
    make_derived(&model)?;
    let (ours, there) = (objects(&model)?, objects(conn)?);
    let mut found = Vec::new();
    for object in &there {
        let (kind, name, table, sql) = object;
        let is_on_ours = ours.iter().any(|(_, ours, ..)| ours == table);
        let is_unique =
            || sql.split_whitespace().nth(1).is_some_and(|word| word.eq_ignore_ascii_case("UNIQUE"));
        if ours.iter().any(|(_, ours, ..)| ours == name) {
            if !ours.contains(object) {
                found.push(format!(
                    "the {kind} {name} is not as this library makes it; restore it from a backup"
                ));
            }
        } else if is_on_ours && kind == "trigger" {
            found.push(format!(
                "another program has put the trigger {name} on {table}; this library does not run it, others that write \
                 to the file do: remove it with DROP TRIGGER {name}"
            ));
        } else if is_on_ours && kind == "index" && is_unique() {
            found.push(format!(
                "another program has put the index {name} on {table}, which may refuse rows; remove it with DROP INDEX {name}"
            ));
        }
    }
    Ok(found)
}

fn make_derived(conn: &Connection) -> rusqlite::Result<()> {
    conn.execute_batch(INDEXES)?;
    conn.execute_batch(VIEWS)
}

fn migrate(conn: &Connection, from: usize) -> rusqlite::Result<()> {
    for script in &MIGRATIONS[from..] {
        conn.execute_batch(script)?;
    }
    make_derived(conn)?;
    conn.execute_batch(&format!(
        "PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {}",
        MIGRATIONS.len()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_sqlite_is_refused() {
        assert!(check_sqlite("3.51.3").is_ok());
        assert!(check_sqlite("3.52.0").is_ok());
        for old in ["3.51.2", "3.9.99", "2.99.99", "", "x.y.z"] {
            assert_eq!(*check_sqlite(old).unwrap_err().kind(), ErrorKind::Unsupported, "{old}");
        }
    }
}
