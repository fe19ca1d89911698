//! A new beginning: another session in the place of one.

use tracing::instrument;

use crate::retention::delete::refuse_shelf;
use crate::workspaces::WorkspaceManager;
use agent_core::commit::{Commit, Expect, Trigger};
use agent_core::model::Patch;
use agent_core::session::Session;
use agent_core::state::{Reason, SessionState};
use agent_core::{Error, ErrorKind, Result, SessionId, SessionStoreExt};

/// What becomes of a session that another takes the place of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Former {
    /// It is archived, with all that waits in it, and can be restored.
    Archive,
    /// It is deleted.
    Delete,
}

impl WorkspaceManager {
    /// Puts a new, empty session in the place of `id`: nothing of its history, notes, inputs, wakes or questions is in
    /// the new one. A run that goes on in the old one is fenced off. Where it was the workspace's main session, the new
    /// one is.
    ///
    /// The place changes hands in one step: whoever opens the workspace finds the old session or the new one. After an
    /// error or a crash, do it again.
    ///
    /// # Errors
    ///
    /// `NotFound`; `Deleted` where the session was deleted; `InvalidInput` for a shelf; `Conflict` where it keeps changing meanwhile.
    #[instrument(name = "reset", skip(self))]
    pub async fn reset(&self, id: SessionId, former: Former) -> Result<Session> {
        let old = self.storage.sessions.load(id).await?;
        if old.status.state == SessionState::Deleted {
            return Err(Error::new(ErrorKind::Deleted, format!("session {id} was deleted")));
        }
        refuse_shelf(&old)?;
        let mut workspace = self.load(old.workspace).await?;
        let was_main = workspace.main_session == id;
        if was_main {
            let next = self.effects.new_session_id();
            let replace = |workspace: &mut agent_core::model::Workspace| {
                if workspace.main_session == id {
                    workspace.main_session = next;
                }
            };
            workspace = self.change(workspace.id, replace).await?;
        }
        self.set_down(id, former).await?;
        if was_main {
            return self.main_session(&workspace).await;
        }
        self.new_session(workspace.id, &Patch::new()).await
    }

    /// Ends what the new session takes the place of.
    async fn set_down(&self, id: SessionId, former: Former) -> Result<()> {
        let mut last = None;
        for _ in 0..crate::workspaces::ATTEMPTS {
            let now = self.storage.sessions.load(id).await?;
            let mut commit = Commit::seal(&self.effects, id, now.head).expect(Expect::Is(now.head));
            commit = match former {
                Former::Delete => commit.trigger(Trigger::Delete(Reason::UserDeleted)),
                Former::Archive => {
                    if now.status.state == SessionState::Running {
                        commit = commit.trigger(Trigger::ForceSuspend(Reason::UserPaused));
                    }
                    commit.trigger(Trigger::Archive)
                }
            };
            match self.storage.sessions.settle(commit).await {
                Err(error) if matches!(error.kind(), ErrorKind::Conflict { .. }) => last = Some(error),
                other => return other.map(drop),
            }
        }
        Err(last.unwrap_or_else(|| Error::invalid(format!("session {id} was not put away; try again"))))
    }
}
