//! Interface to language models: requests, and streamed answers.

use std::fmt::Debug;
use std::sync::Arc;

use async_trait::async_trait;
use futures::stream::BoxStream;

use crate::context::Messages;
use crate::model::event::ModelEvent;
use crate::model::options::{Effort, ModelCapabilities, ToolChoice};
use agent_core::Result;
use agent_core::event::ModelOrigin;
use agent_core::json::RawJson;
use agent_core::model::{Cost, Usage};
use agent_core::setters;

/// Stream of a model's answer: events, then [`ModelEvent::Done`], or an error that ends it.
pub type ModelStream = BoxStream<'static, Result<ModelEvent>>;

/// Language model, under the name by which the configuration chooses it.
///
/// A provider maps a [`ModelRequest`] to the API of its model, and the answer to a stream of [`ModelEvent`]s: pieces of
/// text and reasoning, whole tool calls and other parts, and [`Done`](ModelEvent::Done) as the last event. This one
/// answers without a network:
///
/// ```
/// use agent_core::{MemoryStore, Result, async_trait};
/// use agent_runtime::context::ModelMessage;
/// use agent_runtime::{AgentBuilder, LlmProvider, ModelEvent, ModelRequest, ModelStream, StopReason, Usage};
/// use futures::{StreamExt, stream};
///
/// /// Model that answers with the number of messages of the user.
/// #[derive(Debug)]
/// struct Counting;
///
/// #[async_trait]
/// impl LlmProvider for Counting {
///     fn name(&self) -> &str {
///         "counting"
///     }
///
///     fn model(&self) -> &str {
///         "counting-1"
///     }
///
///     async fn generate(&self, request: ModelRequest) -> Result<ModelStream> {
///         // A network provider sends `system`, `messages`, `tools` and `max_tokens` here.
///         let users = request.messages.iter().filter(|message| matches!(message, ModelMessage::User(_)));
///         let events = [
///             ModelEvent::text(format!("{} so far", users.count())),
///             ModelEvent::done(StopReason::EndTurn, Usage::new(10, 3)),
///         ];
///         Ok(stream::iter(events.map(Ok)).boxed())
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
/// let agent = AgentBuilder::new().with_llm(Counting).with_storage(MemoryStore::new()).build()?;
/// let chat = agent.conversation("support/4711").await?;
/// chat.prompt("One").await?.finish().await?;
/// let report = chat.prompt("Two").await?.finish().await?;
/// assert_eq!(report.text, "2 so far");
/// assert_eq!(report.usage, Usage::new(10, 3));
/// # Ok(()) }
/// ```
///
/// # Cancel safety
///
/// A cancelled run drops the stream; the provider must then end its request. A run whose answer reaches one of its
/// [limits](crate::config::Limits) drops the stream too, before its end.
///
/// # Wrappers
///
/// A provider that wraps another one forwards every method, also those with a default; `Arc<P>` does.
///
/// # Panics
///
/// A provider that panics, also in [`cost`](Self::cost) or when a stream is dropped, ends the run as failed
/// immediately; the output until then is stored. The name and the model are read once, when the agent is built.
#[async_trait]
pub trait LlmProvider: Debug + Send + Sync + 'static {
    /// Returns the name by which the configuration chooses the provider: 1 to 256 bytes.
    fn name(&self) -> &str;

    /// Returns the model that the provider calls, as the session's references name it.
    fn model(&self) -> &str;

    /// Returns what the model takes; the default is text and tools.
    ///
    /// Called before each model call, so that it should cost nothing.
    fn capabilities(&self) -> ModelCapabilities {
        ModelCapabilities::new()
    }

    /// Returns the name and version of the code that turns a request into bytes: 1 to 256 bytes, for example
    /// `agent-rig/2+rig/0.44.0`; the default is `provider/1`.
    ///
    /// It must change whenever the bytes sent for the same request change. Signed items of earlier answers are sent
    /// back only if what stands before them is sent as it was; a rendering that changes silently makes a model's server
    /// refuse them.
    fn rendering(&self) -> &str {
        "provider/1"
    }

    /// Returns the API, the provider, the model and the account that answer; `None`, the default, if the provider does
    /// not say.
    ///
    /// The log records it with each answer; each name has at most 256 bytes. The provider's own forms of earlier items, like signed reasoning, are given
    /// only to the same origin; a provider that returns `None` is given none.
    fn origin(&self) -> Option<ModelOrigin> {
        None
    }

    /// Calls the model, and streams its answer.
    ///
    /// The future returns when the answer begins. A future or a stream without output for
    /// [`model_silence`](field@crate::Limits::model_silence) is dropped, and the run fails; the call is not repeated,
    /// because the model may still be at work on it.
    ///
    /// # Errors
    ///
    /// `Provider`, with a text for a person and without payloads: a [`ProviderFault`](crate::ProviderFault), whose kind
    /// decides whether the run repeats the call. The stream may end with such an error too; the output before it is
    /// stored, and the call is not repeated. A provider makes no retries of its own.
    async fn generate(&self, request: ModelRequest) -> Result<ModelStream>;

    /// Returns the cost of `usage`, if the provider knows it.
    ///
    /// Called only if [usage is recorded](crate::config::Config::with_record_usage). A cost that cannot be
    /// stored is left out and logged.
    ///
    /// ```
    /// use agent_core::model::Cost;
    /// use agent_core::{Result, async_trait};
    /// use agent_runtime::{EchoProvider, LlmProvider, ModelRequest, ModelStream, Usage};
    ///
    /// /// Provider with a price of 3 millionths of a dollar for a token.
    /// #[derive(Debug)]
    /// struct Priced(EchoProvider);
    ///
    /// #[async_trait]
    /// impl LlmProvider for Priced {
    ///     fn name(&self) -> &str {
    ///         "priced"
    ///     }
    ///
    ///     fn model(&self) -> &str {
    ///         self.0.model()
    ///     }
    ///
    ///     async fn generate(&self, request: ModelRequest) -> Result<ModelStream> {
    ///         self.0.generate(request).await
    ///     }
    ///
    ///     fn cost(&self, usage: Usage) -> Option<Cost> {
    ///         Some(Cost::new("USD", 3 * (usage.input_tokens + usage.output_tokens)))
    ///     }
    /// }
    ///
    /// let cost = Priced(EchoProvider::new()).cost(Usage::new(1000, 200));
    /// assert_eq!(cost, Some(Cost::new("USD", 3600)));
    /// ```
    fn cost(&self, usage: Usage) -> Option<Cost> {
        let _ = usage;
        None
    }
}

#[async_trait]
impl<P: LlmProvider + ?Sized> LlmProvider for Arc<P> {
    fn name(&self) -> &str {
        (**self).name()
    }

    fn model(&self) -> &str {
        (**self).model()
    }

    fn capabilities(&self) -> ModelCapabilities {
        (**self).capabilities()
    }

    fn rendering(&self) -> &str {
        (**self).rendering()
    }

    fn origin(&self) -> Option<ModelOrigin> {
        (**self).origin()
    }

    async fn generate(&self, request: ModelRequest) -> Result<ModelStream> {
        (**self).generate(request).await
    }

    fn cost(&self, usage: Usage) -> Option<Cost> {
        (**self).cost(usage)
    }
}

/// Request to a model. Fields that a provider does not support are left out by that provider.
///
/// ```
/// use agent_runtime::ModelRequest;
/// use agent_runtime::context::ModelMessage;
///
/// let request = ModelRequest::new(vec![ModelMessage::user("Hello"), ModelMessage::agent("Hi")]);
/// assert_eq!(request.messages.len(), 2);
/// assert!(request.system.is_none() && request.tools.is_empty() && request.max_tokens.is_none());
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ModelRequest {
    /// System prompt.
    pub system: Option<String>,
    /// Conversation; every tool call is directly followed by its result. Consecutive messages may have the same role,
    /// and system text may occur between messages; a provider whose model requires another form joins them. The last
    /// message is not always the user's: a run that a timer started ends with a system message that names the timer. The
    /// requests of a run share their messages.
    pub messages: Messages,
    /// Tools that the model may call.
    pub tools: Vec<ToolSpec>,
    /// Choice between text and tool calls.
    pub tool_choice: ToolChoice,
    /// JSON schema of the answer's text; `None` for free text. Given only to a provider whose
    /// [capabilities](LlmProvider::capabilities) have structured output.
    pub output_schema: Option<RawJson>,
    /// Effort that the model spends on reasoning; `None` for the model's own default.
    pub effort: Option<Effort>,
    /// Maximum number of tokens in the answer; `None` for no limit.
    pub max_tokens: Option<u32>,
}

impl ModelRequest {
    /// Creates a request with this conversation, without a system prompt, tools, an output schema and limits.
    pub fn new(messages: impl Into<Messages>) -> Self {
        Self { messages: messages.into(), ..Self::default() }
    }
}

/// Tool that a model may call: name, description, schema of the input, and mode.
///
/// ```
/// use agent_core::json::RawJson;
/// use agent_runtime::{ToolMode, ToolSpec};
///
/// let schema = RawJson::parse(r#"{"type":"object","properties":{"city":{"type":"string"}},"required":["city"]}"#)?;
/// let spec = ToolSpec::new("weather", "Current weather of a city.")
///     .with_input(schema)
///     .with_mode(ToolMode::Confirm);
/// assert_eq!((spec.name.as_str(), spec.mode), ("weather", ToolMode::Confirm));
/// # Ok::<(), agent_core::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ToolSpec {
    /// Name: 1 to 64 ASCII letters, digits, `_` and `-`, which all providers accept; unique in a runtime.
    pub name: String,
    /// Description of the tool for the model.
    pub description: String,
    /// JSON schema of the input: an object of `"type": "object"`.
    pub input: RawJson,
    /// Mode in which calls are made.
    pub mode: ToolMode,
}

/// Mode in which the calls of a tool are made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ToolMode {
    /// The call is made immediately.
    #[default]
    Direct,
    /// The call is made after a person has allowed it: the run ends, and the session waits for the answer.
    Confirm,
    /// The call is made outside this process: the run ends, and the session waits for the result to be delivered.
    Outside,
    /// The call is a question to a person, and the answer is its result. The run ends, and the session waits for the
    /// answer. The input's `question` and `choices` are shown to the person.
    Ask,
    /// The call is never made: the tool is not offered to the model, and a call of it is refused.
    Never,
}

impl ToolSpec {
    /// Maximum bytes of a tool's name.
    pub const NAME_MAX_BYTES: usize = 64;

    /// Returns whether each provider takes a tool of this name: 1 to 64 ASCII letters, digits, `_` and `-`.
    pub(crate) fn is_name(name: &str) -> bool {
        let is_letter = |letter: u8| letter.is_ascii_alphanumeric() || matches!(letter, b'_' | b'-');
        (1..=Self::NAME_MAX_BYTES).contains(&name.len()) && name.bytes().all(is_letter)
    }

    /// Creates a tool of the mode [`Direct`](ToolMode::Direct) whose input is any object.
    pub fn new(name: impl Into<String>, description: impl Into<String>) -> Self {
        let input = RawJson::constant(r#"{"type":"object"}"#);
        Self { name: name.into(), description: description.into(), input, mode: ToolMode::Direct }
    }

    setters! {
        /// Sets the mode in which calls are made; the default is [`ToolMode::Direct`].
        pub fn with_mode(mode: ToolMode) => mode = mode;

        /// Sets the JSON schema of the input, which must have `"type": "object"`; the default accepts any object.
        pub fn with_input(schema: RawJson) => input = schema;
    }
}
