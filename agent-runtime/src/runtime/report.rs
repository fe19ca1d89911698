//! What a run tells while it goes on, and what it came to.

use agent_core::event::{ToolResult, ToolUse};
use agent_core::model::{Failure, PendingAction, Status, Usage};
use agent_core::state::{Reason, SessionState};
use agent_core::{Epoch, Error, RunId, Seq};

/// What happens in a run.
#[derive(Debug)]
#[non_exhaustive]
pub enum Update {
    /// The input is stored, and no run was started; the last update.
    Stored(Stored),
    /// The run has begun.
    #[non_exhaustive]
    Started {
        /// The run.
        run: RunId,
        /// The number of its lease.
        epoch: Epoch,
    },
    /// A piece of the agent's text.
    Text(String),
    /// A piece of the agent's reasoning.
    Thinking(String),
    /// A tool is called; the call is stored.
    ToolCalled(ToolUse),
    /// A tool's result.
    ToolDone(ToolResult),
    /// Something could not be stored, and the run goes on, as the configuration wants it.
    NotStored(Error),
    /// The model failed. The session stays usable.
    Failed(Failure),
    /// Updates were left out here, because too much of the stream was unread; see [`Run`](crate::runtime::run::Run).
    #[non_exhaustive]
    Skipped {
        /// How many.
        updates: u64,
    },
    /// The run is over; the last update.
    Ended(Box<RunReport>),
}

/// An input that waits, because no run could be started.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stored {
    /// The input's event.
    pub seq: Seq,
    /// Who runs the session, where somebody does.
    pub holder: Option<String>,
    /// What the session is doing.
    pub state: SessionState,
}

/// What a run came to.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RunReport {
    /// The run; `None` where the input was only stored.
    pub run: Option<RunId>,
    /// The agent's last text.
    pub text: String,
    /// How it ended.
    pub outcome: RunOutcome,
    /// What the model used, over all calls.
    pub usage: Usage,
    /// What the session came to, as far as it is known: `Queued` where more inputs wait.
    pub status: Status,
    /// Whether all of it is stored.
    pub stored: bool,
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RunOutcome {
    /// It did what it was to do, or met a limit.
    Completed(Reason),
    /// It was cancelled, interrupted, or ended by a shutdown.
    Interrupted,
    /// The session waits for an answer: see [`SessionHandle::answer`](crate::handle::SessionHandle::answer).
    Awaiting(PendingAction),
    /// The model failed.
    Failed(Failure),
    /// None was started; the input waits.
    Waiting(Stored),
}
