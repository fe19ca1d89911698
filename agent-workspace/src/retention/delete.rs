//! Deletion of a workspace across three independent stores.
//!
//! The record is marked first, then everything else is removed, then the record. A repeated deletion therefore finds
//! what is left to remove, and no reader takes an incomplete workspace for a complete one.

use std::sync::Arc;

use futures::TryStreamExt;
use serde::Serialize;
use tracing::{instrument, warn};

use crate::manager::{ATTEMPTS, WorkspaceManager};
use crate::retention::{Retained, has_events, is_unread};
use agent_core::commit::Trigger;
use agent_core::model::{Workspace, WorkspaceStatus};
use agent_core::session::SessionRecord;
use agent_core::state::{Reason, SessionState};
use agent_core::store::{HiddenSession, NeededBy, PAGE_MAX, Purge, SessionQuery, needed_by_forks, pages};
use agent_core::{Error, ErrorKind, Result, SessionId, SessionStoreExt, WorkspaceId, WorkspaceStoreExt};

/// Field of a workspace's record that marks a deletion by gc, as opposed to a requested one.
pub(super) const COLLECTED: &str = "collected";

/// Result of the deletion of a workspace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Deletion {
    /// Number of sessions that this call deleted.
    pub sessions: u64,
    /// Number of events that this call removed.
    pub events: u64,
    /// Number of devices that this call unbound.
    pub devices: u64,
    /// Sessions whose events were kept in part, because sessions outside the workspace need them.
    pub retained: Vec<Retained<SessionId>>,
    /// True if copies of removed data may be left in the store, until
    /// [`Maintenance::maintain`](agent_core::store::Maintenance::maintain) rewrites it; see
    /// [`Purged::rewrite_pending`](agent_core::store::Purged::rewrite_pending).
    pub rewrite_pending: bool,
}

/// Refuses to delete a single hidden session. A hidden session that is already deleted is accepted.
///
/// # Errors
///
/// `InvalidInput` for a hidden session that is not deleted.
pub fn refuse_hidden(session: &SessionRecord) -> Result<()> {
    match session.status.state {
        SessionState::Deleted => Ok(()),
        _ => HiddenSession::refuse(session, "cannot be deleted by itself"),
    }
}

impl WorkspaceManager {
    /// Deletes a session and returns its tombstone.
    ///
    /// The id cannot be used again, an active run in the session is fenced, and the session's events stay until it is
    /// [purged](Self::purge). The sessions that it has [superseded](Self::superseded) are deleted before it. A damaged session is deleted,
    /// too, for which the list of archived sessions is read; its damaged bytes stay until the purge. The call can be repeated.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # use agent_core::MemoryStore;
    /// # use agent_runtime::{NewWorkspace, WorkspaceManager};
    /// # let manager = WorkspaceManager::new(MemoryStore::new().into());
    /// use agent_core::model::Patch;
    /// use agent_core::state::SessionState;
    ///
    /// let workspace = manager.create(NewWorkspace::new("Support")).await?;
    /// let session = manager.new_session(workspace.id, &Patch::new().with_label("customer", "4711")).await?;
    /// let tombstone = manager.delete_session(session.id).await?;
    /// assert_eq!(tombstone.status.state, SessionState::Deleted);
    /// assert_eq!(manager.delete_session(session.id).await?.head, tombstone.head);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// `NotFound`; `InvalidInput` for a [hidden session](HiddenSession), which is deleted with its workspace;
    /// `Unsupported` if the session is damaged and its store cannot delete a damaged session.
    #[instrument(name = "delete_session", skip(self))]
    pub async fn delete_session(&self, id: SessionId) -> Result<Arc<SessionRecord>> {
        let (session, former) = self.with_superseded(id).await?;
        self.delete_all(id, session.as_deref(), &former).await
    }

    /// Deletes a session, and before it those that it has superseded, the oldest first.
    pub(super) async fn delete_all(
        &self,
        id: SessionId,
        session: Option<&SessionRecord>,
        former: &[Arc<SessionRecord>],
    ) -> Result<Arc<SessionRecord>> {
        // A hidden session that cannot be read may be deleted.
        session.map_or(Ok(()), refuse_hidden)?;
        for former in former.iter().rev() {
            self.delete_one(former.id).await?;
        }
        self.delete_one(id).await
    }

    /// Deletes a session, also a hidden or a damaged one.
    pub(crate) async fn delete_one(&self, id: SessionId) -> Result<Arc<SessionRecord>> {
        let (sessions, reason) = (&self.storage.sessions, Reason::UserDeleted);
        match sessions.trigger(id, Trigger::Delete(reason)).await {
            Err(error) if is_unread(&error) => {
                let at = self.storage.effects().now();
                let deleted = sessions.maintenance().delete_damaged(id, at, reason).await;
                match deleted {
                    // It can be read, and who calls may not delete it.
                    Err(refused)
                        if *error.kind() == ErrorKind::Denied
                            && matches!(refused.kind(), ErrorKind::InvalidInput | ErrorKind::Unsupported) =>
                    {
                        Err(error)
                    }
                    deleted => {
                        warn!(session = %id, %error, "deleting a damaged session");
                        deleted
                    }
                }
            }
            deleted => deleted.map(|done| done.session),
        }
    }

    /// Deletes a workspace permanently, with its device bindings, sessions, configuration and areas.
    ///
    /// Sessions are purged, too; tombstones remain. Active runs are fenced. Returns the numbers of what this call removed.
    ///
    /// A crash or an error at any step leaves a marked workspace, which cannot be opened. Another call, or
    /// [`gc`](Self::gc), continues the deletion. The call can be repeated.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/../agent-runtime/doc/echo.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # let manager = WorkspaceManager::new(MemoryStore::new().into());
    /// let resolved = manager.resolve(&"laptop".parse()?).await?;
    /// manager.main_session(&resolved.workspace).await?;
    ///
    /// let deletion = manager.delete(resolved.workspace.id).await?;
    /// assert_eq!((deletion.sessions, deletion.devices), (1, 1));
    /// let error = manager.load(resolved.workspace.id).await.unwrap_err();
    /// assert_eq!(*error.kind(), ErrorKind::Deleted);
    /// # Ok(()) }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the deletion may be incomplete; call it again.
    ///
    /// # Errors
    ///
    /// `NotFound`; `InvalidInput` for the workspace `default`, which is never deleted; `Unsupported` if another version of
    /// this library wrote one of its sessions in a form that this one does not read, and nothing is changed then; `Corrupt`
    /// if one of its sessions cannot be read: [delete](Self::delete_session) that session, then delete the workspace again.
    /// Errors of the stores, unchanged.
    #[instrument(name = "delete_workspace", skip(self))]
    pub async fn delete(&self, id: WorkspaceId) -> Result<Deletion> {
        if id == WorkspaceId::DEFAULT {
            return Err(Error::invalid(
                "the workspace default cannot be deleted; delete its sessions instead",
            ));
        }
        self.refuse_unsupported(id).await?;
        match self.mark(id).await {
            // Remains of an earlier deletion are removed, too. An unreadable record cannot be marked and needs no mark,
            // because its workspace cannot be opened.
            Err(error) if !matches!(error.kind(), ErrorKind::Deleted | ErrorKind::Corrupt) => Err(error),
            _ => self.finish_deletion(id, Reason::UserDeleted).await,
        }
    }

    /// Refuses to begin what could not be completed: a session of another format can be neither read nor deleted.
    async fn refuse_unsupported(&self, id: WorkspaceId) -> Result<()> {
        let sessions = &*self.storage.sessions;
        let mut pages = pages(living(id).with_limit(PAGE_MAX), |query| sessions.list(query));
        while let Some(page) = pages.try_next().await? {
            if let Some(other) = page.damaged.iter().find(|damage| damage.is_unsupported) {
                return Err(Error::unsupported(format!(
                    "workspace {id} is not deleted, and nothing was changed: {other}; delete it with the version that \
                     wrote that session"
                )));
            }
        }
        Ok(())
    }

    /// Marks a workspace as being deleted on request.
    async fn mark(&self, id: WorkspaceId) -> Result<Workspace> {
        let mark = |workspace: &mut Workspace| {
            workspace.status = WorkspaceStatus::Deleting;
            workspace.extra.remove(COLLECTED);
        };
        self.change(id, mark).await
    }

    /// Removes everything that belongs to a marked workspace, and then its record.
    pub(super) async fn finish_deletion(&self, id: WorkspaceId, reason: Reason) -> Result<Deletion> {
        let mut done =
            Deletion { devices: self.storage.bindings.unbind_workspace(id).await?, ..Deletion::default() };
        done.sessions = self.delete_sessions(id, reason).await?;
        self.purge_sessions(id, &mut done).await?;
        // A device that was bound meanwhile is unbound; a device that is bound after this finds the tombstone.
        done.devices += self.storage.bindings.unbind_workspace(id).await?;
        self.storage.workspaces.delete(id).await?;
        Ok(done)
    }

    /// Deletes the sessions of a workspace until a list shows none.
    async fn delete_sessions(&self, id: WorkspaceId, reason: Reason) -> Result<u64> {
        let mut deleted = 0;
        loop {
            let page = self.storage.sessions.list(living(id).with_limit(PAGE_MAX)).await?;
            for session in &page.items {
                let commit = self.storage.sessions.seal(session.id, session.head);
                self.storage.sessions.commit_with_retry(commit.with_trigger(Trigger::Delete(reason))).await?;
                deleted += 1;
            }
            if let Some(damage) = page.damaged.first() {
                return Err(Error::corrupt(format!(
                    "workspace {id} is only partly deleted: {damage}; delete that session by itself, then delete the workspace again"
                )));
            }
            if page.items.is_empty() {
                return Ok(deleted);
            }
        }
    }

    /// Purges the deleted sessions of a workspace.
    async fn purge_sessions(&self, id: WorkspaceId, done: &mut Deletion) -> Result<()> {
        let sessions = &*self.storage.sessions;
        let deleted =
            SessionQuery::new().with_workspace(id).with_states([SessionState::Deleted]).with_limit(PAGE_MAX);
        let mut pages = pages(deleted, |query| sessions.list(query));
        while let Some(page) = pages.try_next().await? {
            for item in &page.items {
                let session = sessions.load(item.id).await?;
                match sessions.purge(Purge::new(session.id, session.head)).await {
                    Ok(purged) => {
                        done.events += purged.events;
                        done.rewrite_pending |= purged.rewrite_pending;
                    }
                    Err(error) => {
                        // If damaged data outside may read the events, they are kept and reported.
                        let by = match *error.kind() {
                            ErrorKind::Corrupt => needed_by_forks(sessions, &session).await?.by,
                            _ => None,
                        };
                        let Some(by @ NeededBy::Unknown(_)) = by else { return Err(error) };
                        done.retained.push(Retained::new(item.id, by.into()));
                        continue;
                    }
                }
                // Usually no event is left, and no search for forks is needed.
                if has_events(sessions, session.id).await? {
                    let need = needed_by_forks(sessions, &session).await?;
                    done.retained.extend(need.by.map(|by| Retained::new(item.id, by.into())));
                }
            }
        }
        Ok(())
    }

    /// Removes the mark of gc, unless a deletion was requested meanwhile.
    pub(super) async fn unmark(&self, id: WorkspaceId) -> Result<()> {
        for _ in 0..ATTEMPTS {
            let mut workspace = self.storage.workspaces.load(id).await?;
            if workspace.extra.remove(COLLECTED).is_none() {
                return Ok(());
            }
            workspace.status = WorkspaceStatus::Active;
            match self.storage.workspaces.update(workspace).await {
                Err(error) if matches!(error.kind(), ErrorKind::Conflict { .. }) => {}
                other => return other.map(drop),
            }
        }
        Err(Error::unavailable(format!("workspace {id} keeps changing; try again")))
    }
}

/// Returns a query for the sessions of a workspace that are not deleted.
pub(super) fn living(id: WorkspaceId) -> SessionQuery {
    let living = SessionState::ALL.iter().copied().filter(|state| *state != SessionState::Deleted);
    SessionQuery::new().with_workspace(id).with_states(living)
}
