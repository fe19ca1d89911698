//! Tool calls, their results, and a person's decision on a question.

use serde::{Deserialize, Serialize};

use crate::base::RawJson;
use crate::base::text::words;
use crate::model::{ActionId, CallId};

/// Call of a tool by the agent.
///
/// ```
/// use agent_core::event::ToolUse;
/// use agent_core::json::RawJson;
///
/// let call = ToolUse::new("call-1".parse()?, "weather", RawJson::parse(r#"{"city": "Oslo"}"#)?);
/// assert_eq!(call.input.get(), r#"{"city":"Oslo"}"#);
/// # Ok::<(), agent_core::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ToolUse {
    /// Id of the call, unique among the open calls of the session.
    pub call: CallId,
    /// Name of the tool.
    pub name: String,
    /// Input of the tool.
    pub input: RawJson,
}

impl ToolUse {
    /// Creates a call of the tool `name`.
    pub fn new(call: CallId, name: impl Into<String>, input: RawJson) -> Self {
        Self { call, name: name.into(), input }
    }
}

words! {
    /// Outcome of a tool call.
    ToolOutcome {
        /// The tool returned a result.
        Ok = "ok",
        /// The tool failed, and the model sees the failure.
        Error = "error",
        /// The run ended first. It is not known whether the tool took effect.
        Interrupted = "interrupted",
        /// A person or a policy refused the call; the tool did not run.
        Denied = "denied",
        /// Outcome of a newer version of this library.
        Newer = "newer",
    } newer = Some(Self::Newer)
}

/// Result of a tool call; exactly one for each call.
///
/// ```
/// use agent_core::event::{ToolOutcome, ToolResult};
/// use agent_core::json::RawJson;
///
/// let result = ToolResult::new("call-1".parse()?, ToolOutcome::Ok, RawJson::of(&"sunny")?);
/// assert_eq!(result.output.to::<String>()?, "sunny");
/// assert_eq!(ToolResult::interrupted("call-2".parse()?).outcome, ToolOutcome::Interrupted);
/// # Ok::<(), agent_core::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ToolResult {
    /// Id of the call.
    pub call: CallId,
    /// Outcome of the call.
    pub outcome: ToolOutcome,
    /// Output that the model is given.
    pub output: RawJson,
}

impl ToolResult {
    /// Creates the result of `call`.
    pub fn new(call: CallId, outcome: ToolOutcome, output: RawJson) -> Self {
        Self { call, outcome, output }
    }

    /// Creates the result that is stored if a run ended before its tool call did.
    pub fn interrupted(call: CallId) -> Self {
        let output = RawJson::sure(&"interrupted, outcome unknown");
        Self { call, outcome: ToolOutcome::Interrupted, output }
    }
}

words! {
    /// Decision of a person.
    Decision {
        /// The action is allowed.
        Allow = "allow",
        /// The action is refused.
        Deny = "deny",
    } newer = None
}

/// Person's decision on the pending action of a session.
///
/// ```
/// use agent_core::event::{Decision, ToolConfirmation};
///
/// let answer = ToolConfirmation::new("pay-4711".parse()?, Decision::Allow)
///     .with_choice("tomorrow")
///     .with_note("after the invoice arrives");
/// assert_eq!(answer.choice.as_deref(), Some("tomorrow"));
/// # Ok::<(), agent_core::Error>(())
/// ```
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ToolConfirmation {
    /// Id of the action that is decided; must be the pending action.
    pub action: ActionId,
    /// Decision.
    pub decision: Decision,
    /// Choice among the [choices](crate::model::parts::PendingAction::choices) of the action, if it has any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub choice: Option<String>,
    /// Text for the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

impl ToolConfirmation {
    /// Creates a decision on `action`.
    pub fn new(action: ActionId, decision: Decision) -> Self {
        Self { action, decision, choice: None, note: None }
    }

    /// Sets the choice.
    pub fn with_choice(mut self, choice: impl Into<String>) -> Self {
        self.choice = Some(choice.into());
        self
    }

    /// Sets the text for the model.
    pub fn with_note(mut self, note: impl Into<String>) -> Self {
        self.note = Some(note.into());
        self
    }
}
