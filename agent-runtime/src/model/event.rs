//! Events of a model's answer stream: parts that begin, grow and end, usage, signs of life, and the end.

use serde::{Deserialize, Serialize};

use agent_core::event::{Citation, Native, Part};
use agent_core::json::RawJson;
pub use agent_core::model::Usage;
use agent_core::state::Reason;

/// Event of a model's answer stream.
///
/// A small provider uses [`text`](Self::text), [`thinking`](Self::thinking), [`call`](Self::call) and
/// [`done`](Self::done), and counts nothing:
///
/// ```
/// use agent_core::json::RawJson;
/// use agent_runtime::{ModelEvent, StopReason, Usage};
///
/// let events = [
///     ModelEvent::Usage(Usage::new(120, 0)),
///     ModelEvent::text("I look it up."),
///     ModelEvent::call("call-1", "weather", RawJson::parse(r#"{"city":"Paris"}"#)?),
///     ModelEvent::done(StopReason::EndTurn, Usage::new(120, 30)),
/// ];
/// assert!(matches!(&events[2], ModelEvent::ToolUse(call) if call.name == "weather"));
/// # Ok::<(), agent_core::Error>(())
/// ```
///
/// A provider whose API signs or numbers the items of an answer gives each as a numbered part. The numbers start at 0
/// and have no gaps, in the order in which the parts begin; several parts may grow at the same time:
///
/// ```
/// use agent_core::event::Native;
/// use agent_core::json::RawJson;
/// use agent_runtime::{ModelEvent, ModelPart, PartKind};
///
/// let block = RawJson::parse(r#"{"type":"thinking","thinking":"A cat.","signature":"EqQB"}"#)?;
/// let thought = ModelPart::reasoning("A cat.").with_native(Native::new("anthropic.messages", block));
/// let events = [
///     ModelEvent::part_started(0, PartKind::Reasoning),
///     ModelEvent::delta(0, "A cat."),
///     ModelEvent::part_done(0, thought),
/// ];
/// assert!(matches!(events[2], ModelEvent::PartDone { index: 0, .. }));
/// # Ok::<(), agent_core::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ModelEvent {
    /// Piece of the text part that grows; begins one if another part was last.
    Text(String),
    /// Piece of the reasoning that grows; begins it if another part was last.
    Thinking(String),
    /// Tool call, always whole: a provider collects the pieces of the input first.
    ToolUse(ModelCall),
    /// Beginning of a numbered part.
    #[non_exhaustive]
    PartStarted {
        /// Number of the part: the number of the parts before it.
        index: u32,
        /// Kind of the part.
        kind: PartKind,
    },
    /// Piece of a numbered part: of the text, the reasoning, the refusal, or the JSON of a call.
    #[non_exhaustive]
    Delta {
        /// Number of the part.
        index: u32,
        /// Piece.
        text: String,
    },
    /// End of a numbered part, with all of it. Also begins a part that did not begin before.
    #[non_exhaustive]
    PartDone {
        /// Number of the part.
        index: u32,
        /// Whole part; replaces its pieces.
        part: Box<ModelPart>,
    },
    /// Usage of the request so far, all tokens included; replaces the one before it. It counts if the answer is cut.
    Usage(Usage),
    /// Sign of life of a server that has nothing to say yet. A stream of nothing else counts as silent after eight times
    /// [`model_silence`](field@crate::Limits::model_silence).
    Ping,
    /// End of the answer; always the last event. A stream that ends without it counts as a lost connection.
    #[non_exhaustive]
    Done {
        /// Reason for which the model stopped.
        stop: StopReason,
        /// Usage of the whole request; replaces the usage so far.
        usage: Usage,
    },
}

impl ModelEvent {
    /// Creates a piece of the answer's text.
    pub fn text(piece: impl Into<String>) -> Self {
        Self::Text(piece.into())
    }

    /// Creates a piece of the reasoning's text.
    pub fn thinking(piece: impl Into<String>) -> Self {
        Self::Thinking(piece.into())
    }

    /// Creates a whole call of the tool `name`.
    pub fn call(id: impl Into<String>, name: impl Into<String>, input: RawJson) -> Self {
        Self::ToolUse(ModelCall::new(id, name, input))
    }

    /// Creates the beginning of a numbered part.
    pub const fn part_started(index: u32, kind: PartKind) -> Self {
        Self::PartStarted { index, kind }
    }

    /// Creates a piece of a numbered part.
    pub fn delta(index: u32, text: impl Into<String>) -> Self {
        Self::Delta { index, text: text.into() }
    }

    /// Creates the end of a numbered part.
    pub fn part_done(index: u32, part: ModelPart) -> Self {
        Self::PartDone { index, part: Box::new(part) }
    }

    /// Creates a [`ModelEvent::Done`] with this reason and usage.
    pub const fn done(stop: StopReason, usage: Usage) -> Self {
        Self::Done { stop, usage }
    }
}

/// Kind of a numbered part of an answer.
///
/// As JSON it is the name of the variant in lower case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum PartKind {
    /// Text.
    Text,
    /// Reasoning.
    Reasoning,
    /// Refusal.
    Refusal,
    /// Tool call.
    Call,
    /// Medium, or what the provider ran itself.
    Other,
}

/// Whole part of an answer, and its form as the provider gave it.
///
/// ```
/// use agent_core::event::{Citation, Part};
/// use agent_runtime::ModelPart;
///
/// let text = ModelPart::text("A tabby.").with_citation(Citation::new("https://cats.example"));
/// assert!(text.native.is_none());
/// let refusal = ModelPart::part(Part::refusal("I cannot help with that."));
/// assert_ne!(text, refusal);
/// ```
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ModelPart {
    /// Content of the part.
    pub content: PartContent,
    /// Part as the provider gave it, if it must go back unchanged; `None` if the provider rebuilds the same from
    /// `content`.
    pub native: Option<Native>,
}

/// Content of a part of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PartContent {
    /// Text.
    #[non_exhaustive]
    Text {
        /// Text.
        text: String,
        /// Sources that the text cites.
        citations: Vec<Citation>,
    },
    /// Reasoning; empty if the provider hides it.
    Reasoning(String),
    /// Tool call.
    Call(ModelCall),
    /// Refusal, medium, or what the provider ran itself.
    Part(Part),
}

impl ModelPart {
    /// Creates a part of this content.
    pub const fn new(content: PartContent) -> Self {
        Self { content, native: None }
    }

    /// Creates a text.
    pub fn text(text: impl Into<String>) -> Self {
        Self::new(PartContent::Text { text: text.into(), citations: Vec::new() })
    }

    /// Creates reasoning.
    pub fn reasoning(text: impl Into<String>) -> Self {
        Self::new(PartContent::Reasoning(text.into()))
    }

    /// Creates a tool call.
    pub const fn call(call: ModelCall) -> Self {
        Self::new(PartContent::Call(call))
    }

    /// Creates a refusal, a medium, or what the provider ran itself; a text becomes a [text](Self::text).
    pub fn part(part: Part) -> Self {
        match part {
            Part::Text { text, .. } => Self::text(text.unwrap_or_default()),
            part => Self::new(PartContent::Part(part)),
        }
    }

    /// Adds a source that a text cites; nothing for another part.
    pub fn with_citation(mut self, citation: Citation) -> Self {
        if let PartContent::Text { citations, .. } = &mut self.content {
            citations.push(citation);
        }
        self
    }

    /// Sets the part as the provider gave it.
    pub fn with_native(mut self, native: Native) -> Self {
        self.native = Some(native);
        self
    }

    /// Returns the kind of the part.
    pub const fn kind(&self) -> PartKind {
        match &self.content {
            PartContent::Text { .. } => PartKind::Text,
            PartContent::Reasoning(_) => PartKind::Reasoning,
            PartContent::Call(_) => PartKind::Call,
            PartContent::Part(Part::Refusal { .. }) => PartKind::Refusal,
            PartContent::Part(_) => PartKind::Other,
        }
    }
}

/// Tool call as a model returns it, unchecked.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ModelCall {
    /// Id from the provider; an id that is empty, longer than 128 bytes or not unique is replaced.
    pub id: String,
    /// Name of the tool; a name longer than 128 bytes is replaced.
    pub name: String,
    /// Input of the tool; empty if it is malformed.
    pub input: RawJson,
    /// Input as the model wrote it, if it is no JSON object, and what is wrong with it. The call is not made then.
    pub malformed: Option<MalformedInput>,
}

impl ModelCall {
    /// Creates a call of the tool `name`.
    pub fn new(id: impl Into<String>, name: impl Into<String>, input: RawJson) -> Self {
        Self { id: id.into(), name: name.into(), input, malformed: None }
    }

    /// Creates a call whose input is no JSON object: `text` is the input as the model wrote it, `fault` says what is wrong
    /// with it and where. Nobody is asked about it, and no tool is called; the model is told why.
    ///
    /// ```
    /// use agent_runtime::ModelCall;
    ///
    /// let cut = ModelCall::malformed("call-1", "shell", r#"{"command":"rm -rf /ho"#, "it ends within a text");
    /// assert_eq!(cut.input.get(), "{}");
    /// ```
    pub fn malformed(
        id: impl Into<String>,
        name: impl Into<String>,
        text: impl Into<String>,
        fault: impl Into<String>,
    ) -> Self {
        let malformed = Some(MalformedInput { text: text.into(), fault: fault.into() });
        Self { malformed, ..Self::new(id, name, RawJson::empty_object()) }
    }
}

/// Input of a call that is no JSON object.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MalformedInput {
    /// Input as the model wrote it.
    pub text: String,
    /// Fault in the text, and its place.
    pub fault: String,
}

/// Reason for which a model stopped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum StopReason {
    /// The model finished its answer, or waits for the results of its tool calls.
    #[default]
    EndTurn,
    /// The model reached its token limit. Tool calls of such an answer are not made, because they may be cut short.
    MaxTokens,
    /// The model produced a stop sequence.
    StopSequence,
    /// The model refused. Tool calls of such an answer are not made.
    Refusal,
}

impl StopReason {
    /// Returns the name of the reason, as the log records it.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::EndTurn => "end_turn",
            Self::MaxTokens => "max_tokens",
            Self::StopSequence => "stop_sequence",
            Self::Refusal => "refusal",
        }
    }

    /// Returns whether the answer is complete, so that its items can be given back as they came.
    pub(crate) const fn is_complete(self) -> bool {
        matches!(self, Self::EndTurn | Self::StopSequence)
    }

    /// Returns the reason with which the session becomes idle.
    pub const fn reason(self) -> Reason {
        match self {
            Self::EndTurn => Reason::EndTurn,
            Self::MaxTokens => Reason::MaxTokens,
            Self::StopSequence => Reason::StopSequence,
            Self::Refusal => Reason::Refusal,
        }
    }
}
