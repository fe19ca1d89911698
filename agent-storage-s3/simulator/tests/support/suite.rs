//! The public suite on a simulator.

#[path = "backend.rs"]
mod backend;
#[path = "damage.rs"]
mod damage;

use std::process::ExitCode;
use std::sync::Arc;

use agent_core::clock::Effects;
use agent_core::{Backend, Result, SessionStore, Storage, TenantId, Timestamp, async_trait};
use agent_storage_conformance::{Damage, DamageKind, Factory};
use agent_storage_s3::S3Store;
use damage::{flipped, slots};
use s3_simulator::{Dialect, Quirks, SimulatedClock, Simulator};

pub(crate) struct Simulated {
    pub(crate) dialect: Dialect,
    /// Fields that have an index of their own, as in an address.
    pub(crate) index: &'static str,
}

impl Simulated {
    async fn open(&self, site: &Simulator, client: &str) -> Result<S3Store> {
        // The clock of the simulated server starts at this time.
        let start = Timestamp::from_micros(20_500 * 86_400_000_000);
        let effects = Effects::default().with_clock(Arc::new(SimulatedClock::new(start)));
        let config = backend::config(site, client).with_option("index", self.index)?;
        config.with_effects(effects).open().await
    }
}

#[async_trait]
impl Factory for Simulated {
    type Site = Simulator;

    async fn fresh(&self) -> Result<Simulator> {
        // Small pages, so that every list that can be long is read in several.
        let quirks = Quirks { page_limit: Some(7), ..Quirks::default() };
        Ok(Simulator::new(1).with_quirks(quirks).with_dialect(self.dialect))
    }

    async fn open(&self, site: &Simulator, tenant: &TenantId) -> Result<Storage> {
        Ok(self.open(site, "handle").await?.for_tenant(tenant).into())
    }

    async fn tenants(&self, site: &Simulator) -> Result<Option<Arc<dyn Backend>>> {
        Ok(Some(Arc::new(self.open(site, "server").await?)))
    }

    /// What the service has answered is safe with it; what a client has not sent is lost with the client.
    async fn lose_power(&self, site: &Simulator) -> Result<Simulator> {
        Ok(site.clone())
    }

    fn damages(&self) -> &[DamageKind] {
        &[DamageKind::Event, DamageKind::Workspace, DamageKind::Bindings, DamageKind::Derived]
    }

    #[allow(clippy::panic, reason = "a test fails by panicking")]
    async fn damage(&self, site: &Simulator, damage: Damage) -> Result<()> {
        let keys = site.keys().into_iter();
        let cut = |key: String| {
            let object = site.object(&key).unwrap_or_default();
            site.put_object(&key, object.slice(..object.len() / 2));
        };
        let below = |folder: String| move |key: &String| key.starts_with(&folder);
        match damage {
            Damage::Event(session, seq) => {
                // It stands in its own slot and in the later ones of its window.
                let mut found = 0;
                for key in keys.filter(below(slots(session))) {
                    if let Some(body) = flipped(&site.object(&key).unwrap_or_default(), seq) {
                        site.put_object(&key, body);
                        found += 1;
                    }
                }
                assert!(found > 0, "event {seq} is nowhere");
            }
            Damage::Workspace(id) => cut(format!("agents/v7/default/workspaces/{id}")),
            Damage::Bindings => keys.filter(below("agents/v7/default/bindings/".to_owned())).for_each(cut),
            // A lost key is not noticed by itself: `check` names it, and `rebuild` puts it again.
            Damage::Derived => {
                let is_derived = |key: &String| {
                    ["/idx/", "/work/"].iter().any(|folder| key.contains(folder)) && !key.contains("/child/")
                };
                keys.filter(is_derived).for_each(|key| site.remove_object(&key));
                let store = backend::config(site, "repair").open().await?;
                assert!(
                    !store.maintenance().check().await?.is_empty(),
                    "the check notices that keys are missing"
                );
                store.maintenance().rebuild().await?;
                assert_eq!(store.maintenance().check().await?, []);
            }
            other => panic!("no way to do {other:?}"),
        }
        Ok(())
    }
}

pub(crate) fn main(dialect: Dialect, index: &'static str) -> ExitCode {
    agent_storage_conformance::main(Simulated { dialect, index })
}
