//! Opens the file for writing, or for reading if writing is not allowed.

use std::path::Path;
use std::time::Duration;

use agent_core::{Error, ErrorKind, Result};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, MAIN_DB, OpenFlags};

use crate::config::{Access, SqliteConfig, Sync};
use crate::error::{failed, failed_to_write, is_busy};
use crate::log::rebuild;
use crate::medium::files::{self, Files};
use crate::medium::path;
use crate::medium::wait::Wait;
use crate::schema::connect::{attach, connect};
use crate::schema::log;
use crate::schema::tables::{VERSION, check, check_sqlite, check_tables, create, has_derived, names};

/// Opens the writing connection, and creates the schema in a new file. Waits for other processes that are
/// opening it. A file that may not be written to is opened for reading: then the connection only reads, and
/// `config.access` is set accordingly.
pub(crate) fn open(config: &mut SqliteConfig) -> Result<(Connection, Files)> {
    files::check_beside(&config.path)?;
    path::prepare(&config.path, config.create)?;
    let Some(why) = path::read_only(&config.path) else { return open_to_write(config) };
    if path::is_marked(&config.path) {
        return open_to_read(config, &why);
    }
    // A process that may write there may have the file open; the files that SQLite needs exist then.
    match open_to_write(config) {
        Ok((conn, files)) if !conn.is_readonly(MAIN_DB).unwrap_or(true) => Ok((conn, files)),
        Err(error) if *error.kind() != ErrorKind::Denied => Err(error),
        _ => open_to_read(config, &why),
    }
}

/// Opens a file that may not be written to, and creates nothing beside it.
fn open_to_read(config: &mut SqliteConfig, why: &str) -> Result<(Connection, Files)> {
    let path = config.path.clone();
    let left = |suffix: &str| files::beside(&path, suffix).map(|path| files::len(&path));
    let (log, index, journal) = (left("-wal")?, left("-shm")?, left("-journal")?);
    if log.is_some() && index.is_some() {
        config.access = Access::Read;
        let before = files::id(&path)?;
        match attach(config).and_then(|conn| Ok((verify(&conn, &path, why)?, conn))) {
            Ok((checked, conn)) => return checked.and_then(|()| Ok((conn, Files::note(&path, before)?))),
            Err(error) if log != Some(0) => return Err(behind_log(&path).with_source(error)),
            Err(_) => {}
        }
    }
    if log.unwrap_or(0) > 0 || journal.unwrap_or(0) > 0 {
        return Err(behind_log(&path));
    }
    config.access = Access::Still;
    let files = Files::note_still(&path)?;
    let opened = attach(config).and_then(|conn| Ok((verify(&conn, &path, why)?, conn)));
    let (checked, conn) = opened.map_err(|error| failed(&format!("open {}", path.display()), error))?;
    checked?;
    files.check()?;
    Ok((conn, files))
}

/// Checks that the file can be read as it is, since anything missing in it cannot be created.
fn verify(conn: &Connection, path: &Path, why: &str) -> rusqlite::Result<Result<()>> {
    if let Err(error) = check_sqlite(rusqlite::version()) {
        return Ok(Err(error));
    }
    match check(conn, path)? {
        Ok(0) => return Ok(Err(path::no_store(path))),
        Ok(version) if version == VERSION => {}
        Ok(_) => return Ok(Err(must_be_mended(path, why))),
        Err(error) => return Ok(Err(error)),
    }
    let names = names(conn)?;
    if let Err(error) = check_tables(&names, path) {
        return Ok(Err(error));
    }
    let is_whole = has_derived(&names) && !rebuild::is_needed(conn)?;
    Ok(if is_whole { Ok(()) } else { Err(must_be_mended(path, why)) })
}

fn must_be_mended(path: &Path, why: &str) -> Error {
    let text = format!(
        "{} must be brought up to date before it is read, and cannot be: {why}, and open it there",
        path.display()
    );
    Error::new(ErrorKind::Denied, text)
}

fn behind_log(path: &Path) -> Error {
    let path = path.display();
    let text = format!(
        "{path} is read-only, and not all of it is in the file: copy it, with {path}-wal and {path}-journal if they are \
         there, to a folder where this user may write, and open the copy"
    );
    Error::new(ErrorKind::Denied, text)
}

fn open_to_write(config: &SqliteConfig) -> Result<(Connection, Files)> {
    let mut wait = Wait::new(config.busy_timeout, &config.effects);
    loop {
        let before = files::id(&config.path)?;
        match prepare(config) {
            Ok(ready) => {
                let conn = ready?;
                match Files::note(&config.path, before) {
                    // Replaced while it was opened: the next attempt opens the current file.
                    Err(_) if wait.pause() => {}
                    files => return files.map(|files| (conn, files)),
                }
            }
            Err(error) if is_busy(&error) && wait.pause() => {}
            Err(error) => {
                return Err(failed_to_write(&config.path, &format!("open {}", config.path.display()), error));
            }
        }
    }
}

/// Number of pages after which the write-ahead log is moved into the database. A page that many commits change is
/// moved once for all of them. With SQLite's own 1,000, the log of a lone session is moved after every hundred turns.
const LOG_PAGES: u32 = 2048;

/// Opens a connection for writing. Waits for other processes by itself, with jitter. The outer error is SQLite's.
pub(crate) fn writer(config: &SqliteConfig) -> rusqlite::Result<Result<Connection>> {
    if let Err(error) = files::check_beside(&config.path) {
        return Ok(Err(error));
    }
    if config.sync != Sync::Off
        && let Err(error) = log::renew(&config.path)?
    {
        return Ok(Err(error));
    }
    let synchronous = match config.sync {
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

/// Tries once. The outer error is SQLite's, and worth another attempt if it reports that another process has the lock.
fn prepare(config: &SqliteConfig) -> rusqlite::Result<Result<Connection>> {
    if let Err(error) = check_sqlite(rusqlite::version()) {
        return Ok(Err(error));
    }
    let conn = match writer(config)? {
        Ok(conn) => conn,
        Err(error) => return Ok(Err(error)),
    };
    let checked = check(&conn, &config.path)?;
    if checked.is_err() && has_log(&config.path) {
        // The log of a refused file stays: closing the last connection would move its contents, and remove it. An
        // empty one, which looking at the file creates, is removed.
        conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    }
    match checked {
        // A database without a single table.
        Ok(0) if !config.create => return Ok(Err(path::no_store(&config.path))),
        Ok(version) if version == VERSION => {
            if let Err(error) = check_tables(&names(&conn)?, &config.path) {
                return Ok(Err(error));
            }
        }
        Ok(_) => {}
        Err(error) => return Ok(Err(error)),
    }
    // Stored in the file; set first, since it cannot change inside a transaction.
    let mode: String = conn.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0))?;
    if mode != "wal" {
        return Ok(Err(Error::unsupported(format!(
            "{} cannot have a write-ahead log; use a local disk",
            config.path.display()
        ))));
    }
    if !is_whole(&conn)? {
        conn.execute_batch("BEGIN IMMEDIATE")?;
        // Another process may have created the schema: the checks before the lock are repeated.
        match check(&conn, &config.path)? {
            Ok(version) => create(&conn, version)?,
            Err(error) => return Ok(Err(error)),
        }
        rebuild::missing(&conn)?;
        conn.execute_batch("COMMIT")?;
    }
    Ok(Ok(conn))
}

/// Returns whether the write-ahead log beside a file has contents, or may have some.
fn has_log(path: &Path) -> bool {
    files::beside(path, "-wal").map_or(true, |log| files::len(&log).unwrap_or(0) > 0)
}

/// Returns whether the schema is this version's and no derived object is missing.
fn is_whole(conn: &Connection) -> rusqlite::Result<bool> {
    let version: i64 = conn.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    if usize::try_from(version).ok() != Some(VERSION) {
        return Ok(false);
    }
    Ok(has_derived(&names(conn)?) && !rebuild::is_needed(conn)?)
}
