//! Handle to one session. Cloning is cheap; it holds no lease and blocks no other process.

use std::sync::Arc;
use std::time::Duration;

use futures::stream::{self, BoxStream, StreamExt, TryStreamExt};
use tokio::time::timeout;
use tracing::{debug, instrument};

use crate::agent::runtime::AgentRuntime;
use crate::conversation::redelivered::{first_delivery, run_of_answer};
use crate::conversation::wait::wait_for_answer;
use crate::run::error::RunError;
use crate::run::handle::{Begun, Input, Run};
use crate::run::report::{Queued, RunReport};
use crate::run::stop::is_set;
use crate::turn::begin::{Cause, begin};
use crate::turn::calls::call_at;
use crate::turn::enqueue::{apart, say};
use crate::turn::session_ref::SessionRef;
use crate::turn::takeover::{Watched, watch_holder};
use crate::turn::{children, settings};
use agent_core::commit::{Commit, Committed, Precondition, Trigger};
use agent_core::event::{Event, EventPayload, NewEvent, ToolConfirmation, ToolResult, ToolUse};
use agent_core::model::{Actor, Artifact, Counts, Lease, OpenCall, Patch, Timer, Title, Workspace};
use agent_core::session::{Fork, NewSession, Session};
use agent_core::state::{Reason, SessionState};
use agent_core::store::{EventPage, ReadEvents, coming_events, next_events};
use agent_core::{
    DeviceId, Epoch, Error, ErrorKind, Result, Seq, SessionId, SessionStoreExt, Timestamp, WorkspaceId, plan,
};
use agent_workspace::documents::Documents;
use agent_workspace::retention::{Erase, Erasure, OldSessionAction, refuse_hidden};
use agent_workspace::views::SessionView;

/// Time after which an erasure fences a run of this process that has not ended.
const OWN_RUN: Duration = Duration::from_secs(5);

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
    inner: SessionRef,
}

/// Answer to the pending action of a session. A [`ToolConfirmation`] and a [`ToolResult`] convert into it.
///
/// The result of a tool that runs outside is delivered like this:
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
/// # use agent_core::MemoryStore;
/// # use agent_core::json::RawJson;
/// # use agent_runtime::{AgentBuilder, ScriptedProvider, ToolMode, Turn, schemars, tool};
/// # #[derive(serde::Deserialize, schemars::JsonSchema)] struct Page {}
/// # let print = tool("print", "Prints the page.", |_: Page, _| async { Ok::<_, String>("") });
/// # let call = RawJson::parse("{}")?;
/// # let model = ScriptedProvider::new([Turn::new().call("1", "print", call), Turn::new().text("It is printed.")]);
/// # let builder = AgentBuilder::new().with_llm(model).with_tool(print.with_mode(ToolMode::Outside));
/// # let agent = builder.with_storage(MemoryStore::new()).build()?;
/// # let chat = agent.conversation("support/4711").await?;
/// use agent_core::event::{ToolOutcome, ToolResult};
/// use agent_runtime::RunOutcome;
///
/// let report = chat.prompt("Print the page.").await?.finish().await?;
/// let RunOutcome::Awaiting(action) = report.outcome else { panic!("the tool runs outside") };
///
/// // The id of the action is that of the call.
/// let call = action.id.as_str().parse()?;
/// let result = ToolResult::new(call, ToolOutcome::Ok, RawJson::of(&"2 pages")?);
/// let run = chat.answer_and_run(result).await?;
/// assert_eq!(run.finish().await?.text, "It is printed.");
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ActionAnswer {
    /// Decision of a person on a call, or answer of a person to a question.
    Confirm(ToolConfirmation),
    /// Result of a tool that ran outside.
    Deliver(ToolResult),
}

impl ActionAnswer {
    fn into_event(self, runtime: &AgentRuntime) -> NewEvent {
        let body = match self {
            Self::Confirm(answer) => EventPayload::UserToolConfirmation(answer),
            Self::Deliver(result) => EventPayload::UserCustomToolResult(runtime.fit_result(result)),
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

/// Sizes of a session, read from its record alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[doc(alias = "ContextCounts")]
pub struct SessionStats {
    /// Number of visible events of each kind.
    pub counts: Counts,
    /// Number of inputs that wait.
    pub inputs_open: u64,
    /// Sequence number of the last event.
    pub head: Seq,
    /// Latest time of any event.
    pub last_active_at: Timestamp,
}

impl AgentRuntime {
    /// Opens the main session of a device's workspace; creates the workspace and the session if they do not exist.
    ///
    /// Starts no run. If the future is dropped, workspace and session may have been created; call it again.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # use agent_core::MemoryStore;
    /// # use agent_runtime::{AgentBuilder, EchoProvider};
    /// # let agent = AgentBuilder::new().with_llm(EchoProvider::new()).with_storage(MemoryStore::new()).build()?;
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
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # use agent_core::MemoryStore;
    /// # use agent_runtime::{AgentBuilder, EchoProvider};
    /// # let agent = AgentBuilder::new().with_llm(EchoProvider::new()).with_storage(MemoryStore::new()).build()?;
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
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # use agent_core::MemoryStore;
    /// # use agent_runtime::{AgentBuilder, EchoProvider};
    /// # let agent = AgentBuilder::new().with_llm(EchoProvider::new()).with_storage(MemoryStore::new()).build()?;
    /// # let chat = agent.conversation("support/4711").await?;
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
            return Err(Error::new(ErrorKind::Deleted, format!("session {id} was deleted")));
        }
        Ok(Conversation::new(self.clone(), session))
    }

    /// Creates another session in a workspace. Starts no run.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # use agent_core::MemoryStore;
    /// # use agent_runtime::{AgentBuilder, EchoProvider};
    /// # let agent = AgentBuilder::new().with_llm(EchoProvider::new()).with_storage(MemoryStore::new()).build()?;
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

    /// Starts at most one unattended run of a session, as a scheduler does. Its failure is retried later.
    ///
    /// Returns `None` if nothing waits or is due, or if another process runs the session; otherwise one run that claims
    /// all work that waits or is due. A question whose time limit has passed is closed without an answer first. A run
    /// that fails, or whose process is lost, is retried after a [pause](crate::config::Config::with_retry).
    ///
    /// If another process runs the session, its holder is watched as in [`Conversation::run_pending`].
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # use agent_core::MemoryStore;
    /// # use agent_runtime::{AgentBuilder, EchoProvider};
    /// # let agent = AgentBuilder::new().with_llm(EchoProvider::new()).with_storage(MemoryStore::new()).build()?;
    /// # let chat = agent.conversation("support/4711").await?;
    /// chat.send("Water the plants.").await?;
    /// let run = agent.run_pending(chat.id()).await?.expect("an input waits");
    /// assert_eq!(run.finish().await?.text, "Water the plants.");
    ///
    /// assert!(agent.run_pending(chat.id()).await?.is_none());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// `NotFound`, `Deleted`; errors of the store; `Unavailable` in a shutdown.
    #[doc(alias = "wake")]
    pub async fn run_pending(&self, id: SessionId) -> Result<Option<Run>> {
        let handle = self.conversation_by_id(id).await?;
        let now = handle.record();
        let expired = match watch_holder(&handle.inner, &now, false).await? {
            Watched::Gone(epoch) => Some(epoch),
            Watched::Alive => return Ok(None),
            Watched::Released => None,
        };
        handle.run_unattended(expired).await
    }
}

impl Conversation {
    pub(crate) fn new(runtime: AgentRuntime, session: Arc<Session>) -> Self {
        Self { inner: SessionRef::new(runtime, session) }
    }

    /// Returns the session's id.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # use agent_core::MemoryStore;
    /// # use agent_runtime::{AgentBuilder, EchoProvider};
    /// # let agent = AgentBuilder::new().with_llm(EchoProvider::new()).with_storage(MemoryStore::new()).build()?;
    /// # let chat = agent.conversation("support/4711").await?;
    /// let same = agent.conversation_by_id(chat.id()).await?;
    /// assert_eq!(same.record(), chat.record());
    /// # Ok(()) }
    /// ```
    pub const fn id(&self) -> SessionId {
        self.inner.id()
    }

    /// Returns the runtime that opened the session.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # use agent_core::MemoryStore;
    /// # use agent_runtime::{AgentBuilder, EchoProvider};
    /// # let agent = AgentBuilder::new().with_llm(EchoProvider::new()).with_storage(MemoryStore::new()).build()?;
    /// # let chat = agent.conversation("support/4711").await?;
    /// assert_eq!(chat.runtime().active_provider().name(), "echo");
    /// # Ok(()) }
    /// ```
    pub const fn runtime(&self) -> &AgentRuntime {
        self.inner.runtime()
    }

    /// Returns the record as last seen by this handle or a clone of it.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # use agent_core::MemoryStore;
    /// # use agent_runtime::{AgentBuilder, EchoProvider};
    /// # let agent = AgentBuilder::new().with_llm(EchoProvider::new()).with_storage(MemoryStore::new()).build()?;
    /// # let chat = agent.conversation("support/4711").await?;
    /// use agent_core::state::SessionState;
    ///
    /// chat.prompt("Hello").await?.finish().await?;
    /// let record = chat.record();
    /// assert_eq!(record.status.state, SessionState::Idle);
    /// assert_eq!((record.counts.user, record.counts.agent), (1, 1));
    /// # Ok(()) }
    /// ```
    #[doc(alias = "snapshot")]
    pub fn record(&self) -> Arc<Session> {
        self.inner.record()
    }

    /// Loads and returns the current record.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # use agent_core::MemoryStore;
    /// # use agent_runtime::{AgentBuilder, EchoProvider};
    /// # let agent = AgentBuilder::new().with_llm(EchoProvider::new()).with_storage(MemoryStore::new()).build()?;
    /// # let chat = agent.conversation("support/4711").await?;
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
    pub async fn refresh(&self) -> Result<Arc<Session>> {
        self.inner.refresh().await
    }

    /// Stores a message of a person and starts a run that answers it, both in one commit.
    ///
    /// Prompts that wait at the same time are stored in one commit and answered by one run, which one of the callers
    /// receives. If that run is cancelled or fails, all of these prompts are affected.
    ///
    /// If no run may start, the input is stored nevertheless and waits for the next run: [`Run::queued`] then returns
    /// it, with the name of the process that runs the session, and [`Run::finish`] fails with
    /// [`RunError::Queued`]. The caller gets the answer from [`wait_for_answer`](Self::wait_for_answer), or from the
    /// history later. A holder that is proven dead is replaced immediately.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # use agent_core::MemoryStore;
    /// # use agent_runtime::{AgentBuilder, EchoProvider};
    /// # let builder = AgentBuilder::new().with_llm(EchoProvider::new());
    /// # let agent = builder.with_storage(MemoryStore::new()).build()?;
    /// # let chat = agent.open(&"laptop".parse()?).await?;
    /// let run = chat.prompt("Hello").await?;
    /// let report = match run.queued().cloned() {
    ///     None => run.finish().await?,
    ///     Some(queued) => chat.wait_for_answer(&queued).await?,
    /// };
    /// assert_eq!(report.text, "Hello");
    /// # Ok(()) }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the input may be stored and its run may start; [`AgentRuntime::attach`] goes back to
    /// the run.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a message without media whose text is empty or white space only; `InvalidTransition` if the
    /// session takes no inputs (it is archived, terminated or failed); `Unavailable` in a shutdown; `LimitExceeded`; any
    /// other error of the store. After an error the input is not stored, unless the
    /// [outcome](agent_core::Error::write_outcome) is unknown.
    #[instrument(name = "prompt", skip_all, fields(session = %self.id()))]
    pub async fn prompt(&self, input: impl Into<Input>) -> Result<Run> {
        let input = input.into().checked(self.id())?;
        let handle = self.inner.clone();
        self.begin_or_wait(async move { say(&handle, input, true).await }).await
    }

    /// Stores the input, and waits for its answer, whichever run and whichever process gives it.
    ///
    /// Equals [`prompt`](Self::prompt) and [`Run::finish`], followed by [`wait_for_answer`](Self::wait_for_answer) if the
    /// input is queued behind another run. That run answers all inputs that waited, so several callers can receive the
    /// same report.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use agent_core::MemoryStore;
    /// # use agent_runtime::{AgentBuilder, EchoProvider};
    /// # let agent = AgentBuilder::new().with_llm(EchoProvider::new()).with_storage(MemoryStore::new()).build()?;
    /// # let chat = agent.conversation("support/4711").await?;
    /// let (one, two) = tokio::join!(chat.ask("one"), chat.ask("two"));
    /// assert!(one.is_ok() && two.is_ok());
    /// assert_eq!(chat.refresh().await?.inputs_open, 0);
    /// # Ok(()) }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the input may be stored, and its run continues.
    ///
    /// # Errors
    ///
    /// [`RunError::Failed`] if the model failed; [`RunError::Store`] with the errors of `prompt`.
    pub async fn ask(&self, input: impl Into<Input>) -> Result<RunReport, RunError> {
        match self.prompt(input).await?.finish().await {
            Err(RunError::Queued(queued)) => self.wait_for_answer(&queued).await,
            finished => finished,
        }
    }

    /// Creates a session with this input as its first and starts a run, in one commit.
    ///
    /// # Errors
    ///
    /// `Conflict` if the session exists already.
    #[instrument(name = "prompt", skip_all, fields(session = %new.id))]
    pub(crate) async fn begin_new(
        runtime: AgentRuntime,
        new: NewSession,
        input: Input,
    ) -> Result<(Self, Run)> {
        let input = input.checked(new.id)?;
        // The first events of the run depend on the record as planned.
        let created = plan(None, &Commit::create(runtime.effects(), new.clone()))?.committed().session;
        let handle = Self::new(runtime, created);
        let inner = handle.inner.clone();
        let cause = Cause { create: Some(new), inputs: [input].into(), ..Cause::default() };
        let run = handle.begin_or_wait(async move { begin(&inner, cause).await }).await?;
        Ok((handle, run))
    }

    async fn begin_or_wait(
        &self,
        beginning: impl Future<Output = Result<Begun>> + Send + 'static,
    ) -> Result<Run> {
        let ((), begun) = tokio::join!(self.touch(), apart(self.id(), beginning));
        let Begun { run, seq } = begun?;
        Ok(run.unwrap_or_else(|| Run::of_queued(Queued::in_session(&self.record(), seq))))
    }

    async fn begin(&self, cause: Cause) -> Result<Begun> {
        let handle = self.inner.clone();
        apart(self.id(), async move { begin(&handle, cause).await }).await
    }

    /// Records that the workspace is in use, unless this process has done so within the last minute or the time by which lists
    /// may lag. A failure to record it is only logged.
    async fn touch(&self) {
        let (runtime, workspace) = (self.runtime(), self.record().workspace);
        let lag = runtime.storage.sessions.capabilities().recency;
        if !runtime.touches.begin(workspace, runtime.effects().now(), lag) {
            return;
        }
        if let Err(error) = runtime.workspaces.touch(workspace).await {
            runtime.touches.failed(workspace);
            debug!(%workspace, %error, "the access could not be recorded");
        }
    }

    /// Stores a message of a person for the next run; starts none. Returns the sequence number of the input's event.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # use agent_core::MemoryStore;
    /// # use agent_runtime::{AgentBuilder, EchoProvider, Queued};
    /// # let builder = AgentBuilder::new().with_llm(EchoProvider::new());
    /// # let agent = builder.with_storage(MemoryStore::new()).build()?;
    /// # let chat = agent.open(&"laptop".parse()?).await?;
    /// let seq = chat.send("Water the plants.").await?;
    /// assert_eq!(chat.record().inputs_open, 1);
    ///
    /// // A scheduler starts the run, or the next prompt, or a caller that waits for the answer.
    /// let report = chat.wait_for_answer(&Queued::new(chat.id(), seq)).await?;
    /// assert_eq!(report.text, "Water the plants.");
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// Errors of [`prompt`](Self::prompt).
    pub async fn send(&self, input: impl Into<Input>) -> Result<Seq> {
        let input = input.into().checked(self.id())?;
        let handle = self.inner.clone();
        let said = apart(self.id(), async move { say(&handle, input, false).await });
        let ((), stored) = tokio::join!(self.touch(), said);
        Ok(stored?.seq)
    }

    /// Waits until a queued input has its answer, and returns the report of the run that claimed it. For the queued
    /// answer to a pending action, that is the run that continues from it.
    ///
    /// The run may be that of another caller or of another process: its report is then read from the session's log,
    /// from the input's event on, in pages of at most 1 MiB. If the session becomes free and the input is still open,
    /// or if the holder dies or sends no heartbeat for one ttl of its lease, this call starts the run itself. Inputs
    /// that one run answers have the same report; any number of callers may wait for the same input, also later.
    ///
    /// A report that is read from the log has the last message that the run stored as its text, no usage unless usage
    /// is [recorded](crate::Config::with_record_usage), and the outcome `Completed(EndTurn)` for every run after which
    /// the session continued with further work.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # use agent_core::MemoryStore;
    /// # use agent_runtime::{AgentBuilder, Gate, ScriptedProvider, Turn};
    /// # let gate = Gate::new();
    /// # let model = ScriptedProvider::new([Turn::new().gate(&gate).text("42"), Turn::new().text("48")]);
    /// # let builder = AgentBuilder::new().with_llm(model);
    /// # let agent = builder.with_storage(MemoryStore::new()).build()?;
    /// # let chat = agent.open(&"laptop".parse()?).await?;
    /// let first = chat.prompt("What is 6 x 7?").await?;
    /// let second = chat.prompt("And 6 x 8?").await?;
    /// let queued = second.queued().expect("the first run is active").clone();
    /// # gate.open();
    ///
    /// assert_eq!(chat.wait_for_answer(&queued).await?.text, "48");
    /// assert_eq!(first.finish().await?.text, "42");
    /// # Ok(()) }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// The future may be dropped at any point, and the call repeated. A run that it has started continues.
    ///
    /// # Errors
    ///
    /// - [`RunError::Failed`] if the run that claimed the input failed, or the session as a whole.
    /// - [`RunError::Queued`] with the present state if the session may not run: it is suspended, archived or
    ///   terminated, or waits for the answer to a pending action and no run has claimed the input.
    /// - [`RunError::Store`] with `Deleted` if the session was deleted; `Conflict` if the input was discarded before a
    ///   run claimed it, by an interrupt or by clearing the history; `InvalidInput` if it is not an input of this
    ///   session; `Unavailable` in a shutdown; errors of the store.
    #[doc(alias = "answer_to")]
    #[instrument(skip_all, fields(session = %self.id(), input = %queued.seq))]
    pub async fn wait_for_answer(&self, queued: &Queued) -> Result<RunReport, RunError> {
        wait_for_answer(&self.inner, queued).await
    }

    /// Starts one bounded run, if work waits or is due and no other run is active; otherwise returns `None`.
    ///
    /// One run answers all inputs that wait.
    ///
    /// If another process runs the session, its holder is watched for one ttl of the lease: a holder that sends no
    /// heartbeat in that time, or is proven dead, is replaced. At the first heartbeat or new event the call returns
    /// `None`.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # use agent_core::MemoryStore;
    /// # use agent_runtime::{AgentBuilder, EchoProvider};
    /// # let agent = AgentBuilder::new().with_llm(EchoProvider::new()).with_storage(MemoryStore::new()).build()?;
    /// # let chat = agent.conversation("support/4711").await?;
    /// chat.send("Water the plants.").await?;
    /// chat.send("Feed the cat.").await?;
    ///
    /// let run = chat.run_pending().await?.expect("two inputs wait");
    /// run.finish().await?;
    /// assert_eq!(chat.record().inputs_open, 0);
    /// assert!(chat.run_pending().await?.is_none());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// Errors of the store; `Unavailable` in a shutdown.
    #[doc(alias = "wake")]
    pub async fn run_pending(&self) -> Result<Option<Run>> {
        let now = self.refresh().await?;
        let expired = match watch_holder(&self.inner, &now, false).await? {
            Watched::Gone(epoch) => Some(epoch),
            Watched::Alive => return Ok(None),
            Watched::Released => None,
        };
        let overdue = self.inner.overdue();
        Ok(self.begin(Cause { expired, overdue, ..Cause::default() }).await?.run)
    }

    /// Starts an unattended run, otherwise like [`run_pending`](Self::run_pending): see [`AgentRuntime::run_pending`].
    pub(crate) async fn run_unattended(&self, expired: Option<Epoch>) -> Result<Option<Run>> {
        let overdue = self.inner.overdue();
        let cause = Cause { expired, overdue, unattended: true, ..Cause::default() };
        Ok(self.begin(cause).await?.run)
    }

    /// Schedules one run at [`timer.at`](Timer::at). A timer with the same [key](Timer::key) replaces the earlier one.
    ///
    /// A [`Scheduler`](crate::schedule::scheduler::Scheduler) starts the run. The timer is durable when the call
    /// returns.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # use agent_core::MemoryStore;
    /// # use agent_runtime::{AgentBuilder, EchoProvider};
    /// # let agent = AgentBuilder::new().with_llm(EchoProvider::new()).with_storage(MemoryStore::new()).build()?;
    /// # let chat = agent.conversation("support/4711").await?;
    /// use agent_core::model::Timer;
    ///
    /// let timer = Timer::new("daily", agent.effects().now()).with_note("Water the plants.");
    /// chat.schedule(timer).await?;
    /// assert_eq!(chat.record().timers[0].key, "daily");
    ///
    /// let run = chat.run_pending().await?.expect("the timer is due");
    /// run.finish().await?;
    /// assert!(chat.record().timers.is_empty());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// `LimitExceeded` for more than 128 timers; `InvalidInput`; `InvalidTransition` if the session has ended.
    pub async fn schedule(&self, timer: Timer) -> Result<()> {
        self.commit(|commit| commit.with_event(NewEvent::timer_scheduled(timer))).await.map(drop)
    }

    /// Cancels the timer with this key. Does nothing if there is none.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # use agent_core::MemoryStore;
    /// # use agent_runtime::{AgentBuilder, EchoProvider};
    /// # let agent = AgentBuilder::new().with_llm(EchoProvider::new()).with_storage(MemoryStore::new()).build()?;
    /// # let chat = agent.conversation("support/4711").await?;
    /// use agent_core::model::Timer;
    ///
    /// let tomorrow = agent.effects().now().plus_micros(24 * 3_600 * 1_000_000);
    /// chat.schedule(Timer::new("daily", tomorrow)).await?;
    /// chat.cancel_timer("daily").await?;
    /// assert!(chat.record().timers.is_empty());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// `InvalidTransition` if the session has ended.
    #[doc(alias = "cancel_wake")]
    pub async fn cancel_timer(&self, key: &str) -> Result<()> {
        self.commit(|commit| commit.with_event(NewEvent::timer_cancelled(key))).await.map(drop)
    }

    /// Waits for this session's turn, as long as necessary, and then starts one bounded run.
    ///
    /// Returns `None` if no work waits any more, because another run has done it, or if the session cannot run (it
    /// waits for an answer, is suspended, or is to be retried later).
    ///
    /// The call waits while the holder is alive, and continues when the holder ends its run, dies, or sends no
    /// heartbeat for one ttl of its lease. The future may be dropped at any point. For the answer to one input, use
    /// [`wait_for_answer`](Self::wait_for_answer).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # use agent_core::MemoryStore;
    /// # use agent_runtime::{AgentBuilder, EchoProvider};
    /// # let agent = AgentBuilder::new().with_llm(EchoProvider::new()).with_storage(MemoryStore::new()).build()?;
    /// # let chat = agent.conversation("support/4711").await?;
    /// chat.send("Water the plants.").await?;
    /// let run = chat.run_when_free().await?.expect("an input waits");
    /// assert_eq!(run.finish().await?.text, "Water the plants.");
    ///
    /// assert!(chat.run_when_free().await?.is_none());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// Errors of the store; `Unavailable` in a shutdown.
    #[doc(alias = "wait_turn")]
    pub async fn run_when_free(&self) -> Result<Option<Run>> {
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
            let waits = now.last_input > now.inputs_done_through
                && now.ready_at.is_none_or(|ready_at| ready_at <= at);
            let open = match now.status.state {
                SessionState::Running => true,
                // Another run was faster and has already ended.
                SessionState::Queued => waits,
                _ => false,
            };
            if !open {
                return Ok(None);
            }
        }
    }

    /// Answers the pending action of the session; the next run continues from there. See also
    /// [`answer_and_run`](Self::answer_and_run).
    ///
    /// The pending action is in the report of the run that needs the answer, and in the session's
    /// [record](field@agent_core::session::Session::action).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # use agent_core::MemoryStore;
    /// # use agent_core::json::RawJson;
    /// # use agent_runtime::{AgentBuilder, ScriptedProvider, ToolMode, Turn, schemars, tool};
    /// # #[derive(serde::Deserialize, schemars::JsonSchema)] struct Mail {}
    /// use agent_core::event::{Decision, ToolConfirmation};
    /// use agent_runtime::RunOutcome;
    ///
    /// # let sent = tool("send", "Sends the mail.", |_: Mail, _| async { Ok::<_, String>("sent") });
    /// # let mail = RawJson::parse("{}")?;
    /// # let model = ScriptedProvider::new([Turn::new().call("1", "send", mail), Turn::new().text("It is sent.")]);
    /// # let builder = AgentBuilder::new().with_llm(model);
    /// # let builder = builder.with_tool(sent.with_mode(ToolMode::Confirm));
    /// # let agent = builder.with_storage(MemoryStore::new()).build()?;
    /// # let chat = agent.open(&"laptop".parse()?).await?;
    /// let report = chat.prompt("Send the mail.").await?.finish().await?;
    /// let RunOutcome::Awaiting(action) = report.outcome else { panic!("it needs consent") };
    /// chat.answer(ToolConfirmation::new(action.id, Decision::Allow)).await?;
    ///
    /// // A scheduler would start this run.
    /// let run = chat.run_pending().await?.expect("the answer waits for a run");
    /// assert_eq!(run.finish().await?.text, "It is sent.");
    /// # Ok(()) }
    /// ```
    ///
    /// # Second deliveries
    ///
    /// If the session's own log has the same answer to the same action already, the call succeeds and writes nothing: a
    /// webhook that retries gets the result of its first delivery, also after a restart. The answers of the log are read
    /// backwards to the first delivery, up to 64 at a time; for an action that was never answered, that is all of them.
    /// The log of a fork does not have the answers of its parent.
    ///
    /// The same is: each field of the answer is equal; of JSON, white space outside of texts does not count, the order of
    /// members does.
    ///
    /// # Errors
    ///
    /// `Conflict`, with the first answer in its text, if the action has another answer already; `InvalidInput` if the
    /// session waits for another action; `InvalidTransition` if it waits for no answer;
    /// `Expired` if the question's [time limit](field@agent_core::model::PendingAction::expires_at) has passed by this
    /// process's clock. In that case no run starts: [`run_pending`](Self::run_pending) closes the question, and
    /// continues without an answer. An answer to a question that was closed, by that or by an
    /// [interrupt](Self::interrupt), is refused as any other that the session does not wait for.
    pub async fn answer(&self, answer: impl Into<ActionAnswer>) -> Result<()> {
        let answer = answer.into().into_event(self.runtime());
        match self.commit(|commit| commit.with_event(answer.clone())).await {
            Ok(_) => Ok(()),
            Err(refused) => first_delivery(&self.inner, &answer, refused).await.map(drop),
        }
    }

    /// Answers the pending action of the session and starts the run that continues from there, both in one commit.
    ///
    /// A second delivery of the same answer, now or later, writes nothing and returns the run of the first: a stream of
    /// the updates from now on while the run is active in this process; its end alone, read from the log, if it has ended,
    /// with a report as [`wait_for_answer`](Self::wait_for_answer) describes it; a [queued](Run::queued) one if another
    /// process executes it, for which [`wait_for_answer`](Self::wait_for_answer) waits. If the first delivery
    /// [started no run](Self::answer), this one does. What finding the first delivery costs, see [`answer`](Self::answer);
    /// the log is then read from there to the end of the run.
    ///
    /// If several answers that differ arrive at the same time, one of them starts a run; the others fail.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # use agent_core::MemoryStore;
    /// # use agent_core::json::RawJson;
    /// # use agent_runtime::{AgentBuilder, ScriptedProvider, ToolMode, Turn, schemars, tool};
    /// # #[derive(serde::Deserialize, schemars::JsonSchema)] struct Mail {}
    /// use agent_core::event::{Decision, ToolConfirmation};
    /// use agent_runtime::RunOutcome;
    ///
    /// # let sent = tool("send", "Sends the mail.", |_: Mail, _| async { Ok::<_, String>("sent") });
    /// # let mail = RawJson::parse("{}")?;
    /// # let model = ScriptedProvider::new([Turn::new().call("1", "send", mail), Turn::new().text("It is sent.")]);
    /// # let builder = AgentBuilder::new().with_llm(model);
    /// # let builder = builder.with_tool(sent.with_mode(ToolMode::Confirm));
    /// # let agent = builder.with_storage(MemoryStore::new()).build()?;
    /// # let chat = agent.open(&"laptop".parse()?).await?;
    /// let report = chat.prompt("Send the mail.").await?.finish().await?;
    /// let RunOutcome::Awaiting(action) = report.outcome else { panic!("it needs consent") };
    /// let run = chat.answer_and_run(ToolConfirmation::new(action.id, Decision::Allow)).await?;
    /// assert_eq!(run.finish().await?.text, "It is sent.");
    /// # Ok(()) }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// The future may be dropped at any point: the answer and its run are then either both stored or neither.
    ///
    /// # Errors
    ///
    /// Errors of [`answer`](Self::answer); `Unavailable` in a shutdown. After an error the answer is not stored, unless
    /// the [outcome](agent_core::Error::write_outcome) is unknown.
    #[instrument(name = "answer", skip_all, fields(session = %self.id()))]
    pub async fn answer_and_run(&self, answer: impl Into<ActionAnswer>) -> Result<Run> {
        let answer = answer.into().into_event(self.runtime());
        let (handle, cause) =
            (self.inner.clone(), Cause { answer: Some(answer.clone()), ..Cause::default() });
        match self.begin_or_wait(async move { begin(&handle, cause).await }).await {
            Ok(run) => Ok(run),
            Err(refused) => {
                let first = first_delivery(&self.inner, &answer, refused).await?;
                run_of_answer(&self.inner, first).await
            }
        }
    }

    /// Returns the whole call whose decision or result the session waits for. Reads the record and one event.
    ///
    /// [`PendingAction::question`](agent_core::model::PendingAction::question) shows a part of the call, whose id is
    /// that of the action. Returns `None` if the session waits for no answer, or for an answer that concerns no call.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # use agent_core::MemoryStore;
    /// # use agent_core::json::RawJson;
    /// # use agent_runtime::{AgentBuilder, ScriptedProvider, ToolMode, Turn, schemars, tool};
    /// # #[derive(serde::Deserialize, schemars::JsonSchema)] struct Mail {}
    /// # let sent = tool("send", "Sends the mail.", |_: Mail, _| async { Ok::<_, String>("sent") });
    /// # let model = ScriptedProvider::new([Turn::new().call("1", "send", RawJson::parse("{}")?)]);
    /// # let builder = AgentBuilder::new().with_llm(model).with_tool(sent.with_mode(ToolMode::Confirm));
    /// # let agent = builder.with_storage(MemoryStore::new()).build()?;
    /// # let chat = agent.conversation("support/4711").await?;
    /// chat.prompt("Send the mail.").await?.finish().await?;
    /// let call = chat.pending_call().await?.expect("the call waits for consent");
    /// assert_eq!((call.name.as_str(), call.input.get()), ("send", "{}"));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// Errors of the store; `Corrupt` if the call cannot be read.
    pub async fn pending_call(&self) -> Result<Option<ToolUse>> {
        let now = self.refresh().await?;
        let Some(action) = &now.action else { return Ok(None) };
        let is_it = |open: &&OpenCall| open.call.as_str() == action.id.as_str();
        let Some(open) = now.open_calls.iter().find(is_it) else { return Ok(None) };
        call_at(&*self.runtime().storage.sessions, &now, open.seq).await
    }

    /// Stops the active run, or else discards all work that waits. The request is durable and works from any process.
    ///
    /// An active run ends at its next step, with the outcome [`Interrupted`](crate::RunOutcome::Interrupted); timers,
    /// and inputs that it has not claimed, stay. If no run is active, the pending action, the inputs that wait and all
    /// timers are discarded: such inputs stay in the history, and no run answers them. Does nothing if there is nothing
    /// to stop. To cancel a run of this process, [`Run::cancel`] is faster.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # use agent_core::MemoryStore;
    /// # use agent_runtime::{AgentBuilder, Gate, ScriptedProvider, Turn};
    /// # let model = ScriptedProvider::new([Turn::new().gate(&Gate::new())]);
    /// # let agent = AgentBuilder::new().with_llm(model).with_storage(MemoryStore::new()).build()?;
    /// # let chat = agent.conversation("support/4711").await?;
    /// use agent_runtime::RunOutcome;
    ///
    /// let run = chat.prompt("Tell me a long story.").await?;
    /// let elsewhere = agent.conversation_by_id(chat.id()).await?; // for example in another process
    /// elsewhere.interrupt().await?;
    /// assert_eq!(run.finish().await?.outcome, RunOutcome::Interrupted);
    ///
    /// chat.send("Water the plants.").await?;
    /// chat.interrupt().await?;
    /// assert_eq!(chat.record().inputs_open, 0);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// Errors of the store.
    pub async fn interrupt(&self) -> Result<()> {
        let interrupt = NewEvent::interrupt().with_actor(Actor::USER);
        match self.commit(|commit| commit.with_event(interrupt)).await {
            Err(error) if matches!(error.kind(), ErrorKind::InvalidTransition { .. }) => Ok(()),
            other => other.map(drop),
        }
    }

    /// Reads one page of the whole history, including the events of the session's ancestors.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # use agent_core::MemoryStore;
    /// # use agent_runtime::{AgentBuilder, EchoProvider};
    /// use agent_core::event::EventType;
    /// use agent_core::store::ReadEvents;
    ///
    /// # let builder = AgentBuilder::new().with_llm(EchoProvider::new());
    /// # let agent = builder.with_storage(MemoryStore::new()).build()?;
    /// # let chat = agent.open(&"laptop".parse()?).await?;
    /// chat.prompt("Hello").await?.finish().await?;
    /// let messages = [EventType::USER_MESSAGE, EventType::AGENT_MESSAGE];
    /// let page = chat.history(ReadEvents::last(10).with_types(messages)).await?;
    /// let said: Vec<_> = page.events.iter().filter_map(|event| event.text()).collect();
    /// assert_eq!(said, ["Hello", "Hello"]);
    /// assert!(page.next.is_none()); // the query for the page before it
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// Errors of the store; `Corrupt` if the page would start with damage.
    pub async fn history(&self, read: ReadEvents) -> Result<EventPage> {
        self.runtime().storage.sessions.history(self.id(), read).await
    }

    /// Streams all events after `after`, then each new event as it is stored. Holds one page at a time in memory.
    ///
    /// Events of other processes arrive as soon as the store sees them. When the runtime [shuts
    /// down](AgentRuntime::shutdown), the stream returns the events that its last runs have stored, and ends (`None`).
    /// It also ends after an error, which is `Deleted` if the next events were purged, and `Unavailable` if the stores
    /// were [closed](AgentRuntime::close) before it had returned the last ones: shut down, let it end, then close.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # use agent_core::MemoryStore;
    /// # use agent_runtime::{AgentBuilder, EchoProvider};
    /// use futures::TryStreamExt;
    ///
    /// # let builder = AgentBuilder::new().with_llm(EchoProvider::new());
    /// # let agent = builder.with_storage(MemoryStore::new()).build()?;
    /// # let chat = agent.open(&"laptop".parse()?).await?;
    /// let mut events = chat.follow(chat.record().head);
    /// chat.prompt("Hello").await?.finish().await?;
    /// let mut said = Vec::new();
    /// while said.len() < 2 {
    ///     let event = events.try_next().await?.expect("the stream ends in a shutdown only");
    ///     said.extend(event.text().map(|text| format!("{}: {text}", event.actor.role())));
    /// }
    /// assert_eq!(said, ["user: Hello", "agent: Hello"]);
    /// # Ok(()) }
    /// ```
    pub fn follow(&self, after: Seq) -> BoxStream<'static, Result<Event>> {
        let (sessions, id) = (self.runtime().storage.sessions.clone(), self.id());
        let over = self.runtime().shared.runs.over();
        // The second part is whether the session was read up to there.
        let pages = stream::try_unfold((after, false), move |(seen, mut is_read)| {
            let (sessions, mut over) = (sessions.clone(), over.clone());
            async move {
                loop {
                    // Read once more at the end, so that events which were stored before it are still returned.
                    let is_over = *over.borrow();
                    let found = if is_over || !is_read {
                        next_events(&*sessions, id, seen).await?
                    } else {
                        tokio::select! {
                            () = is_set(&mut over) => continue,
                            coming = coming_events(&*sessions, id, seen) => Some(coming?),
                        }
                    };
                    if let Some((events, seen)) = found {
                        return Ok::<_, Error>(Some((
                            stream::iter(events.into_iter().map(Ok)),
                            (seen, true),
                        )));
                    }
                    if is_over {
                        return Ok(None);
                    }
                    is_read = true;
                }
            }
        });
        pages.try_flatten().boxed()
    }

    /// Creates an independent session that shares the history up to and including the event that `fork` names.
    ///
    /// Without an event, the history up to the last point at which no tool call is open is shared. `fork` may be given
    /// as a sequence number or an `Option` of one.
    ///
    /// Inputs that are not answered stay with this session, unless [`Fork::with_open_inputs`] is used; a fork that is
    /// made during a run is idle.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # use agent_core::MemoryStore;
    /// # use agent_runtime::{AgentBuilder, EchoProvider};
    /// # let agent = AgentBuilder::new().with_llm(EchoProvider::new()).with_storage(MemoryStore::new()).build()?;
    /// # let chat = agent.conversation("support/4711").await?;
    /// use agent_core::session::Fork;
    ///
    /// chat.prompt("Draft a letter.").await?.finish().await?;
    /// let variant = chat.fork(Fork::new()).await?;
    /// variant.prompt("Make it shorter.").await?.finish().await?;
    ///
    /// assert_eq!(variant.record().counts.messages(), 4);
    /// assert_eq!(chat.refresh().await?.counts.messages(), 2);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// `InvalidInput` if a tool call is open at that event, or if the event is not in the history; `Deleted`.
    pub async fn fork(&self, fork: impl Into<Fork> + Send) -> Result<Self> {
        let session = self.runtime().storage.sessions.fork(self.runtime().effects(), self.id(), fork).await?;
        Ok(Self::new(self.runtime().clone(), session))
    }

    /// Suspends the session: inputs are stored, and no run starts until [`resume`](Self::resume). An active run ends at
    /// its next step.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # use agent_core::MemoryStore;
    /// # use agent_runtime::{AgentBuilder, EchoProvider};
    /// # let agent = AgentBuilder::new().with_llm(EchoProvider::new()).with_storage(MemoryStore::new()).build()?;
    /// # let chat = agent.conversation("support/4711").await?;
    /// use agent_core::state::SessionState;
    ///
    /// chat.suspend().await?;
    /// let run = chat.prompt("Are you there?").await?;
    /// let queued = run.queued().expect("a suspended session runs nothing");
    /// assert_eq!(queued.state, SessionState::Suspended);
    ///
    /// chat.resume().await?;
    /// assert_eq!(chat.wait_for_answer(queued).await?.text, "Are you there?");
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// `InvalidTransition` if the session has failed, is archived or has ended.
    pub async fn suspend(&self) -> Result<()> {
        self.trigger(Trigger::Suspend(Reason::UserPaused)).await
    }

    /// Resumes a suspended session; starts no run.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # use agent_core::MemoryStore;
    /// # use agent_runtime::{AgentBuilder, EchoProvider};
    /// # let agent = AgentBuilder::new().with_llm(EchoProvider::new()).with_storage(MemoryStore::new()).build()?;
    /// # let chat = agent.conversation("support/4711").await?;
    /// use agent_core::state::SessionState;
    ///
    /// chat.suspend().await?;
    /// assert_eq!(chat.record().status.state, SessionState::Suspended);
    /// chat.resume().await?;
    /// assert_eq!(chat.record().status.state, SessionState::Idle);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// `InvalidTransition` if the session is not suspended.
    pub async fn resume(&self) -> Result<()> {
        self.trigger(Trigger::Resume).await
    }

    /// Clears the visible history. Title, labels, references and the system prompt stay; the log keeps all events.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # use agent_core::MemoryStore;
    /// # use agent_runtime::{AgentBuilder, EchoProvider};
    /// # let agent = AgentBuilder::new().with_llm(EchoProvider::new()).with_storage(MemoryStore::new()).build()?;
    /// # let chat = agent.conversation("support/4711").await?;
    /// chat.prompt("Hello").await?.finish().await?;
    /// chat.clear().await?;
    /// assert_eq!(chat.record().counts.messages(), 0);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// `InvalidTransition` while the session runs or waits for an answer.
    pub async fn clear(&self) -> Result<()> {
        self.commit(|commit| commit.with_event(NewEvent::history_cleared().with_actor(Actor::USER)))
            .await
            .map(drop)
    }

    /// Compacts the history up to and including event `until`: the model receives `summary` in its place.
    ///
    /// Without `until`, the history is compacted up to the last point at which no tool call is open and every input is
    /// answered. The log is not changed.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # use agent_core::MemoryStore;
    /// # use agent_runtime::{AgentBuilder, ScriptedProvider, Turn};
    /// # let model = ScriptedProvider::new([Turn::new().text("Hello Ada."), Turn::new().text("Ada.")]);
    /// # let agent = AgentBuilder::new().with_llm(model.clone()).with_storage(MemoryStore::new()).build()?;
    /// # let chat = agent.conversation("support/4711").await?;
    /// use agent_runtime::context::ModelMessage;
    ///
    /// chat.prompt("My name is Ada.").await?.finish().await?;
    /// chat.compact(None, "The user is called Ada.").await?;
    /// chat.prompt("What is my name?").await?.finish().await?;
    ///
    /// let request = model.requests().remove(1);
    /// assert_eq!(request.messages[0], ModelMessage::Summary("The user is called Ada.".into()));
    /// assert_eq!(request.messages[1], ModelMessage::user("What is my name?"));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// `InvalidInput` if a tool call is open at `until`, an input before it is not answered yet, there is nothing to
    /// compact, or the summary has no text.
    pub async fn compact(&self, until: Option<Seq>, summary: &str) -> Result<()> {
        let sessions = &self.runtime().storage.sessions;
        let done = sessions.compact(self.runtime().effects(), self.id(), until, summary).await?;
        self.inner.cache_record(&done.session);
        Ok(())
    }

    /// Sets the title, marked as chosen by a person.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # use agent_core::MemoryStore;
    /// # use agent_runtime::{AgentBuilder, EchoProvider};
    /// # let agent = AgentBuilder::new().with_llm(EchoProvider::new()).with_storage(MemoryStore::new()).build()?;
    /// # let chat = agent.conversation("support/4711").await?;
    /// chat.set_title("Invoice 17").await?;
    /// let record = chat.record();
    /// let title = record.attributes.title.as_ref().expect("it is set");
    /// assert_eq!((title.text.as_str(), title.by_user), ("Invoice 17", true));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// `InvalidInput` if the title is empty, longer than 512 bytes or contains a control character.
    pub async fn set_title(&self, title: &str) -> Result<()> {
        self.update(Patch::new().with_title(Title::by_user(title))).await
    }

    /// Sets the session's own system prompt, from its next run on. Replaces the prompt of the configuration; so does an
    /// empty one.
    ///
    /// Reasoning that a provider signed behind another prompt is not given back to it.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # use agent_core::MemoryStore;
    /// # use agent_runtime::{AgentBuilder, ScriptedProvider, Turn};
    /// # let model = ScriptedProvider::new([Turn::new().text("Bonjour")]);
    /// # let agent = AgentBuilder::new().with_llm(model.clone()).with_storage(MemoryStore::new()).build()?;
    /// # let chat = agent.conversation("support/4711").await?;
    /// chat.set_system_prompt("Answer in French.").await?;
    /// chat.prompt("Hello").await?.finish().await?;
    /// assert_eq!(model.requests()[0].system.as_deref(), Some("Answer in French."));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// Errors of the store.
    pub async fn set_system_prompt(&self, text: &str) -> Result<()> {
        self.commit(|commit| commit.with_event(NewEvent::system_prompt(text))).await.map(drop)
    }

    /// Returns the session's documents: its notes, memory blocks, checkpoint. No I/O.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # use agent_core::MemoryStore;
    /// # use agent_runtime::{AgentBuilder, EchoProvider};
    /// # let agent = AgentBuilder::new().with_llm(EchoProvider::new()).with_storage(MemoryStore::new()).build()?;
    /// # let chat = agent.conversation("support/4711").await?;
    /// use agent_core::model::Actor;
    /// use agent_runtime::documents::DocumentWrite;
    ///
    /// let documents = chat.documents();
    /// documents.put(DocumentWrite::new("notes/todo", "Water the plants.", Actor::AGENT)).await?;
    /// let todo = documents.get("notes/todo").await?.expect("it was written");
    /// assert_eq!(todo.text, "Water the plants.");
    /// # Ok(()) }
    /// ```
    pub fn documents(&self) -> Documents {
        let sessions = self.runtime().storage.sessions.clone();
        Documents::new(sessions, self.runtime().effects().clone(), self.id())
    }

    /// Returns a read-only view of the session: its runs, their artifacts, its topic. No I/O.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # use agent_core::MemoryStore;
    /// # use agent_runtime::{AgentBuilder, EchoProvider};
    /// # let agent = AgentBuilder::new().with_llm(EchoProvider::new()).with_storage(MemoryStore::new()).build()?;
    /// # let chat = agent.conversation("support/4711").await?;
    /// chat.prompt("Hello").await?.finish().await?;
    /// let page = chat.view().runs(10, None).await?;
    /// assert_eq!(page.runs.len(), 1);
    /// # Ok(()) }
    /// ```
    pub fn view(&self) -> SessionView {
        SessionView::new(self.runtime().storage.sessions.clone(), self.id())
    }

    /// Defines the outcome that the session is to achieve, until the next definition.
    ///
    /// The definition is an input, which the next run answers; this call starts none.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # use agent_core::MemoryStore;
    /// # use agent_runtime::{AgentBuilder, EchoProvider};
    /// # let agent = AgentBuilder::new().with_llm(EchoProvider::new()).with_storage(MemoryStore::new()).build()?;
    /// # let chat = agent.conversation("support/4711").await?;
    /// chat.define_outcome("A letter of at most 100 words.").await?;
    /// let outcome = chat.view().outcome().await?.expect("it is defined");
    /// assert_eq!(outcome.message.text, "A letter of at most 100 words.");
    /// assert_eq!(chat.record().inputs_open, 1);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a message without media whose text is empty or white space only; `InvalidTransition` if the
    /// session takes no inputs.
    pub async fn define_outcome(&self, outcome: impl Into<Input>) -> Result<()> {
        let Input { message, actor } = outcome.into().checked(self.id())?;
        let defined =
            NewEvent::of(&EventPayload::UserDefineOutcome(self.runtime().fitted(message))).with_actor(actor);
        self.commit(|commit| commit.with_event(defined)).await.map(drop)
    }

    /// Records the location of an artifact that the agent made. The content is not stored.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # use agent_core::MemoryStore;
    /// # use agent_runtime::{AgentBuilder, EchoProvider};
    /// # let agent = AgentBuilder::new().with_llm(EchoProvider::new()).with_storage(MemoryStore::new()).build()?;
    /// # let chat = agent.conversation("support/4711").await?;
    /// use agent_core::model::Artifact;
    ///
    /// let report = Artifact::new("out/report.html").with_media("text/html");
    /// chat.register_artifact(report).await?;
    /// let page = chat.view().artifacts(None, 10, None).await?;
    /// assert_eq!(page.artifacts[0].artifact.path, "out/report.html");
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// `InvalidInput` for an invalid path, hash or media type.
    pub async fn register_artifact(&self, artifact: Artifact) -> Result<()> {
        self.commit(|commit| commit.with_event(NewEvent::artifact_registered(artifact))).await.map(drop)
    }

    /// Updates title, labels, metadata and references unconditionally. The reference `provider` chooses one of the agent's
    /// providers for the next runs of this session; a name that the agent does not have fails them.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # use agent_core::MemoryStore;
    /// # use agent_runtime::{AgentBuilder, EchoProvider};
    /// # let agent = AgentBuilder::new().with_llm(EchoProvider::new()).with_storage(MemoryStore::new()).build()?;
    /// # let chat = agent.conversation("support/4711").await?;
    /// use agent_core::model::Patch;
    ///
    /// chat.update(Patch::new().with_label("status", "open")).await?;
    /// assert_eq!(chat.record().attributes.labels["status"], "open");
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// `InvalidInput`, `LimitExceeded` for the result of the change.
    pub async fn update(&self, patch: Patch) -> Result<()> {
        self.commit(|commit| commit.with_event(NewEvent::updated(patch))).await.map(drop)
    }

    /// Updates title, labels and metadata if the session has no newer event than [`record`](Self::record).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # use agent_core::MemoryStore;
    /// # use agent_runtime::{AgentBuilder, EchoProvider};
    /// # let agent = AgentBuilder::new().with_llm(EchoProvider::new()).with_storage(MemoryStore::new()).build()?;
    /// # let chat = agent.conversation("support/4711").await?;
    /// use agent_core::ErrorKind;
    /// use agent_core::model::Patch;
    ///
    /// let elsewhere = agent.conversation_by_id(chat.id()).await?; // for example in another process
    /// elsewhere.update(Patch::new().with_label("status", "closed")).await?;
    ///
    /// let patch = Patch::new().with_label("status", "open");
    /// let error = chat.update_unchanged(patch.clone()).await.unwrap_err();
    /// assert!(matches!(error.kind(), ErrorKind::Conflict { .. }));
    ///
    /// chat.refresh().await?; // decide by the current record
    /// chat.update_unchanged(patch).await?;
    /// assert_eq!(chat.record().attributes.labels["status"], "open");
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// `Conflict` if it has one.
    pub async fn update_unchanged(&self, patch: Patch) -> Result<()> {
        let head = self.record().head;
        let event = NewEvent::updated(patch);
        self.commit(|commit| commit.with_precondition(Precondition::Matches(head)).with_event(event))
            .await
            .map(drop)
    }

    /// Clears the failure of a session, after its cause has been fixed; the inputs that wait can run again.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # use std::time::Duration;
    /// # use agent_core::MemoryStore;
    /// # use agent_runtime::{AgentBuilder, Config, Retry, ScriptedProvider, Turn};
    /// # let model = ScriptedProvider::new([Turn::new().fail("no credit")]);
    /// # let config = Config::new().with_retry(Retry::new(Duration::ZERO, Duration::ZERO, 1));
    /// # let builder = AgentBuilder::new().with_config(config).with_llm(model.clone());
    /// # let agent = builder.with_storage(MemoryStore::new()).build()?;
    /// # let chat = agent.conversation("support/4711").await?;
    /// use agent_core::state::SessionState;
    ///
    /// chat.send("Water the plants.").await?;
    /// let run = agent.run_pending(chat.id()).await?.expect("an input waits");
    /// assert!(run.finish().await.is_err());
    /// assert_eq!(chat.refresh().await?.status.state, SessionState::Failed);
    ///
    /// # model.push(Turn::new().text("Done."));
    /// // The cause of the failure is fixed.
    /// chat.clear_failure().await?;
    /// let run = chat.run_pending().await?.expect("the input still waits");
    /// assert_eq!(run.finish().await?.text, "Done.");
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// `InvalidTransition` if the session has not failed.
    #[doc(alias = "recover")]
    pub async fn clear_failure(&self) -> Result<()> {
        self.trigger(Trigger::ClearFailure).await
    }

    /// Archives the session, which hides it from lists; no run starts until [`unarchive`](Self::unarchive).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # use agent_core::MemoryStore;
    /// # use agent_runtime::{AgentBuilder, EchoProvider};
    /// # let agent = AgentBuilder::new().with_llm(EchoProvider::new()).with_storage(MemoryStore::new()).build()?;
    /// # let chat = agent.conversation("support/4711").await?;
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
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # use agent_core::MemoryStore;
    /// # use agent_runtime::{AgentBuilder, EchoProvider};
    /// # let agent = AgentBuilder::new().with_llm(EchoProvider::new()).with_storage(MemoryStore::new()).build()?;
    /// # let chat = agent.conversation("support/4711").await?;
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
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # use agent_core::MemoryStore;
    /// # use agent_runtime::{AgentBuilder, EchoProvider};
    /// # let agent = AgentBuilder::new().with_llm(EchoProvider::new()).with_storage(MemoryStore::new()).build()?;
    /// # let chat = agent.conversation("support/4711").await?;
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

    /// Deletes the session; a tombstone remains, and the events until they are purged. [`erase`](Self::erase) removes
    /// them at once.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # use agent_core::MemoryStore;
    /// # use agent_runtime::{AgentBuilder, EchoProvider};
    /// # let agent = AgentBuilder::new().with_llm(EchoProvider::new()).with_storage(MemoryStore::new()).build()?;
    /// # let chat = agent.conversation("support/4711").await?;
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
        refuse_hidden(&self.record())?;
        self.trigger(Trigger::Delete(Reason::UserDeleted)).await
    }

    /// Deletes the session and removes its bytes from the store, in one call. A run of it that is active in this
    /// process is cancelled first.
    ///
    /// [`WorkspaceManager::erase`](agent_workspace::WorkspaceManager::erase) describes what is removed and what
    /// stays. That method takes an id, so it also finishes an erasure that was cut off, when no handle can be opened
    /// any more; [`erase_conversation`](AgentRuntime::erase_conversation) does so for a key.
    ///
    /// The run gets 5 seconds to end; after that, it is fenced and can write nothing more. A run in another process is
    /// not stopped.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # use agent_core::{ErrorKind, MemoryStore};
    /// # use agent_runtime::{AgentBuilder, EchoProvider};
    /// # let builder = AgentBuilder::new().with_llm(EchoProvider::new());
    /// # let agent = builder.with_storage(MemoryStore::new()).build()?;
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
    async fn end_own_run(&self) {
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
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # use agent_core::MemoryStore;
    /// # use agent_runtime::{AgentBuilder, EchoProvider};
    /// # let agent = AgentBuilder::new().with_llm(EchoProvider::new()).with_storage(MemoryStore::new()).build()?;
    /// # let chat = agent.conversation("support/4711").await?;
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

    /// Returns the current sizes of the session; reads no message.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # use agent_core::MemoryStore;
    /// # use agent_runtime::{AgentBuilder, EchoProvider};
    /// # let agent = AgentBuilder::new().with_llm(EchoProvider::new()).with_storage(MemoryStore::new()).build()?;
    /// # let chat = agent.conversation("support/4711").await?;
    /// chat.prompt("Hello").await?.finish().await?;
    /// chat.send("Water the plants.").await?;
    ///
    /// let stats = chat.stats().await?;
    /// assert_eq!((stats.counts.user, stats.counts.agent), (2, 1));
    /// assert_eq!(stats.inputs_open, 1);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// Errors of the store.
    #[doc(alias = "context")]
    pub async fn stats(&self) -> Result<SessionStats> {
        let now = self.refresh().await?;
        Ok(SessionStats {
            counts: now.counts,
            inputs_open: now.inputs_open,
            head: now.head,
            last_active_at: now.last_active_at,
        })
    }

    async fn trigger(&self, trigger: Trigger) -> Result<()> {
        self.commit(|commit| commit.with_trigger(trigger)).await.map(drop)
    }

    async fn commit(&self, fill: impl FnOnce(Commit) -> Commit + Send) -> Result<Committed> {
        let commit = fill(Commit::seal(self.runtime().effects(), self.id(), self.record().head));
        let committed = self.runtime().storage.sessions.commit_new_with_retry(commit).await?;
        self.inner.cache_record(&committed.session);
        Ok(committed)
    }

    /// Starts a child session for a part of this session's work, with `task` as its first input.
    ///
    /// The child is in the same workspace and has its own history. A
    /// [`Scheduler`](crate::schedule::scheduler::Scheduler) runs it; alternatively, [prompt](Self::prompt) and
    /// [run](Self::run_pending) it. When the child becomes idle, fails or is terminated, its last text becomes an input
    /// of this session, once.
    ///
    /// The child is created first, with the id of its parent and its task, and is then recorded in the parent's log. A
    /// crash in between leaves a child that the parent's log does not mention before its outcome; lists by parent find
    /// it.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # use agent_core::MemoryStore;
    /// # use agent_runtime::{AgentBuilder, EchoProvider};
    /// # let agent = AgentBuilder::new().with_llm(EchoProvider::new()).with_storage(MemoryStore::new()).build()?;
    /// # let chat = agent.conversation("support/4711").await?;
    /// use agent_core::model::Patch;
    /// use agent_runtime::Scheduler;
    ///
    /// let child = chat.start_child("Find the cheapest flight.", &Patch::new()).await?;
    /// assert_eq!(child.record().origin.parent(), Some(chat.id()));
    ///
    /// // The scheduler runs the child, whose answer becomes an input of the parent.
    /// Scheduler::new(agent.clone()).round().await?;
    /// assert_eq!(child.refresh().await?.counts.agent, 1);
    /// assert_eq!(chat.refresh().await?.inputs_open, 1);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a task that is empty or white space only; `Deleted` for this session; errors of the store.
    pub async fn start_child(&self, task: impl Into<Input>, patch: &Patch) -> Result<Self> {
        let runtime = self.runtime();
        let (sessions, effects) = (&runtime.storage.sessions, runtime.effects());
        let Input { message, actor } = task.into().checked(self.id())?;
        let parent = self.refresh().await?;
        let new = NewSession::child(effects.new_session_id(), &parent).with_patch(patch);
        let create = Commit::create(effects, new)
            .with_event(NewEvent::from(runtime.fitted(message)).with_actor(actor));
        let tell = Commit::seal(effects, parent.id, parent.head);
        let (child, told) = children::start(&**sessions, create, tell).await?;
        self.inner.cache_record(&told.session);
        Self::new(runtime.clone(), child).freeze_config().await
    }

    /// Replaces the [kept configuration](crate::config::Config::with_freeze_config) of the session with that
    /// of this runtime, from the next run on. Does nothing if the session keeps none.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # use agent_core::MemoryStore;
    /// # use agent_runtime::{AgentBuilder, Config, ScriptedProvider, Turn};
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
