//! Disk operations, counted and not timed.

use std::fs;
use std::ops::{Add, Sub};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// Syncs and bytes written, since some moment.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
pub(crate) struct Counts {
    /// Flushes of the disk: the kernel's own count of the device, so that other programs' count too.
    pub(crate) syncs: u64,
    /// Bytes that this process handed to the system to write: `wchar` of `/proc/self/io`.
    pub(crate) bytes: u64,
}

impl Add for Counts {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { syncs: self.syncs + other.syncs, bytes: self.bytes + other.bytes }
    }
}

impl Sub for Counts {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self { syncs: self.syncs.saturating_sub(other.syncs), bytes: self.bytes.saturating_sub(other.bytes) }
    }
}

/// Reads the counts of this process, and of the device that a folder lies on.
#[derive(Debug)]
pub(crate) struct Meter {
    device: PathBuf,
}

impl Meter {
    pub(crate) fn new(folder: &Path) -> std::io::Result<Self> {
        let device = fs::metadata(folder)?.dev();
        let (major, minor) = (device >> 8 & 0xfff, device & 0xff);
        Ok(Self { device: format!("/sys/dev/block/{major}:{minor}/stat").into() })
    }

    /// The counts as they are now; 0 where the system does not tell.
    pub(crate) fn read(&self) -> Counts {
        // The sixteenth figure is how many flushes are done (Documentation/block/stat.rst).
        let stat = fs::read_to_string(&self.device).unwrap_or_default();
        let syncs = stat.split_whitespace().nth(15).and_then(|figure| figure.parse().ok()).unwrap_or(0);
        let io = fs::read_to_string("/proc/self/io").unwrap_or_default();
        let bytes = io.lines().find_map(|line| line.strip_prefix("wchar: ")?.parse().ok()).unwrap_or(0);
        Counts { syncs, bytes }
    }
}

/// The most memory that this process ever had, in bytes.
pub(crate) fn peak_memory() -> u64 {
    status("VmHWM:")
}

/// Forgets the most memory that this process had until now, so that [`peak_memory`] is that from now on.
pub(crate) fn reset_peak() -> std::io::Result<()> {
    // Documentation/filesystems/proc.rst.
    fs::write("/proc/self/clear_refs", "5")
}

/// The memory that this process has now, in bytes.
pub(crate) fn memory() -> u64 {
    status("VmRSS:")
}

fn status(name: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) * 1024
}
