//! The limit that the system sets to the size of files.

#[cfg(unix)]
use std::fs;
use std::path::Path;

/// Whether a file of the database at `path` is as large as the system lets a file of this process be, but for a page or so:
/// SQLite does not say which error the system gave for a write.
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
