//! Limit that a run reached, for its report.

use std::fmt;

use agent_core::setters;
use agent_core::state::Reason;
use serde::{Deserialize, Serialize};

/// Limit that ended a run, or cut its last answer: what is limited, and the maximum. Its text is for people.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/models.rs"));
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
/// use agent_runtime::{Config, LimitKind, ScriptedProvider, Turn};
/// # use agent_core::MemoryStore;
///
/// let model = ScriptedProvider::new([Turn::new().text("Once upon a time")]);
/// # let builder = agent_runtime::AgentBuilder::new().with_llm(model).with_storage(MemoryStore::new());
/// # let agent = builder.with_config(Config::new().with_max_text_bytes(9)).build()?;
/// # let chat = agent.conversation("key").await?;
/// // In an agent whose configuration has `with_max_text_bytes(9)`:
/// let report = chat.prompt("Tell me a story.").await?.finish().await?;
/// let limit = report.limit.expect("the text is longer");
/// assert_eq!((limit.kind, limit.max), (LimitKind::TextBytes, Some(9)));
/// assert_eq!(limit.to_string(), "9 bytes of text in an answer (text_bytes)");
/// # Ok(()) }
/// ```
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ReachedLimit {
    /// Kind of the limit.
    pub kind: LimitKind,
    /// Maximum, in the unit of the kind; `None` if it is the model's own, or the report was read from the log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<u64>,
}

/// Kind of a limit of a run. The names are those of [`Limits`](crate::Limits), where it has the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum LimitKind {
    /// Number of model calls in a run; see [`turns`](field@crate::Limits::turns).
    Turns,
    /// Number of tool calls in a run; see [`tool_calls`](field@crate::Limits::tool_calls).
    ToolCalls,
    /// Number of calls of one answer that wait for a person or for a result from outside: 32.
    WaitingCalls,
    /// Tokens of one answer; see [`max_tokens`](field@crate::Limits::max_tokens).
    MaxTokens,
    /// Bytes of text in one answer; see [`text_bytes`](field@crate::Limits::text_bytes).
    TextBytes,
    /// Bytes of reasoning in one answer; see [`thinking_bytes`](field@crate::Limits::thinking_bytes).
    ThinkingBytes,
    /// Bytes of the input of one call; see [`call_bytes`](field@crate::Limits::call_bytes).
    CallBytes,
    /// Bytes of one answer; see [`answer_bytes`](field@crate::Limits::answer_bytes).
    AnswerBytes,
    /// Bytes of one item of an answer: 15 MiB.
    ItemBytes,
    /// Number of parts of one answer: 1,000.
    Parts,
    /// Number of large media of one answer.
    Media,
    /// Bytes of the large media of one answer: 64 MiB.
    MediaBytes,
    /// Milliseconds without output from the model; see [`model_silence`](field@crate::Limits::model_silence).
    ModelSilence,
    /// Tokens of a request that the model takes; see
    /// [`context_tokens`](field@crate::ModelCapabilities::context_tokens).
    ContextTokens,
}

impl LimitKind {
    /// Returns the name, as in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Turns => "turns",
            Self::ToolCalls => "tool_calls",
            Self::WaitingCalls => "waiting_calls",
            Self::MaxTokens => "max_tokens",
            Self::TextBytes => "text_bytes",
            Self::ThinkingBytes => "thinking_bytes",
            Self::CallBytes => "call_bytes",
            Self::AnswerBytes => "answer_bytes",
            Self::ItemBytes => "item_bytes",
            Self::Parts => "parts",
            Self::Media => "media",
            Self::MediaBytes => "media_bytes",
            Self::ModelSilence => "model_silence",
            Self::ContextTokens => "context_tokens",
        }
    }

    /// Returns the unit, and what it is counted of.
    const fn noun(self) -> &'static str {
        match self {
            Self::Turns => "model calls in a run",
            Self::ToolCalls => "tool calls in a run",
            Self::WaitingCalls => "calls that wait in an answer",
            Self::MaxTokens => "tokens in an answer",
            Self::TextBytes => "bytes of text in an answer",
            Self::ThinkingBytes => "bytes of reasoning in an answer",
            Self::CallBytes => "bytes of input of a tool call",
            Self::AnswerBytes => "bytes in an answer",
            Self::ItemBytes => "bytes of an item",
            Self::Parts => "parts in an answer",
            Self::Media => "large media in an answer",
            Self::MediaBytes => "bytes of media in an answer",
            Self::ModelSilence => "ms without output from the model",
            Self::ContextTokens => "tokens in a request",
        }
    }
}

impl ReachedLimit {
    /// Creates the limit of a kind, without its maximum.
    pub const fn new(kind: LimitKind) -> Self {
        Self { kind, max: None }
    }

    setters! {
        /// Sets the maximum.
        pub const fn with_max(max: u64) => max = Some(max);
    }

    /// Returns the limit that the reason for the end of a run names, if it names one alone.
    pub(crate) fn of_reason(reason: Reason) -> Option<Self> {
        (reason == Reason::MaxTokens).then_some(Self::new(LimitKind::MaxTokens))
    }
}

impl fmt::Display for ReachedLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (noun, name) = (self.kind.noun(), self.kind.name());
        match self.max {
            Some(max) => write!(f, "{max} {noun} ({name})"),
            None => write!(f, "the model's number of {noun} ({name})"),
        }
    }
}
