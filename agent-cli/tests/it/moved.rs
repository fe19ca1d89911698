//! Stores whose files were moved or cut by hand: the messages, and that reading changes nothing.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde_json::json;

use crate::common::Chat;
use crate::site::{KINDS, Site};

fn sessions(site: &Site, workspace: &str) -> PathBuf {
    site.path().join("data/workspaces").join(workspace).join("sessions")
}

/// Returns every path below a folder, with its bytes and its modification time.
pub(crate) fn tree(root: &Path) -> Vec<(PathBuf, Option<Vec<u8>>, SystemTime)> {
    let mut out = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let metadata = fs::symlink_metadata(&path).unwrap();
            if metadata.is_dir() {
                folders.push(path.clone());
            }
            let bytes = metadata.is_file().then(|| fs::read(&path).unwrap());
            out.push((path, bytes, metadata.modified().unwrap()));
        }
    }
    out.sort();
    out
}

/// A session whose folder was moved away is reported by `verify` and by the next chat, which creates no new session.
/// After the folder is moved back the conversation continues; after a deletion a new one begins.
#[test]
fn moved_session_is_reported_and_not_recreated() {
    let site = Site::new("files");
    let (main, workspace) = site.send("first");
    let aside = site.path().join("aside");
    for moved in [sessions(&site, &workspace).join(&main), sessions(&site, &workspace)] {
        fs::rename(&moved, &aside).unwrap();
        site.fails(&["verify"], 5, "1 problem found");
        assert!(site.run(&["verify"]).err.contains(&format!("damaged: session {main} is missing")));
        let listed = site.run(&["session", "list", "--workspace", &workspace]);
        assert!(listed.err.contains(&format!("session {main} is missing")), "{listed:?}");
        let output = site.typed(&[], "second\n");
        assert_eq!(output.code, 1, "{output:?}");
        assert!(output.err.contains(&main) && output.err.contains("put it back"), "{output:?}");
        site.fails(&["session", "show", &main], 5, "was moved or removed");
        assert!(!moved.exists());
        fs::rename(&aside, &moved).unwrap();
        site.ok(&["verify"]);
    }
    site.send("second");
    let export = site.ok(&["session", "export", &main]);
    assert!(export.contains("first") && export.contains("second"), "{export}");

    fs::rename(sessions(&site, &workspace), &aside).unwrap();
    site.ok(&["session", "delete", &main, "--purge"]);
    site.ok(&["verify"]);
    let (new, _) = site.send("third");
    assert_ne!(new, main);
}

/// An audit log that was moved away is reported, and operations that it would record are refused.
#[test]
fn moved_audit_is_reported_and_not_recreated() {
    let site = Site::new("files");
    site.ok(&["workspace", "create", "--name", "one"]);
    let (own, aside) = (sessions(&site, "default"), site.path().join("aside"));
    fs::rename(&own, &aside).unwrap();
    site.fails(&["verify"], 5, "1 problem found");
    site.fails(&["workspace", "create", "--name", "two"], 1, "was moved or removed");
    fs::rename(&aside, &own).unwrap();
    site.ok(&["verify"]);
    site.ok(&["workspace", "create", "--name", "two"]);
    let audit = site.json(&["audit"]);
    assert_eq!(audit["items"].as_array().map(Vec::len), Some(4), "two that began and ended: {audit}");
}

/// `verify` changes no byte, name or time of any file, in an intact store and in a damaged one.
#[test]
fn verify_changes_nothing() {
    for kind in KINDS {
        let site = Site::new(kind);
        let (main, workspace) = site.send("first\nsecond\nthird");
        if kind == "files" {
            // The state after a process was killed before it wrote these files.
            fs::remove_file(site.path().join("data/workspaces").join(&workspace).join("session.md")).unwrap();
            fs::remove_dir_all(site.path().join("data/index")).unwrap();
        }
        let before = tree(site.path());
        site.ok(&["verify"]);
        assert!(tree(site.path()) == before, "{kind}");
        crate::damage::damage(&site, kind, &workspace, &main);
        let before = tree(site.path());
        site.fails(&["verify"], 5, "found (listed above)");
        assert!(tree(site.path()) == before, "{kind}: damaged");
    }
}

/// A log that is truncated under a running chat is reported with the next message, not after a lease has expired.
#[tokio::test]
async fn log_truncated_during_chat_is_reported_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let mut chat = Chat::start(folder.path(), &["--lease-ttl-ms", "600000"]);
    chat.send("first");
    chat.out.wait_for("first\n");
    let workspaces = fs::read_dir(folder.path().join("workspaces")).unwrap();
    let logs = workspaces.flat_map(|it| fs::read_dir(it.unwrap().path().join("sessions")).unwrap());
    let log = logs.map(|it| it.unwrap().path().join("events.jsonl")).next().unwrap();
    let ended = || fs::read_to_string(&log).unwrap().contains("end_run");
    for _ in 0..6000 {
        if ended() {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    assert!(ended());
    let whole = fs::read(&log).unwrap();
    fs::write(&log, &whole[..whole.len() - 10]).unwrap();
    chat.send("second");
    chat.err.wait_for("was cut by another program");
    assert_eq!(fs::read(&log).unwrap(), whole[..whole.len() - 10]);
}

/// An I/O error of a named file contains its path and a remedy.
#[test]
fn unusable_file_is_named_with_a_remedy() {
    let site = Site::new("files");
    let (main, _) = site.send("first");
    let path = |name: &str| site.path().join(name).to_str().unwrap().to_owned();
    fs::write(path("there"), "mine").unwrap();
    site.fails(&["session", "export", &main, "--output", &path("there")], 4, "name another file");
    site.fails(&["session", "export", &main, "--output", &path("data")], 4, "name another file");
    site.fails(&["session", "export", &main, "--output", &path("none/x")], 1, "create the folder");
    site.fails(&["session", "export", &main, "--output", &path("there/x")], 1, "check the path");
    assert_eq!(fs::read_to_string(path("there")).unwrap(), "mine");
    site.fails(&["session", "import", &path("none")], 3, "check the path");
    site.fails(&["session", "import", &path("data")], 1, "name a file");
    let refused = site.run(&["session", "export", &main, "--output", &path("there"), "--json"]);
    assert!(refused.err.contains(&json!("exists").to_string()), "{refused:?}");
}

/// A workspace with a session that was moved away is not collected, because the session may be pinned and return.
#[test]
fn gc_keeps_the_workspace_of_a_missing_session() {
    let site = Site::new("files");
    let (main, workspace) = site.send("first");
    site.ok(&["session", "pin", &main, "--why", "keep"]);
    let (own, aside) = (sessions(&site, &workspace).join(&main), site.path().join("aside"));
    fs::rename(&own, &aside).unwrap();
    let done = site.run(&["workspace", "gc", "--max-age", "0", "--yes"]);
    assert!(done.out.contains("damaged data"), "{done:?}");
    fs::rename(&aside, &own).unwrap();
    site.ok(&["verify"]);
    let (again, there) = site.send("second");
    assert_eq!((again, there), (main, workspace));
}

/// If a purge is refused after a successful deletion, the error says both.
#[test]
fn refused_purge_reports_the_completed_deletion() {
    let site = Site::new("files");
    let (main, workspace) = site.send("first");
    let fork = site.ok(&["session", "fork", &main]);
    let fork = fork.trim();
    let (own, aside) = (sessions(&site, &workspace).join(fork), site.path().join("aside"));
    fs::rename(&own, &aside).unwrap();
    let refused = site.run(&["session", "delete", &main, "--purge"]);
    assert_ne!(refused.code, 0, "{refused:?}");
    let message = format!("session {main} was deleted, but its events were not removed");
    assert!(refused.err.contains(&message) && refused.err.contains(fork), "{refused:?}");
    fs::rename(&aside, &own).unwrap();
    site.ok(&["session", "delete", &main, "--purge"]);
    assert!(site.ok(&["session", "export", fork]).contains("first"));
}
