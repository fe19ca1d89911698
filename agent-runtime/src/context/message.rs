//! Messages of a conversation in the form that a model receives: parts in their order.

use std::borrow::Cow;

use agent_core::event::{
    AgentResponse, Citation, MediaSource, Message, ModelOrigin, Native, Part, ToolOutcome, ToolUse,
};
use agent_core::model::CallId;

/// Bytes of room that a medium takes, whatever its size.
const MEDIA_BYTES: usize = 4 << 10;

/// Bytes of room that a call or a result takes besides its text.
const CALL_BYTES: usize = 32;

/// Memory of a citation, about.
const CITATION_BYTES: usize = 256;

/// One message of a conversation, in the form that a model receives.
///
/// A provider of a model that takes only text uses the text views: [`Content::text`], [`AgentMessage::text`] with
/// [`AgentMessage::calls`], and [`ModelToolResult::text`].
///
/// ```
/// use agent_core::event::{Media, Part};
/// use agent_runtime::context::ModelMessage;
///
/// let cat = Part::Image(Media::inline("image/png", *b"\x89PNG"));
/// let message = ModelMessage::user(vec![Part::text("What is this?"), cat]);
/// assert_eq!(message.text(), "What is this?\n[image, image/png, 4 bytes]");
/// assert_eq!(ModelMessage::agent("A cat.").text(), "A cat.");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ModelMessage {
    /// Summary that replaces the older part of the conversation; always the first message, if there is one. Providers
    /// receive it as a message of the user.
    Summary(String),
    /// Message of a person.
    User(Content),
    /// Text that the system inserted at this point.
    System(String),
    /// Answer of the agent; the results of its calls come next.
    Agent(AgentMessage),
    /// Results of the calls in the previous message, one for each, in the same order.
    ToolResults(Vec<ModelToolResult>),
}

impl ModelMessage {
    /// Creates a message of a person from a text, or from parts.
    pub fn user(content: impl Into<Content>) -> Self {
        Self::User(content.into())
    }

    /// Creates a message of the agent from a text, or from items.
    pub fn agent(message: impl Into<AgentMessage>) -> Self {
        Self::Agent(message.into())
    }

    /// Returns the text view of the message: that of its content, or of its results, each on a line of its own.
    pub fn text(&self) -> Cow<'_, str> {
        match self {
            Self::Summary(text) | Self::System(text) => text.into(),
            Self::User(content) => content.text(),
            Self::Agent(message) => message.text(),
            Self::ToolResults(results) => match &results[..] {
                [result] => result.text(),
                results => results.iter().map(ModelToolResult::text).collect::<Vec<_>>().join("\n").into(),
            },
        }
    }

    /// Returns the approximate room of the message: the bytes of its text, and 4 KiB for each medium.
    pub fn size_bytes(&self) -> usize {
        match self {
            Self::Summary(text) | Self::System(text) => text.len(),
            Self::User(content) => content.size_bytes(),
            Self::Agent(message) => message.items.iter().map(AgentItem::size_bytes).sum(),
            Self::ToolResults(results) => results.iter().map(ModelToolResult::size_bytes).sum(),
        }
    }
}

/// Text of a message as a model is shown it.
#[derive(Debug)]
pub(super) struct Shown {
    pub(super) text: String,
    /// True if it is the whole text.
    pub(super) is_whole: bool,
}

/// Content of a person's message: texts, media and other parts, in order.
///
/// ```
/// use agent_runtime::context::Content;
///
/// let content = Content::from("Hello");
/// assert_eq!((content.text().as_ref(), content.parts.len()), ("Hello", 1));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Content {
    /// Parts; each text is spelled out.
    pub parts: Vec<Part>,
}

impl Content {
    /// Returns the text view: each part on a line of its own, media as a line with their kind, name, type and size.
    pub fn text(&self) -> Cow<'_, str> {
        match &self.parts[..] {
            [part] => part.text_view("").unwrap_or_default(),
            parts => lines(parts).into(),
        }
    }

    pub(super) fn size_bytes(&self) -> usize {
        self.parts.iter().map(part_bytes).sum()
    }

    /// Returns whether there is nothing that a model could answer.
    pub(super) fn is_blank(&self) -> bool {
        self.text().trim().is_empty()
    }

    /// Returns the parts of a message whose text is shown as `shown`.
    pub(super) fn of(message: Message, Shown { text, is_whole }: Shown) -> Self {
        if message.parts.is_empty() {
            return text.into();
        }
        let is_text = |part: &Part| matches!(part, Part::Text { .. } | Part::Refusal { .. });
        let mut shown = Some(text);
        let mut parts = Vec::with_capacity(message.parts.len());
        for mut part in message.parts {
            if !is_whole && is_text(&part) {
                // A shortened text stands in the place of the first.
                let Some(text) = shown.take() else { continue };
                part = Part::text(text);
            } else if let Part::Text { text: text @ None, .. } = &mut part {
                *text = shown.take();
            } else if is_text(&part) {
                shown = None;
            }
            parts.push(part);
        }
        if let Some(text) = shown.filter(|text| !text.is_empty()) {
            parts.insert(0, Part::text(text));
        }
        // Providers refuse a message with a blank text in it.
        parts.retain(|part| !is_text(part) || part.text_view("").is_some_and(|text| !text.trim().is_empty()));
        Self { parts }
    }
}

impl From<Vec<Part>> for Content {
    fn from(parts: Vec<Part>) -> Self {
        Self { parts }
    }
}

impl From<String> for Content {
    fn from(text: String) -> Self {
        Self { parts: vec![Part::text(text)] }
    }
}

impl From<&str> for Content {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

/// Answer of the agent: its items, in the order in which the provider gave them.
///
/// ```
/// use agent_core::event::{Native, ToolUse};
/// use agent_core::json::RawJson;
/// use agent_runtime::context::{AgentItem, AgentMessage};
///
/// let signed = Native::new("anthropic.messages", RawJson::parse(r#"{"type":"thinking","signature":"EqQB"}"#)?);
/// let call = ToolUse::new("call-1".parse()?, "weather", RawJson::empty_object());
/// let message = AgentMessage::from(vec![
///     AgentItem::reasoning("They ask for the weather.").with_native(signed),
///     AgentItem::text("I look it up."),
///     AgentItem::call(call),
/// ]);
/// assert_eq!(message.text(), "I look it up.");
/// assert_eq!(message.calls().map(|call| &*call.name).collect::<Vec<_>>(), ["weather"]);
/// # Ok::<(), agent_core::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct AgentMessage {
    /// Items.
    pub items: Vec<AgentItem>,
    /// End of the answer, if the log has one. Requests do not hold it.
    pub(crate) response: Option<Box<AgentResponse>>,
}

impl AgentMessage {
    /// Returns the text view: texts that follow each other are one text, other parts are lines of their own. Reasoning
    /// and tool calls are not shown.
    pub fn text(&self) -> Cow<'_, str> {
        if let [AgentItem { content: ItemContent::Text { text, .. }, .. }] = &self.items[..] {
            return text.into();
        }
        let (mut view, mut goes_on) = (String::new(), true);
        for item in &self.items {
            let said = match &item.content {
                ItemContent::Text { text, .. } => Some(Cow::Borrowed(&**text)),
                ItemContent::Part(part) => part.text_view(""),
                ItemContent::Reasoning(_) | ItemContent::Call(_) => None,
            };
            let is_text = matches!(item.content, ItemContent::Text { .. });
            if let Some(said) = said.filter(|said| !said.is_empty()) {
                let is_piece = is_text && goes_on;
                if !view.is_empty() && !is_piece {
                    view.push('\n');
                }
                view.push_str(&said);
            }
            goes_on = is_text;
        }
        view.into()
    }

    /// Returns the tool calls, in order.
    pub fn calls(&self) -> impl Iterator<Item = &ToolUse> {
        self.items.iter().filter_map(AgentItem::as_call)
    }

    /// Returns the origin of the answer, if it is known. A message of a request does not hold it.
    pub fn origin(&self) -> Option<&ModelOrigin> {
        self.response.as_ref()?.origin.as_ref()
    }

    /// Returns the form that every model takes: text, media and calls, without reasoning, items that the provider ran
    /// itself, and native forms.
    pub(crate) fn canonical(mut self) -> Self {
        self.response = None;
        self.items.retain_mut(|item| {
            item.native = None;
            match &item.content {
                ItemContent::Text { text, .. } => !text.trim().is_empty(),
                ItemContent::Reasoning(_)
                | ItemContent::Part(Part::HostedCall(_) | Part::HostedResult(_) | Part::Other(_)) => false,
                ItemContent::Call(_) | ItemContent::Part(_) => true,
            }
        });
        self
    }
}

impl From<Vec<AgentItem>> for AgentMessage {
    fn from(items: Vec<AgentItem>) -> Self {
        Self { items, response: None }
    }
}

impl From<String> for AgentMessage {
    fn from(text: String) -> Self {
        vec![AgentItem::text(text)].into()
    }
}

impl From<&str> for AgentMessage {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

/// Item of an agent's answer, and its form as the provider gave it.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AgentItem {
    /// Content of the item.
    pub content: ItemContent,
    /// Item as the provider gave it. If it is there, the provider sends it in place of `content`: it is given only to
    /// the model that made it, and only if what stands before it is what stood there when it was made.
    pub native: Option<Native>,
}

/// Content of an item of an agent's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ItemContent {
    /// Text.
    #[non_exhaustive]
    Text {
        /// Text; may be empty beside a native form.
        text: String,
        /// Sources that the text cites.
        citations: Vec<Citation>,
    },
    /// Reasoning; without a native form, a provider whose API takes only signed reasoning leaves it out.
    Reasoning(String),
    /// Tool call. Its own `native` is empty.
    Call(ToolUse),
    /// Refusal, medium, or what the provider ran itself.
    Part(Part),
}

impl AgentItem {
    /// Creates an item of this content.
    pub const fn new(content: ItemContent) -> Self {
        Self { content, native: None }
    }

    /// Creates a text without citations.
    pub fn text(text: impl Into<String>) -> Self {
        Self::new(ItemContent::Text { text: text.into(), citations: Vec::new() })
    }

    /// Creates reasoning.
    pub fn reasoning(text: impl Into<String>) -> Self {
        Self::new(ItemContent::Reasoning(text.into()))
    }

    /// Creates a tool call.
    pub fn call(mut call: ToolUse) -> Self {
        let native = call.native.take();
        call.part = None;
        Self { content: ItemContent::Call(call), native }
    }

    /// Creates a refusal, a medium, or what the provider ran itself.
    pub const fn part(part: Part) -> Self {
        Self::new(ItemContent::Part(part))
    }

    /// Sets the item as the provider gave it.
    pub fn with_native(mut self, native: Native) -> Self {
        self.native = Some(native);
        self
    }

    /// Returns the tool call, if the item is one.
    pub fn as_call(&self) -> Option<&ToolUse> {
        match &self.content {
            ItemContent::Call(call) => Some(call),
            _ => None,
        }
    }

    /// Returns the items of an agent's message, whose text is shown as `shown`.
    pub(super) fn of(message: Message, shown: Shown) -> Vec<Self> {
        if message.parts.is_empty() {
            // Offsets and the native form belong to the whole text.
            let Shown { text, is_whole } = shown;
            let citations = if is_whole { message.citations } else { Vec::new() };
            let content = ItemContent::Text { text, citations };
            return vec![Self { content, native: message.native.filter(|_| is_whole) }];
        }
        let item = |part| match part {
            Part::Text { text, .. } => Self::text(text.unwrap_or_default()),
            part => Self::part(part),
        };
        Content::of(message, shown).parts.into_iter().map(item).collect()
    }

    pub(super) fn size_bytes(&self) -> usize {
        match &self.content {
            ItemContent::Text { text, .. } => text.len(),
            // Reasoning without a native form is seldom given to a model.
            ItemContent::Reasoning(text) => self.native.as_ref().map_or(0, |_| text.len()),
            ItemContent::Call(call) => call.name.len() + call.input.get().len() + CALL_BYTES,
            ItemContent::Part(part) => part_bytes(part),
        }
    }

    /// Returns about how many bytes of memory its form of the provider's own, its citations and its medium take.
    pub(super) fn hidden_bytes(&self) -> usize {
        let native = self.native.as_ref().map_or(0, |native| native.item.get().len());
        native
            + match &self.content {
                ItemContent::Text { citations, .. } => citations.len() * CITATION_BYTES,
                // Counted as text only with a native form.
                ItemContent::Reasoning(text) if self.native.is_none() => text.len(),
                ItemContent::Part(part) => inline_bytes(part),
                _ => 0,
            }
    }

    /// Returns whether the item counts as a message.
    pub(super) const fn is_message(&self) -> bool {
        !matches!(self.content, ItemContent::Reasoning(_))
    }
}

/// Result of a tool call, in the form that a model receives.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ModelToolResult {
    /// Id of the call.
    pub call: CallId,
    /// Outcome of the call.
    pub outcome: ToolOutcome,
    /// Output as text: the characters of a JSON string, any other value as JSON.
    pub output: String,
    /// Further parts of the output, like images.
    pub content: Vec<Part>,
}

impl ModelToolResult {
    /// Creates the result of a call with this text.
    pub fn new(call: CallId, outcome: ToolOutcome, output: impl Into<String>) -> Self {
        Self { call, outcome, output: output.into(), content: Vec::new() }
    }

    /// Returns the text view: the output, then each further part on a line of its own.
    pub fn text(&self) -> Cow<'_, str> {
        match lines(&self.content) {
            more if more.is_empty() => (&self.output).into(),
            more => format!("{}\n{more}", self.output).into(),
        }
    }

    pub(super) fn size_bytes(&self) -> usize {
        self.output.len() + CALL_BYTES + self.content.iter().map(part_bytes).sum::<usize>()
    }
}

fn lines(parts: &[Part]) -> String {
    parts.iter().filter_map(|part| part.text_view("")).collect::<Vec<_>>().join("\n")
}

/// Returns the bytes of the medium that a part holds.
pub(super) fn inline_bytes(part: &Part) -> usize {
    match part.media().map(|media| &media.source) {
        Some(MediaSource::Inline(bytes)) => bytes.len(),
        _ => 0,
    }
}

/// Returns the room of a part.
fn part_bytes(part: &Part) -> usize {
    match part {
        Part::Text { text, .. } => text.as_ref().map_or(0, String::len),
        Part::Refusal { text, .. } => text.len(),
        Part::HostedCall(call) => call.name.len() + call.input.as_ref().map_or(0, |input| input.get().len()),
        Part::HostedResult(result) => result.output.as_ref().map_or(0, |output| output.get().len()),
        Part::Other(raw) => raw.get().len(),
        _ => MEDIA_BYTES,
    }
}
