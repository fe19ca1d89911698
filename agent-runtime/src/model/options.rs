//! Capabilities of a model, and options of a request besides messages and tools.

use agent_core::setters;
use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

/// Kinds of input and output that a provider's model takes.
///
/// The default is text and tools, one call at a time.
///
/// ```
/// use agent_runtime::{MediaKind, ModelCapabilities};
///
/// let vision = ModelCapabilities::new().with_media([MediaKind::Image]).with_parallel_calls(true);
/// assert!(vision.tools && vision.parallel_calls && !vision.structured_output);
/// assert!(vision.takes(MediaKind::Image) && !vision.takes(MediaKind::Audio));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ModelCapabilities {
    /// True if the model calls tools; default true. A run offers a model without it no tools.
    pub tools: bool,
    /// True if one answer may hold several tool calls; default false.
    pub parallel_calls: bool,
    /// True if the model follows an output schema; default false. A run with a schema fails on a model without it.
    pub structured_output: bool,
    /// Media that the model takes as input, besides text; default none.
    pub media: BTreeSet<MediaKind>,
    /// Maximum number of tokens that the model reads and writes in one request; default `None` if it is not known.
    pub context_tokens: Option<u32>,
}

/// Kind of media in a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum MediaKind {
    /// Picture.
    Image,
    /// Sound.
    Audio,
    /// Moving picture.
    Video,
    /// File of another type, for example a PDF.
    File,
}

impl MediaKind {
    const ALL: [Self; 4] = [Self::Image, Self::Audio, Self::Video, Self::File];
}

impl Default for ModelCapabilities {
    fn default() -> Self {
        Self::new()
    }
}

impl ModelCapabilities {
    /// Creates the capabilities of a model of text and tools.
    pub const fn new() -> Self {
        Self {
            tools: true,
            parallel_calls: false,
            structured_output: false,
            media: BTreeSet::new(),
            context_tokens: None,
        }
    }

    /// Creates the capabilities of a model that takes everything.
    pub fn all() -> Self {
        Self::new().with_parallel_calls(true).with_structured_output(true).with_media(MediaKind::ALL)
    }

    setters! {
        /// Sets whether the model calls tools; the default is true.
        pub fn with_tools(tools: bool) => tools = tools;

        /// Sets whether one answer may hold several tool calls; the default is false.
        pub fn with_parallel_calls(parallel: bool) => parallel_calls = parallel;

        /// Sets whether the model follows an output schema; the default is false.
        pub fn with_structured_output(structured: bool) => structured_output = structured;

        /// Sets the media that the model takes as input; the default is none.
        pub fn with_media(media: impl IntoIterator<Item = MediaKind>) => media = media.into_iter().collect();

        /// Sets the maximum number of tokens of a request and its answer; the default is `None`. A run gives the model at
        /// most three bytes of history for each, also if its [limits](crate::context::ContextLimits::bytes) allow more: a
        /// token is about four bytes of English, and the rest is for the system prompt, the tools and the answer.
        pub fn with_context_tokens(tokens: Option<u32>) => context_tokens = tokens;
    }

    /// Returns whether the model takes this kind of media as input.
    pub fn takes(&self, media: MediaKind) -> bool {
        self.media.contains(&media)
    }
}

/// Choice of a request between text and tool calls.
///
/// A run gives [`Required`](Self::Required) and [`Tool`](Self::Tool) to its model until the conversation ends with results
/// of tools; then the model decides, because the run would not end otherwise. A tool that the session is not offered is
/// not required.
///
/// ```
/// use agent_core::MemoryStore;
/// use agent_runtime::{AgentBuilder, Config, EchoProvider, ToolChoice};
///
/// // `build` refuses a choice of a tool that no plugin has.
/// let config = Config::new().with_tool_choice(ToolChoice::Tool("search".to_owned()));
/// let builder = AgentBuilder::new().with_config(config).with_llm(EchoProvider::new());
/// assert!(builder.with_storage(MemoryStore::new()).build().is_err());
/// ```
///
/// As JSON it is `"auto"`, `"none"`, `"required"` or `{"tool":"search"}`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ToolChoice {
    /// The model decides.
    #[default]
    Auto,
    /// The model calls no tool, although the request may list tools.
    None,
    /// The model calls at least one tool.
    Required,
    /// The model calls the tool of this name.
    Tool(String),
}

impl ToolChoice {
    pub(crate) fn is_auto(&self) -> bool {
        *self == Self::Auto
    }
}

/// Effort that a model spends on reasoning.
///
/// A provider whose model has other levels takes the nearest one.
///
/// ```
/// use agent_runtime::Effort;
///
/// assert!(Effort::Low < Effort::High);
/// assert_eq!(Effort::Medium.name(), "medium");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Effort {
    /// No reasoning, if the model allows that.
    Off,
    /// The least reasoning that the model has.
    Minimal,
    /// Little reasoning.
    Low,
    /// Usual reasoning.
    Medium,
    /// Much reasoning.
    High,
    /// The most reasoning that the model has.
    Max,
}

impl Effort {
    /// Returns the name of the level, as in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Minimal => "minimal",
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
            Self::Max => "max",
        }
    }
}
