//! The first page of many sessions.

use std::path::PathBuf;

use agent_core::SessionStoreExt;
use agent_core::store::SessionQuery;

use super::place::Place;
use crate::ours::{Backend, Ours};
use crate::outcome::Outcome;
use crate::report::Figure;
use crate::rounds::compare;

pub(super) async fn list(place: &Place) -> Outcome<Vec<Figure>> {
    let mut figures = Vec::new();
    for (count, name) in [(10_000, "list 50 of 10,000"), (100_000, "list 50 of 100,000")] {
        // 100,000 sessions in files are as many folders, which take minutes to make.
        if count > 10_000 && (place.quick || place.backend == Backend::Files) {
            continue;
        }
        let ours = filled(place.backend, place.path(name), count).await?;
        let mut floor = crate::floor::of(place.backend, &place.path(&format!("{name} floor")))?;
        floor.fill_list(count)?;
        let times = if place.backend == Backend::Files { 1 } else { 50 };
        let sides = compare(
            &place.meter,
            times,
            async |times| {
                for _ in 0..times {
                    let page = ours.store.list(SessionQuery::new().with_limit(50)).await?;
                    assert_eq!(page.items.len(), 50);
                }
                Ok(Vec::new())
            },
            async |times| {
                for _ in 0..times {
                    floor.list_50()?;
                }
                Ok(Vec::new())
            },
        )
        .await?;
        let (aim, note) = match place.backend {
            Backend::Files => ("declared to grow", "floor: each file is looked at"),
            Backend::Sqlite => ("at most 4, under 150 us", "floor: texts by an index, not parsed"),
        };
        figures.push(Figure::timed(place.backend, name, sides).aim(aim).note(note.to_owned()));
    }
    Ok(figures)
}

/// A store with so many sessions of one message each, made without syncs.
pub(crate) async fn filled(backend: Backend, path: PathBuf, count: u32) -> Outcome<Ours> {
    let filling = backend.open_to_fill(&path).await?;
    let ours = Ours::new(backend, path).await?;
    for _ in 0..count.div_ceil(100) {
        let some = (0..100).map(|_| async {
            let session = crate::ours::new_session(filling.as_ref(), &ours.effects).await?;
            let said = vec![agent_core::event::NewEvent::user_message("What did we decide?")];
            filling.append(&ours.effects, session.id, session.head, said).await?;
            Outcome::Ok(())
        });
        futures::future::join_all(some).await.into_iter().collect::<Outcome<Vec<_>>>()?;
    }
    Ok(ours)
}
