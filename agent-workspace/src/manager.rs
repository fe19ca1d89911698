//! Workspaces across the stores: the workspace of a device, and the main session of a workspace.

use std::sync::Arc;

use futures::TryStreamExt;
use tracing::warn;

use crate::contested::Attempts;
use agent_core::commit::{Precondition, Trigger};
use agent_core::json::RawFields;
use agent_core::model::{Actor, Patch, Workspace, WorkspaceStatus};
use agent_core::session::{NewSession, SessionRecord, SessionSummary};
use agent_core::setters;
use agent_core::state::{Reason, SessionState};
use agent_core::store::{
    Binding, BindingQuery, HiddenSession, Page, Purge, SessionQuery, WorkspaceQuery, pages,
};
use agent_core::{
    DeviceId, Error, ErrorKind, Result, SessionId, SessionStoreExt, Storage, Timestamp, WorkspaceId,
    WorkspaceStoreExt,
};

/// Maximum number of attempts of a change, if other writers interfere.
pub(crate) const ATTEMPTS: usize = 8;

/// Number of sessions that are read at once for the latest one, where lists lag.
const LATEST_PAGE: usize = 32;

/// Manager of the workspaces of one tenant: finds, creates, changes and removes workspaces and their sessions.
///
/// Cloning is cheap. An agent returns its manager by `AgentRuntime::workspaces`. Every
/// method may be dropped at any point; a dropped step was applied wholly or not at all, and the call can be repeated.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
/// use agent_core::{DeviceId, MemoryStore};
/// use agent_runtime::WorkspaceManager;
///
/// let manager = WorkspaceManager::new(MemoryStore::new().into());
/// let laptop: DeviceId = "laptop".parse()?;
/// let home = manager.resolve(&laptop).await?.workspace;
/// let main = manager.main_session(&home).await?;
///
/// // Another device of the same person shares the workspace and its main session.
/// let phone: DeviceId = "phone".parse()?;
/// manager.bind(&phone, home.id).await?;
/// let shared = manager.resolve(&phone).await?.workspace;
/// assert_eq!(manager.main_session(&shared).await?.id, main.id);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct WorkspaceManager {
    pub(crate) storage: Storage,
}

/// Workspace of a device, and how it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Resolved {
    /// Record of the workspace.
    pub workspace: Workspace,
    /// Way in which the workspace was found.
    pub how: Resolution,
}

/// Way in which the workspace of a device was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Resolution {
    /// The device was bound to the workspace, and the workspace existed.
    Found,
    /// The device was not bound; it is now bound to this workspace, which exists.
    Created,
    /// The device was bound to the workspace, but the workspace did not exist: it was created under the bound id.
    Recreated,
    /// The device was bound to a workspace that was deleted, and is now bound to a new one.
    Rebound(WorkspaceId),
}

/// Workspace that is to be created.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct NewWorkspace {
    /// Id; default a new one.
    pub id: Option<WorkspaceId>,
    /// Display name; default `workspace-` and the last 8 characters of the id, or `default` for the workspace `default`.
    pub name: Option<String>,
    /// Name of the provider that its sessions use; default the provider of the host's configuration.
    pub provider: Option<String>,
    /// Purpose of the workspace, at most 4,096 bytes; default none.
    pub description: Option<String>,
    /// Creator of the workspace; default none.
    pub creator: Option<Actor>,
    /// Settings of the host, never interpreted; default empty.
    pub settings: RawFields,
}

impl NewWorkspace {
    /// Creates the description of a workspace with this name: 1 to 256 bytes without control characters.
    ///
    /// ```
    /// use agent_core::WorkspaceId;
    /// use agent_core::model::Actor;
    /// use agent_runtime::NewWorkspace;
    ///
    /// let id: WorkspaceId = "018f4e9a-7a2b-7c3d-8e4f-0123456789ab".parse()?;
    /// let new = NewWorkspace::new("Support")
    ///     .with_id(id)
    ///     .with_provider("openai")
    ///     .with_description("Questions of customers")
    ///     .with_creator(Actor::USER);
    /// assert_eq!((new.id, new.provider.as_deref()), (Some(id), Some("openai")));
    ///
    /// let unnamed = NewWorkspace::default();
    /// assert_eq!((unnamed.id, unnamed.name), (None, None));
    /// # Ok::<(), agent_core::Error>(())
    /// ```
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: Some(name.into()), ..Self::default() }
    }

    setters! {
        /// Sets the id; default a new one.
        pub fn with_id(id: WorkspaceId) => id = Some(id);

        /// Sets the name of the provider that the workspace's sessions use; default that of the host's configuration.
        pub fn with_provider(provider: impl Into<String>) => provider = Some(provider.into());

        /// Sets the description; default none.
        pub fn with_description(description: impl Into<String>) => description = Some(description.into());

        /// Sets the creator; default none.
        pub fn with_creator(creator: Actor) => creator = Some(creator);
    }
}

impl WorkspaceManager {
    /// Creates a manager for the workspaces of these stores. No I/O.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// use agent_core::MemoryStore;
    /// use agent_runtime::WorkspaceManager;
    ///
    /// let manager = WorkspaceManager::new(MemoryStore::new().into());
    /// assert_eq!(manager.default_workspace().await?.name, "default");
    /// # Ok(()) }
    /// ```
    pub const fn new(storage: Storage) -> Self {
        Self { storage }
    }

    /// Returns the workspace of a device; creates one if the device is not bound.
    ///
    /// The device is bound first; then the bound workspace is created if it does not exist. If a device is resolved by
    /// several callers at once, one of them creates the workspace and all get it; after a crash in between, the next call
    /// completes the work. A device whose workspace was deleted is bound to a new one.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # use agent_core::MemoryStore;
    /// # use agent_runtime::WorkspaceManager;
    /// # let manager = WorkspaceManager::new(MemoryStore::new().into());
    /// use agent_core::DeviceId;
    /// use agent_runtime::Resolution;
    ///
    /// let laptop: DeviceId = "laptop".parse()?;
    /// let first = manager.resolve(&laptop).await?;
    /// let again = manager.resolve(&laptop).await?;
    /// assert_eq!((first.how, again.how), (Resolution::Created, Resolution::Found));
    /// assert_eq!(first.workspace.id, again.workspace.id);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// Errors of the stores, unchanged: a new workspace is created only if the absence of one is proven. `Busy` while the
    /// workspace is being deleted.
    pub async fn resolve(&self, device: &DeviceId) -> Result<Resolved> {
        self.resolve_or_create(device, &NewWorkspace::default()).await
    }

    /// Returns the workspace of a device like [`resolve`](Self::resolve), but creates a missing workspace from `new`.
    ///
    /// An id in `new` is ignored.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # use agent_core::MemoryStore;
    /// # use agent_runtime::{NewWorkspace, WorkspaceManager};
    /// # let manager = WorkspaceManager::new(MemoryStore::new().into());
    /// let (laptop, phone) = ("laptop".parse()?, "phone".parse()?);
    /// let found = manager.resolve_or_create(&laptop, &NewWorkspace::new("Ann's laptop")).await?;
    /// assert_eq!(found.workspace.name, "Ann's laptop");
    /// let again = manager.resolve_or_create(&laptop, &NewWorkspace::new("another name")).await?;
    /// assert_eq!(again.workspace, found.workspace);
    /// assert!(manager.resolve(&phone).await?.workspace.name.starts_with("workspace-"));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// Errors of [`resolve`](Self::resolve); `InvalidInput` or `LimitExceeded` for an invalid field of `new`, if a
    /// workspace is to be created. The device is then bound, and the next call creates the workspace.
    pub async fn resolve_or_create(&self, device: &DeviceId, new: &NewWorkspace) -> Result<Resolved> {
        let bound = self.storage.bindings.resolve(device).await?;
        let (mut id, mut how) = match bound {
            Some(id) => (id, Resolution::Found),
            None => (self.bind_new(device, new).await?, Resolution::Created),
        };
        for _ in 0..ATTEMPTS {
            match self.storage.workspaces.load(id).await {
                Ok(workspace) if workspace.status == WorkspaceStatus::Deleting => {
                    return Err(being_deleted(id));
                }
                Ok(workspace) => return Ok(Resolved { workspace, how }),
                Err(error) if *error.kind() == ErrorKind::NotFound => {
                    if how == Resolution::Found {
                        warn!(%device, workspace = %id, "the bound workspace does not exist; it is created again");
                        how = Resolution::Recreated;
                    }
                    self.create_if_absent(new.clone().with_id(id)).await?;
                }
                Err(error) if *error.kind() == ErrorKind::Deleted => {
                    let (old, next) = (id, self.storage.effects().new_workspace_id());
                    warn!(%device, workspace = %old, "the bound workspace was deleted; the device is bound to a new one");
                    how = Resolution::Rebound(old);
                    id = match self.storage.bindings.bind(device, next, Precondition::Matches(old)).await {
                        Ok(id) => id,
                        Err(error) if matches!(error.kind(), ErrorKind::Conflict { .. }) => {
                            self.storage.bindings.bind(device, next, Precondition::MustNotExist).await?
                        }
                        Err(error) => return Err(error),
                    };
                }
                Err(error) => return Err(error),
            }
        }
        Err(Error::unavailable(format!("the workspace of device {device} keeps changing; try again")))
    }

    /// Binds a device to a new workspace; returns the one that it is bound to. The workspace is created afterwards, so that
    /// of several first contacts none creates one in vain.
    async fn bind_new(&self, device: &DeviceId, new: &NewWorkspace) -> Result<WorkspaceId> {
        let (bindings, id) = (&self.storage.bindings, self.storage.effects().new_workspace_id());
        if self.storage.owner().is_none() {
            return bindings.bind(device, id, Precondition::MustNotExist).await;
        }
        // Another owner could create it first.
        self.create(new.clone().with_id(id)).await?;
        let bound = bindings.bind(device, id, Precondition::MustNotExist).await;
        if !bound.as_ref().is_ok_and(|bound| *bound == id) {
            self.storage.workspaces.delete(id).await?;
        }
        bound
    }

    /// Returns the workspace `default`; creates it if it does not exist.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/../agent-runtime/doc/echo.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # let manager = WorkspaceManager::new(MemoryStore::new().into());
    /// let workspace = manager.default_workspace().await?;
    /// assert_eq!((workspace.id, workspace.name.as_str()), (WorkspaceId::DEFAULT, "default"));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// Errors of the store; `Deleted` if it was deleted.
    pub async fn default_workspace(&self) -> Result<Workspace> {
        match self.storage.workspaces.load(WorkspaceId::DEFAULT).await {
            Err(error) if *error.kind() == ErrorKind::NotFound => {
                self.create_if_absent(NewWorkspace::new("default").with_id(WorkspaceId::DEFAULT)).await?;
                self.storage.workspaces.load(WorkspaceId::DEFAULT).await
            }
            other => other,
        }
    }

    /// Creates a workspace. Returns its record, which is durable.
    ///
    /// The main session is created when it is first opened.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/../agent-runtime/doc/echo.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # let manager = WorkspaceManager::new(MemoryStore::new().into());
    /// let new = NewWorkspace::new("Support").with_description("Questions of customers");
    /// let workspace = manager.create(new.clone()).await?;
    /// assert_eq!((workspace.name.as_str(), workspace.revision.get()), ("Support", 1));
    ///
    /// // Ids are unique; names need not be.
    /// let error = manager.create(new.with_id(workspace.id)).await.unwrap_err();
    /// assert!(matches!(error.kind(), ErrorKind::Conflict { .. }));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// `Conflict` if a workspace with this id exists, which is not changed; `Deleted` if one was deleted;
    /// `InvalidInput` and `LimitExceeded` for an invalid field.
    pub async fn create(&self, new: NewWorkspace) -> Result<Workspace> {
        let id = new.id.unwrap_or_else(|| self.storage.effects().new_workspace_id());
        let name = new.name.unwrap_or_else(|| default_name(id));
        let mut workspace =
            Workspace::new(id, name, self.storage.effects().new_session_id(), self.storage.effects().now());
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

    /// Loads the record of a workspace.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # use agent_core::MemoryStore;
    /// # use agent_runtime::{NewWorkspace, WorkspaceManager};
    /// # let manager = WorkspaceManager::new(MemoryStore::new().into());
    /// let workspace = manager.create(NewWorkspace::new("Support")).await?;
    /// assert_eq!(manager.load(workspace.id).await?, workspace);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// `NotFound`; `Deleted`; `Corrupt` if the record cannot be read.
    pub async fn load(&self, id: WorkspaceId) -> Result<Workspace> {
        self.storage.workspaces.load(id).await
    }

    /// Lists workspaces by last access, latest first, a page at a time.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/../agent-runtime/doc/echo.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # let manager = WorkspaceManager::new(MemoryStore::new().into());
    /// for name in ["Support", "Sales", "Office"] {
    ///     manager.create(NewWorkspace::new(name)).await?;
    /// }
    /// let page = manager.list(WorkspaceQuery::new().with_limit(2)).await?;
    /// let rest = manager.list(WorkspaceQuery::new().with_limit(2).with_cursor(page.next)).await?;
    /// assert_eq!((page.items.len(), rest.items.len(), rest.next), (2, 1, None));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a cursor of another query.
    pub async fn list(&self, query: WorkspaceQuery) -> Result<Page<Workspace>> {
        self.storage.workspaces.list(query).await
    }

    /// Records the present time as the last access of a workspace, which [`gc`](Self::gc) compares with its age.
    ///
    /// Prompts and sends of a conversation call this by themselves. The time never steps back.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/../agent-runtime/doc/workspaces.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # let (_, manager) = managers();
    /// let workspace = manager.create(NewWorkspace::new("Support")).await?;
    /// manager.touch(workspace.id).await?;
    /// assert!(manager.load(workspace.id).await?.last_accessed > workspace.last_accessed);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// `NotFound`, `Deleted`.
    pub async fn touch(&self, id: WorkspaceId) -> Result<()> {
        let now: Timestamp = self.storage.effects().now();
        self.storage.workspaces.touch(id, now).await
    }

    /// Updates a workspace's record with `change`. Returns the new record, which is durable.
    ///
    /// If another writer changes the record at the same time, `change` is applied again to the result of that writer, so
    /// it may be called several times. The id, the status, the main session and the times of the workspace cannot be changed.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # use agent_core::MemoryStore;
    /// # use agent_runtime::{NewWorkspace, WorkspaceManager};
    /// # let manager = WorkspaceManager::new(MemoryStore::new().into());
    /// let id = manager.create(NewWorkspace::new("Support")).await?.id;
    /// let changed = manager.update(id, |workspace| workspace.provider = Some("openai".to_owned())).await?;
    /// assert_eq!((changed.provider.as_deref(), changed.revision.get()), (Some("openai"), 2));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// `NotFound`, `Deleted`; `InvalidInput`, `LimitExceeded` for the result of the change.
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
        let mut attempts = Attempts::at_most(ATTEMPTS);
        loop {
            let now = self.storage.workspaces.load(id).await?;
            let mut next = now.clone();
            change(&mut next);
            next.id = now.id;
            next.created_at = now.created_at;
            next.last_accessed = now.last_accessed;
            next.revision = now.revision;
            if let Some(changed) = attempts.outcome(self.storage.workspaces.update(next).await) {
                return changed;
            }
        }
    }

    /// Changes the display name of a workspace. Returns the new record.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # use agent_core::MemoryStore;
    /// # use agent_runtime::{NewWorkspace, WorkspaceManager};
    /// # let manager = WorkspaceManager::new(MemoryStore::new().into());
    /// let id = manager.create(NewWorkspace::new("Support")).await?.id;
    /// assert_eq!(manager.rename(id, "Customer support").await?.name, "Customer support");
    /// assert!(manager.rename(id, "").await.is_err());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// Errors of [`update`](Self::update).
    pub async fn rename(&self, id: WorkspaceId, name: &str) -> Result<Workspace> {
        self.update(id, |workspace| name.clone_into(&mut workspace.name)).await
    }

    /// Binds a device to an existing workspace, also if it is bound to another one.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # use agent_core::MemoryStore;
    /// # use agent_runtime::{NewWorkspace, WorkspaceManager};
    /// # let manager = WorkspaceManager::new(MemoryStore::new().into());
    /// use agent_core::DeviceId;
    ///
    /// let home = manager.create(NewWorkspace::new("Home")).await?;
    /// let phone: DeviceId = "telegram:4711".parse()?;
    /// manager.bind(&phone, home.id).await?;
    /// assert_eq!(manager.resolve(&phone).await?.workspace.id, home.id);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// `NotFound`, `Deleted` for the workspace; `Busy` while it is being deleted.
    pub async fn bind(&self, device: &DeviceId, to: WorkspaceId) -> Result<()> {
        self.load_in_use(to).await?;
        self.storage.bindings.bind(device, to, Precondition::None).await.map(drop)
    }

    /// Unbinds a device. Returns whether it was bound.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # use agent_core::MemoryStore;
    /// # use agent_runtime::WorkspaceManager;
    /// # let manager = WorkspaceManager::new(MemoryStore::new().into());
    /// use agent_core::DeviceId;
    ///
    /// let phone: DeviceId = "telegram:4711".parse()?;
    /// let first = manager.resolve(&phone).await?.workspace;
    /// assert!(manager.unbind(&phone).await?);
    /// assert!(!manager.unbind(&phone).await?);
    /// // The next contact creates another workspace; the first one stays.
    /// assert_ne!(manager.resolve(&phone).await?.workspace.id, first.id);
    /// assert_eq!(manager.load(first.id).await?.id, first.id);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// Errors of the store.
    pub async fn unbind(&self, device: &DeviceId) -> Result<bool> {
        self.storage.bindings.unbind(device).await
    }

    /// Lists device bindings in the order of the store, a page at a time; see
    /// [`BindingStore::list`](agent_core::BindingStore::list).
    ///
    /// If the query names a workspace, only the bindings of that workspace are listed.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # use agent_core::MemoryStore;
    /// # use agent_runtime::WorkspaceManager;
    /// # let manager = WorkspaceManager::new(MemoryStore::new().into());
    /// use agent_core::store::BindingQuery;
    ///
    /// let home = manager.resolve(&"laptop".parse()?).await?.workspace;
    /// manager.bind(&"phone".parse()?, home.id).await?;
    /// let page = manager.bindings(BindingQuery::new().with_workspace(home.id)).await?;
    /// let devices: Vec<_> = page.items.iter().map(|binding| binding.device.as_str()).collect();
    /// assert_eq!(devices, ["laptop", "phone"]);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a cursor of another query.
    pub async fn bindings(&self, query: BindingQuery) -> Result<Page<Binding>> {
        self.storage.bindings.list(query).await
    }

    /// Returns the main session of a workspace; creates it if it does not exist.
    ///
    /// If the main session was deleted, a new session replaces it, so that the workspace stays usable.
    ///
    /// In a workspace without an owner, each [owner](Storage::for_owner) has a main session of its own: the conversation
    /// with the key `main session`. [`Workspace::main_session`](field@Workspace::main_session) is that of the tenant.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # use agent_core::MemoryStore;
    /// # use agent_runtime::{NewWorkspace, WorkspaceManager};
    /// # let manager = WorkspaceManager::new(MemoryStore::new().into());
    /// let workspace = manager.create(NewWorkspace::new("Support")).await?;
    /// let session = manager.main_session(&workspace).await?;
    /// assert_eq!((session.id, session.workspace), (workspace.main_session, workspace.id));
    /// assert_eq!(manager.main_session(&workspace).await?.id, session.id);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// `Deleted` or `Busy` if a new session is needed and the workspace was deleted or is being deleted; `Corrupt` if the
    /// main session is damaged: `agent_admin::salvage` creates a session from its readable part, and
    /// [`set_main_session`](Self::set_main_session) makes that session the main one. Errors of the store.
    pub async fn main_session(&self, workspace: &Workspace) -> Result<Arc<SessionRecord>> {
        if workspace.owner.as_ref() != self.storage.owner() && workspace.owner.is_none() {
            return self.main_session_of_owner(workspace.id).await;
        }
        let (id, mut main) = (workspace.id, workspace.main_session);
        for _ in 0..ATTEMPTS {
            let session = match self.session_or_new(NewSession::new(main, id)).await {
                Err(error) if *error.kind() == ErrorKind::Corrupt => {
                    return Err(Error::corrupt(format!(
                        "the main session {main} of workspace {id} is damaged; run `chat session salvage {main} --main` (in code: `agent_admin::salvage`, then `set_main_session`), or set another session as the main session"
                    ))
                    .with_source(error));
                }
                session => session?,
            };
            if session.owner.is_some() && session.owner != workspace.owner {
                return Err(Error::new(
                    ErrorKind::Conflict { head: None },
                    format!(
                        "the main session {main} of workspace {id} has another owner; set another session as the main session"
                    ),
                ));
            }
            if session.status.state != SessionState::Deleted {
                return Ok(session);
            }
            warn!(workspace = %id, session = %main, "the main session was deleted; a new one replaces it");
            let next = self.storage.effects().new_session_id();
            let replace = |workspace: &mut Workspace| {
                if workspace.main_session == main {
                    workspace.main_session = next;
                }
            };
            main = self.change(id, replace).await?.main_session;
        }
        Err(Error::unavailable(format!("the main session of workspace {id} keeps changing; try again")))
    }

    async fn session_or_new(&self, new: NewSession) -> Result<Arc<SessionRecord>> {
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

    /// Creates a session, then checks that its workspace is still in use.
    ///
    /// # Errors
    ///
    /// `Deleted` or `Busy` if the workspace is deleted or being deleted; errors of the stores.
    pub async fn create_session(&self, new: NewSession) -> Result<Arc<SessionRecord>> {
        let session = self.storage.sessions.create(new).await?;
        self.confirm_created(&session).await?;
        Ok(session)
    }

    /// Checks that the workspace of a session that was just created is still in use, and deletes the session if it is
    /// not. A deletion marks the workspace, then looks for sessions: one of the two therefore sees the other, and no
    /// new session stays in a deleted workspace.
    ///
    /// # Errors
    ///
    /// `Deleted` or `Busy` if the workspace is deleted or being deleted; errors of the stores.
    pub async fn confirm_created(&self, session: &SessionRecord) -> Result<()> {
        match self.load_in_use(session.workspace).await {
            Err(error) if matches!(error.kind(), ErrorKind::Deleted | ErrorKind::Busy { .. }) => {
                let sessions = &self.storage.sessions;
                let delete = sessions
                    .seal_unchanged(session.id, session.head)
                    .with_trigger(Trigger::Delete(Reason::Collected));
                let collected = async {
                    // If another writer was faster, the deletion of the workspace deletes the session.
                    let deleted = sessions.commit_with_retry(delete).await?.session;
                    sessions.purge(Purge::new(deleted.id, deleted.head)).await
                };
                if let Err(left) = collected.await {
                    warn!(session = %session.id, error = %left, "a session of a deleted workspace is left for gc");
                }
                Err(error)
            }
            // A host may keep sessions of workspaces that it never stored.
            Err(error) if *error.kind() != ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Loads the record of a workspace that is not being deleted.
    pub(crate) async fn load_in_use(&self, id: WorkspaceId) -> Result<Workspace> {
        let workspace = self.storage.workspaces.load(id).await?;
        if workspace.status == WorkspaceStatus::Deleting {
            return Err(being_deleted(id));
        }
        Ok(workspace)
    }

    /// Sets another session of a workspace as its main session. Returns the workspace's new record.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # use agent_core::MemoryStore;
    /// # use agent_runtime::{NewWorkspace, WorkspaceManager};
    /// # let manager = WorkspaceManager::new(MemoryStore::new().into());
    /// use agent_core::model::Patch;
    ///
    /// let workspace = manager.create(NewWorkspace::new("Support")).await?;
    /// let session = manager.new_session(workspace.id, &Patch::new()).await?;
    /// let changed = manager.set_main_session(workspace.id, session.id).await?;
    /// assert_eq!(manager.main_session(&changed).await?.id, session.id);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// `NotFound` and `Deleted` for the session or the workspace; `InvalidInput` for a session of another workspace, and
    /// for a [hidden session](agent_core::store::HiddenSession).
    pub async fn set_main_session(&self, id: WorkspaceId, session: SessionId) -> Result<Workspace> {
        let record = self.storage.sessions.load(session).await?;
        if record.status.state == SessionState::Deleted {
            return Err(Error::deleted(format!(
                "session {session} was deleted; choose another main session"
            )));
        }
        if record.workspace != id {
            return Err(Error::invalid(format!(
                "session {session} belongs to workspace {}, not to {id}",
                record.workspace
            )));
        }
        HiddenSession::refuse(&record, "cannot be a main session")?;
        self.change(id, |workspace| workspace.main_session = session).await
    }

    /// Creates another session in an existing workspace, with the attributes of `patch`. Returns its record.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # use agent_core::MemoryStore;
    /// # use agent_runtime::{NewWorkspace, WorkspaceManager};
    /// # let manager = WorkspaceManager::new(MemoryStore::new().into());
    /// use agent_core::model::{Patch, Title};
    ///
    /// let workspace = manager.create(NewWorkspace::new("Support")).await?;
    /// let patch = Patch::new().with_title(Title::by_user("Refund for order 17")).with_label("team", "sales");
    /// let session = manager.new_session(workspace.id, &patch).await?;
    /// assert_eq!(session.attributes.labels["team"], "sales");
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// `NotFound`, `Deleted` for the workspace; `Busy` while it is being deleted.
    pub async fn new_session(&self, workspace: WorkspaceId, patch: &Patch) -> Result<Arc<SessionRecord>> {
        self.load_in_use(workspace).await?;
        self.create_session(
            NewSession::new(self.storage.effects().new_session_id(), workspace).with_patch(patch),
        )
        .await
    }

    /// Returns the session with which a program on this device continues: the one that was
    /// [recorded](agent_core::BindingStore::set_last_session) last, if lists would show it in the workspace, else the
    /// [latest](Self::latest_session) of the workspace.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # use agent_core::MemoryStore;
    /// # use agent_runtime::{NewWorkspace, WorkspaceManager};
    /// use agent_core::DeviceId;
    ///
    /// # let storage = agent_core::Storage::from(MemoryStore::new());
    /// # let manager = WorkspaceManager::new(storage.clone());
    /// let laptop: DeviceId = "laptop".parse()?;
    /// let home = manager.resolve_or_create(&laptop, &NewWorkspace::new("home")).await?.workspace;
    /// let trip = manager.new_session(home.id, &Default::default()).await?;
    /// manager.new_session(home.id, &Default::default()).await?;
    /// storage.bindings.set_last_session(&laptop, trip.id).await?;
    /// assert_eq!(manager.last_session(&laptop, home.id).await?, Some(trip.id));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// Those of the store. Damaged sessions are passed over.
    pub async fn last_session(&self, device: &DeviceId, workspace: WorkspaceId) -> Result<Option<SessionId>> {
        if let Some(id) = self.storage.bindings.last_session(device).await? {
            match self.storage.sessions.load(id).await {
                Ok(session) if session.workspace == workspace && !session.status.state.is_hidden() => {
                    return Ok(Some(id));
                }
                Err(error) if !error.is_absent() && *error.kind() != ErrorKind::Corrupt => return Err(error),
                _ => {}
            }
        }
        Ok(self.latest_session(workspace).await?.map(|session| session.id))
    }

    /// Returns the session of a workspace that was active last, of those that lists show; `None` if there is none.
    ///
    /// It is the one also where lists [lag](agent_core::store::Capabilities::recency): there a page of sessions is read,
    /// and more while a later page may have it.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # use agent_core::MemoryStore;
    /// # use agent_runtime::{AgentBuilder, EchoProvider};
    /// # let builder = AgentBuilder::new().with_llm(EchoProvider::new());
    /// let agent = builder.with_storage(MemoryStore::new()).build()?;
    /// let trip = agent.conversation("trip").await?;
    /// agent.conversation("garden").await?;
    /// trip.ask("Which train?").await?;
    ///
    /// let latest = agent.workspaces().latest_session(trip.record().workspace).await?;
    /// assert_eq!(latest.map(|session| session.id), Some(trip.id()));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// Those of the store. Damaged sessions are passed over.
    pub async fn latest_session(&self, workspace: WorkspaceId) -> Result<Option<SessionSummary>> {
        let sessions = &self.storage.sessions;
        let lag = sessions.capabilities().recency;
        let limit = if lag.is_zero() { 1 } else { LATEST_PAGE };
        let query = SessionQuery::new().with_workspace(workspace).with_limit(limit);
        let mut pages = pages(query, |query| sessions.list(query));
        let mut latest: Option<SessionSummary> = None;
        while let Some(page) = pages.try_next().await? {
            let earliest = page.items.iter().map(|session| session.last_active_at).min();
            latest = latest
                .into_iter()
                .chain(page.items)
                .max_by_key(|session| (session.last_active_at, session.id));
            // The place of a session in the list lags behind its time, and is never ahead of it.
            let ahead = i64::try_from(lag.as_micros()).unwrap_or(i64::MAX);
            if let (Some(latest), Some(earliest)) = (&latest, earliest)
                && latest.last_active_at >= earliest.plus_micros(ahead)
            {
                break;
            }
        }
        Ok(latest)
    }
}

/// Returns the name of a workspace that is created without one, from the random end of its id.
fn default_name(id: WorkspaceId) -> String {
    if id == WorkspaceId::DEFAULT {
        return "default".to_owned();
    }
    let id = id.to_string();
    format!("workspace-{}", &id[id.floor_char_boundary(id.len().saturating_sub(8))..])
}

/// Loads the record of a workspace in which something is to be stored that must last; `else_` says what to do if it is being
/// deleted, which is `Deleted`.
pub(crate) async fn load_lasting(
    workspaces: &dyn agent_core::WorkspaceStore,
    id: WorkspaceId,
    else_: &str,
) -> Result<Workspace> {
    let workspace = workspaces.load(id).await?;
    if workspace.status == WorkspaceStatus::Deleting {
        return Err(Error::deleted(format!("workspace {id} is being deleted; {else_}")));
    }
    Ok(workspace)
}

fn being_deleted(id: WorkspaceId) -> Error {
    Error::new(
        ErrorKind::Busy { holder: "deletion".to_owned() },
        format!(
            "workspace {id} is being deleted; try again after its deletion, or delete it again (or run gc) to finish an interrupted deletion"
        ),
    )
}
