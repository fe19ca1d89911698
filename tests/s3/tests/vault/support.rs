//! Buckets of the simulator, in the form that the tests of `agent-vault` know.

use std::path::PathBuf;
use std::sync::Arc;

use agent_core::clock::Effects;
use agent_core::{Backend, TenantId, Timestamp, WorkspaceStore};
use agent_vault::StorePlace;
use s3_simulator::{Dialect, Quirks, SimulatedClock, Simulator, Versioning};
use tempfile::TempDir;

use crate::simulated;

/// Buckets: one of S3, one whose store has an index of creators and of a label, and one of Google.
pub(crate) const STORES: [&str; 3] = ["bucket", "bucket with indexes", "bucket of Google"];

/// Those whose bytes can be looked at.
pub(crate) const SEEN: [&str; 3] = STORES;

/// A bucket that two processes have opened.
pub(crate) struct Site {
    /// No file of the store is here.
    pub(crate) folder: TempDir,
    pub(crate) backends: [Arc<dyn Backend>; 2],
    pub(crate) simulator: Simulator,
    store: &'static str,
}

impl Site {
    pub(crate) async fn new(store: &str) -> Self {
        Self::with(store, None).await
    }

    /// A bucket that keeps versions, or did.
    pub(crate) async fn with(store: &str, versioning: Option<Versioning>) -> Self {
        let store = *STORES.iter().find(|name| **name == store).unwrap();
        let dialect = if store == STORES[2] { Dialect::Gcs } else { Dialect::S3 };
        let quirks = Quirks { versioning, ..Quirks::default() };
        Self::on(store, Simulator::new(1).with_quirks(quirks).with_dialect(dialect)).await
    }

    async fn on(store: &'static str, simulator: Simulator) -> Self {
        let opened = async |client: &str| {
            // The clock of the simulated server starts at this time.
            let start = Timestamp::from_micros(20_500 * 86_400_000_000);
            let effects = Effects::default().with_clock(Arc::new(SimulatedClock::new(start)));
            let index = if store == STORES[1] { "creator,label.topic" } else { "" };
            let config = simulated::config(&simulator, client).with_option("index", index).unwrap();
            Arc::new(config.with_effects(effects).open().await.unwrap())
        };
        let backends: [Arc<dyn Backend>; 2] = [opened("one").await, opened("two").await];
        Self { folder: tempfile::tempdir().unwrap(), backends, simulator, store }
    }

    /// A store with the same objects, in another bucket.
    pub(crate) async fn copied(&self) -> Self {
        let copy = Simulator::new(2).with_dialect(self.simulator.dialect());
        for key in self.simulator.keys() {
            copy.put_object(&key, self.simulator.object(&key).unwrap());
        }
        Self::on(self.store, copy).await
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

    /// The objects that hold these bytes, or have them in their keys.
    #[allow(clippy::unused_async, reason = "that of a server asks it")]
    pub(crate) async fn places_with(&self, bytes: &[u8]) -> Vec<PathBuf> {
        let has = |content: &[u8]| content.windows(bytes.len()).any(|part| part == bytes);
        let keys = self.simulator.keys().into_iter();
        keys.filter(|key| has(key.as_bytes()) || has(&self.simulator.object(key).unwrap()))
            .map(PathBuf::from)
            .collect()
    }
}
