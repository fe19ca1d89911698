//! The first page of many sessions.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use agent_core::event::NewEvent;
use agent_core::store::SessionQuery;
use agent_core::{SessionStore, Sessions};

use super::place::Place;
use crate::ours::{Backend, Ours};
use crate::outcome::Outcome;
use crate::report::Figure;
use crate::rounds::compare;

pub(super) async fn list(place: &Place) -> Outcome<Vec<Figure>> {
    let mut figures = Vec::new();
    for (count, name) in [(10_000, "list 50 of 10,000"), (100_000, "list 50 of 100,000")] {
        if count > 10_000 && place.quick {
            continue;
        }
        let ours = filled(place.backend, place.path(name), count).await?;
        let mut floor = crate::floor::of(place.backend, &place.path(&format!("{name} floor")), true)?;
        floor.fill_list(count)?;
        place.backend.settle().await?;
        let sides = compare(
            &place.meter,
            50,
            async |times| {
                for _ in 0..times {
                    list_50(&*ours.store).await?;
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
            Backend::Memory | Backend::Files => {
                ("under 300 us, the same for both", "floor: 50 files are looked at")
            }
            Backend::Sqlite => ("at most 4, under 150 us", "floor: texts by an index, not parsed"),
            Backend::Postgres => ("under 5 ms", "floor: texts by an index, not parsed"),
        };
        figures.push(Figure::timed(place.backend, name, sides).aim(aim).note(note.to_owned()));
        if place.backend == Backend::Files && count == 10_000 {
            figures.push(first_list(place, &ours).await?);
        }
    }
    if !place.quick {
        figures.push(list_of_an_owner(place).await?);
    }
    Ok(figures)
}

/// The first page of an owner of 1,000 sessions, against that of the tenant with those of 100 owners. All sessions have a title and a
/// preview.
async fn list_of_an_owner(place: &Place) -> Outcome<Figure> {
    let path = place.path("owners");
    let filling = place.backend.open_storage(&path, true).await?;
    let owners = (0..100).map(|n| Ok(format!("user {n}").parse()?)).collect::<Outcome<Vec<_>>>()?;
    for _ in 0..1_000 {
        let some = owners.iter().map(|owner| add_session(filling.for_owner(owner).sessions));
        futures::future::join_all(some).await.into_iter().collect::<Outcome<Vec<_>>>()?;
    }
    drop(filling);
    place.backend.settle().await?;
    let tenant = place.backend.open_storage(&path, false).await?;
    let owned = tenant.for_owner(&owners[7]).sessions;
    let sides = compare(
        &place.meter,
        50,
        async |times| {
            for _ in 0..times {
                list_50(&*owned).await?;
            }
            Ok(Vec::new())
        },
        async |times| {
            for _ in 0..times {
                list_50(&*tenant.sessions).await?;
            }
            Ok(Vec::new())
        },
    )
    .await?;
    let figure = Figure::timed(place.backend, "list 50 of an owner's 1,000 of 100,000", sides);
    Ok(figure.aim("1").note("floor: the tenant's list of the same store".to_owned()))
}

/// Adds a session with a message.
async fn add_session(sessions: Sessions) -> Outcome {
    let session = crate::ours::new_session(&sessions).await?;
    let message = NewEvent::user_message("What did we decide?");
    sessions.append(session.id, session.head, vec![message]).await?;
    Ok(())
}

async fn list_50(store: &dyn SessionStore) -> Outcome {
    let page = store.list(SessionQuery::new().with_limit(50)).await?;
    assert_eq!(page.items.len(), 50);
    Ok(())
}

/// The first list of a process, with the file of summaries that another process has left: a store that is opened looks at the log of
/// each session.
async fn first_list(place: &Place, ours: &Ours) -> Outcome<Figure> {
    // What was changed just now would not be in the file.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let keeping = place.backend.open(&ours.path).await?;
    list_50(&*keeping).await?;
    add_session(keeping.clone()).await?;
    keeping.close().await?;
    let sessions = ours.path.join("workspaces/default/sessions");
    let sides = compare(
        &place.meter,
        1,
        async |_| {
            list_50(&*place.backend.open(&ours.path).await?).await?;
            Ok(Vec::new())
        },
        async |_| {
            let mut newest = None;
            for entry in fs::read_dir(&sessions)? {
                newest = newest.max(Some(fs::metadata(entry?.path().join("events.jsonl"))?.modified()?));
            }
            std::hint::black_box(newest);
            Ok(Vec::new())
        },
    )
    .await?;
    let figure = Figure::timed(place.backend, "first list of a process, 10,000", sides);
    Ok(figure.note("floor: each of these logs is looked at".to_owned()))
}

/// A store with so many sessions of one message each, made without syncs.
pub(crate) async fn filled(backend: Backend, path: PathBuf, count: u32) -> Outcome<Ours> {
    let filling = backend.open_to_fill(&path).await?;
    let ours = Ours::new(backend, path).await?;
    for _ in 0..count.div_ceil(100) {
        let some = (0..100).map(|_| add_session(filling.clone()));
        futures::future::join_all(some).await.into_iter().collect::<Outcome<Vec<_>>>()?;
    }
    Ok(ours)
}
