//! Messages of Gemini CLI, and parts of the Gemini API, as transcripts keep them.

use agent_core::event::{AgentPart, EventPayload, HostedCall, HostedResult, Part, ToolOutcome, ToolResult};
use agent_core::json::{RawFields, RawJson};
use agent_core::model::Usage;

use crate::call;
use crate::formats::values::{self, get, is_true, number, object, text};
use crate::source::{Entry, Item, Notes};
use crate::text::clip;

/// API of the native items.
pub(crate) const API: &str = "gemini.generate_content";

/// Returns the parts of a content, which is a text, a part or a list of them.
pub(crate) fn parts(content: Option<&RawJson>, notes: &mut Notes) -> Vec<RawFields> {
    match content {
        None => Vec::new(),
        Some(content) if content.get().starts_with('"') => {
            vec![RawFields::from_iter([("text", content.clone())])]
        }
        Some(content) if content.get().starts_with('{') => vec![object(Some(content))],
        Some(content) => {
            let text = |part: &RawJson| match part.get().starts_with('"') {
                true => RawFields::from_iter([("text", part.clone())]),
                false => object(Some(part)),
            };
            values::list(Some(content), notes).iter().map(text).collect()
        }
    }
}

/// Returns the texts of a message.
pub(crate) fn words(message: &RawFields) -> String {
    let parts = parts(get(message, &["content"]), &mut Notes::default());
    parts.iter().filter_map(|part| text(part, &["text"])).collect::<Vec<_>>().join("\n")
}

/// Returns the medium of a part.
pub(crate) fn media(part: &RawFields) -> Option<Part> {
    let inline = object(get(part, &["inlineData", "inline_data"]));
    let kind = |fields: &RawFields| text(fields, &["mimeType", "mime_type"]);
    let name = |fields: &RawFields| text(fields, &["displayName", "display_name"]);
    if let Some(data) = text(&inline, &["data"]) {
        let media = values::inline(&kind(&inline).unwrap_or_default(), &data)?;
        return Some(values::media(values::named(media, name(&inline))));
    }
    let file = object(get(part, &["fileData", "file_data"]));
    let address = text(&file, &["fileUri", "file_uri"])?;
    Some(Part::ResourceLink(values::named(values::address(kind(&file).as_deref(), &address)?, name(&file))))
}

/// Returns code that the provider ran itself, or its result.
pub(crate) fn hosted(part: &RawFields) -> Option<Part> {
    if let Some(code) = get(part, &["executableCode", "executable_code"]) {
        let mut hosted = HostedCall::new("code_execution");
        hosted.input = Some(code.clone());
        return Some(Part::HostedCall(hosted));
    }
    let result = get(part, &["codeExecutionResult", "code_execution_result"])?;
    Some(Part::HostedResult(HostedResult::new(result.clone())))
}

/// Returns the output of a result as the model is given it: a text, if it has one alone.
pub(crate) fn output(response: Option<&RawJson>) -> RawJson {
    let Some(response) = response else { return RawJson::sure(&"") };
    let fields = object(Some(response));
    let only = ["output", "result", "error"].iter().find_map(|name| fields.get(name));
    match only.filter(|value| fields.len() == 1 && value.get().starts_with('"')) {
        Some(text) => text.clone(),
        None => response.clone(),
    }
}

/// Reads what a message says, without its calls.
pub(crate) fn said(message: &RawFields, entry: &mut Entry, notes: &mut Notes) {
    let kind = text(message, &["type"]).unwrap_or_default();
    match &*kind {
        "user" => {
            let mut said = Vec::new();
            for part in parts(get(message, &["content"]), notes) {
                if let Some(text) = text(&part, &["text"]) {
                    said.push(Part::text(text));
                } else if let Some(media) = media(&part) {
                    said.push(media);
                } else if get(&part, &["functionResponse"]).is_some() {
                    notes.count("results in messages of a person, which are with their calls");
                } else {
                    notes.count("parts of no known kind");
                }
            }
            if let Some(message) = values::user(said) {
                entry.begins_turn = true;
                entry.items.push(message);
            }
        }
        "gemini" => {
            for thought in values::list(get(message, &["thoughts"]), notes) {
                let thought = object(Some(&thought));
                let [subject, about] = ["subject", "description"].map(|name| text(&thought, &[name]));
                let words: Vec<_> =
                    [subject, about].into_iter().flatten().filter(|it| !it.is_empty()).collect();
                if !words.is_empty() {
                    notes.count("thoughts, of which the signatures are not in the file");
                    entry.items.push(values::thinking(words.join("\n"), None));
                }
            }
            for part in parts(get(message, &["content"]), notes) {
                if is_true(&part, &["thought"]) {
                    entry.items.push(values::thinking(text(&part, &["text"]).unwrap_or_default(), None));
                } else if let Some(text) = text(&part, &["text"]) {
                    if !text.is_empty() {
                        entry.items.extend(values::agent(text, None, notes));
                    }
                } else if let Some(part) = media(&part).or_else(|| hosted(&part)) {
                    entry.items.push(Item::Event(EventPayload::AgentPart(AgentPart::new(part))));
                } else if get(&part, &["functionCall"]).is_none() {
                    notes.count("parts of no known kind");
                }
            }
            if !entry.items.is_empty() {
                entry.items.push(response(message));
            }
        }
        _ => {
            notes.count(format!("messages of type {}", clip(&kind, 40)));
            entry.items.push(values::unknown(&kind, RawJson::sure(message)));
        }
    }
}

fn response(message: &RawFields) -> Item {
    let model = text(message, &["model"]).unwrap_or_default();
    values::response(Some([API, "gemini", &model]), None)
}

/// Returns whether a call has its result.
pub(crate) fn has_ended(call: &RawFields) -> bool {
    let status = text(call, &["status"]).unwrap_or_default();
    matches!(&*status, "success" | "error" | "cancelled") || get(call, &["result"]).is_some()
}

/// Reads a call of an answer, and its result.
pub(crate) fn call(message: &RawFields, at: usize, entry: &mut Entry, notes: &mut Notes) {
    let calls = values::list(get(message, &["toolCalls"]), &mut Notes::default());
    let fields = object(calls.get(at));
    entry.at = get(&fields, &["timestamp"]).and_then(crate::text::time).or(entry.at);
    let (id, name) =
        (text(&fields, &["id"]).unwrap_or_default(), text(&fields, &["name"]).unwrap_or_default());
    let used = call::call(&id, &name, values::input(get(&fields, &["args"])));
    let called = used.call.clone();
    entry.items.push(Item::Event(EventPayload::AgentToolUse(used)));
    entry.items.push(response(message));
    if !has_ended(&fields) {
        return;
    }
    let outcome = match text(&fields, &["status"]).as_deref() {
        Some("error") => ToolOutcome::Error,
        // The person did not allow it, or stopped it.
        Some("cancelled") => ToolOutcome::Denied,
        _ => ToolOutcome::Ok,
    };
    let (mut outputs, mut more) = (Vec::new(), Vec::new());
    for part in parts(get(&fields, &["result"]), notes) {
        if let Some(given) = get(&part, &["functionResponse"]) {
            outputs.push(output(get(&object(Some(given)), &["response"])));
        } else if let Some(text) = text(&part, &["text"]) {
            outputs.push(RawJson::sure(&text));
        } else if let Some(media) = media(&part) {
            more.push(media);
        } else {
            notes.count("parts of a result of no known kind");
        }
    }
    let text = |json: &RawJson| json.to::<String>().unwrap_or_else(|_| json.get().to_owned());
    let output = match &outputs[..] {
        [one] => one.clone(),
        several => RawJson::sure(&several.iter().map(text).collect::<Vec<_>>().join("\n")),
    };
    let mut result = ToolResult::new(called, outcome, output.clone());
    if !more.is_empty() {
        result = [Part::text(text(&output))].into_iter().chain(more).fold(result, ToolResult::with_part);
    }
    entry.items.push(Item::Event(EventPayload::AgentToolResult(result)));
}

/// Reads the tokens of an answer.
pub(crate) fn tokens(message: &RawFields, session: &str, entry: &mut Entry) {
    let tokens = object(get(message, &["tokens"]));
    let id = text(message, &["id"]).unwrap_or_default();
    let thoughts = number(&tokens, &["thoughts"]);
    let input = number(&tokens, &["input"]).saturating_add(number(&tokens, &["tool"]));
    let usage = Usage::new(input, number(&tokens, &["output"]).saturating_add(thoughts))
        .with_cache(number(&tokens, &["cached"]), 0)
        .with_reasoning(thoughts);
    entry.items.extend(values::usage(session, &id, usage));
}
