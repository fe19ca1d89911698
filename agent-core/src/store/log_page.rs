//! For backends: a page of a log whose events are in rows, in which none may be missing.

use crate::base::{Error, Result, Seq, SessionId};
use crate::event::Event;
use crate::store::page::{Damaged, PAGE_MAX};
use crate::store::read::{EventPage, ReadEvents};

/// For backends: page of a session's own log, made of its rows. A missing event is found by its number, unless the page has
/// some types only.
///
/// ```
/// use agent_core::store::{LogPage, ReadEvents};
/// use agent_core::{Seq, SessionId};
///
/// let (read, id) = (ReadEvents::first(50), SessionId::from_uuid(Default::default()));
/// // The log should have the events 1 to 3, and no row was found.
/// let error = LogPage::new(id, &read, Seq::ZERO, Seq::new(3)).finish().unwrap_err();
/// assert!(error.to_string().starts_with("event 1 of session "));
/// ```
#[derive(Debug)]
pub struct LogPage<'r> {
    session: SessionId,
    read: &'r ReadEvents,
    /// First and last number that there should be.
    first: Seq,
    last: Seq,
    events: Vec<Event>,
    bytes: usize,
    is_full: bool,
    /// Error in the row after the events.
    bad: Option<Error>,
}

impl<'r> LogPage<'r> {
    /// Begins a page of a log, which should have the events after `base` up to `last`.
    pub const fn new(session: SessionId, read: &'r ReadEvents, base: Seq, last: Seq) -> Self {
        let first = base.next();
        Self { session, read, first, last, events: Vec::new(), bytes: 0, is_full: false, bad: None }
    }

    /// Adds the event of the next row in the direction of the read, or the error in it. Returns whether the page takes
    /// another one: it is full with one more than it shows, or ends at an error.
    pub fn push(&mut self, event: Result<Event>) -> bool {
        match event.and_then(|event| self.gap(Some(event.seq)).map_or(Ok(event), Err)) {
            Ok(event) => {
                self.bytes += event.size_bytes();
                self.is_full = self.events.len() >= self.read.limit.min(PAGE_MAX)
                    || (!self.events.is_empty() && self.bytes > self.read.max_bytes);
                self.events.push(event);
            }
            Err(error) => self.bad = Some(error),
        }
        !self.is_full && self.bad.is_none()
    }

    /// Returns the page. An error after its last event is damage of the page.
    ///
    /// # Errors
    ///
    /// The error in the first row; `Corrupt` if its event is missing.
    pub fn finish(mut self) -> Result<EventPage> {
        if self.bad.is_none() && !self.is_full {
            self.bad = self.gap(None);
        }
        let Self { session, read, mut events, is_full, bad, .. } = self;
        let mut page = EventPage::default();
        if let Some(bad) = bad {
            if events.is_empty() {
                return Err(bad);
            }
            page.damaged.push(Damaged::new(format!("session {session}"), bad.to_string()));
        }
        if is_full {
            events.pop();
            page.next = events.last().map(|last| read.clone().continued(last.seq));
        }
        if read.newest {
            events.reverse();
        }
        page.events = events;
        Ok(page)
    }

    /// Error for a missing event before `next`, or before the end if there is no `next`.
    fn gap(&self, next: Option<Seq>) -> Option<Error> {
        let read = self.read;
        if !read.kinds.is_empty() {
            return None;
        }
        let first = read.after.next().max(self.first);
        let last = match read.before {
            Some(before) => Seq::new(before.get().saturating_sub(1)).min(self.last),
            None => self.last,
        };
        let (so_far, before) = (self.events.last(), |seq: Seq| seq.get().saturating_sub(1));
        let (due, end) = if read.newest {
            (so_far.map_or(last.get(), |event| before(event.seq)), before(first))
        } else {
            (so_far.map_or(first, |event| event.seq.next()).get(), last.next().get())
        };
        let is_there = match next {
            Some(next) => next.get() == due,
            None if read.newest => due <= end,
            None => due >= end,
        };
        (!is_there).then(|| {
            let session = self.session;
            Error::corrupt(format!("event {due} of session {session} is missing; restore it from a backup"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::{ErrorKind, WorkspaceId};
    use crate::clock::Effects;
    use crate::commit::Commit;
    use crate::commit::plan::{plan, planner::Plan};
    use crate::event::NewEvent;
    use crate::session::NewSession;

    /// Log of ten events.
    fn log() -> (SessionId, Vec<Event>) {
        let effects = Effects::default();
        let new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
        let messages = (1..10).map(|n| NewEvent::user_message(format!("{n}")));
        let create = Commit::create(&effects, new).with_events(messages.collect::<Vec<_>>());
        let Plan::Write { events, .. } = plan(None, &create).unwrap() else { unreachable!() };
        assert_eq!(events.len(), 10);
        (create.session, events.to_vec())
    }

    /// Reads a log whose events are 1 to 10 without those that are `lost`.
    fn page((id, log): &(SessionId, Vec<Event>), read: &ReadEvents, lost: &[u64]) -> Result<EventPage> {
        let mut rows: Vec<_> =
            log.iter().filter(|event| read.matches(event) && !lost.contains(&event.seq.get())).collect();
        if read.newest {
            rows.reverse();
        }
        let mut page = LogPage::new(*id, read, Seq::ZERO, Seq::new(10));
        let mut rows = rows.into_iter();
        while rows.next().is_some_and(|event| page.push(Ok(event.clone()))) {}
        page.finish()
    }

    fn seqs(page: &EventPage) -> Vec<u64> {
        page.events.iter().map(|event| event.seq.get()).collect()
    }

    #[test]
    fn a_missing_event_is_found_in_both_directions() {
        let log = log();
        for lost in 1..=10 {
            for read in [ReadEvents::first(100), ReadEvents::last(100)] {
                let shown = if read.newest { 10 - lost } else { lost - 1 };
                let found = page(&log, &read, &[lost]);
                let text = format!("event {lost} of session {} is missing", log.0);
                if shown == 0 {
                    let error = found.unwrap_err();
                    assert_eq!(*error.kind(), ErrorKind::Corrupt);
                    assert!(error.to_string().starts_with(&text), "{error}");
                } else {
                    let found = found.unwrap();
                    assert_eq!((found.events.len() as u64, found.damaged.len()), (shown, 1));
                    assert!(found.damaged[0].to_string().contains(&text), "{:?}", found.damaged);
                }
            }
        }
        assert!(page(&log, &ReadEvents::first(100), &[]).unwrap().damaged.is_empty());
    }

    #[test]
    fn only_what_the_page_shows_must_be_there() {
        let log = log();
        let between = ReadEvents::first(100).with_after(Seq::new(2)).with_before(Seq::new(6));
        assert_eq!(seqs(&page(&log, &between, &[1, 2, 6, 9]).unwrap()), [3, 4, 5]);
        let newest = ReadEvents { newest: true, ..between };
        assert_eq!(page(&log, &newest, &[4]).unwrap().damaged.len(), 1);
        // The events of some types have other numbers between them.
        let kinds = ReadEvents::first(100).with_types([log.1[1].kind.clone()]);
        assert!(page(&log, &kinds, &[5]).unwrap().damaged.is_empty());
        // What is behind the page is the matter of the next one.
        let first = page(&log, &ReadEvents::first(3), &[5]).unwrap();
        assert_eq!((seqs(&first), first.damaged.len()), (vec![1, 2, 3], 0));
        let next = page(&log, &first.next.unwrap(), &[5]).unwrap();
        assert_eq!((seqs(&next), next.damaged.len(), next.next), (vec![4], 1, None));
    }

    #[test]
    fn a_page_takes_one_event_more_than_it_shows() {
        let ((id, log), mut count) = (log(), 0);
        for read in [ReadEvents::first(4), ReadEvents::first(100).with_max_bytes(1)] {
            let mut page = LogPage::new(id, &read, Seq::ZERO, Seq::new(10));
            let mut rows = log.iter().inspect(|_| count += 1);
            while rows.next().is_some_and(|event| page.push(Ok(event.clone()))) {}
            assert!(page.finish().unwrap().next.is_some());
        }
        assert_eq!(count, 5 + 2);
    }
}
