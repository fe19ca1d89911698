//! What SQLite reports, as errors of this library: the one place that maps them.

use std::path::Path;

use agent_core::{Error, ErrorKind, ParseError, WriteOutcome};

use crate::limit;

/// Why a step inside a transaction ended.
#[derive(Debug)]
pub(crate) enum Fault {
    /// The request itself is at fault, and nothing was written for it; the rest of its group goes on.
    Refused(Error),
    /// SQLite failed; nobody knows what the transaction holds, so that all of it is rolled back.
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

/// The result of a step inside a transaction.
pub(crate) type Step<T> = Result<T, Fault>;

/// SQLite's primary result code, where the error is one of SQLite's.
fn code(error: &rusqlite::Error) -> Option<i32> {
    error.sqlite_error().map(|error| error.extended_code & 0xff)
}

/// Whether another connection holds the lock that was asked for.
pub(crate) fn is_busy(error: &rusqlite::Error) -> bool {
    matches!(code(error), Some(5 | 6))
}

/// Whether SQLite refused a statement itself, as it does if an index that the statement names was dropped.
pub(crate) fn is_refused_statement(error: &Error) -> bool {
    let source = std::error::Error::source(error).and_then(|source| source.downcast_ref::<rusqlite::Error>());
    source.is_some_and(|source| code(source) == Some(1))
}

/// Whether the input or output below SQLite failed, so that a failed COMMIT may be on the disk all the same.
pub(crate) fn is_io(error: &rusqlite::Error) -> bool {
    matches!(code(error), None | Some(10))
}

/// The error for what SQLite reports: `cannot <doing>: <what to do>`.
pub(crate) fn failed(doing: &str, source: rusqlite::Error) -> Error {
    let (kind, remedy) = match code(&source) {
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
            "the file is no SQLite database, or its start is damaged; nothing was changed, look at the path",
        ),
        Some(13) => (ErrorKind::Full, "no space is left; make room, then try again"),
        Some(18) => (ErrorKind::LimitExceeded, "it is too large for one row; send several"),
        _ => (ErrorKind::Unavailable, "SQLite reported an error; try again, and look at the source of this"),
    };
    Error::new(kind, format!("cannot {doing}: {remedy}")).with_source(without_sql(source))
}

/// What SQLite says, without the statement that it refused, which says nothing to a user.
fn without_sql(source: rusqlite::Error) -> rusqlite::Error {
    match source {
        rusqlite::Error::SqlInputError { error, msg, .. } => rusqlite::Error::SqliteFailure(error, Some(msg)),
        source => source,
    }
}

/// The same for what writes to the database at `path`: a limit on the size of files is told as a full disk is.
pub(crate) fn failed_to_write(path: &Path, doing: &str, source: rusqlite::Error) -> Error {
    // SQLITE_IOERR_WRITE, _TRUNCATE and _SHMSIZE.
    let extended = source.sqlite_error().map(|error| error.extended_code);
    if matches!(extended, Some(778 | 1546 | 4874)) && limit::is_at_limit(path) {
        let text = format!(
            "cannot {doing}: the system lets this process make no larger file; raise its limit (ulimit -f), then try again"
        );
        return Error::new(ErrorKind::Full, text).with_source(source);
    }
    failed(doing, source)
}

/// The error for a file that other processes kept locked for too long.
pub(crate) fn busy(doing: &str) -> Error {
    Error::new(
        ErrorKind::Unavailable,
        format!("cannot {doing}: another process kept the file for too long; look which, or try again"),
    )
    .timed_out()
}

/// The error for stored bytes that are not what they should be.
pub(crate) fn corrupt(object: &str, what: &str) -> Error {
    Error::new(
        ErrorKind::Corrupt,
        format!("{object} {what}; nothing was overwritten, mend it or restore it from a backup"),
    )
}

/// The error for a store whose writer is gone.
pub(crate) fn gone() -> Error {
    Error::new(ErrorKind::Poisoned, "the writer of the store ended unexpectedly; open the store again")
        .with_outcome(WriteOutcome::Unknown)
}
