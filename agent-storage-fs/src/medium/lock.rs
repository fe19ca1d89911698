//! Locks between processes: on folders, which cannot be removed while they are not empty, and on lock files beside
//! derived files. Nothing here waits for a lock.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use agent_core::{Error, ErrorKind, Result, WriteOutcome};

use crate::error::{failed, replaced};
use crate::io::{FileId, IoFile, LOCK, OpenMode, still_ours};
use crate::medium::env::Env;

/// Result of an attempt. The async caller waits and tries again if a lock was held.
#[derive(Debug)]
pub(crate) enum Attempt<T> {
    /// The work was done.
    Done(T),
    /// Another process or handle holds a required lock; nothing was done.
    Busy,
}

/// Locked object, by its name and its file id.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Locked<'a> {
    pub(crate) path: &'a Path,
    pub(crate) id: FileId,
}

impl Locked<'_> {
    /// Returns whether the locked object still has its name. If not, other processes lock the object that has the name
    /// now.
    pub(crate) fn still_ours(self, env: &Env) -> Result<bool> {
        let named = still_ours(&*env.io, self.id, self.path);
        Ok(named.map_err(|e| failed("look at", self.path, e))?.is_some())
    }

    /// Fails if the locked folder has been replaced under its name. Call it before a file in the folder gets its name.
    /// A temporary file created before this check cannot be renamed into the other folder after it, because it is not
    /// there.
    pub(crate) fn check(self, env: &Env) -> Result<()> {
        if self.still_ours(env)? { Ok(()) } else { Err(replaced(self.path)) }
    }
}

/// Lock that is held until this is dropped.
#[derive(Debug)]
pub(crate) struct HeldLock {
    file: Box<dyn IoFile>,
    id: FileId,
    path: PathBuf,
}

impl HeldLock {
    pub(crate) fn locked(&self) -> Locked<'_> {
        Locked { path: &self.path, id: self.id }
    }
}

impl Drop for HeldLock {
    fn drop(&mut self) {
        // By name, not by closing: a child process that is being started may share the open file for a moment.
        let _ = self.file.unlock();
    }
}

/// Takes the lock on the lock file at `path` if it is free.
pub(crate) fn take(env: &Env, path: &Path) -> Result<Option<HeldLock>> {
    hold(env, env.io.open(path, OpenMode::Create), path)
}

/// Takes the lock of a folder if it is free.
pub(crate) fn take_folder(env: &Env, folder: &Path) -> Result<Option<HeldLock>> {
    hold(env, env.io.open_lock(folder), folder)
}

fn hold(env: &Env, opened: io::Result<Box<dyn IoFile>>, path: &Path) -> Result<Option<HeldLock>> {
    let file = match opened {
        Ok(file) => file,
        // The folder was moved meanwhile. The next attempt sees the current state.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed("open the lock", path, error)),
    };
    if !try_lock(&*file, path)? {
        return Ok(None);
    }
    let id = file.stat_at_open().map_err(|e| failed("look at", path, e))?.id;
    let held = HeldLock { file, id, path: path.to_owned() };
    // The object may have been replaced before it was locked.
    Ok(held.locked().still_ours(env)?.then_some(held))
}

/// Runs `work` under the lock of a folder, if that is free. The result counts only if the folder still has its name at
/// the end; if another folder has the name, the result is `Busy`, and the caller repeats the work there.
pub(crate) fn under<T>(
    env: &Env,
    folder: &Path,
    work: impl FnOnce(Locked<'_>) -> Result<Attempt<T>>,
) -> Result<Attempt<T>> {
    let Some(lock) = take_folder(env, folder)? else { return Ok(Attempt::Busy) };
    let done = work(lock.locked());
    match (done, lock.locked().still_ours(env)) {
        (done, Ok(true)) => done,
        (Err(error), Ok(false)) if error.write_outcome() == WriteOutcome::Unknown => Err(error),
        (_, Ok(false)) => Ok(Attempt::Busy),
        (Ok(Attempt::Done(_)), Err(error)) => Err(error.with_outcome(WriteOutcome::Unknown)),
        (done, Err(_)) => done,
    }
}

/// Takes the lock of an open file if it is free.
pub(crate) fn try_lock(file: &dyn IoFile, path: &Path) -> Result<bool> {
    file.try_lock().map_err(|source| {
        let mut error = failed("lock", path, source);
        if *error.kind() == ErrorKind::Unsupported {
            error = no_locks(path).with_source(error);
        }
        error
    })
}

/// Checks, once per store, that locks in `folder` are exclusive.
pub(crate) fn probe_once(env: &Env, folder: &Path) -> Result<()> {
    if !env.probed.load(Ordering::Relaxed) {
        probe(env, folder)?;
        env.probed.store(true, Ordering::Relaxed);
    }
    Ok(())
}

/// Checks that locks on this file system are exclusive. Some network and user-space file systems accept every lock and
/// exclude no process.
fn probe(env: &Env, folder: &Path) -> Result<()> {
    let (path, ()) = env
        .fresh(folder, "lock-probe", |path| env.io.create_dir(path))
        .map_err(|e| failed("create a folder in", folder, e))?;
    let tried = (|| {
        let open = || env.io.open_lock(&path).map_err(|e| failed("open", &path, e));
        let (first, second) = (open()?, open()?);
        if !try_lock(&*first, &path)? || try_lock(&*second, &path)? {
            return Err(no_locks(&path));
        }
        Ok(())
    })();
    if cfg!(not(unix)) {
        env.discard(&path.join(LOCK));
    }
    let removed = env.io.remove_dir(&path);
    tried?;
    removed.map_err(|e| failed("remove", &path, e))
}

fn no_locks(path: &Path) -> Error {
    Error::unsupported(format!(
        "the file system of {} has no working file locks, so two writers could overwrite each other; use a local directory",
        path.display()
    ))
}
