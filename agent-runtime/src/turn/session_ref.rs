//! Session of an agent, with its last seen record.

use std::sync::{Arc, Mutex, PoisonError};

use crate::agent::runtime::AgentRuntime;
use crate::run::queue::Line;
use agent_core::commit::{Commit, Committed};
use agent_core::model::ActionId;
use agent_core::session::SessionRecord;
use agent_core::state::SessionState;
use agent_core::{Result, SessionId, SessionStoreExt};

/// Session of an agent, with its last seen record. Clones share the record.
#[derive(Clone, Debug)]
pub(crate) struct SessionRef {
    runtime: AgentRuntime,
    id: SessionId,
    line: Arc<Line>,
    seen: Arc<Mutex<Arc<SessionRecord>>>,
}

impl SessionRef {
    pub(crate) fn new(runtime: AgentRuntime, session: Arc<SessionRecord>) -> Self {
        let line = runtime.lines.of(session.id);
        Self { runtime, id: session.id, line, seen: Arc::new(Mutex::new(session)) }
    }

    pub(crate) const fn id(&self) -> SessionId {
        self.id
    }

    pub(crate) const fn runtime(&self) -> &AgentRuntime {
        &self.runtime
    }

    /// Returns the queue of inputs that wait for the session in this process, shared by all handles.
    pub(crate) fn line(&self) -> &Line {
        &self.line
    }

    /// Returns the record as last seen.
    pub(crate) fn record(&self) -> Arc<SessionRecord> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the session's pending action, as last seen, if its time limit has passed.
    pub(crate) fn overdue(&self) -> Option<ActionId> {
        let (now, at) = (self.record(), self.runtime.effects().now());
        let action = now.action.as_ref().filter(|_| now.status.state == SessionState::RequiresAction)?;
        action.expires_at.is_some_and(|expires_at| expires_at <= at).then(|| action.id.clone())
    }

    /// Loads and returns the current record.
    pub(crate) async fn refresh(&self) -> Result<Arc<SessionRecord>> {
        let now = self.runtime.storage.sessions.load(self.id).await?;
        self.cache_record(&now);
        Ok(now)
    }

    /// Seals an empty commit that was decided on the cached record.
    pub(crate) fn seal(&self) -> Commit {
        self.runtime.storage.sessions.seal(self.id, self.record().head)
    }

    /// Stores a sealed commit, and caches the record after it.
    pub(crate) async fn commit(&self, commit: Commit) -> Result<Committed> {
        let committed = self.runtime.storage.sessions.commit_new_with_retry(commit).await?;
        self.cache_record(&committed.session);
        Ok(committed)
    }

    /// Stores a record as last seen, unless it is older than the stored one.
    pub(crate) fn cache_record(&self, session: &Arc<SessionRecord>) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if session.head >= seen.head {
            *seen = session.clone();
        }
        drop(seen);
        if session.status.state == SessionState::Deleted {
            drop(self.runtime.contexts.take(self.id));
        }
    }
}
