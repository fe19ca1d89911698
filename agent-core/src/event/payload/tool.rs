//! Calls of tools, their results, and what a person answers to a question about one.

use serde::{Deserialize, Serialize};

use crate::base::RawJson;
use crate::base::text::words;
use crate::model::{ActionId, CallId};

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
    pub fn interrupted(call: CallId) -> Self {
        let output = RawJson::sure(&"interrupted, outcome unknown");
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
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ToolConfirmation {
    /// What is decided; must be the pending action.
    pub action: ActionId,
    /// The decision.
    pub decision: Decision,
    /// Which of the [choices](crate::model::parts::PendingAction::choices) it is, where there are any.
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
    pub fn with_choice(mut self, choice: impl Into<String>) -> Self {
        self.choice = Some(choice.into());
        self
    }

    /// Adds words for the model.
    pub fn with_note(mut self, note: impl Into<String>) -> Self {
        self.note = Some(note.into());
        self
    }
}
