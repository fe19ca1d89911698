//! The schemas are what the code writes and reads.

use std::fs;
use std::sync::Arc;

use agent_admin::manifest::Manifest;
use agent_core::clock::Effects;
use agent_core::event::NewEvent;
use agent_core::model::{Actor, Patch, Title};
use agent_core::session::{NewSession, SessionRecord};
use agent_core::{MemoryStore, SessionStoreExt, WorkspaceId};
use agent_runtime::state_payload::StatePayload;
use docs::root;
use docs::schemas::{files, session, state};
use jsonschema::Validator;
use serde_json::{Value, json};

#[test]
fn the_schemas_are_current() {
    for (name, text) in files() {
        let stored = fs::read_to_string(root().join("docs/schemas").join(name)).unwrap_or_default();
        assert_eq!(stored, text, "run `cargo run -p docs --bin schemas`");
    }
}

/// A session, a fork and a child, with messages, a title and an event of a host's own.
async fn family(store: &MemoryStore) -> Vec<Arc<SessionRecord>> {
    let effects = Effects::default();
    let new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
    let root = store.sessions(&effects).create(new).await.unwrap();
    let patch = vec![
        NewEvent::user_message("hello").with_actor("user:alice".parse().unwrap()),
        NewEvent::updated(Patch::new().with_title(Title::generated("a title")).with_label("a", "b")),
        NewEvent::new("x.app.note".parse().unwrap(), agent_core::json::RawJson::parse("[1e400]").unwrap()),
    ];
    let root = store.sessions(&effects).append(root.id, root.head, patch).await.unwrap().session;
    let fork = store.sessions(&effects).fork(root.id, None).await.unwrap();
    let child = store.sessions(&effects).create_child(fork.id, Patch::new()).await.unwrap();
    vec![root, fork, child]
}

/// Each of these changes makes a document that the schema refuses.
fn assert_refused(schema: &Validator, document: &Value, changes: &[(&str, Value)]) {
    for (path, wrong) in changes {
        let mut changed = document.clone();
        *changed.pointer_mut(path).unwrap_or_else(|| panic!("{path} is not in {document}")) = wrong.clone();
        assert!(!schema.is_valid(&changed), "{path} may be {wrong}");
    }
    for name in ["format", "kind"] {
        let mut changed = document.clone();
        changed.as_object_mut().unwrap().remove(name);
        assert!(!schema.is_valid(&changed), "{name} may be missing");
    }
}

/// What is exported fits the schema, and what is no such document does not.
#[tokio::test]
async fn exported_session_matches_its_schema() {
    let (schema, store) = (jsonschema::validator_for(&session()).unwrap(), MemoryStore::new());
    for (n, session) in family(&store).await.iter().enumerate() {
        let text = Manifest::export(&store, session.id).await.unwrap().to_json().unwrap();
        let document: Value = serde_json::from_str(&text.replace("[1e400]", "[1]")).unwrap();
        let errors: Vec<_> = schema.iter_errors(&document).map(|error| error.to_string()).collect();
        assert_eq!(errors, [""; 0], "{text}");
        assert_eq!(document["ancestors"].as_array().map_or(0, Vec::len), n);
        assert_refused(
            &schema,
            &document,
            &[
                ("/format", json!(1)),
                ("/kind", json!("state")),
                ("/session/id", json!("me")),
                ("/session/head", json!("3")),
                ("/session/status/state", json!("asleep")),
                ("/events", json!([])),
                ("/events/0/seq", json!(0)),
                ("/events/0/at", json!("yesterday")),
                ("/events/0", json!({ "seq": 1 })),
                ("/crc32c", json!("ABCDEF01")),
            ],
        );
    }
}

/// So it is with the state of a session, of which any part may be missing.
#[tokio::test]
async fn session_state_matches_its_schema() {
    let (schema, store) = (jsonschema::validator_for(&state()).unwrap(), MemoryStore::new());
    let effects = Effects::default();
    let session = family(&store).await.remove(0);
    let text = r#"{"format":1,"kind":"state","history":[{"role":"assistant","text":"a"}],"core_memory":{"me":{"text":"b","limit":9}},
        "documents":{"plan":{"text":"c","format":3}},"runtime":{"version":2,"state":[null]}}"#;
    for text in [
        text,
        r#"{"format":1,"kind":"state","history":null,"runtime":null}"#,
        r#"{"format":1,"kind":"state"}"#,
    ] {
        let document: Value = serde_json::from_str(text).unwrap();
        assert!(schema.is_valid(&document), "{text}");
        StatePayload::parse(text)
            .unwrap()
            .import(&store.sessions(&effects), session.id, Actor::USER)
            .await
            .unwrap();
        let exported = StatePayload::export(&store, session.id).await.unwrap().to_json();
        let exported: Value = serde_json::from_str(&exported).unwrap();
        let errors: Vec<_> = schema.iter_errors(&exported).map(|error| error.to_string()).collect();
        assert_eq!(errors, [""; 0], "{exported}");
    }
    let document: Value = serde_json::from_str(text).unwrap();
    let changes = [
        ("/format", json!(2)),
        ("/history/0/role", json!("robot")),
        ("/core_memory/me/text", json!(1)),
        ("/core_memory/me/limit", json!(-1)),
        ("/documents", json!([])),
        ("/runtime", json!({ "version": 1 })),
    ];
    assert_refused(&schema, &document, &changes);
    for (path, wrong) in &changes {
        let mut changed = document.clone();
        *changed.pointer_mut(path).unwrap() = wrong.clone();
        assert!(StatePayload::parse(&changed.to_string()).is_err(), "{path} = {wrong} is read");
    }
}
