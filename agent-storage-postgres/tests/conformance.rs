//! The public suite on the PostgreSQL store, with a server that this program starts.

#![allow(clippy::panic, reason = "a test fails by panicking")]

#[path = "it/support/mod.rs"]
mod support;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use agent_core::{Backend, ErrorKind, Result, Storage, TenantId, async_trait};
use agent_storage_conformance::{Damage, DamageKind, Factory};
use agent_storage_postgres::{PostgresConfig, PostgresStore};
use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, Connection, Executor};

use crate::support::Server;

struct Postgres(Server);

/// Schema of one clause.
struct Site {
    address: String,
    schema: String,
}

impl Site {
    async fn open(&self) -> Result<PostgresStore> {
        PostgresConfig::from_url(&self.address)?.with_schema(&self.schema)?.with_migrate(true).open().await
    }

    async fn run(&self, sql: &str) -> Result<()> {
        let run = async {
            let mut conn = PgConnection::connect(&self.address).await?;
            let sql = sql.replace("@.", &format!("\"{}\".", self.schema));
            let done = conn.execute(sqlx::raw_sql(AssertSqlSafe(sql))).await?;
            assert!(done.rows_affected() > 0, "nothing was damaged");
            conn.close().await
        };
        run.await.map_err(|error: sqlx::Error| {
            agent_core::Error::new(ErrorKind::Unavailable, "the test's own statement").with_source(error)
        })
    }
}

#[async_trait]
impl Factory for Postgres {
    type Site = Site;

    async fn fresh(&self) -> Result<Site> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let schema = format!("s{}_{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let site = Site { address: self.0.address().to_owned(), schema };
        site.open().await?.close().await?;
        Ok(site)
    }

    async fn open(&self, site: &Site, tenant: &TenantId) -> Result<Storage> {
        Ok(site.open().await?.for_tenant(tenant).into())
    }

    async fn tenants(&self, site: &Site) -> Result<Option<Arc<dyn Backend>>> {
        Ok(Some(Arc::new(site.open().await?)))
    }

    fn address(&self, site: &Site) -> Option<String> {
        Some(format!("{}|{}", site.address, site.schema))
    }

    async fn attach(&self, address: &str) -> Result<Site> {
        let (address, schema) = address.split_once('|').unwrap_or((address, ""));
        Ok(Site { address: address.to_owned(), schema: schema.to_owned() })
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
    let server = Server::start();
    if let Some(code) = server.run_again() {
        return ExitCode::from(u8::try_from(code).unwrap_or(1));
    }
    agent_storage_conformance::main(Postgres(server))
}
