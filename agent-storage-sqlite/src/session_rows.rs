//! The rows of a session, as they are written: its events, its record, its labels.

use agent_core::{Event, Session, SessionSummary, Timestamp};
use rusqlite::{Connection, Result, params};

use crate::rows::{checksum, event_checksum, execute, int};

/// Stores events in a session's log.
pub(crate) fn insert_events(
    conn: &Connection,
    tenant: &str,
    log: i64,
    session: &Session,
    events: &[Event],
) -> Result<()> {
    let id = session.id.to_string();
    let mut insert =
        conn.prepare_cached("INSERT INTO events (log, seq, type, crc, json) VALUES (?, ?, ?, ?, ?)")?;
    for event in events {
        let json = event.to_json();
        let crc = event_checksum(tenant, &id, event.seq, &json);
        insert.execute(params![log, int(event.seq.get()), event.kind.as_str(), crc, json])?;
    }
    Ok(())
}

/// What of a record changes from commit to commit.
#[derive(Debug)]
struct Changing {
    epoch: Option<i64>,
    due_at: Option<i64>,
    summary_crc: i64,
    record_crc: i64,
    summary: String,
    record: String,
}

impl Changing {
    fn of(tenant: &str, session: &Session) -> Self {
        let (id, record) = (session.id.to_string(), session.to_json());
        let summary = serde_json::to_string(&SessionSummary::from(session)).unwrap_or_default();
        Self {
            epoch: session.lease.as_ref().map(|lease| int(lease.epoch.get())),
            due_at: session.due_at().map(Timestamp::as_micros),
            summary_crc: checksum(&[tenant, &id, &summary]),
            record_crc: checksum(&[tenant, &id, &record]),
            summary,
            record,
        }
    }
}

fn title(session: &Session) -> Option<&str> {
    session.attributes.title.as_ref().map(|title| title.text.as_str())
}

/// Stores the record of a session that has one. Whoever takes a lease is noted as its holder, and stays that for as long
/// as the lease lives.
pub(crate) fn update_record(
    conn: &Connection,
    tenant: &str,
    log: i64,
    session: &Session,
    holder: Option<&str>,
) -> Result<()> {
    let changing = Changing::of(tenant, session);
    let sql = "UPDATE sessions SET state = ?, reason = ?, head = ?, last_active_at = ?, due_at = ?, title = ?, \
        summary_crc = ?, record_crc = ?, summary = ?, record = ?, holder = iif(epoch IS ?11, holder, ?12), \
        epoch = ?11 WHERE log = ?13";
    let values = params![
        session.status.state.as_str(),
        session.status.reason.as_str(),
        int(session.head.get()),
        session.last_active_at.as_micros(),
        changing.due_at,
        title(session),
        changing.summary_crc,
        changing.record_crc,
        changing.summary,
        changing.record,
        changing.epoch,
        holder,
        log,
    ];
    match execute(conn, sql, values)? {
        1 => Ok(()),
        changed => Err(rusqlite::Error::StatementChangedRows(changed)),
    }
}

/// Stores the record of a session that has none.
pub(crate) fn insert_record(
    conn: &Connection,
    tenant: &str,
    log: i64,
    session: &Session,
    holder: Option<&str>,
) -> Result<()> {
    let changing = Changing::of(tenant, session);
    let sql = "INSERT INTO sessions (log, tenant, id, workspace, state, reason, head, base, epoch, holder, creator, \
        parent, created_at, last_active_at, due_at, title, summary_crc, record_crc, summary, record) \
        VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";
    let values = params![
        log,
        tenant,
        session.id.to_string(),
        session.workspace.as_uuid().to_string(),
        session.status.state.as_str(),
        session.status.reason.as_str(),
        int(session.head.get()),
        int(session.lineage.base().get()),
        changing.epoch,
        holder,
        session.creator.to_string(),
        session.origin.parent().map(|parent| parent.to_string()),
        session.created_at.as_micros(),
        session.last_active_at.as_micros(),
        changing.due_at,
        title(session),
        changing.summary_crc,
        changing.record_crc,
        changing.summary,
        changing.record,
    ];
    execute(conn, sql, values).map(drop)
}

/// Stores what a commit changes of a session's labels, which carry its recency.
pub(crate) fn update_labels(
    conn: &Connection,
    tenant: &str,
    log: i64,
    before: &Session,
    after: &Session,
) -> Result<()> {
    if before.attributes.labels != after.attributes.labels {
        return replace_labels(conn, tenant, log, after);
    }
    if !after.attributes.labels.is_empty() && before.last_active_at != after.last_active_at {
        let sql = "UPDATE labels SET last_active_at = ? WHERE log = ?";
        execute(conn, sql, params![after.last_active_at.as_micros(), log])?;
    }
    Ok(())
}

/// Stores a session's labels in place of those that there are.
pub(crate) fn replace_labels(conn: &Connection, tenant: &str, log: i64, session: &Session) -> Result<()> {
    execute(conn, "DELETE FROM labels WHERE log = ?", [log])?;
    insert_labels(conn, tenant, log, session)
}

/// Stores the labels of a session that has none yet.
pub(crate) fn insert_labels(conn: &Connection, tenant: &str, log: i64, session: &Session) -> Result<()> {
    let sql =
        "INSERT INTO labels (tenant, key, value, last_active_at, session, log) VALUES (?, ?, ?, ?, ?, ?)";
    for (key, value) in &session.attributes.labels {
        let at = session.last_active_at.as_micros();
        execute(conn, sql, params![tenant, key, value, at, session.id.to_string(), log])?;
    }
    Ok(())
}
