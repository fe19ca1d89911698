//! Device bindings: one row for each device, with its own checksum.

use agent_core::commit::Precondition;
use agent_core::store::{Binding, BindingQuery, Cursor, Damaged, PAGE_MAX, Page, decide_bind};
use agent_core::{DeviceId, Error, Result, SessionId, WorkspaceId};
use rusqlite::{Connection, Row, params};

use crate::error::{Step, corrupt};
use crate::medium::rows::{checksum, each, execute, first, int, number, text};

/// Reads the workspace from a row's columns `workspace` and `crc`, from index `at` on.
fn bound(row: &Row<'_>, at: usize, tenant: &str, device: &str) -> rusqlite::Result<Result<WorkspaceId>> {
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

pub(crate) fn resolve(conn: &Connection, tenant: &str, device: &DeviceId) -> Step<Option<WorkspaceId>> {
    let sql = "SELECT workspace, crc FROM bindings WHERE tenant = ? AND device = ?";
    let device = device.as_str();
    first(conn, sql, params![tenant, device], |row| Ok(bound(row, 0, tenant, device)??))
}

pub(crate) fn bind(
    conn: &Connection,
    tenant: &str,
    device: &DeviceId,
    to: WorkspaceId,
    expect: Precondition<WorkspaceId>,
) -> Step<WorkspaceId> {
    let now = resolve(conn, tenant, device)?;
    let bound = decide_bind(device, now, to, expect)?;
    if now != Some(bound) {
        let (device, workspace) = (device.as_str(), key(bound));
        execute(
            conn,
            "INSERT INTO bindings (tenant, device, workspace, crc) VALUES (?, ?, ?, ?) \
             ON CONFLICT (tenant, device) DO UPDATE SET workspace = excluded.workspace, crc = excluded.crc, \
             session = NULL",
            params![tenant, device, workspace, checksum(&[tenant, device, &workspace])],
        )?;
    }
    Ok(bound)
}

pub(crate) fn unbind(conn: &Connection, tenant: &str, device: &DeviceId) -> Step<bool> {
    if resolve(conn, tenant, device)?.is_none() {
        return Ok(false);
    }
    execute(conn, "DELETE FROM bindings WHERE tenant = ? AND device = ?", params![tenant, device.as_str()])?;
    Ok(true)
}

pub(crate) fn last_session(conn: &Connection, tenant: &str, device: &DeviceId) -> Step<Option<SessionId>> {
    let sql = "SELECT session FROM bindings WHERE tenant = ? AND device = ?";
    let found = first(conn, sql, params![tenant, device.as_str()], |row| {
        Ok(text(row, 0)?.and_then(|session| session.parse().ok()))
    })?;
    Ok(found.flatten())
}

pub(crate) fn set_last_session(
    conn: &Connection,
    tenant: &str,
    device: &DeviceId,
    session: SessionId,
) -> Step<()> {
    let sql = "UPDATE bindings SET session = ?1 WHERE tenant = ?2 AND device = ?3 AND session IS NOT ?1";
    execute(conn, sql, params![session.to_string(), tenant, device.as_str()])?;
    Ok(())
}

pub(crate) fn unbind_workspace(conn: &Connection, tenant: &str, id: WorkspaceId) -> Step<u64> {
    let sql = "SELECT device, workspace, crc FROM bindings WHERE tenant = ? AND workspace = ?";
    // A damaged row may belong to another workspace; none is removed before all are checked.
    each(conn, sql, params![tenant, key(id)], |row| {
        let device = text(row, 0)?.ok_or_else(|| damaged("a binding"))?;
        bound(row, 1, tenant, device)??;
        Ok(())
    })?;
    let sql = "DELETE FROM bindings WHERE tenant = ? AND workspace = ?";
    Ok(execute(conn, sql, params![tenant, key(id)])? as u64)
}

pub(crate) const LIST: &str =
    "SELECT device, workspace, crc FROM bindings WHERE tenant = ? AND device > ? ORDER BY device LIMIT ?";
const LIST_OF: &str = "SELECT device, workspace, crc FROM bindings INDEXED BY bindings_by_workspace \
    WHERE tenant = ? AND device > ? AND workspace = ? ORDER BY device LIMIT ?";

pub(crate) fn list(conn: &Connection, tenant: &str, wanted: &BindingQuery) -> Step<Page<Binding>> {
    let after = wanted.after()?.map_or_else(String::new, |device| device.as_str().to_owned());
    let limit = wanted.limit.min(PAGE_MAX);
    let more = int(limit as u64 + 1);
    let (mut page, mut last, mut count) = (Page::default(), None, 0);
    let mut take = |row: &Row<'_>| -> Step<()> {
        count += 1;
        if count > limit {
            return Ok(());
        }
        let Some(device) = text(row, 0)?.and_then(|device| device.parse::<DeviceId>().ok()) else {
            page.damaged.push(Damaged::new("a binding", "its device is damaged"));
            return Ok(());
        };
        last = Some(Cursor::after(wanted.fingerprint(), device.as_str()));
        match bound(row, 1, tenant, device.as_str())? {
            Ok(workspace) => page.items.push(Binding::new(device, workspace)),
            Err(error) => {
                page.damaged.push(Damaged::of(format!("the binding of device {device:?}"), &error));
            }
        }
        Ok(())
    };
    match wanted.workspace {
        Some(workspace) => each(conn, LIST_OF, params![tenant, after, key(workspace), more], &mut take)?,
        None => each(conn, LIST, params![tenant, after, more], &mut take)?,
    }
    page.next = last.filter(|_| count > limit);
    Ok(page)
}
