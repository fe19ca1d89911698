//! Tool calls, their results, and a person's decision on a question.

use serde::{Deserialize, Serialize};

use crate::base::text::{check_text, words};
use crate::base::{BlobName, Error, RawJson, Result, is_default};
use crate::event::payload::answer::Native;
use crate::event::payload::content::{Part, check_parts};
use crate::event::payload::media::check_media_type;
use crate::model::{ActionId, CallId};
use crate::setters;

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
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ToolUse {
    /// Id of the call, unique among the open calls of the session.
    pub call: CallId,
    /// Name of the tool.
    pub name: String,
    /// Input of the tool.
    pub input: RawJson,
    /// True if the log does not keep the input; `input` is then empty.
    #[serde(default, skip_serializing_if = "is_default")]
    pub omitted: bool,
    /// Input as the model wrote it, if it is no JSON object; `input` is then empty, and the call is not made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub malformed: Option<String>,
    /// Item as the provider gave it, if it must go back unchanged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub native: Option<Native>,
    /// Provider's index of the item, if it differs from the item's place in the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<u32>,
}

impl ToolUse {
    /// Creates a call of the tool `name`.
    pub fn new(call: CallId, name: impl Into<String>, input: RawJson) -> Self {
        Self { call, name: name.into(), input, omitted: false, malformed: None, native: None, part: None }
    }

    setters! {
        /// Sets whether the log does not keep the input.
        pub const fn with_omitted(omitted: bool) => omitted = omitted;

        /// Sets the input as the model wrote it, for one that is no JSON object.
        pub fn with_malformed(text: impl Into<String>) => malformed = Some(text.into());

        /// Sets the item as the provider gave it.
        pub fn with_native(native: Native) => native = Some(native);

        /// Sets the provider's index of the item.
        pub const fn with_index(index: u32) => part = Some(index);
    }

    pub(crate) fn check(&self) -> Result<()> {
        check_text("tool name", &self.name, 128)?;
        self.native.as_ref().map_or(Ok(()), Native::check)
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
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ToolResult {
    /// Id of the call.
    pub call: CallId,
    /// Outcome of the call.
    pub outcome: ToolOutcome,
    /// Output that the model is given, usually a text.
    pub output: RawJson,
    /// Further parts of the output, like images; empty if the output is `output` alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub content: Vec<Part>,
    /// Output as data that fits the tool's output schema.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub structured: Option<RawJson>,
    /// Whole output, if `output` is only its beginning and its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub full: Option<FullOutput>,
    /// True if the log does not keep the output; `output` is then empty.
    #[serde(default, skip_serializing_if = "is_default")]
    pub omitted: bool,
}

impl ToolResult {
    /// Creates the result of `call`.
    pub fn new(call: CallId, outcome: ToolOutcome, output: RawJson) -> Self {
        Self { call, outcome, output, content: Vec::new(), structured: None, full: None, omitted: false }
    }

    /// Creates the result that is stored if a run ended before its tool call did.
    pub fn interrupted(call: CallId) -> Self {
        Self::new(call, ToolOutcome::Interrupted, RawJson::sure(&"interrupted, outcome unknown"))
    }

    /// Adds a part to the output.
    pub fn with_part(mut self, part: Part) -> Self {
        self.content.push(part);
        self
    }

    setters! {
        /// Sets the output as data that fits the tool's output schema.
        pub fn with_structured(structured: RawJson) => structured = Some(structured);

        /// Sets the whole output, of which `output` is only a preview.
        pub fn with_full(full: FullOutput) => full = Some(full);

        /// Sets whether the log does not keep the output.
        pub const fn with_omitted(omitted: bool) => omitted = omitted;
    }

    /// Returns the further parts of the output as lines for people, like [`Part::text_view`]; `None` if there are none.
    pub fn text_view(&self) -> Option<String> {
        let lines: Vec<_> = self.content.iter().filter_map(|part| part.text_view("")).collect();
        (!lines.is_empty()).then(|| lines.join("\n"))
    }

    pub(crate) fn check(&self) -> Result<()> {
        check_parts(&self.content)?;
        self.full.as_ref().map_or(Ok(()), FullOutput::check)
    }
}

/// Whole output of a tool, of which the model is given only a preview.
///
/// ```
/// use agent_core::event::FullOutput;
///
/// let full = FullOutput::text("a very long listing");
/// assert_eq!((full.media_type.as_str(), full.bytes), ("text/plain", 19));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct FullOutput {
    /// Media type, like `text/plain`.
    #[serde(rename = "media")]
    pub media_type: String,
    /// Number of bytes of the output.
    pub bytes: u64,
    /// Output, if the event holds it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// SHA-256 of the output, if a blob of the session holds it: the name of the blob.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<BlobName>,
}

impl FullOutput {
    /// Creates an output that is held by the event.
    pub fn text(text: impl Into<String>) -> Self {
        let text = text.into();
        let bytes = text.len() as u64;
        Self { media_type: "text/plain".to_owned(), bytes, text: Some(text), sha256: None }
    }

    /// Creates an output that a blob of the session holds.
    pub fn blob(sha256: BlobName, bytes: u64) -> Self {
        Self { media_type: "text/plain".to_owned(), bytes, text: None, sha256: Some(sha256) }
    }

    /// Sets the media type; the default is `text/plain`.
    #[must_use]
    pub fn with_media_type(mut self, media_type: impl Into<String>) -> Self {
        self.media_type = media_type.into();
        self
    }

    fn check(&self) -> Result<()> {
        check_media_type(&self.media_type)?;
        match (&self.text, &self.sha256) {
            (None, Some(_)) => Ok(()),
            (Some(_), Some(_)) => Err(Error::invalid(
                "the whole output of a tool is given as a text and as a blob; give one of them",
            )),
            (Some(text), None) if text.len() as u64 == self.bytes => Ok(()),
            (Some(text), None) => Err(Error::invalid(format!(
                "the whole output of a tool has {} bytes, not {}; give the number of its bytes",
                text.len(),
                self.bytes
            ))),
            (None, None) => {
                Err(Error::invalid("the whole output of a tool is missing; give it as a text or as a blob"))
            }
        }
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

    setters! {
        /// Sets the choice.
        pub fn with_choice(choice: impl Into<String>) => choice = Some(choice.into());

        /// Sets the text for the model.
        pub fn with_note(note: impl Into<String>) => note = Some(note.into());
    }
}
