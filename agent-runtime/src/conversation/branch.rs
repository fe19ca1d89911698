//! Branches in the place of a conversation: an edited message, another answer, a return to an earlier point.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;
use tracing::debug;

use crate::conversation::handle::Conversation;
use crate::conversation::open::ConversationRun;
use crate::run::handle::Input;
use crate::turn::enqueue::apart;
use agent_core::commit::Commit;
use agent_core::event::{Event, EventType, NewEvent};
use agent_core::session::{Fork, SessionRecord};
use agent_core::state::SessionState;
use agent_core::store::ReadEvents;
use agent_core::{Error, ErrorKind, Result, Seq, SessionId, SessionStoreExt};
use agent_workspace::branches::Successor;

/// Time after which a run of this process that has not ended is fenced.
const OWN_RUN: Duration = Duration::from_secs(5);

impl Conversation {
    /// Continues from before a message of a person, with another one in its place, and starts a run that answers it. Returns the branch, which
    /// takes the place of this session.
    ///
    /// The branch is a [fork](Self::fork): nothing is copied, and the log of this session stays as it is. What was said since `message` is not in the
    /// branch. It takes over the key of the conversation, its title, labels and notes of that time, its place as main session, and the timers that were
    /// scheduled before that point. This session is archived, so that lists do not show it, and is one of the branch's [branches](Self::branches).
    /// A run that is active here is ended.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/echo.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # let agent = echo_agent()?;
    /// let chat = agent.conversation("support/4711").await?;
    /// chat.prompt("Hello").await?.finish().await?;
    /// chat.prompt("What is 6 x 7?").await?.finish().await?;
    ///
    /// let edited = chat.edit(chat.record().last_input, "What is 6 x 8?").await?;
    /// assert_eq!(edited.run.finish().await?.text, "What is 6 x 8?");
    /// let chat = agent.conversation("support/4711").await?;
    /// assert_eq!((chat.id(), chat.refresh().await?.counts.messages()), (edited.conversation.id(), 4));
    /// # Ok(()) }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the branch is put in the place of this session or not, and its run continues; [`in_place`](Self::in_place) opens
    /// what is there.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if `message` is not the event of a message of a person in the visible history; `Conflict` if another caller has put a
    /// branch in the place of this session; `InvalidTransition` if it is archived or has ended; errors of [`prompt`](Self::prompt).
    pub async fn edit(&self, message: Seq, input: impl Into<Input>) -> Result<ConversationRun> {
        let input = input.into().checked(self.id())?;
        let now = self.refresh().await?;
        self.message(&now, message).await?;
        let next = self.runtime().workspaces.successor(&now, &now, Fork::before(message)).await?;
        self.begin_branch(next, Some(input)).await
    }

    /// Answers the last message of a person once more, in a branch that takes the place of this session, as [`edit`](Self::edit) does. If that
    /// message has no answer yet and no run is active, this is [`run_pending`](Self::run_pending).
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/models.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # let model = ScriptedProvider::new([Turn::new().text("41"), Turn::new().text("42")]);
    /// # let (agent, chat) = scripted(model.clone()).await?;
    /// chat.prompt("What is 6 x 7?").await?.finish().await?;
    /// let again = chat.retry().await?;
    /// assert_eq!(again.run.finish().await?.text, "42");
    /// assert_eq!(again.conversation.refresh().await?.counts.messages(), 2);
    /// assert_eq!(model.requests()[0].messages, model.requests()[1].messages);
    /// # Ok(()) }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// That of [`edit`](Self::edit).
    ///
    /// # Errors
    ///
    /// `InvalidInput` if nobody has said anything, or a tool call was open when the message came; those of [`edit`](Self::edit).
    pub async fn retry(&self) -> Result<ConversationRun> {
        let now = self.refresh().await?;
        let message = self.last_message(&now)?;
        let is_open = now.inputs_open > 0;
        if is_open
            && now.status.state == SessionState::Queued
            && let Some(run) = self.run_pending().await?
        {
            return Ok(ConversationRun { conversation: self.clone(), run, created: false });
        }
        let fork = Fork::after(message).with_open_inputs();
        let next = self.runtime().workspaces.successor(&now, &now, fork).await?;
        self.begin_branch(next, None).await
    }

    /// Returns to an earlier point: the commit that has event `to` is the last one of the branch that takes the place of this session, as with
    /// [`edit`](Self::edit). Starts no run; messages without an answer stay unanswered.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/echo.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # let (agent, chat) = echo().await?;
    /// chat.prompt("Hello").await?.finish().await?;
    /// let answered = chat.record().head;
    /// chat.prompt("Never mind").await?.finish().await?;
    ///
    /// let back = chat.rewind(answered).await?;
    /// assert_eq!(back.record().counts.messages(), 2);
    /// assert_eq!(back.branches(10).await?[0].id, chat.id());
    /// # Ok(()) }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// That of [`edit`](Self::edit).
    ///
    /// # Errors
    ///
    /// `InvalidInput` if a tool call is open there, or `to` is not an event of the history; those of [`edit`](Self::edit).
    pub async fn rewind(&self, to: Seq) -> Result<Self> {
        let now = self.refresh().await?;
        let next = self.runtime().workspaces.successor(&now, &now, Fork::after(to)).await?;
        self.create_branch(next).await
    }

    /// Returns to before the last message of a person, as with [`rewind`](Self::rewind).
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/echo.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # let (agent, chat) = echo().await?;
    /// chat.prompt("Hello").await?.finish().await?;
    /// let before = chat.undo().await?;
    /// assert_eq!(before.record().counts.messages(), 0);
    ///
    /// let after = before.restore(chat.id()).await?;
    /// assert_eq!(after.record().counts.messages(), 2);
    /// # Ok(()) }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// That of [`edit`](Self::edit).
    ///
    /// # Errors
    ///
    /// `InvalidInput` if nobody has said anything; those of [`edit`](Self::edit).
    pub async fn undo(&self) -> Result<Self> {
        let now = self.refresh().await?;
        let message = self.last_message(&now)?;
        let next = self.runtime().workspaces.successor(&now, &now, Fork::before(message)).await?;
        self.create_branch(next).await
    }

    /// Lists the branches that this one has superseded, newest first, at most `limit`. They are archived, and can be read, [forked](Self::fork), and
    /// [restored](Self::restore).
    ///
    /// # Errors
    ///
    /// Errors of the store.
    pub async fn branches(&self, limit: usize) -> Result<Vec<Arc<SessionRecord>>> {
        let now = self.refresh().await?;
        self.runtime().workspaces.superseded(&now, limit).await
    }

    /// Continues a branch that this one has superseded, at its end: a fork of it takes the place of this session, as with [`edit`](Self::edit). Starts no
    /// run.
    ///
    /// # Cancel safety
    ///
    /// That of [`edit`](Self::edit).
    ///
    /// # Errors
    ///
    /// `InvalidInput` if `branch` is none of the [branches](Self::branches); those of [`edit`](Self::edit).
    pub async fn restore(&self, branch: SessionId) -> Result<Self> {
        let now = self.refresh().await?;
        let workspaces = &self.runtime().workspaces;
        let branches = workspaces.superseded(&now, usize::MAX).await?;
        let Some(from) = branches.iter().find(|other| other.id == branch) else {
            let text = format!("session {branch} is no branch that session {} has superseded", now.id);
            return Err(Error::invalid(text));
        };
        let next = workspaces.successor(&now, from, Fork::new()).await?;
        self.create_branch(next).await
    }

    /// Opens the branch that is in the place of this session now; this session, if none is.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/echo.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # let (agent, chat) = echo().await?;
    /// chat.prompt("Hello").await?.finish().await?;
    /// let again = chat.retry().await?;
    /// again.run.finish().await?;
    /// // A program that knows the former id only.
    /// let found = agent.conversation_by_id(chat.id()).await?.in_place().await?;
    /// assert_eq!(found.id(), again.conversation.id());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// `Deleted` if that branch was deleted; errors of the store.
    pub async fn in_place(&self) -> Result<Self> {
        let now = self.refresh().await?;
        let found = self.runtime().workspaces.in_place(&now).await?;
        Ok(Self::new(self.runtime().clone(), found))
    }

    /// Checks that an event is a message of a person in the visible history.
    async fn message(&self, now: &SessionRecord, seq: Seq) -> Result<Event> {
        let read = ReadEvents::first(1).with_after(Seq::new(seq.get().saturating_sub(1)));
        let page = self.runtime().storage.sessions.history(now.id, read.with_before(seq.next())).await?;
        let event = page.events.into_iter().next().filter(|event| {
            let is_message = [EventType::USER_MESSAGE, EventType::USER_DEFINE_OUTCOME].contains(&event.kind);
            is_message && event.seq == seq && seq > now.visible_from
        });
        event.ok_or_else(|| {
            Error::invalid(format!(
                "event {seq} of session {} is no message of a person in the visible history",
                now.id
            ))
        })
    }

    /// Returns the last message of a person in the visible history.
    fn last_message(&self, now: &SessionRecord) -> Result<Seq> {
        match now.last_input {
            last if last > now.visible_from => Ok(last),
            _ => Err(Error::invalid(format!("session {} has no message of a person", self.id()))),
        }
    }

    /// Creates a branch, and puts it in the place of this session.
    async fn create_branch(&self, next: Successor) -> Result<Self> {
        self.end_run_here().await;
        let here = self.clone();
        apart(self.id(), async move {
            let Successor { session, timers, .. } = next;
            let runtime = here.runtime();
            let events = timers.into_iter().map(NewEvent::timer_scheduled);
            let commit = Commit::create(runtime.effects(), session).with_events(events);
            let created = runtime.storage.sessions.commit_new_with_retry(commit).await;
            let session = here.unless_overtaken(created)?.session;
            match runtime.workspaces.confirm_created(&session).await {
                // An imported session may have no workspace.
                Err(error) if *error.kind() == ErrorKind::NotFound => {}
                confirmed => confirmed?,
            }
            here.give_place(&session).await?;
            Ok(Self::new(runtime.clone(), session))
        })
        .await
    }

    /// Creates a branch with an input, or with inputs that are open there, begins a run, and puts the branch in the place of this session.
    async fn begin_branch(&self, next: Successor, input: Option<Input>) -> Result<ConversationRun> {
        self.end_run_here().await;
        let here = self.clone();
        apart(self.id(), async move {
            let Successor { session, timers, .. } = next;
            let events = timers.into_iter().map(NewEvent::timer_scheduled).collect();
            let begun = Self::begin_new(here.runtime().clone(), session, events, input).await;
            let (conversation, run) = here.unless_overtaken(begun)?;
            here.give_place(&conversation.record()).await?;
            Ok(ConversationRun { conversation, run, created: true })
        })
        .await
    }

    /// Ends the run of this session, if it is one of this process: what it has said so far is stored, and not fenced.
    async fn end_run_here(&self) {
        let ended = timeout(OWN_RUN, self.end_own_run()).await;
        debug!(session = %self.id(), in_time = ended.is_ok(), "the session has no run of this process");
    }

    async fn give_place(&self, branch: &SessionRecord) -> Result<()> {
        self.runtime().workspaces.supersede(self.id(), branch).await?;
        self.refresh().await.map(drop)
    }

    /// Names the reason for which a branch of this id exists already.
    fn unless_overtaken<T>(&self, created: Result<T>) -> Result<T> {
        created.map_err(|error| match error.kind() {
            ErrorKind::Conflict { .. } => {
                let text = format!(
                    "another caller has put a branch in the place of session {} at the same time; open the conversation again",
                    self.id()
                );
                Error::new(error.kind().clone(), text).with_source(error)
            }
            _ => error,
        })
    }
}
