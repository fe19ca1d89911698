//! Maps errors of the operating system to errors of this library. No other module does this.

use std::io;
use std::path::Path;

use agent_core::{Error, ErrorKind, SessionId, WorkspaceId, WriteOutcome};

use crate::io::is_no_file;
use crate::owner::FORMAT;

/// Error for an operation that the system refused: `cannot <doing> <path>: <what to do>`.
pub(crate) fn failed(doing: &str, path: &Path, source: io::Error) -> Error {
    let (kind, remedy) = judge(&source);
    Error::new(kind, format!("cannot {doing} {}: {remedy}", path.display())).with_source(source)
}

/// Like [`failed`], for a write that may have happened anyway.
pub(crate) fn in_doubt(doing: &str, path: &Path, source: io::Error) -> Error {
    failed(doing, path, source).with_outcome(WriteOutcome::Unknown)
}

/// Numbers of the system's errors for too many open files, of the machine and of this process.
const OPEN_FILES: [i32; 2] = [23, 24];

/// Returns whether a path leads through a link to itself, so that nothing is there.
pub(crate) fn is_loop(error: &io::Error) -> bool {
    #[cfg(unix)]
    let code = Some(rustix::io::Errno::LOOP.raw_os_error());
    #[cfg(not(unix))]
    let code = None;
    code.is_some() && error.raw_os_error() == code
}

/// Returns whether an error concerns the object itself, rather than this process, the whole disk or the whole store.
pub(crate) fn is_own(error: &Error) -> bool {
    use io::ErrorKind as Is;
    let source = std::error::Error::source(error).and_then(|source| source.downcast_ref::<io::Error>());
    let is_of_all = source.is_some_and(|source| {
        source.raw_os_error().is_some_and(|code| OPEN_FILES.contains(&code))
            || matches!(source.kind(), Is::OutOfMemory | Is::ReadOnlyFilesystem)
    });
    match error.kind() {
        ErrorKind::Corrupt | ErrorKind::Unsupported | ErrorKind::Denied => !is_of_all,
        ErrorKind::Unavailable => source.is_some() && !is_of_all,
        _ => false,
    }
}

fn judge(error: &io::Error) -> (ErrorKind, &'static str) {
    use io::ErrorKind as Is;
    if is_no_file(error) && error.kind() != Is::IsADirectory {
        return (
            ErrorKind::Corrupt,
            "something that is no file (a link, a pipe, a socket, a device) stands where a file should be; move it away, nothing was changed",
        );
    }
    if is_loop(error) {
        return (ErrorKind::Corrupt, "a link leads to itself; move it away, nothing was changed");
    }
    match error.kind() {
        Is::NotFound => {
            (ErrorKind::Unavailable, "it vanished while in use; check whether another program moves files")
        }
        Is::PermissionDenied => {
            (ErrorKind::Denied, "permission denied; give this user the right to read and write there")
        }
        Is::ReadOnlyFilesystem => {
            (ErrorKind::Denied, "the file system is read-only; mount it writable, or use another directory")
        }
        Is::StorageFull | Is::QuotaExceeded | Is::FileTooLarge => (
            ErrorKind::Full,
            "no space or no quota is left, or files may not be so large (`ulimit -f`); make room, then try again",
        ),
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
            Some(code) if OPEN_FILES.contains(&code) => (
                ErrorKind::Unavailable,
                "too many open files; raise the limit, or keep fewer sessions open, then try again",
            ),
            _ => (ErrorKind::Unavailable, "the system reported an error; try again, and look at the disk"),
        },
    }
}

/// Error for damaged stored bytes.
pub(crate) fn corrupt(path: &Path, what: &str) -> Error {
    Error::corrupt(format!(
        "{} {what}; nothing was overwritten; repair it or restore it from a backup",
        path.display()
    ))
}

/// Error for a file that is longer than any that this library writes there.
pub(crate) fn too_long(path: &Path, len: u64, most: u64) -> Error {
    corrupt(path, &format!("has {len} bytes, and at most {most} belong there"))
}

/// Error for a file that a newer version of this library wrote.
pub(crate) fn newer(path: &Path, format: i64) -> Error {
    Error::unsupported(format!(
        "{} has format {format}, which this version does not know; update the library",
        path.display()
    ))
}

/// Error for a log, or a file that is derived from one, that another version of this library wrote.
pub(crate) fn other_format(path: &Path, format: i64) -> Error {
    if format > FORMAT {
        return newer(path, format);
    }
    Error::unsupported(format!(
        "{} has format {format}, which was never released; this version reads format {FORMAT}: use the version that wrote it, or another folder",
        path.display()
    ))
}

/// Error for a log that lacks events which this process has seen acknowledged.
pub(crate) fn cut_off(path: &Path, known: u64, left: u64) -> Error {
    let what = format!(
        "was cut by another program while it was open: {left} bytes are left of {known}, and acknowledged events are lost; restore it from a backup (a store that is opened again continues without them)"
    );
    corrupt(path, &what)
}

/// Adds the remedy to an error for damage of the folder `index`.
pub(crate) fn of_index(error: Error) -> Error {
    if *error.kind() != ErrorKind::Corrupt {
        return error;
    }
    let text =
        format!("{error}; then run `chat rebuild`, which writes what belongs in the folder index again");
    Error::corrupt(text)
}

/// Error for a session that is known but has no folder.
pub(crate) fn missing(folder: &Path, id: SessionId) -> Error {
    Error::corrupt(format!(
        "session {id} is missing: its folder {} was moved or removed; put it back or restore it from a backup, or delete the session",
        folder.display()
    ))
}

/// Error for a workspace that is known but has no record.
pub(crate) fn missing_workspace(record: &Path, id: WorkspaceId) -> Error {
    Error::corrupt(format!(
        "workspace {id} is missing: {} was moved or removed; put it back with its folder or restore it from a backup, or delete the workspace",
        record.display()
    ))
}

/// Error for a folder that existed and is missing.
pub(crate) fn vanished(path: &Path) -> Error {
    Error::unavailable(format!(
        "the folder {} was moved or removed while the store was open; put it back and try again, or open the store again",
        path.display()
    ))
}

/// Error for an object that was replaced by another while it was changed.
pub(crate) fn replaced(path: &Path) -> Error {
    Error::unavailable(format!(
        "{} was moved or replaced by another program while it was changed, and nothing was written; try again",
        path.display()
    ))
}

/// Error for an object whose durability is in doubt after an earlier failure.
pub(crate) fn poisoned(what: &str) -> Error {
    Error::new(
        ErrorKind::Poisoned,
        format!("an earlier failure left in doubt what of {what} is durable; open the store again"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::{Kind, not_a_file};

    /// Every system error becomes an error kind with a remedy.
    #[test]
    fn every_system_error_has_a_kind_and_a_remedy() {
        use io::ErrorKind as Is;
        for (expected, kind, remedy) in [
            (Is::NotFound, ErrorKind::Unavailable, "vanished while in use"),
            (Is::PermissionDenied, ErrorKind::Denied, "permission denied"),
            (Is::ReadOnlyFilesystem, ErrorKind::Denied, "read-only"),
            (Is::StorageFull, ErrorKind::Full, "make room"),
            (Is::QuotaExceeded, ErrorKind::Full, "make room"),
            (Is::FileTooLarge, ErrorKind::Full, "make room"),
            (Is::NotADirectory, ErrorKind::Corrupt, "a file stands where a folder should be"),
            (Is::IsADirectory, ErrorKind::Corrupt, "a folder stands where a file should be"),
            (Is::AlreadyExists, ErrorKind::Corrupt, "something else has that name"),
            (Is::InvalidFilename, ErrorKind::InvalidInput, "the path is too long"),
            (Is::Unsupported, ErrorKind::Unsupported, "the file system cannot do this"),
            (Is::TimedOut, ErrorKind::Unavailable, "the system reported an error"),
        ] {
            let error = failed("open", Path::new("/store/lock"), expected.into());
            assert_eq!(*error.kind(), kind, "{expected:?}");
            assert!(error.to_string().contains(remedy), "{expected:?}: {error}");
            assert!(error.to_string().contains("cannot open /store/lock: "), "{error}");
        }
        for (kind, expected) in [(Kind::Other, "a link, a pipe"), (Kind::Folder, "a folder stands")] {
            let error = failed("open", Path::new("/store/lock"), not_a_file(kind));
            assert_eq!(*error.kind(), ErrorKind::Corrupt);
            assert!(error.to_string().contains(expected), "{error}");
        }
        for errno in [23, 24] {
            let error = failed("open", Path::new("/store/lock"), io::Error::from_raw_os_error(errno));
            assert_eq!(*error.kind(), ErrorKind::Unavailable);
            assert!(error.to_string().contains("too many open files"), "{error}");
        }
    }
}
