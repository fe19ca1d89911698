//! Proof that the process which took a lease is dead. Each process that takes a lease keeps a lock on a file beside
//! the database, and the session's row names that file. The system drops the lock when the process ends for any
//! reason.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use agent_core::clock::Effects;

/// Text between the database's name and the holder's name.
const MARK: &str = "-holder-";

/// Holder of leases: this process. Dropping it releases the lock, which other processes take for the holder's
/// death.
#[derive(Debug)]
pub(crate) struct Holder {
    database: PathBuf,
    effects: Effects,
    held: Option<HeldFile>,
}

#[derive(Debug)]
struct HeldFile {
    name: String,
    path: PathBuf,
    file: File,
}

impl Drop for HeldFile {
    fn drop(&mut self) {
        // A missing file proves as much as one whose lock is free.
        let _ = fs::remove_file(&self.path);
        // By name, not by closing: a child process that is being started may share the open file for a moment.
        let _ = self.file.unlock();
    }
}

impl Holder {
    pub(crate) fn new(database: PathBuf, effects: Effects) -> Self {
        Self { database, effects, held: None }
    }

    /// Returns the name under which this process holds its lock, if it has one.
    pub(crate) fn name(&self) -> Option<&str> {
        self.held.as_ref().map(|held| held.name.as_str())
    }

    /// Takes this process's lock, if possible, before its name is written to a row. A lease is also valid without the
    /// lock, but other processes then wait for its full ttl after a crash.
    pub(crate) fn hold(&mut self) {
        if self.held.is_some() {
            return;
        }
        sweep(&self.database);
        match self.take() {
            Ok(held) => self.held = Some(held),
            Err(error) => tracing::warn!(%error, "no lock for leases; a take-over waits for their ttl"),
        }
    }

    /// Creates and locks the holder's file. The file gets its name when it is already locked, so that nobody sees it
    /// unlocked while this process is alive.
    fn take(&self) -> io::Result<HeldFile> {
        let name = format!("{:016x}{:016x}", self.effects.random_u64(), self.effects.random_u64());
        let path = path(&self.database, &name);
        let part = path.with_added_extension("part");
        crate::medium::path::make_file(&part)?;
        let made = (|| {
            let file = File::open(&part)?;
            file.try_lock()?;
            fs::hard_link(&part, &path)?;
            Ok(HeldFile { name, path, file })
        })();
        fs::remove_file(&part)?;
        made
    }
}

fn path(database: &Path, name: &str) -> PathBuf {
    let mut path = database.as_os_str().to_owned();
    path.push(MARK);
    path.push(name);
    path.into()
}

/// Returns whether the holder of that name is proven dead: its lock is free, or its file does not exist. In doubt,
/// returns `false`.
pub(crate) fn is_dead(database: &Path, name: &str) -> bool {
    let is_name = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_name && is_free(&path(database, name)).unwrap_or(false)
}

fn is_free(path: &Path) -> io::Result<bool> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
        // Opening a pipe would wait without end.
        found => {
            if !found?.is_file() {
                return Ok(false);
            }
        }
    }
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
        file => file?,
    };
    match file.try_lock() {
        Ok(()) => file.unlock().map(|()| true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Removes the files of dead holders.
fn sweep(database: &Path) {
    let Some((folder, name)) = database.parent().zip(database.file_name()) else { return };
    let start = format!("{}{MARK}", name.to_string_lossy());
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let file = entry.file_name();
        if let Some(holder) = file.to_str().and_then(|file| file.strip_prefix(&start))
            && is_dead(database, holder)
        {
            let _ = fs::remove_file(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A holder is alive while its value exists, and the files of dead holders are removed.
    #[test]
    fn a_free_lock_is_proof_of_death() {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("agent.db");
        let mut holder = Holder::new(database.clone(), Effects::default());
        assert_eq!(holder.name(), None);
        holder.hold();
        let name = holder.name().unwrap().to_owned();
        assert!(!is_dead(&database, &name));
        assert!(!is_dead(&database, "../agent.db"), "no name of a holder");
        // File of a process that was killed.
        fs::write(path(&database, "00ff"), "").unwrap();
        assert!(is_dead(&database, "00ff"));
        sweep(&database);
        assert!(!path(&database, "00ff").exists());
        assert!(path(&database, &name).exists(), "the living keep theirs");
        drop(holder);
        assert!(is_dead(&database, &name));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
