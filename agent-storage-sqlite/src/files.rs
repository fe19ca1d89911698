//! Whether the files that SQLite has open are still those that the store's path leads to. One that was moved, removed or
//! replaced goes on to be written to and read by whoever has it open, and is found by nobody else.

use std::ffi::OsString;
use std::fs::{self, Metadata};
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

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
    /// Of a file that is read without a log: its length, and when it was last written to.
    still: Option<(u64, Option<SystemTime>)>,
}

fn stamp(path: &Path) -> Result<(u64, Option<SystemTime>)> {
    let meta = fs::metadata(path).map_err(|source| place::failed("look at", path, source))?;
    Ok((meta.len(), meta.modified().ok()))
}

/// The length of a file; `None` if there is none.
pub(crate) fn len(path: &Path) -> Option<u64> {
    fs::metadata(path).ok().map(|meta| meta.len())
}

/// The file that SQLite keeps beside the one that `path` leads to.
pub(crate) fn beside(path: &Path, suffix: &str) -> Result<PathBuf> {
    // Beside the file that a link leads to.
    let real = fs::canonicalize(path).map_err(|source| place::failed("look at", path, source))?;
    let mut name = OsString::from(real);
    name.push(suffix);
    Ok(name.into())
}

impl Files {
    /// Notes what SQLite has open. `before` is what the path led to before SQLite opened it; by now it must have read.
    pub(crate) fn note(path: &Path, before: Option<FileId>) -> Result<Self> {
        let database = Opened::new(path.to_owned())?;
        if before.is_some_and(|before| before != database.id) {
            return Err(moved(path));
        }
        let opened = |suffix: &str| Opened::new(beside(path, suffix)?);
        Ok(Self { database, log: opened("-wal")?, index: opened("-shm")?, still: None })
    }

    /// The same for a file that is read without a log.
    pub(crate) fn note_still(path: &Path) -> Result<Self> {
        let still = Some(stamp(path)?);
        let none = |suffix: &str| beside(path, suffix).map(|path| Opened { path, id: (0, 0) });
        Ok(Self { database: Opened::new(path.to_owned())?, log: none("-wal")?, index: none("-shm")?, still })
    }

    /// The write-ahead log.
    pub(crate) fn log(&self) -> &Path {
        &self.log.path
    }

    /// Fails if one of the files has been moved, removed or replaced since the store was opened; one that is read without a
    /// log, also if it was written to. Three system calls.
    pub(crate) fn check(&self) -> Result<()> {
        self.check_database()?;
        if let Some(still) = self.still {
            let path = &self.database.path;
            return match stamp(path)? == still && len(&self.log.path).unwrap_or(0) == 0 {
                true => Ok(()),
                false => Err(Error::new(
                    ErrorKind::Unavailable,
                    format!(
                        "{} is read-only here and was written to elsewhere; open it again",
                        path.display()
                    ),
                )),
            };
        }
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
