//! What a commit means: the one place that decides. Pure, so that every backend decides alike.

use crate::error::{Error, ErrorKind, Result};
use crate::id::{Epoch, Seq};
use crate::json::RawJson;
use crate::session::body::{Body, Note, SpanCompleted, ToolOutcome, ToolResult};
use crate::session::commit::{Commit, Committed, Expect, LeaseRequest, RunEnd, Step, Trigger};
use crate::session::event::{Actor, Event, EventType, FIELDS, NewEvent};
use crate::session::record::{
    ActionId, ActionKind, Failure, Lease, NewSession, OPEN_CALLS_MAX, OpenCall, PendingAction,
    RECENT_COMMITS, RECORD_CONTENT_MAX_BYTES, Request, Session, Status, WAKES_MAX,
};
use crate::session::state::{Reason, SessionState, Target, TriggerKind, target};
use crate::session::transition::Transition;

/// What a backend has to do with a commit.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Plan {
    /// Store these events and this record, together, and answer with [`Plan::committed`].
    #[non_exhaustive]
    Write {
        /// The events, at least one, in order.
        events: Vec<Event>,
        /// The record after them.
        after: Box<Session>,
    },
    /// Store nothing and give this answer: the commit was applied before, or asks for what is so already.
    Answer(Box<Committed>),
}

impl Plan {
    /// The answer for the commit's sender, once the plan is carried out.
    pub fn committed(self) -> Committed {
        match self {
            Self::Answer(committed) => *committed,
            Self::Write { events, after } => Committed {
                first: events.first().map_or(after.head, |event| event.seq),
                last: after.head,
                epoch: after.recent.last().and_then(|commit| commit.epoch),
                session: *after,
                replayed: false,
            },
        }
    }
}

/// Decides what `commit` does to the session `now`.
///
/// Pure: it reads no clock and makes no ids. The checks come in this order, each ending the decision: replay,
/// tombstone, fence, expectation, transition, limits. So a retry of a commit that landed is answered with its result
/// even after another run took over.
///
/// A backend calls this between reading the record and storing the result, and makes the three one atomic step.
///
/// # Errors
///
/// - `Conflict`: the expectation does not hold, or nobody can tell any more whether this commit landed (its id is
///   not among the remembered ones, and its [`seen`](Commit::seen) lies before them). Read on from `seen`, look for
///   the commit, and send it again with the new `seen` where it is not there.
/// - `NotFound`, `Deleted`: there is no session; it is a tombstone.
/// - `Fenced`: the lease of [`Commit::fence`] does not live.
/// - `Busy`: a run that holds no lease writes what only the running one may.
/// - `InvalidTransition`, `InvalidInput`, `LimitExceeded`: the commit itself is at fault.
/// - `Unsupported`: the session holds what only a newer version of this library understands.
pub fn plan(now: Option<&Session>, commit: &Commit) -> Result<Plan> {
    if let Some(session) = now {
        if let Some(known) = session.recent.iter().find(|recent| recent.id == commit.id) {
            return Ok(Plan::Answer(Box::new(Committed {
                first: known.first,
                last: known.last,
                epoch: known.epoch,
                session: session.clone(),
                replayed: true,
            })));
        }
        if session.status.state == SessionState::Deleted {
            let again = commit.steps.iter().all(|step| matches!(step, Step::Trigger(Trigger::Delete(_))));
            if again && !commit.steps.is_empty() {
                return Ok(Plan::Answer(Box::new(nothing_to_do(session.clone()))));
            }
            return Err(Error::new(
                ErrorKind::Deleted,
                format!("session {} was deleted; its id is not used again", session.id),
            ));
        }
        if let Some(what) = &session.newer {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!(
                    "session {} holds {what} of a newer version of this library; update it to write here",
                    session.id
                ),
            ));
        }
    }
    check_fence(now, commit)?;
    check_expectation(now, commit)?;
    commit.check()?;
    Planner::run(now, commit)
}

fn nothing_to_do(session: Session) -> Committed {
    Committed { first: session.head.next(), last: session.head, epoch: None, session, replayed: false }
}

fn check_fence(now: Option<&Session>, commit: &Commit) -> Result<()> {
    let Some(epoch) = commit.fence else { return Ok(()) };
    let newest = now.map_or(Epoch::ZERO, |session| session.epoch);
    let live = now.and_then(|session| session.lease.as_ref()).is_some_and(|lease| lease.epoch == epoch);
    if live {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::Fenced { epoch: newest },
        format!(
            "session {}: the lease of epoch {epoch} has ended (newest is {newest}); stop this run",
            commit.session
        ),
    ))
}

fn check_expectation(now: Option<&Session>, commit: &Commit) -> Result<()> {
    let conflict = |head, text| Err(Error::new(ErrorKind::Conflict { head }, text));
    match (now, commit.expect) {
        (None, Expect::Absent) => Ok(()),
        (None, _) => {
            Err(Error::new(ErrorKind::NotFound, format!("session {} does not exist", commit.session)))
        }
        (Some(session), Expect::Absent) => {
            conflict(Some(session.head), format!("session {} exists already", session.id))
        }
        (Some(session), Expect::Is(head)) if head != session.head => conflict(
            Some(session.head),
            format!(
                "session {} is at event {}, not at {head}; read on and decide again",
                session.id, session.head
            ),
        ),
        (Some(_), Expect::Is(_)) => Ok(()),
        (Some(session), Expect::Any) => {
            let full = session.recent.len() == RECENT_COMMITS;
            let reach = session.recent.first().map_or(Seq::ZERO, |oldest| oldest.first);
            if full && commit.seen.next() < reach {
                return conflict(
                    Some(session.head),
                    format!(
                        "session {}: commit {} was sealed at event {}, too long ago to tell whether it landed; read on from there, look for it, and send it again",
                        session.id, commit.id, commit.seen
                    ),
                );
            }
            Ok(())
        }
    }
}

/// A commit in the making: the steps taken so far, and the session as it would be after them.
struct Planner<'a> {
    commit: &'a Commit,
    session: Session,
    events: Vec<Event>,
    /// The composed transition of each event, in step with `events`.
    transitions: Vec<Option<Transition>>,
    /// Whether the commit writes under the live lease.
    holds_lease: bool,
}

impl<'a> Planner<'a> {
    fn run(now: Option<&Session>, commit: &'a Commit) -> Result<Plan> {
        let mut steps = commit.steps.as_slice();
        let mut planner = match now {
            Some(session) => Self {
                commit,
                session: session.clone(),
                events: Vec::new(),
                transitions: Vec::new(),
                holds_lease: commit.fence.is_some(),
            },
            None => {
                let [Step::Trigger(Trigger::Create(new)), rest @ ..] = steps else {
                    return Err(Error::invalid(format!("commit {} creates no session first", commit.id)));
                };
                steps = rest;
                Self::create(commit, new)?
            }
        };
        for step in steps {
            match step {
                Step::Event(event) => planner.event(event)?,
                Step::Trigger(trigger) => planner.trigger(trigger)?,
            }
        }
        planner.finish(now)
    }

    /// The session's first event.
    fn create(commit: &'a Commit, new: &NewSession) -> Result<Self> {
        if new.id != commit.session {
            return Err(Error::invalid(format!(
                "a commit for session {} creates session {}",
                commit.session, new.id
            )));
        }
        let body = Body::SessionCreated(Box::new(new.created.clone()));
        new.created.attributes.check()?;
        let seq = new.created.lineage.base().next();
        let event = sealed(commit, seq, NewEvent::of(&body));
        let session = Session::begin(new.id, &event)?;
        Ok(Self { commit, session, events: vec![event], transitions: vec![None], holds_lease: false })
    }

    /// Stores the transitions on their events, numbers the events, checks the limits.
    fn finish(mut self, now: Option<&Session>) -> Result<Plan> {
        if self.events.is_empty() {
            return Ok(Plan::Answer(Box::new(nothing_to_do(self.session))));
        }
        let of = u32::try_from(self.events.len()).map_err(|_| Error::limit("a commit of too many events"))?;
        for (n, (event, transition)) in (1..).zip(self.events.iter_mut().zip(&self.transitions)) {
            (event.n, event.of) = (n, of);
            event.transition = transition.as_ref().map(RawJson::of).transpose()?;
        }
        let mut after = None;
        for event in &self.events {
            match &mut after {
                None => {
                    after = Some(match now {
                        None => Session::begin(self.commit.session, event)?,
                        Some(session) => {
                            let mut session = session.clone();
                            session.apply(event)?;
                            session
                        }
                    });
                }
                Some(session) => session.apply(event)?,
            }
        }
        let after = after.ok_or_else(|| Error::invalid("a commit without events"))?;
        check_limits(now, &after)?;
        Ok(Plan::Write { events: self.events, after: Box::new(after) })
    }

    // --- events -------------------------------------------------------------------------------------------------

    /// Adds an event as it is.
    fn push(&mut self, event: NewEvent) -> Result<()> {
        let event = sealed(self.commit, self.session.head.next(), event);
        self.session.apply(&event)?;
        self.events.push(event);
        self.transitions.push(None);
        Ok(())
    }

    /// Adds an event of the caller's, after checking that it may come now.
    fn event(&mut self, event: &NewEvent) -> Result<()> {
        let kind = &event.kind;
        if let Some((name, _)) = event.extra.iter().find(|(name, _)| FIELDS.contains(name)) {
            return Err(Error::invalid(format!("the field {name} of an event belongs to its header")));
        }
        let body = Body::parse(kind, &event.data)
            .map_err(|source| Error::invalid(format!("the payload is no {kind}")).with_source(source))?;
        body.check()?;
        let reserved = matches!(body, Body::SessionCreated(_) | Body::SessionStatusChanged(_))
            || (matches!(body, Body::Other(..)) && kind.is_of("session"));
        if reserved {
            return Err(Error::invalid(format!("events of type {kind} are written by the library only")));
        }
        self.check_may_write(kind)?;
        match &body {
            Body::UserMessage(_) | Body::UserDefineOutcome(_) => self.input(event),
            Body::UserInterrupt(_) => self.interrupt(event),
            Body::UserToolConfirmation(answer) => {
                self.check_answer(&answer.action, &[ActionKind::ToolConfirmation, ActionKind::Approval])?;
                self.resolve(event)
            }
            Body::UserCustomToolResult(result) => {
                let action: ActionId = result.call.as_str().parse()?;
                self.check_answer(&action, &[ActionKind::ToolResult])?;
                self.resolve(event)
            }
            Body::AgentToolUse(call) | Body::AgentCustomToolUse(call) => {
                if self.session.open_calls.iter().any(|open| open.call == call.call) {
                    return Err(Error::invalid(format!(
                        "tool call {} is open already; give each call its own id",
                        call.call
                    )));
                }
                self.push(event.clone())
            }
            Body::AgentToolResult(result) => {
                if !self.session.open_calls.iter().any(|open| open.call == result.call) {
                    return Err(Error::invalid(format!(
                        "tool call {} is not open; each call has exactly one result, after it",
                        result.call
                    )));
                }
                self.push(event.clone())
            }
            Body::SpanStarted(span) if self.session.open_spans.iter().any(|open| open.span == span.span) => {
                Err(Error::invalid(format!("span {} is open already", span.span)))
            }
            Body::SpanCompleted(span)
                if !self.session.open_spans.iter().any(|open| open.span == span.span) =>
            {
                Err(Error::invalid(format!("span {} is not open", span.span)))
            }
            Body::SessionWakeScheduled(_) => {
                let to = self.enter(TriggerKind::EnqueueWake)?;
                self.push(event.clone())?;
                let reason = if to == self.session.status.state {
                    self.session.status.reason
                } else {
                    Reason::QueuedWake
                };
                self.record(self.change(TriggerKind::EnqueueWake, to, reason));
                Ok(())
            }
            Body::SessionHistoryCleared(_) => self.clear(event),
            _ => self.push(event.clone()),
        }
    }

    /// What belongs to the conversation needs a session that takes part in it, and what the agent says needs the
    /// lease while someone holds it.
    fn check_may_write(&self, kind: &EventType) -> Result<()> {
        use SessionState::{Archived, Deleted, Failed, Terminated};
        // The others are triggers by themselves, and judged as such.
        let judged = [
            EventType::USER_MESSAGE,
            EventType::USER_DEFINE_OUTCOME,
            EventType::USER_INTERRUPT,
            EventType::USER_TOOL_CONFIRMATION,
            EventType::USER_CUSTOM_TOOL_RESULT,
        ];
        let conversation = ["user", "agent", "system", "span"].iter().any(|family| kind.is_of(family));
        let state = self.session.status.state;
        if conversation && !judged.contains(kind) && matches!(state, Failed | Archived | Terminated | Deleted)
        {
            return Err(self.refused(TriggerKind::Input));
        }
        if kind.is_of("agent") && state == SessionState::Running && !self.holds_lease {
            let holder = self.session.lease.as_ref().map_or_else(String::new, |lease| lease.holder.clone());
            return Err(Error::new(
                ErrorKind::Busy { holder: holder.clone() },
                format!(
                    "session {} is run by {holder}; only that run may write as the agent",
                    self.session.id
                ),
            ));
        }
        Ok(())
    }

    fn input(&mut self, event: &NewEvent) -> Result<()> {
        debug_assert!(event.is_input());
        let to = self.enter(TriggerKind::Input)?;
        self.push(event.clone())?;
        if to != SessionState::Queued {
            return Ok(());
        }
        let mut change = self.change(TriggerKind::Input, to, Reason::Input);
        if self.session.ready_at.is_some() {
            // Back-off holds up what failed, not what is new.
            change.ready_at = Some(None);
        }
        if self.session.status != Status::new(to, Reason::Input) || change.ready_at.is_some() {
            self.record(change);
        }
        Ok(())
    }

    fn interrupt(&mut self, event: &NewEvent) -> Result<()> {
        let to = self.enter(TriggerKind::Interrupt)?;
        self.push(event.clone())?;
        if to == SessionState::Running {
            if self.session.requested.is_none() {
                let mut change = self.change(TriggerKind::Interrupt, to, self.session.status.reason);
                change.requested = Some(Some(Request::Cancel));
                self.record(change);
            }
            return Ok(());
        }
        self.close_calls()?;
        let mut change = self.change(TriggerKind::Interrupt, to, Reason::Interrupted);
        self.inputs_done(&mut change, self.session.last_input, 0);
        change.wakes_done = Some(crate::effects::Timestamp::MAX);
        change.action = Some(None);
        change.ready_at = Some(None);
        change.attempts = Some(0);
        self.record(change);
        Ok(())
    }

    fn check_answer(&self, answered: &ActionId, kinds: &[ActionKind]) -> Result<()> {
        self.enter(TriggerKind::ResolveAction)?;
        match &self.session.action {
            Some(action) if action.id == *answered && kinds.contains(&action.kind) => Ok(()),
            Some(action) => Err(Error::invalid(format!(
                "session {} waits for {} {}, not for an answer to {answered}",
                self.session.id, action.kind, action.id
            ))),
            None => Err(Error::invalid(format!("session {} waits for nothing", self.session.id))),
        }
    }

    fn resolve(&mut self, event: &NewEvent) -> Result<()> {
        let to = self.enter(TriggerKind::ResolveAction)?;
        self.push(event.clone())?;
        let mut change = self.change(TriggerKind::ResolveAction, to, Reason::ActionResolved);
        change.action = Some(None);
        self.record(change);
        Ok(())
    }

    fn clear(&mut self, event: &NewEvent) -> Result<()> {
        self.enter(TriggerKind::Clear)?;
        if let Some(action) = &self.session.action {
            return Err(Error::invalid(format!(
                "session {} waits for {} {}; interrupt it first, in the same commit if you like",
                self.session.id, action.kind, action.id
            )));
        }
        self.push(event.clone())?;
        let mut done = Transition::new(
            TriggerKind::Clear,
            self.session.status.state,
            self.session.status.state,
            self.session.status.reason,
        );
        self.inputs_done(&mut done, self.session.last_input, 0);
        done.attempts = Some(0);
        done.ready_at = Some(None);
        self.record(done);
        let status = self.resolve_target(Target::OpenIfQueued, Reason::Fresh);
        self.record(self.change(TriggerKind::Clear, status.state, status.reason));
        Ok(())
    }

    // --- triggers -----------------------------------------------------------------------------------------------

    fn trigger(&mut self, trigger: &Trigger) -> Result<()> {
        match trigger {
            Trigger::Create(_) => Err(Error::invalid(format!(
                "session {} is created as the first step or not at all",
                self.session.id
            ))),
            Trigger::Prepare(request) => self.prepare(request),
            Trigger::Ready => {
                let leased = self.session.lease.is_some();
                self.simple(TriggerKind::Ready, Reason::Fresh, |change| change.lease = leased.then_some(None))
            }
            Trigger::BeginRun(request) => self.begin_run(request),
            Trigger::Take => self.take(),
            Trigger::EndRun(end) => self.end_run(end),
            Trigger::LeaseExpired(epoch) => self.lease_expired(*epoch),
            Trigger::ActionTimeout(id) => self.action_timeout(id),
            Trigger::Suspend(reason) => self.suspend(*reason),
            Trigger::ForceSuspend(reason) => self.force_suspend(*reason),
            Trigger::Resume => self.simple(TriggerKind::Resume, Reason::Fresh, |_| {}),
            Trigger::Fail(failure) => {
                let failure = failure.clone();
                self.stop(TriggerKind::Fail, failure.class, |change| change.failure = Some(Some(failure)))
            }
            Trigger::Recover => self.simple(TriggerKind::Recover, Reason::Fresh, |change| {
                change.failure = Some(None);
                change.attempts = Some(0);
                change.ready_at = Some(None);
            }),
            Trigger::Archive => {
                let before = self.session.status;
                self.simple(TriggerKind::Archive, Reason::UserArchived, |change| {
                    change.before = Some(Some(before));
                })
            }
            Trigger::Unarchive => {
                let reason = self.session.before.map_or(Reason::Fresh, |before| before.reason);
                self.simple(TriggerKind::Unarchive, reason, |change| change.before = Some(None))
            }
            Trigger::Terminate(reason) => self.end(TriggerKind::Terminate, *reason),
            Trigger::Delete(reason) => self.end(TriggerKind::Delete, *reason),
        }
    }

    /// A trigger that moves the state and a field or two.
    fn simple(&mut self, kind: TriggerKind, reason: Reason, set: impl FnOnce(&mut Transition)) -> Result<()> {
        let target = self.target(kind)?;
        if target == Target::Already {
            return Ok(());
        }
        let status = self.resolve_target(target, reason);
        let mut change = self.change(kind, status.state, status.reason);
        set(&mut change);
        self.carry()?;
        self.record(change);
        Ok(())
    }

    fn prepare(&mut self, request: &LeaseRequest) -> Result<()> {
        let to = self.enter(TriggerKind::Prepare)?;
        if let Some(lease) = &self.session.lease {
            return Err(busy(&self.session, lease));
        }
        self.carry()?;
        let mut change = self.change(TriggerKind::Prepare, to, self.session.status.reason);
        change.lease = Some(Some(self.lease(request)));
        self.record(change);
        self.holds_lease = true;
        Ok(())
    }

    fn begin_run(&mut self, request: &LeaseRequest) -> Result<()> {
        let may_start = self.enter(TriggerKind::BeginRun).is_ok() && self.is_ready();
        if !may_start {
            if request.if_ready {
                return Ok(());
            }
            if let Some(lease) = &self.session.lease {
                return Err(busy(&self.session, lease));
            }
            return Err(self.refused(TriggerKind::BeginRun));
        }
        self.carry()?;
        let mut change =
            self.change(TriggerKind::BeginRun, SessionState::Running, self.session.status.reason);
        change.lease = Some(Some(self.lease(request)));
        change.taken = Some(self.session.last_input);
        change.arrived = Some(0);
        if self.session.ready_at.is_some() {
            change.ready_at = Some(None);
        }
        self.record(change);
        self.holds_lease = true;
        Ok(())
    }

    /// Whether a queued session may run at the commit's time.
    fn is_ready(&self) -> bool {
        let at = self.commit.at;
        let backed_off = self.session.ready_at.is_some_and(|ready_at| ready_at > at);
        let input = self.session.last_input > self.session.handled && !backed_off;
        let answered = matches!(self.session.status.reason, Reason::ActionResolved | Reason::ActionTimedOut);
        input || answered || self.session.wakes.iter().any(|wake| wake.at <= at)
    }

    fn take(&mut self) -> Result<()> {
        let to = self.enter(TriggerKind::Take)?;
        self.need_lease()?;
        if self.session.taken == self.session.last_input {
            return Ok(());
        }
        self.carry()?;
        let mut change = self.change(TriggerKind::Take, to, self.session.status.reason);
        change.taken = Some(self.session.last_input);
        change.arrived = Some(0);
        self.record(change);
        Ok(())
    }

    fn end_run(&mut self, end: &RunEnd) -> Result<()> {
        match end {
            RunEnd::Completed(reason) => self.leave_run(TriggerKind::EndRun, *reason, None),
            RunEnd::Interrupted => self.leave_run(TriggerKind::EndInterrupted, Reason::Interrupted, None),
            RunEnd::Failed(failure) => {
                self.leave_run(TriggerKind::EndFailed, Reason::RunError, Some(failure.clone()))
            }
            RunEnd::Retry { failure, ready_at, limit } => {
                self.target(TriggerKind::EndRetry)?;
                self.need_lease()?;
                let asked = self.session.requested;
                self.close_calls()?;
                self.carry()?;
                let attempts = self.session.attempts.saturating_add(1);
                let (to, reason) = if attempts >= *limit {
                    (SessionState::Failed, Reason::RunError)
                } else {
                    (SessionState::Queued, Reason::RetryBackoff)
                };
                let mut change = self.released(TriggerKind::EndRetry, to, reason);
                change.attempts = Some(attempts);
                change.ready_at = Some(Some(*ready_at));
                change.failure = Some(Some(failure.clone()));
                self.record_end(change, asked.filter(|_| to != SessionState::Failed));
                Ok(())
            }
            RunEnd::Await(action) => self.await_answer(action),
        }
    }

    fn await_answer(&mut self, action: &PendingAction) -> Result<()> {
        let to = self.enter(TriggerKind::AwaitAnswer)?;
        self.need_lease()?;
        let is_call = |open: &OpenCall| open.call.as_str() == action.id.as_str() && open.custom;
        if action.kind == ActionKind::ToolResult && !self.session.open_calls.iter().any(is_call) {
            return Err(Error::invalid(format!(
                "{} is not an open call of a tool that runs outside",
                action.id
            )));
        }
        let asked = self.session.requested;
        self.close_spans()?;
        self.carry()?;
        let mut change = self.released(TriggerKind::AwaitAnswer, to, action.kind.reason());
        change.action = Some(Some(action.clone()));
        self.record_end(change, asked);
        Ok(())
    }

    /// The run is over and what it took up is done with.
    fn leave_run(&mut self, kind: TriggerKind, reason: Reason, failure: Option<Failure>) -> Result<()> {
        let target = self.target(kind)?;
        self.need_lease()?;
        let asked = self.session.requested;
        self.close_calls()?;
        self.carry()?;
        let mut change = self.released(kind, self.session.status.state, self.session.status.reason);
        self.taken_done(&mut change);
        if self.session.attempts > 0 {
            change.attempts = Some(0);
        }
        if failure != self.session.failure {
            change.failure = Some(failure);
        }
        self.record(change);
        let status = match self.resolve_target(target, reason) {
            Status { state: SessionState::Queued, reason: Reason::Input } => {
                Status::new(SessionState::Queued, Reason::FollowUp)
            }
            other => other,
        };
        self.record_end(self.change(kind, status.state, status.reason), asked);
        Ok(())
    }

    fn lease_expired(&mut self, epoch: Epoch) -> Result<()> {
        let target = self.target(TriggerKind::LeaseExpired)?;
        if self.session.lease.as_ref().is_none_or(|lease| lease.epoch != epoch) {
            return Err(Error::new(
                ErrorKind::Conflict { head: Some(self.session.head) },
                format!(
                    "session {}: the lease of epoch {epoch} is not the present one; look again",
                    self.session.id
                ),
            ));
        }
        let asked = self.session.requested;
        self.close_calls()?;
        // On an event of its own, so that a take-over can be found in the log.
        self.push(NewEvent::of(&Body::SessionStatusChanged(Note::default())))?;
        let mut change =
            self.released(TriggerKind::LeaseExpired, self.session.status.state, self.session.status.reason);
        let cancelled = asked == Some(Request::Cancel);
        if cancelled {
            self.taken_done(&mut change);
        }
        self.record(change);
        let reason = if cancelled { Reason::Interrupted } else { Reason::LeaseLost };
        let status = match self.resolve_target(target, reason) {
            open if cancelled => open,
            open => Status::new(open.state, Reason::LeaseLost),
        };
        self.record_end(self.change(TriggerKind::LeaseExpired, status.state, status.reason), asked);
        Ok(())
    }

    fn action_timeout(&mut self, id: &ActionId) -> Result<()> {
        let to = self.enter(TriggerKind::ActionTimeout)?;
        if self.session.action.as_ref().is_none_or(|action| action.id != *id) {
            return Err(Error::invalid(format!("session {} does not wait for {id}", self.session.id)));
        }
        self.close_calls()?;
        self.carry()?;
        let mut change = self.change(TriggerKind::ActionTimeout, to, Reason::ActionTimedOut);
        change.action = Some(None);
        self.record(change);
        Ok(())
    }

    fn suspend(&mut self, reason: Reason) -> Result<()> {
        let to = self.enter(TriggerKind::Suspend)?;
        if to == SessionState::Running {
            if self.session.requested == Some(Request::Suspend(reason)) {
                return Ok(());
            }
            self.carry()?;
            let mut change = self.change(TriggerKind::Suspend, to, self.session.status.reason);
            change.requested = Some(Some(Request::Suspend(reason)));
            self.record(change);
            return Ok(());
        }
        self.set_aside(TriggerKind::Suspend, reason)
    }

    fn force_suspend(&mut self, reason: Reason) -> Result<()> {
        self.enter(TriggerKind::ForceSuspend)?;
        if let Some(epoch) = self.session.lease.as_ref().map(|lease| lease.epoch) {
            self.lease_expired(epoch)?;
            let mut change =
                self.change(TriggerKind::ForceSuspend, self.session.status.state, self.session.status.reason);
            change.epoch = Some(epoch.next());
            self.record(change);
        }
        self.set_aside(TriggerKind::ForceSuspend, reason)
    }

    fn set_aside(&mut self, kind: TriggerKind, reason: Reason) -> Result<()> {
        let status = Status::new(SessionState::Suspended, reason);
        if self.session.status == status {
            return Ok(());
        }
        self.carry()?;
        self.record(self.change(kind, status.state, status.reason));
        Ok(())
    }

    /// It is over, for good or until recovered: whoever runs it is fenced off.
    fn stop(&mut self, kind: TriggerKind, reason: Reason, set: impl FnOnce(&mut Transition)) -> Result<()> {
        let target = self.target(kind)?;
        if target == Target::Already {
            return Ok(());
        }
        let status = self.resolve_target(target, reason);
        self.close_calls()?;
        self.carry()?;
        let mut change = match self.session.lease.as_ref().map(|lease| lease.epoch) {
            Some(epoch) => {
                let mut change = self.released(kind, status.state, status.reason);
                change.epoch = Some(epoch.next());
                change
            }
            None => self.change(kind, status.state, status.reason),
        };
        if self.session.action.is_some() {
            change.action = Some(None);
        }
        set(&mut change);
        self.record(change);
        self.holds_lease = false;
        Ok(())
    }

    fn end(&mut self, kind: TriggerKind, reason: Reason) -> Result<()> {
        let at = self.commit.at;
        self.stop(kind, reason, |change| change.ended_at = Some(Some(at)))
    }

    // --- shared -------------------------------------------------------------------------------------------------

    fn target(&self, kind: TriggerKind) -> Result<Target> {
        target(self.session.status.state, kind).ok_or_else(|| self.refused(kind))
    }

    /// The state that a trigger leads to where that does not depend on what is open.
    fn enter(&self, kind: TriggerKind) -> Result<SessionState> {
        Ok(match self.target(kind)? {
            Target::To(state) => state,
            _ => self.session.status.state,
        })
    }

    fn refused(&self, trigger: TriggerKind) -> Error {
        let from = self.session.status.state;
        Error::new(
            ErrorKind::InvalidTransition { from, trigger },
            format!(
                "session {} is {}; {trigger} is not possible there",
                self.session.id, self.session.status
            ),
        )
    }

    /// The status that a target comes to; `idle` is the reason where nothing is open.
    fn resolve_target(&self, target: Target, idle: Reason) -> Status {
        let session = &self.session;
        let open = || {
            if session.last_input > session.handled {
                Status::new(SessionState::Queued, Reason::Input)
            } else if !session.wakes.is_empty() {
                Status::new(SessionState::Queued, Reason::QueuedWake)
            } else if idle == Reason::Fresh && session.started_at.is_some() && target != Target::OpenIfQueued
            {
                Status::new(SessionState::Idle, Reason::EndTurn)
            } else {
                Status::new(SessionState::Idle, idle)
            }
        };
        match target {
            Target::To(state) => Status::new(state, idle),
            Target::Stay | Target::Already | Target::Retry => session.status,
            Target::Open => open(),
            Target::OpenOrAction => match &session.action {
                Some(action) => Status::new(SessionState::RequiresAction, action.kind.reason()),
                None => open(),
            },
            Target::OpenIfQueued if session.status.state == SessionState::Queued => open(),
            Target::OpenIfQueued if session.status.state == SessionState::Idle => {
                Status::new(SessionState::Idle, Reason::Fresh)
            }
            Target::OpenIfQueued => session.status,
            Target::Recovered if session.status.reason == Reason::ResourceError => {
                Status::new(SessionState::Initializing, Reason::Fresh)
            }
            Target::Recovered => open(),
            Target::Previous => session.before.unwrap_or(Status::new(SessionState::Idle, Reason::Fresh)),
        }
    }

    fn change(&self, trigger: TriggerKind, to: SessionState, reason: Reason) -> Transition {
        Transition::new(trigger, self.session.status.state, to, reason)
    }

    /// A change that also gives the lease back.
    fn released(&self, trigger: TriggerKind, to: SessionState, reason: Reason) -> Transition {
        let mut change = self.change(trigger, to, reason);
        change.lease = Some(None);
        if self.session.requested.is_some() {
            change.requested = Some(None);
        }
        change
    }

    /// Says that what the run took up is done with: the inputs up to `taken`, and the wakes that were due.
    fn taken_done(&self, change: &mut Transition) {
        self.inputs_done(change, self.session.taken, self.session.arrived);
        if let Some(lease) = self.session.lease.as_ref().filter(|_| !self.session.wakes.is_empty()) {
            change.wakes_done = Some(lease.since);
        }
    }

    /// Says that the inputs up to `handled` are done with and `pending` are not.
    fn inputs_done(&self, change: &mut Transition, handled: Seq, pending: u64) {
        if handled > self.session.handled {
            change.handled = Some(handled);
        }
        if pending != self.session.pending {
            change.pending = Some(pending);
        }
    }

    /// Makes sure that there is an event to record a change on.
    fn carry(&mut self) -> Result<()> {
        if self.events.is_empty() {
            self.push(NewEvent::of(&Body::SessionStatusChanged(Note::default())))?;
        }
        Ok(())
    }

    /// Records a change on the last event, and makes it.
    fn record(&mut self, change: Transition) {
        self.session.assign(&change, self.commit.at);
        if let Some(slot) = self.transitions.last_mut() {
            *slot = Some(match slot.take() {
                Some(earlier) => earlier.then(change),
                None => change,
            });
        }
    }

    /// Records the end of a run, and sets the session aside where that had been asked of the run.
    fn record_end(&mut self, change: Transition, asked: Option<Request>) {
        self.record(change);
        self.holds_lease = false;
        if let Some(Request::Suspend(reason)) = asked {
            self.record(self.change(TriggerKind::Suspend, SessionState::Suspended, reason));
        }
    }

    fn lease(&self, request: &LeaseRequest) -> Lease {
        Lease {
            holder: request.holder.clone(),
            run: request.run,
            epoch: self.session.epoch.next(),
            ttl_ms: u64::try_from(request.ttl.as_millis()).unwrap_or(u64::MAX),
            since: self.commit.at,
        }
    }

    fn need_lease(&self) -> Result<()> {
        if self.holds_lease {
            return Ok(());
        }
        Err(Error::invalid(format!(
            "only a run ends or continues itself: fence the commit for session {}",
            self.session.id
        )))
    }

    /// Gives every open call its one result, and every open span its end.
    fn close_calls(&mut self) -> Result<()> {
        let calls: Vec<_> = self.session.open_calls.iter().map(|open| open.call.clone()).collect();
        for call in calls {
            let result = Body::AgentToolResult(ToolResult::interrupted(call));
            self.push(NewEvent::of(&result).with_actor(Actor::SYSTEM))?;
        }
        self.close_spans()
    }

    fn close_spans(&mut self) -> Result<()> {
        let spans: Vec<_> = self.session.open_spans.iter().map(|open| open.span.clone()).collect();
        for span in spans {
            let end = Body::SpanCompleted(SpanCompleted::new(span, ToolOutcome::Interrupted));
            self.push(NewEvent::of(&end).with_actor(Actor::SYSTEM))?;
        }
        Ok(())
    }
}

fn busy(session: &Session, lease: &Lease) -> Error {
    Error::new(
        ErrorKind::Busy { holder: lease.holder.clone() },
        format!(
            "session {} is run by {}; wait, send the input for its next run, or fork",
            session.id, lease.holder
        ),
    )
}

fn sealed(commit: &Commit, seq: Seq, event: NewEvent) -> Event {
    Event {
        seq,
        commit: commit.id,
        n: 0,
        of: 0,
        at: commit.at,
        actor: event.actor.or_else(|| commit.actor.clone()).unwrap_or_else(|| Actor::of_family(&event.kind)),
        kind: event.kind,
        run: commit.run,
        transition: None,
        data: event.data,
        extra: event.extra,
    }
}

/// Refuses a commit that fills the record beyond its limits. One that does not add to what is over is let through,
/// so that a session at its limit can always end, close its calls and be cleared.
fn check_limits(now: Option<&Session>, after: &Session) -> Result<()> {
    let counts =
        |session: &Session| [session.open_calls.len(), session.open_spans.len(), session.wakes.len()];
    let before = now.map_or([0; 3], counts);
    let most =
        [(OPEN_CALLS_MAX, "open tool calls"), (OPEN_CALLS_MAX, "open spans"), (WAKES_MAX, "scheduled wakes")];
    for ((count, before), (most, noun)) in counts(after).into_iter().zip(before).zip(most) {
        if count > most && count > before {
            return Err(Error::limit(format!(
                "session {} would have {count} {noun}; at most {most} are kept",
                after.id
            )));
        }
    }
    after.attributes.check_counts()?;
    let bytes = after.content_bytes();
    if bytes > RECORD_CONTENT_MAX_BYTES && now.is_none_or(|now| bytes > now.content_bytes()) {
        return Err(Error::limit(format!(
            "session {} would have {bytes} bytes of labels, metadata, calls and wakes in its record; at most {RECORD_CONTENT_MAX_BYTES} are kept",
            after.id
        )));
    }
    Ok(())
}

/// What a run that ended without saying why is recorded as, by hosts that only know that it failed.
impl From<&Error> for Failure {
    fn from(error: &Error) -> Self {
        Self::new(Reason::RunError, error.to_string())
    }
}
