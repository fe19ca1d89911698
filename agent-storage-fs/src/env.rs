//! What every room works with: the seam, the effects, the options; and the ways in which files come to be.

use std::collections::{HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agent_core::clock::Effects;
use agent_core::{Error, ErrorKind, OpenState, Result};

use crate::config::{FsConfig, Sync};
use crate::error::{corrupt, failed, in_doubt, poisoned, vanished};
use crate::io::{FileId, Io, IoFile, Kind, OpenMode, not_a_file, read_full, write_full};
use crate::layout;

/// Shared by all tenants of a store.
#[derive(Debug)]
pub(crate) struct Env {
    pub(crate) root: PathBuf,
    pub(crate) io: Arc<dyn Io>,
    pub(crate) effects: Effects,
    pub(crate) sync: Sync,
    pub(crate) lock_wait: std::time::Duration,
    pub(crate) open_sessions: usize,
    /// Whether `session.md` is kept.
    pub(crate) transcripts: bool,
    /// Folders whose names this process has made durable, and which these were, as far as that is known.
    durable: Mutex<HashMap<PathBuf, Option<FileId>>>,
    /// Folders that were there and must not be taken for ones that never were: the root, those of workspaces.
    seen: Mutex<HashSet<PathBuf>>,
    /// Files of which a failure left in doubt what is durable.
    poisoned: Mutex<HashSet<PathBuf>>,
    /// Folders in which this process has cleared away what crashes left.
    swept: Mutex<HashSet<PathBuf>>,
    /// Whether locks were seen to work.
    pub(crate) probed: AtomicBool,
    /// Whether the store is open, and what it is at work on.
    pub(crate) open: OpenState,
}

impl Env {
    pub(crate) fn new(config: FsConfig) -> Self {
        Self {
            open: OpenState::new(format!("the store {}", config.root.display())),
            root: config.root,
            io: config.io,
            effects: config.effects,
            sync: config.sync,
            lock_wait: config.lock_wait,
            open_sessions: config.open_sessions,
            transcripts: config.transcripts,
            durable: Mutex::default(),
            seen: Mutex::default(),
            poisoned: Mutex::default(),
            swept: Mutex::default(),
            probed: AtomicBool::new(false),
        }
    }

    /// Makes something under a name in `folder` that nobody else has.
    pub(crate) fn fresh<T>(
        &self,
        folder: &Path,
        name: &str,
        make: impl Fn(&Path) -> io::Result<T>,
    ) -> io::Result<(PathBuf, T)> {
        let mut tries = 0;
        loop {
            let path = folder.join(format!(".{name}{}{:016x}", layout::NEW, self.effects.random_u64()));
            match make(&path) {
                Ok(made) => return Ok((path, made)),
                // Two processes with the same seed draw the same names.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && tries < 16 => tries += 1,
                Err(error) => return Err(error),
            }
        }
    }

    /// Removes what crashes left in a folder: once in the life of this process, and nothing that is younger than an
    /// hour, since it may be in the making.
    pub(crate) fn sweep(&self, folder: &Path) {
        const HOUR: i128 = 3_600_000_000_000;
        if !held(&self.swept).insert(folder.to_owned()) {
            return;
        }
        let now = i128::from(self.effects.now().as_micros()) * 1000;
        for (name, kind) in self.io.list(folder).unwrap_or_default() {
            let made = name.to_str().is_some_and(|name| name.starts_with('.') && name.contains(layout::NEW));
            let path = folder.join(name);
            if made && self.io.stat(&path).is_ok_and(|stat| now - stat.modified > HOUR) {
                self.discard_all(&path, kind);
            }
        }
    }

    /// Removes what could not be finished, a folder with what is in it.
    pub(crate) fn discard_all(&self, path: &Path, kind: Kind) {
        if kind != Kind::Folder {
            return self.discard(path);
        }
        for (name, _) in self.io.list(path).unwrap_or_default() {
            self.discard(&path.join(name));
        }
        if let Err(error) = self.io.remove_dir(path) {
            tracing::debug!(path = %path.display(), %error, "a temporary folder stays behind");
        }
    }

    pub(crate) fn sync_file(&self, file: &dyn IoFile) -> io::Result<()> {
        if self.sync == Sync::Full { file.sync() } else { Ok(()) }
    }

    pub(crate) fn sync_dir(&self, path: &Path) -> io::Result<()> {
        if self.sync == Sync::Full { self.io.sync_dir(path) } else { Ok(()) }
    }

    // --- folders ------------------------------------------------------------------------------------------------

    /// Makes sure that a folder is there, and that its name and those above it are durable. One that was made a
    /// moment ago, by another process or by a call that failed, may not be, so the root and each folder below it is
    /// synced once by this process too.
    pub(crate) fn ensure_dir(&self, path: &Path) -> Result<()> {
        let ours = path.starts_with(&self.root);
        let made = match self.io.stat(path) {
            Ok(stat) if stat.kind != Kind::Folder => {
                return Err(failed("use the folder", path, io::ErrorKind::NotADirectory.into()));
            }
            Ok(_) if !ours => return Ok(()),
            Ok(stat) if self.is_durable(path, stat.id) => return Ok(()),
            Ok(_) => {
                if path != self.root {
                    self.ensure_dir(parent(path))?;
                }
                false
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                if held(&self.seen).contains(path) {
                    return Err(vanished(path));
                }
                self.ensure_dir(parent(path))?;
                match self.io.create_dir(path) {
                    Ok(()) => true,
                    Err(error) if error.kind() == io::ErrorKind::AlreadyExists => false,
                    Err(error) => return Err(failed("create the folder", path, error)),
                }
            }
            Err(error) => return Err(failed("use the folder", path, error)),
        };
        match self.sync_dir(parent(path)) {
            Ok(()) => {}
            // A root in a folder that we may not read was there before we came.
            Err(error) if path == self.root && !made && error.kind() == io::ErrorKind::PermissionDenied => {}
            Err(error) => {
                if made && !ours {
                    // Nobody syncs it again if it stays. Whoever needs it makes it anew.
                    let _ = self.io.remove_dir(path);
                }
                return Err(failed("make durable the folder", path, error));
            }
        }
        held(&self.durable).insert(path.to_owned(), None);
        if path == self.root || path.ends_with(layout::WORKSPACES) {
            self.saw(path);
        }
        Ok(())
    }

    /// Whether this process has made the name of a folder durable, and it is that folder.
    fn is_durable(&self, path: &Path, id: FileId) -> bool {
        match held(&self.durable).get_mut(path) {
            Some(known) => *known.get_or_insert(id) == id,
            None => false,
        }
    }

    /// Remembers that a folder is there: without it the store is not empty, but gone.
    pub(crate) fn saw(&self, path: &Path) {
        held(&self.seen).insert(path.to_owned());
    }

    /// Before something in one of these folders is said to be absent: whether one that was there is gone.
    pub(crate) fn check_seen(&self, folders: &[&Path]) -> Result<()> {
        for folder in folders {
            let gone = || self.io.stat(folder).is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
            if held(&self.seen).contains(*folder) && gone() {
                return Err(vanished(folder));
            }
        }
        Ok(())
    }

    /// Makes sure that folders are there in a folder that is, and that their names are durable: one sync for all.
    pub(crate) fn ensure_dirs(&self, folder: &Path, names: &[&str]) -> Result<()> {
        for name in names {
            let path = folder.join(name);
            let made = match self.io.create_dir(&path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => match self.io.stat(&path) {
                    Ok(stat) if stat.kind != Kind::Folder => Err(io::ErrorKind::NotADirectory.into()),
                    _ => Ok(()),
                },
                made => made,
            };
            made.map_err(|error| failed("create the folder", &path, error))?;
        }
        self.sync_dir(folder).map_err(|error| failed("make durable", folder, error))
    }

    /// Whether a file is there. Something else of that name is an error.
    pub(crate) fn has_file(&self, path: &Path) -> Result<bool> {
        match self.kind(path)? {
            Some(Kind::File) => Ok(true),
            Some(kind) => Err(failed("read", path, not_a_file(kind))),
            None => Ok(false),
        }
    }

    /// What stands under a name, if anything does.
    pub(crate) fn kind(&self, path: &Path) -> Result<Option<Kind>> {
        match self.io.stat(path) {
            Ok(stat) => Ok(Some(stat.kind)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(failed("look at", path, error)),
        }
    }

    /// Removes something with all that is in it; no link is followed. No error if it is not there.
    pub(crate) fn remove_tree(&self, path: &Path, kind: Kind) -> Result<()> {
        let removed = if kind == Kind::Folder {
            for (name, kind) in self.list(path)? {
                self.remove_tree(&path.join(name), kind)?;
            }
            self.io.remove_dir(path)
        } else {
            self.io.remove_file(path)
        };
        match removed {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed("remove", path, error)),
            _ => Ok(()),
        }
    }

    /// The names in a folder; none where there is no such folder.
    pub(crate) fn list(&self, path: &Path) -> Result<Vec<(std::ffi::OsString, Kind)>> {
        match self.io.list(path) {
            Ok(names) => Ok(names),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(failed("list the folder", path, error)),
        }
    }

    // --- files --------------------------------------------------------------------------------------------------

    /// The bytes of a file; `None` where there is none.
    pub(crate) fn read_file(&self, path: &Path) -> Result<Option<Vec<u8>>> {
        /// Far more than any file that is read whole ever holds.
        const MOST: u64 = 64 << 20;
        let file = match self.io.open(path, OpenMode::Read) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed("open", path, error)),
        };
        let stat = file.stat().map_err(|e| failed("look at", path, e))?;
        if stat.len > MOST {
            return Err(corrupt(path, &format!("has {} bytes, far more than belong there", stat.len)));
        }
        let mut bytes = vec![0; usize::try_from(stat.len).unwrap_or_default()];
        let count = read_full(&*file, &mut bytes, 0).map_err(|e| failed("read", path, e))?;
        bytes.truncate(count);
        Ok(Some(bytes))
    }

    /// The text of a file; `None` where there is none.
    pub(crate) fn read_text(&self, path: &Path) -> Result<Option<String>> {
        let Some(bytes) = self.read_file(path)? else { return Ok(None) };
        let text = String::from_utf8(bytes)
            .map_err(|source| corrupt(path, "is not UTF-8 text").with_source(source))?;
        Ok(Some(text))
    }

    /// Writes a new file of a free name beside `path`, synced, and returns the name.
    pub(crate) fn write_temp(&self, path: &Path, bytes: &[u8], durable: bool) -> Result<PathBuf> {
        let (temp, file) = self.create_temp(path)?;
        let written = write_full(&*file, bytes, 0)
            .and_then(|()| if durable { self.sync_file(&*file) } else { Ok(()) })
            .map_err(|e| failed("write", path, e));
        if let Err(error) = written {
            self.discard(&temp);
            return Err(error);
        }
        Ok(temp)
    }

    /// Opens a new file of a free name beside `path`.
    pub(crate) fn create_temp(&self, path: &Path) -> Result<(PathBuf, Box<dyn IoFile>)> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        self.fresh(parent(path), &name, |temp| self.io.open(temp, OpenMode::CreateNew))
            .map_err(|e| failed("write", path, e))
    }

    /// Removes what could not be finished; left behind, it is only in the way.
    pub(crate) fn discard(&self, temp: &Path) {
        if let Err(error) = self.io.remove_file(temp) {
            tracing::debug!(path = %temp.display(), %error, "a temporary file stays behind");
        }
    }

    /// Replaces a file that can be made again from others: whole at every moment, durable some time.
    pub(crate) fn replace_cache(&self, path: &Path, bytes: &[u8]) -> Result<()> {
        let temp = self.write_temp(path, bytes, false)?;
        self.io.rename(&temp, path).map_err(|e| {
            self.discard(&temp);
            failed("replace", path, e)
        })
    }

    /// Removes a file and makes that durable; no error where there is none.
    pub(crate) fn remove(&self, path: &Path) -> Result<()> {
        match self.io.remove_file(path) {
            Ok(()) => self.sync_name(path),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(unsure(failed("remove", path, error))),
        }
    }

    /// Makes durable that `path` has its name, or has it no more.
    pub(crate) fn sync_name(&self, path: &Path) -> Result<()> {
        self.sync_dir(parent(path)).map_err(|error| {
            held(&self.poisoned).insert(path.to_owned());
            in_doubt("make durable the name of", path, error)
        })
    }

    pub(crate) fn check_poison(&self, path: &Path) -> Result<()> {
        if held(&self.poisoned).contains(path) {
            return Err(poisoned(&path.display().to_string()));
        }
        Ok(())
    }
}

/// A change of names that failed: most errors prove that it did not happen, but an I/O error may come after it did.
pub(crate) fn unsure(error: Error) -> Error {
    if *error.kind() == ErrorKind::Unavailable {
        return error.with_outcome(agent_core::WriteOutcome::Unknown);
    }
    error
}

/// The folder that a path lies in.
pub(crate) fn parent(path: &Path) -> &Path {
    path.parent().unwrap_or(path)
}

/// Takes a mutex. A panic while it is held leaves no half change: each is changed by one call.
pub(crate) fn held<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
