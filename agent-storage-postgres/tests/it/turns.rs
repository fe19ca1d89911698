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

#[tokio::test(flavor = "multi_thread")]
async fn turns_of_a_conversation_change_no_index() {
    let scene = Scene::in_own_database().await;
    let store = scene.open().await;
    let session = scene.create(&store).await;
    let mut head = session.head;
    for _ in 0..200 {
        head =
            store.sessions(&scene.effects).append(session.id, head, message("a")).await.unwrap().session.head;
    }
    store.close().await.unwrap();
    let of = |column: &str| {
        format!(
            "SELECT {column} FROM pg_stat_user_tables WHERE schemaname = '{}' AND relname = 'sessions'",
            scene.schema
        )
    };
    // The statistics of a connection are sent when it ends; this waits for them, and measures no time.
    let mut updates = 0;
    for _ in 0..600 {
        updates = scene.number(&of("n_tup_upd")).await;
        if updates >= 200 {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    let hot = scene.number(&of("n_tup_hot_upd")).await;
    assert!(updates >= 200, "{updates} updates");
    assert!(hot * 10 >= updates * 9, "{hot} of {updates} updates changed no index");
}
