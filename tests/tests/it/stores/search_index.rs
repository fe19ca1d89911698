//! Search indexes, copies of stores and documents of sessions.

use agent_admin::copy::StoreCopy;
use agent_admin::manifest::Manifest;
use agent_core::clock::Effects;
use agent_core::event::NewEvent;
use agent_core::search::Search;
use agent_core::session::NewSession;
use agent_core::store::SessionQuery;
use agent_core::{MemoryStore, Storage, Timestamp, WorkspaceId};
use agent_tests::{Site, each_store};

const DAY: i64 = 24 * 3600 * 1_000_000;

/// The storage as it is on a day.
fn on(storage: &Storage, day: i64) -> Storage {
    let seed = Effects::default().random_u64();
    storage.clone().with_effects(Effects::seeded(seed, Timestamp::from_micros(day * DAY)))
}

async fn say(storage: &Storage, text: &str) -> agent_core::SessionId {
    let new = NewSession::new(storage.effects().new_session_id(), WorkspaceId::DEFAULT);
    let session = storage.sessions.create(new).await.unwrap();
    storage.sessions.append(session.id, session.head, vec![NewEvent::user_message(text)]).await.unwrap();
    session.id
}

async fn found(storage: &Storage) -> usize {
    let page = storage.sessions.search(&Search::new("apple")).await.unwrap();
    assert!(page.is_complete && page.damaged.is_empty());
    page.hits.len()
}

/// What is copied or imported behind the index of a store is found, however old; a copy has no index.
async fn what_comes_in_is_found_behind_an_index(site: Site) {
    let storage = site.open().await;
    say(&on(&storage, 400), "an apple").await;
    let updated = on(&storage, 500).sessions.update_search_index().await.unwrap();
    assert!(updated.is_complete, "{}", site.name);
    let there: Storage = MemoryStore::new().into();
    say(&on(&there, 300), "an older apple").await;
    on(&there, 500).sessions.update_search_index().await.unwrap();
    let report = StoreCopy::new(there.clone(), storage.clone()).run().await.unwrap();
    assert_eq!((report.is_whole(), found(&storage).await), (true, 2), "{}", site.name);
    // Only the index of this store.
    let hidden = SessionQuery::new().with_label("hidden", "search-index").with_hidden();
    assert_eq!(storage.sessions.list(hidden.clone()).await.unwrap().items.len(), 1, "{}", site.name);

    on(&storage, 500).sessions.update_search_index().await.unwrap();
    let elsewhere: Storage = MemoryStore::new().into();
    let id = say(&on(&elsewhere, 200), "the oldest apple").await;
    Manifest::export(&*elsewhere.sessions, id).await.unwrap().import(&*storage.sessions).await.unwrap();
    assert_eq!(found(&storage).await, 3, "{}", site.name);

    let copy: Storage = MemoryStore::new().into();
    StoreCopy::new(storage.clone(), copy.clone()).run().await.unwrap();
    assert_eq!(copy.sessions.list(hidden).await.unwrap().items.len(), 0, "{}", site.name);
    assert_eq!(found(&copy).await, 3, "{}", site.name);
}

each_store!(what_comes_in_is_found_behind_an_index and files);
