//! 32 sessions at once, in one process.

use std::sync::Arc;
use std::time::{Duration, Instant};

use agent_core::commit::Commit;
use agent_core::session::SessionRecord;

use super::place::Place;
use crate::ours::{Backend, Ours, new_session, turn};
use crate::outcome::Outcome;
use crate::report::Figure;
use crate::rounds::{Side, compare};

const WRITERS: u32 = 32;
const TURNS: u32 = 16;

/// Turns of two messages, and single messages too where the floor is one row.
pub(super) async fn at_once(place: &Place) -> Outcome<Vec<Figure>> {
    let turn = figure(place, "a turn of 32 sessions at once", 2).await?;
    if place.backend == Backend::Postgres {
        let message = figure(place, "a message of 32 sessions at once", 1).await?;
        return Ok(vec![message.aim("0.55 of the floor's rate (ratio 1.82)"), turn]);
    }
    Ok(vec![turn.aim("0.75 of the floor's rate (ratio 1.33) or 8,000/s, p99 under 15 ms")])
}

async fn figure(place: &Place, name: &str, messages: u32) -> Outcome<Figure> {
    let path = place.path(name);
    let mut floor = crate::floor::of(place.backend, &path, true)?;
    let ours = Ours::new(place.backend, path.join("ours")).await?;
    let mut sessions = sessions(&ours, WRITERS).await?;
    let sides = compare(
        &place.meter,
        WRITERS * TURNS,
        async |_| commits(&ours, &mut sessions, TURNS, messages).await,
        async |_| floor.write_at_once(WRITERS, TURNS, messages).await,
    )
    .await?;
    let note = format!("ours {}, floor {}", latencies(&sides.0), latencies(&sides.1));
    Ok(Figure::timed(place.backend, name, sides).note(note))
}

pub(crate) async fn sessions(ours: &Ours, count: u32) -> Outcome<Vec<Arc<SessionRecord>>> {
    let new = (0..count).map(|_| new_session(&ours.store));
    futures::future::join_all(new).await.into_iter().collect()
}

/// So many turns in each of the sessions at once: what each took. A refusal fails all.
pub(crate) async fn turns(
    ours: &Ours,
    sessions: &mut Vec<Arc<SessionRecord>>,
    turns: u32,
) -> Outcome<Vec<Duration>> {
    commits(ours, sessions, turns, 2).await
}

/// The same with so many messages in each commit.
async fn commits(
    ours: &Ours,
    sessions: &mut Vec<Arc<SessionRecord>>,
    commits: u32,
    messages: u32,
) -> Outcome<Vec<Duration>> {
    let tasks = std::mem::take(sessions).into_iter().map(|mut session| {
        let (store, effects) = (ours.store.clone(), ours.effects.clone());
        tokio::spawn(async move {
            let mut latencies = Vec::new();
            for _ in 0..commits {
                let start = Instant::now();
                let commit = Commit::seal(&effects, session.id, session.head).with_events(turn(messages));
                session = store.commit(commit).await?.session;
                latencies.push(start.elapsed());
            }
            Ok::<_, agent_core::Error>((session, latencies))
        })
    });
    let mut all = Vec::new();
    for task in tasks.collect::<Vec<_>>() {
        let (session, latencies) = task.await??;
        sessions.push(session);
        all.extend(latencies);
    }
    Ok(all)
}

/// The rate, the median and the 99th percentile of a side whose operations ran at once.
pub(super) fn latencies(side: &Side) -> String {
    format!(
        "{:.0}/s, p50 {:.2} ms, p99 {:.2} ms",
        1e6 / side.quartiles()[1],
        side.latency(500).unwrap_or(f64::NAN),
        side.latency(990).unwrap_or(f64::NAN)
    )
}
