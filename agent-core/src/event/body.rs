//! Typed payloads of events.

use crate::base::sealed::check_word;
use crate::base::{Error, RawJson, Result, check_text, quoted};
use crate::event::payload::answer::{AgentPart, AgentResponse};
use crate::event::payload::child::{ChildCreated, ChildIdle};
use crate::event::payload::created::Created;
use crate::event::payload::document::DocumentWritten;
use crate::event::payload::learning::{Learning, LearningPromoted};
use crate::event::payload::message::{Comment, Compaction, Interrupt, Message, SystemMessage};
use crate::event::payload::operation::AuditedOperation;
use crate::event::payload::span::{SpanCompleted, SpanStarted};
use crate::event::payload::tool::{ToolConfirmation, ToolResult, ToolUse};
use crate::event::type_name::EventType;
use crate::event::types::event_types;
use crate::model::{Artifact, Patch, Reported, RunUsage, Timer, TimerCancelled};

macro_rules! bodies {
    ($($(#[$doc:meta])* $name:ident $body:ident($payload:ty) $text:literal,)*) => {
        /// Payload of an event, by the event's type. Fields that this version does not know stay in
        /// [`Event::payload`](crate::event::header::Event::payload).
        ///
        /// ```
        /// use agent_core::event::{EventPayload, EventType, Message};
        ///
        /// let payload = EventPayload::UserMessage(Message::new("Hello"));
        /// assert_eq!(payload.kind(), EventType::USER_MESSAGE);
        /// assert_eq!(payload.to_json().get(), r#"{"text":"Hello"}"#);
        /// assert_eq!(EventPayload::parse(&payload.kind(), &payload.to_json())?, payload);
        /// # Ok::<(), agent_core::Error>(())
        /// ```
        #[derive(Clone, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum EventPayload {
            $(
                #[doc = concat!("`", $text, "`.")]
                $(#[$doc])*
                $body($payload),
            )*
            /// Event type that this version does not know: the type and the unchanged payload.
            Other(EventType, RawJson),
        }

        impl EventPayload {
            /// Decodes a payload according to the event type.
            ///
            /// # Errors
            ///
            /// `InvalidInput` if the payload of a known type does not have its shape.
            pub fn parse(kind: &EventType, data: &RawJson) -> Result<Self> {
                Ok(match kind.as_str() {
                    $($text => Self::$body(data.to()?),)*
                    _ => Self::Other(kind.clone(), data.clone()),
                })
            }

            /// Returns the event type of this payload.
            pub fn kind(&self) -> EventType {
                match self {
                    $(Self::$body(_) => EventType::$name,)*
                    Self::Other(kind, _) => kind.clone(),
                }
            }

            /// Returns the payload as JSON.
            pub fn to_json(&self) -> RawJson {
                match self {
                    $(Self::$body(body) => RawJson::sure(body),)*
                    Self::Other(_, data) => data.clone(),
                }
            }
        }
    };
}

event_types!(bodies);

impl EventPayload {
    /// Checks what the types do not check, as a commit does: the lengths of names, and the content of messages.
    ///
    /// ```
    /// use agent_core::event::{EventPayload, Message};
    ///
    /// let message = Message::new("A cat").with_shown(99);
    /// assert!(EventPayload::AgentMessage(message).check().is_err());
    /// ```
    ///
    /// # Errors
    ///
    /// `InvalidInput` or `LimitExceeded`, with a text that names what is wrong.
    pub fn check(&self) -> Result<()> {
        check_body(self)
    }
}

/// Checks what the types do not check: the lengths of names and notes, and the content of messages.
pub(crate) fn check_body(body: &EventPayload) -> Result<()> {
    match body {
        EventPayload::UserMessage(message)
        | EventPayload::UserDefineOutcome(message)
        | EventPayload::AgentMessage(message)
        | EventPayload::AgentThinking(message) => message.check(),
        EventPayload::AgentPart(part) => part.check(),
        EventPayload::AgentResponse(response) => response.check(),
        EventPayload::AgentToolUse(call) | EventPayload::AgentCustomToolUse(call) => call.check(),
        EventPayload::AgentToolResult(result) | EventPayload::UserCustomToolResult(result) => result.check(),
        EventPayload::SpanStarted(span) => Ok(check_text("span name", &span.name, 128)?),
        EventPayload::SessionTimerScheduled(timer) => {
            check_word("timer key", &timer.key, 128)?;
            if timer.note.len() > 512 {
                return Err(Error::limit(format!(
                    "the note of timer {} has {} bytes; at most 512 are kept",
                    quoted(&timer.key),
                    timer.note.len()
                )));
            }
            Ok(())
        }
        EventPayload::SessionTimerCancelled(timer) => Ok(check_word("timer key", &timer.key, 128)?),
        EventPayload::SessionUpdated(patch) => patch.check(),
        EventPayload::SessionDocumentWritten(written) => written.check(),
        EventPayload::SessionRunUsage(used) => used.check(),
        EventPayload::SessionLearningAdded(learning) => learning.check(),
        EventPayload::SessionLearningPromoted(promoted) => promoted.check(),
        EventPayload::SessionOperationAudited(audited) => audited.check(),
        EventPayload::SessionArtifactRegistered(artifact) => artifact.check(),
        _ => Ok(()),
    }
}
