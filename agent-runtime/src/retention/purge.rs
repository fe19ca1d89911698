//! Removing the bytes of deleted sessions.

use agent_core::state::SessionState;
use agent_core::store::{Purge, Purged};
use agent_core::{Error, ErrorKind, Result, SessionId};

use crate::workspaces::WorkspaceManager;

impl WorkspaceManager {
    /// Removes the bytes of a deleted session, except the events that living sessions forked from it read; its record
    /// stays as a [tombstone](agent_core::session::Session::tombstone), without a word that anybody wrote. Doing it again removes what is no
    /// longer needed by then.
    ///
    /// # Errors
    ///
    /// `NotFound`; `InvalidInput` if the session is not deleted; `Corrupt` if damage may be a fork that reads it.
    pub async fn purge(&self, id: SessionId) -> Result<Purged> {
        let sessions = &*self.storage.sessions;
        let session = sessions.load(id).await?;
        if session.status.state != SessionState::Deleted {
            let text = format!("session {id} is {}; delete it before it is purged", session.status);
            return Err(Error::new(ErrorKind::InvalidInput, text));
        }
        sessions.purge(Purge::new(id, session.head)).await
    }
}
