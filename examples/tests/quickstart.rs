//! What the README shows.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::fs;
use std::path::Path;
use std::process::Command;

use agent::admin::verify::verify;
use agent::{SessionQuery, SqliteStore, Storage};

fn run(folder: &Path) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_quickstart")).current_dir(folder).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// It goes on every time it is started.
#[test]
fn the_quickstart_goes_on_where_it_stopped() {
    let folder = tempfile::tempdir().unwrap();
    for messages in [2, 4, 6] {
        assert_eq!(run(folder.path()), format!("Hello ({messages} messages so far)\n"));
    }
}

/// The file lies alone each time, and a copy of it alone holds a sound session.
#[tokio::test]
async fn the_quickstart_leaves_one_file() {
    let folder = tempfile::tempdir().unwrap();
    for round in 1..=40 {
        run(folder.path());
        let files: Vec<_> = fs::read_dir(folder.path().join("target"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        assert_eq!(files, ["quickstart.db"]);
        let copy = folder.path().join("copy.db");
        fs::copy(folder.path().join("target/quickstart.db"), &copy).unwrap();
        let store = Storage::from(SqliteStore::open(&copy).await.unwrap());
        let sessions = store.sessions.list(SessionQuery::new()).await.unwrap().items;
        assert_eq!((sessions.len(), sessions[0].head.get()), (1, 2 + 2 * round));
        assert_eq!(verify(&store, |_| ()).await.unwrap().findings, []);
        store.close().await.unwrap();
    }
}
