//! How a scheduler looks after sessions, and what came of it.

use std::time::Duration;

use tokio::sync::Semaphore;

use agent_core::store::PAGE_MAX;

/// How a [`Scheduler`](crate::runtime::scheduler::Scheduler) looks after sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SchedulerConfig {
    /// The time between two looks; 5 seconds unless set. What is due waits for the next look.
    pub every: Duration,
    /// How many sessions it runs at once; 8 unless set.
    pub parallel: usize,
    /// How many sessions of one tenant it runs at once, if it looks after several tenants; half of
    /// [`parallel`](field@Self::parallel), at least one, unless set. With as many as `parallel`, or a `parallel` of 1, one
    /// tenant can keep the others waiting.
    pub per_tenant: Option<usize>,
    /// How many sessions it asks the store for at a time; 100 unless set.
    pub page: usize,
}

impl Default for SchedulerConfig {
    fn default() -> Self {
        Self { every: Duration::from_secs(5), parallel: 8, per_tenant: None, page: 100 }
    }
}

impl SchedulerConfig {
    /// The defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the time between two looks.
    #[must_use]
    pub const fn every(mut self, time: Duration) -> Self {
        self.every = time;
        self
    }

    /// Sets how many sessions it runs at once; at least one.
    #[must_use]
    pub fn parallel(mut self, runs: usize) -> Self {
        self.parallel = runs.clamp(1, Semaphore::MAX_PERMITS);
        self
    }

    /// Sets how many sessions of one tenant it runs at once; at least one.
    #[must_use]
    pub fn per_tenant(mut self, runs: usize) -> Self {
        self.per_tenant = Some(runs.clamp(1, Semaphore::MAX_PERMITS));
        self
    }

    /// Sets how many sessions it asks the store for at a time, 1 to 1,000.
    #[must_use]
    pub fn page(mut self, sessions: usize) -> Self {
        self.page = sessions.clamp(1, PAGE_MAX);
        self
    }
}

/// What a look came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Round {
    /// How many runs were started, and ended.
    pub ran: u64,
    /// How many parents were told what a child of theirs has come to.
    pub reported: u64,
    /// How many sessions needed none when they were come to: somebody else was quicker, or it is backed off.
    pub skipped: u64,
    /// How many could not be looked after; each is logged.
    pub failed: u64,
}

/// What came of one session.
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
