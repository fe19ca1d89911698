//! Tenants: their list, and the deletion of all data of one.

use agent_core::store::DeletedTenant;
use agent_core::{TenantId, Timestamp};
use sqlx::Row;

use crate::error::Step;
use crate::medium::db::{Db, Statement};

/// Returns the tenants that have data.
pub(crate) async fn list(db: &mut Db, after: &str) -> Step<Vec<TenantId>> {
    let statement =
        db.of_all("SELECT DISTINCT t FROM @.tenants($1) AS t (t) ORDER BY 1").bind(after.to_owned());
    found(db, statement).await
}

/// Returns the tenants with a session that is due by `until`, or holds a lease.
pub(crate) async fn busy(db: &mut Db, after: &str, until: Timestamp) -> Step<Vec<TenantId>> {
    let statement = db.of_all("SELECT t FROM @.busy_tenants($1, $2) AS t (t) ORDER BY 1");
    let statement = statement.bind(after.to_owned()).bind(until.as_micros());
    found(db, statement).await
}

async fn found(db: &mut Db, statement: Statement<'_>) -> Step<Vec<TenantId>> {
    let rows = db.rows(statement).await?;
    rows.iter().map(|row| Ok(row.try_get::<&str, _>(0)?.parse::<TenantId>()?)).collect()
}

/// Deletes all data of a tenant, in a transaction that excludes its writers: readers see all of it or nothing, and if it is
/// cut off, nothing has changed.
pub(crate) async fn delete(db: &mut Db) -> Step<DeletedTenant> {
    let mut deleted = DeletedTenant::default();
    // Who stores a chunk has the row of its blob: waits for it, so that no chunk is left behind.
    db.execute(db.query("UPDATE @.blobs SET state = 'removed' WHERE tenant = $1")).await?;
    let sql = "DELETE FROM @.blob_chunks c USING @.blobs b WHERE b.tenant = $1 AND c.blob = b.blob";
    db.execute(db.query(sql)).await?;
    let sql = "SELECT count(*) FROM (SELECT session FROM @.sessions WHERE tenant = $1 \
        UNION SELECT session FROM @.events WHERE tenant = $1 UNION SELECT session FROM @.tombstones WHERE tenant = $1) AS s";
    let row = db.first(db.query(sql)).await?;
    let count: i64 = row.map(|row| row.try_get(0)).transpose()?.unwrap_or(0);
    deleted.sessions = u64::try_from(count).unwrap_or(0);
    for sql in [
        "DELETE FROM @.sessions WHERE tenant = $1",
        "DELETE FROM @.blobs WHERE tenant = $1",
        "DELETE FROM @.events WHERE tenant = $1",
        "DELETE FROM @.labels WHERE tenant = $1",
        "DELETE FROM @.due WHERE tenant = $1",
        "DELETE FROM @.tombstones WHERE tenant = $1",
        "DELETE FROM @.heartbeats WHERE tenant = $1",
    ] {
        db.execute(db.query(sql)).await?;
    }
    deleted.workspaces = db.execute(db.query("DELETE FROM @.workspaces WHERE tenant = $1")).await?;
    deleted.bindings = db.execute(db.query("DELETE FROM @.bindings WHERE tenant = $1")).await?;
    Ok(deleted)
}
