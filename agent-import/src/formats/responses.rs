//! Items of OpenAI's Responses API, as transcripts keep them.
//!
//! The shapes are those of <https://platform.openai.com/docs/api-reference/responses>.

use agent_core::Seq;
use agent_core::event::{
    AgentPart, AgentResponse, Citation, EventPayload, HostedCall, Media, Message, ModelOrigin, Native, Part,
    SystemMessage, ToolOutcome, ToolResult,
};
use agent_core::json::{RawFields, RawJson};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::call;
use crate::formats::anthropic::text;
use crate::pairing;
use crate::source::{Item, Notes};
use crate::text::clip;

/// API of the native items.
pub(crate) const API: &str = "openai.responses";

/// Beginnings of messages with the role of a person that a program wrote.
const INJECTED: [&str; 7] = [
    "<user_instructions>",
    "<environment_context>",
    "<INSTRUCTIONS>",
    "<turn_aborted>",
    "<subagent_notification>",
    "<skill>",
    "# AGENTS.md instructions",
];

/// Whose an item is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    /// Message of a person, which begins a turn.
    User,
    /// Part of an answer.
    Model,
    /// Result of a tool, or a text that was injected.
    Program,
    /// Nothing that is known.
    Nobody,
}

/// Returns the members of an object.
fn object(value: &RawJson) -> RawFields {
    value.to().unwrap_or_default()
}

/// Returns what an item becomes, and whose it is.
pub(crate) fn item(raw: &RawJson, notes: &mut Notes) -> (By, Vec<Item>) {
    let fields = object(raw);
    let kind = text(&fields, "type").unwrap_or_default();
    match &*kind {
        // Input may be as short as a role and a content.
        "" | "message" if fields.get("role").is_some() => message(&fields, raw, notes),
        "reasoning" => (By::Model, vec![Item::Event(EventPayload::AgentThinking(reasoning(&fields, raw)))]),
        "compaction" | "compaction_summary" => {
            let part = AgentPart::new(Part::Other(raw.clone())).with_native(Native::new(API, raw.clone()));
            (By::Model, vec![Item::Event(EventPayload::AgentPart(part))])
        }
        _ if kind.ends_with("_output") => match text(&fields, "call_id").or_else(|| text(&fields, "id")) {
            Some(id) => {
                let result = result(&id, &fields, notes);
                (By::Program, vec![Item::Event(EventPayload::AgentToolResult(result))])
            }
            None => unknown(&kind, raw, notes),
        },
        _ if kind.ends_with("_call") => call(&kind, &fields, raw),
        _ => unknown(&kind, raw, notes),
    }
}

fn unknown(kind: &str, raw: &RawJson, notes: &mut Notes) -> (By, Vec<Item>) {
    notes.count(format!("items of type {kind}"));
    (By::Nobody, vec![Item::Unknown { kind: kind.replace('-', "_"), json: raw.clone() }])
}

/// Returns a message of a person, a program or a model.
fn message(fields: &RawFields, raw: &RawJson, notes: &mut Notes) -> (By, Vec<Item>) {
    let (parts, citations) = fields.get("content").map(|content| parts(content, notes)).unwrap_or_default();
    let role = text(fields, "role").unwrap_or_default();
    if parts.iter().all(|part| matches!(part, Part::Text { text: Some(text), .. } if text.trim().is_empty()))
    {
        notes.count("messages without a content");
        return (By::Nobody, Vec::new());
    }
    let message = Message::of_parts(parts);
    let is_injected = INJECTED.iter().any(|beginning| message.text.trim_start().starts_with(beginning));
    match &*role {
        "user" if !is_injected => (By::User, vec![Item::Event(EventPayload::UserMessage(message))]),
        "user" | "developer" | "system" => (By::Program, vec![injected(message.text_view())]),
        "assistant" => {
            let has_more = !citations.is_empty() || message.parts.iter().any(|part| part.media().is_none());
            let mut message = citations.into_iter().fold(message, Message::with_citation);
            if has_more {
                message = message.with_native(Native::new(API, raw.clone()));
            }
            (By::Model, vec![Item::Event(EventPayload::AgentMessage(message))])
        }
        _ => {
            notes.count(format!("messages of the role {role}"));
            (By::Nobody, Vec::new())
        }
    }
}

/// Returns a text that a program put into a conversation.
fn injected(text: impl Into<String>) -> Item {
    Item::Event(EventPayload::SystemMessage(SystemMessage::injected(text)))
}

/// Maximum number of parts and of citations of one message.
const PARTS_MAX: usize = 64;

/// Returns the parts of a content, which is a text or a list, and what it cites.
fn parts(content: &RawJson, notes: &mut Notes) -> (Vec<Part>, Vec<Citation>) {
    if let Ok(text) = content.to::<String>() {
        return (vec![Part::text(text)], Vec::new());
    }
    let mut citations = Vec::new();
    let mut found = Vec::new();
    for block in content.to::<Vec<RawJson>>().unwrap_or_default() {
        let fields = object(&block);
        if found.len() == PARTS_MAX {
            notes.count("parts beyond 64 in one message");
            break;
        }
        let noted: Vec<RawJson> = fields.get("annotations").and_then(|it| it.to().ok()).unwrap_or_default();
        citations.extend(noted.iter().filter_map(citation).take(PARTS_MAX));
        found.extend(part(&fields, block, notes));
    }
    citations.truncate(PARTS_MAX);
    (found, citations)
}

/// Returns a source that is cited. Its range counts characters, and is left out.
fn citation(annotation: &RawJson) -> Option<Citation> {
    let fields = object(annotation);
    let url = text(&fields, "url")?;
    let title = text(&fields, "title");
    let cited = Citation::new(url);
    Some(match title {
        Some(title) => cited.with_title(title),
        None => cited,
    })
}

fn part(fields: &RawFields, block: RawJson, notes: &mut Notes) -> Option<Part> {
    let kind = text(fields, "type").unwrap_or_default();
    let found = match &*kind {
        "input_text" | "output_text" | "text" => text(fields, "text").map(Part::text),
        "refusal" => text(fields, "refusal").map(Part::refusal),
        "input_image" => address(fields.get("image_url")).map(|it| Part::Image(medium(&it, "image/*"))),
        "input_file" => {
            let data = text(fields, "file_data").or_else(|| text(fields, "file_url"));
            let name = text(fields, "filename").map(|name| clip(&name, 512)).filter(|name| !name.is_empty());
            data.map(|data| medium(&data, "application/octet-stream")).map(|it| match name {
                Some(name) => Part::Resource(it.with_name(name)),
                None => Part::Resource(it),
            })
        }
        "" => None,
        _ => {
            notes.count(format!("parts of type {}, which are kept as they are", clip(&kind, 40)));
            return Some(Part::Other(block));
        }
    };
    if found.as_ref().is_none_or(|part| part.media().is_some_and(is_empty)) {
        notes.count(format!("parts of type {} without their content", clip(&kind, 40)));
        return None;
    }
    found
}

/// Returns an address, which older versions of chat completions keep in an object.
fn address(value: Option<&RawJson>) -> Option<String> {
    let value = value?;
    value.to().ok().or_else(|| text(&object(value), "url"))
}

/// Returns the medium of an address, which may hold its data.
fn medium(address: &str, otherwise: &str) -> Media {
    let data = address.strip_prefix("data:").and_then(|data| data.split_once(";base64,"));
    match data.and_then(|(kind, data)| Some((kind, STANDARD.decode(data).ok()?))) {
        Some((kind, bytes)) => Media::inline(if kind.is_empty() { otherwise } else { kind }, bytes),
        None if address.starts_with("data:") => Media::inline(otherwise, Vec::new()),
        None => Media::uri(otherwise, address),
    }
}

fn is_empty(media: &Media) -> bool {
    media.source.size_bytes() == Some(0) || media.source == agent_core::event::MediaSource::Uri(String::new())
}

/// Returns reasoning: its summary, or its text, with the item that only the provider can read.
fn reasoning(fields: &RawFields, raw: &RawJson) -> Message {
    let texts = |name: &str| {
        let blocks: Vec<RawJson> = fields.get(name).and_then(|it| it.to().ok()).unwrap_or_default();
        let texts: Vec<_> = blocks.iter().filter_map(|block| text(&object(block), "text")).collect();
        texts.join("\n\n")
    };
    let summary = texts("summary");
    let shown = if summary.is_empty() { texts("content") } else { summary };
    Message::new(shown).with_native(Native::new(API, raw.clone()))
}

/// Returns a call: one that the program answers has a `call_id`, others were run by the provider.
fn call(kind: &str, fields: &RawFields, raw: &RawJson) -> (By, Vec<Item>) {
    let short = |name: &str| text(fields, name).map(|it| clip(&it, 128)).filter(|it| !it.is_empty());
    let tool = kind.strip_suffix("_call").unwrap_or(kind);
    let is_own = matches!(kind, "function_call" | "custom_tool_call" | "local_shell_call" | "shell_call");
    let id = text(fields, "call_id").or_else(|| text(fields, "id").filter(|_| is_own));
    let payload = match id {
        Some(id) => {
            let name = text(fields, "name").unwrap_or_else(|| tool.to_owned());
            EventPayload::AgentToolUse(call::call(&id, &name, input(kind, fields)))
        }
        None if is_own => EventPayload::AgentToolUse(call::call("", tool, input(kind, fields))),
        None => {
            let image = text(fields, "result").filter(|_| kind == "image_generation_call");
            let image = image.and_then(|data| STANDARD.decode(data).ok()).filter(|data| !data.is_empty());
            if let Some(image) = image {
                EventPayload::AgentPart(AgentPart::new(Part::Image(Media::inline("image/png", image))))
            } else {
                let mut hosted = HostedCall::new(clip(tool, 128));
                hosted.call = short("id");
                hosted.input = fields.get("action").or_else(|| fields.get("arguments")).cloned();
                let native = Native::new(API, raw.clone());
                EventPayload::AgentPart(AgentPart::new(Part::HostedCall(hosted)).with_native(native))
            }
        }
    };
    (By::Model, vec![Item::Event(payload)])
}

/// Returns the input of a call: the arguments of a function are JSON in a text, those of other tools are objects or any text.
fn input(kind: &str, fields: &RawFields) -> Result<RawJson, String> {
    #[derive(serde::Serialize)]
    struct Input<'a> {
        input: &'a str,
    }
    let given = ["arguments", "input", "action", "operation"].iter().find_map(|name| fields.get(name));
    let Some(given) = given else { return Ok(RawJson::empty_object()) };
    let is_object = |json: &RawJson| json.get().starts_with('{');
    match given.to::<String>() {
        // A free text is no mistake of the model here.
        Ok(text) if kind == "custom_tool_call" => Ok(RawJson::sure(&Input { input: &text })),
        Ok(text) if text.trim().is_empty() => Ok(RawJson::empty_object()),
        Ok(text) => RawJson::parse(&text).ok().filter(is_object).ok_or(text),
        Err(_) if is_object(given) => Ok(given.clone()),
        Err(_) => Err(given.get().to_owned()),
    }
}

/// Returns the result of a call.
fn result(id: &str, fields: &RawFields, notes: &mut Notes) -> ToolResult {
    let given = fields.get("output").or_else(|| fields.get("tools"));
    let nested = given.map(object).unwrap_or_default();
    let says_no = |fields: &RawFields| fields.get("success").is_some_and(|it| it.get() == "false");
    // Older versions put the text into an object.
    let output = nested.get("content").or(given);
    let Some(output) = output else { return pairing::result(call::id(id), says_no(fields), "") };
    if let Ok(text) = output.to::<String>() {
        return pairing::result(call::id(id), says_no(&nested) || has_failed(&text), &text);
    }
    if !output.get().starts_with('[') {
        let outcome = if says_no(&nested) { ToolOutcome::Error } else { ToolOutcome::Ok };
        return ToolResult::new(call::id(id), outcome, output.clone());
    }
    let (parts, _) = parts(output, notes);
    let texts: Vec<_> =
        parts.iter().filter_map(|part| part.text_view("").filter(|_| part.media().is_none())).collect();
    let result = pairing::result(call::id(id), says_no(&nested), &texts.join("\n"));
    match parts.iter().all(|part| matches!(part, Part::Text { .. })) {
        true => result,
        false => parts.into_iter().fold(result, ToolResult::with_part),
    }
}

/// Returns whether the output of a command says that it failed.
fn has_failed(output: &str) -> bool {
    #[derive(serde::Deserialize)]
    struct Output {
        metadata: Metadata,
    }
    #[derive(serde::Deserialize)]
    struct Metadata {
        exit_code: i64,
    }
    output.starts_with('{')
        && serde_json::from_str::<Output>(output).is_ok_and(|output| output.metadata.exit_code != 0)
}

/// Returns the end of an answer of this model.
pub(crate) fn response(provider: &str, model: &str) -> Option<Item> {
    let (provider, model) = (clip(provider, 128), clip(model, 256));
    if model.is_empty() {
        return None;
    }
    let provider = if provider.is_empty() { "openai".to_owned() } else { provider };
    let origin = ModelOrigin::new(API, provider, model);
    Some(Item::Event(EventPayload::AgentResponse(AgentResponse::new(Seq::ZERO).with_origin(origin))))
}

/// Returns the texts of a history that replaces another one, or `None` if a part of it can be read by the provider only.
pub(crate) fn history(items: &[RawJson]) -> Option<String> {
    let mut texts = Vec::new();
    for item in items {
        let fields = object(item);
        if text(&fields, "type").is_some_and(|kind| kind.contains("compaction")) {
            return None;
        }
        if let Some(content) = fields.get("content") {
            let (parts, _) = parts(content, &mut Notes::default());
            let text = Message::of_parts(parts).text;
            let is_injected = INJECTED.iter().any(|beginning| text.trim_start().starts_with(beginning));
            if !is_injected && text_role(&fields) && !text.trim().is_empty() {
                texts.push(text);
            }
        }
    }
    Some(texts.join("\n\n"))
}

fn text_role(fields: &RawFields) -> bool {
    matches!(text(fields, "role").as_deref(), Some("user" | "assistant"))
}
