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
