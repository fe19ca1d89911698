//! Check of a tenant's rows: those that others need, and those that repeat parts of a record.

use agent_core::{SessionId, WorkspaceId};
use sqlx::Row;
use sqlx::types::Uuid;

use crate::blobs::check as blobs;
use crate::error::Step;
use crate::medium::db::Db;
use crate::medium::rows::int;
use crate::medium::session_rows::{class, due_at, is_rare, is_shared, listed_at, owner, waits};
use crate::medium::stored::record;

/// Most findings that each check reports.
const MOST: usize = 100;
/// Number of sessions that are read at once.
const SESSIONS: i64 = 200;

/// Sessions that have events and no row in `sessions`, with one step along an index for each session.
const WITHOUT_ROW: &str = "WITH RECURSIVE e (session) AS (\
    (SELECT session FROM @.events WHERE tenant = $1 ORDER BY session LIMIT 1) UNION ALL \
    SELECT (SELECT x.session FROM @.events x WHERE x.tenant = $1 AND x.session > e.session ORDER BY x.session LIMIT 1) \
    FROM e WHERE e.session IS NOT NULL), \
    all_of (session) AS (SELECT session FROM e WHERE session IS NOT NULL \
    UNION SELECT session FROM @.tombstones WHERE tenant = $1) \
    SELECT a.session FROM all_of a WHERE NOT EXISTS (SELECT 1 FROM @.sessions s WHERE s.tenant = $1 AND s.session = a.session) \
    ORDER BY 1";

/// Returns the sessions of a tenant that have a log or a tombstone, and no row in `sessions`.
pub(crate) async fn without_row(db: &mut Db) -> Step<Vec<SessionId>> {
    let rows = db.rows(db.query(WITHOUT_ROW)).await?;
    rows.iter().map(|row| Ok(SessionId::from_uuid(row.try_get::<Uuid, _>(0)?))).collect()
}

/// Returns the workspace that a session was created in, as its row or its first event says.
pub(crate) async fn workspace(db: &mut Db, id: SessionId) -> Step<WorkspaceId> {
    let sql = "SELECT json FROM @.events WHERE tenant = $1 AND session = $2 ORDER BY seq LIMIT 1";
    let row = db.first(db.query(sql).bind(*id.as_uuid())).await?;
    let json: Option<String> = row.map(|row| row.try_get(0)).transpose()?;
    let json = json.and_then(|json| serde_json::from_str::<serde_json::Value>(&json).ok());
    let named = json.as_ref().and_then(|json| json.pointer("/data/workspace")?.as_str()?.parse().ok());
    Ok(named.unwrap_or(WorkspaceId::DEFAULT))
}

/// Returns the damage that is found among a tenant's rows.
pub(crate) async fn tenant(db: &mut Db) -> Step<Vec<String>> {
    let mut found = Vec::new();
    for id in without_row(db).await?.iter().take(MOST) {
        found.push(format!(
            "session {id} has no row in the table sessions, so that lists do not show it; run `chat rebuild` to restore the row"
        ));
    }
    let sql = "SELECT session FROM @.sessions s WHERE tenant = $1 AND kept IS NOT NULL AND NOT EXISTS (\
        SELECT 1 FROM @.tombstones t WHERE t.tenant = s.tenant AND t.session = s.session) ORDER BY 1 LIMIT 100";
    for row in db.rows(db.query(sql)).await? {
        let id = SessionId::from_uuid(row.try_get(0)?);
        found.push(format!(
            "session {id} has no row in the table tombstones; run `chat rebuild` to restore the row"
        ));
    }
    columns(db, &mut found).await?;
    blobs::check(db, MOST, &mut found).await?;
    Ok(found)
}

/// Reports the sessions whose list data somebody has changed: columns beside the record, labels, or the row in `due`.
async fn columns(db: &mut Db, found: &mut Vec<String>) -> Step<()> {
    let sql = "SELECT s.session, s.record, s.record_crc, \
        ROW(s.owner, s.workspace, s.class, s.rare, s.state, s.creator, s.parent, s.head, s.base, s.epoch, s.last_active_at, \
        s.listed_at, s.due_at, s.shared)::text, \
        (SELECT coalesce(array_agg(l.key || '=' || l.value ORDER BY l.key), '{}') FROM @.labels l \
        WHERE l.tenant = s.tenant AND l.session = s.session), d.session IS NOT NULL, d.at \
        FROM @.sessions s LEFT JOIN @.due d ON d.tenant = s.tenant AND d.session = s.session \
        WHERE s.tenant = $1 AND s.session > $2 ORDER BY s.session LIMIT $3";
    let expected = "SELECT ROW($2::text, $3::uuid, $4::text, $5::text, $6::text, $7::text, $8::uuid, $9::bigint, $10::bigint, \
        $11::bigint, $12::bigint, $13::bigint, $14::bigint, $15::boolean)::text WHERE $1::text IS NOT NULL";
    let (mut after, limit) = (Uuid::nil(), found.len() + MOST);
    loop {
        let rows = db.rows(db.query(sql).bind(after).bind(SESSIONS)).await?;
        for row in &rows {
            after = row.try_get(0)?;
            let id = SessionId::from_uuid(after);
            // A damaged record is reported when it is read.
            let Some(session) = record(&db.scope.tenant, id, row.try_get(1)?, row.try_get(2)?) else {
                continue;
            };
            let state = session.status.state;
            let row_of_record = db
                .query(expected)
                .bind(owner(&session).to_owned())
                .bind(*session.workspace.as_uuid())
                .bind(class(state))
                .bind(is_rare(state).then_some(state.as_str()))
                .bind(state.as_str())
                .bind(session.creator.to_string())
                .bind(session.origin.parent().map(|parent| *parent.as_uuid()))
                .bind(int(session.head.get()))
                .bind(int(session.lineage.base().get()))
                .bind(session.lease.as_ref().map(|lease| int(lease.epoch.get())))
                .bind(session.last_active_at.as_micros())
                .bind(listed_at(&session))
                .bind(due_at(&session))
                .bind(is_shared(&session));
            let row_of_record = db.first(row_of_record).await?.ok_or(sqlx::Error::RowNotFound)?;
            let labels: Vec<_> =
                session.attributes.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
            let what = if row_of_record.try_get::<&str, _>(0)? != row.try_get::<&str, _>(3)? {
                "other columns in the table sessions than its record says"
            } else if row.try_get::<Vec<String>, _>(4)? != labels {
                "other rows in the table labels than its record has labels"
            } else if row.try_get::<bool, _>(5)? != waits(&session)
                || row.try_get::<Option<i64>, _>(6)? != due_at(&session)
            {
                "another row in the table due than its record says"
            } else {
                continue;
            };
            if found.len() < limit {
                found.push(format!("session {id} has {what}; run `chat rebuild` to restore the row"));
            }
        }
        if rows.len() < usize::try_from(SESSIONS).unwrap_or(usize::MAX) {
            return Ok(());
        }
    }
}
