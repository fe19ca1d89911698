//! Checks that the files which SQLite has open are still those at the store's path. A process that has a moved,
//! removed or replaced file open continues to read and write it, but no other process finds that file.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use agent_core::{Error, Result};

use crate::medium::folder::{FileId, Folder, id_of};
use crate::medium::path;

/// Returns the id of the file at `path`; `None` if there is none.
pub(crate) fn id(path: &Path) -> Result<Option<FileId>> {
    match fs::metadata(path) {
        Ok(meta) => Ok(Some(id_of(&meta))),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            Ok(None)
        }
        Err(error) => Err(path::failed("look at", path, error)),
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

    /// Returns whether the file is an entry of this folder, without a link.
    fn is_in(&self, folder: FileId) -> bool {
        matches!(id(path::above(&self.path)), Ok(Some(found)) if found == folder)
            && fs::symlink_metadata(&self.path).is_ok_and(|meta| id_of(&meta) == self.id)
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
    /// Folder of all three, if it tells when a name in it changes.
    folder: Option<Folder>,
    /// Length and time of the last write of a database that is read without a log.
    still: Option<(u64, Option<SystemTime>)>,
}

fn stamp(path: &Path) -> Result<(u64, Option<SystemTime>)> {
    let meta = fs::metadata(path).map_err(|source| path::failed("look at", path, source))?;
    Ok((meta.len(), meta.modified().ok()))
}

/// Returns the length of a file in bytes; `None` if there is none.
pub(crate) fn len(path: &Path) -> Option<u64> {
    fs::metadata(path).ok().map(|meta| meta.len())
}

/// Returns the path of a file that SQLite keeps beside the database at `path`, after following links.
pub(crate) fn beside(path: &Path, suffix: &str) -> Result<PathBuf> {
    // Beside the target of a link.
    let real = fs::canonicalize(path).map_err(|source| path::failed("look at", path, source))?;
    Ok(with_suffix(real, suffix))
}

fn with_suffix(path: PathBuf, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}

/// Fails if something that is not a file has the name of a file that SQLite keeps beside the database at `path`, which may
/// not exist yet. Opens nothing. Call it before each new connection: SQLite looks for a journal then, and waits for a pipe in
/// its place without end.
pub(crate) fn check_beside(path: &Path) -> Result<()> {
    let real = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    for suffix in ["-journal", "-wal", "-shm"] {
        let beside = with_suffix(real.clone(), suffix);
        // What cannot be looked at is reported by SQLite.
        if let Ok(meta) = fs::symlink_metadata(&beside)
            && !meta.is_file()
        {
            let text = format!(
                "{} is {} where SQLite keeps a file of its own; nothing was changed; move it away, then try again",
                beside.display(),
                name_of(meta.file_type())
            );
            return Err(Error::corrupt(text));
        }
    }
    Ok(())
}

/// Returns what an object is that is not a file.
fn name_of(kind: fs::FileType) -> &'static str {
    if kind.is_dir() {
        return "a folder";
    }
    if kind.is_symlink() {
        return "a link";
    }
    #[cfg(unix)]
    {
        use std::os::unix::fs::FileTypeExt;
        if kind.is_fifo() {
            return "a pipe";
        }
        if kind.is_socket() {
            return "a socket";
        }
    }
    "a device"
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
        let (log, index, folder) = (opened("-wal")?, opened("-shm")?, Folder::of(path));
        Ok(Self { database, log, index, folder, still: None })
    }

    /// Like [`note`](Self::note), for a file that is read without a log.
    pub(crate) fn note_still(path: &Path) -> Result<Self> {
        let still = Some(stamp(path)?);
        let none = |suffix: &str| beside(path, suffix).map(|path| Opened { path, id: (0, 0) });
        let (log, index) = (none("-wal")?, none("-shm")?);
        Ok(Self { database: Opened::new(path.to_owned())?, log, index, folder: None, still })
    }

    /// Returns the path of the write-ahead log.
    pub(crate) fn log(&self) -> &Path {
        &self.log.path
    }

    /// Fails if one of the files has been moved, removed or replaced since the store was opened. For a file that is
    /// read without a log, also fails if it was written to. Costs one system call, or three in a folder that has changed
    /// in the last seconds or may not tell when it changes.
    pub(crate) fn check(&self) -> Result<()> {
        let Some(folder) = &self.folder else { return self.check_each() };
        if folder.is_unchanged() {
            return Ok(());
        }
        let state = folder.settled();
        self.check_each()?;
        if let Some(state) = state {
            let opened = [&self.database, &self.log, &self.index];
            folder.note(state, opened.iter().all(|opened| opened.is_in(state.id)));
        }
        Ok(())
    }

    fn check_each(&self) -> Result<()> {
        self.check_database()?;
        if let Some(still) = self.still {
            let path = &self.database.path;
            return match stamp(path)? == still && len(&self.log.path).unwrap_or(0) == 0 {
                true => Ok(()),
                false => Err(Error::unavailable(format!(
                    "{} is read-only here and was written to elsewhere; open it again",
                    path.display()
                ))),
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
    Error::unavailable(format!(
        "{} was moved, removed or replaced while the store had it open, and is not used any more; put it back, or \
         close the store and open it again",
        path.display()
    ))
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::os::unix::fs::symlink;
    use std::time::Duration;

    use agent_core::ErrorKind;

    use super::*;

    const FILES: [&str; 3] = ["db", "db-wal", "db-shm"];

    /// Waits until the folders have settled.
    #[allow(clippy::disallowed_methods, reason = "the clock of the file system goes on")]
    fn wait() {
        std::thread::sleep(Duration::from_secs(4));
    }

    fn files(folder: &Path) {
        fs::create_dir(folder).unwrap();
        for name in FILES {
            fs::write(folder.join(name), "").unwrap();
        }
    }

    /// In a folder that has not changed for some seconds only the folder is looked at, and what happens to a file in it or
    /// to the folder is noticed as before.
    #[test]
    fn a_settled_folder_is_checked_instead_of_its_files() {
        let above = tempfile::tempdir().unwrap();
        let folders = ["renamed", "replaced", "exchanged", "itself"].map(|name| above.path().join(name));
        let mut opened = Vec::new();
        for folder in &folders {
            for name in FILES {
                let folder = folder.join(name);
                fs::create_dir_all(folder.parent().unwrap()).unwrap();
                files(&folder);
                let files = Files::note(&folder.join("db"), None).unwrap();
                files.check().unwrap();
                opened.push((files, folder, name));
            }
        }
        wait();
        for (files, folder, name) in opened {
            files.check().unwrap();
            let remembered = files.folder.as_ref().expect("temporary files on a common file system");
            assert!(remembered.is_unchanged(), "{}", folder.display());
            files.check().unwrap();

            let (file, away) = (folder.join(name), folder.with_extension("away"));
            match folder.parent().unwrap().file_name().unwrap().to_str().unwrap() {
                "renamed" => fs::rename(&file, &away).unwrap(),
                "replaced" => {
                    fs::write(&away, "").unwrap();
                    fs::rename(&away, &file).unwrap();
                }
                "exchanged" => {
                    fs::write(&away, "").unwrap();
                    let (from, flags) = (rustix::fs::CWD, rustix::fs::RenameFlags::EXCHANGE);
                    rustix::fs::renameat_with(from, &file, from, &away, flags).unwrap();
                }
                _ => {
                    fs::rename(&folder, &away).unwrap();
                    fs::create_dir(&folder).unwrap();
                }
            }
            for _ in 0..2 {
                let error = files.check().expect_err(&format!("{} in {}", name, folder.display()));
                assert_eq!(*error.kind(), ErrorKind::Unavailable);
            }
        }
    }

    /// A name in the folder that is a link leads to a file which may be moved without a change of the folder.
    #[test]
    fn a_link_is_followed_at_each_check() {
        let above = tempfile::tempdir().unwrap();
        let (real, link) = (above.path().join("real"), above.path().join("link"));
        files(&real);
        fs::create_dir(&link).unwrap();
        symlink(real.join("db"), link.join("db")).unwrap();
        let found = Files::note(&link.join("db"), None).unwrap();
        found.check().unwrap();
        wait();
        found.check().unwrap();
        assert!(!found.folder.as_ref().expect("temporary files on a common file system").is_unchanged());
        fs::rename(real.join("db"), real.join("away")).unwrap();
        found.check().unwrap_err();
    }
}
