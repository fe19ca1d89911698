//! Exports of ChatGPT: `conversations.json`, a list of conversations.
//!
//! `mapping` has the messages of a conversation by their ids, each with its `parent` and its `children`: an answer that was given again, and
//! a message that was written anew, leave a branch. `current_node` is the last message of the branch that is shown. A message of the assistant to another
//! `recipient` than `all` is a call of a tool, and the message of a tool after it is the result. Images and files are named only.
//!
//! The format has no specification; this is what exports of the years 2023 to 2026 hold.

use agent_core::Seq;
use agent_core::event::{
    AgentResponse, Citation, EventPayload, Media, Message, ModelOrigin, Part, SystemMessage,
};
use agent_core::json::RawJson;

use crate::formats::export::{Conversations, Members, Node};
use crate::source::{Entry, Item, Notes, Transcript};
use crate::text::clip;
use crate::{call, pairing};

/// API of the answers. It is none that a program can call.
const API: &str = "openai.chatgpt";

/// Maximum number of parts and of citations of one message.
const PARTS_MAX: usize = 64;

/// Conversations of ChatGPT.
#[derive(Debug, Default)]
pub(crate) struct ChatGpt {
    /// Id of the message that called a tool, until the tool has answered.
    open: Option<String>,
}

impl Conversations for ChatGpt {
    fn about(&self, conversation: &Members<'_>) -> Option<Transcript> {
        let name = conversation.text("conversation_id").or_else(|| conversation.text("id"))?;
        let model = conversation.text("default_model_slug").map(|model| ("model", model));
        let about = model.into_iter().collect();
        let (title, at) = (conversation.text("title"), conversation.time("create_time"));
        Some(Transcript { name, title, about, at, ..Transcript::default() })
    }

    fn nodes<'a>(&self, conversation: &Members<'a>) -> Vec<Node<'a>> {
        let mapping = conversation.object("mapping").0.into_iter();
        let nodes = mapping.map(|(id, node)| {
            let members = Members::of(node.get());
            let children = members.list("children").into_iter();
            let role = members.object("message").object("author").text("role");
            Node {
                id: id.into_owned(),
                parent: members.text("parent"),
                children: children.filter_map(|child| serde_json::from_str(child.get()).ok()).collect(),
                is_turn: matches!(role.as_deref(), Some("user" | "assistant")),
                json: members.get("message").unwrap_or_default(),
            }
        });
        nodes.collect()
    }

    fn current(&self, conversation: &Members<'_>) -> Option<String> {
        conversation.text("current_node")
    }

    fn begin(&mut self) {
        self.open = None;
    }

    fn items(&mut self, id: &str, json: &str, entry: &mut Entry, notes: &mut Notes) {
        if matches!(json, "" | "null") {
            // The root of a tree has no message.
            return;
        }
        let message = Members::of(json);
        entry.at = message.time("create_time");
        let (content, metadata) = (message.object("content"), message.object("metadata"));
        let role = message.object("author").text("role").unwrap_or_default();
        let kind = content.text("content_type").unwrap_or_default();
        let is_hidden = metadata.get("is_visually_hidden_from_conversation") == Some("true");
        match &*role {
            "user" if !is_hidden && !kind.ends_with("_context") => {
                let parts = parts(&content, notes);
                if !parts.is_empty() {
                    entry.begins_turn = true;
                    entry.items.push(Item::Event(EventPayload::UserMessage(Message::of_parts(parts))));
                }
            }
            "user" | "system" => entry.items.extend(injected(&text(&content))),
            "assistant" => self.assistant(id, &message, &kind, entry, notes),
            "tool" => self.tool(&content, entry, notes),
            _ => notes.count(format!("messages of the role {role}")),
        }
    }
}

impl ChatGpt {
    fn assistant(
        &mut self,
        id: &str,
        message: &Members<'_>,
        kind: &str,
        entry: &mut Entry,
        notes: &mut Notes,
    ) {
        let (content, metadata) = (message.object("content"), message.object("metadata"));
        let recipient = message.text("recipient").unwrap_or_default();
        let payload = match kind {
            "thoughts" => EventPayload::AgentThinking(Message::new(text(&content))),
            "reasoning_recap" => {
                notes.count("messages of type reasoning_recap");
                return;
            }
            "model_editable_context" => {
                entry.items.extend(injected(&text(&content)));
                return;
            }
            _ if !matches!(&*recipient, "" | "all") => {
                self.open = Some(id.to_owned());
                EventPayload::AgentToolUse(call::call(id, &recipient, Ok(input(&text(&content)))))
            }
            _ => {
                let parts = parts(&content, notes);
                let cited = citations(&metadata);
                match parts.is_empty() {
                    true => return,
                    false => {
                        let message =
                            cited.into_iter().fold(Message::of_parts(parts), Message::with_citation);
                        EventPayload::AgentMessage(message)
                    }
                }
            }
        };
        let is_empty = matches!(&payload, EventPayload::AgentThinking(message) if message.text.is_empty());
        if !is_empty {
            entry.items.push(Item::Event(payload));
        }
        let model =
            metadata.text("model_slug").map(|model| clip(&model, 256)).filter(|model| !model.is_empty());
        if let Some(model) = model {
            let response = AgentResponse::new(Seq::ZERO).with_origin(ModelOrigin::new(API, "openai", model));
            let stop = metadata.object("finish_details").text("type").map(|stop| clip(&stop, 128));
            let response = match stop.filter(|stop| !stop.is_empty()) {
                Some(stop) => response.with_stop(stop),
                None => response,
            };
            entry.items.push(Item::Event(EventPayload::AgentResponse(response)));
        }
    }

    /// Adds the output of a tool: the first after a call is its result.
    fn tool(&mut self, content: &Members<'_>, entry: &mut Entry, notes: &mut Notes) {
        let is_error = content.text("content_type").as_deref() == Some("system_error");
        let parts = parts(content, notes);
        let message = Message::of_parts(parts);
        let Some(open) = self.open.take() else {
            notes.count("outputs of tools without a call of their own, which are kept as texts");
            entry.items.extend(injected(&message.text_view()));
            return;
        };
        let result = pairing::result(call::id(&open), is_error, &message.text);
        let media = message.parts.into_iter().filter(|part| part.media().is_some());
        let result = media.fold(result, agent_core::event::ToolResult::with_part);
        entry.items.push(Item::Event(EventPayload::AgentToolResult(result)));
    }
}

/// Returns a text that the program put into a conversation; none for an empty one.
fn injected(text: &str) -> Option<Item> {
    let message = SystemMessage::injected(text);
    (!text.trim().is_empty()).then_some(Item::Event(EventPayload::SystemMessage(message)))
}

/// Returns the input of a call, which is JSON or any text.
fn input(text: &str) -> RawJson {
    #[derive(serde::Serialize)]
    struct Input<'a> {
        input: &'a str,
    }
    let json = RawJson::parse(text).ok().filter(|json| json.get().starts_with('{'));
    json.unwrap_or_else(|| RawJson::sure(&Input { input: text }))
}

/// Returns the parts of a content.
fn parts(content: &Members<'_>, notes: &mut Notes) -> Vec<Part> {
    let mut parts = Vec::new();
    if content.get("parts").is_none() {
        parts.push(Part::text(text(content)));
    }
    for part in content.list("parts") {
        if parts.len() == PARTS_MAX {
            notes.count("parts beyond 64 in one message");
            break;
        }
        parts.extend(one_part(part.get(), notes));
    }
    parts.retain(|part| !matches!(part, Part::Text { text: Some(text), .. } if text.trim().is_empty()));
    parts
}

/// Returns one part: a text, or an object with a type of its own.
fn one_part(json: &str, notes: &mut Notes) -> Option<Part> {
    if let Ok(text) = serde_json::from_str::<String>(json) {
        return Some(Part::text(text));
    }
    let fields = Members::of(json);
    let kind = fields.text("content_type").unwrap_or_default();
    if let Some(text) = fields.text("text") {
        return Some(Part::text(text));
    }
    if let Some(address) = fields.text("asset_pointer").filter(|address| !address.is_empty()) {
        notes.count("media that are named only, since they are in files of their own");
        let media_type = if kind.contains("audio") { "audio/*" } else { "image/*" };
        return Some(Part::ResourceLink(Media::uri(media_type, address)));
    }
    notes.count(format!("parts of type {kind}"));
    None
}

/// Returns the text of a content of any type: its members that hold text, in their order.
fn text(content: &Members<'_>) -> String {
    let mut texts: Vec<String> = Vec::new();
    for name in
        ["text", "result", "summary", "content", "model_set_context", "user_profile", "user_instructions"]
    {
        texts.extend(content.text(name));
    }
    for part in content.list("parts") {
        texts.extend(serde_json::from_str::<String>(part.get()));
    }
    for thought in content.list("thoughts") {
        let thought = Members::of(thought.get());
        texts.extend(thought.text("summary"));
        texts.extend(thought.text("content"));
    }
    texts.retain(|text| !text.trim().is_empty());
    texts.join("\n\n")
}

/// Returns the sources that a message cites. Their ranges count characters of another text, and are left out.
fn citations(metadata: &Members<'_>) -> Vec<Citation> {
    let cited = metadata.list("citations").into_iter().filter_map(|cited| {
        let source = Members::of(cited.get()).object("metadata");
        let citation = Citation::new(source.text("url")?);
        Some(match source.text("title") {
            Some(title) => citation.with_title(title),
            None => citation,
        })
    });
    cited.take(PARTS_MAX).collect()
}
