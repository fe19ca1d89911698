//! Payloads by the type of their event.

use crate::base::error::{Error, Result};
use crate::base::json::RawJson;
use crate::base::text::check_text;
use crate::event::kind::EventType;
use crate::event::payload::child::{ChildCreated, ChildIdle};
use crate::event::payload::created::Created;
use crate::event::payload::document::DocumentWritten;
use crate::event::payload::learning::{Learning, LearningPromoted};
use crate::event::payload::message::{Compaction, Interrupt, Message, Note, SystemMessage};
use crate::event::payload::operation::OperationNoted;
use crate::event::payload::span::{SpanCompleted, SpanStarted};
use crate::event::payload::tool::{ToolConfirmation, ToolResult, ToolUse};
use crate::model::attributes::Patch;
use crate::model::ledger::{Artifact, RunUsage};
use crate::model::parts::Reported;
use crate::model::wake::{Wake, WakeCancelled};

/// An event's payload by its type. Fields that this version does not know stay in [`Event::data`](crate::event::header::Event::data).
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
    #[expect(clippy::expect_used, clippy::missing_panics_doc, reason = "it cannot fail")]
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
        json.expect("every type above is text, numbers and maps with text keys")
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
