//! Requests of a server that wait for their answers. The protocol crate keeps each answer until it is sent, so a server
//! that asks without end and reads nothing would fill the memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Maximum number of requests that wait for their answers.
const REQUESTS_MAX: usize = 1000;

/// Number of requests of a server that wait for their answers. Clones count the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct Backlog(Arc<AtomicUsize>);

impl Backlog {
    /// Counts a request. Returns false if too many wait.
    pub(crate) fn add(&self) -> bool {
        self.0.fetch_add(1, Ordering::Relaxed) < REQUESTS_MAX
    }

    /// Counts messages that were sent, a line each, of which some may be answers.
    pub(crate) fn written(&self, bytes: &[u8]) {
        self.sent(bytes.iter().filter(|byte| **byte == b'\n').count());
    }

    /// Counts messages that were sent, of which some may be answers.
    pub(crate) fn sent(&self, messages: usize) {
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |waiting| {
            Some(waiting.saturating_sub(messages))
        });
    }
}
