//! One session of an agent, with the record of it that was seen last.

use std::sync::{Arc, Mutex, PoisonError};

use crate::runtime::agent::AgentRuntime;
use agent_core::session::Session;
use agent_core::{Result, SessionId};

/// One session of an agent, with the record of it that was seen last. Clones share the record.
#[derive(Clone, Debug)]
pub(crate) struct SessionRef {
    runtime: AgentRuntime,
    id: SessionId,
    seen: Arc<Mutex<Arc<Session>>>,
}

impl SessionRef {
    pub(crate) fn new(runtime: AgentRuntime, session: Session) -> Self {
        Self { runtime, id: session.id, seen: Arc::new(Mutex::new(Arc::new(session))) }
    }

    pub(crate) const fn id(&self) -> SessionId {
        self.id
    }

    pub(crate) const fn runtime(&self) -> &AgentRuntime {
        &self.runtime
    }

    /// The record as last seen.
    pub(crate) fn snapshot(&self) -> Arc<Session> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The record as it is now.
    pub(crate) async fn refresh(&self) -> Result<Arc<Session>> {
        let now = self.runtime.storage.sessions.load(self.id).await?;
        self.note(&now);
        Ok(Arc::new(now))
    }

    /// Keeps a record that is not older than the one that is kept.
    pub(crate) fn note(&self, session: &Session) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if session.head >= seen.head {
            *seen = Arc::new(session.clone());
        }
    }
}
