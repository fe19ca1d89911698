//! Error type of every operation: the kind of failure, whether a write may have been applied, and the remedy.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::base::blob_name::BlobName;
use crate::base::id::{Epoch, Seq};
use crate::base::state_machine::{SessionState, TriggerKind};
use crate::base::text::ParseError;
use crate::base::timestamp::Timestamp;

/// Result of a fallible operation of this library.
pub type Result<T, E = Error> = std::result::Result<T, E>;

type Source = Box<dyn std::error::Error + Send + Sync>;

/// Error of a store, the manager or the runtime.
///
/// The [kind](Error::kind) says what the caller should do. The text names the object and the remedy, and is not
/// covered by semver. The [write outcome](Error::write_outcome) says whether the failed operation may have taken
/// effect. Payloads (messages, tool results) never appear in it.
///
/// # Examples
///
/// ```
/// use agent_core::{Error, ErrorKind, WriteOutcome};
///
/// let error = Error::new(ErrorKind::Unavailable, "connection to the store was lost; try again")
///     .with_outcome(WriteOutcome::Unknown);
/// assert!(error.is_retryable());
/// assert_eq!(error.write_outcome(), WriteOutcome::Unknown);
/// ```
///
/// As JSON an error has the fields of its kind (`kind` and, for some, `head`, `epoch`, `holder`, `from`, `trigger`,
/// `at`, `blobs`), `message`, `write_outcome` and `timed_out`. The [source](std::error::Error::source) is not part of it.
#[derive(Clone, Serialize, Deserialize)]
#[serde(from = "ErrorJson", into = "ErrorJson")]
pub struct Error(Box<Inner>);

#[derive(Clone)]
struct Inner {
    kind: ErrorKind,
    message: String,
    outcome: WriteOutcome,
    timed_out: bool,
    source: Option<Arc<dyn std::error::Error + Send + Sync>>,
}

/// JSON form of an error.
#[derive(Serialize, Deserialize)]
struct ErrorJson {
    #[serde(flatten)]
    kind: ErrorKind,
    message: String,
    write_outcome: WriteOutcome,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    timed_out: bool,
}

impl From<Error> for ErrorJson {
    fn from(error: Error) -> Self {
        let Inner { kind, message, outcome, timed_out, .. } = *error.0;
        Self { kind, message, write_outcome: outcome, timed_out }
    }
}

impl From<ErrorJson> for Error {
    fn from(json: ErrorJson) -> Self {
        let ErrorJson { kind, message, write_outcome: outcome, timed_out } = json;
        Self(Box::new(Inner { kind, message, outcome, timed_out, source: None }))
    }
}

/// Kind of an error. Says what the caller should do about it.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
/// use agent_core::clock::Effects;
/// use agent_core::{ErrorKind, MemoryStore, SessionStore};
///
/// # let effects = Effects::default();
/// let store = MemoryStore::new();
/// let error = store.load(effects.new_session_id()).await.unwrap_err();
/// let advice = match error.kind() {
///     ErrorKind::Busy { holder } => format!("{holder} is at work; try again later"),
///     ErrorKind::NotFound | ErrorKind::Deleted => "start a new conversation".to_owned(),
///     kind => format!("failed: {}", kind.name()),
/// };
/// assert_eq!(advice, "start a new conversation");
/// assert!(error.is_absent());
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[non_exhaustive]
pub enum ErrorKind {
    /// The object is proven absent: the store has searched for it. Nothing else is reported as this kind.
    NotFound,
    /// The object existed and was deleted; a tombstone remains. Its id is never used again.
    Deleted,
    /// The precondition does not hold. Load the object again, then decide again.
    Conflict {
        /// Current head of the session, if the object is a session.
        head: Option<Seq>,
    },
    /// The run that sent this write has ended, or another run took over. Stop, and write nothing more under this
    /// epoch.
    Fenced {
        /// Newest epoch of the session.
        epoch: Epoch,
    },
    /// Another run holds the session. Wait, `send` the input for the next run, or fork.
    Busy {
        /// Name of the holder, as the holder gave it.
        holder: String,
    },
    /// The request is malformed. Fix the call; nothing was written.
    InvalidInput,
    /// The request would exceed a documented limit. Nothing was written.
    LimitExceeded,
    /// A commit names blobs that the store does not have for this session. Nothing was written. Put them, then send the
    /// same commit again.
    BlobMissing {
        /// Names of the missing blobs, in order.
        blobs: Vec<BlobName>,
    },
    /// The session's state does not allow the request. Nothing was written.
    InvalidTransition {
        /// Current state of the session.
        from: SessionState,
        /// Trigger that was refused.
        trigger: TriggerKind,
    },
    /// The answer is late: the question had to be answered before `at`. Nothing was written. Run the session, which
    /// then continues without the answer.
    Expired {
        /// Time at which the question expired.
        at: Timestamp,
    },
    /// Stored bytes are damaged. Nothing was overwritten; readable data stays readable.
    Corrupt,
    /// The data has a newer format, or the store does not support the operation.
    Unsupported,
    /// The operating system or the service refused access. Fix the permission named in the text.
    Denied,
    /// No space or no quota is left. Free some, then try again.
    Full,
    /// The store cannot be reached or is overloaded at the moment. The only kind for which an unchanged retry is
    /// useful.
    Unavailable,
    /// After an earlier failure, it is unknown which writes of this handle are durable. Open the store again.
    Poisoned,
    /// A model or a tool failed.
    Provider,
}

impl ErrorKind {
    /// Returns the stable name of the kind, as used in spans: `not_found`, `conflict` …
    pub const fn name(&self) -> &'static str {
        match self {
            Self::NotFound => "not_found",
            Self::Deleted => "deleted",
            Self::Conflict { .. } => "conflict",
            Self::Fenced { .. } => "fenced",
            Self::Busy { .. } => "busy",
            Self::InvalidInput => "invalid_input",
            Self::LimitExceeded => "limit_exceeded",
            Self::BlobMissing { .. } => "blob_missing",
            Self::InvalidTransition { .. } => "invalid_transition",
            Self::Expired { .. } => "expired",
            Self::Corrupt => "corrupt",
            Self::Unsupported => "unsupported",
            Self::Denied => "denied",
            Self::Full => "full",
            Self::Unavailable => "unavailable",
            Self::Poisoned => "poisoned",
            Self::Provider => "provider",
        }
    }
}

/// Outcome of a failed write: not applied, or unknown.
///
/// ```
/// use agent_core::{Error, ErrorKind, WriteOutcome};
///
/// let refused = Error::invalid("the title is empty; give 1 to 512 bytes");
/// assert_eq!(refused.write_outcome(), WriteOutcome::NotApplied);
/// let lost = Error::unavailable("no reply; send it again").with_outcome(WriteOutcome::Unknown);
/// assert_eq!(lost.write_outcome(), WriteOutcome::Unknown);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WriteOutcome {
    /// Nothing was written, and nothing will be.
    NotApplied,
    /// The write may have been applied, or may still be. Send the same commit, with the same id, to find out.
    Unknown,
}

impl Error {
    /// Creates an error of `kind`. Its write, if there was one, counts as not applied.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self(Box::new(Inner {
            kind,
            message: message.into(),
            outcome: WriteOutcome::NotApplied,
            timed_out: false,
            source: None,
        }))
    }

    /// Adds the error that caused this one.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Source>) -> Self {
        self.0.source = Some(Arc::from(source.into()));
        self
    }

    /// Sets whether the failed write may have been applied.
    #[must_use]
    pub fn with_outcome(mut self, outcome: WriteOutcome) -> Self {
        self.0.outcome = outcome;
        self
    }

    /// For backends: marks the error as a timeout: the operation was tried, or waited for others, for as long as it
    /// may.
    ///
    /// Retry loops, such as [`commit_with_retry`](crate::store::ext::SessionStoreExt::commit_with_retry), stop at such
    /// an error.
    #[must_use]
    pub fn timed_out(mut self) -> Self {
        self.0.timed_out = true;
        self
    }

    /// Prefixes the text with the object that the error is about (`session 019c…`), unless the text contains the
    /// object's last word, its id.
    ///
    /// ```
    /// use agent_core::{Error, ErrorKind};
    ///
    /// let error = Error::corrupt("line 412 has a bad checksum").about("workspace default");
    /// assert_eq!(error.to_string(), "workspace default: line 412 has a bad checksum");
    /// assert_eq!(*error.kind(), ErrorKind::Corrupt);
    /// ```
    #[must_use]
    pub fn about(mut self, object: impl fmt::Display) -> Self {
        let object = object.to_string();
        let id = object.rsplit(' ').next().unwrap_or(&object);
        if !self.0.message.contains(id) {
            self.0.message = format!("{object}: {}", self.0.message);
        }
        self
    }

    /// Returns the kind of the error.
    pub fn kind(&self) -> &ErrorKind {
        &self.0.kind
    }

    /// Returns whether the failed operation may have been applied. For a failed read, this is
    /// [`WriteOutcome::NotApplied`].
    pub fn write_outcome(&self) -> WriteOutcome {
        self.0.outcome
    }

    /// Returns whether the same request (for a commit, with the same id) may succeed if it is sent again unchanged.
    pub fn is_retryable(&self) -> bool {
        self.0.kind == ErrorKind::Unavailable
    }

    /// Returns whether the operation used all the time that it may use. It may succeed later.
    pub fn is_timeout(&self) -> bool {
        self.0.timed_out
    }

    /// Returns whether the object is proven absent: never created ([`ErrorKind::NotFound`]) or deleted.
    ///
    /// ```
    /// use agent_core::{Error, ErrorKind};
    ///
    /// assert!(Error::deleted("session 019c… was deleted").is_absent());
    /// assert!(!Error::corrupt("session 019c… has no first event").is_absent());
    /// ```
    pub fn is_absent(&self) -> bool {
        matches!(self.0.kind, ErrorKind::NotFound | ErrorKind::Deleted)
    }

    /// Creates an error of kind [`ErrorKind::InvalidInput`].
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::InvalidInput, message)
    }

    /// Creates an error of kind [`ErrorKind::LimitExceeded`].
    pub fn limit(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::LimitExceeded, message)
    }

    /// Creates an error of kind [`ErrorKind::Corrupt`].
    pub fn corrupt(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Corrupt, message)
    }

    /// Creates an error of kind [`ErrorKind::NotFound`].
    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::NotFound, message)
    }

    /// Creates an error of kind [`ErrorKind::Deleted`].
    pub fn deleted(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Deleted, message)
    }

    /// Creates an error of kind [`ErrorKind::Unsupported`].
    pub fn unsupported(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Unsupported, message)
    }

    /// Creates an error of kind [`ErrorKind::Unavailable`].
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Unavailable, message)
    }
}

impl From<ParseError> for Error {
    fn from(error: ParseError) -> Self {
        let (message, source) = error.into_parts();
        Self(Box::new(Inner {
            kind: ErrorKind::InvalidInput,
            message,
            outcome: WriteOutcome::NotApplied,
            timed_out: false,
            source: source.map(Arc::from),
        }))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("Error");
        out.field("kind", &self.0.kind).field("message", &self.0.message).field("outcome", &self.0.outcome);
        if let Some(source) = &self.0.source {
            out.field("source", source);
        }
        out.finish()
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_deref().map(|source| source as _)
    }
}
