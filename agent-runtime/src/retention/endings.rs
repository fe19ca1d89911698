//! What a host asks for: a session begun anew, its bytes purged; what nobody uses collected, and sessions swept by their age.

use std::sync::Arc;

use tracing::instrument;

use agent_core::commit::{Commit, Expect, Trigger};
use agent_core::model::Patch;
use agent_core::session::Session;
use agent_core::state::{Reason, SessionState};
use agent_core::store::{Purge, Purged};
use agent_core::{Error, ErrorKind, Result, SessionId, SessionStoreExt};

use crate::retention::delete::refuse_shelf;
use crate::retention::gc::{Collector, GcPolicy, GcReport};
use crate::retention::sweep::{SweepPolicy, SweepReport, Sweeper};
use crate::workspaces::WorkspaceManager;

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
    /// Collects the workspaces that nobody used for longer than the policy's age, each as by
    /// [`delete`](Self::delete); finishes deletions that were cut off; removes sessions and bindings that crashes left
    /// in deleted workspaces.
    ///
    /// Never collected are the workspace `default`, and one with a session that is [pinned](agent_core::model::Patch::pin) or whose
    /// lease lives. What comes to be used while it runs, stays. Where leases have to be watched it takes as long as the
    /// longest of them lives, at most the policy's `watch`.
    ///
    /// # Errors
    ///
    /// Those of the stores; what was done until then stays done. Damage is no error: it is named in the report.
    #[instrument(name = "gc", skip(self))]
    pub async fn gc(&self, policy: GcPolicy) -> Result<GcReport> {
        Collector(self).run(policy).await
    }

    /// Applies a policy to all sessions, or to those of a workspace. Each session is changed only as it was when it was
    /// judged: a message that comes first wins. [Pinned](agent_core::model::Patch::pin) sessions stay as they
    /// are, and so do those that hold what others share. No run is ended.
    ///
    /// Doing it again does what became due meanwhile. After an error or a crash, what was done stays done.
    ///
    /// # Errors
    ///
    /// Those of the stores. Damage is no error: it is named in the report.
    #[instrument(name = "sweep", skip(self))]
    pub async fn sweep(&self, policy: &SweepPolicy) -> Result<SweepReport> {
        Sweeper(self).run(policy).await
    }

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
    pub async fn reset(&self, id: SessionId, former: Former) -> Result<Arc<Session>> {
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
