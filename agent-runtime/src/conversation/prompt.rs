//! Runs of a session: begun with an input, or with work that waits or is due.

use tracing::{debug, instrument};

use crate::agent::runtime::AgentRuntime;
use crate::conversation::handle::Conversation;
use crate::conversation::wait::wait_for_answer;
use crate::run::error::RunError;
use crate::run::handle::{Begun, Input, Run};
use crate::run::report::{Queued, RunReport};
use crate::turn::begin::{Cause, begin};
use crate::turn::enqueue::{apart, begin_apart, say};
use crate::turn::takeover::{Watched, watch_holder};
use agent_core::commit::Commit;
use agent_core::event::NewEvent;
use agent_core::model::Actor;
use agent_core::session::NewSession;
use agent_core::state::SessionState;
use agent_core::{Epoch, ErrorKind, Result, Seq, SessionId, plan};

impl AgentRuntime {
    /// Starts at most one unattended run of a session, as a scheduler does. Its failure is retried later.
    ///
    /// Returns `None` if nothing waits or is due, or if another process runs the session; otherwise one run that claims
    /// all work that waits or is due. A question whose time limit has passed is closed without an answer first. A run
    /// that fails, or whose process is lost, is retried after a [pause](crate::config::Config::with_retry).
    ///
    /// If another process runs the session, its holder is watched as in [`Conversation::run_pending`].
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/echo.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # let (agent, chat) = echo().await?;
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
        self.conversation_by_id(id).await?.run_if_free(true).await
    }
}

impl Conversation {
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
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/echo.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # let (agent, chat) = echo().await?;
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
        self.begin_or_wait(say(self.inner.clone(), input, true)).await
    }

    /// Stores the input, and waits for its answer, whichever run and whichever process gives it.
    ///
    /// Equals [`prompt`](Self::prompt) and [`Run::finish`], followed by [`wait_for_answer`](Self::wait_for_answer) if the
    /// input is queued behind another run. That run answers all inputs that waited, so several callers can receive the
    /// same report.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/echo.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let (agent, chat) = echo().await?;
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

    /// Creates a session, stores these events and this input, and starts a run, in one commit.
    ///
    /// # Errors
    ///
    /// `Conflict` if the session exists already.
    #[instrument(name = "prompt", skip_all, fields(session = %new.id))]
    pub(crate) async fn begin_new(
        runtime: AgentRuntime,
        new: NewSession,
        events: Vec<NewEvent>,
        input: Option<Input>,
    ) -> Result<(Self, Run)> {
        let input = input.map(|input| input.checked(new.id)).transpose()?;
        // The first events of the run depend on the record as planned.
        let created = plan(None, &Commit::create(runtime.effects(), new.clone()))?.committed().session;
        let handle = Self::new(runtime, created);
        let inputs = input.into_iter().collect();
        let cause = Cause { create: Some((new, events)), inputs, ..Cause::default() };
        let run = handle.begin_or_wait(begin(handle.inner.clone(), cause)).await?;
        Ok((handle, run))
    }

    pub(super) async fn begin_or_wait(
        &self,
        beginning: impl Future<Output = Result<Begun>> + Send + 'static,
    ) -> Result<Run> {
        let ((), begun) = tokio::join!(self.touch(), apart(self.id(), beginning));
        let Begun { run, seq } = begun?;
        Ok(run.unwrap_or_else(|| Run::of_queued(Queued::in_session(&self.record(), seq))))
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
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/echo.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # let (agent, chat) = echo().await?;
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
        let stored = apart(self.id(), say(self.inner.clone(), input, false));
        let ((), stored) = tokio::join!(self.touch(), stored);
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
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/models.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # let (gate, agent, chat) = gated(["42", "48"]).await?;
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
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/echo.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # let (agent, chat) = echo().await?;
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
        self.refresh().await?;
        self.run_if_free(false).await
    }

    /// Starts a run of the work that waits or is due, unless the holder of the session's lease is alive.
    async fn run_if_free(&self, unattended: bool) -> Result<Option<Run>> {
        match watch_holder(&self.inner, &self.record(), false).await? {
            Watched::Alive => Ok(None),
            watched => self.run_due(watched.gone(), unattended).await,
        }
    }

    /// Starts a run of the work that waits or is due. An unattended one is retried: see [`AgentRuntime::run_pending`].
    pub(crate) async fn run_due(&self, expired: Option<Epoch>, unattended: bool) -> Result<Option<Run>> {
        let cause = Cause { expired, overdue: self.inner.overdue(), unattended, ..Cause::default() };
        Ok(begin_apart(&self.inner, cause).await?.run)
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
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/echo.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # let (agent, chat) = echo().await?;
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
            let expired = watch_holder(&self.inner, &now, true).await?.gone();
            let begun = begin_apart(&self.inner, Cause { expired, ..Cause::default() }).await?;
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

    /// Stops the active run, or else discards all work that waits. The request is durable and works from any process.
    ///
    /// An active run ends at its next step, with the outcome [`Interrupted`](crate::RunOutcome::Interrupted); timers,
    /// and inputs that it has not claimed, stay. If no run is active, the pending action, the inputs that wait and all
    /// timers are discarded: such inputs stay in the history, and no run answers them. Does nothing if there is nothing
    /// to stop. To cancel a run of this process, [`Run::cancel`] is faster.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/models.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # let model = ScriptedProvider::new([Turn::new().gate(&Gate::new())]);
    /// # let (agent, chat) = scripted(model).await?;
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
        match self.store(interrupt).await {
            Err(error) if matches!(error.kind(), ErrorKind::InvalidTransition { .. }) => Ok(()),
            stored => stored,
        }
    }
}
