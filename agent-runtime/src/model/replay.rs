//! Replay of a provider's own items, and the hash of the history that they belong to.

use std::collections::BTreeSet;

use sha2::{Digest, Sha256};

use crate::context::{
    AgentItem, AgentMessage, Content, ItemContent, ModelContext, ModelMessage, ModelToolResult,
};
use crate::model::hex;
use crate::model::options::{MediaKind, ModelCapabilities};
use crate::model::provider::{LlmProvider, ToolSpec};
use agent_core::BlobName;
use agent_core::event::{AgentResponse, Media, MediaSource, ModelOrigin, Part};
use agent_core::json::RawJson;

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
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
/// # use agent_core::MemoryStore;
/// # use agent_runtime::AgentBuilder;
/// use agent_runtime::context::{ContextLimits, ModelContext, ModelMessage};
/// use agent_runtime::{EchoProvider, ModelTarget};
///
/// # let agent = AgentBuilder::new().with_llm(EchoProvider::new()).with_storage(MemoryStore::new()).build()?;
/// # let chat = agent.conversation("support/4711").await?;
/// # chat.prompt("Hello").await?.finish().await?;
/// # let record = chat.refresh().await?;
/// # let sessions = &*agent.storage().sessions;
/// let context = ModelContext::read(sessions, &record, ContextLimits::default()).await?;
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

/// Messages for a target.
pub(crate) struct Given {
    pub(crate) messages: Vec<ModelMessage>,
    /// SHA-256 of all that the model is given, in hexadecimal; `None` for a target without an origin, to which no
    /// native item ever goes back.
    pub(crate) hash: Option<String>,
    /// Media in whose place there is a line of text, because the provider refused them.
    pub(crate) left_out: BTreeSet<BlobName>,
    /// Media of the messages that were in no request which the target has answered.
    pub(crate) new_media: BTreeSet<BlobName>,
    /// The other media of the messages.
    pub(crate) old_media: BTreeSet<BlobName>,
    /// True if the target has answered a request before.
    pub(crate) has_answered: bool,
}

/// What a request has in another form than the messages.
#[derive(Clone, Debug, Default)]
pub(crate) struct Without {
    /// True if all native items are left out.
    pub(crate) native: bool,
    /// Media in whose place there is a line of text.
    pub(crate) media: BTreeSet<BlobName>,
}

/// Media of a request: those that the target has refused, those that it has answered before, and the others.
#[derive(Default)]
struct SeenMedia {
    refused: BTreeSet<BlobName>,
    left_out: BTreeSet<BlobName>,
    answered: BTreeSet<BlobName>,
    new: BTreeSet<BlobName>,
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

    /// Sets the system prompt.
    pub fn with_system(mut self, system: impl Into<Option<String>>) -> Self {
        self.system = system.into();
        self
    }

    /// Sets the tools that are offered.
    pub fn with_tools(mut self, tools: impl IntoIterator<Item = ToolSpec>) -> Self {
        self.tools = tools.into_iter().collect();
        self
    }

    /// Returns the messages of a context as the target is given them.
    ///
    /// Takes one pass over the messages.
    pub fn messages(&self, context: &ModelContext) -> Vec<ModelMessage> {
        self.given(context.messages(), &Without::default()).messages
    }

    /// Returns the messages as the target is given them, and their hash.
    pub(crate) fn given(&self, messages: Vec<ModelMessage>, without: &Without) -> Given {
        let mut hash = Encoder(self.origin.is_some().then(Sha256::new));
        hash.text("rendering", &self.rendering);
        hash.option("system", self.system.as_deref());
        for tool in &self.tools {
            hash.text("tool", &tool.name);
            hash.text("description", &tool.description);
            hash.text("input", tool.input.get());
        }
        let is_marked = |message: &ModelMessage| {
            matches!(message, ModelMessage::Agent(AgentMessage { response: Some(response), .. })
                if response.replay.as_deref() == Some(CANONICAL))
        };
        // The provider has refused the items before it.
        let from = messages.iter().rposition(is_marked).unwrap_or(0);
        let own =
            |message: &ModelMessage| matches!(message, ModelMessage::Agent(said) if self.answered(said));
        let answered = messages.iter().rposition(own);
        let mut media = SeenMedia { refused: without.media.clone(), ..SeenMedia::default() };
        for message in &messages {
            if let ModelMessage::Agent(AgentMessage { response: Some(response), .. }) = message
                && response.origin == self.origin
            {
                media.refused.extend(&response.left_out);
            }
        }
        let mut given = Vec::with_capacity(messages.len());
        for (at, message) in messages.into_iter().enumerate() {
            let message = match message {
                ModelMessage::Agent(mut said) => {
                    let response = said.response.take();
                    let is_same = !without.native
                        && at >= from
                        && response.is_some_and(|response| self.made(&response, &hash));
                    ModelMessage::Agent(if is_same { said } else { said.canonical() })
                }
                message => message,
            };
            let message = self.fitted(message, answered.is_some_and(|last| at < last), &mut media);
            if !matches!(&message, ModelMessage::Agent(said) if said.items.is_empty()) {
                hash.message(&message);
                given.push(message);
            }
        }
        let new_media = media.new.difference(&media.answered).copied().collect();
        Given {
            messages: given,
            hash: hash.hex(),
            left_out: media.left_out,
            new_media,
            old_media: media.answered,
            has_answered: answered.is_some(),
        }
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

impl SeenMedia {
    /// Notes a medium, and replaces one that is left out by a text.
    fn see(&mut self, part: &mut Part, is_answered: bool) {
        let Some(name) = part.media().map(Media::digest) else { return };
        if self.refused.contains(&name) {
            let line = part.text_view("").unwrap_or_default();
            *part = Part::text(format!("{line} (left out: the provider refused it)"));
            self.left_out.insert(name);
        } else {
            let seen = if is_answered { &mut self.answered } else { &mut self.new };
            seen.insert(name);
        }
    }
}

/// Canonical encoding of what a model is given, hashed while it grows: each value after its tag and its length. Without
/// a hash, it encodes nothing.
#[derive(Clone)]
struct Encoder(Option<Sha256>);

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

    fn hex(&self) -> Option<String> {
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

    /// Logs keep these hashes: another encoding would cost the reasoning of all sessions.
    #[test]
    fn hash_of_a_request_is_stable() {
        let target = ModelTarget {
            origin: Some(ModelOrigin::new("x", "x", "x-1")),
            rendering: "provider/1".to_owned(),
            capabilities: ModelCapabilities::all(),
            system: Some("Be brief.".to_owned()),
            tools: vec![ToolSpec::new("look", "looks")],
        };
        let cat = Part::Image(Media::inline("image/png", *b"cat").with_name("cat.png"));
        let asked = vec![
            ModelMessage::Summary("They met.".to_owned()),
            ModelMessage::System("It rains.".to_owned()),
            ModelMessage::user(vec![Part::text("What is this?"), cat.clone()]),
        ];
        let before = target.given(asked.clone(), &Without::default()).hash.unwrap();
        assert_eq!(before, "5ae0541712cd7115bc619ebbdd512d7bf0898cf4651526578c265c44951853a9");
        let mut result = ModelToolResult::new("c1".parse().unwrap(), ToolOutcome::Ok, "seen");
        result.content.push(cat);
        let mut messages = asked;
        messages.extend([answer(&target, &before), ModelMessage::ToolResults(vec![result])]);
        let given = target.given(messages.clone(), &Without::default());
        assert_eq!(
            given.hash.as_deref().unwrap(),
            "b9fdfdfa551d5845462d3b5cf24481c10c9355fdf9b5706b7f8b08f2d10561dc"
        );
        let ModelMessage::Agent(said) = &given.messages[3] else { panic!("the answer is there") };
        assert!(said.response.is_none() && said.items.len() == 2);
        let canonical = target.given(messages, &Without { native: true, ..Without::default() });
        let ModelMessage::Agent(said) = &canonical.messages[3] else { panic!("the answer is there") };
        assert_eq!((said.items.len(), said.calls().count()), (1, 1));
        assert_ne!(canonical.hash, given.hash);
    }
}
