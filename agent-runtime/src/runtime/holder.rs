//! The holder of a session's lease, as others see it: proven dead, silent, or alive.

use std::time::Duration;

use tokio::time::{Instant, sleep};
use tracing::{debug, warn};

use crate::runtime::agent::shutting_down;
use crate::runtime::session_ref::SessionRef;
use crate::runtime::stop::is_set;
use agent_core::session::Session;
use agent_core::state::SessionState;
use agent_core::{Epoch, Result};

/// The lease of the session's holder, where the store can prove that the holder is dead. One that cannot be looked at
/// is not: that must keep no input from being stored.
pub(crate) async fn dead_holder(handle: &SessionRef, now: &Session) -> Option<Epoch> {
    let lease = now.lease.as_ref().filter(|_| now.status.state == SessionState::Running)?;
    match handle.runtime().storage.sessions.pulse(handle.id(), lease.epoch).await {
        Ok(pulse) => pulse.dead.then_some(lease.epoch),
        Err(error) => {
            warn!(session = %handle.id(), epoch = %lease.epoch, %error, "the holder could not be looked at");
            None
        }
    }
}

/// What became of a holder that was watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Watched {
    /// It is gone: dead, or without a sign of life for a whole ttl.
    Gone(Epoch),
    /// It gave a sign of life.
    Alive,
    /// The session is no longer run by it.
    Released,
}

/// Watches the holder of a running session for a whole ttl, on this process's own clock; with `patience` for as long
/// as it lives.
pub(crate) async fn watch_holder(handle: &SessionRef, now: &Session, patience: bool) -> Result<Watched> {
    let sessions = &handle.runtime().storage.sessions;
    let Some(lease) = now.lease.as_ref().filter(|_| now.status.state == SessionState::Running) else {
        return Ok(Watched::Released);
    };
    let (epoch, ttl) = (lease.epoch, Duration::from_millis(lease.ttl_ms));
    let mut closing = handle.runtime().shared.runs.closing();
    let pause = (ttl / 16).clamp(Duration::from_millis(1), Duration::from_secs(1));
    let pulse = sessions.pulse(handle.id(), epoch).await?;
    if pulse.dead {
        return Ok(Watched::Gone(epoch));
    }
    let mut mark = (now.head, pulse.beat);
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
        let pulse = sessions.pulse(handle.id(), epoch).await?;
        if pulse.dead {
            return Ok(Watched::Gone(epoch));
        }
        if (now.head, pulse.beat) != mark {
            if !patience {
                return Ok(Watched::Alive);
            }
            mark = (now.head, pulse.beat);
            since = Instant::now();
        } else if since.elapsed() >= ttl {
            debug!(session = %handle.id(), %epoch, "the holder gave no sign of life for a whole ttl");
            return Ok(Watched::Gone(epoch));
        }
    }
}
