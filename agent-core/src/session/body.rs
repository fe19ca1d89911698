//! The payloads of the event types that this version knows.

use serde::{Deserialize, Serialize};

use crate::base::error::{Error, Result};
use crate::base::id::{Seq, SessionId};
use crate::base::json::{RawFields, RawJson};
use crate::base::text::check_text;
use crate::base::text::words;
use crate::base::timestamp::Timestamp;
use crate::session::document::DocumentWritten;
use crate::session::event::EventType;
use crate::session::learning::{Learning, LearningPromoted};
use crate::session::ledger::{Artifact, RunUsage};
use crate::session::operation::OperationNoted;
use crate::session::record::{ActionId, CallId, Created, Patch, Reported, SpanId, Status, is_default};

/// An event's payload by its type. Fields that this version does not know stay in [`Event::data`](super::Event::data).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Body {
    /// `user.message`
    UserMessage(Message),
    /// `user.interrupt`
    UserInterrupt(Interrupt),
    /// `user.tool_confirmation`
    UserToolConfirmation(ToolConfirmation),
    /// `user.custom_tool_result`
    UserCustomToolResult(ToolResult),
    /// `user.define_outcome`
    UserDefineOutcome(Message),
    /// `agent.message`
    AgentMessage(Message),
    /// `agent.thinking`
    AgentThinking(Message),
    /// `agent.tool_use`
    AgentToolUse(ToolUse),
    /// `agent.tool_result`
    AgentToolResult(ToolResult),
    /// `agent.custom_tool_use`
    AgentCustomToolUse(ToolUse),
    /// `system.message`
    SystemMessage(SystemMessage),
    /// `span.started`
    SpanStarted(SpanStarted),
    /// `span.completed`
    SpanCompleted(SpanCompleted),
    /// `session.created`
    SessionCreated(Box<Created>),
    /// `session.status_changed`; what changed is in the event's transition.
    SessionStatusChanged(Note),
    /// `session.status_idle`
    SessionStatusIdle(Note),
    /// `session.updated`
    SessionUpdated(Patch),
    /// `session.document_written`
    SessionDocumentWritten(DocumentWritten),
    /// `session.run_usage`
    SessionRunUsage(RunUsage),
    /// `session.artifact_registered`
    SessionArtifactRegistered(Artifact),
    /// `session.learning_added`
    SessionLearningAdded(Learning),
    /// `session.learning_promoted`
    SessionLearningPromoted(LearningPromoted),
    /// `session.operation_noted`
    SessionOperationNoted(OperationNoted),
    /// `session.history_cleared`
    SessionHistoryCleared(Note),
    /// `session.compacted`
    SessionCompacted(Compaction),
    /// `session.wake_scheduled`
    SessionWakeScheduled(Wake),
    /// `session.wake_cancelled`
    SessionWakeCancelled(WakeCancelled),
    /// `session.child_created`
    SessionChildCreated(ChildCreated),
    /// `session.child_idle`
    SessionChildIdle(ChildIdle),
    /// `session.reported`
    SessionReported(Reported),
    /// A type that this version does not know: the type and the payload as they are.
    Other(EventType, RawJson),
}

/// Text, and whatever JSON the host wants kept beside it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Message {
    /// Any Unicode text, also none; handed back byte for byte.
    pub text: String,
    /// The host's own, never interpreted.
    #[serde(default, skip_serializing_if = "RawFields::is_empty")]
    pub metadata: RawFields,
}

impl Message {
    /// A message of this text.
    pub fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), metadata: RawFields::new() }
    }

    /// Adds a field of metadata.
    #[must_use]
    pub fn with_metadata(mut self, name: impl Into<Box<str>>, value: RawJson) -> Self {
        self.metadata.insert(name, value);
        self
    }
}

/// Text of the system, and whether it is the session's own prompt.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SystemMessage {
    /// The text.
    pub text: String,
    /// Whether it is the session's custom system prompt, which stays in force until the next; otherwise it is text
    /// that was injected at this point.
    #[serde(default)]
    pub custom: bool,
}

impl SystemMessage {
    /// The session's custom system prompt, in force from here on.
    pub fn custom(text: impl Into<String>) -> Self {
        Self { text: text.into(), custom: true }
    }

    /// Text injected at this point.
    pub fn injected(text: impl Into<String>) -> Self {
        Self { text: text.into(), custom: false }
    }
}

/// A reason in words, or nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Note {
    /// In words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

impl Note {
    /// A note of this text.
    pub fn new(note: impl Into<String>) -> Self {
        Self { note: Some(note.into()) }
    }
}

/// A summary that stands for the older part of the visible history, where a model is given it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Compaction {
    /// The last event that the summary stands for.
    pub until: Seq,
    /// The summary.
    pub summary: String,
}

impl Compaction {
    /// `summary` stands for all that is visible up to and including `until`.
    pub fn new(until: Seq, summary: impl Into<String>) -> Self {
        Self { until, summary: summary.into() }
    }
}

/// A person asks that whatever runs or waits stops.
pub type Interrupt = Note;

/// The agent calls a tool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ToolUse {
    /// The call's id, unique among the open calls of the session.
    pub call: CallId,
    /// The tool's name.
    pub name: String,
    /// What the tool is given.
    pub input: RawJson,
}

impl ToolUse {
    /// A call of `name`.
    pub fn new(call: CallId, name: impl Into<String>, input: RawJson) -> Self {
        Self { call, name: name.into(), input }
    }
}

words! {
    /// How a tool call came out.
    ToolOutcome {
        /// The tool gave a result.
        Ok = "ok",
        /// The tool failed, and the model is told so.
        Error = "error",
        /// The run ended first. Whether the tool took effect is not known.
        Interrupted = "interrupted",
        /// A person or a policy refused the call; the tool did not run.
        Denied = "denied",
        /// An outcome of a newer version of this library.
        Newer = "newer",
    } newer = Some(Self::Newer)
}

/// What a tool call came to; exactly one for each call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ToolResult {
    /// The call.
    pub call: CallId,
    /// How it came out.
    pub outcome: ToolOutcome,
    /// What the model is given.
    pub output: RawJson,
}

impl ToolResult {
    /// The result of `call`.
    pub fn new(call: CallId, outcome: ToolOutcome, output: RawJson) -> Self {
        Self { call, outcome, output }
    }

    /// What is stored where a run ended before its tool did.
    pub(crate) fn interrupted(call: CallId) -> Self {
        let output = RawJson::of(&"interrupted, outcome unknown").unwrap_or_else(|_| RawJson::empty_object());
        Self { call, outcome: ToolOutcome::Interrupted, output }
    }
}

words! {
    /// A person's decision.
    Decision {
        /// Do it.
        Allow = "allow",
        /// Do not.
        Deny = "deny",
    } newer = None
}

/// A person's decision on what the session waits for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ToolConfirmation {
    /// What is decided; must be the pending action.
    pub action: ActionId,
    /// The decision.
    pub decision: Decision,
    /// Which of the [choices](crate::PendingAction::choices) it is, where there are any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub choice: Option<String>,
    /// In words, for the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

impl ToolConfirmation {
    /// A decision on `action`.
    pub fn new(action: ActionId, decision: Decision) -> Self {
        Self { action, decision, choice: None, note: None }
    }

    /// Names the choice.
    #[must_use]
    pub fn with_choice(mut self, choice: impl Into<String>) -> Self {
        self.choice = Some(choice.into());
        self
    }

    /// Adds words for the model.
    #[must_use]
    pub fn with_note(mut self, note: impl Into<String>) -> Self {
        self.note = Some(note.into());
        self
    }
}

/// A piece of work begins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SpanStarted {
    /// The span's id, unique among the open ones of the session.
    pub span: SpanId,
    /// What is done.
    pub name: String,
}

impl SpanStarted {
    /// A span of this name.
    pub fn new(span: SpanId, name: impl Into<String>) -> Self {
        Self { span, name: name.into() }
    }
}

/// A piece of work ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SpanCompleted {
    /// The span.
    pub span: SpanId,
    /// How it came out.
    pub outcome: ToolOutcome,
}

impl SpanCompleted {
    /// The end of `span`.
    pub fn new(span: SpanId, outcome: ToolOutcome) -> Self {
        Self { span, outcome }
    }
}

/// A time at which the session wants to run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Wake {
    /// A later wake of the same key replaces this one.
    pub key: String,
    /// When it is due.
    pub at: Timestamp,
    /// What for, in words.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
    /// Among those that one run is for, a higher one is told first.
    #[serde(default)]
    pub priority: i32,
    /// The event that scheduled it. Known in a session's record only.
    #[serde(default, skip_serializing_if = "is_default")]
    pub seq: Seq,
}

impl Wake {
    /// A wake at `at`.
    pub fn new(key: impl Into<String>, at: Timestamp) -> Self {
        Self { key: key.into(), at, note: String::new(), priority: 0, seq: Seq::ZERO }
    }

    /// Says what for: at most 512 bytes.
    #[must_use]
    pub fn with_note(mut self, note: impl Into<String>) -> Self {
        self.note = note.into();
        self
    }

    /// Sets its rank among those that one run is for; 0 unless set.
    #[must_use]
    pub fn with_priority(mut self, priority: i32) -> Self {
        self.priority = priority;
        self
    }
}

/// A wake is wanted no more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct WakeCancelled {
    /// The wake's key.
    pub key: String,
}

impl WakeCancelled {
    /// Names the wake.
    pub fn new(key: impl Into<String>) -> Self {
        Self { key: key.into() }
    }
}

/// A child session was made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ChildCreated {
    /// The child.
    pub child: SessionId,
}

impl ChildCreated {
    /// Names the child.
    pub fn new(child: SessionId) -> Self {
        Self { child }
    }
}

/// A child session came to rest or ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ChildIdle {
    /// The child.
    pub child: SessionId,
    /// The status it came to.
    pub status: Status,
    /// What it has to say to its parent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<String>,
}

impl ChildIdle {
    /// Names the child and its status.
    pub fn new(child: SessionId, status: Status) -> Self {
        Self { child, status, result: None }
    }

    /// Adds what the child has to say.
    #[must_use]
    pub fn with_result(mut self, result: impl Into<String>) -> Self {
        self.result = Some(result.into());
        self
    }
}

impl Body {
    /// Reads a payload by its type.
    ///
    /// # Errors
    ///
    /// `InvalidInput` where the payload of a known type is not of its shape.
    pub fn parse(kind: &EventType, data: &RawJson) -> Result<Self> {
        Ok(match kind.as_str() {
            "user.message" => Self::UserMessage(data.to()?),
            "user.interrupt" => Self::UserInterrupt(data.to()?),
            "user.tool_confirmation" => Self::UserToolConfirmation(data.to()?),
            "user.custom_tool_result" => Self::UserCustomToolResult(data.to()?),
            "user.define_outcome" => Self::UserDefineOutcome(data.to()?),
            "agent.message" => Self::AgentMessage(data.to()?),
            "agent.thinking" => Self::AgentThinking(data.to()?),
            "agent.tool_use" => Self::AgentToolUse(data.to()?),
            "agent.tool_result" => Self::AgentToolResult(data.to()?),
            "agent.custom_tool_use" => Self::AgentCustomToolUse(data.to()?),
            "system.message" => Self::SystemMessage(data.to()?),
            "span.started" => Self::SpanStarted(data.to()?),
            "span.completed" => Self::SpanCompleted(data.to()?),
            "session.created" => Self::SessionCreated(data.to()?),
            "session.status_changed" => Self::SessionStatusChanged(data.to()?),
            "session.status_idle" => Self::SessionStatusIdle(data.to()?),
            "session.updated" => Self::SessionUpdated(data.to()?),
            "session.document_written" => Self::SessionDocumentWritten(data.to()?),
            "session.run_usage" => Self::SessionRunUsage(data.to()?),
            "session.artifact_registered" => Self::SessionArtifactRegistered(data.to()?),
            "session.learning_added" => Self::SessionLearningAdded(data.to()?),
            "session.learning_promoted" => Self::SessionLearningPromoted(data.to()?),
            "session.operation_noted" => Self::SessionOperationNoted(data.to()?),
            "session.history_cleared" => Self::SessionHistoryCleared(data.to()?),
            "session.compacted" => Self::SessionCompacted(data.to()?),
            "session.wake_scheduled" => Self::SessionWakeScheduled(data.to()?),
            "session.wake_cancelled" => Self::SessionWakeCancelled(data.to()?),
            "session.child_created" => Self::SessionChildCreated(data.to()?),
            "session.child_idle" => Self::SessionChildIdle(data.to()?),
            "session.reported" => Self::SessionReported(data.to()?),
            _ => Self::Other(kind.clone(), data.clone()),
        })
    }

    /// The event type that this payload belongs to.
    pub fn kind(&self) -> EventType {
        match self {
            Self::UserMessage(_) => EventType::USER_MESSAGE,
            Self::UserInterrupt(_) => EventType::USER_INTERRUPT,
            Self::UserToolConfirmation(_) => EventType::USER_TOOL_CONFIRMATION,
            Self::UserCustomToolResult(_) => EventType::USER_CUSTOM_TOOL_RESULT,
            Self::UserDefineOutcome(_) => EventType::USER_DEFINE_OUTCOME,
            Self::AgentMessage(_) => EventType::AGENT_MESSAGE,
            Self::AgentThinking(_) => EventType::AGENT_THINKING,
            Self::AgentToolUse(_) => EventType::AGENT_TOOL_USE,
            Self::AgentToolResult(_) => EventType::AGENT_TOOL_RESULT,
            Self::AgentCustomToolUse(_) => EventType::AGENT_CUSTOM_TOOL_USE,
            Self::SystemMessage(_) => EventType::SYSTEM_MESSAGE,
            Self::SpanStarted(_) => EventType::SPAN_STARTED,
            Self::SpanCompleted(_) => EventType::SPAN_COMPLETED,
            Self::SessionCreated(_) => EventType::SESSION_CREATED,
            Self::SessionStatusChanged(_) => EventType::SESSION_STATUS_CHANGED,
            Self::SessionStatusIdle(_) => EventType::SESSION_STATUS_IDLE,
            Self::SessionUpdated(_) => EventType::SESSION_UPDATED,
            Self::SessionDocumentWritten(_) => EventType::SESSION_DOCUMENT_WRITTEN,
            Self::SessionRunUsage(_) => EventType::SESSION_RUN_USAGE,
            Self::SessionArtifactRegistered(_) => EventType::SESSION_ARTIFACT_REGISTERED,
            Self::SessionLearningAdded(_) => EventType::SESSION_LEARNING_ADDED,
            Self::SessionLearningPromoted(_) => EventType::SESSION_LEARNING_PROMOTED,
            Self::SessionOperationNoted(_) => EventType::SESSION_OPERATION_NOTED,
            Self::SessionHistoryCleared(_) => EventType::SESSION_HISTORY_CLEARED,
            Self::SessionCompacted(_) => EventType::SESSION_COMPACTED,
            Self::SessionWakeScheduled(_) => EventType::SESSION_WAKE_SCHEDULED,
            Self::SessionWakeCancelled(_) => EventType::SESSION_WAKE_CANCELLED,
            Self::SessionChildCreated(_) => EventType::SESSION_CHILD_CREATED,
            Self::SessionChildIdle(_) => EventType::SESSION_CHILD_IDLE,
            Self::SessionReported(_) => EventType::SESSION_REPORTED,
            Self::Other(kind, _) => kind.clone(),
        }
    }

    /// The payload as JSON.
    pub fn to_json(&self) -> RawJson {
        let json = match self {
            Self::UserMessage(body) | Self::UserDefineOutcome(body) => RawJson::of(body),
            Self::AgentMessage(body) | Self::AgentThinking(body) => RawJson::of(body),
            Self::UserToolConfirmation(body) => RawJson::of(body),
            Self::UserCustomToolResult(body) | Self::AgentToolResult(body) => RawJson::of(body),
            Self::AgentToolUse(body) | Self::AgentCustomToolUse(body) => RawJson::of(body),
            Self::SystemMessage(body) => RawJson::of(body),
            Self::SpanStarted(body) => RawJson::of(body),
            Self::SpanCompleted(body) => RawJson::of(body),
            Self::SessionCreated(body) => RawJson::of(body),
            Self::UserInterrupt(body)
            | Self::SessionStatusChanged(body)
            | Self::SessionStatusIdle(body)
            | Self::SessionHistoryCleared(body) => RawJson::of(body),
            Self::SessionUpdated(body) => RawJson::of(body),
            Self::SessionDocumentWritten(body) => RawJson::of(body),
            Self::SessionRunUsage(body) => RawJson::of(body),
            Self::SessionArtifactRegistered(body) => RawJson::of(body),
            Self::SessionLearningAdded(body) => RawJson::of(body),
            Self::SessionLearningPromoted(body) => RawJson::of(body),
            Self::SessionOperationNoted(body) => RawJson::of(body),
            Self::SessionCompacted(body) => RawJson::of(body),
            Self::SessionWakeScheduled(body) => RawJson::of(body),
            Self::SessionWakeCancelled(body) => RawJson::of(body),
            Self::SessionChildCreated(body) => RawJson::of(body),
            Self::SessionChildIdle(body) => RawJson::of(body),
            Self::SessionReported(body) => RawJson::of(body),
            Self::Other(_, data) => Ok(data.clone()),
        };
        // Every type above is text, numbers and maps with text keys, which always have a JSON form.
        json.unwrap_or_else(|_| RawJson::empty_object())
    }

    /// Checks what the types alone do not: lengths of names and notes.
    pub(crate) fn check(&self) -> Result<()> {
        match self {
            Self::AgentToolUse(call) | Self::AgentCustomToolUse(call) => {
                Ok(check_text("tool name", &call.name, 128)?)
            }
            Self::SpanStarted(span) => Ok(check_text("span name", &span.name, 128)?),
            Self::SessionWakeScheduled(wake) => {
                check_text("wake key", &wake.key, 128)?;
                if wake.note.len() > 512 {
                    return Err(Error::limit(format!(
                        "the note of wake {} has {} bytes; at most 512 are kept",
                        crate::base::text::quoted(&wake.key),
                        wake.note.len()
                    )));
                }
                Ok(())
            }
            Self::SessionWakeCancelled(wake) => Ok(check_text("wake key", &wake.key, 128)?),
            Self::SessionUpdated(patch) => patch.check(),
            Self::SessionDocumentWritten(written) => written.check(),
            Self::SessionRunUsage(used) => used.check(),
            Self::SessionLearningAdded(learning) => learning.check(),
            Self::SessionLearningPromoted(promoted) => promoted.check(),
            Self::SessionOperationNoted(noted) => noted.check(),
            Self::SessionArtifactRegistered(artifact) => artifact.check(),
            _ => Ok(()),
        }
    }
}
