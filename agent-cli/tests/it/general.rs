//! `chat copy`, `chat verify`, completions, help, and wrong command lines.

use std::fs;
use std::process::Command;

use agent_core::Storage;
use agent_core::event::NewEvent;
use agent_core::store::SessionQuery;
use agent_runtime::{NewWorkspace, WorkspaceManager};
use agent_storage_fs::{FsConfig, FsStore};
use rusqlite::Connection;
use rustix::process::Signal;
use serde_json::json;

use crate::common::Chat;
use crate::site::{KINDS, NOBODY, Ran, Site};

/// A store is copied twice; objects that differ are reported, with exit code 5.
#[test]
fn copy_is_repeatable_and_names_differences() {
    let (here, there) = (Site::new("files"), Site::new("sqlite"));
    let (main, workspace) = here.send("hello");
    let (from, to) = (here.address(), there.address());
    let first = here.ok(&["copy", &from, &to]);
    assert!(
        first.starts_with(
            "copied 1 workspace, 1 session, 1 device binding, 4 events; already in the target: 0 workspaces"
        ),
        "{first}"
    );
    let again = here.json(&["copy", &from, &to, "--workspace", &workspace]);
    assert_eq!(again["copied"], json!({"workspaces": 0, "sessions": 0, "bindings": 0}));
    assert_eq!(again["present"], json!({"workspaces": 1, "sessions": 1, "bindings": 1}));
    assert_eq!(there.ok(&["session", "export", &main]), here.ok(&["session", "export", &main]));

    here.send("mine");
    there.send("theirs");
    let ran = here.run(&["copy", &from, &to, "--progress", "lines"]);
    assert_eq!(ran.code, 5, "{ran:?}");
    assert!(
        ran.out.contains(&format!("not copied: session {main}: the target has a different history")),
        "{ran:?}"
    );
    assert!(ran.err.contains("sessions 1 of 1\n"), "{ran:?}");
    here.fails(&["copy", &from, &to], 5, "1 object not copied");

    for (args, expected) in [
        // Which kinds there are depends on the features of the whole build.
        (["copy", "tape:x", to.as_str()], "unknown kind of store \"tape\"; supported: "),
        (["copy", "sqlite:x?fast=1", &to], "busy_timeout_ms"),
        (["copy", "s3://bucket?regoin=x", &to], if cfg!(feature = "s3") { "region" } else { "without S3" }),
        (["copy", "nothing", &to], "begins with its kind"),
    ] {
        here.fails(&args, 2, expected);
    }
    here.fails(&["copy", &from], 2, "<TO>");
    fs::write(here.path().join("file"), "precious").unwrap();
    let file = format!("files:{}/file", here.path().display());
    here.fails(&["copy", &from, &file], 5, "file");
    assert_eq!(fs::read_to_string(here.path().join("file")).unwrap(), "precious");
}

/// All tenants of a store are copied into one file, and from there to another store; refused objects are reported with
/// their tenant.
#[tokio::test]
async fn all_tenants_are_copied_into_one_archive() {
    let (here, archive, there) = (Site::new("files"), Site::new("sqlite"), Site::new("files"));
    let names = ["default", "alice", "bob"];
    let open = async |site: &Site| FsConfig::new(site.path().join("data")).open().await.unwrap();
    let storage =
        |store: &FsStore, tenant: &str| -> Storage { store.for_tenant(&tenant.parse().unwrap()).into() };
    let store = open(&here).await;
    let mut made = Vec::new();
    for name in names {
        let manager = WorkspaceManager::new(storage(&store, name));
        let workspace = manager.create(NewWorkspace::new(name)).await.unwrap();
        manager.bind(&"laptop".parse().unwrap(), workspace.id).await.unwrap();
        let main = manager.main_session(&workspace).await.unwrap();
        let events = vec![NewEvent::user_message(format!("I am {name}"))];
        let sessions = storage(&store, name).sessions;
        made.push(sessions.append(main.id, main.head, events).await.unwrap().session);
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
    bob.append(one.id, one.head, vec![NewEvent::user_message("elsewhere")]).await.unwrap();
    let ran = here.run(&["copy", &here.address(), &there.address(), "--all-tenants"]);
    assert_eq!(ran.code, 5, "{ran:?}");
    assert!(ran.out.contains(&format!("not copied: tenant bob, session {}: ", one.id)), "{ran:?}");
    let one = made[0].workspace.to_string();
    here.fails(
        &["copy", &here.address(), &there.address(), "--all-tenants", "--workspace", &one],
        2,
        "cannot be used with",
    );
}

/// An address whose feature is missing in the build is refused with the name of the feature.
#[cfg(not(feature = "s3"))]
#[test]
fn s3_address_without_the_feature_is_refused() {
    let ran = Site::new("files").run(&["session", "list", "--store", "s3://bucket/notes"]);
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(
        ran.err.contains("built without S3") && ran.err.contains("the feature `s3` of the crate `agent`"),
        "{ran:?}"
    );
}

/// `verify` reads everything, and reports damage with the next command.
#[test]
fn verify_reads_everything_and_names_damage() {
    let site = Site::new("files");
    let (main, workspace) = site.send("hello");
    let whole = site.json(&["verify"]);
    let seen = json!({
        "workspaces": 1, "sessions": 1, "events": 4, "bindings": 1, "findings": [],
        "pending": [], "foreign": [], "tenant": "default", "other_tenants": 0,
    });
    assert_eq!(whole, seen);
    assert_eq!(site.ok(&["verify"]), "checked 1 workspace, 1 session, 4 events, 1 device binding\n");
    let log = site.path().join(format!("data/workspaces/{workspace}/sessions/{main}/events.jsonl"));
    let text = fs::read_to_string(&log).unwrap();
    fs::write(&log, text.replacen("hello", "hullo", 1)).unwrap();
    site.fails(&["verify"], 5, &main);
    site.fails(
        &["verify"],
        5,
        &format!(
            "1 problem found (listed above); nothing was changed. Run `chat session restore {main} --from BACKUP` to bring it \
             back whole from a backup, or `chat session salvage {main}`"
        ),
    );
}

/// The readable part of a damaged session is copied into a new one; the damaged one is not changed, and lost events are
/// reported. `rebuild` changes no result.
#[test]
fn salvage_and_rebuild_recover_readable_data() {
    let site = Site::new("files");
    let (main, workspace) = site.send("first\nsecond\nthird");
    let folder = site.path().join(format!("data/workspaces/{workspace}/sessions/{main}"));
    let log = folder.join("events.jsonl");
    let whole = site.json(&["session", "salvage", &main]);
    assert_eq!((&whole["of"], &whole["lost"]), (&json!(main), &json!([])));
    let damaged = fs::read_to_string(&log).unwrap().replacen("second", "secend", 1);
    fs::write(&log, &damaged).unwrap();

    let other = site.ok(&["workspace", "create", "--name", "saved"]);
    let args = ["session", "salvage", &main, "--workspace", other.trim()];
    let ran = site.run(&args);
    assert_eq!(ran.code, 5, "{ran:?}");
    assert!(ran.err.contains("lost: event") && ran.err.contains("salvaged "), "{ran:?}");
    let text = site.ok(&["session", "show", ran.out.trim()]);
    for (texts, is_there) in [("laptop: first", true), ("laptop: second", false), ("laptop: third", true)] {
        assert_eq!(text.contains(texts), is_there, "{texts}: {text}");
    }
    assert!(text.contains(&format!("workspace    {}", other.trim())), "{text}");
    assert_eq!(fs::read_to_string(&log).unwrap(), damaged, "it stays as it is");
    site.fails(&args, 5, "1 range could not be read");
    site.fails(&["session", "salvage", NOBODY], 3, "does not exist");
    site.fails(&["session", "salvage", "x"], 2, "--help");

    for kind in KINDS {
        let site = Site::new(kind);
        let (main, _) = site.send("hello");
        let before = site.ok(&["session", "show", &main, "--json"]);
        let made = json!({"sessions": 1, "damaged": [], "tenant": "default", "other_tenants": 0});
        assert_eq!(site.json(&["rebuild"]), made);
        assert!(site.ok(&["rebuild"]).contains("of 1 session from their logs"));
        assert_eq!(site.ok(&["session", "show", &main, "--json"]), before);
    }
}

/// The completions of each shell contain the commands, the help contains the exit codes, and errors contain a hint.
#[test]
fn help_and_completions_name_commands_and_exit_codes() {
    let site = Site::new("files");
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let completions = site.ok(&["completions", shell]);
        assert!(completions.contains("workspace") && completions.contains("unbind"), "{shell}");
    }
    site.fails(&["completions", "tsh"], 2, "bash");
    let help = site.ok(&["--help"]);
    for reported in ["Exit codes:", "  3  ", "  5  ", "workspace", "/workspace", "completions"] {
        assert!(help.contains(reported), "{reported}: {help}");
    }
    site.fails(&["workspce", "list"], 2, "workspace");
    site.fails(&["workspace"], 2, "create");
    site.fails(&["workspace", "list", "--limit", "many"], 2, "--help");
    site.fails(&["workspace", "list", "--data-dir", "x"], 2, "cannot be used with");
    // Nothing was created.
    assert!(!site.path().join("data").exists());
}

/// A reader that closes the pipe, as `head` does, is not an error.
#[test]
fn closed_pipe_causes_no_panic() {
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

/// An archive that the former version made is copied as others are, and stays as it was; a file of an older schema is refused.
#[test]
fn copy_reads_an_archive_of_the_former_version() {
    let there = Site::new("files");
    let archive = there.path().join("archive.db");
    let dump = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/golden/exports-beb508f/archive.sql");
    Connection::open(&archive).unwrap().execute_batch(&fs::read_to_string(dump).unwrap()).unwrap();
    let (bytes, from) = (fs::read(&archive).unwrap(), format!("sqlite:{}", archive.display()));
    let copied = there.ok(&["copy", &from, &there.address(), "--all-tenants"]);
    assert!(copied.starts_with("copied 3 workspaces, 13 sessions, 3 device bindings, 73 events"), "{copied}");
    assert_eq!(fs::read(&archive).unwrap(), bytes);
    assert!(there.ok(&["session", "list"]).contains("Trip to Oslo"));
    there.ok(&["verify", "--all-tenants"]);
    Connection::open(&archive).unwrap().pragma_update(None, "user_version", 4).unwrap();
    there.fails(&["copy", &from, &there.address()], 1, "has schema 4, which was never released");
}

/// The demonstration kills a program in the middle of its answer, finds the message, and leaves nothing behind.
#[test]
fn the_demo_is_killed_and_comes_back() {
    let folder = tempfile::tempdir().unwrap();
    let demo = |args: &[&str]| -> Ran {
        let mut command = Command::new(env!("CARGO_BIN_EXE_chat"));
        command.arg("demo").args(args).env("TMPDIR", folder.path()).output().unwrap().into()
    };
    let shown = demo(&[]);
    assert_eq!((shown.code, shown.err.as_str()), (0, ""), "{shown:?}");
    let (before, after) = shown.out.split_once("\nKilled, by SIGKILL.").expect("it is killed");
    assert!(before.ends_with("\none two three four "), "{before}");
    assert!(after.contains("(in the store: 1 message, 0 answers)\n> /run\none two three"), "{after}");
    let ran = demo(&["--json"]);
    let value: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!((&value["messages"], &value["answers"]), (&json!(1), &json!(1)), "{ran:?}");
    assert_ne!(value["before_the_kill"], value["after_it"]);
    let ran = demo(&["--store", "memory:"]);
    assert_eq!(ran.code, 2, "{ran:?}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "its folders are removed");
}

/// A demo that is ended by a signal removes its folder.
#[test]
fn a_demo_that_is_ended_leaves_nothing() {
    for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130), (Signal::HUP, 129)] {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_chat"));
        command.arg("demo").env("TMPDIR", folder.path());
        let mut demo = Chat::spawn(command);
        demo.out.wait_for("\none two ");
        demo.signal(signal);
        assert_eq!(demo.wait(), code, "{}", demo.err.text());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "{}", demo.out.text());
    }
}
