//! Workspaces: their records, configurations and tombstones.

use agent_core::commit::Precondition;
use agent_core::model::{Workspace, WorkspaceStatus};
use agent_core::store::{ContentHash, Cursor, Damaged, PAGE_MAX, Page, WorkspaceQuery};
use agent_core::{Error, ErrorKind, OwnerId, Revision, Timestamp, WorkspaceId};
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
        "INSERT INTO workspaces (tenant, id, owner, name, status, last_accessed, crc, record) VALUES (?, ?, ?, ?, ?, ?, ?, ?) \
         ON CONFLICT (tenant, id) DO UPDATE SET name = excluded.name, status = excluded.status, \
         last_accessed = excluded.last_accessed, crc = excluded.crc, record = excluded.record",
        params![
            tenant,
            key(id),
            workspace.owner.as_ref().map_or("", OwnerId::as_str),
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
    let sql = "SELECT record IS NOT NULL OR config IS NOT NULL OR owner > '' FROM workspaces WHERE tenant = ? AND id = ?";
    match first_number(conn, sql, params![tenant, key(id)])? {
        None => return Err(no_workspace(id).into()),
        Some(0) => {}
        Some(_) => rewrites::mark(conn)?,
    }
    execute(
        conn,
        "UPDATE workspaces SET status = ?, owner = '', name = NULL, crc = NULL, record = NULL, config_crc = NULL, config = NULL \
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

const ROW: &str = "SELECT id, last_accessed, crc, record";
const COUNT: &str = "SELECT count(*) AS n";

/// Statement of a page of workspaces, and its values.
pub(crate) fn page(tenant: &str, wanted: &WorkspaceQuery, from: &(i64, String)) -> (String, Vec<Value>) {
    let (mut sql, mut values) = walks(tenant, wanted, ROW, Some(from));
    sql.push_str(" ORDER BY 2 DESC, 1 DESC LIMIT ?");
    values.push(int(wanted.limit.min(PAGE_MAX) as u64 + 1).into());
    (sql, values)
}

/// Returns a statement with its values: what is selected along an index, of each status and owner that is wanted.
fn walks(
    tenant: &str,
    wanted: &WorkspaceQuery,
    select: &str,
    from: Option<&(i64, String)>,
) -> (String, Vec<Value>) {
    let words = [Some(WorkspaceStatus::Active), wanted.with_deleting.then_some(WorkspaceStatus::Deleting)];
    let unowned = ("workspaces_unowned", "owner = ''", None);
    let lists = match &wanted.owner {
        None => vec![unowned, ("workspaces_owned", "owner > ''", None)],
        Some(owner) => {
            let own = ("workspaces_by_owner", "owner > '' AND owner = ?", Some(owner.as_str()));
            if wanted.with_unowned { vec![unowned, own] } else { vec![own] }
        }
    };
    let (mut sql, mut values): (_, Vec<Value>) = (String::new(), Vec::new());
    for (list, status) in lists.iter().flat_map(|list| words.iter().flatten().map(move |word| (list, word))) {
        let (index, condition, owner) = list;
        let union = if sql.is_empty() { "" } else { " UNION ALL " };
        sql.push_str(&format!(
            "{union}{select} FROM workspaces INDEXED BY {index} WHERE tenant = ? AND status = ? AND {condition}"
        ));
        values.extend([tenant.to_owned().into(), word(*status).to_owned().into()]);
        values.extend(owner.map(|owner| owner.to_owned().into()));
        if let Some((at, id)) = from {
            sql.push_str(" AND (last_accessed, id) < (?, ?)");
            values.extend([(*at).into(), id.clone().into()]);
        }
    }
    (sql, values)
}

pub(crate) fn list(conn: &Connection, tenant: &str, wanted: &WorkspaceQuery) -> Step<Page<Workspace>> {
    let print = wanted.fingerprint();
    let cursor = wanted.cursor.as_ref();
    let after = cursor.map(|cursor| cursor.recent_key::<WorkspaceId>(print)).transpose()?;
    // After the latest time, if the list starts at its beginning.
    let from = after.map_or((i64::MAX, "~".to_owned()), |(at, id)| (at.as_micros(), key(id)));
    let limit = wanted.limit.min(PAGE_MAX);
    let (sql, values) = self::page(tenant, wanted, &from);
    let (mut page, mut last, mut count) = (Page::default(), None, 0);
    each(conn, &sql, params_from_iter(values), |row| {
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
        let (sql, values) = walks(tenant, wanted, COUNT, None);
        let total = first_number(conn, &format!("SELECT sum(n) FROM ({sql})"), params_from_iter(values))?;
        let total = u64::try_from(total.unwrap_or(0)).unwrap_or(0);
        page.total = Some(total);
    }
    Ok(page)
}
