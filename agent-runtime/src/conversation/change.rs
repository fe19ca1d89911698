//! Changes of a session that begin no run.

use crate::conversation::handle::Conversation;
use crate::run::handle::Input;
use crate::turn::children;
use agent_core::commit::{Commit, Precondition, Trigger};
use agent_core::event::{EventPayload, NewEvent};
use agent_core::model::{Actor, Artifact, Patch, Timer, Title};
use agent_core::session::{Fork, NewSession};
use agent_core::state::Reason;
use agent_core::{Result, Seq};

impl Conversation {
    /// Schedules one run at [`timer.at`](Timer::at). A timer with the same [key](Timer::key) replaces the earlier one.
    ///
    /// A [`Scheduler`](crate::schedule::scheduler::Scheduler) starts the run. The timer is durable when the call
    /// returns.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/echo.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # let (agent, chat) = echo().await?;
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
        self.store(NewEvent::timer_scheduled(timer)).await
    }

    /// Cancels the timer with this key. Does nothing if there is none.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/echo.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # let (agent, chat) = echo().await?;
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
        self.store(NewEvent::timer_cancelled(key)).await
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
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/echo.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # let (agent, chat) = echo().await?;
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
        let session = self.runtime().storage.sessions.fork(self.id(), fork).await?;
        Ok(Self::new(self.runtime().clone(), session))
    }

    /// Suspends the session: inputs are stored, and no run starts until [`resume`](Self::resume). An active run ends at
    /// its next step.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/echo.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # let (agent, chat) = echo().await?;
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
    /// # Errors
    ///
    /// `InvalidTransition` if the session is not suspended.
    pub async fn resume(&self) -> Result<()> {
        self.trigger(Trigger::Resume).await
    }

    /// Clears the visible history. Title, labels, references and the system prompt stay; the log keeps all events.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/echo.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # let (agent, chat) = echo().await?;
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
        self.store(NewEvent::history_cleared().with_actor(Actor::USER)).await
    }

    /// Compacts the history up to and including event `until`: the model receives `summary` in its place.
    ///
    /// Without `until`, the history is compacted up to the last point at which no tool call is open and every input is
    /// answered. The log is not changed.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/models.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # let model = ScriptedProvider::new([Turn::new().text("Hello Ada."), Turn::new().text("Ada.")]);
    /// # let (agent, chat) = scripted(model.clone()).await?;
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
        let done = sessions.compact(self.id(), until, summary).await?;
        self.inner.cache_record(&done.session);
        Ok(())
    }

    /// Sets the title, marked as chosen by a person.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/echo.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # let (agent, chat) = echo().await?;
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
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/models.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # let model = ScriptedProvider::new([Turn::new().text("Bonjour")]);
    /// # let (agent, chat) = scripted(model.clone()).await?;
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
        self.store(NewEvent::system_prompt(text)).await
    }

    /// Defines the outcome that the session is to achieve, until the next definition.
    ///
    /// The definition is an input, which the next run answers; this call starts none.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/echo.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # let (agent, chat) = echo().await?;
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
        self.store(defined).await
    }

    /// Records the location of an artifact that the agent made. The content is not stored.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/echo.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # let (agent, chat) = echo().await?;
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
        self.store(NewEvent::artifact_registered(artifact)).await
    }

    /// Updates title, labels, metadata and references unconditionally. The reference `provider` chooses one of the agent's
    /// providers for the next runs of this session; a name that the agent does not have fails them.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/echo.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # let (agent, chat) = echo().await?;
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
        self.store(NewEvent::updated(patch)).await
    }

    /// Updates title, labels and metadata if the session has no newer event than [`record`](Self::record).
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/echo.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # let (agent, chat) = echo().await?;
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
        let unchanged = Precondition::Matches(self.record().head);
        self.commit(|commit| commit.with_precondition(unchanged).with_event(NewEvent::updated(patch))).await
    }

    /// Clears the failure of a session, after its cause has been fixed; the inputs that wait can run again.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/models.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # let (model, agent, chat) = failing().await?;
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
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/echo.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # let (agent, chat) = echo().await?;
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
        let tell = sessions.seal(parent.id, parent.head);
        let (child, told) = children::start(&**sessions, create, tell).await?;
        self.inner.cache_record(&told.session);
        Self::new(runtime.clone(), child).freeze_config().await
    }
}
