//! One writer: a message, a turn, a turn with a run's lease, and what they cost in a long session.

use std::sync::{Arc, Mutex};

use agent_core::Sessions;
use agent_core::commit::{Commit, LeaseRequest, RunEnd, Trigger};
use agent_core::event::NewEvent;
use agent_core::session::SessionRecord;
use agent_core::state::Reason;
use bench_worker::text;

use super::place::Place;
use crate::floor::Floor;
use crate::ours::{Backend, Ours};
use crate::outcome::Outcome;
use crate::report::Figure;
use crate::rounds::{Side, compare};

const BATCH: u32 = 50;
/// Commits before anything is measured. After so many SQLite writes over its log, which costs less than to extend it.
const BEFORE: u32 = 700;

fn aim(backend: Backend) -> &'static str {
    match backend {
        Backend::Memory | Backend::Files => "at most 1.2",
        Backend::Sqlite => "at most 1.3",
        Backend::Postgres => "at most 1.5",
    }
}

pub(super) async fn append(place: &Place) -> Outcome<Figure> {
    let sides = commits(place, place.new_store().await?, place.floor()?, 1).await?;
    Ok(Figure::timed(place.backend, "append 1 KiB", sides).aim(aim(place.backend)))
}

pub(super) async fn turn(place: &Place) -> Outcome<Figure> {
    let sides = commits(place, place.new_store().await?, place.floor()?, 2).await?;
    Ok(Figure::timed(place.backend, "turn: two messages, one commit", sides).aim(aim(place.backend)))
}

/// The same without waiting for the disk, for those who compare libraries that do not.
pub(super) async fn unsynced(place: &Place) -> Outcome<Figure> {
    let (ours, floor) = place.unsynced().await?;
    let sides = commits(place, ours, floor, 2).await?;
    let aim = match place.backend {
        Backend::Memory | Backend::Files => "30 us",
        Backend::Sqlite => "45 us",
        Backend::Postgres => "",
    };
    Ok(Figure::timed(place.backend, "turn without syncs", sides).aim(aim))
}

async fn commits(
    place: &Place,
    mut ours: Ours,
    mut floor: Box<dyn Floor>,
    messages: u32,
) -> Outcome<(Side, Side)> {
    for _ in 0..BEFORE {
        ours.append(messages).await?;
        floor.write(messages)?;
    }
    compare(
        &place.meter,
        BATCH,
        async |times| {
            for _ in 0..times {
                ours.append(messages).await?;
            }
            Ok(Vec::new())
        },
        async |times| {
            for _ in 0..times {
                floor.write(messages)?;
            }
            Ok(Vec::new())
        },
    )
    .await
}

/// The floor of an append on a thread that may block, which leaves the caller's thread to others, and (as the floor) on the
/// caller's. The stores hand over, so the ratio is what they cannot fall below.
pub(super) async fn hand_over(place: &Place) -> Outcome<Figure> {
    let mut floor = place.floor()?;
    for _ in 0..BEFORE {
        floor.write(1)?;
    }
    let floor = Arc::new(Mutex::new(floor));
    let write = |floor: &Mutex<Box<dyn Floor>>| match floor.lock() {
        Ok(mut floor) => floor.write(1).map_err(|error| error.to_string()),
        Err(error) => Err(error.to_string()),
    };
    let sides = compare(
        &place.meter,
        BATCH,
        async |times| {
            for _ in 0..times {
                let floor = floor.clone();
                tokio::task::spawn_blocking(move || write(&floor)).await??;
            }
            Ok(Vec::new())
        },
        async |times| {
            for _ in 0..times {
                write(&floor)?;
            }
            Ok(Vec::new())
        },
    )
    .await?;
    Ok(Figure::timed(place.backend, "the floor of append, handed over", sides))
}

/// What the runtime does for a prompt: the input with the begin of a run, the answer with its end.
pub(super) async fn run(place: &Place) -> Outcome<Figure> {
    let (mut ours, mut floor) = (place.new_store().await?, place.floor()?);
    for _ in 0..BEFORE / 2 {
        prompt(&mut ours, &text()).await?;
        floor.write(1)?;
        floor.write(1)?;
    }
    let sides = compare(
        &place.meter,
        BATCH,
        async |times| {
            for _ in 0..times {
                prompt(&mut ours, &text()).await?;
            }
            Ok(Vec::new())
        },
        async |times| {
            for _ in 0..times {
                floor.write(1)?;
                floor.write(1)?;
            }
            Ok(Vec::new())
        },
    )
    .await?;
    Ok(Figure::timed(place.backend, "run: two commits, with a lease", sides).aim(aim(place.backend)))
}

/// The two commits of a turn with these texts, without a model and a runtime.
pub(super) async fn prompt(ours: &mut Ours, text: &str) -> Outcome {
    prompt_session(&ours.store, &mut ours.session, text).await
}

/// The same in one of many sessions.
pub(super) async fn prompt_session(
    store: &Sessions,
    session: &mut Arc<SessionRecord>,
    text: &str,
) -> Outcome {
    let effects = store.effects();
    let run = effects.new_run_id();
    let begin = Trigger::BeginRun(LeaseRequest::new("bench", run));
    let input = Commit::seal(effects, session.id, session.head).with_event(NewEvent::user_message(text));
    *session = store.commit(input.with_trigger(begin)).await?.session;
    let end = Trigger::EndRun(RunEnd::Completed(Reason::EndTurn));
    let answer = Commit::seal(effects, session.id, session.head).with_fence(run, session.epoch);
    let answer = answer.with_event(NewEvent::agent_message(text)).with_trigger(end);
    *session = store.commit(answer).await?.session;
    Ok(())
}

/// The same commit at the end of a long session, and (as the floor) of a short one.
pub(super) async fn growth(place: &Place) -> Outcome<Figure> {
    let long = if place.quick { 10_000 } else { 100_000 };
    let mut long = place.filled_store("long", long).await?;
    let mut short = place.filled_store("short", 100).await?;
    place.backend.settle().await?;
    let sides = compare(
        &place.meter,
        BATCH,
        async |times| {
            for _ in 0..times {
                long.append(1).await?;
            }
            Ok(Vec::new())
        },
        async |times| {
            for _ in 0..times {
                short.append(1).await?;
            }
            Ok(Vec::new())
        },
    )
    .await?;
    let name = format!("append at {} / at 100", if place.quick { "10,000" } else { "100,000" });
    Ok(Figure::timed(place.backend, name, sides).aim("at most 1.1"))
}
