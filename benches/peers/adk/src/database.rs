//! Databases of the library: a file of SQLite, or a database of a server of PostgreSQL.

use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

use adk_session::{PostgresSessionService, SessionService, SqliteSessionService};
use bench_worker::Outcome;
use sqlx::postgres::{PgConnectOptions, PgPool};
use sqlx::sqlite::{
    SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions, SqliteSynchronous,
};

/// Copies the session that is there until there are as many as the parameter.
const MORE_SESSIONS: &str = "
    WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n + 1 < ?1)
    INSERT INTO sessions SELECT app_name, user_id, 'session-' || n, state, created_at, updated_at FROM sessions, n WHERE n < ?1";

/// Copies the events of the first session until so many sessions, the first parameter, have so many times as many, the second. Each
/// has an id and a time of its own; prompts are before answers.
const MORE_EVENTS: &str = "
    WITH RECURSIVE s (s) AS (SELECT 0 UNION ALL SELECT s + 1 FROM s WHERE s + 1 < ?1),
        n (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM n WHERE n + 1 < ?2)
    INSERT INTO events SELECT lower(hex(randomblob(16))), app_name, user_id, 'session-' || s, invocation_id, branch, author,
        substr(timestamp, 1, 20) || printf('%09d', 2 * n + (author <> 'user')) || '+00:00', llm_response, actions,
        long_running_tool_ids
    FROM s, n, events WHERE s + n > 0 ORDER BY s, n";

/// The same two in PostgreSQL, whose times have six digits.
const MORE_SESSIONS_ON_SERVER: &str = "
    INSERT INTO sessions SELECT app_name, user_id, 'session-' || n, state, created_at, updated_at
    FROM sessions, generate_series(1, $1::bigint - 1) n";
const MORE_EVENTS_ON_SERVER: &str = "
    INSERT INTO events SELECT gen_random_uuid()::text, app_name, user_id, 'session-' || s, invocation_id, branch, author,
        date_trunc('second', timestamp) + (2 * n + (author <> 'user')::int) * interval '1 microsecond', llm_response, actions,
        long_running_tool_ids
    FROM generate_series(0, $1::bigint - 1) s, generate_series(0, $2::bigint - 1) n, events WHERE s + n > 0 ORDER BY s, n";

/// Place of the sessions.
pub(crate) enum Database {
    File {
        url: String,
        wal: bool,
    },
    /// A database of its own, by its address.
    Server(String),
}

/// Connections for statements of the harness.
pub(crate) enum Pool {
    File(SqlitePool),
    Server(PgPool),
}

impl Database {
    /// Chooses the place by the variables, and creates it.
    pub(crate) async fn new(folder: &Path) -> Outcome<Self> {
        let Ok(server) = std::env::var("BENCH_POSTGRES") else {
            let url = format!("sqlite:{}?mode=rwc", folder.join("sessions.db").display());
            return Ok(Self::File { url, wal: std::env::var_os("BENCH_WAL").is_some() });
        };
        let name = format!("adk_{}", std::process::id());
        let pool = PgPool::connect(&server).await?;
        sqlx::query(&format!("CREATE DATABASE {name}")).execute(&pool).await?;
        pool.close().await;
        let (address, _) = server.rsplit_once('/').ok_or("the address of the server has no database")?;
        Ok(Self::Server(format!("{address}/{name}")))
    }

    /// Opens it as the library does, or to fill it with tables and without syncs.
    pub(crate) async fn open(&self, fills: bool) -> Outcome<(Arc<dyn SessionService>, Pool)> {
        Ok(match self {
            Self::File { url, wal } => {
                let service = match (fills, wal) {
                    (true, _) => in_file(url, SqliteSynchronous::Off, *wal).await?,
                    (false, true) => in_file(url, SqliteSynchronous::Full, true).await?,
                    (false, false) => SqliteSessionService::new(url).await?,
                };
                if fills {
                    service.migrate().await?;
                }
                let pool = Pool::File(service.pool().clone());
                (Arc::new(service), pool)
            }
            Self::Server(address) => {
                let options = PgConnectOptions::from_str(address)?;
                if fills {
                    let pool = PgPool::connect_with(options.options([("synchronous_commit", "off")])).await?;
                    let service = PostgresSessionService::from_pool(pool.clone());
                    service.migrate().await?;
                    return Ok((Arc::new(service), Pool::Server(pool)));
                }
                let pool = PgPool::connect_lazy_with(options);
                (Arc::new(PostgresSessionService::new(address).await?), Pool::Server(pool))
            }
        })
    }
}

async fn in_file(url: &str, synchronous: SqliteSynchronous, wal: bool) -> Outcome<SqliteSessionService> {
    let mut options = SqliteConnectOptions::from_str(url)?.synchronous(synchronous).foreign_keys(true);
    if wal {
        options = options.journal_mode(SqliteJournalMode::Wal);
    }
    Ok(SqliteSessionService::from_pool(SqlitePoolOptions::new().connect_with(options).await?))
}

impl Pool {
    /// Copies the session until there are so many.
    pub(crate) async fn copy_session(&self, sessions: u32) -> Outcome {
        match self {
            Self::File(pool) => {
                sqlx::query(MORE_SESSIONS).bind(sessions).execute(pool).await?;
            }
            Self::Server(pool) => {
                sqlx::query(MORE_SESSIONS_ON_SERVER).bind(i64::from(sessions)).execute(pool).await?;
            }
        }
        Ok(())
    }

    /// Copies the events of the first session until so many sessions have so many times as many.
    pub(crate) async fn copy_events(&self, sessions: u32, times: u32) -> Outcome {
        match self {
            Self::File(pool) => {
                sqlx::query(MORE_EVENTS).bind(sessions).bind(times).execute(pool).await?;
            }
            Self::Server(pool) => {
                let copy =
                    sqlx::query(MORE_EVENTS_ON_SERVER).bind(i64::from(sessions)).bind(i64::from(times));
                copy.execute(pool).await?;
            }
        }
        Ok(())
    }

    pub(crate) async fn count_events(&self) -> Outcome<u64> {
        const COUNT: &str = "SELECT count(*) FROM events";
        let count: i64 = match self {
            Self::File(pool) => sqlx::query_scalar(COUNT).fetch_one(pool).await?,
            Self::Server(pool) => sqlx::query_scalar(COUNT).fetch_one(pool).await?,
        };
        Ok(count.try_into()?)
    }

    pub(crate) async fn close(&self) {
        match self {
            Self::File(pool) => pool.close().await,
            Self::Server(pool) => pool.close().await,
        }
    }
}
