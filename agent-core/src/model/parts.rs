//! The parts that a session's record is made of.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

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
            /// The most bytes that it may have.
            pub const MAX_BYTES: usize = 128;

            /// The text itself.
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
    /// Names a tool call: 1 to 128 bytes without control characters, as the model's provider gave it.
    CallId, "tool call id"
}

text_key! {
    /// Names what a session waits for.
    ActionId, "action id"
}

text_key! {
    /// Names a span.
    SpanId, "span id"
}

/// A state and the reason for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Status {
    /// What the session is doing.
    pub state: SessionState,
    /// Why.
    pub reason: Reason,
}

impl Status {
    /// A state and the reason for it.
    pub const fn new(state: SessionState, reason: Reason) -> Self {
        Self { state, reason }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.state, self.reason)
    }
}

/// How a session came to be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Origin {
    /// From nothing.
    #[default]
    New,
    /// As a copy of `parent` up to and including its event `at`.
    #[non_exhaustive]
    Fork {
        /// The session that it was forked from.
        parent: SessionId,
        /// The last event that both have in common.
        at: Seq,
    },
    /// As a helper of `parent`, with a history of its own.
    #[non_exhaustive]
    Child {
        /// The session that it helps.
        parent: SessionId,
        /// The last event of that session when this one was made; zero where it is not known.
        #[serde(default, skip_serializing_if = "is_default")]
        at: Seq,
    },
    /// From a manifest.
    Import,
}

impl Origin {
    /// The session that it came from.
    pub const fn parent(&self) -> Option<SessionId> {
        match self {
            Self::Fork { parent, .. } | Self::Child { parent, .. } => Some(*parent),
            _ => None,
        }
    }
}

/// What a child's parent has been told of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Reported {
    /// How far the child's work had come.
    pub at: Seq,
    /// What state it had come to.
    pub state: SessionState,
}

/// How many events of each kind the visible history holds; starts anew when the history is cleared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Counts {
    /// Messages of people.
    #[serde(default)]
    pub user: u64,
    /// Messages of the agent.
    #[serde(default)]
    pub agent: u64,
    /// Messages of the system.
    #[serde(default)]
    pub system: u64,
    /// Tool calls.
    #[serde(default)]
    pub tool_calls: u64,
    /// Runs that began.
    #[serde(default)]
    pub runs: u64,
}

impl Counts {
    /// All messages: of people, of the agent, of the system.
    pub const fn messages(&self) -> u64 {
        self.user.saturating_add(self.agent).saturating_add(self.system)
    }
}

/// Who may run the session at the moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Lease {
    /// Who holds it, as the holder named itself; shown to whoever has to wait.
    pub holder: String,
    /// The run that it was taken for.
    pub run: RunId,
    /// Its number, carried by the run's writes.
    pub epoch: Epoch,
    /// How long it lives without a sign of life, in milliseconds.
    pub ttl_ms: u64,
    /// When it was taken, by the holder's clock.
    pub since: Timestamp,
}

/// What a running session was asked to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Request {
    /// End the run.
    Cancel,
    /// End the run, then set the session aside for this reason.
    Suspend(Reason),
}

/// A tool call without a result yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct OpenCall {
    /// The call.
    pub call: CallId,
    /// The event that made it.
    pub seq: Seq,
    /// Whether the tool runs outside and delivers by itself.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub custom: bool,
}

/// A span without an end yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct OpenSpan {
    /// The span.
    pub span: SpanId,
    /// The event that began it.
    pub seq: Seq,
}

words! {
    /// The kind of answer that a session waits for.
    ActionKind {
        /// Whether a tool may run.
        ToolConfirmation = "tool_confirmation",
        /// The result of a tool that runs outside.
        ToolResult = "tool_result",
        /// A decision on a question.
        Approval = "approval",
        /// A kind of a newer version of this library.
        Newer = "newer",
    } newer = Some(Self::Newer)
}

impl ActionKind {
    /// The reason of a session that waits for it.
    pub const fn reason(self) -> Reason {
        match self {
            Self::ToolConfirmation => Reason::AwaitToolConfirmation,
            Self::ToolResult => Reason::AwaitToolResult,
            Self::Approval => Reason::AwaitApproval,
            Self::Newer => Reason::Newer,
        }
    }
}

/// What a session waits for: one matching answer, from any device.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PendingAction {
    /// Names it; the answer must carry it. For a tool's result it is the call's id.
    pub id: ActionId,
    /// The kind of answer.
    pub kind: ActionKind,
    /// The question, for a person; at most 2,048 bytes. Of a longer one the beginning and the end, with a mark between them
    /// that says how many bytes are left out: a host shows all of the call with `SessionHandle::pending_call`.
    pub question: String,
    /// The tool, if the answer is on a call of one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// The event that holds the whole call, if the answer is on one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seq: Option<Seq>,
    /// What there is to choose from, where the answer is a choice: at most 16, of at most 256 bytes each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub choices: Vec<String>,
    /// When it is given up. An answer whose commit was [sealed](crate::commit::Commit::at) at this time or later, by the clock of
    /// whoever answers, is refused as [`Expired`](crate::base::error::ErrorKind::Expired).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
}

impl PendingAction {
    /// The most bytes of a question.
    pub const QUESTION_MAX_BYTES: usize = 2048;
    /// The most choices.
    pub const CHOICES_MAX: usize = 16;
    /// The most bytes of a choice.
    pub const CHOICE_MAX_BYTES: usize = 256;

    /// Waits for an answer of this kind.
    pub fn new(id: ActionId, kind: ActionKind, question: impl Into<String>) -> Self {
        let question = question.into();
        Self { id, kind, question, tool: None, seq: None, choices: Vec::new(), expires_at: None }
    }

    /// Gives what there is to choose from; an answer that allows must then name one of these.
    pub fn with_choices(mut self, choices: impl IntoIterator<Item = String>) -> Self {
        self.choices = choices.into_iter().collect();
        self
    }

    /// Says which tool is called, and which event holds the whole call.
    pub fn with_call(mut self, tool: impl Into<String>, seq: Option<Seq>) -> Self {
        self.tool = Some(tool.into());
        self.seq = seq;
        self
    }

    /// A question that can be kept: of one with more than `most` bytes the beginning and the end, and how much is left
    /// out between them.
    pub fn shortened(question: String, most: usize) -> String {
        // More than the mark has.
        const MARK: usize = 64;
        if question.len() <= most {
            return question;
        }
        let side = most.saturating_sub(MARK) / 2;
        let head = question.floor_char_boundary(side);
        let tail = question.ceil_char_boundary(question.len() - side);
        format!("{} [… {} bytes left out …] {}", &question[..head], tail - head, &question[tail..])
    }

    /// Checks the lengths that the types do not.
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
        self.choices.iter().try_for_each(|choice| Ok(check_text("choice", choice, Self::CHOICE_MAX_BYTES)?))
    }

    /// Gives up at `at`.
    pub fn expires_at(mut self, at: Timestamp) -> Self {
        self.expires_at = Some(at);
        self
    }
}

/// Why the last run, or the session, failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Failure {
    /// What failed.
    pub class: Reason,
    /// In words; at most 1,024 bytes.
    pub text: String,
}

impl Failure {
    /// The most bytes of the text; a longer one is cut at a character.
    pub const TEXT_MAX_BYTES: usize = 1024;

    /// A failure of this class. A text over 1,024 bytes is cut.
    pub fn new(class: Reason, text: impl Into<String>) -> Self {
        let mut text = text.into();
        text.truncate(text.floor_char_boundary(Self::TEXT_MAX_BYTES));
        Self { class, text }
    }

    /// Checks a text that was not cut here.
    pub(crate) fn check(&self, session: impl fmt::Display) -> Result<()> {
        if self.text.len() > Self::TEXT_MAX_BYTES {
            return Err(Error::limit(format!(
                "a failure's text of {} bytes for session {session}; at most {} are kept",
                self.text.len(),
                Self::TEXT_MAX_BYTES
            )));
        }
        Ok(())
    }
}

/// A commit that the record remembers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RecentCommit {
    /// Its id.
    pub id: CommitId,
    /// Its first event.
    pub first: Seq,
    /// Its last event.
    pub last: Seq,
    /// The lease that it took, if it took one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<Epoch>,
}
