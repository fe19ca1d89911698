//! In which forms a secret's value is recognised: as a text, as a document, and cut into pieces.

use std::collections::BTreeMap;

use agent_core::event::NewEvent;
use agent_core::json::RawJson;
use agent_core::model::{Access, Actor, Patch, Role};
use agent_core::{MemoryStore, Storage, WorkspaceId};
use agent_runtime::secrets::{Secret, SecretName, Secrets};
use agent_runtime::{AgentBuilder, ModelCall, ModelEvent, ScriptedProvider, Turn};
use serde_json::{Value, json};

use crate::common::{device, dialogue, read, try_read};

const PEM: &str = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASC\nBKcwggSjAgEAAoIBAQC7/VJTUt9Us8cK\njMzEfYyjiWA4R4==\n-----END PRIVATE KEY-----\n";

fn name() -> SecretName {
    "cloud".parse().unwrap()
}

fn of(value: &str) -> Secrets {
    Secrets::new(BTreeMap::from([(name(), Secret::new(value).unwrap())]))
}

/// The secrets, this value given out.
async fn given(value: &str) -> Secrets {
    let secrets = of(value);
    secrets.reveal(WorkspaceId::DEFAULT, &name()).await.unwrap();
    secrets
}

/// A service account as clouds hand them out.
fn account() -> Value {
    json!({
        "type": "service_account",
        "private_key_id": "0a1b2c3d4e5f60718293",
        "private_key": PEM,
        "client_email": "agent@project.example",
        "client_id": 104_883_277_123_450_u64,
        "pin": "4711",
    })
}

/// What of it nobody may read.
const PARTS: [&str; 5] = [
    "0a1b2c3d4e5f60718293",
    "MIIEvQIBADANBgkqhkiG9w0BAQEFAASC",
    "VJTUt9Us8cK",
    "agent@project.example",
    "104883277123450",
];

fn assert_no_part(what: &str, text: &str) {
    for part in PARTS {
        assert!(!text.contains(part), "{what} holds {part}: {text}");
    }
}

/// The same document with its keys in the opposite order.
fn turned(document: &Value) -> String {
    let fields: Vec<_> = document
        .as_object()
        .unwrap()
        .iter()
        .rev()
        .map(|(key, value)| format!("{}: {value}", json!(key)))
        .collect();
    format!("{{ {} }}", fields.join(" , "))
}

/// A value that is a document is recognised parsed, indented in another way, in another order, in part, in keys, and as JSON within
/// a text.
#[tokio::test]
async fn document_secret_is_redacted_in_every_form() {
    let document = account();
    let secrets = given(&serde_json::to_string_pretty(&document).unwrap()).await;
    let mut part = document.clone();
    part.as_object_mut().unwrap().remove("pin");
    let compact = document.to_string();
    let forms: Vec<(&str, Value)> = vec![
        ("parsed", json!({ "account": document })),
        ("in a list", json!([[document, 1]])),
        ("a part", part),
        ("one field", json!(document["private_key"])),
        ("a number as a text", json!("client 104883277123450")),
        ("a key", json!({ "agent@project.example": 1, "x": { "0a1b2c3d4e5f60718293": null } })),
        ("compact text", json!(compact)),
        ("indented text", json!(format!("found:\n{document:#}\nend"))),
        ("turned text", json!(turned(&document))),
        ("text in text", json!(json!({ "stdout": compact }).to_string())),
        ("escaped slashes", json!(compact.replace('/', "\\/"))),
    ];
    for (what, form) in &forms {
        let hidden = secrets.redact_json(RawJson::of(form).unwrap());
        assert_no_part(what, hidden.get());
        hidden.to::<Value>().unwrap();
        assert_no_part(what, &secrets.redact(&format!("{form:#}")));
    }
    // Too short to be told from ordinary text by itself; as the whole document it is.
    for (what, text) in
        [("indented", format!("a {document:#} b")), ("turned", format!("a {} b", turned(&document)))]
    {
        assert_eq!(secrets.redact(&text), "a (secret cloud) b", "{what}");
    }
    let parsed = secrets.redact_json(RawJson::parse(&format!("[1, {}]", turned(&document))).unwrap());
    assert_eq!(parsed.get(), r#"[1,"(secret cloud)"]"#);
    assert_eq!(
        secrets.redact("pin 4711 of a private_key"),
        "pin 4711 of a private_key",
        "keys and short texts stay"
    );
}

/// A value is recognised without the white space around it, and in each of its lines.
#[tokio::test]
async fn secret_is_redacted_trimmed_and_line_by_line() {
    let secrets = given("  hunter2-hunter2\n").await;
    for text in ["pw hunter2-hunter2.", "  hunter2-hunter2\n", "hunter2-hunter2"] {
        assert!(!secrets.redact(text).contains("hunter2"), "{text}");
    }
    let secrets = given(PEM).await;
    let windows = PEM.replace('\n', "\r\n");
    let joined: String = PEM.lines().filter(|line| !line.starts_with('-')).collect();
    let indented = PEM.replace('\n', "\n    ");
    for text in [
        PEM,
        PEM.trim(),
        &windows,
        &joined,
        &indented,
        "> jMzEfYyjiWA4R4== <",
        "x BKcwggSjAgEAAoIBAQC7/VJTUt9Us8cK",
    ] {
        let hidden = secrets.redact(text);
        for line in PEM.lines().filter(|line| !line.starts_with('-')) {
            assert!(!hidden.contains(line), "{hidden}");
        }
    }
    let header = "it begins with -----BEGIN PRIVATE KEY-----";
    assert_eq!(secrets.redact(header), header, "a header is no secret");
    assert!(Secret::new("hunter2\n").is_err(), "seven bytes are too short, whatever stands around them");
}

/// The name by which somebody writes is hidden, as what they write is.
#[tokio::test]
async fn secrets_in_author_names_are_redacted() {
    let value = "ghp_0123456789";
    let storage: Storage = MemoryStore::new().into();
    let agent = AgentBuilder::new()
        .with_llm(ScriptedProvider::new([Turn::new().text("done")]))
        .with_storage(storage.clone())
        .with_secrets(of(value))
        .build()
        .unwrap();
    let chat = agent.open(&device("laptop")).await.unwrap();
    chat.update(Patch::new().mount(name().resource(), Access::Read)).await.unwrap();
    read(chat.prompt("go").await.unwrap()).await;
    let by = || Actor::named(Role::User, &format!("bot {value}")).unwrap();
    let sessions = &chat.runtime().storage().sessions;
    let events = vec![NewEvent::user_message("hello").with_actor(by())];
    sessions.append(chat.id(), chat.refresh().await.unwrap().head, events).await.unwrap();
    let page = storage.sessions.read(chat.id(), agent_core::store::ReadEvents::default()).await.unwrap();
    let names: Vec<_> = page.events.iter().filter_map(|event| event.actor.name()).collect();
    assert_eq!(names, ["bot (secret cloud)"]);
}

/// A model that says a value piece by piece shows it to nobody who reads along.
#[tokio::test]
async fn secret_split_over_chunks_is_redacted() {
    let value = "ghp_0123456789";
    let text = format!("the token is {value}, ghp_0 is none, and {value}");
    for size in [1, 3, 7] {
        let pieces: Vec<String> =
            text.as_bytes().chunks(size).map(|piece| String::from_utf8(piece.to_vec()).unwrap()).collect();
        let turn = pieces.iter().fold(Turn::new(), |turn, piece| turn.text(piece.clone()));
        let agent = AgentBuilder::new()
            .with_llm(ScriptedProvider::new([turn]))
            .with_storage(MemoryStore::new())
            .with_secrets(of(value))
            .build()
            .unwrap();
        let chat = agent.open(&device("laptop")).await.unwrap();
        chat.update(Patch::new().mount(name().resource(), Access::Read)).await.unwrap();
        let (seen, _) = read(chat.prompt("go").await.unwrap()).await;
        let expected = "the token is (secret cloud), ghp_0 is none, and (secret cloud)";
        assert_eq!(seen, expected, "{size}");
        assert_eq!(dialogue(&chat).await[1].1, expected, "{size}");
    }
}

/// An answer that ends in the middle of a value, since the model failed, keeps and shows no part of it.
#[tokio::test]
async fn answer_failing_within_a_secret_shows_no_part() {
    let turn = Turn::new().text("the token is ghp_").text("01234").fail("gone");
    let agent = AgentBuilder::new()
        .with_llm(ScriptedProvider::new([turn]))
        .with_storage(MemoryStore::new())
        .with_secrets(of("ghp_0123456789"))
        .build()
        .unwrap();
    let chat = agent.open(&device("laptop")).await.unwrap();
    chat.update(Patch::new().mount(name().resource(), Access::Read)).await.unwrap();
    let (seen, _) = try_read(chat.prompt("go").await.unwrap()).await;
    assert_eq!(seen, "the token is ");
    assert_eq!(dialogue(&chat).await[1].1.trim_end(), "the token is");
}

/// A value that a model escapes, in arguments that are no JSON and in a text, is in no event.
#[tokio::test]
async fn escaped_secret_in_a_broken_call_is_redacted() {
    let (value, escaped) = ("ghp_0123456789", r"\u0067hp\u005f0123\u00345678\u0039");
    let text = format!(r#"{{"size":"5" x {escaped}"#);
    let cut = ModelEvent::ToolUse(ModelCall::malformed("c", "shell", text, "it ends within a text"));
    let agent = AgentBuilder::new()
        .with_llm(ScriptedProvider::new([Turn::new().event(cut), Turn::new().text(escaped)]))
        .with_storage(MemoryStore::new())
        .with_secrets(of(value))
        .build()
        .unwrap();
    let chat = agent.open(&device("laptop")).await.unwrap();
    chat.update(Patch::new().mount(name().resource(), Access::Read)).await.unwrap();
    let (seen, _) = read(chat.prompt("go").await.unwrap()).await;
    assert_eq!(seen, "(secret cloud)");
    let storage = chat.runtime().storage();
    let page = storage.sessions.read(chat.id(), agent_core::store::ReadEvents::default()).await.unwrap();
    let log: Vec<&str> = page.events.iter().map(|event| event.payload.get()).collect();
    let log = log.join("\n");
    assert!(log.contains("x (secret cloud)"), "{log}");
    assert!(!log.contains("0123"), "{log}");
}
