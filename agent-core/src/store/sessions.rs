//! Writes to the sessions of a store, with ids and times from injected effects; the same for each backend.

use std::ops::Deref;
use std::sync::Arc;

use crate::base::{Effects, Error, OwnerId, Result, Seq, SessionId};
use crate::commit::{Commit, Committed, Precondition, Trigger};
use crate::event::{ChildCreated, EventPayload, NewEvent};
use crate::model::Patch;
use crate::session::{Fork, NewSession, SessionRecord};
use crate::store::session::SessionStore;
use crate::store::{compact, fork, retry};

/// Handle on the sessions of a store: the store's own methods, and writes built on them. Clones share the store.
///
/// Takes ids and times from its [`Effects`]. Each method returns the errors of the store methods that it calls.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
/// use agent_core::clock::Effects;
/// use agent_core::event::NewEvent;
/// use agent_core::session::NewSession;
/// use agent_core::{MemoryStore, Storage, Timestamp, WorkspaceId};
///
/// let effects = Effects::seeded(7, Timestamp::UNIX_EPOCH);
/// let sessions = Storage::from(MemoryStore::new()).with_effects(effects).sessions;
/// let new = NewSession::new(sessions.effects().new_session_id(), WorkspaceId::DEFAULT);
/// let session = sessions.create(new).await?;
/// let appended = sessions.append(session.id, session.head, vec![NewEvent::user_message("Hello")]).await?;
/// assert_eq!(sessions.load(session.id).await?, appended.session);
/// # Ok(()) }
/// ```
///
/// # Cancel safety
///
/// Every method may be dropped at any point. A dropped write was applied completely or not at all, or is still being
/// applied. [`create_child`](Self::create_child) and [`report_child`](Self::report_child) consist of two commits, of
/// which the first may be applied alone; calling `report_child` again finishes it.
#[derive(Clone, Debug)]
pub struct Sessions {
    store: Arc<dyn SessionStore>,
    effects: Effects,
    owner: Option<OwnerId>,
}

impl Deref for Sessions {
    type Target = dyn SessionStore;

    fn deref(&self) -> &Self::Target {
        &*self.store
    }
}

impl Sessions {
    /// Creates a handle on the sessions of `store`.
    pub fn new(store: Arc<dyn SessionStore>, effects: Effects) -> Self {
        Self { store, effects, owner: None }
    }

    /// Sets the owner that the store shows the sessions of.
    pub(crate) fn with_owner(self, owner: Option<OwnerId>) -> Self {
        Self { owner, ..self }
    }

    /// Returns the owner of the handle, and of the sessions that are created through it; `None` for a handle of the whole
    /// tenant. See [`Storage::for_owner`](crate::Storage::for_owner).
    pub const fn owner(&self) -> Option<&OwnerId> {
        self.owner.as_ref()
    }

    /// Returns the store.
    pub const fn store(&self) -> &Arc<dyn SessionStore> {
        &self.store
    }

    /// Returns the source of times and ids.
    pub const fn effects(&self) -> &Effects {
        &self.effects
    }

    /// Creates a commit to the session `id`, with a new id and the current time; see [`Commit::seal`]. `seen` is the
    /// session's head as the caller last saw it.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/setup.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// use agent_core::commit::{Precondition, Trigger};
    ///
    /// # let (sessions, effects, session) = session().await?;
    /// let archive = sessions.seal(session.id, session.head).with_trigger(Trigger::Archive);
    /// let archived = sessions.commit_new_with_retry(archive).await?.session;
    /// assert!(archived.head > session.head);
    /// # Ok(()) }
    /// ```
    pub fn seal(&self, id: SessionId, seen: Seq) -> Commit {
        Commit::seal(&self.effects, id, seen)
    }

    /// Creates a commit like [`seal`](Self::seal) that is refused with `Conflict` if the session's head is not `head` any
    /// more.
    pub fn seal_unchanged(&self, id: SessionId, head: Seq) -> Commit {
        self.seal(id, head).with_precondition(Precondition::Matches(head))
    }

    /// Sends a commit until its outcome is known.
    pub(crate) async fn send(&self, commit: Commit) -> Result<Committed> {
        retry::commit_with_retry(&**self, false, commit).await
    }

    /// Sends a commit that was just sealed until its outcome is known.
    async fn send_new(&self, commit: Commit) -> Result<Committed> {
        retry::commit_with_retry(&**self, true, commit).await
    }

    /// Creates a session that needs no preparation. It becomes `Idle`, or `Queued` if it is a fork with open inputs.
    ///
    /// # Errors
    ///
    /// `Conflict` if the id exists; nothing is changed then.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// use agent_core::clock::Effects;
    /// use agent_core::session::NewSession;
    /// use agent_core::{MemoryStore, Storage, WorkspaceId};
    ///
    /// let (store, effects) = (Storage::from(MemoryStore::new()).sessions, Effects::default());
    /// let new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
    /// let session = store.create(new.clone()).await?;
    /// assert_eq!(session.id, new.id);
    /// assert!(store.create(new).await.is_err(), "the id exists");
    /// # Ok(()) }
    /// ```
    pub async fn create(&self, new: NewSession) -> Result<Arc<SessionRecord>> {
        Ok(self.send(Commit::create(&self.effects, new)).await?.session)
    }

    /// Appends events to a session, whatever its head is now. `seen` is the head as the caller last saw it.
    ///
    /// The cost does not depend on the length of the session: one commit, which is sent again if more than 16 commits
    /// followed `seen`. A caller that does not know the head passes [`Seq::ZERO`], which costs one read of the record
    /// in addition. The log is read from `seen` on only if the outcome of an attempt is unknown and more than a few
    /// commits followed `seen`.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/setup.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # let (sessions, effects, session) = session().await?;
    /// let events = vec![NewEvent::user_message("What did we decide yesterday?")];
    /// let first = sessions.append(session.id, Seq::ZERO, events).await?;
    ///
    /// // A writer that appends again knows the head, and saves the read.
    /// let more = vec![NewEvent::user_message("And the day before?")];
    /// let second = sessions.append(session.id, first.last, more).await?;
    /// assert_eq!(second.first, first.last.next());
    /// # Ok(()) }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped before it returns, all of the events are appended, or none.
    ///
    /// # Errors
    ///
    /// Those of [`commit_with_retry`](crate::SessionStoreExt::commit_with_retry).
    pub async fn append(&self, id: SessionId, seen: Seq, events: Vec<NewEvent>) -> Result<Committed> {
        let mut commit = self.seal(id, seen).with_events(events);
        if commit.seen == Seq::ZERO {
            commit.seen = self.load(id).await?.head;
        }
        self.send_new(commit).await
    }

    /// Applies a trigger to a session.
    ///
    /// # Errors
    ///
    /// `InvalidTransition` if the session's state does not allow it.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/setup.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// use agent_core::commit::Trigger;
    /// use agent_core::state::{Reason, SessionState};
    ///
    /// # let (store, effects, session) = session().await?;
    /// let suspended = store.trigger(session.id, Trigger::Suspend(Reason::UserPaused)).await?.session;
    /// assert_eq!(suspended.status.state, SessionState::Suspended);
    /// store.trigger(session.id, Trigger::Resume).await?;
    /// # Ok(()) }
    /// ```
    pub async fn trigger(&self, id: SessionId, trigger: Trigger) -> Result<Committed> {
        let seen = self.load(id).await?.head;
        self.send_new(self.seal(id, seen).with_trigger(trigger)).await
    }

    /// Updates the attributes of a session whose head is `expect`.
    ///
    /// # Errors
    ///
    /// `Conflict` if the head is not `expect` any more.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/setup.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// use agent_core::model::{Patch, Title};
    ///
    /// # let (store, effects, session) = session().await?;
    /// let patch = Patch::new().with_title(Title::by_user("Trip to Oslo"));
    /// let updated = store.update(session.id, session.head, patch.clone()).await?.session;
    /// assert_eq!(updated.attributes.title.as_ref().unwrap().text, "Trip to Oslo");
    /// assert!(store.update(session.id, session.head, patch).await.is_err(), "the head has changed");
    /// # Ok(()) }
    /// ```
    pub async fn update(&self, id: SessionId, expect: Seq, patch: Patch) -> Result<Committed> {
        self.send(self.seal_unchanged(id, expect).with_event(NewEvent::updated(patch))).await
    }

    /// Clears the visible history. Title, labels, metadata, references and the system prompt stay, and the log keeps
    /// all events.
    ///
    /// # Errors
    ///
    /// `InvalidTransition` while the session runs or waits for an answer.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/setup.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # let (store, effects, session) = greeted().await?;
    /// assert_eq!(session.counts.messages(), 1);
    /// let cleared = store.clear(session.id).await?.session;
    /// assert_eq!((cleared.counts.messages(), cleared.visible_from), (0, cleared.head));
    /// # Ok(()) }
    /// ```
    pub async fn clear(&self, id: SessionId) -> Result<Committed> {
        let seen = self.load(id).await?.head;
        self.send_new(self.seal(id, seen).with_event(NewEvent::history_cleared())).await
    }

    /// Makes `summary` replace the visible history up to and including event `until`, in what a model is given.
    ///
    /// Without `until`, the summary replaces everything up to the last point at which no tool call is open and every
    /// input is answered. The log is unchanged, and its readers see all events. The events up to that point are read
    /// once.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if a tool call is open at `until`, an input before it is not answered yet, `until` is inside a
    /// commit, there is nothing between the last summary and `until`, or the summary has no text.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/setup.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # let (store, effects, session) = answered().await?;
    /// let compacted = store.compact(session.id, None, "They agreed on Oslo.").await?.session;
    /// assert_eq!((compacted.context_from, compacted.summary), (session.head, compacted.head));
    /// # Ok(()) }
    /// ```
    pub async fn compact(
        &self,
        id: SessionId,
        until: Option<Seq>,
        summary: impl Into<String> + Send,
    ) -> Result<Committed> {
        let summary = summary.into();
        if summary.trim().is_empty() {
            return Err(Error::invalid(format!("the summary for session {id} has no text; give it some")));
        }
        let now = self.load(id).await?;
        let compaction = compact::compaction(&**self, &now, until, summary).await?;
        let compacted = NewEvent::of(&EventPayload::SessionCompacted(compaction));
        self.send_new(self.seal(id, now.head).with_event(compacted)).await
    }

    /// Replaces the visible history of a session whose head is `expect` with `messages`, all of them or none, in one
    /// commit.
    ///
    /// The previous messages stay in the log. None of the new messages waits for a run.
    ///
    /// # Errors
    ///
    /// `Conflict` if the head is not `expect` any more; `InvalidTransition` while the session runs or waits for an
    /// answer; `InvalidInput` for events that are not messages; `LimitExceeded` for more than 1,023 of them.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/setup.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// use agent_core::event::NewEvent;
    ///
    /// # let (store, effects, session) = session().await?;
    /// let messages = vec![NewEvent::user_message("Where to?"), NewEvent::agent_message("To Oslo.")];
    /// let session = store.replace(session.id, session.head, messages).await?.session;
    /// assert_eq!((session.counts.messages(), session.has_open_work()), (2, false));
    /// # Ok(()) }
    /// ```
    pub async fn replace(&self, id: SessionId, expect: Seq, messages: Vec<NewEvent>) -> Result<Committed> {
        self.send(self.seal_unchanged(id, expect).with_trigger(Trigger::Replace(messages))).await
    }

    /// Creates an independent session that shares the history up to and including event `at`.
    ///
    /// Without `at`, the history is shared up to the last point at which no tool call is open. Nothing is copied: the
    /// new session refers to its ancestors. At the head, the cost does not depend on the length of the history; at an
    /// earlier point, the events up to there are read once.
    ///
    /// Inputs that are not answered stay with the original, unless [`Fork::with_open_inputs`] includes them. `fork`
    /// also accepts a sequence number or an `Option` of one.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if a tool call is open at `at`, or `at` is inside a commit or not in the history; `Deleted` if the
    /// session is deleted.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/setup.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// use agent_core::Seq;
    /// use agent_core::session::Fork;
    ///
    /// # let (store, effects, session) = session().await?;
    /// let fork = store.fork(session.id, Fork::new().with_open_inputs()).await?;
    /// assert_eq!(fork.lineage.base(), session.head);
    /// let early = store.fork(session.id, Seq::new(1)).await?;
    /// assert_eq!(early.lineage.base(), Seq::new(1));
    /// # Ok(()) }
    /// ```
    pub async fn fork(&self, id: SessionId, fork: impl Into<Fork> + Send) -> Result<Arc<SessionRecord>> {
        let now = self.load(id).await?;
        let new = self.plan_fork(&now, self.effects.new_session_id(), fork).await?;
        self.create(new).await
    }

    /// Returns the request that creates the session `child` as a fork of the session `now`, as [`fork`](Self::fork) does. Writes nothing.
    ///
    /// # Errors
    ///
    /// Those of [`fork`](Self::fork).
    pub async fn plan_fork(
        &self,
        now: &SessionRecord,
        child: SessionId,
        fork: impl Into<Fork> + Send,
    ) -> Result<NewSession> {
        fork::planned(&**self, now, child, fork.into()).await
    }

    /// Creates a helper of `parent`, in the same workspace, with a history of its own; records it in the parent's
    /// log.
    ///
    /// The child is created first, and names its parent. So a crash in between leaves a child that the parent's log
    /// does not mention, but that lists show.
    ///
    /// # Errors
    ///
    /// `Deleted` if the parent is deleted.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/setup.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// use agent_core::model::{Patch, Title};
    ///
    /// # let (store, effects, session) = session().await?;
    /// let patch = Patch::new().with_title(Title::generated("Search flights"));
    /// let child = store.create_child(session.id, patch).await?;
    /// assert_eq!(child.origin.parent(), Some(session.id));
    /// # Ok(()) }
    /// ```
    pub async fn create_child(&self, parent: SessionId, patch: Patch) -> Result<Arc<SessionRecord>> {
        let now = self.load(parent).await?;
        let new = NewSession::child(self.effects.new_session_id(), &now).with_patch(&patch);
        let child = self.create(new).await?;
        let created = NewEvent::of(&EventPayload::SessionChildCreated(ChildCreated::new(child.id)));
        self.append(parent, now.head, vec![created]).await?;
        Ok(child)
    }
}
