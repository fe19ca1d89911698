//! Search for runs with a live holder, by watching heartbeats and never by comparing clocks.

use std::sync::Arc;
use std::time::Duration;

use futures::TryStreamExt;
use tokio::time::sleep;

use crate::base::{Error, ErrorKind, Result, SessionState};
use crate::session::SessionRecord;
use crate::store::lease_watch::{HolderState, LeaseWatch};
use crate::store::page::{PAGE_MAX, pages};
use crate::store::session::{SessionQuery, SessionStore};

/// Maximum time for which leases are watched. A lease with a longer ttl counts as held.
const MOST: Duration = Duration::from_secs(600);

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
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/setup.rs"));
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
/// use std::time::Duration;
/// use agent_core::commit::{LeaseRequest, Trigger};
/// use agent_core::store::check_no_live_run;
///
/// # let (store, effects, session) = greeted().await?;
/// let lease = LeaseRequest::new("laptop", effects.new_run_id()).with_ttl(Duration::from_millis(80));
/// store.trigger(session.id, Trigger::BeginRun(lease)).await?;
///
/// // The holder sends no heartbeat for one ttl, so the run is not live.
/// check_no_live_run(&*store).await?;
/// # Ok(()) }
/// ```
pub async fn check_no_live_run(store: &dyn SessionStore) -> Result<()> {
    let mut watched = leased(store).await?;
    if let Some((session, _)) = watched.iter().find(|(_, watch)| watch.ttl() > MOST) {
        return Err(busy(session));
    }
    while let Some(pause) = watched.iter().map(|(_, watch)| watch.pause()).max() {
        sleep(pause).await;
        let mut held = Vec::with_capacity(watched.len());
        for (session, mut watch) in watched {
            let Some(now) = read(store.load(session.id).await)? else { continue };
            match read(watch.check_with(store, &now).await)? {
                Some(HolderState::Silent) => held.push((session, watch)),
                // Names the holder of the record that was judged: another one may have begun since the first look.
                Some(HolderState::Alive | HolderState::Replaced) => return Err(busy(&now)),
                Some(HolderState::Gone | HolderState::Released) | None => {}
            }
        }
        watched = held;
    }
    Ok(())
}

/// Returns the sessions with a lease whose holder is not proven dead, each with a watch over it.
async fn leased(store: &dyn SessionStore) -> Result<Vec<(Arc<SessionRecord>, LeaseWatch)>> {
    let states = SessionState::ALL.iter().copied().filter(|state| state.may_hold_lease());
    let query = SessionQuery::new().with_states(states).with_limit(PAGE_MAX);
    let mut pages = pages(query, |query| store.list(query));
    let mut found = Vec::new();
    while let Some(page) = pages.try_next().await? {
        for item in page.items {
            let Some(session) = read(store.load(item.id).await)? else { continue };
            let watch = read(LeaseWatch::begin(store, &session).await)?.flatten();
            found.extend(watch.filter(|watch| !watch.is_proven_dead()).map(|watch| (session, watch)));
        }
    }
    Ok(found)
}

/// Returns `None` for a session that is absent or cannot be read.
fn read<T>(result: Result<T>) -> Result<Option<T>> {
    match result {
        Err(error)
            if error.is_absent() || matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Unsupported) =>
        {
            Ok(None)
        }
        result => result.map(Some),
    }
}

fn busy(session: &SessionRecord) -> Error {
    let holder = session.lease.as_ref().map_or_else(String::new, |lease| lease.holder.clone());
    let text =
        format!("session {} is run by {holder}; end that run, then delete the tenant again", session.id);
    Error::new(ErrorKind::Busy { holder }, text)
}
