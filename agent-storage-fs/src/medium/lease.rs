//! Leases on one machine: a file in the folder of a session, locked by the process that ran it last. So the death of a
//! holder shows at once. It holds the epoch of the lease and a count of heartbeats. A process that runs a session again
//! writes the next epoch into the same file.

use std::io;
use std::path::Path;

use agent_core::store::{Damaged, LeaseStatus};
use agent_core::{Epoch, Result};

use crate::error::failed;
use crate::io::{FileId, IoFile, Kind, OpenMode, not_a_file, read_full, still_ours, write_full};
use crate::medium::env::Env;
use crate::medium::{layout, lock};

/// Number of digits of an epoch and of a heartbeat count. It is fixed, so that a reader never sees parts of two.
const DIGITS: usize = 20;

/// Lease file that this process has locked. Dropping it releases the lock, which other processes take for the holder's death
/// if the lease is live.
#[derive(Debug)]
pub(crate) struct Mine {
    /// Epoch that the file holds.
    pub(crate) epoch: Epoch,
    /// Whether the lease is live.
    pub(crate) is_live: bool,
    file: Box<dyn IoFile>,
    id: FileId,
}

impl Drop for Mine {
    fn drop(&mut self) {
        let _ = self.file.unlock();
    }
}

/// Makes the file of a lease this process's, before the lease is written to the log. `known` is the file of an earlier lease.
/// A new file gets its name when it is already locked, so that no process sees it unlocked while the holder is alive.
pub(crate) fn take(env: &Env, folder: &Path, epoch: Epoch, known: &mut Option<Mine>) -> Result<()> {
    let path = layout::lease(folder);
    if let Some(mine) = known
        && still_ours(&*env.io, mine.id, &path).map_err(|e| failed("look at", &path, e))?.is_some()
    {
        write_full(&*mine.file, &content(epoch, 0), 0).map_err(|e| failed("write", &path, e))?;
        mine.epoch = epoch;
        return Ok(());
    }
    *known = None;
    let (temp, file) = env.create_temp(&path)?;
    let made = (|| {
        lock::try_lock(&*file, &temp)?;
        let id = file.stat_at_open().map_err(|e| failed("look at", &temp, e))?.id;
        write_full(&*file, &content(epoch, 0), 0).map_err(|e| failed("write", &path, e))?;
        env.io.rename(&temp, &path).map_err(|e| failed("create", &path, e))?;
        Ok(id)
    })();
    match made {
        Ok(id) => {
            *known = Some(Mine { epoch, is_live: false, file, id });
            Ok(())
        }
        Err(error) => {
            env.discard(&temp);
            Err(error)
        }
    }
}

/// Writes a heartbeat. Does nothing if the file is that of another lease, because this one has ended then.
pub(crate) fn heartbeat(env: &Env, folder: &Path, epoch: Epoch) -> Result<()> {
    let path = layout::lease(folder);
    let Some(file) = open(env, &path, OpenMode::Write)? else { return Ok(()) };
    let Some(count) = count(&*file, &path, epoch)? else { return Ok(()) };
    write_full(&*file, &content(epoch, count.wrapping_add(1)), 0).map_err(|e| failed("write", &path, e))
}

/// Reads the heartbeat. The holder is dead if the file is that of the lease and is not locked.
pub(crate) fn lease_status(env: &Env, folder: &Path, epoch: Epoch) -> Result<LeaseStatus> {
    let path = layout::lease(folder);
    let Some(file) = open(env, &path, OpenMode::Read)? else { return Ok(LeaseStatus::default()) };
    let dead = lock::try_lock(&*file, &path)?;
    // Behind the attempt: a file that was locked then holds what its holder wrote.
    let count = count(&*file, &path, epoch);
    if dead {
        file.unlock().map_err(|e| failed("unlock", &path, e))?;
    }
    Ok(count?.map_or_else(LeaseStatus::default, |count| LeaseStatus::new(count, dead)))
}

/// Returns what stands in the place of the file of a lease and is no file.
pub(crate) fn odd(env: &Env, folder: &Path) -> Option<Damaged> {
    let path = layout::lease(folder);
    let error = match env.kind(&path) {
        Ok(None | Some(Kind::File)) => return None,
        Ok(Some(kind)) => failed("use the lease", &path, not_a_file(kind)),
        Err(error) => error,
    };
    Some(Damaged::of(path.display().to_string(), &error))
}

fn open(env: &Env, path: &Path, mode: OpenMode) -> Result<Option<Box<dyn IoFile>>> {
    match env.io.open(path, mode) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed("open", path, error)),
    }
}

fn content(epoch: Epoch, heartbeats: u64) -> Vec<u8> {
    format!("{:0DIGITS$} {heartbeats:0DIGITS$}\n", epoch.get()).into_bytes()
}

/// Reads the heartbeat count of a lease; `None` if the file is that of another one. Zero if the count is unreadable, because
/// a heartbeat is only advisory.
fn count(file: &dyn IoFile, path: &Path, epoch: Epoch) -> Result<Option<u64>> {
    let mut bytes = [0; 2 * DIGITS + 1];
    read_full(file, &mut bytes, 0).map_err(|e| failed("read", path, e))?;
    let number = |digits: &[u8]| std::str::from_utf8(digits).ok()?.parse().ok();
    if number(&bytes[..DIGITS]) != Some(epoch.get()) {
        return Ok(None);
    }
    Ok(Some(number(&bytes[DIGITS + 1..]).unwrap_or(0)))
}
