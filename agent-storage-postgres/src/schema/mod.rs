//! Tables: created, and checked when the store is opened.

use agent_core::store::Durability;
use agent_core::{Error, Result};
use sqlx::Row;

use crate::error::{Fault, Step, is_missing};
use crate::medium::attempts::{Mode, Site, run};
use crate::medium::db::Db;

/// Number of the tables that this version reads and writes.
pub(crate) const FORMAT: i32 = 1;

const TABLES: &str = include_str!("tables.sql");
const FUNCTIONS: &str = include_str!("functions.sql");

/// Number of the advisory lock of migrations, of all schemas of a database.
const MIGRATION: i64 = 0x4147_4e54_0000_0001;

/// What opening reads.
#[derive(Clone, Copy, Debug)]
struct Found {
    format: i32,
    /// What an acknowledged write survives, as the server is set.
    durability: Durability,
}

/// Reads the format of the tables and the settings of the server; `None` if there are no tables.
async fn find(db: &mut Db) -> Step<Option<Found>> {
    let sql = "SELECT format, current_setting('fsync') = 'on' AND current_setting('full_page_writes') = 'on' \
        AND current_setting('synchronous_commit') <> 'off' FROM @.meta";
    let row = match db.first_once(sql).await {
        Err(Fault::Sql(error)) if is_missing(&error) => None,
        row => row?,
    };
    let Some(row) = row else { return Ok(None) };
    let is_durable: bool = row.try_get(1)?;
    let durability = if is_durable { Durability::PowerLoss } else { Durability::ProcessCrash };
    Ok(Some(Found { format: row.try_get(0)?, durability }))
}

/// Creates the tables if there are none, in one transaction. Of several that try at once, one does it.
async fn migrate(db: &mut Db, schema: &str) -> Step<()> {
    db.run(format!("SELECT pg_advisory_xact_lock({MIGRATION})")).await?;
    // By the rows of the catalog: names that are looked up otherwise may be older than a lock that was waited for.
    let sql = "SELECT 1 FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
        WHERE n.nspname = $1 AND c.relname = 'meta'";
    if db.first(db.of_all(sql).bind(schema.to_owned())).await?.is_some() {
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

/// Checks the tables, and creates them before that if there are none and `may_migrate`. Returns what an acknowledged write
/// survives.
pub(crate) async fn open(site: &Site, schema: &str, place: &str, may_migrate: bool) -> Result<Durability> {
    let mut found = run!(site, Mode::Read, "open the store", db => find(db).await)?;
    if found.is_none() && may_migrate {
        run!(@ site.attempts(Mode::Shared, "create the tables of the store").long(), db => migrate(db, schema).await)?;
        found = run!(site, Mode::Read, "open the store", db => find(db).await)?;
    }
    match found {
        Some(Found { format: FORMAT, durability }) => Ok(durability),
        Some(Found { format, .. }) if format > FORMAT => Err(Error::unsupported(format!(
            "{place} has tables of format {format}, this version knows {FORMAT}; update the library"
        ))),
        Some(Found { format, .. }) => Err(Error::unsupported(format!(
            "{place} has tables of format {format}, which was never released; this version reads {FORMAT}: use the version \
             that wrote them, or name another schema"
        ))),
        None => Err(Error::not_found(format!(
            "{place} has no tables of a store; open it once with `migrate=true` to create them"
        ))),
    }
}
