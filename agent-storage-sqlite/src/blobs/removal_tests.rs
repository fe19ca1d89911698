//! Tests that statements about blobs walk an index, using SQLite's own query plans, and that they cost others nothing.

use rusqlite::{Connection, StatementStatus};

use crate::blobs::{chunks, removal};
use crate::log::read;
use crate::{SqliteConfig, schema};

fn open() -> (tempfile::TempDir, Connection) {
    let folder = tempfile::tempdir().unwrap();
    let conn = schema::open(&mut SqliteConfig::new(folder.path().join("a.db"))).unwrap().0;
    (folder, conn)
}

fn plan(conn: &Connection, sql: &str) -> Vec<String> {
    let mut explain = conn.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
    let mut rows = explain.raw_query();
    let mut lines = Vec::new();
    while let Some(row) = rows.next().unwrap() {
        lines.push(row.get(3).unwrap());
    }
    lines
}

/// Number of steps that SQLite takes for a statement.
fn steps(conn: &Connection, sql: &str, values: impl rusqlite::Params) -> i32 {
    let mut statement = conn.prepare(sql).unwrap();
    let mut rows = statement.query(values).unwrap();
    while rows.next().unwrap().is_some() {}
    drop(rows);
    statement.get_status(StatementStatus::VmStep)
}

/// Adds so many blobs of a session, which an event names.
fn add(conn: &Connection, session: &str, count: u32) {
    let sql = "WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < ?2) \
        INSERT INTO blobs (tenant, session, state, name, bytes, named, at, crc) \
        SELECT 'default', ?1, 'whole', printf('%064x', n), 1, 2, 0, 0 FROM n";
    assert_eq!(conn.execute(sql, (session, count)).unwrap(), count as usize);
    conn.execute("INSERT INTO blob_chunks SELECT blob, 0, 0, x'00' FROM blobs", ()).unwrap();
}

/// No statement about blobs scans a table or sorts.
#[test]
fn every_statement_about_blobs_walks_an_index() {
    let (_folder, conn) = open();
    for sql in [
        chunks::FIND,
        chunks::COUNT,
        chunks::NOTE,
        chunks::CHUNK,
        chunks::LIST,
        removal::OF_SESSION,
        removal::WITHOUT_SESSION,
        removal::REMOVED,
        removal::ANY,
        removal::CHUNKS,
        removal::OF,
    ] {
        let plan = plan(&conn, sql);
        let bad = |line: &String| line.contains("SCAN") && !line.contains("CONSTANT ROW");
        assert!(!plan.iter().any(|line| bad(line) || line.contains("TEMP B-TREE")), "{sql}\n{plan:#?}");
        assert!(plan.iter().any(|line| line.contains("USING")), "{sql}\n{plan:#?}");
    }
    for sql in [removal::OF_SESSION, removal::WITHOUT_SESSION] {
        let plan = plan(&conn, sql);
        assert!(plan[0].contains("blobs_unnamed"), "what events name is passed over: {plan:#?}");
    }
    assert!(plan(&conn, chunks::COUNT)[0].contains("COVERING INDEX"), "no bytes are read");
}

/// With 10,000 blobs that events name, a sweep looks at none of them, and one more blob is found, counted, named and
/// removed in as many steps as one of two.
#[test]
fn named_blobs_cost_nothing() {
    let (name, id) = (format!("{:064x}", 1), "018f4e9a-7a2b-7c3d-8e4f-ffffffffffff");
    let counts = [2, 10_000].map(|count| {
        let (_folder, conn) = open();
        add(&conn, id, count);
        let of_one = (id, "default");
        [
            steps(&conn, chunks::FIND, ("default", id, &name)),
            steps(&conn, chunks::COUNT, (1, 1)),
            steps(&conn, chunks::NOTE, (1, "default", id, &name)),
            steps(&conn, chunks::CHUNK, (1, 0, "default")),
            steps(&conn, removal::OF_SESSION, ("default", id, 0, 0)),
            steps(&conn, removal::WITHOUT_SESSION, ("default", id, 0, 0)),
            steps(&conn, removal::REMOVED, [of_one.1]),
            steps(&conn, read::NEWEST, ("default", id, 0, i64::MAX, 50)),
        ]
    });
    assert_eq!(counts[0], counts[1]);
}
