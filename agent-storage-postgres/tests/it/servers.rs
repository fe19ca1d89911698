//! Several servers of one address, and stores beside a pool.

use std::time::Duration;

use agent_core::commit::Commit;
use agent_core::event::NewEvent;
use agent_core::session::SessionRecord;
use agent_core::{ErrorKind, Seq, SessionStore, SessionStoreExt};
use agent_storage_postgres::{PostgresConfig, PostgresStore};
use sqlx::postgres::{PgConnection, PgListener, PgPoolOptions};
use sqlx::{AssertSqlSafe, Connection, Executor, Row};

use crate::support::{OWNER, Server, address_of};
use crate::{Scene, message};

const READ_ONLY: &str = "default_transaction_read_only";

/// Appends a message to a session.
async fn append(scene: &Scene, store: &PostgresStore, session: &SessionRecord) -> agent_core::Result<()> {
    store.sessions(&scene.effects).append(session.id, session.head, message("a")).await.map(drop)
}

/// Runs a statement at a server, and returns the number in the first row; -1 if there is no such table.
async fn number(server: &Server, sql: &str) -> i64 {
    let mut conn = PgConnection::connect(server.address()).await.unwrap();
    let row = conn.fetch_one(sqlx::raw_sql(AssertSqlSafe(sql.to_owned()))).await;
    row.map_or(-1, |row| row.get(0))
}

/// Waits until a statement returns this number.
async fn wait_for(server: &Server, sql: &str, wanted: i64) {
    let wait = async {
        while number(server, sql).await != wanted {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(120), wait).await.expect("the server answers something else");
}

/// Sets a setting of the server.
async fn set(server: &Server, name: &str, value: &str) {
    let mut conn = PgConnection::connect(server.address()).await.unwrap();
    for sql in [format!("ALTER SYSTEM SET {name} = '{value}'"), "SELECT pg_reload_conf()".to_owned()] {
        conn.execute(sqlx::raw_sql(AssertSqlSafe(sql))).await.unwrap();
    }
    let sql = format!("SELECT count(*) FROM pg_settings WHERE name = '{name}' AND setting = '{value}'");
    wait_for(server, &sql, 1).await;
}

/// A store finds the primary behind a standby, the former standby when the primary accepts reads only, and the former primary
/// when that one has ended.
#[tokio::test(flavor = "multi_thread")]
async fn the_server_that_accepts_writes_is_found() {
    let scene = Scene::new();
    let primary = tokio::task::spawn_blocking(Server::start).await.unwrap();
    let standby = primary.standby();
    let host = |server: &Server| server.address().split(['@', '/']).nth(3).unwrap().to_owned();
    let address = format!("postgres://{OWNER}@{},{}/postgres", host(&standby), host(&primary));
    let config = scene.config_at(&address).with_migrate(true);
    assert!(config.to_string().contains(&format!("{},{}", host(&standby), host(&primary))));
    let (store, other) = (config.clone().open().await.unwrap(), config.open().await.unwrap());
    let session = scene.create(&store).await;
    let events = format!("SELECT count(*) FROM {}.events", scene.schema);
    assert_eq!(number(&primary, &events).await, 1);
    wait_for(&standby, &events, 1).await;

    // Alone it is what it is.
    let alone = scene.config_at(&address_of(standby.address(), OWNER)).open().await.unwrap();
    let error = append(&scene, &alone, &session).await.unwrap_err();
    assert!(error.to_string().contains("the server is a standby"), "{error}");

    standby.promote();
    set(&primary, READ_ONLY, "on").await;
    // The store itself sends it again.
    let commit = Commit::seal(&scene.effects, session.id, session.head).with_events(message("a"));
    let head = store.commit(commit).await.unwrap().session.head;
    assert_eq!((number(&primary, &events).await, number(&standby, &events).await), (1, 2));
    // One that reads only finds out when it writes. Then it is woken by hints from there.
    let waiting = tokio::spawn({
        let (other, effects, session) = (other.clone(), scene.effects.clone(), session.clone());
        async move {
            let note = vec![NewEvent::user_message("b")];
            let head = other.sessions(&effects).append(session.id, head, note).await.unwrap().session.head;
            other.changed(session.id, head).await.unwrap()
        }
    });
    let seen = async {
        while store.load(session.id).await.unwrap().head < Seq::new(3) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        store.sessions(&scene.effects).append(session.id, Seq::new(3), message("c")).await.unwrap();
        waiting.await.unwrap()
    };
    let seen = tokio::time::timeout(Duration::from_secs(120), seen).await.unwrap();
    assert_eq!(seen, Seq::new(4));

    drop(standby);
    set(&primary, READ_ONLY, "off").await;
    // A commit that was sent to the one that has ended may be unknown.
    let again = async {
        loop {
            match store.load(session.id).await {
                Ok(found) => break found,
                Err(error) => assert_eq!(*error.kind(), ErrorKind::Unavailable, "{error:?}"),
            }
        }
    };
    let found = tokio::time::timeout(Duration::from_secs(120), again).await.unwrap();
    assert_eq!(found.head, Seq::new(1), "what the former primary had");
    scene.create(&store).await;
}

/// A user who may only read is told so, and not sent to look for a primary.
#[tokio::test(flavor = "multi_thread")]
async fn a_user_that_is_set_to_read_only_is_no_standby() {
    let scene = Scene::new();
    let session = scene.create(&scene.open().await).await;
    scene.run(&format!("ALTER ROLE {} SET {READ_ONLY} = on", scene.app())).await;
    let pooler = scene.pooler(1);
    for config in [scene.config(), scene.config_behind(&pooler)] {
        let store = config.open().await.unwrap();
        let error = append(&scene, &store, &session).await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::Unavailable, "{error}");
        let said = error.to_string();
        assert!(said.contains("is no standby") && said.contains(READ_ONLY), "{said}");
        assert!(!said.contains("primary"), "{said}");
    }
    // Of several servers none is taken.
    let host = scene.address(&scene.app()).split(['@', '/']).nth(3).unwrap().to_owned();
    let several = format!("postgres://{}@{host},{host}/postgres", scene.app());
    let error = scene.config_at(&several).open().await.unwrap_err();
    let cause = std::error::Error::source(&error).unwrap().to_string();
    assert!(cause.contains("is no standby") && cause.contains(READ_ONLY), "{error}: {cause}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_beside_a_pool_uses_none_of_its_connections() {
    let scene = Scene::new();
    let pool = PgPoolOptions::new().max_connections(1).connect(&scene.address(OWNER)).await.unwrap();
    let held = pool.acquire().await.unwrap();
    let config = PostgresConfig::with_pool(&pool).with_schema(&scene.schema).unwrap().with_migrate(true);
    assert!(format!("{config:?}").contains("connections: 8"), "{config:?}");
    let store = config.open().await.unwrap();
    scene.create(&store).await;
    drop(held);
}

/// A hint is sent although the server acknowledges no commit: its standby is not there.
#[tokio::test(flavor = "multi_thread")]
async fn hints_wait_for_no_standby() {
    let scene = Scene::new();
    let server = tokio::task::spawn_blocking(Server::start).await.unwrap();
    let mut admin = PgConnection::connect(server.address()).await.unwrap();
    let sql = format!("ALTER ROLE {OWNER} SET synchronous_commit = 'on'");
    admin.execute(sqlx::raw_sql(AssertSqlSafe(sql))).await.unwrap();
    let address = address_of(server.address(), OWNER);
    let config = scene.config_at(&address).with_migrate(true).with_hint_interval(Duration::from_secs(60));
    let store = config.open().await.unwrap();
    let session = scene.create(&store).await;
    let mut listener = PgListener::connect(server.address()).await.unwrap();
    listener.listen(&scene.schema).await.unwrap();
    set(&server, "synchronous_standby_names", "nobody").await;
    // Closing sends what waits.
    store.close().await.unwrap();
    let hint = tokio::time::timeout(Duration::from_secs(60), listener.recv()).await;
    let hint = hint.expect("the hint was not sent").unwrap();
    assert!(hint.payload().contains(&session.id.to_string()), "{hint:?}");
}
