//! Ratio of a commit to a raw insert on the same server: `cargo test … speed -- --ignored --nocapture`.

use agent_core::SessionStoreExt;
use sqlx::Executor;
use tokio::time::Instant;

use crate::{Scene, connect, message};

#[tokio::test(flavor = "multi_thread")]
#[ignore = "measures; for people"]
#[allow(clippy::print_stdout, reason = "for people")]
async fn commits_against_raw_inserts() {
    const COUNT: i64 = 2000;
    let scene = Scene::new();
    let store = scene.open().await;
    scene.run("CREATE TABLE @.raw (n bigint PRIMARY KEY, json text)").await;
    let (mut conn, session) = (connect().await, scene.create(&store).await);
    let text = format!("INSERT INTO {}.raw VALUES ($1, $2)", scene.schema);
    let (mut raw, mut commits, mut head) = (Vec::new(), Vec::new(), session.head);
    // In turn, so that both meet the same load; the medians, since the machine is noisy.
    for n in 0..COUNT {
        let began = Instant::now();
        let insert = sqlx::query(sqlx::AssertSqlSafe(text.clone())).bind(n).bind("x".repeat(300));
        conn.execute(insert).await.unwrap();
        raw.push(began.elapsed());
        let began = Instant::now();
        head = store
            .sessions(&scene.effects)
            .append(session.id, head, message("hello"))
            .await
            .unwrap()
            .session
            .head;
        commits.push(began.elapsed());
    }
    raw.sort();
    commits.sort();
    for part in [10, 2] {
        let (raw, commit) = (raw[raw.len() / part], commits[commits.len() / part]);
        println!(
            "1/{part}: raw insert {raw:?}, commit {commit:?}, ratio {:.2}",
            commit.as_secs_f64() / raw.as_secs_f64()
        );
    }
}
