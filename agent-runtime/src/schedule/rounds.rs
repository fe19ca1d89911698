//! Configuration of a scheduler, and the result of one round.

use std::time::Duration;

use tokio::sync::Semaphore;

use agent_core::setters;
use agent_core::store::PAGE_MAX;

/// Maximum time between two rounds.
const INTERVAL_MAX: Duration = Duration::from_secs(24 * 3600);

/// Configuration of a [`Scheduler`](crate::schedule::scheduler::Scheduler).
///
/// ```
/// use std::time::Duration;
/// use agent_runtime::SchedulerConfig;
///
/// let config = SchedulerConfig::new()
///     .with_interval(Duration::from_secs(1))
///     .with_max_runs(32)
///     .with_max_runs_per_tenant(4)
///     .with_page_size(500);
/// assert_eq!((config.max_runs, config.max_runs_per_tenant), (32, Some(4)));
///
/// let default = SchedulerConfig::new();
/// assert_eq!((default.interval, default.max_runs), (Duration::from_secs(5), 8));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SchedulerConfig {
    /// Time between two rounds, 1 ms to 24 hours; default 5 seconds. Due work waits for the next round.
    pub interval: Duration,
    /// Maximum number of sessions that run at once; default 8.
    pub max_runs: usize,
    /// Maximum number of sessions of one tenant that run at once, if the scheduler serves several tenants. The default
    /// is half of [`max_runs`](field@Self::max_runs), at least one. If it equals `max_runs`, or if `max_runs` is 1, one
    /// tenant can keep the others waiting.
    pub max_runs_per_tenant: Option<usize>,
    /// Number of sessions in one page of a store's list; default 100.
    pub page_size: usize,
}

impl Default for SchedulerConfig {
    fn default() -> Self {
        Self { interval: Duration::from_secs(5), max_runs: 8, max_runs_per_tenant: None, page_size: 100 }
    }
}

impl SchedulerConfig {
    /// Creates the default configuration; each field states its default.
    pub fn new() -> Self {
        Self::default()
    }

    setters! {
        /// Sets the time between two rounds, 1 ms to 24 hours; the default is 5 seconds.
        #[doc(alias = "every")]
        pub const fn with_interval(time: Duration) => interval = time;

        /// Sets the maximum number of sessions that run at once, at least one; the default is 8.
        #[doc(alias = "parallel")]
        pub fn with_max_runs(runs: usize) => max_runs = runs.clamp(1, Semaphore::MAX_PERMITS);
    }

    setters! {
        /// Sets the maximum number of sessions of one tenant that run at once, at least one; the default is half of
        /// [`max_runs`](field@Self::max_runs).
        pub fn with_max_runs_per_tenant(runs: usize) =>
            max_runs_per_tenant = Some(runs.clamp(1, Semaphore::MAX_PERMITS));

        /// Sets the number of sessions in one page of a store's list, 1 to 1,000; the default is 100.
        pub fn with_page_size(sessions: usize) => page_size = sessions.clamp(1, PAGE_MAX);
    }

    /// Returns the configuration with each value in its range, because a host may set the fields directly.
    pub(super) fn in_range(mut self) -> Self {
        self.interval = self.interval.clamp(Duration::from_millis(1), INTERVAL_MAX);
        self.max_runs = self.max_runs.clamp(1, Semaphore::MAX_PERMITS);
        self.max_runs_per_tenant = self.max_runs_per_tenant.map(|runs| runs.clamp(1, Semaphore::MAX_PERMITS));
        self.page_size = self.page_size.clamp(1, PAGE_MAX);
        self
    }
}

/// Result of one scheduler round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Round {
    /// Number of runs that were started and have ended.
    pub ran: u64,
    /// Number of children whose outcome was reported to their parent.
    pub reported: u64,
    /// Number of sessions that needed no run any more: another process was faster, or the session may run only later.
    pub skipped: u64,
    /// Number of sessions that failed to be processed; each failure is logged.
    pub failed: u64,
}

/// Result for one session.
pub(super) enum Done {
    Ran,
    Reported,
    Skipped,
    Failed,
}

impl Round {
    pub(super) fn add(&mut self, other: Self) {
        self.ran += other.ran;
        self.reported += other.reported;
        self.skipped += other.skipped;
        self.failed += other.failed;
    }

    pub(super) fn count(&mut self, done: &Done) {
        match done {
            Done::Ran => self.ran += 1,
            Done::Reported => self.reported += 1,
            Done::Skipped => self.skipped += 1,
            Done::Failed => self.failed += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fields that a host sets to values out of range neither panic nor stop the scheduler.
    #[test]
    fn values_out_of_range_are_clamped() {
        let set = |number: usize| SchedulerConfig {
            interval: Duration::from_secs(number as u64),
            max_runs: number,
            max_runs_per_tenant: Some(number),
            page_size: number,
            ..SchedulerConfig::new()
        };
        let config = |number: usize| {
            let config = set(number).in_range();
            (config.max_runs, config.max_runs_per_tenant, config.page_size, config.interval)
        };
        let seconds = Duration::from_secs;
        assert_eq!(config(0), (1, Some(1), 1, Duration::from_millis(1)));
        let most = Semaphore::MAX_PERMITS;
        assert_eq!(config(usize::MAX), (most, Some(most), PAGE_MAX, seconds(86_400)));
        assert_eq!(config(7), (7, Some(7), 7, seconds(7)));
    }
}
