//! Chat completions: OpenAI's, those of others with the same API, and Ollama's own API.

use agent_rig::RigProvider;
use agent_rig::rig_core::providers::ollama::OllamaConfig;
use agent_rig::rig_core::providers::openai::wire::{DEEPSEEK, Dialect, GROQ, MISTRAL, OPENAI, OpenAIConfig};
use serde_json::{Value, json};

pub(crate) use model_servers::chat::{answer, text_answer};

use crate::recorded::{chat_message, streams};
use crate::server::{Answer, Server};
use crate::{http, items, talk};

pub(crate) fn model(server: &Server, dialect: &Dialect, name: &str) -> RigProvider {
    let config = OpenAIConfig::with_key(dialect, "SECRET-KEY").with_base_url(&server.url);
    RigProvider::new(config.client().with_http(http()).chat(name)).unwrap()
}

pub(crate) fn ollama_model(server: &Server) -> RigProvider {
    let config = OllamaConfig::new().with_base_url(&server.url);
    RigProvider::new(config.client().with_http(http()).native_completion("qwen3")).unwrap()
}

/// Messages of a request that the model gave.
fn sent(body: &Value) -> Vec<Value> {
    body["messages"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|message| message["role"] == "assistant")
        .cloned()
        .collect()
}

fn call() -> Value {
    json!({"index": 0, "id": "call_1", "type": "function",
        "function": {"name": "look", "arguments": "{\"b\": 1.50, \"a\":2}"}})
}

/// The call as a request names it.
fn sent_call(arguments: &str) -> Value {
    json!({"id": "call_1", "type": "function", "function": {"name": "look", "arguments": arguments}})
}

/// rig reads the text of the arguments and writes it again, without white space and with other numbers.
#[tokio::test]
#[ignore = "rig 0.44 writes the arguments of chat calls anew"]
async fn arguments_go_back_as_they_were_written() {
    let server =
        Server::start([answer(&[json!({"tool_calls": [call()]})], "tool_calls"), text_answer("Done.")]).await;
    let talk = talk(model(&server, &OPENAI, "gpt-4o"), &server, &["look"], 2).await;
    let sent = &sent(&talk.bodies("messages")[1])[0];
    assert_eq!(sent["tool_calls"], json!([sent_call(r#"{"b": 1.50, "a":2}"#)]));
}

#[tokio::test]
async fn messages_go_back_with_text_and_calls() {
    let deltas = [json!({"role": "assistant", "content": "I look."}), json!({"tool_calls": [call()]})];
    let server =
        Server::start([answer(&deltas, "tool_calls"), text_answer("Done."), text_answer("Yes.")]).await;
    let talk = talk(model(&server, &OPENAI, "gpt-4o"), &server, &["look"], 3).await;
    let bodies = talk.bodies("messages");
    let message = &sent(&bodies[2])[0];
    assert_eq!(message["content"], "I look.");
    assert_eq!(message["tool_calls"], json!([sent_call(r#"{"b":1.5,"a":2}"#)]));
    assert_eq!(bodies[2]["messages"][3]["tool_call_id"], "call_1");
    assert_eq!((talk.reports[1].usage.input_tokens, talk.reports[1].usage.output_tokens), (10, 5));
}

/// The reasoning goes back in the field in which it came.
#[tokio::test]
async fn reasoning_goes_back_in_its_field() {
    for (dialect, name, field) in
        [(&DEEPSEEK, "deepseek-reasoner", "reasoning_content"), (&GROQ, "qwen/qwen3-32b", "reasoning")]
    {
        let deltas = [json!({"role": "assistant", field: "They ask."}), json!({"tool_calls": [call()]})];
        let server = Server::start([answer(&deltas, "tool_calls"), text_answer("Done.")]).await;
        let talk = talk(model(&server, dialect, name), &server, &["look"], 2).await;
        assert_eq!(sent(&talk.bodies("messages")[1])[0][field], "They ask.", "{name}");
    }
}

/// Arguments are compared as values, and a call without a type is a function, see above.
#[tokio::test]
async fn recorded_answers_go_back_as_they_came() {
    let (mut seen, mut wrong) = (0, Vec::new());
    for recording in streams("openai-chat") {
        let (dialect, name) = match recording.name.split('-').next().unwrap() {
            "deepseek" => (&DEEPSEEK, "deepseek-reasoner"),
            "groq" => (&GROQ, "qwen/qwen3-32b"),
            "mistral" => (&MISTRAL, "magistral-medium-latest"),
            _ => (&OPENAI, "gpt-4o"),
        };
        let values = recording.values();
        if values.iter().any(|event| event["choices"][0]["finish_reason"] == "length") {
            continue;
        }
        let given = chat_message(&values);
        let calls = given["tool_calls"].as_array().into_iter().flatten();
        let tools: Vec<_> =
            calls.filter_map(|call| call["function"]["name"].as_str()).chain(["other"]).collect();
        let script = [
            Answer::events(recording.events.iter().map(String::as_str)),
            text_answer("Done."),
            text_answer("Done."),
        ];
        let server = Server::start(script).await;
        let talk = talk(model(&server, dialect, name), &server, &tools, 2).await;
        let mut sent = sent(&talk.bodies("messages")[1]).remove(0);
        sent.as_object_mut().unwrap().remove("role");
        let mut given = given;
        for message in [&mut sent, &mut given] {
            for call in message["tool_calls"].as_array_mut().into_iter().flatten() {
                let arguments: Value =
                    serde_json::from_str(call["function"]["arguments"].as_str().unwrap()).unwrap();
                call["function"]["arguments"] = arguments;
                call["type"] = "function".into();
            }
        }
        seen += 1;
        if sent != given {
            wrong.push(format!("{}:\n  gave {given}\n  sent {sent}", recording.name));
        }
    }
    println!("{seen} messages");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn ollama(message: &Value) -> Answer {
    let piece =
        json!({"model": "qwen3", "created_at": "2026-01-01T00:00:00Z", "message": message, "done": false});
    let done = json!({"model": "qwen3", "created_at": "2026-01-01T00:00:00Z", "message": {"role": "assistant", "content": ""},
        "done": true, "done_reason": "stop", "prompt_eval_count": 10, "eval_count": 5});
    Answer::lines([&*piece.to_string(), &*done.to_string()])
}

#[tokio::test]
async fn ollama_answers_go_back() {
    let call =
        json!({"id": "call_1", "function": {"index": 0, "name": "look", "arguments": {"z": 1, "a": 2}}});
    let message =
        json!({"role": "assistant", "content": "I look.", "thinking": "They ask.", "tool_calls": [call]});
    let script = [ollama(&message), ollama(&json!({"role": "assistant", "content": "Done."}))];
    let server = Server::start(script).await;
    let model = ollama_model(&server);
    let talk = talk(model, &server, &["look"], 2).await;
    let sent = &sent(&talk.bodies("messages")[1])[0];
    assert_eq!((&sent["content"], &sent["thinking"]), (&"I look.".into(), &"They ask.".into()));
    assert_eq!(items(&sent["tool_calls"]), [call.to_string()]);
    assert_eq!((talk.reports[0].usage.input_tokens, talk.reports[0].usage.output_tokens), (20, 10));
}
