//! Bytes of a message on the disk.

use std::fs;
use std::path::Path;

use super::place::Place;
use crate::ours::{Backend, Ours};
use crate::outcome::Outcome;
use crate::report::{Figure, Measured};

const MESSAGES: u32 = 2000;

/// Messages of one KiB, each committed by itself; the store is closed before it is weighed.
pub(super) async fn size(place: &Place) -> Outcome<Figure> {
    let path = place.path("ours");
    drop(Ours::new(place.backend, path.clone()).await?);
    let before = weight(place.backend, &path)?;
    let mut ours = Ours::new(place.backend, path.clone()).await?;
    for _ in 0..MESSAGES {
        ours.append(1).await?;
    }
    drop(ours);
    let each = (weight(place.backend, &path)? - before) as f64 / f64::from(MESSAGES);
    let aim = match place.backend {
        Backend::Memory | Backend::Files | Backend::Postgres => "at most 1,300",
        Backend::Sqlite => "at most 1,450",
    };
    Ok(Figure::new(place.backend, "a message of 1,024 bytes", Measured::Value(each, "bytes")).aim(aim))
}

fn weight(backend: Backend, path: &Path) -> Outcome<u64> {
    if backend == Backend::Sqlite {
        // What is in the log is moved into the file.
        let conn = rusqlite::Connection::open(path)?;
        conn.busy_timeout(std::time::Duration::from_secs(10))?;
        conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
    }
    if path.is_file() {
        return Ok(fs::metadata(path)?.len());
    }
    let mut bytes = 0;
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        bytes += if entry.file_type()?.is_dir() {
            weight(backend, &entry.path())?
        } else {
            entry.metadata()?.len()
        };
    }
    Ok(bytes)
}
