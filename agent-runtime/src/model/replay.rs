//! Replay of a provider's own items, and the hash of the history that they belong to.

use std::collections::BTreeSet;

use sha2::{Digest, Sha256};

use crate::context::{
    AgentItem, AgentMessage, Assembled, Content, ItemContent, Messages, ModelContext, ModelMessage,
    ModelToolResult,
};
use crate::model::hex;
use crate::model::media::MEDIA_MAX_BYTES;
use crate::model::options::{MediaKind, ModelCapabilities};
use crate::model::provider::{LlmProvider, ToolSpec};
use agent_core::BlobName;
use agent_core::event::{AgentResponse, Media, MediaSource, ModelOrigin, Part};
use agent_core::json::RawJson;
use agent_core::setters;

/// Value of [`AgentResponse::replay`] after a request without native items.
pub(crate) const CANONICAL: &str = "canonical";

/// Target of a request: the origin that answers, and what it is given besides messages.
///
/// What a model is given is a function of the log and the target. An answer's own forms, like signed reasoning, are
/// given if and only if the target is the origin of the answer, and everything before them is what was given then;
/// otherwise the answer is given as text and calls, which every model takes. The options of a request (effort, tool
/// choice, output schema, limit of tokens) are not compared: a provider whose API signs one of them gets one refusal when
/// it changes, and the next answers are given back again.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/echo.rs"));
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
/// use agent_runtime::context::{ContextLimits, ModelContext, ModelMessage};
/// use agent_runtime::{EchoProvider, ModelTarget};
///
/// # let (agent, chat) = echo().await?;
/// chat.prompt("Hello").await?.finish().await?;
/// let record = chat.refresh().await?;
/// let context = ModelContext::read(&*agent.storage().sessions, &record, ContextLimits::default()).await?;
/// let target = ModelTarget::of(&EchoProvider::new());
/// assert_eq!(target.messages(&context), [ModelMessage::user("Hello"), ModelMessage::agent("Hello")]);
/// # Ok(()) }
/// ```
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ModelTarget {
    /// Origin of the answer; without one no native items are given.
    pub origin: Option<ModelOrigin>,
    /// Name and version of the code that turns a request into bytes.
    pub rendering: String,
    /// Parts and options that the model takes.
    pub capabilities: ModelCapabilities,
    /// System prompt.
    pub system: Option<String>,
    /// Tools that are offered.
    pub tools: Vec<ToolSpec>,
}

/// Messages of a conversation as a target is given them. They grow with the conversation, and its requests share them.
pub(crate) struct Given {
    pub(crate) target: ModelTarget,
    without: Without,
    /// How far the messages are made of the conversation.
    assembled: Assembled,
    pub(crate) messages: Messages,
    /// Hash of all that the model is given; none for a target without an origin, to which no native item ever goes back.
    pub(crate) hash: Encoder,
    pub(crate) media: SeenMedia,
    /// True if the target has answered a request before.
    pub(crate) has_answered: bool,
    /// Bytes that are left for further media.
    pub(crate) room: u64,
}

/// What a request has in another form than the messages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Without {
    /// True if all native items are left out.
    pub(crate) native: bool,
    /// Media in whose place there is a line of text.
    pub(crate) media: BTreeSet<BlobName>,
}

/// Media of a request.
#[derive(Clone, Default)]
pub(crate) struct SeenMedia {
    /// Media that the target has refused in a request of the session.
    refused: BTreeSet<BlobName>,
    /// Those of them that the messages have, in whose place there is a line of text.
    pub(crate) left_out: BTreeSet<BlobName>,
    /// Media that were in a request which the target has answered.
    pub(crate) answered: BTreeSet<BlobName>,
    /// The other media.
    pub(crate) new: BTreeSet<BlobName>,
}

impl ModelTarget {
    /// Creates the target of a provider, without a system prompt and tools.
    pub fn of(provider: &(impl LlmProvider + ?Sized)) -> Self {
        Self {
            origin: provider.origin(),
            rendering: provider.rendering().to_owned(),
            capabilities: provider.capabilities(),
            system: None,
            tools: Vec::new(),
        }
    }

    setters! {
        /// Sets the system prompt.
        pub fn with_system(system: impl Into<Option<String>>) => system = system.into();

        /// Sets the tools that are offered.
        pub fn with_tools(tools: impl IntoIterator<Item = ToolSpec>) => tools = tools.into_iter().collect();
    }

    /// Returns the messages of a context as the target is given them.
    ///
    /// Takes one pass over the messages.
    pub fn messages(&self, context: &ModelContext) -> Messages {
        Given::new(self.clone(), Without::default()).add(context.given()).into()
    }

    /// Returns about how much memory it takes, in bytes.
    pub(crate) fn size_bytes(&self) -> usize {
        let tool = |tool: &ToolSpec| tool.name.len() + tool.description.len() + tool.input.get().len();
        self.system.as_ref().map_or(0, String::len) + self.tools.iter().map(tool).sum::<usize>()
    }

    /// Returns whether this target has made an answer, as far as the log says.
    fn answered(&self, said: &AgentMessage) -> bool {
        said.response.as_ref().and_then(|response| response.origin.as_ref()) == self.origin.as_ref()
    }

    /// Returns whether this target has made an answer, and was given what is encoded.
    fn made(&self, response: &AgentResponse, before: &Encoder) -> bool {
        self.origin.is_some()
            && response.origin == self.origin
            && response.given.is_some()
            && response.given == before.hex()
    }

    /// Returns the message without the parts that the model does not take. `is_answered` says that the model has answered
    /// a request with the message.
    fn fitted(&self, mut message: ModelMessage, is_answered: bool, media: &mut SeenMedia) -> ModelMessage {
        let mut fit = |part: &mut Part| {
            self.fit(part);
            media.see(part, is_answered);
        };
        match &mut message {
            ModelMessage::User(Content { parts }) => parts.iter_mut().for_each(fit),
            ModelMessage::ToolResults(results) => {
                results.iter_mut().flat_map(|result| &mut result.content).for_each(fit);
            }
            ModelMessage::Agent(said) => {
                for item in said.items.iter_mut().filter(|item| item.native.is_none()) {
                    let ItemContent::Part(part) = &mut item.content else { continue };
                    fit(part);
                    if let Part::Text { text: Some(text), .. } = part {
                        *item = AgentItem::text(std::mem::take(text));
                    }
                }
            }
            ModelMessage::Summary(_) | ModelMessage::System(_) => {}
        }
        message
    }

    /// Replaces a part that the model does not take by a text, which depends on the part and the kind alone.
    fn fit(&self, part: &mut Part) {
        let kind = match part {
            Part::Image(_) => MediaKind::Image,
            Part::Audio(_) => MediaKind::Audio,
            Part::Video(_) => MediaKind::Video,
            Part::Resource(_) => MediaKind::File,
            // An address is a text.
            Part::ResourceLink(_) => return *part = Part::text(part.text_view("").unwrap_or_default()),
            _ => return,
        };
        if !self.capabilities.takes(kind) {
            *part = Part::text(format!(
                "{} (left out: this model does not take it)",
                part.text_view("").unwrap_or_default()
            ));
        }
    }
}

impl Given {
    pub(crate) fn new(target: ModelTarget, without: Without) -> Self {
        let mut hash = Encoder(target.origin.is_some().then(Sha256::new));
        hash.text("rendering", &target.rendering);
        hash.option("system", target.system.as_deref());
        for tool in &target.tools {
            hash.text("tool", &tool.name);
            hash.text("description", &tool.description);
            hash.text("input", tool.input.get());
        }
        let media = SeenMedia { refused: without.media.clone(), ..SeenMedia::default() };
        let (assembled, messages, room) = (Assembled::default(), Messages::default(), MEDIA_MAX_BYTES);
        Self { target, without, assembled, messages, hash, media, has_answered: false, room }
    }

    /// Returns what a target is given of a conversation, and further messages that the caller adds to it after it has loaded
    /// their media. It continues what was given before, if that is given as it was.
    pub(crate) fn of(
        target: ModelTarget,
        without: &Without,
        context: &ModelContext,
        before: Option<Self>,
    ) -> (Self, Vec<ModelMessage>) {
        let before = before.filter(|before| before.target == target && before.without == *without);
        let continued = before.and_then(|mut before| {
            let further = context.further(&mut before.assembled)?;
            before.stays(&further).then_some((before, further))
        });
        let (mut given, further) = continued.unwrap_or_else(|| {
            let mut given = Self::new(target, without.clone());
            let all = context.further(&mut given.assembled).unwrap_or_default();
            (given, all)
        });
        let further = given.add(further);
        (given, further)
    }

    /// Returns whether no further answer says that the provider has refused a part of the messages before it.
    fn stays(&self, further: &[ModelMessage]) -> bool {
        let is_known = |name| self.media.refused.contains(name);
        further.iter().filter_map(response_of).all(|response| {
            (self.without.native || !is_canonical(response))
                && (response.origin != self.target.origin || response.left_out.iter().all(is_known))
        })
    }

    /// Returns further messages of the conversation as the target is given them.
    fn add(&mut self, further: Vec<ModelMessage>) -> Vec<ModelMessage> {
        let Self { target, without, hash, media, .. } = self;
        // The provider has refused the items before it.
        let from = further.iter().rposition(|message| response_of(message).is_some_and(is_canonical));
        for response in further.iter().filter_map(response_of) {
            if response.origin == target.origin {
                media.refused.extend(&response.left_out);
            }
        }
        let own =
            |message: &ModelMessage| matches!(message, ModelMessage::Agent(said) if target.answered(said));
        let answered = further.iter().rposition(own);
        if answered.is_some() {
            self.has_answered = true;
            media.answered.append(&mut media.new);
        }
        let mut given = Vec::with_capacity(further.len());
        for (at, message) in further.into_iter().enumerate() {
            let message = match message {
                ModelMessage::Agent(mut said) => {
                    let response = said.response.take();
                    let is_same = !without.native
                        && from.is_none_or(|from| at >= from)
                        && response.is_some_and(|response| target.made(&response, hash));
                    ModelMessage::Agent(if is_same { said } else { said.canonical() })
                }
                message => message,
            };
            let message = target.fitted(message, answered.is_some_and(|last| at < last), media);
            if !matches!(&message, ModelMessage::Agent(said) if said.items.is_empty()) {
                hash.message(&message);
                given.push(message);
            }
        }
        given
    }
}

/// Returns what the log says of an answer.
fn response_of(message: &ModelMessage) -> Option<&AgentResponse> {
    if let ModelMessage::Agent(said) = message { said.response.as_deref() } else { None }
}

/// Returns whether an answer was made without native items, because the provider had refused some.
fn is_canonical(response: &AgentResponse) -> bool {
    response.replay.as_deref() == Some(CANONICAL)
}

impl SeenMedia {
    /// Notes a medium, and replaces one that is left out by a text.
    fn see(&mut self, part: &mut Part, is_answered: bool) {
        let Some(name) = part.media().map(Media::digest) else { return };
        if self.refused.contains(&name) {
            let line = part.text_view("").unwrap_or_default();
            *part = Part::text(format!("{line} (left out: the provider refused it)"));
            self.left_out.insert(name);
        } else if is_answered {
            self.answered.insert(name);
        } else if !self.answered.contains(&name) {
            self.new.insert(name);
        }
    }
}

/// Canonical encoding of what a model is given, hashed while it grows: each value after its tag and its length. Without
/// a hash, it encodes nothing.
#[derive(Clone)]
pub(crate) struct Encoder(Option<Sha256>);

impl Encoder {
    fn bytes(&mut self, tag: &str, bytes: &[u8]) {
        let Some(hash) = &mut self.0 else { return };
        for field in [tag.as_bytes(), bytes] {
            hash.update((field.len() as u64).to_be_bytes());
            hash.update(field);
        }
    }

    fn text(&mut self, tag: &str, text: &str) {
        self.bytes(tag, text.as_bytes());
    }

    fn option(&mut self, tag: &str, text: Option<&str>) {
        if let Some(text) = text {
            self.text(tag, text);
        }
    }

    fn json(&mut self, tag: &str, value: &impl serde::Serialize) {
        self.text(tag, RawJson::of(value).as_ref().map_or("", RawJson::get));
    }

    fn message(&mut self, message: &ModelMessage) {
        if self.0.is_none() {
            return;
        }
        match message {
            ModelMessage::Summary(text) => self.text("summary", text),
            ModelMessage::System(text) => self.text("injected", text),
            ModelMessage::User(content) => {
                self.bytes("user", &(content.parts.len() as u64).to_be_bytes());
                content.parts.iter().for_each(|part| self.part(part));
            }
            ModelMessage::Agent(said) => {
                self.bytes("agent", &(said.items.len() as u64).to_be_bytes());
                said.items.iter().for_each(|item| self.item(item));
            }
            ModelMessage::ToolResults(results) => {
                self.bytes("results", &(results.len() as u64).to_be_bytes());
                results.iter().for_each(|result| self.result(result));
            }
        }
    }

    fn item(&mut self, item: &AgentItem) {
        match &item.content {
            ItemContent::Text { text, citations } => {
                self.text("text", text);
                self.json("citations", citations);
            }
            ItemContent::Reasoning(text) => self.text("reasoning", text),
            ItemContent::Call(call) => {
                self.text("call", call.call.as_str());
                self.text("name", &call.name);
                self.text("input", call.input.get());
            }
            ItemContent::Part(part) => self.part(part),
        }
        if let Some(native) = &item.native {
            self.text("api", &native.api);
            self.text("native", native.item.get());
        }
    }

    fn result(&mut self, result: &ModelToolResult) {
        self.text("result", result.call.as_str());
        self.json("outcome", &result.outcome);
        self.text("output", &result.output);
        self.bytes("content", &(result.content.len() as u64).to_be_bytes());
        result.content.iter().for_each(|part| self.part(part));
    }

    fn part(&mut self, part: &Part) {
        match part.media() {
            Some(media) => self.media(&part.tag(), media),
            None => self.json("part", part),
        }
    }

    /// Encodes a medium by its bytes, so that it does not matter how a log keeps them.
    fn media(&mut self, tag: &str, media: &Media) {
        self.text("medium", tag);
        self.text("type", &media.media_type);
        self.option("name", media.name.as_deref());
        self.json("extra", &media.extra);
        match &media.source {
            MediaSource::Inline(bytes) => self.text("sha256", &hex(&Sha256::digest(bytes))),
            MediaSource::Blob { sha256, .. } => self.text("sha256", &sha256.to_string()),
            MediaSource::Uri(uri) => self.text("uri", uri),
            // The enum is open for later sources.
            _ => {}
        }
    }

    /// Returns the SHA-256, in hexadecimal.
    pub(crate) fn hex(&self) -> Option<String> {
        self.0.clone().map(|hash| hex(&hash.finalize()))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]
mod tests {
    use super::*;
    use agent_core::event::{Native, ToolOutcome, ToolUse};

    fn answer(target: &ModelTarget, given: &str) -> ModelMessage {
        let native = Native::new("x", RawJson::constant(r#"{"signature":"EqQB"}"#));
        let call = ToolUse::new("c1".parse().unwrap(), "look", RawJson::empty_object());
        let items = vec![AgentItem::reasoning("hm").with_native(native), AgentItem::call(call)];
        let mut said = AgentMessage::from(items);
        let mut response = AgentResponse::default();
        (response.origin, response.given) = (target.origin.clone(), Some(given.to_owned()));
        said.response = Some(Box::new(response));
        ModelMessage::Agent(said)
    }

    fn target() -> ModelTarget {
        ModelTarget {
            origin: Some(ModelOrigin::new("x", "x", "x-1")),
            rendering: "provider/1".to_owned(),
            capabilities: ModelCapabilities::all(),
            system: Some("Be brief.".to_owned()),
            tools: vec![ToolSpec::new("look", "looks")],
        }
    }

    fn cat() -> Part {
        Part::Image(Media::inline("image/png", *b"cat").with_name("cat.png"))
    }

    fn asked() -> Vec<ModelMessage> {
        vec![
            ModelMessage::Summary("They met.".to_owned()),
            ModelMessage::System("It rains.".to_owned()),
            ModelMessage::user(vec![Part::text("What is this?"), cat()]),
        ]
    }

    fn results() -> ModelMessage {
        let mut result = ModelToolResult::new("c1".parse().unwrap(), ToolOutcome::Ok, "seen");
        result.content.push(cat());
        ModelMessage::ToolResults(vec![result])
    }

    /// Logs keep these hashes: another encoding would cost the reasoning of all sessions.
    #[test]
    fn hash_of_a_request_is_stable() {
        let target = target();
        let given = |messages: Vec<ModelMessage>, native| {
            let mut given = Given::new(target.clone(), Without { native, ..Without::default() });
            let messages = given.add(messages);
            (messages, given.hash.hex().unwrap())
        };
        let (_, before) = given(asked(), false);
        assert_eq!(before, "5ae0541712cd7115bc619ebbdd512d7bf0898cf4651526578c265c44951853a9");
        let mut messages = asked();
        messages.extend([answer(&target, &before), results()]);
        let (sent, hash) = given(messages.clone(), false);
        assert_eq!(hash, "b9fdfdfa551d5845462d3b5cf24481c10c9355fdf9b5706b7f8b08f2d10561dc");
        let ModelMessage::Agent(said) = &sent[3] else { panic!("the answer is there") };
        assert!(said.response.is_none() && said.items.len() == 2);
        let (canonical, other) = given(messages, true);
        let ModelMessage::Agent(said) = &canonical[3] else { panic!("the answer is there") };
        assert_eq!((said.items.len(), said.calls().count()), (1, 1));
        assert_ne!(other, hash);
    }
    #[test]
    fn a_conversation_is_given_in_steps_as_it_is_at_once() {
        let mut steps = Given::new(target(), Without::default());
        let mut sent = steps.add(asked());
        assert_eq!((steps.media.new.len(), steps.media.answered.len(), steps.has_answered), (1, 0, false));
        let further = vec![answer(&target(), &steps.hash.hex().unwrap()), results()];
        let mut whole = Given::new(target(), Without::default());
        let at_once = whole.add([asked(), further.clone()].concat());
        assert!(steps.stays(&further));
        sent.extend(steps.add(further.clone()));
        assert_eq!((&sent, steps.hash.hex()), (&at_once, whole.hash.hex()));
        for given in [&steps, &whole] {
            assert_eq!((given.media.new.len(), given.media.answered.len(), given.has_answered), (0, 1, true));
        }

        // The earlier messages are given in another form after an answer that says what the provider has refused.
        let mut refusing = further;
        let ModelMessage::Agent(AgentMessage { response: Some(response), .. }) = &mut refusing[0] else {
            panic!("the answer is there")
        };
        response.replay = Some(CANONICAL.to_owned());
        assert!(!steps.stays(&refusing));
        let ModelMessage::Agent(AgentMessage { response: Some(response), .. }) = &mut refusing[0] else {
            panic!("the answer is there")
        };
        (response.replay, response.left_out) = (None, cat().media().map(Media::digest).into_iter().collect());
        assert!(!steps.stays(&refusing));
        assert!(!format!("{:?}", Given::new(target(), Without::default()).add(refusing)).contains("Image"));
    }
}
