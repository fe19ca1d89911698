//! A walk through a session's events that steps over what cannot be read.

use std::collections::VecDeque;

use crate::gap::Gap;
use agent_core::event::Event;
use agent_core::session::Session;
use agent_core::store::{Damaged, EventPage, ReadEvents};
use agent_core::{ErrorKind, Result, Seq, SessionId, SessionStore, SessionStoreExt};

/// How many events are in memory at once, and how many bytes of them.
const PAGE: usize = 500;
const PAGE_BYTES: usize = 1 << 20;

/// The next of a walk.
pub(super) enum Step {
    Event(Event),
    Gap(Gap),
}

/// Reads forward, up to an end that is known.
pub(super) struct Walk<'a> {
    store: &'a dyn SessionStore,
    id: SessionId,
    /// For a walk through the ancestors, too.
    history: Option<&'a Session>,
    /// All up to here was read, or is in a gap.
    after: Seq,
    end: Seq,
    read: VecDeque<Event>,
    gap: Option<Gap>,
}

impl<'a> Walk<'a> {
    /// Through a session's own log, behind `after`.
    pub(super) fn own(store: &'a dyn SessionStore, id: SessionId, after: Seq, end: Seq) -> Self {
        Self { store, id, history: None, after, end, read: VecDeque::new(), gap: None }
    }

    /// Through a session's whole history.
    pub(super) fn history(store: &'a dyn SessionStore, session: &'a Session) -> Self {
        Self { history: Some(session), ..Self::own(store, session.id, Seq::ZERO, session.head) }
    }

    pub(super) async fn next(&mut self) -> Result<Option<Step>> {
        loop {
            if let Some(next) = self.read.front().map(|event| event.seq) {
                // What stands where another was expected leaves a gap, too.
                if next > self.after.next() {
                    self.skip(Seq::new(next.get() - 1), "is missing");
                }
                if let Some(gap) = self.gap.take() {
                    return Ok(Some(Step::Gap(gap)));
                }
                self.after = self.after.max(next);
                return Ok(self.read.pop_front().map(Step::Event));
            }
            if self.after >= self.end {
                return Ok(self.gap.take().map(Step::Gap));
            }
            let asked =
                ReadEvents::first(PAGE).max_bytes(PAGE_BYTES).after(self.after).before(self.end.next());
            match self.page(asked).await {
                Err(error) if *error.kind() == ErrorKind::Corrupt => {
                    self.skip(self.after.next(), &error.to_string());
                }
                Err(error) => return Err(error),
                Ok(page) if page.events.is_empty() => match page.damaged.first() {
                    Some(Damaged { reason, .. }) => self.skip(self.after.next(), reason),
                    None => self.skip(self.end, "is missing"),
                },
                Ok(page) => self.read.extend(page.events),
            }
        }
    }

    async fn page(&self, read: ReadEvents) -> Result<EventPage> {
        match self.history {
            Some(session) => self.store.history_of(session, read).await,
            None => self.store.read(self.id, read).await,
        }
    }

    /// Adds what lies up to `until` to the gap.
    fn skip(&mut self, until: Seq, reason: &str) {
        let first = self.after.next();
        let gap = self.gap.get_or_insert_with(|| Gap { first, last: first, reason: reason.to_owned() });
        gap.last = until;
        self.after = until;
    }
}
