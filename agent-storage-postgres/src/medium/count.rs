//! Number of the store's connections, for those who wait for one since the server gives no more.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;

/// Number of connections that there are, in use or not.
#[derive(Debug, Default)]
pub(crate) struct Count {
    connections: AtomicUsize,
    /// Wakes those who wait for a connection.
    pub(crate) changed: Notify,
}

impl Count {
    pub(crate) fn is_none(&self) -> bool {
        self.connections.load(Ordering::SeqCst) == 0
    }
}

/// Counts a connection as long as there is one.
#[derive(Debug)]
pub(crate) struct Counted(Arc<Count>);

impl Counted {
    pub(crate) fn new(count: &Arc<Count>) -> Self {
        count.connections.fetch_add(1, Ordering::SeqCst);
        Self(count.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        // The server has room for another one; without any there is nothing to wait for.
        if self.0.connections.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.0.changed.notify_waiters();
        } else {
            self.0.changed.notify_one();
        }
    }
}
