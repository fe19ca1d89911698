//! One session of an agent, with the record of it that was seen last.

use std::sync::{Arc, Mutex, PoisonError};

use crate::runtime::agent::AgentRuntime;
use crate::runtime::line::Line;
use agent_core::session::Session;
use agent_core::{Result, SessionId};

/// One session of an agent, with the record of it that was seen last. Clones share the record.
#[derive(Clone, Debug)]
pub(crate) struct SessionRef {
    runtime: AgentRuntime,
    id: SessionId,
    line: Arc<Line>,
    seen: Arc<Mutex<Arc<Session>>>,
}

impl SessionRef {
    pub(crate) fn new(runtime: AgentRuntime, session: Arc<Session>) -> Self {
        let line = runtime.lines.of(session.id);
        Self { runtime, id: session.id, line, seen: Arc::new(Mutex::new(session)) }
    }

    pub(crate) const fn id(&self) -> SessionId {
        self.id
    }

    pub(crate) const fn runtime(&self) -> &AgentRuntime {
        &self.runtime
    }

    /// What waits for the session in this process, through any handle.
    pub(crate) fn line(&self) -> &Line {
        &self.line
    }

    /// The record as last seen.
    pub(crate) fn snapshot(&self) -> Arc<Session> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The record as it is now.
    pub(crate) async fn refresh(&self) -> Result<Arc<Session>> {
        let now = self.runtime.storage.sessions.load(self.id).await?;
        self.note(&now);
        Ok(now)
    }

    /// Keeps a record that is not older than the one that is kept.
    pub(crate) fn note(&self, session: &Arc<Session>) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if session.head >= seen.head {
            *seen = session.clone();
        }
    }
}
