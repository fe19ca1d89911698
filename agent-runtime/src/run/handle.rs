//! One bounded run as its caller sees it: a stream of updates.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures::Stream;
use tokio::sync::watch;

use crate::run::error::RunError;
use crate::run::report::{Queued, RunOutcome, RunReport, Update};
use crate::run::updates::UpdateReceiver;
use agent_core::event::{Message, NewEvent};
use agent_core::model::Actor;
use agent_core::{Error, Result, RunId, Seq, SessionId};

/// Message to an agent, with its author. A `&str`, a `String` and a [`Message`] convert into an input of
/// [`Actor::USER`].
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/echo.rs"));
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
/// # let (agent, chat) = echo().await?;
/// use agent_core::event::Message;
/// use agent_core::model::{Actor, Role};
/// use agent_core::store::ReadEvents;
/// use agent_runtime::Input;
///
/// let ada = Actor::named(Role::User, "ada")?;
/// chat.send(Input::new(Message::new("Hello")).with_actor(ada)).await?;
/// let event = chat.history(ReadEvents::last(1)).await?.events.remove(0);
/// assert_eq!(event.actor.name(), Some("ada"));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Input {
    /// Message; without a medium or a link, its text must not be empty or white space only.
    pub message: Message,
    /// Author of the message.
    pub actor: Actor,
}

impl Input {
    /// Creates an input of [`Actor::USER`], a person without a name.
    pub const fn new(message: Message) -> Self {
        Self { message, actor: Actor::USER }
    }

    /// Sets the author; the default is [`Actor::USER`].
    #[must_use]
    #[doc(alias = "by")]
    pub fn with_actor(mut self, actor: Actor) -> Self {
        self.actor = actor;
        self
    }

    /// Refuses an input without content, because a model would refuse it and every later request that contains it.
    pub(crate) fn checked(self, session: SessionId) -> Result<Self> {
        let has_media = self.message.parts.iter().any(|part| part.media().is_some());
        if self.message.text.trim().is_empty() && !has_media {
            return Err(Error::invalid(format!(
                "the input for session {session} is empty or white space only; give it a text, or attach something"
            )));
        }
        Ok(self)
    }
}

impl From<Input> for NewEvent {
    fn from(Input { message, actor }: Input) -> Self {
        Self::from(message).with_actor(actor)
    }
}

impl From<Message> for Input {
    fn from(message: Message) -> Self {
        Self::new(message)
    }
}

impl From<String> for Input {
    fn from(text: String) -> Self {
        Self::new(Message::new(text))
    }
}

impl From<&str> for Input {
    fn from(text: &str) -> Self {
        Self::new(Message::new(text))
    }
}

/// Stream of the updates of one bounded run, which has its own task.
///
/// [`next`](Self::next) returns them one by one; the type is also a [`Stream`] for the adapters of the crate `futures`.
///
/// A run continues if this value is dropped; [`AgentRuntime::attach`](crate::agent::runtime::AgentRuntime::attach)
/// opens another stream of it.
///
/// The stream ends with [`Update::Ended`], [`Update::Queued`] or an error. An error of the kind `Fenced` means that
/// another holder took the session over; the run wrote nothing after that.
///
/// A run does not wait for its readers. At most 4 MiB of updates are buffered for each reader; further updates are left
/// out, and an [`Update::Skipped`] states their number. The last update is never left out, and everything that a run
/// stores is in the session's history.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/echo.rs"));
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
/// use agent_runtime::Update;
///
/// # let (agent, chat) = echo().await?;
/// let mut run = chat.prompt("Hello, world").await?;
/// let mut pieces = Vec::new();
/// while let Some(update) = run.next().await {
///     match update? {
///         Update::Text(piece) => pieces.push(piece),
///         Update::Ended(report) => assert_eq!(report.text, "Hello, world"),
///         _ => {}
///     }
/// }
/// assert_eq!(pieces, ["Hello, ", "world"]);
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Run {
    pub(crate) updates: UpdateReceiver,
    pub(crate) cancel: watch::Sender<bool>,
    pub(crate) session: SessionId,
    pub(crate) id: Option<RunId>,
    pub(crate) queued: Option<Queued>,
}

impl Run {
    /// Creates the stream of a run of this process.
    pub(crate) const fn started(
        session: SessionId,
        run: RunId,
        updates: UpdateReceiver,
        cancel: watch::Sender<bool>,
    ) -> Self {
        Self { updates, cancel, session, id: Some(run), queued: None }
    }

    /// Creates a run that was not started, because its input is queued.
    pub(crate) fn of_queued(queued: Queued) -> Self {
        let updates = UpdateReceiver::of(Update::Queued(queued.clone()));
        let (session, cancel) = (queued.session, watch::Sender::new(false));
        Self { updates, cancel, session, id: None, queued: Some(queued) }
    }

    /// Creates the stream of a run that has ended: it consists of the end.
    pub(crate) fn of_ended(report: RunReport) -> Self {
        let (session, id) = (report.session, report.run);
        let updates = UpdateReceiver::of(Update::Ended(Box::new(report)));
        Self { updates, cancel: watch::Sender::new(false), session, id, queued: None }
    }

    /// Returns the id of the run; `None` if the input was only queued.
    pub const fn id(&self) -> Option<RunId> {
        self.id
    }

    /// Returns the queued input, if no run was started for it; `None` if a run was started.
    #[doc(alias = "stored")]
    pub const fn queued(&self) -> Option<&Queued> {
        self.queued.as_ref()
    }

    /// Cancels the run, if it is active in this process.
    ///
    /// The run stores the output so far, the session becomes idle, and then the stream ends. To stop a run of another
    /// process, use [`Conversation::interrupt`](crate::Conversation::interrupt).
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/models.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// use agent_runtime::RunOutcome;
    ///
    /// # let model = ScriptedProvider::new([Turn::new().gate(&Gate::new())]);
    /// # let (agent, chat) = scripted(model).await?;
    /// let run = chat.prompt("Tell me a long story.").await?;
    /// run.cancel();
    /// assert_eq!(run.finish().await?.outcome, RunOutcome::Interrupted);
    /// # Ok(()) }
    /// ```
    pub fn cancel(&self) {
        self.cancel.send_replace(true);
    }

    /// Returns a handle that can cancel the run from elsewhere.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/models.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # let model = ScriptedProvider::new([Turn::new().gate(&Gate::new())]);
    /// # let (agent, chat) = scripted(model).await?;
    /// use agent_runtime::RunOutcome;
    ///
    /// let run = chat.prompt("Tell me a long story.").await?;
    /// let canceller = run.canceller();
    /// // For example from the handler of a "stop" button.
    /// tokio::spawn(async move { canceller.cancel() });
    /// assert_eq!(run.finish().await?.outcome, RunOutcome::Interrupted);
    /// # Ok(()) }
    /// ```
    pub fn canceller(&self) -> Canceller {
        Canceller(self.cancel.clone())
    }

    /// Waits for the next update, and returns it; `None` after the last one.
    ///
    /// # Cancel safety
    ///
    /// The future may be dropped at any point, for example in a `select!`: no update is lost, and the run continues.
    ///
    /// # Errors
    ///
    /// The error with which the run ended; it is the last item.
    pub async fn next(&mut self) -> Option<Result<Update>> {
        poll_fn(|context| self.updates.poll_next(context)).await
    }

    /// Waits until the run has ended, and returns its report.
    ///
    /// The report is that of a run that the model completed, that was [interrupted](RunOutcome::Interrupted), or that
    /// needs an answer before it can continue: see [`RunReport::outcome`](field@RunReport::outcome).
    ///
    /// # Cancel safety
    ///
    /// The future may be dropped at any point; the run continues.
    ///
    /// # Errors
    ///
    /// [`RunError::Failed`] if the model failed, [`RunError::Queued`] if no run was started, because the input was only
    /// queued, and [`RunError::Store`] with any other error with which the stream ended.
    pub async fn finish(mut self) -> Result<RunReport, RunError> {
        while let Some(update) = self.next().await {
            match update? {
                Update::Ended(report) => {
                    return match report.outcome {
                        RunOutcome::Failed(_) => Err(RunError::Failed(report)),
                        _ => Ok(*report),
                    };
                }
                Update::Queued(queued) => return Err(RunError::Queued(queued)),
                _ => {}
            }
        }
        let run = self.id.map_or_else(String::new, |id| format!(" {id}"));
        Err(RunError::Store(Error::unavailable(format!(
            "session {}: the task of run{run} was lost; the session continues when its lease has expired",
            self.session
        ))))
    }
}

impl Stream for Run {
    type Item = Result<Update>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.updates.poll_next(cx)
    }
}

/// Result of beginning a run.
#[derive(Debug)]
pub(crate) struct Begun {
    /// The run; `None` if no run may start.
    pub(crate) run: Option<Run>,
    /// Sequence number of the event of the last input, or of the answer; zero if there was none. The inputs have
    /// consecutive numbers.
    pub(crate) seq: Seq,
}

/// Handle that cancels a [`Run`] whose stream is read elsewhere; see [`Run::canceller`]. Dropping it cancels nothing.
#[derive(Clone, Debug)]
pub struct Canceller(watch::Sender<bool>);

impl Canceller {
    /// Cancels the run, like [`Run::cancel`]. Does nothing if the run has ended.
    pub fn cancel(&self) {
        self.0.send_replace(true);
    }
}
