//! The JSON form of what a run reports: a host with a wire of its own sends it as it is.

use std::collections::BTreeMap;
use std::time::Duration;

use agent_core::event::{Media, Part};
use agent_core::json::RawJson;
use agent_core::{Error, ErrorKind, MemoryStore, WriteOutcome};
use agent_runtime::{
    AgentBuilder, FaultKind, Gate, ModelEvent, ModelPart, ProviderFault, Queued, RunReport, ScriptedProvider,
    Turn, Update, tool,
};
use serde_json::Value;

use crate::common::{agent, queued};

/// Encodes and decodes an update; returns the JSON.
fn encoded(update: &Update) -> Value {
    let json = serde_json::to_string(update).unwrap();
    let back: Update = serde_json::from_str(&json).unwrap();
    assert_eq!(format!("{back:?}"), format!("{update:?}"), "{json}");
    serde_json::from_str(&json).unwrap()
}

#[tokio::test]
async fn updates_of_a_run_survive_json() {
    let city = RawJson::parse(r#"{"name":"Paris","more":[1.50,null]}"#).unwrap();
    let thought = ModelEvent::Thinking("hm".to_owned());
    let cat = ModelPart::part(Part::Image(Media::inline("image/png", *b"cat")));
    let none = RawJson::empty_object();
    let model = ScriptedProvider::new([
        Turn::new().event(thought).call("1", "weather", city),
        Turn::new().event(ModelEvent::part_done(0, cat)).text("and a cat").call("2", "weather", none),
        Turn::new().text("warm"),
        Turn::fault(ProviderFault::new(FaultKind::RateLimited, "slow down").with_retry_after(Duration::ZERO)),
        Turn::fault(ProviderFault::new(FaultKind::Auth, "who are you?")),
    ]);
    let weather = |_: BTreeMap<String, Value>, _| async move { Ok::<_, String>(21.5) };
    let weather = tool("weather", "Weather", weather);
    let builder = AgentBuilder::new().with_llm(model).with_tool(weather);
    let agent = builder.with_storage(MemoryStore::new()).build().unwrap();
    let chat = agent.conversation("key").await.unwrap();
    let mut seen = Vec::new();
    for text in ["Paris?", "and now?"] {
        let mut run = chat.prompt(text).await.unwrap();
        while let Some(update) = run.next().await {
            seen.push(encoded(&update.unwrap()));
        }
    }
    let kinds: Vec<_> = seen.iter().map(|update| update["type"].as_str().unwrap()).collect();
    let expected = [
        "started",
        "part_started",
        "thinking",
        "tool_called",
        "tool_done",
        "part_started",
        "part",
        "part_started",
        "text",
        "tool_called",
        "tool_done",
        "part_started",
        "text",
        "ended",
        "started",
        "retrying",
        "failed",
        "ended",
    ];
    assert_eq!(kinds, expected);
    let fault = serde_json::json!({"kind": "rate_limited", "retry_after_ms": 0, "text": "slow down"});
    assert_eq!(seen[15]["data"], serde_json::json!({"after_ms": 0, "fault": fault}));
    assert_eq!(seen[16]["data"]["fault"], "auth");
    assert_eq!((&seen[5]["data"]["index"], &seen[5]["data"]["kind"]), (&0.into(), &"other".into()));
    let cat = serde_json::json!({"type": "image", "media": "image/png", "data": "Y2F0"});
    assert_eq!(seen[6], serde_json::json!({"type": "part", "data": cat}));
    assert_eq!(seen[12], serde_json::json!({"type": "text", "data": "warm"}));
    assert_eq!(seen[13]["data"]["outcome"], serde_json::json!({"type": "completed", "data": "end_turn"}));
    assert_eq!(seen[17]["data"]["outcome"]["type"], "failed");
    let lost = Error::new(ErrorKind::Full, "no space; free some").with_outcome(WriteOutcome::Unknown);
    assert_eq!(encoded(&Update::NotStored(lost))["data"]["kind"], "full");
    let words = encoded(&Update::ProviderMessage("no such model".to_owned()));
    assert_eq!(words, serde_json::json!({"type": "provider_message", "data": "no such model"}));
}

#[tokio::test]
async fn reports_and_queued_inputs_survive_json() {
    let gate = Gate::new();
    let model = ScriptedProvider::new([Turn::new().gate(&gate).text("one"), Turn::new().text("two")]);
    let agent = agent(&MemoryStore::new().into(), model);
    let chat = agent.conversation("key").await.unwrap();
    let first = chat.prompt("1").await.unwrap();
    let waits = queued(chat.prompt("2").await.unwrap()).await;
    let json = serde_json::to_string(&waits).unwrap();
    // A client gives it back, and gets the answer.
    let back: Queued = serde_json::from_str(&json).unwrap();
    assert_eq!(back, waits, "{json}");
    gate.open();
    let report = first.finish().await.unwrap();
    let json = serde_json::to_string(&report).unwrap();
    assert_eq!(serde_json::from_str::<RunReport>(&json).unwrap(), report, "{json}");
    assert_eq!(chat.wait_for_answer(&back).await.unwrap().text, "two");
}
