//! Tests of what the public suite does not see: opening, broken connections, round trips, the server's log.

#![allow(clippy::panic, clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod breaks;
mod changed;
mod hints;
mod isolation;
mod limits;
mod opening;
mod partitions;
mod plans;
mod pooled;
mod pooler;
mod proxy;
mod servers;
mod shards;
mod support;
mod turns;
mod views;

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use agent_core::clock::Effects;
use agent_core::event::NewEvent;
use agent_core::session::{NewSession, SessionRecord};
use agent_core::{SessionStoreExt, WorkspaceId};
use agent_storage_postgres::{PostgresConfig, PostgresStore};
use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, Connection, Executor, Row};

use crate::support::{OWNER, Server};

/// Server of all tests of this program. It is stopped by [`stop`] when the program ends.
static SERVER: LazyLock<Server> = LazyLock::new(Server::start_for_program);

/// Store of one test, in a schema of its own.
struct Scene {
    schema: String,
    database: String,
    effects: Effects,
}

impl Scene {
    fn new() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let schema = format!("t{}", COUNT.fetch_add(1, Ordering::Relaxed));
        Self { schema, database: "postgres".to_owned(), effects: Effects::default() }
    }

    /// Scene with tables in a database of its own, in which no other test holds a transaction open.
    async fn in_own_database() -> Self {
        let mut scene = Self::new();
        scene.make_database().await;
        scene.migrate().await;
        scene
    }

    /// Makes a database for this scene alone.
    async fn make_database(&mut self) {
        self.run(&format!("CREATE DATABASE {}", self.schema)).await;
        self.run(&format!("GRANT CREATE ON DATABASE {} TO {OWNER}", self.schema)).await;
        self.database.clone_from(&self.schema);
    }

    /// Scene with tables.
    async fn with_tables() -> Self {
        let scene = Self::new();
        scene.migrate().await;
        scene
    }

    /// Options at an address.
    fn config_at(&self, address: &str) -> PostgresConfig {
        PostgresConfig::from_url(address).unwrap().with_schema(&self.schema).unwrap()
    }

    /// Name of the user with the rights of a program.
    fn app(&self) -> String {
        format!("{}_app", self.schema)
    }

    /// Address of the database for a user.
    fn address(&self, user: &str) -> String {
        let address = support::address_of(SERVER.address(), user);
        let (server, _) = address.rsplit_once('/').unwrap();
        format!("{server}/{}", self.database)
    }

    /// Connection of a superuser.
    async fn connect(&self) -> PgConnection {
        PgConnection::connect(&self.address("postgres")).await.unwrap()
    }

    /// Options of a program.
    fn config(&self) -> PostgresConfig {
        self.config_at(&self.address(&self.app()))
    }

    /// Options of whoever creates the tables.
    fn config_of_owner(&self) -> PostgresConfig {
        self.config_at(&self.address(OWNER)).with_migrate(true)
    }

    /// Address of a program, with the name of its connections.
    fn address_named(&self, name: &str) -> String {
        format!("{}?application_name={name}", self.address(&self.app()))
    }

    /// Creates the tables, if there are none.
    async fn migrate(&self) {
        self.config_of_owner().open().await.unwrap().close().await.unwrap();
    }

    /// Opens the store as a program does.
    async fn open(&self) -> PostgresStore {
        self.migrate().await;
        self.config().open().await.unwrap()
    }

    async fn create(&self, store: &PostgresStore) -> std::sync::Arc<SessionRecord> {
        let new = NewSession::new(self.effects.new_session_id(), WorkspaceId::DEFAULT);
        store.sessions(&self.effects).create(new).await.unwrap()
    }

    /// Runs statements of the test's own, in which `@.` stands for the schema.
    async fn run(&self, sql: &str) {
        let mut conn = self.connect().await;
        let sql = sql.replace("@.", &format!("\"{}\".", self.schema));
        conn.execute(sqlx::raw_sql(AssertSqlSafe(sql))).await.unwrap();
    }

    /// Returns the number in the first column of a statement's first row.
    async fn number(&self, sql: &str) -> i64 {
        let mut conn = self.connect().await;
        let sql = sql.replace("@.", &format!("\"{}\".", self.schema));
        conn.fetch_one(sqlx::raw_sql(AssertSqlSafe(sql))).await.unwrap().get(0)
    }
}

async fn connect() -> PgConnection {
    PgConnection::connect(SERVER.address()).await.unwrap()
}

fn message(text: &str) -> Vec<NewEvent> {
    vec![NewEvent::user_message(text)]
}
