//! Quick start of the README.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use agent::admin::verify::verify;
use agent::{AgentBuilder, EchoProvider, SessionQuery, SqliteStore, Storage};

fn run(folder: &Path) -> String {
    let output = output(folder);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn output(folder: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_quickstart")).current_dir(folder).output().unwrap()
}

/// It goes on every time it is started.
#[test]
fn quickstart_continues_where_it_stopped() {
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

/// It prints no empty answer if no model can answer: it ends with the error, and code 1.
#[tokio::test]
async fn the_quickstart_exits_with_the_models_error() {
    let folder = tempfile::tempdir().unwrap();
    run(folder.path());
    let store = SqliteStore::open(folder.path().join("target/quickstart.db")).await.unwrap();
    let builder = AgentBuilder::new().with_llm(EchoProvider::new());
    let agent = builder.with_storage(store).build().unwrap();
    let chat = agent.conversation("support/4711").await.unwrap();
    // A model that the program does not have.
    let choose =
        |workspace: &mut agent::core::model::Workspace| workspace.provider = Some("absent".to_owned());
    agent.workspaces().update(chat.record().workspace, choose).await.unwrap();
    agent.close().await.unwrap();
    let output = output(folder.path());
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), &*output.stdout), (Some(1), &b""[..]), "{error}");
    assert!(error.contains("absent") && error.contains(&chat.id().to_string()), "{error}");
}

/// The program with a tool calls it, and prints the answer.
#[test]
fn the_tool_is_called() {
    let output = Command::new(env!("CARGO_BIN_EXE_tool")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let expected = "(the weather of Paris is looked up)\nIt is 21.5 degrees in Paris.\n";
    assert_eq!(String::from_utf8(output.stdout).unwrap(), expected);
}
