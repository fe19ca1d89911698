//! Schemas of a PostgreSQL server, in the form that the tests of `agent-vault` know.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex};

use agent_core::{Backend, TenantId, WorkspaceStore};
use agent_storage_postgres::{PostgresConfig, PostgresStore};
use agent_vault::StorePlace;
use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, Connection, Executor};
use tempfile::TempDir;

use crate::server::{OWNER, Server, address_of};

pub(crate) const STORES: [&str; 1] = ["postgres"];

/// Those whose bytes can be looked at: by queries that no policy binds.
pub(crate) const SEEN: [&str; 1] = STORES;

/// Server of all tests of this program. A process stops it when the program has ended.
static SERVER: LazyLock<Server> = LazyLock::new(Server::start_for_program);

/// Schemas that no test uses any more: to make one takes longer than to empty it.
static FREE: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// A schema that two processes have opened.
pub(crate) struct Site {
    /// No file of the store is here.
    pub(crate) folder: TempDir,
    pub(crate) backends: [Arc<dyn Backend>; 2],
    schema: String,
}

impl Site {
    pub(crate) async fn new(_: &str) -> Self {
        let free = FREE.lock().unwrap().pop();
        let schema = match free {
            Some(schema) => {
                let tables: Vec<_> =
                    tables(&schema).await.iter().map(|table| format!("\"{schema}\".\"{table}\"")).collect();
                run(&format!("TRUNCATE {}", tables.join(", "))).await;
                schema
            }
            None => {
                static COUNT: AtomicU64 = AtomicU64::new(0);
                let schema = format!("v{}", COUNT.fetch_add(1, Ordering::Relaxed));
                let created = config(OWNER, &schema).with_migrate(true).open().await.unwrap();
                created.close().await.unwrap();
                schema
            }
        };
        let backends: [Arc<dyn Backend>; 2] =
            [Arc::new(opened(&schema).await), Arc::new(opened(&schema).await)];
        Self { folder: tempfile::tempdir().unwrap(), backends, schema }
    }

    /// A store with the same rows, in another schema.
    pub(crate) async fn copied(&self) -> Self {
        let copy = Self::new(STORES[0]).await;
        for table in tables(&self.schema).await {
            let (from, to) = (&self.schema, &copy.schema);
            let sql = format!(
                "INSERT INTO \"{to}\".\"{table}\" OVERRIDING SYSTEM VALUE SELECT * FROM \"{from}\".\"{table}\""
            );
            run(&sql).await;
        }
        copy
    }

    /// The store of workspaces of the `n`-th process.
    pub(crate) fn workspaces(&self, n: usize) -> Arc<dyn WorkspaceStore> {
        let tenant: TenantId = "keys".parse().unwrap();
        self.backends[n % 2].tenant(&tenant).workspaces
    }

    /// The place of the `n`-th process.
    pub(crate) fn place(&self, n: usize) -> StorePlace {
        StorePlace::new(self.workspaces(n))
    }

    /// The columns of all tables, `meta` included, in which a row holds these bytes.
    pub(crate) async fn places_with(&self, bytes: &[u8]) -> Vec<PathBuf> {
        let mut conn = connected().await;
        let sql = "SELECT c.table_name::text, c.column_name::text, c.data_type::text FROM information_schema.columns c \
            JOIN information_schema.tables t USING (table_schema, table_name) \
            WHERE c.table_schema = $1 AND t.table_type = 'BASE TABLE' ORDER BY 1, 2";
        let columns: Vec<(String, String, String)> =
            sqlx::query_as(sql).bind(&self.schema).fetch_all(&mut conn).await.unwrap();
        assert!(columns.len() > 60, "{columns:?}");
        let of = |(table, column, kind): &(String, String, String)| {
            let has = match kind.as_str() {
                "bytea" => format!("position($1 in \"{column}\") > 0"),
                _ => format!("position(convert_from($1, 'UTF8') in \"{column}\"::text) > 0"),
            };
            format!(
                "SELECT '{table}.{column}' WHERE EXISTS (SELECT 1 FROM \"{}\".\"{table}\" WHERE {has})",
                self.schema
            )
        };
        let sql = columns.iter().map(of).collect::<Vec<_>>().join(" UNION ALL ");
        let found: Vec<String> =
            sqlx::query_scalar(AssertSqlSafe(sql)).bind(bytes).fetch_all(&mut conn).await.unwrap();
        conn.close().await.unwrap();
        found.into_iter().map(PathBuf::from).collect()
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        FREE.lock().unwrap().push(self.schema.clone());
    }
}

fn config(user: &str, schema: &str) -> PostgresConfig {
    let address = address_of(SERVER.address(), user);
    PostgresConfig::from_url(&address).unwrap().with_schema(schema).unwrap()
}

async fn opened(schema: &str) -> PostgresStore {
    config(&format!("{schema}_app"), schema).open().await.unwrap()
}

/// A connection of an administrator, whom no policy binds.
async fn connected() -> PgConnection {
    PgConnection::connect(SERVER.address()).await.unwrap()
}

async fn run(sql: &str) {
    let mut conn = connected().await;
    conn.execute(sqlx::raw_sql(AssertSqlSafe(sql.to_owned()))).await.unwrap();
    conn.close().await.unwrap();
}

/// The tables with data of stores.
async fn tables(schema: &str) -> Vec<String> {
    let mut conn = connected().await;
    let sql = "SELECT table_name::text FROM information_schema.tables \
        WHERE table_schema = $1 AND table_type = 'BASE TABLE' AND table_name <> 'meta'";
    let found = sqlx::query_scalar(sql).bind(schema).fetch_all(&mut conn).await.unwrap();
    conn.close().await.unwrap();
    found
}
