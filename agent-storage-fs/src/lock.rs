//! Locks between processes: on side files that are never deleted, never waited for here.

use std::path::Path;

use agent_core::{Error, ErrorKind, Result, planted};

use crate::env::Env;
use crate::error::failed;
use crate::io::{IoFile, OpenMode};

/// What came of an attempt: the shell waits and tries again where a lock was held.
#[derive(Debug)]
pub(crate) enum Attempt<T> {
    /// It was done.
    Done(T),
    /// Somebody else holds a lock that it needs; nothing was done.
    Busy,
}

/// A lock that is held until this is dropped.
#[derive(Debug)]
pub(crate) struct Held(Box<dyn IoFile>);

impl Drop for Held {
    fn drop(&mut self) {
        // By name, not by closing: a child process that is being started may share the open file for a moment.
        let _ = self.0.unlock();
    }
}

/// Takes the lock at `path` if it is free.
pub(crate) fn take(env: &Env, path: &Path) -> Result<Option<Held>> {
    if planted("lock-file-deleted") {
        env.discard(path);
    }
    let file = env.io.open(path, OpenMode::Create).map_err(|e| failed("open the lock", path, e))?;
    Ok(try_lock(&*file, path)?.then(|| Held(file)))
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

/// Makes sure that locks on this file system keep others out; some network and user-space file systems accept every
/// lock and keep out nobody.
pub(crate) fn probe(env: &Env, folder: &Path) -> Result<()> {
    let (path, first) = env
        .fresh(folder, "lock-probe", |path| env.io.open(path, OpenMode::CreateNew))
        .map_err(|e| failed("create a file in", folder, e))?;
    let tried = (|| {
        let second = env.io.open(&path, OpenMode::Write).map_err(|e| failed("open", &path, e))?;
        if !try_lock(&*first, &path)? || try_lock(&*second, &path)? {
            return Err(no_locks(&path));
        }
        Ok(())
    })();
    let removed = env.io.remove_file(&path);
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
