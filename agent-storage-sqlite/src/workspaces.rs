//! Workspaces: their records, configurations and tombstones.

use agent_core::page::PAGE_MAX;
use agent_core::{
    ContentHash, Cursor, Damaged, Error, ErrorKind, Expect, Page, Revision, Timestamp, Workspace,
    WorkspaceId, WorkspaceQuery, WorkspaceStatus,
};
use sqlx::sqlite::{SqliteConnection, SqliteRow};
use sqlx::{query, query_scalar};

use crate::error::{Step, corrupt};
use crate::rows::{checksum, int, number, optional, text};

/// The word that stands for a tombstone among the states of a workspace.
const DELETED: &str = "deleted";

fn no_workspace(id: WorkspaceId) -> Error {
    Error::new(ErrorKind::NotFound, format!("workspace {id} does not exist"))
}

fn deleted(id: WorkspaceId) -> Error {
    Error::new(ErrorKind::Deleted, format!("workspace {id} was deleted; its id is not used again"))
}

fn word(status: WorkspaceStatus) -> &'static str {
    match status {
        WorkspaceStatus::Deleting => "deleting",
        _ => "active",
    }
}

/// The id as it is stored: in one spelling, so that the order of the text is that of the ids.
fn key(id: WorkspaceId) -> String {
    id.as_uuid().to_string()
}

async fn row(conn: &mut SqliteConnection, tenant: &str, id: WorkspaceId) -> Step<SqliteRow> {
    let row = query(
        "SELECT status, last_accessed, crc, record, config_crc, config FROM workspaces WHERE tenant = ? AND id = ?",
    )
    .bind(tenant.to_owned())
    .bind(key(id))
    .fetch_optional(conn)
    .await?
    .ok_or_else(|| no_workspace(id))?;
    if text(&row, 0)? == Some(DELETED) {
        return Err(deleted(id).into());
    }
    Ok(row)
}

/// The record in a row's columns `last_accessed`, `crc` and `record`, from `at` on.
fn record(row: &SqliteRow, at: usize, tenant: &str, id: WorkspaceId) -> Step<Workspace> {
    let damaged = |what| corrupt(&format!("the record of workspace {id}"), what);
    let json = text(row, at + 2)?.ok_or_else(|| damaged("is missing or no text"))?;
    if optional(row, at + 1)? != Some(checksum(&[tenant, &key(id), json])) {
        return Err(damaged("does not fit its checksum").into());
    }
    let mut workspace = Workspace::from_json(json).map_err(|_| damaged("is of no format that is read"))?;
    workspace.last_accessed = workspace.last_accessed.max(Timestamp::from_micros(number(row, at)?));
    Ok(workspace)
}

fn config(row: &SqliteRow, tenant: &str, id: WorkspaceId) -> Step<Option<String>> {
    let Some(crc) = optional(row, 4)? else { return Ok(None) };
    match text(row, 5)? {
        Some(config) if checksum(&[tenant, &key(id), config]) == crc => Ok(Some(config.to_owned())),
        _ => {
            Err(corrupt(&format!("the configuration of workspace {id}"), "does not fit its checksum").into())
        }
    }
}

pub(crate) async fn load(conn: &mut SqliteConnection, tenant: &str, id: WorkspaceId) -> Step<Workspace> {
    record(&row(conn, tenant, id).await?, 1, tenant, id)
}

pub(crate) async fn put(
    conn: &mut SqliteConnection,
    tenant: &str,
    workspace: &Workspace,
    expect: Expect<Revision>,
) -> Step<Workspace> {
    let mut workspace = workspace.clone();
    workspace.check()?;
    let id = workspace.id;
    let now = match load(conn, tenant, id).await {
        Ok(now) => Some(now),
        Err(crate::error::Fault::Refused(error)) if *error.kind() == ErrorKind::NotFound => None,
        Err(fault) => return Err(fault),
    };
    workspace.prepare_put(now.as_ref(), expect)?;
    let json = workspace.to_json();
    query(
        "INSERT INTO workspaces (tenant, id, name, status, last_accessed, crc, record) VALUES (?, ?, ?, ?, ?, ?, ?) \
         ON CONFLICT (tenant, id) DO UPDATE SET name = excluded.name, status = excluded.status, \
         last_accessed = excluded.last_accessed, crc = excluded.crc, record = excluded.record",
    )
    .bind(tenant.to_owned())
    .bind(key(id))
    .bind(workspace.name.clone())
    .bind(word(workspace.status))
    .bind(workspace.last_accessed.as_micros())
    .bind(checksum(&[tenant, &key(id), &json]))
    .bind(json)
    .execute(conn)
    .await?;
    Ok(workspace)
}

pub(crate) async fn touch(
    conn: &mut SqliteConnection,
    tenant: &str,
    id: WorkspaceId,
    at: Timestamp,
) -> Step<()> {
    // A damaged record is not touched.
    let now = load(conn, tenant, id).await?;
    if now.last_accessed < at {
        query("UPDATE workspaces SET last_accessed = ? WHERE tenant = ? AND id = ?")
            .bind(at.as_micros())
            .bind(tenant.to_owned())
            .bind(key(id))
            .execute(conn)
            .await?;
    }
    Ok(())
}

pub(crate) async fn delete(conn: &mut SqliteConnection, tenant: &str, id: WorkspaceId) -> Step<()> {
    let changed = query(
        "UPDATE workspaces SET status = ?, name = NULL, crc = NULL, record = NULL, config_crc = NULL, config = NULL \
         WHERE tenant = ? AND id = ?",
    )
    .bind(DELETED)
    .bind(tenant.to_owned())
    .bind(key(id))
    .execute(conn)
    .await?;
    if changed.rows_affected() == 0 { Err(no_workspace(id).into()) } else { Ok(()) }
}

pub(crate) async fn load_config(
    conn: &mut SqliteConnection,
    tenant: &str,
    id: WorkspaceId,
) -> Step<Option<String>> {
    config(&row(conn, tenant, id).await?, tenant, id)
}

pub(crate) async fn save_config(
    conn: &mut SqliteConnection,
    tenant: &str,
    id: WorkspaceId,
    to: Option<&str>,
    expect: Expect<ContentHash>,
) -> Step<()> {
    ContentHash::check_size(to)?;
    let now = load_config(conn, tenant, id).await?;
    ContentHash::check(expect, now.as_deref(), &format_args!("the configuration of workspace {id}"))?;
    query("UPDATE workspaces SET config_crc = ?, config = ? WHERE tenant = ? AND id = ?")
        .bind(to.map(|to| checksum(&[tenant, &key(id), to])))
        .bind(to.map(str::to_owned))
        .bind(tenant.to_owned())
        .bind(key(id))
        .execute(conn)
        .await?;
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

pub(crate) async fn list(
    conn: &mut SqliteConnection,
    tenant: &str,
    wanted: &WorkspaceQuery,
) -> Step<Page<Workspace>> {
    let print = wanted.fingerprint();
    let cursor = wanted.cursor.as_ref();
    let after = cursor.map(|cursor| cursor.recent_key::<WorkspaceId>(print)).transpose()?;
    // Behind the last moment, where the list starts at its beginning.
    let (at, id) = after.map_or((i64::MAX, "~".to_owned()), |(at, id)| (at.as_micros(), key(id)));
    let limit = wanted.limit.clamp(1, PAGE_MAX);
    let words: &[_] = if wanted.with_deleting {
        &[WorkspaceStatus::Active, WorkspaceStatus::Deleting]
    } else {
        &[WorkspaceStatus::Active]
    };
    let mut all = query(if wanted.with_deleting { LIST_ALL } else { LIST });
    for status in words {
        all = all.bind(tenant.to_owned()).bind(word(*status)).bind(at).bind(id.clone());
    }
    let mut rows = all.bind(int(limit as u64 + 1)).fetch_all(&mut *conn).await?;
    let more = rows.len() > limit;
    rows.truncate(limit);
    let (mut page, mut last) = (Page::default(), None);
    for row in &rows {
        let Some(id) = text(row, 0)?.and_then(|id| id.parse::<WorkspaceId>().ok()) else {
            page.damaged.push(Damaged::new("a workspace", "its id is damaged"));
            continue;
        };
        last = Some(Cursor::after_recent(print, Timestamp::from_micros(number(row, 1)?), id));
        match record(row, 1, tenant, id) {
            Ok(workspace) => page.items.push(workspace),
            Err(crate::error::Fault::Refused(error)) => {
                page.damaged.push(Damaged::new(format!("workspace {id}"), error.to_string()));
            }
            Err(fault) => return Err(fault),
        }
    }
    page.next = last.filter(|_| more);
    if wanted.with_total {
        let mut total = 0;
        for status in words {
            let count: i64 = query_scalar("SELECT count(*) FROM workspaces WHERE tenant = ? AND status = ?")
                .bind(tenant.to_owned())
                .bind(word(*status))
                .fetch_one(&mut *conn)
                .await?;
            total += u64::try_from(count).unwrap_or(0);
        }
        page.total = Some(total);
    }
    Ok(page)
}
