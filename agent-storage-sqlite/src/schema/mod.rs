//! The file's tables: how a connection is opened, what is checked before it is used, and the migrations.

use std::path::Path;

use agent_core::{Error, ErrorKind, Result};
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{ConnectOptions, query_as, query_scalar, raw_sql};

use crate::config::{SqliteConfig, Sync};
use crate::error::{failed, is_busy};
use crate::wait::Wait;
use crate::{place, rebuild};

/// `AGNT`: by this a file says whose it is.
pub(crate) const APPLICATION_ID: i64 = 0x4147_4e54;

/// The scripts that lead from each version of the schema to the next, from the first on.
const MIGRATIONS: [&str; 1] = [include_str!("migrations/0001_first.sql")];
const INDEXES: &str = include_str!("indexes.sql");
const VIEWS: &str = include_str!("views.sql");

/// The first version of SQLite without the WAL-reset bug that could damage a file.
const SQLITE_MIN: [u32; 3] = [3, 51, 3];

/// How a connection that reads is opened.
pub(crate) fn reader(config: &SqliteConfig) -> SqliteConnectOptions {
    common(config).busy_timeout(config.busy_timeout).row_buffer_size(64).pragma("query_only", "ON")
}

/// How the connection that writes is opened. It waits by itself for other processes, with jitter.
pub(crate) fn writer(config: &SqliteConfig) -> SqliteConnectOptions {
    let synchronous = match config.sync {
        Sync::Full => "FULL",
        Sync::Normal => "NORMAL",
        Sync::Off => "OFF",
    };
    let mut options = common(config)
        .busy_timeout(std::time::Duration::ZERO)
        .row_buffer_size(256)
        .pragma("synchronous", synchronous)
        .pragma("fullfsync", "ON")
        .pragma("checkpoint_fullfsync", "ON")
        .pragma("secure_delete", "FAST")
        .pragma("journal_size_limit", "67108864");
    if let Some(pages) = config.max_pages {
        options = options.pragma("max_page_count", pages.to_string());
    }
    options
}

fn common(config: &SqliteConfig) -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .filename(&config.path)
        .create_if_missing(false)
        .foreign_keys(true)
        .statement_cache_capacity(256)
        .thread_name(|n| format!("agent-sqlite-{n}"))
        .pragma("trusted_schema", "OFF")
        .pragma("cell_size_check", "ON")
        .pragma("cache_size", "-16384")
        .disable_statement_logging()
}

/// Opens the connection that writes, and brings the file to this version's schema. Waits for other openers.
pub(crate) async fn open(config: &SqliteConfig) -> Result<SqliteConnection> {
    place::prepare(&config.path)?;
    let mut wait = Wait::new(config.busy_timeout, &config.effects);
    loop {
        match prepare(config).await {
            Ok(ready) => return ready,
            Err(error) if is_busy(&error) && wait.pause() => {}
            Err(error) => return Err(failed(&format!("open {}", config.path.display()), error)),
        }
    }
}

/// One attempt. The outer error is SQLite's, and worth another where it says that others are at work.
async fn prepare(config: &SqliteConfig) -> sqlx::Result<Result<SqliteConnection>> {
    let mut conn = writer(config).connect().await?;
    let version: String = query_scalar("SELECT sqlite_version()").fetch_one(&mut conn).await?;
    if let Err(error) = check_sqlite(&version) {
        return Ok(Err(error));
    }
    if let Err(error) = check(&mut conn, &config.path).await? {
        return Ok(Err(error));
    }
    // Stays in the file; asked for first, since it cannot change inside a transaction.
    let mode: String = query_scalar("PRAGMA journal_mode = WAL").fetch_one(&mut conn).await?;
    if mode != "wal" {
        return Ok(Err(Error::new(
            ErrorKind::Unsupported,
            format!("{} cannot have a write-ahead log; use a local disk", config.path.display()),
        )));
    }
    if !is_whole(&mut conn).await? {
        raw_sql("BEGIN IMMEDIATE").execute(&mut conn).await?;
        // Others may have been here first: what was looked at before the lock is looked at again.
        match check(&mut conn, &config.path).await? {
            Ok(version) => migrate(&mut conn, version).await?,
            Err(error) => return Ok(Err(error)),
        }
        rebuild::missing(&mut conn).await?;
        raw_sql("COMMIT").execute(&mut conn).await?;
    }
    Ok(Ok(conn))
}

fn check_sqlite(version: &str) -> Result<()> {
    let mut parts = version.split('.').map(|part| part.parse().unwrap_or(0));
    let number = [(); 3].map(|()| parts.next().unwrap_or(0));
    if number >= SQLITE_MIN {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::Unsupported,
        format!("SQLite {version} has a bug that can damage the file; build with 3.51.3 or newer"),
    ))
}

/// Whose the file is, and of which version of the schema.
async fn check(conn: &mut SqliteConnection, path: &Path) -> sqlx::Result<Result<usize>> {
    // In one statement, so that all three are of one moment: another opener may be at work.
    let (application, version, objects): (i64, i64, i64) = query_as(
        "SELECT a.application_id, u.user_version, (SELECT count(*) FROM sqlite_schema) \
         FROM pragma_application_id a, pragma_user_version u",
    )
    .fetch_one(&mut *conn)
    .await?;
    if application != APPLICATION_ID && (application != 0 || version != 0 || objects != 0) {
        return Ok(Err(Error::new(
            ErrorKind::InvalidInput,
            format!("{} is a database of another application; name another file", path.display()),
        )));
    }
    match usize::try_from(version) {
        Ok(version) if version <= MIGRATIONS.len() => Ok(Ok(version)),
        _ => Ok(Err(Error::new(
            ErrorKind::Unsupported,
            format!(
                "{} has schema {version}, this version knows up to {}; update the library",
                path.display(),
                MIGRATIONS.len()
            ),
        ))),
    }
}

/// Whether the schema is this version's and nothing that is derived is missing.
async fn is_whole(conn: &mut SqliteConnection) -> sqlx::Result<bool> {
    let version: i64 = query_scalar("PRAGMA user_version").fetch_one(&mut *conn).await?;
    if usize::try_from(version).ok() != Some(MIGRATIONS.len()) {
        return Ok(false);
    }
    let derived: i64 =
        query_scalar("SELECT count(*) FROM sqlite_schema WHERE sql LIKE 'CREATE INDEX%' OR type = 'view'")
            .fetch_one(&mut *conn)
            .await?;
    let wanted = INDEXES.matches("CREATE INDEX").count() + VIEWS.matches("CREATE VIEW").count();
    Ok(usize::try_from(derived).is_ok_and(|derived| derived >= wanted)
        && !rebuild::is_needed(&mut *conn).await?)
}

async fn migrate(conn: &mut SqliteConnection, from: usize) -> sqlx::Result<()> {
    for script in &MIGRATIONS[from..] {
        raw_sql(*script).execute(&mut *conn).await?;
    }
    raw_sql(INDEXES).execute(&mut *conn).await?;
    raw_sql(VIEWS).execute(&mut *conn).await?;
    let marks =
        format!("PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {}", MIGRATIONS.len());
    raw_sql(sqlx::AssertSqlSafe(marks)).execute(&mut *conn).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_sqlite_is_refused() {
        assert!(check_sqlite("3.51.3").is_ok());
        assert!(check_sqlite("3.52.0").is_ok());
        for old in ["3.51.2", "3.9.99", "2.99.99", "", "x.y.z"] {
            assert_eq!(*check_sqlite(old).unwrap_err().kind(), ErrorKind::Unsupported, "{old}");
        }
    }
}
