//! Bindings: one row for each device, with a checksum of its own.

use agent_core::binding::decide_bind;
use agent_core::page::PAGE_MAX;
use agent_core::{
    Binding, BindingQuery, Cursor, Damaged, DeviceId, Error, Expect, Page, Result, WorkspaceId,
};
use sqlx::query;
use sqlx::sqlite::{SqliteConnection, SqliteRow};

use crate::error::{Step, corrupt};
use crate::rows::{checksum, int, number, text};

/// The workspace in a row's columns `workspace` and `crc`, from `at` on.
fn bound(row: &SqliteRow, at: usize, tenant: &str, device: &str) -> sqlx::Result<Result<WorkspaceId>> {
    let sum = number(row, at + 1)?;
    let workspace = text(row, at)?.filter(|workspace| checksum(&[tenant, device, workspace]) == sum);
    Ok(workspace
        .and_then(|workspace| workspace.parse().ok())
        .ok_or_else(|| damaged(&format!("the binding of device {device:?}"))))
}

fn damaged(object: &str) -> Error {
    corrupt(object, "does not fit its checksum")
}

fn key(id: WorkspaceId) -> String {
    id.as_uuid().to_string()
}

pub(crate) async fn resolve(
    conn: &mut SqliteConnection,
    tenant: &str,
    device: &DeviceId,
) -> Step<Option<WorkspaceId>> {
    let row = query("SELECT workspace, crc FROM bindings WHERE tenant = ? AND device = ?")
        .bind(tenant.to_owned())
        .bind(device.as_str().to_owned())
        .fetch_optional(conn)
        .await?;
    match row {
        Some(row) => Ok(Some(bound(&row, 0, tenant, device.as_str())??)),
        None => Ok(None),
    }
}

pub(crate) async fn bind(
    conn: &mut SqliteConnection,
    tenant: &str,
    device: &DeviceId,
    to: WorkspaceId,
    expect: Expect<WorkspaceId>,
) -> Step<WorkspaceId> {
    let now = resolve(conn, tenant, device).await?;
    let bound = decide_bind(device, now, to, expect)?;
    if now != Some(bound) {
        query(
            "INSERT INTO bindings (tenant, device, workspace, crc) VALUES (?, ?, ?, ?) \
             ON CONFLICT (tenant, device) DO UPDATE SET workspace = excluded.workspace, crc = excluded.crc",
        )
        .bind(tenant.to_owned())
        .bind(device.as_str().to_owned())
        .bind(key(bound))
        .bind(checksum(&[tenant, device.as_str(), &key(bound)]))
        .execute(conn)
        .await?;
    }
    Ok(bound)
}

pub(crate) async fn unbind(conn: &mut SqliteConnection, tenant: &str, device: &DeviceId) -> Step<bool> {
    if resolve(conn, tenant, device).await?.is_none() {
        return Ok(false);
    }
    query("DELETE FROM bindings WHERE tenant = ? AND device = ?")
        .bind(tenant.to_owned())
        .bind(device.as_str().to_owned())
        .execute(conn)
        .await?;
    Ok(true)
}

pub(crate) async fn unbind_workspace(
    conn: &mut SqliteConnection,
    tenant: &str,
    id: WorkspaceId,
) -> Step<u64> {
    let rows = query("SELECT device, workspace, crc FROM bindings WHERE tenant = ? AND workspace = ?")
        .bind(tenant.to_owned())
        .bind(key(id))
        .fetch_all(&mut *conn)
        .await?;
    for row in &rows {
        // A damaged row may be another workspace's; none is removed before all were looked at.
        let device = text(row, 0)?.ok_or_else(|| damaged("a binding"))?;
        bound(row, 1, tenant, device)??;
    }
    let removed = query("DELETE FROM bindings WHERE tenant = ? AND workspace = ?")
        .bind(tenant.to_owned())
        .bind(key(id))
        .execute(conn)
        .await?;
    Ok(removed.rows_affected())
}

pub(crate) const LIST: &str =
    "SELECT device, workspace, crc FROM bindings WHERE tenant = ? AND device > ? ORDER BY device LIMIT ?";
const LIST_OF: &str = "SELECT device, workspace, crc FROM bindings INDEXED BY bindings_by_workspace \
    WHERE tenant = ? AND device > ? AND workspace = ? ORDER BY device LIMIT ?";

pub(crate) async fn list(
    conn: &mut SqliteConnection,
    tenant: &str,
    wanted: &BindingQuery,
) -> Step<Page<Binding>> {
    let after = wanted.after()?.map_or_else(String::new, |device| device.as_str().to_owned());
    let limit = wanted.limit.clamp(1, PAGE_MAX);
    let mut all =
        query(if wanted.workspace.is_some() { LIST_OF } else { LIST }).bind(tenant.to_owned()).bind(after);
    if let Some(workspace) = wanted.workspace {
        all = all.bind(key(workspace));
    }
    let mut rows = all.bind(int(limit as u64 + 1)).fetch_all(conn).await?;
    let more = rows.len() > limit;
    rows.truncate(limit);
    let (mut page, mut last) = (Page::default(), None);
    for row in &rows {
        let device = text(row, 0)?.and_then(|device| device.parse::<DeviceId>().ok());
        let Some(device) = device else {
            page.damaged.push(Damaged::new("a binding", "its device is damaged"));
            continue;
        };
        last = Some(Cursor::after(wanted.fingerprint(), device.as_str()));
        match bound(row, 1, tenant, device.as_str())? {
            Ok(workspace) => page.items.push(Binding::new(device, workspace)),
            Err(error) => {
                page.damaged
                    .push(Damaged::new(format!("the binding of device {device:?}"), error.to_string()));
            }
        }
    }
    page.next = last.filter(|_| more);
    Ok(page)
}
