//! Changes by other stores: noticed by hints, which may be forged, and without hints by looking.

use std::time::Duration;

use agent_core::session::SessionRecord;
use agent_core::{ErrorKind, Result, Seq, SessionStore, SessionStoreExt};
use agent_storage_postgres::PostgresStore;
use sqlx::Executor;
use sqlx::postgres::PgListener;
use tokio::task::JoinHandle;

use crate::{SERVER, Scene, connect, message};

/// Interval at which nobody looks as long as a test runs.
const NEVER: Duration = Duration::from_secs(3600);
/// Time after which a test fails.
const LATE: Duration = Duration::from_secs(120);

impl Scene {
    async fn open_without_looking(&self) -> PostgresStore {
        self.config().with_poll_interval(NEVER).open().await.unwrap()
    }

    /// Number of connections that listen for changes in the schema of the test.
    pub(crate) async fn listeners(&self) -> i64 {
        let sql = "SELECT count(*) FROM pg_stat_activity WHERE state = 'idle' AND query = 'LISTEN \"{}\"'";
        self.number(&sql.replace("{}", &self.schema)).await
    }

    pub(crate) async fn wait_for_listeners(&self, count: i64) {
        let wait = async {
            while self.listeners().await != count {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(LATE, wait).await.expect("the number of listeners is another one");
    }

    async fn append(&self, store: &PostgresStore, session: &SessionRecord) -> Seq {
        let now = store.load(session.id).await.unwrap();
        store.sessions(&self.effects).append(now.id, now.head, message("a")).await.unwrap().session.head
    }
}

/// Waits for a change in a task.
fn wait(store: &PostgresStore, session: &SessionRecord, seen: Seq) -> JoinHandle<Result<Seq>> {
    let (store, id) = (store.clone(), session.id);
    tokio::spawn(async move { store.changed(id, seen).await })
}

async fn within(waiting: JoinHandle<Result<Seq>>) -> Result<Seq> {
    tokio::time::timeout(LATE, waiting).await.expect("the change was not noticed").unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_by_another_store_is_noticed_without_looking() {
    let scene = Scene::with_tables().await;
    let (store, other) = (scene.open_without_looking().await, scene.open().await);
    let session = scene.create(&store).await;
    let mut seen = session.head;
    // The first changes may be found by looking, before the store listens.
    let mut rounds = 0;
    while rounds < 10 {
        rounds += u32::from(scene.listeners().await == 1);
        let waiting = wait(&store, &session, seen);
        seen = scene.append(&other, &session).await;
        assert_eq!(within(waiting).await.unwrap(), seen);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listener_whose_connection_ends_listens_again_and_misses_nothing() {
    let scene = Scene::with_tables().await;
    let (store, other) = (scene.open_without_looking().await, scene.open().await);
    let session = scene.create(&store).await;
    let mut seen = session.head;
    for _ in 0..5 {
        let waiting = wait(&store, &session, seen);
        scene.wait_for_listeners(1).await;
        let end = format!(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query = 'LISTEN \"{}\"'",
            scene.schema
        );
        connect().await.fetch_all(sqlx::raw_sql(sqlx::AssertSqlSafe(end))).await.unwrap();
        seen = scene.append(&other, &session).await;
        assert_eq!(within(waiting).await.unwrap(), seen);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn forged_hints_are_not_believed() {
    let scene = Scene::with_tables().await;
    let (store, other) = (scene.open_without_looking().await, scene.open().await);
    let session = scene.create(&store).await;
    let waiting = wait(&store, &session, session.head);
    scene.wait_for_listeners(1).await;
    let mut forger = connect().await;
    let long = "7".repeat(7999);
    let of_session = [format!("1 {} default", session.id), format!("1 {} default 900", session.id)];
    for payload in [&long, "", "hello", "1 2 3"].into_iter().chain(of_session.iter().map(String::as_str)) {
        let sql = sqlx::query("SELECT pg_notify($1, $2)").bind(&scene.schema).bind(payload.to_owned());
        forger.execute(sql).await.unwrap();
    }
    let head = scene.append(&other, &session).await;
    assert_eq!(within(waiting).await.unwrap(), head);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_is_closed_or_dropped_listens_no_more() {
    let scene = Scene::with_tables().await;
    let (store, dropped) = (scene.open_without_looking().await, scene.open_without_looking().await);
    let session = scene.create(&store).await;
    let waiting = wait(&store, &session, session.head);
    let given_up = wait(&dropped, &session, session.head);
    scene.wait_for_listeners(2).await;
    given_up.abort();
    drop((dropped, given_up));
    scene.wait_for_listeners(1).await;
    store.close().await.unwrap();
    assert_eq!(*within(waiting).await.unwrap_err().kind(), ErrorKind::Unavailable);
    scene.wait_for_listeners(0).await;
    // Nobody starts it again.
    assert!(store.changed(session.id, session.head).await.is_err());
    assert_eq!(scene.listeners().await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn many_commits_are_one_hint() {
    let scene = Scene::with_tables().await;
    let store = scene.config().with_hint_interval(NEVER).open().await.unwrap();
    let mut listener = PgListener::connect(SERVER.address()).await.unwrap();
    listener.listen(&scene.schema).await.unwrap();
    let sessions = [scene.create(&store).await, scene.create(&store).await];
    for _ in 0..50 {
        for session in &sessions {
            scene.append(&store, session).await;
        }
    }
    // Closing sends what waits.
    store.close().await.unwrap();
    scene.run(&format!("NOTIFY {}, 'end'", scene.schema)).await;
    let mut hints = Vec::new();
    loop {
        let hint = tokio::time::timeout(LATE, listener.recv()).await.unwrap().unwrap().payload().to_owned();
        if hint == "end" {
            break;
        }
        hints.push(hint);
    }
    for session in &sessions {
        assert!(hints.iter().any(|hint| hint.contains(&session.id.to_string())), "{hints:?}");
    }
    // A slow machine may send some after a minute.
    assert!(hints.len() < 20, "{} hints of 102 commits", hints.len());
}

/// A place to listen at which nothing is heard of the store is refused by name: a pooler, another database.
#[tokio::test(flavor = "multi_thread")]
async fn places_where_nothing_is_heard_are_refused_by_name() {
    let scene = Scene::in_own_database().await;
    let pooler = scene.pooler(2);
    let (of_pooler, own) = (pooler.address.clone(), scene.address(&scene.app()));
    let port = of_pooler.rsplit_once(':').unwrap().1.split('/').next().unwrap();
    for (listen, named) in [
        (of_pooler.as_str(), format!("database {} on 127.0.0.1:{port} hears nothing", scene.database)),
        (SERVER.address(), "`listen`: database postgres on 127.0.0.1:".to_owned()),
    ] {
        let is_pooler = listen == of_pooler;
        for config in
            [Some(scene.config()), is_pooler.then(|| scene.config_behind(&pooler))].into_iter().flatten()
        {
            let error = config.with_option("listen", listen).unwrap().open().await.unwrap_err();
            assert_eq!(*error.kind(), ErrorKind::Unsupported, "{error:?}");
            assert!(error.to_string().contains(&named), "{named}: {error}");
            assert!(error.to_string().contains(&scene.schema), "{error}");
        }
    }
    let missing = format!("{}/nothing", own.rsplit_once('/').unwrap().0);
    let error = scene.config().with_option("listen", &missing).unwrap().open().await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::NotFound, "{error}");
    assert!(error.to_string().contains("`listen`: database nothing"), "{error}");
    // The server itself, and one that may be there later.
    for listen in [own.as_str(), "postgres://nobody@127.0.0.1:1/nothing"] {
        for config in [scene.config(), scene.config_behind(&pooler)] {
            config.with_option("listen", listen).unwrap().open().await.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_listens_where_it_is_told_to() {
    let scene = Scene::with_tables().await;
    let elsewhere = format!("{}?application_name=elsewhere", SERVER.address());
    let store = scene.config().with_option("listen", &elsewhere).unwrap().open().await.unwrap();
    let session = scene.create(&store).await;
    let waiting = wait(&store, &session, session.head);
    scene.wait_for_listeners(1).await;
    let sql = "SELECT count(*) FROM pg_stat_activity WHERE query = 'LISTEN \"{}\"' AND application_name = 'elsewhere'";
    assert_eq!(scene.number(&sql.replace("{}", &scene.schema)).await, 1);
    waiting.abort();

    let scene = Scene::with_tables().await;
    let config = scene.config().with_poll_interval(NEVER).with_option("listen", "off").unwrap();
    let (store, other) = (config.open().await.unwrap(), scene.open().await);
    let session = scene.create(&store).await;
    let waiting = wait(&store, &session, session.head);
    let head = scene.append(&other, &session).await;
    assert_eq!(within(waiting).await.unwrap(), head, "found by looking");
    assert_eq!(scene.listeners().await, 0);
}
