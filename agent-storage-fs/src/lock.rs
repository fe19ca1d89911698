//! Locks between processes: on folders, which nobody can remove while they hold something, and on side files of what is
//! derived. Never waited for here.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use agent_core::{Error, ErrorKind, Result, WriteOutcome};

use crate::env::Env;
use crate::error::{failed, replaced};
use crate::io::{FileId, IoFile, LOCK, OpenMode, still_ours};

/// What came of an attempt: the shell waits and tries again where a lock was held.
#[derive(Debug)]
pub(crate) enum Attempt<T> {
    /// It was done.
    Done(T),
    /// Somebody else holds a lock that it needs; nothing was done.
    Busy,
}

/// What is locked, by its name and by what it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Locked<'a> {
    pub(crate) path: &'a Path,
    pub(crate) id: FileId,
}

impl Locked<'_> {
    /// Whether what is locked still has its name. If not, others lock what has it now.
    pub(crate) fn still_ours(self, env: &Env) -> Result<bool> {
        let named = still_ours(&*env.io, self.id, self.path);
        Ok(named.map_err(|e| failed("look at", self.path, e))?.is_some())
    }

    /// Before something in it gets a name: fails if another folder has this one's name by now. What was made beside the
    /// new name before this cannot come into that folder after it, since it is not there.
    pub(crate) fn check(self, env: &Env) -> Result<()> {
        if self.still_ours(env)? { Ok(()) } else { Err(replaced(self.path)) }
    }
}

/// A lock that is held until this is dropped.
#[derive(Debug)]
pub(crate) struct Held {
    file: Box<dyn IoFile>,
    id: FileId,
    path: PathBuf,
}

impl Held {
    pub(crate) fn locked(&self) -> Locked<'_> {
        Locked { path: &self.path, id: self.id }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // By name, not by closing: a child process that is being started may share the open file for a moment.
        let _ = self.file.unlock();
    }
}

/// Takes the lock on the side file at `path` if it is free.
pub(crate) fn take(env: &Env, path: &Path) -> Result<Option<Held>> {
    hold(env, env.io.open(path, OpenMode::Create), path)
}

/// Takes the lock of a folder if it is free.
pub(crate) fn take_folder(env: &Env, folder: &Path) -> Result<Option<Held>> {
    hold(env, env.io.open_lock(folder), folder)
}

fn hold(env: &Env, opened: io::Result<Box<dyn IoFile>>, path: &Path) -> Result<Option<Held>> {
    let file = match opened {
        Ok(file) => file,
        // Somebody moved the folder away just now. Who tries again sees what is there.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed("open the lock", path, error)),
    };
    if !try_lock(&*file, path)? {
        return Ok(None);
    }
    let id = file.stat().map_err(|e| failed("look at", path, e))?.id;
    let held = Held { file, id, path: path.to_owned() };
    // It may have been replaced before it was locked.
    Ok(held.locked().still_ours(env)?.then_some(held))
}

/// Does `work` under the lock of a folder, if that is free. What it did counts if the folder still has its name at the
/// end; if another has it, the work is to be done again there.
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

/// Makes sure, once in the life of a store, that locks in `folder` keep others out.
pub(crate) fn probe_once(env: &Env, folder: &Path) -> Result<()> {
    if !env.probed.load(Ordering::Relaxed) {
        probe(env, folder)?;
        env.probed.store(true, Ordering::Relaxed);
    }
    Ok(())
}

/// Makes sure that locks on this file system keep others out; some network and user-space file systems accept every
/// lock and keep out nobody.
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
    Error::new(
        ErrorKind::Unsupported,
        format!(
            "the file system of {} has no working file locks, so two writers could overwrite each other; use a local directory",
            path.display()
        ),
    )
}
