//! A tenant of two messages is deleted in a large store, while another tenant writes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use agent_core::commit::Commit;
use agent_core::event::NewEvent;
use agent_core::{Sessions, TenantId};
use bench_worker::text;

use super::place::Place;
use crate::ours::new_session;
use crate::outcome::Outcome;
use crate::report::{Figure, Measured};

/// Number of deletions.
const DELETIONS: usize = 8;
/// Least number of commits of the other tenant, beside each deletion and without one.
const COMMITS: usize = 100;

/// Returns the longest commit of another tenant beside deletions.
pub(super) async fn beside(place: &Place) -> Outcome<Figure> {
    let effects = agent_core::clock::Effects::default();
    let (path, mib) = (place.path("ours"), if place.quick { 50 } else { 500 });
    let [acme, other] = ["acme", "other"].map(str::parse::<TenantId>);
    let (acme, other) = (acme?, other?);

    let filling = place.backend.open_tenants(&path, true).await?;
    let sessions = filling.tenant(&other).sessions;
    for _ in 0..mib / 10 {
        let session = new_session(&sessions).await?;
        let events = (0..40).map(|_| NewEvent::agent_message("x".repeat(256 << 10)));
        sessions.commit(Commit::seal(&effects, session.id, session.head).with_events(events)).await?;
    }
    filling.close().await?;

    let store = place.backend.open_tenants(&path, false).await?;
    let writes = store.tenant(&other).sessions;
    let stopped = Arc::new(AtomicBool::new(true));
    let without = longest(&writes, &stopped).await?;
    let (mut with, mut bytes, mut pending) = (Duration::ZERO, 0, false);
    for n in 0..2 * DELETIONS {
        let sessions = store.tenant(&acme).sessions;
        let session = new_session(&sessions).await?;
        let events = [NewEvent::user_message(text()), NewEvent::agent_message(text())];
        sessions.commit(Commit::seal(&effects, session.id, session.head).with_events(events)).await?;
        if n < DELETIONS {
            // Alone, so that all that is written is the deletion's.
            let before = place.meter.read();
            pending |= store.delete_tenant(&acme).await?.rewrite_pending;
            bytes = (place.meter.read() - before).bytes.max(bytes);
            continue;
        }
        stopped.store(false, Ordering::Relaxed);
        let deleting = async {
            let deleted = store.delete_tenant(&acme).await;
            stopped.store(true, Ordering::Relaxed);
            deleted
        };
        let (longest, deleted) = tokio::join!(longest(&writes, &stopped), deleting);
        deleted?;
        with = with.max(longest?);
    }
    let begun = Instant::now();
    store.maintain().await?;
    let maintained = begun.elapsed();
    store.close().await?;
    let millis = |duration: Duration| duration.as_secs_f64() * 1e3;
    let note = format!(
        "{:.2} ms without; each deletion wrote at most {} KiB, beside {mib} MiB; rewrite pending: {pending}; \
         maintain took {:.0} ms",
        millis(without),
        bytes >> 10,
        millis(maintained),
    );
    let measured = Measured::Value(millis(with), "ms");
    Ok(Figure::new(place.backend, "longest commit beside deletions", measured)
        .aim("no longer than without")
        .note(note))
}

/// Commits one message after another until `stopped` is set, at least so many for each deletion; returns what the longest took.
async fn longest(store: &Sessions, stopped: &AtomicBool) -> Outcome<Duration> {
    let effects = agent_core::clock::Effects::default();
    let mut session = new_session(store).await?;
    let (mut longest, mut count) = (Duration::ZERO, 0);
    // Without deletions, as many as beside all of them.
    let least = if stopped.load(Ordering::Relaxed) { COMMITS * DELETIONS } else { COMMITS };
    while count < least || !stopped.load(Ordering::Relaxed) {
        let begun = Instant::now();
        let append =
            Commit::seal(&effects, session.id, session.head).with_event(NewEvent::user_message(text()));
        session = store.commit(append).await?.session;
        longest = longest.max(begun.elapsed());
        count += 1;
    }
    Ok(longest)
}
