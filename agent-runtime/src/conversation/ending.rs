//! Ends of a session: archived, terminated, deleted, erased, replaced.

use std::time::Duration;

use tokio::time::timeout;
use tracing::debug;

use crate::conversation::handle::Conversation;
use agent_core::Result;
use agent_core::commit::Trigger;
use agent_core::model::Lease;
use agent_core::state::Reason;
use agent_workspace::retention::{Erase, Erasure, OldSessionAction, refuse_hidden};

/// Time after which an erasure fences a run of this process that has not ended.
const OWN_RUN: Duration = Duration::from_secs(5);

impl Conversation {
    /// Archives the session, which hides it from lists; no run starts until [`unarchive`](Self::unarchive).
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/echo.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # let (agent, chat) = echo().await?;
    /// use agent_core::store::SessionQuery;
    ///
    /// chat.archive().await?;
    /// let page = agent.storage().sessions.list(SessionQuery::new()).await?;
    /// assert!(page.items.is_empty());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// `InvalidTransition` while the session runs.
    pub async fn archive(&self) -> Result<()> {
        self.trigger(Trigger::Archive).await
    }

    /// Restores an archived session to lists.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/echo.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # let (agent, chat) = echo().await?;
    /// use agent_core::store::SessionQuery;
    ///
    /// chat.archive().await?;
    /// chat.unarchive().await?;
    /// let page = agent.storage().sessions.list(SessionQuery::new()).await?;
    /// assert_eq!(page.items[0].id, chat.id());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// `InvalidTransition` if the session is not archived.
    pub async fn unarchive(&self) -> Result<()> {
        self.trigger(Trigger::Unarchive).await
    }

    /// Ends the session permanently: it accepts no inputs and stays readable.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/echo.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # let (agent, chat) = echo().await?;
    /// use agent_core::ErrorKind;
    ///
    /// chat.prompt("Hello").await?.finish().await?;
    /// chat.terminate().await?;
    /// assert_eq!(chat.refresh().await?.counts.messages(), 2);
    ///
    /// let error = chat.prompt("Are you there?").await.unwrap_err();
    /// assert!(matches!(error.kind(), ErrorKind::InvalidTransition { .. }));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// `Deleted`.
    pub async fn terminate(&self) -> Result<()> {
        self.trigger(Trigger::Terminate(Reason::UserEnded)).await
    }

    /// Deletes the session, and the [branches](Self::branches) that it has superseded; a tombstone remains, and the events until they are purged.
    /// [`erase`](Self::erase) removes them at once.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/echo.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # let (agent, chat) = echo().await?;
    /// use agent_core::ErrorKind;
    ///
    /// chat.delete().await?;
    /// let error = agent.conversation_by_id(chat.id()).await.unwrap_err();
    /// assert_eq!(*error.kind(), ErrorKind::Deleted);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// Errors of the store; `InvalidInput` for a [hidden session](agent_core::store::HiddenSession).
    pub async fn delete(&self) -> Result<()> {
        let deleted = self.runtime().workspaces.delete_session(self.id()).await?;
        self.inner.cache_record(&deleted);
        Ok(())
    }

    /// Deletes the session and removes its bytes from the store, in one call. A run of it that is active in this
    /// process is cancelled first.
    ///
    /// [`WorkspaceManager::erase`](agent_workspace::WorkspaceManager::erase) describes what is removed and what
    /// stays. That method takes an id, so it also finishes an erasure that was cut off, when no handle can be opened
    /// any more; [`erase_conversation`](crate::AgentRuntime::erase_conversation) does so for a key.
    ///
    /// The run gets 5 seconds to end; after that, it is fenced and can write nothing more. A run in another process is
    /// not stopped.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/echo.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # let agent = echo_agent()?;
    /// let chat = agent.conversation("support/4711").await?;
    /// chat.prompt("My address is …").await?.finish().await?;
    ///
    /// let erased = chat.erase().await?;
    /// assert_eq!(erased.needed_by, None);
    /// assert_eq!(*agent.conversation_by_id(chat.id()).await.unwrap_err().kind(), ErrorKind::Deleted);
    /// # Ok(()) }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped before it returns, the session may be deleted, and a part of its bytes may be left;
    /// call it again.
    ///
    /// # Errors
    ///
    /// Errors of [`WorkspaceManager::erase`](agent_workspace::WorkspaceManager::erase): `Busy` if another process
    /// runs the session; `InvalidInput` for a [hidden session](agent_core::store::HiddenSession).
    pub fn erase(&self) -> Erase<'_> {
        Erase::new(|now| self.erase_session(now))
    }

    pub(crate) async fn erase_session(&self, now: bool) -> Result<Erasure> {
        refuse_hidden(&self.record())?;
        let (runtime, runs) = (self.runtime(), &self.runtime().shared.runs.active);
        let ended = timeout(OWN_RUN, self.end_own_run()).await;
        debug!(session = %self.id(), in_time = ended.is_ok(), "the session has no run of this process");
        let is_own = |lease: &Lease| runs.is_active(lease.run);
        let erased = runtime.workspaces.erase_unless_held(self.id(), now, is_own).await?;
        // The tombstone replaces the record that this handle and its clones have cached.
        if let Err(error) = self.refresh().await {
            debug!(session = %self.id(), %error, "the tombstone could not be loaded");
        }
        Ok(erased)
    }

    /// Cancels the session's run, if it is active in this process, and waits until it has released the session.
    pub(super) async fn end_own_run(&self) {
        let (sessions, runs) = (&self.runtime().storage.sessions, &self.runtime().shared.runs.active);
        // The erasure reports a session that cannot be read.
        while let Ok(now) = self.refresh().await
            && let Some(run) = now.lease.as_ref().map(|lease| lease.run).filter(|run| runs.is_active(*run))
        {
            runs.cancel(run);
            if sessions.changed(self.id(), now.head).await.is_err() {
                return;
            }
        }
    }

    /// Replaces this session with a new, empty one, and archives or deletes this one. Returns the new session.
    ///
    /// See [`WorkspaceManager::reset`](agent_workspace::WorkspaceManager::reset).
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/echo.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # let (agent, chat) = echo().await?;
    /// use agent_core::state::SessionState;
    /// use agent_runtime::retention::OldSessionAction;
    ///
    /// chat.prompt("Hello").await?.finish().await?;
    /// let empty = chat.reset(OldSessionAction::Archive).await?;
    /// assert_eq!(empty.record().counts.messages(), 0);
    /// assert_eq!(chat.refresh().await?.status.state, SessionState::Archived);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// Errors of the stores; `Deleted` if this session was deleted.
    pub async fn reset(&self, former: OldSessionAction) -> Result<Self> {
        let session = self.runtime().workspaces.reset(self.id(), former).await?;
        Ok(Self::new(self.runtime().clone(), session))
    }
}
