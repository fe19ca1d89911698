//! The whole suite on the in-memory store, the reference.

use std::process::ExitCode;
use std::sync::Arc;

use agent_core::{Backend, MemoryStore, Result, Storage, TenantId, async_trait};
use agent_storage_conformance::Factory;

pub(crate) struct Memory;

#[async_trait]
impl Factory for Memory {
    type Site = MemoryStore;

    async fn fresh(&self) -> Result<MemoryStore> {
        Ok(MemoryStore::new())
    }

    async fn open(&self, site: &MemoryStore, tenant: &TenantId) -> Result<Storage> {
        Ok(site.for_tenant(tenant).into())
    }

    async fn tenants(&self, site: &MemoryStore) -> Result<Option<Arc<dyn Backend>>> {
        Ok(Some(Arc::new(site.clone())))
    }
}

fn main() -> ExitCode {
    agent_storage_conformance::main(Memory)
}
