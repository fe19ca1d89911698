//! Liveness of builders, decided by watching heartbeats and never by comparing clocks.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::agents::stored::{Lease, Leases};

/// Leases of builders as they were last seen, by agent.
#[derive(Debug, Default)]
pub(super) struct Watch(Mutex<HashMap<String, Seen>>);

/// Leases of an agent's builds, each with the time at which it was first seen as it is.
type Seen = HashMap<u64, (Lease, Instant)>;

impl Watch {
    /// Observes the leases of an agent's builds. Returns the first build whose builder sent no heartbeat for one ttl.
    pub(super) fn expired(&self, agent: &str, leases: &Leases) -> Option<u64> {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if leases.is_empty() {
            seen.remove(agent);
            return None;
        }
        let (seen, now) = (seen.entry(agent.to_owned()).or_default(), Instant::now());
        seen.retain(|number, (lease, _)| leases.get(number) == Some(lease));
        let mut leases = leases.iter();
        for (number, lease) in leases.clone() {
            seen.entry(*number).or_insert((*lease, now));
        }
        let is_expired = |(lease, since): &(Lease, Instant)| {
            now.duration_since(*since) >= Duration::from_millis(lease.ttl_ms)
        };
        leases.find(|(number, _)| seen.get(*number).is_some_and(is_expired)).map(|(number, _)| *number)
    }
}
