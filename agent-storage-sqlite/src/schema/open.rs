//! Opening the file: to write to it, or, if that may not be, to read it.

use std::path::Path;

use agent_core::{Error, ErrorKind, Result};
use rusqlite::{Connection, MAIN_DB};

use super::{MIGRATIONS, attach, check, check_sqlite, check_tables, has_derived, names, prepare};
use crate::config::{Access, SqliteConfig};
use crate::error::{failed, failed_to_write, is_busy};
use crate::files::{self, Files};
use crate::wait::Wait;
use crate::{place, rebuild};

/// Opens the connection that writes, and brings the file to this version's schema. Waits for other openers. A file that may
/// not be written to is opened to be read: then the connection reads, and the access in `config` says so.
pub(crate) fn open(config: &mut SqliteConfig) -> Result<(Connection, Files)> {
    place::prepare(&config.path, config.create)?;
    let Some(why) = place::read_only(&config.path) else { return open_to_write(config) };
    if place::is_marked(&config.path) {
        return open_to_read(config, &why);
    }
    // Somebody who may write beside it may have it open; what SQLite needs there is there then.
    match open_to_write(config) {
        Ok((conn, files)) if !conn.is_readonly(MAIN_DB).unwrap_or(true) => Ok((conn, files)),
        Err(error) if *error.kind() != ErrorKind::Denied => Err(error),
        _ => open_to_read(config, &why),
    }
}

/// Opens a file that may not be written to, and makes nothing beside it.
fn open_to_read(config: &mut SqliteConfig, why: &str) -> Result<(Connection, Files)> {
    let path = config.path.clone();
    let left = |suffix: &str| files::beside(&path, suffix).map(|path| files::len(&path));
    let (log, index, journal) = (left("-wal")?, left("-shm")?, left("-journal")?);
    if log.is_some() && index.is_some() {
        config.access = Access::Read;
        let before = files::id(&path)?;
        match attach(config).and_then(|conn| Ok((look(&conn, &path, why)?, conn))) {
            Ok((looked, conn)) => return looked.and_then(|()| Ok((conn, Files::note(&path, before)?))),
            Err(error) if log != Some(0) => return Err(behind_log(&path).with_source(error)),
            Err(_) => {}
        }
    }
    if log.unwrap_or(0) > 0 || journal.unwrap_or(0) > 0 {
        return Err(behind_log(&path));
    }
    config.access = Access::Still;
    let files = Files::note_still(&path)?;
    let opened = attach(config).and_then(|conn| Ok((look(&conn, &path, why)?, conn)));
    let (looked, conn) = opened.map_err(|error| failed(&format!("open {}", path.display()), error))?;
    looked?;
    files.check()?;
    Ok((conn, files))
}

/// Whether the file can be read as it is: nothing can be made in it that is missing.
fn look(conn: &Connection, path: &Path, why: &str) -> rusqlite::Result<Result<()>> {
    if let Err(error) = check_sqlite(rusqlite::version()) {
        return Ok(Err(error));
    }
    match check(conn, path)? {
        Ok(0) => return Ok(Err(place::no_store(path))),
        Ok(version) if version == MIGRATIONS.len() => {}
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

/// The file as an address by which SQLite neither looks for a log beside it nor makes one.
pub(super) fn still_uri(path: &Path) -> String {
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

fn open_to_write(config: &SqliteConfig) -> Result<(Connection, Files)> {
    let mut wait = Wait::new(config.busy_timeout, &config.effects);
    loop {
        let before = files::id(&config.path)?;
        match prepare(config) {
            Ok(ready) => {
                let conn = ready?;
                match Files::note(&config.path, before) {
                    // Replaced while it was opened: what is there now is opened.
                    Err(_) if wait.pause() => {}
                    noted => return noted.map(|files| (conn, files)),
                }
            }
            Err(error) if is_busy(&error) && wait.pause() => {}
            Err(error) => {
                return Err(failed_to_write(&config.path, &format!("open {}", config.path.display()), error));
            }
        }
    }
}
