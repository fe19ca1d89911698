//! The clauses of the public suite that cut the power and fail calls, on SQLite's own calls to the system.

use std::collections::BTreeSet;
use std::sync::Arc;

use agent_core::{Backend, Error, ErrorKind, Result, Storage, TenantId, async_trait};
use agent_storage_conformance::{Factory, FailingCall, Needs, Settings, check, clauses};
use agent_storage_sqlite::Sync;
use tempfile::TempDir;

use crate::cut::is_thorough;
use crate::fault::{EIO, Fault};
use crate::model::Disk;
use crate::script::open;
use crate::{vfs, write};

/// A folder, the calls to which are noted on a disk. A handle keeps it until its file is closed.
#[derive(Debug)]
struct Site {
    folder: Arc<TempDir>,
    disk: Disk,
}

impl Site {
    fn on(disk: Disk) -> Result<Self> {
        let folder = tempfile::tempdir()
            .map_err(|error| Error::new(ErrorKind::Unavailable, "no temporary folder").with_source(error))?;
        write(&disk, folder.path());
        vfs::note(folder.path(), &disk);
        Ok(Self { folder: Arc::new(folder), disk })
    }
}

struct Sqlite(Sync);

#[async_trait]
impl Factory for Sqlite {
    type Site = Site;

    async fn fresh(&self) -> Result<Site> {
        Site::on(Disk::new())
    }

    async fn open(&self, site: &Site, tenant: &TenantId) -> Result<Storage> {
        Ok(open(&site.folder.path().join("agent.db"), self.0).await?.for_tenant(tenant).into())
    }

    async fn tenants(&self, site: &Site) -> Result<Option<Arc<dyn Backend>>> {
        Ok(Some(Arc::new(open(&site.folder.path().join("agent.db"), self.0).await?)))
    }

    async fn lose_power(&self, site: &Site) -> Result<Site> {
        let trace = site.disk.trace();
        let now = trace.moments().pop().unwrap();
        Site::on(trace.image(now, &BTreeSet::new()))
    }

    async fn fail(&self, site: &Site, call: Option<FailingCall>) -> Result<bool> {
        let struck = !site.disk.heal().is_empty();
        if let Some(FailingCall { skip, done, .. }) = call {
            // The suite asks for each call in turn. SQLite makes many alike.
            let skip = if is_thorough() { skip } else { 4 * skip };
            let fault = if done { Fault::DoneButFails(EIO) } else { Fault::Fails(EIO) };
            site.disk.fail(move |number, _| (number == skip).then_some(fault));
        }
        Ok(struck)
    }
}

/// Runs the clauses that need one of these on a store with these syncs; returns what each came to.
fn run(sync: Sync, needs: &[Needs]) -> Vec<std::result::Result<(), String>> {
    let clauses = clauses().into_iter().filter(|clause| needs.contains(&clause.needs));
    clauses.map(|clause| check(Sqlite(sync), &clause, Settings::new(10, 7))).collect()
}

/// The store passes what the public suite asks of one whose power goes and whose calls fail.
#[test]
fn store_passes_the_power_and_fault_clauses() {
    let needs = [
        Needs::PowerLoss,
        Needs::Faults,
        Needs::TenantPowerLoss,
        Needs::TenantFaults,
        Needs::BlobPowerLoss,
        Needs::BlobFaults,
    ];
    let results = run(Sync::Full, &needs);
    assert!(results.len() >= needs.len());
    for result in results {
        result.unwrap_or_else(|report| panic!("{report}"));
    }
}

/// With `sync=normal` the store does not claim to outlive the loss of power, and the suite does not ask.
#[test]
fn suite_tests_only_the_claimed_durability() {
    for result in run(Sync::Normal, &[Needs::PowerLoss]) {
        assert!(result.unwrap_err().contains("does not claim"));
    }
}
