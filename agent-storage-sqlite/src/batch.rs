//! What the commits of a transaction come to: written in as few round trips to SQLite's thread as there can be.

use std::fmt::Write;

use agent_core::{Event, Session, SessionSummary, Timestamp};
use futures::TryStreamExt;
use sqlx::query::Query;
use sqlx::sqlite::{Sqlite, SqliteArguments, SqliteConnection};
use sqlx::{AssertSqlSafe, query};

use crate::rows::{checksum, event_checksum, int};

/// How many rows one statement takes. Each shape has a prepared statement of its own, so that there are few.
const EVENTS: [usize; 10] = [64, 16, 8, 7, 6, 5, 4, 3, 2, 1];
const RECORDS: [usize; 10] = [16, 8, 7, 6, 5, 4, 3, 2, 1, 0];

/// The most events of a commit that is written at once.
const AT_ONCE: usize = 8;

type All<'q> = Query<'q, Sqlite, SqliteArguments>;

/// An event as it is stored.
#[derive(Debug)]
struct EventRow {
    log: i64,
    seq: i64,
    kind: String,
    crc: i64,
    json: String,
}

/// What of a record changes from commit to commit, as it is stored.
#[derive(Debug)]
struct RecordRow {
    log: i64,
    state: &'static str,
    reason: &'static str,
    head: i64,
    epoch: Option<i64>,
    last_active_at: i64,
    due_at: Option<i64>,
    title: Option<String>,
    summary_crc: i64,
    record_crc: i64,
    summary: String,
    record: String,
}

/// Events and records that the transaction has still to write.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    events: Vec<EventRow>,
    records: Vec<RecordRow>,
    /// As whom this process holds the leases that it takes.
    holder: Option<String>,
}

impl Batch {
    pub(crate) fn new(holder: Option<&str>) -> Self {
        Self { holder: holder.map(str::to_owned), ..Self::default() }
    }

    pub(crate) fn holder(&self) -> Option<&str> {
        self.holder.as_deref()
    }

    pub(crate) fn add_events(&mut self, tenant: &str, log: i64, session: &Session, events: &[Event]) {
        let id = session.id.to_string();
        self.events.extend(events.iter().map(|event| {
            let json = event.to_json();
            EventRow {
                log,
                seq: int(event.seq.get()),
                kind: event.kind.as_str().to_owned(),
                crc: event_checksum(tenant, &id, event.seq, &json),
                json,
            }
        }));
    }

    /// The last record of a session is the one that is written.
    pub(crate) fn add_record(&mut self, tenant: &str, log: i64, session: &Session) {
        self.records.retain(|record| record.log != log);
        self.records.push(RecordRow::new(tenant, log, session));
    }

    /// Writes all, inside the transaction that is open.
    pub(crate) async fn write(&mut self, conn: &mut SqliteConnection) -> sqlx::Result<()> {
        let (events, records) = (std::mem::take(&mut self.events), std::mem::take(&mut self.records));
        let (mut events, mut records) = (events.as_slice(), records.as_slice());
        while !events.is_empty() || !records.is_empty() {
            let (some, more) = events.split_at(fitting(&EVENTS, events.len()));
            events = more;
            // Records go with the last events: one round trip for a usual turn.
            let count = if events.is_empty() { fitting(&RECORDS, records.len()) } else { 0 };
            let (changed, rest) = records.split_at(count);
            records = rest;
            let mut sql = insert_events(some.len());
            for _ in changed {
                sql.push_str(UPDATE);
                sql.push_str(" WHERE log = ?; ");
            }
            let mut all = query(AssertSqlSafe(sql));
            for event in some {
                all = event.bind(all);
            }
            for record in changed {
                all = record.bind(all).bind(record.epoch).bind(self.holder.clone()).bind(record.log);
            }
            all.execute(&mut *conn).await?;
        }
        Ok(())
    }

    /// Writes one commit to one session in a transaction of its own, in one round trip, where the session's head in the
    /// file is still `head`; else writes nothing.
    pub(crate) async fn write_at_once(self, conn: &mut SqliteConnection, head: i64) -> AtOnce {
        let [record] = self.records.as_slice() else { return AtOnce::Not };
        if self.events.is_empty() || self.events.len() > AT_ONCE {
            return AtOnce::Not;
        }
        let mut all = query(AssertSqlSafe(sql_at_once(self.events.len())));
        for event in &self.events {
            all = event.bind(all);
        }
        all = all.bind(record.log).bind(head);
        let all = record.bind(all).bind(record.epoch).bind(self.holder.clone());
        let mut rows = all.bind(record.log).bind(head).fetch(conn);
        let mut changed = false;
        loop {
            match rows.try_next().await {
                // What RETURNING tells comes before COMMIT.
                Ok(Some(_)) => changed = true,
                Ok(None) if changed => return AtOnce::Done,
                Ok(None) => return AtOnce::Not,
                Err(error) => return AtOnce::Failed { error, committing: changed },
            }
        }
    }
}

/// What became of a commit that was to be written at once.
#[derive(Debug)]
pub(crate) enum AtOnce {
    Done,
    /// Nothing was written, and no transaction is open.
    Not,
    /// SQLite failed, in COMMIT or before it.
    Failed {
        error: sqlx::Error,
        committing: bool,
    },
}

fn fitting(sizes: &[usize], count: usize) -> usize {
    sizes.iter().copied().find(|size| *size <= count).unwrap_or(0)
}

fn insert_events(count: usize) -> String {
    let mut sql = String::new();
    for n in 0..count {
        let start = "INSERT INTO events (log, seq, type, crc, json) VALUES ";
        // Writing to a string cannot fail.
        let _ = write!(sql, "{}(?, ?, ?, ?, ?)", if n == 0 { start } else { ", " });
    }
    sql.push_str(if count > 0 { "; " } else { "" });
    sql
}

fn sql_at_once(events: usize) -> String {
    let rows = vec!["(?, ?, ?, ?, ?)"; events].join(", ");
    format!(
        "BEGIN IMMEDIATE; INSERT INTO events (log, seq, type, crc, json) SELECT v.* FROM (VALUES {rows}) v \
         WHERE EXISTS (SELECT 1 FROM sessions WHERE log = ? AND head = ?); \
         {UPDATE} WHERE log = ? AND head = ? RETURNING 1; COMMIT"
    )
}

const UPDATE: &str = "UPDATE sessions SET state = ?, reason = ?, head = ?, epoch = ?, last_active_at = ?, due_at = ?, title = ?, \
    summary_crc = ?, record_crc = ?, summary = ?, record = ?, holder = iif(epoch IS ?, holder, ?)";

/// Stores the record of a session that has none; the values are those of [`bind_new`].
pub(crate) const INSERT: &str = "INSERT INTO sessions (state, reason, head, epoch, last_active_at, due_at, title, summary_crc, \
    record_crc, summary, record, holder, tenant, id, workspace, base, creator, parent, created_at, log) \
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";

/// Stores the record of a session that has neither record nor log, and returns the log's number; the values are the
/// tenant, the id, and those of [`bind_new`].
pub(crate) const CREATE: &str = "INSERT INTO logs (tenant, session) VALUES (?, ?); \
    INSERT INTO sessions (state, reason, head, epoch, last_active_at, due_at, title, summary_crc, \
    record_crc, summary, record, holder, tenant, id, workspace, base, creator, parent, created_at, log) \
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, last_insert_rowid()) RETURNING log";

/// All values of a record but its log's number.
pub(crate) fn bind_new<'q>(all: All<'q>, tenant: &str, session: &Session, holder: Option<&str>) -> All<'q> {
    RecordRow::new(tenant, 0, session)
        .bind(all)
        .bind(holder.map(str::to_owned))
        .bind(tenant.to_owned())
        .bind(session.id.to_string())
        .bind(session.workspace.as_uuid().to_string())
        .bind(int(session.lineage.base().get()))
        .bind(session.creator.to_string())
        .bind(session.origin.parent().map(|parent| parent.to_string()))
        .bind(session.created_at.as_micros())
}

impl EventRow {
    fn bind<'q>(&self, all: All<'q>) -> All<'q> {
        all.bind(self.log).bind(self.seq).bind(self.kind.clone()).bind(self.crc).bind(self.json.clone())
    }
}

impl RecordRow {
    fn new(tenant: &str, log: i64, session: &Session) -> Self {
        let (id, record) = (session.id.to_string(), session.to_json());
        let summary = serde_json::to_string(&SessionSummary::from(session)).unwrap_or_default();
        Self {
            log,
            state: session.status.state.as_str(),
            reason: session.status.reason.as_str(),
            head: int(session.head.get()),
            epoch: session.lease.as_ref().map(|lease| int(lease.epoch.get())),
            last_active_at: session.last_active_at.as_micros(),
            due_at: session.due_at().map(Timestamp::as_micros),
            title: session.attributes.title.as_ref().map(|title| title.text.clone()),
            summary_crc: checksum(&[tenant, &id, &summary]),
            record_crc: checksum(&[tenant, &id, &record]),
            summary,
            record,
        }
    }

    /// The values of [`UPDATE`], in its order, up to the holder.
    fn bind<'q>(&self, all: All<'q>) -> All<'q> {
        all.bind(self.state)
            .bind(self.reason)
            .bind(self.head)
            .bind(self.epoch)
            .bind(self.last_active_at)
            .bind(self.due_at)
            .bind(self.title.clone())
            .bind(self.summary_crc)
            .bind(self.record_crc)
            .bind(self.summary.clone())
            .bind(self.record.clone())
    }
}
