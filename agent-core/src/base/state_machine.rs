//! State machine of a session: one table that the code, the diagram in the docs and the exhaustive test share.
//!
//! Two conditions are different states only if different events are legal in them; everything else is a [`Reason`]. A
//! transition is always recorded by an event in the same commit as its cause.

use crate::base::text::words;

words! {
    /// State of a session. Decides which events are legal.
    ///
    /// ```
    /// use agent_core::state::SessionState;
    ///
    /// assert_eq!(SessionState::RequiresAction.as_str(), "requires_action");
    /// assert_eq!(SessionState::from_word("queued"), Some(SessionState::Queued));
    /// assert!(SessionState::Archived.is_hidden() && !SessionState::Terminated.is_hidden());
    /// assert!(SessionState::Running.may_hold_lease());
    /// ```
    SessionState {
        /// The session is being prepared; inputs are stored and served once it is ready.
        Initializing = "initializing",
        /// The session has nothing to do.
        Idle = "idle",
        /// The session has work and waits for a run.
        Queued = "queued",
        /// A run holds the lease.
        Running = "running",
        /// The session waits for an answer of a person or a program.
        RequiresAction = "requires_action",
        /// The session is suspended; inputs are stored.
        Suspended = "suspended",
        /// The session failed and must be recovered before it continues.
        Failed = "failed",
        /// The session is hidden from lists by default; it can be restored.
        Archived = "archived",
        /// The session has ended permanently; it is still readable.
        Terminated = "terminated",
        /// The session is deleted; a tombstone remains.
        Deleted = "deleted",
        /// State of a newer version of this library: the session is readable, and accepts no commits.
        Newer = "newer",
    } newer = Some(Self::Newer)
}

words! {
    /// Reason for a session's state.
    Reason {
        /// The session was created, and nothing has happened since.
        Fresh = "fresh",
        /// An input waits, or started the run.
        Input = "input",
        /// An input that arrived during the last run waits.
        FollowUp = "follow_up",
        /// A scheduled timer is due, or started the run.
        TimerDue = "timer_due",
        /// The last run failed and will be retried.
        RetryBackoff = "retry_backoff",
        /// The requested answer has arrived.
        ActionResolved = "action_resolved",
        /// The requested answer did not arrive in time.
        ActionTimedOut = "action_timed_out",
        /// The run that held the lease was lost.
        LeaseLost = "lease_lost",
        /// The model ended its turn.
        EndTurn = "end_turn",
        /// The model reached its token limit.
        MaxTokens = "max_tokens",
        /// The run reached its limit of model calls or of tool calls.
        MaxTurns = "max_turns",
        /// The model's answer reached a limit of bytes and was cut there.
        MaxOutput = "max_output",
        /// The model produced a stop sequence.
        StopSequence = "stop_sequence",
        /// The model refused.
        Refusal = "refusal",
        /// A person or a shutdown cancelled the run.
        Interrupted = "interrupted",
        /// The run failed.
        RunError = "run_error",
        /// A tool call waits for confirmation.
        AwaitToolConfirmation = "await_tool_confirmation",
        /// A tool that runs outside has not delivered its result yet.
        AwaitToolResult = "await_tool_result",
        /// A question waits for a decision.
        AwaitApproval = "await_approval",
        /// A person paused the session.
        UserPaused = "user_paused",
        /// The session was suspended after a time without activity.
        Inactivity = "inactivity",
        /// The session was suspended to free its resources.
        ResourcesReleased = "resources_released",
        /// A resource that the session runs on failed.
        ResourceError = "resource_error",
        /// The surrounding system failed.
        SystemError = "system_error",
        /// The session's stored data is damaged.
        StorageCorrupt = "storage_corrupt",
        /// A person archived the session.
        UserArchived = "user_archived",
        /// A person ended the session.
        UserEnded = "user_ended",
        /// A time limit ended the session.
        Expired = "expired",
        /// An operator ended the session.
        AdminEnded = "admin_ended",
        /// A person deleted the session.
        UserDeleted = "user_deleted",
        /// Retention deleted the session.
        Collected = "collected",
        /// Reason of a newer version of this library.
        Newer = "newer",
    } newer = Some(Self::Newer)
}

words! {
    /// Kind of request that changes a session's state.
    TriggerKind {
        /// Creates a session: new, forked, as a child, or imported.
        Create = "create",
        /// Takes a lease to prepare the session.
        Prepare = "prepare",
        /// Ends the preparation.
        Ready = "ready",
        /// Adds an input.
        Input = "input",
        /// Schedules a timer.
        ScheduleTimer = "schedule_timer",
        /// Cancels a scheduled timer.
        CancelTimer = "cancel_timer",
        /// Starts a run, which takes the lease.
        BeginRun = "begin_run",
        /// Claims the inputs that arrived since the run began.
        ClaimInputs = "claim_inputs",
        /// Ends the run normally.
        EndRun = "end_run",
        /// Ends the run and waits for an answer.
        AwaitAnswer = "await_answer",
        /// Ends the run because it was cancelled.
        EndInterrupted = "end_interrupted",
        /// Ends a failed run that will be retried.
        EndRetry = "end_retry",
        /// Ends a failed run that will not be retried; the session stays usable.
        EndFailed = "end_failed",
        /// Ends a lease whose holder is dead.
        LeaseExpired = "lease_expired",
        /// Delivers the requested answer.
        ResolveAction = "resolve_action",
        /// Gives up waiting for the requested answer.
        ActionTimeout = "action_timeout",
        /// Stops the session's run or its waiting.
        Interrupt = "interrupt",
        /// Suspends the session; a run is asked to end first.
        Suspend = "suspend",
        /// Suspends the session now; a run is fenced.
        ForceSuspend = "force_suspend",
        /// Resumes a suspended session.
        Resume = "resume",
        /// Marks the session as failed.
        Fail = "fail",
        /// Clears a failure after its cause was fixed.
        ClearFailure = "clear_failure",
        /// Hides the session from lists.
        Archive = "archive",
        /// Shows an archived session again.
        Unarchive = "unarchive",
        /// Ends the session permanently.
        Terminate = "terminate",
        /// Deletes the session.
        Delete = "delete",
        /// Clears the visible history.
        Clear = "clear",
        /// Forks another session from this one.
        Fork = "fork",
        /// Ends every lease of before the session was restored from a backup.
        Fence = "fence",
        /// Trigger of a newer version of this library.
        Newer = "newer",
    } newer = Some(Self::Newer)
}

/// Result of a legal trigger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Target {
    /// The session enters this state.
    To(SessionState),
    /// The state stays; the event is stored.
    Stay,
    /// The session becomes `Queued` if an input or a timer is open, else `Idle`.
    Open,
    /// The session becomes `RequiresAction` if an answer is still pending, else as for [`Target::Open`].
    OpenOrAction,
    /// A `Queued` session changes as for [`Target::Open`], since its inputs may be closed now; any other state stays.
    OpenIfQueued,
    /// The session becomes `Failed` once the attempts are used up, else `Queued`.
    Retry,
    /// The session becomes `Initializing` if a resource that it runs on had failed, else as for [`Target::Open`].
    Recovered,
    /// The session returns to its state before it was archived.
    Previous,
    /// The session is in that state already: the commit succeeds and writes nothing.
    Already,
}

/// Row of the table: in these states, this trigger has that result. A trigger that no row allows is refused.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Rule {
    /// Trigger of the rule.
    pub trigger: TriggerKind,
    /// States in which the trigger is legal.
    pub from: &'static [SessionState],
    /// Result of the trigger.
    pub target: Target,
}

use SessionState::{
    Archived, Deleted, Failed, Idle, Initializing, Queued, RequiresAction, Running, Suspended, Terminated,
};

const fn rule(trigger: TriggerKind, from: &'static [SessionState], target: Target) -> Rule {
    Rule { trigger, from, target }
}

/// Complete state machine. `Create` is not in the table: it is legal exactly if there is no session.
pub const TABLE: &[Rule] = &[
    rule(TriggerKind::Prepare, &[Initializing], Target::Stay),
    rule(TriggerKind::Ready, &[Initializing], Target::Open),
    rule(TriggerKind::Input, &[Idle, Queued], Target::To(Queued)),
    rule(TriggerKind::Input, &[Initializing, Running, RequiresAction, Suspended], Target::Stay),
    rule(TriggerKind::ScheduleTimer, &[Idle, Queued], Target::To(Queued)),
    rule(TriggerKind::ScheduleTimer, &[Initializing, Running, RequiresAction, Suspended], Target::Stay),
    rule(
        TriggerKind::CancelTimer,
        &[Initializing, Idle, Queued, Running, RequiresAction, Suspended, Failed],
        Target::OpenIfQueued,
    ),
    rule(TriggerKind::BeginRun, &[Queued], Target::To(Running)),
    rule(TriggerKind::ClaimInputs, &[Running], Target::Stay),
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
    rule(TriggerKind::ClearFailure, &[Failed], Target::Recovered),
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
    rule(TriggerKind::Fence, &[Running], Target::Open),
    rule(
        TriggerKind::Fence,
        &[Initializing, Idle, Queued, RequiresAction, Suspended, Failed, Archived, Terminated],
        Target::Stay,
    ),
];

/// Returns the result of `trigger` in `state`, or `None` if it is refused.
///
/// ```
/// use agent_core::state::{SessionState, Target, TriggerKind, target};
///
/// assert_eq!(target(SessionState::Idle, TriggerKind::Input), Some(Target::To(SessionState::Queued)));
/// assert_eq!(target(SessionState::Terminated, TriggerKind::Input), None);
/// ```
pub fn target(state: SessionState, trigger: TriggerKind) -> Option<Target> {
    TABLE.iter().find(|rule| rule.trigger == trigger && rule.from.contains(&state)).map(|rule| rule.target)
}

impl SessionState {
    /// Returns whether lists omit sessions in this state unless they ask for it.
    pub const fn is_hidden(self) -> bool {
        matches!(self, Archived | Deleted)
    }

    /// Returns whether a run or a preparation may hold a lease in this state.
    pub const fn may_hold_lease(self) -> bool {
        matches!(self, Running | Initializing)
    }
}
