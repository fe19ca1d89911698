//! What the system reports, as errors of this library: the one place that maps them.

use std::io;
use std::path::Path;

use agent_core::{Error, ErrorKind, WriteOutcome};

/// The error for an operation that the system refused: `cannot <doing> <path>: <what to do>`.
pub(crate) fn failed(doing: &str, path: &Path, source: io::Error) -> Error {
    let (kind, remedy) = judge(&source);
    Error::new(kind, format!("cannot {doing} {}: {remedy}", path.display())).with_source(source)
}

/// As [`failed`], for a write that may have happened all the same.
pub(crate) fn in_doubt(doing: &str, path: &Path, source: io::Error) -> Error {
    failed(doing, path, source).with_outcome(WriteOutcome::Unknown)
}

fn judge(error: &io::Error) -> (ErrorKind, &'static str) {
    use io::ErrorKind as Is;
    match error.kind() {
        Is::NotFound => {
            (ErrorKind::Unavailable, "it vanished while in use; look whether somebody moves files")
        }
        Is::PermissionDenied => {
            (ErrorKind::Denied, "permission denied; give this user the right to read and write there")
        }
        Is::ReadOnlyFilesystem => {
            (ErrorKind::Denied, "the file system is read-only; mount it writable, or use another directory")
        }
        Is::StorageFull | Is::QuotaExceeded | Is::FileTooLarge => {
            (ErrorKind::Full, "no space or no quota is left; make room, then try again")
        }
        Is::NotADirectory => {
            (ErrorKind::Corrupt, "a file stands where a folder should be; move it away, nothing was changed")
        }
        Is::IsADirectory => {
            (ErrorKind::Corrupt, "a folder stands where a file should be; move it away, nothing was changed")
        }
        Is::AlreadyExists => {
            (ErrorKind::Corrupt, "something else has that name; move it away, nothing was changed")
        }
        Is::InvalidFilename => {
            (ErrorKind::InvalidInput, "the path is too long; use a directory nearer the root")
        }
        Is::Unsupported => (ErrorKind::Unsupported, "the file system cannot do this; use a local directory"),
        _ => match error.raw_os_error() {
            Some(23 | 24) => (
                ErrorKind::Unavailable,
                "too many open files; raise the limit, or keep fewer sessions open, then try again",
            ),
            _ => (ErrorKind::Unavailable, "the system reported an error; try again, and look at the disk"),
        },
    }
}

/// The error for stored bytes that are not what they should be.
pub(crate) fn corrupt(path: &Path, what: &str) -> Error {
    Error::new(
        ErrorKind::Corrupt,
        format!("{} {what}; nothing was overwritten, mend it or restore it from a backup", path.display()),
    )
}

/// The error for a file of a newer version of this library.
pub(crate) fn newer(path: &Path, format: i64) -> Error {
    Error::new(
        ErrorKind::Unsupported,
        format!(
            "{} has format {format}, which this version does not know; update the library",
            path.display()
        ),
    )
}

/// The error for an object whose durability an earlier failure left in doubt.
pub(crate) fn poisoned(what: &str) -> Error {
    Error::new(
        ErrorKind::Poisoned,
        format!("an earlier failure left in doubt what of {what} is durable; open the store again"),
    )
}
