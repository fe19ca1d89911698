//! Branches of a conversation: a message that was said otherwise is a fork at the point before it.

use crate::views::session_view::SessionView;
use agent_core::event::{Event, EventType};
use agent_core::model::Origin;
use agent_core::session::Session;
use agent_core::store::{Damaged, PAGE_MAX, ReadEvents, SessionQuery};
use agent_core::{Result, Seq, SessionId, SessionStoreExt};

/// How a conversation goes on after a point, in one session.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Branch {
    /// The session.
    pub session: SessionId,
    /// The first thing that a person said there after the point; `None` where nobody did yet.
    pub message: Option<Event>,
}

/// The branches after a point: siblings, the session where the point lies first, then by their ids, which are minted in
/// the order of time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Branches {
    /// The last event that all have in common.
    pub point: Seq,
    /// The branches.
    pub branches: Vec<Branch>,
    /// What could not be read.
    pub damaged: Vec<Damaged>,
}

impl SessionView {
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
        let live = agent_core::state::SessionState::ALL.iter().copied();
        let query = SessionQuery::new()
            .parent(self.id)
            .states(live.filter(|state| *state != agent_core::state::SessionState::Deleted));
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
