//! Files that come to be, or are replaced, in a folder that is locked.

use std::io;
use std::path::Path;

use agent_core::Result;

use crate::env::{Env, unsure};
use crate::error::failed;
use crate::lock::Locked;

impl Env {
    /// Replaces a file, or makes it: durable on return, and whole at every moment.
    pub(crate) fn replace(&self, folder: Locked<'_>, path: &Path, bytes: &[u8]) -> Result<()> {
        self.check_poison(path)?;
        let temp = self.write_temp(path, bytes, true)?;
        self.publish(folder, &temp, path)
    }

    /// Gives what was written and synced as `temp` its name, in a folder that is locked.
    pub(crate) fn publish(&self, folder: Locked<'_>, temp: &Path, path: &Path) -> Result<()> {
        folder.check(self).inspect_err(|_| self.discard(temp))?;
        if let Err(error) = self.io.rename(temp, path) {
            self.discard(temp);
            return Err(unsure(failed("replace", path, error)));
        }
        self.sync_name(path)
    }

    /// Makes a file that must not exist yet, durable on return; `false` where it does.
    pub(crate) fn create(&self, folder: Locked<'_>, path: &Path, bytes: &[u8]) -> Result<bool> {
        self.check_poison(path)?;
        let temp = self.write_temp(path, bytes, true)?;
        folder.check(self).inspect_err(|_| self.discard(&temp))?;
        let linked = match self.io.hard_link(&temp, path) {
            // No such links here; the caller holds the lock, so that nobody of ours comes between.
            Err(error) if no_links(&error) => {
                if self.has_file(path)? {
                    self.discard(&temp);
                    return Ok(false);
                }
                return self.publish(folder, &temp, path).map(|()| true);
            }
            other => other,
        };
        self.discard(&temp);
        match linked {
            Ok(()) => self.sync_name(path).map(|()| true),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
            Err(error) => Err(unsure(failed("replace", path, error))),
        }
    }
}

fn no_links(error: &io::Error) -> bool {
    // EPERM: what Linux says of file systems without hard links.
    error.kind() == io::ErrorKind::Unsupported || error.raw_os_error() == Some(1)
}
