//! What is asked of a log, and a page of it.

use crate::base::{Result, Seq};
use crate::event::{Event, EventType};
use crate::store::page::{Damaged, PAGE_MAX};

/// Which events to read.
///
/// The default is the oldest 100. A page ends after [`limit`](Self::limit) events, or before the event that would
/// take it over [`max_bytes`](Self::max_bytes), but holds at least one event where there is one, unless the limit is 0.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReadEvents {
    /// Only events after this.
    pub after: Seq,
    /// Only events before this.
    pub before: Option<Seq>,
    /// Whether to take the newest of these rather than the oldest. The page is in ascending order all the same.
    pub newest: bool,
    /// Only events of these types, where any are given.
    pub kinds: Vec<EventType>,
    /// The most events on the page; at most 1,000. 0 gives an empty page, without a next one.
    pub limit: usize,
    /// The most bytes of payload on the page; 4 MiB unless set.
    pub max_bytes: usize,
}

impl Default for ReadEvents {
    fn default() -> Self {
        Self {
            after: Seq::ZERO,
            before: None,
            newest: false,
            kinds: Vec::new(),
            limit: 100,
            max_bytes: 4 << 20,
        }
    }
}

impl ReadEvents {
    /// The oldest `limit` events.
    pub fn first(limit: usize) -> Self {
        Self { limit: limit.min(PAGE_MAX), ..Self::default() }
    }

    /// The newest `limit` events.
    pub fn last(limit: usize) -> Self {
        Self { newest: true, ..Self::first(limit) }
    }

    /// Only events after `seq`.
    pub fn after(mut self, seq: Seq) -> Self {
        self.after = seq;
        self
    }

    /// Only events before `seq`.
    pub fn before(mut self, seq: Seq) -> Self {
        self.before = Some(seq);
        self
    }

    /// Only events of these types.
    pub fn kinds(mut self, kinds: impl IntoIterator<Item = EventType>) -> Self {
        self.kinds = kinds.into_iter().collect();
        self
    }

    /// Sets the most bytes of payload.
    pub fn max_bytes(mut self, bytes: usize) -> Self {
        self.max_bytes = bytes;
        self
    }

    /// Whether an event lies before the end of what is asked for.
    pub fn wants_before(&self, event: &Event) -> bool {
        self.before.is_none_or(|before| event.seq < before)
    }

    /// Whether an event is among those asked for.
    pub fn wants(&self, event: &Event) -> bool {
        event.seq > self.after
            && self.wants_before(event)
            && (self.kinds.is_empty() || self.kinds.contains(&event.kind))
    }

    /// This read, continued behind the event `seq` in its direction.
    pub fn continued(self, seq: Seq) -> Self {
        if self.newest { self.before(seq) } else { self.after(seq) }
    }
}

/// One page of events, in ascending order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct EventPage {
    /// The events.
    pub events: Vec<Event>,
    /// What could not be read.
    pub damaged: Vec<Damaged>,
    /// What to read for the next page, in the direction of the read; `None` where this was the last.
    pub next: Option<ReadEvents>,
}

impl EventPage {
    /// A page of these events.
    pub fn new(events: Vec<Event>) -> Self {
        Self { events, damaged: Vec::new(), next: None }
    }

    /// For backends that can walk their log in either direction: fills a page from events that come in the read's
    /// direction (descending where it asks for the newest).
    ///
    /// # Errors
    ///
    /// The first error of `events`.
    pub fn collect(read: &ReadEvents, events: impl IntoIterator<Item = Result<Event>>) -> Result<Self> {
        let mut page = Self::default();
        let (mut bytes, limit) = (0usize, read.limit.min(PAGE_MAX));
        if limit == 0 {
            return Ok(page);
        }
        for event in events {
            let event = event?;
            if !read.wants(&event) {
                continue;
            }
            let size = event.size_bytes();
            let full =
                page.events.len() >= limit || (!page.events.is_empty() && bytes + size > read.max_bytes);
            if full {
                page.next = page.events.last().map(|last| read.clone().continued(last.seq));
                break;
            }
            bytes += size;
            page.events.push(event);
        }
        if read.newest {
            page.events.reverse();
        }
        Ok(page)
    }

    /// Names what could not be read.
    #[must_use]
    pub fn with_damaged(mut self, damaged: Vec<Damaged>) -> Self {
        self.damaged = damaged;
        self
    }

    /// Sets what to read for the next page.
    #[must_use]
    pub fn with_next(mut self, next: Option<ReadEvents>) -> Self {
        self.next = next;
        self
    }
}
