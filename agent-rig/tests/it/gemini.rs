//! Gemini's `generateContent`.

use std::collections::BTreeSet;

use agent_core::event::{EventPayload, MediaSource, Part};
use agent_rig::RigProvider;
use agent_rig::rig_core::providers::gemini::GeminiConfig;
use serde_json::{Value, json};

pub(crate) use model_servers::gemini::{answer, text_answer};

use crate::recorded::{Recording, answers, gemini_parts, streams};
use crate::server::{Answer, Server};
use crate::{http, items, talk};

pub(crate) fn model(server: &Server, name: &str) -> RigProvider {
    let config = GeminiConfig::new("SECRET-KEY").with_base_url(&server.url);
    RigProvider::gemini(config.client().with_http(http()).completion(name)).unwrap()
}

pub(crate) fn parts() -> Vec<Value> {
    vec![
        json!({"text": "They ask.", "thought": true}),
        json!({"text": "I look.", "thoughtSignature": "EpEg"}),
        json!({"functionCall": {"id": "fc-1", "name": "look", "args": {"z": 1, "a": [2.5]}}, "thoughtSignature": "EpEh"}),
        json!({"functionCall": {"id": "fc-2", "name": "look", "args": {}}}),
    ]
}

/// Parts of a request that the model gave.
fn sent(body: &Value) -> Vec<Value> {
    let by_model = body["contents"].as_array().unwrap().iter().filter(|content| content["role"] == "model");
    by_model.flat_map(|content| content["parts"].as_array().unwrap().clone()).collect()
}

#[tokio::test]
async fn items_go_back_as_they_came_and_in_order() {
    let server = Server::start([answer(&parts()), text_answer("Done."), text_answer("Yes.")]).await;
    let talk = talk(model(&server, "gemini-3-pro-preview"), &server, &["look"], 3).await;
    let bodies = talk.bodies("contents");
    assert_eq!(items(&sent(&bodies[1]).into()), items(&parts().into()));
    assert_eq!(items(&sent(&bodies[2])[..4].to_vec().into()), items(&parts().into()));
    let usage = talk.reports[1].usage;
    assert_eq!((usage.input_tokens, usage.output_tokens, usage.reasoning_tokens), (10, 8, 3));
}

/// Proxies and servers log addresses.
#[tokio::test]
async fn key_goes_into_its_header_only() {
    let server = Server::start([text_answer("Done.")]).await;
    talk(model(&server, "gemini-3-pro-preview"), &server, &[], 1).await;
    let request = &server.requests()[0];
    assert!(request.path.ends_with(":streamGenerateContent?alt=sse"), "{}", request.path);
    assert_eq!(request.header("x-goog-api-key"), Some("SECRET-KEY"));
}

/// A call that came without an id goes back without one, as does its result; one beside it with an id keeps that.
#[tokio::test]
async fn calls_without_ids_go_back_as_they_came() {
    let calls = [
        json!({"functionCall": {"name": "look", "args": {"z": 1, "a": 2}}, "thoughtSignature": "EpEh"}),
        json!({"functionCall": {"id": "fc-2", "name": "look", "args": {}}}),
        json!({"functionCall": {"name": "look", "args": {}}}),
    ];
    let server = Server::start([answer(&calls), text_answer("Done."), text_answer("Yes.")]).await;
    let talk = talk(model(&server, "gemini-3-pro-preview"), &server, &["look"], 3).await;
    for body in &talk.bodies("contents")[1..] {
        assert_eq!(items(&sent(body)[..3].to_vec().into()), items(&calls.to_vec().into()));
        let results = body["contents"][2]["parts"].as_array().unwrap();
        let ids: Vec<_> = results.iter().map(|part| part["functionResponse"]["id"].as_str()).collect();
        assert_eq!(ids, [None, Some("fc-2"), None]);
    }
}

#[tokio::test]
async fn images_that_the_model_made_are_stored_and_go_back() {
    let image =
        json!({"inlineData": {"mimeType": "image/png", "data": "iVBORw=="}, "thoughtSignature": "EpEi"});
    let server = Server::start([answer(std::slice::from_ref(&image)), text_answer("Yes.")]).await;
    let talk = talk(model(&server, "gemini-3-pro-image-preview"), &server, &[], 2).await;
    assert_eq!(items(&sent(&talk.bodies("contents")[1]).into()), [image.to_string()]);
    let found = talk.payloads().into_iter().find_map(|payload| match payload {
        EventPayload::AgentPart(part) => Some(part.content),
        _ => None,
    });
    let Some(Part::Image(media)) = found else { panic!("{found:?}") };
    assert_eq!(media.media_type, "image/png");
    assert_eq!(media.source, MediaSource::Inline(b"\x89PNG".as_slice().into()));
}

/// Google's pages say that a part with a signature is not to be joined with one without.
#[tokio::test]
async fn signed_texts_stay_parts_of_their_own() {
    let parts = [json!({"text": "One.", "thoughtSignature": "EpEi"}), json!({"text": " Two."})];
    let server = Server::start([answer(&parts), text_answer("Yes.")]).await;
    let talk = talk(model(&server, "gemini-3-pro-preview"), &server, &[], 2).await;
    assert_eq!(items(&sent(&talk.bodies("contents")[1]).into()), items(&parts.to_vec().into()));
}

#[tokio::test]
async fn recorded_answers_go_back_as_they_came() {
    let (mut seen, mut left_out, mut wrong) = (0, 0, Vec::new());
    let whole = |body: &Value| body["candidates"].is_array().then(|| vec![body.to_string()]);
    for recording in streams("google").into_iter().chain(answers("google", whole)) {
        let Recording { name, events } = &recording;
        let values = recording.values();
        let reasons: Vec<_> =
            values.iter().filter_map(|event| event["candidates"][0]["finishReason"].as_str()).collect();
        // Others stream the arguments of a call in a form of Vertex only.
        if reasons.last() != Some(&"STOP") || events.iter().any(|event| event.contains("partialArgs")) {
            left_out += 1;
            continue;
        }
        let given = gemini_parts(&values);
        let calls = given.iter().filter_map(|part| part["functionCall"]["name"].as_str());
        let tools: Vec<_> = calls.chain(["other"]).collect::<BTreeSet<_>>().into_iter().collect();
        let script =
            [Answer::events(events.iter().map(String::as_str)), text_answer("Done."), text_answer("Done.")];
        let server = Server::start(script).await;
        let talk = talk(model(&server, "gemini-3-pro-preview"), &server, &tools, 2).await;
        let sent = sent(&talk.bodies("contents")[1]);
        seen += sent.len();
        if items(&sent.clone().into()) != items(&given.clone().into()) {
            wrong.push(format!("{name}:\n  gave {}\n  sent {}", Value::from(given), Value::from(sent)));
        }
    }
    println!("{seen} items; {left_out} answers left out");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
