//! Recent sessions: those of a tenant that were active last. A commit in one of them writes to no index by recency.
//!
//! Of `MOST` sessions, those that were active first are moved to these indexes, a few at a time, so that the pages that
//! they share are written once.

use std::sync::Arc;

use rusqlite::{Connection, params};

use crate::error::Step;
use crate::medium::known::Known;
use crate::medium::rows::{each, execute, first_number, number, text};

/// Most recent sessions of a tenant, all of which a list looks at.
pub(crate) const MOST: usize = 64;
/// Number of sessions that are moved at once.
const MOVED: usize = 16;

/// Number of recent sessions of a tenant, from the index alone.
pub(crate) const COUNT: &str =
    "SELECT count(*) FROM sessions INDEXED BY sessions_recent WHERE tenant = ? AND is_recent = 1";

/// Moves sessions of the tenant to the indexes by recency, if too many are recent.
pub(crate) fn make_room(conn: &Connection, known: &Known, tenant: &Arc<str>) -> Step<()> {
    let count = usize::try_from(first_number(conn, COUNT, [tenant])?.unwrap_or(0)).unwrap_or(0);
    if count <= MOST {
        return Ok(());
    }
    let mut found = Vec::with_capacity(count);
    let sql = "SELECT last_active_at, id, log FROM sessions INDEXED BY sessions_recent \
        WHERE tenant = ? AND is_recent = 1";
    each(conn, sql, [tenant], |row| {
        found.push((number(row, 0)?, text(row, 1)?.unwrap_or_default().to_owned(), number(row, 2)?));
        Ok(())
    })?;
    found.sort();
    found.truncate(count - MOST + MOVED - 1);
    for (at, id, log) in found {
        execute(conn, "UPDATE sessions SET is_recent = 0 WHERE log = ?", [log])?;
        let sql = "UPDATE labels SET last_active_at = ?1 WHERE log = ?2 AND last_active_at <> ?1";
        execute(conn, sql, params![at, log])?;
        if let Ok(id) = id.parse() {
            known.set_not_recent(&(tenant.clone(), id));
        }
    }
    Ok(())
}
