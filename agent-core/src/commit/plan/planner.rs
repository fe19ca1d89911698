//! Construction of a plan: the effect of each step of a commit on the record.

use std::sync::Arc;

use crate::base::{
    Error, ErrorKind, RawJson, Reason, Result, Seq, SessionId, SessionState, Target, TriggerKind, target,
};
use crate::commit::{COMMIT_MAX_BLOBS, Commit, Committed, LeaseRequest, PLANNED_MAX_EVENTS, Step, Trigger};
use crate::event::payload::created::check_words;
use crate::event::{Comment, Event, EventPayload, NewEvent, SpanCompleted, ToolOutcome, ToolResult};
use crate::model::{Actor, DOCUMENTS_MAX, Failure, Lease, NeededBlob, Request, Status, Transition};
use crate::session::{NewSession, OPEN_CALLS_MAX, RECORD_CONTENT_MAX_BYTES, SessionRecord, TIMERS_MAX};

/// Work of a backend for one commit.
///
/// ```
/// use std::sync::Arc;
/// use agent_core::commit::{Commit, Committed};
/// use agent_core::event::Event;
/// use agent_core::session::SessionRecord;
/// use agent_core::{Plan, Result, plan};
///
/// /// Commits to a log in memory. A backend makes these steps one atomic step.
/// fn commit(log: &mut Vec<Event>, record: &mut Option<Arc<SessionRecord>>, commit: &Commit) -> Result<Committed> {
///     let planned = plan(record.as_deref(), commit)?;
///     if let Plan::Write { events, after, .. } = &planned {
///         log.extend(events.iter().cloned());
///         *record = Some(after.clone());
///     }
///     Ok(planned.committed())
/// }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Plan {
    /// Store these events and this record, atomically, and answer with [`Plan::committed`].
    #[non_exhaustive]
    Write {
        /// Events, at least one, in order.
        events: Vec<Event>,
        /// Record after these events.
        after: Arc<SessionRecord>,
        /// Blobs of the session's own log that must be there: sorted by name, each once. The atomic step
        /// [checks](NeededBlob::check) this.
        blobs: Vec<NeededBlob>,
    },
    /// Store nothing and return this answer: the commit was applied before, or requests a state that holds already.
    Answer(Box<Committed>),
}

impl Plan {
    /// Returns the answer for the commit's sender, after the plan was carried out.
    pub fn committed(&self) -> Committed {
        match self {
            Self::Answer(committed) => Committed::clone(committed),
            Self::Write { events, after, .. } => Committed {
                first: events.first().map_or(after.head, |event| event.seq),
                last: after.head,
                epoch: after.recent.last().and_then(|commit| commit.epoch),
                session: after.clone(),
                replayed: false,
            },
        }
    }
}

/// Plan under construction: the steps applied so far, and the session as it would be after them.
pub(super) struct Planner<'a> {
    pub(super) commit: &'a Commit,
    pub(super) session: SessionRecord,
    pub(super) events: Vec<Event>,
    /// Composed transition of each event, parallel to `events`.
    pub(super) transitions: Vec<Option<Transition>>,
    /// True if the commit writes under the current lease.
    pub(super) holds_lease: bool,
    /// Blobs that the events name.
    pub(super) blobs: Vec<NeededBlob>,
}

impl<'a> Planner<'a> {
    pub(super) fn run(now: Option<&SessionRecord>, commit: &'a Commit) -> Result<Plan> {
        let mut steps = commit.steps.as_slice();
        let mut planner = match now {
            Some(session) => Self {
                commit,
                session: session.clone(),
                events: Vec::new(),
                transitions: Vec::new(),
                holds_lease: commit.fence.is_some(),
                blobs: Vec::new(),
            },
            None => {
                let [Step::Trigger(Trigger::Create(new)), rest @ ..] = steps else {
                    return Err(Error::invalid(format!(
                        "session {} does not exist, and commit {} does not create it as its first step",
                        commit.session, commit.id
                    )));
                };
                steps = rest;
                Self::create(commit, new)?
            }
        };
        for step in steps {
            match step {
                Step::Event(event) => {
                    refuse_time(event)?;
                    planner.event(event)?;
                }
                Step::Trigger(trigger) => planner.trigger(trigger)?,
            }
        }
        planner.finish(now)
    }

    /// Creates the session's first event.
    pub(super) fn create(commit: &'a Commit, new: &NewSession) -> Result<Self> {
        if new.id != commit.session {
            return Err(Error::invalid(format!(
                "a commit for session {} creates session {}",
                commit.session, new.id
            )));
        }
        let body = EventPayload::SessionCreated(Box::new(new.created.clone()));
        new.created.attributes.check()?;
        let inherited = &new.created.inherited;
        check_words(inherited.first_words.as_ref(), inherited.preview.as_ref())?;
        let seq = new.created.lineage.base().next();
        let mut first = NewEvent::of(&body);
        first.actor.clone_from(&new.creator);
        let event = sealed(commit, seq, first);
        let session = SessionRecord::begin(new.id, &event)?;
        Ok(Self {
            commit,
            session,
            events: vec![event],
            transitions: vec![None],
            holds_lease: false,
            blobs: Vec::new(),
        })
    }

    /// Stores the transitions on their events, numbers the events, checks the limits.
    pub(super) fn finish(mut self, now: Option<&SessionRecord>) -> Result<Plan> {
        if self.events.is_empty() {
            return Ok(Plan::Answer(Box::new(nothing_to_do(self.session))));
        }
        let count = self.events.len();
        let of = u32::try_from(count)
            .ok()
            .filter(|_| count <= PLANNED_MAX_EVENTS)
            .ok_or_else(|| Error::limit(format!("a commit that comes to {count} events; send several")))?;
        for (n, (event, transition)) in (1..).zip(self.events.iter_mut().zip(&self.transitions)) {
            (event.n, event.of) = (n, of);
            event.transition = transition.as_ref().map(RawJson::of).transpose()?;
        }
        debug_assert_eq!(
            self.session,
            folded(now, self.commit.session, &self.events)?,
            "the record is what the log folds to"
        );
        check_limits(now, &self.session)?;
        let blobs = needed_blobs(self.session.id, self.blobs)?;
        Ok(Plan::Write { events: self.events, after: Arc::new(self.session), blobs })
    }

    /// Adds an event unchanged.
    pub(super) fn push(&mut self, event: NewEvent) -> Result<()> {
        let event = sealed(self.commit, self.session.head.next(), event);
        self.session.apply(&event)?;
        self.events.push(event);
        self.transitions.push(None);
        Ok(())
    }

    /// Returns the actor of an event.
    pub(super) fn actor_of(&self, event: &NewEvent) -> Actor {
        self.commit.actor_of(event)
    }

    pub(super) fn target(&self, kind: TriggerKind) -> Result<Target> {
        target(self.session.status.state, kind).ok_or_else(|| self.refused(kind))
    }

    /// Returns the state that a trigger leads to, if it does not depend on open work.
    pub(super) fn enter(&self, kind: TriggerKind) -> Result<SessionState> {
        Ok(match self.target(kind)? {
            Target::To(state) => state,
            _ => self.session.status.state,
        })
    }

    pub(super) fn refused(&self, trigger: TriggerKind) -> Error {
        let (id, status) = (self.session.id, self.session.status);
        let mut text = format!("session {id} is {status}; {trigger} is not possible there");
        if let Some(by) =
            self.session.attributes.superseded_by().filter(|_| status.state == SessionState::Archived)
        {
            text = format!("session {id} is superseded by session {by}; {trigger} is possible in that one");
        }
        Error::new(ErrorKind::InvalidTransition { from: status.state, trigger }, text)
    }

    /// Returns the status that a target resolves to; `idle` is the reason if nothing is open.
    pub(super) fn resolve_target(&self, target: Target, idle: Reason) -> Status {
        let session = &self.session;
        let open = || {
            if session.last_input > session.inputs_done_through {
                Status::new(SessionState::Queued, Reason::Input)
            } else if !session.timers.is_empty() {
                Status::new(SessionState::Queued, Reason::TimerDue)
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
            Target::Previous => {
                session.state_before_archive.unwrap_or(Status::new(SessionState::Idle, Reason::Fresh))
            }
        }
    }

    pub(super) fn change(&self, trigger: TriggerKind, to: SessionState, reason: Reason) -> Transition {
        Transition::new(trigger, self.session.status.state, to, reason)
    }

    /// Creates a change that also releases the lease.
    pub(super) fn released(&self, trigger: TriggerKind, to: SessionState, reason: Reason) -> Transition {
        let mut change = self.change(trigger, to, reason);
        change.lease = Some(None);
        if self.session.stop_request.is_some() {
            change.stop_request = Some(None);
        }
        change
    }

    /// Marks the work that the run claimed as done: the inputs that it claimed, and the timers that were due.
    pub(super) fn claimed_done(&self, change: &mut Transition) {
        self.inputs_done(change, self.session.inputs_claimed_through, self.session.inputs_new);
        if let Some(lease) = self.session.lease.as_ref().filter(|_| !self.session.timers.is_empty()) {
            change.timers_done = Some(lease.since);
            // A timer that was scheduled during the run, by a clock that is behind, belongs to the next run.
            let due = self.session.timers.iter().filter(|timer| timer.at <= lease.since).count();
            let unseen = due > self.session.due_timers().count();
            change.timers_seen = unseen.then_some(self.session.begun);
        }
    }

    /// Marks the inputs up to `through` as done and sets the number of open ones to `open`.
    pub(super) fn inputs_done(&self, change: &mut Transition, through: Seq, open: u64) {
        if through > self.session.inputs_done_through {
            change.inputs_done_through = Some(through);
        }
        if open != self.session.inputs_open {
            change.inputs_open = Some(open);
        }
    }

    /// Adds an event to record a change on, if there is none.
    pub(super) fn carry(&mut self) -> Result<()> {
        if self.events.is_empty() {
            self.push(NewEvent::of(&EventPayload::SessionStatusChanged(Comment::default())))?;
        }
        Ok(())
    }

    /// Applies a change and records it on the last event; on a new one if that event records a lease which this
    /// change ends.
    pub(super) fn record(&mut self, change: Transition) -> Result<()> {
        let began = |earlier: &Transition| matches!(earlier.lease, Some(Some(_)));
        if change.lease == Some(None)
            && self.transitions.last().is_some_and(|t| t.as_ref().is_some_and(began))
        {
            self.push(NewEvent::of(&EventPayload::SessionStatusChanged(Comment::default())))?;
        }
        self.session.assign(&change, self.commit.at);
        if let Some(slot) = self.transitions.last_mut() {
            *slot = Some(match slot.take() {
                Some(earlier) => earlier.then(change),
                None => change,
            });
        }
        Ok(())
    }

    /// Records the end of a run, and suspends the session if that was requested.
    pub(super) fn record_end(&mut self, change: Transition, asked: Option<Request>) -> Result<()> {
        self.record(change)?;
        self.holds_lease = false;
        match asked {
            Some(Request::Suspend(reason)) => {
                self.record(self.change(TriggerKind::Suspend, SessionState::Suspended, reason))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn lease(&self, request: &LeaseRequest) -> Lease {
        Lease {
            holder: request.holder.clone(),
            run: request.run,
            epoch: self.session.epoch.next(),
            ttl_ms: u64::try_from(request.ttl.as_millis()).unwrap_or(u64::MAX),
            since: self.commit.at,
        }
    }

    pub(super) fn need_lease(&self) -> Result<()> {
        if self.holds_lease {
            return Ok(());
        }
        Err(Error::invalid(format!(
            "only the run of session {} ends or continues itself; fence its commit with `with_fence`",
            self.session.id
        )))
    }

    /// Gives every open call its one result, and every open span its end.
    pub(super) fn close_calls(&mut self) -> Result<()> {
        let calls: Vec<_> = self.session.open_calls.iter().map(|open| open.call.clone()).collect();
        for call in calls {
            let result = EventPayload::AgentToolResult(ToolResult::interrupted(call));
            self.push(NewEvent::of(&result).with_actor(Actor::SYSTEM))?;
        }
        self.close_spans()
    }

    pub(super) fn close_spans(&mut self) -> Result<()> {
        let spans: Vec<_> = self.session.open_spans.iter().map(|open| open.span.clone()).collect();
        for span in spans {
            let end = EventPayload::SpanCompleted(SpanCompleted::new(span, ToolOutcome::Interrupted));
            self.push(NewEvent::of(&end).with_actor(Actor::SYSTEM))?;
        }
        Ok(())
    }
}

/// Returns the record that a reader of the events computes.
pub(super) fn folded(now: Option<&SessionRecord>, id: SessionId, events: &[Event]) -> Result<SessionRecord> {
    let (mut session, rest) = match (now, events) {
        (None, [first, rest @ ..]) => (SessionRecord::begin(id, first)?, rest),
        (None, []) => return Err(Error::invalid("a commit without events")),
        (Some(now), events) => (now.clone(), events),
    };
    rest.iter().try_for_each(|event| session.apply(event))?;
    Ok(session)
}

pub(super) fn busy(session: &SessionRecord, lease: &Lease) -> Error {
    Error::new(
        ErrorKind::Busy { holder: lease.holder.clone() },
        format!(
            "session {} is run by {}; wait, send the input for its next run, or fork",
            session.id, lease.holder
        ),
    )
}

/// Refuses an event with a time of its own, which only an imported one has.
pub(super) fn refuse_time(event: &NewEvent) -> Result<()> {
    match event.at {
        Some(at) => Err(Error::invalid(format!(
            "an event of type {} has a time of its own, {at}; leave it out, or import the event",
            event.kind
        ))),
        None => Ok(()),
    }
}

pub(super) fn sealed(commit: &Commit, seq: Seq, event: NewEvent) -> Event {
    Event {
        seq,
        commit: commit.id,
        n: 0,
        of: 0,
        at: event.at.unwrap_or(commit.at),
        actor: commit.actor_of(&event),
        kind: event.kind,
        run: commit.run,
        transition: None,
        blobs: event.blobs,
        payload: event.payload,
        extra: event.extra,
    }
}

/// Returns the blobs that a commit names, each once, unless there are too many.
pub(super) fn needed_blobs(session: SessionId, blobs: Vec<NeededBlob>) -> Result<Vec<NeededBlob>> {
    let blobs = NeededBlob::merged(blobs)?;
    if blobs.len() > COMMIT_MAX_BLOBS {
        return Err(Error::limit(format!(
            "a commit of {} blobs for session {session}; at most {COMMIT_MAX_BLOBS}, send several",
            blobs.len()
        )));
    }
    Ok(blobs)
}

/// Refuses a commit that fills the record beyond its limits.
///
/// A commit that does not increase what exceeds a limit is accepted, so that a session at its limit can always end,
/// close its calls and be cleared.
pub(super) fn check_limits(now: Option<&SessionRecord>, after: &SessionRecord) -> Result<()> {
    let counts = |session: &SessionRecord| {
        [session.open_calls.len(), session.open_spans.len(), session.timers.len(), session.documents.len()]
    };
    let before = now.map_or([0; 4], counts);
    let most = [
        (OPEN_CALLS_MAX, "open tool calls"),
        (OPEN_CALLS_MAX, "open spans"),
        (TIMERS_MAX, "scheduled timers"),
        (DOCUMENTS_MAX, "documents"),
    ];
    for ((count, before), (most, noun)) in counts(after).into_iter().zip(before).zip(most) {
        if count > most && count > before {
            return Err(Error::limit(format!(
                "session {} would have {count} {noun}; at most {most} are kept",
                after.id
            )));
        }
    }
    after.attributes.check_counts()?;
    let bytes = after.filled_bytes();
    if bytes > RECORD_CONTENT_MAX_BYTES && now.is_none_or(|now| bytes > now.filled_bytes()) {
        return Err(Error::limit(format!(
            "session {} would have {bytes} bytes of labels, metadata, calls, timers and documents in its record; at most {RECORD_CONTENT_MAX_BYTES} are kept",
            after.id
        )));
    }
    Ok(())
}

/// Failure of a run that ended without a reason, for hosts that have only the error.
impl From<&Error> for Failure {
    fn from(error: &Error) -> Self {
        Self::new(Reason::RunError, error.to_string())
    }
}

pub(super) fn nothing_to_do(session: SessionRecord) -> Committed {
    let session = Arc::new(session);
    Committed { first: session.head.next(), last: session.head, epoch: None, session, replayed: false }
}
