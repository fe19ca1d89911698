//! Checks that the files which SQLite has open are still those at the store's path. A process that has a moved,
//! removed or replaced file open continues to read and write it, but no other process finds that file.

use std::ffi::OsString;
use std::fs::{self, Metadata};
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use agent_core::{Error, ErrorKind, Result};

use crate::place;

/// Id that distinguishes a file from every other one while it is open.
type FileId = (u64, u64);

#[cfg(unix)]
fn id_of(meta: &Metadata) -> FileId {
    use std::os::unix::fs::MetadataExt;

    (meta.dev(), meta.ino())
}

/// On other systems a file that is open cannot normally be moved or removed.
#[cfg(not(unix))]
fn id_of(_: &Metadata) -> FileId {
    (0, 0)
}

/// Returns the id of the file at `path`; `None` if there is none.
pub(crate) fn id(path: &Path) -> Result<Option<FileId>> {
    match fs::metadata(path) {
        Ok(meta) => Ok(Some(id_of(&meta))),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            Ok(None)
        }
        Err(error) => Err(place::failed("look at", path, error)),
    }
}

/// File as it was when the store was opened.
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

    /// Returns whether another file has the name.
    fn is_replaced(&self) -> bool {
        !matches!(id(&self.path), Ok(found) if found.is_none_or(|id| id == self.id))
    }
}

/// Files of an open store.
#[derive(Debug)]
pub(crate) struct Files {
    database: Opened,
    /// SQLite's write-ahead log; the field `index` is the log's index.
    log: Opened,
    index: Opened,
    /// Length and time of the last write of a database that is read without a log.
    still: Option<(u64, Option<SystemTime>)>,
}

fn stamp(path: &Path) -> Result<(u64, Option<SystemTime>)> {
    let meta = fs::metadata(path).map_err(|source| place::failed("look at", path, source))?;
    Ok((meta.len(), meta.modified().ok()))
}

/// Returns the length of a file in bytes; `None` if there is none.
pub(crate) fn len(path: &Path) -> Option<u64> {
    fs::metadata(path).ok().map(|meta| meta.len())
}

/// Returns the path of a file that SQLite keeps beside the database at `path`, after following links.
pub(crate) fn beside(path: &Path, suffix: &str) -> Result<PathBuf> {
    // Beside the target of a link.
    let real = fs::canonicalize(path).map_err(|source| place::failed("look at", path, source))?;
    let mut name = OsString::from(real);
    name.push(suffix);
    Ok(name.into())
}

impl Files {
    /// Records which files SQLite has open. `before` is the id that the path had before SQLite opened it. Call it
    /// after SQLite has read the file.
    pub(crate) fn note(path: &Path, before: Option<FileId>) -> Result<Self> {
        let database = Opened::new(path.to_owned())?;
        if before.is_some_and(|before| before != database.id) {
            return Err(moved(path));
        }
        let opened = |suffix: &str| Opened::new(beside(path, suffix)?);
        Ok(Self { database, log: opened("-wal")?, index: opened("-shm")?, still: None })
    }

    /// Like [`note`](Self::note), for a file that is read without a log.
    pub(crate) fn note_still(path: &Path) -> Result<Self> {
        let still = Some(stamp(path)?);
        let none = |suffix: &str| beside(path, suffix).map(|path| Opened { path, id: (0, 0) });
        Ok(Self { database: Opened::new(path.to_owned())?, log: none("-wal")?, index: none("-shm")?, still })
    }

    /// Returns the path of the write-ahead log.
    pub(crate) fn log(&self) -> &Path {
        &self.log.path
    }

    /// Fails if one of the files has been moved, removed or replaced since the store was opened. For a file that is
    /// read without a log, also fails if it was written to. Costs three system calls.
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

    /// Like [`check`](Self::check), for the database file only.
    pub(crate) fn check_database(&self) -> Result<()> {
        self.database.check()
    }

    /// Returns whether another program may have created its own log in place of this store's.
    pub(crate) fn is_log_replaced(&self) -> bool {
        self.log.is_replaced() || self.index.is_replaced()
    }
}

/// Error for a file that is no longer at its path.
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
