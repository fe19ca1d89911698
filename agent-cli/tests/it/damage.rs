//! Damaged sessions: replacement of the main session, deletion, and the report of `rebuild`.

use std::fs;
use std::path::PathBuf;

use rusqlite::Connection;
use serde_json::{Value, json};

use crate::site::{KINDS, Site};

/// Damages an event in the middle of a session; in SQLite its record, too.
pub(crate) fn damage(site: &Site, kind: &str, workspace: &str, session: &str) {
    if kind == "files" {
        let log = log(site, workspace, session);
        let text = fs::read_to_string(&log).unwrap();
        assert!(text.contains("second"));
        fs::write(&log, text.replacen("second", "secend", 1)).unwrap();
        return;
    }
    let file = Connection::open(site.path().join("data.db")).unwrap();
    let log = format!("(SELECT log FROM logs WHERE session = '{session}')");
    for sql in [
        format!("UPDATE events SET json = replace(json, 'second', 'secend') WHERE log = {log}"),
        format!("UPDATE sessions SET record = 'x', summary = 'x' WHERE log = {log}"),
    ] {
        assert!(file.execute(&sql, []).unwrap() > 0, "{sql}");
    }
}

fn log(site: &Site, workspace: &str, session: &str) -> PathBuf {
    site.path().join(format!("data/workspaces/{workspace}/sessions/{session}/events.jsonl"))
}

/// A device whose main session is damaged continues in a salvaged copy, which becomes the main session; the damaged
/// session is deleted, and stays deleted.
#[test]
fn a_damaged_main_session_is_replaced() {
    for kind in KINDS {
        let site = Site::new(kind);
        let (main, workspace) = site.send("first\nsecond\nthird");
        damage(&site, kind, &workspace, &main);
        let locked = site.typed(&[], "hello\n");
        assert_eq!(locked.code, 1, "{kind}: {locked:?}");
        assert!(locked.err.contains(&main) && locked.err.contains("salvage"), "{kind}: {locked:?}");

        let ran = site.run(&["session", "salvage", &main, "--main", "--json"]);
        assert_eq!(ran.code, 5, "{kind}: a part is lost: {ran:?}");
        let saved: Value = serde_json::from_str(&ran.out).unwrap();
        let new = saved["session"].as_str().unwrap();
        assert_eq!(saved["main"], json!(true), "{kind}: {saved}");
        let shown = site.json(&["workspace", "show", &workspace]);
        assert_eq!(shown["main_session"], json!(new), "{kind}");
        let output = site.typed(&[], "fourth\n");
        assert_eq!(output.code, 0, "{kind}: {output:?}");
        let export = site.ok(&["session", "export", new]);
        for text in ["first", "third", "fourth", "could not be read"] {
            assert!(export.contains(text), "{kind}: {text}: {export}");
        }
        let folder = site.path().to_str().unwrap();
        for text in [folder, "user.interrupt", "secend"] {
            assert!(!export.contains(text), "{kind}: {text}: {export}");
        }

        let deleted = site.json(&["session", "delete", &main]);
        assert_eq!(deleted["session"], json!(main), "{kind}");
        assert_eq!(site.json(&["session", "show", &main])["status"]["state"], "deleted", "{kind}");
        let list = site.json(&["session", "list", "--state", "deleted"]);
        assert_eq!(list["items"][0]["id"], json!(main), "{kind}: {list}");
        site.ok(&["rebuild"]);
        assert_eq!(site.json(&["session", "show", &main])["status"]["state"], "deleted", "{kind}");
        let purged = site.json(&["session", "delete", &main, "--purge"]);
        assert!(purged["purged_events"].as_u64().unwrap() > 0, "{kind}: {purged}");
        site.ok(&["verify"]);
    }
}

/// Another session of the workspace, and only of the workspace, can be set as the main session.
#[test]
fn another_session_becomes_the_main_one() {
    for kind in KINDS {
        let site = Site::new(kind);
        let (main, workspace) = site.send("first\nsecond\nthird");
        let fork = site.ok(&["session", "fork", &main]);
        let set = site.json(&["workspace", "set-main", &workspace, fork.trim()]);
        assert_eq!((&set["id"], &set["main_session"]), (&json!(workspace), &json!(fork.trim())), "{kind}");
        let other = site.ok(&["workspace", "create", "--name", "other"]);
        site.fails(&["workspace", "set-main", other.trim(), fork.trim()], 1, "belongs to workspace");
        site.ok(&["session", "delete", &main]);
        site.fails(&["workspace", "set-main", &workspace, &main], 3, "was deleted");
    }
}

/// The bytes of a damaged session are kept after its deletion, until it is purged.
#[test]
fn damaged_bytes_stay_until_they_are_purged() {
    let site = Site::new("files");
    let (main, workspace) = site.send("first\nsecond\nthird");
    damage(&site, "files", &workspace, &main);
    let log = log(&site, &workspace, &main);
    let before = fs::read(&log).unwrap();
    site.ok(&["session", "delete", &main]);
    assert_eq!(fs::read(&log).unwrap(), before);
    site.fails(&["session", "salvage", &main], 3, "was deleted");
    site.ok(&["session", "delete", &main, "--purge"]);
    assert_eq!(fs::read(&log).unwrap(), b"");

    // A session of which only the folder is left can be deleted, too.
    let other = Site::new("files");
    let (main, workspace) = other.send("first\nsecond\nthird");
    fs::remove_file(self::log(&other, &workspace, &main)).unwrap();
    other.fails(&["session", "show", &main], 5, "is missing");
    other.ok(&["session", "delete", &main, "--purge"]);
    assert_eq!(other.json(&["session", "show", &main])["status"]["state"], "deleted");
    other.ok(&["verify"]);
}

/// `rebuild` names the sessions that it cannot rebuild, and fails.
#[test]
fn rebuild_names_skipped_sessions_and_fails() {
    for kind in KINDS {
        let site = Site::new(kind);
        let (main, workspace) = site.send("first\nsecond\nthird");
        damage(&site, kind, &workspace, &main);
        site.ok(&["workspace", "create", "--name", "other"]);
        let ran = site.run(&["rebuild", "--json"]);
        assert_eq!(ran.code, 5, "{kind}: {ran:?}");
        let report: Value = serde_json::from_str(&ran.out).unwrap();
        assert_eq!(report["sessions"], json!(1), "{kind}: the audit: {report}");
        assert!(report["damaged"][0]["object"].as_str().unwrap().contains(&main), "{kind}: {report}");
        site.fails(&["rebuild"], 5, &main);
    }
}

/// A damaged conversation is erased with what was edited away in it, although it cannot say what that was.
#[test]
fn a_damaged_conversation_is_erased_with_its_branches() {
    for kind in KINDS {
        let site = Site::new(kind);
        site.send("first\ngiraffe\n/edit second");
        let list = site.json(&["session", "list"]);
        let [item] = &list["items"].as_array().unwrap()[..] else { panic!("{list}") };
        let (id, workspace) = (item["id"].as_str().unwrap(), item["workspace"].as_str().unwrap());
        damage(&site, kind, workspace, id);
        assert!(site.ok(&["session", "erase", id, "--now", "--yes"]).contains("erased session"), "{kind}");
        for entry in walk(site.path()) {
            let bytes = fs::read(&entry).unwrap();
            let found = bytes.windows(7).any(|part| part == b"giraffe");
            assert!(!found, "{kind}: {}", entry.display());
        }
    }
}

fn walk(folder: &std::path::Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => files.extend(walk(&path)),
            false => files.push(path),
        }
    }
    files
}

/// A fork whose parent is damaged is deleted like any other session: the parent is none that it has superseded.
#[test]
fn a_fork_of_a_damaged_session_is_deleted() {
    for kind in KINDS {
        let site = Site::new(kind);
        let (main, workspace) = site.send("first\nsecond");
        let fork = site.ok(&["session", "fork", &main]);
        damage(&site, kind, &workspace, &main);
        assert!(site.ok(&["session", "delete", fork.trim()]).contains("deleted session"), "{kind}");
        // The damaged one is still there, and named.
        assert_eq!(site.run(&["session", "list"]).code, 5, "{kind}");
    }
}
