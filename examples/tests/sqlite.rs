//! The chat on one database file: as on files.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use std::path::Path;
use std::process::Command;

use agent_core::{Seq, SessionQuery, SessionStoreExt, Storage, ToolOutcome};
use agent_storage_sqlite::SqliteStore;
use common::{Chat, Found, check};
use futures::TryStreamExt;

fn start(file: &Path, options: &[&str]) -> Chat {
    let mut command = Command::new(env!("CARGO_BIN_EXE_chat"));
    command
        .arg("--store")
        .arg(format!("sqlite:{}", file.display()))
        .args(["--device", "laptop"])
        .args(options);
    Chat::spawn(command)
}

/// The one session in the file, its record checked against its log.
async fn found(file: &Path) -> Found {
    let storage: Storage = SqliteStore::open(file).await.unwrap().into();
    let page = storage.sessions.list(SessionQuery::new()).await.unwrap();
    assert_eq!((page.items.len(), page.damaged.len()), (1, 0));
    let session = storage.sessions.load(page.items[0].id).await.unwrap();
    let events: Vec<_> = storage.sessions.events(session.id, Seq::ZERO).try_collect().await.unwrap();
    check(&session, &events);
    Found { session, events }
}

/// A33, A29, F17: what was said is there again, and two programs see each other's messages.
#[tokio::test]
async fn a29_a33_a_conversation_on_one_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("chat.db");
    let mut first = start(&file, &[]);
    first.say("from the first");
    first.out.wait_for("from the first");
    let mut second = start(&file, &[]);
    second.say("/history");
    second.out.wait_for("agent: from the first");
    second.say("from the second");
    second.out.wait_for("from the second");
    assert_eq!((first.finish(), second.finish()), (0, 0), "{}{}", first.err.text(), second.err.text());
    let found = found(&file).await;
    assert_eq!(found.said(), ["from the first", "from the second"]);
    assert_eq!(found.answered(), ["from the first", "from the second"]);
}

/// O27, X02: killed while a tool runs, the session goes on when the lease has expired: the input is there, the open call
/// has its one result, and nothing is doubled.
#[tokio::test]
async fn o27_x02_killed_while_a_tool_runs() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("chat.db");
    let mut chat = start(&file, &["--lease-ttl-ms", "500"]);
    chat.say("!sleep 60");
    let storage: Storage = SqliteStore::open(&file).await.unwrap().into();
    loop {
        let page = storage.sessions.list(SessionQuery::new()).await.unwrap();
        let open = match page.items.first() {
            Some(session) => storage.sessions.load(session.id).await.unwrap().open_calls.len(),
            None => 0,
        };
        if open == 1 {
            break;
        }
        tokio::task::yield_now().await;
    }
    chat.kill();
    let mut chat = start(&file, &["--lease-ttl-ms", "500"]);
    chat.say("still there?");
    assert_eq!(chat.finish(), 0, "{}", chat.err.text());
    let found = found(&file).await;
    assert_eq!(found.said(), ["!sleep 60", "still there?"]);
    let outcomes: Vec<_> = found
        .events
        .iter()
        .filter_map(|event| match event.body().unwrap() {
            agent_core::Body::AgentToolResult(result) => Some(result.outcome),
            _ => None,
        })
        .collect();
    assert_eq!(outcomes[0], ToolOutcome::Interrupted, "{outcomes:?}");
    assert!(found.session.open_calls.is_empty());
}

/// X01: a wrong option, and a file that is no database, are said to be so.
#[test]
fn x01_what_is_no_database_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("notes.txt");
    std::fs::write(&file, "these are my notes, and no database\n".repeat(40)).unwrap();
    let before = std::fs::read(&file).unwrap();
    let mut chat = start(&file, &[]);
    assert_eq!(chat.finish(), 1);
    assert!(chat.err.text().contains("notes.txt"), "{}", chat.err.text());
    assert_eq!(std::fs::read(&file).unwrap(), before, "it is as it was");
    let mut chat = start(Path::new("x.db?speed=fast"), &[]);
    assert_eq!(chat.finish(), 2);
    assert!(chat.err.text().contains("busy_timeout_ms"), "it names the known ones: {}", chat.err.text());
}
