//! State of a lease holder as other processes observe it: proven dead, without heartbeat, or alive.

use std::time::Duration;

use tokio::time::{Instant, sleep};
use tracing::{debug, warn};

use crate::agent::runtime::shutting_down;
use crate::run::stop::is_set;
use crate::turn::session_ref::SessionRef;
use agent_core::session::Session;
use agent_core::state::SessionState;
use agent_core::{Epoch, Result};

/// Returns the session's lease if the store can prove that its holder is dead. A holder whose heartbeat cannot be read
/// counts as alive, so that the read error does not keep an input from being stored.
pub(crate) async fn dead_holder(handle: &SessionRef, now: &Session) -> Option<Epoch> {
    let lease = now.lease.as_ref().filter(|_| now.status.state == SessionState::Running)?;
    match handle.runtime().storage.sessions.lease_status(handle.id(), lease.epoch).await {
        Ok(lease_status) => lease_status.holder_proven_dead.then_some(lease.epoch),
        Err(error) => {
            warn!(session = %handle.id(), epoch = %lease.epoch, %error, "the heartbeat of the holder could not be read");
            None
        }
    }
}

/// Result of watching a lease holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Watched {
    /// The holder is dead, or sent no heartbeat for a whole ttl.
    Gone(Epoch),
    /// The holder sent a heartbeat, or the session's head moved.
    Alive,
    /// The holder no longer runs the session.
    Released,
}

/// Watches the holder of a running session for one ttl on this process's own clock. With `patience` it watches for as
/// long as the holder lives.
pub(crate) async fn watch_holder(handle: &SessionRef, now: &Session, patience: bool) -> Result<Watched> {
    let sessions = &handle.runtime().storage.sessions;
    let Some(lease) = now.lease.as_ref().filter(|_| now.status.state == SessionState::Running) else {
        return Ok(Watched::Released);
    };
    let (epoch, ttl) = (lease.epoch, Duration::from_millis(lease.ttl_ms));
    let mut closing = handle.runtime().shared.runs.closing();
    let pause = (ttl / 16).clamp(Duration::from_millis(1), Duration::from_secs(1));
    let lease_status = sessions.lease_status(handle.id(), epoch).await?;
    if lease_status.holder_proven_dead {
        return Ok(Watched::Gone(epoch));
    }
    let mut mark = (now.head, lease_status.heartbeat);
    let mut since = Instant::now();
    loop {
        tokio::select! {
            () = is_set(&mut closing) => return Err(shutting_down()),
            changed = sessions.changed(handle.id(), mark.0) => { changed?; }
            () = sleep(pause) => {}
        }
        let now = handle.refresh().await?;
        if now.lease.as_ref().is_none_or(|lease| lease.epoch != epoch) {
            return Ok(Watched::Released);
        }
        let lease_status = sessions.lease_status(handle.id(), epoch).await?;
        if lease_status.holder_proven_dead {
            return Ok(Watched::Gone(epoch));
        }
        if (now.head, lease_status.heartbeat) != mark {
            if !patience {
                return Ok(Watched::Alive);
            }
            mark = (now.head, lease_status.heartbeat);
            since = Instant::now();
        } else if since.elapsed() >= ttl {
            debug!(session = %handle.id(), %epoch, "the holder sent no heartbeat for a whole ttl");
            return Ok(Watched::Gone(epoch));
        }
    }
}
