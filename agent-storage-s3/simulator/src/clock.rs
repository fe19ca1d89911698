//! The wall clock of one machine in a simulation.

use std::time::Duration;

use agent_core::Timestamp;
use agent_core::clock::Clock;
use tokio::time::Instant;

/// A clock that goes with tokio's time, and is wrong by a fixed amount: machines do not agree on the time.
///
/// Make it inside of the runtime whose time it tells.
#[derive(Clone, Debug)]
pub struct SimulatedClock {
    made: Instant,
    start: Timestamp,
}

impl SimulatedClock {
    /// A clock that shows `start` now.
    pub fn new(start: Timestamp) -> Self {
        Self { made: Instant::now(), start }
    }

    /// Returns this clock, ahead by `skew`.
    #[must_use]
    pub fn ahead(mut self, skew: Duration) -> Self {
        self.start = self.start.plus_micros(micros(skew));
        self
    }

    /// Returns this clock, behind by `skew`.
    #[must_use]
    pub fn behind(mut self, skew: Duration) -> Self {
        self.start = self.start.plus_micros(-micros(skew));
        self
    }
}

impl Clock for SimulatedClock {
    fn now(&self) -> Timestamp {
        self.start.plus_micros(micros(self.made.elapsed()))
    }
}

fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}
