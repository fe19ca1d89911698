//! `chat copy`, `chat verify`, completions, help, and what is wrong with a command line.

use std::fs;
use std::process::Command;

use serde_json::json;

use crate::site::{Ran, Site};

/// A41: a store is copied, and again; what differs is named, and the exit code says so.
#[test]
fn a41_copy_from_the_command_line() {
    let (here, there) = (Site::new("files"), Site::new("sqlite"));
    let (main, workspace) = here.say("hello");
    let (from, to) = (here.address(), there.address());
    let first = here.ok(&["copy", &from, &to]);
    assert!(first.starts_with("copied 1 workspaces, 1 sessions, 1 bindings, 4 events"), "{first}");
    let again = here.json(&["copy", &from, &to, "--workspace", &workspace]);
    assert_eq!(again["copied"], json!({"workspaces": 0, "sessions": 0, "bindings": 0}));
    assert_eq!(again["present"], json!({"workspaces": 1, "sessions": 1, "bindings": 1}));
    assert_eq!(there.ok(&["session", "export", &main]), here.ok(&["session", "export", &main]));

    here.say("mine");
    there.say("theirs");
    let ran = here.run(&["copy", &from, &to, "--progress", "lines"]);
    assert_eq!(ran.code, 5, "{ran:?}");
    assert!(ran.out.contains(&format!("refused: session {main}: the target has another history")), "{ran:?}");
    assert!(ran.err.contains("sessions 1 of 1\n"), "{ran:?}");
    here.fails(&["copy", &from, &to], 5, "1 not be written");

    for (args, says) in [
        (
            ["copy", "tape:x", to.as_str()],
            "there is no store \"tape\"; known are files:PATH, memory:, s3://BUCKET/PREFIX, sqlite:PATH",
        ),
        (["copy", "sqlite:x?fast=1", &to], "busy_timeout_ms"),
        (["copy", "s3://bucket?regoin=x", &to], "region"),
        (["copy", "nothing", &to], "begins with its kind"),
    ] {
        here.fails(&args, 2, says);
    }
    here.fails(&["copy", &from], 2, "<TO>");
    fs::write(here.path().join("file"), "precious").unwrap();
    let file = format!("files:{}/file", here.path().display());
    here.fails(&["copy", &from, &file], 5, "file");
    assert_eq!(fs::read_to_string(here.path().join("file")).unwrap(), "precious");
}

/// A30, X01: everything is read, and what is wrong is named.
#[test]
fn a30_x01_verify_names_what_is_wrong() {
    let site = Site::new("files");
    let (main, workspace) = site.say("hello");
    let whole = site.json(&["verify"]);
    assert_eq!(whole, json!({"workspaces": 1, "sessions": 1, "events": 4, "bindings": 1, "findings": []}));
    assert_eq!(site.ok(&["verify"]), "read 1 workspaces, 1 sessions, 4 events, 1 bindings\n");
    let log = site.path().join(format!("data/workspaces/{workspace}/sessions/{main}/events.jsonl"));
    let text = fs::read_to_string(&log).unwrap();
    fs::write(&log, text.replacen("hello", "hullo", 1)).unwrap();
    site.fails(&["verify"], 5, &main);
}

/// The completions of each shell name the commands; the help tells the exit codes; what is wrong is said with a hint.
#[test]
fn completions_help_and_wrong_command_lines() {
    let site = Site::new("files");
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let completions = site.ok(&["completions", shell]);
        assert!(completions.contains("workspace") && completions.contains("unbind"), "{shell}");
    }
    site.fails(&["completions", "tsh"], 2, "bash");
    let help = site.ok(&["--help"]);
    for told in ["Exit codes:", "  3  ", "  5  ", "workspace", "/workspace", "completions"] {
        assert!(help.contains(told), "{told}: {help}");
    }
    site.fails(&["workspce", "list"], 2, "workspace");
    site.fails(&["workspace"], 2, "create");
    site.fails(&["workspace", "list", "--limit", "many"], 2, "--help");
    site.fails(&["workspace", "list", "--data-dir", "x"], 2, "cannot be used with");
    // Nothing was made.
    assert!(!site.path().join("data").exists());
}

/// Who stops reading, as `head` does, ends nothing with a panic.
#[test]
fn a_closed_pipe_is_no_failure() {
    let site = Site::new("files");
    for _ in 0..3 {
        site.ok(&["workspace", "create", "--name", "a"]);
    }
    let list = format!(
        "{} workspace list --store '{}' | head -n 0; exit ${{PIPESTATUS[0]}}",
        env!("CARGO_BIN_EXE_chat"),
        site.address()
    );
    let ran: Ran = Command::new("bash").arg("-c").arg(list).output().unwrap().into();
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
}
