//! Tables: created, and checked when the store is opened.

use agent_core::store::Durability;
use agent_core::{Error, Result};
use sqlx::Row;

use crate::error::Step;
use crate::medium::attempts::{Mode, Site, run};
use crate::medium::db::Db;

/// Number of the tables that this version reads and writes.
pub(crate) const FORMAT: i32 = 1;

const TABLES: &str = include_str!("tables.sql");
const FUNCTIONS: &str = include_str!("functions.sql");

/// Number of the advisory lock of migrations, of all schemas of a database.
const MIGRATION: i64 = 0x4147_4e54_0000_0001;

/// Returns the format of the tables; `None` if there are none.
async fn format(db: &mut Db, schema: &str) -> Step<Option<i32>> {
    // By the rows of the catalog: what `to_regclass` knows may be older than a lock that was waited for.
    let sql = "SELECT EXISTS (SELECT 1 FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
        WHERE n.nspname = $1 AND c.relname = 'meta')";
    let row = db.first(db.of_all(sql).bind(schema.to_owned())).await?;
    if !row.map(|row| row.try_get(0)).transpose()?.unwrap_or(false) {
        return Ok(None);
    }
    let row = db.first(db.of_all("SELECT format FROM @.meta")).await?;
    Ok(row.map(|row| row.try_get(0)).transpose()?)
}

/// Creates the tables if there are none, in one transaction. Of several that try at once, one does it.
async fn migrate(db: &mut Db, schema: &str) -> Step<()> {
    db.run(format!("SELECT pg_advisory_xact_lock({MIGRATION})")).await?;
    if format(db, schema).await?.is_some() {
        return Ok(());
    }
    db.run(format!("CREATE SCHEMA IF NOT EXISTS \"{schema}\"")).await?;
    for script in [TABLES, FUNCTIONS] {
        let text = db.names.sql(script).0;
        db.run(text).await?;
    }
    let sql = format!("INSERT INTO @.meta (format, readers_from) VALUES ({FORMAT}, {FORMAT})");
    db.execute(db.of_all(&sql)).await?;
    Ok(())
}

/// Checks the tables, and creates them before that if there are none and `may_migrate`.
pub(crate) async fn open(site: &Site, schema: &str, place: &str, may_migrate: bool) -> Result<()> {
    let mut found = run!(site, Mode::Snapshot, "open the store", db => format(db, schema).await)?;
    if found.is_none() && may_migrate {
        run!(@ site.attempts(Mode::Shared, "create the tables of the store").long(), db => migrate(db, schema).await)?;
        found = run!(site, Mode::Snapshot, "open the store", db => format(db, schema).await)?;
    }
    match found {
        Some(FORMAT) => Ok(()),
        Some(other) if other > FORMAT => Err(Error::unsupported(format!(
            "{place} has tables of format {other}, this version knows {FORMAT}; update the library"
        ))),
        Some(other) => Err(Error::unsupported(format!(
            "{place} has tables of format {other}, which was never released; this version reads {FORMAT}: use the version \
             that wrote them, or name another schema"
        ))),
        None => Err(Error::not_found(format!(
            "{place} has no tables of a store; open it once with `migrate=true` to create them"
        ))),
    }
}

/// Returns what an acknowledged write survives, as the server is set.
pub(crate) async fn durability(db: &mut Db) -> Step<Durability> {
    let sql = "SELECT current_setting('fsync') = 'on' AND current_setting('full_page_writes') = 'on' \
        AND current_setting('synchronous_commit') <> 'off'";
    let row = db.first(db.of_all(sql)).await?;
    let is_durable = row.map(|row| row.try_get(0)).transpose()?.unwrap_or(false);
    Ok(if is_durable { Durability::PowerLoss } else { Durability::ProcessCrash })
}
