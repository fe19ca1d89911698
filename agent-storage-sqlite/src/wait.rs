//! Waiting for other processes that write to the file: ours rather than SQLite's, with jitter, up to a stated time.

use std::time::Duration;

use agent_core::clock::Effects;
use tokio::time::Instant;

/// The first and the longest pause between two attempts.
const PAUSE: Duration = Duration::from_micros(100);
const PAUSE_MAX: Duration = Duration::from_millis(8);

/// A patience that ends.
#[derive(Debug)]
pub(crate) struct Wait<'a> {
    until: Instant,
    pause: Duration,
    effects: &'a Effects,
}

impl<'a> Wait<'a> {
    /// Waits for `patience` at most, from now on.
    pub(crate) fn new(patience: Duration, effects: &'a Effects) -> Self {
        Self::until(Instant::now() + patience, effects)
    }

    /// Waits until then at most.
    pub(crate) const fn until(until: Instant, effects: &'a Effects) -> Self {
        Self { until, pause: PAUSE, effects }
    }

    /// Pauses this thread, a little longer each time; `false` where the patience is at its end.
    ///
    /// Only for threads of this crate's own, which may block.
    pub(crate) fn pause(&mut self) -> bool {
        if Instant::now() >= self.until {
            return false;
        }
        // Jitter, so that those who wait do not all come at once.
        let half = u64::try_from(self.pause.as_micros() / 2).unwrap_or(u64::MAX).max(1);
        let pause = Duration::from_micros(half + self.effects.random_u64() % half);
        let end = Instant::now() + pause;
        // A pause may end early, where an earlier wake-up was left over.
        while let Some(left) = end.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
            std::thread::park_timeout(left);
        }
        self.pause = (self.pause * 2).min(PAUSE_MAX);
        true
    }
}
