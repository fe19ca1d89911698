//! What is measured: a room for each kind of work, the same for every store.

use crate::outcome::Outcome;
use crate::peers;
use crate::report::Figure;

mod at_once;
mod bindings;
mod blobs;
mod fork;
mod list;
pub(crate) mod memory;
mod place;
pub(crate) mod processes;
mod read;
mod size;
mod write;

pub(crate) use place::Place;

/// The names by which workloads are asked for.
pub(crate) const NAMES: [&str; 16] = [
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
    "bindings",
    "size",
    "memory",
    "put-blob",
    "read-blob",
    "beside-blob",
];

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
        "bindings" => bindings::bindings(place).await?,
        "size" => vec![size::size(place).await?],
        "memory" => memory::memory(place).await?,
        "put-blob" => vec![blobs::put(place).await?],
        "read-blob" => vec![blobs::read(place).await?],
        "beside-blob" => vec![blobs::beside(place).await?],
        other => return Err(format!("there is no workload {other:?}; known are {NAMES:?}").into()),
    };
    Ok(figures.into_iter().map(|figure| peers::beside(name, figure)).collect())
}
