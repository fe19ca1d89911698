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

#[cfg(test)]
mod tests {
    use agent_core::Error;

    use super::*;

    #[test]
    fn conflicts_are_tried_again_until_no_attempt_is_left() {
        let conflict = || Err::<(), _>(Error::new(ErrorKind::Conflict { head: None }, "another was faster"));
        let mut attempts = Attempts::at_most(2);
        assert!(attempts.outcome(conflict()).is_none(), "one attempt is left");
        let last = attempts.outcome(conflict()).expect("none is left");
        assert!(matches!(last.unwrap_err().kind(), ErrorKind::Conflict { .. }));
        let mut attempts = Attempts::at_most(2);
        let other = attempts.outcome(Err::<(), _>(Error::new(ErrorKind::Denied, "not yours")));
        assert_eq!(*other.expect("it is the result").unwrap_err().kind(), ErrorKind::Denied);
        assert!(matches!(Attempts::at_most(2).outcome(Ok(7)), Some(Ok(7))));
    }
}
