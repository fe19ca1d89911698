//! Programs of the cookbook's tasks: each runs to its end, and does what its first line promises.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::process::Command;
use tokio::time::timeout;

const LONG: Duration = Duration::from_secs(120);

/// Runs a program in a folder with this input; its exit code and its outputs.
async fn run(program: &str, folder: &Path, args: &[&str], input: &str) -> (Option<i32>, String, String) {
    let mut command = Command::new(program);
    command.args(args).current_dir(folder).env("TMPDIR", folder).kill_on_drop(true);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(input.as_bytes()).await.unwrap();
    drop(stdin);
    let output = timeout(LONG, child.wait_with_output()).await.expect("it ends").unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

/// Runs a program that must succeed; what it prints.
async fn succeeds(program: &str, folder: &Path, args: &[&str]) -> String {
    let (code, out, err) = run(program, folder, args, "").await;
    assert_eq!(code, Some(0), "{args:?}: {out}{err}");
    out
}

#[tokio::test]
async fn the_diary_is_opened_by_any_address() {
    let folder = tempfile::tempdir().unwrap();
    let program = env!("CARGO_BIN_EXE_open_store");
    for address in ["memory:", "files:notes", "sqlite:notes.db"] {
        assert!(succeeds(program, folder.path(), &[address]).await.contains("1 messages"), "{address}");
    }
    for wrong in ["tape:7", "files:", "sqlite:"] {
        let (code, _, err) = run(program, folder.path(), &[wrong], "").await;
        assert!(code == Some(1) && err.contains("Error"), "{wrong}: {err}");
    }
}

#[tokio::test]
async fn answers_are_streamed_and_failures_counted() {
    let folder = tempfile::tempdir().unwrap();
    let program = env!("CARGO_BIN_EXE_stream");
    let (code, out, err) = run(program, folder.path(), &["chat.db", "key"], "hello there\n").await;
    assert_eq!((code, &*out), (Some(0), "hello there\n"), "{err}");
    let (code, _, err) = run(program, folder.path(), &["chat.db", "key"], "please fail\nand go on\n").await;
    assert!(code == Some(1) && err.contains("1 of the answers failed"), "{err}");
}

#[tokio::test]
async fn a_later_process_gives_consent() {
    let folder = tempfile::tempdir().unwrap();
    let program = env!("CARGO_BIN_EXE_consent");
    for (word, is_left) in [("deny", true), ("allow", false)] {
        let file = folder.path().join("victim.txt");
        std::fs::write(&file, "x").unwrap();
        let asked = succeeds(program, folder.path(), &["ask", "victim.txt"]).await;
        assert!(asked.contains("(allow or deny)") && file.exists(), "{asked}");
        assert!(succeeds(program, folder.path(), &["pending"]).await.contains("victim.txt"));
        succeeds(program, folder.path(), &[word]).await;
        assert_eq!(file.exists(), is_left, "{word}");
    }
}

#[tokio::test]
async fn a_deleted_customer_leaves_no_trace() {
    let folder = tempfile::tempdir().unwrap();
    for _ in 0..2 {
        let out = succeeds(env!("CARGO_BIN_EXE_tenants"), folder.path(), &[]).await;
        assert!(out.contains("globex: its name stands 0 times in the file"), "{out}");
    }
}

#[tokio::test]
async fn conversations_are_found_and_forked() {
    let folder = tempfile::tempdir().unwrap();
    for address in ["memory:", "files:store", "sqlite:store.db"] {
        let out = succeeds(env!("CARGO_BIN_EXE_search"), folder.path(), &[address]).await;
        assert!(
            out.contains("page 3, 6 on it, 20 in all") && out.contains("found by \"ORDER 17\": 1"),
            "{out}"
        );
        let out = succeeds(env!("CARGO_BIN_EXE_fork"), folder.path(), &[address]).await;
        assert!(out.contains("6 messages are the same") && out.contains("was forked from"), "{out}");
    }
}

#[tokio::test]
async fn killed_programs_lose_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let out = succeeds(env!("CARGO_BIN_EXE_crash"), folder.path(), &[]).await;
    assert_eq!(out.matches("killed after: ").count(), 2, "{out}");
    let out = succeeds(env!("CARGO_BIN_EXE_live"), folder.path(), &["room"]).await;
    assert!(out.contains("events, each once"), "{out}");
}

#[tokio::test]
async fn rules_and_the_nightly_job_run() {
    let folder = tempfile::tempdir().unwrap();
    let out = succeeds(env!("CARGO_BIN_EXE_retention"), folder.path(), &[]).await;
    assert!(
        out.contains("dry run: ") && out.contains("legal hold 4711") && out.contains("then erased"),
        "{out}"
    );
    let out = succeeds(env!("CARGO_BIN_EXE_operate"), folder.path(), &[]).await;
    assert!(out.contains("and went on: After the restore"), "{out}");
    let (code, _, err) =
        run(env!("CARGO_BIN_EXE_operate"), folder.path(), &["absent.db", "copy.db"], "").await;
    assert!(code == Some(1) && err.contains("absent.db does not exist"), "{err}");
}

#[tokio::test]
async fn an_overloaded_model_is_asked_again() {
    let folder = tempfile::tempdir().unwrap();
    let out = succeeds(env!("CARGO_BIN_EXE_provider"), folder.path(), &[]).await;
    assert!(out.contains("529") && out.contains("take an umbrella"), "{out}");
}

/// Two workers share the work of two customers; one is killed, and the other one, or the next, does what is left, each once.
#[tokio::test]
async fn killed_workers_lose_no_work() {
    let folder = tempfile::tempdir().unwrap();
    let program = env!("CARGO_BIN_EXE_worker");
    for store in ["sqlite:work.db", "files:work"] {
        for customer in ["acme", "globex"] {
            succeeds(program, folder.path(), &[store, "add", customer, "10"]).await;
        }
        let work = || {
            let mut command = Command::new(program);
            command.args([store, "run"]).current_dir(folder.path()).kill_on_drop(true).spawn().unwrap()
        };
        let mut workers = [work(), work()];
        let done = async |least: u64| {
            let waited = async {
                while succeeds(program, folder.path(), &[store, "count"]).await.trim().parse::<u64>().unwrap()
                    < least
                {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            };
            timeout(LONG, waited).await.expect("the work is done");
        };
        done(3).await;
        workers[0].kill().await.unwrap(); // SIGKILL
        done(20).await;
        assert_eq!(
            succeeds(program, folder.path(), &[store, "count"]).await.trim(),
            "20",
            "{store}: each once"
        );
    }
}
