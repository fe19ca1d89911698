//! The public suite on the PostgreSQL store, with a server that this program starts. With `AGENT_POSTGRES_POOLER=1` the stores are
//! behind a pooler in transaction mode that has two connections for each of them, with `AGENT_POSTGRES_PARTITIONS=NUMBER` their events
//! are in partitions.

#![allow(clippy::panic, reason = "a test fails by panicking")]

#[path = "it/pooler.rs"]
mod pooler;
#[path = "it/support/mod.rs"]
mod support;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use agent_core::{Backend, ErrorKind, Result, Storage, TenantId, async_trait};
use agent_storage_conformance::{Damage, DamageKind, Factory};
use agent_storage_postgres::{PostgresConfig, PostgresStore};
use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, Connection, Executor};

use pooler::Pooler;
use support::{OWNER, Server, address_of};

/// Variable that asks for a pooler, and has its address in the processes that this one starts.
const POOLER: &str = "AGENT_POSTGRES_POOLER";

/// Variable with the number of partitions.
const PARTITIONS: &str = "AGENT_POSTGRES_PARTITIONS";

pub(crate) struct Postgres(Server);

/// Schema of one clause.
pub(crate) struct Site {
    address: String,
    schema: String,
    /// True once other processes may use it, which the suite kills.
    is_shared: AtomicBool,
}

impl Site {
    fn new(address: &str, schema: &str) -> Self {
        Self { address: address.to_owned(), schema: schema.to_owned(), is_shared: AtomicBool::new(false) }
    }

    async fn open(&self) -> Result<PostgresStore> {
        if self.is_shared.load(Ordering::Relaxed) {
            self.wait_for_dead().await?;
        }
        // Names the process, for those who wait for its end.
        let pooler = std::env::var(POOLER).ok();
        let address = pooler.as_ref().unwrap_or(&self.address);
        let address = address_of(address, &format!("{}_app", self.schema));
        let address = format!("{address}?application_name=p{}", std::process::id());
        // A disk that others write to can keep a commit waiting.
        let config = PostgresConfig::from_url(&address)?
            .with_schema(&self.schema)?
            .with_statement_timeout(Duration::from_secs(60))
            .with_lock_timeout(Duration::from_secs(30))
            .with_connect_timeout(Duration::from_secs(30));
        if pooler.is_some() { config.with_transaction_pooler() } else { config }.open().await
    }

    /// Creates the tables, as their owner.
    async fn create(&self) -> Result<()> {
        let mut config =
            PostgresConfig::from_url(&address_of(&self.address, OWNER))?.with_schema(&self.schema)?;
        if let Ok(count) = std::env::var(PARTITIONS) {
            config = config.with_option("partitions", &count)?;
        }
        config.with_migrate(true).open().await?.close().await
    }

    /// Waits until the server has noticed the end of killed processes. It carries out what they had sent, which nobody has
    /// acknowledged, and the suite reads twice what must not change in between.
    async fn wait_for_dead(&self) -> Result<()> {
        let wait = async {
            let mut conn = PgConnection::connect(&self.address).await?;
            loop {
                let sql =
                    "SELECT DISTINCT application_name FROM pg_stat_activity WHERE application_name LIKE 'p%'";
                let names: Vec<String> = sqlx::query_scalar(sql).fetch_all(&mut conn).await?;
                let is_dead =
                    |name: &String| std::fs::read_link(format!("/proc/{}/exe", &name[1..])).is_err();
                if !names.iter().filter(|name| name[1..].parse::<u32>().is_ok()).any(is_dead) {
                    return conn.close().await;
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        match tokio::time::timeout(Duration::from_secs(120), wait).await {
            Ok(waited) => waited.map_err(failed),
            Err(_) => panic!("the server does not notice that processes have ended"),
        }
    }

    async fn run(&self, sql: &str) -> Result<()> {
        let run = async {
            let mut conn = PgConnection::connect(&self.address).await?;
            let sql = sql.replace("@.", &format!("\"{}\".", self.schema));
            let done = conn.execute(sqlx::raw_sql(AssertSqlSafe(sql))).await?;
            assert!(done.rows_affected() > 0, "nothing was damaged");
            conn.close().await
        };
        run.await.map_err(failed)
    }
}

fn failed(error: sqlx::Error) -> agent_core::Error {
    agent_core::Error::new(ErrorKind::Unavailable, "the test's own statement").with_source(error)
}

#[async_trait]
impl Factory for Postgres {
    type Site = Site;

    async fn fresh(&self) -> Result<Site> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let schema = format!("s{}_{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let site = Site::new(self.0.address(), &schema);
        site.create().await?;
        Ok(site)
    }

    async fn open(&self, site: &Site, tenant: &TenantId) -> Result<Storage> {
        Ok(site.open().await?.for_tenant(tenant).into())
    }

    async fn tenants(&self, site: &Site) -> Result<Option<Arc<dyn Backend>>> {
        Ok(Some(Arc::new(site.open().await?)))
    }

    fn address(&self, site: &Site) -> Option<String> {
        site.is_shared.store(true, Ordering::Relaxed);
        Some(format!("{}|{}", site.address, site.schema))
    }

    async fn attach(&self, address: &str) -> Result<Site> {
        let (address, schema) = address.split_once('|').unwrap_or((address, ""));
        Ok(Site::new(address, schema))
    }

    fn damages(&self) -> &[DamageKind] {
        &[DamageKind::Event, DamageKind::Workspace, DamageKind::Bindings, DamageKind::Derived]
    }

    async fn damage(&self, site: &Site, damage: Damage) -> Result<()> {
        match damage {
            // Another character in the middle of the payload; it is still JSON.
            Damage::Event(session, seq) => {
                let flip = "UPDATE @.events SET json = left(json, -6) || chr(ascii(left(right(json, 6), 1)) + 1) \
                    || right(json, 5)";
                site.run(&format!("{flip} WHERE session = '{session}' AND seq = {seq}")).await
            }
            Damage::Workspace(id) => {
                let cut = "UPDATE @.workspaces SET record = left(record, length(record) / 2)";
                site.run(&format!("{cut} WHERE id = '{}'", id.as_uuid())).await
            }
            Damage::Bindings => site.run("UPDATE @.bindings SET workspace = gen_random_uuid()").await,
            Damage::Derived => {
                site.run("DELETE FROM @.labels; DELETE FROM @.heartbeats; DELETE FROM @.due; DELETE FROM @.sessions").await
            }
            other => panic!("no way to do {other:?}"),
        }
    }
}

fn main() -> ExitCode {
    main_of(|plain| plain)
}

/// Runs the suite on what `around` makes of the factory.
pub(crate) fn main_of<F: Factory>(around: impl FnOnce(Postgres) -> F) -> ExitCode {
    let server = Server::start();
    let pooler = std::env::var(POOLER).is_ok_and(|wanted| wanted == "1");
    let pooler = pooler.then(|| Pooler::before(server.address(), 2, ""));
    if let Some(code) = server.run_again(pooler.as_ref().map(|pooler| (POOLER, &*pooler.address))) {
        return ExitCode::from(u8::try_from(code).unwrap_or(1));
    }
    agent_storage_conformance::main(around(Postgres(server)))
}
