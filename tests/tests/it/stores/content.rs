//! Messages with parts in each kind of store: what text views show, what salvage saves, and what redaction leaves.

use std::collections::BTreeMap;
use std::path::PathBuf;

use agent_admin::salvage::salvage;
use agent_core::clock::Effects;
use agent_core::event::{
    AgentPart, AgentResponse, Citation, Event, EventPayload, EventType, FullOutput, Media, Message, Native,
    NewEvent, Part, ToolOutcome, ToolResult, ToolUse,
};
use agent_core::json::RawJson;
use agent_core::session::SessionRecord;
use agent_core::{Storage, WorkspaceId};
use agent_runtime::ConversationMessage;
use agent_runtime::secrets::{Secret, SecretName, Secrets};
use agent_tests::{Site, each_store};

use crate::common::call;
use crate::stores::shared::{log, new_session};

fn cat() -> Part {
    Part::Image(Media::inline("image/png", vec![7; 48_213]).with_name("cat.png"))
}

fn signed() -> Native {
    Native::new("anthropic.messages", RawJson::constant(r#"{"type":"thinking","signature":"EqQB"}"#))
}

/// A question with an image, and an answer of every kind of item.
async fn conversation(storage: &Storage, effects: &Effects) -> std::sync::Arc<SessionRecord> {
    let session = new_session(storage, effects).await;
    let result = ToolResult::new(call("c"), ToolOutcome::Ok, RawJson::sure(&"done")).with_part(cat());
    let cited =
        Message::new("A tabby.").with_citation(Citation::new("https://cats.example").with_title("Cats"));
    let event = [
        EventPayload::UserMessage(Message::new("What is this?").with_part(cat())),
        EventPayload::AgentThinking(Message::new("A cat …").with_native(signed())),
        EventPayload::AgentToolUse(ToolUse::new(call("c"), "zoom", RawJson::empty_object())),
        EventPayload::AgentToolResult(result),
        EventPayload::AgentPart(AgentPart::new(Part::refusal("I name no people."))),
        EventPayload::AgentPart(AgentPart::new(cat())),
        EventPayload::AgentMessage(cited),
        EventPayload::AgentResponse(AgentResponse::new(session.head).with_stop("end_turn")),
    ];
    let event = event.iter().map(NewEvent::of).collect();
    storage.sessions.append(session.id, session.head, event).await.unwrap().session
}

/// A text is read without knowing of parts; a text view has a line for each medium and each cited source.
async fn text_views_show_every_part(site: Site) {
    let effects = Effects::default();
    let session = conversation(&site.open().await, &effects).await;
    let events = log(&site.open().await, session.id).await;
    let line = "[image cat.png, image/png, 47 KiB]";
    let asked = format!("What is this?\n{line}");
    let views: Vec<_> = events.iter().filter_map(Event::text_view).collect();
    let answer = "A tabby.\n[1] Cats, https://cats.example";
    assert_eq!(views, [&*asked, "A cat …", "I name no people.", line, answer]);
    // What `jq .data.text` prints.
    let texts: Vec<_> = events
        .iter()
        .filter_map(|event| event.payload_as::<BTreeMap<String, RawJson>>().unwrap().remove("text"))
        .map(|text| text.to::<String>().unwrap())
        .collect();
    assert_eq!(texts, ["What is this?", "A cat …", "I name no people.", "A tabby."]);
    let messages: Vec<_> =
        events.iter().filter_map(|event| ConversationMessage::of(event).unwrap()).collect();
    assert_eq!((messages[0].text.as_str(), &messages[0].parts[1]), ("What is this?", &cat()));
    assert_eq!(messages[1].text, "I name no people.");
    assert_eq!((messages[2].text.as_str(), &messages[2].parts[..]), ("", &[cat()][..]));
    assert_eq!((messages[3].text.as_str(), messages[3].citations.len()), ("A tabby.", 1));
    assert_eq!(messages.len(), 4);
}

each_store!(text_views_show_every_part);

/// The log of the file store has the texts and the media where other programs look for them.
#[tokio::test]
async fn files_hold_texts_where_jq_finds_them() {
    let (site, effects) = (Site::new("files").await, Effects::default());
    let session = conversation(&site.open().await, &effects).await;
    let (mut folders, mut lines) = (vec![PathBuf::from(site.folder.path())], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.extension().is_some_and(|extension| extension == "jsonl") {
                _ if path.is_dir() => folders.push(path),
                true => lines.extend(std::fs::read_to_string(path).unwrap().lines().map(str::to_owned)),
                false => {}
            }
        }
    }
    let found: Vec<serde_json::Value> =
        lines.iter().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let texts: Vec<_> = found.iter().filter_map(|event| event["data"]["text"].as_str()).collect();
    assert_eq!(texts, ["What is this?", "A cat …", "I name no people.", "A tabby."]);
    let asked = found.iter().find(|event| event["type"] == "user.message").unwrap();
    assert_eq!(asked["data"]["parts"][0], serde_json::json!({"type": "text"}));
    assert_eq!(asked["data"]["parts"][1]["media"], "image/png");
    assert_eq!(found.iter().filter_map(|event| event["seq"].as_u64()).max(), Some(session.head.get()));
}

/// A salvaged session has every part; not the ends of answers, whose numbers and hashes are those of the old log.
async fn salvage_keeps_parts(site: Site) {
    let (storage, effects) = (site.open().await, Effects::default());
    let session = conversation(&storage, &effects).await;
    let saved = salvage(&storage, session.id, None).await.unwrap();
    let payloads = |events: Vec<Event>| -> Vec<_> {
        let messages = events.into_iter().filter(|event| !event.kind.is_of("session"));
        messages.map(|event| (event.kind, event.payload)).collect()
    };
    let mut before = payloads(log(&storage, session.id).await);
    assert_eq!(before.pop().unwrap().0, EventType::AGENT_RESPONSE);
    assert_eq!(payloads(log(&storage, saved.session.id).await), before);
}

each_store!(salvage_keeps_parts);

/// An item in which a secret is redacted loses its signed form and its offsets, and can still be stored.
async fn redacted_messages_stay_valid(site: Site) {
    let name: SecretName = "key".parse().unwrap();
    let value = "0123456789abcdef0123456789abcdef";
    let secrets = Secrets::new(BTreeMap::from([(name.clone(), Secret::new(value).unwrap())]));
    let (storage, effects) = (secrets.hidden_from(site.open().await), Effects::default());
    secrets.reveal(WorkspaceId::DEFAULT, &name).await.unwrap();
    let session = new_session(&storage, &effects).await;
    let text = format!("It is {value}");
    let long = text.len() as u64;
    let cited = || Citation::new("https://a.example").with_range(30, long);
    let message = [
        EventPayload::AgentMessage(
            Message::new(&*text).with_citation(cited()).with_native(signed()).with_shown(long),
        ),
        EventPayload::AgentMessage(Message::new(&*text).with_part(cat()).with_index(1)),
        EventPayload::AgentPart(AgentPart::new(Part::refusal(&*text)).with_native(signed())),
        EventPayload::AgentToolUse(
            ToolUse::new(call("c"), "t", RawJson::sure(&[value])).with_native(signed()),
        ),
        EventPayload::AgentToolResult(
            ToolResult::new(call("c"), ToolOutcome::Ok, RawJson::sure(&""))
                .with_full(FullOutput::text(&*text)),
        ),
        EventPayload::AgentMessage(Message::new(" ".repeat(60)).with_citation(cited()).with_native(signed())),
    ];
    let message = message.iter().map(NewEvent::of).collect();
    storage.sessions.append(session.id, session.head, message).await.unwrap();
    let stored = log(&site.open().await, session.id).await;
    let stored: Vec<_> = stored[1..].iter().map(|event| event.payload.get()).collect();
    assert_eq!(stored[0], r#"{"text":"It is (secret key)","shown":18}"#);
    assert!(
        stored[1].starts_with(r#"{"text":"It is (secret key)","parts":[{"type":"text"},"#),
        "{}",
        stored[1]
    );
    assert_eq!(stored[2], r#"{"type":"refusal","text":"It is (secret key)"}"#);
    assert_eq!(stored[3], r#"{"call":"c","name":"t","input":["(secret key)"]}"#);
    assert!(stored[4].ends_with(r#""full":{"media":"text/plain","bytes":18,"text":"It is (secret key)"}}"#));
    assert!(stored[5].contains("EqQB") && stored[5].contains("citations"), "what holds no secret stays");
}

each_store!(redacted_messages_stay_valid);
