//! Copy of the database file: a snapshot of one moment, made while writes continue.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use agent_core::clock::Effects;
use agent_core::{Error, Result};
use rusqlite::OpenFlags;
use tokio::sync::oneshot;

use crate::config::SqliteConfig;
use crate::error::{failed, failed_to_write, gone};
use crate::medium::files::{Files, check_beside};
use crate::medium::path;
use crate::medium::threads::Threads;
use crate::schema;

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

/// Copies the file, and checks the copy.
fn copy(config: &SqliteConfig, files: &Files, to: &Path) -> Result<()> {
    make(&config.effects, to, |part| fill(config, files, part))
}

/// Makes a file: `fill` fills an empty one under another name, which is then synced, and only now gets the name `to`.
pub(crate) fn make(effects: &Effects, to: &Path, fill: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    let taken = || {
        Error::invalid(format!(
            "{} exists already, and was not changed; name a file that does not exist",
            to.display()
        ))
    };
    // A link without a target uses the name, too.
    if fs::symlink_metadata(to).is_ok() {
        return Err(taken());
    }
    let part = Part::make(effects, to)?;
    fill(&part.path)?;
    // SQLite does not sync what it was told not to.
    fs::File::open(&part.path)
        .and_then(|file| file.sync_all())
        .map_err(|error| path::failed("sync the file", &part.path, error))?;
    // A hard link never replaces an existing file.
    fs::hard_link(&part.path, to).map_err(|error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => taken(),
        _ => path::failed("make the file", to, error),
    })?;
    part.remove()?;
    sync_folder(to)
}

/// Unfinished copy under a name that is not in use: `NAME.<16 hexadecimal digits>.part`. Dropping it removes it;
/// existing files are never touched.
struct Part {
    path: PathBuf,
}

impl Part {
    fn make(effects: &Effects, to: &Path) -> Result<Self> {
        loop {
            let path = to.with_added_extension(format!("{:016x}.part", effects.random_u64()));
            match path::make_file(&path) {
                Ok(()) => return Ok(Self { path }),
                // A file of another copy, by chance.
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(path::failed("make the file", &path, error)),
            }
        }
    }

    fn remove(self) -> Result<()> {
        fs::remove_file(&self.path).map_err(|error| path::failed("remove the file", &self.path, error))
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        // Files that SQLite leaves beside the copy if it fails are removed as well.
        for suffix in ["", "-journal", "-wal", "-shm"] {
            let mut name = self.path.as_os_str().to_owned();
            name.push(suffix);
            let _ = fs::remove_file(name);
        }
    }
}

fn fill(config: &SqliteConfig, files: &Files, part: &Path) -> Result<()> {
    files.check()?;
    check_beside(&config.path)?;
    let name = part.to_str().ok_or_else(|| {
        Error::invalid(format!("the path of the copy, {}, must be text; name another", part.display()))
    })?;
    // SQLite fills the empty file, and so keeps its mode.
    schema::attach(config)
        .and_then(|conn| {
            conn.busy_timeout(config.busy_timeout)?;
            conn.execute("VACUUM INTO ?", [name])
        })
        .map_err(|error| {
            failed_to_write(part, &format!("copy {} to {name}", config.path.display()), error)
        })?;
    files.check()?;
    let copy = schema::connect(part, OpenFlags::SQLITE_OPEN_READ_ONLY)
        .map_err(|error| failed(&format!("open the copy {name}"), error))?;
    let verdict: String = copy
        .query_row("PRAGMA quick_check(1)", [], |row| row.get(0))
        .map_err(|error| failed(&format!("check the copy {name}"), error))?;
    if is_unread(&verdict) {
        return Err(Error::unavailable(format!(
            "cannot check the copy {name}: the system could not read it; try again, and look at the disk"
        )));
    }
    if verdict != "ok" {
        return Err(Error::corrupt(format!(
            "the copy {name} does not pass SQLite's check; look whether {} does",
            config.path.display()
        )));
    }
    Ok(())
}

/// Returns whether SQLite's check could not read a page, which proves nothing about the page's contents.
fn is_unread(verdict: &str) -> bool {
    // A page number beyond the end is reported differently, before the page is requested.
    verdict.contains("failed to get page")
        || verdict
            .split_once("unable to get the page. error code=")
            .and_then(|(_, code)| code.trim().parse::<i32>().ok())
            // SQLITE_IOERR and SQLITE_NOMEM, with any extended code.
            .is_some_and(|code| matches!(code & 0xff, 10 | 7))
}

#[cfg(unix)]
fn sync_folder(to: &Path) -> Result<()> {
    let folder = path::above(to);
    fs::File::open(folder)
        .and_then(|file| file.sync_all())
        .map_err(|error| path::failed("sync the folder", folder, error))
}

#[cfg(not(unix))]
fn sync_folder(_: &Path) -> Result<()> {
    Ok(())
}
