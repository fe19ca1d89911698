//! The example for the command line: consent on the terminal, which outlives the process.

use std::path::Path;
use std::process::Stdio;

use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use crate::common::{program, within};

/// Runs the example with this input to its end; returns what it prints.
async fn ask(folder: &Path, input: &str) -> String {
    let example = program().with_file_name(format!("ask{}", std::env::consts::EXE_SUFFIX));
    let mut command = Command::new(example);
    command.arg(folder.join("mcp.toml")).arg(folder.join("talk.db")).kill_on_drop(true);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(input.as_bytes()).await.unwrap();
    drop(stdin);
    let ended = within(child.wait_with_output()).await.unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    String::from_utf8(ended.stdout).unwrap()
}

#[tokio::test]
async fn the_command_line_asks_and_remembers() {
    let folder = tempfile::tempdir().unwrap();
    let config = format!("[mcp.srv]\ncommand = '{}'\nargs = ['good']\n", program().display());
    std::fs::write(folder.path().join("mcp.toml"), config).unwrap();
    let messages = ask(folder.path(), "hello\nsrv__echo {\"text\":\"one\"}\nyes\n").await;
    assert!(messages.contains("There are:") && messages.contains("srv__pid"), "{messages}");
    assert!(messages.contains("yes, no or always?") && messages.ends_with("one\n"), "{messages}");
    // The question outlives the process that asked it.
    let messages = ask(folder.path(), "srv__echo {\"text\":\"two\"}\n").await;
    assert!(messages.ends_with("yes, no or always?\n"), "{messages}");
    let messages = ask(folder.path(), "no\nsrv__echo {\"text\":\"three\"}\nalways\n").await;
    assert_eq!((messages.matches("always?").count(), messages.contains("two\n")), (2, false), "{messages}");
    assert!(messages.ends_with("three\n"), "{messages}");
    // In every later process, nobody is asked about this tool, and about the others as before.
    let messages = ask(folder.path(), "srv__echo {\"text\":\"four\"}\nsrv__pid\nno\n").await;
    assert!(messages.starts_with("four\n") && messages.matches("always?").count() == 1, "{messages}");
}
