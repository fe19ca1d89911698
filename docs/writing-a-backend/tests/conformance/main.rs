//! The toy backend passes the public suite: in a file, with processes that are killed, and on a model disk. That disk
//! loses its power, and its calls fail.

mod disk;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use agent_core::{Error, ErrorKind, Result, Storage, TenantId, async_trait};
use agent_storage_conformance::{Factory, FailingCall};
use disk::Disk;
use redb::Database;
use tempfile::TempDir;
use toy_backend::ToyStore;

struct Toy;

/// Where a store lies, and the handles on it: one process opens it once, and its handles share it.
struct Site {
    medium: Medium,
    handles: Mutex<Vec<Weak<ToyStore>>>,
}

enum Medium {
    /// A file; the folder that was made for it is removed at the end.
    File {
        path: PathBuf,
        _made: Option<TempDir>,
    },
    Model(Disk),
}

impl Site {
    fn on(medium: Medium) -> Self {
        Self { medium, handles: Mutex::default() }
    }

    fn open(&self) -> Result<ToyStore> {
        match &self.medium {
            Medium::File { path, .. } => ToyStore::open(path),
            Medium::Model(disk) => {
                let database = Database::builder().create_with_backend(disk.clone());
                let failed =
                    |error| Error::new(ErrorKind::Unavailable, "the model of a disk").with_source(error);
                Ok(ToyStore::on(database.map_err(failed)?))
            }
        }
    }

    fn disk(&self) -> Result<&Disk> {
        match &self.medium {
            Medium::Model(disk) => Ok(disk),
            Medium::File { path, .. } => {
                Err(Error::new(ErrorKind::InvalidInput, format!("{path:?} is no model")))
            }
        }
    }
}

#[async_trait]
impl Factory for Toy {
    type Site = Site;

    async fn fresh(&self) -> Result<Site> {
        let folder = tempfile::tempdir()
            .map_err(|error| Error::new(ErrorKind::Unavailable, "no temporary folder").with_source(error))?;
        Ok(Site::on(Medium::File { path: folder.path().join("toy.redb"), _made: Some(folder) }))
    }

    async fn open(&self, site: &Site, tenant: &TenantId) -> Result<Storage> {
        let mut handles = site.handles.lock().unwrap_or_else(PoisonError::into_inner);
        let handle = match handles.iter().find_map(Weak::upgrade) {
            Some(other) => other.for_tenant(tenant),
            None => site.open()?.for_tenant(tenant),
        };
        let handle = Arc::new(handle);
        handles.push(Arc::downgrade(&handle));
        Ok(handle.into())
    }

    fn address(&self, site: &Site) -> Option<String> {
        match &site.medium {
            Medium::File { path, .. } => path.to_str().map(str::to_owned),
            Medium::Model(_) => None,
        }
    }

    async fn attach(&self, address: &str) -> Result<Site> {
        Ok(Site::on(Medium::File { path: address.into(), _made: None }))
    }

    async fn fresh_for_faults(&self) -> Result<Site> {
        Ok(Site::on(Medium::Model(Disk::default())))
    }

    async fn lose_power(&self, site: &Site) -> Result<Site> {
        Ok(Site::on(Medium::Model(site.disk()?.after_power_loss())))
    }

    async fn fail(&self, site: &Site, call: Option<FailingCall>) -> Result<bool> {
        Ok(site.disk()?.fail(call))
    }
}

fn main() -> ExitCode {
    agent_storage_conformance::main(Toy)
}
