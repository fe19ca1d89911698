//! Round trips, counted by a proxy, and what an update costs the server.

use agent_core::store::{ReadEvents, SessionQuery};
use agent_core::{SessionStore, SessionStoreExt};

use crate::proxy::Proxy;
use crate::{Scene, message};

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_and_a_read_are_one_round_trip_each() {
    let scene = Scene::with_tables().await;
    let proxy = Proxy::before(&scene.address(&scene.app()));
    // Hints of the commits are not counted: none is sent in a minute.
    let config = scene.config_at(&proxy.address).with_hint_interval(std::time::Duration::from_secs(60));
    let store = config.with_connections(1).open().await.unwrap();
    let mut session = scene.create(&store).await;
    // Statements are prepared when they are used first.
    let append =
        async |head| store.sessions(&scene.effects).append(session.id, head, message("a")).await.unwrap();
    let mut head = append(session.head).await.session.head;
    store.load(session.id).await.unwrap();
    store.read(session.id, ReadEvents::last(50)).await.unwrap();
    store.list(SessionQuery::new()).await.unwrap();

    proxy.turns();
    for _ in 0..10 {
        head = append(head).await.session.head;
    }
    assert_eq!(proxy.turns(), 10, "a commit is one round trip");
    store.load(session.id).await.unwrap();
    store.read(session.id, ReadEvents::last(50)).await.unwrap();
    store.list(SessionQuery::new()).await.unwrap();
    assert_eq!(proxy.turns(), 3, "a read is one round trip");
    session = scene.create(&store).await;
    assert_eq!(proxy.turns(), 1, "a creation is one round trip");

    // Another handle writes; the next commit learns of it, and is sent twice.
    let other = scene.open().await;
    other.sessions(&scene.effects).append(session.id, session.head, message("b")).await.unwrap();
    store.sessions(&scene.effects).append(session.id, session.head, message("c")).await.unwrap();
    assert_eq!(proxy.turns(), 2, "a commit on an old record is two round trips");
}

/// Transactions of other tests keep old versions of rows alive, which then fill the page: one quiet stretch is enough.
#[tokio::test(flavor = "multi_thread")]
async fn turns_of_a_conversation_change_no_index() {
    let scene = Scene::in_own_database().await;
    let mut ratios = Vec::new();
    while ratios.iter().all(|ratio| *ratio < 90) {
        assert!(ratios.len() < 20, "percent of the updates that changed no index: {ratios:?}");
        ratios.push(percent_of_updates_without_index(&scene).await);
    }
}

/// Returns how many percent of the updates of 200 turns changed no index.
async fn percent_of_updates_without_index(scene: &Scene) -> i64 {
    let of = |column: &str| {
        format!(
            "SELECT {column} FROM pg_stat_user_tables WHERE schemaname = '{}' AND relname = 'sessions'",
            scene.schema
        )
    };
    let (updates_before, hot_before) =
        (scene.number(&of("n_tup_upd")).await, scene.number(&of("n_tup_hot_upd")).await);
    let store = scene.config().open().await.unwrap();
    let session = scene.create(&store).await;
    let mut head = session.head;
    for _ in 0..200 {
        head =
            store.sessions(&scene.effects).append(session.id, head, message("a")).await.unwrap().session.head;
    }
    store.close().await.unwrap();
    // The statistics of a connection are sent when it ends; this waits for them, and measures no time.
    for _ in 0..600 {
        let updates = scene.number(&of("n_tup_upd")).await - updates_before;
        if updates >= 200 {
            return (scene.number(&of("n_tup_hot_upd")).await - hot_before) * 100 / updates;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    panic!("the updates are not counted");
}
