//! Whether those who hold leases still live. No clock decides that, only watching.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use agent_core::session::Session;
use agent_core::store::Pulse;
use agent_core::{ErrorKind, Result, SessionId, SessionStore};

/// Of these sessions, those whose holder is gone: proven dead, or without a sign of life for a whole ttl. Watches all
/// of them at once, for at most `patience`; a lease that lives longer without a sign of life counts as held.
pub(super) async fn abandoned(
    store: &dyn SessionStore,
    leased: &[Arc<Session>],
    patience: Duration,
) -> Result<HashSet<SessionId>> {
    let mut gone = HashSet::new();
    let mut watched = Vec::new();
    let mut longest = Duration::ZERO;
    for session in leased {
        let Some(lease) = &session.lease else { continue };
        let Some(pulse) = look(store, session).await? else { continue };
        let ttl = Duration::from_millis(lease.ttl_ms);
        if pulse.dead {
            gone.insert(session.id);
        } else if ttl <= patience {
            longest = longest.max(ttl);
            watched.push((session, pulse));
        }
    }
    if !watched.is_empty() {
        sleep(longest).await;
    }
    for (session, pulse) in watched {
        if look(store, session).await? == Some(pulse) {
            gone.insert(session.id);
        }
    }
    Ok(gone)
}

/// The sign of life of a session's holder; `None` where the session is no longer at the event at which it was seen.
async fn look(store: &dyn SessionStore, seen: &Session) -> Result<Option<Pulse>> {
    let now = match store.load(seen.id).await {
        Err(error) if *error.kind() == ErrorKind::NotFound => return Ok(None),
        other => other?,
    };
    if (now.head, now.epoch) != (seen.head, seen.epoch) {
        return Ok(None);
    }
    store.pulse(seen.id, seen.epoch).await.map(Some)
}
