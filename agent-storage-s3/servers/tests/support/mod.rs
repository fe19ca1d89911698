//! The public suite on a real server.

#![allow(dead_code, reason = "each test program uses its own part of it")]

use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};
use std::sync::{Arc, OnceLock};

use agent_core::clock::Effects;
use agent_core::{Backend, Error, ErrorKind, Result, Storage, TenantId, async_trait};
use agent_storage_conformance::Factory;
use agent_storage_s3::S3Config;
use s3_servers::{Kind, Server, Unavailable};

/// What says how often the suite runs each race.
const ROUNDS: &str = "AGENT_STORAGE_ROUNDS";

struct OnServer(Kind);

/// Every store is a prefix of its own in the one bucket of the one server.
#[derive(Clone)]
struct Site {
    endpoint: String,
    prefix: String,
}

impl OnServer {
    fn config(&self, site: &Site) -> Result<S3Config> {
        S3Config::from_url(&self.0.address(&site.endpoint, &site.prefix))
    }
}

#[async_trait]
impl Factory for OnServer {
    type Site = Site;

    async fn fresh(&self) -> Result<Site> {
        // Started when it is first needed, so not by the other processes of a clause; ends with this process.
        static SERVER: OnceLock<std::result::Result<Server, Unavailable>> = OnceLock::new();
        let server = SERVER.get_or_init(|| Server::start(self.0)).as_ref().map_err(|error| {
            Error::new(ErrorKind::Unavailable, error.to_string()).with_source(error.clone())
        })?;
        let prefix = format!("t{:016x}", Effects::default().random_u64());
        Ok(Site { endpoint: server.endpoint().to_owned(), prefix })
    }

    async fn open(&self, site: &Site, tenant: &TenantId) -> Result<Storage> {
        Ok(self.config(site)?.open().await?.for_tenant(tenant).into())
    }

    async fn tenants(&self, site: &Site) -> Result<Option<Arc<dyn Backend>>> {
        Ok(Some(Arc::new(self.config(site)?.open().await?)))
    }

    fn address(&self, site: &Site) -> Option<String> {
        Some(format!("{} {}", site.endpoint, site.prefix))
    }

    async fn attach(&self, address: &str) -> Result<Site> {
        let (endpoint, prefix) = address.split_once(' ').unwrap_or_default();
        Ok(Site { endpoint: endpoint.to_owned(), prefix: prefix.to_owned() })
    }
}

pub(crate) fn main(kind: Kind) -> ExitCode {
    if let Err(missing) = kind.check() {
        return if missing.may_be_passed_over() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    if std::env::var_os(ROUNDS).is_none() {
        // Races are run 200 times on the simulator; here every request takes milliseconds.
        let again = std::env::current_exe()
            .map(|program| Command::new(program).args(std::env::args_os().skip(1)).env(ROUNDS, "10").exec());
        return if again.is_ok() { ExitCode::FAILURE } else { ExitCode::from(2) };
    }
    agent_storage_conformance::main(OnServer(kind))
}
