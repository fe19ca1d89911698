//! Trait that a backend implements for the leases of runs, and its answer.

use std::fmt::Debug;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::base::{Epoch, Result, SessionId};

/// Heartbeats of the runs that hold leases, handed out by [`SessionStore::leases`](crate::SessionStore::leases).
///
/// A lease is taken, renewed and given up by commits. While its holder has nothing to commit, heartbeats show others
/// that it lives. Errors and cancel safety are those of [`SessionStore`](crate::SessionStore#errors).
#[async_trait]
pub trait LeaseStore: Debug + Send + Sync + 'static {
    /// Sends a heartbeat of the run that holds the lease `epoch`, while the run has nothing to commit.
    ///
    /// A heartbeat is advisory: it is not an event, is not durable, and has no effect if another run holds the lease
    /// by now.
    ///
    /// # Errors
    ///
    /// `NotFound` if there was never such a session.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/setup.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// use agent_core::SessionStore;
    ///
    /// # let (store, session, begun) = running().await?;
    /// let epoch = begun.epoch.unwrap();
    /// let before = store.leases().status(session.id, epoch).await?;
    /// store.leases().heartbeat(session.id, epoch).await?;
    /// assert_ne!(store.leases().status(session.id, epoch).await?.heartbeat, before.heartbeat);
    /// # Ok(()) }
    /// ```
    async fn heartbeat(&self, id: SessionId, epoch: Epoch) -> Result<()>;

    /// Returns the heartbeat of the holder of the lease `epoch`, without sending one.
    ///
    /// # Errors
    ///
    /// `NotFound` if there was never such a session.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/setup.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// use agent_core::SessionStore;
    ///
    /// # let (store, session, begun) = running().await?;
    /// let status = store.leases().status(session.id, begun.epoch.unwrap()).await?;
    /// assert!(!status.holder_proven_dead);
    /// # Ok(()) }
    /// ```
    async fn status(&self, id: SessionId, epoch: Epoch) -> Result<LeaseStatus>;
}

/// Heartbeat of a lease holder. If it does not change for one ttl on the observer's own clock, the lease has expired.
///
/// ```
/// use agent_core::store::LeaseStatus;
///
/// let (before, now) = (LeaseStatus::new(4, false), LeaseStatus::new(5, false));
/// assert_ne!(before, now, "the holder is alive");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
#[doc(alias = "Pulse")]
pub struct LeaseStatus {
    /// Counter that changes with every heartbeat.
    pub heartbeat: u64,
    /// True if the holder is proven dead, so that no wait is needed. False if the store cannot prove it.
    pub holder_proven_dead: bool,
}

impl LeaseStatus {
    /// Creates a status.
    pub const fn new(heartbeat: u64, holder_proven_dead: bool) -> Self {
        Self { heartbeat, holder_proven_dead }
    }
}
