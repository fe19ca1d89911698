//! Writes that other writers may overtake: attempted again with what is stored then.

use agent_core::{ErrorKind, Result};

/// Attempts that are left for a write.
pub(crate) struct Attempts(usize);

impl Attempts {
    /// Allows this many attempts, at least one.
    pub(crate) const fn at_most(count: usize) -> Self {
        Self(count)
    }

    /// Counts an attempt, and returns its result; `None` if it ended with `Conflict` and another one is left.
    pub(crate) fn outcome<T>(&mut self, written: Result<T>) -> Option<Result<T>> {
        self.0 = self.0.saturating_sub(1);
        let is_again = |kind: &ErrorKind| matches!(kind, ErrorKind::Conflict { .. }) && self.0 > 0;
        match written {
            Err(error) if is_again(error.kind()) => None,
            written => Some(written),
        }
    }
}
