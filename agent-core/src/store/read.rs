//! Query for events of a log, and the resulting page.

use serde::{Deserialize, Serialize};

use crate::base::{Result, Seq};
use crate::event::{Event, EventType};
use crate::setters;
use crate::store::page::{Damaged, PAGE_MAX};

/// Query for events of a log.
///
/// The default is the oldest 100. A page ends after [`limit`](Self::limit) events, or before the event that would
/// make it exceed [`max_bytes`](Self::max_bytes). It contains at least one event if there is one, unless the limit
/// is 0.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/setup.rs"));
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
/// use agent_core::event::{EventType, NewEvent};
/// use agent_core::store::ReadEvents;
///
/// # let (store, effects, session) = session().await?;
/// let events = vec![NewEvent::user_message("one"), NewEvent::user_message("two"), NewEvent::user_message("three")];
/// store.append(session.id, session.head, events).await?;
///
/// let read = ReadEvents::last(2).with_types([EventType::USER_MESSAGE]).with_max_bytes(64 << 10);
/// let page = store.history(session.id, read).await?;
/// assert_eq!(page.events[1].text().as_deref(), Some("three"));
///
/// // The next page holds the older messages.
/// let older = store.history(session.id, page.next.unwrap()).await?;
/// assert_eq!(older.events[0].text().as_deref(), Some("one"));
///
/// let between = ReadEvents::first(10).with_after(session.head).with_before(page.events[1].seq);
/// assert_eq!(store.history(session.id, between).await?.events.len(), 2);
/// # Ok(()) }
/// ```
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct ReadEvents {
    /// Lower bound: only events after this one.
    pub after: Seq,
    /// Upper bound: only events before this one.
    pub before: Option<Seq>,
    /// True for the newest of these events, false for the oldest. The page is in ascending order in both cases.
    pub newest: bool,
    /// Types of the events; empty for all types.
    pub kinds: Vec<EventType>,
    /// Maximum number of events on the page; 100 by default, at most 1,000. 0 returns an empty page without a next one.
    pub limit: usize,
    /// Maximum number of payload bytes on the page; 4 MiB by default.
    pub max_bytes: usize,
    /// Head up to which the caller knows the session already; 0 by default. See
    /// [`with_known_head`](Self::with_known_head). Not part of the JSON.
    #[serde(skip)]
    pub known_head: Seq,
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
            known_head: Seq::ZERO,
        }
    }
}

impl ReadEvents {
    /// Creates a query for the oldest `limit` events.
    pub fn first(limit: usize) -> Self {
        Self { limit: limit.min(PAGE_MAX), ..Self::default() }
    }

    /// Creates a query for the newest `limit` events.
    pub fn last(limit: usize) -> Self {
        Self { newest: true, ..Self::first(limit) }
    }

    setters! {
        /// Selects events after `seq` only.
        pub fn with_after(seq: Seq) => after = seq;

        /// Selects events before `seq` only.
        pub fn with_before(seq: Seq) => before = Some(seq);

        /// Selects events of these types only.
        #[doc(alias = "kinds")]
        pub fn with_types(kinds: impl IntoIterator<Item = EventType>) => kinds = kinds.into_iter().collect();

        /// Sets the maximum number of payload bytes.
        pub fn with_max_bytes(bytes: usize) => max_bytes = bytes;

        /// Allows an answer as of the moment at which `head` was the session's last event.
        ///
        /// Events are never changed. So a store that asks a server whether there are newer ones need not ask if it has
        /// seen this head itself. Then the page may lack what happened since: later events, or the session's deletion. A
        /// run reads its own history so, since its next commit is refused if another writer was faster. Without it, a read
        /// sees every commit that was acknowledged before.
        pub fn with_known_head(head: Seq) => known_head = head;
    }

    /// Returns whether an event is before the upper bound of the query.
    #[doc(alias = "wants_before")]
    pub fn matches_before(&self, event: &Event) -> bool {
        self.before.is_none_or(|before| event.seq < before)
    }

    /// Returns whether an event matches the query.
    #[doc(alias = "wants")]
    pub fn matches(&self, event: &Event) -> bool {
        event.seq > self.after
            && self.matches_before(event)
            && (self.kinds.is_empty() || self.kinds.contains(&event.kind))
    }

    /// Returns the query, continued after the event `seq` in the query's direction.
    pub fn continued(self, seq: Seq) -> Self {
        if self.newest { self.with_before(seq) } else { self.with_after(seq) }
    }
}

/// One page of events, in ascending order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct EventPage {
    /// Events.
    pub events: Vec<Event>,
    /// Objects that could not be read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub damaged: Vec<Damaged>,
    /// Query for the next page, in the direction of the read; `None` on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<ReadEvents>,
}

impl EventPage {
    /// Creates a page of these events.
    pub fn new(events: Vec<Event>) -> Self {
        Self { events, damaged: Vec::new(), next: None }
    }

    /// For backends that can read their log in either direction: fills a page from events in the read's direction
    /// (descending if it asks for the newest).
    ///
    /// # Errors
    ///
    /// The first error of `events`.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/setup.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// use agent_core::store::{EventPage, ReadEvents};
    ///
    /// # let (store, effects, session) = greeted().await?;
    /// let log = store.read(session.id, ReadEvents::first(100)).await?.events;
    /// // The newest event: the log is read backwards.
    /// let read = ReadEvents::last(1);
    /// let page = EventPage::collect(&read, log.iter().rev().cloned().map(Ok))?;
    /// assert_eq!(page.events[0].seq, session.head);
    /// assert!(page.next.is_some());
    /// # Ok(()) }
    /// ```
    pub fn collect(read: &ReadEvents, events: impl IntoIterator<Item = Result<Event>>) -> Result<Self> {
        let mut page = Self::default();
        let (mut bytes, limit) = (0usize, read.limit.min(PAGE_MAX));
        if limit == 0 {
            return Ok(page);
        }
        for event in events {
            let event = event?;
            if !read.matches(&event) {
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

    setters! {
        /// Sets the objects that could not be read.
        pub fn with_damaged(damaged: Vec<Damaged>) => damaged = damaged;

        /// Sets the query for the next page.
        pub fn with_next(next: Option<ReadEvents>) => next = next;
    }
}
