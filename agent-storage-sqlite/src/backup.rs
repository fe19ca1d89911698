//! A copy of the file: a snapshot of one moment, while writes go on.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use agent_core::{Error, ErrorKind, Result};
use rusqlite::OpenFlags;
use tokio::sync::oneshot;

use crate::config::SqliteConfig;
use crate::error::{failed, gone};
use crate::files::Files;
use crate::threads::Threads;
use crate::{place, schema};

/// Copies the file to `to`, on a thread of its own.
pub(crate) async fn back_up(
    config: &SqliteConfig,
    files: Arc<Files>,
    threads: &Threads,
    to: PathBuf,
) -> Result<()> {
    let (done, result) = oneshot::channel();
    let config = config.clone();
    threads
        .spawn("agent-sqlite-backup", "back up with", move || drop(done.send(copy(&config, &files, &to))))?;
    result.await.map_err(|_| gone())?
}

/// Copies under another name, checks the copy, has the disk take it, and only then gives it its name.
fn copy(config: &SqliteConfig, files: &Files, to: &Path) -> Result<()> {
    let taken = || {
        Error::new(
            ErrorKind::InvalidInput,
            format!("{} exists; name a file that does not, nothing was changed", to.display()),
        )
    };
    if to.exists() {
        return Err(taken());
    }
    let part = to.with_added_extension("part");
    let result = fill(config, files, &part).and_then(|()| {
        // A hard link never replaces what is there.
        fs::hard_link(&part, to).map_err(|error| match error.kind() {
            std::io::ErrorKind::AlreadyExists => taken(),
            _ => place::failed("make the file", to, error),
        })
    });
    // What is left of a failed attempt is in the way of the next.
    let removed = fs::remove_file(&part);
    result?;
    removed.map_err(|error| place::failed("remove the file", &part, error))?;
    sync_folder(to)
}

fn fill(config: &SqliteConfig, files: &Files, part: &Path) -> Result<()> {
    files.check()?;
    let name = part.to_str().ok_or_else(|| {
        Error::new(
            ErrorKind::InvalidInput,
            format!("the path of the copy, {}, must be text; name another", part.display()),
        )
    })?;
    // SQLite fills an empty file that is there, and so keeps its mode.
    place::make_file(part).map_err(|error| place::failed("make the file", part, error))?;
    schema::connect(&config.path, OpenFlags::SQLITE_OPEN_READ_WRITE)
        .and_then(|conn| {
            conn.busy_timeout(config.busy_timeout)?;
            conn.execute("VACUUM INTO ?", [name])
        })
        .map_err(|error| failed(&format!("copy {} to {name}", config.path.display()), error))?;
    files.check()?;
    let copy = schema::connect(part, OpenFlags::SQLITE_OPEN_READ_ONLY)
        .map_err(|error| failed(&format!("open the copy {name}"), error))?;
    let verdict: String = copy
        .query_row("PRAGMA quick_check(1)", [], |row| row.get(0))
        .map_err(|error| failed(&format!("check the copy {name}"), error))?;
    if is_unread(&verdict) {
        return Err(Error::new(
            ErrorKind::Unavailable,
            format!(
                "cannot check the copy {name}: the system could not read it; try again, and look at the disk"
            ),
        ));
    }
    if verdict != "ok" {
        return Err(Error::new(
            ErrorKind::Corrupt,
            format!(
                "the copy {name} does not pass SQLite's check; look whether {} does",
                config.path.display()
            ),
        ));
    }
    // SQLite leaves it to the caller to have the disk take the copy.
    fs::File::open(part)
        .and_then(|file| file.sync_all())
        .map_err(|error| place::failed("sync the file", part, error))
}

/// Whether SQLite's check could not read a page, which says nothing about what stands there.
fn is_unread(verdict: &str) -> bool {
    // A page number beyond the end is told otherwise, before the page is asked for.
    verdict.contains("failed to get page")
        || verdict
            .split_once("unable to get the page. error code=")
            .and_then(|(_, code)| code.trim().parse::<i32>().ok())
            // SQLITE_IOERR and SQLITE_NOMEM, with whatever else is said of them.
            .is_some_and(|code| matches!(code & 0xff, 10 | 7))
}

#[cfg(unix)]
fn sync_folder(to: &Path) -> Result<()> {
    let folder = to.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::File::open(folder)
        .and_then(|file| file.sync_all())
        .map_err(|error| place::failed("sync the folder", folder, error))
}

#[cfg(not(unix))]
fn sync_folder(_: &Path) -> Result<()> {
    Ok(())
}
