//! OpenAI's Responses, with `store: false`.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::account::{Account, Signed};
use crate::message::{Answer, Request};
use crate::rule::{Checked, Item, Refusal, Rule, list, tool_names, written};
use crate::schema;

/// Returns an answer with these output items.
pub fn answer(output: &[Value]) -> Answer {
    Answer::events(events(output).iter().map(String::as_str))
}

/// Returns an answer with one text.
pub fn text_answer(text: &str) -> Answer {
    answer(&[message("msg_done", text)])
}

fn message(id: &str, text: &str) -> Value {
    json!({"id": id, "type": "message", "status": "completed", "role": "assistant",
        "content": [{"type": "output_text", "annotations": [], "logprobs": [], "text": text}]})
}

/// Returns the data of the events of an answer with these output items.
pub fn events(output: &[Value]) -> Vec<String> {
    let response = |status: &str, output: &[Value]| {
        json!({"id": "resp_1", "object": "response", "created_at": 1, "model": "gpt-5.5", "status": status, "output": output,
            "parallel_tool_calls": true, "tool_choice": "auto", "tools": []})
    };
    let mut events = vec![json!({"type": "response.created", "response": response("in_progress", &[])})];
    for (index, item) in output.iter().enumerate() {
        let id = &item["id"];
        events.push(json!({"type": "response.output_item.added", "output_index": index, "item": item}));
        for (at, content) in list(&item["content"]).iter().enumerate().filter(|_| item["type"] == "message") {
            events.push(json!({"type": "response.output_text.delta", "item_id": id, "output_index": index,
                "content_index": at, "delta": content["text"], "logprobs": []}));
        }
        if item["type"] == "function_call" {
            events.push(
                json!({"type": "response.function_call_arguments.delta", "item_id": id, "output_index": index,
                "delta": item["arguments"]}),
            );
        }
        events.push(json!({"type": "response.output_item.done", "output_index": index, "item": item}));
    }
    let mut done = response("completed", output);
    done["usage"] = json!({"input_tokens": 10, "output_tokens": 5, "total_tokens": 15,
        "input_tokens_details": {"cached_tokens": 4}, "output_tokens_details": {"reasoning_tokens": 3}});
    events.push(json!({"type": "response.completed", "response": done}));
    for (number, event) in events.iter_mut().enumerate() {
        event["sequence_number"] = number.into();
    }
    events.iter().map(Value::to_string).collect()
}

/// What stands before an item of an answer.
fn before(request: &Request, body: &Value, input: &[Value], output: &[Value]) -> Value {
    let key = request.header("authorization");
    let items: Vec<_> = input.iter().chain(output).collect();
    json!([body["model"], key, body["instructions"], body["tools"], items])
}

pub(crate) fn give(account: &mut Account, request: &Request, body: &Value, items: &[Item]) -> Answer {
    let mut output: Vec<Value> = Vec::new();
    let is_asked = list(&body["include"]).iter().any(|what| what == "reasoning.encrypted_content");
    for (index, item) in items.iter().enumerate() {
        let made = match item {
            Item::Text(text) => message(&account.id("msg", index), text),
            // Reasoning leads to an item; without one behind it, it is not given.
            Item::Reasoning(text)
                if matches!(items.get(index + 1), Some(Item::Text(_) | Item::Call { .. })) =>
            {
                let signature = account.sign(&before(request, body, list(&body["input"]), &output));
                let encrypted = is_asked.then_some(signature);
                json!({"id": account.id("rs", index), "type": "reasoning", "encrypted_content": encrypted,
                    "summary": [{"type": "summary_text", "text": text}]})
            }
            Item::Reasoning(_) | Item::Redacted => continue,
            Item::Call { name, arguments } => {
                json!({"id": account.id("fc", index), "type": "function_call", "status": "completed",
                    "arguments": written(arguments), "call_id": account.id("call", index), "name": name})
            }
        };
        if let Some(reasoning) = output.last().filter(|last| last["type"] == "reasoning") {
            let (reasoning, item) = (id(reasoning).to_owned(), id(&made).to_owned());
            account.led_to.insert(reasoning, item);
        }
        output.push(made);
    }
    answer(&output)
}

fn id(item: &Value) -> &str {
    item["id"].as_str().unwrap_or_default()
}

fn kind(item: &Value) -> &str {
    item["type"].as_str().unwrap_or("message")
}

pub(crate) fn check(account: &Account, request: &Request, body: &Value) -> Result<Checked, Refusal> {
    let refuse = |rule, what: String| Err(Refusal::new(rule, what));
    let own = list(&body["tools"]).iter().filter(|tool| tool["type"] == "function");
    tool_names(own.clone().map(|tool| tool["name"].as_str()), 64)?;
    schema::of_openai(own.map(|tool| (tool["name"].as_str(), &tool["parameters"])))?;
    if body["input"].is_string() {
        return Ok(Checked::default());
    }
    let input = list(&body["input"]);
    if input.is_empty() {
        return refuse(Rule::Shape, "Missing required parameter: 'input'.".to_owned());
    }
    let mut checked = Checked::default();
    let mut ids = BTreeSet::new();
    // Calls that need a result, all calls, and those with a result.
    let (mut calls, mut known, mut results) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for (at, item) in input.iter().enumerate() {
        if !id(item).is_empty() && !ids.insert(id(item)) {
            let what = format!(
                "Duplicate item found with id {}. Remove duplicate items from your input and try again.",
                id(item)
            );
            return refuse(Rule::DuplicateItem, what);
        }
        let call = item["call_id"].as_str().unwrap_or_default();
        match kind(item) {
            "function_call" | "custom_tool_call" if !calls.insert(call) => {
                return refuse(Rule::CallId, format!("Duplicate function call with call_id {call}."));
            }
            kind if kind.ends_with("_call") => {
                known.insert(call);
            }
            "function_call_output" | "custom_tool_call_output" => {
                if !known.contains(call) {
                    let what = format!("No tool call found for function call output with call_id {call}.");
                    return refuse(Rule::CallMissing, what);
                }
                results.insert(call);
            }
            "reasoning" => reasoning(account, request, body, (at, item), &mut checked)?,
            _ => {}
        }
        let led_by = account.led_to.iter().find(|(_, led)| *led == id(item)).map(|(reasoning, _)| reasoning);
        if let Some(led_by) = led_by.filter(|led_by| at == 0 || id(&input[at - 1]) != **led_by) {
            let (id, kind) = (id(item), kind(item));
            let what = format!(
                "Item '{id}' of type '{kind}' was provided without its required 'reasoning' item: '{led_by}'."
            );
            return refuse(Rule::ReasoningItem, what);
        }
    }
    if let Some(call) = calls.difference(&results).next() {
        return refuse(Rule::ResultMissing, format!("No tool output found for function call {call}."));
    }
    Ok(checked)
}

/// Checks that reasoning is this account's, and that what it led to is behind it.
fn reasoning(
    account: &Account,
    request: &Request,
    body: &Value,
    (at, item): (usize, &Value),
    checked: &mut Checked,
) -> Result<(), Refusal> {
    let input = list(&body["input"]);
    let next = input.get(at + 1);
    let is_followed = match account.led_to.get(id(item)) {
        Some(led_to) => next.is_some_and(|next| id(next) == led_to),
        // An item that a model made: one with an id.
        None => next.is_some_and(|next| !id(next).is_empty()),
    };
    if !is_followed {
        let what = format!(
            "Item '{}' of type 'reasoning' was provided without its required following item.",
            id(item)
        );
        return Err(Refusal::new(Rule::FollowingItem, what));
    }
    let Some(encrypted) = item["encrypted_content"].as_str() else {
        if body["store"] == false {
            let what = format!(
                "Item with id '{}' not found. Items are not persisted when `store` is set to false. Try again with `store` set \
                 to true, or remove this item from your input.",
                id(item)
            );
            return Err(Refusal { status: 404, ..Refusal::new(Rule::Signature, what) });
        }
        return Ok(());
    };
    match account.verify(encrypted, &before(request, body, &input[..at], &[])) {
        Signed::Current => checked.current.push(encrypted.to_owned()),
        Signed::Stale => checked.stale.push(encrypted.to_owned()),
        Signed::Forged => {
            let what = "The encrypted content could not be verified. Reason: Encrypted content could not be decrypted or parsed.";
            return Err(Refusal::new(Rule::Signature, what));
        }
    }
    Ok(())
}
