//! What is open now: sessions at work or waiting, with their stage and what they wait for.

use std::sync::Arc;

use agent_core::session::Session;
use agent_core::state::SessionState;
use agent_core::store::{Page, SessionQuery};
use agent_core::{ErrorKind, Result, SessionStore};

/// A session that is at work or waits for something.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ActiveSession {
    /// Its record: who runs it, what it waits for, its title.
    pub session: Arc<Session>,
    /// What it is doing.
    pub stage: Stage,
}

/// What a session that is open is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Stage {
    /// It is being prepared.
    Preparing,
    /// It has work, and waits for a run.
    Waiting,
    /// A run asks the model.
    Model,
    /// A run has called tools that have no result yet.
    Tools,
    /// It waits for an answer: see [`Session::action`].
    Answer,
}

impl Stage {
    /// What a session is doing; `None` for one that has nothing to do.
    pub fn of(session: &Session) -> Option<Self> {
        match session.status.state {
            SessionState::Initializing => Some(Self::Preparing),
            SessionState::Queued => Some(Self::Waiting),
            SessionState::Running if session.open_calls.is_empty() => Some(Self::Model),
            SessionState::Running => Some(Self::Tools),
            SessionState::RequiresAction => Some(Self::Answer),
            _ => None,
        }
    }
}

/// The sessions of a query that are at work or wait for something, a page at a time, the last active first. The query's
/// states are set here; its total counts those that the list found.
///
/// A session that came to rest between the list and its record is left out.
///
/// # Errors
///
/// Those of [`SessionStore::list`] and [`SessionStore::load`].
pub async fn active_sessions(
    sessions: &dyn SessionStore,
    query: SessionQuery,
) -> Result<Page<ActiveSession>> {
    use SessionState::{Initializing, Queued, RequiresAction, Running};
    let page = sessions.list(query.states([Initializing, Queued, Running, RequiresAction])).await?;
    let mut active = Vec::with_capacity(page.items.len());
    for summary in &page.items {
        let session = match sessions.load(summary.id).await {
            Err(error) if *error.kind() == ErrorKind::NotFound => continue,
            other => other?,
        };
        if let Some(stage) = Stage::of(&session) {
            active.push(ActiveSession { session, stage });
        }
    }
    Ok(Page::new(active).with_next(page.next).with_damaged(page.damaged).with_total(page.total))
}
