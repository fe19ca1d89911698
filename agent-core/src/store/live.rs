//! Search for runs with a live holder, by watching heartbeats and never by comparing clocks.

use std::sync::Arc;
use std::time::Duration;

use futures::TryStreamExt;
use tokio::time::{Instant, sleep};

use crate::base::{Error, ErrorKind, Result, SessionState};
use crate::session::Session;
use crate::store::page::{PAGE_MAX, pages};
use crate::store::session::{LeaseStatus, SessionQuery, SessionStore};

/// Maximum time for which leases are watched. A lease with a longer ttl counts as held.
const MOST: Duration = Duration::from_secs(600);
/// Number of checks of each lease while it is watched, at least.
const LOOKS: u32 = 8;
/// Maximum time between two checks, so that the end of a run is seen soon.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// For backends, before a tenant is deleted: fails if a live holder runs or prepares one of the sessions of `store`.
///
/// A holder counts as live unless the store proves it dead, or it sends no heartbeat for one ttl of its lease. Nothing
/// is written. The call lists all sessions in states with a lease, and waits until each of their runs has ended, or for as
/// long as the longest ttl among those that have not, at most ten minutes; a lease with a longer ttl counts as held. It
/// checks each lease at least once a second, one read of its record and of its heartbeat each time.
///
/// # Cancel safety
///
/// Dropping the future has no effect on the store.
///
/// # Errors
///
/// `Busy` if there is such a session; those of the store otherwise. A session whose record cannot be read is skipped,
/// since its lease is unknown.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
/// # use agent_core::{MemoryStore, SessionStoreExt, WorkspaceId};
/// # use agent_core::clock::Effects;
/// # use agent_core::session::NewSession;
/// # use agent_core::event::NewEvent;
/// use std::time::Duration;
/// use agent_core::commit::{LeaseRequest, Trigger};
/// use agent_core::store::check_no_live_run;
///
/// # let (store, effects) = (MemoryStore::new(), Effects::default());
/// # let new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
/// # let session = SessionStoreExt::create(&store, &effects, new).await?;
/// # let events = vec![NewEvent::user_message("Hello")];
/// # let session = store.append(&effects, session.id, session.head, events).await?.session;
/// let lease = LeaseRequest::new("laptop", effects.new_run_id()).with_ttl(Duration::from_millis(80));
/// store.trigger(&effects, session.id, Trigger::BeginRun(lease)).await?;
///
/// // The holder sends no heartbeat for one ttl, so the run is not live.
/// check_no_live_run(&store).await?;
/// # Ok(()) }
/// ```
pub async fn check_no_live_run(store: &dyn SessionStore) -> Result<()> {
    let mut watched = leased(store).await?;
    if let Some((session, _)) = watched.iter().find(|(session, _)| ttl(session) > MOST) {
        return Err(busy(session));
    }
    let begun = Instant::now();
    // Each session is checked once after its ttl.
    while let Some(longest) = watched.iter().map(|(session, _)| ttl(session)).max() {
        let is_last = begun.elapsed() >= longest;
        let mut held = Vec::with_capacity(watched.len());
        for (seen, lease_status) in watched {
            let Some((now, then)) = look(store, &seen).await?.filter(|(_, then)| !then.holder_proven_dead)
            else {
                continue;
            };
            if (now.head, now.epoch) != (seen.head, seen.epoch) || then.heartbeat != lease_status.heartbeat {
                return Err(busy(&now));
            }
            held.push((seen, lease_status));
        }
        if is_last || held.is_empty() {
            return Ok(());
        }
        watched = held;
        let rest = longest.saturating_sub(begun.elapsed());
        sleep((longest / LOOKS).min(PAUSE_MAX).min(rest)).await;
    }
    Ok(())
}

/// Returns the sessions with a lease whose holder is not proven dead, each with its heartbeat.
async fn leased(store: &dyn SessionStore) -> Result<Vec<(Arc<Session>, LeaseStatus)>> {
    let states = SessionState::ALL.iter().copied().filter(|state| state.may_hold_lease());
    let query = SessionQuery::new().with_states(states).with_limit(PAGE_MAX);
    let mut pages = pages(query, |query| store.list(query));
    let mut found = Vec::new();
    while let Some(page) = pages.try_next().await? {
        for item in page.items {
            let session = match store.load(item.id).await {
                Err(error) if is_unreadable(&error) => continue,
                session => session?,
            };
            found.extend(
                look(store, &session).await?.filter(|(_, lease_status)| !lease_status.holder_proven_dead),
            );
        }
    }
    Ok(found)
}

/// Returns the current record of a session and the heartbeat of its holder; `None` if the session has no lease.
async fn look(store: &dyn SessionStore, seen: &Session) -> Result<Option<(Arc<Session>, LeaseStatus)>> {
    let found = async {
        let now = store.load(seen.id).await?;
        let Some(lease) = &now.lease else { return Ok(None) };
        let lease_status = store.lease_status(now.id, lease.epoch).await?;
        Ok(Some((now, lease_status)))
    };
    match found.await {
        Err(error) if is_unreadable(&error) => Ok(None),
        found => found,
    }
}

fn is_unreadable(error: &Error) -> bool {
    error.is_absent() || matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Unsupported)
}

fn ttl(session: &Session) -> Duration {
    Duration::from_millis(session.lease.as_ref().map_or(0, |lease| lease.ttl_ms))
}

fn busy(session: &Session) -> Error {
    let holder = session.lease.as_ref().map_or_else(String::new, |lease| lease.holder.clone());
    let text =
        format!("session {} is run by {holder}; end that run, then delete the tenant again", session.id);
    Error::new(ErrorKind::Busy { holder }, text)
}
