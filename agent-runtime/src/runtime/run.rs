//! One bounded run as its caller sees it: a stream of what happens.

use std::pin::Pin;
use std::task::{Context, Poll};

use futures::{Stream, StreamExt};
use tokio::sync::watch;

use crate::runtime::report::{RunOutcome, RunReport, Stored, Update};
use crate::runtime::updates::{UpdateReceiver, updates};
use agent_core::event::{Message, NewEvent};
use agent_core::model::{Actor, Status, Usage};
use agent_core::{Error, ErrorKind, Result, RunId, Seq, SessionId};

/// What a person says to an agent, and who that is.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Input {
    /// What is said.
    pub message: Message,
    /// Who says it.
    pub actor: Actor,
}

impl Input {
    /// What a person without a name says.
    pub const fn new(message: Message) -> Self {
        Self { message, actor: Actor::USER }
    }

    /// Sets who says it.
    #[must_use]
    pub fn by(mut self, actor: Actor) -> Self {
        self.actor = actor;
        self
    }

    /// Refuses an input without text: a model would refuse it, and with it every request that holds it.
    pub(crate) fn checked(self, session: SessionId) -> Result<Self> {
        if self.message.text.trim().is_empty() {
            return Err(Error::invalid(format!(
                "the input for session {session} is empty or white space only; give it a text"
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

/// One bounded run, in a task of its own: a stream of what happens. Dropped, it goes on by itself.
///
/// The stream ends with [`Update::Ended`], [`Update::Stored`] or an error. An error of the kind `Fenced` says that
/// another took the session over; nothing more was written then.
///
/// A run does not wait for its reader. At most 4 MiB of updates wait to be read; further ones are left out, and an
/// [`Update::Skipped`] says how many. The last update is never left out, and what a run stores is in the session's history.
#[derive(Debug)]
pub struct Run {
    pub(crate) updates: UpdateReceiver,
    pub(crate) cancel: watch::Sender<bool>,
    pub(crate) id: Option<RunId>,
    pub(crate) stored: Option<Stored>,
    pub(crate) status: Status,
}

impl Run {
    /// A run that was not started.
    pub(crate) fn waiting(stored: Stored, status: Status) -> Self {
        let (sender, updates) = updates();
        sender.finish(Ok(Update::Stored(stored.clone())));
        Self { updates, cancel: watch::Sender::new(false), id: None, stored: Some(stored), status }
    }

    /// The run's id; `None` where the input was only stored.
    pub const fn id(&self) -> Option<RunId> {
        self.id
    }

    /// Where the input waits, if no run was started.
    pub const fn stored(&self) -> Option<&Stored> {
        self.stored.as_ref()
    }

    /// Ends the run, if it goes on in this process: what the agent said so far is stored, and the session is idle
    /// again. The stream tells when.
    pub fn cancel(&self) {
        self.cancel.send_replace(true);
    }

    /// Cancels the run from elsewhere.
    pub fn canceller(&self) -> Canceller {
        Canceller(self.cancel.clone())
    }

    /// Waits until the run is over.
    ///
    /// # Errors
    ///
    /// That with which the stream ended. A model that failed is no error here, but [`RunOutcome::Failed`].
    pub async fn finish(mut self) -> Result<RunReport> {
        while let Some(update) = self.next().await {
            match update? {
                Update::Ended(report) => return Ok(*report),
                Update::Stored(stored) => {
                    return Ok(RunReport {
                        run: None,
                        text: String::new(),
                        outcome: RunOutcome::Waiting(stored),
                        usage: Usage::default(),
                        status: self.status,
                        stored: true,
                    });
                }
                _ => {}
            }
        }
        Err(Error::new(
            ErrorKind::Unavailable,
            format!(
                "the task of run {} is gone; its session goes on when its lease has expired",
                self.id.map_or("(not started)".to_owned(), |id| id.to_string())
            ),
        ))
    }
}

impl Stream for Run {
    type Item = Result<Update>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.updates.poll_next(cx)
    }
}

/// What came of a beginning.
#[derive(Debug)]
pub(crate) struct Begun {
    /// The run; `None` where none may start.
    pub(crate) run: Option<Run>,
    /// The event of the last input, or of the answer; zero where there was none. The inputs lie side by side.
    pub(crate) seq: Seq,
}

/// Cancels a [`Run`] that is being read elsewhere.
#[derive(Clone, Debug)]
pub struct Canceller(watch::Sender<bool>);

impl Canceller {
    /// As [`Run::cancel`].
    pub fn cancel(&self) {
        self.0.send_replace(true);
    }
}
