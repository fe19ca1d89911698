//! Each rule of each API: a conversation that is accepted, and the smallest change that is refused.

use model_servers::{Answer, Item, Provider, Request, Rule, Wire};
use serde_json::{Value, json};

/// Returns the data of the events of an answer, read back.
fn events(answer: &Answer) -> Vec<Value> {
    let data = answer.body().lines().filter_map(|line| line.strip_prefix("data: "));
    data.filter(|data| *data != "[DONE]").map(|data| serde_json::from_str(data).unwrap()).collect()
}

fn call() -> Item {
    Item::Call { name: "look".to_owned(), arguments: json!({"at": 1}) }
}

fn items() -> Vec<Item> {
    vec![
        Item::Reasoning("They ask.".to_owned()),
        Item::Text("I look.".to_owned()),
        Item::Reasoning("So.".to_owned()),
        call(),
    ]
}

/// Schemas of functions that OpenAI's APIs refuse.
const REFUSED_BY_OPENAI: [&str; 5] = [
    "{}",
    r#"{"type":"string"}"#,
    r#"{"type":"object","oneOf":[{"required":["a"]}]}"#,
    r#"{"type":"object","enum":[{}]}"#,
    r#"{"type":"object","properties":{"a":{"anyOf":[{"type":"array"}]}}}"#,
];

/// A conversation at the point where the result of a call is sent.
struct Talk {
    provider: Provider,
    path: &'static str,
    body: Value,
}

impl Talk {
    /// Asks, takes the answer as a client does that keeps everything, and adds the result.
    fn new(wire: Wire) -> Self {
        let mut provider = Provider::new(wire);
        let (path, mut body) = match wire {
            Wire::Anthropic => (
                "/v1/messages",
                json!({"model": "claude", "max_tokens": 9, "system": "Be brief.",
                "tools": [{"name": "look", "input_schema": {"type": "object"}}], "messages": [{"role": "user", "content": "Hello"}]}),
            ),
            Wire::Responses => (
                "/responses",
                json!({"model": "gpt", "store": false, "include": ["reasoning.encrypted_content"],
                "tools": [{"type": "function", "name": "look"}], "input": [{"role": "user", "content": "Hello"}]}),
            ),
            Wire::Gemini => (
                "/v1beta/models/gemini-3:streamGenerateContent?alt=sse",
                json!({
                "tools": [{"functionDeclarations": [{"name": "look"}]}],
                "contents": [{"role": "user", "parts": [{"text": "Hello"}]}]}),
            ),
            Wire::Chat => (
                "/chat/completions",
                json!({"model": "m", "tools": [{"type": "function", "function": {"name": "look"}}],
                "messages": [{"role": "user", "content": "Hello"}]}),
            ),
        };
        let request = Request::new(path, &body);
        assert_eq!(provider.check(&request).unwrap(), model_servers::Checked::default());
        let events = events(&provider.answer(&request, &items()));
        match wire {
            Wire::Anthropic => {
                let mut blocks: Vec<Value> = Vec::new();
                for event in events {
                    match event["type"].as_str().unwrap() {
                        "content_block_start" => blocks.push(event["content_block"].clone()),
                        "content_block_delta" => {
                            let (delta, block) = (&event["delta"], blocks.last_mut().unwrap());
                            for name in ["text", "thinking", "signature"] {
                                if delta[name].is_string() {
                                    block[name] = delta[name].clone();
                                }
                            }
                            if let Some(input) = delta["partial_json"].as_str() {
                                block["input"] = serde_json::from_str(input).unwrap();
                            }
                        }
                        _ => {}
                    }
                }
                let result =
                    json!([{"type": "tool_result", "tool_use_id": blocks[3]["id"], "content": "done"}]);
                push(
                    &mut body["messages"],
                    [
                        json!({"role": "assistant", "content": blocks}),
                        json!({"role": "user", "content": result}),
                    ],
                );
            }
            Wire::Responses => {
                let done = events.iter().filter(|event| event["type"] == "response.output_item.done");
                let output: Vec<_> = done.map(|event| event["item"].clone()).collect();
                let result = json!({"type": "function_call_output", "call_id": output[3]["call_id"], "output": "done"});
                push(&mut body["input"], output.into_iter().chain([result]));
            }
            Wire::Gemini => {
                let parts = events.iter().map(|event| event["candidates"][0]["content"]["parts"][0].clone());
                let parts: Vec<_> = parts.filter(|part| part["text"] != "").collect();
                let id = &parts[3]["functionCall"]["id"];
                let result = json!([{"functionResponse": {"id": id, "name": "look", "response": {}}}]);
                push(
                    &mut body["contents"],
                    [json!({"role": "model", "parts": parts}), json!({"role": "user", "parts": result})],
                );
            }
            Wire::Chat => {
                let delta = |event: &Value| event["choices"][0]["delta"]["tool_calls"][0].clone();
                let mut call = events.iter().map(delta).find(Value::is_object).unwrap();
                call.as_object_mut().unwrap().remove("index");
                let result = json!({"role": "tool", "tool_call_id": call["id"], "content": "done"});
                push(
                    &mut body["messages"],
                    [json!({"role": "assistant", "content": "I look.", "tool_calls": [call]}), result],
                );
            }
        }
        Self { provider, path, body }
    }

    fn check(&self, body: &Value) -> Result<model_servers::Checked, Rule> {
        self.provider.check(&Request::new(self.path, body)).map_err(|refusal| {
            let answer = refusal.answer(self.provider.wire());
            assert_eq!(answer.code(), refusal.status);
            assert!(answer.body().contains("\"error\""), "{}", answer.body());
            refusal.rule
        })
    }

    /// Checks that the conversation is accepted, and refused by this rule after the change.
    fn refused(&self, rule: Rule, change: impl FnOnce(&mut Value)) {
        self.check(&self.body).unwrap();
        let mut body = self.body.clone();
        change(&mut body);
        assert_ne!(body, self.body, "{rule:?}: nothing changed");
        assert_eq!(self.check(&body), Err(rule));
    }
}

fn push(list: &mut Value, items: impl IntoIterator<Item = Value>) {
    list.as_array_mut().unwrap().extend(items);
}

fn remove(list: &mut Value, at: usize) {
    list.as_array_mut().unwrap().remove(at);
}

#[test]
fn anthropic_refuses_what_breaks_a_rule() {
    let talk = Talk::new(Wire::Anthropic);
    assert_eq!(talk.check(&talk.body).unwrap().current.len(), 2);
    let user = |text: &str| json!({"role": "user", "content": text});
    talk.refused(Rule::Shape, |body| body["max_tokens"] = Value::Null);
    talk.refused(Rule::Shape, |body| body["messages"] = json!([]));
    talk.refused(Rule::ToolName, |body| body["tools"][0]["name"] = "look at".into());
    for schema in [
        json!({"type": "object", "properties": {"$.x": {}}}),
        json!({"type": "object", "properties": {"k".repeat(65): {}}}),
        json!({"type": "object", "properties": {"a": {"type": "array", "items": {"properties": {"": {}}}}}}),
        json!({"type": "object", "anyOf": [{"required": ["a"]}]}),
        json!({"type": "object", "properties": {"a": {"type": "array", "items": [{}, {}]}}}),
        json!({"type": "object", "properties": {"a": {"type": "any"}}}),
        json!({"properties": {}}),
        json!({"type": "array"}),
    ] {
        talk.refused(Rule::ToolSchema, |body| body["tools"][0]["input_schema"] = schema);
    }
    talk.refused(Rule::Order, |body| {
        push(&mut body["messages"], [json!({"role": "assistant", "content": "So"})]);
    });
    talk.refused(Rule::Empty, |body| push(&mut body["messages"], [json!({"role": "user", "content": []})]));
    talk.refused(Rule::Empty, |body| push(&mut body["messages"], [user(" \n")]));
    talk.refused(Rule::CallId, |body| body["messages"][1]["content"][3]["id"] = "a.b".into());
    talk.refused(Rule::CallId, |body| {
        let call = body["messages"][1]["content"][3].clone();
        push(&mut body["messages"][1]["content"], [call]);
    });
    talk.refused(Rule::ResultMissing, |body| body["messages"][2] = user("Never mind"));
    talk.refused(Rule::ResultMissing, |body| {
        body["messages"].as_array_mut().unwrap().insert(2, user("Wait"));
    });
    talk.refused(Rule::CallMissing, |body| remove(&mut body["messages"][1]["content"], 3));
    talk.refused(Rule::CallMissing, |body| {
        let result = body["messages"][2]["content"][0].clone();
        push(&mut body["messages"][2]["content"], [result]);
    });
    // Each thing that a signature covers.
    talk.refused(Rule::Signature, |body| body["model"] = "other".into());
    talk.refused(Rule::Signature, |body| body["system"] = "Be long.".into());
    talk.refused(Rule::Signature, |body| body["tools"][0]["input_schema"]["title"] = json!("x"));
    talk.refused(Rule::Signature, |body| body["messages"][0] = user("Hallo"));
    talk.refused(Rule::Signature, |body| remove(&mut body["messages"][1]["content"], 0));
    talk.refused(Rule::Signature, |body| body["messages"][1]["content"][1]["text"] = "I  look.".into());
    talk.refused(Rule::Signature, |body| body["messages"][1]["content"][0]["signature"] = "".into());
    talk.refused(Rule::ThinkingFirst, |body| {
        body["thinking"] = json!({"type": "enabled", "budget_tokens": 1024});
        for _ in 0..3 {
            remove(&mut body["messages"][1]["content"], 0);
        }
    });
    let other = Provider::new(Wire::Anthropic).with_account("other");
    let refusal = other.check(&Request::new(talk.path, &talk.body)).unwrap_err();
    assert_eq!(refusal.rule, Rule::Signature);
    other.trusting().check(&Request::new(talk.path, &talk.body)).unwrap();
}

/// Marks for caches move from request to request.
#[test]
fn marks_for_caches_are_not_signed() {
    let mut talk = Talk::new(Wire::Anthropic);
    talk.body["tools"][0]["cache_control"] = json!({"type": "ephemeral"});
    assert_eq!(talk.check(&talk.body).unwrap().current.len(), 2);
}

#[test]
fn responses_refuses_what_breaks_a_rule() {
    let talk = Talk::new(Wire::Responses);
    let checked = talk.check(&talk.body).unwrap();
    assert_eq!((checked.current.len(), checked.stale.len()), (2, 0));
    // Items: question, reasoning, message, reasoning, call, result.
    talk.refused(Rule::Shape, |body| body["input"] = json!([]));
    talk.refused(Rule::ToolName, |body| body["tools"][0]["name"] = "".into());
    for schema in REFUSED_BY_OPENAI {
        let schema: Value = serde_json::from_str(schema).unwrap();
        talk.refused(Rule::ToolSchema, |body| body["tools"][0]["parameters"] = schema);
    }
    talk.refused(Rule::FollowingItem, |body| remove(&mut body["input"], 2));
    talk.refused(Rule::FollowingItem, |body| {
        let ask = json!({"role": "user", "content": "Wait"});
        body["input"].as_array_mut().unwrap().insert(4, ask);
    });
    talk.refused(Rule::ReasoningItem, |body| remove(&mut body["input"], 3));
    talk.refused(Rule::DuplicateItem, |body| {
        let message = body["input"][2].clone();
        push(&mut body["input"], [message]);
    });
    talk.refused(Rule::CallId, |body| {
        let mut call = body["input"][4].clone();
        call["id"] = "fc_new".into();
        push(&mut body["input"], [call]);
    });
    talk.refused(Rule::ResultMissing, |body| remove(&mut body["input"], 5));
    talk.refused(Rule::CallMissing, |body| body["input"][5]["call_id"] = "call_0".into());
    talk.refused(Rule::Signature, |body| body["input"][1]["encrypted_content"] = "gAAAA".into());
    talk.refused(Rule::Signature, |body| body["input"][1]["encrypted_content"] = Value::Null);
    // A changed beginning is not refused; the reasoning is dropped.
    let mut changed = talk.body.clone();
    changed["input"][0]["content"] = "Hallo".into();
    let checked = talk.check(&changed).unwrap();
    assert_eq!((checked.current.len(), checked.stale.len()), (0, 2));
}

#[test]
fn gemini_refuses_what_breaks_a_rule() {
    let talk = Talk::new(Wire::Gemini);
    assert_eq!(talk.check(&talk.body).unwrap().current.len(), 1);
    talk.refused(Rule::Shape, |body| body["contents"] = json!([]));
    talk.refused(Rule::ToolName, |body| body["tools"][0]["functionDeclarations"][0]["name"] = "a b".into());
    talk.refused(Rule::ToolName, |body| body["tools"][0]["functionDeclarations"][0]["name"] = "1st".into());
    talk.refused(Rule::Order, |body| {
        push(&mut body["contents"], [json!({"role": "model", "parts": [{"text": "So"}]})]);
    });
    talk.refused(Rule::Order, |body| remove(&mut body["contents"], 0));
    talk.refused(Rule::Empty, |body| push(&mut body["contents"], [json!({"role": "user", "parts": [{}]})]));
    talk.refused(Rule::Empty, |body| push(&mut body["contents"], [json!({"role": "user", "parts": []})]));
    talk.refused(Rule::ResultMissing, |body| body["contents"][2]["parts"] = json!([{"text": "Never mind"}]));
    talk.refused(Rule::CallMissing, |body| {
        let result = body["contents"][2].clone();
        push(&mut body["contents"], [result]);
    });
    let signed = |body: &mut Value, with: Value| body["contents"][1]["parts"][3]["thoughtSignature"] = with;
    talk.refused(Rule::SignatureMissing, |body| signed(body, Value::Null));
    talk.refused(Rule::Signature, |body| signed(body, "EpEg".into()));
    talk.refused(Rule::Signature, |body| body["contents"][0]["parts"][0]["text"] = "Hallo".into());
    talk.refused(Rule::Signature, |body| remove(&mut body["contents"][1]["parts"], 0));
    // What Google names for calls of another model.
    let mut foreign = talk.body.clone();
    signed(&mut foreign, "skip_thought_signature_validator".into());
    assert!(talk.check(&foreign).unwrap().current.is_empty());
    // In the next turn the signature may be missing, or stale.
    let mut later = talk.body.clone();
    push(
        &mut later["contents"],
        [
            json!({"role": "model", "parts": [{"text": "So"}]}),
            json!({"role": "user", "parts": [{"text": "Next"}]}),
        ],
    );
    later["contents"][0]["parts"][0]["text"] = "Hallo".into();
    assert_eq!(talk.check(&later).unwrap().stale.len(), 1);
    signed(&mut later, Value::Null);
    talk.check(&later).unwrap();
}

#[test]
fn chat_refuses_what_breaks_a_rule() {
    let talk = Talk::new(Wire::Chat);
    let user = json!({"role": "user", "content": "Wait"});
    talk.refused(Rule::Shape, |body| body["messages"] = json!([]));
    talk.refused(Rule::ToolName, |body| body["tools"][0]["function"]["name"] = "ö".into());
    for schema in REFUSED_BY_OPENAI {
        let schema: Value = serde_json::from_str(schema).unwrap();
        talk.refused(Rule::ToolSchema, |body| body["tools"][0]["function"]["parameters"] = schema);
    }
    talk.refused(Rule::Empty, |body| {
        push(&mut body["messages"], [json!({"role": "assistant", "content": null})]);
    });
    talk.refused(Rule::CallId, |body| body["messages"][1]["tool_calls"][0]["id"] = "c".repeat(41).into());
    talk.refused(Rule::ResultMissing, |body| remove(&mut body["messages"], 2));
    talk.refused(Rule::ResultMissing, |body| body["messages"].as_array_mut().unwrap().insert(2, user));
    talk.refused(Rule::CallMissing, |body| body["messages"][2]["tool_call_id"] = "call_0".into());
    talk.refused(Rule::CallMissing, |body| {
        body["messages"][1].as_object_mut().unwrap().remove("tool_calls");
    });
}

#[test]
fn bodies_that_are_no_objects_are_refused() {
    for wire in Wire::ALL {
        let request = Request { text: "[".to_owned(), ..Request::new("/", &Value::Null) };
        assert_eq!(Provider::new(wire).check(&request).unwrap_err().rule, Rule::Shape);
    }
}
