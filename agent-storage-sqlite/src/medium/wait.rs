//! Waits for other processes that write to the file. Replaces SQLite's own waiting; has jitter and a time limit.

use std::time::Duration;

use agent_core::clock::Effects;
use tokio::time::Instant;

/// First and longest pause between two attempts.
const PAUSE: Duration = Duration::from_micros(100);
const PAUSE_MAX: Duration = Duration::from_millis(8);

/// Wait with a time limit.
#[derive(Debug)]
pub(crate) struct Wait<'a> {
    until: Instant,
    pause: Duration,
    effects: &'a Effects,
}

impl<'a> Wait<'a> {
    /// Returns a wait that ends `patience` from now.
    pub(crate) fn new(patience: Duration, effects: &'a Effects) -> Self {
        Self::until(Instant::now() + patience, effects)
    }

    /// Returns a wait that ends at `until`.
    pub(crate) const fn until(until: Instant, effects: &'a Effects) -> Self {
        Self { until, pause: PAUSE, effects }
    }

    /// Pauses this thread, a little longer each time; returns `false` if the time limit has passed.
    ///
    /// Only for threads of this crate, which may block.
    pub(crate) fn pause(&mut self) -> bool {
        if Instant::now() >= self.until {
            return false;
        }
        // Jitter, so that waiting callers do not all try at once.
        let half = u64::try_from(self.pause.as_micros() / 2).unwrap_or(u64::MAX).max(1);
        let pause = Duration::from_micros(half + self.effects.random_u64() % half);
        let end = Instant::now() + pause;
        // A pause may end early if an earlier wake-up was left over.
        while let Some(left) = end.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
            std::thread::park_timeout(left);
        }
        self.pause = (self.pause * 2).min(PAUSE_MAX);
        true
    }
}
