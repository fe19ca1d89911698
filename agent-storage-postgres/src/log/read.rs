//! Reads of a session: a page of the log, the head, the heartbeat. Each is one statement, and so sees one snapshot.

use agent_core::store::{EventPage, LeaseStatus, LogPage, PAGE_MAX, ReadEvents};
use agent_core::{Seq, SessionId};
use sqlx::Row;
use sqlx::postgres::PgRow;

use crate::error::Step;
use crate::medium::db::Db;
use crate::medium::rows::{int, seq};
use crate::medium::stored::{event, is_left, no_session};

/// Returns the session's head; `None` if its record must be rebuilt.
pub(crate) async fn head(db: &mut Db, id: SessionId) -> Step<Option<Seq>> {
    let sql = "SELECT head FROM @.sessions WHERE tenant = $1 AND session = $2";
    match db.first(db.query(sql).bind(*id.as_uuid())).await? {
        Some(row) => Ok(Some(seq(row.try_get(0)?))),
        None => absent(db, id).await,
    }
}

/// Returns the heartbeat of the session's lease holder; `None` if the session's record must be rebuilt.
pub(crate) async fn lease_status(db: &mut Db, id: SessionId) -> Step<Option<LeaseStatus>> {
    let sql = "SELECT h.heartbeat FROM @.sessions s LEFT JOIN @.heartbeats h USING (tenant, session) \
        WHERE s.tenant = $1 AND s.session = $2";
    match db.first(db.query(sql).bind(*id.as_uuid())).await? {
        // Nobody on another machine can prove that a holder is dead.
        Some(row) => {
            let heartbeat: Option<i64> = row.try_get(0)?;
            Ok(Some(LeaseStatus::new(seq(heartbeat.unwrap_or(0)).get(), false)))
        }
        None => absent(db, id).await,
    }
}

/// Returns `None` for a session without a record if any part of it is left. Otherwise fails because the session does not
/// exist.
async fn absent<T>(db: &mut Db, id: SessionId) -> Step<Option<T>> {
    if is_left(db, id).await? { Ok(None) } else { Err(no_session(id).into()) }
}

/// Bytes of an event's JSON, at most, beside what counts for the size of a page.
const HEADER: i64 = 4096;

/// Statement whose row without a number describes the session, and whose other rows are its events. It returns no event
/// behind the one that shows, for certain, that the page is full, and none that a purge is removing.
macro_rules! read_sql {
    ($kinds:literal, $order:literal) => {
        concat!(
            "SELECT NULL::bigint, NULL::integer, NULL::text, head, base, kept FROM @.sessions \
             WHERE tenant = $1 AND session = $2 UNION ALL (\
             SELECT seq, crc, json, NULL, NULL, NULL FROM (\
             SELECT *, coalesce(sum(greatest(octet_length(json) - $7, 0)) OVER (ORDER BY seq",
            $order,
            " ROWS BETWEEN UNBOUNDED PRECEDING AND 2 PRECEDING), 0) AS bytes FROM (\
             SELECT seq, crc, json FROM @.events WHERE tenant = $1 AND session = $2 AND seq > $3 AND seq < $4 \
             AND seq <= coalesce((SELECT kept FROM @.sessions WHERE tenant = $1 AND session = $2), $4)",
            $kinds,
            " ORDER BY seq",
            $order,
            " LIMIT $5) AS page) AS cut WHERE bytes <= $6 ORDER BY seq",
            $order,
            ")"
        )
    };
}

pub(crate) const OLDEST: &str = read_sql!("", "");
pub(crate) const NEWEST: &str = read_sql!("", " DESC");
const OLDEST_OF: &str = read_sql!(" AND type = ANY ($8)", "");
const NEWEST_OF: &str = read_sql!(" AND type = ANY ($8)", " DESC");

/// Returns a page of the session's own events; `None` if its record must be rebuilt.
pub(crate) async fn read(db: &mut Db, id: SessionId, read: &ReadEvents) -> Step<Option<EventPage>> {
    if read.limit == 0 {
        return Ok(head(db, id).await?.map(|_| EventPage::default()));
    }
    let sql = match (read.newest, read.kinds.is_empty()) {
        (false, true) => OLDEST,
        (true, true) => NEWEST,
        (false, false) => OLDEST_OF,
        (true, false) => NEWEST_OF,
    };
    let limit = read.limit.min(PAGE_MAX);
    let mut statement = db
        .query(sql)
        .bind(*id.as_uuid())
        .bind(int(read.after.get()))
        .bind(read.before.map_or(i64::MAX, |before| int(before.get())))
        // One more than requested shows whether there is another page.
        .bind(int(limit as u64 + 1))
        .bind(int(read.max_bytes as u64))
        .bind(HEADER);
    if !read.kinds.is_empty() {
        let kinds: Vec<_> = read.kinds.iter().map(|kind| kind.as_str().to_owned()).collect();
        statement = statement.bind(kinds);
    }
    let rows = db.rows(statement).await?;
    match page(&rows, &db.scope.tenant, id, read)? {
        Some(page) => Ok(Some(page.finish()?)),
        None => absent(db, id).await,
    }
}

/// Reads the rows of a page; `None` if the session has no record.
fn page<'r>(rows: &[PgRow], tenant: &str, id: SessionId, read: &'r ReadEvents) -> Step<Option<LogPage<'r>>> {
    let (name, mut page, mut events) = (id.to_string(), None, Vec::with_capacity(rows.len()));
    for row in rows {
        if row.try_get::<Option<i64>, _>(0)?.is_some() {
            events.push(row);
            continue;
        }
        let (head, base) = (seq(row.try_get(3)?), seq(row.try_get(4)?));
        let kept: Option<i64> = row.try_get(5)?;
        page = Some(LogPage::new(id, read, base, kept.map_or(head, |kept| seq(kept).min(head))));
    }
    let Some(mut page) = page else { return Ok(None) };
    for row in events {
        if !page.push(event(row, 0, tenant, &name)?) {
            break;
        }
    }
    Ok(Some(page))
}
