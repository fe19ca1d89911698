//! Workspaces across the stores: which one a device belongs to, and which session is its main one.

use std::sync::Arc;

use tracing::warn;

use agent_core::clock::Effects;
use agent_core::commit::{Commit, Expect, Trigger};
use agent_core::json::RawFields;
use agent_core::model::{Actor, Patch, Workspace, WorkspaceStatus};
use agent_core::session::{NewSession, Session};
use agent_core::state::{Reason, SessionState};
use agent_core::store::{Binding, BindingQuery, Page, Purge, Shelf, WorkspaceQuery};
use agent_core::{
    DeviceId, Error, ErrorKind, Result, SessionId, SessionStoreExt, Storage, Timestamp, WorkspaceId,
    WorkspaceStoreExt,
};

/// How often a change that somebody else was quicker with is tried again.
pub(crate) const ATTEMPTS: usize = 8;

/// Finds, creates and changes workspaces. Cheap to clone.
#[derive(Clone, Debug)]
pub struct WorkspaceManager {
    pub(crate) storage: Storage,
    pub(crate) effects: Effects,
}

/// The workspace of a device, and how it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Resolved {
    /// The workspace.
    pub workspace: Workspace,
    /// How it was found.
    pub how: Resolution,
}

/// How the workspace of a device was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Resolution {
    /// The device was bound to it, and it was there.
    Found,
    /// The device was bound to none; now it is bound to this one, which is there.
    Created,
    /// The device was bound to it, but it was not there: it was created under the id that was bound.
    Recreated,
    /// The device was bound to one that was deleted, and is now bound to a new one.
    Rebound(WorkspaceId),
}

/// A workspace that is to be created.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct NewWorkspace {
    /// Its id; a new one unless given.
    pub id: Option<WorkspaceId>,
    /// What people call it; `workspace` unless given.
    pub name: Option<String>,
    /// The provider that its sessions ask, by its name.
    pub provider: Option<String>,
    /// What it is for.
    pub description: Option<String>,
    /// Who creates it.
    pub creator: Option<Actor>,
    /// The host's own.
    pub settings: RawFields,
}

impl NewWorkspace {
    /// A workspace of this name.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: Some(name.into()), ..Self::default() }
    }

    /// Sets its id.
    #[must_use]
    pub fn with_id(mut self, id: WorkspaceId) -> Self {
        self.id = Some(id);
        self
    }

    /// Sets the provider.
    #[must_use]
    pub fn with_provider(mut self, provider: impl Into<String>) -> Self {
        self.provider = Some(provider.into());
        self
    }

    /// Sets what it is for.
    #[must_use]
    pub fn with_description(mut self, description: impl Into<String>) -> Self {
        self.description = Some(description.into());
        self
    }

    /// Sets who creates it.
    #[must_use]
    pub fn with_creator(mut self, creator: Actor) -> Self {
        self.creator = Some(creator);
        self
    }
}

impl WorkspaceManager {
    /// Manages the workspaces of these stores.
    pub const fn new(storage: Storage, effects: Effects) -> Self {
        Self { storage, effects }
    }

    /// The workspace of a device; of a device that is bound to none, a new one.
    ///
    /// It binds first, then makes sure that the bound workspace exists. So of any number of first contacts there is
    /// one winner and no orphan, and after a crash in between the next call finishes the work. A device whose
    /// workspace was deleted is bound anew.
    ///
    /// # Errors
    ///
    /// Any error of the stores, as it is: only a proven absence leads to a new workspace. `Busy` while the workspace
    /// is being deleted.
    pub async fn resolve(&self, device: &DeviceId) -> Result<Resolved> {
        let bound = self.storage.bindings.resolve(device).await?;
        let (mut id, mut how) = match bound {
            Some(id) => (id, Resolution::Found),
            None => {
                let id = self.effects.new_workspace_id();
                (self.storage.bindings.bind(device, id, Expect::Absent).await?, Resolution::Created)
            }
        };
        for _ in 0..ATTEMPTS {
            match self.storage.workspaces.load(id).await {
                Ok(workspace) if workspace.status == WorkspaceStatus::Deleting => {
                    return Err(being_deleted(id));
                }
                Ok(workspace) => return Ok(Resolved { workspace, how }),
                Err(error) if *error.kind() == ErrorKind::NotFound => {
                    if how == Resolution::Found {
                        warn!(%device, workspace = %id, "the bound workspace was not there; it is created again");
                        how = Resolution::Recreated;
                    }
                    self.create_if_absent(NewWorkspace::default().with_id(id)).await?;
                }
                Err(error) if *error.kind() == ErrorKind::Deleted => {
                    let (old, new) = (id, self.effects.new_workspace_id());
                    warn!(%device, workspace = %old, "the bound workspace was deleted; the device is bound anew");
                    how = Resolution::Rebound(old);
                    id = match self.storage.bindings.bind(device, new, Expect::Is(old)).await {
                        Ok(id) => id,
                        Err(error) if matches!(error.kind(), ErrorKind::Conflict { .. }) => {
                            self.storage.bindings.bind(device, new, Expect::Absent).await?
                        }
                        Err(error) => return Err(error),
                    };
                }
                Err(error) => return Err(error),
            }
        }
        Err(Error::new(
            ErrorKind::Unavailable,
            format!("the workspace of device {device} keeps changing; try again"),
        ))
    }

    /// The workspace `default`, created where it is not there.
    ///
    /// # Errors
    ///
    /// Those of the store; `Deleted` where it was deleted.
    pub async fn default_workspace(&self) -> Result<Workspace> {
        match self.storage.workspaces.load(WorkspaceId::DEFAULT).await {
            Err(error) if *error.kind() == ErrorKind::NotFound => {
                self.create_if_absent(NewWorkspace::new("default").with_id(WorkspaceId::DEFAULT)).await?;
                self.storage.workspaces.load(WorkspaceId::DEFAULT).await
            }
            other => other,
        }
    }

    /// Creates a workspace.
    ///
    /// # Errors
    ///
    /// `Conflict` where its id exists, and nothing is changed; `Deleted` where it did.
    pub async fn create(&self, new: NewWorkspace) -> Result<Workspace> {
        let id = new.id.unwrap_or_else(|| self.effects.new_workspace_id());
        let name = new.name.unwrap_or_else(|| "workspace".to_owned());
        let mut workspace = Workspace::new(id, name, self.effects.new_session_id(), self.effects.now());
        workspace.provider = new.provider;
        workspace.description = new.description;
        workspace.creator = new.creator;
        workspace.settings = new.settings;
        self.storage.workspaces.create(workspace).await
    }

    async fn create_if_absent(&self, new: NewWorkspace) -> Result<()> {
        match self.create(new).await {
            Err(error) if !matches!(error.kind(), ErrorKind::Conflict { .. }) => Err(error),
            _ => Ok(()),
        }
    }

    /// The record of a workspace.
    ///
    /// # Errors
    ///
    /// `NotFound`, `Deleted`, `Corrupt`.
    pub async fn load(&self, id: WorkspaceId) -> Result<Workspace> {
        self.storage.workspaces.load(id).await
    }

    /// Workspaces by last access, the latest first.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a cursor of another query.
    pub async fn list(&self, query: WorkspaceQuery) -> Result<Page<Workspace>> {
        self.storage.workspaces.list(query).await
    }

    /// Notes that a workspace is used now.
    ///
    /// # Errors
    ///
    /// `NotFound`, `Deleted`.
    pub async fn touch(&self, id: WorkspaceId) -> Result<()> {
        let now: Timestamp = self.effects.now();
        self.storage.workspaces.touch(id, now).await
    }

    /// Changes a workspace's record. Where somebody else changes it at the same time, `change` is applied again to
    /// what they left. Its id, its status, its main session and its times stay as they are.
    ///
    /// # Errors
    ///
    /// `NotFound`, `Deleted`; `InvalidInput`, `LimitExceeded` for what the change comes to.
    pub async fn update(
        &self,
        id: WorkspaceId,
        mut change: impl FnMut(&mut Workspace) + Send,
    ) -> Result<Workspace> {
        let kept = |workspace: &mut Workspace| {
            let (main, status) = (workspace.main_session, workspace.status);
            change(workspace);
            (workspace.main_session, workspace.status) = (main, status);
        };
        self.change(id, kept).await
    }

    pub(crate) async fn change(
        &self,
        id: WorkspaceId,
        mut change: impl FnMut(&mut Workspace) + Send,
    ) -> Result<Workspace> {
        let mut last = None;
        for _ in 0..ATTEMPTS {
            let now = self.storage.workspaces.load(id).await?;
            let mut next = now.clone();
            change(&mut next);
            next.id = now.id;
            next.created_at = now.created_at;
            next.last_accessed = now.last_accessed;
            next.revision = now.revision;
            match self.storage.workspaces.update(next).await {
                Err(error) if matches!(error.kind(), ErrorKind::Conflict { .. }) => last = Some(error),
                other => return other,
            }
        }
        Err(last.unwrap_or_else(|| Error::invalid(format!("workspace {id} was not changed; try again"))))
    }

    /// Changes what people call a workspace.
    ///
    /// # Errors
    ///
    /// As for [`update`](Self::update).
    pub async fn rename(&self, id: WorkspaceId, name: &str) -> Result<Workspace> {
        self.update(id, |workspace| name.clone_into(&mut workspace.name)).await
    }

    /// Binds a device to a workspace that exists, whatever it was bound to.
    ///
    /// # Errors
    ///
    /// `NotFound`, `Deleted` for the workspace; `Busy` while it is being deleted.
    pub async fn bind(&self, device: &DeviceId, to: WorkspaceId) -> Result<()> {
        self.load_in_use(to).await?;
        self.storage.bindings.bind(device, to, Expect::Any).await.map(drop)
    }

    /// Unbinds a device; returns whether it was bound.
    ///
    /// # Errors
    ///
    /// Those of the store.
    pub async fn unbind(&self, device: &DeviceId) -> Result<bool> {
        self.storage.bindings.unbind(device).await
    }

    /// Bindings in the order of the devices' bytes; of one workspace, where the query names one.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a cursor of another query.
    pub async fn bindings(&self, query: BindingQuery) -> Result<Page<Binding>> {
        self.storage.bindings.list(query).await
    }

    /// The main session of a workspace, created where it is not there yet. Where it was deleted, a new one takes its
    /// place, so that the workspace stays of use.
    ///
    /// # Errors
    ///
    /// Those of the store; `Deleted` or `Busy` where the workspace was deleted, or is being deleted, and the session
    /// would have been new; `Corrupt` if it is damaged: `agent-admin` salvages what can be read of it, and
    /// [`set_main_session`](Self::set_main_session) puts that in its place.
    pub async fn main_session(&self, workspace: &Workspace) -> Result<Arc<Session>> {
        let (id, mut main) = (workspace.id, workspace.main_session);
        for _ in 0..ATTEMPTS {
            let session = match self.session_or_new(NewSession::new(main, id)).await {
                Err(error) if *error.kind() == ErrorKind::Corrupt => {
                    return Err(Error::corrupt(format!(
                        "the main session {main} of workspace {id} is damaged; run `session salvage {main} --main` (`agent_admin::salvage`, then `set_main_session`), or make another session the main one"
                    ))
                    .with_source(error));
                }
                session => session?,
            };
            if session.status.state != SessionState::Deleted {
                return Ok(session);
            }
            warn!(workspace = %id, session = %main, "the main session was deleted; a new one takes its place");
            let next = self.effects.new_session_id();
            let replace = |workspace: &mut Workspace| {
                if workspace.main_session == main {
                    workspace.main_session = next;
                }
            };
            main = self.change(id, replace).await?.main_session;
        }
        Err(Error::new(
            ErrorKind::Unavailable,
            format!("the main session of workspace {id} keeps changing; try again"),
        ))
    }

    async fn session_or_new(&self, new: NewSession) -> Result<Arc<Session>> {
        let id = new.id;
        match self.storage.sessions.load(id).await {
            Err(error) if *error.kind() == ErrorKind::NotFound => {}
            other => return other,
        }
        match self.create_session(new).await {
            Err(error) if matches!(error.kind(), ErrorKind::Conflict { .. }) => {
                self.storage.sessions.load(id).await
            }
            other => other,
        }
    }

    /// Creates a session, then looks whether its workspace is still in use. A deletion marks the workspace, then looks
    /// for sessions: so one of the two sees the other, and nothing new stays in a workspace that is deleted.
    async fn create_session(&self, new: NewSession) -> Result<Arc<Session>> {
        let workspace = new.created.workspace;
        let session = self.storage.sessions.create(&self.effects, new).await?;
        match self.load_in_use(workspace).await {
            Err(error) if matches!(error.kind(), ErrorKind::Deleted | ErrorKind::Busy { .. }) => {
                let delete = Commit::seal(&self.effects, session.id, session.head)
                    .expect(Expect::Is(session.head))
                    .trigger(Trigger::Delete(Reason::Collected));
                // Where somebody writes to it already, it is the deletion's to decide.
                let deleted = self.storage.sessions.settle(delete).await;
                let purged = match deleted {
                    Ok(done) => {
                        let purge = Purge::new(session.id, done.session.head);
                        self.storage.sessions.purge(purge).await.map(drop)
                    }
                    Err(left) => Err(left),
                };
                if let Err(left) = purged {
                    warn!(session = %session.id, error = %left, "a session of a deleted workspace is left for gc");
                }
                Err(error)
            }
            // A host may keep sessions of workspaces that it never stored.
            Err(error) if *error.kind() != ErrorKind::NotFound => Err(error),
            _ => Ok(session),
        }
    }

    /// The record of a workspace that is not being deleted.
    async fn load_in_use(&self, id: WorkspaceId) -> Result<Workspace> {
        let workspace = self.storage.workspaces.load(id).await?;
        if workspace.status == WorkspaceStatus::Deleting {
            return Err(being_deleted(id));
        }
        Ok(workspace)
    }

    /// Makes another session of a workspace its main one.
    ///
    /// # Errors
    ///
    /// `NotFound`, `Deleted`; `InvalidInput` for a session of another workspace, and for a [shelf](agent_core::store::Shelf).
    pub async fn set_main_session(&self, id: WorkspaceId, session: SessionId) -> Result<Workspace> {
        let record = self.storage.sessions.load(session).await?;
        if record.status.state == SessionState::Deleted {
            return Err(Error::new(ErrorKind::Deleted, format!("session {session} was deleted")));
        }
        if record.workspace != id {
            return Err(Error::invalid(format!(
                "session {session} belongs to workspace {}, not to {id}",
                record.workspace
            )));
        }
        Shelf::refuse(&record, "is no conversation")?;
        self.change(id, |workspace| workspace.main_session = session).await
    }

    /// A further session in a workspace that exists.
    ///
    /// # Errors
    ///
    /// `NotFound`, `Deleted` for the workspace; `Busy` while it is being deleted.
    pub async fn new_session(&self, workspace: WorkspaceId, patch: &Patch) -> Result<Arc<Session>> {
        self.load_in_use(workspace).await?;
        self.create_session(NewSession::new(self.effects.new_session_id(), workspace).with(patch)).await
    }
}

fn being_deleted(id: WorkspaceId) -> Error {
    Error::new(
        ErrorKind::Busy { holder: "deletion".to_owned() },
        format!(
            "workspace {id} is being deleted; try again when it is gone, or finish a deletion that was cut off by deleting it again or by gc"
        ),
    )
}
