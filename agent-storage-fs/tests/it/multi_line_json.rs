//! One event is one line, however its JSON was written.

use crate::support::{append_text, hasty, session};
use agent_core::clock::Effects;
use agent_core::event::{Event, NewEvent};
use agent_core::json::RawJson;
use agent_core::store::ReadEvents;
use agent_core::{Seq, SessionStore, SessionStoreExt};
use agent_storage_fs::FsStore;

/// JSON over several lines, as serde takes it in.
fn spread(json: &str) -> RawJson {
    serde_json::from_str(json).unwrap()
}

fn spread_event() -> NewEvent {
    NewEvent::new("user.message".parse().unwrap(), spread("{\n  \"text\": \"a b\\nc\",\r\n\t\"n\": 1.10\n}"))
        .with_extra("x_trace", spread("[\n1,\n2\n]"))
}

async fn events(store: &FsStore, id: agent_core::SessionId) -> Vec<Event> {
    let page = store.read(id, ReadEvents::first(100)).await.unwrap();
    assert_eq!(page.damaged, []);
    page.events
}

/// What was acknowledged is there after reopening, and one line each.
#[tokio::test]
async fn multi_line_payloads_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let effects = Effects::default();
    let store = hasty(folder.path()).await;
    let id = session(&store, &effects).await.id;
    let seen = store.sessions(&effects).append(id, Seq::new(1), vec![spread_event()]).await.unwrap().last;
    drop(store);
    let store = hasty(folder.path()).await;
    let seen = append_text(&store, &effects, id, seen, "after it").await;
    drop(store);
    let store = hasty(folder.path()).await;
    assert_eq!(SessionStore::load(&store, id).await.unwrap().head, seen);
    let events = events(&store, id).await;
    assert_eq!(events.len(), 3);
    assert_eq!(events[1].payload.get(), "{\"text\":\"a b\\nc\",\"n\":1.10}");
    assert_eq!(events[1].extra.get("x_trace").unwrap().get(), "[1,2]");
    let log = crate::support::folder_of(folder.path(), id).join("events.jsonl");
    assert_eq!(std::fs::read_to_string(log).unwrap().lines().count(), 3);
}
