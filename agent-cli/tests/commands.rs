//! What a person does at the prompt, and what is there on the next start.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use std::path::Path;
use std::process::Command;

use common::{Chat, found};

/// What a chat prints for these lines.
#[track_caller]
fn printed(folder: &Path, lines: &[&str]) -> (String, String) {
    let mut chat = Chat::start(folder, &[]);
    for line in lines {
        chat.say(line);
    }
    assert_eq!(chat.finish(), 0, "{}", chat.err.text());
    (chat.out.text(), chat.err.text())
}

/// Several sessions in a workspace; the next start goes on with the one that was used last.
#[test]
fn sessions_are_begun_listed_and_switched() {
    let folder = tempfile::tempdir().unwrap();
    let (out, _) = printed(folder.path(), &["in main", "/new second one", "in second", "/sessions"]);
    let rows: Vec<_> = out.lines().filter(|line| line.contains("messages")).collect();
    assert!(rows.len() == 2 && rows[0].starts_with('*') && rows[0].ends_with("second one"), "{out}");
    assert!(rows[1].ends_with("main"), "{out}");

    let (out, err) = printed(folder.path(), &["/history", "/switch 2", "/history", "again in main"]);
    assert_eq!(out, "laptop: in second\nagent: in second\nlaptop: in main\nagent: in main\nagain in main\n");
    assert!(err.contains("(second one), 2 messages") && err.contains("(main), 2 messages"), "{err}");

    let (_, err) = printed(folder.path(), &[]);
    assert!(err.contains("(main), 4 messages"), "{err}");
}

/// A fork goes on by itself, and leaves the first as it was.
#[test]
fn a_fork_goes_on_by_itself() {
    let folder = tempfile::tempdir().unwrap();
    let lines = ["shared", "/fork", "in the fork", "/history", "/switch 2", "/history"];
    let (out, _) = printed(folder.path(), &lines);
    let shared = "laptop: shared\nagent: shared\n";
    let fork = format!("shared\nin the fork\n{shared}laptop: in the fork\nagent: in the fork\n");
    assert_eq!(out, format!("{fork}{shared}"));
}

/// The history starts anew, and the log keeps it.
#[tokio::test]
async fn clear_starts_the_history_anew() {
    let folder = tempfile::tempdir().unwrap();
    let (out, _) = printed(folder.path(), &["before", "/clear", "/history", "after", "/history"]);
    assert_eq!(out, "before\n(nothing was said yet)\nafter\nlaptop: after\nagent: after\n");
    let (_, err) = printed(folder.path(), &[]);
    assert!(err.contains("2 messages"), "{err}");
    assert_eq!(found(folder.path()).await.said(), ["before", "after"], "nothing is removed from the log");
}

/// What is no command is said to be none, and is not sent.
#[tokio::test]
async fn what_is_no_command_is_refused_and_can_be_sent_as_text() {
    let folder = tempfile::tempdir().unwrap();
    let mut chat = Chat::start(folder.path(), &[]);
    for line in ["/nope", "/switch 99", "//etc/passwd", "   ", ""] {
        chat.say(line);
    }
    assert_eq!(chat.finish(), 1);
    let err = chat.err.text();
    assert!(err.contains("/nope is no command") && err.contains("no session 99"), "{err}");
    assert_eq!(chat.out.text(), "/etc/passwd\n");
    assert_eq!(found(folder.path()).await.said(), ["/etc/passwd"]);
}

/// Devices have workspaces of their own.
#[test]
fn devices_have_workspaces_of_their_own() {
    let folder = tempfile::tempdir().unwrap();
    printed(folder.path(), &["from the laptop"]);
    let mut phone = Command::new(env!("CARGO_BIN_EXE_chat"));
    phone.arg("--data-dir").arg(folder.path()).args(["--device", "phone, ../../etc 안녕"]);
    let mut phone = Chat::spawn(phone);
    phone.say("/history");
    assert_eq!(phone.finish(), 0, "{}", phone.err.text());
    assert_eq!(phone.out.text(), "(nothing was said yet)\n");
}

/// Where one is, and how much is in the context, in one line each; the help names every command of the seed.
#[test]
fn workspace_and_context_tell_where_one_is() {
    let folder = tempfile::tempdir().unwrap();
    let (out, err) =
        printed(folder.path(), &["one", "two", "/workspace", "/context", "/clear", "/context", "/help"]);
    let id = err.split("workspace ").nth(1).unwrap().split(',').next().unwrap();
    assert!(out.contains(&format!("id         {id}\n")) && out.contains("messages   4\n"), "{out}");
    assert!(out.contains("model      echo\n") && out.contains(folder.path().to_str().unwrap()), "{out}");
    let counts: Vec<_> = out.lines().filter(|line| line.contains("in the context window")).collect();
    assert_eq!(counts[0], "4 messages in the context window, 0 messages without an answer");
    assert_eq!(counts[1], "0 messages in the context window, 0 messages without an answer");
    for command in ["/workspace", "/clear", "/context", "/help", "/quit"] {
        assert!(out.contains(&format!("  {command} ")), "{command}: {out}");
    }
}
