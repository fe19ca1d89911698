//! Messages of LangChain, by the names of their classes and members.

use agent_core::event::{AgentPart, EventPayload, Native, Part, SystemMessage, ToolResult};
use agent_core::json::{RawFields, RawJson};
use agent_core::model::Usage;

use crate::call;
use crate::formats::values::{self, get, number, object, text};
use crate::pairing;
use crate::source::{Entry, Item, Notes};
use crate::text::clip;

/// Reads a message.
pub(crate) fn items(class: &str, fields: &RawFields, thread: &str, entry: &mut Entry, notes: &mut Notes) {
    match class.strip_suffix("Chunk").unwrap_or(class) {
        "HumanMessage" => {
            if let Some(message) = values::user(parts(fields, notes)) {
                entry.begins_turn = true;
                entry.items.push(message);
            }
        }
        "SystemMessage" => {
            let words = words(&parts(fields, notes));
            if !words.trim().is_empty() {
                // What stands before everything is the prompt.
                let message = SystemMessage::custom(words);
                entry.items.push(Item::Event(EventPayload::SystemMessage(message)));
            }
        }
        "AIMessage" => answer(fields, thread, entry, notes),
        "ToolMessage" | "FunctionMessage" => {
            let id = text(fields, &["tool_call_id", "name"]).unwrap_or_default();
            let is_error = text(fields, &["status"]).as_deref() == Some("error");
            let parts = parts(fields, notes);
            let mut result = pairing::result(call::id(&id), is_error, &words(&parts));
            if parts.iter().any(|part| part.media().is_some()) {
                result = parts.into_iter().fold(result, ToolResult::with_part);
            }
            if get(fields, &["artifact"]).is_some() {
                notes.count("artifacts of results, which no model is given");
            }
            entry.items.push(Item::Event(EventPayload::AgentToolResult(result)));
        }
        "ChatMessage" => entry.items.extend(values::injected(words(&parts(fields, notes)))),
        "RemoveMessage" => notes.count("removals of messages"),
        other => {
            notes.count(format!("messages of class {}", clip(other, 40)));
            entry.items.push(values::unknown("message", RawJson::sure(fields)));
        }
    }
}

fn words(parts: &[Part]) -> String {
    let text = |part: &Part| match part {
        Part::Text { text, .. } => text.clone(),
        _ => None,
    };
    parts.iter().filter_map(text).collect::<Vec<_>>().join("\n")
}

/// Returns the blocks of a content, which is a text or a list of texts and blocks.
fn blocks(fields: &RawFields, notes: &mut Notes) -> Vec<RawFields> {
    let text =
        |json: &RawJson| RawFields::from_iter([("type", RawJson::sure(&"text")), ("text", json.clone())]);
    match get(fields, &["content"]) {
        Some(content) if content.get().starts_with('"') => vec![text(content)],
        content => {
            let block =
                |json: &RawJson| if json.get().starts_with('"') { text(json) } else { object(Some(json)) };
            values::list(content, notes).iter().map(block).collect()
        }
    }
}

fn parts(fields: &RawFields, notes: &mut Notes) -> Vec<Part> {
    let mut found = Vec::new();
    for block in blocks(fields, notes) {
        let kind = text(&block, &["type"]).unwrap_or_default();
        match &*kind {
            "text" | "text-plain" => found.extend(text(&block, &["text"]).map(Part::text)),
            _ => match medium(&kind, &block) {
                Some(part) => found.push(part),
                None => notes.count(format!("blocks of type {}", clip(&kind, 40))),
            },
        }
    }
    found
}

/// Returns a medium: in the form of OpenAI, of Anthropic, or of LangChain's own blocks.
fn medium(kind: &str, block: &RawFields) -> Option<Part> {
    let source = object(get(block, &["source"]));
    let own = text(block, &["mime_type", "media_type"]).or_else(|| text(&source, &["media_type"]));
    let otherwise = match kind {
        "image" | "image_url" => "image/*",
        "audio" => "audio/*",
        "video" => "video/*",
        "file" | "document" => "application/octet-stream",
        _ => return None,
    };
    let media_type = own.as_deref().unwrap_or(otherwise);
    if let Some(data) = text(block, &["base64", "data"]).or_else(|| text(&source, &["data"])) {
        return values::inline(media_type, &data).map(values::media);
    }
    let address = text(block, &["url", "image_url"])
        .or_else(|| text(&object(get(block, &["image_url"])), &["url"]))
        .or_else(|| text(&source, &["url"]))?;
    values::address(Some(media_type), &address).map(values::media)
}

fn answer(fields: &RawFields, thread: &str, entry: &mut Entry, notes: &mut Notes) {
    let about = object(get(fields, &["response_metadata"]));
    let provider = text(&about, &["model_provider"]).unwrap_or_default();
    let api = match &*provider {
        "anthropic" => "anthropic.messages",
        "openai" => "openai.responses",
        "google_genai" | "google_vertexai" => "gemini.generate_content",
        _ => "langchain",
    };
    for block in blocks(fields, notes) {
        let kind = text(&block, &["type"]).unwrap_or_default();
        match &*kind {
            "text" | "output_text" => {
                let text = text(&block, &["text"]).unwrap_or_default();
                if !text.is_empty() {
                    entry.items.extend(values::agent(text, None, notes));
                }
            }
            "thinking" | "redacted_thinking" => {
                let words = text(&block, &["thinking"]).unwrap_or_default();
                // The number of a block in a stream is none of the provider's.
                let mut item = block.clone();
                item.remove("index");
                let native = Native::new("anthropic.messages", RawJson::sure(&item));
                entry.items.push(values::thinking(words, Some(native)));
            }
            "reasoning" => {
                let summary = values::list(get(&block, &["summary"]), notes);
                let summary: Vec<_> =
                    summary.iter().filter_map(|it| text(&object(Some(it)), &["text"])).collect();
                let words = text(&block, &["reasoning", "text"]).unwrap_or_else(|| summary.join("\n"));
                let native = get(&block, &["encrypted_content"])
                    .map(|_| Native::new("openai.responses", RawJson::sure(&block)));
                entry.items.push(values::thinking(words, native));
            }
            // These are among the calls.
            "tool_use" | "tool_call" | "function_call" | "input_json_delta" => {}
            _ => match medium(&kind, &block) {
                Some(part) => entry.items.push(Item::Event(EventPayload::AgentPart(AgentPart::new(part)))),
                None => notes.count(format!("blocks of type {}", clip(&kind, 40))),
            },
        }
    }
    for member in ["tool_calls", "invalid_tool_calls"] {
        for called in values::list(get(fields, &[member]), notes) {
            let called = object(Some(&called));
            let (id, name) = (text(&called, &["id"]), text(&called, &["name"]));
            let input = values::input(get(&called, &["args"]));
            let call = call::call(&id.unwrap_or_default(), &name.unwrap_or_default(), input);
            entry.items.push(Item::Event(EventPayload::AgentToolUse(call)));
        }
    }
    if entry.items.is_empty() {
        return;
    }
    ending(fields, &about, (api, &provider), thread, entry);
}

/// Adds the end of an answer, and its usage.
fn ending(
    fields: &RawFields,
    about: &RawFields,
    (api, provider): (&str, &str),
    thread: &str,
    entry: &mut Entry,
) {
    let model = text(about, &["model_name", "model"]).unwrap_or_default();
    let stop = text(about, &["stop_reason", "finish_reason"]);
    entry.items.push(values::response(Some([api, provider, &model]), stop.as_deref()));
    let used = object(get(fields, &["usage_metadata"]));
    let (input, output) =
        (object(get(&used, &["input_token_details"])), object(get(&used, &["output_token_details"])));
    let usage = Usage::new(number(&used, &["input_tokens"]), number(&used, &["output_tokens"]))
        .with_cache(number(&input, &["cache_read"]), number(&input, &["cache_creation"]))
        .with_reasoning(number(&output, &["reasoning"]));
    let id = text(fields, &["id"]).unwrap_or_default();
    entry.items.extend(values::usage(thread, &id, usage));
}
