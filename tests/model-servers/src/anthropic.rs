//! Anthropic's Messages.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::account::{Account, Signed};
use crate::message::{Answer, Request};
use crate::rule::{Checked, Item, Refusal, Rule, is_name, list, tool_names, written};
use crate::schema;

/// Returns an answer with these blocks, each streamed in one piece.
pub fn answer(blocks: &[Value], stop: &str) -> Answer {
    Answer::events(events(blocks, stop).iter().map(String::as_str))
}

/// Returns an answer with one text.
pub fn text_answer(text: &str) -> Answer {
    answer(&[json!({"type": "text", "text": text})], "end_turn")
}

/// Returns the data of the events of an answer with these blocks.
pub fn events(blocks: &[Value], stop: &str) -> Vec<String> {
    let mut events = vec![json!({"type": "message_start", "message": {
        "id": "msg_1", "type": "message", "role": "assistant", "content": [], "model": "claude",
        "stop_reason": null, "stop_sequence": null,
        "usage": {"input_tokens": 10, "cache_read_input_tokens": 100, "cache_creation_input_tokens": 5, "output_tokens": 1}
    }})];
    for (index, block) in blocks.iter().enumerate() {
        let mut start = block.clone();
        let deltas = match block["type"].as_str() {
            Some("text") => {
                start["text"] = "".into();
                vec![json!({"type": "text_delta", "text": block["text"]})]
            }
            Some("thinking") => {
                (start["thinking"], start["signature"]) = ("".into(), "".into());
                vec![
                    json!({"type": "thinking_delta", "thinking": block["thinking"]}),
                    json!({"type": "signature_delta", "signature": block["signature"]}),
                ]
            }
            Some("tool_use") => {
                start["input"] = json!({});
                vec![json!({"type": "input_json_delta", "partial_json": written(&block["input"])})]
            }
            _ => Vec::new(),
        };
        events.push(json!({"type": "content_block_start", "index": index, "content_block": start}));
        let piece = |delta| json!({"type": "content_block_delta", "index": index, "delta": delta});
        events.extend(deltas.into_iter().map(piece));
        events.push(json!({"type": "content_block_stop", "index": index}));
    }
    events.push(json!({"type": "message_delta", "delta": {"stop_reason": stop, "stop_sequence": null},
        "usage": {"output_tokens": 30, "output_tokens_details": {"thinking_tokens": 20}}}));
    events.push(json!({"type": "message_stop"}));
    events.iter().map(Value::to_string).collect()
}

/// What stands before a block of an answer.
fn before(request: &Request, body: &Value, messages: &[Value], blocks: &[Value]) -> Value {
    let key = request.header("x-api-key");
    json!([body["model"], key, body["system"], body["tools"], messages, blocks])
}

pub(crate) fn give(account: &mut Account, request: &Request, body: &Value, items: &[Item]) -> Answer {
    let mut blocks = Vec::new();
    let mut stop = "end_turn";
    for (index, item) in items.iter().enumerate() {
        let mut sign = |blocks: &[Value]| {
            let before = before(request, body, list(&body["messages"]), blocks);
            account.sign(&before)
        };
        blocks.push(match item {
            Item::Text(text) => json!({"type": "text", "text": text}),
            Item::Reasoning(text) => {
                json!({"type": "thinking", "thinking": text, "signature": sign(&blocks)})
            }
            Item::Redacted => json!({"type": "redacted_thinking", "data": sign(&blocks)}),
            Item::Call { name, arguments } => {
                stop = "tool_use";
                json!({"type": "tool_use", "id": account.id("toolu", index), "name": name, "input": arguments})
            }
        });
    }
    answer(&blocks, stop)
}

/// Blocks of a message; a text stands for one block.
fn blocks(message: &Value) -> Vec<Value> {
    match &message["content"] {
        Value::String(text) => vec![json!({"type": "text", "text": text})],
        content => list(content).to_vec(),
    }
}

fn ids<'a>(blocks: &'a [Value], kind: &'a str, member: &'a str) -> impl Iterator<Item = &'a str> {
    blocks
        .iter()
        .filter(move |block| block["type"] == kind)
        .map(move |block| block[member].as_str().unwrap_or_default())
}

pub(crate) fn check(account: &Account, request: &Request, body: &Value) -> Result<Checked, Refusal> {
    let refuse = |rule, what: String| Err(Refusal::new(rule, what));
    if body["max_tokens"].as_u64().is_none_or(|most| most == 0) {
        return refuse(Rule::Shape, "max_tokens: Field required".to_owned());
    }
    // Tools that the provider runs have a type of their own.
    let own =
        list(&body["tools"]).iter().filter(|tool| matches!(tool["type"].as_str(), None | Some("custom")));
    tool_names(own.clone().map(|tool| tool["name"].as_str()), 128)?;
    schema::of_anthropic(own.map(|tool| &tool["input_schema"]))?;
    let messages = list(&body["messages"]);
    if messages.is_empty() {
        return refuse(Rule::Shape, "messages: at least one message is required".to_owned());
    }
    if messages.last().is_some_and(|last| last["role"] == "assistant") {
        let what = "This model does not support assistant message prefill. The conversation must end with a user message.";
        return refuse(Rule::Order, what.to_owned());
    }
    let mut checked = Checked::default();
    let mut seen = BTreeSet::new();
    for (at, message) in messages.iter().enumerate() {
        let content = blocks(message);
        if content.is_empty() {
            return refuse(Rule::Empty, format!("messages.{at}: all messages must have non-empty content"));
        }
        if content.iter().any(|block| block["type"] == "text" && blank(&block["text"])) {
            return refuse(
                Rule::Empty,
                "messages: text content blocks must contain non-whitespace text".to_owned(),
            );
        }
        for id in ids(&content, "tool_use", "id") {
            if !is_name(id, usize::MAX) {
                let what = format!(
                    "messages.{at}.content: tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'"
                );
                return refuse(Rule::CallId, what);
            }
            if !seen.insert(id.to_owned()) {
                return refuse(Rule::CallId, format!("messages.{at}: `tool_use` ids must be unique"));
            }
        }
        let next = messages.get(at + 1).map(blocks).unwrap_or_default();
        let answered: BTreeSet<_> = ids(&next, "tool_result", "tool_use_id").collect();
        if let Some(id) = ids(&content, "tool_use", "id").find(|id| !answered.contains(id)) {
            let what = format!(
                "messages.{at}: `tool_use` ids were found without `tool_result` blocks immediately after: {id}. Each `tool_use` \
                 block must have a corresponding `tool_result` block in the next message."
            );
            return refuse(Rule::ResultMissing, what);
        }
        let earlier = at.checked_sub(1).map(|before| blocks(&messages[before])).unwrap_or_default();
        let called: BTreeSet<_> = ids(&earlier, "tool_use", "id").collect();
        let mut results = BTreeSet::new();
        for id in ids(&content, "tool_result", "tool_use_id") {
            if !called.contains(id) || !results.insert(id) {
                let what = format!(
                    "messages.{at}: unexpected `tool_use_id` found in `tool_result` blocks: {id}. Each `tool_result` block must \
                     have a corresponding `tool_use` block in the previous message."
                );
                return refuse(Rule::CallMissing, what);
            }
        }
        if message["role"] == "assistant" {
            signatures(account, request, body, (at, &content), &mut checked)?;
            let thinks =
                |block: &Value| matches!(block["type"].as_str(), Some("thinking" | "redacted_thinking"));
            let is_on = matches!(body["thinking"]["type"].as_str(), Some("enabled"));
            if is_on
                && at + 2 == messages.len()
                && !answered.is_empty()
                && !content.first().is_some_and(thinks)
            {
                let found = content[0]["type"].as_str().unwrap_or_default();
                let what = format!(
                    "messages.{at}.content.0.type: Expected `thinking` or `redacted_thinking`, but found `{found}`. When `thinking` \
                     is enabled, a final `assistant` message must start with a thinking block"
                );
                return refuse(Rule::ThinkingFirst, what);
            }
        }
    }
    Ok(checked)
}

fn blank(text: &Value) -> bool {
    text.as_str().is_none_or(|text| text.trim().is_empty())
}

/// Holds the signatures of one message against what stands before them.
fn signatures(
    account: &Account,
    request: &Request,
    body: &Value,
    (at, content): (usize, &[Value]),
    checked: &mut Checked,
) -> Result<(), Refusal> {
    for (n, block) in content.iter().enumerate() {
        let signature = match block["type"].as_str() {
            Some("thinking") => &block["signature"],
            Some("redacted_thinking") => &block["data"],
            _ => continue,
        };
        let signature = signature.as_str().unwrap_or_default();
        let before = before(request, body, &list(&body["messages"])[..at], &content[..n]);
        match account.verify(signature, &before) {
            Signed::Current => checked.current.push(signature.to_owned()),
            Signed::Stale | Signed::Forged => {
                let what = format!("messages.{at}.content.{n}: Invalid `signature` in `thinking` block");
                return Err(Refusal::new(Rule::Signature, what));
            }
        }
    }
    Ok(())
}
