//! The seam to language models: what a model is asked, and what it streams back.

use std::fmt::Debug;

use async_trait::async_trait;
use futures::stream::BoxStream;

use crate::context::ModelMessage;
use agent_core::Result;
use agent_core::json::RawJson;
use agent_core::model::Cost;
pub use agent_core::model::Usage;
use agent_core::state::Reason;

/// What a model streams: events, then [`ModelEvent::Done`]; or an error, which ends it.
pub type ModelStream = BoxStream<'static, Result<ModelEvent>>;

/// A language model, under the name by which the configuration chooses it.
///
/// # Cancel safety
///
/// A run that is cancelled drops the stream; a provider ends its request then. So does a run whose answer meets one of
/// its [limits](crate::runtime::config::Limits), while it streams.
///
/// # Panics
///
/// A provider that panics, also in [`cost`](Self::cost) or in the drop of a stream, ends the run as failed, at once; what it
/// said until then is kept. A provider is asked for its name and its model once, when the agent is built.
#[async_trait]
pub trait LlmProvider: Debug + Send + Sync + 'static {
    /// The name by which the configuration chooses it: 1 to 256 bytes.
    fn name(&self) -> &str;

    /// The model that it asks, as the session's references name it.
    fn model(&self) -> &str;

    /// Asks the model, and streams what it says.
    ///
    /// # Errors
    ///
    /// `Provider`, with a text for a person and without payloads.
    async fn generate(&self, request: ModelRequest) -> Result<ModelStream>;

    /// What `usage` costs, where the provider knows. Asked only where [usage is kept](crate::runtime::config::Config::record_usage). A cost
    /// that cannot be stored is left out and logged.
    fn cost(&self, usage: Usage) -> Option<Cost> {
        let _ = usage;
        None
    }
}

/// What a model is asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ModelRequest {
    /// The system prompt.
    pub system: Option<String>,
    /// The conversation; every tool call in it has its result right behind it. Two messages of one role may follow
    /// each other, and text of the system may stand between; a provider whose model wants otherwise joins them.
    pub messages: Vec<ModelMessage>,
    /// The tools that it may call.
    pub tools: Vec<ToolSpec>,
    /// The most tokens that it may answer with, where that is limited.
    pub max_tokens: Option<u32>,
}

impl ModelRequest {
    /// A request with this conversation, and nothing else.
    pub fn new(messages: Vec<ModelMessage>) -> Self {
        Self { messages, ..Self::default() }
    }
}

/// A tool that a model may call.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ToolSpec {
    /// Its name: 1 to 64 ASCII letters, digits, `_` and `-`, which is what all providers take; one of its kind in a runtime.
    pub name: String,
    /// What it does, for the model.
    pub description: String,
    /// The JSON schema of its input: an object of `"type": "object"`.
    pub input: RawJson,
    /// How its calls are made.
    pub mode: ToolMode,
}

/// How the calls of a tool are made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ToolMode {
    /// At once.
    #[default]
    Direct,
    /// When a person has allowed it: the run ends, and the session waits for the answer.
    Confirm,
    /// By somebody outside, who delivers the result: the run ends, and the session waits for it.
    Outside,
    /// By asking a person: the call is a question, and the answer its result. The run ends, and the session waits for
    /// it. The input's `question` and `choices` are what the person is shown.
    Ask,
    /// Not at all: the model is not told of the tool, and a call of it is refused.
    Never,
}

impl ToolSpec {
    /// The most bytes of a tool's name.
    pub const NAME_MAX_BYTES: usize = 64;

    /// A tool whose input is any object.
    pub fn new(name: impl Into<String>, description: impl Into<String>) -> Self {
        let input = RawJson::constant(r#"{"type":"object"}"#);
        Self { name: name.into(), description: description.into(), input, mode: ToolMode::Direct }
    }

    /// Sets how its calls are made.
    #[must_use]
    pub fn with_mode(mut self, mode: ToolMode) -> Self {
        self.mode = mode;
        self
    }

    /// Sets the schema of its input.
    #[must_use]
    pub fn with_input(mut self, schema: RawJson) -> Self {
        self.input = schema;
        self
    }
}

/// A piece of what a model streams.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ModelEvent {
    /// Text of its answer.
    Text(String),
    /// Text of its reasoning.
    Thinking(String),
    /// It calls a tool; the whole call.
    ToolUse(ModelCall),
    /// It is done. The last event.
    #[non_exhaustive]
    Done {
        /// Why it stopped.
        stop: StopReason,
        /// What it used.
        usage: Usage,
    },
}

impl ModelEvent {
    /// It is done, for this reason.
    pub const fn done(stop: StopReason, usage: Usage) -> Self {
        Self::Done { stop, usage }
    }
}

/// A tool call as a model gives it: unchecked.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ModelCall {
    /// The id that the provider gave it; one that is empty, over 128 bytes or not unique is replaced.
    pub id: String,
    /// The tool's name; one of over 128 bytes is replaced.
    pub name: String,
    /// What the tool is given.
    pub input: RawJson,
}

impl ModelCall {
    /// A call of `name`.
    pub fn new(id: impl Into<String>, name: impl Into<String>, input: RawJson) -> Self {
        Self { id: id.into(), name: name.into(), input }
    }
}

/// Why a model stopped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum StopReason {
    /// It had said what it had to say, or wants the results of its tool calls.
    #[default]
    EndTurn,
    /// It ran into its token limit. Tool calls of such an answer are not made: they may be cut short.
    MaxTokens,
    /// It met a stop sequence.
    StopSequence,
    /// It refused. Tool calls of such an answer are not made.
    Refusal,
}

impl StopReason {
    /// The reason for which a session is idle after it.
    pub const fn reason(self) -> Reason {
        match self {
            Self::EndTurn => Reason::EndTurn,
            Self::MaxTokens => Reason::MaxTokens,
            Self::StopSequence => Reason::StopSequence,
            Self::Refusal => Reason::Refusal,
        }
    }
}
