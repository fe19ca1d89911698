//! A limit on the size of files (`ulimit -f`), as a quota is: what does not fit is `Full`, and nothing is torn.
#![cfg(unix)]

use std::process::Command;
use std::time::Duration;

use crate::support::{hasty, session, texts};
use agent_core::clock::Effects;
use agent_core::event::NewEvent;
use agent_core::{ErrorKind, Seq, SessionStore, SessionStoreExt, WriteOutcome};
use agent_storage_fs::FsStore;

const ROOT: &str = "AGENT_STORAGE_FS_TEST_LIMITED";

/// Not a test of its own: what the process does whose files may have 64 KiB.
#[test]
fn limited() {
    let Ok(order) = std::env::var(ROOT) else { return };
    let (id, root) = order.split_once(' ').unwrap();
    let id = id.parse().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (store, effects) = (FsStore::open(root).await.unwrap(), Effects::default());
        let mut seen = SessionStore::load(&store, id).await.unwrap().head;
        let mut content = 0;
        let error = loop {
            let text = format!("{content} {}", "x".repeat(5000));
            match store.sessions(&effects).append(id, seen, vec![NewEvent::user_message(text)]).await {
                Ok(done) => seen = done.last,
                Err(error) => break error,
            }
            content += 1;
        };
        assert_eq!(*error.kind(), ErrorKind::Full, "{error}");
        assert_eq!(error.write_outcome(), WriteOutcome::NotApplied, "{error}");
        assert!((5..20).contains(&content), "{content}");
        // What is small still fits, in this session and in others.
        let done =
            store.sessions(&effects).append(id, seen, vec![NewEvent::user_message("small")]).await.unwrap();
        session(&store, &effects).await;
        assert_eq!(texts(&store, id).await.len() as u64, done.last.get() - 1);
        store.close().await.unwrap();
    });
}

/// Under a limit on the size of files a write is `Full` and did not happen; the process lives.
#[tokio::test]
async fn file_size_limit_is_reported_as_full() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("store");
    let (store, effects) = (hasty(&root).await, Effects::default());
    let id = session(&store, &effects).await.id;
    let program = std::env::current_exe().unwrap();
    // In blocks of 512 or of 1024 bytes, as the shell has it.
    let mut child = Command::new("sh")
        .args(["-c", "ulimit -f 64 && exec \"$0\" --exact file_size::limited --nocapture --test-threads 1"])
        .arg(program)
        .env(ROOT, format!("{id} {}", root.display()))
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let mut waited = 0;
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        assert!(waited < 1200, "it does not end");
        waited += 1;
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    assert!(status.success(), "{status}");
    let stored = texts(&store, id).await;
    assert_eq!(stored.last().unwrap(), "small");
    assert!(stored.iter().rev().skip(1).all(|text| text.len() > 5000));
    let seen = Seq::new(stored.len() as u64 + 1);
    let long = NewEvent::user_message("y".repeat(100_000));
    store.sessions(&effects).append(id, seen, vec![long]).await.unwrap();
}
