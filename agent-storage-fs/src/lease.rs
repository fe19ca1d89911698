//! Leases on one machine: a locked file per lease, so that the death of a holder shows at once. The file holds a
//! heartbeat counter.

use std::io;
use std::path::Path;

use agent_core::store::LeaseStatus;
use agent_core::{Epoch, Result};

use crate::env::Env;
use crate::error::failed;
use crate::io::{IoFile, OpenMode, is_no_file, read_full, write_full};
use crate::{layout, lock};

/// Number of digits of a heartbeat count. It is fixed, so that a reader never sees parts of two counts.
const DIGITS: usize = 20;

/// Lease that this process holds. Dropping it releases the lock, which other processes take for the holder's death.
#[derive(Debug)]
pub(crate) struct Mine {
    pub(crate) epoch: Epoch,
    file: Box<dyn IoFile>,
}

impl Drop for Mine {
    fn drop(&mut self) {
        let _ = self.file.unlock();
    }
}

/// Creates and locks the file of a lease, before the lease is written to the log. The file gets its name when it is
/// already locked, so that no process sees it unlocked while the holder is alive.
pub(crate) fn take(env: &Env, folder: &Path, epoch: Epoch) -> Result<Mine> {
    let path = layout::lease(folder, epoch);
    let (temp, file) = env.create_temp(&path)?;
    let made = (|| {
        lock::try_lock(&*file, &temp)?;
        write_full(&*file, &count(0), 0).map_err(|e| failed("write", &path, e))?;
        env.io.rename(&temp, &path).map_err(|e| failed("create", &path, e))
    })();
    match made {
        Ok(()) => Ok(Mine { epoch, file }),
        Err(error) => {
            env.discard(&temp);
            Err(error)
        }
    }
}

/// Removes the file of a lease that has ended. A leftover would do no harm, because an epoch is never reused.
pub(crate) fn forget(env: &Env, folder: &Path, epoch: Epoch) {
    let path = layout::lease(folder, epoch);
    match env.io.remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::debug!(path = %path.display(), %error, "the file of an ended lease stays behind");
        }
        _ => {}
    }
}

/// Writes a heartbeat. Does nothing if the lease has no file, because the lease has ended then.
pub(crate) fn heartbeat(env: &Env, folder: &Path, epoch: Epoch) -> Result<()> {
    let path = layout::lease(folder, epoch);
    let Some(file) = open(env, &path, OpenMode::Write)? else { return Ok(()) };
    let next = read(&*file, &path)?.wrapping_add(1);
    write_full(&*file, &count(next), 0).map_err(|e| failed("write", &path, e))
}

/// Reads the heartbeat. The holder is dead if the file exists and is not locked.
pub(crate) fn lease_status(env: &Env, folder: &Path, epoch: Epoch) -> Result<LeaseStatus> {
    let path = layout::lease(folder, epoch);
    let Some(file) = open(env, &path, OpenMode::Read)? else { return Ok(LeaseStatus::default()) };
    let dead = lock::try_lock(&*file, &path)?;
    if dead {
        file.unlock().map_err(|e| failed("unlock", &path, e))?;
    }
    Ok(LeaseStatus::new(read(&*file, &path)?, dead))
}

fn open(env: &Env, path: &Path, mode: OpenMode) -> Result<Option<Box<dyn IoFile>>> {
    match env.io.open(path, mode) {
        Ok(file) => Ok(Some(file)),
        // An object that is no file counts as missing.
        Err(error) if error.kind() == io::ErrorKind::NotFound || is_no_file(&error) => Ok(None),
        Err(error) => Err(failed("open", path, error)),
    }
}

fn count(heartbeats: u64) -> Vec<u8> {
    format!("{heartbeats:0DIGITS$}\n").into_bytes()
}

/// Reads the heartbeat count; zero if it is unreadable, because a heartbeat is only advisory.
fn read(file: &dyn IoFile, path: &Path) -> Result<u64> {
    let mut digits = [0; DIGITS];
    read_full(file, &mut digits, 0).map_err(|e| failed("read", path, e))?;
    Ok(std::str::from_utf8(&digits).ok().and_then(|digits| digits.parse().ok()).unwrap_or(0))
}
