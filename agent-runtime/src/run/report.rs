//! Updates that a run streams, and its final report.

use std::time::Duration;

use crate::model::event::PartKind;
use crate::model::fault::{FaultKind, ProviderFault};
use crate::run::limit::ReachedLimit;
use agent_core::event::{Part, ToolResult, ToolUse};
use agent_core::model::{Failure, PendingAction, Status, Usage};
use agent_core::session::SessionRecord;
use agent_core::state::{Reason, SessionState};
use agent_core::{CommitId, Epoch, Error, RunId, Seq, SessionId};
use serde::{Deserialize, Serialize};

/// Update on the progress of a run: an item of the stream [`Run`](crate::run::handle::Run).
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/echo.rs"));
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
/// # let (agent, chat) = echo().await?;
/// use agent_runtime::Update;
///
/// let mut run = chat.prompt("Hello").await?;
/// let mut shown = String::new();
/// while let Some(update) = run.next().await {
///     match update? {
///         Update::Text(piece) => shown.push_str(&piece),
///         Update::ToolCalled(call) => println!("calls {}", call.name),
///         Update::Failed(failure) => eprintln!("the model failed: {}", failure.text),
///         _ => {}
///     }
/// }
/// assert_eq!(shown, "Hello");
/// # Ok(()) }
/// ```
///
/// As JSON it is `{"type":"text","data":"Hel"}`: the name of the variant in snake case, and its content.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "type", content = "data", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Update {
    /// Input that is stored and for which no run was started; the last update.
    #[doc(alias = "Stored")]
    Queued(Queued),
    /// Start of the run.
    #[non_exhaustive]
    Started {
        /// Id of the run.
        run: RunId,
        /// Epoch of the run's lease.
        epoch: Epoch,
    },
    /// Piece of the agent's text, or of a refusal. Pieces are not taken back: if a provider ends a part with a text that
    /// differs from its pieces, the log and the report have that text.
    Text(String),
    /// Piece of the agent's reasoning.
    Thinking(String),
    /// Part of an answer to which the pieces that follow belong. Sent where a part begins, and again where one goes on
    /// after pieces of another. If a provider does not number its parts, they are counted from 0 in their order.
    ///
    /// The commit and the number together name the part. In the log, it is the item of that commit whose `part` is the
    /// number; an item without `part` has its place among the items of the answer as its number, counted from 0. Items
    /// are the events of the types `agent.message`, `agent.thinking`, `agent.part`, `agent.tool_use` and
    /// `agent.custom_tool_use`. A part that is not stored, like the reasoning of a cut answer, has no such event.
    #[non_exhaustive]
    PartStarted {
        /// Id of the commit that will hold the answer.
        commit: CommitId,
        /// Number of the part.
        index: u32,
        /// Kind of the part.
        kind: PartKind,
    },
    /// Whole part of an answer that is a medium, or what the provider ran itself. One of more than 4 MiB is always left
    /// out of the stream; the log has it.
    Part(Part),
    /// Call of a tool; the call is stored.
    ToolCalled(ToolUse),
    /// Result of a tool call; the result is stored.
    ToolDone(ToolResult),
    /// Event that could not be stored; the run continues, because
    /// [`OnStoreError::Continue`](crate::OnStoreError::Continue) is configured.
    NotStored(Error),
    /// Fault of the model, before the first event of an answer; the run repeats the model call after a pause.
    #[non_exhaustive]
    Retrying {
        /// Pause before the call is repeated.
        #[serde(rename = "after_ms", with = "crate::model::fault::millis")]
        after: Duration,
        /// Fault of the provider.
        fault: ProviderFault,
    },
    /// Failure of the model. The session stays usable.
    Failed(Failure),
    /// The provider's own words on why it refused the request, for the person who asked: at most 300 bytes, without
    /// control characters and the values of secrets. It is in no log.
    ProviderMessage(String),
    /// Older messages that the model is not given any more, because the history exceeded its limits; the compaction is
    /// stored, and the log keeps the messages.
    #[non_exhaustive]
    Compacted {
        /// True if the model is given a summary by the [`Summarizer`](crate::Summarizer); false if it is told only how
        /// many events are left out.
        summarized: bool,
    },
    /// Gap in the stream: updates were left out, because too much of it was unread; see
    /// [`Run`](crate::run::handle::Run).
    #[non_exhaustive]
    Skipped {
        /// Number of updates that were left out.
        updates: u64,
    },
    /// End of the run; the last update.
    Ended(Box<RunReport>),
}

/// Input that is stored and for which no run was started, because the session is running or may not run now.
///
/// The next run of the session answers it, in any process. [`Conversation::wait_for_answer`] waits for that answer.
///
/// [`Conversation::wait_for_answer`]: crate::conversation::handle::Conversation::wait_for_answer
#[doc(alias = "Stored")]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Queued {
    /// Id of the session.
    pub session: SessionId,
    /// Sequence number of the input's event.
    pub seq: Seq,
    /// Run that has claimed the input; `None` if no run has.
    ///
    /// Prompts that are stored together are answered by one run, which one of the callers receives;
    /// [`AgentRuntime::attach`](crate::agent::runtime::AgentRuntime::attach) streams it to the others.
    pub run: Option<RunId>,
    /// Name of the process that runs the session; `None` if none does.
    pub holder: Option<String>,
    /// State of the session.
    pub state: SessionState,
}

impl Queued {
    /// Creates the reference to an input from its session and the sequence number of its event.
    ///
    /// [`Conversation::send`](crate::conversation::handle::Conversation::send) returns that number. A host may return both to a
    /// client, which fetches the answer later.
    pub const fn new(session: SessionId, seq: Seq) -> Self {
        Self { session, seq, run: None, holder: None, state: SessionState::Queued }
    }

    /// Returns the input `seq` of the session with this record.
    pub(crate) fn in_session(now: &SessionRecord, seq: Seq) -> Self {
        let lease = now.lease.as_ref();
        Self {
            session: now.id,
            seq,
            run: lease.filter(|_| seq <= now.inputs_claimed_through).map(|lease| lease.run),
            holder: lease.map(|lease| lease.holder.clone()),
            state: now.status.state,
        }
    }
}

/// Final report of a run: the outcome, the last text, the usage, and the status of the session.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/echo.rs"));
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
/// # let (agent, chat) = echo().await?;
/// use agent_core::state::{Reason, SessionState};
/// use agent_runtime::RunOutcome;
///
/// let report = chat.prompt("Hello").await?.finish().await?;
/// match report.outcome {
///     RunOutcome::Completed(reason) => assert_eq!(reason, Reason::EndTurn),
///     RunOutcome::Awaiting(action) => println!("{}", action.question),
///     other => println!("{other:?}"),
/// }
/// assert_eq!(report.text, "Hello");
/// assert_eq!(report.status.state, SessionState::Idle);
/// assert!(report.stored);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RunReport {
    /// Id of the session.
    pub session: SessionId,
    /// Id of the run; `None` if the session failed before a run claimed the input.
    pub run: Option<RunId>,
    /// Texts and refusals of the last answer, joined without a break; those so far if the run failed or was interrupted.
    pub text: String,
    /// Outcome of the run.
    pub outcome: RunOutcome,
    /// Limit that ended the run or cut its last answer; `None` if none did.
    ///
    /// The log has the reason of the [outcome](Self::outcome), not the limit: the report of a run of another process, from
    /// [`wait_for_answer`](crate::conversation::handle::Conversation::wait_for_answer), names it only if the reason does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<ReachedLimit>,
    /// Usage of the model over all calls of the run, and of the model that wrote its [summaries](crate::WrittenSummary).
    pub usage: Usage,
    /// Status of the session after the run, as last seen; `Queued` if more inputs wait.
    pub status: Status,
    /// True if all events of the run are stored; false only with
    /// [`OnStoreError::Continue`](crate::OnStoreError::Continue).
    pub stored: bool,
}

impl RunReport {
    /// Returns the kind of the provider's fault, if the run failed by one.
    pub fn fault(&self) -> Option<FaultKind> {
        let RunOutcome::Failed(failure) = &self.outcome else { return None };
        failure.fault.as_deref().map(FaultKind::of_name)
    }
}

/// Outcome of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", content = "data", rename_all = "snake_case")]
#[non_exhaustive]
pub enum RunOutcome {
    /// The run finished its work, or reached a limit.
    Completed(Reason),
    /// The run was cancelled, interrupted, or ended by a shutdown.
    Interrupted,
    /// The session waits for an answer: see [`Conversation::answer`](crate::conversation::handle::Conversation::answer).
    Awaiting(PendingAction),
    /// The model failed. [`Run::finish`](crate::Run::finish) returns this outcome as an error.
    Failed(Failure),
}
