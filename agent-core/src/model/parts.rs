//! Parts of a session's record.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::base::json::RawJson;
use crate::base::sealed::check_word;
use crate::base::text::{check_text, text_serde, words};
use crate::base::{
    CommitId, Epoch, Error, Reason, Result, RunId, Seq, SessionId, SessionState, Timestamp, is_default,
};

macro_rules! text_key {
    ($(#[$doc:meta])* $name:ident, $noun:literal) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Box<str>);

        impl $name {
            /// Maximum number of bytes.
            pub const MAX_BYTES: usize = 128;

            /// Returns the text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = Error;

            fn from_str(text: &str) -> Result<Self> {
                check_text($noun, text, Self::MAX_BYTES)?;
                Ok(Self(text.into()))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}", &self.0)
            }
        }

        text_serde!($name);
    };
}

text_key! {
    /// Id of a tool call: 1 to 128 bytes without control characters, as the model's provider gave it.
    ///
    /// ```
    /// use agent_core::model::CallId;
    ///
    /// let call: CallId = "toolu_01A09q90qw90lq917835lq9".parse()?;
    /// assert_eq!(call.as_str(), "toolu_01A09q90qw90lq917835lq9");
    /// assert!("".parse::<CallId>().is_err());
    /// # Ok::<(), agent_core::Error>(())
    /// ```
    CallId, "tool call id"
}

text_key! {
    /// Id of the pending action that a session waits for.
    ///
    /// ```
    /// use agent_core::model::ActionId;
    ///
    /// let action: ActionId = "approve-payment".parse()?;
    /// assert_eq!(action.to_string(), "approve-payment");
    /// # Ok::<(), agent_core::Error>(())
    /// ```
    ActionId, "action id"
}

text_key! {
    /// Id of a span.
    ///
    /// ```
    /// use agent_core::model::SpanId;
    ///
    /// let span: SpanId = "indexing".parse()?;
    /// assert_eq!(span.as_str(), "indexing");
    /// # Ok::<(), agent_core::Error>(())
    /// ```
    SpanId, "span id"
}

/// State of a session and the reason for it.
///
/// ```
/// use agent_core::model::Status;
/// use agent_core::state::{Reason, SessionState};
///
/// let status = Status::new(SessionState::Idle, Reason::EndTurn);
/// assert_eq!(status.to_string(), "idle (end_turn)");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Status {
    /// State of the session.
    pub state: SessionState,
    /// Reason for the state.
    pub reason: Reason,
}

impl Status {
    /// Creates a status.
    pub const fn new(state: SessionState, reason: Reason) -> Self {
        Self { state, reason }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.state, self.reason)
    }
}

/// Origin of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Origin {
    /// New session, without a parent.
    #[default]
    New,
    /// Copy of `parent` up to and including its event `at`.
    #[non_exhaustive]
    Fork {
        /// Session that this one was forked from.
        parent: SessionId,
        /// Last event that both have in common.
        at: Seq,
    },
    /// Helper of `parent`, with a history of its own.
    #[non_exhaustive]
    Child {
        /// Session that this one helps.
        parent: SessionId,
        /// Last event of that session when this one was created; zero if it is not known.
        #[serde(default, skip_serializing_if = "is_default")]
        at: Seq,
    },
    /// Import from a manifest.
    Import,
}

impl Origin {
    /// Returns the session that this one was forked from or is a child of.
    pub const fn parent(&self) -> Option<SessionId> {
        match self {
            Self::Fork { parent, .. } | Self::Child { parent, .. } => Some(*parent),
            _ => None,
        }
    }
}

/// Report on a child that its parent has received.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Reported {
    /// Progress of the child's work: the start of its last run or its last done input, whichever is later.
    pub at: Seq,
    /// State of the child.
    pub state: SessionState,
}

/// Number of events of each kind in the visible history.
///
/// Clearing the history resets all counts but `runs`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Counts {
    /// Number of messages of people.
    #[serde(default)]
    pub user: u64,
    /// Number of messages of the agent.
    #[serde(default)]
    pub agent: u64,
    /// Number of messages of the system.
    #[serde(default)]
    pub system: u64,
    /// Number of tool calls.
    #[serde(default)]
    pub tool_calls: u64,
    /// Number of runs that began.
    #[serde(default)]
    pub runs: u64,
}

/// Maximum number of bytes of a message that a record and a list show.
pub const WORDS_MAX_BYTES: usize = 80;

/// Number of bytes that a session's own events store, by kind of content. Clearing the history removes no event, so it
/// changes nothing here; a purge removes them all.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
/// # use agent_core::{MemoryStore, SessionStoreExt, WorkspaceId};
/// # use agent_core::clock::Effects;
/// # use agent_core::event::NewEvent;
/// # use agent_core::session::NewSession;
/// # let (store, effects) = (MemoryStore::new().sessions(&Effects::default()), Effects::default());
/// # let session = store.create(NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT)).await?;
/// let events = vec![NewEvent::user_message("Hello")];
/// let session = store.append(session.id, session.head, events).await?.session;
/// assert_eq!(session.content_bytes.texts, r#"{"text":"Hello"}"#.len() as u64);
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ContentBytes {
    /// Messages of people, of the agent and of the system, and further parts of the agent's, as JSON.
    #[serde(default, skip_serializing_if = "is_default")]
    pub texts: u64,
    /// Results of tools, as JSON.
    #[serde(default, skip_serializing_if = "is_default")]
    pub tool_results: u64,
    /// Reasoning of models, as JSON.
    #[serde(default, skip_serializing_if = "is_default")]
    pub reasoning: u64,
    /// Blobs, each as often as an event names it with its size.
    #[serde(default, skip_serializing_if = "is_default")]
    pub blobs: u64,
}

impl ContentBytes {
    /// Returns the sum of all kinds.
    pub const fn total(&self) -> u64 {
        let inline = self.texts.saturating_add(self.tool_results).saturating_add(self.reasoning);
        inline.saturating_add(self.blobs)
    }
}

impl Counts {
    /// Returns the number of all messages: of people, of the agent, of the system.
    pub const fn messages(&self) -> u64 {
        self.user.saturating_add(self.agent).saturating_add(self.system)
    }
}

/// Lease on a session, held by one run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Lease {
    /// Name of the holder, as the holder gave it; shown to others that have to wait.
    pub holder: String,
    /// Run that took the lease.
    pub run: RunId,
    /// Number of the lease, carried by the run's writes.
    pub epoch: Epoch,
    /// Time that the lease lasts without a heartbeat, in milliseconds.
    pub ttl_ms: u64,
    /// Time at which the lease was taken, by the holder's clock.
    pub since: Timestamp,
}

/// Request to a running session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Request {
    /// Ends the run.
    Cancel,
    /// Ends the run, then suspends the session for this reason.
    Suspend(Reason),
}

/// Tool call without a result yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct OpenCall {
    /// Id of the call.
    pub call: CallId,
    /// Event that made the call.
    pub seq: Seq,
    /// True if the tool runs outside and delivers its result itself.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub custom: bool,
}

/// Span without an end yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct OpenSpan {
    /// Id of the span.
    pub span: SpanId,
    /// Event that started the span.
    pub seq: Seq,
}

words! {
    /// Kind of answer that a session waits for.
    ActionKind {
        /// Decision whether a tool may run.
        ToolConfirmation = "tool_confirmation",
        /// Result of a tool that runs outside.
        ToolResult = "tool_result",
        /// Decision on a question.
        Approval = "approval",
        /// Kind of a newer version of this library.
        Newer = "newer",
    } newer = Some(Self::Newer)
}

impl ActionKind {
    /// Returns the reason of a session that waits for this kind of answer.
    pub const fn reason(self) -> Reason {
        match self {
            Self::ToolConfirmation => Reason::AwaitToolConfirmation,
            Self::ToolResult => Reason::AwaitToolResult,
            Self::Approval => Reason::AwaitApproval,
            Self::Newer => Reason::Newer,
        }
    }
}

/// Action that a session waits for: one matching answer, from any device.
///
/// ```
/// use agent_core::Timestamp;
/// use agent_core::model::{ActionKind, PendingAction};
///
/// let question = PendingAction::new("pay-4711".parse()?, ActionKind::Approval, "Pay 120 EUR to Acme?")
///     .with_call("pay", None)
///     .with_choices(["now".to_owned(), "tomorrow".to_owned()])
///     .with_expires_at("2026-02-15T10:30:00Z".parse::<Timestamp>()?);
/// assert_eq!((question.choices.len(), question.tool.as_deref()), (2, Some("pay")));
/// # Ok::<(), agent_core::Error>(())
/// ```
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PendingAction {
    /// Id of the action; the answer must carry it. For a tool's result, it is the call's id.
    pub id: ActionId,
    /// Kind of answer.
    pub kind: ActionKind,
    /// Question for a person; at most 2,048 bytes: the host's sentence, that of the model for a tool that asks, or else
    /// [the call](Self::about_call).
    ///
    /// A longer question is stored as its beginning and its end, with a mark between them that contains the number
    /// of bytes left out. A host shows the complete call with `Conversation::pending_call`.
    pub question: String,
    /// Name of the tool, if the answer is about a tool call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// Event that holds the complete call, if the answer is about a tool call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seq: Option<Seq>,
    /// Choices, if the answer is one of several: at most 16, of at most 256 bytes each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub choices: Vec<String>,
    /// Time at which the session stops waiting.
    ///
    /// An answer whose commit was [sealed](crate::commit::Commit::at) at this time or later, by the answering
    /// device's clock, is refused as [`Expired`](crate::base::error::ErrorKind::Expired).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
}

impl PendingAction {
    /// Maximum number of bytes of a question.
    pub const QUESTION_MAX_BYTES: usize = 2048;
    /// Maximum number of choices.
    pub const CHOICES_MAX: usize = 16;
    /// Maximum number of bytes of a choice.
    pub const CHOICE_MAX_BYTES: usize = 256;

    /// Creates an action that waits for an answer of this kind.
    pub fn new(id: ActionId, kind: ActionKind, question: impl Into<String>) -> Self {
        let question = question.into();
        Self { id, kind, question, tool: None, seq: None, choices: Vec::new(), expires_at: None }
    }

    /// Sets the choices; an answer that allows the action must then name one of them.
    pub fn with_choices(mut self, choices: impl IntoIterator<Item = String>) -> Self {
        self.choices = choices.into_iter().collect();
        self
    }

    /// Sets the tool that is called, and the event that holds the complete call.
    pub fn with_call(mut self, tool: impl Into<String>, seq: Option<Seq>) -> Self {
        self.tool = Some(tool.into());
        self.seq = seq;
        self
    }

    /// Returns the question about a call for which the host gives no sentence: the call itself, shortened.
    ///
    /// A host that shows the complete call beside the question leaves out a question that is this one.
    ///
    /// ```
    /// use agent_core::json::RawJson;
    /// use agent_core::model::{ActionKind, PendingAction};
    ///
    /// let question = PendingAction::about_call(ActionKind::ToolConfirmation, "pay", &RawJson::parse(r#"{"euro":120}"#)?);
    /// assert_eq!(question, r#"May pay {"euro":120}"#);
    /// # Ok::<(), agent_core::Error>(())
    /// ```
    pub fn about_call(kind: ActionKind, tool: &str, input: &RawJson) -> String {
        let lead = match kind {
            ActionKind::ToolConfirmation => "May ",
            ActionKind::ToolResult => "Waits for ",
            _ => "",
        };
        Self::shortened(format!("{lead}{tool} {}", input.get()), Self::QUESTION_MAX_BYTES)
    }

    /// Returns a question of at most `most` bytes.
    ///
    /// Of a longer question, the beginning and the end are kept, and the number of bytes left out stands between
    /// them.
    ///
    /// ```
    /// use agent_core::model::PendingAction;
    ///
    /// let question = "x".repeat(5_000);
    /// assert!(PendingAction::shortened(question, 200).contains("bytes left out"));
    /// assert_eq!(PendingAction::shortened("Pay?".to_owned(), 200), "Pay?");
    /// ```
    pub fn shortened(question: String, most: usize) -> String {
        // Upper bound of the number of bytes of the mark.
        const MARK: usize = 64;
        if question.len() <= most {
            return question;
        }
        let side = most.saturating_sub(MARK) / 2;
        let head = question.floor_char_boundary(side);
        let tail = question.ceil_char_boundary(question.len() - side);
        format!("{} [… {} bytes left out …] {}", &question[..head], tail - head, &question[tail..])
    }

    /// Checks the lengths that the types do not check.
    pub(crate) fn check(&self, session: impl fmt::Display) -> Result<()> {
        if self.question.len() > Self::QUESTION_MAX_BYTES {
            return Err(Error::limit(format!(
                "a question of {} bytes for session {session}; at most {} are kept",
                self.question.len(),
                Self::QUESTION_MAX_BYTES
            )));
        }
        if let Some(tool) = &self.tool {
            check_text("tool name", tool, 128)?;
        }
        if self.choices.len() > Self::CHOICES_MAX {
            return Err(Error::limit(format!(
                "a question with {} choices for session {session}; at most {} are kept",
                self.choices.len(),
                Self::CHOICES_MAX
            )));
        }
        self.choices.iter().try_for_each(|choice| Ok(check_word("choice", choice, Self::CHOICE_MAX_BYTES)?))
    }

    /// Sets the time at which the session stops waiting.
    #[doc(alias = "expires_at")]
    pub fn with_expires_at(mut self, at: Timestamp) -> Self {
        self.expires_at = Some(at);
        self
    }
}

/// Failure of the last run, or of the session.
///
/// ```
/// use agent_core::model::Failure;
/// use agent_core::state::Reason;
///
/// let failure = Failure::new(Reason::ResourceError, "the sandbox did not start");
/// assert_eq!(failure.class, Reason::ResourceError);
/// assert_eq!(Failure::new(Reason::RunError, "x".repeat(5_000)).text.len(), Failure::TEXT_MAX_BYTES);
/// let failure = Failure::new(Reason::RunError, "slow down").with_fault(Some("rate_limited"));
/// assert_eq!(failure.fault.as_deref(), Some("rate_limited"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Failure {
    /// Class of the failure.
    pub class: Reason,
    /// Text of the failure; at most 1,024 bytes.
    pub text: String,
    /// Name of the fault that caused the failure, if it is known: 1 to 64 bytes, for example `rate_limited`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
}

impl Failure {
    /// Maximum number of bytes of the fault's name.
    pub const FAULT_MAX_BYTES: usize = 64;
    /// Maximum number of bytes of the text; a longer one is cut at a character boundary.
    pub const TEXT_MAX_BYTES: usize = 1024;

    /// Creates a failure of this class. A text over 1,024 bytes is cut.
    pub fn new(class: Reason, text: impl Into<String>) -> Self {
        let mut text = text.into();
        text.truncate(text.floor_char_boundary(Self::TEXT_MAX_BYTES));
        Self { class, text, fault: None }
    }

    /// Sets the name of the fault that caused the failure; the default is none.
    #[must_use]
    pub fn with_fault(mut self, fault: Option<impl Into<String>>) -> Self {
        self.fault = fault.map(Into::into);
        self
    }

    /// Checks the fault's name, and a text that was not made by [`new`](Self::new), which cuts it.
    pub(crate) fn check(&self, session: impl fmt::Display) -> Result<()> {
        if self.text.len() > Self::TEXT_MAX_BYTES {
            return Err(Error::limit(format!(
                "a failure's text of {} bytes for session {session}; at most {} are kept",
                self.text.len(),
                Self::TEXT_MAX_BYTES
            )));
        }
        if let Some(fault) = &self.fault {
            check_text("fault", fault, Self::FAULT_MAX_BYTES)?;
        }
        Ok(())
    }
}

/// Commit that the session's record remembers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RecentCommit {
    /// Id of the commit.
    pub id: CommitId,
    /// First event of the commit.
    pub first: Seq,
    /// Last event of the commit.
    pub last: Seq,
    /// Lease that the commit took, if it took one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<Epoch>,
}
