//! Device bindings: one row for each device, with its own checksum.

use agent_core::commit::Precondition;
use agent_core::store::{Binding, BindingQuery, Cursor, Damaged, PAGE_MAX, Page, decide_bind};
use agent_core::{DeviceId, Error, Result, SessionId, WorkspaceId};
use sqlx::Row;
use sqlx::postgres::PgRow;
use sqlx::types::Uuid;

use crate::error::{Step, corrupt};
use crate::medium::db::Db;
use crate::medium::rows::{checksum, int};
use crate::medium::sql::Sql;

/// Reads the workspace from a row's columns `workspace` and `crc`, from index `at` on.
fn bound(row: &PgRow, at: usize, tenant: &str, device: &str) -> Step<Result<WorkspaceId>> {
    let (workspace, crc): (Uuid, i32) = (row.try_get(at)?, row.try_get(at + 1)?);
    let fits = checksum(&[tenant, device, &workspace.to_string()]) == crc;
    Ok(if fits {
        Ok(WorkspaceId::from_uuid(workspace))
    } else {
        Err(damaged(&format!("the binding of device {device:?}")))
    })
}

fn damaged(object: &str) -> Error {
    corrupt(object, "does not fit its checksum")
}

/// Excludes other changes of a device's binding until the transaction ends, also if there is none yet.
async fn lock(db: &mut Db, device: &DeviceId) -> Step<()> {
    let sql = "SELECT pg_advisory_xact_lock(hashtextextended($1 || '/' || $2, $3))";
    let lock = db.query(sql).bind(device.as_str().to_owned()).bind(db.lock);
    db.first(lock).await.map(drop)
}

pub(crate) async fn resolve(db: &mut Db, device: &DeviceId) -> Step<Option<WorkspaceId>> {
    let sql = "SELECT workspace, crc FROM @.bindings WHERE tenant = $1 AND device = $2";
    let Some(row) = db.first(db.query(sql).bind(device.as_str().to_owned())).await? else { return Ok(None) };
    Ok(Some(bound(&row, 0, &db.scope.tenant, device.as_str())??))
}

pub(crate) async fn bind(
    db: &mut Db,
    device: &DeviceId,
    to: WorkspaceId,
    expect: Precondition<WorkspaceId>,
) -> Step<WorkspaceId> {
    lock(db, device).await?;
    let now = resolve(db, device).await?;
    let bound = decide_bind(device, now, to, expect)?;
    if now != Some(bound) {
        let crc = checksum(&[&db.scope.tenant, device.as_str(), &bound.as_uuid().to_string()]);
        let sql = "INSERT INTO @.bindings (tenant, device, workspace, crc) VALUES ($1, $2, $3, $4) \
            ON CONFLICT (tenant, device) DO UPDATE SET workspace = excluded.workspace, crc = excluded.crc, session = NULL";
        let insert = db.query(sql).bind(device.as_str().to_owned()).bind(*bound.as_uuid()).bind(crc);
        db.execute(insert).await?;
    }
    Ok(bound)
}

pub(crate) async fn unbind(db: &mut Db, device: &DeviceId) -> Step<bool> {
    lock(db, device).await?;
    if resolve(db, device).await?.is_none() {
        return Ok(false);
    }
    let sql = "DELETE FROM @.bindings WHERE tenant = $1 AND device = $2";
    db.execute(db.query(sql).bind(device.as_str().to_owned())).await?;
    Ok(true)
}

pub(crate) async fn last_session(db: &mut Db, device: &DeviceId) -> Step<Option<SessionId>> {
    let sql = "SELECT session FROM @.bindings WHERE tenant = $1 AND device = $2";
    let row = db.first(db.query(sql).bind(device.as_str().to_owned())).await?;
    let session: Option<Uuid> = row.map(|row| row.try_get(0)).transpose()?.flatten();
    Ok(session.map(SessionId::from_uuid))
}

pub(crate) async fn set_last_session(db: &mut Db, device: &DeviceId, session: SessionId) -> Step<()> {
    let sql = "UPDATE @.bindings SET session = $3 WHERE tenant = $1 AND device = $2 AND session IS DISTINCT FROM $3";
    let update = db.query(sql).bind(device.as_str().to_owned()).bind(*session.as_uuid());
    db.execute(update).await.map(drop)
}

pub(crate) async fn unbind_workspace(db: &mut Db, id: WorkspaceId) -> Step<u64> {
    let sql = "DELETE FROM @.bindings WHERE tenant = $1 AND workspace = $2 RETURNING device, workspace, crc";
    let rows = db.rows(db.query(sql).bind(*id.as_uuid())).await?;
    for row in &rows {
        // A damaged row may belong to another workspace; then none is removed.
        let device: &str = row.try_get(0)?;
        bound(row, 1, &db.scope.tenant, device)??;
    }
    Ok(rows.len() as u64)
}

pub(crate) async fn list(db: &mut Db, wanted: &BindingQuery) -> Step<Page<Binding>> {
    let after = wanted.after()?.map_or_else(String::new, |device| device.as_str().to_owned());
    let limit = wanted.limit.min(PAGE_MAX);
    let mut sql = Sql::of_tenant(&db.scope.tenant)?;
    sql.push("SELECT device, workspace, crc FROM @.bindings WHERE tenant = $1 AND device > ").value(after)?;
    if let Some(workspace) = wanted.workspace {
        sql.push(" AND workspace = ").value(*workspace.as_uuid())?;
    }
    sql.push(" ORDER BY device LIMIT ").value(int(limit as u64 + 1))?;
    let rows = db.rows(db.built(sql)).await?;
    let (mut page, mut last) = (Page::default(), None);
    for row in rows.iter().take(limit) {
        let text: &str = row.try_get(0)?;
        let Ok(device) = text.parse::<DeviceId>() else {
            page.damaged.push(Damaged::new("a binding", "its device is damaged"));
            continue;
        };
        last = Some(Cursor::after(wanted.fingerprint(), text));
        match bound(row, 1, &db.scope.tenant, text)? {
            Ok(workspace) => page.items.push(Binding::new(device, workspace)),
            Err(error) => page.damaged.push(Damaged::of(format!("the binding of device {device:?}"), &error)),
        }
    }
    page.next = last.filter(|_| rows.len() > limit);
    Ok(page)
}
