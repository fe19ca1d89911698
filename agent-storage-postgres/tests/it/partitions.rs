//! Events in partitions: as safe as in one table, and a session is in one of them.

use std::time::Duration;

use agent_core::commit::{Commit, Trigger};
use agent_core::state::Reason;
use agent_core::store::{Purge, ReadEvents};
use agent_core::{Backend, ErrorKind, SessionStore, SessionStoreExt, TenantId};
use agent_storage_postgres::PostgresConfig;
use sqlx::{AssertSqlSafe, Executor, Row};

use crate::isolation::{connect_as, nothing_of_others, raw};
use crate::support::OWNER;
use crate::{Scene, message};

const COUNT: u32 = 4;

/// Time after which a test fails.
const LATE: Duration = Duration::from_secs(300);

/// Makes the tables of a scene, with partitions.
async fn divide(scene: &Scene, count: u32) {
    scene.config_of_owner().with_partitions(count).open().await.unwrap().close().await.unwrap();
}

async fn divided() -> Scene {
    let scene = Scene::new();
    divide(&scene, COUNT).await;
    scene
}

/// By the table, row security holds as without partitions. By itself, a partition shows and takes nothing: programs have no rights,
/// and no policy lets them or the owner of the tables in, whatever tenant they set.
#[tokio::test(flavor = "multi_thread")]
async fn raw_sql_sees_and_changes_nothing_of_others_in_partitions() {
    let scene = divided().await;
    nothing_of_others(&scene).await;
    let all = "SELECT count(*) FROM @.events";
    let before = scene.number(all).await;
    assert!(before > 0);
    let refused = Err("42501".to_owned());
    for rights in ["SELECT 1", "GRANT ALL ON ALL TABLES IN SCHEMA @schema TO @app"] {
        let rights = rights.replace("@schema", &scene.schema).replace("@app", &scene.app());
        scene.run(&rights).await;
        for user in [&scene.app(), OWNER] {
            let settings = [("agent.tenant", "acme"), ("agent.owner", "*"), ("agent.across", "on")];
            let mut conn = connect_as(&scene, user, &settings).await;
            assert!(raw(&mut conn, &scene, "SELECT 1 FROM @.events").await.is_ok_and(|count| count > 0));
            let is_lawful = user == OWNER || rights.starts_with("GRANT");
            for n in 0..COUNT {
                for sql in [
                    "SELECT 1 FROM @.",
                    "SELECT 1 FROM ONLY @.",
                    "UPDATE @. SET owner = 'bob'",
                    "DELETE FROM @.",
                ] {
                    let sql = sql.replace("@.", &format!("@.events_{n}"));
                    let done = raw(&mut conn, &scene, &sql).await;
                    assert_eq!(
                        done,
                        if is_lawful { Ok(0) } else { refused.clone() },
                        "{sql} for {user}: {rights}"
                    );
                }
                let insert = format!("INSERT INTO @.events_{n} SELECT * FROM @.copy_of_events");
                assert_eq!(raw(&mut conn, &scene, &insert).await, refused, "{insert} for {user}: {rights}");
            }
        }
    }
    assert_eq!(scene.number(all).await, before);
}

/// A store is refused whose partitions are without row security, or whose table itself is.
#[tokio::test(flavor = "multi_thread")]
async fn partitions_without_row_security_are_refused() {
    let scene = divided().await;
    for table in ["events", "events_2"] {
        for off in ["NO FORCE", "DISABLE"] {
            scene.config().open().await.unwrap();
            scene.run(&format!("ALTER TABLE @.{table} {off} ROW LEVEL SECURITY")).await;
            let error = scene.config().open().await.unwrap_err();
            assert_eq!(*error.kind(), ErrorKind::Unsupported);
            assert!(error.to_string().contains("row security"), "{table} {off}: {error}");
            let on = "ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY";
            scene.run(&format!("ALTER TABLE @.{table} {on}")).await;
        }
    }
}

/// The number is that of when the tables were created. Another one is refused, and no number is any.
#[tokio::test(flavor = "multi_thread")]
async fn another_number_of_partitions_is_refused_by_number() {
    for (created, found) in [(None, 1), (Some(1), 1), (Some(COUNT), COUNT)] {
        let scene = Scene::new();
        divide(&scene, created.unwrap_or(1)).await;
        let tables = "SELECT count(*) FROM pg_inherits WHERE inhparent = '@.events'::regclass";
        assert_eq!(scene.number(tables).await, if found == 1 { 0 } else { i64::from(found) });
        for config in [scene.config(), scene.config_of_owner()] {
            config.clone().open().await.unwrap();
            let config = |count: u32| config.clone().with_option("partitions", &count.to_string()).unwrap();
            config(found).open().await.unwrap();
            let error = config(8).open().await.unwrap_err();
            assert_eq!(*error.kind(), ErrorKind::InvalidInput, "{error}");
            assert!(error.to_string().contains(&format!("with partitions={found}, and not 8")), "{error}");
        }
    }
    for wrong in ["0", "1025", "-1", "many", ""] {
        let error = PostgresConfig::from_url(&format!("postgres://a@b/c?partitions={wrong}")).unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::InvalidInput, "{wrong}");
    }
    PostgresConfig::from_url("postgres://a@b/c?partitions=1024").unwrap();
}

/// Sessions are spread over the partitions, and views, purges, checks, rebuilds and the deletion of a tenant are as without.
#[tokio::test(flavor = "multi_thread")]
async fn all_partitions_are_seen_checked_and_deleted() {
    const SESSIONS: i64 = 24;
    let scene = divided().await;
    let store = scene.open().await;
    let lossless = "SELECT count(*) FROM pg_attribute a JOIN pg_inherits i ON i.inhrelid = a.attrelid JOIN pg_attribute p \
        ON p.attrelid = i.inhparent AND p.attname = a.attname AND p.attcompression = a.attcompression \
        WHERE i.inhparent = '@.events'::regclass AND a.attname = 'json'";
    assert_eq!(scene.number(lossless).await, i64::from(COUNT), "compressed in another way than the table");
    let mut sessions = Vec::new();
    for _ in 0..SESSIONS {
        let session = scene.create(&store).await;
        sessions.push(
            store
                .sessions(&scene.effects)
                .append(session.id, session.head, message("a"))
                .await
                .unwrap()
                .session,
        );
    }
    assert_eq!(scene.number("SELECT count(DISTINCT tableoid) FROM @.events").await, i64::from(COUNT));
    let app = scene.app();
    let mut conn = connect_as(&scene, &app, &[("agent.tenant", "default"), ("agent.owner", "*")]).await;
    let seen = format!("SELECT count(*) FROM {}.v_messages WHERE text = 'a'", scene.schema);
    let seen: i64 = conn.fetch_one(sqlx::raw_sql(AssertSqlSafe(seen))).await.unwrap().get(0);
    assert_eq!(seen, SESSIONS);
    for session in &sessions[..8] {
        let delete = Commit::seal(&scene.effects, session.id, session.head)
            .with_trigger(Trigger::Delete(Reason::UserDeleted));
        let head = store.commit(delete).await.unwrap().session.head;
        assert_eq!(store.purge(Purge::new(session.id, head)).await.unwrap().events, head.get());
        assert_eq!(store.read(session.id, ReadEvents::first(10)).await.unwrap().events.len(), 0);
    }
    assert_eq!(scene.number("SELECT count(*) FROM @.events").await, (SESSIONS - 8) * 2);
    scene.run("DELETE FROM @.sessions WHERE class = 'live'").await;
    assert_eq!(store.maintenance().check().await.unwrap().len() as i64, SESSIONS - 8);
    assert_eq!(store.maintenance().rebuild().await.unwrap().sessions as i64, SESSIONS);
    assert!(store.maintenance().check().await.unwrap().is_empty());
    let deleted = store.delete_tenant(&TenantId::default()).await.unwrap();
    assert_eq!(deleted.sessions as i64, SESSIONS);
    assert_eq!(scene.number("SELECT count(*) FROM @.events").await, 0);
}

/// What commits and reads of a session look at is one partition.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_is_in_one_partition() {
    let mut scene = Scene::new();
    scene.make_database().await;
    divide(&scene, 16).await;
    // The statistics of a connection are complete when it has ended.
    let others = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() \
        AND backend_type = 'client backend'";
    let nobody = async || {
        let wait = async {
            while scene.number(others).await > 0 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(LATE, wait).await.expect("a connection does not end");
    };
    nobody().await;
    scene.run("SELECT pg_stat_reset()").await;
    let store = scene.config().open().await.unwrap();
    let mut session = scene.create(&store).await;
    // After five, the server may use a plan for all values.
    for _ in 0..8 {
        session = store
            .sessions(&scene.effects)
            .append(session.id, session.head, message("a"))
            .await
            .unwrap()
            .session;
        for read in [ReadEvents::last(3), ReadEvents::first(3)] {
            assert!(!store.read(session.id, read).await.unwrap().events.is_empty());
        }
    }
    assert_eq!(store.load(session.id).await.unwrap(), session);
    store.close().await.unwrap();
    nobody().await;
    let read = "SELECT count(*) FROM pg_stat_user_tables WHERE relname LIKE 'events\\_%' AND seq_scan + coalesce(idx_scan, 0) > 0";
    assert_eq!(scene.number(read).await, 1);
}
