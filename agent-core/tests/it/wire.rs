//! The JSON form of what a host sends to its clients: queries, pages, cursors, capabilities, records, events.

use std::fmt::Debug;
use std::time::Duration;

use agent_core::clock::Effects;
use agent_core::commit::Precondition;
use agent_core::model::{Actor, Workspace};
use agent_core::session::{NewSession, SessionRecord};
use agent_core::state::{SessionState, TriggerKind};
use agent_core::store::{
    Binding, BindingQuery, Capabilities, Cursor, Damaged, Durability, EventPage, LeaseStatus, Page,
    ReadEvents, Scope, SessionQuery, WorkspaceQuery,
};
use agent_core::{
    Epoch, Error, ErrorKind, MemoryStore, Seq, SessionStore, SessionStoreExt, WorkspaceId, WorkspaceStore,
    WriteOutcome,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Encodes, decodes and compares; returns the JSON.
fn same<T: Serialize + DeserializeOwned + PartialEq + Debug>(value: &T) -> String {
    let json = serde_json::to_string(value).unwrap();
    assert_eq!(serde_json::from_str::<T>(&json).unwrap(), *value, "{json}");
    json
}

#[test]
fn queries_survive_json() {
    let query = SessionQuery::new()
        .with_workspace(WorkspaceId::DEFAULT)
        .with_states([SessionState::Idle, SessionState::Archived])
        .with_label("team", "support")
        .with_creator(Actor::USER)
        .with_due("2026-02-15T10:30:00Z".parse().unwrap())
        .with_total()
        .with_limit(7);
    assert!(same(&query).contains(r#""states":["idle","archived"]"#));
    assert_eq!(serde_json::from_str::<SessionQuery>("{}").unwrap(), SessionQuery::new());
    same(&WorkspaceQuery::new().with_deleting().with_limit(3));
    same(&BindingQuery::new().with_workspace(WorkspaceId::DEFAULT));
    same(&ReadEvents::last(20).with_after(Seq::new(3)).with_before(Seq::new(90)));
    assert_eq!(serde_json::from_str::<ReadEvents>(r#"{"limit":5}"#).unwrap(), ReadEvents::first(5));
}

#[tokio::test]
async fn a_client_pages_by_json_alone() {
    let (store, effects) = (MemoryStore::new(), Effects::seeded(1, "2026-02-15T10:30:00Z".parse().unwrap()));
    for _ in 0..5 {
        let new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
        store.sessions(&effects).create(new).await.unwrap();
    }
    let (mut seen, mut query) = (0, SessionQuery::new().with_limit(2));
    for _ in 0..4 {
        query = serde_json::from_str(&serde_json::to_string(&query).unwrap()).unwrap();
        let page = SessionStore::list(&store, query.clone()).await.unwrap();
        same(&page);
        seen += page.items.len();
        let Some(next) = page.next else { break };
        let text = next.to_string();
        assert!(text.bytes().all(|byte| byte.is_ascii_graphic()), "{text}");
        query = query.with_cursor(Some(text.parse().unwrap()));
    }
    assert_eq!(seen, 5);
}

#[tokio::test]
async fn records_and_pages_survive_json() {
    let (store, effects) = (MemoryStore::new(), Effects::seeded(1, "2026-02-15T10:30:00Z".parse().unwrap()));
    let new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
    let session: SessionRecord = (*store.sessions(&effects).create(new).await.unwrap()).clone();
    same(&session);
    let events = store.read(session.id, ReadEvents::first(1)).await.unwrap();
    assert_eq!(same::<EventPage>(&events).matches("session.created").count(), 1);
    let workspace = Workspace::new(WorkspaceId::DEFAULT, "home", session.id, effects.now());
    let workspace = store.put(workspace, Precondition::MustNotExist).await.unwrap();
    same(
        &Page::new(vec![workspace])
            .with_damaged(vec![Damaged::new("log 3", "is cut short")])
            .with_total(Some(1)),
    );
    same(&Page::new(vec![Binding::new("laptop".parse().unwrap(), WorkspaceId::DEFAULT)]));
}

#[test]
fn capabilities_name_units_in_json() {
    let all = Capabilities::new(Scope::Host, Durability::PowerLoss)
        .with_recency(Duration::from_millis(1500))
        .with_min_lease(Duration::from_secs(120));
    assert_eq!(
        same(&all),
        r#"{"scope":"host","durability":"power_loss","listing":"immediate","recency_ms":1500,"min_lease_ms":120000,"blob_max_bytes":0,"suite":1,"isolation":"none"}"#
    );
    same(&LeaseStatus::new(3, true));
    let shown = (all.scope.to_string(), all.durability.to_string(), all.listing.to_string());
    assert_eq!(shown, ("host".into(), "power_loss".into(), "immediate".into()), "as in JSON");
}

#[test]
fn foreign_cursors_are_refused_in_json() {
    for text in ["", "c1.0000000000000000.x", "page 2", &"c2.".repeat(2000)] {
        assert!(serde_json::from_str::<Cursor>(&format!("{text:?}")).is_err(), "{text}");
    }
}

/// The form of every kind of error names the kind as `ErrorKind::name` does, and keeps what a caller decides by.
#[test]
fn errors_survive_json() {
    let kinds = [
        ErrorKind::NotFound,
        ErrorKind::Deleted,
        ErrorKind::Conflict { head: Some(Seq::new(7)) },
        ErrorKind::Conflict { head: None },
        ErrorKind::Fenced { epoch: Epoch::new(2) },
        ErrorKind::Busy { holder: "laptop".to_owned() },
        ErrorKind::InvalidInput,
        ErrorKind::LimitExceeded,
        ErrorKind::InvalidTransition { from: SessionState::Archived, trigger: TriggerKind::BeginRun },
        ErrorKind::Expired { at: "2026-02-15T10:30:00Z".parse().unwrap() },
        ErrorKind::Corrupt,
        ErrorKind::Unsupported,
        ErrorKind::Denied,
        ErrorKind::Full,
        ErrorKind::Unavailable,
        ErrorKind::Poisoned,
        ErrorKind::Provider,
    ];
    for kind in kinds {
        for outcome in [WriteOutcome::NotApplied, WriteOutcome::Unknown] {
            let error = Error::new(kind.clone(), "session 7 is busy; try again").with_outcome(outcome);
            let json = serde_json::to_string(&error).unwrap();
            assert!(json.contains(&format!("\"kind\":\"{}\"", kind.name())), "{json}");
            let back: Error = serde_json::from_str(&json).unwrap();
            assert_eq!((back.kind(), back.write_outcome()), (&kind, outcome), "{json}");
            assert_eq!((back.to_string(), back.is_timeout()), (error.to_string(), false), "{json}");
        }
    }
    let late =
        serde_json::to_string(&Error::new(ErrorKind::Unavailable, "reading took 30 s").timed_out()).unwrap();
    assert!(serde_json::from_str::<Error>(&late).unwrap().is_timeout(), "{late}");
    let conflict = Error::new(ErrorKind::Conflict { head: Some(Seq::new(7)) }, "head is 7");
    assert_eq!(
        serde_json::to_string(&conflict).unwrap(),
        r#"{"kind":"conflict","head":7,"message":"head is 7","write_outcome":"not_applied"}"#
    );
}
