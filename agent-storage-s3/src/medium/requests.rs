//! Numbers of requests, by their kind.

use std::sync::atomic::{AtomicU64, Ordering};

/// Numbers of requests that a store has sent, by their kind. For tests and for estimating costs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Requests {
    /// Number of GET requests, for whole objects or parts.
    pub get: u64,
    /// Number of PUT requests, with or without a condition, and of those that begin and complete an upload in parts.
    pub put: u64,
    /// Number of LIST requests.
    pub list: u64,
    /// Number of DELETE requests.
    pub delete: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) get: AtomicU64,
    pub(crate) put: AtomicU64,
    pub(crate) list: AtomicU64,
    pub(crate) delete: AtomicU64,
}

impl Counters {
    pub(crate) fn read(&self) -> Requests {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Requests {
            get: count(&self.get),
            put: count(&self.put),
            list: count(&self.list),
            delete: count(&self.delete),
        }
    }
}
