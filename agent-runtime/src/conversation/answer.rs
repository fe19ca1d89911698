//! Answers to the pending action of a session.

use tracing::instrument;

use crate::agent::runtime::AgentRuntime;
use crate::conversation::handle::Conversation;
use crate::conversation::redelivered::{first_delivery, run_of_answer};
use crate::run::handle::Run;
use crate::turn::begin::{Cause, begin};
use crate::turn::calls::call_at;
use agent_core::Result;
use agent_core::event::{EventPayload, NewEvent, ToolConfirmation, ToolResult, ToolUse};
use agent_core::model::{Actor, OpenCall};

/// Answer to the pending action of a session. A [`ToolConfirmation`] and a [`ToolResult`] convert into it.
///
/// The result of a tool that runs outside is delivered like this:
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/models.rs"));
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
/// # let (agent, chat) = calling(task("print", ToolMode::Outside), "{}", "It is printed.").await?;
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

impl Conversation {
    /// Answers the pending action of the session; the next run continues from there. See also
    /// [`answer_and_run`](Self::answer_and_run).
    ///
    /// The pending action is in the report of the run that needs the answer, and in the session's
    /// [record](field@agent_core::session::SessionRecord::action).
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/models.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// use agent_core::event::{Decision, ToolConfirmation};
    /// use agent_runtime::RunOutcome;
    ///
    /// # let (agent, chat) = calling(task("send", ToolMode::Confirm), "{}", "It is sent.").await?;
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
        match self.store(answer.clone()).await {
            Ok(()) => Ok(()),
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
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/models.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// use agent_core::event::{Decision, ToolConfirmation};
    /// use agent_runtime::RunOutcome;
    ///
    /// # let (agent, chat) = calling(task("send", ToolMode::Confirm), "{}", "It is sent.").await?;
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
        let cause = Cause { answer: Some(answer.clone()), ..Cause::default() };
        match self.begin_or_wait(begin(self.inner.clone(), cause)).await {
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
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/models.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # let (agent, chat) = calling(task("send", ToolMode::Confirm), "{}", "").await?;
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
}
