//! Recorded answers of providers, from a folder beside the repository, and the items in them.
//!
//! The items are put together from the events of a stream as the providers' own libraries do it.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use saphyr_parser::{Event, Parser, ScalarStyle};
use serde_json::{Value, json};

/// One recorded answer: the events of its stream.
#[derive(Clone, Debug)]
pub(crate) struct Recording {
    pub(crate) name: String,
    pub(crate) events: Vec<String>,
}

impl Recording {
    pub(crate) fn values(&self) -> Vec<Value> {
        self.events.iter().map(|event| serde_json::from_str(event).unwrap()).collect()
    }
}

/// Returns a folder of the recordings. If there is none, says so on standard error, also if output is captured.
fn folder(name: &str) -> Option<PathBuf> {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/fixtures");
    let folder = std::env::var_os("AGENT_FIXTURES").map_or_else(beside, PathBuf::from).join(name);
    if folder.is_dir() {
        return Some(folder);
    }
    let _ = writeln!(
        std::io::stderr(),
        "\n*** LEFT OUT: recorded answers in {}; set AGENT_FIXTURES to the folder above ***\n",
        folder.display()
    );
    None
}

/// Returns the names and the texts of the files in a folder whose names end so.
fn files(of: &str, end: &str) -> Vec<(String, String)> {
    let Some(folder) = folder(of) else { return Vec::new() };
    let mut found: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter_map(|path| {
            let name = path.file_name()?.to_str()?.strip_suffix(end)?.to_owned();
            Some((name, fs::read_to_string(&path).unwrap()))
        })
        .collect();
    found.sort();
    found
}

/// Returns the events in the lines of a stream.
fn events(text: &str) -> Vec<String> {
    let lines = text.lines().map(|line| line.strip_prefix("data:").unwrap_or(line).trim());
    // One file is not JSON throughout.
    let is_json = |line: &&str| serde_json::from_str::<Value>(line).is_ok_and(|event| event.is_object());
    lines.filter(is_json).map(str::to_owned).collect()
}

/// Returns the recorded streams in a folder.
pub(crate) fn streams(folder: &str) -> Vec<Recording> {
    let of = |(name, text): (String, String)| Recording { name, events: events(&text) };
    files(&format!("vercel-ai/{folder}"), ".chunks.txt").into_iter().map(of).collect()
}

/// Returns the answers in the recorded conversations of a folder, each for itself. `stream` makes the events of an answer
/// that came whole; `None` for another thing than an answer.
pub(crate) fn answers(folder: &str, stream: impl Fn(&Value) -> Option<Vec<String>>) -> Vec<Recording> {
    let mut found = Vec::new();
    for (name, text) in files(&format!("pydantic-ai/{folder}"), ".yaml") {
        let Some(whole) = yaml(&text) else { continue };
        for (at, exchange) in whole["interactions"].as_array().into_iter().flatten().enumerate() {
            let response = &exchange["response"];
            let events = match response["body"]["string"].as_str().map(events) {
                Some(events) if !events.is_empty() => Some(events),
                _ => stream(&response["parsed_body"]),
            };
            let Some(events) = events.filter(|_| response["status"]["code"] == 200) else { continue };
            found.push(Recording { name: format!("{name}, exchange {at}"), events });
        }
    }
    found
}

/// Recorded request, and what the provider answered.
#[derive(Clone, Debug)]
pub(crate) struct Exchange {
    pub(crate) name: String,
    pub(crate) uri: String,
    pub(crate) body: Value,
    pub(crate) status: u64,
    /// Answer, if it is JSON.
    pub(crate) answer: Value,
}

/// Returns the exchanges of all recorded conversations.
pub(crate) fn exchanges() -> Vec<Exchange> {
    let folders = [
        "anthropic",
        "anthropic_mid_conversation_system",
        "google",
        "openai_responses",
        "thinking_wire_contract",
    ];
    let texts = folders.iter().chain(&["tool_availability_portability"]);
    let texts = texts.flat_map(|folder| files(&format!("pydantic-ai/{folder}"), ".yaml"));
    let mut found = Vec::new();
    for (name, text) in texts {
        let Some(whole) = yaml(&text) else { continue };
        for exchange in whole["interactions"].as_array().into_iter().flatten() {
            let (request, response) = (&exchange["request"], &exchange["response"]);
            found.push(Exchange {
                name: name.clone(),
                uri: request["uri"].as_str().unwrap_or_default().to_owned(),
                body: request["parsed_body"].clone(),
                status: response["status"]["code"].as_u64().unwrap_or_default(),
                answer: response["parsed_body"].clone(),
            });
        }
    }
    found
}

/// Returns a YAML text as JSON; `None` if it refers to a part of itself.
fn yaml(text: &str) -> Option<Value> {
    let mut open: Vec<(Option<String>, Value)> = vec![(None, json!([]))];
    for event in Parser::new_from_str(text) {
        let value = match event.ok()?.0 {
            Event::Scalar(scalar, style, ..) => plain(&scalar, style),
            Event::SequenceStart(..) => {
                open.push((None, json!([])));
                continue;
            }
            Event::MappingStart(..) => {
                open.push((None, json!({})));
                continue;
            }
            Event::SequenceEnd | Event::MappingEnd => open.pop()?.1,
            Event::Alias(_) => return None,
            _ => continue,
        };
        match open.last_mut()? {
            (_, Value::Array(list)) => list.push(value),
            (key @ None, _) => *key = Some(value.as_str().map_or_else(|| value.to_string(), str::to_owned)),
            (key, object) => object[key.take()?] = value,
        }
    }
    open.pop()?.1.as_array_mut()?.pop()
}

fn plain(scalar: &str, style: ScalarStyle) -> Value {
    match scalar {
        _ if style != ScalarStyle::Plain => scalar.into(),
        "" | "~" | "null" => Value::Null,
        "true" => true.into(),
        "false" => false.into(),
        text => {
            let is_number = text.starts_with(|c: char| c == '-' || c.is_ascii_digit());
            let number = serde_json::from_str(text).ok().filter(|_| is_number);
            number.unwrap_or_else(|| text.into())
        }
    }
}

fn append(to: &mut Value, name: &str, piece: &Value) {
    let piece = piece.as_str().unwrap_or_default();
    let whole = format!("{}{piece}", to[name].as_str().unwrap_or_default());
    to[name] = whole.into();
}

/// Splits a recording of Anthropic into its answers: some hold several, one behind the other.
pub(crate) fn anthropic_answers(recording: &Recording) -> Vec<Vec<String>> {
    let mut answers: Vec<Vec<String>> = Vec::new();
    for event in &recording.events {
        if event.contains(r#""type":"message_start""#) || answers.is_empty() {
            answers.push(Vec::new());
        }
        answers.last_mut().unwrap().push(event.clone());
    }
    answers
}

/// Blocks of an answer of Anthropic.
pub(crate) fn anthropic_blocks(events: &[Value]) -> Vec<Value> {
    let mut blocks: BTreeMap<u64, (Value, String)> = BTreeMap::new();
    for event in events {
        let index = event["index"].as_u64().unwrap_or_default();
        match event["type"].as_str().unwrap_or_default() {
            "content_block_start" => {
                blocks.insert(index, (event["content_block"].clone(), String::new()));
            }
            "content_block_delta" => {
                let (block, input) = blocks.get_mut(&index).unwrap();
                let delta = &event["delta"];
                match delta["type"].as_str().unwrap() {
                    "text_delta" => append(block, "text", &delta["text"]),
                    "thinking_delta" => append(block, "thinking", &delta["thinking"]),
                    "signature_delta" => append(block, "signature", &delta["signature"]),
                    "input_json_delta" => input.push_str(delta["partial_json"].as_str().unwrap()),
                    "citations_delta" => {
                        if !block["citations"].is_array() {
                            block["citations"] = json!([]);
                        }
                        block["citations"].as_array_mut().unwrap().push(delta["citation"].clone());
                    }
                    "compaction_delta" => block["content"] = delta["content"].clone(),
                    other => panic!("{other}"),
                }
            }
            "content_block_stop" => {
                let (block, input) = blocks.get_mut(&index).unwrap();
                if !input.is_empty() {
                    block["input"] = serde_json::from_str(input).unwrap();
                }
            }
            _ => {}
        }
    }
    blocks.into_values().map(|(block, _)| block).collect()
}

/// Output items of an answer of OpenAI's Responses API.
pub(crate) fn responses_items(events: &[Value]) -> Vec<Value> {
    let mut items = BTreeMap::new();
    for event in events.iter().filter(|event| event["type"] == "response.output_item.done") {
        items.insert(event["output_index"].as_u64().unwrap(), event["item"].clone());
    }
    items.into_values().collect()
}

/// Parts of an answer of Gemini: texts that follow each other are one part.
pub(crate) fn gemini_parts(events: &[Value]) -> Vec<Value> {
    let mut parts: Vec<Value> = Vec::new();
    for event in events {
        for part in event["candidates"][0]["content"]["parts"].as_array().into_iter().flatten() {
            let is_text = |part: &Value| part["text"].is_string();
            if is_text(part) && part["text"] == "" && part.get("thoughtSignature").is_none() {
                continue;
            }
            match parts.last_mut().filter(|last| {
                is_text(last)
                    && is_text(part)
                    && last.get("thought") == part.get("thought")
                    && last.get("thoughtSignature").is_none()
            }) {
                Some(last) => {
                    append(last, "text", &part["text"]);
                    if let Some(signature) = part.get("thoughtSignature") {
                        last["thoughtSignature"] = signature.clone();
                    }
                }
                None => parts.push(part.clone()),
            }
        }
    }
    parts
}

/// Message of an answer of a chat API like OpenAI's.
pub(crate) fn chat_message(events: &[Value]) -> Value {
    let mut message = json!({});
    let mut calls: BTreeMap<u64, Value> = BTreeMap::new();
    // Parts, of a provider that gives reasoning as a part.
    let mut content: Vec<Value> = Vec::new();
    for event in events {
        let delta = &event["choices"][0]["delta"];
        for name in ["content", "reasoning_content", "reasoning"] {
            if delta[name].as_str().is_some_and(|piece| !piece.is_empty()) {
                append(&mut message, name, &delta[name]);
            }
        }
        if let Some(parts) = delta["content"].as_array() {
            content.extend(parts.iter().cloned());
        } else if !content.is_empty() && delta["content"].as_str().is_some_and(|piece| !piece.is_empty()) {
            content.push(json!({"type": "text", "text": delta["content"]}));
        }
        for (at, call) in delta["tool_calls"].as_array().into_iter().flatten().enumerate() {
            let index = call["index"].as_u64().unwrap_or(at as u64);
            let held = calls.entry(index).or_insert_with(|| json!({"function": {"arguments": ""}}));
            for name in ["id", "type"] {
                if call[name].is_string() {
                    held[name] = call[name].clone();
                }
            }
            if call["function"]["name"].as_str().is_some_and(|name| !name.is_empty()) {
                held["function"]["name"] = call["function"]["name"].clone();
            }
            append(&mut held["function"], "arguments", &call["function"]["arguments"]);
        }
    }
    if !content.is_empty() {
        message["content"] = joined(content).into();
    }
    if !calls.is_empty() {
        message["tool_calls"] = calls.into_values().collect();
    }
    message
}

/// Joins the pieces of texts and of reasoning.
fn joined(pieces: Vec<Value>) -> Vec<Value> {
    let mut parts: Vec<Value> = Vec::new();
    for piece in pieces {
        match parts.last_mut().filter(|last| last["type"] == piece["type"]) {
            Some(last) if piece["type"] == "thinking" => {
                append(&mut last["thinking"][0], "text", &piece["thinking"][0]["text"]);
            }
            Some(last) => append(last, "text", &piece["text"]),
            None => parts.push(piece),
        }
    }
    parts
}
