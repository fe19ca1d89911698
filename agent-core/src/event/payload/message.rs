//! Payloads of messages of people, agents and the host.

use serde::{Deserialize, Serialize};

use crate::base::{RawFields, RawJson, Seq};

/// Text, with JSON metadata of the host's own.
///
/// ```
/// use agent_core::event::{Message, NewEvent};
/// use agent_core::json::RawJson;
///
/// let message = Message::new("Hello").with_metadata("channel", RawJson::of(&"telegram")?);
/// let event = NewEvent::from(message);
/// assert_eq!(event.payload.get(), r#"{"text":"Hello","metadata":{"channel":"telegram"}}"#);
/// # Ok::<(), agent_core::Error>(())
/// ```
#[must_use]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Message {
    /// Any Unicode text, also an empty one; returned byte for byte.
    pub text: String,
    /// Metadata of the host, never interpreted.
    #[serde(default, skip_serializing_if = "RawFields::is_empty")]
    pub metadata: RawFields,
}

impl Message {
    /// Creates a message with this text.
    pub fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), metadata: RawFields::new() }
    }

    /// Adds a field of metadata.
    pub fn with_metadata(mut self, name: impl Into<Box<str>>, value: RawJson) -> Self {
        self.metadata.insert(name, value);
        self
    }
}

/// Text of the system: the session's own prompt, or injected text.
///
/// ```
/// use agent_core::event::SystemMessage;
///
/// assert!(SystemMessage::custom("You plan trips.").custom);
/// assert!(!SystemMessage::injected("It is Monday.").custom);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SystemMessage {
    /// Text.
    pub text: String,
    /// True if the text is the session's custom system prompt, which stays in force until the next one. Otherwise it
    /// is text that was injected at this point.
    #[serde(default)]
    pub custom: bool,
}

impl SystemMessage {
    /// Creates a custom system prompt, in force from this event on.
    pub fn custom(text: impl Into<String>) -> Self {
        Self { text: text.into(), custom: true }
    }

    /// Creates text that is injected at this point.
    pub fn injected(text: impl Into<String>) -> Self {
        Self { text: text.into(), custom: false }
    }
}

/// Optional reason, as text.
///
/// ```
/// use agent_core::event::{Comment, EventPayload, NewEvent};
///
/// let event = NewEvent::of(&EventPayload::UserInterrupt(Comment::new("wrong city")));
/// assert_eq!(event.payload.get(), r#"{"note":"wrong city"}"#);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
#[doc(alias = "Note")]
pub struct Comment {
    /// Text of the reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

impl Comment {
    /// Creates a comment with this text.
    pub fn new(note: impl Into<String>) -> Self {
        Self { note: Some(note.into()) }
    }
}

/// Summary that a model is given in place of the older part of the visible history.
///
/// ```
/// use agent_core::Seq;
/// use agent_core::event::Compaction;
///
/// let compaction = Compaction::new(Seq::new(40), "They planned a trip to Oslo.");
/// assert_eq!(compaction.until, Seq::new(40));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Compaction {
    /// Last event that the summary replaces.
    pub until: Seq,
    /// Text of the summary.
    pub summary: String,
}

impl Compaction {
    /// Creates a compaction: `summary` replaces the visible events up to and including `until`.
    pub fn new(until: Seq, summary: impl Into<String>) -> Self {
        Self { until, summary: summary.into() }
    }
}

/// Payload of a person's request to stop the session's run or its waiting.
pub type Interrupt = Comment;
