//! Pending rewrite of the file, because it may contain copies of erased rows.
//!
//! SQLite overwrites what it deletes, but leaves copies of rows that it has moved to another page in the unused part of the
//! former page. Each transaction that erases rows counts in `erased`. A rewrite reads that number first, and stores it in
//! `rewritten` when the file is rewritten and its log emptied. So what is erased meanwhile stays pending, and a rewrite
//! that was cut off at any step is pending as before.

use rusqlite::Connection;

use crate::medium::rows::{execute, first_number};

/// Records that the transaction erases rows.
pub(crate) fn mark(conn: &Connection) -> rusqlite::Result<()> {
    let sql = "INSERT INTO rewrites (id, erased, rewritten) VALUES (1, 1, 0) \
        ON CONFLICT (id) DO UPDATE SET erased = erased + 1";
    execute(conn, sql, []).map(drop)
}

/// Returns the number that a rewrite which begins now has to store; `None` if none is pending.
pub(crate) fn pending(conn: &Connection) -> rusqlite::Result<Option<i64>> {
    first_number(conn, "SELECT erased FROM rewrites WHERE erased > rewritten", [])
}

/// Records that all rows which were erased before `pending` returned this number are gone.
pub(crate) fn finish(conn: &Connection, erased: i64) -> rusqlite::Result<usize> {
    execute(conn, "UPDATE rewrites SET rewritten = max(rewritten, ?)", [erased])
}
