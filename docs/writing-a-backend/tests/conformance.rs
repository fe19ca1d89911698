//! The toy backend passes the public suite.

use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use agent_core::{Error, ErrorKind, Result, Storage, TenantId, async_trait};
use agent_storage_conformance::Factory;
use tempfile::TempDir;
use toy_backend::ToyStore;

struct Toy;

/// A folder with the file, and the handles on it: one process opens the file once, and its handles share it.
struct Site {
    folder: TempDir,
    handles: Mutex<Vec<Weak<ToyStore>>>,
}

#[async_trait]
impl Factory for Toy {
    type Site = Site;

    async fn fresh(&self) -> Result<Site> {
        let folder = tempfile::tempdir()
            .map_err(|error| Error::new(ErrorKind::Unavailable, "no temporary folder").with_source(error))?;
        Ok(Site { folder, handles: Mutex::default() })
    }

    async fn open(&self, site: &Site, tenant: &TenantId) -> Result<Storage> {
        let mut handles = site.handles.lock().unwrap_or_else(PoisonError::into_inner);
        let handle = match handles.iter().find_map(Weak::upgrade) {
            Some(other) => other.tenant(tenant),
            None => ToyStore::open(site.folder.path().join("toy.redb"))?.tenant(tenant),
        };
        let handle = Arc::new(handle);
        handles.push(Arc::downgrade(&handle));
        Ok(handle.into())
    }
}

fn main() -> ExitCode {
    agent_storage_conformance::main(Toy)
}
