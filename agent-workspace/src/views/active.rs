//! Active sessions: sessions that run or wait, with their stage and their pending actions.

use std::sync::Arc;

use agent_core::session::SessionRecord;
use agent_core::state::SessionState;
use agent_core::store::{Page, SessionQuery};
use agent_core::{ErrorKind, Result, SessionStore};

/// Session that runs or waits for something.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ActiveSession {
    /// Record of the session, with its lease, pending action and title.
    pub session: Arc<SessionRecord>,
    /// Present stage.
    pub stage: Stage,
}

/// Stage of an active session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Stage {
    /// The session is being prepared.
    Preparing,
    /// The session has open work and waits for a run.
    Waiting,
    /// A run waits for the model.
    Model,
    /// A run has called tools that have no result yet.
    Tools,
    /// The session waits for an answer: see [`SessionRecord::action`].
    Answer,
}

impl Stage {
    /// Returns the stage of a session; `None` if the session is not active.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/../agent-runtime/doc/echo.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # let (agent, chat) = echo().await?;
    /// use agent_runtime::views::Stage;
    ///
    /// assert_eq!(Stage::of(&chat.record()), None);
    /// chat.send("Water the plants.").await?;
    /// assert_eq!(Stage::of(&chat.record()), Some(Stage::Waiting));
    /// # Ok(()) }
    /// ```
    pub fn of(session: &SessionRecord) -> Option<Self> {
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

/// Lists the sessions of a query that run or wait for something, a page at a time, last active first.
///
/// The function sets the states of the query. The total counts the sessions in the list; a session that came to rest
/// between the list and the load of its record is not among the items. Loads one record for each item.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/../agent-runtime/doc/echo.rs"));
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
/// # let agent = echo_agent()?;
/// use agent_core::store::SessionQuery;
/// use agent_runtime::views::{Stage, active_sessions};
///
/// agent.conversation("support/1").await?;
/// let waiting = agent.conversation("support/2").await?;
/// waiting.send("Water the plants.").await?;
///
/// let page = active_sessions(&*agent.storage().sessions, SessionQuery::new()).await?;
/// let stages: Vec<_> = page.items.iter().map(|active| (active.session.id, active.stage)).collect();
/// assert_eq!(stages, [(waiting.id(), Stage::Waiting)]);
/// # Ok(()) }
/// ```
///
/// # Errors
///
/// Errors of [`SessionStore::list`] and [`SessionStore::load`].
pub async fn active_sessions(
    sessions: &dyn SessionStore,
    query: SessionQuery,
) -> Result<Page<ActiveSession>> {
    use SessionState::{Initializing, Queued, RequiresAction, Running};
    let page = sessions.list(query.with_states([Initializing, Queued, Running, RequiresAction])).await?;
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
