//! Result of one input or answer, read from the session's log: the run that claimed it, and the end of that run.

use crate::run::error::RunError;
use crate::run::limit::ReachedLimit;
use crate::run::report::{Queued, RunOutcome, RunReport};
use agent_core::event::{AgentPart, Event, EventPayload, EventType, Part};
use agent_core::model::{Failure, PendingAction, Status, Transition, Usage};
use agent_core::session::SessionRecord;
use agent_core::state::{Reason, SessionState, TriggerKind};
use agent_core::store::ReadEvents;
use agent_core::{CommitId, Error, ErrorKind, Result, RunId, Seq, SessionId, SessionStore};

/// Maximum number of events that are read at a time, and of their bytes.
const PAGE: usize = 500;
const PAGE_BYTES: usize = 1 << 20;

/// Types of the items of an answer.
const ITEMS: [EventType; 5] = [
    EventType::AGENT_MESSAGE,
    EventType::AGENT_THINKING,
    EventType::AGENT_PART,
    EventType::AGENT_TOOL_USE,
    EventType::AGENT_CUSTOM_TOOL_USE,
];

/// Types of answers to a pending action.
pub(crate) const ANSWERS: [EventType; 2] =
    [EventType::USER_TOOL_CONFIRMATION, EventType::USER_CUSTOM_TOOL_RESULT];

/// Last run that claimed an input, or continued from an answer, and its result in the log.
#[derive(Debug)]
pub(crate) struct Claim {
    input: Seq,
    /// True if the event is the answer to a pending action.
    is_answer: bool,
    run: Option<RunId>,
    /// Commit of the last answer.
    answer: Option<CommitId>,
    text: String,
    usage: Usage,
    degraded: bool,
    end: Option<End>,
}

/// End of an input.
#[derive(Debug)]
enum End {
    /// A run ended that had claimed the input.
    Ran(RunOutcome, Status),
    /// The input was discarded at this event, before a run claimed it.
    Discarded(Seq),
}

impl Claim {
    /// Reads the session's own log from the event of the input or answer until it is done, or until the record's head.
    /// Holds one page of at most 1 MiB.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if the event is neither; `Corrupt`; errors of the store.
    pub(crate) async fn read(sessions: &dyn SessionStore, now: &SessionRecord, input: Seq) -> Result<Self> {
        let first = ReadEvents::first(PAGE).with_max_bytes(PAGE_BYTES);
        let before = Seq::new(input.get().saturating_sub(1));
        let mut next = Some(first.with_after(before).with_before(now.head.next()));
        let mut claim = Self {
            input,
            is_answer: false,
            run: None,
            answer: None,
            text: String::new(),
            usage: Usage::default(),
            degraded: false,
            end: None,
        };
        let mut found = false;
        while let Some(read) = next {
            let page = sessions.read(now.id, read).await?;
            for event in &page.events {
                if !found {
                    claim.is_answer = is_answer(now.id, input, event)?;
                    found = true;
                }
                claim.walk(event)?;
                if claim.end.is_some() {
                    return Ok(claim);
                }
            }
            if let Some(damage) = page.damaged.first() {
                return Err(Error::corrupt(format!("session {}: {damage}", now.id)));
            }
            next = page.next;
        }
        Ok(claim)
    }

    /// Returns whether the log has the end of the run, or of what it was to do.
    pub(crate) const fn is_ended(&self) -> bool {
        self.end.is_some()
    }

    /// Returns the run that claimed the input last.
    pub(crate) const fn run(&self) -> Option<RunId> {
        self.run
    }

    fn walk(&mut self, event: &Event) -> Result<()> {
        if event.run.is_some() && event.run == self.run && ITEMS.contains(&event.kind) {
            if self.answer.replace(event.commit) != Some(event.commit) {
                self.text.clear();
            }
            // The end of the run counts, also behind an item that cannot be decoded.
            self.text.push_str(&said(event).unwrap_or_default());
        } else if event.kind == EventType::SESSION_RUN_USAGE
            && let EventPayload::SessionRunUsage(used) = event.decode()?
            && Some(used.run) == self.run
        {
            self.usage = self.usage.plus(used.usage);
            self.degraded |= used.degraded;
        }
        let Some(change) = event.transition()? else { return Ok(()) };
        // The end is checked first, because one change may end a run and begin the next.
        let is_done = match self.is_answer {
            true => self.ends_answer(&change),
            false => change.inputs_done_through.is_some_and(|handled| handled >= self.input),
        };
        if is_done {
            self.end = Some(self.ended(&change, event.seq));
        } else if let Some(Some(lease)) = &change.lease
            && change.to == SessionState::Running
        {
            // A run claims every input before its beginning that is not done.
            self.run = Some(lease.run);
            self.text.clear();
            (self.usage, self.degraded) = (Usage::default(), false);
        }
        Ok(())
    }

    /// Returns whether a change ends the run that continued from an answer, or discards an answer that no run has.
    fn ends_answer(&self, change: &Transition) -> bool {
        use SessionState::{Deleted, Failed, Idle, Queued, Suspended, Terminated};
        if self.run.is_none() {
            return matches!(change.to, Idle | Failed | Terminated | Deleted);
        }
        // The work of such a run is offered again, and another run continues from the answer.
        let again = [TriggerKind::EndRetry, TriggerKind::LeaseExpired, TriggerKind::ForceSuspend]
            .contains(&change.trigger)
            && matches!(change.to, Queued | Suspended);
        // A lost run that was to stop is done, also if the next one begins with the same change.
        change.inputs_done_through.is_some() || (change.lease == Some(None) && !again)
    }

    /// Returns the end of the input by the change that marked it as done.
    fn ended(&self, change: &Transition, at: Seq) -> End {
        let failure = change.failure.clone().flatten();
        let waits = change.action.clone().flatten().filter(|_| self.run.is_some());
        if let Some(action) = waits.filter(|_| change.trigger == TriggerKind::AwaitAnswer) {
            return End::Ran(RunOutcome::Awaiting(action), Status::new(change.to, change.reason));
        }
        let outcome = match (change.trigger, failure, self.run) {
            (TriggerKind::Clear, ..) | (_, _, None) => return End::Discarded(at),
            (_, Some(failure), _) => RunOutcome::Failed(failure),
            (TriggerKind::EndFailed, None, _) => {
                RunOutcome::Failed(Failure::new(Reason::RunError, "the log does not name the cause"))
            }
            // The log does not keep the reason of a run if the session continues with other work.
            (TriggerKind::EndRun, ..) if change.to != SessionState::Idle => {
                RunOutcome::Completed(Reason::EndTurn)
            }
            (TriggerKind::EndRun, ..) => RunOutcome::Completed(change.reason),
            _ => RunOutcome::Interrupted,
        };
        End::Ran(outcome, Status::new(change.to, change.reason))
    }

    /// Returns the report of the run, or the reason for which there is no answer. The log was read up to the head of
    /// the record `now`.
    pub(crate) fn report(self, now: &SessionRecord) -> Result<RunReport, RunError> {
        let is_open = |asked: &PendingAction| now.action.as_ref().is_some_and(|open| open.id == asked.id);
        let (outcome, status) = match (self.end, now.status.state, &now.action) {
            // The question was closed since, and the session continued.
            (Some(End::Ran(RunOutcome::Awaiting(asked), _)), ..) if !is_open(&asked) => {
                (RunOutcome::Completed(Reason::EndTurn), now.status)
            }
            (Some(End::Ran(outcome, status)), ..) => (outcome, status),
            (Some(End::Discarded(at)), ..) => {
                return Err(discarded(now, self.input, self.is_answer, at).into());
            }
            (None, SessionState::RequiresAction, Some(action)) => {
                (RunOutcome::Awaiting(action.clone()), now.status)
            }
            (None, SessionState::Failed, _) => {
                let unknown = || Failure::new(now.status.reason, "the record does not name the cause");
                (RunOutcome::Failed(now.failure.clone().unwrap_or_else(unknown)), now.status)
            }
            (None, ..) => return Err(RunError::Queued(Queued::in_session(now, self.input))),
        };
        let limit = match outcome {
            RunOutcome::Completed(reason) => ReachedLimit::of_reason(reason),
            _ => None,
        };
        let report = RunReport {
            session: now.id,
            run: self.run,
            text: self.text,
            outcome,
            limit,
            usage: self.usage,
            status,
            stored: !self.degraded,
        };
        match report.outcome {
            RunOutcome::Failed(_) => Err(RunError::Failed(Box::new(report))),
            _ => Ok(report),
        }
    }
}

/// Returns what the agent says in an item of an answer: a text, or a refusal.
pub(crate) fn said(event: &Event) -> Result<String> {
    Ok(match event.decode()? {
        EventPayload::AgentMessage(message) => message.text,
        EventPayload::AgentPart(AgentPart { content: Part::Refusal { text, .. }, .. }) => text,
        _ => String::new(),
    })
}

/// Returns the error for an event for which no run answers.
pub(crate) fn no_input(id: SessionId, seq: Seq) -> Error {
    Error::invalid(format!(
        "session {id}: event {seq} is not an input; give the input that a prompt has queued, or the number that \
         sending it returned"
    ))
}

/// Returns whether the first event of a claim is an answer; an error, if it is no input either.
fn is_answer(id: SessionId, seq: Seq, event: &Event) -> Result<bool> {
    let is_input = [EventType::USER_MESSAGE, EventType::USER_DEFINE_OUTCOME].contains(&event.kind);
    let is_answer = ANSWERS.contains(&event.kind);
    if event.seq == seq && (is_input || is_answer) { Ok(is_answer) } else { Err(no_input(id, seq)) }
}

fn discarded(now: &SessionRecord, seq: Seq, is_answer: bool, at: Seq) -> Error {
    let id = now.id;
    let text = match is_answer {
        true => format!(
            "session {id}: the answer of event {seq} was discarded by event {at}, before a run continued from it; send \
             an input if it still matters"
        ),
        false => format!(
            "session {id}: the input of event {seq} was discarded by event {at}, before a run answered it; send it \
             again if it still matters"
        ),
    };
    Error::new(ErrorKind::Conflict { head: Some(now.head) }, text)
}
