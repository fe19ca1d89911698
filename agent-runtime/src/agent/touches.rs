//! Times at which this process recorded the use of each workspace.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use agent_core::{Timestamp, WorkspaceId};

/// Number of workspaces above which those that were recorded long ago are forgotten.
const MANY: usize = 1024;

/// Time in which a use is recorded once, in a store whose lists do not lag for longer. Nothing is decided by the last access to
/// a workspace that needs it to be more exact, and a prompt would wait for it otherwise.
const RECORDED_ONCE_IN: Duration = Duration::from_secs(60);

/// Times at which the uses of workspaces were recorded.
#[derive(Debug, Default)]
pub(crate) struct Touches(Mutex<HashMap<WorkspaceId, Timestamp>>);

impl Touches {
    fn recorded(&self) -> MutexGuard<'_, HashMap<WorkspaceId, Timestamp>> {
        // Each change is a single call, so a panic leaves no partial change.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether a use at `now` is to be recorded, if lists may lag by `lag`; then it counts as recorded.
    pub(crate) fn begin(&self, id: WorkspaceId, now: Timestamp, lag: Duration) -> bool {
        let lag = lag.max(RECORDED_ONCE_IN);
        // A clock that was set back records again.
        let is_recent = |at: Timestamp| at <= now && now.as_micros().abs_diff(at.as_micros()) < micros(lag);
        let mut recorded = self.recorded();
        if recorded.get(&id).is_some_and(|at| is_recent(*at)) {
            return false;
        }
        if recorded.len() >= MANY {
            recorded.retain(|_, at| is_recent(*at));
        }
        recorded.insert(id, now);
        true
    }

    /// Forgets a use that could not be recorded.
    pub(crate) fn failed(&self, id: WorkspaceId) {
        self.recorded().remove(&id);
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

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
