//! The state of a session in four parts, from one session into another, on each kind of store.

use std::sync::Arc;

use crate::stores::shared::{check_record, new_session};
use agent_core::clock::Effects;
use agent_core::commit::{Commit, LeaseRequest, Trigger};
use agent_core::event::NewEvent;
use agent_core::json::RawJson;
use agent_core::model::Actor;
use agent_core::session::SessionRecord;
use agent_core::state::SessionState;
use agent_core::{ErrorKind, Storage};
use agent_runtime::documents::{DocumentWrite, Documents};
use agent_runtime::state_payload::{RuntimeState, StatePayload, StateText};
use agent_tests::{Site, each_store};
use agent_transcript::{Speaker, TranscriptMessage};
use proptest::prelude::*;

/// A session with something in every part, named after `who`.
async fn full(storage: &Storage, effects: &Effects, who: &str) -> Arc<SessionRecord> {
    let session = new_session(storage, effects).await;
    let events =
        [NewEvent::user_message(format!("I am {who}")), NewEvent::agent_message(format!("Hello, {who}"))];
    storage.sessions.append(session.id, session.head, events.into()).await.unwrap();
    let documents = Documents::new(storage.sessions.clone(), session.id);
    let writes = [
        DocumentWrite::new("persona", format!("kind to {who}"), Actor::AGENT).with_limit(2000),
        DocumentWrite::new("plan", format!("first of {who}"), Actor::AGENT),
        DocumentWrite::new("plan", format!("second of {who}"), Actor::USER).with_format(2),
        DocumentWrite::new(format!("only {who}"), "", Actor::USER),
        DocumentWrite::new(Documents::CHECKPOINT, "{\"step\": 7.10}", Actor::AGENT).with_format(3),
    ];
    for write in writes {
        documents.put(write).await.unwrap();
    }
    storage.sessions.load(session.id).await.unwrap()
}

/// A session's state has four named parts, the last any JSON with a version; what is exported is imported into another
/// session, byte for byte, and is there after a restart.
async fn state_is_imported_into_another_session(site: Site) {
    let (storage, effects) = (site.open().await, Effects::default());
    let (ann, bob) = (full(&storage, &effects, "Ann").await, full(&storage, &effects, "Bob").await);
    let state = StatePayload::export(&*storage.sessions, ann.id).await.unwrap();
    let text = state.to_json();
    assert_eq!(
        text,
        "{\"format\":1,\"kind\":\"state\",\
         \"history\":[{\"role\":\"user\",\"text\":\"I am Ann\"},{\"role\":\"assistant\",\"text\":\"Hello, Ann\"}],\
         \"core_memory\":{\"persona\":{\"text\":\"kind to Ann\",\"limit\":2000}},\
         \"documents\":{\"only Ann\":{\"text\":\"\"},\"plan\":{\"text\":\"second of Ann\",\"format\":2}},\
         \"runtime\":{\"version\":3,\"state\":{\"step\":7.10}}}",
        "{}",
        site.name
    );
    let parsed = StatePayload::parse(&text).unwrap();
    assert_eq!(parsed, state);
    parsed.import(&storage.sessions, bob.id, Actor::USER).await.unwrap();
    drop(storage);

    let storage = site.open().await;
    assert_eq!(StatePayload::export(&*storage.sessions, bob.id).await.unwrap().to_json(), text);
    let documents = Documents::new(storage.sessions.clone(), bob.id);
    assert_eq!(documents.get("only Bob").await.unwrap(), None, "{}", site.name);
    assert_eq!(documents.versions("plan", 10).await.unwrap().len(), 1, "{}: no version of Bob's", site.name);
    check_record(&storage, bob.id).await;
    let now = storage.sessions.load(bob.id).await.unwrap();
    assert_eq!((now.status.state, now.inputs_open), (SessionState::Idle, 0), "nothing waits for an answer");
    assert_eq!(StatePayload::export(&*storage.sessions, ann.id).await.unwrap(), state, "Ann's is as it was");
}

each_store!(state_is_imported_into_another_session);

/// A part that is missing, null or empty is empty after the import, each by itself, and nothing of what was there
/// remains in it.
async fn missing_or_empty_part_becomes_its_default(site: Site) {
    let whole = "\"history\":[{\"role\":\"user\",\"text\":\"hi\"}],\"core_memory\":{\"a\":{\"text\":\"b\",\"limit\":9}},\
                 \"documents\":{\"c\":{\"text\":\"d\"}},\"runtime\":{\"version\":1,\"state\":[1]}";
    let parts: Vec<&str> = whole.split_inclusive("],").flat_map(|part| part.split_inclusive("}},")).collect();
    let parts: Vec<&str> = parts.into_iter().map(|part| part.trim_end_matches(',')).collect();
    assert_eq!(parts.len(), 4);
    let (storage, effects) = (site.open().await, Effects::default());
    for n in 0..4 {
        for form in ["missing", "null", "empty"] {
            let session = full(&storage, &effects, "Bob").await;
            let mut given: Vec<String> = parts.iter().map(|part| (*part).to_owned()).collect();
            let (name, _) = parts[n].split_once(':').unwrap();
            match form {
                "missing" => drop(given.remove(n)),
                "null" => given[n] = format!("{name}:null"),
                _ => given[n] = format!("{name}:{}", ["[]", "{}", "{}", "null"][n]),
            }
            let text = format!("{{\"format\":1,\"kind\":\"state\",{}}}", given.join(","));
            let state = StatePayload::parse(&text).unwrap();
            state.import(&storage.sessions, session.id, Actor::USER).await.unwrap();
            let now = StatePayload::export(&*storage.sessions, session.id).await.unwrap();
            assert_eq!(now, state, "{}, {name} {form}", site.name);
            let empty = [
                now.history.is_empty(),
                now.core_memory.is_empty(),
                now.documents.is_empty(),
                now.runtime.is_none(),
            ];
            assert_eq!(empty, [0, 1, 2, 3].map(|part| part == n), "{}, {name} {form}", site.name);
        }
    }
}

each_store!(missing_or_empty_part_becomes_its_default);

/// An import that is refused changes nothing.
async fn refused_import_changes_nothing(site: Site) {
    let (storage, effects) = (site.open().await, Effects::default());
    let session = full(&storage, &effects, "Bob").await;
    let mut too_long = StatePayload::new();
    too_long.history = vec![TranscriptMessage::new(Speaker::User, "again"); 1200];
    let mut too_large = StatePayload::new();
    too_large.core_memory.insert("persona".into(), StateText::new("long").with_limit(3));
    for (state, expected) in [(too_long, ErrorKind::LimitExceeded), (too_large, ErrorKind::LimitExceeded)] {
        let refused = state.import(&storage.sessions, session.id, Actor::USER).await.unwrap_err();
        assert_eq!(*refused.kind(), expected, "{}: {refused}", site.name);
    }
    let begin = Trigger::BeginRun(LeaseRequest::new("holder", effects.new_run_id()));
    let append = Commit::seal(&effects, session.id, session.head)
        .with_event(NewEvent::user_message("go"))
        .with_trigger(begin);
    let running = storage.sessions.commit(append).await.unwrap().session;
    let refused = StatePayload::new().import(&storage.sessions, session.id, Actor::USER).await.unwrap_err();
    assert!(matches!(refused.kind(), ErrorKind::InvalidTransition { .. }), "{}: {refused}", site.name);
    assert_eq!(storage.sessions.load(session.id).await.unwrap(), running, "{}", site.name);
}

each_store!(refused_import_changes_nothing);

/// Newer documents and other kinds are refused by name, what is no state is damage, and no document stands in two
/// parts.
#[test]
fn invalid_state_is_refused() {
    for (text, kind, expected) in [
        ("{\"format\":2,\"kind\":\"state\"}", ErrorKind::Unsupported, "format 2"),
        ("{\"format\":0,\"kind\":\"state\"}", ErrorKind::Unsupported, "format 0"),
        ("{\"format\":1,\"kind\":\"session\"}", ErrorKind::Unsupported, "session"),
        ("{\"format\":1,\"kind\":\"state\",\"history\":7}", ErrorKind::Corrupt, "part"),
        (
            "{\"format\":1,\"kind\":\"state\",\"history\":[{\"role\":\"robot\",\"text\":\"\"}]}",
            ErrorKind::Corrupt,
            "part",
        ),
        ("history", ErrorKind::Corrupt, "not an exported state"),
        (
            "{\"format\":1,\"kind\":\"state\",\"core_memory\":{\"a\":{\"text\":\"\"}},\"documents\":{\"a\":{\"text\":\"\"}}}",
            ErrorKind::Corrupt,
            "two parts",
        ),
        (
            "{\"format\":1,\"kind\":\"state\",\"documents\":{\"checkpoint\":{\"text\":\"\"}},\"runtime\":{\"version\":1,\"state\":0}}",
            ErrorKind::Corrupt,
            "two parts",
        ),
    ] {
        let refused = StatePayload::parse(text).unwrap_err();
        assert_eq!(*refused.kind(), kind, "{text}");
        assert!(refused.to_string().contains(expected), "{refused}");
    }
}

fn texts() -> impl Strategy<Value = StateText> {
    (any::<String>(), any::<Option<u64>>()).prop_map(|(text, limit)| match limit {
        Some(limit) => StateText::new(text).with_limit(limit),
        None => StateText::new(text),
    })
}

proptest! {
    /// Any state comes back as it was; any text is read or refused.
    #[test]
    fn any_state_round_trips(
        messages in prop::collection::vec((0..4usize, any::<String>()), 0..5),
        memory in prop::collection::btree_map("m[a-z\u{0}-\u{ff}]*", texts(), 0..4),
        documents in prop::collection::btree_map("d[a-z\u{0}-\u{ff}]*", texts(), 0..4),
        runtime in any::<Option<(u32, String)>>(),
        noise in any::<String>(),
    ) {
        let mut state = StatePayload::new();
        state.history = messages.into_iter().map(|(who, text)| TranscriptMessage::new(Speaker::ALL[who], text)).collect();
        state.core_memory = memory;
        state.documents = documents;
        state.runtime = runtime.map(|(version, text)| RuntimeState::new(version, RawJson::of(&text).unwrap()));
        let text = state.to_json();
        prop_assert_eq!(StatePayload::parse(&text).unwrap(), state);
        let at = text.char_indices().map(|(at, _)| at).nth(noise.len() % text.chars().count()).unwrap();
        let _ = StatePayload::parse(&format!("{}{noise}{}", &text[..at], &text[at..]));
        let _ = StatePayload::parse(&noise);
    }
}
