//! Extension methods of every [`SessionStore`], built only on its own methods, and the same for each backend.

use std::future::Future;
use std::sync::Arc;

use futures::stream::{self, BoxStream, StreamExt, TryStreamExt};

use crate::base::{Effects, Error, ErrorKind, Result, Seq, SessionId, SessionState, TriggerKind, target};
use crate::commit::{Commit, Committed, Precondition, Trigger};
use crate::event::{ChildCreated, Event, EventPayload, NewEvent};
use crate::model::Patch;
use crate::session::{Fork, NewSession, Session};
use crate::store::blob::{BlobContent, ReadBlob};
use crate::store::history::{PAGE, PAGE_BYTES, coming_events};
use crate::store::read::{EventPage, ReadEvents};
use crate::store::report::report_to_parent;
use crate::store::session::SessionStore;
use crate::store::{compact, history, retry};

/// Extension methods of every [`SessionStore`]; not to be implemented.
///
/// Each method returns the errors of the store methods that it calls.
///
/// # Cancel safety
///
/// Every method may be dropped at any point. A dropped write was applied completely or not at all, or is still being
/// applied. [`create_child`](Self::create_child) and [`report_child`](Self::report_child) consist of two commits, of
/// which the first may be applied alone; calling `report_child` again finishes it.
pub trait SessionStoreExt: SessionStore {
    /// Sends a commit until its outcome is known. A commit is never applied twice.
    ///
    /// After `Unavailable`, a panic of the store or an unknown outcome, the commit is sent again with the same id: at
    /// most five attempts, with growing pauses. If the store has used all the time that it [may](Error::is_timeout),
    /// there is one more attempt if the outcome is unknown, and none otherwise.
    ///
    /// If the record does not show any more whether the commit was applied, the log is read from [`Commit::seen`] on.
    /// If the commit is not there, it is sent again, up to a thousand times while other commits overtake it.
    ///
    /// # Errors
    ///
    /// Those of [`SessionStore::commit`]; after the last attempt, its error. The error's outcome is unknown if that
    /// of an earlier attempt was unknown and no later attempt could decide it.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # use agent_core::{MemoryStore, SessionStoreExt, WorkspaceId};
    /// # use agent_core::clock::Effects;
    /// # use agent_core::session::NewSession;
    /// use agent_core::commit::Commit;
    /// use agent_core::event::NewEvent;
    ///
    /// # let (store, effects) = (MemoryStore::new(), Effects::default());
    /// # let new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
    /// # let session = SessionStoreExt::create(&store, &effects, new).await?;
    /// let commit = Commit::seal(&effects, session.id, session.head).with_event(NewEvent::user_message("Hello"));
    /// // Keep the commit until it is acknowledged: after a crash, the same commit is sent again.
    /// let committed = store.commit_with_retry(commit.clone()).await?;
    /// assert!(store.commit_with_retry(commit).await?.replayed);
    /// # assert!(!committed.replayed);
    /// # Ok(()) }
    /// ```
    #[doc(alias = "settle")]
    fn commit_with_retry(&self, commit: Commit) -> impl Future<Output = Result<Committed>> + Send {
        retry::commit_with_retry(self, commit, false)
    }

    /// Sends a commit that was sealed for this call, like [`commit_with_retry`](Self::commit_with_retry).
    ///
    /// Such a commit cannot be in the log before its first attempt. Therefore the log is read only if the outcome of
    /// an attempt is unknown, however old [`Commit::seen`] is.
    ///
    /// # Errors
    ///
    /// Those of [`commit_with_retry`](Self::commit_with_retry).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # use agent_core::{MemoryStore, SessionStoreExt, WorkspaceId};
    /// # use agent_core::clock::Effects;
    /// # use agent_core::session::NewSession;
    /// use agent_core::commit::{Commit, Trigger};
    /// use agent_core::state::SessionState;
    ///
    /// # let (store, effects) = (MemoryStore::new(), Effects::default());
    /// # let new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
    /// # let session = SessionStoreExt::create(&store, &effects, new).await?;
    /// let archive = Commit::seal(&effects, session.id, session.head).with_trigger(Trigger::Archive);
    /// let archived = store.commit_new_with_retry(archive).await?.session;
    /// assert_eq!(archived.status.state, SessionState::Archived);
    /// # Ok(()) }
    /// ```
    fn commit_new_with_retry(&self, commit: Commit) -> impl Future<Output = Result<Committed>> + Send {
        retry::commit_with_retry(self, commit, true)
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
    /// use agent_core::{MemoryStore, SessionStoreExt, WorkspaceId};
    ///
    /// let (store, effects) = (MemoryStore::new(), Effects::default());
    /// let new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
    /// let session = store.create(&effects, new.clone()).await?;
    /// assert_eq!(session.id, new.id);
    /// assert!(store.create(&effects, new).await.is_err(), "the id exists");
    /// # Ok(()) }
    /// ```
    fn create(
        &self,
        effects: &Effects,
        new: NewSession,
    ) -> impl Future<Output = Result<Arc<Session>>> + Send {
        let commit = Commit::create(effects, new);
        async move { Ok(self.commit_with_retry(commit).await?.session) }
    }

    /// Appends events to a session, whatever its head is now. `seen` is the head as the caller last saw it.
    ///
    /// The cost does not depend on the length of the session: one commit, which is sent again if more than 16 commits
    /// followed `seen`. A caller that does not know the head passes [`Seq::ZERO`], which costs one read of the record
    /// in addition. The log is read from `seen` on only if the outcome of an attempt is unknown and more than a few
    /// commits followed `seen`.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # use agent_core::clock::Effects;
    /// # use agent_core::event::NewEvent;
    /// # use agent_core::session::NewSession;
    /// # use agent_core::{MemoryStore, Seq, SessionStoreExt, Storage, WorkspaceId};
    /// # let (storage, effects) = (Storage::from(MemoryStore::new()), Effects::default());
    /// # let new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
    /// # let id = storage.sessions.create(&effects, new).await?.id;
    /// let events = vec![NewEvent::user_message("What did we decide yesterday?")];
    /// let first = storage.sessions.append(&effects, id, Seq::ZERO, events).await?;
    ///
    /// // A writer that appends again knows the head, and saves the read.
    /// let more = vec![NewEvent::user_message("And the day before?")];
    /// let second = storage.sessions.append(&effects, id, first.last, more).await?;
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
    /// Those of [`commit_with_retry`](Self::commit_with_retry).
    fn append(
        &self,
        effects: &Effects,
        id: SessionId,
        seen: Seq,
        events: Vec<NewEvent>,
    ) -> impl Future<Output = Result<Committed>> + Send {
        let mut commit = Commit::seal(effects, id, seen).with_events(events);
        async move {
            if commit.seen == Seq::ZERO {
                commit.seen = self.load(id).await?.head;
            }
            retry::commit_with_retry(self, commit, true).await
        }
    }

    /// Applies a trigger to a session.
    ///
    /// # Errors
    ///
    /// `InvalidTransition` if the session's state does not allow it.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # use agent_core::{MemoryStore, SessionStoreExt, WorkspaceId};
    /// # use agent_core::clock::Effects;
    /// # use agent_core::session::NewSession;
    /// use agent_core::commit::Trigger;
    /// use agent_core::state::{Reason, SessionState};
    ///
    /// # let (store, effects) = (MemoryStore::new(), Effects::default());
    /// # let new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
    /// # let session = SessionStoreExt::create(&store, &effects, new).await?;
    /// let suspended = store.trigger(&effects, session.id, Trigger::Suspend(Reason::UserPaused)).await?.session;
    /// assert_eq!(suspended.status.state, SessionState::Suspended);
    /// store.trigger(&effects, session.id, Trigger::Resume).await?;
    /// # Ok(()) }
    /// ```
    fn trigger(
        &self,
        effects: &Effects,
        id: SessionId,
        trigger: Trigger,
    ) -> impl Future<Output = Result<Committed>> + Send {
        let effects = effects.clone();
        async move {
            let seen = self.load(id).await?.head;
            self.commit_new_with_retry(Commit::seal(&effects, id, seen).with_trigger(trigger)).await
        }
    }

    /// Updates the attributes of a session whose head is `expect`.
    ///
    /// # Errors
    ///
    /// `Conflict` if the head is not `expect` any more.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # use agent_core::{MemoryStore, SessionStoreExt, WorkspaceId};
    /// # use agent_core::clock::Effects;
    /// # use agent_core::session::NewSession;
    /// use agent_core::model::{Patch, Title};
    ///
    /// # let (store, effects) = (MemoryStore::new(), Effects::default());
    /// # let new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
    /// # let session = SessionStoreExt::create(&store, &effects, new).await?;
    /// let patch = Patch::new().with_title(Title::by_user("Trip to Oslo"));
    /// let updated = store.update(&effects, session.id, session.head, patch.clone()).await?.session;
    /// assert_eq!(updated.attributes.title.as_ref().unwrap().text, "Trip to Oslo");
    /// assert!(store.update(&effects, session.id, session.head, patch).await.is_err(), "the head has changed");
    /// # Ok(()) }
    /// ```
    fn update(
        &self,
        effects: &Effects,
        id: SessionId,
        expect: Seq,
        patch: Patch,
    ) -> impl Future<Output = Result<Committed>> + Send {
        let commit = Commit::seal(effects, id, expect).with_precondition(Precondition::Matches(expect));
        self.commit_with_retry(commit.with_event(NewEvent::updated(patch)))
    }

    /// Clears the visible history. Title, labels, metadata, references and the system prompt stay, and the log keeps
    /// all events.
    ///
    /// # Errors
    ///
    /// `InvalidTransition` while the session runs or waits for an answer.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # use agent_core::{MemoryStore, SessionStoreExt, WorkspaceId};
    /// # use agent_core::clock::Effects;
    /// # use agent_core::session::NewSession;
    /// # use agent_core::event::NewEvent;
    /// # let (store, effects) = (MemoryStore::new(), Effects::default());
    /// # let new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
    /// # let session = SessionStoreExt::create(&store, &effects, new).await?;
    /// # let events = vec![NewEvent::user_message("Hello")];
    /// # let session = store.append(&effects, session.id, session.head, events).await?.session;
    /// assert_eq!(session.counts.messages(), 1);
    /// let cleared = store.clear(&effects, session.id).await?.session;
    /// assert_eq!((cleared.counts.messages(), cleared.visible_from), (0, cleared.head));
    /// # Ok(()) }
    /// ```
    fn clear(&self, effects: &Effects, id: SessionId) -> impl Future<Output = Result<Committed>> + Send {
        let effects = effects.clone();
        async move {
            let seen = self.load(id).await?.head;
            self.commit_new_with_retry(
                Commit::seal(&effects, id, seen).with_event(NewEvent::history_cleared()),
            )
            .await
        }
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
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # use agent_core::{MemoryStore, SessionStoreExt, WorkspaceId};
    /// # use agent_core::clock::Effects;
    /// # use agent_core::session::NewSession;
    /// # use agent_core::event::NewEvent;
    /// # let (store, effects) = (MemoryStore::new(), Effects::default());
    /// # let new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
    /// # let session = SessionStoreExt::create(&store, &effects, new).await?;
    /// # let events = vec![NewEvent::user_message("Where to?"), NewEvent::agent_message("To Oslo.")];
    /// # let session = store.replace(&effects, session.id, session.head, events).await?.session;
    /// let compacted = store.compact(&effects, session.id, None, "They agreed on Oslo.").await?.session;
    /// assert_eq!((compacted.context_from, compacted.summary), (session.head, compacted.head));
    /// # Ok(()) }
    /// ```
    fn compact(
        &self,
        effects: &Effects,
        id: SessionId,
        until: Option<Seq>,
        summary: impl Into<String> + Send,
    ) -> impl Future<Output = Result<Committed>> + Send {
        let (effects, summary) = (effects.clone(), summary.into());
        async move {
            if summary.trim().is_empty() {
                return Err(Error::invalid(format!(
                    "the summary for session {id} has no text; give it some"
                )));
            }
            let now = self.load(id).await?;
            let compaction = compact::compaction(self, &now, until, summary).await?;
            let compacted = NewEvent::of(&EventPayload::SessionCompacted(compaction));
            self.commit_new_with_retry(Commit::seal(&effects, id, now.head).with_event(compacted)).await
        }
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
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # use agent_core::{MemoryStore, SessionStoreExt, WorkspaceId};
    /// # use agent_core::clock::Effects;
    /// # use agent_core::session::NewSession;
    /// use agent_core::event::NewEvent;
    ///
    /// # let (store, effects) = (MemoryStore::new(), Effects::default());
    /// # let new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
    /// # let session = SessionStoreExt::create(&store, &effects, new).await?;
    /// let messages = vec![NewEvent::user_message("Where to?"), NewEvent::agent_message("To Oslo.")];
    /// let session = store.replace(&effects, session.id, session.head, messages).await?.session;
    /// assert_eq!((session.counts.messages(), session.has_open_work()), (2, false));
    /// # Ok(()) }
    /// ```
    fn replace(
        &self,
        effects: &Effects,
        id: SessionId,
        expect: Seq,
        messages: Vec<NewEvent>,
    ) -> impl Future<Output = Result<Committed>> + Send {
        let commit = Commit::seal(effects, id, expect).with_precondition(Precondition::Matches(expect));
        self.commit_with_retry(commit.with_trigger(Trigger::Replace(messages)))
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
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # use agent_core::{MemoryStore, SessionStoreExt, WorkspaceId};
    /// # use agent_core::clock::Effects;
    /// # use agent_core::session::NewSession;
    /// use agent_core::Seq;
    /// use agent_core::session::Fork;
    ///
    /// # let (store, effects) = (MemoryStore::new(), Effects::default());
    /// # let new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
    /// # let session = SessionStoreExt::create(&store, &effects, new).await?;
    /// let fork = store.fork(&effects, session.id, Fork::new().with_open_inputs()).await?;
    /// assert_eq!(fork.lineage.base(), session.head);
    /// let early = store.fork(&effects, session.id, Seq::new(1)).await?;
    /// assert_eq!(early.lineage.base(), Seq::new(1));
    /// # Ok(()) }
    /// ```
    fn fork(
        &self,
        effects: &Effects,
        id: SessionId,
        fork: impl Into<Fork>,
    ) -> impl Future<Output = Result<Arc<Session>>> + Send {
        let (effects, fork) = (effects.clone(), fork.into());
        async move {
            let now = self.load(id).await?;
            let new = self.plan_fork(&effects, now, fork).await?;
            self.create(&effects, new).await
        }
    }

    #[doc(hidden)]
    fn plan_fork(
        &self,
        effects: &Effects,
        now: Arc<Session>,
        fork: Fork,
    ) -> impl Future<Output = Result<NewSession>> + Send {
        let child = effects.new_session_id();
        let new = move |past: &Session| match (NewSession::fork(child, past), fork.open_inputs) {
            (new, true) => new.with_open_inputs(past),
            (new, false) => new,
        };
        async move {
            if target(now.status.state, TriggerKind::Fork).is_none() {
                let kind = match now.status.state {
                    SessionState::Deleted => ErrorKind::Deleted,
                    from => ErrorKind::InvalidTransition { from, trigger: TriggerKind::Fork },
                };
                return Err(Error::new(
                    kind,
                    format!("session {} is {}; it cannot be forked", now.id, now.status),
                ));
            }
            let asked = fork.at.is_some();
            let mut at = fork.at.unwrap_or_else(|| now.pair_safe_head());
            if at == now.head && now.open_calls.is_empty() {
                return Ok(new(&now));
            }
            if at == Seq::ZERO || at > now.head {
                return Err(Error::invalid(format!(
                    "session {} has the events 1 to {}; it cannot be forked at {at}",
                    now.id, now.head
                )));
            }
            let open_call = |at: Seq, safe: Seq| {
                let safe = if safe > Seq::ZERO { format!("at {safe} or ") } else { String::new() };
                Err(Error::invalid(format!(
                    "a tool call is open at event {at} of session {}; fork {safe}after its result",
                    now.id
                )))
            };
            if let Some((before, after)) = history::inside_commit(self, &now, at).await? {
                if asked {
                    let before = if before > Seq::ZERO { format!("{before} or ") } else { String::new() };
                    return Err(Error::invalid(format!(
                        "event {at} of session {} is inside a commit; fork at {before}{after}",
                        now.id
                    )));
                }
                if before == Seq::ZERO {
                    return open_call(after, before);
                }
                at = before;
            }
            let mut past = history::fold_to(self, &now, at).await?;
            // A call that was closed since may have been open where the first of the open ones was made.
            while !past.open_calls.is_empty() {
                let safe = history::commit_end_before(self, &now, past.pair_safe_head()).await?;
                if asked || safe == Seq::ZERO {
                    return open_call(at, safe);
                }
                at = safe;
                past = history::fold_to(self, &now, at).await?;
            }
            // Attributes belong to the session, not to a point in its history.
            past.attributes = now.attributes.clone();
            past.lineage = now.lineage.clone();
            past.id = now.id;
            past.depth = now.depth;
            Ok(new(&past))
        }
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
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # use agent_core::{MemoryStore, SessionStoreExt, WorkspaceId};
    /// # use agent_core::clock::Effects;
    /// # use agent_core::session::NewSession;
    /// use agent_core::model::{Patch, Title};
    ///
    /// # let (store, effects) = (MemoryStore::new(), Effects::default());
    /// # let new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
    /// # let session = SessionStoreExt::create(&store, &effects, new).await?;
    /// let patch = Patch::new().with_title(Title::generated("Search flights"));
    /// let child = store.create_child(&effects, session.id, patch).await?;
    /// assert_eq!(child.origin.parent(), Some(session.id));
    /// # Ok(()) }
    /// ```
    fn create_child(
        &self,
        effects: &Effects,
        parent: SessionId,
        patch: Patch,
    ) -> impl Future<Output = Result<Arc<Session>>> + Send {
        let effects = effects.clone();
        async move {
            let now = self.load(parent).await?;
            let new = NewSession::child(effects.new_session_id(), &now).with_patch(&patch);
            let child = self.create(&effects, new).await?;
            let created = NewEvent::of(&EventPayload::SessionChildCreated(ChildCreated::new(child.id)));
            self.append(&effects, parent, now.head, vec![created]).await?;
            Ok(child)
        }
    }

    /// Reports the status of `child` and its result to the child's parent: once for each status, however often it is
    /// called, also after a crash.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if the session is not a child; `Deleted` if the parent is deleted.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # use agent_core::{MemoryStore, SessionStoreExt, WorkspaceId};
    /// # use agent_core::clock::Effects;
    /// # use agent_core::session::NewSession;
    /// # use agent_core::model::Patch;
    /// # let (store, effects) = (MemoryStore::new(), Effects::default());
    /// # let new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
    /// # let session = SessionStoreExt::create(&store, &effects, new).await?;
    /// # let child = store.create_child(&effects, session.id, Patch::new()).await?;
    /// let result = Some("3 flights found".to_owned());
    /// let reported = store.report_child(&effects, child.id, result.clone()).await?;
    /// assert_eq!(reported.session.id, session.id, "the parent");
    /// assert!(store.report_child(&effects, child.id, result).await?.replayed);
    /// # Ok(()) }
    /// ```
    fn report_child(
        &self,
        effects: &Effects,
        child: SessionId,
        result: Option<String>,
    ) -> impl Future<Output = Result<Committed>> + Send {
        let effects = effects.clone();
        async move {
            let now = self.load(child).await?;
            report_to_parent(self, &effects, &now, result, false).await
        }
    }

    /// Returns one page of the whole history, including the events in ancestors, like [`SessionStore::read`].
    ///
    /// # Errors
    ///
    /// Those of [`SessionStore::read`].
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # use agent_core::{MemoryStore, SessionStoreExt, WorkspaceId};
    /// # use agent_core::clock::Effects;
    /// # use agent_core::session::NewSession;
    /// # use agent_core::event::NewEvent;
    /// use agent_core::store::ReadEvents;
    ///
    /// # let (store, effects) = (MemoryStore::new(), Effects::default());
    /// # let new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
    /// # let session = SessionStoreExt::create(&store, &effects, new).await?;
    /// # let events = vec![NewEvent::user_message("Hello")];
    /// # let session = store.append(&effects, session.id, session.head, events).await?.session;
    /// let fork = store.fork(&effects, session.id, None).await?;
    /// let page = store.history(fork.id, ReadEvents::first(100)).await?;
    /// assert!(page.events.iter().any(|event| event.text().as_deref() == Some("Hello")));
    /// # Ok(()) }
    /// ```
    fn history(&self, id: SessionId, read: ReadEvents) -> impl Future<Output = Result<EventPage>> + Send {
        async move { history::history(self, id, read).await }
    }

    /// Returns one page of the whole history, like [`history`](Self::history), of a session whose record is loaded
    /// already.
    ///
    /// # Errors
    ///
    /// Those of [`SessionStore::read`].
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # use agent_core::{MemoryStore, SessionStoreExt, WorkspaceId};
    /// # use agent_core::clock::Effects;
    /// # use agent_core::session::NewSession;
    /// use agent_core::store::ReadEvents;
    ///
    /// # let (store, effects) = (MemoryStore::new(), Effects::default());
    /// # let new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
    /// # let session = SessionStoreExt::create(&store, &effects, new).await?;
    /// let newest = store.history_of(&session, ReadEvents::last(1)).await?;
    /// assert_eq!(newest.events[0].seq, session.head);
    /// # Ok(()) }
    /// ```
    fn history_of(
        &self,
        session: &Session,
        read: ReadEvents,
    ) -> impl Future<Output = Result<EventPage>> + Send {
        let (id, head, lineage) = (session.id, session.head, session.lineage.clone());
        async move { history::part_of(self, id, head, lineage, read).await }
    }

    /// Reads a blob that the event `seq` of the session's whole history names, from the log to which the event belongs:
    /// the session's own, or that of an ancestor.
    ///
    /// # Errors
    ///
    /// Those of [`SessionStore::read_blob`]: `Corrupt` also if the event names the blob and the log does not have it;
    /// `NotFound` if the event does not name it. Putting the same bytes for the session of the log, which the error names,
    /// restores a blob.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # use agent_core::{MemoryStore, SessionStoreExt, WorkspaceId};
    /// # use agent_core::clock::Effects;
    /// # use agent_core::session::NewSession;
    /// # use agent_core::event::{Media, Message, NewEvent, Part};
    /// use agent_core::SessionStore;
    /// use agent_core::store::{PutBlob, ReadBlob};
    ///
    /// # let (store, effects) = (MemoryStore::new(), Effects::default());
    /// # let new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
    /// # let session = SessionStoreExt::create(&store, &effects, new).await?;
    /// let put = PutBlob::of_bytes(session.id, "hello");
    /// let note = Media::blob("text/plain", put.blob.name, put.blob.bytes);
    /// store.put_blob(put).await?;
    /// let event = NewEvent::from(Message::new("My note").with_part(Part::Resource(note)));
    /// let seq = store.append(&effects, session.id, session.head, vec![event]).await?.last;
    ///
    /// let fork = store.fork(&effects, session.id, None).await?;
    /// let page = store.history(fork.id, agent_core::store::ReadEvents::last(2)).await?;
    /// let event = page.events.iter().find(|event| event.seq == seq).unwrap();
    /// let read = store.event_blob(event.seq, ReadBlob::new(fork.id, event.blobs[0])).await?;
    /// assert_eq!(read.into_bytes(1024).await?, "hello");
    /// # Ok(()) }
    /// ```
    fn event_blob(&self, seq: Seq, read: ReadBlob) -> impl Future<Output = Result<BlobContent>> + Send {
        async move {
            let session = self.load(read.session).await?;
            let (owner, _) = session.lineage.locate(session.id, seq);
            let read = ReadBlob { session: owner, ..read };
            match self.read_blob(read.clone()).await {
                Err(error) if *error.kind() == ErrorKind::NotFound => {
                    let one = ReadEvents::first(1).with_after(Seq::new(seq.get().saturating_sub(1)));
                    let page = self.read(owner, one).await?;
                    let is_named =
                        page.events.iter().any(|event| event.seq == seq && event.blobs.contains(&read.name));
                    Err(if is_named { read.lost(seq) } else { error })
                }
                content => content,
            }
        }
    }

    /// Returns all events after `after`, including those in ancestors, up to the current end. Holds one page in
    /// memory.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # use agent_core::{MemoryStore, SessionStoreExt, WorkspaceId};
    /// # use agent_core::clock::Effects;
    /// # use agent_core::session::NewSession;
    /// use agent_core::Seq;
    /// use futures::TryStreamExt;
    ///
    /// # let (store, effects) = (MemoryStore::new(), Effects::default());
    /// # let new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
    /// # let session = SessionStoreExt::create(&store, &effects, new).await?;
    /// let mut events = store.events(session.id, Seq::ZERO);
    /// let mut last = Seq::ZERO;
    /// while let Some(event) = events.try_next().await? {
    ///     last = event.seq;
    /// }
    /// assert_eq!(last, session.head);
    /// # Ok(()) }
    /// ```
    fn events(&self, id: SessionId, after: Seq) -> BoxStream<'_, Result<Event>> {
        let first = ReadEvents::first(PAGE).with_max_bytes(PAGE_BYTES).with_after(after);
        let pages = stream::try_unfold((None, Some(first)), move |(session, read)| async move {
            let Some(read) = read else { return Ok(None) };
            let session = match session {
                Some(session) => session,
                None => self.load(id).await?,
            };
            let mut page = self.history_of(&session, read.clone()).await?;
            if let (None, Some(damage)) = (&page.next, page.damaged.first()) {
                let Some(last) = page.events.last() else {
                    return Err(Error::corrupt(format!("session {id}: {damage}")));
                };
                // Readable events come first; then the page that starts with the damage, which is an error.
                page.next = Some(read.with_after(last.seq));
            }
            Ok(Some((stream::iter(page.events.into_iter().map(Ok)), (Some(session), page.next))))
        });
        pages.try_flatten().boxed()
    }

    /// Returns all events after `after`, then each new event as it is committed; the stream does not end, but by an error:
    /// `Deleted` if the next events were purged.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # use agent_core::{MemoryStore, SessionStoreExt, WorkspaceId};
    /// # use agent_core::clock::Effects;
    /// # use agent_core::session::NewSession;
    /// use agent_core::event::NewEvent;
    /// use futures::TryStreamExt;
    ///
    /// # let (store, effects) = (MemoryStore::new(), Effects::default());
    /// # let new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
    /// # let session = SessionStoreExt::create(&store, &effects, new).await?;
    /// let mut live = store.follow(session.id, session.head);
    /// store.append(&effects, session.id, session.head, vec![NewEvent::user_message("Hello")]).await?;
    /// let event = live.try_next().await?.unwrap();
    /// assert_eq!(event.text().as_deref(), Some("Hello"));
    /// # Ok(()) }
    /// ```
    fn follow(&self, id: SessionId, after: Seq) -> BoxStream<'_, Result<Event>> {
        let pages = stream::try_unfold(after, move |seen| async move {
            let (events, seen) = coming_events(self, id, seen).await?;
            Ok::<_, Error>(Some((stream::iter(events.into_iter().map(Ok)), seen)))
        });
        pages.try_flatten().boxed()
    }
}

impl<T: SessionStore + ?Sized> SessionStoreExt for T {}
