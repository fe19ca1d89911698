//! Exports of ChatGPT and Claude.

use agent_core::{ErrorKind, MemoryStore, Result, Storage};
use agent_import::Format;

use crate::support::{cut_array, golden, import, import_text, sample, twice};

#[tokio::test(flavor = "multi_thread")]
async fn samples_are_imported_as_declared() -> Result<()> {
    golden(Format::ChatGpt, &sample("chatgpt")).await?;
    golden(Format::ClaudeExport, &sample("claude-export")).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_import_adds_nothing() -> Result<()> {
    twice(Format::ChatGpt, &sample("chatgpt")).await?;
    twice(Format::ClaudeExport, &sample("claude-export")).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cut_file_has_the_conversations_before_the_cut() -> Result<()> {
    cut_array(Format::ChatGpt, &sample("chatgpt/conversations.json"), 211).await?;
    cut_array(Format::ClaudeExport, &sample("claude-export/conversations.json"), 97).await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_archive_is_refused_with_what_to_do() {
    for format in [Format::ChatGpt, Format::ClaudeExport] {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("export.zip");
        std::fs::write(&path, b"PK\x03\x04and so on").expect("a file");
        let storage = Storage::from(MemoryStore::new());
        for path in [path.as_path(), folder.path()] {
            let refused = import(&storage, format, path).await.expect_err("an archive");
            assert!(refused.to_string().contains("unpack"), "{refused}");
            assert_eq!(*refused.kind(), ErrorKind::InvalidInput);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_wrong_conversation_of_chatgpt_costs_itself_only() -> Result<()> {
    let deep = format!(r#"{{"id":"deep","mapping":{}{}}}"#, "[".repeat(5000), "]".repeat(5000));
    let wrong = [
        "7",
        "null",
        r#""text""#,
        "[]",
        "{}",
        r#"{"id":7,"mapping":{}}"#,
        r#"{"id":"","mapping":{}}"#,
        r#"{"id":"a","mapping":7,"title":[],"create_time":1e400}"#,
        r#"{"id":"b","mapping":{"x":null,"y":7,"z":{"parent":5,"children":{},"message":[]}}}"#,
        r#"{"id":"c","title":"~1.title\u0000","create_time":-1e18,"mapping":{"x":{"parent":"y","children":["y","x"],"message":{"author":{"role":"user"},"content":{"parts":[null,7,{"a":1},{"asset_pointer":""}]}}},
           "y":{"parent":"x","children":["x"],"message":{"author":{"role":"assistant"},"recipient":"~1.a\u0007","create_time":1e308,"content":{"content_type":"code","text":"\u0000"},"metadata":{"model_slug":"\n"}}}}}"#,
        r#"{"id":"d","mapping":{"~1.x":{"message":{"author":{"role":"assistant"},"recipient":"","content":{"content_type":"text","parts":["Bye"]},"metadata":{"citations":[7,{"metadata":{"url":"x"}}]}}},
           "~1.x":{"message":null}}}"#,
        deep.as_str(),
        "]",
    ];
    let text = format!("[{},\n", wrong[..12].join(",\n"));
    let mut bytes = text.into_bytes();
    bytes.extend(b"{\"id\":\"\xff\"},");
    bytes.extend(wrong[12].as_bytes());
    let (report, log) = import_text(Format::ChatGpt, "conversations.json", &bytes).await?;
    assert!(report.refused.is_empty() && report.cut_off == 0, "{report:?}");
    assert!(log.contains("Bye"), "{log}");
    assert_eq!(report.left_out["conversations without an id"], 3, "{report:?}");
    assert!(report.left_out["conversations that are no JSON objects"] >= 5, "{report:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn one_wrong_conversation_of_claude_costs_itself_only() -> Result<()> {
    let deep = format!("{}{}", "[".repeat(105), "]".repeat(105));
    let text = format!(
        r#"[{{"uuid":"a","chat_messages":{{}}}},{{"uuid":"b","name":"~1.b","chat_messages":[7,null,[],
            {{"sender":"human","text":7,"content":"x","attachments":[7,{{"extracted_content":7}}],"files":{{}}}},
            {{"uuid":"m","sender":"human","content":[{{"type":7}},{{"type":"text","text":"a\u0000b"}}],"created_at":"yesterday","parent_message_uuid":"m"}},
            {{"uuid":"n","sender":"assistant","content":[7,{{"type":"tool_use","id":"~1.","name":"~1.","input":{deep}}},{{"type":"tool_result","content":{{}}}},
              {{"type":"tool_result"}},{{"type":"text","text":"Bye","citations":[7]}},{{"type":"text","citations":"x"}}],"parent_message_uuid":["m"]}},
            {{"uuid":"o","sender":"nobody","text":"x"}}]}}]"#
    );
    let (report, log) = import_text(Format::ClaudeExport, "conversations.json", text.as_bytes()).await?;
    assert!(report.refused.is_empty() && report.created == 1, "{report:?}");
    assert!(log.contains("Bye"), "{log}");
    Ok(())
}
