//! `chat copy`, `chat verify`, completions, help, and what is wrong with a command line.

use std::fs;
use std::process::Command;

use agent_core::clock::Effects;
use agent_core::event::NewEvent;
use agent_core::store::SessionQuery;
use agent_core::{SessionStoreExt, Storage};
use agent_runtime::{NewWorkspace, WorkspaceManager};
use agent_storage_fs::{FsConfig, FsStore};
use serde_json::json;

use crate::site::{KINDS, NOBODY, Ran, Site};

/// A store is copied, and again; what differs is named, and the exit code says so.
#[test]
fn copy_from_the_command_line() {
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
        (["copy", "s3://bucket?regoin=x", &to], if cfg!(feature = "s3") { "region" } else { "without S3" }),
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

/// All tenants of a store go into one file, which is an archive of them, and from there elsewhere; what is refused is
/// named with its tenant.
#[tokio::test]
async fn all_tenants_in_one_archive() {
    let (here, archive, there) = (Site::new("files"), Site::new("sqlite"), Site::new("files"));
    let (effects, names) = (Effects::default(), ["default", "alice", "bob"]);
    let open = async |site: &Site| FsConfig::new(site.path().join("data")).open().await.unwrap();
    let storage =
        |store: &FsStore, tenant: &str| -> Storage { store.tenant(&tenant.parse().unwrap()).into() };
    let store = open(&here).await;
    let mut made = Vec::new();
    for name in names {
        let manager = WorkspaceManager::new(storage(&store, name), effects.clone());
        let workspace = manager.create(NewWorkspace::new(name)).await.unwrap();
        manager.bind(&"laptop".parse().unwrap(), workspace.id).await.unwrap();
        let main = manager.main_session(&workspace).await.unwrap();
        let said = vec![NewEvent::user_message(format!("I am {name}"))];
        let sessions = storage(&store, name).sessions;
        made.push(sessions.append(&effects, main.id, main.head, said).await.unwrap().session);
    }
    let three = json!({"workspaces": 3, "sessions": 3, "bindings": 3});
    for (from, to) in [(&here, &archive), (&archive, &there)] {
        let report = here.json(&["copy", &from.address(), &to.address(), "--all-tenants"]);
        assert_eq!(report["copied"], three);
    }
    let copied = open(&there).await;
    for (name, session) in names.iter().zip(&made) {
        let storage = storage(&copied, name);
        assert_eq!(storage.sessions.load(session.id).await.unwrap(), *session, "{name}");
        let bound = storage.bindings.resolve(&"laptop".parse().unwrap()).await.unwrap();
        assert_eq!(bound, Some(session.workspace), "{name}");
        let all = storage.sessions.list(SessionQuery::new().with_hidden()).await.unwrap();
        assert_eq!(all.items.len(), 1, "{name} has nothing of another");
    }
    let again = here.json(&["copy", &here.address(), &there.address(), "--all-tenants"]);
    assert_eq!((&again["present"], &again["events"]), (&three, &json!(0)));

    let (bob, one) = (storage(&copied, "bob").sessions, &made[2]);
    bob.append(&effects, one.id, one.head, vec![NewEvent::user_message("elsewhere")]).await.unwrap();
    let ran = here.run(&["copy", &here.address(), &there.address(), "--all-tenants"]);
    assert_eq!(ran.code, 5, "{ran:?}");
    assert!(ran.out.contains(&format!("refused: tenant bob, session {}: ", one.id)), "{ran:?}");
    let one = made[0].workspace.to_string();
    here.fails(
        &["copy", &here.address(), &there.address(), "--all-tenants", "--workspace", &one],
        2,
        "cannot be used with",
    );
}

/// What was left out when the program was built is named with how to have it.
#[cfg(not(feature = "s3"))]
#[test]
fn a_bucket_needs_the_feature() {
    let ran = Site::new("files").run(&["session", "list", "--store", "s3://bucket/notes"]);
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(ran.err.contains("built without S3") && ran.err.contains("--features agent-cli/s3"), "{ran:?}");
}

/// Everything is read, and what is wrong is named.
#[test]
fn verify_names_what_is_wrong() {
    let site = Site::new("files");
    let (main, workspace) = site.say("hello");
    let whole = site.json(&["verify"]);
    let seen = json!({
        "workspaces": 1, "sessions": 1, "events": 4, "bindings": 1, "findings": [],
        "tenant": "default", "other_tenants": 0,
    });
    assert_eq!(whole, seen);
    assert_eq!(site.ok(&["verify"]), "read 1 workspaces, 1 sessions, 4 events, 1 bindings\n");
    let log = site.path().join(format!("data/workspaces/{workspace}/sessions/{main}/events.jsonl"));
    let text = fs::read_to_string(&log).unwrap();
    fs::write(&log, text.replacen("hello", "hullo", 1)).unwrap();
    site.fails(&["verify"], 5, &main);
}

/// What can be read of a damaged session is saved in a new one, and the damaged one stays as it is; what is lost is
/// named. What is derived is made anew.
#[test]
fn salvage_and_rebuild_from_the_command_line() {
    let site = Site::new("files");
    let (main, workspace) = site.say("first\nsecond\nthird");
    let folder = site.path().join(format!("data/workspaces/{workspace}/sessions/{main}"));
    let log = folder.join("events.jsonl");
    let whole = site.json(&["session", "salvage", &main]);
    assert_eq!((&whole["of"], &whole["gaps"]), (&json!(main), &json!([])));
    let damaged = fs::read_to_string(&log).unwrap().replacen("second", "secend", 1);
    fs::write(&log, &damaged).unwrap();

    let other = site.ok(&["workspace", "create", "--name", "saved"]);
    let args = ["session", "salvage", &main, "--workspace", other.trim()];
    let ran = site.run(&args);
    assert_eq!(ran.code, 5, "{ran:?}");
    assert!(ran.err.contains("lost: event") && ran.err.contains("are saved"), "{ran:?}");
    let text = site.ok(&["session", "show", ran.out.trim()]);
    for (said, is_there) in [("laptop: first", true), ("laptop: second", false), ("laptop: third", true)] {
        assert_eq!(text.contains(said), is_there, "{said}: {text}");
    }
    assert!(text.contains(&format!("workspace    {}", other.trim())), "{text}");
    assert_eq!(fs::read_to_string(&log).unwrap(), damaged, "it stays as it is");
    site.fails(&args, 5, "cannot be read");
    site.fails(&["session", "salvage", NOBODY], 3, "does not exist");
    site.fails(&["session", "salvage", "x"], 2, "--help");

    for kind in KINDS {
        let site = Site::new(kind);
        let (main, _) = site.say("hello");
        let before = site.ok(&["session", "show", &main, "--json"]);
        let made = json!({"sessions": 1, "damaged": [], "tenant": "default", "other_tenants": 0});
        assert_eq!(site.json(&["rebuild"]), made);
        assert!(site.ok(&["rebuild"]).contains("1 sessions anew"));
        assert_eq!(site.ok(&["session", "show", &main, "--json"]), before);
    }
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
