//! A session in a host's hand: cheap, holds no lease, blocks nobody.

use std::sync::Arc;

use futures::stream::{self, BoxStream, StreamExt, TryStreamExt};
use tracing::{Instrument, debug, instrument};

use crate::holdings::Documents;
use crate::holdings::Learnings;
use crate::holdings::{effective_mounts, freeze_mounts};
use crate::retention::{Former, refuse_shelf};
use crate::runtime::agent::AgentRuntime;
use crate::runtime::calls::call_at;
use crate::runtime::holder::{Watched, watch_holder};
use crate::runtime::run::{Begun, Input, Run};
use crate::runtime::say::{cut_off, say};
use crate::runtime::session_ref::SessionRef;
use crate::runtime::stop::is_set;
use crate::runtime::turn::{Cause, begin, stored};
use crate::runtime::{children, settings};
use crate::views::SessionView;
use agent_core::commit::{Commit, Committed, Expect, Trigger};
use agent_core::event::{Body, Event, NewEvent, ToolConfirmation, ToolResult, ToolUse};
use agent_core::model::{
    ActionId, Actor, Artifact, Counts, ExternalHandle, Liveness, MountSet, OpenCall, Patch, Title, Wake,
};
use agent_core::session::{Fork, NewSession, Session};
use agent_core::state::{Reason, SessionState};
use agent_core::store::{EventPage, ReadEvents, next_events};
use agent_core::{
    DeviceId, Epoch, Error, ErrorKind, Result, Seq, SessionId, SessionStoreExt, Timestamp, WorkspaceId,
};

/// A session. Cheap to clone; holds no lease and blocks nobody.
#[derive(Clone, Debug)]
pub struct SessionHandle {
    inner: SessionRef,
}

/// An answer to what a session waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ActionAnswer {
    /// A decision.
    Confirm(ToolConfirmation),
    /// What a tool that ran outside delivers.
    Deliver(ToolResult),
}

impl ActionAnswer {
    fn into_event(self) -> NewEvent {
        let body = match self {
            Self::Confirm(answer) => Body::UserToolConfirmation(answer),
            Self::Deliver(result) => Body::UserCustomToolResult(result),
        };
        NewEvent::of(&body).with_actor(Actor::USER)
    }
}

impl From<ToolConfirmation> for ActionAnswer {
    fn from(answer: ToolConfirmation) -> Self {
        Self::Confirm(answer)
    }
}

impl From<ToolResult> for ActionAnswer {
    fn from(answer: ToolResult) -> Self {
        Self::Deliver(answer)
    }
}

/// How much a session holds, from its record alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ContextCounts {
    /// How many events of each kind are visible.
    pub counts: Counts,
    /// How many inputs wait.
    pub pending: u64,
    /// The last event.
    pub head: Seq,
    /// The latest time of any event.
    pub last_active_at: Timestamp,
}

impl AgentRuntime {
    /// The main session of a device's workspace; both are created where they are not there. Starts no run.
    ///
    /// # Errors
    ///
    /// Any error of the stores, as it is.
    pub async fn open(&self, device: &DeviceId) -> Result<SessionHandle> {
        let resolved = self.workspaces.resolve(device).await?;
        let session = self.workspaces.main_session(&resolved.workspace).await?;
        SessionHandle::new(self.clone(), session).freeze_config().await
    }

    /// A session by its id. Starts no run.
    ///
    /// # Errors
    ///
    /// `NotFound`; `Deleted` for one that was deleted.
    pub async fn session(&self, id: SessionId) -> Result<SessionHandle> {
        let session = self.storage.sessions.load(id).await?;
        if session.status.state == SessionState::Deleted {
            return Err(Error::new(ErrorKind::Deleted, format!("session {id} was deleted")));
        }
        Ok(SessionHandle::new(self.clone(), session))
    }

    /// A further session in a workspace. Starts no run.
    ///
    /// # Errors
    ///
    /// `NotFound`, `Deleted` for the workspace.
    pub async fn new_session(&self, workspace: WorkspaceId, patch: &Patch) -> Result<SessionHandle> {
        let session = self.workspaces.new_session(workspace, patch).await?;
        SessionHandle::new(self.clone(), session).freeze_config().await
    }

    /// Starts at most one bounded run of a session, where nobody waits for its outcome: none where nothing waits or is
    /// due, or somebody else runs it; otherwise one that takes up everything that does. A question whose time is over
    /// is given up first. A run that fails, or whose process is lost, is tried again after a [pause](crate::runtime::config::Config::retry).
    ///
    /// Where the session is run by somebody, it watches the holder as [`SessionHandle::wake`] does.
    ///
    /// # Errors
    ///
    /// `NotFound`, `Deleted`; those of the store; `Unavailable` in a shutdown.
    pub async fn wake(&self, id: SessionId) -> Result<Option<Run>> {
        let handle = self.session(id).await?;
        let now = handle.snapshot();
        let expired = match watch_holder(&handle.inner, &now, false).await? {
            Watched::Gone(epoch) => Some(epoch),
            Watched::Alive => return Ok(None),
            Watched::Released => None,
        };
        handle.wake_unattended(expired).await
    }
}

impl SessionHandle {
    pub(crate) fn new(runtime: AgentRuntime, session: Arc<Session>) -> Self {
        Self { inner: SessionRef::new(runtime, session) }
    }

    /// The session's id.
    pub const fn id(&self) -> SessionId {
        self.inner.id()
    }

    /// The runtime that it was opened by.
    pub const fn runtime(&self) -> &AgentRuntime {
        self.inner.runtime()
    }

    /// The record as last seen by this handle or a clone of it.
    pub fn snapshot(&self) -> Arc<Session> {
        self.inner.snapshot()
    }

    /// The record as it is now.
    ///
    /// # Errors
    ///
    /// Those of the store.
    pub async fn refresh(&self) -> Result<Arc<Session>> {
        self.inner.refresh().await
    }

    /// Stores what a person says and starts a run that answers it, both in one commit.
    ///
    /// Prompts that wait for one another go in one commit and are answered by one run, which one of the callers gets: if it is
    /// cancelled or fails, that concerns them all.
    ///
    /// Where no run may start, the input is stored all the same: the stream then says so, with the name of whoever
    /// runs the session, and ends. A holder that is proven dead is replaced at once; for one that is only silent, see
    /// [`wait_turn`](Self::wait_turn).
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a text that is empty or white space only; `InvalidTransition` where the session takes no inputs
    /// (it is archived, terminated, failed); `Unavailable` in a shutdown; `LimitExceeded`; any other error of the store.
    /// The input is not stored then, unless the [outcome](agent_core::Error::write_outcome) is unknown.
    #[instrument(name = "prompt", skip_all, fields(session = %self.id()))]
    pub async fn prompt(&self, input: impl Into<Input>) -> Result<Run> {
        let input = input.into().checked(self.id())?;
        let handle = self.inner.clone();
        self.begin_or_wait(async move { say(&handle, input, true).await }).await
    }

    async fn begin_or_wait(
        &self,
        beginning: impl Future<Output = Result<Begun>> + Send + 'static,
    ) -> Result<Run> {
        let ((), begun) = tokio::join!(self.touch(), self.apart(beginning));
        let Begun { run, seq } = begun?;
        Ok(run.unwrap_or_else(|| {
            let now = self.snapshot();
            Run::waiting(stored(&now, seq), now.status)
        }))
    }

    async fn begin(&self, cause: Cause) -> Result<Begun> {
        let handle = self.inner.clone();
        self.apart(async move { begin(&handle, cause).await }).await
    }

    /// Begins in a task of its own: a caller that goes away leaves no lease behind without a run.
    async fn apart(&self, beginning: impl Future<Output = Result<Begun>> + Send + 'static) -> Result<Begun> {
        let begun = tokio::spawn(beginning.in_current_span()).await;
        begun.unwrap_or_else(|failed| Err(cut_off(self.id()).with_source(failed)))
    }

    /// Notes that the workspace is used; that it cannot be noted fails nothing.
    async fn touch(&self) {
        let workspace = self.snapshot().workspace;
        if let Err(error) = self.runtime().workspaces.touch(workspace).await {
            debug!(%workspace, %error, "the access could not be noted");
        }
    }

    /// Stores what a person says for the next run; starts none. Returns the input's event.
    ///
    /// # Errors
    ///
    /// As for [`prompt`](Self::prompt).
    pub async fn send(&self, input: impl Into<Input>) -> Result<Seq> {
        let input = input.into().checked(self.id())?;
        let handle = self.inner.clone();
        let said = self.apart(async move { say(&handle, input, false).await });
        let ((), stored) = tokio::join!(self.touch(), said);
        Ok(stored?.seq)
    }

    /// Starts one bounded run, if something waits or is due and no other run goes on; otherwise none. What waits may
    /// be several inputs: the run answers them all.
    ///
    /// Where the session is run by somebody, it watches the holder for as long as its lease lives without a sign of
    /// life: one that is silent for so long, or proven dead, is replaced. At the first sign of life it gives up.
    ///
    /// # Errors
    ///
    /// Those of the store; `Unavailable` in a shutdown.
    pub async fn wake(&self) -> Result<Option<Run>> {
        let now = self.refresh().await?;
        let expired = match watch_holder(&self.inner, &now, false).await? {
            Watched::Gone(epoch) => Some(epoch),
            Watched::Alive => return Ok(None),
            Watched::Released => None,
        };
        let overdue = self.overdue();
        Ok(self.begin(Cause { expired, overdue, ..Cause::default() }).await?.run)
    }

    /// As [`wake`](Self::wake), where nobody waits for the outcome: see [`AgentRuntime::wake`].
    pub(crate) async fn wake_unattended(&self, expired: Option<Epoch>) -> Result<Option<Run>> {
        let overdue = self.overdue();
        let cause = Cause { expired, overdue, unattended: true, ..Cause::default() };
        Ok(self.begin(cause).await?.run)
    }

    /// What the session waits for, as last seen, and has waited for too long.
    fn overdue(&self) -> Option<ActionId> {
        let (now, at) = (self.snapshot(), self.runtime().effects().now());
        let action = now.action.as_ref().filter(|_| now.status.state == SessionState::RequiresAction)?;
        action.expires_at.is_some_and(|expires_at| expires_at <= at).then(|| action.id.clone())
    }

    /// Wants a run at [`wake.at`](Wake::at), once: a wake of the same [key](Wake::key) takes the place of the earlier
    /// one. Whoever looks after the sessions starts it, see [`Scheduler`](crate::runtime::scheduler::Scheduler). Durable when it
    /// returns.
    ///
    /// # Errors
    ///
    /// `LimitExceeded` for more than 128 wakes; `InvalidInput`; `InvalidTransition` where the session is over.
    pub async fn schedule(&self, wake: Wake) -> Result<()> {
        self.commit(|commit| commit.event(NewEvent::wake_scheduled(wake))).await.map(drop)
    }

    /// Takes back the wake of this key. Nothing happens where there is none.
    ///
    /// # Errors
    ///
    /// `InvalidTransition` where the session is over.
    pub async fn cancel_wake(&self, key: &str) -> Result<()> {
        self.commit(|commit| commit.event(NewEvent::wake_cancelled(key))).await.map(drop)
    }

    /// Waits for this session's turn, as long as it takes, and then starts one bounded run; none where nothing waits
    /// any more, because somebody else has done it, or where the session cannot run (it waits for an answer, is set
    /// aside, or is to be tried again later).
    ///
    /// For a prompt that was only stored: while the holder lives it waits; when the holder ends its run, dies, or is
    /// silent for its whole lease, it goes on. May be dropped at any point.
    ///
    /// # Errors
    ///
    /// Those of the store; `Unavailable` in a shutdown.
    pub async fn wait_turn(&self) -> Result<Option<Run>> {
        loop {
            let now = self.refresh().await?;
            let expired = match watch_holder(&self.inner, &now, true).await? {
                Watched::Gone(epoch) => Some(epoch),
                Watched::Alive | Watched::Released => None,
            };
            let begun = self.begin(Cause { expired, ..Cause::default() }).await?;
            if begun.run.is_some() {
                return Ok(begun.run);
            }
            let now = self.refresh().await?;
            let at = self.runtime().effects().now();
            let waits = now.last_input > now.handled && now.ready_at.is_none_or(|ready_at| ready_at <= at);
            let open = match now.status.state {
                SessionState::Running => true,
                // Somebody was quicker, and is done already.
                SessionState::Queued => waits,
                _ => false,
            };
            if !open {
                return Ok(None);
            }
        }
    }

    /// Answers what the session waits for; the next run goes on from there. See
    /// [`answer_and_run`](Self::answer_and_run).
    ///
    /// # Errors
    ///
    /// `InvalidInput` where the answer is to something else; `InvalidTransition` where it waits for nothing; `Expired`
    /// where the question's [time](field@agent_core::model::PendingAction::expires_at) is over by this process's clock. Nothing runs then:
    /// [`wake`](Self::wake) gives the question up, and goes on without.
    pub async fn answer(&self, answer: impl Into<ActionAnswer>) -> Result<()> {
        let answer = answer.into().into_event();
        self.commit(|commit| commit.event(answer)).await.map(drop)
    }

    /// Answers what the session waits for and starts the run that goes on from there, both in one commit.
    ///
    /// Of several answers that come at the same moment one starts a run; the others are errors. May be dropped at any
    /// point: the answer and its run then are either both stored or neither.
    ///
    /// # Errors
    ///
    /// As for [`answer`](Self::answer); `Unavailable` in a shutdown. The answer is not stored then, unless the
    /// [outcome](agent_core::Error::write_outcome) is unknown.
    #[instrument(name = "answer", skip_all, fields(session = %self.id()))]
    pub async fn answer_and_run(&self, answer: impl Into<ActionAnswer>) -> Result<Run> {
        let answer = answer.into().into_event();
        let (handle, answer) = (self.inner.clone(), Some(answer));
        self.begin_or_wait(async move { begin(&handle, Cause { answer, ..Cause::default() }).await }).await
    }

    /// Returns the whole call that the session waits for a decision on or the result of, read from its log: what
    /// [`PendingAction::question`](agent_core::model::PendingAction::question) shows a part of. `None` if it waits for nothing, or
    /// for an answer that is on no call. The call's id is that of the action.
    ///
    /// # Errors
    ///
    /// Those of the store; `Corrupt` where the call cannot be read.
    pub async fn pending_call(&self) -> Result<Option<ToolUse>> {
        let now = self.refresh().await?;
        let Some(action) = &now.action else { return Ok(None) };
        let is_it = |open: &&OpenCall| open.call.as_str() == action.id.as_str();
        let Some(open) = now.open_calls.iter().find(is_it) else { return Ok(None) };
        call_at(&*self.runtime().storage.sessions, &now, open.seq).await
    }

    /// Asks whatever runs or waits to stop: durable, from any device. Nothing happens where nothing does.
    ///
    /// # Errors
    ///
    /// Those of the store.
    pub async fn interrupt(&self) -> Result<()> {
        let interrupt = NewEvent::interrupt().with_actor(Actor::USER);
        match self.commit(|commit| commit.event(interrupt)).await {
            Err(error) if matches!(error.kind(), ErrorKind::InvalidTransition { .. }) => Ok(()),
            other => other.map(drop),
        }
    }

    /// Events of the whole history, through the session's ancestors.
    ///
    /// # Errors
    ///
    /// Those of the store; `Corrupt` where the page would start with damage.
    pub async fn history(&self, read: ReadEvents) -> Result<EventPage> {
        self.runtime().storage.sessions.history(self.id(), read).await
    }

    /// Streams all events after `after`, then each as it is stored; a page at a time in memory.
    ///
    /// When the runtime [shuts down](AgentRuntime::shutdown) the stream gives what its last runs have stored, and ends
    /// (`None`). After an error it ends, too.
    pub fn follow(&self, after: Seq) -> BoxStream<'static, Result<Event>> {
        let (sessions, id) = (self.runtime().storage.sessions.clone(), self.id());
        let over = self.runtime().shared.runs.over();
        let pages = stream::try_unfold(after, move |seen| {
            let (sessions, mut over) = (sessions.clone(), over.clone());
            async move {
                loop {
                    // Looked at first: what was stored before the end is read after it.
                    let is_over = *over.borrow();
                    if let Some((events, seen)) = next_events(&*sessions, id, seen).await? {
                        return Ok::<_, Error>(Some((stream::iter(events.into_iter().map(Ok)), seen)));
                    }
                    if is_over {
                        return Ok(None);
                    }
                    tokio::select! {
                        () = is_set(&mut over) => {}
                        changed = sessions.changed(id, seen) => { changed?; }
                    }
                }
            }
        });
        pages.try_flatten().boxed()
    }

    /// Makes an independent session that shares the history up to and including the event that `fork` names, or up to
    /// the last point where no tool call is open. `fork` may be given as a sequence number or an `Option` of one.
    ///
    /// Inputs that are not answered stay with this session, unless [`Fork::with_open_inputs`] asks for them: a fork that
    /// is made during a run is idle.
    ///
    /// # Errors
    ///
    /// `InvalidInput` where a tool call is open at that event, or it is not in the history; `Deleted`.
    pub async fn fork(&self, fork: impl Into<Fork> + Send) -> Result<Self> {
        let session = self.runtime().storage.sessions.fork(self.runtime().effects(), self.id(), fork).await?;
        Ok(Self::new(self.runtime().clone(), session))
    }

    /// Sets the session aside; inputs are kept. A run is asked to end first, at its next step.
    ///
    /// # Errors
    ///
    /// `InvalidTransition` where its state does not allow it.
    pub async fn suspend(&self) -> Result<()> {
        self.trigger(Trigger::Suspend(Reason::UserPaused)).await
    }

    /// Lets a session that was set aside go on; starts no run.
    ///
    /// # Errors
    ///
    /// `InvalidTransition` where it was not set aside.
    pub async fn resume(&self) -> Result<()> {
        self.trigger(Trigger::Resume).await
    }

    /// Starts the visible history anew. Title, labels, references and the system prompt stay.
    ///
    /// # Errors
    ///
    /// `InvalidTransition` while it runs or waits for an answer.
    pub async fn clear(&self) -> Result<()> {
        self.commit(|commit| commit.event(NewEvent::history_cleared().with_actor(Actor::USER)))
            .await
            .map(drop)
    }

    /// Lets `summary` stand for the history up to and including event `until`, where the model is given it; or up to
    /// the last point where no tool call is open and every input is answered. The log stays as it is.
    ///
    /// # Errors
    ///
    /// `InvalidInput` where a tool call is open at `until`, an input before it is not answered yet, there is nothing to
    /// compact, or the summary has no text.
    pub async fn compact(&self, until: Option<Seq>, summary: &str) -> Result<()> {
        let sessions = &self.runtime().storage.sessions;
        let done = sessions.compact(self.runtime().effects(), self.id(), until, summary).await?;
        self.inner.note(&done.session);
        Ok(())
    }

    /// Sets the title, as one that a person chose.
    ///
    /// # Errors
    ///
    /// `InvalidInput` where it is empty, longer than 512 bytes or holds a control character.
    pub async fn set_title(&self, title: &str) -> Result<()> {
        self.update(Patch::new().title(Title::by_user(title))).await
    }

    /// Sets the session's own system prompt, in force from here on.
    ///
    /// # Errors
    ///
    /// Those of the store.
    pub async fn set_system_prompt(&self, text: &str) -> Result<()> {
        self.commit(|commit| commit.event(NewEvent::system_prompt(text))).await.map(drop)
    }

    /// The session's documents: its notes, memory blocks, checkpoint. No I/O.
    pub fn documents(&self) -> Documents {
        let sessions = self.runtime().storage.sessions.clone();
        Documents::new(sessions, self.runtime().effects().clone(), self.id())
    }

    /// What is mounted in the session, inherited or its own; see [`effective_mounts`].
    ///
    /// # Errors
    ///
    /// Those of the store.
    pub async fn mounts(&self) -> Result<MountSet> {
        let now = self.refresh().await?;
        effective_mounts(&*self.runtime().storage.sessions, &now).await
    }

    /// Freezes what the session inherits as it is now; see [`freeze_mounts`].
    ///
    /// # Errors
    ///
    /// Those of [`freeze_mounts`].
    pub async fn freeze_mounts(&self) -> Result<()> {
        let sessions = &self.runtime().storage.sessions;
        let committed = freeze_mounts(sessions, self.runtime().effects(), self.id()).await?;
        self.inner.note(&committed.session);
        Ok(())
    }

    /// Keeps a handle on something outside that is of use in this process only; in every other, and after the next
    /// start, it is stale.
    ///
    /// # Errors
    ///
    /// `InvalidInput`, `LimitExceeded` for what the handle says.
    pub async fn attach(&self, name: &str, handle: ExternalHandle) -> Result<()> {
        let handle = handle.of_process(self.runtime().process());
        self.update(Patch::new().handle(name, handle)).await
    }

    /// The handles on things outside, as last seen, each with whether it can be used here.
    pub fn handles(&self) -> Vec<(String, ExternalHandle, Liveness)> {
        let process = self.runtime().process();
        let known = |(name, handle): (&String, &ExternalHandle)| {
            (name.clone(), handle.clone(), handle.liveness(process))
        };
        self.snapshot().attributes.handles.iter().map(known).collect()
    }

    /// What the agent `agent` found out in this workspace, in all its sessions. No I/O.
    pub fn learnings(&self, agent: &str) -> Learnings {
        let sessions = self.runtime().storage.sessions.clone();
        Learnings::new(sessions, self.runtime().effects().clone(), self.snapshot().workspace, agent)
    }

    /// Looks at the session: its runs, what they made, what was done. No I/O.
    pub fn view(&self) -> SessionView {
        SessionView::new(self.runtime().storage.sessions.clone(), self.id())
    }

    /// States what the session is to achieve, in force until the next; an input, which the next run answers.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a text that is empty or white space only; `InvalidTransition` where the session takes no inputs.
    pub async fn define_outcome(&self, outcome: impl Into<Input>) -> Result<()> {
        let Input { message, actor } = outcome.into().checked(self.id())?;
        let defined = NewEvent::of(&Body::UserDefineOutcome(message)).with_actor(actor);
        self.commit(|commit| commit.event(defined)).await.map(drop)
    }

    /// Says that something was made, and where it is.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a bad path, hash or media type.
    pub async fn register_artifact(&self, artifact: Artifact) -> Result<()> {
        self.commit(|commit| commit.event(NewEvent::artifact_registered(artifact))).await.map(drop)
    }

    /// Changes what is said of the session, whatever was said before.
    ///
    /// # Errors
    ///
    /// `InvalidInput`, `LimitExceeded` for what the change comes to.
    pub async fn update(&self, patch: Patch) -> Result<()> {
        self.commit(|commit| commit.event(NewEvent::updated(patch))).await.map(drop)
    }

    /// Changes what is said of the session, if nothing has happened to it since [`snapshot`](Self::snapshot).
    ///
    /// # Errors
    ///
    /// `Conflict` where something has.
    pub async fn update_unchanged(&self, patch: Patch) -> Result<()> {
        let head = self.snapshot().head;
        let event = NewEvent::updated(patch);
        self.commit(|commit| commit.expect(Expect::Is(head)).event(event)).await.map(drop)
    }

    /// Lets a session that failed go on, once what made it fail is mended.
    ///
    /// # Errors
    ///
    /// `InvalidTransition` where it has not failed.
    pub async fn recover(&self) -> Result<()> {
        self.trigger(Trigger::Recover).await
    }

    /// Hides the session from lists.
    ///
    /// # Errors
    ///
    /// `InvalidTransition` while it runs.
    pub async fn archive(&self) -> Result<()> {
        self.trigger(Trigger::Archive).await
    }

    /// Shows an archived session again.
    ///
    /// # Errors
    ///
    /// `InvalidTransition` where it is not archived.
    pub async fn unarchive(&self) -> Result<()> {
        self.trigger(Trigger::Unarchive).await
    }

    /// Ends the session for good; it stays readable.
    ///
    /// # Errors
    ///
    /// `Deleted`.
    pub async fn terminate(&self) -> Result<()> {
        self.trigger(Trigger::Terminate(Reason::UserEnded)).await
    }

    /// Deletes the session; a tombstone remains.
    ///
    /// # Errors
    ///
    /// Those of the store; `InvalidInput` for a [shelf](agent_core::store::Shelf).
    pub async fn delete(&self) -> Result<()> {
        refuse_shelf(&self.snapshot())?;
        self.trigger(Trigger::Delete(Reason::UserDeleted)).await
    }

    /// Puts a new, empty session in the place of this one, which is archived or deleted. See
    /// [`WorkspaceManager::reset`](crate::workspaces::WorkspaceManager::reset).
    ///
    /// # Errors
    ///
    /// Those of the stores; `Deleted` where this one was deleted.
    pub async fn reset(&self, former: Former) -> Result<Self> {
        let session = self.runtime().workspaces.reset(self.id(), former).await?;
        Ok(Self::new(self.runtime().clone(), session))
    }

    /// How much the session holds, as it is now; reads no message.
    ///
    /// # Errors
    ///
    /// Those of the store.
    pub async fn context(&self) -> Result<ContextCounts> {
        let now = self.refresh().await?;
        Ok(ContextCounts {
            counts: now.counts,
            pending: now.pending,
            head: now.head,
            last_active_at: now.last_active_at,
        })
    }

    async fn trigger(&self, trigger: Trigger) -> Result<()> {
        self.commit(|commit| commit.trigger(trigger)).await.map(drop)
    }

    async fn commit(&self, fill: impl FnOnce(Commit) -> Commit + Send) -> Result<Committed> {
        let commit = fill(Commit::seal(self.runtime().effects(), self.id(), self.snapshot().head));
        let committed = self.runtime().storage.sessions.settle_new(commit).await?;
        self.inner.note(&committed.session);
        Ok(committed)
    }

    /// Starts a session that helps this one: in its workspace, with a history of its own, and `task` as its first input.
    /// Whoever looks after the sessions runs it, see [`Scheduler`](crate::runtime::scheduler::Scheduler); or [prompt](Self::prompt)
    /// and [wake](Self::wake) it. When it has come to rest, its last text is an input of this session, once.
    ///
    /// The child comes first, with its parent's name and its task in it, and is then told of in the parent's log. A crash
    /// in between leaves a child that the parent's log does not mention before its outcome; lists by parent find it.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a task that is empty or white space only; `Deleted` for this session; those of the store.
    pub async fn start_child(&self, task: impl Into<Input>, patch: &Patch) -> Result<Self> {
        let runtime = self.runtime();
        let (sessions, effects) = (&runtime.storage.sessions, runtime.effects());
        let Input { message, actor } = task.into().checked(self.id())?;
        let parent = self.refresh().await?;
        let new = NewSession::child(effects.new_session_id(), &parent).with(patch);
        let create = Commit::create(effects, new).event(NewEvent::from(message).with_actor(actor));
        let tell = Commit::seal(effects, parent.id, parent.head);
        let (child, told) = children::start(&**sessions, create, tell).await?;
        self.inner.note(&told.session);
        Self::new(runtime.clone(), child).freeze_config().await
    }

    /// Lets a session that [keeps the configuration](crate::runtime::config::Config::freeze) with which it was made take over that of its
    /// present host, from its next run on. Nothing happens where it keeps none.
    ///
    /// # Errors
    ///
    /// `Conflict` where somebody else does the same; those of the stores.
    pub async fn adopt_config(&self) -> Result<()> {
        settings::adopt(&self.inner).await
    }

    async fn freeze_config(self) -> Result<Self> {
        settings::freeze(&self.inner).await?;
        Ok(self)
    }
}
