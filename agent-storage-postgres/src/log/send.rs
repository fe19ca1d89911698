//! The one round trip of a commit: the function `commit` of the schema, and its answer.

use std::sync::Arc;

use agent_core::SessionId;
use agent_core::model::NeededBlob;
use agent_core::session::SessionRecord;
use sqlx::Row;

use crate::error::{BLOB_MISSING, Fault, LOG_TORN, Step, is_duplicate, sqlstate};
use crate::medium::db::{Db, Statement};
use crate::medium::known::Versioned;
use crate::medium::rows::int;
use crate::medium::session_rows::{
    Rows, class, due_at, is_rare, is_shared, labels, listed_at, needed, new_version, owner, waits,
};
use crate::medium::stored::Stored;

/// Answer of the database to a commit.
#[derive(Debug)]
pub(crate) enum Sent {
    /// The commit is stored; the record has this version.
    Applied(i64),
    /// Another record is stored, or none; nothing was written.
    Stale(Stored),
    /// A blob is missing that the commit needs.
    NoBlob,
    /// The log does not end where the record says, or there is one although there is no record.
    Torn,
    /// The session that the new one is created from does not exist.
    NoParent,
    /// The session that the new one is created from is deleted.
    DeletedParent,
}

const COMMIT: &str = "SELECT outcome, version, record, record_crc FROM @.commit($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, \
    $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24, $25, $26, $27, $28, $29, $30, $31, $32, $33, $34, $35, $36, \
    $37, $38)";

/// Sends a commit that was planned on the record `before`.
pub(crate) async fn send(
    db: &mut Db,
    before: Option<&Versioned>,
    after: &SessionRecord,
    blobs: &[NeededBlob],
    rows: &Rows,
) -> Step<Sent> {
    let next = new_version()?;
    let statement = statement(db, before, after, next);
    let due = match before.map(|before| (waits(&before.session), &before.session)) {
        _ if waits(after) => "set",
        Some((true, _)) => "drop",
        _ => "keep",
    };
    let is_due_same = before.is_some_and(|before| {
        waits(&before.session) == waits(after)
            && due_at(&before.session) == due_at(after)
            && before.session.status.state == after.status.state
    });
    let is_relabelled =
        before.is_none_or(|before| before.session.attributes.labels != after.attributes.labels);
    let ((keys, values), (needed, sizes), events) = (labels(after), needed(blobs), &rows.events);
    let statement = statement
        .bind(rows.texts.record_crc)
        .bind(rows.texts.summary_crc)
        .bind(&rows.texts.record)
        .bind(&rows.texts.summary)
        .bind(is_shared(after))
        .bind(if is_due_same { "keep" } else { due })
        .bind(is_relabelled)
        .bind(keys)
        .bind(values)
        .bind(&events.seqs)
        .bind(&events.types)
        .bind(&events.crcs)
        .bind(&events.jsons)
        .bind(needed)
        .bind(sizes)
        .bind(&events.named)
        .bind(&events.named_by)
        .bind(db.scope.owners());
    let row = match db.first(statement).await {
        Ok(row) => row.ok_or(sqlx::Error::RowNotFound)?,
        Err(Fault::Sql(error)) if sqlstate(&error).as_deref() == Some(BLOB_MISSING) => {
            return Ok(Sent::NoBlob);
        }
        Err(Fault::Sql(error)) if sqlstate(&error).as_deref() == Some(LOG_TORN) => return Ok(Sent::Torn),
        // Events of a session without a record.
        Err(Fault::Sql(error)) if is_duplicate(&error) && before.is_none() => return Ok(Sent::Torn),
        Err(fault) => return Err(fault),
    };
    Ok(match row.try_get::<&str, _>(0)? {
        "applied" => Sent::Applied(next),
        "stale" => Sent::Stale(Stored::of(&row, 1, &db.scope.tenant, after.id)?),
        "no_parent" => Sent::NoParent,
        "deleted_parent" => Sent::DeletedParent,
        _ => Sent::Stale(Stored::Absent),
    })
}

/// Returns the statement with the values of the row of the session, but its texts.
fn statement<'q>(db: &Db, before: Option<&Versioned>, after: &SessionRecord, next: i64) -> Statement<'q> {
    let state = after.status.state;
    db.query(COMMIT)
        .bind(db.lock)
        .bind(*after.id.as_uuid())
        .bind(before.map_or(0, |before| before.version))
        .bind(next)
        .bind(owner(after).to_owned())
        .bind(*after.workspace.as_uuid())
        .bind(class(state))
        .bind(is_rare(state).then_some(state.as_str()))
        .bind(state.as_str())
        .bind(after.status.reason.as_str())
        .bind(after.creator.to_string())
        .bind(after.origin.parent().map(|parent| *parent.as_uuid()))
        .bind(int(after.head.get()))
        .bind(int(after.lineage.base().get()))
        .bind(after.lease.as_ref().map(|lease| int(lease.epoch.get())))
        .bind(after.created_at.as_micros())
        .bind(after.last_active_at.as_micros())
        .bind(listed_at(after))
        .bind(due_at(after))
}

/// Record that a commit has stored.
pub(crate) fn stored(version: i64, after: &Arc<SessionRecord>) -> Versioned {
    Versioned { version, session: after.clone() }
}

/// Session that a new one is created from.
pub(crate) fn parent(after: &SessionRecord) -> SessionId {
    after.origin.parent().unwrap_or(after.id)
}
