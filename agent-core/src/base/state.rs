//! The session's state machine: one table, from which the code decides, the diagram in the docs is drawn and the
//! exhaustive test runs.
//!
//! Two conditions are different states only if different events are legal in them; everything else is a
//! [`Reason`]. A transition is always recorded by an event in the same commit as what caused it.

use crate::base::text::words;

words! {
    /// What a session is doing, as far as it decides which events are legal.
    SessionState {
        /// Being prepared; inputs are kept and served once it is ready.
        Initializing = "initializing",
        /// Nothing to do.
        Idle = "idle",
        /// Has work and waits for a run.
        Queued = "queued",
        /// A run holds the lease.
        Running = "running",
        /// Waits for a person's or a program's answer.
        RequiresAction = "requires_action",
        /// Set aside; inputs are kept.
        Suspended = "suspended",
        /// Needs to be recovered before it goes on.
        Failed = "failed",
        /// Hidden from lists by default; can be restored.
        Archived = "archived",
        /// Over for good; still readable.
        Terminated = "terminated",
        /// Gone; a tombstone remains.
        Deleted = "deleted",
        /// A state of a newer version of this library: readable, and closed to commits.
        Newer = "newer",
    } newer = Some(Self::Newer)
}

words! {
    /// Why a session is in its state.
    Reason {
        /// Created, and nothing has happened since.
        Fresh = "fresh",
        /// An input waits, or started the run.
        Input = "input",
        /// An input that came during the last run waits.
        FollowUp = "follow_up",
        /// A scheduled wake is due, or started the run.
        QueuedWake = "queued_wake",
        /// The last run failed and will be tried again.
        RetryBackoff = "retry_backoff",
        /// The answer that was asked for is there.
        ActionResolved = "action_resolved",
        /// The answer that was asked for did not come in time.
        ActionTimedOut = "action_timed_out",
        /// The run that held the lease is gone.
        LeaseLost = "lease_lost",
        /// The model ended its turn.
        EndTurn = "end_turn",
        /// The model ran into its token limit.
        MaxTokens = "max_tokens",
        /// The run reached its limit of model calls or of tool calls.
        MaxTurns = "max_turns",
        /// The model's answer reached a limit of bytes, and was cut there.
        MaxOutput = "max_output",
        /// The model met a stop sequence.
        StopSequence = "stop_sequence",
        /// The model refused.
        Refusal = "refusal",
        /// Cancelled by a person or a shutdown.
        Interrupted = "interrupted",
        /// The run failed.
        RunError = "run_error",
        /// A tool call waits to be confirmed.
        AwaitToolConfirmation = "await_tool_confirmation",
        /// A tool that runs outside waits to deliver.
        AwaitToolResult = "await_tool_result",
        /// A question waits for a decision.
        AwaitApproval = "await_approval",
        /// Paused by a person.
        UserPaused = "user_paused",
        /// Set aside after a time without activity.
        Inactivity = "inactivity",
        /// Set aside to free what it ran on.
        ResourcesReleased = "resources_released",
        /// What it runs on failed.
        ResourceError = "resource_error",
        /// The system around it failed.
        SystemError = "system_error",
        /// Its stored data is damaged.
        StorageCorrupt = "storage_corrupt",
        /// Archived by a person.
        UserArchived = "user_archived",
        /// Ended by a person.
        UserEnded = "user_ended",
        /// Ended by a time limit.
        Expired = "expired",
        /// Ended by an operator.
        AdminEnded = "admin_ended",
        /// Deleted by a person.
        UserDeleted = "user_deleted",
        /// Deleted by retention.
        Collected = "collected",
        /// A reason of a newer version of this library.
        Newer = "newer",
    } newer = Some(Self::Newer)
}

words! {
    /// What can be asked of a session's state.
    TriggerKind {
        /// A session comes to be: new, forked, as a child, or imported.
        Create = "create",
        /// Someone prepares it, under a lease.
        Prepare = "prepare",
        /// Preparation is done.
        Ready = "ready",
        /// An input arrives.
        Input = "input",
        /// A wake is scheduled.
        EnqueueWake = "enqueue_wake",
        /// A wake is wanted no more.
        CancelWake = "cancel_wake",
        /// A run takes the lease.
        BeginRun = "begin_run",
        /// The run takes up what arrived since it began.
        Take = "take",
        /// The run ends by itself.
        EndRun = "end_run",
        /// The run ends, and waits for an answer.
        AwaitAnswer = "await_answer",
        /// The run ends because it was cancelled.
        EndInterrupted = "end_interrupted",
        /// The run fails and is to be tried again.
        EndRetry = "end_retry",
        /// The run fails for good; the session stays usable.
        EndFailed = "end_failed",
        /// The holder of the lease is found dead.
        LeaseExpired = "lease_expired",
        /// The answer that was asked for arrives.
        ResolveAction = "resolve_action",
        /// The answer that was asked for did not come in time.
        ActionTimeout = "action_timeout",
        /// Whatever it does or waits for is to stop.
        Interrupt = "interrupt",
        /// It is set aside; a run is asked to end first.
        Suspend = "suspend",
        /// It is set aside now; a run is fenced off.
        ForceSuspend = "force_suspend",
        /// It goes on.
        Resume = "resume",
        /// It cannot go on.
        Fail = "fail",
        /// What made it fail is mended.
        Recover = "recover",
        /// It is hidden from lists.
        Archive = "archive",
        /// It is shown again.
        Unarchive = "unarchive",
        /// It is over for good.
        Terminate = "terminate",
        /// It is deleted.
        Delete = "delete",
        /// Its visible history starts anew.
        Clear = "clear",
        /// Another session is made from it.
        Fork = "fork",
        /// A trigger of a newer version of this library.
        Newer = "newer",
    } newer = Some(Self::Newer)
}

/// Where a legal trigger leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Target {
    /// To this state.
    To(SessionState),
    /// The state stays; what came is stored.
    Stay,
    /// To `Queued` where an input or a wake is open, else to `Idle`.
    Open,
    /// To `RequiresAction` where an answer is still awaited, else as [`Target::Open`].
    OpenOrAction,
    /// `Queued` goes as [`Target::Open`], since its inputs may be closed now; any other state stays.
    OpenIfQueued,
    /// To `Failed` once the attempts are used up, else to `Queued`.
    Retry,
    /// To `Initializing` where what it runs on had failed, else as [`Target::Open`].
    Recovered,
    /// To the state before it was archived.
    Previous,
    /// It is so already: a success that writes nothing.
    Already,
}

/// One line of the table: in these states this trigger leads there. What no line allows is refused.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Rule {
    /// What is asked.
    pub trigger: TriggerKind,
    /// The states in which it may be asked.
    pub from: &'static [SessionState],
    /// What becomes of the session.
    pub target: Target,
}

use SessionState::{
    Archived, Deleted, Failed, Idle, Initializing, Queued, RequiresAction, Running, Suspended, Terminated,
};

const fn rule(trigger: TriggerKind, from: &'static [SessionState], target: Target) -> Rule {
    Rule { trigger, from, target }
}

/// The whole state machine. `Create` is not in it: it is legal exactly where there is no session.
pub const TABLE: &[Rule] = &[
    rule(TriggerKind::Prepare, &[Initializing], Target::Stay),
    rule(TriggerKind::Ready, &[Initializing], Target::Open),
    rule(TriggerKind::Input, &[Idle, Queued], Target::To(Queued)),
    rule(TriggerKind::Input, &[Initializing, Running, RequiresAction, Suspended], Target::Stay),
    rule(TriggerKind::EnqueueWake, &[Idle, Queued], Target::To(Queued)),
    rule(TriggerKind::EnqueueWake, &[Initializing, Running, RequiresAction, Suspended], Target::Stay),
    rule(
        TriggerKind::CancelWake,
        &[Initializing, Idle, Queued, Running, RequiresAction, Suspended, Failed],
        Target::OpenIfQueued,
    ),
    rule(TriggerKind::BeginRun, &[Queued], Target::To(Running)),
    rule(TriggerKind::Take, &[Running], Target::Stay),
    rule(TriggerKind::EndRun, &[Running], Target::Open),
    rule(TriggerKind::AwaitAnswer, &[Running], Target::To(RequiresAction)),
    rule(TriggerKind::EndInterrupted, &[Running], Target::Open),
    rule(TriggerKind::EndRetry, &[Running], Target::Retry),
    rule(TriggerKind::EndFailed, &[Running], Target::Open),
    rule(TriggerKind::LeaseExpired, &[Running], Target::Open),
    rule(TriggerKind::LeaseExpired, &[Initializing], Target::Stay),
    rule(TriggerKind::ResolveAction, &[RequiresAction], Target::To(Queued)),
    rule(TriggerKind::ActionTimeout, &[RequiresAction], Target::To(Queued)),
    rule(TriggerKind::Interrupt, &[RequiresAction, Queued], Target::To(Idle)),
    rule(TriggerKind::Interrupt, &[Running], Target::Stay),
    rule(TriggerKind::Suspend, &[Idle, Queued, RequiresAction, Suspended], Target::To(Suspended)),
    rule(TriggerKind::Suspend, &[Running], Target::Stay),
    rule(
        TriggerKind::ForceSuspend,
        &[Idle, Queued, Running, RequiresAction, Suspended],
        Target::To(Suspended),
    ),
    rule(TriggerKind::Resume, &[Suspended], Target::OpenOrAction),
    rule(
        TriggerKind::Fail,
        &[Initializing, Idle, Queued, Running, RequiresAction, Suspended],
        Target::To(Failed),
    ),
    rule(TriggerKind::Recover, &[Failed], Target::Recovered),
    rule(
        TriggerKind::Archive,
        &[Initializing, Idle, Queued, RequiresAction, Suspended, Failed, Terminated],
        Target::To(Archived),
    ),
    rule(TriggerKind::Archive, &[Archived], Target::Already),
    rule(TriggerKind::Unarchive, &[Archived], Target::Previous),
    rule(
        TriggerKind::Terminate,
        &[Initializing, Idle, Queued, Running, RequiresAction, Suspended, Failed, Archived],
        Target::To(Terminated),
    ),
    rule(TriggerKind::Terminate, &[Terminated], Target::Already),
    rule(
        TriggerKind::Delete,
        &[Initializing, Idle, Queued, Running, RequiresAction, Suspended, Failed, Archived, Terminated],
        Target::To(Deleted),
    ),
    rule(TriggerKind::Delete, &[Deleted], Target::Already),
    rule(TriggerKind::Clear, &[Idle, Queued, Suspended, Failed], Target::OpenIfQueued),
    rule(
        TriggerKind::Fork,
        &[Initializing, Idle, Queued, Running, RequiresAction, Suspended, Failed, Archived, Terminated],
        Target::Stay,
    ),
];

/// What `trigger` does in `state`, or `None` where it is refused.
pub fn target(state: SessionState, trigger: TriggerKind) -> Option<Target> {
    TABLE.iter().find(|rule| rule.trigger == trigger && rule.from.contains(&state)).map(|rule| rule.target)
}

impl SessionState {
    /// Whether lists leave it out unless they are asked for it.
    pub const fn is_hidden(self) -> bool {
        matches!(self, Archived | Deleted)
    }

    /// Whether a run or a preparation may hold a lease in it.
    pub const fn may_hold_lease(self) -> bool {
        matches!(self, Running | Initializing)
    }
}
