//! Google's `generateContent`, as models from Gemini 3 on take it.

use serde_json::{Value, json};

use crate::account::{Account, Signed};
use crate::message::{Answer, Request};
use crate::rule::{Checked, Item, Refusal, Rule, list, tool_names};

/// What Google's pages name for a call that another model made.
const NOT_SIGNED: [&str; 2] = ["skip_thought_signature_validator", "context_engineering_is_the_way_to_go"];

/// Returns an answer with these parts.
pub fn answer(parts: &[Value]) -> Answer {
    Answer::events(events(parts).iter().map(String::as_str))
}

/// Returns an answer with one text.
pub fn text_answer(text: &str) -> Answer {
    answer(&[json!({"text": text})])
}

/// Returns the data of the events of an answer with these parts.
pub fn events(parts: &[Value]) -> Vec<String> {
    let candidate =
        |part: &Value| json!({"candidates": [{"content": {"parts": [part], "role": "model"}, "index": 0}]});
    let mut events: Vec<_> = parts.iter().map(candidate).collect();
    events.push(json!({"candidates": [{"content": {"parts": [{"text": ""}], "role": "model"}, "finishReason": "STOP",
        "index": 0}], "usageMetadata": {"promptTokenCount": 10, "candidatesTokenCount": 5, "totalTokenCount": 18,
        "thoughtsTokenCount": 3}}));
    events.iter().map(Value::to_string).collect()
}

/// What stands before a part of an answer.
fn before(request: &Request, body: &Value, contents: &[Value], parts: &[Value]) -> Value {
    let model = request.path.split(['?', ':']).next();
    let key = request.header("x-goog-api-key").or_else(|| request.path.split("key=").nth(1));
    let joined = |content: &Value| json!([content["role"], joined(list(&content["parts"]))]);
    let contents: Vec<_> = contents.iter().map(joined).collect();
    json!([model, key, body["systemInstruction"], body["tools"], contents, self::joined(parts)])
}

/// Joins texts that follow each other and have no signature: a stream cuts them where it likes.
fn joined(parts: &[Value]) -> Vec<Value> {
    let is_text = |part: &Value| part["text"].is_string() && part.get("thoughtSignature").is_none();
    let mut joined: Vec<Value> = Vec::new();
    for part in parts {
        match joined.last_mut() {
            Some(last) if is_text(last) && is_text(part) && last.get("thought") == part.get("thought") => {
                let text = [&last["text"], &part["text"]].map(|text| text.as_str().unwrap_or_default());
                last["text"] = text.concat().into();
            }
            _ => joined.push(part.clone()),
        }
    }
    joined
}

pub(crate) fn give(account: &mut Account, request: &Request, body: &Value, items: &[Item]) -> Answer {
    // Texts that follow each other are one part.
    let mut whole: Vec<Item> = Vec::new();
    for item in items {
        match (whole.last_mut(), item) {
            (Some(Item::Text(text)), Item::Text(more)) => text.push_str(more),
            (_, Item::Redacted) => {}
            _ => whole.push(item.clone()),
        }
    }
    let items = whole;
    let mut parts: Vec<Value> = Vec::new();
    let mut has_call = false;
    for (index, item) in items.iter().enumerate() {
        let is_last = index + 1 == items.len();
        let part = match item {
            Item::Reasoning(text) => json!({"text": text, "thought": true}),
            Item::Redacted => continue,
            // The last text of an answer without calls is signed, and so is the first call.
            Item::Text(text) if is_last && !has_call => {
                let signature = account.sign(&before(request, body, list(&body["contents"]), &parts));
                json!({"text": text, "thoughtSignature": signature})
            }
            Item::Text(text) => json!({"text": text}),
            Item::Call { name, arguments } => {
                let id = account.id("fc", index);
                let arguments = if arguments.is_object() { arguments.clone() } else { json!({}) };
                let mut part = json!({"functionCall": {"id": id, "name": name, "args": arguments}});
                if !has_call {
                    let before = before(request, body, list(&body["contents"]), &parts);
                    part["thoughtSignature"] = account.sign(&before).into();
                    has_call = true;
                }
                part
            }
        };
        parts.push(part);
    }
    answer(&parts)
}

fn has(content: &Value, member: &str) -> usize {
    list(&content["parts"]).iter().filter(|part| part[member].is_object()).count()
}

pub(crate) fn check(account: &Account, request: &Request, body: &Value) -> Result<Checked, Refusal> {
    let refuse = |rule, what: String| Err(Refusal::new(rule, what));
    let declared = list(&body["tools"]).iter().flat_map(|tool| list(&tool["functionDeclarations"]));
    let names = declared.map(|tool| tool["name"].as_str());
    tool_names(names.clone(), 64)?;
    let is_first = |c: char| c.is_ascii_alphabetic() || c == '_';
    if names.flatten().any(|name| !name.starts_with(is_first)) {
        return refuse(
            Rule::ToolName,
            "Invalid function name. Must start with a letter or an underscore.".to_owned(),
        );
    }
    let contents = list(&body["contents"]);
    let Some(last) = contents.last() else {
        return refuse(Rule::Shape, "contents is not specified".to_owned());
    };
    if last["role"] == "model" {
        return refuse(
            Rule::Order,
            "Please ensure that single turn requests end with a user role or the role field is empty."
                .to_owned(),
        );
    }
    // Earlier models do not sign their calls.
    let is_signed = !["gemini-1", "gemini-2"].iter().any(|old| request.path.contains(old));
    // The current turn begins behind the last text of the user.
    let is_prompt = |content: &Value| content["role"] != "model" && has(content, "functionResponse") == 0;
    let turn = contents.iter().rposition(is_prompt).unwrap_or_default();
    let mut checked = Checked::default();
    for (at, content) in contents.iter().enumerate() {
        let parts = list(&content["parts"]);
        let is_empty = |part: &Value| part.as_object().is_none_or(serde_json::Map::is_empty);
        if parts.is_empty() || parts.iter().any(is_empty) {
            let what = format!(
                "* GenerateContentRequest.contents[{at}].parts[0].data: required oneof field 'data' must have one initialized field"
            );
            return refuse(Rule::Empty, what);
        }
        let calls = has(content, "functionCall");
        let results = contents.get(at + 1).map_or(0, |next| has(next, "functionResponse"));
        if calls > 0 && (at == 0 || contents[at - 1]["role"] == "model") {
            let what = "Please ensure that function call turn comes immediately after a user turn or after a function response turn.";
            return refuse(Rule::Order, what.to_owned());
        }
        if results < calls {
            let what = "Please ensure that the number of function response parts is equal to the number of function call parts \
                        of the function call turn.";
            return refuse(Rule::ResultMissing, what.to_owned());
        }
        if results > calls {
            let what =
                "Please ensure that function response turn comes immediately after a function call turn.";
            return refuse(Rule::CallMissing, what.to_owned());
        }
        if content["role"] == "model" {
            signatures(account, request, body, (at, is_signed && at >= turn), &mut checked)?;
        }
    }
    Ok(checked)
}

/// Holds the signatures of one answer against what stands before them.
fn signatures(
    account: &Account,
    request: &Request,
    body: &Value,
    (at, is_current): (usize, bool),
    checked: &mut Checked,
) -> Result<(), Refusal> {
    let contents = list(&body["contents"]);
    let parts = list(&contents[at]["parts"]);
    let first = parts.iter().find(|part| part["functionCall"].is_object()).filter(|_| is_current);
    if let Some(call) = first.filter(|call| call["thoughtSignature"].as_str().is_none_or(str::is_empty)) {
        let name = call["functionCall"]["name"].as_str().unwrap_or_default();
        let what = format!(
            "Function call is missing a thought_signature in functionCall parts. This is required for tools to work \
                 correctly, and missing thought_signature may lead to degraded model performance. Additional data, function \
                 call `default_api:{name}`, position {at}."
        );
        return Err(Refusal::new(Rule::SignatureMissing, what));
    }
    for (n, part) in parts.iter().enumerate() {
        let Some(signature) = part["thoughtSignature"].as_str() else { continue };
        if NOT_SIGNED.contains(&signature) {
            continue;
        }
        match account.verify(signature, &before(request, body, &contents[..at], &parts[..n])) {
            Signed::Current => checked.current.push(signature.to_owned()),
            Signed::Stale if !is_current => checked.stale.push(signature.to_owned()),
            Signed::Stale | Signed::Forged => {
                return Err(Refusal::new(Rule::Signature, "Corrupted thought signature."));
            }
        }
    }
    Ok(())
}
