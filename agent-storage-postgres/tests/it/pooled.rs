//! The store behind a pooler in transaction mode, which gives each transaction any of the server's connections.

use std::str::FromStr;
use std::time::Duration;

use agent_core::store::{ReadEvents, SessionQuery};
use agent_core::{ErrorKind, SessionStore, SessionStoreExt, TenantId};
use agent_storage_postgres::{PostgresConfig, PostgresStore};
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{Connection, Executor};

use crate::pooler::Pooler;
use crate::proxy::Proxy;
use crate::{Scene, message};

/// Time in which everything ends on a busy machine.
const LATE: Duration = Duration::from_secs(300);

impl Scene {
    /// Starts a pooler with so many connections of the server.
    pub(crate) fn pooler(&self, connections: usize) -> Pooler {
        Pooler::before(&self.address(&self.app()), connections, "")
    }

    pub(crate) fn config_behind(&self, pooler: &Pooler) -> PostgresConfig {
        self.config_at(&pooler.address).with_transaction_pooler()
    }
}

/// Writes and reads sessions, each of which has the name of whoever made it, and looks whether anything is another's.
async fn work(scene: &Scene, store: PostgresStore, name: String) {
    let mut session = scene.create(&store).await;
    for n in 0..20 {
        let text = format!("{name} {n}");
        let done = store.sessions(&scene.effects).append(session.id, session.head, message(&text)).await;
        session = done.unwrap().session;
        let events = store.read(session.id, ReadEvents::last(1)).await.unwrap().events;
        assert!(
            events[0].payload.get().contains(&format!("\"{text}\"")),
            "{name} read {}",
            events[0].payload.get()
        );
        let listed = store.list(SessionQuery::new()).await.unwrap().items;
        assert_eq!(listed.iter().map(|one| one.id).collect::<Vec<_>>(), [session.id], "{name} lists");
        assert_eq!(store.load(session.id).await.unwrap(), session, "{name} loads");
    }
}

/// Eight tenants in two stores use one connection of the server in turns. It remembers neither a tenant nor a statement for the
/// next one.
#[tokio::test(flavor = "multi_thread")]
async fn two_stores_on_one_connection_never_see_the_rows_of_each_other() {
    let scene = std::sync::Arc::new(Scene::with_tables().await);
    let pooler = scene.pooler(1);
    let stores = [scene.config_behind(&pooler).open().await, scene.config_behind(&pooler).open().await];
    let mut working = Vec::new();
    for (of, store) in stores.into_iter().enumerate() {
        let store = store.unwrap();
        for tenant in 0..4 {
            let name = format!("s{of}t{tenant}");
            let (scene, of_tenant) = (scene.clone(), store.for_tenant(&name.parse::<TenantId>().unwrap()));
            working.push(tokio::spawn(async move { work(&scene, of_tenant, name).await }));
        }
    }
    for working in working {
        tokio::time::timeout(LATE, working).await.expect("20 turns").unwrap();
    }
}

/// What a pooler in transaction mode would mix up is not sent: the address has to say that it is one.
#[tokio::test(flavor = "multi_thread")]
async fn a_pooler_that_was_not_declared_is_refused_by_name() {
    let scene = Scene::with_tables().await;
    let address = scene.address(&scene.app());
    for (connections, more) in [
        // PgBouncer refuses the settings that a connection begins with.
        (1, ""),
        (1, "ignore_startup_parameters = options"),
        (3, "ignore_startup_parameters = options"),
        // The connections are used by turns.
        (2, "ignore_startup_parameters = options\nserver_round_robin = 1"),
    ] {
        let pooler = Pooler::before(&address, connections, more);
        warm_up(&pooler, connections).await;
        let error = scene.config_at(&pooler.address).open().await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::Unsupported, "{connections} {more}: {error:?}");
        assert!(error.to_string().contains("pooler=transaction"), "{error}");
        scene.config_behind(&pooler).open().await.unwrap();
    }
    // In session mode each client has a connection of the server.
    let more = "ignore_startup_parameters = options\npool_mode = session";
    let pooler = Pooler::before(&address, 4, more);
    scene.config_at(&pooler.address).open().await.unwrap();
}

/// A pooler that cannot ask the server for a user, as when that connection has ended, has one code for that and for settings that it
/// refuses: the former passes.
#[tokio::test(flavor = "multi_thread")]
async fn a_pooler_that_cannot_look_a_user_up_is_unavailable() {
    let scene = Scene::with_tables().await;
    let more = "auth_query = SELECT $1::text, pg_terminate_backend(pg_backend_pid())::text";
    let pooler = Pooler::before(&scene.address(&scene.app()), 1, more);
    let error = scene.config_behind(&pooler).open().await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Unavailable, "{error:?}");
    assert!(error.is_retryable() && !error.to_string().contains("pooler=transaction"), "{error}");
}

/// Makes a pooler connect to the server so many times, so that it has a choice.
async fn warm_up(pooler: &Pooler, connections: usize) {
    let mut clients = Vec::new();
    let options = PgConnectOptions::from_str(&pooler.address).unwrap().extra_float_digits(None);
    for _ in 0..connections {
        let mut client = PgConnection::connect_with(&options).await.unwrap();
        client.execute(sqlx::raw_sql("BEGIN; SELECT 1")).await.unwrap();
        clients.push(client);
    }
    for mut client in clients {
        client.execute("COMMIT").await.unwrap();
    }
}

/// A call is a transaction: its beginning with all settings, the statement in two messages, its end.
#[tokio::test(flavor = "multi_thread")]
async fn a_call_behind_a_pooler_is_four_round_trips() {
    let scene = Scene::with_tables().await;
    let pooler = scene.pooler(1);
    let proxy = Proxy::before(&pooler.address);
    let config = scene.config_at(&proxy.address).with_transaction_pooler().with_connections(1);
    let store = config.with_hint_interval(Duration::from_secs(60)).open().await.unwrap();
    let session = scene.create(&store).await;
    proxy.turns();
    store.sessions(&scene.effects).append(session.id, session.head, message("a")).await.unwrap();
    assert_eq!(proxy.turns(), 4, "a commit");
    store.read(session.id, ReadEvents::last(50)).await.unwrap();
    assert_eq!(proxy.turns(), 4, "a read");
}

/// A store whose pooler passes no changes on does not listen there, and looks by itself.
#[tokio::test(flavor = "multi_thread")]
async fn changes_are_found_behind_a_pooler() {
    let scene = Scene::with_tables().await;
    let pooler = scene.pooler(2);
    let never = Duration::from_secs(3600);
    let config = scene.config_behind(&pooler).with_poll_interval(never);
    let direct = PgConnectOptions::from_str(&scene.address(&scene.app())).unwrap();
    for (config, listeners) in [(config.clone(), 0), (config.with_listener(direct), 1)] {
        let (store, other) =
            (config.open().await.unwrap(), scene.config_behind(&pooler).open().await.unwrap());
        let session = scene.create(&store).await;
        let (waits, id, head) = (store.clone(), session.id, session.head);
        let waiting = tokio::spawn(async move { waits.changed(id, head).await });
        scene.wait_for_listeners(listeners).await;
        let changed = other.sessions(&scene.effects).append(id, head, message("a")).await.unwrap().session;
        assert_eq!(tokio::time::timeout(LATE, waiting).await.unwrap().unwrap().unwrap(), changed.head);
        store.close().await.unwrap();
    }
}
