//! What is wrong with the file as a whole: its structure, its schema, and rows that somebody deleted.

use rusqlite::Connection;

use crate::error::{Step, corrupt};
use crate::rows::{each, first_number, text};
use crate::schema;

/// The most things that each look names.
const MOST: usize = 100;

/// Rows that belong together and of which one is gone: what is said of each, and where it is found. A tenant and a session in the
/// first two columns, or a log.
const LOST: [(&str, &str); 4] = [
    (
        "has no row in the table logs; it is found by its record, and rebuild makes the row again",
        "SELECT tenant, id FROM sessions s WHERE NOT EXISTS (SELECT 1 FROM logs l \
         WHERE l.log = s.log AND l.tenant = s.tenant AND l.session = s.id) \
         UNION SELECT tenant, session FROM tombstones t WHERE NOT EXISTS (SELECT 1 FROM logs l \
         WHERE l.tenant = t.tenant AND l.session = t.session)",
    ),
    (
        "has no row in the table sessions, so that lists do not show it; rebuild makes the row again",
        "SELECT tenant, session FROM logs l WHERE NOT EXISTS (SELECT 1 FROM sessions s WHERE s.log = l.log)",
    ),
    (
        "has no row in the table tombstones; rebuild makes the row again",
        "SELECT tenant, id FROM sessions s WHERE kept IS NOT NULL AND NOT EXISTS (SELECT 1 FROM tombstones t \
         WHERE t.tenant = s.tenant AND t.session = s.id)",
    ),
    (
        "has other rows in the table labels than its record has labels; rebuild makes the rows again",
        "SELECT tenant, id FROM sessions s WHERE json_valid(record) AND (SELECT count(*) FROM labels l \
         WHERE l.log = s.log AND l.tenant = s.tenant AND l.session = s.id) \
         IS NOT (SELECT count(*) FROM json_each(s.record, '$.attributes.labels'))",
    ),
];

/// Names what is wrong with the file.
pub(crate) fn file(conn: &Connection) -> Step<Vec<String>> {
    let mut found = schema::foreign(conn)?;
    each(conn, &format!("PRAGMA integrity_check({MOST})"), [], |row| {
        let what = text(row, 0)?.unwrap_or("something that is no text");
        if what != "ok" {
            found.push(what.to_owned());
        }
        Ok(())
    })?;
    for (what, sql) in LOST {
        each(conn, &format!("{sql} LIMIT {MOST}"), [], |row| {
            let (tenant, session) = (text(row, 0)?.unwrap_or("?"), text(row, 1)?.unwrap_or("?"));
            found.push(format!("session {session} of tenant {tenant} {what}"));
            Ok(())
        })?;
    }
    let lost = "SELECT DISTINCT log FROM events e WHERE NOT EXISTS (SELECT 1 FROM logs l WHERE l.log = e.log) \
        AND NOT EXISTS (SELECT 1 FROM sessions s WHERE s.log = e.log)";
    each(conn, &format!("{lost} LIMIT {MOST}"), [], |row| {
        let log: i64 = row.get(0)?;
        found.push(format!(
            "log {log} has events, and no row says of which session; restore it from a backup"
        ));
        Ok(())
    })?;
    Ok(found)
}

/// Fails if there are logs without a row in `sessions`, or such rows without a log: lists do not show them.
pub(crate) fn rows_are_whole(conn: &Connection) -> Step<()> {
    let sql = "SELECT (SELECT count(*) FROM logs) - (SELECT count(*) FROM sessions)";
    match first_number(conn, sql, [])? {
        Some(0) => Ok(()),
        _ => {
            let what =
                "do not tell of the same sessions, so that a fork may not be found; run verify, and rebuild";
            Err(corrupt("the tables logs and sessions", what).into())
        }
    }
}
