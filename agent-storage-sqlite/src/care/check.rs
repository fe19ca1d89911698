//! Checks of the whole file: its structure, its schema, and rows that another program deleted or changed.

use agent_core::session::SessionRecord;
use agent_core::{SessionId, WorkspaceId};
use rusqlite::Connection;
use rusqlite::types::ValueRef;

use crate::blobs::check as blobs;
use crate::error::{Step, corrupt};
use crate::medium::rows::{each, first_number, number, text};
use crate::medium::session_rows;
use crate::medium::stored::record;
use crate::schema;

/// Most findings that each check reports.
const MOST: usize = 100;

/// Checks for rows without a required related row: the text of the finding, and the query. The first two columns of
/// the query are a tenant and a session.
const LOST: [(&str, &str); 3] = [
    (
        "has no row in the table logs; run `chat rebuild` to restore the row",
        "SELECT tenant, id FROM sessions s WHERE NOT EXISTS (SELECT 1 FROM logs l \
         WHERE l.log = s.log AND l.tenant = s.tenant AND l.session = s.id) \
         UNION SELECT tenant, session FROM tombstones t WHERE NOT EXISTS (SELECT 1 FROM logs l \
         WHERE l.tenant = t.tenant AND l.session = t.session)",
    ),
    (
        "has no row in the table sessions, so that lists do not show it; run `chat rebuild` to restore the row",
        "SELECT tenant, session FROM logs l WHERE NOT EXISTS (SELECT 1 FROM sessions s WHERE s.log = l.log)",
    ),
    (
        "has no row in the table tombstones; run `chat rebuild` to restore the row",
        "SELECT tenant, id FROM sessions s WHERE kept IS NOT NULL AND NOT EXISTS (SELECT 1 FROM tombstones t \
         WHERE t.tenant = s.tenant AND t.session = s.id)",
    ),
];

/// Returns the damage that is found in the file.
pub(crate) fn file(conn: &Connection) -> Step<Vec<String>> {
    let mut found = schema::foreign(conn)?;
    each(conn, &format!("PRAGMA integrity_check({MOST})"), [], |row| {
        let what = text(row, 0)?.unwrap_or("a value that is not text");
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
    columns(conn, &mut found)?;
    blobs::check(conn, MOST, &mut found)?;
    let lost = "SELECT DISTINCT log FROM events e WHERE NOT EXISTS (SELECT 1 FROM logs l WHERE l.log = e.log) \
        AND NOT EXISTS (SELECT 1 FROM sessions s WHERE s.log = e.log)";
    each(conn, &format!("{lost} LIMIT {MOST}"), [], |row| {
        let log: i64 = row.get(0)?;
        found.push(format!("log {log} has events, but no row names its session; restore it from a backup"));
        Ok(())
    })?;
    Ok(found)
}

/// Reports the sessions whose list data another program has changed: columns beside the record, or labels.
fn columns(conn: &Connection, found: &mut Vec<String>) -> Step<()> {
    let names = "workspace, owner, state, reason, head, base, epoch, creator, parent, created_at, last_active_at, next_due_at, \
        title";
    let sql = format!("SELECT record, record_crc, tenant, id, log, {names} FROM sessions");
    let most = found.len() + MOST;
    each(conn, &sql, [], |row| {
        let (Some(tenant), Some(name)) = (text(row, 2)?, text(row, 3)?) else { return Ok(()) };
        // A damaged record is reported when it is read.
        let Ok(id) = name.parse::<SessionId>() else { return Ok(()) };
        let Some(session) = record(row, 0, tenant, id)? else { return Ok(()) };
        let mut what = None;
        for (name, value) in session_rows::columns(&session) {
            // Compared as stored: another program may have stored bytes that are not text.
            if row.get_ref(name)? != ValueRef::from(&value) {
                what = Some(format!("another {name} in the table sessions than its record says"));
                break;
            }
        }
        if what.is_none() && !has_labels(conn, number(row, 4)?, &session)? {
            what = Some("other rows in the table labels than its record has labels".to_owned());
        }
        if let Some(what) = what.filter(|_| found.len() < most) {
            found.push(format!(
                "session {id} of tenant {tenant} has {what}; run `chat rebuild` to restore the row"
            ));
        }
        Ok(())
    })
}

/// Returns whether the label rows under a log are exactly those of the session's labels, one for each.
fn has_labels(conn: &Connection, log: i64, session: &SessionRecord) -> Step<bool> {
    let (mut count, mut is_same) = (0, true);
    let sql = "SELECT l.key, l.value, s.id IS NOT NULL FROM labels l LEFT JOIN sessions s ON s.log = l.log \
        AND s.tenant = l.tenant AND s.id = l.session AND (s.last_active_at = l.last_active_at OR s.is_recent = 1) \
        WHERE l.log = ?";
    each(conn, sql, [log], |row| {
        count += 1;
        let label = text(row, 0)?.and_then(|key| session.attributes.labels.get(key));
        is_same &= label.is_some() && label.map(String::as_str) == text(row, 1)? && row.get(2)?;
        Ok(())
    })?;
    Ok(is_same && count == session.attributes.labels.len())
}

/// Returns the sessions of a tenant that have a log and no row in `sessions`, each with the workspace that it was
/// created in, if that is readable.
pub(crate) fn without_row(conn: &Connection, tenant: &str) -> Step<Vec<(SessionId, Option<WorkspaceId>)>> {
    let mut found = Vec::new();
    let sql = "SELECT session, (SELECT iif(json_valid(json), json ->> '$.data.workspace', NULL) FROM events e \
        WHERE e.log = l.log ORDER BY seq LIMIT 1) FROM logs l \
        WHERE tenant = ? AND NOT EXISTS (SELECT 1 FROM sessions s WHERE s.log = l.log)";
    each(conn, sql, [tenant], |row| {
        let workspace = text(row, 1)?.and_then(|workspace| workspace.parse().ok());
        found.extend(text(row, 0)?.and_then(|id| id.parse().ok()).map(|id| (id, workspace)));
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
            let what = "do not have the same sessions, so that a fork may not be found; run `verify`, then `rebuild`";
            Err(corrupt("the tables logs and sessions", what).into())
        }
    }
}
