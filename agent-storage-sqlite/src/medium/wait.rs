//! Waits for other processes that write to the file. Replaces SQLite's own waiting; has jitter and a time limit.

use std::time::Duration;

use agent_core::clock::{Backoff, Effects};
use tokio::time::Instant;

/// Pauses between two attempts.
const PAUSES: Backoff = Backoff::new(Duration::from_micros(100), Duration::from_millis(8));

/// Wait with a time limit.
#[derive(Debug)]
pub(crate) struct Wait<'a> {
    until: Instant,
    /// Number of pauses so far.
    pauses: u32,
    effects: &'a Effects,
}

impl<'a> Wait<'a> {
    /// Returns a wait that ends `patience` from now.
    pub(crate) fn new(patience: Duration, effects: &'a Effects) -> Self {
        Self::until(Instant::now() + patience, effects)
    }

    /// Returns a wait that ends at `until`.
    pub(crate) const fn until(until: Instant, effects: &'a Effects) -> Self {
        Self { until, pauses: 0, effects }
    }

    /// Pauses this thread, a little longer each time; returns `false` if the time limit has passed.
    ///
    /// Only for threads of this crate, which may block.
    pub(crate) fn pause(&mut self) -> bool {
        if Instant::now() >= self.until {
            return false;
        }
        let end = Instant::now() + PAUSES.pause(self.pauses, self.effects);
        // A pause may end early if an earlier wake-up was left over.
        while let Some(left) = end.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
            std::thread::park_timeout(left);
        }
        self.pauses += 1;
        true
    }
}
