//! When this process has recorded the use of each workspace.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use agent_core::{Timestamp, WorkspaceId};

/// Number of workspaces above which those that were recorded long ago are forgotten.
const MANY: usize = 1024;

/// Times at which the uses of workspaces were recorded. A store whose lists may lag is told of a use once in that time,
/// since each time costs it requests.
#[derive(Debug, Default)]
pub(crate) struct Touches(Mutex<HashMap<WorkspaceId, Timestamp>>);

impl Touches {
    fn recorded(&self) -> MutexGuard<'_, HashMap<WorkspaceId, Timestamp>> {
        // Each change is a single call, so a panic leaves no partial change.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether a use at `now` is to be recorded, if lists may lag by `lag`; then it counts as recorded.
    pub(crate) fn begin(&self, id: WorkspaceId, now: Timestamp, lag: Duration) -> bool {
        if lag.is_zero() {
            return true;
        }
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
