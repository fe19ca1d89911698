//! The type of an event: `user.message`, `agent.tool_use` …

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use crate::base::error::{Error, Result};
use crate::base::text::{quoted, text_serde};

use crate::model::actor::Actor;

/// What an event is about. Open: a type that this version does not know is kept byte for byte and handed back.
///
/// The families are `user.*`, `agent.*`, `system.*`, `span.*` and `session.*`; hosts add `x.<app>.*`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventType(Cow<'static, str>);

impl EventType {
    /// The most bytes that an event type may have.
    pub const MAX_BYTES: usize = 128;

    /// A person's message; an input, which a run will answer.
    pub const USER_MESSAGE: Self = Self::known("user.message");
    /// A person asks that whatever runs or waits stops.
    pub const USER_INTERRUPT: Self = Self::known("user.interrupt");
    /// A person's decision on a tool call or a question.
    pub const USER_TOOL_CONFIRMATION: Self = Self::known("user.tool_confirmation");
    /// What a tool that ran outside delivers.
    pub const USER_CUSTOM_TOOL_RESULT: Self = Self::known("user.custom_tool_result");
    /// A person states what the session is to achieve; an input.
    pub const USER_DEFINE_OUTCOME: Self = Self::known("user.define_outcome");
    /// The agent's text.
    pub const AGENT_MESSAGE: Self = Self::known("agent.message");
    /// The agent's reasoning, where it is kept.
    pub const AGENT_THINKING: Self = Self::known("agent.thinking");
    /// The agent calls a tool; committed before the tool runs.
    pub const AGENT_TOOL_USE: Self = Self::known("agent.tool_use");
    /// What the tool gave; exactly one for each call.
    pub const AGENT_TOOL_RESULT: Self = Self::known("agent.tool_result");
    /// The agent calls a tool that runs outside.
    pub const AGENT_CUSTOM_TOOL_USE: Self = Self::known("agent.custom_tool_use");
    /// Text of the system: a custom prompt, or something injected.
    pub const SYSTEM_MESSAGE: Self = Self::known("system.message");
    /// A piece of work begins.
    pub const SPAN_STARTED: Self = Self::known("span.started");
    /// A piece of work ends.
    pub const SPAN_COMPLETED: Self = Self::known("span.completed");
    /// The session comes to be; its first event.
    pub const SESSION_CREATED: Self = Self::known("session.created");
    /// The state changed for a reason that no other event explains.
    pub const SESSION_STATUS_CHANGED: Self = Self::known("session.status_changed");
    /// The session came to rest; written by hosts that want it said.
    pub const SESSION_STATUS_IDLE: Self = Self::known("session.status_idle");
    /// Title, labels, metadata, references or resources changed.
    pub const SESSION_UPDATED: Self = Self::known("session.updated");
    /// A version of one of the session's documents.
    pub const SESSION_DOCUMENT_WRITTEN: Self = Self::known("session.document_written");
    /// What a run used.
    pub const SESSION_RUN_USAGE: Self = Self::known("session.run_usage");
    /// Something was made, and where it is.
    pub const SESSION_ARTIFACT_REGISTERED: Self = Self::known("session.artifact_registered");
    /// An agent found something out; on a shelf.
    pub const SESSION_LEARNING_ADDED: Self = Self::known("session.learning_added");
    /// A learning was taken into a document; on a shelf.
    pub const SESSION_LEARNING_PROMOTED: Self = Self::known("session.learning_promoted");
    /// Something is about to be done to a workspace, a device or a session, or was; in the audit.
    pub const SESSION_OPERATION_NOTED: Self = Self::known("session.operation_noted");
    /// The visible history starts anew after this.
    pub const SESSION_HISTORY_CLEARED: Self = Self::known("session.history_cleared");
    /// What a model is given starts with a summary from here on; the log stays as it is.
    pub const SESSION_COMPACTED: Self = Self::known("session.compacted");
    /// A wake was scheduled.
    pub const SESSION_WAKE_SCHEDULED: Self = Self::known("session.wake_scheduled");
    /// A wake is wanted no more.
    pub const SESSION_WAKE_CANCELLED: Self = Self::known("session.wake_cancelled");
    /// A child session was made.
    pub const SESSION_CHILD_CREATED: Self = Self::known("session.child_created");
    /// The parent of this session was told what it came to.
    pub const SESSION_REPORTED: Self = Self::known("session.reported");
    /// A child session came to rest or ended; carries its result.
    pub const SESSION_CHILD_IDLE: Self = Self::known("session.child_idle");

    const fn known(name: &'static str) -> Self {
        Self(Cow::Borrowed(name))
    }

    /// The type's name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether the type belongs to the family `family` (`user`, `agent` …).
    pub fn is_of(&self, family: &str) -> bool {
        self.0.split_once('.').is_some_and(|(first, _)| first == family)
    }

    /// Who usually writes events of this type.
    pub(crate) fn usual_actor(&self) -> Actor {
        if self.is_of("user") {
            Actor::USER
        } else if self.is_of("agent") {
            Actor::AGENT
        } else {
            Actor::SYSTEM
        }
    }
}

impl FromStr for EventType {
    type Err = Error;

    /// Accepts 1 to 128 bytes of `a-z 0-9 _ . -` with at least one dot inside.
    fn from_str(text: &str) -> Result<Self> {
        let dotted =
            text.split_once('.').is_some_and(|(family, rest)| !family.is_empty() && !rest.is_empty());
        let plain = text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"_.-".contains(&b));
        if !dotted || !plain || text.len() > Self::MAX_BYTES {
            return Err(Error::invalid(format!(
                "event type {} must be family.name of a-z, 0-9, _, . and -, at most {} bytes",
                quoted(text),
                Self::MAX_BYTES
            )));
        }
        Ok(Self(Cow::Owned(text.to_owned())))
    }
}

impl fmt::Display for EventType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Debug for EventType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

text_serde!(EventType);
