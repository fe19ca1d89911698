//! Databases of other programs.

use std::path::{Path, PathBuf};

use agent_core::{MemoryStore, Result, Storage};
use agent_import::Format;
use rusqlite::Connection;
use serde_json::Value;

use crate::hostile::{hostile, places, survives};
use crate::support::{golden, import, sample, texts, twice};

/// Line of a sample before which an import may have run.
const LATER: &str = "-- later\n";

/// Formats that are databases, each with the name of its file.
const DATABASES: &[(Format, &str)] = &[
    (Format::Goose, "sessions.db"),
    (Format::OpenCode, "opencode.db"),
    (Format::Adk, "sessions.db"),
    (Format::LangGraph, "checkpoints.sqlite"),
];

/// Returns the steps of a sample.
fn steps(format: Format) -> Vec<String> {
    let sql = std::fs::read_to_string(sample(&format!("{format}.sql"))).expect("the sample");
    sql.split(LATER).map(str::to_owned).collect()
}

fn execute(path: &Path, sql: &str) {
    let conn = Connection::open(path).expect("a database");
    conn.execute_batch(sql).expect("the sample");
}

/// Makes the database of a sample in a folder.
fn made(format: Format, name: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join(name);
    execute(&path, &steps(format).concat());
    (folder, path)
}

#[tokio::test(flavor = "multi_thread")]
async fn samples_are_imported_as_declared() -> Result<()> {
    for (format, name) in DATABASES {
        let (folder, _) = made(*format, name);
        // A folder is searched for the file that the program writes.
        golden(*format, folder.path()).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_import_adds_nothing() -> Result<()> {
    for (format, name) in DATABASES {
        let (_folder, path) = made(*format, name);
        twice(*format, &path).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_that_has_grown_is_appended() -> Result<()> {
    for (format, name) in DATABASES {
        let (_whole, path) = made(*format, name);
        let whole = Storage::from(MemoryStore::new());
        import(&whole, *format, &path).await?;
        let expected = texts(&whole).await?;
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join(name);
        let storage = Storage::from(MemoryStore::new());
        let mut grown = 0;
        for step in steps(*format) {
            execute(&path, &step);
            let report = import(&storage, *format, &path).await?;
            assert!(report.refused.is_empty(), "{format}: {report:?}");
            grown += report.grown;
            for (session, events) in texts(&storage).await? {
                let all = &expected[&session];
                assert!(all.starts_with(&events), "{format}: {events:#?} is no prefix of {all:#?}");
            }
        }
        assert_eq!(texts(&storage).await?, expected, "{format}");
        assert!(grown > 0, "{format}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_members_of_json_fail_no_session() -> Result<()> {
    // The checkpoints of LangGraph are no JSON.
    for (format, name) in DATABASES.iter().filter(|(format, _)| *format != Format::LangGraph) {
        let (_folder, path) = made(*format, name);
        let conn = Connection::open(&path).expect("a database");
        let (hostile, mut number) = (hostile(), 0);
        for (table, column) in text_columns(&conn) {
            let sql = format!(
                "SELECT rowid, \"{column}\" FROM \"{table}\" WHERE \"{column}\" LIKE '{{%' OR \"{column}\" LIKE '[%'"
            );
            let mut statement = conn.prepare(&sql).expect("a query");
            let rows = statement.query_map([], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?)));
            let rows: Vec<_> = rows.expect("rows").flatten().collect();
            for (rowid, text) in rows {
                let json: Value = serde_json::from_str(&text).expect("JSON");
                let mut found = Vec::new();
                places(&json, &mut Vec::new(), &mut found);
                for place in found {
                    let mut changed = json.clone();
                    number += 1;
                    *changed.pointer_mut(&place).expect("a place") = hostile[number % hostile.len()].clone();
                    let set = format!("UPDATE \"{table}\" SET \"{column}\" = ?1 WHERE rowid = ?2");
                    conn.execute(&set, (changed.to_string(), rowid)).expect("a change");
                    let what =
                        format!("{table}.{column} {rowid} {place}: {}", hostile[number % hostile.len()]);
                    assert!(survives(*format, &path, &what).await?, "{format}: {what}");
                }
                let set = format!("UPDATE \"{table}\" SET \"{column}\" = ?1 WHERE rowid = ?2");
                conn.execute(&set, (text, rowid)).expect("a change");
            }
        }
        assert!(number > 50, "{format}: {number}");
    }
    Ok(())
}

/// Returns the columns of all tables.
fn text_columns(conn: &Connection) -> Vec<(String, String)> {
    let sql = "SELECT t.name, c.name FROM sqlite_schema t, pragma_table_info(t.name) c WHERE t.type = 'table' AND t.name NOT LIKE 'sqlite_%'";
    let mut statement = conn.prepare(sql).expect("a query");
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).expect("rows");
    rows.flatten().collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_columns_panic_nowhere() -> Result<()> {
    let values = [
        "NULL",
        "-1",
        "9e999",
        "9223372036854775807",
        "''",
        "x'ff00fe'",
        "CAST(x'ff00' AS TEXT)",
        "zeroblob(17000000)",
        "char(0, 7, 10)",
        "'[' || replace(hex(zeroblob(60000)), '0', '[')",
    ];
    for (format, name) in DATABASES {
        let mut number = 0;
        let (_folder, path) = made(*format, name);
        let conn = Connection::open(&path).expect("a database");
        for (at, (table, column)) in text_columns(&conn).into_iter().enumerate() {
            // Each column gets some of the values, and each value some of the columns.
            for (_, value) in values.iter().enumerate().filter(|(number, _)| (at + number) % 4 == 0) {
                // One large value is enough.
                let one = if value.contains("17000000") {
                    format!("WHERE rowid = (SELECT max(rowid) FROM \"{table}\")")
                } else {
                    String::new()
                };
                let set =
                    format!("BEGIN; UPDATE OR IGNORE \"{table}\" SET \"{column}\" = {value} {one}; COMMIT");
                let backup = std::fs::read(&path).expect("the database");
                if conn.execute_batch(&set).is_err() {
                    let _ = conn.execute_batch("ROLLBACK");
                    continue;
                }
                survives(*format, &path, &format!("{table}.{column} = {value}")).await?;
                number += 1;
                std::fs::write(&path, backup).expect("the database");
            }
        }
        assert!(number > 20, "{format}: {number}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn views_and_triggers_are_not_run() -> Result<()> {
    for (format, name) in DATABASES {
        let (folder, path) = made(*format, name);
        let conn = Connection::open(&path).expect("a database");
        let tables: Vec<String> = text_columns(&conn).into_iter().map(|(table, _)| table).collect();
        let table = tables.iter().find(|table| ["sessions", "session", "checkpoints"].contains(&&***table));
        let table = table.expect("a table");
        // A view without an end in place of the table.
        let endless = "WITH RECURSIVE r(id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM r) SELECT id, id AS thread_id FROM r";
        let sql = format!(
            "PRAGMA legacy_alter_table = on; ALTER TABLE \"{table}\" RENAME TO other; CREATE VIEW \"{table}\" AS {endless}"
        );
        conn.execute_batch(&sql).expect("a view");
        assert!(!survives(*format, &path, "a view").await?);
        for content in ["", "SQLite format 3\0 and no more", "{}"] {
            std::fs::write(&path, content).expect("a file");
            assert!(!survives(*format, &path, "no database").await?);
        }
        drop(conn);
        std::fs::remove_file(&path).expect("the file");
        assert!(!survives(*format, folder.path(), "no file").await?);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_bytes_of_checkpoints_fail_no_session() -> Result<()> {
    let (_folder, path) = made(Format::LangGraph, "checkpoints.sqlite");
    let conn = Connection::open(&path).expect("a database");
    let sql = "SELECT rowid, checkpoint FROM checkpoints ORDER BY length(checkpoint) DESC LIMIT 1";
    let (rowid, bytes): (i64, Vec<u8>) =
        conn.query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?))).expect("a checkpoint");
    for at in (0..bytes.len()).step_by(7) {
        let mut changed = bytes.clone();
        match at % 3 {
            // A list or a text of 4 GiB, the end of the bytes, or another byte.
            0 => changed[at] = if at % 2 == 0 { 0xdd } else { 0xdb },
            1 => changed.truncate(at),
            _ => changed[at] ^= 0x5a,
        }
        let update = "UPDATE checkpoints SET checkpoint = ?1 WHERE rowid = ?2";
        conn.execute(update, rusqlite::params![changed, rowid]).expect("a change");
        assert!(survives(Format::LangGraph, &path, &format!("byte {at}")).await?);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_value_that_is_too_large_is_counted_and_not_read() -> Result<()> {
    let (_folder, path) = made(Format::Goose, "sessions.db");
    let large = "UPDATE messages SET content_json = '[{\"type\":\"text\",\"text\":\"' || hex(zeroblob(8400000)) || '\"}]' \
                 WHERE message_id = 'msg_12'";
    execute(&path, large);
    let storage = Storage::from(MemoryStore::new());
    let report = import(&storage, Format::Goose, &path).await?;
    assert_eq!(report.left_out["messages whose content is no JSON, or has more than 16 MiB"], 2);
    assert_eq!((report.created, report.refused.len()), (2, 0), "{report:?}");
    Ok(())
}
