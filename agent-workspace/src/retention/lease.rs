//! Leases whose holders are gone, found by watching them.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use agent_core::session::SessionRecord;
use agent_core::store::{HolderState, LeaseWatch};
use agent_core::{ErrorKind, Result, SessionId, SessionStore};

/// Returns the sessions whose holder is proven dead, or sends no heartbeat for one ttl.
///
/// Watches all sessions at once, for at most `patience`; a lease with a longer ttl counts as held. Ends as soon as each
/// session has changed or its holder is gone.
pub(super) async fn abandoned(
    store: &dyn SessionStore,
    leased: &[Arc<SessionRecord>],
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
pub(super) async fn is_abandoned(store: &dyn SessionStore, session: &SessionRecord) -> Result<bool> {
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use agent_core::clock::Effects;
    use agent_core::commit::{Commit, LeaseRequest, RunEnd, Trigger};
    use agent_core::event::NewEvent;
    use agent_core::session::NewSession;
    use agent_core::state::Reason;
    use agent_core::{MemoryStore, SessionStoreExt, WorkspaceId};
    use tokio::time::Instant;

    use super::*;

    /// A run that ends is not waited for to the end of its lease; one without heartbeat is gone after it. The clock is simulated.
    #[tokio::test(start_paused = true)]
    async fn an_ended_run_is_not_waited_for_and_a_silent_one_is_gone() {
        let (store, effects, ttl) = (MemoryStore::new(), Effects::default(), Duration::from_secs(30));
        let new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
        let session = store.sessions(&effects).create(new).await.unwrap();
        let input = vec![NewEvent::user_message("go")];
        let session = store.sessions(&effects).append(session.id, session.head, input).await.unwrap().session;
        let lease = LeaseRequest::new("laptop", effects.new_run_id()).with_ttl(ttl);
        let session =
            store.sessions(&effects).trigger(session.id, Trigger::BeginRun(lease)).await.unwrap().session;

        let begun = Instant::now();
        assert!(is_abandoned(&store, &session).await.unwrap());
        assert!(abandoned(&store, std::slice::from_ref(&session), ttl).await.unwrap().contains(&session.id));
        assert!(begun.elapsed() >= 2 * ttl, "each watches for a whole ttl: {:?}", begun.elapsed());

        let (leased, begun) = ([session.clone()], Instant::now());
        let end = async {
            sleep(Duration::from_secs(1)).await;
            let run = session.lease.as_ref().unwrap().run;
            let commit = Commit::seal(&effects, session.id, session.head)
                .with_fence(run, session.epoch)
                .with_trigger(Trigger::EndRun(RunEnd::Completed(Reason::EndTurn)));
            store.commit_with_retry(commit).await.unwrap();
        };
        let (gone, ()) = tokio::join!(abandoned(&store, &leased, ttl), end);
        assert!(gone.unwrap().is_empty());
        assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
    }
}
