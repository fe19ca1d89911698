//! Times at which this process recorded the use of each workspace.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use agent_core::{Timestamp, WorkspaceId};

/// Time in which a use is recorded once, in a store whose lists do not lag for longer. Nothing is decided by the last access to
/// a workspace that needs it to be more exact, and a prompt would wait for it otherwise.
const RECORDED_ONCE_IN: Duration = Duration::from_secs(60);

/// Times at which the uses of workspaces were recorded.
#[derive(Debug, Default)]
pub(crate) struct Touches(Mutex<Recorded>);

#[derive(Debug, Default)]
struct Recorded {
    at: HashMap<WorkspaceId, Timestamp>,
    /// Number of times that a workspace was looked at to forget it.
    #[cfg(test)]
    looked_at: usize,
}

impl Recorded {
    /// Before the table grows, forgets those that are not recent any more. So many recent ones are not looked at each time.
    fn make_room(&mut self, is_recent: impl Fn(Timestamp) -> bool) {
        if self.at.len() < self.at.capacity() {
            return;
        }
        #[cfg(test)]
        {
            self.looked_at += self.at.len();
        }
        self.at.retain(|_, at| is_recent(*at));
        let left = self.at.len();
        self.at.reserve(left.max(16));
    }
}

impl Touches {
    fn recorded(&self) -> MutexGuard<'_, Recorded> {
        // Each change is a single call, so a panic leaves no partial change.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether a use at `now` is to be recorded, if lists may lag by `lag`; then it counts as recorded.
    pub(crate) fn begin(&self, id: WorkspaceId, now: Timestamp, lag: Duration) -> bool {
        let lag = lag.max(RECORDED_ONCE_IN);
        // A clock that was set back records again.
        let is_recent = |at: Timestamp| at <= now && now.as_micros().abs_diff(at.as_micros()) < micros(lag);
        let mut recorded = self.recorded();
        if recorded.at.get(&id).is_some_and(|at| is_recent(*at)) {
            return false;
        }
        recorded.make_room(is_recent);
        recorded.at.insert(id, now);
        true
    }

    /// Forgets a use that could not be recorded.
    pub(crate) fn failed(&self, id: WorkspaceId) {
        self.recorded().at.remove(&id);
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent_core::clock::Effects;

    /// What is recorded of many workspaces is looked at a few times each, and forgotten when it is old.
    #[test]
    fn uses_of_many_workspaces_are_not_searched_each_time() {
        let (touches, effects) = (Touches::default(), Effects::default());
        let touch = |minute: i64| {
            let now = Timestamp::UNIX_EPOCH.plus_micros(minute * 60_000_000);
            assert!(touches.begin(effects.new_workspace_id(), now, Duration::ZERO));
        };
        (0..10_000).for_each(|_| touch(1));
        let looked_at = touches.recorded().looked_at;
        assert!(looked_at < 3 * 10_000, "{looked_at}");
        assert_eq!(touches.recorded().at.len(), 10_000);
        (0..100_000).for_each(|n| touch(2 + n / 1_000));
        let known = touches.recorded().at.len();
        assert!(known < 30_000, "{known}");
    }

    #[test]
    fn a_use_is_recorded_once_a_minute_or_as_often_as_lists_are_renewed() {
        let (touches, quarter) = (Touches::default(), Duration::from_secs(900));
        let at = |seconds: i64| Timestamp::UNIX_EPOCH.plus_micros(seconds * 1_000_000);
        let id = WorkspaceId::DEFAULT;
        assert!(touches.begin(id, at(1000), Duration::ZERO));
        assert!(!touches.begin(id, at(1059), Duration::ZERO));
        assert!(touches.begin(id, at(1060), Duration::ZERO));
        assert!(!touches.begin(id, at(1900), quarter));
        assert!(touches.begin(id, at(1960), quarter));
        // A use that was not recorded, and a clock that was set back.
        touches.failed(id);
        assert!(touches.begin(id, at(1961), Duration::ZERO));
        assert!(touches.begin(id, at(5), Duration::ZERO));
    }
}
