//! Anthropic Messages.

use agent_core::event::EventPayload;
use agent_core::model::Cost;
use agent_rig::RigProvider;
use agent_rig::rig_core::providers::anthropic::wire::AnthropicConfig;
use agent_runtime::{LlmProvider, Usage};
use serde_json::{Value, json};

pub(crate) use model_servers::anthropic::{answer, events, text_answer};

use crate::recorded::{Recording, answers, anthropic_answers, anthropic_blocks, streams};
use crate::server::{Answer, Server};
use crate::{http, items, talk};

pub(crate) fn model(server: &Server, name: &str) -> RigProvider {
    let config = AnthropicConfig::new("SECRET-KEY").with_base_url(&server.url);
    RigProvider::new(config.client().with_http(http()).completion(name)).unwrap()
}

pub(crate) fn blocks() -> Vec<Value> {
    vec![
        json!({"type": "thinking", "thinking": "They ask.", "signature": "EqQBCgIYAg=="}),
        json!({"type": "redacted_thinking", "data": "EmwKAhgB"}),
        json!({"type": "text", "text": "I look."}),
        json!({"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"z": 1, "a": [2.5, {"é": null}]},
            "caller": {"type": "direct"}}),
        json!({"type": "tool_use", "id": "toolu_2", "name": "look", "input": {}}),
    ]
}

/// The first model binds its reasoning to the system prompt and the tools, and rig compares them; the second does not.
#[tokio::test]
async fn items_go_back_as_they_came_and_in_order() {
    for name in ["claude-opus-5-5", "claude-sonnet-4-5", "claude-of-tomorrow"] {
        let server =
            Server::start([answer(&blocks(), "tool_use"), text_answer("Done."), text_answer("Yes.")]).await;
        let model = model(&server, name);
        let talk = talk(model, &server, &["look"], 3).await;
        let bodies = talk.bodies("messages");
        for body in &bodies[1..] {
            assert_eq!(body["messages"][1]["role"], "assistant");
            assert_eq!(items(&body["messages"][1]["content"]), items(&blocks().into()), "{name}");
        }
        let results = &bodies[1]["messages"][2];
        assert_eq!(results["role"], "user");
        let calls: Vec<_> = results["content"]
            .as_array()
            .unwrap()
            .iter()
            .map(|result| result["tool_use_id"].clone())
            .collect();
        assert_eq!(calls, ["toolu_1", "toolu_2"]);
        assert_eq!(bodies[2]["messages"][3]["content"][0]["text"], "Done.");
        assert_eq!(talk.reports[0].text, "Done.");
    }
}

#[tokio::test]
async fn answers_are_stored_with_items_usage_and_origin() {
    let server = Server::start([answer(&blocks(), "tool_use"), text_answer("Done.")]).await;
    let talk = talk(model(&server, "claude-opus-5-5").with_account("team-a"), &server, &["look"], 2).await;
    let usage = Usage::new(115, 30).with_cache(100, 5).with_reasoning(20);
    assert_eq!(talk.reports[0].usage, usage.plus(usage));
    let mut natives = Vec::new();
    for payload in talk.payloads() {
        let native = match payload {
            EventPayload::AgentThinking(message) | EventPayload::AgentMessage(message) => message.native,
            EventPayload::AgentToolUse(call) => call.native,
            EventPayload::AgentResponse(response) => {
                let origin = response.origin.unwrap();
                assert_eq!((&*origin.api, &*origin.provider), ("anthropic.messages", "anthropic"));
                assert_eq!((&*origin.model, origin.account.as_deref()), ("claude-opus-5-5", Some("team-a")));
                continue;
            }
            _ => continue,
        };
        natives.extend(native.map(|native| native.item.get().to_owned()));
    }
    let mut expected = items(&blocks().into());
    expected.push(r#"{"type":"text","text":"Done."}"#.to_owned());
    assert_eq!(natives, expected);
}

#[tokio::test]
async fn cost_and_capabilities_come_from_the_catalog() {
    let server = Server::start([]).await;
    let model = model(&server, "claude-opus-5-5");
    let capabilities = model.capabilities();
    assert!(capabilities.tools && capabilities.structured_output && capabilities.media.len() >= 2);
    assert_eq!(capabilities.context_tokens, Some(1_000_000));
    let Some(Cost { currency, micros, .. }) = model.cost(Usage::new(1_000_000, 0)) else {
        panic!("it has a price")
    };
    assert!(currency == "USD" && micros > 1_000_000, "{micros}");
    assert!(!format!("{model:?}").contains("SECRET"));
    assert_eq!(model.rendering(), "agent-rig/2+rig/0.44.0");
}

/// Names of the tools that an answer calls.
fn called(blocks: &[Value]) -> Vec<&str> {
    let mut names: Vec<_> = blocks
        .iter()
        .filter(|block| block["type"] == "tool_use")
        .filter_map(|block| block["name"].as_str())
        .collect();
    names.push("other");
    names.sort_unstable();
    names.dedup();
    names
}

/// The provider names the model that answered in place of another one; rig keeps the block, and does not send it.
#[tokio::test]
#[ignore = "rig 0.44 leaves out the marker"]
async fn markers_of_another_model_go_back() {
    let marker =
        json!({"type": "fallback", "from": {"model": "claude-fable-5"}, "to": {"model": "claude-opus-4-8"}});
    let blocks = [marker, json!({"type": "text", "text": "Yes."})];
    let server = Server::start([answer(&blocks, "end_turn"), text_answer("Done.")]).await;
    let talk = talk(model(&server, "claude-fable-5"), &server, &[], 2).await;
    let sent = talk.requests[1].body();
    assert_eq!(items(&sent["messages"][1]["content"]), items(&blocks.to_vec().into()));
}

/// An answer of code that calls a tool again is whole in its first event, as recorded.
#[tokio::test]
#[ignore = "rig 0.44 does not read the content of `message_start`"]
async fn answers_that_are_whole_at_their_start_are_read() {
    let call = json!({"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"player": 1},
        "caller": {"type": "code_execution_20250825", "tool_id": "srvtoolu_1"}});
    let start = json!({"type": "message_start", "message": {"id": "msg_1", "type": "message", "role": "assistant",
        "model": "claude", "content": [call], "stop_reason": "tool_use", "stop_sequence": null,
        "usage": {"input_tokens": 0, "output_tokens": 0}}});
    let whole = [start.to_string(), json!({"type": "message_stop"}).to_string()];
    let server =
        Server::start([Answer::events(whole.iter().map(String::as_str)), text_answer("Done.")]).await;
    let talk = talk(model(&server, "claude-sonnet-4-5"), &server, &["look"], 2).await;
    assert_eq!(items(&talk.requests[1].body()["messages"][1]["content"]), [call.to_string()]);
}

/// Blocks that Anthropic does not take back: blank texts.
fn is_taken_back(block: &Value) -> bool {
    !(block["type"] == "text" && block["text"].as_str().unwrap().trim().is_empty())
}

/// Recordings from which rig leaves out an item, and that item's type.
const LEFT_OUT: [(&str, &str); 1] = [
    // Names the model that answered in place of another; rig keeps it, and does not send it.
    ("anthropic-fallback", "fallback"),
];

/// The answers of a recording are one conversation; the request behind them holds them all.
#[tokio::test]
async fn recorded_answers_go_back_as_they_came() {
    let (mut seen, mut left_out, mut wrong) = (0, 0, Vec::new());
    let whole = |body: &Value| {
        let is_answer = body["type"] == "message";
        is_answer.then(|| {
            events(body["content"].as_array().unwrap(), body["stop_reason"].as_str().unwrap_or_default())
        })
    };
    let more = ["anthropic", "anthropic_mid_conversation_system"].map(|folder| answers(folder, whole));
    for recording in streams("anthropic").into_iter().chain(more.into_iter().flatten()) {
        let answers = anthropic_answers(&recording);
        let is_whole = |events: &Vec<String>| {
            let stops =
                ["end_turn", "tool_use", "stop_sequence"].map(|stop| format!(r#""stop_reason":"{stop}""#));
            let ends = |event: &&String| event.contains(r#""type":"message_delta""#);
            events.iter().filter(ends).any(|event| stops.iter().any(|stop| event.contains(stop)))
        };
        // rig does not read an answer that is whole in its `message_start`: code that calls a tool again is given so.
        if !answers.iter().all(is_whole) {
            left_out += 1;
            continue;
        }
        let of = |events: &Vec<String>| {
            let recording = Recording { name: String::new(), events: events.clone() };
            anthropic_blocks(&recording.values())
        };
        let given: Vec<Vec<Value>> = answers.iter().map(of).collect();
        let script = answers.iter().map(|events| Answer::events(events.iter().map(String::as_str)));
        let server = Server::start(script.chain([text_answer("Done.")])).await;
        let talk =
            talk(model(&server, "claude-sonnet-4-5"), &server, &called(&given.concat()), answers.len() + 1)
                .await;
        let body = talk.bodies("messages").pop().unwrap();
        let sent =
            body["messages"].as_array().unwrap().iter().filter(|message| message["role"] == "assistant");
        let sent: Vec<_> = sent.map(|message| items(&message["content"])).collect();
        let left_out = |block: &Value| {
            LEFT_OUT.iter().any(|(name, kind)| recording.name == *name && block["type"] == *kind)
        };
        let taken = |blocks: &Vec<Value>| {
            items(&blocks.iter().filter(|block| is_taken_back(block) && !left_out(block)).cloned().collect())
        };
        let expected: Vec<_> = given.iter().map(taken).filter(|blocks| !blocks.is_empty()).collect();
        seen += sent.concat().len();
        if sent != expected {
            wrong.push(format!("{}:\n  gave {expected:?}\n  sent {sent:?}", recording.name));
        }
    }
    println!("{seen} items; {left_out} answers left out");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
