//! Transcripts of Codex.

use std::path::Path;

use agent_core::{MemoryStore, Result, Storage};
use agent_import::{Format, Import};

use crate::support::{cut_anywhere, dump, golden, import_text, sample, twice};

const FILE: &str = "2026/02/03/rollout-2026-02-03T05-00-00-019a0000-0000-7000-8000-000000000001.jsonl";

#[tokio::test(flavor = "multi_thread")]
async fn a_sample_is_imported_as_declared() -> Result<()> {
    golden(Format::Codex, &sample("codex")).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_import_adds_nothing() -> Result<()> {
    twice(Format::Codex, &sample("codex")).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cut_file_is_a_prefix_and_grows() -> Result<()> {
    cut_anywhere(Format::Codex, &sample("codex"), Path::new(FILE), 97).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_tokens_of_each_turn_are_counted_once() -> Result<()> {
    let storage = Storage::from(MemoryStore::new());
    Import::new(Format::Codex, sample("codex").join(FILE)).with_finished().run(&storage).await?;
    let log = dump(&storage).await?;
    let counted: Vec<_> = log
        .lines()
        .filter_map(|line| line.split_once(r#""usage":"#))
        .map(|(_, usage)| usage.trim_end_matches('}').to_owned())
        .collect();
    let expected = [
        r#"{"input_tokens":3100,"output_tokens":90,"cache_read_tokens":1800,"reasoning_tokens":25"#,
        r#"{"input_tokens":1900,"output_tokens":30,"cache_read_tokens":1200,"reasoning_tokens":5"#,
    ];
    assert_eq!(counted, expected);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_finished_source_ends_its_answer_and_its_calls() -> Result<()> {
    let storage = Storage::from(MemoryStore::new());
    let path = sample("codex").join(FILE);
    let report = Import::new(Format::Codex, &path).with_finished().run(&storage).await?;
    assert_eq!(report.unfinished, 0, "{report:?}");
    let last = dump(&storage).await?;
    assert!(last.contains(r#""call":"call_7","outcome":"interrupted""#), "{last}");
    let again = Import::new(Format::Codex, &path).with_finished().run(&storage).await?;
    assert_eq!((again.unchanged, again.events), (1, 0), "{again:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn one_wrong_line_costs_itself_only() -> Result<()> {
    let deep = format!(
        r#"{{"timestamp":"2026-02-03T05:00:00Z","type":"response_item","payload":{{"type":"reasoning","x":{}{}}}}}"#,
        "[".repeat(110),
        "]".repeat(110)
    );
    let lines = [
        r#"{"timestamp":"2026-02-03T05:00:00Z","type":"response_item","payload":{"type":"message","role":"user","content":"Hello"}}"#,
        r#"{"timestamp":99999999999999999999,"type":7,"payload":[]}"#,
        r#"{"timestamp":null,"type":"response_item","payload":null}"#,
        r#"{"type":"response_item","payload":{"type":"message","role":5,"content":7}}"#,
        r#"{"type":"response_item","payload":{"type":"function_call","name":"~1.x","arguments":"[1]","call_id":"~1.\u0000"}}"#,
        r#"{"type":"response_item","payload":{"type":"function_call_output","output":1e400,"call_id":"~1.\u0000"}}"#,
        r#"{"type":"response_item","payload":{"type":"function_call","name":"","arguments":{},"call_id":""}}"#,
        r#"{"type":"response_item","payload":{"type":"message","role":"user","content":[{"type":"input_image","image_url":"data:x;base64,AAAA"},{"type":"input_image","image_url":""},{"type":"input_text","text":"a\u0000\u001b[31m"}]}}"#,
        r#"{"type":"event_msg","payload":{"type":"token_count","info":{"total_token_usage":{"input_tokens":18446744073709551615,"output_tokens":-1}}}}"#,
        r#"{"type":"event_msg","payload":{"type":"task_complete"}}"#,
        r#"{"type":"event_msg","payload":{"type":"token_count","info":{"total_token_usage":{"input_tokens":18446744073709551615,"output_tokens":18446744073709551615}}}}"#,
        r#"{"type":"event_msg","payload":{"type":"task_complete"}}"#,
        r#"{"type":"sealed/../x","payload":{"sealed":"aaaa"}}"#,
        r#"{"type":"compacted","payload":{"message":7,"replacement_history":"x"}}"#,
        r#"{"timestamp":"9999-12-31T23:59:59Z","type":"response_item","payload":{"type":"message","role":"assistant","content":"Bye"}}"#,
        "\u{0}\u{1}",
        "[]",
        deep.as_str(),
    ];
    let mut bytes = lines.join("\n").into_bytes();
    bytes.extend(b"\n\xff\xfe{}\n");
    let (report, log) = import_text(Format::Codex, "rollout-a.jsonl", &bytes).await?;
    assert!(report.refused.is_empty() && report.created == 1, "{report:?}");
    assert!(log.contains("Hello") && log.contains("Bye"), "{log}");
    let left_out = |kind: &str| report.left_out.get(kind).copied().unwrap_or_default();
    assert_eq!(left_out("lines that are no JSON objects"), 3, "{report:?}");
    Ok(())
}

#[cfg(unix)]
#[tokio::test(flavor = "multi_thread")]
async fn links_in_the_folder_are_not_followed() -> Result<()> {
    let (folder, other) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
    let line = r#"{"type":"message","role":"user","content":"Hello"}"#;
    std::fs::write(folder.path().join("rollout-a.jsonl"), line).expect("a file");
    std::fs::write(other.path().join("rollout-b.jsonl"), line).expect("a file");
    std::fs::create_dir(folder.path().join("2026")).expect("a folder");
    let link =
        |to: &Path, name: &str| std::os::unix::fs::symlink(to, folder.path().join(name)).expect("a link");
    link(folder.path(), "2026/loop");
    link(other.path(), "2026/elsewhere");
    link(&other.path().join("rollout-b.jsonl"), "rollout-c.jsonl");
    let storage = Storage::from(MemoryStore::new());
    let report = Import::new(Format::Codex, folder.path()).run(&storage).await?;
    assert_eq!((report.created, report.events), (1, 1), "{report:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_no_log_takes_is_cut_and_keeps_its_call() -> Result<()> {
    let item = |payload: &str| format!(r#"{{"type":"response_item","payload":{payload}}}"#);
    let deep = format!("{}1{}", r#"{\"a\":"#.repeat(101), "}".repeat(101));
    let text = [
        item(
            r#"{"type":"message","role":"user","content":[{"type":"input_text","text":"See"},
               {"type":"input_image","image_url":"data:no type;base64,AAAA"}]}"#,
        )
        .replace('\n', ""),
        item(&format!(r#"{{"type":"function_call","name":"deep","call_id":"c","arguments":"{deep}"}}"#)),
        item(r#"{"type":"function_call_output","call_id":"c","output":"done"}"#),
    ];
    let (report, log) = import_text(Format::Codex, "rollout-a.jsonl", text.join("\n").as_bytes()).await?;
    for kind in ["user.message", "agent.tool_use"] {
        let cut = report.left_out.get(&format!("{kind} that no log takes as it is, which was cut"));
        assert_eq!(cut, Some(&1), "{report:?}");
    }
    assert!(log.contains(r#""text":"See""#), "{log}");
    assert!(log.contains(r#""name":"deep","input":{},"omitted":true"#), "{log}");
    assert!(log.contains(r#""output":"done""#), "{log}");
    Ok(())
}
