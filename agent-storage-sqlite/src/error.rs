//! Maps errors of SQLite to errors of this library. No other module does this.

use std::path::Path;

use agent_core::{Error, ErrorKind, ParseError, WriteOutcome};

/// Reason for which a step inside a transaction ended.
#[derive(Debug)]
pub(crate) enum Fault {
    /// The request is invalid, and nothing was written for it. The rest of its group continues.
    Refused(Error),
    /// SQLite failed. The contents of the transaction are unknown, so all of it is rolled back.
    Sql(rusqlite::Error),
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self::Refused(error)
    }
}

impl From<ParseError> for Fault {
    fn from(error: ParseError) -> Self {
        Self::Refused(error.into())
    }
}

impl From<rusqlite::Error> for Fault {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sql(error)
    }
}

/// Result of a step inside a transaction.
pub(crate) type Step<T> = Result<T, Fault>;

/// Returns SQLite's primary result code, if the error is one of SQLite's.
fn code(error: &rusqlite::Error) -> Option<i32> {
    error.sqlite_error().map(|error| error.extended_code & 0xff)
}

/// Returns whether another connection holds the requested lock.
pub(crate) fn is_busy(error: &rusqlite::Error) -> bool {
    matches!(code(error), Some(5 | 6))
}

/// Returns whether SQLite refused a statement itself, which happens if an index that the statement names was dropped.
pub(crate) fn is_refused_statement(error: &Error) -> bool {
    let source = std::error::Error::source(error).and_then(|source| source.downcast_ref::<rusqlite::Error>());
    source.is_some_and(|source| code(source) == Some(1))
}

/// Returns whether I/O below SQLite failed. A failed COMMIT may then be on the disk anyway.
pub(crate) fn is_io(error: &rusqlite::Error) -> bool {
    matches!(code(error), None | Some(10))
}

/// Error for a failure that SQLite reports: `cannot <doing>: <what to do>`.
pub(crate) fn failed(doing: &str, source: rusqlite::Error) -> Error {
    // SQLITE_IOERR_SHMSIZE: the index of the write-ahead log finds no space.
    let is_full = source.sqlite_error().is_some_and(|error| error.extended_code == 4874);
    let (kind, remedy) = match code(&source).map(|code| if is_full { 13 } else { code }) {
        Some(5 | 6) => return busy(doing),
        Some(3 | 23) => {
            (ErrorKind::Denied, "permission denied; give this user the right to read and write there")
        }
        Some(8) => (
            ErrorKind::Denied,
            "the file, or the folder that it lies in, is read-only; make both writable for this user",
        ),
        Some(14) => (
            ErrorKind::Denied,
            "the file cannot be opened; look at its permissions, and at those of its folder",
        ),
        Some(10) => (ErrorKind::Unavailable, "the system reported an error; try again, and look at the disk"),
        Some(11) => {
            (ErrorKind::Corrupt, "the file is damaged; nothing was overwritten, restore it from a backup")
        }
        Some(26) => (
            ErrorKind::Corrupt,
            "the file is not a SQLite database, or its beginning is damaged; nothing was changed; check the path",
        ),
        Some(13) => (ErrorKind::Full, "no space is left; make room, then try again"),
        Some(18) => (ErrorKind::LimitExceeded, "it is too large for one row; send several"),
        _ => (
            ErrorKind::Unavailable,
            "SQLite reported an error; try again, and check the source of this error",
        ),
    };
    Error::new(kind, format!("cannot {doing}: {remedy}")).with_source(without_sql(source))
}

/// Removes the statement from SQLite's error, because it does not help a user.
fn without_sql(source: rusqlite::Error) -> rusqlite::Error {
    match source {
        rusqlite::Error::SqlInputError { error, msg, .. } => rusqlite::Error::SqliteFailure(error, Some(msg)),
        source => source,
    }
}

/// Like [`failed`], for a write to the database at `path`. A limit on the size of files is reported like a full disk.
pub(crate) fn failed_to_write(path: &Path, doing: &str, source: rusqlite::Error) -> Error {
    // SQLITE_IOERR_WRITE, _TRUNCATE and _SHMSIZE.
    let extended = source.sqlite_error().map(|error| error.extended_code);
    if matches!(extended, Some(778 | 1546 | 4874)) && is_at_limit(path) {
        let text = format!(
            "cannot {doing}: the system lets this process make no larger file; raise its limit (ulimit -f), then try again"
        );
        return Error::new(ErrorKind::Full, text).with_source(source);
    }
    failed(doing, source)
}

/// Error for a write-ahead log with removed bytes that others use for too long.
pub(crate) fn log_is_used(path: &Path) -> Error {
    busy(&format!("empty the write-ahead log of {}, which holds purged bytes", path.display()))
}

/// Error for a file that other processes kept locked for too long.
pub(crate) fn busy(doing: &str) -> Error {
    Error::unavailable(format!(
        "cannot {doing}: another process kept the file locked for too long; find that process, or try again"
    ))
    .timed_out()
}

/// Error for damaged stored bytes.
pub(crate) fn corrupt(object: &str, what: &str) -> Error {
    Error::corrupt(format!("{object} {what}; nothing was overwritten; repair it or restore it from a backup"))
}

/// Error for a store whose writer thread has ended.
pub(crate) fn gone() -> Error {
    Error::new(ErrorKind::Poisoned, "the writer of the store ended unexpectedly; open the store again")
        .with_outcome(WriteOutcome::Unknown)
}

/// Returns whether a file of the database at `path` has almost reached the size limit that the system sets for this
/// process, to within 64 KiB. Needed because SQLite does not report which error the system returned for a write.
#[cfg(unix)]
fn is_at_limit(path: &Path) -> bool {
    const MARGIN: u64 = 1 << 16;
    let Some(most) = rustix::process::getrlimit(rustix::process::Resource::Fsize).current else {
        return false;
    };
    let real = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    ["", "-wal", "-shm", "-journal"].iter().any(|suffix| {
        let mut name = real.as_os_str().to_owned();
        name.push(suffix);
        std::fs::metadata(name).is_ok_and(|meta| meta.len().saturating_add(MARGIN) > most)
    })
}

#[cfg(not(unix))]
fn is_at_limit(_: &Path) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A disk with no space for the index of the write-ahead log is full, and not broken.
    #[test]
    fn no_space_for_the_shared_index_is_full() {
        let io = |code| rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(code), None);
        assert_eq!(*failed("open it", io(4874)).kind(), ErrorKind::Full);
        assert_eq!(*failed("open it", io(778)).kind(), ErrorKind::Unavailable);
    }
}
