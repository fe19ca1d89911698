//! One session, looked at.

use std::sync::Arc;

use agent_core::event::Event;
use agent_core::session::Session;
use agent_core::store::{EventPage, ReadEvents};
use agent_core::{Error, Result, Seq, SessionId, SessionStore, SessionStoreExt};

/// Looks at one session: every method is one call that reads and writes nothing.
///
/// Cheap to clone. Every method may be dropped at any point. Each returns the errors of the store: `NotFound`, `Corrupt`
/// where what it must read is damaged.
#[derive(Clone, Debug)]
pub struct SessionView {
    pub(super) sessions: Arc<dyn SessionStore>,
    pub(super) id: SessionId,
}

/// A session at one moment: its record, and the last of its events at that moment.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Snapshot {
    /// The record.
    pub session: Session,
    /// The last events up to the record's head, in order.
    pub events: EventPage,
}

/// Events around one of them.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Around {
    /// Those before it, in order.
    pub before: Vec<Event>,
    /// The event itself.
    pub event: Event,
    /// Those after it, in order.
    pub after: Vec<Event>,
}

impl SessionView {
    /// Looks at `session`. No I/O.
    pub const fn new(sessions: Arc<dyn SessionStore>, session: SessionId) -> Self {
        Self { sessions, id: session }
    }

    /// The session, and its last events, at one moment: an event that comes meanwhile is in neither.
    ///
    /// # Errors
    ///
    /// Those of the store.
    pub async fn snapshot(&self, last: usize) -> Result<Snapshot> {
        let session = self.sessions.load(self.id).await?;
        let read = ReadEvents::last(last).before(session.head.next());
        let events = self.sessions.history_of(&session, read).await?;
        Ok(Snapshot { session, events })
    }

    /// The event `seq` with at most `count` events on either side; only those of the types that `read` names, where it
    /// names any.
    ///
    /// # Errors
    ///
    /// `InvalidInput` where the history has no event `seq`; those of the store.
    pub async fn around(&self, seq: Seq, count: usize, read: &ReadEvents) -> Result<Around> {
        let session = self.sessions.load(self.id).await?;
        let event = self.event(&session, seq).await?;
        let read = |page: ReadEvents| page.kinds(read.kinds.clone()).max_bytes(read.max_bytes);
        let (mut before, mut after) = (Vec::new(), Vec::new());
        if count > 0 {
            let page = read(ReadEvents::last(count)).before(seq);
            before = self.sessions.history_of(&session, page).await?.events;
            let page = read(ReadEvents::first(count)).after(seq).before(session.head.next());
            after = self.sessions.history_of(&session, page).await?.events;
        }
        Ok(Around { before, event, after })
    }

    pub(super) async fn event(&self, session: &Session, seq: Seq) -> Result<Event> {
        if seq == Seq::ZERO || seq > session.head {
            return Err(Error::invalid(format!(
                "session {} has the events 1 to {}, not {seq}",
                self.id, session.head
            )));
        }
        let read = ReadEvents::first(1).after(Seq::new(seq.get() - 1));
        let page = self.sessions.history_of(session, read).await?;
        let event = page.events.into_iter().next().filter(|event| event.seq == seq);
        event.ok_or_else(|| Error::corrupt(format!("session {}: event {seq} cannot be read", self.id)))
    }
}
