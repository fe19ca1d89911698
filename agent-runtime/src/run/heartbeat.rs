//! Heartbeat that keeps the lease of a run alive.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval};
use tracing::warn;

use agent_core::isolated::isolated;
use agent_core::{Epoch, SessionId, SessionStore};

/// Heartbeat of a lease in its own task, for as long as this value exists. No model or tool can starve it.
#[derive(Debug)]
pub(crate) struct HeartbeatTask(JoinHandle<()>);

impl HeartbeatTask {
    pub(crate) fn beat(sessions: Arc<dyn SessionStore>, id: SessionId, epoch: Epoch, ttl: Duration) -> Self {
        Self(tokio::spawn(async move {
            let mut ticks = interval(ttl / 3);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            ticks.tick().await;
            loop {
                ticks.tick().await;
                match isolated(|| sessions.leases().heartbeat(id, epoch)).await {
                    Some(Ok(())) => {}
                    Some(Err(error)) => {
                        warn!(session = %id, %epoch, %error, "a heartbeat could not be sent");
                    }
                    None => warn!(session = %id, %epoch, "the store panicked; a heartbeat was not sent"),
                }
            }
        }))
    }
}

impl Drop for HeartbeatTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}
