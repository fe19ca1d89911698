//! Limit that the system sets on the size of files.

#[cfg(unix)]
use std::fs;
use std::path::Path;

/// Returns whether a file of the database at `path` has almost reached the size limit that the system sets for this
/// process, to within 64 KiB. Needed because SQLite does not report which error the system returned for a write.
#[cfg(unix)]
pub(crate) fn is_at_limit(path: &Path) -> bool {
    const MARGIN: u64 = 1 << 16;
    let Some(most) = rustix::process::getrlimit(rustix::process::Resource::Fsize).current else {
        return false;
    };
    let real = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    ["", "-wal", "-shm", "-journal"].iter().any(|suffix| {
        let mut name = real.as_os_str().to_owned();
        name.push(suffix);
        fs::metadata(name).is_ok_and(|meta| meta.len().saturating_add(MARGIN) > most)
    })
}

#[cfg(not(unix))]
pub(crate) fn is_at_limit(_: &Path) -> bool {
    false
}
