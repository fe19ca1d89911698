//! One conversation with the models of three APIs in turns: each gets the others' answers as text and calls, and its own as
//! they came.

use agent_core::{MemoryStore, Storage};
use agent_rig::RigProvider;
use serde_json::{Value, json};

use crate::server::{Request, Server, soon};
use crate::{agent_on, anthropic, gemini, items, responses};

async fn prompt(storage: &Storage, model: RigProvider) -> String {
    let agent = agent_on(storage.clone(), model, &["look"]);
    let chat = agent.conversation("test").await.unwrap();
    soon(soon(chat.prompt("Hello")).await.unwrap().finish()).await.unwrap().text
}

#[tokio::test]
async fn models_of_several_apis_share_a_conversation() {
    let claude = Server::start([
        anthropic::answer(&anthropic::blocks(), "tool_use"),
        anthropic::text_answer("Claude is done."),
        anthropic::text_answer("Claude again."),
    ])
    .await;
    let gpt =
        Server::start([responses::answer(&responses::output()), responses::text_answer("GPT is done.")])
            .await;
    let gemini =
        Server::start([gemini::answer(&gemini::parts()), gemini::text_answer("Gemini is done.")]).await;
    let storage = Storage::from(MemoryStore::new());
    let model = || anthropic::model(&claude, "claude-opus-5-5");
    assert_eq!(prompt(&storage, model()).await, "Claude is done.");
    assert_eq!(prompt(&storage, responses::model(&gpt)).await, "GPT is done.");
    assert_eq!(prompt(&storage, gemini::model(&gemini, "gemini-3-pro-preview")).await, "Gemini is done.");
    assert_eq!(prompt(&storage, model()).await, "Claude again.");

    // Of Claude's first answer: the text and the calls, in a form of this API.
    let body = gpt.requests()[0].body();
    let kinds: Vec<_> = body["input"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| item["type"].as_str().or(item["role"].as_str()).unwrap().to_owned())
        .collect();
    let calls = kinds.iter().filter(|kind| *kind == "function_call").count();
    let results = kinds.iter().filter(|kind| *kind == "function_call_output").count();
    assert_eq!((calls, results, kinds.iter().any(|kind| kind == "reasoning")), (2, 2, false), "{kinds:?}");
    assert!(!gpt.requests()[0].text.contains("EqQBCgIYAg"), "the signature is Claude's");

    let body = gemini.requests()[0].body();
    let text = body.to_string();
    assert!(!text.contains("EqQBCgIYAg") && !text.contains("gAAAA"), "{text}");
    let parts =
        body["contents"].as_array().unwrap().iter().flat_map(|content| content["parts"].as_array().unwrap());
    let calls: Vec<_> = parts.filter(|part| part["functionCall"].is_object()).collect();
    assert_eq!(calls.len(), 4);
    // What Google takes in place of a signature of another model.
    let signatures = calls.iter().filter_map(|call| call["thoughtSignature"].as_str());
    assert!(
        signatures.into_iter().all(|signature| signature == "skip_thought_signature_validator"),
        "{calls:?}"
    );

    // Claude's own answer is the same as in the turn before, and nothing of the others is signed.
    let bodies: Vec<Value> = claude.requests().iter().map(Request::body).collect();
    let (before, now) = (items(&bodies[1]["messages"]), items(&bodies[2]["messages"]));
    assert_eq!(now[..before.len()], before);
    assert_eq!(items(&bodies[2]["messages"][1]["content"]), items(&anthropic::blocks().into()));
    let text = Value::from(now[before.len()..].to_vec()).to_string();
    assert!(!text.contains("gAAAA") && !text.contains("EpEg"), "{text}");
    assert_eq!(
        bodies[2]["messages"].as_array().unwrap().last().unwrap()["content"][0],
        json!({"type": "text", "text": "Hello"})
    );
}
