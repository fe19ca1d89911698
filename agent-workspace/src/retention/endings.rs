//! Maintenance operations that a host calls: reset and purge a session, collect unused workspaces, sweep sessions by
//! age.

use std::sync::Arc;

use tracing::instrument;

use agent_core::commit::Trigger;
use agent_core::model::Patch;
use agent_core::session::SessionRecord;
use agent_core::state::{Reason, SessionState};
use agent_core::store::{Purge, Purged};
use agent_core::{Error, ErrorKind, Result, SessionId, SessionStoreExt};

use crate::contested::Attempts;
use crate::manager::{ATTEMPTS, WorkspaceManager};
use crate::retention::delete::refuse_hidden;
use crate::retention::gc::{Collector, GcPolicy, GcReport};
use crate::retention::policy::{RetentionPolicy, RetentionReport};
use crate::retention::sweep::{SweepPolicy, SweepReport, Sweeper};

/// Treatment of a session that is replaced by another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[doc(alias = "Former")]
pub enum OldSessionAction {
    /// The session is archived with its pending work, and can be restored.
    Archive,
    /// The session is deleted.
    Delete,
}

impl WorkspaceManager {
    /// Collects the workspaces that were not used for longer than the policy's age; see [`delete`](Self::delete).
    ///
    /// Interrupted deletions are finished, and sessions and bindings that crashes left in deleted workspaces are removed.
    ///
    /// The workspace `default` is never collected, nor is a workspace with a session that is
    /// [pinned](agent_core::model::Patch::pin) or whose lease is alive. A workspace that is used while gc runs is kept.
    ///
    /// Reads the lists of all workspaces, sessions and bindings. If leases must be watched, the call takes as long as the
    /// longest ttl among them, at most the policy's `watch`. It can be dropped and repeated at any point.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/../agent-runtime/doc/workspaces.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # let (manager, long_ago) = managers();
    /// use agent_runtime::retention::GcPolicy;
    ///
    /// // `long_ago` is a manager whose clock shows 1970.
    /// let old = long_ago.create(NewWorkspace::new("Old")).await?;
    /// let new = manager.create(NewWorkspace::new("New")).await?;
    ///
    /// let plan = manager.gc(GcPolicy::days(90).with_dry_run()).await?;
    /// assert_eq!(plan.collected, [old.id]);
    /// let report = manager.gc(GcPolicy::days(90)).await?;
    /// assert_eq!((report.examined, report.collected), (2, vec![old.id]));
    /// assert_eq!(manager.load(new.id).await?.name, "New");
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// `InvalidInput` if a time of the policy is beyond its maximum; nothing was done. Errors of the stores; completed steps
    /// are not undone. Damage is not an error: it is listed in the report.
    #[instrument(name = "gc", skip(self))]
    pub async fn gc(&self, policy: GcPolicy) -> Result<GcReport> {
        self.refuse_owner("gc")?;
        Collector(self).run(policy).await
    }

    /// Applies a policy to all sessions, or to those of one workspace: suspends, ends, deletes and purges by age.
    ///
    /// Each session is changed only if it is still in the state in which it was judged: a message that arrives first
    /// wins. [Pinned](agent_core::model::Patch::pin) sessions are not changed, nor are hidden sessions, which hold
    /// shared data. No active run is ended.
    ///
    /// The call can be dropped and repeated at any point; it then processes sessions that became due meanwhile. After an
    /// error or a crash, completed steps are not undone.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/../agent-runtime/doc/workspaces.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # let (manager, long_ago) = managers();
    /// use agent_core::model::Patch;
    /// use agent_runtime::retention::{InactivityPolicy, SweepAction, SweepPolicy};
    /// use std::time::Duration;
    ///
    /// // `long_ago` is a manager whose clock shows 1970.
    /// let workspace = long_ago.create(NewWorkspace::new("Support")).await?.id;
    /// let quiet = long_ago.new_session(workspace, &Patch::new()).await?;
    /// let pinned = long_ago.new_session(workspace, &Patch::new().pin("open case 12")).await?;
    ///
    /// const DAY: Duration = Duration::from_secs(24 * 3600);
    /// let policy = SweepPolicy::new().with_inactive(30 * DAY, InactivityPolicy::Suspend);
    /// let report = manager.sweep(&policy).await?;
    /// assert_eq!((report.swept[0].session, report.swept[0].action), (quiet.id, SweepAction::Suspended));
    /// assert_eq!(report.retained[0].id, pinned.id);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// `InvalidInput` if an age of the policy is beyond its maximum; nothing was done. Errors of the stores. Damage is not an
    /// error: it is listed in the report.
    #[instrument(name = "sweep", skip(self))]
    pub async fn sweep(&self, policy: &SweepPolicy) -> Result<SweepReport> {
        self.refuse_owner("sweep")?;
        Sweeper { manager: self, without: &[] }.run(policy).await
    }

    /// Applies all rules of a policy: [`gc`](Self::gc) of unused workspaces, then the [`sweep`](Self::sweep) of sessions.
    ///
    /// [`RetentionPolicy::maintain`] is for the whole store, and left to the host.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/../agent-runtime/doc/workspaces.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # let (manager, long_ago) = managers();
    /// use agent_runtime::retention::RetentionPolicy;
    ///
    /// // `long_ago` is a manager whose clock shows 1970.
    /// let old = long_ago.create(NewWorkspace::new("Old")).await?;
    /// let text = "[workspaces]\nunused = '90d'\n[sessions]\npurge_deleted = '30d'";
    /// let policy = RetentionPolicy::from_toml("retention.toml", text)?;
    ///
    /// let report = manager.apply(&policy).await?;
    /// assert_eq!(report.workspaces.unwrap().collected, [old.id]);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// Those of both. If an age is beyond its maximum, nothing was done.
    pub async fn apply(&self, policy: &RetentionPolicy) -> Result<RetentionReport> {
        self.refuse_owner("sweep")?;
        policy.sessions.check()?;
        let workspaces = match policy.workspaces {
            Some(policy) => Some(self.gc(policy).await?),
            None => None,
        };
        let is_dry = policy.sessions.dry_run;
        let gone = workspaces.as_ref().filter(|_| is_dry).map_or(&[][..], |report| &report.collected);
        let sessions = Sweeper { manager: self, without: gone }.run(&policy.sessions).await?;
        Ok(RetentionReport { workspaces, sessions })
    }

    /// Removes the bytes of a deleted session, and of the deleted ones that it has [superseded](Self::superseded), except the events that
    /// living forks read.
    ///
    /// Returns the number of removed events. The record stays as a
    /// [tombstone](agent_core::session::SessionRecord::tombstone) that contains no text of any author. The call can be dropped
    /// and repeated at any point; it then removes events that are no longer needed.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # use agent_core::MemoryStore;
    /// # use agent_runtime::{NewWorkspace, WorkspaceManager};
    /// # let manager = WorkspaceManager::new(MemoryStore::new().into());
    /// use agent_core::ErrorKind;
    /// use agent_core::model::Patch;
    ///
    /// let workspace = manager.create(NewWorkspace::new("Support")).await?.id;
    /// let session = manager.new_session(workspace, &Patch::new().with_label("customer", "4711")).await?;
    /// // Only a deleted session can be purged.
    /// assert_eq!(*manager.purge(session.id).await.unwrap_err().kind(), ErrorKind::InvalidInput);
    ///
    /// manager.delete_session(session.id).await?;
    /// assert_eq!(manager.purge(session.id).await?.events, 2);
    /// assert_eq!(manager.purge(session.id).await?.events, 0);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// `NotFound`; `InvalidInput` if the session is not deleted; `Corrupt` if damaged data may be a fork that reads it.
    pub async fn purge(&self, id: SessionId) -> Result<Purged> {
        let sessions = &*self.storage.sessions;
        let session = sessions.load(id).await?;
        if session.status.state != SessionState::Deleted {
            let text = format!("session {id} is {}; delete it before it is purged", session.status);
            return Err(Error::invalid(text));
        }
        let former = self.superseded(&session, usize::MAX).await?;
        let mut purged = sessions.purge(Purge::new(id, session.head)).await?;
        for session in former.iter().take_while(|session| session.status.state == SessionState::Deleted) {
            let more = sessions.purge(Purge::new(session.id, session.head)).await?;
            purged.events += more.events;
            purged.rewrite_pending |= more.rewrite_pending;
        }
        Ok(purged)
    }

    /// Replaces the session `id` by a new, empty one. Returns the record of the new session.
    ///
    /// History, notes, inputs, timers and questions stay with the old session, which is archived or deleted. An active
    /// run in it is fenced. If the old session was the workspace's main session, the new one becomes the main session.
    ///
    /// The replacement is a single step: a caller that opens the workspace gets the old session or the new one. If the
    /// future is dropped, or after an error or a crash, call it again.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/../agent-runtime/doc/workspaces.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # let (storage, _, manager) = two_storages();
    /// use agent_core::state::SessionState;
    /// use agent_runtime::retention::OldSessionAction;
    ///
    /// let workspace = manager.create(NewWorkspace::new("Support")).await?;
    /// let old = manager.main_session(&workspace).await?;
    /// let new = manager.reset(old.id, OldSessionAction::Archive).await?;
    /// assert_ne!(new.id, old.id);
    /// assert_eq!(manager.load(workspace.id).await?.main_session, new.id);
    /// assert_eq!(storage.sessions.load(old.id).await?.status.state, SessionState::Archived);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// `NotFound`; `Deleted` if the session was deleted; `InvalidInput` for a hidden session; `Conflict` if the session
    /// keeps changing meanwhile.
    #[instrument(name = "reset", skip(self))]
    pub async fn reset(&self, id: SessionId, former: OldSessionAction) -> Result<Arc<SessionRecord>> {
        let old = self.storage.sessions.load(id).await?;
        if old.status.state == SessionState::Deleted {
            return Err(Error::deleted(format!("session {id} was deleted; create a new session instead")));
        }
        refuse_hidden(&old)?;
        if former == OldSessionAction::Archive && self.is_main_of_owner(&old) {
            return Err(Error::invalid(format!(
                "session {id} is the main session of its owner in a workspace without an owner; it can only be deleted"
            )));
        }
        let mut workspace = self.load(old.workspace).await?;
        let was_main = workspace.main_session == id;
        if was_main {
            let next = self.storage.effects().new_session_id();
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

    /// Refuses work on the whole tenant with the storage of an owner.
    fn refuse_owner(&self, what: &str) -> Result<()> {
        match self.storage.owner() {
            None => Ok(()),
            Some(_) => Err(Error::new(
                ErrorKind::Denied,
                format!("{what} is not for the storage of an owner; use that of the tenant"),
            )),
        }
    }

    /// Archives or deletes the session that was replaced.
    async fn set_down(&self, id: SessionId, former: OldSessionAction) -> Result<()> {
        let mut attempts = Attempts::at_most(ATTEMPTS);
        loop {
            let now = self.storage.sessions.load(id).await?;
            let mut commit = self.storage.sessions.seal_unchanged(id, now.head);
            commit = match former {
                OldSessionAction::Delete => commit.with_trigger(Trigger::Delete(Reason::UserDeleted)),
                OldSessionAction::Archive => {
                    if now.status.state == SessionState::Running {
                        commit = commit.with_trigger(Trigger::ForceSuspend(Reason::UserPaused));
                    }
                    commit.with_trigger(Trigger::Archive)
                }
            };
            if let Some(ended) = attempts.outcome(self.storage.sessions.commit_with_retry(commit).await) {
                return ended.map(drop);
            }
        }
    }
}
