//! Blocks of Anthropic's Messages API, as transcripts keep them.
//!
//! The shapes are those of <https://platform.claude.com/docs/en/api/messages>.

use agent_core::Seq;
use agent_core::event::{
    AgentPart, AgentResponse, EventPayload, HostedCall, HostedResult, Media, Message, ModelOrigin, Native,
    Part, SystemMessage, ToolResult,
};
use agent_core::json::{RawFields, RawJson};
use agent_core::model::Usage;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::call;
use crate::pairing;
use crate::source::{Item, Notes};
use crate::text::clip;

/// API of the native items.
const API: &str = "anthropic.messages";

/// Returns the text of a member.
pub(crate) fn text(fields: &RawFields, name: &str) -> Option<String> {
    fields.get(name)?.to().ok()
}

/// Returns the blocks of a content, which is a text or a list of blocks.
fn blocks(content: &RawJson) -> Vec<RawJson> {
    match content.to::<String>() {
        Ok(text) => vec![RawJson::sure(&TextBlock { kind: "text", text: &text })],
        Err(_) => content.to().unwrap_or_default(),
    }
}

#[derive(serde::Serialize)]
struct TextBlock<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    text: &'a str,
}

/// Returns what a person wrote, and the results of tools that came with it. The message is the last item, if there is one.
pub(crate) fn user(content: &RawJson, notes: &mut Notes) -> (Vec<Item>, Option<Message>) {
    let (mut items, mut parts) = (Vec::new(), Vec::new());
    for block in blocks(content) {
        let fields: RawFields = block.to().unwrap_or_default();
        match text(&fields, "type").as_deref() {
            Some("tool_result") => {
                items.push(Item::Event(EventPayload::AgentToolResult(result(&fields, notes))));
            }
            Some(_) => parts.extend(part(&fields, block, notes)),
            None => notes.count("blocks without a type"),
        }
    }
    let is_empty =
        parts.iter().all(|part| matches!(part, Part::Text { text: Some(text), .. } if text.is_empty()));
    (items, (!is_empty).then(|| Message::of_parts(parts)))
}

/// Returns a block of a message of a person, or of an output, as a part.
fn part(fields: &RawFields, block: RawJson, notes: &mut Notes) -> Option<Part> {
    let kind = text(fields, "type").unwrap_or_default();
    match &*kind {
        "text" => Some(Part::text(text(fields, "text")?)),
        "image" | "document" => match media(fields) {
            Some(media) if kind == "image" => Some(Part::Image(media)),
            Some(media) => Some(Part::Resource(media)),
            None => {
                notes.count(format!("blocks of type {kind} without their data"));
                None
            }
        },
        _ => {
            notes.count(format!("blocks of type {}, which are kept as they are", clip(&kind, 40)));
            Some(Part::Other(block))
        }
    }
}

/// Returns the medium of an image or a document.
fn media(fields: &RawFields) -> Option<Media> {
    let source: RawFields = fields.get("source")?.to().ok()?;
    let media_type = text(&source, "media_type");
    let medium = match text(&source, "type").as_deref() {
        Some("base64") => {
            let bytes = STANDARD.decode(text(&source, "data")?).ok()?;
            Media::inline(media_type.as_deref().unwrap_or("application/octet-stream"), bytes)
        }
        Some("text") => Media::inline("text/plain", text(&source, "data")?.into_bytes()),
        Some("url") => Media::uri(media_type.as_deref().unwrap_or("image/*"), text(&source, "url")?),
        _ => return None,
    };
    let name = text(fields, "title").map(|name| clip(&name, 512)).filter(|name| !name.is_empty());
    Some(match name {
        Some(name) => medium.with_name(name),
        None => medium,
    })
}

/// Returns the result of a tool.
fn result(fields: &RawFields, notes: &mut Notes) -> ToolResult {
    let id = call::id(&text(fields, "tool_use_id").unwrap_or_default());
    let is_error = fields.get("is_error").and_then(|it| it.to::<bool>().ok()).unwrap_or_default();
    let content = fields.get("content").map(blocks).unwrap_or_default();
    let (mut texts, mut parts, mut is_plain) = (Vec::new(), Vec::new(), true);
    for block in content {
        let fields: RawFields = block.to().unwrap_or_default();
        let part = part(&fields, block, notes);
        match &part {
            Some(Part::Text { text: Some(text), .. }) => texts.push(text.clone()),
            _ => is_plain = false,
        }
        parts.extend(part);
    }
    let mut result = pairing::result(id, is_error, &texts.join("\n"));
    if !is_plain {
        for part in parts {
            result = result.with_part(part);
        }
    }
    result
}

/// Returns the items of an answer.
pub(crate) fn assistant(content: &RawJson, notes: &mut Notes) -> Vec<Item> {
    let mut items = Vec::new();
    for block in blocks(content) {
        let fields: RawFields = block.to().unwrap_or_default();
        let get = |name: &str| text(&fields, name);
        let native = || Native::new(API, block.clone());
        let payload = match get("type").as_deref() {
            Some("text") => match get("text") {
                Some(text) if !text.trim().is_empty() => {
                    let message = Message::new(text);
                    let has_more = fields.iter().any(|(name, value)| {
                        !matches!(name, "type" | "text") && value.get() != "null" && value.get() != "[]"
                    });
                    EventPayload::AgentMessage(if has_more { message.with_native(native()) } else { message })
                }
                // Providers refuse it in a history.
                _ => {
                    notes.count("blank texts of the agent");
                    continue;
                }
            },
            Some("thinking") => {
                let text = get("thinking").unwrap_or_default();
                EventPayload::AgentThinking(Message::new(text).with_native(native()))
            }
            Some("redacted_thinking") => EventPayload::AgentThinking(Message::new("").with_native(native())),
            Some("tool_use") => {
                let input = fields.get("input").cloned().unwrap_or_else(RawJson::empty_object);
                let input =
                    if input.get().starts_with('{') { Ok(input) } else { Err(input.get().to_owned()) };
                let (id, name) = (get("id").unwrap_or_default(), get("name").unwrap_or_default());
                EventPayload::AgentToolUse(call::call(&id, &name, input))
            }
            Some(kind) => {
                let (kind, name) = (kind.to_owned(), get("name").map(|name| clip(&name, 128)));
                let hosted = hosted(&kind, name, &fields);
                let part = hosted.unwrap_or_else(|| {
                    notes.count(format!("blocks of type {}, which are kept as they are", clip(&kind, 40)));
                    Part::Other(block.clone())
                });
                EventPayload::AgentPart(AgentPart::new(part).with_native(native()))
            }
            None => {
                notes.count("blocks without a type");
                continue;
            }
        };
        items.push(Item::Event(payload));
    }
    items
}

/// Returns a call that the provider ran itself, or its result.
fn hosted(kind: &str, name: Option<String>, fields: &RawFields) -> Option<Part> {
    let short = |name: &str| text(fields, name).map(|text| clip(&text, 128)).filter(|text| !text.is_empty());
    if kind == "server_tool_use" {
        let mut hosted = HostedCall::new(name.filter(|name| !name.is_empty())?);
        hosted.call = short("id");
        hosted.input = fields.get("input").cloned();
        return Some(Part::HostedCall(hosted));
    }
    kind.strip_suffix("_tool_result").filter(|_| fields.get("content").is_some())?;
    let mut hosted = HostedResult::new(fields.get("content")?.clone());
    hosted.call = short("tool_use_id");
    Some(Part::HostedResult(hosted))
}

/// Returns the end of an answer, which names its model.
pub(crate) fn response(message: &RawFields) -> Option<Item> {
    let model = clip(&text(message, "model")?, 256);
    let mut response = AgentResponse::new(Seq::ZERO);
    if !model.is_empty() {
        response = response.with_origin(ModelOrigin::new(API, "anthropic", model));
    }
    if let Some(stop) =
        text(message, "stop_reason").map(|stop| clip(&stop, 128)).filter(|stop| !stop.is_empty())
    {
        response = response.with_stop(stop);
    }
    Some(Item::Event(EventPayload::AgentResponse(response)))
}

/// Returns the tokens of a request. Anthropic counts what a cache holds apart.
pub(crate) fn usage(message: &RawFields) -> Option<Usage> {
    let usage: RawFields = message.get("usage")?.to().ok()?;
    let number = |name: &str| usage.get(name).and_then(|it| it.to::<u64>().ok()).unwrap_or_default();
    let (read, written) = (number("cache_read_input_tokens"), number("cache_creation_input_tokens"));
    let input = number("input_tokens").saturating_add(read).saturating_add(written);
    Some(Usage::new(input, number("output_tokens")).with_cache(read, written))
}

/// Returns a text that a program put into a conversation.
pub(crate) fn injected(message: &Message) -> Item {
    Item::Event(EventPayload::SystemMessage(SystemMessage::injected(message.text_view())))
}
