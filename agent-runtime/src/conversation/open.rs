//! Conversations by the host's own keys: one session for each key of a workspace, created when it is first opened.

use crate::agent::runtime::AgentRuntime;
use crate::conversation::handle::Conversation;
use crate::run::handle::{Input, Run};

use agent_core::model::{Attributes, Patch};
use agent_core::search::{Search, SearchPage};
use agent_core::session::NewSession;
use agent_core::state::SessionState;
use agent_core::{Error, Result, WorkspaceId};
use agent_workspace::keys::{Lookup, absent, deleted, keeps_changing};
use agent_workspace::retention::{Erase, Erasure};

/// Maximum number of attempts to find or create a conversation while other processes delete or create it.
const ATTEMPTS: usize = 8;

/// Handle to one workspace of an agent, which opens conversations in it. Cloning is cheap.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/echo.rs"));
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
/// # let agent = echo_agent()?;
/// let sales = agent.workspaces().create(NewWorkspace::new("sales")).await?;
/// let chat = agent.workspace(sales.id).conversation("customer/4711").await?;
/// assert_eq!(chat.record().workspace, sales.id);
///
/// // The same key in the default workspace is another conversation.
/// assert_ne!(agent.conversation("customer/4711").await?.id(), chat.id());
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct WorkspaceHandle {
    runtime: AgentRuntime,
    id: WorkspaceId,
    /// Attributes of the conversations that it creates.
    attributes: Patch,
}

/// Conversation and the run that answers its new input: the result of
/// [`conversation_with`](AgentRuntime::conversation_with).
#[derive(Debug)]
#[non_exhaustive]
pub struct ConversationRun {
    /// Conversation that received the input.
    pub conversation: Conversation,
    /// Run that answers the input, as returned by [`Conversation::prompt`].
    pub run: Run,
    /// True if this call created the conversation; false if it existed already.
    pub created: bool,
}

impl AgentRuntime {
    /// Returns a handle to a workspace. No I/O: the first call that needs the workspace checks that it exists.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/echo.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # let agent = echo_agent()?;
    /// let unknown = agent.workspace("018f4e9a-7a2b-7c3d-8e4f-ffffffffffff".parse()?);
    /// let error = unknown.conversation("support/4711").await.unwrap_err();
    /// assert_eq!(*error.kind(), ErrorKind::NotFound);
    /// # Ok(()) }
    /// ```
    pub fn workspace(&self, id: WorkspaceId) -> WorkspaceHandle {
        WorkspaceHandle { runtime: self.clone(), id, attributes: Patch::new() }
    }

    /// Opens the conversation of a key in the default workspace; creates both if they do not exist. Starts no run. To
    /// create nothing, [find](Self::find_conversation) it.
    ///
    /// A key is any text of 1 to 512 bytes without control characters. It is compared byte by byte and never becomes a
    /// path. The id of the session is [derived](agent_core::session::ConversationKey::session_id) from the workspace and the key. If several
    /// callers open a key at once, in any number of processes, one of them creates the session and all open it.
    ///
    /// The session's record holds the key as the label
    /// [`CONVERSATION_KEY`](agent_core::model::Attributes::CONVERSATION_KEY), by which lists find it; a fork does not
    /// inherit it.
    ///
    /// [`WorkspaceHandle::with_attributes`] gives a new one a title and labels in the commit that creates it.
    ///
    /// The cost is one read of the record if the conversation exists and is the first of its key; otherwise see
    /// [`recreate_conversation`](Self::recreate_conversation).
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/echo.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # let agent = echo_agent()?;
    /// let chat = agent.conversation("support/4711").await?;
    /// chat.prompt("Hello").await?.finish().await?;
    ///
    /// let again = agent.conversation("support/4711").await?;
    /// assert_eq!(again.id(), chat.id());
    /// assert_eq!(again.record().counts.messages(), 2);
    ///
    /// let query = SessionQuery::new().with_label(Attributes::CONVERSATION_KEY, "support/4711");
    /// assert_eq!(agent.storage().sessions.list(query).await?.items[0].id, chat.id());
    /// # Ok(()) }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped before it returns, the conversation may have been created; call it again.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for the key; `Deleted` if the conversation was deleted:
    /// [`recreate_conversation`](Self::recreate_conversation) begins a new one; `Corrupt` if it is damaged. Errors of
    /// the stores, unchanged.
    pub async fn conversation(&self, key: &str) -> Result<Conversation> {
        self.workspace(WorkspaceId::DEFAULT).conversation(key).await
    }

    /// Finds the conversation of a key in the default workspace. Returns `None` if there was never one; writes nothing.
    ///
    /// Use it to show a conversation, as for a GET of HTTP: [`conversation`](Self::conversation) creates what it does not
    /// find. The cost is that of `conversation`.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/echo.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # let agent = echo_agent()?;
    /// assert!(agent.find_conversation("support/4711").await?.is_none());
    ///
    /// let chat = agent.conversation("support/4711").await?;
    /// let found = agent.find_conversation("support/4711").await?.expect("it was created");
    /// assert_eq!(found.id(), chat.id());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// `InvalidInput` for the key; `Deleted` if the conversation was deleted; `Corrupt` if it is damaged. Errors of the
    /// stores, unchanged.
    pub async fn find_conversation(&self, key: &str) -> Result<Option<Conversation>> {
        self.workspace(WorkspaceId::DEFAULT).find_conversation(key).await
    }

    /// Opens the conversation of a key in the default workspace, creates it if it does not exist, and prompts it.
    ///
    /// If the conversation does not exist, one commit creates it, stores the input and starts the run: a crash leaves
    /// either nothing or a conversation with its input. If it exists, it is [prompted](Conversation::prompt).
    /// [`created`](ConversationRun::created) distinguishes the two cases.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/echo.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # let agent = echo_agent()?;
    /// let first = agent.conversation_with("support/4711", "Hello").await?;
    /// assert!(first.created);
    /// first.run.finish().await?;
    ///
    /// let second = agent.conversation_with("support/4711", "Hello again").await?;
    /// assert!(!second.created);
    /// second.run.finish().await?;
    /// assert_eq!(second.conversation.refresh().await?.counts.messages(), 4);
    /// # Ok(()) }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped before it returns, either the input is stored and the run continues, or nothing is
    /// stored.
    ///
    /// # Errors
    ///
    /// Errors of [`conversation`](Self::conversation) and of [`Conversation::prompt`].
    pub async fn conversation_with(&self, key: &str, input: impl Into<Input>) -> Result<ConversationRun> {
        self.workspace(WorkspaceId::DEFAULT).conversation_with(key, input).await
    }

    /// Opens the conversation of a key in the default workspace like [`conversation`](Self::conversation), but begins a
    /// new one if it was deleted.
    ///
    /// The new conversation is empty and has the same key; the deleted one stays deleted, also after a purge. If several
    /// callers do this at once, one of them creates the session and all open it. A conversation that is not deleted is
    /// returned unchanged.
    ///
    /// The cost grows with the logarithm of the number of deleted conversations of the key: for a thousand of them,
    /// about twenty reads of a record.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/echo.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # let agent = echo_agent()?;
    /// let old = agent.conversation("support/4711").await?;
    /// old.delete().await?;
    /// let error = agent.conversation("support/4711").await.unwrap_err();
    /// assert_eq!(*error.kind(), ErrorKind::Deleted);
    ///
    /// let new = agent.recreate_conversation("support/4711").await?;
    /// assert_ne!(new.id(), old.id());
    /// assert_eq!(agent.conversation("support/4711").await?.id(), new.id());
    /// # Ok(()) }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// As for [`conversation`](Self::conversation).
    ///
    /// # Errors
    ///
    /// Errors of [`conversation`](Self::conversation), except for the `Deleted` of the conversation itself.
    pub async fn recreate_conversation(&self, key: &str) -> Result<Conversation> {
        self.workspace(WorkspaceId::DEFAULT).recreate_conversation(key).await
    }

    /// Erases the conversation of a key in the default workspace, and all deleted ones before it that had the same key.
    ///
    /// Each is [erased](Conversation::erase): deleted if it is not deleted yet, and its bytes removed. The result is the
    /// sum for all of them. The call can be repeated, also after an error or a crash at any step. The cost grows with
    /// the number of deleted conversations of the key.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/echo.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # let agent = echo_agent()?;
    /// let begun = agent.conversation_with("customer/4711", "My address is …").await?;
    /// begun.run.finish().await?;
    ///
    /// let erased = agent.erase_conversation("customer/4711").await?;
    /// assert!(erased.events > 0 && erased.needed_by.is_none());
    /// assert_eq!(agent.erase_conversation("customer/4711").await?.events, 0);
    /// # Ok(()) }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped before it returns, a part of the bytes may be left; call it again.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for the key; `NotFound` if there was never a conversation with this key; errors of
    /// [`Conversation::erase`].
    pub fn erase_conversation<'a>(&'a self, key: &'a str) -> Erase<'a> {
        let workspace = self.workspace(WorkspaceId::DEFAULT);
        Erase::new(move |now| async move { workspace.erase_all(key, now).await })
    }
}

impl WorkspaceHandle {
    /// Returns the workspace's id.
    pub const fn id(&self) -> WorkspaceId {
        self.id
    }

    /// Sets the title, the labels and other attributes of the conversations that this handle creates by key: the commit
    /// that creates one has them, so that no reader sees it without. A conversation that exists is opened as it is.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/echo.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # let agent = echo_agent()?;
    /// use agent_core::model::{Patch, Title};
    ///
    /// let new = Patch::new().with_title(Title::by_user("Ticket 4711")).with_label("team", "support");
    /// let tickets = agent.workspace(WorkspaceId::DEFAULT).with_attributes(new);
    /// let chat = tickets.conversation("support/4711").await?;
    /// assert_eq!(chat.record().attributes.labels["team"], "support");
    /// # Ok(()) }
    /// ```
    ///
    /// [`conversation`](Self::conversation), [`conversation_with`](Self::conversation_with) and
    /// [`recreate_conversation`](Self::recreate_conversation) then return `InvalidInput` or `LimitExceeded` for attributes that
    /// a session does not take, among them another [key](Attributes::CONVERSATION_KEY), if they would create one.
    pub fn with_attributes(mut self, attributes: Patch) -> Self {
        self.attributes = attributes;
        self
    }

    /// Opens the conversation of a key in this workspace; creates it if it does not exist. See
    /// [`AgentRuntime::conversation`].
    ///
    /// The workspace must exist, except for [the default one](WorkspaceId::DEFAULT), which is created.
    ///
    /// # Errors
    ///
    /// Errors of [`AgentRuntime::conversation`]; if the conversation would be new, also `NotFound` and `Deleted` for the
    /// workspace, and `Busy` while it is being deleted.
    pub async fn conversation(&self, key: &str) -> Result<Conversation> {
        self.open(key, false).await
    }

    /// Finds the conversation of a key in this workspace; `None` if there was never one, also if there is no such
    /// workspace. Writes nothing. See [`AgentRuntime::find_conversation`].
    ///
    /// # Errors
    ///
    /// Errors of [`AgentRuntime::find_conversation`].
    pub async fn find_conversation(&self, key: &str) -> Result<Option<Conversation>> {
        let key = key.parse()?;
        let Some(newest) = self.runtime.workspaces.newest_conversation(self.id, &key).await? else {
            return Ok(None);
        };
        let session = newest.record?;
        if session.status.state == SessionState::Deleted {
            return Err(deleted(self.id, &key));
        }
        Ok(Some(Conversation::new(self.runtime.clone(), session)))
    }

    /// Opens the conversation of a key in this workspace, creates it if it does not exist, and prompts it. See
    /// [`AgentRuntime::conversation_with`].
    ///
    /// # Errors
    ///
    /// Errors of [`conversation`](Self::conversation) and of [`Conversation::prompt`].
    pub async fn conversation_with(&self, key: &str, input: impl Into<Input>) -> Result<ConversationRun> {
        let (key, input) = (key.parse()?, input.into());
        let workspaces = &self.runtime.workspaces;
        for _ in 0..ATTEMPTS {
            match workspaces.lookup_conversation(self.id, &key, false).await? {
                Lookup::Taken(session) => {
                    let conversation = Conversation::new(self.runtime.clone(), session);
                    let run = conversation.prompt(input).await?;
                    return Ok(ConversationRun { conversation, run, created: false });
                }
                Lookup::Free(new) => {
                    let (runtime, input) = (self.runtime.clone(), Some(input.clone()));
                    let begun =
                        Conversation::begin_new(runtime, self.attributed(*new)?, Vec::new(), input).await;
                    if let Some((conversation, run)) = workspaces.unless_raced(self.id, begun).await? {
                        return Ok(ConversationRun { conversation, run, created: true });
                    }
                }
            }
        }
        Err(keeps_changing(self.id, &key))
    }

    /// Opens the conversation of a key in this workspace, and begins a new one if it was deleted. See
    /// [`AgentRuntime::recreate_conversation`].
    ///
    /// # Errors
    ///
    /// Errors of [`conversation`](Self::conversation), except for the `Deleted` of the conversation itself.
    pub async fn recreate_conversation(&self, key: &str) -> Result<Conversation> {
        self.open(key, true).await
    }

    /// Erases the conversation of a key in this workspace, and all deleted ones before it that had the same key. See
    /// [`AgentRuntime::erase_conversation`].
    ///
    /// # Errors
    ///
    /// Errors of [`AgentRuntime::erase_conversation`].
    pub fn erase_conversation<'a>(&'a self, key: &'a str) -> Erase<'a> {
        Erase::new(move |now| self.erase_all(key, now))
    }

    /// Searches the sessions of this workspace, newest first. See [`AgentRuntime::search`].
    ///
    /// # Errors
    ///
    /// `InvalidInput` if the search is in another workspace; errors of [`AgentRuntime::search`].
    pub async fn search(&self, search: &Search) -> Result<SearchPage> {
        match search.workspace {
            Some(other) if other != self.id => Err(Error::invalid(format!(
                "the search is in workspace {other}, and not in {}, whose handle this is; leave the workspace out",
                self.id
            ))),
            _ => self.runtime.search(&search.clone().with_workspace(self.id)).await,
        }
    }

    async fn erase_all(&self, key: &str, now: bool) -> Result<Erasure> {
        let key = key.parse()?;
        let (workspaces, owner) = (&self.runtime.workspaces, self.runtime.storage.owner());
        let newest =
            workspaces.newest_conversation(self.id, &key).await?.ok_or_else(|| absent(self.id, &key))?;
        // The last erasure rewrites the files, also for the others. Each session may read a part of those before it.
        let id = |generation| key.session_id(owner, self.id, generation);
        let is_last = newest.generation == 0;
        let mut erased = match newest.record {
            Ok(session) => {
                Conversation::new(self.runtime.clone(), session).erase_session(now && is_last).await?
            }
            Err(_) => workspaces.erase_unless_held(id(newest.generation), now && is_last, |_| false).await?,
        };
        for generation in (0..newest.generation).rev() {
            let earlier = workspaces.erase_unless_held(id(generation), now && generation == 0, |_| false);
            erased = erased.and(earlier.await?);
        }
        Ok(erased)
    }

    /// Returns a new conversation with the attributes of this handle.
    fn attributed(&self, new: NewSession) -> Result<NewSession> {
        let (key, generation) = (Attributes::CONVERSATION_KEY, Attributes::CONVERSATION_GENERATION);
        if self.attributes.labels.contains_key(key) || self.attributes.references.contains_key(generation) {
            return Err(Error::invalid(format!(
                "the attributes of a new conversation set {key} or {generation}, which its key decides; leave both out"
            )));
        }
        Ok(new.with_patch(&self.attributes))
    }

    async fn open(&self, key: &str, recreates: bool) -> Result<Conversation> {
        let key = key.parse()?;
        let workspaces = &self.runtime.workspaces;
        for _ in 0..ATTEMPTS {
            let session = match workspaces.lookup_conversation(self.id, &key, recreates).await? {
                Lookup::Taken(session) => session,
                Lookup::Free(new) => {
                    let created = workspaces.create_session(self.attributed(*new)?).await;
                    let Some(session) = workspaces.unless_raced(self.id, created).await? else { continue };
                    session
                }
            };
            return Conversation::new(self.runtime.clone(), session).freeze_config().await;
        }
        Err(keeps_changing(self.id, &key))
    }
}
