//! Workspaces: their records, configurations and tombstones.

use agent_core::commit::Precondition;
use agent_core::model::{Workspace, WorkspaceStatus};
use agent_core::store::{ContentHash, Cursor, Damaged, PAGE_MAX, Page, WorkspaceQuery};
use agent_core::{Error, ErrorKind, OwnerId, Revision, Timestamp, WorkspaceId};
use sqlx::Row;
use sqlx::postgres::PgRow;
use sqlx::types::Uuid;

use crate::error::{Fault, Step, corrupt};
use crate::medium::db::Db;
use crate::medium::rows::{checksum, checksum_of_bytes, int};
use crate::medium::sql::Sql;

/// State that marks a tombstone among the states of a workspace.
const DELETED: &str = "deleted";

fn no_workspace(id: WorkspaceId) -> Error {
    Error::not_found(format!("workspace {id} does not exist"))
}

fn deleted(id: WorkspaceId) -> Error {
    Error::deleted(format!("workspace {id} was deleted; its id is not used again"))
}

const fn word(status: WorkspaceStatus) -> &'static str {
    match status {
        WorkspaceStatus::Deleting => "deleting",
        _ => "active",
    }
}

/// Returns the id as checksums have it.
fn key(id: WorkspaceId) -> String {
    id.as_uuid().to_string()
}

/// Excludes other changes of a workspace until the transaction ends, also if there is none yet.
async fn lock(db: &mut Db, id: WorkspaceId) -> Step<()> {
    let sql = "SELECT pg_advisory_xact_lock(hashtextextended($1 || '/' || $2::text, $3))";
    db.first(db.query(sql).bind(*id.as_uuid()).bind(db.lock)).await.map(drop)
}

/// Returns a workspace's row.
async fn row(db: &mut Db, id: WorkspaceId) -> Step<PgRow> {
    let sql = "SELECT status, last_accessed, crc, record, config_crc, config FROM @.workspaces WHERE tenant = $1 AND id = $2";
    let row = db.first(db.query(sql).bind(*id.as_uuid())).await?.ok_or_else(|| no_workspace(id))?;
    if row.try_get::<&str, _>(0)? == DELETED { Err(deleted(id).into()) } else { Ok(row) }
}

/// Reads the record from the columns `last_accessed`, `crc` and `record`, from index `at` on.
fn record(row: &PgRow, at: usize, tenant: &str, id: WorkspaceId) -> Step<Workspace> {
    let damaged = |what| corrupt(&format!("the record of workspace {id}"), what);
    let (crc, json): (Option<i32>, Option<&str>) = (row.try_get(at + 1)?, row.try_get(at + 2)?);
    let json = json.ok_or_else(|| damaged("is missing"))?;
    if crc != Some(checksum(&[tenant, &key(id), json])) {
        return Err(damaged("does not fit its checksum").into());
    }
    let mut workspace = Workspace::from_json(json).map_err(|_| damaged("is of no format that is read"))?;
    workspace.last_accessed = workspace.last_accessed.max(Timestamp::from_micros(row.try_get(at)?));
    Ok(workspace)
}

pub(crate) async fn load(db: &mut Db, id: WorkspaceId) -> Step<Workspace> {
    let row = row(db, id).await?;
    record(&row, 1, &db.scope.tenant, id)
}

/// Statement that stores a workspace.
macro_rules! put_sql {
    ($otherwise:literal) => {
        concat!(
            "INSERT INTO @.workspaces (tenant, id, owner, name, status, last_accessed, crc, record) \
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT (tenant, id) DO ",
            $otherwise
        )
    };
}

pub(crate) async fn put(
    db: &mut Db,
    workspace: &Workspace,
    expect: Precondition<Revision>,
) -> Step<Workspace> {
    let mut workspace = workspace.clone();
    workspace.check()?;
    let id = workspace.id;
    lock(db, id).await?;
    let now = match load(db, id).await {
        Ok(now) => Some(now),
        Err(Fault::Refused(error)) if *error.kind() == ErrorKind::NotFound => None,
        Err(fault) => return Err(fault),
    };
    workspace.prepare_put(now.as_ref(), expect)?;
    let json = workspace.to_json();
    // A row that the owner does not see may have the id.
    let statement = db.query(if now.is_none() { put_sql!("NOTHING") } else { put_sql!("UPDATE SET name = excluded.name, \
        status = excluded.status, last_accessed = excluded.last_accessed, crc = excluded.crc, record = excluded.record") });
    let statement = statement
        .bind(*id.as_uuid())
        .bind(workspace.owner.as_ref().map_or("", OwnerId::as_str).to_owned())
        .bind(workspace.name.clone())
        .bind(word(workspace.status))
        .bind(workspace.last_accessed.as_micros())
        .bind(checksum(&[&db.scope.tenant, &key(id), &json]))
        .bind(json);
    if db.execute(statement).await? == 0 {
        let text = format!("workspace {id} cannot be created, since its id is in use; choose another id");
        return Err(Error::new(ErrorKind::Conflict { head: None }, text).into());
    }
    Ok(workspace)
}

pub(crate) async fn touch(db: &mut Db, id: WorkspaceId, at: Timestamp) -> Step<()> {
    lock(db, id).await?;
    // A damaged record is not touched.
    let now = load(db, id).await?;
    if now.last_accessed < at {
        let sql = "UPDATE @.workspaces SET last_accessed = $3 WHERE tenant = $1 AND id = $2";
        db.execute(db.query(sql).bind(*id.as_uuid()).bind(at.as_micros())).await?;
    }
    Ok(())
}

pub(crate) async fn delete(db: &mut Db, id: WorkspaceId) -> Step<()> {
    lock(db, id).await?;
    let sql = "UPDATE @.workspaces SET status = 'deleted', owner = '', name = NULL, crc = NULL, record = NULL, config_crc = NULL, \
        config = NULL WHERE tenant = $1 AND id = $2";
    match db.execute(db.query(sql).bind(*id.as_uuid())).await? {
        0 => Err(no_workspace(id).into()),
        _ => Ok(()),
    }
}

pub(crate) async fn load_config(db: &mut Db, id: WorkspaceId) -> Step<Option<String>> {
    let row = row(db, id).await?;
    let Some(crc) = row.try_get::<Option<i32>, _>(4)? else { return Ok(None) };
    let bytes = row.try_get::<Option<Vec<u8>>, _>(5)?.unwrap_or_default();
    let fits = checksum_of_bytes([db.scope.tenant.as_bytes(), key(id).as_bytes(), &bytes]) == crc;
    let config = String::from_utf8(bytes).ok().filter(|_| fits);
    let damaged = || corrupt(&format!("the configuration of workspace {id}"), "does not fit its checksum");
    Ok(Some(config.ok_or_else(damaged)?))
}

pub(crate) async fn save_config(
    db: &mut Db,
    id: WorkspaceId,
    to: Option<&str>,
    expect: Precondition<ContentHash>,
) -> Step<()> {
    let object = format!("the configuration of workspace {id}");
    ContentHash::check_size(to).map_err(|error| error.about(&object))?;
    lock(db, id).await?;
    let now = load_config(db, id).await?;
    ContentHash::check(expect, now.as_deref(), &object)?;
    let crc = to.map(|to| checksum(&[&db.scope.tenant, &key(id), to]));
    let sql = "UPDATE @.workspaces SET config_crc = $3, config = $4 WHERE tenant = $1 AND id = $2";
    let update = db.query(sql).bind(*id.as_uuid()).bind(crc).bind(to.map(|to| to.as_bytes().to_vec()));
    db.execute(update).await.map(drop)
}

/// Adds the conditions of a list.
fn narrow(sql: &mut Sql, wanted: &WorkspaceQuery) -> Step<()> {
    sql.push(" FROM @.workspaces WHERE tenant = $1 AND status ");
    sql.push(if wanted.with_deleting { "IN ('active', 'deleting')" } else { "= 'active'" });
    if let Some(owner) = &wanted.owner {
        sql.push(" AND owner ");
        sql.push(if wanted.with_unowned { "IN ('', " } else { "IN (" });
        sql.value(owner.as_str())?.push(")");
    }
    Ok(())
}

pub(crate) async fn list(db: &mut Db, wanted: &WorkspaceQuery) -> Step<Page<Workspace>> {
    let (print, limit) = (wanted.fingerprint(), wanted.limit.min(PAGE_MAX));
    let cursor = wanted.cursor.as_ref();
    let after = cursor.map(|cursor| cursor.recent_key::<WorkspaceId>(print)).transpose()?;
    let mut sql = Sql::of_tenant(&db.scope.tenant)?;
    sql.push("SELECT id, last_accessed, crc, record");
    narrow(&mut sql, wanted)?;
    if let Some((at, id)) = after {
        sql.push(" AND (last_accessed, id) < (")
            .value(at.as_micros())?
            .push(", ")
            .value(*id.as_uuid())?
            .push(")");
    }
    sql.push(" ORDER BY last_accessed DESC, id DESC LIMIT ").value(int(limit as u64 + 1))?;
    let rows = db.rows(db.built(sql)).await?;
    let (mut page, mut last) = (Page::default(), None);
    for row in rows.iter().take(limit) {
        let id = WorkspaceId::from_uuid(row.try_get::<Uuid, _>(0)?);
        last = Some(Cursor::after_recent(print, Timestamp::from_micros(row.try_get(1)?), id));
        match record(row, 1, &db.scope.tenant, id) {
            Ok(workspace) => page.items.push(workspace),
            Err(Fault::Refused(error)) => page.damaged.push(Damaged::of(format!("workspace {id}"), &error)),
            Err(fault) => return Err(fault),
        }
    }
    page.next = last.filter(|_| rows.len() > limit);
    if wanted.with_total {
        let mut sql = Sql::of_tenant(&db.scope.tenant)?;
        sql.push("SELECT count(*)");
        narrow(&mut sql, wanted)?;
        let row = db.first(db.built(sql)).await?;
        let total: i64 = row.map(|row| row.try_get(0)).transpose()?.unwrap_or(0);
        page.total = Some(u64::try_from(total).unwrap_or(0));
    }
    Ok(page)
}
