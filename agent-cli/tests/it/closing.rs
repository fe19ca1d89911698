//! A database file is complete without its side files as soon as the programs that used it have closed it or ended.

use agent_admin::verify::verify;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use agent_core::store::SessionQuery;
use agent_runtime::{AgentBuilder, EchoProvider};
use agent_storage_sqlite::SqliteStore;
use tempfile::TempDir;

/// Number of attempts with each program: if a file is left open, most attempts show it.
const ROUNDS: usize = 40;

/// Runs a program to its end, with `input`.
fn run(command: &mut Command, input: &str) {
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn chat(store: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_chat"));
    command.arg("--store").arg(format!("sqlite:{}", store.display())).args(["--device", "laptop"]);
    command
}

/// Checks that the file has no side files, and that a copy of it contains an intact session with this number of events.
async fn taken_elsewhere(file: &Path, events: u64) {
    let name = file.file_name().unwrap().to_str().unwrap();
    let beside: Vec<_> = fs::read_dir(file.parent().unwrap())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|other| other.starts_with(name) && other != name)
        .collect();
    assert_eq!(beside, [""; 0]);
    let elsewhere = tempfile::tempdir().unwrap();
    let copy = elsewhere.path().join("copy.db");
    fs::copy(file, &copy).unwrap();
    let store = agent_core::Storage::from(SqliteStore::open(&copy).await.unwrap());
    let sessions = store.sessions.list(SessionQuery::new()).await.unwrap().items;
    assert_eq!((sessions.len(), sessions[0].head.get()), (1, events));
    assert_eq!(verify(&store, |_| ()).await.unwrap().findings, []);
}

fn folder() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("agent.db");
    (folder, file)
}

/// `chat`, in a conversation and in a command.
#[tokio::test]
async fn a_chat_leaves_one_file() {
    for _ in 0..ROUNDS {
        let (_folder, file) = folder();
        run(&mut chat(&file), "hello\n");
        taken_elsewhere(&file, 4).await;
        run(chat(&file).args(["workspace", "list"]), "");
        taken_elsewhere(&file, 4).await;
    }
}

/// A copy into a new file.
#[tokio::test]
async fn a_copy_leaves_one_file() {
    let source = tempfile::tempdir().unwrap();
    run(Command::new(env!("CARGO_BIN_EXE_chat")).arg("--data-dir").arg(source.path()), "hello\n");
    for _ in 0..ROUNDS {
        let (_folder, file) = folder();
        let (from, to) = (format!("files:{}", source.path().display()), format!("sqlite:{}", file.display()));
        run(Command::new(env!("CARGO_BIN_EXE_chat")).args(["copy", &from, &to]), "");
        taken_elsewhere(&file, 4).await;
    }
}

/// A host that calls `close`, or drops everything.
#[tokio::test]
async fn a_closed_host_leaves_one_file() {
    for round in 0..ROUNDS {
        let (_folder, file) = folder();
        let agent = AgentBuilder::new()
            .with_llm(EchoProvider::new())
            .with_storage(SqliteStore::open(&file).await.unwrap())
            .build()
            .unwrap();
        let chat = agent.open(&"laptop".parse().unwrap()).await.unwrap();
        chat.prompt("Hello").await.unwrap().finish().await.unwrap();
        if round % 2 == 0 {
            agent.close().await.unwrap();
            assert!(chat.refresh().await.unwrap_err().to_string().contains("was closed"));
        } else {
            drop((agent, chat));
        }
        taken_elsewhere(&file, 4).await;
    }
}

/// Two programs that end at the same moment, of which neither may rely on the other.
#[tokio::test]
async fn two_chats_that_end_at_once_leave_one_file() {
    for _ in 0..ROUNDS {
        let (_folder, file) = folder();
        run(&mut chat(&file), "hello\n");
        let both: Vec<_> = (0..2)
            .map(|_| {
                let mut command = chat(&file);
                command.args(["session", "list"]).stdin(Stdio::null()).stdout(Stdio::null());
                command.spawn().unwrap()
            })
            .collect();
        for mut child in both {
            assert!(child.wait().unwrap().success());
        }
        taken_elsewhere(&file, 4).await;
    }
}
