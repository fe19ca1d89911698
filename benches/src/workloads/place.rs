//! Location of a workload.

use std::path::PathBuf;

use crate::counts::Meter;
use crate::floor::{self, Floor};
use crate::ours::{Backend, Ours};
use crate::outcome::Outcome;

/// Where one workload of one store is measured: a folder of its own.
pub(crate) struct Place {
    pub(crate) backend: Backend,
    folder: PathBuf,
    pub(crate) meter: Meter,
    /// Whether to leave out what takes minutes to fill.
    pub(crate) quick: bool,
}

impl Place {
    pub(crate) fn new(backend: Backend, folder: PathBuf, quick: bool) -> Outcome<Self> {
        std::fs::create_dir_all(&folder)?;
        let meter = Meter::new(&folder)?;
        Ok(Self { backend, folder, meter, quick })
    }

    /// A path for a store, not there yet.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    pub(super) async fn new_store(&self) -> Outcome<Ours> {
        Ours::new(self.backend, self.path("ours")).await
    }

    pub(super) async fn filled_store(&self, name: &str, events: u64) -> Outcome<Ours> {
        Ours::filled(self.backend, self.path(name), events, true).await
    }

    pub(super) fn floor(&self) -> Outcome<Box<dyn Floor>> {
        floor::of(self.backend, &self.folder, true)
    }

    /// A new store without syncs, and the floor without them.
    pub(super) async fn unsynced(&self) -> Outcome<(Ours, Box<dyn Floor>)> {
        let ours = Ours::unsynced(self.backend, self.path("unsynced")).await?;
        Ok((ours, floor::of(self.backend, &self.path("unsynced floor"), false)?))
    }
}
