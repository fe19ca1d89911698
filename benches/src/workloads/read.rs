//! One reader: the end of a session, and all of it.

use agent_core::event::Event;
use agent_core::store::ReadEvents;

use super::place::Place;
use crate::ours::Backend;
use crate::outcome::Outcome;
use crate::report::Figure;
use crate::rounds::compare;

pub(super) async fn last(place: &Place) -> Outcome<Vec<Figure>> {
    let mut figures = Vec::new();
    for (count, name) in [(1_000, "last 50 of 1,000"), (100_000, "last 50 of 100,000")] {
        if count > 1_000 && place.quick {
            continue;
        }
        let ours = place.filled_store(name, count).await?;
        let page = ours.store.read(ours.session.id, ReadEvents::last(50)).await?;
        let lines: Vec<String> = page.events.iter().map(Event::to_json).collect();
        let mut floor = crate::floor::of(place.backend, &place.path(&format!("{name} floor")), true)?;
        // As many rows as ours has, so that both descend a tree of the same height.
        let all: Vec<String> = lines.iter().cycle().take(count as usize).cloned().collect();
        floor.fill(&all)?;
        place.backend.settle().await?;
        let sides = compare(
            &place.meter,
            50,
            async |times| {
                for _ in 0..times {
                    let page = ours.store.read(ours.session.id, ReadEvents::last(50)).await?;
                    assert_eq!(page.events.len(), 50);
                }
                Ok(Vec::new())
            },
            async |times| {
                for _ in 0..times {
                    floor.last_50()?;
                }
                Ok(Vec::new())
            },
        )
        .await?;
        let aim = match place.backend {
            Backend::Memory | Backend::Files => "under 300 us",
            Backend::Sqlite => "at most 4, under 300 us",
            Backend::Postgres => "under 3 ms",
        };
        figures
            .push(Figure::timed(place.backend, name, sides).aim(aim).note("floor: bytes, not parsed".into()));
    }
    Ok(figures)
}

pub(super) async fn load(place: &Place) -> Outcome<Vec<Figure>> {
    let mut figures = vec![load_of(place, 10_000, "10,000").await?];
    if !place.quick {
        figures.push(load_of(place, 100_000, "100,000").await?);
    }
    Ok(figures)
}

async fn load_of(place: &Place, events: u64, name: &str) -> Outcome<Figure> {
    let ours = place.filled_store(&format!("loaded {name}"), events).await?;
    let lines: Vec<String> = ours.load().await?.iter().map(Event::to_json).collect();
    let mut floor = place.floor()?;
    floor.fill(&lines)?;
    drop(lines);
    place.backend.settle().await?;
    let sides = compare(
        &place.meter,
        1,
        async |_| {
            assert_eq!(ours.load().await?.len() as u64, events);
            Ok(Vec::new())
        },
        async |_| {
            floor.load()?;
            Ok(Vec::new())
        },
    )
    .await?;
    Ok(Figure::timed(place.backend, format!("load {name}"), sides)
        .aim("at most 1.2")
        .note("floor: the same bytes, read and parsed as events".into()))
}
