//! What people, agents and the host say.

use serde::{Deserialize, Serialize};

use crate::base::{RawFields, RawJson, Seq};

/// Text, and whatever JSON the host wants kept beside it.
#[must_use]
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
