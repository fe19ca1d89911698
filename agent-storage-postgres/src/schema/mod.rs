//! Tables: created, and checked when the store is opened.

use agent_core::store::{Durability, Isolation};
use agent_core::text::quoted;
use agent_core::{Error, ErrorKind, Result};
use sqlx::Row;
use sqlx::postgres::PgRow;

use crate::config::PostgresConfig;
use crate::error::{Fault, Step, failed, is_missing, is_other_table};
use crate::medium::attempts::{Mode, Site, run};
use crate::medium::db::Db;

/// Number of the tables that this version reads and writes.
pub(crate) const FORMAT: i32 = 1;

const SCRIPTS: [&str; 7] = [
    include_str!("roles.sql"),
    include_str!("tables.sql"),
    include_str!("functions.sql"),
    include_str!("isolation.sql"),
    include_str!("partitions.sql"),
    include_str!("views.sql"),
    include_str!("grants.sql"),
];

/// Statement that names a part of the store that is missing.
const MISSING: &str = include_str!("missing.sql");

/// Statement that says which row security is not as this version creates it.
const CHANGED: &str = include_str!("changed.sql");

/// Statement that says which role of the store has rights that it must not have.
const RIGHTS: &str = include_str!("rights.sql");

/// Statement that names an object with a name of the store's, if there is no table `meta`.
const LEFT: &str = include_str!("left.sql");

const POLICIES: &str = include_str!("policies.sql");

/// What the server writes in the condition of a policy, and a statement that creates it does not: names of columns, casts, spaces.
const UNWRITTEN: &str = r#"\s+AS\s+[a-z_]+|::[a-z]+|\s+|""#;

/// Number of the advisory lock of migrations, of all schemas of a database.
const MIGRATION: i64 = 0x4147_4e54_0000_0001;

const OPENING: &str = "open the store";

/// Oldest version of the server, as it numbers them: views in it can have the rights of whoever reads them.
const OLDEST: i32 = 150_000;

/// What the server and the tables promise.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opened {
    /// What an acknowledged write survives, as the server is set.
    pub(crate) durability: Durability,
    /// Whether row security binds the user.
    pub(crate) isolation: Isolation,
    /// True if this opening has created the tables.
    pub(crate) has_created: bool,
}

/// What opening reads.
#[derive(Debug)]
struct Found {
    format: i32,
    durability: Durability,
    user: User,
    /// Number of parts of the table of events.
    partitions: i64,
    /// Table, policy or function that is not there.
    missing: Option<String>,
    /// Row security that is not as this version creates it.
    changed: Option<String>,
    /// Role with rights that it must not have.
    rights: Option<String>,
}

/// What there is in the schema.
#[derive(Debug)]
enum Tables {
    Found(Found),
    None,
    /// A part of the store is missing, without which nothing else can be said.
    Torn(&'static str),
    /// An object that is not the store's has a name of the store's.
    Foreign(String),
}

impl Tables {
    /// Returns what was found of a store, if there is one.
    fn into_found(self, config: &PostgresConfig, place: &str) -> Result<Option<Found>> {
        match self {
            Self::Found(found) => Ok(Some(found)),
            Self::None => Ok(None),
            Self::Torn(missing) => Err(torn(place, missing)),
            Self::Foreign(object) => Err(Error::unsupported(format!(
                "{place} has a {object} that is not this library's, where the store would have its own; name a schema that nobody else \
                 uses (`schema=NAME`, now {}), or rename or remove it",
                config.schema
            ))),
        }
    }
}

impl Found {
    /// Refuses tables of another format, for a user whom no policy binds, that are not whole, or divided in another way.
    fn check(&self, config: &PostgresConfig, place: &str) -> Result<()> {
        match self.format {
            FORMAT => {}
            format if format > FORMAT => {
                return Err(Error::unsupported(format!(
                    "{place} has tables of format {format}, this version knows {FORMAT}; update the library"
                )));
            }
            format => {
                return Err(Error::unsupported(format!(
                    "{place} has tables of format {format}, which was never released; this version reads {FORMAT}: use the version \
                     that wrote them, or name another schema"
                )));
            }
        }
        self.user.check(config, true)?;
        if let Some(missing) = &self.missing {
            return Err(torn(place, missing));
        }
        if let Some(changed) = &self.changed {
            return Err(Error::unsupported(format!("{place}: {changed}")));
        }
        check_rights(place, self.rights.as_deref())?;
        if let Some(wanted) = config.partitions
            && i64::from(wanted) != self.partitions
        {
            return Err(Error::invalid(format!(
                "{place} was created with partitions={}, and not {wanted}, which nothing changes; leave `partitions` out, or copy the store \
                 to a schema that is created with another number",
                self.partitions
            )));
        }
        Ok(())
    }
}

/// User of the connection.
#[derive(Debug)]
struct User {
    name: String,
    /// True if no policy binds the user.
    is_unbound: bool,
}

impl User {
    /// Reads the columns of [`USER`] from index `at` on.
    fn of(row: &PgRow, at: usize) -> Step<Self> {
        Ok(Self { name: row.try_get(at)?, is_unbound: row.try_get(at + 1)? })
    }

    fn isolation(&self) -> Isolation {
        if self.is_unbound { Isolation::None } else { Isolation::Database }
    }

    /// Refuses a user whom no policy binds, unless that is wanted.
    fn check(&self, config: &PostgresConfig, are_there_tables: bool) -> Result<()> {
        if !self.is_unbound || config.isolation == Isolation::None {
            return Ok(());
        }
        let (name, schema) = (&self.name, &config.schema);
        let remedy = if are_there_tables {
            format!(
                "connect as {schema}_app or as another user without these rights, or set `isolation=none`"
            )
        } else {
            format!(
                "set `isolation=none` to create the tables and the user {schema}_app, who then opens the store without it, or \
                 create the tables as a user without these rights"
            )
        };
        let text = "is a superuser or has BYPASSRLS, so that PostgreSQL would not keep tenants apart";
        Err(Error::new(ErrorKind::Denied, format!("user {name} {text}; {remedy}")))
    }
}

/// Columns about the user, of the catalog `r`.
const USER: &str = "r.rolname::text, r.rolsuper OR r.rolbypassrls";

/// Fails unless the server is a PostgreSQL that has what the store uses.
async fn check_server(db: &mut Db) -> Step<()> {
    let sql = "SELECT pg_catalog.version(), current_setting('server_version_num')::integer, \
        EXISTS (SELECT 1 FROM pg_catalog.pg_language WHERE lanname = 'plpgsql')";
    let row = db.first_once(sql).await?.ok_or(sqlx::Error::RowNotFound)?;
    Ok(supported(row.try_get(0)?, row.try_get(1)?, row.try_get(2)?)?)
}

/// Refuses servers that speak the protocol of PostgreSQL and have neither its functions nor its policies, and old versions.
fn supported(version: &str, number: i32, has_plpgsql: bool) -> Result<()> {
    let refuse = |what: &str| {
        let text =
            format!("{what}; name a server with PostgreSQL 15 or newer, or use another store (s3, sqlite)");
        Err(Error::unsupported(text))
    };
    let others = ["CockroachDB", "-YB-", "Redshift", "Materialize", "CrateDB"];
    if others.iter().any(|other| version.contains(other)) {
        return refuse(&format!("the server is no PostgreSQL, but {}", quoted(version)));
    }
    if !has_plpgsql {
        return refuse("the server has no PL/pgSQL, as Aurora DSQL has none");
    }
    if number < OLDEST {
        return refuse(&format!("the server is {}, which is too old", quoted(version)));
    }
    Ok(())
}

/// Returns a statement in which the names of the schema and its roles are written; `@.` is left.
fn named(sql: &str, schema: &str) -> String {
    let sql = sql.replace("@policies", POLICIES).replace("@unwritten", UNWRITTEN).replace("@schema", schema);
    ["owner", "app", "worker"]
        .iter()
        .fold(sql, |sql, role| sql.replace(&format!("@{role}"), &format!("{schema}_{role}")))
}

/// Reads the format of the tables and the settings of the server.
async fn find(db: &mut Db, schema: &str) -> Step<Tables> {
    let [missing, changed, rights] = [MISSING, CHANGED, RIGHTS].map(|sql| named(sql, schema));
    let sql = format!(
        "SELECT m.format, current_setting('fsync') = 'on' AND current_setting('full_page_writes') = 'on' \
         AND current_setting('synchronous_commit') <> 'off', \
         (SELECT greatest(count(*), 1) FROM pg_catalog.pg_inherits i JOIN pg_catalog.pg_class c ON c.oid = i.inhparent \
         WHERE c.relname = 'events' AND c.relnamespace = (SELECT relnamespace FROM pg_catalog.pg_class WHERE oid = m.tableoid)), \
         ({missing}), ({changed}), ({rights}), {USER} \
         FROM @.meta m, pg_catalog.pg_roles r WHERE r.rolname = current_user"
    );
    let row = match db.first_once(&sql).await {
        Err(Fault::Sql(error)) if is_missing(&error) => return left(db, schema).await,
        Err(Fault::Sql(error)) if is_other_table(&error) => {
            return Ok(Tables::Foreign("table meta".to_owned()));
        }
        row => row?,
    };
    let Some(row) = row else { return Ok(Tables::Torn("the row of table meta")) };
    let durability = if row.try_get(1)? { Durability::PowerLoss } else { Durability::ProcessCrash };
    Ok(Tables::Found(Found {
        format: row.try_get(0)?,
        durability,
        partitions: row.try_get(2)?,
        missing: row.try_get(3)?,
        changed: row.try_get(4)?,
        rights: row.try_get(5)?,
        user: User::of(&row, 6)?,
    }))
}

/// Looks at a schema without a table `meta`.
async fn left(db: &mut Db, schema: &str) -> Step<Tables> {
    let Some(row) = db.first_once(&named(LEFT, schema)).await? else { return Ok(Tables::None) };
    Ok(if row.try_get(1)? { Tables::Torn("table meta") } else { Tables::Foreign(row.try_get(0)?) })
}

/// Refuses roles that no policy would bind, or that could do more.
fn check_rights(place: &str, wrong: Option<&str>) -> Result<()> {
    wrong.map_or(Ok(()), |wrong| Err(Error::new(ErrorKind::Denied, format!("{place}: {wrong}"))))
}

/// Error for a part of a store that somebody has removed.
fn torn(place: &str, missing: &str) -> Error {
    Error::corrupt(format!("{place}: {missing} of the store is missing; restore it from a backup"))
}

/// Creates the tables and the roles if there are none, in one transaction. Of several that try at once, one does it: returns whether
/// it was this one.
async fn migrate(db: &mut Db, config: &PostgresConfig) -> Step<bool> {
    let rights = named(RIGHTS, &config.schema);
    let sql = format!("SELECT ({rights}), {USER} FROM pg_catalog.pg_roles r WHERE r.rolname = current_user");
    if let Some(row) = db.first_once(&sql).await? {
        User::of(&row, 1)?.check(config, false)?;
        check_rights(&config.place(), row.try_get(0)?)?;
    }
    db.run(format!("SELECT pg_advisory_xact_lock({MIGRATION})")).await?;
    // By the rows of the catalog: names that are looked up otherwise may be older than a lock that was waited for.
    let sql = "SELECT 1 FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
        WHERE n.nspname = $1 AND c.relname = 'meta'";
    let schema = &config.schema;
    if db.first(db.of_all(sql).bind(schema.to_owned())).await?.is_some() {
        return Ok(false);
    }
    db.run(format!("CREATE SCHEMA IF NOT EXISTS \"{schema}\"")).await?;
    let partitions = config.partitions.filter(|count| *count > 1).unwrap_or(0);
    let partitioned = if partitions > 0 { "PARTITION BY HASH (tenant, session)" } else { "" };
    for script in SCRIPTS {
        let script = script.replace("@partitions", &partitions.to_string());
        let script = named(&script.replace("@partitioned", partitioned), schema);
        db.run(db.names.sql(&script).0).await?;
    }
    let sql = format!("INSERT INTO @.meta (format, readers_from) VALUES ({FORMAT}, {FORMAT})");
    db.execute(db.of_all(&sql)).await?;
    Ok(true)
}

/// Checks the tables and the user, and creates the tables before that if there are none and it may.
pub(crate) async fn open(site: &Site, config: &PostgresConfig) -> Result<Opened> {
    let place = config.place();
    if site.keeps {
        let are_kept = site.connections.are_kept().await;
        if !are_kept.map_err(|error| failed(OPENING, error, false).about(&place))? {
            return Err(Error::unsupported(format!(
                "{place} is behind a pooler that gives each transaction another connection; add `pooler=transaction` to the \
                 address, or connect to the server directly"
            )));
        }
    }
    run!(@ site.attempts(Mode::Read, OPENING).unset(), db => check_server(db).await)?;
    let schema = &config.schema;
    let find = async || run!(@ site.attempts(Mode::Read, OPENING).unset(), db => find(db, schema).await);
    let mut found = find().await?.into_found(config, &place)?;
    let mut has_created = false;
    if found.is_none() && config.migrate {
        let attempts = site.attempts(Mode::Shared, "create the tables of the store").long();
        has_created = run!(@ attempts, db => migrate(db, config).await)?;
        found = find().await?.into_found(config, &place)?;
    }
    let Some(found) = found else {
        return Err(Error::not_found(format!(
            "{place} has no tables of a store; open it once with `migrate=true` to create them"
        )));
    };
    found.check(config, &place)?;
    Ok(Opened { durability: found.durability, isolation: found.user.isolation(), has_created })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_servers_are_refused_by_name() {
        supported("PostgreSQL 15.14 (Debian 15.14-0+deb12u1) on x86_64-pc-linux-gnu", 150_014, true).unwrap();
        for (version, number, has_plpgsql, named) in [
            ("CockroachDB CCL v25.2.0 (x86_64-pc-linux-gnu)", 130_000, true, "CockroachDB"),
            ("PostgreSQL 15.2-YB-2.25.1.0-b0 on x86_64-pc-linux-gnu", 150_002, true, "-YB-"),
            ("PostgreSQL 16", 160_000, false, "Aurora DSQL"),
            ("PostgreSQL 14.19 on x86_64-pc-linux-gnu", 140_019, true, "14.19"),
        ] {
            let error = supported(version, number, has_plpgsql).unwrap_err();
            assert_eq!(*error.kind(), ErrorKind::Unsupported);
            assert!(error.to_string().contains(named), "{error}");
        }
    }
}
