//! Messages of rig, as its conversations are saved.

use std::path::Path;

use agent_core::event::{AgentPart, EventPayload, Media, Native, Part, SystemMessage, ToolResult};
use agent_core::json::{RawFields, RawJson};

use crate::call;
use crate::files;
use crate::formats::values::{self, get, is_true, object, text};
use crate::pairing;
use crate::source::{Entry, Item, Notes};
use crate::text::clip;

/// Maximum number of bytes of an image that is in a file of its own.
const IMAGE_MAX_BYTES: u64 = 12 << 20;

/// Returns the texts of an entry.
pub(crate) fn words(entry: &RawFields) -> String {
    let message = object(get(entry, &["message"]));
    match get(&message, &["content"]) {
        Some(content) if content.get().starts_with('"') => content.to().unwrap_or_default(),
        content => {
            let blocks = values::list(content, &mut Notes::default());
            let texts = blocks.iter().filter_map(|it| text(&object(Some(it)), &["text"]));
            texts.collect::<Vec<_>>().join("\n")
        }
    }
}

/// Reads an entry of a conversation: a message, with who wrote it.
pub(crate) fn items(
    found: &RawFields,
    line: &RawFields,
    blobs: Option<&Path>,
    entry: &mut Entry,
    notes: &mut Notes,
) {
    let message = object(get(found, &["message"]));
    let author = object(get(found, &["author"]).or_else(|| get(line, &["by"])));
    // Who types has no author, or is one.
    let is_typed = get(&author, &["kind"]).is_none_or(|kind| kind.get() == "\"user\"");
    let blocks = values::list(get(&message, &["content"]), notes);
    match text(&message, &["role"]).as_deref() {
        Some("system") => {
            let message = SystemMessage::custom(text(&message, &["content"]).unwrap_or_default());
            entry.items.push(Item::Event(EventPayload::SystemMessage(message)));
        }
        Some("user") => {
            let mut said = Vec::new();
            for block in &blocks {
                let fields = object(Some(block));
                if text(&fields, &["type"]).as_deref() == Some("toolresult") {
                    entry.items.push(result(&fields, blobs, notes));
                } else {
                    said.extend(part(&fields, blobs, notes));
                }
            }
            let has_results = !entry.items.is_empty();
            if is_typed {
                if let Some(message) = values::user(said) {
                    entry.begins_turn = !has_results;
                    entry.items.push(message);
                }
            } else {
                entry.items.extend(values::injected(words(found)));
            }
        }
        Some("assistant") => {
            let origin = object(get(&message, &["origin"]));
            let [api, provider, model] =
                ["api", "provider", "model"].map(|name| text(&origin, &[name]).unwrap_or_default());
            for block in &blocks {
                entry.items.extend(answered(&object(Some(block)), &api, blobs, notes));
            }
            if entry.items.is_empty() {
                return;
            }
            let stop = get(&message, &["stop"]).map(|stop| {
                let named = object(Some(stop)).iter().next().map(|(name, _)| name.to_owned());
                stop.to::<String>().ok().or(named).unwrap_or_default()
            });
            entry.items.push(values::response(Some([&api, &provider, &model]), stop.as_deref()));
        }
        role => {
            notes.count(format!("messages of role {}", clip(role.unwrap_or("none"), 40)));
            entry.items.push(values::unknown("message", RawJson::sure(found)));
        }
    }
}

/// Returns an id of a call, which is of the provider or rig's own.
fn call_id(json: Option<&RawJson>) -> String {
    let plain = json.and_then(|json| json.to::<String>().ok());
    plain.or_else(|| text(&object(json), &["provider", "local"])).unwrap_or_default()
}

/// Returns the item of the provider that a block was read from, unless it was changed since.
fn native(block: &RawFields, api: &str) -> Option<Native> {
    let native = object(get(block, &["native"]));
    let item = get(&native, &["item"]).filter(|_| !api.is_empty() && !is_true(&native, &["edited"]))?;
    Some(Native::new(clip(api, 200), item.clone()))
}

fn answered(block: &RawFields, api: &str, blobs: Option<&Path>, notes: &mut Notes) -> Option<Item> {
    let kind = text(block, &["type"]).unwrap_or_default();
    let native = native(block, api);
    match &*kind {
        "text" => values::agent(text(block, &["text"]).unwrap_or_default(), native, notes),
        "reasoning" => Some(values::thinking(text(block, &["text"]).unwrap_or_default(), native)),
        "toolcall" => {
            let function = object(get(block, &["function"]));
            let input = match text(&function, &["invalid_arguments"]) {
                Some(wrong) => Err(wrong),
                None => values::input(get(&function, &["arguments"])),
            };
            let name = text(&function, &["name"]).unwrap_or_default();
            let mut call = call::call(&call_id(get(block, &["id"])), &name, input);
            call.native = native;
            Some(Item::Event(EventPayload::AgentToolUse(call)))
        }
        "image" => {
            let mut part = AgentPart::new(part(block, blobs, notes)?);
            part.native = native;
            Some(Item::Event(EventPayload::AgentPart(part)))
        }
        _ => {
            notes.count(format!("blocks of type {}", clip(&kind, 40)));
            Some(values::unknown(&kind, RawJson::sure(block)))
        }
    }
}

fn result(block: &RawFields, blobs: Option<&Path>, notes: &mut Notes) -> Item {
    let id = call::id(&call_id(get(block, &["call"])));
    let (mut texts, mut parts, mut is_plain) = (Vec::new(), Vec::new(), true);
    for content in values::list(get(block, &["content"]), notes) {
        let fields = object(Some(&content));
        match (text(&fields, &["type"]).as_deref(), get(&fields, &["value"])) {
            (Some("json"), Some(value)) => {
                texts.push(value.get().to_owned());
                parts.push(Part::text(value.get()));
            }
            _ => {
                let part = part(&fields, blobs, notes);
                match &part {
                    Some(Part::Text { text: Some(text), .. }) => texts.push(text.clone()),
                    _ => is_plain = false,
                }
                parts.extend(part);
            }
        }
    }
    let result = pairing::result(id, is_true(block, &["is_error"]), &texts.join("\n"));
    let result = if is_plain { result } else { parts.into_iter().fold(result, ToolResult::with_part) };
    Item::Event(EventPayload::AgentToolResult(result))
}

/// Returns a block of a message of a person, or of a result.
fn part(block: &RawFields, blobs: Option<&Path>, notes: &mut Notes) -> Option<Part> {
    let kind = text(block, &["type"]).unwrap_or_default();
    match &*kind {
        "text" => return text(block, &["text"]).map(Part::text),
        "image" | "audio" | "video" | "document" => {
            if let Some(media) = media(&kind, block, blobs) {
                return Some(if kind == "document" { Part::Resource(media) } else { values::media(media) });
            }
            notes.count(format!("blocks of type {kind} without their data"));
        }
        _ => notes.count(format!("blocks of type {}", clip(&kind, 40))),
    }
    None
}

fn media(kind: &str, block: &RawFields, blobs: Option<&Path>) -> Option<Media> {
    let data = object(get(block, &["data"]));
    let value = text(&data, &["value"])?;
    let short = text(block, &["media_type"]).unwrap_or_else(|| "*".to_owned()).to_lowercase();
    let media_type = match (kind, &*short) {
        (_, full) if full.contains('/') => full.to_owned(),
        ("image", "svg") => "image/svg+xml".to_owned(),
        ("document", "pdf") => "application/pdf".to_owned(),
        ("document", _) => "text/plain".to_owned(),
        (kind, short) => format!("{kind}/{short}"),
    };
    match text(&data, &["type"]).as_deref() {
        Some("base64" | "string") => values::inline(&media_type, &value),
        Some("text") => (!value.is_empty()).then(|| Media::inline(media_type, value.into_bytes())),
        Some("url") => match value.strip_prefix("blob:") {
            Some(name) => {
                let is_name =
                    name.len() < 100 && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'.');
                let path = blobs.filter(|_| is_name && !name.starts_with('.'))?.join(name);
                let bytes = files::read_small(&path, IMAGE_MAX_BYTES)?;
                (!bytes.is_empty()).then(|| Media::inline(media_type, bytes))
            }
            None => values::address(Some(&media_type), &value),
        },
        _ => None,
    }
}
