//! State of a lease holder as other processes observe it: proven dead, without heartbeat, or alive.

use tokio::time::sleep;
use tracing::{debug, warn};

use crate::agent::runtime::shutting_down;
use crate::run::stop::is_set;
use crate::turn::session_ref::SessionRef;
use agent_core::session::SessionRecord;
use agent_core::state::SessionState;
use agent_core::store::{HolderState, LeaseWatch};
use agent_core::{Epoch, Result};

/// Returns the session's lease if the store can prove that its holder is dead. A holder whose heartbeat cannot be read
/// counts as alive, so that the read error does not keep an input from being stored.
pub(crate) async fn dead_holder(handle: &SessionRef, now: &SessionRecord) -> Option<Epoch> {
    let lease = now.lease.as_ref().filter(|_| now.status.state == SessionState::Running)?;
    match handle.runtime().storage.sessions.leases().status(handle.id(), lease.epoch).await {
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

impl Watched {
    /// Returns the epoch of the lease if its holder is dead or silent.
    pub(crate) const fn gone(self) -> Option<Epoch> {
        match self {
            Self::Gone(epoch) => Some(epoch),
            Self::Alive | Self::Released => None,
        }
    }
}

/// Watches the holder of a running session for one ttl on this process's own clock. With `patience` it watches for as
/// long as the holder lives.
pub(crate) async fn watch_holder(
    handle: &SessionRef,
    now: &SessionRecord,
    patience: bool,
) -> Result<Watched> {
    let sessions = &handle.runtime().storage.sessions;
    if now.status.state != SessionState::Running {
        return Ok(Watched::Released);
    }
    let Some(mut watch) = LeaseWatch::begin(&**sessions, now).await? else { return Ok(Watched::Released) };
    let epoch = watch.epoch();
    let mut closing = handle.runtime().shared.runs.closing();
    while !watch.is_proven_dead() {
        tokio::select! {
            () = is_set(&mut closing) => return Err(shutting_down()),
            changed = sessions.changed(handle.id(), watch.head()) => { changed?; }
            () = sleep(watch.pause()) => {}
        }
        let now = handle.refresh().await?;
        match watch.check_with(&**sessions, &now).await? {
            HolderState::Gone => {
                debug!(session = %handle.id(), %epoch, "the holder sent no heartbeat for a whole ttl");
                break;
            }
            HolderState::Alive if !patience => return Ok(Watched::Alive),
            HolderState::Replaced | HolderState::Released => return Ok(Watched::Released),
            _ => {}
        }
    }
    Ok(Watched::Gone(epoch))
}
