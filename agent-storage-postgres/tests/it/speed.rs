//! Ratio of a commit to a raw insert on the same server: `cargo test … speed -- --ignored --nocapture`.

use std::time::Instant;

use agent_core::SessionStoreExt;
use sqlx::Executor;

use crate::{Scene, connect, message};

#[tokio::test(flavor = "multi_thread")]
#[ignore = "measures; for people"]
async fn commits_against_raw_inserts() {
    const COUNT: u32 = 1000;
    let scene = Scene::new();
    let store = scene.open().await;
    scene.run("CREATE TABLE @.raw (n bigint PRIMARY KEY, json text)").await;
    let (mut conn, mut head) = (connect().await, None);
    let session = scene.create(&store).await;
    let text = format!("INSERT INTO {}.raw VALUES ($1, $2)", scene.schema);
    let mut ratios = Vec::new();
    for round in 0..5_u32 {
        let began = Instant::now();
        for n in 0..COUNT {
            let insert = sqlx::query(sqlx::AssertSqlSafe(text.clone())).bind(i64::from(round * COUNT + n));
            conn.execute(insert.bind("x".repeat(300))).await.unwrap();
        }
        let raw = began.elapsed();
        let began = Instant::now();
        for _ in 0..COUNT {
            let at = head.unwrap_or(session.head);
            let done = store.sessions(&scene.effects).append(session.id, at, message("hello")).await.unwrap();
            head = Some(done.session.head);
        }
        let commits = began.elapsed();
        ratios.push((commits.as_secs_f64() / raw.as_secs_f64(), raw / COUNT, commits / COUNT));
    }
    ratios.sort_by(|one, other| one.0.total_cmp(&other.0));
    panic!("ratio, raw insert, commit: {ratios:?}");
}
