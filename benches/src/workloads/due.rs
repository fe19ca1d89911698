//! A page of what is due behind timers that were set and dropped, while another connection keeps a snapshot, against the same without
//! a snapshot.

use std::sync::Arc;

use agent_core::Timestamp;
use agent_core::commit::Commit;
use agent_core::event::NewEvent;
use agent_core::model::Timer;
use agent_core::session::SessionRecord;
use agent_core::store::SessionQuery;
use futures::{StreamExt, stream};
use sqlx::Executor;

use super::at_once::sessions;
use super::place::Place;
use crate::ours::{Backend, Ours};
use crate::outcome::Outcome;
use crate::postgres;
use crate::report::Figure;
use crate::rounds::compare;

/// Sessions that set and drop timers, how many of them at the same time, and sessions that are due in the end. Beside a snapshot the
/// server keeps each version of a session's row, so that thousands of changes of one session would take longer and longer.
const CHANGED: u32 = 1_000;
const AT_ONCE: usize = 32;
const DUE: u32 = 50;

pub(super) async fn due(place: &Place) -> Outcome<Figure> {
    let count = if place.quick { 10_000 } else { 100_000 };
    let without = filled(place.backend, place, "without", count).await?;
    place.backend.settle().await?;
    let mut reader = postgres::connect(&place.path("reader"), true).await?;
    reader.execute("BEGIN ISOLATION LEVEL REPEATABLE READ").await?;
    reader.execute("SELECT count(*) FROM pg_class").await?;
    let with = filled(place.backend, place, "with", count).await?;
    let sides = compare(
        &place.meter,
        20,
        async |times| pages(&with, times).await.map(|()| Vec::new()),
        async |times| pages(&without, times).await.map(|()| Vec::new()),
    )
    .await?;
    reader.execute("COMMIT").await?;
    let thousands = count / 1_000;
    Ok(Figure::timed(place.backend, format!("due 50 behind {thousands},000 timers"), sides)
        .aim("under 5 ms")
        .note("a snapshot is held meanwhile; floor: the same without".to_owned()))
}

/// A store in which so many timers were set and dropped, and then sessions became due.
async fn filled(backend: Backend, place: &Place, name: &str, count: u32) -> Outcome<Ours> {
    let ours = Ours::unsynced(backend, place.path(name)).await?;
    let at = ours.effects.now();
    let changes = sessions(&ours, CHANGED).await?.into_iter().map(|session| {
        let (store, effects) = (ours.store.clone(), ours.effects.clone());
        tokio::spawn(async move {
            let mut session = session;
            for _ in 0..count / CHANGED {
                for event in [timer(at), NewEvent::timer_cancelled("timer")] {
                    let commit = Commit::seal(&effects, session.id, session.head).with_event(event);
                    session = store.commit(commit).await?.session;
                }
            }
            Ok::<_, agent_core::Error>(())
        })
    });
    let mut changes = stream::iter(changes).buffer_unordered(AT_ONCE);
    while let Some(change) = changes.next().await {
        change??;
    }
    drop(changes);
    for session in sessions(&ours, DUE).await? {
        set(&ours, &session, at).await?;
    }
    Ok(ours)
}

fn timer(at: Timestamp) -> NewEvent {
    NewEvent::timer_scheduled(Timer::new("timer", at))
}

async fn set(ours: &Ours, session: &Arc<SessionRecord>, at: Timestamp) -> Outcome {
    let commit = Commit::seal(&ours.effects, session.id, session.head).with_event(timer(at));
    ours.store.commit(commit).await?;
    Ok(())
}

async fn pages(ours: &Ours, times: u32) -> Outcome {
    for _ in 0..times {
        let query = SessionQuery::new().with_due(ours.effects.now()).with_limit(DUE as usize);
        assert_eq!(ours.store.list(query).await?.items.len(), DUE as usize);
    }
    Ok(())
}
