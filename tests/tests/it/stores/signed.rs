//! Items that providers signed, encrypted or made, from recorded traffic: each comes back unchanged after any move of
//! the session.

use std::collections::BTreeMap;
use std::time::Duration;

use agent_admin::copy::StoreCopy;
use agent_admin::manifest::Manifest;
use agent_core::clock::Effects;
use agent_core::event::{
    AgentPart, AgentResponse, Event, EventPayload, HostedCall, HostedResult, Media, Message, ModelOrigin,
    Native, NewEvent, Part, ToolOutcome, ToolResult, ToolUse,
};
use agent_core::json::{RawFields, RawJson};
use agent_core::session::{Fork, SessionRecord};
use agent_core::{Seq, SessionId, Storage};
use agent_tests::recorded::{self, Item};
use agent_tests::{Site, each_store};

use crate::stores::shared::{check_record, log, new_session};

/// Events of one commit, and bytes of their payloads.
const EVENTS: usize = 200;
const BYTES: usize = 4 << 20;

/// Returns the events that store an item: by its type, with the item as `native`.
fn events_of(at: usize, item: &Item) -> Vec<NewEvent> {
    let json = RawJson::parse(&item.json).unwrap();
    let fields: RawFields = json.to().unwrap();
    let word = |name: &str| fields.get(name).and_then(|value| value.to::<String>().ok());
    let tag = word("type").unwrap_or_default();
    let native = Native::new(item.api, json.clone());
    let index = u32::try_from(at).unwrap();
    let text = ["text", "thinking"].into_iter().find_map(word).unwrap_or_default();
    let is_thought = fields.get("thought").is_some_and(|thought| thought.get() == "true");
    let message = Message::new(text).with_native(native.clone()).with_index(index);
    let call = format!("call-{at}").parse().unwrap();
    let body = match &*tag {
        "thinking" | "redacted_thinking" | "reasoning" | "thinking_delta" | "signature_delta" => {
            EventPayload::AgentThinking(message)
        }
        "tool_use" | "function_call" | "custom_tool_call" => EventPayload::AgentToolUse(
            ToolUse::new(call, "tool", RawJson::empty_object()).with_native(native),
        ),
        "" if fields.get("functionCall").is_some() => EventPayload::AgentToolUse(
            ToolUse::new(call, "tool", RawJson::empty_object()).with_native(native),
        ),
        "" if is_thought => EventPayload::AgentThinking(message),
        "" | "text" | "message" | "text_delta" | "output_text" => EventPayload::AgentMessage(message),
        hosted if hosted.ends_with("result") || hosted.ends_with("output") => {
            let result = HostedResult::new(RawJson::sure(&hosted));
            EventPayload::AgentPart(
                AgentPart::new(Part::HostedResult(result)).with_native(native).with_index(index),
            )
        }
        hosted => {
            let call = HostedCall::new(hosted);
            EventPayload::AgentPart(
                AgentPart::new(Part::HostedCall(call)).with_native(native).with_index(index),
            )
        }
    };
    let mut events = vec![NewEvent::of(&body)];
    if let EventPayload::AgentToolUse(used) = body {
        let cat = Media::inline("image/png", at.to_be_bytes()).with_name("cat.png");
        let result = ToolResult::new(used.call, ToolOutcome::Ok, RawJson::sure(&"done"));
        events.push(NewEvent::of(&EventPayload::AgentToolResult(result.with_part(Part::Image(cat)))));
    }
    events
}

/// Stores the items in a new session, some of them in each commit, each commit with the end of an answer.
async fn stored(storage: &Storage, effects: &Effects, items: &[Item]) -> std::sync::Arc<SessionRecord> {
    let mut session = new_session(storage, effects).await;
    let mut ready = Vec::new();
    for (at, item) in items.iter().enumerate() {
        ready.extend(events_of(at, item));
        let bytes: usize = ready.iter().map(|event: &NewEvent| event.payload.get().len()).sum();
        if ready.len() >= EVENTS || bytes >= BYTES || at + 1 == items.len() {
            let origin = ModelOrigin::new(item.api, "recorded", "any");
            let response = AgentResponse::new(session.head).with_origin(origin).with_given("0".repeat(64));
            ready.push(NewEvent::of(&EventPayload::AgentResponse(response)));
            let events = std::mem::take(&mut ready);
            session = storage.sessions.append(session.id, session.head, events).await.unwrap().session;
        }
    }
    session
}

/// Returns the native form of an event's item, as text.
fn native(event: &Event) -> Option<(String, String)> {
    let native = match event.decode().unwrap() {
        EventPayload::AgentMessage(message) | EventPayload::AgentThinking(message) => message.native,
        EventPayload::AgentToolUse(call) => call.native,
        EventPayload::AgentPart(part) => part.native,
        _ => None,
    }?;
    Some((native.api, native.item.get().to_owned()))
}

/// Checks that a session has these items, byte for byte and in order.
async fn check(what: &str, storage: &Storage, id: SessionId, items: &[Item], events: &[Event]) {
    let found = log(storage, id).await;
    let natives: Vec<_> = found.iter().filter_map(native).collect();
    assert_eq!(natives.len(), items.len(), "{what}");
    for ((api, json), item) in natives.iter().zip(items) {
        assert!(
            api == item.api && *json == item.json,
            "{what}: {}",
            &item.json[..item.json.floor_char_boundary(200)]
        );
    }
    let shared = &found[..events.len()];
    assert!(shared == events, "{what}: the events are the same");
    for event in shared {
        assert_eq!(event.decode().unwrap().to_json(), event.payload, "{what}: the typed form loses nothing");
    }
}

/// Checks that the recordings have what the test is about.
fn check_recordings(items: &[Item]) {
    let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
    for (kind, sign) in [
        ("signed thinking", r#""signature":"E"#),
        ("redacted thinking", r#""type":"redacted_thinking""#),
        ("encrypted reasoning", r#""encrypted_content":"gAAAA"#),
        ("thought signatures", r#""thoughtSignature":"#),
        ("function calls", r#""functionCall":"#),
        ("hosted calls", r#""type":"server_tool_use""#),
        ("hosted results", r#"tool_result""#),
        ("searches", r#""type":"web_search_call""#),
        ("citations", r#""citations":[{"#),
        ("annotations", r#""type":"url_citation""#),
        ("images", r#""type":"image_generation_call""#),
        ("calls in chats", r#""tool_calls":[{"#),
    ] {
        kinds.insert(kind, items.iter().filter(|item| item.json.contains(sign)).count());
    }
    assert!(kinds.values().all(|count| *count >= 3), "{kinds:?}");
    for api in ["anthropic.messages", "openai.responses", "openai.chat", "google.generate_content"] {
        assert!(items.iter().filter(|item| item.api == api).count() >= 50, "{api}");
    }
    assert!(items.len() > 1_000, "{} items", items.len());
}

/// A restart, a fork, a document, a copy: each leads to the same items, with their members in order and their numbers as
/// they were.
async fn signed_items_survive_every_move(site: Site) {
    let Some(folder) = recorded::folder("signed_items_survive_every_move") else { return };
    let moves = async {
        let (site, effects) = (site.unsynced(), Effects::default());
        let items = recorded::items(&folder);
        check_recordings(&items);
        let session = stored(&site.open().await, &effects, &items).await;

        let storage = site.open().await;
        let events = log(&storage, session.id).await;
        check("restart", &storage, session.id, &items, &events).await;
        assert_eq!(*check_record(&storage, session.id).await, *session);

        let fork = storage.sessions.fork(session.id, Fork::new()).await.unwrap();
        check("fork", &storage, fork.id, &items, &events).await;

        let documents = [session.id, fork.id].map(|id| (id, storage.clone()));
        for (id, storage) in documents {
            let document = Manifest::export(&*storage.sessions, id).await.unwrap().to_json().unwrap();
            for kind in ["memory", "files", "sqlite"].into_iter().filter(|kind| *kind != site.name) {
                let other = Site::new(kind).await.unsynced();
                let manifest = Manifest::parse(&document).unwrap();
                manifest.import_with_ancestors(&*other.open().await.sessions).await.unwrap();
                let there = other.open().await;
                check(&format!("document to {kind}"), &there, id, &items, &events).await;
                let again = Manifest::export(&*there.sessions, id).await.unwrap().to_json().unwrap();
                assert!(again == document, "the document of {kind} is the same");
            }
        }

        let other = Site::new(if site.name == "memory" { "files" } else { "memory" }).await.unsynced();
        let report = StoreCopy::new(storage.clone(), other.open().await).run().await.unwrap();
        assert!(report.is_whole(), "{report:?}");
        for id in [session.id, fork.id] {
            check("copy", &other.open().await, id, &items, &events).await;
        }
        // The copy goes on.
        let there = other.open().await;
        let more = vec![NewEvent::user_message("on")];
        let on = there.sessions.append(fork.id, fork.head, more).await.unwrap();
        assert_eq!(on.last, Seq::new(fork.head.get() + 1));
    };
    tokio::time::timeout(Duration::from_secs(240), moves).await.expect("the moves end in time");
}

each_store!(signed_items_survive_every_move and files, flavor = "multi_thread");
