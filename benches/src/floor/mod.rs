//! The floor: the least that any implementation on the same medium has to do, by hand and without promises.

use std::path::Path;

use crate::ours::Backend;
use crate::outcome::Outcome;

mod files;
mod postgres;
mod sqlite;
mod work;

pub(crate) use work::Floor;

/// The floor of a backend, in a folder of its own, with or without syncs.
pub(crate) fn of(backend: Backend, folder: &Path, is_synced: bool) -> Outcome<Box<dyn Floor>> {
    let folder = folder.join("floor");
    std::fs::create_dir_all(&folder)?;
    Ok(match backend {
        Backend::Memory => return Err("there is no floor by hand of memory".into()),
        Backend::Files => Box::new(files::Files::new(folder, is_synced)?),
        Backend::Postgres => Box::new(postgres::Postgres::new(folder, is_synced)?),
        Backend::Sqlite => Box::new(sqlite::Sqlite::new(&folder.join("floor.db"), is_synced)?),
    })
}
