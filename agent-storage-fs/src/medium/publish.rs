//! Creates and replaces files in a locked folder.

use std::io;
use std::path::Path;

use agent_core::Result;

use crate::error::failed;
use crate::medium::env::{Env, unsure};
use crate::medium::lock::Locked;

impl Env {
    /// Replaces or creates a file: durable on return, and whole at every moment.
    pub(crate) fn replace(&self, folder: Locked<'_>, path: &Path, bytes: &[u8]) -> Result<()> {
        self.check_poison(path)?;
        let temp = self.write_temp(path, bytes, true)?;
        self.publish(folder, &temp, path)
    }

    /// Renames the written and synced file `temp` to its name in a locked folder.
    pub(crate) fn publish(&self, folder: Locked<'_>, temp: &Path, path: &Path) -> Result<()> {
        folder.check(self).inspect_err(|_| self.discard(temp))?;
        if let Err(error) = self.io.rename(temp, path) {
            self.discard(temp);
            return Err(unsure(failed("replace", path, error)));
        }
        self.sync_name(path)
    }

    /// Creates a file, durable on return; returns `false` if it exists already.
    pub(crate) fn create(&self, folder: Locked<'_>, path: &Path, bytes: &[u8]) -> Result<bool> {
        self.check_poison(path)?;
        let temp = self.write_temp(path, bytes, true)?;
        folder.check(self).inspect_err(|_| self.discard(&temp))?;
        let linked = match self.io.hard_link(&temp, path) {
            // The file system has no hard links; the caller holds the lock, so that no other writer interferes.
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

    /// Keeps a copy of the bytes of a file of bindings beside it, for a person. The same bytes are kept only once.
    pub(crate) fn keep_copy(&self, folder: Locked<'_>, path: &Path, bytes: &[u8]) {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let copy = path.with_file_name(format!("{name}.damaged-{:08x}", crc32c::crc32c(bytes)));
        if !matches!(self.has_file(&copy), Ok(false)) {
            return;
        }
        match self.create(folder, &copy, bytes) {
            Ok(_) => {
                tracing::warn!(path = %path.display(), kept = %copy.display(), "the bindings cannot be read; a copy was kept");
            }
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "no copy of the damaged bindings could be kept");
            }
        }
    }
}

fn no_links(error: &io::Error) -> bool {
    // EPERM: the error of Linux on file systems without hard links.
    error.kind() == io::ErrorKind::Unsupported || error.raw_os_error() == Some(1)
}
