//! Databases of the Python package `openai-agents`.

use std::path::{Path, PathBuf};

use agent_core::{ErrorKind, MemoryStore, Result, Storage};
use agent_import::{Format, Import};
use rusqlite::Connection;

use crate::support::{dump, golden, import, sample, twice};

/// Makes a database of SQL.
fn database(folder: &Path, sql: &str) -> PathBuf {
    let path = folder.join("agents.db");
    let connection = Connection::open(&path).expect("a database");
    connection.execute_batch("PRAGMA foreign_keys = OFF").expect("a pragma");
    connection.execute_batch(sql).expect("its tables");
    path
}

fn sample_sql() -> String {
    std::fs::read_to_string(sample("openai-agents.sql")).expect("the sample")
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a folder")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sample_is_imported_as_declared() -> Result<()> {
    let folder = folder();
    golden(Format::OpenAiAgents, &database(folder.path(), &sample_sql())).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_import_adds_nothing() -> Result<()> {
    let folder = folder();
    twice(Format::OpenAiAgents, &database(folder.path(), &sample_sql())).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_has_grown_is_continued() -> Result<()> {
    let (folder, whole) = (folder(), folder());
    let storage = Storage::from(MemoryStore::new());
    let sql = sample_sql();
    let path = database(folder.path(), &sql);
    let connection = Connection::open(&path).expect("the database");
    let cut = "DELETE FROM message_structure WHERE message_id > 9; DELETE FROM agent_messages WHERE id > 9;";
    connection.execute_batch(cut).expect("a cut");
    let first = import(&storage, Format::OpenAiAgents, &path).await?;
    assert_eq!((first.created, first.grown), (2, 0), "{first:?}");
    std::fs::remove_file(&path).expect("a file");
    let grown = import(&storage, Format::OpenAiAgents, &database(folder.path(), &sql)).await?;
    assert_eq!((grown.created, grown.grown, grown.refused.len()), (1, 1, 0), "{grown:?}");
    let expected = Storage::from(MemoryStore::new());
    import(&expected, Format::OpenAiAgents, &database(whole.path(), &sql)).await?;
    let events = |log: String| {
        log.lines().map(|line| line.split(r#""type""#).last().map(str::to_owned)).collect::<Vec<_>>()
    };
    assert_eq!(events(dump(&storage).await?), events(dump(&expected).await?));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_in_a_row_costs_the_row_only() -> Result<()> {
    let folder = folder();
    let wrong = "
        INSERT INTO agent_sessions(session_id) VALUES (x'ff'), (''), (NULL), ('~1.x');
        INSERT INTO agent_messages(session_id, message_data, created_at) VALUES
            ('plain', x'ff', -1), ('plain', 7, 'yesterday'), ('plain', '[]', 1e300), ('plain', '{\"role\":', NULL),
            ('plain', zeroblob(17000000), NULL), ('plain', zeroblob(70000000), zeroblob(70000)), ('plain', '{\"role\":\"user\",\"content\":\"a\\u0000b\"}', 9e18),
            ('~1.x', '{\"role\":\"user\",\"content\":\"sealed?\"}', NULL), ('', '{\"role\":\"user\",\"content\":\"empty id\"}', NULL);
        INSERT INTO message_structure(session_id, message_id, branch_id, message_type, sequence_number, user_turn_number) VALUES
            ('user 7/ferries', 1, 'main', 'user', 100, 'x'), ('user 7/ferries', 9999, 'main', 'user', 101, 1),
            ('user 7/ferries', 'x', 'main', 'user', 102, 1), ('user 7/ferries', 13, 'main', 'user', 103, 1),
            ('user 7/ferries', 5, x'ff', 'user', 104, 1), ('user 7/ferries', 6, 'late', 'user', 105, 1);
        UPDATE turn_usage SET input_tokens = -5, output_tokens = 'x', input_tokens_details = '[';";
    let path = database(folder.path(), &(sample_sql() + wrong));
    let storage = Storage::from(MemoryStore::new());
    let report = Import::new(Format::OpenAiAgents, &path).with_unknown().run(&storage).await?;
    assert!(report.refused.is_empty(), "{report:?}");
    assert_eq!(report.created, 6, "{report:?}");
    let left_out = |kind: &str| report.left_out.get(kind).copied().unwrap_or_default();
    assert_eq!(left_out("messages that are no text, or larger than 16 MiB"), 3, "{report:?}");
    assert_eq!(left_out("messages that are no JSON objects"), 3, "{report:?}");
    assert_eq!(left_out("messages that a branch lists twice"), 1, "{report:?}");
    assert_eq!(left_out("messages that a branch lists, and that are not there"), 2, "{report:?}");
    assert!(agent_admin::verify::verify(&storage, |_| {}).await?.is_sound());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_but_tables_is_read_and_nothing_is_written() -> Result<()> {
    let folder = folder();
    let view = "CREATE TABLE agent_sessions (session_id TEXT PRIMARY KEY, created_at);
        CREATE VIEW agent_messages AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i AS id FROM n;";
    let path = database(folder.path(), view);
    let before = std::fs::read(&path).expect("the database");
    let storage = Storage::from(MemoryStore::new());
    let refused = import(&storage, Format::OpenAiAgents, &path).await.expect_err("a view");
    assert_eq!(*refused.kind(), ErrorKind::InvalidInput);
    assert_eq!(std::fs::read(&path).expect("the database"), before);
    let text = folder.path().join("a.txt");
    std::fs::write(&text, "SQLite format 2").expect("a file");
    for path in [text.as_path(), folder.path()] {
        let refused = import(&storage, Format::OpenAiAgents, path).await.expect_err("no database");
        assert_eq!(*refused.kind(), ErrorKind::InvalidInput, "{refused}");
    }
    Ok(())
}
