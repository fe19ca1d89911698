//! The program with PostgreSQL as its store, and the stored forms there.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod admin;
mod chats;
#[path = "../../../../agent-cli/tests/common/mod.rs"]
mod common;
mod failures;
mod forms;
mod pages;
#[path = "../../../tests/runtime/scheduled.rs"]
mod scheduled;
mod schedulers;
mod shards;
#[path = "../../../../agent-storage-postgres/tests/it/support/mod.rs"]
mod support;

use std::process::{Command, Stdio};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use agent_storage_postgres::{PostgresConfig, PostgresStore};
use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, Connection, Executor, Row};

use crate::support::{OWNER, Server};

/// Server of all tests of this program. A process stops it when the program has ended.
static SERVER: LazyLock<Server> = LazyLock::new(Server::start_for_program);

/// Database of one test.
struct Database {
    name: String,
}

/// What a run of the program has printed, and its exit code.
#[derive(Debug)]
struct Ran {
    code: i32,
    out: String,
    err: String,
}

impl Database {
    /// A database without tables.
    async fn empty() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let name = format!("d{}", COUNT.fetch_add(1, Ordering::Relaxed));
        sql(SERVER.address(), &format!("CREATE DATABASE {name} OWNER {OWNER}")).await;
        Self { name }
    }

    /// A database with the tables of a store.
    async fn new() -> Self {
        let database = Self::empty().await;
        database.ok(&["upgrade"]);
        database
    }

    /// Address for the owner of the database.
    fn address(&self) -> String {
        self.address_of(OWNER)
    }

    /// Address for an administrator, whom no policy binds.
    fn address_of_admin(&self) -> String {
        self.address_of("postgres")
    }

    fn address_of(&self, user: &str) -> String {
        let address = SERVER.address().rsplit_once('/').unwrap().0;
        let server = address.rsplit_once('@').unwrap().1;
        format!("postgres://{user}@{server}/{}", self.name)
    }

    async fn open(&self) -> PostgresStore {
        PostgresConfig::from_url(&self.address()).unwrap().open().await.unwrap()
    }

    /// Returns the number of sessions of all tenants that have something to do.
    async fn due(&self) -> i64 {
        let mut conn = PgConnection::connect(&self.address_of_admin()).await.unwrap();
        conn.fetch_one("SELECT count(*) FROM agent.due").await.unwrap().get(0)
    }

    async fn sql(&self, text: &str) {
        sql(&self.address_of_admin(), text).await;
    }

    /// Runs the program on this store.
    fn run(&self, args: &[&str]) -> Ran {
        chat(&[&["--store", &self.address(), "--device", "laptop"], args].concat(), "")
    }

    /// Runs a command that succeeds, and returns its output.
    #[track_caller]
    fn ok(&self, args: &[&str]) -> String {
        let ran = self.run(args);
        assert_eq!(ran.code, 0, "{args:?}: {ran:?}");
        ran.out
    }

    /// Lets the program answer these lines.
    #[track_caller]
    fn say(&self, lines: &str) -> Ran {
        chat(&["--store", &self.address(), "--device", "laptop"], lines)
    }
}

async fn sql(address: &str, text: &str) {
    let mut conn = PgConnection::connect(address).await.unwrap();
    conn.execute(sqlx::raw_sql(AssertSqlSafe(text.to_owned()))).await.unwrap();
}

/// Runs the program to its end.
fn chat(args: &[&str], input: &str) -> Ran {
    use std::io::Write;

    let mut command = Command::new(env!("CARGO_BIN_EXE_chat-with-postgres"));
    let pipe = Stdio::piped;
    let mut child = command.args(args).stdin(pipe()).stdout(pipe()).stderr(pipe()).spawn().unwrap();
    // A program that has ended already reads nothing.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    let output = child.wait_with_output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ran { code: output.status.code().unwrap_or(-1), out: text(output.stdout), err: text(output.stderr) }
}
