//! The PostgreSQL server that is measured, and the stores in it: each path is a schema.

#[path = "../../agent-storage-postgres/tests/it/support/mod.rs"]
mod server;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;
use std::str::FromStr;
use std::sync::LazyLock;

use agent_core::SessionStore;
use agent_core::store::Durability;
use agent_storage_postgres::{PostgresConfig, PostgresStore};
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{AssertSqlSafe, ConnectOptions, Executor, Row};

use crate::outcome::Outcome;
use server::{ADDRESS, NOT_INSTALLED, OWNER, Server, address_of, installed};

/// Server of this process, or of the one that has started it.
static SERVER: LazyLock<Server> = LazyLock::new(Server::start_to_measure);

/// Fails if no server is installed.
pub(crate) fn check_installed() -> Outcome {
    if installed().is_some() { Ok(()) } else { Err(NOT_INSTALLED.into()) }
}

/// Returns the address of the server for a superuser.
pub(crate) fn address() -> &'static str {
    SERVER.address()
}

/// Returns the variable that tells a process of this program the address of the server.
pub(crate) fn variable() -> (&'static str, String) {
    (ADDRESS, address().to_owned())
}

/// Returns the schema of a path.
fn schema(path: &Path) -> String {
    let mut hasher = DefaultHasher::new();
    path.hash(&mut hasher);
    format!("bench_{:016x}", hasher.finish())
}

fn options(user: &str, waits: bool) -> Outcome<PgConnectOptions> {
    let options = PgConnectOptions::from_str(&address_of(address(), user))?;
    Ok(if waits { options } else { options.options([("synchronous_commit", "off")]) })
}

/// Opens the store of a path as a program does, with the rights of one, and creates its tables first if there are none. To fill it,
/// no commit waits for the disk.
pub(crate) async fn open(path: &Path, fills: bool) -> Outcome<PostgresStore> {
    let schema = schema(path);
    let owner = PostgresConfig::new(options(OWNER, true)?).with_schema(&schema)?;
    owner.with_migrate(true).open().await?.close().await?;
    let program = options(&format!("{schema}_app"), !fills)?;
    let store = PostgresConfig::new(program).with_schema(&schema)?.open().await?;
    let durability = store.capabilities().durability;
    if !fills && durability != Durability::PowerLoss {
        return Err(format!("the server does not wait for the disk: {durability:?}").into());
    }
    Ok(store)
}

/// Connects as a superuser, with the schema of a path for tables by hand.
pub(crate) async fn connect(path: &Path, waits: bool) -> Outcome<PgConnection> {
    let schema = schema(path);
    let options = options("postgres", waits)?.options([("search_path", &schema)]).disable_statement_logging();
    let mut conn = options.connect().await?;
    conn.execute(AssertSqlSafe(format!("CREATE SCHEMA IF NOT EXISTS {schema}"))).await?;
    Ok(conn)
}

/// Has the server do at once what it would do beside what is measured: it cleans up, counts and writes to the disk what was filled.
pub(crate) async fn settle() -> Outcome {
    let options = options("postgres", true)?;
    let mut conn = options.connect().await?;
    for row in conn.fetch_all("SELECT datname FROM pg_database WHERE datallowconn").await? {
        let mut conn = options.clone().database(row.get(0)).connect().await?;
        conn.execute("VACUUM (ANALYZE)").await?;
    }
    conn.execute("CHECKPOINT").await?;
    Ok(())
}

/// Returns the number of the process that starts the server's processes.
pub(crate) async fn server_process() -> Outcome<u32> {
    let mut conn = options("postgres", true)?.connect().await?;
    let file: String = conn.fetch_one("SELECT pg_read_file('postmaster.pid')").await?.get(0);
    Ok(file.lines().next().unwrap_or_default().parse()?)
}
