//! Reads of a session: the record, a page of the log, the heartbeat. Each is one statement, and so sees one snapshot.

use std::path::Path;
use std::sync::Arc;

use agent_core::event::Event;
use agent_core::json::to_text;
use agent_core::session::SessionRecord;
use agent_core::store::{Damaged, EventPage, LeaseStatus, ReadEvents};
use agent_core::{Epoch, Error, Seq, SessionId};
use rusqlite::types::Value;
use rusqlite::{Connection, Row, params, params_from_iter};

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

/// Range of a session's own log: the first and the last number that there should be.
#[derive(Clone, Copy, Debug)]
struct Extent {
    first: Seq,
    last: Seq,
}

impl Extent {
    fn of(row: &Row<'_>) -> rusqlite::Result<Self> {
        let (head, base) = (seq(number(row, 3)?), seq(number(row, 4)?));
        let last = optional(row, 5)?.map_or(head, |kept| seq(kept).min(head));
        Ok(Self { first: base.next(), last })
    }
}

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
    let Some(Walked { extent, events, is_full, bad }) = walk(conn, tenant, id, read, most)? else {
        return Ok(None);
    };
    let Some(extent) = extent else { return absent(conn, tenant, id).map(Some) };
    let is_at_the_end = bad.is_none() && !is_full;
    let bad = if is_at_the_end { gap(read, extent, &events, None, &id.to_string()) } else { bad };
    let is_empty = events.is_empty();
    let page = || EventPage::collect(read, events.into_iter().map(Ok));
    let Some(bad) = bad else { return Ok(Some(Found::Whole(page()?))) };
    if is_empty {
        return Err(bad.into());
    }
    let page = page()?;
    if page.next.is_some() {
        return Ok(Some(Found::Whole(page)));
    }
    let damaged = Damaged::new(format!("session {id}"), bad.to_string());
    Ok(Some(Found::Whole(page.with_damaged(vec![damaged]))))
}

/// Result of walking along the log for a page.
#[derive(Debug, Default)]
struct Walked {
    /// Range of the log; `None` if the session has no record.
    extent: Option<Extent>,
    events: Vec<Event>,
    /// True if the page is full, so that the rows after it were not read.
    is_full: bool,
    /// Error in the rows after the events.
    bad: Option<Error>,
}

/// Reads the rows of a page, up to the first that is damaged or missing; `None` if they have more than `most` bytes.
fn walk(
    conn: &Connection,
    tenant: &str,
    id: SessionId,
    read: &ReadEvents,
    most: usize,
) -> Step<Option<Walked>> {
    let limit = read.limit.min(agent_core::store::PAGE_MAX);
    let name = id.to_string();
    let (sql, values) = page_query(tenant, &name, read, limit);
    let mut statement = conn.prepare_cached(sql)?;
    let mut rows = statement.query(params_from_iter(values))?;
    let (mut walked, mut bytes, mut found) = (Walked::default(), 0, 0);
    while let Some(row) = rows.next()? {
        if optional(row, 0)?.is_none() {
            walked.extent = Some(Extent::of(row)?);
            continue;
        }
        found += row.get_ref(2)?.as_bytes().map_or(0, <[u8]>::len);
        if found > most {
            return Ok(None);
        }
        let gap_before = |event: &Event| {
            walked.extent.and_then(|it| gap(read, it, &walked.events, Some(event.seq), &name))
        };
        let event =
            match event(row, 0, tenant, &name)?.and_then(|event| gap_before(&event).map_or(Ok(event), Err)) {
                Ok(event) => event,
                Err(error) => {
                    walked.bad = Some(error);
                    break;
                }
            };
        bytes += event.size_bytes();
        walked.is_full =
            walked.events.len() >= limit || (!walked.events.is_empty() && bytes > read.max_bytes);
        walked.events.push(event);
        if walked.is_full {
            break;
        }
    }
    Ok(Some(walked))
}

/// Returns the statement of a page, and its values.
fn page_query(tenant: &str, session: &str, read: &ReadEvents, limit: usize) -> (&'static str, Vec<Value>) {
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
        int(limit as u64).saturating_add(1).into(),
    ];
    if !read.kinds.is_empty() {
        values.push(to_text(&read.kinds).into());
    }
    (sql, values)
}

/// Error for a missing event before `next`, or before the end if there is no `next`.
fn gap(
    read: &ReadEvents,
    extent: Extent,
    so_far: &[Event],
    next: Option<Seq>,
    session: &str,
) -> Option<Error> {
    if !read.kinds.is_empty() {
        return None;
    }
    let first = read.after.next().max(extent.first);
    let last = match read.before {
        Some(before) => Seq::new(before.get().saturating_sub(1)).min(extent.last),
        None => extent.last,
    };
    let before = |seq: Seq| seq.get().saturating_sub(1);
    let (due, end) = if read.newest {
        (so_far.last().map_or(last.get(), |event| before(event.seq)), before(first))
    } else {
        (so_far.last().map_or(first, |event| event.seq.next()).get(), last.next().get())
    };
    let is_there = match next {
        Some(next) => next.get() == due,
        None if read.newest => due <= end,
        None => due >= end,
    };
    (!is_there).then(|| {
        Error::corrupt(format!("event {due} of session {session} is missing; restore it from a backup"))
    })
}
