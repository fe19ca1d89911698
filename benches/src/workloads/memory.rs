//! Peak memory of another process that loads a session of 10,000 messages.

use std::path::Path;

use agent_core::{Seq, SessionId, SessionStoreExt};
use futures::TryStreamExt;

use super::place::Place;
use crate::counts::peak_memory;
use crate::ours::Backend;
use crate::outcome::Outcome;
use crate::report::{Figure, Measured};

pub(super) async fn memory(place: &Place) -> Outcome<Vec<Figure>> {
    let ours = place.filled_store("ours", 10_000).await?;
    let mut figures = Vec::new();
    for (way, aim) in [("whole", "at most 1.5x the content (15 MiB)"), ("streamed", "under 2 MiB")] {
        let done = place.backend.process(way)?.arg(&ours.path).arg(ours.session.id.to_string()).output()?;
        let more: f64 = String::from_utf8(done.stdout)?.trim().parse()?;
        let name = format!("load 10,000 {way}: peak memory");
        let measured = Measured::Value(more / f64::from(1 << 20), "MiB");
        let note = "of a process of its own, beyond what it had after opening the store".to_owned();
        figures.push(Figure::new(place.backend, name, measured).aim(aim).note(note));
    }
    Ok(figures)
}

/// What the other process does: says how many bytes its peak rose.
pub(crate) async fn worker(backend: Backend, path: &Path, session: &str, whole: bool) -> Outcome {
    let store = backend.open(path).await?;
    let id: SessionId = session.parse()?;
    store.load(id).await?;
    let before = peak_memory();
    let mut events = store.events(id, Seq::ZERO);
    let (mut kept, mut count) = (Vec::new(), 0);
    while let Some(event) = events.try_next().await? {
        count += 1;
        kept.extend(whole.then_some(event));
    }
    assert_eq!(count, 10_000);
    println!("{}", peak_memory() - before);
    Ok(())
}
