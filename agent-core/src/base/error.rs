//! One opaque error for every operation: what happened, whether a write may have happened, what to do.

use std::fmt;
use std::sync::Arc;

use crate::base::id::{Epoch, Seq};
use crate::base::state::{SessionState, TriggerKind};
use crate::base::text::ParseError;
use crate::base::timestamp::Timestamp;

/// The result of every fallible operation of this library.
pub type Result<T, E = Error> = std::result::Result<T, E>;

type Source = Box<dyn std::error::Error + Send + Sync>;

/// An error of a store, the manager or the runtime.
///
/// The [kind](Error::kind) says what the caller should do; the text names the object and the remedy, and is not
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
#[derive(Clone)]
pub struct Error(Box<Inner>);

#[derive(Clone)]
struct Inner {
    kind: ErrorKind,
    message: String,
    outcome: WriteOutcome,
    timed_out: bool,
    source: Option<Arc<dyn std::error::Error + Send + Sync>>,
}

/// The kind of an error: tells the caller what to do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The object was looked for and is proven absent. Nothing else is ever reported as this.
    NotFound,
    /// The object existed and was deleted; a tombstone remains. Its id is never used again.
    Deleted,
    /// The precondition does not hold. Load again, decide again.
    Conflict {
        /// The head of the session as it is now, where the object is a session.
        head: Option<Seq>,
    },
    /// The run that wrote this has ended, or another took over. Stop, and write nothing more under this epoch.
    Fenced {
        /// The newest epoch of the session.
        epoch: Epoch,
    },
    /// Someone else is at work on it. Wait, `send` the input for the next run, or fork.
    Busy {
        /// Who holds it, as that holder named itself.
        holder: String,
    },
    /// The request is malformed. Fix the call; nothing was written.
    InvalidInput,
    /// The request would grow something beyond its documented limit. Nothing was written.
    LimitExceeded,
    /// The session's state does not allow this. Nothing was written.
    InvalidTransition {
        /// The state the session is in.
        from: SessionState,
        /// What was asked of it.
        trigger: TriggerKind,
    },
    /// The answer comes after its time: the question was to be answered before `at`. Nothing was written. Wake the session,
    /// which then goes on without the answer.
    Expired {
        /// When the time for the answer ended.
        at: Timestamp,
    },
    /// Stored bytes are damaged. Nothing was overwritten; what is readable stays readable.
    Corrupt,
    /// The data is of a newer format, or the store cannot do this.
    Unsupported,
    /// The operating system or the service refused access. Fix the permission named in the text.
    Denied,
    /// No space or no quota is left. Make room, then try again.
    Full,
    /// The store cannot be reached or is overloaded at the moment. The only kind worth a retry as it is.
    Unavailable,
    /// An earlier failure left this handle unable to say what is durable. Open the store again.
    Poisoned,
    /// A model or a tool failed.
    Provider,
}

impl ErrorKind {
    /// The stable name of the kind, as it stands in spans: `not_found`, `conflict` …
    pub const fn name(&self) -> &'static str {
        match self {
            Self::NotFound => "not_found",
            Self::Deleted => "deleted",
            Self::Conflict { .. } => "conflict",
            Self::Fenced { .. } => "fenced",
            Self::Busy { .. } => "busy",
            Self::InvalidInput => "invalid_input",
            Self::LimitExceeded => "limit_exceeded",
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

/// The outcome of a failed write: not applied, or unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteOutcome {
    /// Nothing was written, now or later.
    NotApplied,
    /// It may have been written, or may yet be. Send the same commit, with the same id, to find out.
    Unknown,
}

impl Error {
    /// Creates an error of `kind` whose write, if there was one, did not happen.
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

    /// States whether the failed write may have happened.
    #[must_use]
    pub fn with_outcome(mut self, outcome: WriteOutcome) -> Self {
        self.0.outcome = outcome;
        self
    }

    /// For backends: states that the operation was tried, or waited for others, for as long as it may. Whoever tries again
    /// what failed, as [`settle`](crate::store::ext::SessionStoreExt::settle) does, leaves it at that.
    #[must_use]
    pub fn timed_out(mut self) -> Self {
        self.0.timed_out = true;
        self
    }

    /// Names the object that the error is about (`session 019c…`) at the start of the text, unless its last word, the
    /// id, stands in the text already.
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

    /// Returns whether the operation that failed may have been applied. A failed read is [`WriteOutcome::NotApplied`].
    pub fn write_outcome(&self) -> WriteOutcome {
        self.0.outcome
    }

    /// Returns whether the same request, for a commit with the same id, may succeed when simply sent again.
    pub fn is_retryable(&self) -> bool {
        self.0.kind == ErrorKind::Unavailable
    }

    /// Returns whether the operation took all the time that it may take. It may succeed later.
    pub fn is_timeout(&self) -> bool {
        self.0.timed_out
    }

    /// Returns whether the object is proven absent, either never created ([`ErrorKind::NotFound`]) or deleted.
    pub fn is_absent(&self) -> bool {
        matches!(self.0.kind, ErrorKind::NotFound | ErrorKind::Deleted)
    }

    /// An error of kind [`ErrorKind::InvalidInput`].
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::InvalidInput, message)
    }

    /// An error of kind [`ErrorKind::LimitExceeded`].
    pub fn limit(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::LimitExceeded, message)
    }

    /// An error of kind [`ErrorKind::Corrupt`].
    pub fn corrupt(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Corrupt, message)
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
