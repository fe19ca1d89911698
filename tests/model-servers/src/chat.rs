//! Chat completions, as OpenAI and others have them.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::account::Account;
use crate::message::Answer;
use crate::rule::{Checked, Item, Refusal, Rule, list, tool_names, written};
use crate::schema;

/// Returns an answer with these pieces of the message.
pub fn answer(deltas: &[Value], finish: &str) -> Answer {
    let chunk = |delta: &Value, finish: Value| {
        json!({"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m",
            "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})
    };
    let mut events: Vec<_> = deltas.iter().map(|delta| chunk(delta, Value::Null)).collect();
    events.push(chunk(&json!({}), finish.into()));
    events.push(json!({"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [],
        "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}}));
    let mut events: Vec<_> = events.iter().map(Value::to_string).collect();
    events.push("[DONE]".to_owned());
    Answer::events(events.iter().map(String::as_str))
}

/// Returns an answer with one text.
pub fn text_answer(text: &str) -> Answer {
    answer(&[json!({"role": "assistant", "content": text})], "stop")
}

pub(crate) fn give(account: &Account, items: &[Item]) -> Answer {
    let mut deltas = vec![json!({"role": "assistant", "content": ""})];
    let mut calls = 0;
    for (index, item) in items.iter().enumerate() {
        match item {
            Item::Text(text) => deltas.push(json!({"content": text})),
            Item::Reasoning(_) | Item::Redacted => {}
            Item::Call { name, arguments } => {
                let id = account.id("call", index);
                deltas.push(json!({"tool_calls": [{"index": calls, "id": id, "type": "function",
                    "function": {"name": name, "arguments": written(arguments)}}]}));
                calls += 1;
            }
        }
    }
    answer(&deltas, if calls > 0 { "tool_calls" } else { "stop" })
}

pub(crate) fn check(body: &Value) -> Result<Checked, Refusal> {
    let refuse = |rule, what: String| Err(Refusal::new(rule, what));
    let own = list(&body["tools"]).iter().filter(|tool| tool["type"] == "function");
    let functions = own.map(|tool| &tool["function"]);
    tool_names(functions.clone().map(|function| function["name"].as_str()), 64)?;
    schema::of_openai(functions.map(|function| (function["name"].as_str(), &function["parameters"])))?;
    let messages = list(&body["messages"]);
    if messages.is_empty() {
        let what = "Invalid 'messages': empty array. Expected an array with minimum length 1, but got an empty array instead.";
        return refuse(Rule::Shape, what.to_owned());
    }
    // Calls of the last message of the model that have no result yet.
    let mut open = BTreeSet::new();
    let mut can_answer = false;
    for (at, message) in messages.iter().enumerate() {
        let is_result = message["role"] == "tool";
        if is_result {
            let call = message["tool_call_id"].as_str().unwrap_or_default();
            if !can_answer || !open.remove(call) {
                let what = "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with 'tool_calls'.";
                return refuse(Rule::CallMissing, what.to_owned());
            }
            continue;
        }
        unanswered(&open)?;
        let calls = list(&message["tool_calls"]);
        if calls.is_empty() && message["content"].is_null() && message["refusal"].is_null() {
            let what = format!("Invalid value for 'content': expected a string, got null. (messages[{at}])");
            return refuse(Rule::Empty, what);
        }
        for (n, call) in calls.iter().enumerate() {
            let id = call["id"].as_str().unwrap_or_default();
            if id.is_empty() || id.len() > 40 || !open.insert(id) {
                let what = format!(
                    "Invalid 'messages[{at}].tool_calls[{n}].id': expected another string of 1 to 40 characters."
                );
                return refuse(Rule::CallId, what);
            }
        }
        can_answer = !calls.is_empty();
    }
    unanswered(&open)?;
    Ok(Checked::default())
}

fn unanswered(open: &BTreeSet<&str>) -> Result<(), Refusal> {
    let Some(call) = open.first() else { return Ok(()) };
    let what = format!(
        "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. The following \
         tool_call_ids did not have response messages: {call}"
    );
    Err(Refusal::new(Rule::ResultMissing, what))
}
