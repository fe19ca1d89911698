//! Workspaces: their records, configurations and tombstones.

use agent_core::commit::Precondition;
use agent_core::model::{Workspace, WorkspaceStatus};
use agent_core::store::{ContentHash, Cursor, Damaged, PAGE_MAX, Page, WorkspaceQuery};
use agent_core::{Error, ErrorKind, Revision, Timestamp, WorkspaceId};
use rusqlite::types::Value;
use rusqlite::{Connection, Row, params, params_from_iter};

use crate::error::{Fault, Step, corrupt};
use crate::medium::rewrites;
use crate::medium::rows::{checksum, each, execute, first, first_number, int, number, optional, text};

/// State that marks a tombstone among the states of a workspace.
const DELETED: &str = "deleted";

fn no_workspace(id: WorkspaceId) -> Error {
    Error::not_found(format!("workspace {id} does not exist"))
}

fn deleted(id: WorkspaceId) -> Error {
    Error::deleted(format!("workspace {id} was deleted; its id is not used again"))
}

fn word(status: WorkspaceStatus) -> &'static str {
    match status {
        WorkspaceStatus::Deleting => "deleting",
        _ => "active",
    }
}

/// Returns the id as it is stored: in one spelling, so that the texts sort like the ids.
fn key(id: WorkspaceId) -> String {
    id.as_uuid().to_string()
}

/// Returns the result of `read` for a workspace's row.
fn read_row<T>(
    conn: &Connection,
    tenant: &str,
    id: WorkspaceId,
    read: impl FnOnce(&Row<'_>) -> Step<T>,
) -> Step<T> {
    let sql = "SELECT status, last_accessed, crc, record, config_crc, config FROM workspaces \
        WHERE tenant = ? AND id = ?";
    let found = first(conn, sql, params![tenant, key(id)], |row| match text(row, 0)? {
        Some(DELETED) => Err(deleted(id).into()),
        _ => read(row),
    })?;
    found.ok_or_else(|| no_workspace(id).into())
}

/// Reads the record from the columns `last_accessed`, `crc` and `record`, from index `at` on.
fn record(row: &Row<'_>, at: usize, tenant: &str, id: WorkspaceId) -> Step<Workspace> {
    let damaged = |what| corrupt(&format!("the record of workspace {id}"), what);
    let json = text(row, at + 2)?.ok_or_else(|| damaged("is missing or no text"))?;
    if optional(row, at + 1)? != Some(checksum(&[tenant, &key(id), json])) {
        return Err(damaged("does not fit its checksum").into());
    }
    let mut workspace = Workspace::from_json(json).map_err(|_| damaged("is of no format that is read"))?;
    workspace.last_accessed = workspace.last_accessed.max(Timestamp::from_micros(number(row, at)?));
    Ok(workspace)
}

fn config(row: &Row<'_>, tenant: &str, id: WorkspaceId) -> Step<Option<String>> {
    let Some(crc) = optional(row, 4)? else { return Ok(None) };
    match text(row, 5)? {
        Some(config) if checksum(&[tenant, &key(id), config]) == crc => Ok(Some(config.to_owned())),
        _ => {
            Err(corrupt(&format!("the configuration of workspace {id}"), "does not fit its checksum").into())
        }
    }
}

pub(crate) fn load(conn: &Connection, tenant: &str, id: WorkspaceId) -> Step<Workspace> {
    read_row(conn, tenant, id, |row| record(row, 1, tenant, id))
}

pub(crate) fn put(
    conn: &Connection,
    tenant: &str,
    workspace: &Workspace,
    expect: Precondition<Revision>,
) -> Step<Workspace> {
    let mut workspace = workspace.clone();
    workspace.check()?;
    let id = workspace.id;
    let now = match load(conn, tenant, id) {
        Ok(now) => Some(now),
        Err(Fault::Refused(error)) if *error.kind() == ErrorKind::NotFound => None,
        Err(fault) => return Err(fault),
    };
    workspace.prepare_put(now.as_ref(), expect)?;
    let json = workspace.to_json();
    execute(
        conn,
        "INSERT INTO workspaces (tenant, id, name, status, last_accessed, crc, record) VALUES (?, ?, ?, ?, ?, ?, ?) \
         ON CONFLICT (tenant, id) DO UPDATE SET name = excluded.name, status = excluded.status, \
         last_accessed = excluded.last_accessed, crc = excluded.crc, record = excluded.record",
        params![
            tenant,
            key(id),
            workspace.name,
            word(workspace.status),
            workspace.last_accessed.as_micros(),
            checksum(&[tenant, &key(id), &json]),
            json,
        ],
    )?;
    Ok(workspace)
}

pub(crate) fn touch(conn: &Connection, tenant: &str, id: WorkspaceId, at: Timestamp) -> Step<()> {
    // A damaged record is not touched.
    let now = load(conn, tenant, id)?;
    if now.last_accessed < at {
        let sql = "UPDATE workspaces SET last_accessed = ? WHERE tenant = ? AND id = ?";
        execute(conn, sql, params![at.as_micros(), tenant, key(id)])?;
    }
    Ok(())
}

pub(crate) fn delete(conn: &Connection, tenant: &str, id: WorkspaceId) -> Step<()> {
    let sql = "SELECT record IS NOT NULL OR config IS NOT NULL FROM workspaces WHERE tenant = ? AND id = ?";
    match first_number(conn, sql, params![tenant, key(id)])? {
        None => return Err(no_workspace(id).into()),
        Some(0) => {}
        Some(_) => rewrites::mark(conn)?,
    }
    execute(
        conn,
        "UPDATE workspaces SET status = ?, name = NULL, crc = NULL, record = NULL, config_crc = NULL, config = NULL \
         WHERE tenant = ? AND id = ?",
        params![DELETED, tenant, key(id)],
    )?;
    Ok(())
}

pub(crate) fn load_config(conn: &Connection, tenant: &str, id: WorkspaceId) -> Step<Option<String>> {
    read_row(conn, tenant, id, |row| config(row, tenant, id))
}

pub(crate) fn save_config(
    conn: &Connection,
    tenant: &str,
    id: WorkspaceId,
    to: Option<&str>,
    expect: Precondition<ContentHash>,
) -> Step<()> {
    ContentHash::check_size(to)
        .map_err(|error| error.about(format_args!("the configuration of workspace {id}")))?;
    let now = load_config(conn, tenant, id)?;
    ContentHash::check(expect, now.as_deref(), &format_args!("the configuration of workspace {id}"))?;
    let crc = to.map(|to| checksum(&[tenant, &key(id), to]));
    let sql = "UPDATE workspaces SET config_crc = ?, config = ? WHERE tenant = ? AND id = ?";
    execute(conn, sql, params![crc, to, tenant, key(id)])?;
    Ok(())
}

macro_rules! walk {
    () => {
        "SELECT id, last_accessed, crc, record FROM workspaces INDEXED BY workspaces_by_access \
         WHERE tenant = ? AND status = ? AND (last_accessed, id) < (?, ?)"
    };
}

pub(crate) const LIST: &str = concat!(walk!(), " ORDER BY last_accessed DESC, id DESC LIMIT ?");
const LIST_ALL: &str = concat!(walk!(), " UNION ALL ", walk!(), " ORDER BY 2 DESC, 1 DESC LIMIT ?");

pub(crate) fn list(conn: &Connection, tenant: &str, wanted: &WorkspaceQuery) -> Step<Page<Workspace>> {
    let print = wanted.fingerprint();
    let cursor = wanted.cursor.as_ref();
    let after = cursor.map(|cursor| cursor.recent_key::<WorkspaceId>(print)).transpose()?;
    // After the latest time, if the list starts at its beginning.
    let (at, id) = after.map_or((i64::MAX, "~".to_owned()), |(at, id)| (at.as_micros(), key(id)));
    let limit = wanted.limit.min(PAGE_MAX);
    let words: &[_] = if wanted.with_deleting {
        &[WorkspaceStatus::Active, WorkspaceStatus::Deleting]
    } else {
        &[WorkspaceStatus::Active]
    };
    let mut values: Vec<Value> = Vec::new();
    for status in words {
        let (tenant, status) = (tenant.to_owned(), word(*status).to_owned());
        values.extend([tenant.into(), status.into(), at.into(), id.clone().into()]);
    }
    values.push(int(limit as u64 + 1).into());
    let (mut page, mut last, mut count) = (Page::default(), None, 0);
    let sql = if wanted.with_deleting { LIST_ALL } else { LIST };
    each(conn, sql, params_from_iter(values), |row| {
        count += 1;
        if count > limit {
            return Ok(());
        }
        let Some(id) = text(row, 0)?.and_then(|id| id.parse::<WorkspaceId>().ok()) else {
            page.damaged.push(Damaged::new("a workspace", "its id is damaged"));
            return Ok(());
        };
        last = Some(Cursor::after_recent(print, Timestamp::from_micros(number(row, 1)?), id));
        match record(row, 1, tenant, id) {
            Ok(workspace) => page.items.push(workspace),
            Err(Fault::Refused(error)) => {
                page.damaged.push(Damaged::of(format!("workspace {id}"), &error));
            }
            Err(fault) => return Err(fault),
        }
        Ok(())
    })?;
    page.next = last.filter(|_| count > limit);
    if wanted.with_total {
        let mut total = 0;
        let sql = "SELECT count(*) FROM workspaces WHERE tenant = ? AND status = ?";
        for status in words {
            let count = first_number(conn, sql, params![tenant, word(*status)])?;
            total += u64::try_from(count.unwrap_or(0)).unwrap_or(0);
        }
        page.total = Some(total);
    }
    Ok(page)
}
