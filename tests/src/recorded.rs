//! Recorded traffic of model providers, from a folder beside the repository.
//!
//! Each file holds a conversation or an answer of Anthropic, Google, OpenAI or a provider that speaks the same API. The
//! folder is `../shared/fixtures` beside the repository, or that of the variable `AGENT_FIXTURES`.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use agent_core::json::{RawFields, RawJson};
use saphyr_parser::{Event, Parser, ScalarStyle};

/// Item of an answer: one block of content, one output item, one part, or one whole message.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub struct Item {
    /// API whose item it is.
    pub api: &'static str,
    /// Item as compact JSON.
    pub json: String,
}

/// Returns the folder of the recordings. If there is none, says so on standard error, also if output is captured.
pub fn folder(test: &str) -> Option<PathBuf> {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/fixtures");
    let folder = std::env::var_os("AGENT_FIXTURES").map_or_else(beside, PathBuf::from);
    if folder.is_dir() {
        return Some(folder);
    }
    // The macros that print are silent in a test that passes.
    let _ = writeln!(
        std::io::stderr(),
        "\n*** LEFT OUT: {test} needs recorded traffic in {}; set AGENT_FIXTURES to its folder ***\n",
        folder.display()
    );
    None
}

/// Returns every item that a model gave in the recordings, each once.
#[allow(clippy::missing_panics_doc, clippy::unwrap_used, reason = "a test fails by panicking")]
pub fn items(folder: &Path) -> Vec<Item> {
    let (mut found, mut folders) = (BTreeSet::new(), vec![folder.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            for body in bodies(&path) {
                collect(&body, &mut found);
            }
        }
    }
    found.into_iter().collect()
}

/// Returns the JSON of the requests and answers in a file.
fn bodies(path: &Path) -> Vec<RawJson> {
    let Ok(text) = fs::read_to_string(path) else { return Vec::new() };
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("json") => RawJson::parse(&text).into_iter().collect(),
        Some("txt") => streamed(&text),
        Some("yaml") => {
            let Some(Some(interactions)) = json_of_yaml(&text).map(|whole| list(&whole, "interactions"))
            else {
                return Vec::new();
            };
            let sides = |exchange: &RawJson| [member(exchange, "request"), member(exchange, "response")];
            interactions.iter().flat_map(sides).flatten().flat_map(|side| side_bodies(&side)).collect()
        }
        _ => Vec::new(),
    }
}

/// Returns the JSON of a request or an answer: its body, or the events of its stream.
fn side_bodies(side: &RawJson) -> Vec<RawJson> {
    if let Some(body) = member(side, "parsed_body") {
        return vec![body];
    }
    let body = member(side, "body");
    let text = body.and_then(|body| member(&body, "string").unwrap_or(body).to::<String>().ok());
    text.map_or_else(Vec::new, |text| match RawJson::parse(&text) {
        Ok(body) => vec![body],
        Err(_) => streamed(&text),
    })
}

/// Returns the JSON of the lines of a stream.
fn streamed(text: &str) -> Vec<RawJson> {
    let lines = text.lines().map(|line| line.strip_prefix("data:").unwrap_or(line));
    lines.filter_map(|line| RawJson::parse(line).ok()).collect()
}

fn member(of: &RawJson, name: &str) -> Option<RawJson> {
    of.to::<RawFields>().ok()?.remove(name)
}

fn list(of: &RawJson, name: &str) -> Option<Vec<RawJson>> {
    member(of, name)?.to().ok()
}

fn word(of: &RawJson, name: &str) -> Option<String> {
    member(of, name)?.to().ok()
}

/// Collects what a model gave in one request, one answer, or one event of a stream.
fn collect(body: &RawJson, found: &mut BTreeSet<Item>) {
    let mut add = |api, items: Vec<RawJson>| {
        let items = items.into_iter().filter(|item| item.get().starts_with('{'));
        found.extend(items.map(|item| Item { api, json: item.get().to_owned() }));
    };
    // Anthropic: blocks of an answer, and of the answers that a request repeats.
    add("anthropic.messages", list(body, "content").unwrap_or_default());
    add("anthropic.messages", member(body, "content_block").into_iter().collect());
    if word(body, "type").as_deref() == Some("content_block_delta") {
        add("anthropic.messages", member(body, "delta").into_iter().collect());
    }
    for message in list(body, "messages").unwrap_or_default() {
        if word(&message, "role").as_deref() == Some("assistant") {
            match list(&message, "content") {
                Some(blocks) => add("anthropic.messages", blocks),
                None => add("openai.chat", vec![message]),
            }
        }
    }
    // OpenAI Responses: items of an answer, and those that a request repeats.
    add("openai.responses", list(body, "output").unwrap_or_default());
    add("openai.responses", member(body, "item").into_iter().collect());
    let repeated = list(body, "input").unwrap_or_default();
    let by_model =
        |item: &RawJson| !matches!(word(item, "role").as_deref(), Some("user" | "system" | "developer"));
    add("openai.responses", repeated.into_iter().filter(by_model).collect());
    // OpenAI-style chat: messages, and pieces of them.
    for choice in list(body, "choices").unwrap_or_default() {
        add(
            "openai.chat",
            [member(&choice, "message"), member(&choice, "delta")].into_iter().flatten().collect(),
        );
    }
    // Gemini: parts of an answer, and of the answers that a request repeats.
    let candidates = list(body, "candidates").unwrap_or_default();
    let repeated = list(body, "contents").unwrap_or_default();
    let by_model = |content: &RawJson| word(content, "role").as_deref() == Some("model");
    let contents = candidates.iter().filter_map(|candidate| member(candidate, "content"));
    for content in contents.chain(repeated.into_iter().filter(by_model)) {
        add("google.generate_content", list(&content, "parts").unwrap_or_default());
    }
    if let Some(response) = member(body, "response").filter(|response| response.get().starts_with('{')) {
        collect(&response, found);
    }
}

/// Returns a YAML text as JSON. Numbers keep their digits; other plain scalars become text.
fn json_of_yaml(text: &str) -> Option<RawJson> {
    let mut json = String::with_capacity(text.len());
    // Whether each open list or object has an item already, and whether a key was just written.
    let mut open: Vec<(bool, usize)> = Vec::new();
    for event in Parser::new_from_str(text) {
        let (event, _) = event.ok()?;
        let close = match &event {
            Event::SequenceEnd => Some(']'),
            Event::MappingEnd => Some('}'),
            _ => None,
        };
        if let Some(close) = close {
            open.pop();
            json.push(close);
            continue;
        }
        let is_value =
            matches!(event, Event::Scalar(..) | Event::SequenceStart(..) | Event::MappingStart(..));
        let mut is_key = false;
        if let (Some((is_object, written)), true) = (open.last_mut(), is_value) {
            is_key = *is_object && *written % 2 == 0;
            let separator = if *is_object && *written % 2 == 1 { ":" } else { "," };
            if *written > 0 {
                json.push_str(separator);
            }
            *written += 1;
        }
        match event {
            Event::Scalar(scalar, ScalarStyle::Plain, ..) if !is_key => json.push_str(&plain(&scalar)),
            Event::Scalar(scalar, ..) => json.push_str(&agent_core::json::to_text(&scalar)),
            Event::SequenceStart(..) => {
                open.push((false, 0));
                json.push('[');
            }
            Event::MappingStart(..) => {
                open.push((true, 0));
                json.push('{');
            }
            Event::Alias(_) => return None,
            _ => {}
        }
    }
    RawJson::parse(&json).ok()
}

/// Returns a plain scalar as JSON.
fn plain(scalar: &str) -> String {
    let is_number =
        scalar.starts_with(|c: char| c == '-' || c.is_ascii_digit()) && RawJson::parse(scalar).is_ok();
    match scalar {
        "" | "~" | "null" => "null".to_owned(),
        "true" | "false" => scalar.to_owned(),
        number if is_number => number.to_owned(),
        text => agent_core::json::to_text(&text),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    /// YAML as recorders write it becomes the JSON that was recorded.
    #[test]
    fn yaml_becomes_the_recorded_json() {
        let yaml = "a:\n- 1.50\n- '1.50'\n- 12345678901234567890\n- true\n- null\n- ''\n- [b, \"\\u00e9\\n\"]\n- {}\n\
                    c: one\n  two\nd: |-\n  x: y\n\n  z\n2: no\n";
        let json = "{\"a\":[1.50,\"1.50\",12345678901234567890,true,null,\"\",[\"b\",\"é\\n\"],{}],\
                    \"c\":\"one two\",\"d\":\"x: y\\n\\nz\",\"2\":\"no\"}";
        assert_eq!(json_of_yaml(yaml).unwrap().get(), json);
    }
}
