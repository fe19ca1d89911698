//! The schema in PostgreSQL, as the statements of `pg_dump` that make it again.

#[path = "../../../../tests/it/forms/golden.rs"]
mod golden;
#[path = "../../../../tests/it/forms/script.rs"]
mod script;

use std::process::Command;

use agent_core::{Backend, SessionStore, TenantId};
use agent_storage_postgres::{PostgresConfig, PostgresStore};

use crate::Database;
use crate::support::{OWNER, programs};
use golden::Files;
use script::{check, cursors, effects, go_on};

const FORM: &str = "postgres";
const DUMP: &str = "store.sql";
const CURSORS: &str = "cursors";

fn format() -> u64 {
    PostgresStore::FORMATS[0].1
}

async fn open(database: &Database) -> PostgresStore {
    let config = PostgresConfig::from_url(&database.address()).unwrap();
    config.with_migrate(true).with_effects(effects(2)).open().await.unwrap()
}

/// Returns statements that make the schema again, the rows of each table in the order of their text. What belongs to the
/// server, such as its settings, is not in them.
async fn dump(database: &Database) -> String {
    // Random numbers, which are only compared with each other.
    database.sql("UPDATE agent.sessions SET version = 1").await;
    database.sql("UPDATE agent.meta SET store = '00000000-0000-0000-0000-000000000000'").await;
    let output = Command::new(programs().join("pg_dump"))
        .args(["--schema=agent", "--inserts", "--column-inserts", "--no-owner", "--no-privileges"])
        .arg(format!("--dbname={}", database.address_of_admin()))
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let whole = String::from_utf8(output.stdout).unwrap();
    let of_server = |line: &&str| {
        ["--", "\\", "SET ", "SELECT pg_catalog.set_config"].iter().any(|first| line.starts_with(first))
    };
    let lines: Vec<_> = whole.lines().filter(|line| !of_server(line) && !line.is_empty()).collect();
    let is_row = |line: &str| line.starts_with("INSERT INTO ");
    let mut text = String::new();
    for part in lines.chunk_by(|one, two| is_row(one) && is_row(two)) {
        let mut part: Vec<_> = part.iter().map(|line| with_zeros(line)).collect();
        part.sort();
        assert!(part.iter().all(|line| !is_row(line) || line.ends_with(");")), "a row is one line");
        text += &(part.join("\n") + "\n");
    }
    for table in ["events", "sessions", "labels", "due", "tombstones", "heartbeats", "blobs", "blob_chunks"] {
        assert!(text.contains(&format!("INSERT INTO agent.{table} ")), "the script writes no {table}");
    }
    text
}

/// Writes the many zeros of a chunk as an expression.
fn with_zeros(line: &str) -> String {
    let Some((before, rest)) = line.split_once("'\\x0000000000000000") else { return line.to_owned() };
    let (digits, after) = rest.split_once('\'').unwrap();
    let bytes = digits.len() / 2 + 8;
    if bytes < 64 || digits.bytes().any(|digit| digit != b'0') {
        return line.to_owned();
    }
    format!("{before}decode(repeat('00', {bytes}), 'hex'){after}")
}

#[tokio::test]
async fn postgres_rows_are_written_as_declared() {
    let database = Database::empty().await;
    let store = open(&database).await;
    script::write(&store).await;
    let cursors = cursors(&store).await;
    Backend::close(&store).await.unwrap();
    let dump = dump(&database).await;
    let files =
        Files::from([(DUMP.to_owned(), dump.into_bytes()), (CURSORS.to_owned(), cursors.into_bytes())]);
    golden::compare(FORM, format(), &files);
}

#[tokio::test]
async fn golden_postgres_rows_are_read_whole() {
    let database = Database::empty().await;
    let files = golden::read(FORM, format());
    let [sql, cursors] = [DUMP, CURSORS].map(|name| std::str::from_utf8(&files[name]).unwrap());
    // The roles that the statements name belong to the server.
    Database::new().await;
    database.sql(&format!("SET ROLE {OWNER}; SET check_function_bodies = false; {sql}")).await;
    database
        .sql(
            "ALTER FUNCTION agent.tenants(text) OWNER TO agent_worker; \
             ALTER FUNCTION agent.busy_tenants(text, bigint) OWNER TO agent_worker; \
             GRANT USAGE ON SCHEMA agent TO agent_worker; GRANT SELECT ON ALL TABLES IN SCHEMA agent TO agent_worker",
        )
        .await;
    let store = open(&database).await;
    let tenants = store.tenants(None).await.unwrap();
    let expected = ["acme", "default"].map(|name| name.parse::<TenantId>().unwrap());
    assert_eq!((tenants.items.as_slice(), tenants.damaged.len()), (&expected[..], 0));
    assert_eq!(store.maintenance().check().await.unwrap(), [], "of rows that are derived, too");
    go_on(&store, cursors).await;
    check(&store).await;
}
