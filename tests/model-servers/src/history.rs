//! Rules about what a conversation holds at any depth: names and arguments of calls, and what stands in their results.

use serde_json::Value;

use crate::rule::{Refusal, Rule, Wire, is_name, list};

/// Holds each call and each result of a conversation against the rules of the API.
pub(crate) fn check(wire: Wire, body: &Value) -> Result<(), Refusal> {
    let items: Vec<&Value> = match wire {
        Wire::Anthropic => {
            list(&body["messages"]).iter().flat_map(|message| list(&message["content"])).collect()
        }
        Wire::Responses => list(&body["input"]).iter().collect(),
        Wire::Gemini => list(&body["contents"]).iter().flat_map(|content| list(&content["parts"])).collect(),
        Wire::Chat => list(&body["messages"]).iter().collect(),
    };
    for (at, item) in items.into_iter().enumerate() {
        for (name, arguments) in calls(wire, item) {
            let most = if wire == Wire::Anthropic { 128 } else { 64 };
            if !name.as_str().is_some_and(|name| is_name(name, most)) {
                let what = format!(
                    "Invalid name of a call at {at}: string does not match pattern '^[a-zA-Z0-9_-]+$'."
                );
                return Err(Refusal::new(Rule::ToolName, what));
            }
            let is_object = match arguments {
                Value::String(text) => {
                    serde_json::from_str::<Value>(text).is_ok_and(|value| value.is_object())
                }
                value => value.is_object(),
            };
            if !is_object {
                let what =
                    format!("Invalid arguments of a call at {at}: input should be a valid JSON object.");
                return Err(Refusal::new(Rule::Arguments, what));
            }
        }
        if result_texts(wire, item).into_iter().any(|text| text.trim().is_empty()) {
            let what = format!("messages at {at}: text content blocks must contain non-whitespace text");
            return Err(Refusal::new(Rule::Empty, what));
        }
    }
    Ok(())
}

/// Names and arguments of the calls of an item.
fn calls(wire: Wire, item: &Value) -> Vec<(&Value, &Value)> {
    match wire {
        Wire::Anthropic if item["type"] == "tool_use" => vec![(&item["name"], &item["input"])],
        Wire::Responses if item["type"] == "function_call" => vec![(&item["name"], &item["arguments"])],
        Wire::Gemini if item["functionCall"].is_object() => {
            let call = &item["functionCall"];
            vec![(&call["name"], &call["args"])]
        }
        Wire::Chat => {
            let calls = list(&item["tool_calls"]).iter();
            calls.map(|call| (&call["function"]["name"], &call["function"]["arguments"])).collect()
        }
        _ => Vec::new(),
    }
}

/// Texts of a result that consists of parts.
fn result_texts(wire: Wire, item: &Value) -> Vec<&str> {
    let parts = match wire {
        Wire::Anthropic if item["type"] == "tool_result" => &item["content"],
        Wire::Responses if item["type"] == "function_call_output" => &item["output"],
        Wire::Chat if item["role"] == "tool" => &item["content"],
        _ => return Vec::new(),
    };
    list(parts).iter().filter_map(|part| part["text"].as_str()).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn calls_and_results_are_checked_on_each_wire() {
        let sound = [
            (
                Wire::Anthropic,
                json!({"messages": [{"content": [{"type": "tool_use", "name": "a", "input": {}}]}]}),
            ),
            (Wire::Responses, json!({"input": [{"type": "function_call", "name": "a", "arguments": "{}"}]})),
            (Wire::Gemini, json!({"contents": [{"parts": [{"functionCall": {"name": "a", "args": {}}}]}]})),
            (
                Wire::Chat,
                json!({"messages": [{"tool_calls": [{"function": {"name": "a", "arguments": "{}"}}]}]}),
            ),
        ];
        for (wire, body) in sound {
            assert_eq!(check(wire, &body), Ok(()), "{wire:?}");
            for (from, to, rule) in [("\"a\"", "\"a.b\"", Rule::ToolName), ("{}", "[]", Rule::Arguments)] {
                let broken = serde_json::from_str(&body.to_string().replace(from, to)).unwrap();
                assert_eq!(check(wire, &broken).unwrap_err().rule, rule, "{wire:?}: {broken}");
            }
        }
        let empty = [
            (
                Wire::Anthropic,
                json!({"messages": [{"content": [{"type": "tool_result", "content": [{"type": "text", "text": " "}]}]}]}),
            ),
            (
                Wire::Responses,
                json!({"input": [{"type": "function_call_output", "output": [{"type": "input_text", "text": ""}]}]}),
            ),
            (Wire::Chat, json!({"messages": [{"role": "tool", "content": [{"type": "text", "text": ""}]}]})),
        ];
        for (wire, body) in empty {
            assert_eq!(check(wire, &body).unwrap_err().rule, Rule::Empty, "{wire:?}");
        }
    }
}
