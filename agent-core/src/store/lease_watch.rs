//! Liveness of a lease holder, decided by watching heartbeats and never by comparing clocks.

use std::time::Duration;

use tokio::time::Instant;

use crate::base::{Epoch, Result, Seq, SessionId};
use crate::session::SessionRecord;
use crate::store::lease::LeaseStatus;
use crate::store::session::SessionStore;

/// State of a lease holder, as a [`LeaseWatch`] finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HolderState {
    /// The holder is proven dead, or sent no heartbeat for one ttl: its lease may be taken.
    Gone,
    /// The holder has sent no heartbeat since the last change, for less than one ttl.
    Silent,
    /// The holder sent a heartbeat, or the session's head moved. The watch begins again.
    Alive,
    /// Another lease has begun in the session.
    Replaced,
    /// The session has no lease.
    Released,
}

/// Watch over the holder of one lease, on the clock of this process.
///
/// A watch does nothing by itself: its owner checks it after each [`pause`](Self::pause).
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/setup.rs"));
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
/// use std::time::Duration;
/// use agent_core::commit::{LeaseRequest, Trigger};
/// use agent_core::store::{HolderState, LeaseWatch};
///
/// # let (store, effects, session) = greeted().await?;
/// let lease = LeaseRequest::new("laptop", effects.new_run_id()).with_ttl(Duration::from_millis(80));
/// let session = store.trigger(session.id, Trigger::BeginRun(lease)).await?.session;
///
/// let mut watch = LeaseWatch::begin(&*store, &session).await?.expect("the session has a lease");
/// assert_eq!(watch.check(&*store).await?, HolderState::Silent);
/// store.leases().heartbeat(session.id, watch.epoch()).await?;
/// assert_eq!(watch.check(&*store).await?, HolderState::Alive);
/// tokio::time::sleep(watch.ttl()).await;
/// assert_eq!(watch.check(&*store).await?, HolderState::Gone);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct LeaseWatch {
    session: SessionId,
    epoch: Epoch,
    ttl: Duration,
    head: Seq,
    status: LeaseStatus,
    since: Instant,
}

impl LeaseWatch {
    /// Begins to watch the holder of a session's lease; `None` if the record has no lease. Reads its heartbeat.
    ///
    /// # Errors
    ///
    /// Errors of [`LeaseStore::status`](crate::store::LeaseStore::status).
    pub async fn begin(store: &dyn SessionStore, seen: &SessionRecord) -> Result<Option<Self>> {
        let Some(lease) = &seen.lease else { return Ok(None) };
        let (epoch, ttl) = (lease.epoch, Duration::from_millis(lease.ttl_ms));
        let status = store.leases().status(seen.id, epoch).await?;
        let since = Instant::now();
        Ok(Some(Self { session: seen.id, epoch, ttl, head: seen.head, status, since }))
    }

    /// Returns the session.
    pub const fn session(&self) -> SessionId {
        self.session
    }

    /// Returns the epoch of the lease.
    pub const fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Returns the time to live of the lease.
    pub const fn ttl(&self) -> Duration {
        self.ttl
    }

    /// Returns the head of the session when it was last checked.
    pub const fn head(&self) -> Seq {
        self.head
    }

    /// Returns whether the store proved at the last check that the holder is dead.
    pub const fn is_proven_dead(&self) -> bool {
        self.status.holder_proven_dead
    }

    /// Returns the time to wait before the next check: a sixteenth of the ttl, from a millisecond to a second, and no
    /// longer than until the lease expires. Zero if the holder is proven dead, which the next check confirms with the
    /// record.
    pub fn pause(&self) -> Duration {
        if self.is_proven_dead() {
            return Duration::ZERO;
        }
        let part = (self.ttl / 16).clamp(Duration::from_millis(1), Duration::from_secs(1));
        part.min(self.ttl.saturating_sub(self.since.elapsed()))
    }

    /// Reads the session's record and heartbeat, and returns the state of the holder.
    ///
    /// # Errors
    ///
    /// Errors of [`SessionStore::load`] and [`LeaseStore::status`](crate::store::LeaseStore::status).
    pub async fn check(&mut self, store: &dyn SessionStore) -> Result<HolderState> {
        let now = store.load(self.session).await?;
        self.check_with(store, &now).await
    }

    /// Like [`check`](Self::check), with a record that was just read.
    ///
    /// # Errors
    ///
    /// Errors of [`LeaseStore::status`](crate::store::LeaseStore::status).
    pub async fn check_with(&mut self, store: &dyn SessionStore, now: &SessionRecord) -> Result<HolderState> {
        match &now.lease {
            None => return Ok(HolderState::Released),
            Some(lease) if lease.epoch != self.epoch => return Ok(HolderState::Replaced),
            Some(_) => {}
        }
        let status = store.leases().status(self.session, self.epoch).await?;
        let is_changed = (now.head, status.heartbeat) != (self.head, self.status.heartbeat);
        (self.head, self.status) = (now.head, status);
        if status.holder_proven_dead {
            return Ok(HolderState::Gone);
        }
        if is_changed {
            self.since = Instant::now();
            return Ok(HolderState::Alive);
        }
        Ok(if self.since.elapsed() >= self.ttl { HolderState::Gone } else { HolderState::Silent })
    }
}
