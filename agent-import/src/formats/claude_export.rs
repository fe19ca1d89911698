//! Exports of Claude: `conversations.json`, a list of conversations.
//!
//! `chat_messages` has the messages of a conversation in their order. Newer exports name the one before each in `parent_message_uuid`, so
//! that branches can be told apart; older ones have the shown branch only. `content` has blocks like those of the Messages API, with calls
//! and results in one message, and sometimes without ids; `text` has the same as a text. Attachments come with the text that was read of them, files with
//! their names only.
//!
//! The format has no specification; this is what exports of the years 2024 to 2026 hold.

use agent_core::event::{Citation, EventPayload, Media, Message, Part};
use agent_core::json::{RawFields, RawJson};

use crate::call;
use crate::formats::anthropic;
use crate::formats::export::{Conversations, Members, Node};
use crate::source::{Entry, Item, Notes, Transcript};
use crate::text::clip;

/// Maximum number of attachments and of citations of one message.
const PARTS_MAX: usize = 40;

/// Conversations of Claude.
#[derive(Debug, Default)]
pub(crate) struct ClaudeExport {
    /// Id of the last call that had no result yet.
    open: Option<String>,
}

impl Conversations for ClaudeExport {
    fn about(&self, conversation: &Members<'_>) -> Option<Transcript> {
        let (name, title) = (conversation.text("uuid")?, conversation.text("name"));
        let at = conversation.time("created_at");
        Some(Transcript { name, title, at, ..Transcript::default() })
    }

    fn nodes<'a>(&self, conversation: &Members<'a>) -> Vec<Node<'a>> {
        let (mut nodes, mut last) = (Vec::new(), None);
        for (number, message) in conversation.list("chat_messages").into_iter().enumerate() {
            let members = Members::of(message.get());
            let id = members.text("uuid").unwrap_or_else(|| format!("message {number}"));
            let parent = members.text("parent_message_uuid").or_else(|| last.take());
            last = Some(id.clone());
            nodes.push(Node { id, parent, children: Vec::new(), is_turn: true, json: message.get() });
        }
        nodes
    }

    fn begin(&mut self) {
        self.open = None;
    }

    fn items(&mut self, id: &str, json: &str, entry: &mut Entry, notes: &mut Notes) {
        let message = Members::of(json);
        entry.at = message.time("created_at");
        let mut blocks: Vec<RawJson> =
            message.list("content").into_iter().filter_map(|it| RawJson::parse(it.get()).ok()).collect();
        if blocks.is_empty() {
            let text = message.text("text").filter(|text| !text.trim().is_empty());
            blocks.extend(text.map(|text| RawJson::sure(&TextBlock { kind: "text", text })));
        }
        match message.text("sender").as_deref() {
            Some("human") => {
                let (items, found) = anthropic::user(&RawJson::sure(&blocks), notes);
                let attached = attached(&message, notes);
                entry.items = items;
                if found.is_some() || !attached.is_empty() {
                    let message = found.unwrap_or_default();
                    let message = attached.into_iter().fold(message, Message::with_part);
                    entry.begins_turn = true;
                    entry.items.push(Item::Event(EventPayload::UserMessage(message)));
                }
            }
            Some("assistant") => {
                for (number, block) in blocks.into_iter().enumerate() {
                    self.block(&format!("{id}/{number}"), &block, &mut entry.items, notes);
                }
            }
            _ => notes.count("messages of another sender than human or assistant"),
        }
    }
}

#[derive(serde::Serialize)]
struct TextBlock {
    #[serde(rename = "type")]
    kind: &'static str,
    text: String,
}

impl ClaudeExport {
    /// Adds a block of an answer. It is not what the API gave, and has no signature, so that it is not kept as such.
    fn block(&mut self, id: &str, block: &RawJson, items: &mut Vec<Item>, notes: &mut Notes) {
        let fields: RawFields = block.to().unwrap_or_default();
        let get = |name: &str| anthropic::text(&fields, name);
        let payload = match get("type").as_deref() {
            Some("text") => {
                let text = get("text").filter(|text| !text.trim().is_empty());
                let message = text.map(|text| {
                    citations(&fields).into_iter().fold(Message::new(text), Message::with_citation)
                });
                message.map(EventPayload::AgentMessage)
            }
            Some("thinking") => {
                let thought = get("thinking").filter(|text| !text.trim().is_empty());
                thought.map(|text| EventPayload::AgentThinking(Message::new(text)))
            }
            Some("tool_use") => {
                let id = get("id").filter(|id| !id.is_empty()).unwrap_or_else(|| id.to_owned());
                let input = fields.get("input").cloned().unwrap_or_else(RawJson::empty_object);
                let input =
                    if input.get().starts_with('{') { Ok(input) } else { Err(input.get().to_owned()) };
                let use_ = call::call(&id, &get("name").unwrap_or_default(), input);
                self.open = Some(id);
                Some(EventPayload::AgentToolUse(use_))
            }
            Some("tool_result") => {
                let mut fields = fields.clone();
                let id = get("tool_use_id").filter(|id| !id.is_empty()).or_else(|| self.open.take());
                fields.insert("tool_use_id", RawJson::sure(&id.unwrap_or_default()));
                items.extend(anthropic::user(&RawJson::sure(&[fields]), notes).0);
                return;
            }
            kind => {
                notes.count(format!("blocks of type {}", clip(kind.unwrap_or_default(), 40)));
                items.push(Item::Unknown { kind: "block".to_owned(), json: block.clone() });
                return;
            }
        };
        match payload {
            Some(payload) => items.push(Item::Event(payload)),
            None => notes.count("blank texts of the agent"),
        }
    }
}

/// Returns what was attached to a message, as far as the export has it.
fn attached(message: &Members<'_>, notes: &mut Notes) -> Vec<Part> {
    let mut parts = Vec::new();
    for attachment in message.list("attachments").into_iter().take(PARTS_MAX) {
        let fields = Members::of(attachment.get());
        let Some(text) = fields.text("extracted_content").filter(|text| !text.is_empty()) else {
            notes.count("attachments without their content");
            continue;
        };
        let media = Media::inline("text/plain", text.into_bytes());
        let name = fields.text("file_name").map(|name| clip(&name, 256)).filter(|name| !name.is_empty());
        parts.push(Part::Resource(match name {
            Some(name) => media.with_name(name),
            None => media,
        }));
    }
    let files = message.list("files").len().max(message.list("files_v2").len());
    if files > 0 {
        notes.add("files that the export does not have", files as u64);
    }
    parts
}

/// Returns the sources that a text cites. Their ranges count characters, and are left out.
fn citations(fields: &RawFields) -> Vec<Citation> {
    let cited: Vec<RawFields> = fields.get("citations").and_then(|it| it.to().ok()).unwrap_or_default();
    let sources = cited.iter().filter_map(|cited| {
        let details: RawFields = cited.get("details").and_then(|it| it.to().ok()).unwrap_or_default();
        let get = |name: &str| anthropic::text(&details, name).or_else(|| anthropic::text(cited, name));
        let citation = Citation::new(get("url")?);
        Some(match get("title") {
            Some(title) => citation.with_title(title),
            None => citation,
        })
    });
    sources.take(PARTS_MAX).collect()
}
