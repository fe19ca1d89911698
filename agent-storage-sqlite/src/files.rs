//! Whether the files that SQLite has open are still those that the store's path leads to. One that was moved, removed or
//! replaced goes on to be written to and read by whoever has it open, and is found by nobody else.

use std::ffi::OsString;
use std::fs::{self, Metadata};
use std::io;
use std::path::{Path, PathBuf};

use agent_core::{Error, ErrorKind, Result};

use crate::place;

/// What tells a file from every other one, for as long as it is open.
type FileId = (u64, u64);

#[cfg(unix)]
fn id_of(meta: &Metadata) -> FileId {
    use std::os::unix::fs::MetadataExt;

    (meta.dev(), meta.ino())
}

/// Elsewhere a file that is open cannot be moved or removed, but by force.
#[cfg(not(unix))]
fn id_of(_: &Metadata) -> FileId {
    (0, 0)
}

/// The id of the file that a path leads to; `None` if there is none.
pub(crate) fn id(path: &Path) -> Result<Option<FileId>> {
    match fs::metadata(path) {
        Ok(meta) => Ok(Some(id_of(&meta))),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            Ok(None)
        }
        Err(error) => Err(place::failed("look at", path, error)),
    }
}

/// A file as it was when the store was opened.
#[derive(Debug)]
struct Opened {
    path: PathBuf,
    id: FileId,
}

impl Opened {
    fn new(path: PathBuf) -> Result<Self> {
        let id = id(&path)?.ok_or_else(|| moved(&path))?;
        Ok(Self { path, id })
    }

    fn check(&self) -> Result<()> {
        if id(&self.path)? == Some(self.id) { Ok(()) } else { Err(moved(&self.path)) }
    }

    /// Whether another file has its name.
    fn is_replaced(&self) -> bool {
        !matches!(id(&self.path), Ok(found) if found.is_none_or(|id| id == self.id))
    }
}

/// The files of a store that is open.
#[derive(Debug)]
pub(crate) struct Files {
    database: Opened,
    /// SQLite's write-ahead log, and the index of that.
    log: Opened,
    index: Opened,
}

impl Files {
    /// Notes what SQLite has open. `before` is what the path led to before SQLite opened it; by now it must have read.
    pub(crate) fn note(path: &Path, before: Option<FileId>) -> Result<Self> {
        let database = Opened::new(path.to_owned())?;
        if before.is_some_and(|before| before != database.id) {
            return Err(moved(path));
        }
        // SQLite puts its own files beside the file that a link leads to.
        let real = fs::canonicalize(path).map_err(|source| place::failed("look at", path, source))?;
        let beside = |suffix: &str| {
            let mut name = OsString::from(&real);
            name.push(suffix);
            Opened::new(name.into())
        };
        Ok(Self { database, log: beside("-wal")?, index: beside("-shm")? })
    }

    /// The write-ahead log.
    pub(crate) fn log(&self) -> &Path {
        &self.log.path
    }

    /// Fails if one of the files has been moved, removed or replaced since the store was opened. Three system calls.
    pub(crate) fn check(&self) -> Result<()> {
        self.check_database()?;
        self.log.check()?;
        self.index.check()
    }

    /// The same for the database file alone.
    pub(crate) fn check_database(&self) -> Result<()> {
        self.database.check()
    }

    /// Whether another program may have begun a log of its own in the place of this store's.
    pub(crate) fn is_log_replaced(&self) -> bool {
        self.log.is_replaced() || self.index.is_replaced()
    }
}

/// The error for a file that is not where it was.
fn moved(path: &Path) -> Error {
    Error::new(
        ErrorKind::Unavailable,
        format!(
            "{} was moved, removed or replaced while the store had it open, and is not used any more; put it back, or \
             close the store and open it again",
            path.display()
        ),
    )
}
