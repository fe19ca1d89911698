//! Views for people: what they show, and what they leave out when a message cannot be read as JSON by PostgreSQL.

use agent_core::event::NewEvent;
use agent_core::json::RawJson;
use agent_core::model::{Patch, Title};
use agent_core::session::SessionRecord;
use agent_core::store::ReadEvents;
use agent_core::{SessionStore, SessionStoreExt};
use agent_storage_postgres::PostgresStore;
use sqlx::postgres::{PgConnection, PgRow};
use sqlx::{AssertSqlSafe, Connection, Executor, Row};

use crate::{Scene, message};

/// Bytes of a text that is nearly as long as a commit may be.
const LONG: i32 = (16 << 20) - 4096;

async fn append(scene: &Scene, store: &PostgresStore, session: &mut SessionRecord, events: Vec<NewEvent>) {
    let done = store.sessions(&scene.effects).append(session.id, session.head, events).await.unwrap();
    *session = (*done.session).clone();
}

/// Rows of a statement of a person who has set tenant and owner.
async fn rows(scene: &Scene, sql: &str) -> Vec<PgRow> {
    let mut conn = PgConnection::connect(&scene.address(&scene.app())).await.unwrap();
    let sql = format!(
        "SET agent.tenant = 'default'; SET agent.owner = '*'; SET search_path = {}; {sql}",
        scene.schema
    );
    conn.fetch_all(sqlx::raw_sql(AssertSqlSafe(sql))).await.unwrap()
}

async fn number(scene: &Scene, sql: &str) -> i64 {
    rows(scene, sql).await[0].get(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn views_show_everything_of_a_session() {
    let scene = Scene::new();
    let store = scene.open().await;
    let mut session = (*scene.create(&store).await).clone();
    let patch = Patch::new().with_title(Title::by_user("Trip")).with_label("colour", "green");
    append(&scene, &store, &mut session, vec![NewEvent::updated(patch)]).await;
    append(&scene, &store, &mut session, message("hello")).await;
    // The join of the documentation.
    let all = "SELECT s.title, s.state, m.seq, m.actor, m.text, p.part, l.value FROM v_sessions s JOIN v_messages m USING (tenant, session) \
        LEFT JOIN v_parts p USING (tenant, session, seq) LEFT JOIN v_labels l USING (tenant, session) WHERE session = ";
    let found = rows(&scene, &format!("{all} '{}' ORDER BY m.seq, p.part", session.id)).await;
    assert_eq!(found.len(), 1);
    let texts: Vec<&str> = [0, 1, 3, 4, 6].iter().map(|column| found[0].get(column)).collect();
    assert_eq!(texts, ["Trip", "queued", "user", "hello", "green"]);
    assert_eq!(number(&scene, "SELECT count(*) FROM v_runs").await, 0);
    // Nobody sees them without a tenant, and a program writes nothing through them.
    let mut conn = PgConnection::connect(&scene.address(&scene.app())).await.unwrap();
    for view in ["v_sessions", "v_messages", "v_parts", "v_runs", "v_labels"] {
        let sql = format!("SELECT count(*) FROM {}.{view}", scene.schema);
        let count: i64 = conn.fetch_one(sqlx::raw_sql(AssertSqlSafe(sql))).await.unwrap().get(0);
        assert_eq!(count, 0, "{view}");
    }
    let delete = format!("DELETE FROM {}.v_labels", scene.schema);
    assert!(conn.execute(sqlx::raw_sql(AssertSqlSafe(delete))).await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_messages_spoil_no_view() {
    let scene = Scene::new();
    let store = scene.open().await;
    let mut session = (*scene.create(&store).await).clone();
    append(&scene, &store, &mut session, message("before")).await;
    append(&scene, &store, &mut session, message("a\u{0}b")).await;
    let half = NewEvent::user_message("half").with_extra("half", RawJson::constant(r#""\ud800""#));
    append(&scene, &store, &mut session, vec![half]).await;
    append(&scene, &store, &mut session, message(&"x".repeat(LONG.try_into().unwrap()))).await;
    append(&scene, &store, &mut session, message("after")).await;
    // The store reads what the views do not.
    let events = store.read(session.id, ReadEvents::first(3)).await.unwrap().events;
    assert!(events[2].payload.get().contains("a\\u0000b"), "{:?}", events[2]);
    scene.run("UPDATE @.events SET json = '{damaged' WHERE seq = 2").await;

    let found = rows(&scene, "SELECT seq, length(text) FROM v_messages ORDER BY seq").await;
    let lengths: Vec<(i64, Option<i32>)> = found.iter().map(|row| (row.get(0), row.get(1))).collect();
    assert_eq!(lengths, [(2, None), (3, None), (4, None), (5, Some(LONG)), (6, Some(5))]);
    for view in ["v_sessions", "v_parts", "v_runs", "v_labels"] {
        rows(&scene, &format!("SELECT * FROM {view}")).await;
    }
}
