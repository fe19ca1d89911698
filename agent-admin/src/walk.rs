//! Iteration over a session's events that skips those that cannot be read.

use std::collections::VecDeque;

use crate::gap::LostRange;
use agent_core::event::Event;
use agent_core::session::SessionRecord;
use agent_core::store::{Damaged, EventPage, ReadEvents};
use agent_core::{ErrorKind, Result, Seq, SessionId, SessionStore, SessionStoreExt};

/// Maximum number of events in memory at once, and of their bytes.
const PAGE: usize = 500;
const PAGE_BYTES: usize = 1 << 20;

/// Next item of an iteration.
pub(super) enum Step {
    Event(Event),
    LostRange(LostRange),
}

/// Forward iteration up to a known end.
pub(super) struct Walk<'a> {
    store: &'a dyn SessionStore,
    id: SessionId,
    /// Record of the session, for an iteration that includes its ancestors.
    history: Option<&'a SessionRecord>,
    /// Sequence number up to which all events were read, or are in a gap.
    after: Seq,
    end: Seq,
    read: VecDeque<Event>,
    gap: Option<LostRange>,
}

impl<'a> Walk<'a> {
    /// Creates an iteration over a session's own log, after `after`.
    pub(super) fn own(store: &'a dyn SessionStore, id: SessionId, after: Seq, end: Seq) -> Self {
        Self { store, id, history: None, after, end, read: VecDeque::new(), gap: None }
    }

    /// Creates an iteration over a session's whole history.
    pub(super) fn history(store: &'a dyn SessionStore, session: &'a SessionRecord) -> Self {
        Self { history: Some(session), ..Self::own(store, session.id, Seq::ZERO, session.head) }
    }

    pub(super) async fn next(&mut self) -> Result<Option<Step>> {
        loop {
            if let Some(next) = self.read.front().map(|event| event.seq) {
                // A later event than the expected one leaves a gap, too.
                if next > self.after.next() {
                    self.skip(Seq::new(next.get() - 1), "is missing");
                }
                if let Some(gap) = self.gap.take() {
                    return Ok(Some(Step::LostRange(gap)));
                }
                self.after = self.after.max(next);
                return Ok(self.read.pop_front().map(Step::Event));
            }
            if self.after >= self.end {
                return Ok(self.gap.take().map(Step::LostRange));
            }
            let asked = ReadEvents::first(PAGE)
                .with_max_bytes(PAGE_BYTES)
                .with_after(self.after)
                .with_before(self.end.next());
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

    /// Adds the events up to `until` to the gap.
    fn skip(&mut self, until: Seq, reason: &str) {
        let first = self.after.next();
        let gap = self.gap.get_or_insert_with(|| LostRange { first, last: first, reason: reason.to_owned() });
        gap.last = until;
        self.after = until;
    }
}
