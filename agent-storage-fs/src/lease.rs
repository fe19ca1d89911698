//! Leases on this machine: a locked file for each, so that a holder's death shows at once, with a count of its signs
//! of life.

use std::io;
use std::path::Path;

use agent_core::store::Pulse;
use agent_core::{Epoch, Result};

use crate::env::Env;
use crate::error::failed;
use crate::io::{IoFile, OpenMode, is_no_file, read_full, write_full};
use crate::{layout, lock};

/// How many digits a count has, so that a reader never sees half of two.
const DIGITS: usize = 20;

/// A lease that this process holds. Dropping it gives the lock back, which to others is the holder's death.
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

/// Makes and locks the file of a lease, before the lease is written into the log. It gets its name with its lock on,
/// so that nobody ever sees it free while the holder lives.
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

/// Removes the file of a lease that has ended. Left behind it would do no harm: its epoch is never used again.
pub(crate) fn forget(env: &Env, folder: &Path, epoch: Epoch) {
    let path = layout::lease(folder, epoch);
    match env.io.remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::debug!(path = %path.display(), %error, "the file of an ended lease stays behind");
        }
        _ => {}
    }
}

/// Leaves a sign of life; none where the lease has no file, since it has ended then.
pub(crate) fn beat(env: &Env, folder: &Path, epoch: Epoch) -> Result<()> {
    let path = layout::lease(folder, epoch);
    let Some(file) = open(env, &path, OpenMode::Write)? else { return Ok(()) };
    let next = read(&*file, &path)?.wrapping_add(1);
    write_full(&*file, &count(next), 0).map_err(|e| failed("write", &path, e))
}

/// Looks for signs of life. The holder is dead where its file is there and its lock is not.
pub(crate) fn pulse(env: &Env, folder: &Path, epoch: Epoch) -> Result<Pulse> {
    let path = layout::lease(folder, epoch);
    let Some(file) = open(env, &path, OpenMode::Read)? else { return Ok(Pulse::default()) };
    let dead = lock::try_lock(&*file, &path)?;
    if dead {
        file.unlock().map_err(|e| failed("unlock", &path, e))?;
    }
    Ok(Pulse::new(read(&*file, &path)?, dead))
}

fn open(env: &Env, path: &Path, mode: OpenMode) -> Result<Option<Box<dyn IoFile>>> {
    match env.io.open(path, mode) {
        Ok(file) => Ok(Some(file)),
        // What is no file says nothing, as if none was there.
        Err(error) if error.kind() == io::ErrorKind::NotFound || is_no_file(&error) => Ok(None),
        Err(error) => Err(failed("open", path, error)),
    }
}

fn count(beats: u64) -> Vec<u8> {
    format!("{beats:0DIGITS$}\n").into_bytes()
}

/// Zero where it cannot be read: a sign of life is advice, not truth.
fn read(file: &dyn IoFile, path: &Path) -> Result<u64> {
    let mut digits = [0; DIGITS];
    read_full(file, &mut digits, 0).map_err(|e| failed("read", path, e))?;
    Ok(std::str::from_utf8(&digits).ok().and_then(|digits| digits.parse().ok()).unwrap_or(0))
}
