//! Conveniences for every [`SessionStore`]: complete from its methods, and the same on each.

use std::future::Future;
use std::sync::Arc;

use futures::stream::{self, BoxStream, StreamExt, TryStreamExt};

use crate::base::{Effects, Error, ErrorKind, Result, Seq, SessionId, SessionState, TriggerKind, target};
use crate::commit::{Commit, Committed, Expect, Trigger};
use crate::event::{Body, ChildCreated, Event, NewEvent};
use crate::model::Patch;
use crate::session::{Fork, NewSession, Session};
use crate::store::history::{PAGE, PAGE_BYTES, coming};
use crate::store::read::{EventPage, ReadEvents};
use crate::store::report::report_to_parent;
use crate::store::session::SessionStore;
use crate::store::{compact, history, retry};

/// Conveniences for every [`SessionStore`]; not to be implemented.
///
/// Each returns the errors of the methods that it is made of.
pub trait SessionStoreExt: SessionStore {
    /// Sends a commit until it is known what became of it: `Unavailable`, a panic of the store and unknown outcomes are
    /// tried again with the same id, five times with growing pauses. Where the store has taken all the time that it
    /// [may](Error::is_timeout), it is tried once more if the outcome is unknown, and otherwise not. Where nobody can tell whether it landed long ago,
    /// the log is read on from [`Commit::seen`] and the commit sent again if it is not there, for as long as others keep
    /// overtaking it (a thousand times). Nothing is ever applied twice.
    ///
    /// # Errors
    ///
    /// Those of [`SessionStore::commit`]; the last, where all attempts failed. Its outcome is unknown where that of an
    /// earlier attempt was, and no later one could tell.
    fn settle(&self, commit: Commit) -> impl Future<Output = Result<Committed>> + Send {
        retry::settle(self, commit, false)
    }

    /// As [`settle`](Self::settle), for a commit that was sealed for this call. It lies nowhere before its first attempt:
    /// the log is read only if the outcome of an attempt is unknown, however long ago its writer looked.
    ///
    /// # Errors
    ///
    /// Those of [`settle`](Self::settle).
    fn settle_new(&self, commit: Commit) -> impl Future<Output = Result<Committed>> + Send {
        retry::settle(self, commit, true)
    }

    /// Creates a session that needs no preparation; it is `Idle`, or `Queued` if a fork took open inputs along.
    ///
    /// # Errors
    ///
    /// `Conflict` where the id exists; nothing is changed then.
    fn create(
        &self,
        effects: &Effects,
        new: NewSession,
    ) -> impl Future<Output = Result<Arc<Session>>> + Send {
        let commit = Commit::create(effects, new);
        async move { Ok(self.settle(commit).await?.session) }
    }

    /// Appends events to a session whose head was `seen` when last looked at, whatever it is now.
    ///
    /// The cost does not depend on how long ago that was. Who has not looked gives [`Seq::ZERO`], which costs one read of
    /// the record more. Only if the outcome of an attempt is unknown, and more than a few commits came since `seen`, is the
    /// log read from there on, to find out.
    ///
    /// # Errors
    ///
    /// Those of [`settle`](Self::settle).
    fn append(
        &self,
        effects: &Effects,
        id: SessionId,
        seen: Seq,
        events: Vec<NewEvent>,
    ) -> impl Future<Output = Result<Committed>> + Send {
        let mut commit = Commit::seal(effects, id, seen).events(events);
        async move {
            if commit.seen == Seq::ZERO {
                commit.seen = self.load(id).await?.head;
            }
            retry::settle(self, commit, true).await
        }
    }

    /// Asks something of a session's status.
    ///
    /// # Errors
    ///
    /// `InvalidTransition` where its state does not allow it.
    fn trigger(
        &self,
        effects: &Effects,
        id: SessionId,
        trigger: Trigger,
    ) -> impl Future<Output = Result<Committed>> + Send {
        let effects = effects.clone();
        async move {
            let seen = self.load(id).await?.head;
            self.settle_new(Commit::seal(&effects, id, seen).trigger(trigger)).await
        }
    }

    /// Changes what is said of a session, as it was at `expect`.
    ///
    /// # Errors
    ///
    /// `Conflict` where the session is no longer at `expect`.
    fn update(
        &self,
        effects: &Effects,
        id: SessionId,
        expect: Seq,
        patch: Patch,
    ) -> impl Future<Output = Result<Committed>> + Send {
        let commit = Commit::seal(effects, id, expect).expect(Expect::Is(expect));
        self.settle(commit.event(NewEvent::updated(patch)))
    }

    /// Starts the visible history anew. Title, labels, metadata, references and the system prompt stay, and the log
    /// keeps everything.
    ///
    /// # Errors
    ///
    /// `InvalidTransition` while it runs or waits for an answer.
    fn clear(&self, effects: &Effects, id: SessionId) -> impl Future<Output = Result<Committed>> + Send {
        let effects = effects.clone();
        async move {
            let seen = self.load(id).await?.head;
            self.settle_new(Commit::seal(&effects, id, seen).event(NewEvent::history_cleared())).await
        }
    }

    /// Lets `summary` stand for the visible history up to and including event `until`, where a model is given it; or up
    /// to the last point where no tool call is open and every input is answered. The log stays as it is, and whoever
    /// reads it reads everything. The events up to there are read once.
    ///
    /// # Errors
    ///
    /// `InvalidInput` where a tool call is open at `until`, an input before it is not answered yet, there is nothing
    /// between the last summary and `until`, or the summary has no text.
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
            let until = compact::until(self, &now, until).await?;
            let compacted = NewEvent::compacted(until, summary);
            self.settle_new(Commit::seal(&effects, id, now.head).event(compacted)).await
        }
    }

    /// Puts `messages` in place of the visible history of a session that is at `expect`: all of them or none, in one
    /// commit. What was said before stays in the log. None of the messages waits for a run.
    ///
    /// # Errors
    ///
    /// `Conflict` where the session is no longer at `expect`; `InvalidTransition` while it runs or waits for an answer;
    /// `InvalidInput` for events that are no messages; `LimitExceeded` for more than 1,023 of them.
    fn replace(
        &self,
        effects: &Effects,
        id: SessionId,
        expect: Seq,
        messages: Vec<NewEvent>,
    ) -> impl Future<Output = Result<Committed>> + Send {
        let commit = Commit::seal(effects, id, expect).expect(Expect::Is(expect));
        self.settle(commit.trigger(Trigger::Replace(messages)))
    }

    /// Makes an independent session that shares the history up to and including event `at`, or up to the last point
    /// where no tool call is open. Nothing is copied: the new session names its ancestors. At the head the cost does
    /// not depend on the length; at an earlier point the events up to there are read once.
    ///
    /// Inputs that are not answered stay with the original, unless [`Fork::with_open_inputs`] asks for them. `fork` may be
    /// given as a sequence number or an `Option` of one.
    ///
    /// # Errors
    ///
    /// `InvalidInput` where a tool call is open at `at`, or `at` is not in the history; `Deleted`.
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
            let mut past = history::fold_to(self, &now, at).await?;
            // A call that was closed since may have been open where the first of the open ones was made.
            while !asked && !past.open_calls.is_empty() {
                at = past.pair_safe_head();
                past = history::fold_to(self, &now, at).await?;
            }
            if !past.open_calls.is_empty() {
                return Err(Error::invalid(format!(
                    "a tool call is open at event {at} of session {}; fork at {} or after its result",
                    now.id,
                    past.pair_safe_head()
                )));
            }
            // What is said of a session belongs to it, not to a point in its history.
            past.attributes = now.attributes.clone();
            past.lineage = now.lineage.clone();
            past.id = now.id;
            past.depth = now.depth;
            Ok(new(&past))
        }
    }

    /// Makes a helper of `parent`, in its workspace, with a history of its own; says so in the parent's log.
    ///
    /// The child comes first, with its parent's name in it: a crash in between leaves a child that the parent's log
    /// does not mention, and that lists find.
    ///
    /// # Errors
    ///
    /// `Deleted` for the parent.
    fn create_child(
        &self,
        effects: &Effects,
        parent: SessionId,
        patch: Patch,
    ) -> impl Future<Output = Result<Arc<Session>>> + Send {
        let effects = effects.clone();
        async move {
            let now = self.load(parent).await?;
            let new = NewSession::child(effects.new_session_id(), &now).with(&patch);
            let child = self.create(&effects, new).await?;
            let said = NewEvent::of(&Body::SessionChildCreated(ChildCreated::new(child.id)));
            self.append(&effects, parent, now.head, vec![said]).await?;
            Ok(child)
        }
    }

    /// Tells the parent of `child` the status that the child has come to, and its result: once, however often it is
    /// called for the same status, also after a crash.
    ///
    /// # Errors
    ///
    /// `InvalidInput` where the session is no child; `Deleted` for the parent.
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

    /// Events of the whole history, through its ancestors: one page, as [`SessionStore::read`] gives one.
    ///
    /// # Errors
    ///
    /// Those of [`SessionStore::read`].
    fn history(&self, id: SessionId, read: ReadEvents) -> impl Future<Output = Result<EventPage>> + Send {
        async move { history::history(self, id, read).await }
    }

    /// As [`history`](Self::history), for a record at hand.
    ///
    /// # Errors
    ///
    /// Those of [`SessionStore::read`].
    fn history_of(
        &self,
        session: &Session,
        read: ReadEvents,
    ) -> impl Future<Output = Result<EventPage>> + Send {
        let (id, head, lineage) = (session.id, session.head, session.lineage.clone());
        async move { history::part_of(self, id, head, lineage, read).await }
    }

    /// All events after `after`, through the ancestors, to the present end; a page at a time in memory.
    fn events(&self, id: SessionId, after: Seq) -> BoxStream<'_, Result<Event>> {
        let first = ReadEvents::first(PAGE).max_bytes(PAGE_BYTES).after(after);
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
                // What is readable comes first; then the page that starts with the damage, which is an error.
                page.next = Some(read.after(last.seq));
            }
            Ok(Some((stream::iter(page.events.into_iter().map(Ok)), (Some(session), page.next))))
        });
        pages.try_flatten().boxed()
    }

    /// All events after `after`, and then those that come, for ever.
    fn follow(&self, id: SessionId, after: Seq) -> BoxStream<'_, Result<Event>> {
        let pages = stream::try_unfold(after, move |seen| async move {
            let (events, seen) = coming(self, id, seen).await?;
            Ok::<_, Error>(Some((stream::iter(events.into_iter().map(Ok)), seen)))
        });
        pages.try_flatten().boxed()
    }
}

impl<T: SessionStore + ?Sized> SessionStoreExt for T {}
