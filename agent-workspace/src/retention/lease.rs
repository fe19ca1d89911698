//! Leases whose holders are gone, found by watching them.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use agent_core::session::Session;
use agent_core::store::{HolderState, LeaseWatch};
use agent_core::{ErrorKind, Result, SessionId, SessionStore};

/// Returns the sessions whose holder is proven dead, or sends no heartbeat for one ttl.
///
/// Watches all sessions at once, for at most `patience`; a lease with a longer ttl counts as held. Ends as soon as each
/// session has changed or its holder is gone.
pub(super) async fn abandoned(
    store: &dyn SessionStore,
    leased: &[Arc<Session>],
    patience: Duration,
) -> Result<HashSet<SessionId>> {
    let (mut gone, mut watched) = (HashSet::new(), Vec::new());
    for session in leased {
        let watch = LeaseWatch::begin(store, session).await?;
        watched.extend(watch.filter(|watch| watch.is_proven_dead() || watch.ttl() <= patience));
    }
    while let Some(pause) = watched.iter().map(LeaseWatch::pause).max() {
        sleep(pause).await;
        let mut silent = Vec::with_capacity(watched.len());
        for mut watch in watched {
            match check(store, &mut watch).await? {
                HolderState::Gone => drop(gone.insert(watch.session())),
                HolderState::Silent => silent.push(watch),
                _ => {}
            }
        }
        watched = silent;
    }
    Ok(gone)
}

/// Returns whether the holder of a session's lease is proven dead, or sends no heartbeat for one ttl.
///
/// Returns `false` at the first heartbeat. A session without a lease counts as abandoned.
pub(super) async fn is_abandoned(store: &dyn SessionStore, session: &Session) -> Result<bool> {
    let Some(mut watch) = LeaseWatch::begin(store, session).await? else { return Ok(true) };
    loop {
        sleep(watch.pause()).await;
        match check(store, &mut watch).await? {
            HolderState::Silent => {}
            state => return Ok(state == HolderState::Gone),
        }
    }
}

/// Checks a watch; a session that does not exist any more has no lease.
async fn check(store: &dyn SessionStore, watch: &mut LeaseWatch) -> Result<HolderState> {
    match watch.check(store).await {
        Err(error) if *error.kind() == ErrorKind::NotFound => Ok(HolderState::Released),
        state => state,
    }
}
