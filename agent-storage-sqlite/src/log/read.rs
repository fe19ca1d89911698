//! Reads of a session: the record, a page of the log, the heartbeat. Each is one statement, and so sees one snapshot.

use std::path::Path;
use std::sync::Arc;

use agent_core::json::to_text;
use agent_core::session::SessionRecord;
use agent_core::store::{EventPage, LeaseStatus, LogPage, PAGE_MAX, ReadEvents};
use agent_core::{Epoch, Seq, SessionId};
use rusqlite::types::Value;
use rusqlite::{Connection, params, params_from_iter};

use crate::error::Step;
use crate::medium::holder::is_dead;
use crate::medium::rows::{first, first_number, int, number, optional, seq, text};
use crate::medium::stored::{event, no_session, record};

/// Result of reading a session.
#[derive(Debug)]
pub(crate) enum Found<T> {
    /// Value that was read.
    Whole(T),
    /// The record is damaged, or missing although there is a log; the writer must rebuild it.
    Broken,
}

/// Returns the session's record.
pub(crate) fn load(conn: &Connection, tenant: &str, id: SessionId) -> Step<Found<Arc<SessionRecord>>> {
    let sql = "SELECT record, record_crc FROM logs JOIN sessions USING (log) \
        WHERE logs.tenant = ? AND session = ?";
    match first(conn, sql, params![tenant, id.to_string()], |row| Ok(record(row, 0, tenant, id)?))? {
        Some(session) => Ok(session.map_or(Found::Broken, |session| Found::Whole(Arc::new(session)))),
        None => absent(conn, tenant, id),
    }
}

/// Returns the session's head.
pub(crate) fn head(conn: &Connection, tenant: &str, id: SessionId) -> Step<Found<Seq>> {
    let sql = "SELECT head FROM logs JOIN sessions USING (log) WHERE logs.tenant = ? AND session = ?";
    match first_number(conn, sql, params![tenant, id.to_string()])? {
        Some(head) => Ok(Found::Whole(seq(head))),
        None => absent(conn, tenant, id),
    }
}

/// Returns the heartbeat of the session's lease holder. The holder is dead if the lease has that epoch and its
/// holder's lock is free.
pub(crate) fn lease_status(
    conn: &Connection,
    database: &Path,
    tenant: &str,
    id: SessionId,
    epoch: Epoch,
) -> Step<Found<LeaseStatus>> {
    let sql = "SELECT (SELECT heartbeat FROM heartbeats WHERE log = sessions.log), epoch, holder \
        FROM logs JOIN sessions USING (log) WHERE logs.tenant = ? AND session = ?";
    let found = first(conn, sql, params![tenant, id.to_string()], |row| {
        let held = optional(row, 1)?;
        let heartbeat = seq(optional(row, 0)?.unwrap_or(0)).get();
        let holder = text(row, 2)?.filter(|_| held == Some(int(epoch.get())));
        Ok(LeaseStatus::new(heartbeat, holder.is_some_and(|name| is_dead(database, name))))
    })?;
    found.map_or_else(|| absent(conn, tenant, id), |lease_status| Ok(Found::Whole(lease_status)))
}

/// Returns `Broken` for a session without a record or a log if any part of it is left: a log, a tombstone or a record.
/// Otherwise fails because the session does not exist.
fn absent<T>(conn: &Connection, tenant: &str, id: SessionId) -> Step<Found<T>> {
    let sql = "SELECT EXISTS (SELECT 1 FROM logs JOIN events USING (log) WHERE tenant = ?1 AND session = ?2) \
        OR EXISTS (SELECT 1 FROM tombstones WHERE tenant = ?1 AND session = ?2) \
        OR EXISTS (SELECT 1 FROM sessions INDEXED BY sessions_by_id WHERE tenant = ?1 AND id = ?2)";
    let left = first_number(conn, sql, params![tenant, id.to_string()])?;
    if left == Some(1) { Ok(Found::Broken) } else { Err(no_session(id).into()) }
}

/// Statement whose first row describes the session, and whose other rows are its events.
macro_rules! read_sql {
    ($kinds:literal, $order:literal) => {
        concat!(
            "SELECT NULL, NULL, NULL, head, base, kept FROM logs JOIN sessions USING (log) \
             WHERE logs.tenant = ?1 AND session = ?2 UNION ALL SELECT * FROM (\
             SELECT seq, crc, json, NULL, NULL, NULL FROM events \
             WHERE log = (SELECT log FROM logs WHERE tenant = ?1 AND session = ?2) AND seq > ?3 AND seq < ?4",
            $kinds,
            " ORDER BY seq",
            $order,
            " LIMIT ?5)"
        )
    };
}

pub(crate) const OLDEST: &str = read_sql!("", "");
pub(crate) const NEWEST: &str = read_sql!("", " DESC");
const OLDEST_OF: &str = read_sql!(" AND type IN (SELECT value FROM json_each(?6))", "");
const NEWEST_OF: &str = read_sql!(" AND type IN (SELECT value FROM json_each(?6))", " DESC");

/// Returns a page of the session's own events; `None` if it has more than `most` bytes.
pub(crate) fn read(
    conn: &Connection,
    tenant: &str,
    id: SessionId,
    read: &ReadEvents,
    most: usize,
) -> Step<Option<Found<EventPage>>> {
    if read.limit == 0 {
        return Ok(Some(match head(conn, tenant, id)? {
            Found::Whole(_) => Found::Whole(EventPage::default()),
            Found::Broken => Found::Broken,
        }));
    }
    Ok(match walk(conn, tenant, id, read, most)? {
        Walked::TooLarge => None,
        Walked::NoRecord => Some(absent(conn, tenant, id)?),
        Walked::Page(page) => Some(Found::Whole(page.finish()?)),
    })
}

/// Result of walking along the log for a page.
#[derive(Debug)]
enum Walked<'r> {
    Page(LogPage<'r>),
    /// The session has no record.
    NoRecord,
    /// The rows have more bytes than may be read.
    TooLarge,
}

/// Reads the rows of a page, up to the first that is damaged or missing, if they have at most `most` bytes.
fn walk<'r>(
    conn: &Connection,
    tenant: &str,
    id: SessionId,
    read: &'r ReadEvents,
    most: usize,
) -> Step<Walked<'r>> {
    let name = id.to_string();
    let (sql, values) = page_query(tenant, &name, read);
    let mut statement = conn.prepare_cached(sql)?;
    let mut rows = statement.query(params_from_iter(values))?;
    // The first row is that of the session, if it has a record.
    let Some(row) = rows.next()? else { return Ok(Walked::NoRecord) };
    if optional(row, 0)?.is_some() {
        return Ok(Walked::NoRecord);
    }
    let (head, base) = (seq(number(row, 3)?), seq(number(row, 4)?));
    let last = optional(row, 5)?.map_or(head, |kept| seq(kept).min(head));
    let (mut page, mut found) = (LogPage::new(id, read, base, last), 0);
    while let Some(row) = rows.next()? {
        found += row.get_ref(2)?.as_bytes().map_or(0, <[u8]>::len);
        if found > most {
            return Ok(Walked::TooLarge);
        }
        if !page.push(event(row, 0, tenant, &name)?) {
            break;
        }
    }
    Ok(Walked::Page(page))
}

/// Returns the statement of a page, and its values.
fn page_query(tenant: &str, session: &str, read: &ReadEvents) -> (&'static str, Vec<Value>) {
    let sql = match (read.newest, read.kinds.is_empty()) {
        (false, true) => OLDEST,
        (true, true) => NEWEST,
        (false, false) => OLDEST_OF,
        (true, false) => NEWEST_OF,
    };
    let mut values: Vec<Value> = vec![
        tenant.to_owned().into(),
        session.to_owned().into(),
        int(read.after.get()).into(),
        read.before.map_or(i64::MAX, |before| int(before.get())).into(),
        // One more than requested shows whether there is another page.
        int(read.limit.min(PAGE_MAX) as u64 + 1).into(),
    ];
    if !read.kinds.is_empty() {
        values.push(to_text(&read.kinds).into());
    }
    (sql, values)
}
