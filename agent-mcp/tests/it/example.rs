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
    let said = ask(folder.path(), "hello\nsrv__echo {\"text\":\"one\"}\nyes\n").await;
    assert!(said.contains("There are:") && said.contains("srv__pid"), "{said}");
    assert!(said.contains("yes, no or always?") && said.ends_with("one\n"), "{said}");
    // The question outlives the process that asked it.
    let said = ask(folder.path(), "srv__echo {\"text\":\"two\"}\n").await;
    assert!(said.ends_with("yes, no or always?\n"), "{said}");
    let said = ask(folder.path(), "no\nsrv__echo {\"text\":\"three\"}\nalways\n").await;
    assert_eq!((said.matches("always?").count(), said.contains("two\n")), (2, false), "{said}");
    assert!(said.ends_with("three\n"), "{said}");
    // In every later process, nobody is asked about this tool, and about the others as before.
    let said = ask(folder.path(), "srv__echo {\"text\":\"four\"}\nsrv__pid\nno\n").await;
    assert!(said.starts_with("four\n") && said.matches("always?").count() == 1, "{said}");
}
