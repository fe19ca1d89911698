//! One session, looked at.

use std::sync::Arc;

use agent_core::event::{Body, Event, EventType};
use agent_core::model::Origin;
use agent_core::session::Session;
use agent_core::state::SessionState;
use agent_core::store::{EventPage, PAGE_MAX, ReadEvents, SessionQuery};
use agent_core::{Error, Result, RunId, Seq, SessionId, SessionStore, SessionStoreExt};

use crate::views::artifacts::{ArtifactPage, RegisteredArtifact};
use crate::views::branches::{Branch, Branches};

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
    pub session: Arc<Session>,
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

    /// What was made in the session, the newest first, `limit` a page, also by those it was forked from; of one run,
    /// where `run` names it. No other session is read.
    ///
    /// # Errors
    ///
    /// Those of the store.
    pub async fn artifacts(
        &self,
        run: Option<RunId>,
        limit: usize,
        before: Option<Seq>,
    ) -> Result<ArtifactPage> {
        let session = self.sessions.load(self.id).await?;
        self.artifacts_of(&session, run, limit, before).await
    }

    pub(super) async fn artifacts_of(
        &self,
        session: &Session,
        run: Option<RunId>,
        limit: usize,
        before: Option<Seq>,
    ) -> Result<ArtifactPage> {
        let end = before.unwrap_or_else(|| session.head.next());
        let read = ReadEvents::last(limit).before(end).kinds([EventType::SESSION_ARTIFACT_REGISTERED]);
        let (mut page, mut next) = (ArtifactPage::default(), Some(read));
        while let Some(read) = next {
            let read = self.sessions.history_of(session, read).await?;
            for event in read.events.iter().rev() {
                let Body::SessionArtifactRegistered(artifact) = event.body()? else { continue };
                if run.is_some() && artifact.run != run {
                    continue;
                }
                page.artifacts.push(RegisteredArtifact { artifact, seq: event.seq, at: event.at });
                if page.artifacts.len() >= limit {
                    page.next = Some(event.seq);
                    return Ok(page);
                }
            }
            page.damaged.extend(read.damaged);
            next = read.next;
        }
        Ok(page)
    }

    /// How the conversation goes on after event `point` of this session: here, and in each session that was forked from
    /// it there. Archived ones are shown, deleted ones are not. Reads the session's forks only.
    ///
    /// # Errors
    ///
    /// Those of the store.
    pub async fn branches(&self, point: Seq) -> Result<Branches> {
        let session = self.sessions.load(self.id).await?;
        let mut found = Branches { point, ..Branches::default() };
        found.branches.push(self.branch(&session, point).await?);
        let live = SessionState::ALL.iter().copied();
        let query =
            SessionQuery::new().parent(self.id).states(live.filter(|state| *state != SessionState::Deleted));
        let (mut forks, mut cursor) = (Vec::new(), None);
        loop {
            let page = self.sessions.list(query.clone().limit(PAGE_MAX).cursor(cursor)).await?;
            let is_here = |origin: &Origin| matches!(origin, Origin::Fork { at, .. } if *at == point);
            forks.extend(page.items.into_iter().filter(|it| is_here(&it.origin)).map(|it| it.id));
            found.damaged.extend(page.damaged);
            cursor = page.next;
            if cursor.is_none() {
                break;
            }
        }
        forks.sort_unstable();
        for id in forks {
            let view = Self::new(self.sessions.clone(), id);
            let fork = self.sessions.load(id).await?;
            found.branches.push(view.branch(&fork, point).await?);
        }
        Ok(found)
    }

    /// The siblings of this session's own branch: of one that was forked, the branches at the point of the fork; `None`
    /// for one that was not.
    ///
    /// # Errors
    ///
    /// Those of the store; `NotFound` where the session that it was forked from was purged.
    pub async fn siblings(&self) -> Result<Option<Branches>> {
        match self.sessions.load(self.id).await?.origin {
            Origin::Fork { parent, at, .. } => {
                Self::new(self.sessions.clone(), parent).branches(at).await.map(Some)
            }
            _ => Ok(None),
        }
    }

    async fn branch(&self, session: &Session, point: Seq) -> Result<Branch> {
        let read = ReadEvents::first(1).after(point).before(session.head.next());
        let page = self.sessions.history_of(session, read.kinds([EventType::USER_MESSAGE])).await?;
        Ok(Branch { session: session.id, message: page.events.into_iter().next() })
    }
}
