//! What is measured: a room for each kind of work, the same for every store.

use std::path::PathBuf;

use crate::counts::Meter;
use crate::floor::{self, Floor};
use crate::ours::{Backend, Ours};
use crate::report::Figure;
use crate::{Outcome, peers};

mod at_once;
mod fork;
mod list;
pub(crate) mod memory;
pub(crate) mod processes;
mod read;
mod size;
mod write;

/// The names by which workloads are asked for.
pub(crate) const NAMES: [&str; 12] = [
    "append",
    "turn",
    "run",
    "growth",
    "at-once",
    "processes",
    "last",
    "load",
    "list",
    "fork",
    "size",
    "memory",
];

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
    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    async fn new_store(&self) -> Outcome<Ours> {
        Ours::new(self.backend, self.path("ours")).await
    }

    async fn filled_store(&self, name: &str, events: u64) -> Outcome<Ours> {
        Ours::filled(self.backend, self.path(name), events).await
    }

    fn floor(&self) -> Outcome<Box<dyn Floor>> {
        floor::of(self.backend, &self.folder)
    }
}

/// Measures one workload.
pub(crate) async fn run(name: &str, place: &Place) -> Outcome<Vec<Figure>> {
    let figures = match name {
        "append" => vec![write::append(place).await?],
        "turn" => vec![write::turn(place).await?],
        "run" => vec![write::run(place).await?],
        "growth" => vec![write::growth(place).await?],
        "at-once" => vec![at_once::at_once(place).await?],
        "processes" => vec![processes::processes(place).await?],
        "last" => read::last(place).await?,
        "load" => vec![read::load(place).await?],
        "list" => list::list(place).await?,
        "fork" => vec![fork::fork(place).await?],
        "size" => vec![size::size(place).await?],
        "memory" => memory::memory(place).await?,
        other => return Err(format!("there is no workload {other:?}; known are {NAMES:?}").into()),
    };
    Ok(figures.into_iter().map(|figure| peers::beside(name, figure)).collect())
}
