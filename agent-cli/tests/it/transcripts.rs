//! `chat import`, and exports for people and other programs.

use std::fs;
use std::path::Path;

use crate::site::Site;

/// Writes a transcript of Claude Code with a message, an answer and a call without a result.
fn transcript(folder: &Path, lines: usize) {
    let all = [
        r#"{"type":"user","uuid":"a","timestamp":"2026-02-03T04:05:06Z","cwd":"/home/ann","message":{"content":"When do the ferries leave?"}}"#,
        r#"{"type":"assistant","uuid":"b","parentUuid":"a","timestamp":"2026-02-03T04:05:07Z","message":{"id":"m1","model":"claude-opus-5","content":[{"type":"text","text":"At ```seven```."}],"stop_reason":"end_turn"}}"#,
        r#"{"type":"user","uuid":"c","parentUuid":"b","timestamp":"2026-02-03T04:05:08Z","message":{"content":"Which one?"}}"#,
        r#"{"type":"assistant","uuid":"d","parentUuid":"c","timestamp":"2026-02-03T04:05:09Z","message":{"id":"m2","model":"claude-opus-5","content":[{"type":"tool_use","id":"t1","name":"Read","input":{"path":"a"}}]}}"#,
        r#"{"type":"user","uuid":"e","parentUuid":"d","timestamp":"2026-02-03T04:05:10Z","message":{"content":[{"type":"tool_result","tool_use_id":"t1","content":"The ```red``` one"}]}}"#,
    ];
    fs::create_dir_all(folder.join("projects")).unwrap();
    fs::write(folder.join("projects/s.jsonl"), all[..lines].join("\n") + "\n").unwrap();
}

#[test]
fn transcripts_are_imported_and_grow() {
    let site = Site::new("sqlite");
    transcript(site.path(), 4);
    // Without a store, too.
    let dry = site.json(&["import", "claude-code", "projects", "--dry-run"]);
    assert_eq!((&dry["created"], &dry["unfinished"]), (&1.into(), &1.into()), "{dry}");
    site.fails(&["session", "list"], 3, "");

    let text = site.ok(&["import", "claude-code", "projects"]);
    assert!(text.contains("imported 1 session with 4 events") && text.contains("--finished"), "{text}");
    let listed = site.json(&["session", "list"]);
    let id = listed["items"][0]["id"].as_str().unwrap().to_owned();
    transcript(site.path(), 5);
    let grown = site.json(&["import", "claude-code", "projects"]);
    assert_eq!(
        (&grown["created"], &grown["grown"], &grown["unfinished"]),
        (&0.into(), &1.into(), &0.into()),
        "{grown}"
    );
    let again = site.ok(&["import", "claude-code", "projects", "--finished"]);
    assert!(again.contains("imported 0 sessions with 0 events; 0 continued, 1 unchanged"), "{again}");

    let markdown = site.ok(&["session", "export", &id, "--as", "markdown"]);
    for part in [
        "## User, 2026-02-03T04:05:06",
        "When do the ferries leave?",
        "**Call Read**",
        "````\nThe ```red``` one\n````",
    ] {
        assert!(markdown.contains(part), "{part}: {markdown}");
    }
    let lines = site.ok(&["session", "export", &id, "--as", "jsonl"]);
    assert!(lines.lines().all(|line| serde_json::from_str::<serde_json::Value>(line).is_ok()), "{lines}");
    site.ok(&["verify"]);
    let found = site.ok(&["search", "ferries"]);
    assert!(found.contains("ferries"), "{found}");
}

#[test]
fn a_source_that_cannot_be_read_is_named() {
    let site = Site::new("sqlite");
    site.fails(&["import", "claude-code", "nothing"], 3, "nothing");
    site.fails(&["import", "cobol", "."], 2, "claude-code");
    fs::create_dir_all(site.path().join("empty")).unwrap();
    site.fails(&["import", "claude-code", "empty"], 1, "*.jsonl");
    // A session that was continued here is left as it is, and named.
    transcript(site.path(), 2);
    site.ok(&["import", "claude-code", "projects"]);
    let id = site.json(&["session", "list"])["items"][0]["id"].as_str().unwrap().to_owned();
    site.ok(&["session", "pin", &id, "--why", "kept"]);
    transcript(site.path(), 5);
    let continued = site.run(&["import", "claude-code", "projects"]);
    assert!(continued.code != 0 && continued.out.contains("was continued here"), "{continued:?}");
}
