//! The file of the SQLite store, as statements that make it again.

use std::fmt::Write as _;
use std::path::Path;

use agent_core::{Backend, SessionStore, TenantId};
use agent_storage_sqlite::{SqliteConfig, SqliteStore, Sync};
use rusqlite::Connection;
use rusqlite::types::ValueRef;

use crate::forms::golden::{self, Files};
use crate::forms::script::{self, check, cursors, effects, go_on};

const FORM: &str = "sqlite";
const DUMP: &str = "store.sql";
const CURSORS: &str = "cursors";

fn format() -> u64 {
    SqliteStore::FORMATS[0].1
}

async fn open(file: &Path) -> SqliteStore {
    SqliteConfig::new(file).with_sync(Sync::Off).with_effects(effects(2)).open().await.unwrap()
}

fn number(conn: &Connection, sql: &str) -> i64 {
    conn.query_row(sql, [], |row| row.get(0)).unwrap()
}

/// Returns statements that make a file again: its numbers, its tables, their rows, its indexes and views. What SQLite decides, such as
/// the page on which a row is stored, is not in them.
fn dump(file: &Path) -> String {
    let conn = Connection::open(file).unwrap();
    // Random numbers, which are only compared with each other.
    conn.execute_batch("UPDATE sessions SET version = 1").unwrap();
    let mut text = String::new();
    for pragma in ["application_id", "user_version"] {
        let value = number(&conn, &format!("PRAGMA {pragma}"));
        writeln!(text, "PRAGMA {pragma} = {value};").unwrap();
    }
    for kind in ["table", "index", "view", "trigger"] {
        let sql = "SELECT name, sql FROM sqlite_schema WHERE type = ?1 AND sql IS NOT NULL AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' \
                   ORDER BY name";
        let mut statement = conn.prepare(sql).unwrap();
        let objects = statement.query_map([kind], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
        let objects: Vec<(String, String)> = objects.map(Result::unwrap).collect();
        for (name, sql) in objects {
            writeln!(text, "\n{sql};").unwrap();
            if kind == "table" {
                let rows = rows(&conn, &name);
                // What a deletion leaves here is nothing.
                assert_eq!(rows.is_empty(), name == "deletions", "rows of {name}");
                text += &rows;
            }
        }
    }
    text += "\nDELETE FROM sqlite_sequence;\n";
    text + &rows(&conn, "sqlite_sequence")
}

/// Returns the rows of a table, in the order of their columns.
fn rows(conn: &Connection, table: &str) -> String {
    let mut statement = conn.prepare(&format!("SELECT * FROM {table}")).unwrap();
    let columns = statement.column_names().join(", ");
    let count = statement.column_count();
    let mut rows = statement.query([]).unwrap();
    let mut lines = Vec::new();
    while let Some(row) = rows.next().unwrap() {
        let values: Vec<_> = (0..count).map(|n| literal(row.get_ref(n).unwrap())).collect();
        lines.push(format!("INSERT INTO {table} ({columns}) VALUES ({});\n", values.join(", ")));
    }
    lines.sort();
    lines.concat()
}

fn literal(value: ValueRef<'_>) -> String {
    match value {
        ValueRef::Null => "NULL".to_owned(),
        ValueRef::Integer(number) => number.to_string(),
        ValueRef::Real(number) => format!("{number:?}"),
        ValueRef::Text(text) => format!("'{}'", std::str::from_utf8(text).unwrap().replace('\'', "''")),
        ValueRef::Blob(bytes) if bytes.len() > 64 && bytes.iter().all(|byte| *byte == 0) => {
            format!("zeroblob({})", bytes.len())
        }
        ValueRef::Blob(bytes) => {
            let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("x'{digits}'")
        }
    }
}

#[tokio::test]
async fn sqlite_rows_are_written_as_declared() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("agent.db");
    let store = open(&file).await;
    script::write(&store).await;
    let cursors = cursors(&store).await;
    // The process that took a lease is gone, and its row names it.
    Backend::close(&store).await.unwrap();
    let dump = dump(&file);
    let files =
        Files::from([(DUMP.to_owned(), dump.into_bytes()), (CURSORS.to_owned(), cursors.into_bytes())]);
    golden::compare(FORM, format(), &files);
}

#[tokio::test]
async fn golden_sqlite_rows_are_read_whole() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("agent.db");
    let files = golden::read(FORM, format());
    let [sql, cursors] = [DUMP, CURSORS].map(|name| std::str::from_utf8(&files[name]).unwrap());
    Connection::open(&file).unwrap().execute_batch(sql).unwrap();
    let store = open(&file).await;
    let tenants = store.tenants(None).await.unwrap();
    let expected = ["acme", "default"].map(|name| name.parse::<TenantId>().unwrap());
    assert_eq!((tenants.items.as_slice(), tenants.damaged.len()), (&expected[..], 0));
    assert_eq!(store.maintenance().check().await.unwrap(), [], "of rows that are derived, too");
    go_on(&store, cursors).await;
    check(&store).await;
}
