//! Three stores from three places pass the same suite as one: workspaces in one directory, sessions in another,
//! bindings in memory.

use std::process::ExitCode;

use agent_core::{Error, ErrorKind, MemoryStore, Result, Storage, TenantId, async_trait};
use agent_storage_conformance::Factory;
use agent_storage_fs::FsStore;
use tempfile::TempDir;

/// Three crates in the three slots give the same observable behaviour as one; fn clause after fn clause.
struct Mixed;

struct Site {
    workspaces: TempDir,
    sessions: TempDir,
    bindings: MemoryStore,
}

fn folder() -> Result<TempDir> {
    let failed = |error| Error::new(ErrorKind::Unavailable, "no temporary folder").with_source(error);
    tempfile::tempdir().map_err(failed)
}

#[async_trait]
impl Factory for Mixed {
    type Site = Site;

    async fn fresh(&self) -> Result<Site> {
        Ok(Site { workspaces: folder()?, sessions: folder()?, bindings: MemoryStore::new() })
    }

    async fn open(&self, site: &Site, tenant: &TenantId) -> Result<Storage> {
        let workspaces: Storage = FsStore::open(site.workspaces.path()).await?.for_tenant(tenant).into();
        let sessions: Storage = FsStore::open(site.sessions.path()).await?.for_tenant(tenant).into();
        let bindings: Storage = site.bindings.for_tenant(tenant).into();
        Ok(Storage::new(workspaces.workspaces, sessions.sessions.store().clone(), bindings.bindings))
    }
}

fn main() -> ExitCode {
    agent_storage_conformance::main(Mixed)
}
