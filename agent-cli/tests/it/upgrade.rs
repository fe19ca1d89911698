//! `chat upgrade`: the format numbers of stores, and of stores that another version wrote.

use std::fs;
use std::path::{Path, PathBuf};

use rusqlite::Connection;
use serde_json::{Value, json};

use crate::moved::tree;
use crate::site::{KINDS, Ran, Site};

/// Runs `chat upgrade`, which must change nothing.
#[track_caller]
fn upgrade(site: &Site) -> (Ran, Value) {
    let before = tree(site.path());
    let ran = site.run(&["upgrade"]);
    let json = site.run(&["upgrade", "--json"]);
    assert!(tree(site.path()) == before, "something was changed");
    assert_eq!(json.code, ran.code, "{json:?}");
    let text = if json.out.is_empty() { &json.err } else { &json.out };
    assert!(!text.contains("panicked"), "{json:?}");
    (ran, serde_json::from_str(text.lines().next().unwrap()).unwrap())
}

#[test]
fn upgrade_shows_the_present_numbers() {
    for (kind, formats) in [
        (
            "files",
            json!({
                "events.jsonl": 6, "session.json": 6, "tombstone.json": 6, "workspace.toml": 2, "bindings.toml": 1,
                "session.md": 2
            }),
        ),
        ("sqlite", json!({"user_version": 8})),
    ] {
        let site = Site::new(kind);
        site.send("hello");
        site.typed(&["--tenant", "acme"], "hello\n");
        let (ran, json) = upgrade(&site);
        assert_eq!(ran.code, 0, "{kind}: {ran:?}");
        assert!(ran.out.contains("2 tenants, 2 workspaces, 2 sessions and 2 device bindings"), "{ran:?}");
        assert!(ran.out.contains("nothing has to be done"), "{ran:?}");
        assert_eq!(json["formats"], formats);
        assert_eq!(
            (&json["sessions"], &json["unsupported"], &json["damaged"]),
            (&json!(2), &json!([]), &json!([]))
        );
    }
}

#[test]
fn upgrade_refuses_other_schemas_by_number() {
    for (version, expected) in [
        (4, ["has schema 4, which was never released", "with the version that wrote it"]),
        (9, ["has schema 9, this version knows 8", "use a newer chat"]),
    ] {
        let site = Site::new("sqlite");
        site.send("hello");
        let file = site.path().join("data.db");
        Connection::open(&file).unwrap().pragma_update(None, "user_version", version).unwrap();
        let (ran, json) = upgrade(&site);
        assert_eq!(ran.code, 1, "{ran:?}");
        assert_eq!(json["error"]["kind"], "unsupported", "{json}");
        for expected in expected.into_iter().chain([file.to_str().unwrap(), "Nothing was changed"]) {
            assert!(ran.err.contains(expected), "{expected}: {ran:?}");
        }
    }
}

/// Returns the log of a session.
fn log(site: &Site, workspace: &str, session: &str) -> PathBuf {
    site.path().join("data/workspaces").join(workspace).join("sessions").join(session).join("events.jsonl")
}

/// Writes a log as another format has it: the same events under other checksums.
fn forge(log: &Path, session: &str, format: u32) {
    let text = fs::read_to_string(log).unwrap();
    let lines = text.lines().map(|line| {
        let body = &line[..line.len() - ",\"crc\":\"xxxxxxxx\"}".len()];
        let crc = crc32c::crc32c(format!("default/{session}/{format}{body}").as_bytes());
        format!("{body},\"crc\":\"{crc:08x}\"}}\n")
    });
    fs::write(log, lines.collect::<String>()).unwrap();
}

#[test]
fn upgrade_names_logs_of_other_formats() {
    let site = Site::new("files");
    let (main, workspace) = site.send("hello");
    let fork = site.ok(&["session", "fork", &main]).trim().to_owned();
    let fork_log = log(&site, &workspace, &fork);
    let whole = fs::read(&fork_log).unwrap();
    for (format, expected) in [
        (
            4,
            "has format 4, which was never released; this version reads format 6: use the version that wrote it",
        ),
        (7, "has format 7, which this version does not know; use a newer chat"),
    ] {
        fs::write(&fork_log, &whole).unwrap();
        forge(&fork_log, &fork, format);
        let (ran, json) = upgrade(&site);
        assert_eq!(ran.code, 1, "{ran:?}");
        assert!(ran.err.contains(expected) && ran.err.contains(&fork), "{ran:?}");
        assert!(
            ran.err.contains("1 object of another format") && ran.err.contains("Nothing was changed"),
            "{ran:?}"
        );
        assert!(!ran.err.contains(&main), "only that one is named: {ran:?}");
        let before = tree(site.path());
        let deleted = site.run(&["workspace", "delete", &workspace, "--yes"]);
        assert_eq!(deleted.code, 1, "{deleted:?}");
        assert!(deleted.err.contains(expected) && deleted.err.contains("nothing was changed"), "{deleted:?}");
        assert!(tree(site.path()) == before, "something was changed");
        // No command calls it damaged, or tells to salvage it.
        let copy = site.path().join(format!("copy-{format}")).display().to_string();
        let source = site.address();
        let to = format!("files:{copy}");
        for args in [
            &["session", "list", "--all"][..],
            &["rebuild"],
            &["sweep", "--purge-deleted", "1", "--dry-run"],
            &["copy", &source, &to],
        ] {
            let ran = site.run(args);
            let output = format!("{}{}", ran.out, ran.err);
            assert_eq!(ran.code, 5, "{args:?}: {ran:?}");
            assert!(output.contains(expected) && output.contains("another format"), "{args:?}: {output}");
            assert!(!output.contains("damage") && !output.contains("salvage"), "{args:?}: {output}");
        }
        assert_eq!(json["unsupported"].as_array().map(Vec::len), Some(1), "{json}");
        assert_eq!(json["sessions"], 1, "the other one is read");
    }
}

#[test]
fn upgrade_names_newer_records_and_bindings() {
    let site = Site::new("files");
    let (_, workspace) = site.send("hello");
    let data = site.path().join("data");
    for file in [data.join("workspaces").join(&workspace).join("workspace.toml"), data.join("bindings.toml")]
    {
        let whole = fs::read_to_string(&file).unwrap();
        let newer = if whole.contains("format = 2\n") { 3 } else { 2 };
        let format = format!("format = {newer}\n");
        fs::write(&file, whole.replace("format = 1\n", &format).replace("format = 2\n", &format)).unwrap();
        let (ran, json) = upgrade(&site);
        assert_eq!(ran.code, 1, "{ran:?}");
        let message = format!("{} has format {newer}", file.display());
        assert!(ran.err.contains(&message) && ran.err.contains("use a newer chat"), "{ran:?}");
        assert_eq!(json["unsupported"].as_array().map(Vec::len), Some(1), "{json}");
        fs::write(&file, whole).unwrap();
    }
    assert_eq!(upgrade(&site).0.code, 0);
}

#[test]
fn upgrade_reports_damage_as_such() {
    for kind in KINDS {
        let site = Site::new(kind);
        let (main, workspace) = site.send("first\nsecond\nthird");
        if kind == "files" {
            let log = log(&site, &workspace, &main);
            fs::write(&log, "{}\n").unwrap();
        } else {
            let conn = Connection::open(site.path().join("data.db")).unwrap();
            conn.execute("UPDATE sessions SET summary = '{}'", []).unwrap();
            conn.execute("UPDATE events SET json = '{}'", []).unwrap();
        }
        let (ran, json) = upgrade(&site);
        assert_eq!(ran.code, 5, "{kind}: {ran:?}");
        assert!(ran.err.contains("run `chat verify`") && ran.err.contains(&main), "{kind}: {ran:?}");
        assert_eq!(json["unsupported"], json!([]), "{kind}");
    }
}

#[test]
fn upgrade_creates_no_store_and_takes_none_for_one() {
    for kind in KINDS {
        let site = Site::new(kind);
        let (ran, json) = upgrade(&site);
        assert_eq!((ran.code, &json["error"]["kind"]), (3, &json!("not_found")), "{kind}: {ran:?}");
        assert_eq!(fs::read_dir(site.path()).unwrap().count(), 0, "{kind}: nothing was created");
    }
    let site = Site::new("files");
    fs::create_dir(site.path().join("data")).unwrap();
    fs::write(site.path().join("data/notes.txt"), "mine").unwrap();
    assert_eq!(upgrade(&site).0.code, 3, "a folder of something else");
    fs::remove_dir_all(site.path().join("data")).unwrap();
    fs::write(site.path().join("data"), "mine").unwrap();
    let (ran, _) = upgrade(&site);
    assert!(ran.code == 5 && ran.err.contains("data"), "a file: {ran:?}");
    let site = Site::new("sqlite");
    let file = site.path().join("data.db");
    Connection::open(&file).unwrap().execute_batch("CREATE TABLE theirs (a)").unwrap();
    let (ran, _) = upgrade(&site);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.err.contains("another application"), "{ran:?}");
    fs::write(&file, "mine, and no database at all").unwrap();
    let (ran, _) = upgrade(&site);
    assert!(matches!(ran.code, 1 | 5) && ran.err.contains("data.db"), "{ran:?}");
    site.fails(&["upgrade", "--tenant", "acme"], 2, "the whole store");
}
