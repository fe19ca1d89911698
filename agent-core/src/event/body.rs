//! Payloads by the type of their event.

use crate::base::{Error, RawJson, Result, check_text, quoted};
use crate::event::kind::EventType;
use crate::event::payload::child::{ChildCreated, ChildIdle};
use crate::event::payload::created::Created;
use crate::event::payload::document::DocumentWritten;
use crate::event::payload::learning::{Learning, LearningPromoted};
use crate::event::payload::message::{Compaction, Interrupt, Message, Note, SystemMessage};
use crate::event::payload::operation::OperationNoted;
use crate::event::payload::span::{SpanCompleted, SpanStarted};
use crate::event::payload::tool::{ToolConfirmation, ToolResult, ToolUse};
use crate::event::table::event_types;
use crate::model::{Artifact, Patch, Reported, RunUsage, Wake, WakeCancelled};

macro_rules! bodies {
    ($($(#[$doc:meta])* $name:ident $body:ident($payload:ty) $text:literal,)*) => {
        /// An event's payload by its type. Fields that this version does not know stay in
        /// [`Event::data`](crate::event::header::Event::data).
        #[derive(Clone, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum Body {
            $(
                #[doc = concat!("`", $text, "`.")]
                $(#[$doc])*
                $body($payload),
            )*
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
                    $($text => Self::$body(data.to()?),)*
                    _ => Self::Other(kind.clone(), data.clone()),
                })
            }

            /// The event type that this payload belongs to.
            pub fn kind(&self) -> EventType {
                match self {
                    $(Self::$body(_) => EventType::$name,)*
                    Self::Other(kind, _) => kind.clone(),
                }
            }

            /// The payload as JSON.
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

/// Checks what the types alone do not: lengths of names and notes.
pub(crate) fn check_body(body: &Body) -> Result<()> {
    match body {
        Body::AgentToolUse(call) | Body::AgentCustomToolUse(call) => {
            Ok(check_text("tool name", &call.name, 128)?)
        }
        Body::SpanStarted(span) => Ok(check_text("span name", &span.name, 128)?),
        Body::SessionWakeScheduled(wake) => {
            check_text("wake key", &wake.key, 128)?;
            if wake.note.len() > 512 {
                return Err(Error::limit(format!(
                    "the note of wake {} has {} bytes; at most 512 are kept",
                    quoted(&wake.key),
                    wake.note.len()
                )));
            }
            Ok(())
        }
        Body::SessionWakeCancelled(wake) => Ok(check_text("wake key", &wake.key, 128)?),
        Body::SessionUpdated(patch) => patch.check(),
        Body::SessionDocumentWritten(written) => written.check(),
        Body::SessionRunUsage(used) => used.check(),
        Body::SessionLearningAdded(learning) => learning.check(),
        Body::SessionLearningPromoted(promoted) => promoted.check(),
        Body::SessionOperationNoted(noted) => noted.check(),
        Body::SessionArtifactRegistered(artifact) => artifact.check(),
        _ => Ok(()),
    }
}
