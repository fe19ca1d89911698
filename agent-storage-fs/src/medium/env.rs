//! Environment that all modules share: the I/O implementation, the effects and the options; and how files are created
//! and replaced.

use std::collections::{HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agent_core::clock::Effects;
use agent_core::{Error, ErrorKind, OpenState, Result};

use crate::config::{FsConfig, Sync};
use crate::error::{corrupt, failed, in_doubt, poisoned, too_long, vanished};
use crate::io::{FileId, Io, IoFile, Kind, OpenMode, Stat, not_a_file, read_full, write_full};
use crate::medium::layout::{self, Layout};

/// Limit in bytes on a file that is read whole; far more than any valid one has.
pub(crate) const FILE_MAX_BYTES: u64 = 64 << 20;

/// State shared by all tenants of a store.
#[derive(Debug)]
pub(crate) struct Env {
    pub(crate) root: PathBuf,
    pub(crate) io: Arc<dyn Io>,
    pub(crate) effects: Effects,
    pub(crate) sync: Sync,
    pub(crate) lock_wait: std::time::Duration,
    pub(crate) open_sessions: usize,
    /// True if the store keeps `session.md` files.
    pub(crate) transcripts: bool,
    /// Bytes of `bindings.toml` up to which it is read for every answer and written for every change.
    pub(crate) bindings_rewrite_max: u64,
    /// Sessions up to which a list looks at each of them.
    pub(crate) list_scan_max: usize,
    /// Folders whose names this process has made durable, each with its file id if known.
    durable: Mutex<HashMap<PathBuf, Option<FileId>>>,
    /// Folders that existed and must not be treated as never created: the root and the folders of workspaces.
    seen: Mutex<HashSet<PathBuf>>,
    /// Files whose durability is in doubt after a failure.
    poisoned: Mutex<HashSet<PathBuf>>,
    /// Folders in which this process has removed the leftovers of crashes.
    swept: Mutex<HashSet<PathBuf>>,
    /// True if locks are known to work.
    pub(crate) probed: AtomicBool,
    /// State of the store: open or closed, and the running operations.
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
            bindings_rewrite_max: config.bindings_rewrite_max,
            list_scan_max: config.list_scan_max,
            durable: Mutex::default(),
            seen: Mutex::default(),
            poisoned: Mutex::default(),
            swept: Mutex::default(),
            probed: AtomicBool::new(false),
        }
    }

    /// Creates an object in `folder` under a name that is not in use.
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

    /// Removes the leftovers of crashes in a folder, once per process. Keeps anything younger than an hour, which
    /// another process may still be creating.
    pub(crate) fn sweep(&self, folder: &Path) {
        if !held(&self.swept).insert(folder.to_owned()) {
            return;
        }
        for (name, kind) in self.io.list(folder).unwrap_or_default() {
            let made = name.to_str().is_some_and(layout::is_temp);
            let path = folder.join(name);
            if made && self.io.stat(&path).is_ok_and(|stat| self.is_old(stat)) {
                self.discard_all(&path, kind);
            }
        }
    }

    /// Returns whether a leftover was last written more than an hour ago, so that nobody is still creating it.
    pub(crate) fn is_old(&self, stat: Stat) -> bool {
        const HOUR: i128 = 3_600_000_000_000;
        i128::from(self.effects.now().as_micros()) * 1000 - stat.modified > HOUR
    }

    /// Removes an unfinished file, or an unfinished folder with its contents.
    pub(crate) fn discard_all(&self, path: &Path, kind: Kind) {
        if kind != Kind::Folder {
            return self.discard(path);
        }
        for (name, kind) in self.io.list(path).unwrap_or_default() {
            self.discard_all(&path.join(name), kind);
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

    /// Ensures that a folder exists, and that its name and those of the folders above it are durable. A folder that
    /// another process or a failed call has just created may not be durable yet, so this process also syncs the root
    /// and each folder below it once.
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
                if held(&self.seen).contains(path) && self.is_lost(path) {
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
            // A root in a folder that this process may not read existed before.
            Err(error) if path == self.root && !made && error.kind() == io::ErrorKind::PermissionDenied => {}
            Err(error) => {
                if made && !ours {
                    // No process would sync it again if it stayed. The next writer creates it again.
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

    /// Returns whether this process has made the name of a folder durable, and the folder is still the same.
    fn is_durable(&self, path: &Path, id: FileId) -> bool {
        match held(&self.durable).get_mut(path) {
            Some(known) => *known.get_or_insert(id) == id,
            None => false,
        }
    }

    /// Records that a folder exists. If it is missing later, the store is not empty: the folder was removed.
    pub(crate) fn saw(&self, path: &Path) {
        held(&self.seen).insert(path.to_owned());
    }

    /// Forgets which folders of these tenants are durable and free of leftovers, as a new process does not know it. That one
    /// of them existed is remembered.
    pub(crate) fn forget_folders(&self, roots: &HashSet<&Path>) {
        let tenants = Layout::tenants(&self.root);
        let is_gone = |path: &Path| {
            let below = path.strip_prefix(&tenants).ok().and_then(|path| path.components().next());
            below.is_some_and(|name| roots.contains(&*tenants.join(name)))
        };
        held(&self.durable).retain(|path, _| !is_gone(path));
        held(&self.swept).retain(|path| !is_gone(path));
    }

    /// Returns the number of folders of which something is known that can be forgotten.
    #[cfg(test)]
    pub(crate) fn known_folders(&self) -> usize {
        held(&self.durable).len() + held(&self.swept).len()
    }

    /// Fails if one of these folders existed and is now missing. Call it before reporting anything in them as absent.
    pub(crate) fn check_seen(&self, folders: &[&Path]) -> Result<()> {
        for folder in folders {
            if held(&self.seen).contains(*folder) && self.is_lost(folder) {
                return Err(vanished(folder));
            }
        }
        Ok(())
    }

    /// Returns whether a folder is missing although no deletion of its tenant has put it away.
    fn is_lost(&self, folder: &Path) -> bool {
        let is_absent =
            |path: &Path| self.io.stat(path).is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
        let is_put_away = || folder != self.root && !is_absent(&parent(folder).join(layout::DELETION));
        // A deletion that has just ended has made the folder again before it removed its mark.
        is_absent(folder) && !is_put_away() && is_absent(folder)
    }

    /// Ensures that folders exist in an existing folder, and that their names are durable, with one sync for all.
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

    /// Returns whether a file exists. Anything else with that name is an error.
    pub(crate) fn has_file(&self, path: &Path) -> Result<bool> {
        match self.kind(path)? {
            Some(Kind::File) => Ok(true),
            Some(kind) => Err(failed("read", path, not_a_file(kind))),
            None => Ok(false),
        }
    }

    /// Returns the kind of the object at `path`; `None` if there is none.
    pub(crate) fn kind(&self, path: &Path) -> Result<Option<Kind>> {
        match self.io.stat(path) {
            Ok(stat) => Ok(Some(stat.kind)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(failed("look at", path, error)),
        }
    }

    /// Removes an object with all its contents, following no link. A missing object is not an error.
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

    /// Returns the names in a folder; an empty list if the folder does not exist.
    pub(crate) fn list(&self, path: &Path) -> Result<Vec<(std::ffi::OsString, Kind)>> {
        match self.io.list(path) {
            Ok(names) => Ok(names),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(failed("list the folder", path, error)),
        }
    }

    // --- files --------------------------------------------------------------------------------------------------

    /// Returns the bytes of a file; `None` if it does not exist.
    pub(crate) fn read_file(&self, path: &Path) -> Result<Option<Vec<u8>>> {
        Ok(self.read_file_with_stat(path)?.map(|(_, bytes)| bytes))
    }

    /// Returns the bytes of a file, and its metadata before it was read; `None` if it does not exist.
    pub(crate) fn read_file_with_stat(&self, path: &Path) -> Result<Option<(Stat, Vec<u8>)>> {
        let file = match self.io.open(path, OpenMode::Read) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed("open", path, error)),
        };
        let stat = file.stat_at_open().map_err(|e| failed("look at", path, e))?;
        if stat.len > FILE_MAX_BYTES {
            return Err(too_long(path, stat.len, FILE_MAX_BYTES));
        }
        let mut bytes = vec![0; usize::try_from(stat.len).unwrap_or_default()];
        let count = read_full(&*file, &mut bytes, 0).map_err(|e| failed("read", path, e))?;
        bytes.truncate(count);
        Ok(Some((stat, bytes)))
    }

    /// Returns the text of a file; `None` if it does not exist.
    pub(crate) fn read_text(&self, path: &Path) -> Result<Option<String>> {
        let Some(bytes) = self.read_file(path)? else { return Ok(None) };
        let text = String::from_utf8(bytes)
            .map_err(|source| corrupt(path, "is not UTF-8 text").with_source(source))?;
        Ok(Some(text))
    }

    /// Writes a new, synced file under an unused name beside `path`, and returns its path.
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

    /// Opens a new file under an unused name beside `path`.
    pub(crate) fn create_temp(&self, path: &Path) -> Result<(PathBuf, Box<dyn IoFile>)> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        self.fresh(parent(path), &name, |temp| self.io.open(temp, OpenMode::CreateNew))
            .map_err(|e| failed("write", path, e))
    }

    /// Removes an unfinished file. A failure is ignored, since a leftover does no harm.
    pub(crate) fn discard(&self, temp: &Path) {
        if let Err(error) = self.io.remove_file(temp) {
            tracing::debug!(path = %temp.display(), %error, "a temporary file stays behind");
        }
    }

    /// Replaces a file that can be derived again from others. It is whole at every moment, but not durable on return.
    pub(crate) fn replace_cache(&self, path: &Path, bytes: &[u8]) -> Result<()> {
        let temp = self.write_temp(path, bytes, false)?;
        self.io.rename(&temp, path).map_err(|e| {
            self.discard(&temp);
            failed("replace", path, e)
        })
    }

    /// Removes a file and makes the removal durable. A missing file is not an error.
    pub(crate) fn remove(&self, path: &Path) -> Result<()> {
        match self.io.remove_file(path) {
            Ok(()) => self.sync_name(path),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(unsure(failed("remove", path, error))),
        }
    }

    /// Makes the presence or absence of the name `path` durable.
    pub(crate) fn sync_name(&self, path: &Path) -> Result<()> {
        self.sync_dir(parent(path)).map_err(|error| {
            held(&self.poisoned).insert(path.to_owned());
            in_doubt("make durable the name of", path, error)
        })
    }

    /// Refuses every later write of a file, since what of it is durable is in doubt.
    pub(crate) fn poison(&self, path: &Path) {
        held(&self.poisoned).insert(path.to_owned());
    }

    pub(crate) fn check_poison(&self, path: &Path) -> Result<()> {
        if held(&self.poisoned).contains(path) {
            return Err(poisoned(&path.display().to_string()));
        }
        Ok(())
    }
}

/// Sets the outcome of a failed change of names. Most errors prove that it did not happen, but an I/O error may come
/// after it did.
pub(crate) fn unsure(error: Error) -> Error {
    if *error.kind() == ErrorKind::Unavailable {
        return error.with_outcome(agent_core::WriteOutcome::Unknown);
    }
    error
}

/// Returns the folder that contains a path.
pub(crate) fn parent(path: &Path) -> &Path {
    path.parent().unwrap_or(path)
}

/// Locks a mutex. A panic while it is held leaves no partial change, because each change is a single call.
pub(crate) fn held<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
