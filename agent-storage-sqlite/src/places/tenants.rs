//! Tenants: their list, and the deletion of all data of one.
//!
//! A row in `deletions` marks a tenant whose deletion has begun: its data is not read or written any more. The data is
//! then removed in small transactions, the log is emptied, and the mark goes last. So no reader sees a part of a
//! tenant, also after a crash.

use agent_core::store::DeletedTenant;
use agent_core::{Error, ErrorKind, TenantId, Timestamp};
use rusqlite::{Connection, Params, params};

use crate::blobs::removal;
use crate::error::Step;
use crate::medium::rewrites;
use crate::medium::rows::{each, execute, first, first_number, int, number};

/// Limit on the rows that one transaction removes. `BYTES` limits the bytes of events, approximately.
const ROWS: u64 = 1024;
const BYTES: u64 = 4 << 20;
/// Name that no tenant has. Queries with it find nothing.
const NOBODY: &str = "";

/// Returns the tenants that have data, with one step along an index for each.
pub(crate) fn list(conn: &Connection, after: &str) -> Step<Vec<TenantId>> {
    let steps = |table: &str| {
        format!(
            "SELECT n FROM (WITH RECURSIVE t (n) AS (SELECT (SELECT min(tenant) FROM {table} WHERE tenant > ?1) \
             UNION ALL SELECT (SELECT min(tenant) FROM {table} WHERE tenant > n) FROM t WHERE n IS NOT NULL) \
             SELECT n FROM t WHERE n IS NOT NULL AND n NOT IN (SELECT tenant FROM deletions))"
        )
    };
    let sql = ["logs", "tombstones", "blobs", "workspaces", "bindings"].map(steps).join(" UNION ");
    found(conn, &sql, [after])
}

/// Returns the tenants whose deletion has begun.
pub(crate) fn begun(conn: &Connection) -> Step<Vec<TenantId>> {
    found(conn, "SELECT tenant FROM deletions", [])
}

/// Query for the tenants with a session that is due by a time, or holds a lease; one step along an index for each
/// tenant, and one or two more to see whether it has such a session.
pub(crate) const BUSY: &str = "\
    WITH RECURSIVE t (n) AS (SELECT (SELECT min(tenant) FROM sessions WHERE tenant > ?1) \
    UNION ALL SELECT (SELECT min(tenant) FROM sessions WHERE tenant > n) FROM t WHERE n IS NOT NULL) \
    SELECT n FROM t WHERE n IS NOT NULL AND n NOT IN (SELECT tenant FROM deletions) AND (\
    EXISTS (SELECT 1 FROM sessions s INDEXED BY sessions_recent WHERE s.tenant = n AND s.is_recent = 1 \
    AND s.state IN ('running', 'initializing')) \
    OR EXISTS (SELECT 1 FROM sessions s INDEXED BY sessions_by_state WHERE s.tenant = n AND s.is_recent = 0 \
    AND s.state IN ('running', 'initializing')) \
    OR EXISTS (SELECT 1 FROM sessions s INDEXED BY sessions_by_due WHERE s.tenant = n \
    AND s.next_due_at > -9000000000000000000 AND s.next_due_at <= ?2))";

/// Returns the tenants with a session that is due by `until`, or holds a lease.
pub(crate) fn busy(conn: &Connection, after: &str, until: Timestamp) -> Step<Vec<TenantId>> {
    found(conn, BUSY, params![after, until.as_micros()])
}

/// Returns the tenants that a query finds, in order.
fn found(conn: &Connection, sql: &str, values: impl Params) -> Step<Vec<TenantId>> {
    let mut found = Vec::new();
    each(conn, sql, values, |row| {
        found.push(row.get::<_, String>(0)?.parse::<TenantId>()?);
        Ok(())
    })?;
    found.sort();
    Ok(found)
}

fn is_marked(conn: &Connection, tenant: &str) -> Step<bool> {
    Ok(first_number(conn, "SELECT 1 FROM deletions WHERE tenant = ?", [tenant])?.is_some())
}

/// Returns the name under which a read finds the tenant's data: a name without data if its deletion has begun.
pub(crate) fn shown<'t>(conn: &Connection, tenant: &'t str) -> Step<&'t str> {
    Ok(if is_marked(conn, tenant)? { NOBODY } else { tenant })
}

/// Fails if the tenant's deletion has begun, so that nothing is written to it.
pub(crate) fn check(conn: &Connection, tenant: &str) -> Step<()> {
    if !is_marked(conn, tenant)? {
        return Ok(());
    }
    let text = format!(
        "tenant {tenant} is being deleted; try again when that is done, or delete the tenant again if the deletion was interrupted"
    );
    Err(Error::unavailable(text).into())
}

/// Part of a deletion that one transaction has done.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Removed {
    pub(crate) count: DeletedTenant,
    /// True if data may be left.
    pub(crate) is_left: bool,
}

/// Adds to an error for a session that does not exist that its tenant has no data, if so. Another handle may have deleted the
/// tenant while this one wrote to the session.
pub(crate) fn of_tenant(conn: &Connection, tenant: &str, error: Error) -> Step<Error> {
    if *error.kind() != ErrorKind::NotFound || has_data(conn, tenant)? {
        return Ok(error);
    }
    let text =
        format!("{error}, and its tenant {tenant} has no data: it was deleted, or nothing was written to it");
    Ok(Error::not_found(text))
}

fn has_data(conn: &Connection, tenant: &str) -> Step<bool> {
    let sql = "SELECT EXISTS (SELECT 1 FROM logs WHERE tenant = ?1) OR EXISTS (SELECT 1 FROM sessions WHERE tenant = ?1) \
        OR EXISTS (SELECT 1 FROM tombstones WHERE tenant = ?1) OR EXISTS (SELECT 1 FROM labels WHERE tenant = ?1) \
        OR EXISTS (SELECT 1 FROM blobs WHERE tenant = ?1) \
        OR EXISTS (SELECT 1 FROM workspaces WHERE tenant = ?1) OR EXISTS (SELECT 1 FROM bindings WHERE tenant = ?1)";
    Ok(first_number(conn, sql, [tenant])? == Some(1))
}

/// Marks a tenant, if it has data.
pub(crate) fn begin(conn: &Connection, tenant: &str) -> Step<Removed> {
    let is_left = has_data(conn, tenant)? || is_marked(conn, tenant)?;
    if is_left {
        execute(conn, "INSERT OR IGNORE INTO deletions (tenant) VALUES (?)", [tenant])?;
    }
    Ok(Removed { count: DeletedTenant::default(), is_left })
}

/// Number of rows that one transaction may still remove.
struct Budget {
    rows: u64,
    bytes: u64,
}

impl Budget {
    fn is_spent(&self) -> bool {
        self.rows == 0 || self.bytes == 0
    }

    fn spend(&mut self, rows: u64) -> u64 {
        self.rows = self.rows.saturating_sub(rows);
        rows
    }
}

/// Removes a part of a marked tenant, without the mark.
pub(crate) fn remove(conn: &Connection, tenant: &str) -> Step<Removed> {
    rewrites::mark(conn)?;
    let mut budget = Budget { rows: ROWS, bytes: BYTES };
    let bindings = remove_rows(conn, "bindings", tenant, &mut budget)?;
    let mut sessions = 0;
    while !budget.is_spent()
        && let Some(log) = any_log(conn, tenant)?
        && remove_log(conn, tenant, log, &mut budget)?
    {
        sessions += 1;
    }
    // Rows without related rows, which another program removed.
    sessions += remove_rows(conn, "tombstones", tenant, &mut budget)?;
    if !budget.is_spent() {
        budget.spend(execute(conn, "DELETE FROM labels WHERE tenant = ?", [tenant])? as u64);
    }
    let workspaces = remove_rows(conn, "workspaces", tenant, &mut budget)?;
    let is_left = budget.is_spent() || removal::delete_any(conn, tenant)?.is_left;
    Ok(Removed { count: DeletedTenant::new(workspaces, sessions, bindings), is_left })
}

/// Removes the mark of a tenant of which nothing else is left.
pub(crate) fn end(conn: &Connection, tenant: &str) -> Step<()> {
    rewrites::mark(conn)?;
    execute(conn, "DELETE FROM deletions WHERE tenant = ?", [tenant])?;
    Ok(())
}

/// Removes rows of a table that has a column `tenant`; returns their number.
fn remove_rows(conn: &Connection, table: &str, tenant: &str, budget: &mut Budget) -> Step<u64> {
    if budget.is_spent() {
        return Ok(0);
    }
    let sql =
        format!("DELETE FROM {table} WHERE rowid IN (SELECT rowid FROM {table} WHERE tenant = ? LIMIT ?)");
    let removed = execute(conn, &sql, params![tenant, int(budget.rows)])? as u64;
    Ok(budget.spend(removed))
}

/// Returns the number of one of the tenant's logs.
fn any_log(conn: &Connection, tenant: &str) -> Step<Option<i64>> {
    let found = first_number(conn, "SELECT log FROM logs WHERE tenant = ? LIMIT 1", [tenant])?;
    if found.is_some() {
        return Ok(found);
    }
    let sql = "SELECT log FROM sessions INDEXED BY sessions_by_id WHERE tenant = ? LIMIT 1";
    Ok(first_number(conn, sql, [tenant])?)
}

/// Removes events of a log and, with the last of them, everything else of its session. Returns whether all is removed.
fn remove_log(conn: &Connection, tenant: &str, log: i64, budget: &mut Budget) -> Step<bool> {
    let sql = "SELECT seq, octet_length(json) FROM events WHERE log = ? ORDER BY seq LIMIT ?";
    let (mut last, mut count) = (None, 0);
    each(conn, sql, params![log, int(budget.rows)], |row| {
        if budget.bytes > 0 {
            (last, count) = (Some(number(row, 0)?), count + 1);
            budget.bytes = budget.bytes.saturating_sub(u64::try_from(number(row, 1)?).unwrap_or(0));
        }
        Ok(())
    })?;
    execute(conn, "DELETE FROM events WHERE log = ? AND seq <= ?", params![log, last])?;
    budget.spend(count);
    if first(conn, "SELECT 1 FROM events WHERE log = ? LIMIT 1", [log], |_| Ok(()))?.is_some() {
        return Ok(false);
    }
    let sql = "DELETE FROM tombstones WHERE tenant = ?1 AND session IN (\
        SELECT session FROM logs WHERE log = ?2 UNION SELECT id FROM sessions WHERE log = ?2)";
    execute(conn, sql, params![tenant, log])?;
    for table in ["labels", "heartbeats", "sessions", "logs"] {
        budget.spend(execute(conn, &format!("DELETE FROM {table} WHERE log = ?"), [log])? as u64);
    }
    Ok(true)
}
