//! Handle to one session. Cloning is cheap; it holds no lease and blocks no other process.

use std::sync::Arc;

use crate::agent::runtime::AgentRuntime;
use crate::turn::session_ref::SessionRef;
use crate::turn::settings;
use agent_core::commit::{Commit, Trigger};
use agent_core::event::NewEvent;
use agent_core::model::{Patch, Workspace};
use agent_core::session::SessionRecord;
use agent_core::state::SessionState;
use agent_core::{DeviceId, Error, Result, SessionId, WorkspaceId};

/// Handle to one session. Cloning is cheap; it holds no lease and blocks no other process.
///
/// Methods of [`AgentRuntime`] open it; its page says which one to use. The handle caches the [record](Self::record) that
/// it saw last; clones share it.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
/// use agent_core::MemoryStore;
/// use agent_runtime::{AgentBuilder, EchoProvider};
///
/// let agent = AgentBuilder::new().with_llm(EchoProvider::new()).with_storage(MemoryStore::new()).build()?;
/// let chat = agent.conversation("support/4711").await?;
/// chat.set_title("Invoice 17").await?;
///
/// let report = chat.prompt("Hello").await?.finish().await?;
/// assert_eq!(report.text, "Hello");
///
/// let stats = chat.stats().await?;
/// assert_eq!(stats.counts.messages(), 2);
/// chat.archive().await?;
/// # Ok(()) }
/// ```
///
/// # Cancel safety
///
/// Every method may be dropped at any point. A dropped commit was applied wholly or not at all, or may still be
/// applied. A run that was started continues.
#[derive(Clone, Debug)]
#[doc(alias = "SessionHandle")]
pub struct Conversation {
    pub(super) inner: SessionRef,
}

impl AgentRuntime {
    /// Opens the main session of a device's workspace; creates the workspace and the session if they do not exist.
    ///
    /// Starts no run. If the future is dropped, workspace and session may have been created; call it again.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/echo.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # let agent = echo_agent()?;
    /// let chat = agent.open(&"laptop".parse()?).await?;
    /// chat.prompt("Hello").await?.finish().await?;
    ///
    /// // The same device opens the same session.
    /// let again = agent.open(&"laptop".parse()?).await?;
    /// assert_eq!(again.id(), chat.id());
    /// assert_eq!(again.record().counts.messages(), 2);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// Errors of the stores, unchanged.
    pub async fn open(&self, device: &DeviceId) -> Result<Conversation> {
        let resolved = self.workspaces.resolve(device).await?;
        self.open_main(&resolved.workspace).await
    }

    /// Opens the main session of a workspace; creates the session if it does not exist.
    ///
    /// Starts no run, and does not read the workspace again. A session that replaces a deleted main session has another id
    /// than `workspace.main_session`. If the future is dropped, the session may have been created; call it again.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/echo.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # let agent = echo_agent()?;
    /// use agent_runtime::NewWorkspace;
    ///
    /// let laptop = "laptop".parse()?;
    /// let resolved = agent.workspaces().resolve_or_create(&laptop, &NewWorkspace::new("Ann's laptop")).await?;
    /// let chat = agent.open_main(&resolved.workspace).await?;
    /// assert_eq!(chat.id(), resolved.workspace.main_session);
    /// assert_eq!(agent.open(&laptop).await?.id(), chat.id());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// Errors of [`WorkspaceManager::main_session`](crate::WorkspaceManager::main_session).
    pub async fn open_main(&self, workspace: &Workspace) -> Result<Conversation> {
        let session = self.workspaces.main_session(workspace).await?;
        Conversation::new(self.clone(), session).freeze_config().await
    }

    /// Opens the conversation whose session has this id. Starts no run and creates nothing.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/echo.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # let (agent, chat) = echo().await?;
    /// use agent_core::ErrorKind;
    ///
    /// let id = chat.id();
    /// assert_eq!(agent.conversation_by_id(id).await?.id(), id);
    ///
    /// chat.delete().await?;
    /// let error = agent.conversation_by_id(id).await.unwrap_err();
    /// assert_eq!(*error.kind(), ErrorKind::Deleted);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// `NotFound`; `Deleted` if the session was deleted.
    #[doc(alias = "session")]
    pub async fn conversation_by_id(&self, id: SessionId) -> Result<Conversation> {
        let session = self.storage.sessions.load(id).await?;
        if session.status.state == SessionState::Deleted {
            return Err(Error::deleted(format!("session {id} was deleted")));
        }
        Ok(Conversation::new(self.clone(), session))
    }

    /// Creates another session in a workspace. Starts no run.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/echo.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # let agent = echo_agent()?;
    /// use agent_core::model::Patch;
    ///
    /// let workspace = agent.workspaces().default_workspace().await?;
    /// let patch = Patch::new().with_label("topic", "invoices");
    /// let session = agent.new_session(workspace.id, &patch).await?;
    /// assert_eq!(session.record().attributes.labels["topic"], "invoices");
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// `NotFound`, `Deleted` for the workspace; `Busy` while it is being deleted.
    pub async fn new_session(&self, workspace: WorkspaceId, patch: &Patch) -> Result<Conversation> {
        let session = self.workspaces.new_session(workspace, patch).await?;
        Conversation::new(self.clone(), session).freeze_config().await
    }
}

impl Conversation {
    pub(crate) fn new(runtime: AgentRuntime, session: Arc<SessionRecord>) -> Self {
        Self { inner: SessionRef::new(runtime, session) }
    }

    /// Returns the session's id.
    pub const fn id(&self) -> SessionId {
        self.inner.id()
    }

    /// Returns the runtime that opened the session.
    pub const fn runtime(&self) -> &AgentRuntime {
        self.inner.runtime()
    }

    /// Returns the record as last seen by this handle or a clone of it.
    #[doc(alias = "snapshot")]
    pub fn record(&self) -> Arc<SessionRecord> {
        self.inner.record()
    }

    /// Loads and returns the current record.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/echo.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # let (agent, chat) = echo().await?;
    /// let elsewhere = agent.conversation_by_id(chat.id()).await?; // for example in another process
    /// elsewhere.send("Water the plants.").await?;
    ///
    /// assert_eq!(chat.record().inputs_open, 0);
    /// assert_eq!(chat.refresh().await?.inputs_open, 1);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// Errors of the store.
    pub async fn refresh(&self) -> Result<Arc<SessionRecord>> {
        self.inner.refresh().await
    }

    pub(super) async fn store(&self, event: NewEvent) -> Result<()> {
        self.commit(|commit| commit.with_event(event)).await
    }

    pub(super) async fn trigger(&self, trigger: Trigger) -> Result<()> {
        self.commit(|commit| commit.with_trigger(trigger)).await
    }

    pub(super) async fn commit(&self, fill: impl FnOnce(Commit) -> Commit + Send) -> Result<()> {
        self.inner.commit(fill(self.inner.seal())).await.map(drop)
    }

    /// Replaces the [kept configuration](crate::config::Config::with_freeze_config) of the session with that
    /// of this runtime, from the next run on. Does nothing if the session keeps none.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/echo.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # let (store, model) = (MemoryStore::new(), ScriptedProvider::new([Turn::new(), Turn::new(), Turn::new()]));
    /// # let build = |prompt: &str| {
    /// #     let config = Config::new().with_system_prompt(prompt).with_freeze_config(true);
    /// #     AgentBuilder::new().with_config(config).with_llm(model.clone()).with_storage(store.clone()).build()
    /// # };
    /// let chat = build("Answer in French.")?.conversation("support/4711").await?;
    /// chat.prompt("Hello").await?.finish().await?;
    ///
    /// // The session keeps its configuration under a later version of the host.
    /// let chat = build("Answer in German.")?.conversation("support/4711").await?;
    /// chat.prompt("Hello").await?.finish().await?;
    /// chat.use_host_config().await?;
    /// chat.prompt("Hello").await?.finish().await?;
    ///
    /// let prompts: Vec<_> = model.requests().into_iter().filter_map(|request| request.system).collect();
    /// assert_eq!(prompts, ["Answer in French.", "Answer in French.", "Answer in German."]);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// `Conflict` if another process does the same at the same time; errors of the stores.
    #[doc(alias = "adopt_config")]
    pub async fn use_host_config(&self) -> Result<()> {
        settings::adopt(&self.inner).await
    }

    /// Stores the configuration with which the session is created, if the host requires it.
    pub(crate) async fn freeze_config(self) -> Result<Self> {
        settings::freeze(&self.inner).await?;
        Ok(self)
    }
}
