//! Maps errors of PostgreSQL to errors of this library. No other module does this.

use std::borrow::Cow;
use std::fmt;

use agent_core::{Error, ErrorKind, ParseError, WriteOutcome};
use sqlx::postgres::{PgDatabaseError, PgSeverity};

/// Reason for which a step inside a transaction ended.
#[derive(Debug)]
pub(crate) enum Fault {
    /// The request is invalid, and nothing was written for it.
    Refused(Error),
    /// PostgreSQL or the connection failed. The transaction is rolled back.
    Sql(sqlx::Error),
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

impl From<sqlx::Error> for Fault {
    fn from(error: sqlx::Error) -> Self {
        Self::Sql(error)
    }
}

/// Error of the driver, as a source: without the line of the server's own source that the driver adds.
#[derive(Debug)]
struct Said(sqlx::Error);

impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            sqlx::Error::Database(error) => {
                let code = error.code().unwrap_or_default();
                write!(f, "the server said: {} (SQLSTATE {code})", error.message())
            }
            error => error.fmt(f),
        }
    }
}

impl std::error::Error for Said {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.0 {
            sqlx::Error::Database(_) => None,
            error => error.source(),
        }
    }
}

/// Result of a step inside a transaction.
pub(crate) type Step<T> = Result<T, Fault>;

/// Condition that the function `commit` raises: a blob is not there which an event names.
pub(crate) const BLOB_MISSING: &str = "AG001";
/// Condition that the function `commit` raises: the last event of the log is missing.
pub(crate) const LOG_TORN: &str = "AG002";

/// Returns the SQLSTATE, if the error is one of the server's.
pub(crate) fn sqlstate(error: &sqlx::Error) -> Option<Cow<'_, str>> {
    error.as_database_error().and_then(sqlx::error::DatabaseError::code)
}

/// Returns whether the error ended the connection, or may have left it in an unknown state.
pub(crate) fn is_broken(error: &sqlx::Error) -> bool {
    let Some(database) = error.as_database_error() else {
        return !matches!(
            error,
            sqlx::Error::ColumnDecode { .. }
                | sqlx::Error::Encode(_)
                | sqlx::Error::RowNotFound
                | sqlx::Error::ColumnIndexOutOfBounds { .. }
                | sqlx::Error::Decode(_)
        );
    };
    let severity = database.try_downcast_ref::<PgDatabaseError>().map(PgDatabaseError::severity);
    let code = database.code().unwrap_or_default();
    matches!(severity, Some(PgSeverity::Fatal | PgSeverity::Panic))
        || code.starts_with("08")
        || matches!(&*code, "57P01" | "57P02" | "57P03" | "57P04" | "57P05" | "25006")
}

/// Returns whether the transaction was undone because of others, and succeeds when it is repeated.
pub(crate) fn is_serialization(error: &sqlx::Error) -> bool {
    matches!(sqlstate(error).as_deref(), Some("40001" | "40P01"))
}

/// Returns whether the server refused a write since it accepts reads only.
pub(crate) fn is_read_only(error: &sqlx::Error) -> bool {
    sqlstate(error).as_deref() == Some("25006")
}

/// Returns whether the server, or the user, has as many connections as it may have.
pub(crate) fn is_full(error: &sqlx::Error) -> bool {
    sqlstate(error).as_deref() == Some("53300")
}

/// Returns whether a table or its schema does not exist.
pub(crate) fn is_missing(error: &sqlx::Error) -> bool {
    matches!(sqlstate(error).as_deref(), Some("42P01" | "3F000"))
}

/// Returns whether a table lacks a column that the store's has.
pub(crate) fn is_other_table(error: &sqlx::Error) -> bool {
    sqlstate(error).as_deref() == Some("42703")
}

/// Returns whether a row with the same key was inserted meanwhile.
pub(crate) fn is_duplicate(error: &sqlx::Error) -> bool {
    sqlstate(error).as_deref() == Some("23505")
}

/// Error for a failure that PostgreSQL reports: `cannot <doing>: <what to do>`. `sent` is true if a write was sent that
/// takes effect by itself.
pub(crate) fn failed(doing: &str, error: sqlx::Error, sent: bool) -> Error {
    failed_since(doing, error, sent, None)
}

/// The same, if the reason for which the server accepts reads only was asked for: whether it is a standby.
pub(crate) fn failed_since(doing: &str, error: sqlx::Error, sent: bool, is_standby: Option<bool>) -> Error {
    let is_broken = is_broken(&error);
    let (kind, remedy) = match is_standby.filter(|_| is_read_only(&error)) {
        Some(is_standby) => (ErrorKind::Unavailable, read_only(is_standby)),
        None => cause(&error, is_broken),
    };
    let is_timeout = matches!(sqlstate(&error).as_deref(), Some("55P03" | "57014" | "25P03"))
        || matches!(&error, sqlx::Error::Io(io) if io.kind() == std::io::ErrorKind::TimedOut);
    let outcome = if is_broken && sent && !is_read_only(&error) {
        WriteOutcome::Unknown
    } else {
        WriteOutcome::NotApplied
    };
    let failed =
        Error::new(kind, format!("cannot {doing}: {remedy}")).with_source(Said(error)).with_outcome(outcome);
    if is_timeout { failed.timed_out() } else { failed }
}

/// Says why a server accepts reads only, and what to do.
pub(crate) const fn read_only(is_standby: bool) -> &'static str {
    if is_standby {
        "the server is a standby, which accepts reads only; name the primary, or wait until it is one"
    } else {
        "the server is no standby, but the user, the database or the server is set to read only; set \
         `default_transaction_read_only` to off there"
    }
}

/// Returns whether a policy refused a row, rather than the rights of the user a table.
fn is_policy(error: &sqlx::Error) -> bool {
    let database = error.as_database_error().and_then(|error| error.try_downcast_ref::<PgDatabaseError>());
    database.and_then(PgDatabaseError::routine) == Some("ExecWithCheckOptions")
}

/// Returns whether a pooler refused the settings of a connection. PgBouncer has one code for all that it says itself, also for what
/// passes, as when it could not ask the server for a user.
fn refuses_settings(error: &sqlx::Error) -> bool {
    error.as_database_error().is_some_and(|error| error.message().contains("startup parameter"))
}

const TAKEN: &str = "the schema has an object of somebody else's under a name of the store's, which the cause gives; name a schema that \
                     nobody else uses (`schema=NAME`), or rename or remove it";

/// Returns the kind of an error and what to do about it. `FORMAT.md` has this table.
fn cause(error: &sqlx::Error, is_broken: bool) -> (ErrorKind, &'static str) {
    let code = sqlstate(error).unwrap_or_default();
    match &*code {
        "25006" => (
            ErrorKind::Unavailable,
            "the server is read-only, perhaps a standby; name the primary, or wait for it",
        ),
        "08P01" if refuses_settings(error) => (
            ErrorKind::Unsupported,
            "the connection's settings were refused; behind a pooler in transaction mode add `pooler=transaction` to the address",
        ),
        "57P04" | "3D000" => {
            (ErrorKind::NotFound, "the database does not exist; create it, or name another one")
        }
        "53100" => (ErrorKind::Full, "no space is left on the server; make room, then try again"),
        "55P03" => (ErrorKind::Unavailable, "another transaction held a lock for too long; try again"),
        "57014" | "25P03" => (ErrorKind::Unavailable, "it took longer than the statement timeout; try again"),
        "53200" | "53300" | "53400" => (
            ErrorKind::Unavailable,
            "the server has no memory or no connection left; try again, or raise its limits",
        ),
        "40001" | "40P01" => {
            (ErrorKind::Unavailable, "others changed the same rows again and again; try again")
        }
        "XX001" | "XX002" => (ErrorKind::Corrupt, "the database is damaged; restore it from a backup"),
        "26000" | "42P05" => (
            ErrorKind::Unsupported,
            "a pooler hands statements to other connections; add `pooler=transaction` to the address, or connect directly",
        ),
        "0A000" => (ErrorKind::Unavailable, "the tables were changed meanwhile; try again"),
        "42P01" | "42883" | "42703" | "3F000" => {
            (ErrorKind::Unsupported, "a table or function of the store is missing; restore it from a backup")
        }
        "42P07" | "42710" | "42723" => (ErrorKind::Unsupported, TAKEN),
        "54000" | "22001" => (ErrorKind::LimitExceeded, "it is too large for one row; send several"),
        code if code.starts_with("28") => {
            (ErrorKind::Denied, "the server refused the login; check user and password")
        }
        "42501" if is_policy(error) => (
            ErrorKind::Denied,
            "row security refused a row of another tenant or owner, which this library should never write; report it",
        ),
        "42501" => (
            ErrorKind::Denied,
            "the user lacks the right that the cause names; grant it, or connect as the owner of the tables",
        ),
        code if code.starts_with("23") || code.starts_with("42") => (
            ErrorKind::Corrupt,
            "the rows of the store contradict each other, or this library has a defect; run `verify`, and report it",
        ),
        _ if is_broken => (ErrorKind::Unavailable, broken(error)),
        _ => (
            ErrorKind::Unavailable,
            "the server reported an error; try again, and check the source of this error",
        ),
    }
}

/// Returns what to do about a connection that was not made, or has ended.
fn broken(error: &sqlx::Error) -> &'static str {
    use std::io::ErrorKind as Io;
    match error {
        sqlx::Error::Tls(_) => {
            "no encrypted connection was made; check the server's certificate and `sslmode`: a server without TLS needs `sslmode=disable`"
        }
        sqlx::Error::Io(error) => match error.kind() {
            Io::ConnectionRefused | Io::NotFound => {
                "no server listens there; check host and port, and that the server runs"
            }
            Io::TimedOut => "the server did not answer in time; check host, port and network, then try again",
            Io::ConnectionReset | Io::ConnectionAborted | Io::BrokenPipe | Io::UnexpectedEof => {
                "the server closed the connection; try again when it runs"
            }
            Io::ReadOnlyFilesystem => {
                "no server that accepts writes was found; the cause says why one refuses them"
            }
            _ => "the connection to the server failed; check host, port and network, then try again",
        },
        _ => "the connection to the server failed; try again",
    }
}

/// Error for damaged stored bytes.
pub(crate) fn corrupt(object: &str, what: &str) -> Error {
    Error::corrupt(format!("{object} {what}; nothing was overwritten; repair it or restore it from a backup"))
}

/// Error for work whose task has ended without a result, since its runtime ends.
pub(crate) fn gone() -> Error {
    Error::unavailable(
        "the runtime ended while the store worked; open the store again, on a runtime that lives longer",
    )
    .with_outcome(WriteOutcome::Unknown)
}
