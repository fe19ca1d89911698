//! Writes the rows of a session: its events, its record, its labels.

use agent_core::Timestamp;
use agent_core::event::Event;
use agent_core::json::to_text;
use agent_core::session::{SessionRecord, SessionSummary};
use rusqlite::types::Value;
use rusqlite::{Connection, Result, params, params_from_iter};

use crate::medium::known::StoredSession;
use crate::medium::rows::{checksum, event_checksum, execute, first_number, int};

/// Values of the rows that a commit writes, which are made before the writer's turn.
#[derive(Debug)]
pub(crate) struct Rows {
    pub(crate) record: Changing,
    /// The checksum and the JSON of each event.
    events: Vec<(i64, String)>,
}

impl Rows {
    pub(crate) fn of(tenant: &str, events: &[Event], after: &SessionRecord) -> Self {
        let id = after.id.to_string();
        let row = |event: &Event| {
            let json = event.to_json();
            (event_checksum(tenant, &id, event.seq, &json), json)
        };
        Self { record: Changing::of(tenant, after), events: events.iter().map(row).collect() }
    }
}

/// Stores events in a session's log.
pub(crate) fn insert_events(conn: &Connection, log: i64, events: &[Event], rows: &Rows) -> Result<()> {
    let mut insert =
        conn.prepare_cached("INSERT INTO events (log, seq, type, crc, json) VALUES (?, ?, ?, ?, ?)")?;
    for (event, (crc, json)) in events.iter().zip(&rows.events) {
        insert.execute(params![log, int(event.seq.get()), event.kind.as_str(), crc, json])?;
    }
    Ok(())
}

/// Columns of a record that change from commit to commit.
#[derive(Debug)]
pub(crate) struct Changing {
    epoch: Option<i64>,
    next_due_at: Option<i64>,
    summary_crc: i64,
    record_crc: i64,
    summary: String,
    record: String,
}

impl Changing {
    pub(crate) fn of(tenant: &str, session: &SessionRecord) -> Self {
        let (id, record) = (session.id.to_string(), session.to_json());
        let summary = to_text(&SessionSummary::from(session));
        Self {
            epoch: session.lease.as_ref().map(|lease| int(lease.epoch.get())),
            next_due_at: session.next_due_at().map(Timestamp::as_micros),
            summary_crc: checksum(&[tenant, &id, &summary]),
            record_crc: checksum(&[tenant, &id, &record]),
            summary,
            record,
        }
    }
}

fn title(session: &SessionRecord) -> Option<&str> {
    session.attributes.title.as_ref().map(|title| title.text.as_str())
}

/// Statement that updates a session's row. SQLite writes to each index of which a column is named here, also if its
/// value stays the same, so that columns of indexes are named only if they change.
macro_rules! update_sql {
    ($indexed:literal) => {
        concat!(
            "UPDATE sessions SET reason = ?2, head = ?3, last_active_at = ?4, title = ?6, summary_crc = ?7, \
             record_crc = ?8, summary = ?9, record = ?10, version = random(), holder = iif(epoch IS ?11, holder, ?12), epoch = ?11",
            $indexed,
            " WHERE log = ?13 RETURNING version"
        )
    };
}

/// Updates the stored record of a session, which is one of the recent ones then, and returns its new version. A process that
/// takes a lease is stored as its holder for as long as the lease lasts.
pub(crate) fn update_record(
    conn: &Connection,
    before: &StoredSession,
    session: &SessionRecord,
    changing: &Changing,
    holder: Option<&str>,
) -> Result<i64> {
    let moves = !before.is_recent || before.session.status.state != session.status.state;
    let is_due = before.session.next_due_at() != session.next_due_at();
    let sql = match (moves, is_due) {
        (false, false) => update_sql!(""),
        (false, true) => update_sql!(", next_due_at = ?5"),
        (true, false) => update_sql!(", is_recent = 1, state = ?1"),
        (true, true) => update_sql!(", is_recent = 1, state = ?1, next_due_at = ?5"),
    };
    let values = params![
        session.status.state.as_str(),
        session.status.reason.as_str(),
        int(session.head.get()),
        session.last_active_at.as_micros(),
        changing.next_due_at,
        title(session),
        changing.summary_crc,
        changing.record_crc,
        changing.summary,
        changing.record,
        changing.epoch,
        holder,
        before.log,
    ];
    first_number(conn, sql, values)?.ok_or(rusqlite::Error::StatementChangedRows(0))
}

/// Returns the columns of a session's row that repeat parts of its record, for lists, with their values.
pub(crate) fn columns(session: &SessionRecord) -> [(&'static str, Value); 13] {
    let text = |text: String| Value::Text(text);
    let optional = |number: Option<i64>| number.map_or(Value::Null, Value::Integer);
    [
        ("workspace", text(session.workspace.as_uuid().to_string())),
        ("owner", session.owner.as_ref().map_or(Value::Null, |owner| text(owner.to_string()))),
        ("state", text(session.status.state.as_str().to_owned())),
        ("reason", text(session.status.reason.as_str().to_owned())),
        ("head", Value::Integer(int(session.head.get()))),
        ("base", Value::Integer(int(session.lineage.base().get()))),
        ("epoch", optional(session.lease.as_ref().map(|lease| int(lease.epoch.get())))),
        ("creator", text(session.creator.to_string())),
        ("parent", session.origin.parent().map_or(Value::Null, |parent| text(parent.to_string()))),
        ("created_at", Value::Integer(session.created_at.as_micros())),
        ("last_active_at", Value::Integer(session.last_active_at.as_micros())),
        ("next_due_at", optional(session.next_due_at().map(Timestamp::as_micros))),
        ("title", title(session).map_or(Value::Null, |title| text(title.to_owned()))),
    ]
}

/// Stores the first record of a session, as one of the recent ones if `is_recent`, and returns its version.
pub(crate) fn insert_record(
    conn: &Connection,
    tenant: &str,
    log: i64,
    session: &SessionRecord,
    changing: &Changing,
    holder: Option<&str>,
    is_recent: bool,
) -> Result<i64> {
    let sql = "INSERT INTO sessions (workspace, owner, state, reason, head, base, epoch, creator, parent, created_at, \
        last_active_at, next_due_at, title, log, tenant, id, holder, is_recent, summary_crc, record_crc, summary, \
        record, version) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, random()) RETURNING version";
    let others = [
        Value::Integer(log),
        Value::Text(tenant.to_owned()),
        Value::Text(session.id.to_string()),
        holder.map_or(Value::Null, |holder| Value::Text(holder.to_owned())),
        Value::Integer(i64::from(is_recent)),
        Value::Integer(changing.summary_crc),
        Value::Integer(changing.record_crc),
        Value::Text(changing.summary.clone()),
        Value::Text(changing.record.clone()),
    ];
    let values = columns(session).into_iter().map(|(_, value)| value).chain(others);
    first_number(conn, sql, params_from_iter(values))?.ok_or(rusqlite::Error::StatementChangedRows(0))
}

/// Stores the changes of a commit to a session's labels. Their time stays as it was until the session is no recent one.
pub(crate) fn update_labels(
    conn: &Connection,
    tenant: &str,
    before: &StoredSession,
    after: &SessionRecord,
) -> Result<()> {
    if before.session.attributes.labels == after.attributes.labels {
        return Ok(());
    }
    replace_labels(conn, tenant, before.log, after)
}

/// Replaces a session's stored labels.
pub(crate) fn replace_labels(
    conn: &Connection,
    tenant: &str,
    log: i64,
    session: &SessionRecord,
) -> Result<()> {
    execute(conn, "DELETE FROM labels WHERE log = ?", [log])?;
    insert_labels(conn, tenant, log, session)
}

/// Stores the labels of a session that has none yet.
pub(crate) fn insert_labels(
    conn: &Connection,
    tenant: &str,
    log: i64,
    session: &SessionRecord,
) -> Result<()> {
    let sql =
        "INSERT INTO labels (tenant, key, value, last_active_at, session, log) VALUES (?, ?, ?, ?, ?, ?)";
    for (key, value) in &session.attributes.labels {
        let at = session.last_active_at.as_micros();
        execute(conn, sql, params![tenant, key, value, at, session.id.to_string(), log])?;
    }
    Ok(())
}
