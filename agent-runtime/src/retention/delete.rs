//! The deletion of a workspace, across three stores that know nothing of each other.
//!
//! Intent first: the record is marked, then everything else goes, then the record. So whoever repeats it finds what is
//! left to do, and nobody finds a workspace that looks whole and is not.

use std::sync::Arc;

use futures::TryStreamExt;
use tracing::{instrument, warn};

use crate::retention::Kept;
use crate::workspaces::{ATTEMPTS, WorkspaceManager};
use agent_core::commit::{Commit, Trigger};
use agent_core::model::{Workspace, WorkspaceStatus};
use agent_core::session::Session;
use agent_core::state::{Reason, SessionState};
use agent_core::store::{NeededBy, PAGE_MAX, Purge, ReadEvents, SessionQuery, Shelf, needed_by_forks, pages};
use agent_core::{Error, ErrorKind, Result, SessionId, SessionStoreExt, WorkspaceId, WorkspaceStoreExt};

/// The field of a workspace's record by which a deletion that gc began is told from one that was asked for.
pub(super) const COLLECTED: &str = "collected";

/// What the deletion of a workspace came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Deletion {
    /// How many sessions were deleted by this call.
    pub sessions: u64,
    /// How many events were removed by this call.
    pub events: u64,
    /// How many devices were unbound by this call.
    pub devices: u64,
    /// Sessions of which events stay, since something outside the workspace needs them.
    pub kept: Vec<Kept<SessionId>>,
}

/// Refuses to delete a shelf by itself. One that is deleted already stays that.
pub(crate) fn refuse_shelf(session: &Session) -> Result<()> {
    match session.status.state {
        SessionState::Deleted => Ok(()),
        _ => Shelf::refuse(session, "would be gone for good"),
    }
}

impl WorkspaceManager {
    /// Deletes a session and returns its tombstone. Its id is not used again, a run that goes on in it is fenced off, and its
    /// events stay until it is [purged](Self::purge). A damaged session is deleted as well, with its damaged bytes kept until
    /// then. Doing it twice is fine.
    ///
    /// # Errors
    ///
    /// `NotFound`; `InvalidInput` for a [shelf](Shelf), which goes with its workspace; `Unsupported` if the session is damaged
    /// and its store cannot delete such a one.
    #[instrument(name = "delete_session", skip(self))]
    pub async fn delete_session(&self, id: SessionId) -> Result<Arc<Session>> {
        let sessions = &*self.storage.sessions;
        let reason = Reason::UserDeleted;
        match sessions.load(id).await {
            // A shelf that cannot be read is of no use to anybody.
            Err(error) if *error.kind() == ErrorKind::Corrupt => {}
            session => refuse_shelf(&*session?)?,
        }
        match sessions.trigger(&self.effects, id, Trigger::Delete(reason)).await {
            Err(error) if *error.kind() == ErrorKind::Corrupt => {
                warn!(session = %id, %error, "a damaged session is deleted");
                sessions.delete_damaged(id, self.effects.now(), reason).await
            }
            deleted => deleted.map(|done| done.session),
        }
    }

    /// Deletes a workspace for good: its devices are unbound, its sessions deleted and purged, its configuration and
    /// areas removed; tombstones stay. A run that goes on in it is fenced off.
    ///
    /// A crash, or an error, at any step leaves a workspace that is marked: nobody can open it, and calling this again,
    /// or [`gc`](Self::gc), goes on from there. Doing it twice is fine.
    ///
    /// # Errors
    ///
    /// `NotFound`; `InvalidInput` for the workspace `default`, which stays for ever; `Corrupt` where a session of it
    /// cannot be read: [delete](Self::delete_session) that, then delete again. Any other error of the stores, as it is.
    #[instrument(name = "delete_workspace", skip(self))]
    pub async fn delete(&self, id: WorkspaceId) -> Result<Deletion> {
        if id == WorkspaceId::DEFAULT {
            return Err(Error::invalid(
                "the workspace default is never deleted; delete its sessions, or reset its main session",
            ));
        }
        match self.mark(id).await {
            // What is left of an earlier deletion is removed all the same; a record that cannot be read cannot be
            // marked, and needs no mark, since nobody can open its workspace.
            Err(error) if !matches!(error.kind(), ErrorKind::Deleted | ErrorKind::Corrupt) => Err(error),
            _ => self.finish_deletion(id, Reason::UserDeleted).await,
        }
    }

    /// Marks a workspace as being deleted because somebody asked for it.
    async fn mark(&self, id: WorkspaceId) -> Result<Workspace> {
        let mark = |workspace: &mut Workspace| {
            workspace.status = WorkspaceStatus::Deleting;
            workspace.extra.remove(COLLECTED);
        };
        self.change(id, mark).await
    }

    /// Removes what belongs to a workspace that is marked, and then itself.
    pub(super) async fn finish_deletion(&self, id: WorkspaceId, reason: Reason) -> Result<Deletion> {
        let mut done =
            Deletion { devices: self.storage.bindings.unbind_workspace(id).await?, ..Deletion::default() };
        done.sessions = self.delete_sessions(id, reason).await?;
        self.purge_sessions(id, &mut done).await?;
        // A device that was bound meanwhile is free again; one that is bound after this finds the tombstone.
        done.devices += self.storage.bindings.unbind_workspace(id).await?;
        self.storage.workspaces.delete(id).await?;
        Ok(done)
    }

    /// Deletes the sessions of a workspace until a list shows none.
    async fn delete_sessions(&self, id: WorkspaceId, reason: Reason) -> Result<u64> {
        let mut deleted = 0;
        loop {
            let page = self.storage.sessions.list(living(id).limit(PAGE_MAX)).await?;
            for session in &page.items {
                let commit = Commit::seal(&self.effects, session.id, session.head);
                self.storage.sessions.settle(commit.trigger(Trigger::Delete(reason))).await?;
                deleted += 1;
            }
            if let Some(damage) = page.damaged.first() {
                return Err(Error::corrupt(format!(
                    "workspace {id} is marked and not yet gone, since {damage}; delete that session by itself, then delete again"
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
        let deleted = SessionQuery::new().workspace(id).states([SessionState::Deleted]).limit(PAGE_MAX);
        let mut pages = pages(deleted, |query| sessions.list(query));
        while let Some(page) = pages.try_next().await? {
            for item in &page.items {
                let session = sessions.load(item.id).await?;
                match sessions.purge(Purge::new(session.id, session.head)).await {
                    Ok(purged) => done.events += purged.events,
                    Err(error) => {
                        // Where something outside is damaged, which may read it, it stays, and that is said.
                        let by = match *error.kind() {
                            ErrorKind::Corrupt => needed_by_forks(sessions, &session).await?.by,
                            _ => None,
                        };
                        let Some(by @ NeededBy::Unknown(_)) = by else { return Err(error) };
                        done.kept.push(Kept::new(item.id, by.into()));
                        continue;
                    }
                }
                // Mostly nothing is left, and then there is nobody to look for.
                let left = match sessions.read(session.id, ReadEvents::last(1)).await {
                    Err(error) if *error.kind() == ErrorKind::Corrupt => true,
                    page => !page?.events.is_empty(),
                };
                if left {
                    let need = needed_by_forks(sessions, &session).await?;
                    done.kept.extend(need.by.map(|by| Kept::new(item.id, by.into())));
                }
            }
        }
        Ok(())
    }

    /// Takes the mark of gc away again, unless somebody asked for the deletion meanwhile.
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
        Err(Error::new(ErrorKind::Unavailable, format!("workspace {id} keeps changing; try again")))
    }
}

/// The sessions of a workspace that are not deleted.
pub(super) fn living(id: WorkspaceId) -> SessionQuery {
    let living = SessionState::ALL.iter().copied().filter(|state| *state != SessionState::Deleted);
    SessionQuery::new().workspace(id).states(living)
}
