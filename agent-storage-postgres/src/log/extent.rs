//! Range of a session's own log, in which no event may be missing.

use agent_core::event::Event;
use agent_core::store::ReadEvents;
use agent_core::{Error, Seq};

use crate::medium::rows::seq;

/// First and last number that there should be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extent {
    first: Seq,
    last: Seq,
}

impl Extent {
    pub(crate) fn new(head: i64, base: i64, kept: Option<i64>) -> Self {
        let (head, base) = (seq(head), seq(base));
        let last = kept.map_or(head, |kept| seq(kept).min(head));
        Self { first: base.next(), last }
    }

    /// Error for a missing event before `next`, or before the end if there is no `next`.
    pub(crate) fn gap(
        self,
        read: &ReadEvents,
        so_far: &[Event],
        next: Option<Seq>,
        session: &str,
    ) -> Option<Error> {
        if !read.kinds.is_empty() {
            return None;
        }
        let first = read.after.next().max(self.first);
        let last = match read.before {
            Some(before) => Seq::new(before.get().saturating_sub(1)).min(self.last),
            None => self.last,
        };
        let before = |seq: Seq| seq.get().saturating_sub(1);
        let (due, end) = if read.newest {
            (so_far.last().map_or(last.get(), |event| before(event.seq)), before(first))
        } else {
            (so_far.last().map_or(first, |event| event.seq.next()).get(), last.next().get())
        };
        let is_there = match next {
            Some(next) => next.get() == due,
            None if read.newest => due <= end,
            None => due >= end,
        };
        (!is_there).then(|| {
            Error::corrupt(format!("event {due} of session {session} is missing; restore it from a backup"))
        })
    }
}
