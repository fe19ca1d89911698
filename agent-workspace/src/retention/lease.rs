//! Liveness of lease holders, decided by watching and never by comparing clocks.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use agent_core::session::Session;
use agent_core::store::LeaseStatus;
use agent_core::{ErrorKind, Result, SessionId, SessionStore};

/// Returns the sessions whose holder is proven dead, or sends no heartbeat for one ttl.
///
/// Watches all sessions at once, for at most `patience`; a lease with a longer ttl counts as held. Ends as soon as each
/// session has changed or its holder is proven dead.
pub(super) async fn abandoned(
    store: &dyn SessionStore,
    leased: &[Arc<Session>],
    patience: Duration,
) -> Result<HashSet<SessionId>> {
    let mut gone = HashSet::new();
    let mut watched = Vec::new();
    for session in leased {
        let Some(lease) = &session.lease else { continue };
        let Some(lease_status) = look(store, session).await? else { continue };
        let ttl = Duration::from_millis(lease.ttl_ms);
        if lease_status.holder_proven_dead {
            gone.insert(session.id);
        } else if ttl <= patience {
            watched.push((session, ttl, lease_status));
        }
    }
    let since = Instant::now();
    while let Some(longest) = watched.iter().map(|(_, ttl, _)| *ttl).max() {
        let left = longest.saturating_sub(since.elapsed());
        sleep(pause(longest).min(left)).await;
        let is_over = since.elapsed() >= longest;
        let mut same = Vec::with_capacity(watched.len());
        for (session, ttl, first) in watched {
            match look(store, session).await? {
                Some(now) if now.holder_proven_dead || (is_over && now == first) => {
                    gone.insert(session.id);
                }
                Some(now) if now == first => same.push((session, ttl, first)),
                _ => {}
            }
        }
        watched = same;
    }
    Ok(gone)
}

/// Returns whether the holder of a session's lease is proven dead, or sends no heartbeat for one ttl.
///
/// Returns `false` at the first heartbeat. A session without a lease counts as abandoned.
pub(super) async fn is_abandoned(store: &dyn SessionStore, session: &Session) -> Result<bool> {
    let Some(lease) = &session.lease else { return Ok(true) };
    let Some(first) = look(store, session).await? else { return Ok(false) };
    let (ttl, since) = (Duration::from_millis(lease.ttl_ms), Instant::now());
    let pause = pause(ttl);
    let mut now = first;
    while !now.holder_proven_dead && since.elapsed() < ttl {
        sleep(pause).await;
        match look(store, session).await? {
            Some(lease_status) if lease_status.holder_proven_dead || lease_status == first => {
                now = lease_status;
            }
            _ => return Ok(false),
        }
    }
    Ok(true)
}

/// Returns the time between two looks at a lease.
fn pause(ttl: Duration) -> Duration {
    (ttl / 16).clamp(Duration::from_millis(1), Duration::from_secs(1))
}

/// Returns the heartbeat of a session's holder; `None` if the session has changed since it was seen.
async fn look(store: &dyn SessionStore, seen: &Session) -> Result<Option<LeaseStatus>> {
    let now = match store.load(seen.id).await {
        Err(error) if *error.kind() == ErrorKind::NotFound => return Ok(None),
        other => other?,
    };
    if (now.head, now.epoch) != (seen.head, seen.epoch) {
        return Ok(None);
    }
    store.lease_status(seen.id, seen.epoch).await.map(Some)
}
