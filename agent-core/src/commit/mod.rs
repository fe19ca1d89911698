//! A commit: events and triggers that are applied together or not at all, sealed before the first attempt.

pub(crate) mod plan;

pub use plan::import::apply_untrusted;

use std::sync::Arc;
use std::time::Duration;

use crate::base::{
    CommitId, Effects, Epoch, Error, RawFields, RawJson, Reason, Result, RunId, Seq, SessionId, Timestamp,
    check_text,
};
use crate::event::{EVENT_MAX_BYTES, Event, EventType, Message, NewEvent};
use crate::model::{ActionId, Actor, Failure, PendingAction};
use crate::session::{NewSession, OPEN_CALLS_MAX, Session};

/// The most events that one commit may bring.
pub const COMMIT_MAX_EVENTS: usize = 1024;
/// The most events that one commit may come to, with those that the library adds: the results of open calls, the ends of spans, the
/// status.
pub(crate) const PLANNED_MAX_EVENTS: usize = COMMIT_MAX_EVENTS + 2 * OPEN_CALLS_MAX + 2;
/// The most bytes of payload that one commit may bring.
pub const COMMIT_MAX_BYTES: usize = 64 << 20;

/// What must be so for a write to happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect<T> {
    /// There is none yet.
    Absent,
    /// It is there, and is this.
    Is(T),
    /// It is there. For a binding: whatever is there, or nothing.
    Any,
}

/// Events and triggers for one session, to be applied as one.
///
/// Its id and time are fixed when it is made: sent again it is the same commit, and takes effect once. Steps are
/// taken in order; a trigger is recorded on the event before it, so a whole chat turn is two events:
///
/// ```
/// use agent_core::Seq;
/// use agent_core::clock::Effects;
/// use agent_core::commit::{Commit, LeaseRequest, Trigger};
/// use agent_core::event::NewEvent;
/// # let effects = Effects::default();
/// # let (session, run) = (effects.new_session_id(), effects.new_run_id());
/// let commit = Commit::new(effects.new_commit_id(), session, effects.now(), Seq::new(4))
///     .event(NewEvent::user_message("What did we decide yesterday?"))
///     .trigger(Trigger::BeginRun(LeaseRequest::new("laptop", run).if_ready()));
/// ```
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Commit {
    /// Names it, for ever.
    pub id: CommitId,
    /// The session that it is for.
    pub session: SessionId,
    /// When it was sealed.
    pub at: Timestamp,
    /// Who writes it; an event may say otherwise. Where neither does, the family of its type tells.
    pub actor: Option<Actor>,
    /// What must be so.
    pub expect: Expect<Seq>,
    /// The head that its writer knew when it was sealed. Bounds how far back a double could lie.
    pub seen: Seq,
    /// The epoch of the run that writes it.
    pub fence: Option<Epoch>,
    /// The run that writes it.
    pub run: Option<RunId>,
    /// What it does, in order. Shared by its clones: sending it again copies nothing.
    pub steps: Arc<Vec<Step>>,
}

/// One step of a [`Commit`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Step {
    /// An event. Some are triggers by themselves: an input, an answer, an interrupt, a wake, a clearing.
    Event(NewEvent),
    /// A change of status that no event expresses.
    Trigger(Trigger),
}

/// What is asked of the session's status. What each does, and where it is legal, stands in
/// [`TABLE`](crate::base::state::TABLE).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Trigger {
    /// The session comes to be. Legal only as the first step, and only where there is none.
    Create(Box<NewSession>),
    /// Someone prepares it.
    Prepare(LeaseRequest),
    /// Preparation is done.
    Ready,
    /// A run takes the lease.
    BeginRun(LeaseRequest),
    /// The run takes up the inputs that arrived since it began.
    Take,
    /// The run ends. Whatever call or span is still open gets its one result: interrupted, outcome unknown.
    EndRun(RunEnd),
    /// The holder of this lease was found dead, or was seen without a sign of life for a whole ttl.
    LeaseExpired(Epoch),
    /// As [`LeaseExpired`](Self::LeaseExpired), where nobody waits for the run's outcome: what it was for is tried again,
    /// as after [`RunEnd::Retry`].
    #[non_exhaustive]
    RunLost {
        /// The lease.
        epoch: Epoch,
        /// When it may be tried again.
        ready_at: Timestamp,
        /// After how many failures in a row the session is `Failed`.
        limit: u32,
    },
    /// The awaited answer did not come in time.
    ActionTimeout(ActionId),
    /// It is set aside; a run is asked to end first.
    Suspend(Reason),
    /// It is set aside now; a run is fenced off.
    ForceSuspend(Reason),
    /// It goes on.
    Resume,
    /// It cannot go on.
    Fail(Failure),
    /// What made it fail is mended.
    Recover,
    /// It is hidden from lists.
    Archive,
    /// It is shown again.
    Unarchive,
    /// It is over for good.
    Terminate(Reason),
    /// It is deleted; a tombstone remains.
    Delete(Reason),
    /// The visible history starts anew, with these messages in place of what was said; none of them waits for a run.
    /// Legal where clearing is, and recorded as that.
    Replace(Vec<NewEvent>),
    /// Adds events of a conversation that took place elsewhere; none of them waits for a run. Legal if clearing is and no
    /// input waits.
    Adopt(Vec<NewEvent>),
    /// The events of a commit as they were stored elsewhere; legal only as the one step of [`Commit::restore`].
    Restore(Vec<Event>),
}

impl Trigger {
    /// The holder of the lease `epoch` is gone; what it ran may be tried again at `ready_at`, `limit` times at most.
    pub const fn run_lost(epoch: Epoch, ready_at: Timestamp, limit: u32) -> Self {
        Self::RunLost { epoch, ready_at, limit }
    }
}

/// How a run ends.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RunEnd {
    /// It did what it was to do, or met a limit: `EndTurn`, `MaxTokens`, `MaxTurns`, `MaxOutput`, `StopSequence`, `Refusal`.
    Completed(Reason),
    /// It needs an answer before it can go on.
    Await(PendingAction),
    /// It was cancelled.
    Interrupted,
    /// It failed, and is to be tried again.
    #[non_exhaustive]
    Retry {
        /// Why.
        failure: Failure,
        /// When it may be tried again.
        ready_at: Timestamp,
        /// After how many failures in a row the session is `Failed`.
        limit: u32,
    },
    /// It failed for good; its inputs are done with, and the session stays usable.
    Failed(Failure),
}

impl RunEnd {
    /// It failed, and is to be tried again at `ready_at`, `limit` times at most.
    pub fn retry(failure: Failure, ready_at: Timestamp, limit: u32) -> Self {
        Self::Retry { failure, ready_at, limit }
    }
}

/// Who wants a lease, and for how long it lives without a sign of life.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeaseRequest {
    /// What others are told while they wait: 1 to 256 bytes, no control characters.
    pub holder: String,
    /// The run that it is for.
    pub run: RunId,
    /// How long it lives without a sign of life.
    pub ttl: Duration,
    /// Whether the rest of the commit is to be applied where no run may start.
    pub if_ready: bool,
}

impl LeaseRequest {
    /// The time that a lease lives without a sign of life, unless asked otherwise.
    pub const DEFAULT_TTL: Duration = Duration::from_secs(30);
    /// The longest that a lease may live without a sign of life: a day.
    pub const MAX_TTL: Duration = Duration::from_secs(24 * 3600);

    /// A lease of 30 seconds for `run`.
    pub fn new(holder: impl Into<String>, run: RunId) -> Self {
        Self { holder: holder.into(), run, ttl: Self::DEFAULT_TTL, if_ready: false }
    }

    /// Sets how long it lives without a sign of life.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// Applies the rest of the commit also where no run may start. Whether one did stands in
    /// [`Committed::epoch`].
    pub fn if_ready(mut self) -> Self {
        self.if_ready = true;
        self
    }

    pub(crate) fn check(&self) -> Result<()> {
        check_text("lease holder", &self.holder, 256)?;
        if self.ttl.is_zero() || self.ttl > Self::MAX_TTL {
            return Err(Error::invalid(format!(
                "a lease of {:?}; give more than nothing and at most a day",
                self.ttl
            )));
        }
        Ok(())
    }
}

impl Commit {
    /// A commit without steps, for a session whose head was `seen` when last looked at.
    pub fn new(id: CommitId, session: SessionId, at: Timestamp, seen: Seq) -> Self {
        Self {
            id,
            session,
            at,
            actor: None,
            expect: Expect::Any,
            seen,
            fence: None,
            run: None,
            steps: Arc::default(),
        }
    }

    /// A commit with a fresh id and the present time.
    pub fn seal(effects: &Effects, session: SessionId, seen: Seq) -> Self {
        Self::new(effects.new_commit_id(), session, effects.now(), seen)
    }

    /// A commit that creates a session which needs no preparation.
    pub fn create(effects: &Effects, new: NewSession) -> Self {
        let seen = new.created.lineage.base();
        Self::seal(effects, new.id, seen)
            .expect(Expect::Absent)
            .trigger(Trigger::Create(Box::new(new)))
            .trigger(Trigger::Ready)
    }

    /// A commit that stores the events of another store's commit as they are there: ids, times, transitions and all.
    /// Commit after commit, this makes the same session again.
    ///
    /// It takes effect once, like any commit, and only where its first event is the next one of the session.
    ///
    /// # Errors
    ///
    /// `InvalidInput` where there are no events.
    pub fn restore(session: SessionId, events: Vec<Event>) -> Result<Self> {
        let Some(first) = events.first() else {
            return Err(Error::invalid(format!("nothing to restore to session {session}")));
        };
        let before = Seq::new(first.seq.get().saturating_sub(1));
        let expect =
            if first.kind == EventType::SESSION_CREATED { Expect::Absent } else { Expect::Is(before) };
        let commit = Self::new(first.commit, session, first.at, before).expect(expect);
        Ok(commit.trigger(Trigger::Restore(events)))
    }

    fn add(&mut self) -> &mut Vec<Step> {
        Arc::make_mut(&mut self.steps)
    }

    /// Adds an event.
    pub fn event(mut self, event: NewEvent) -> Self {
        self.add().push(Step::Event(event));
        self
    }

    /// Adds events.
    pub fn events(mut self, events: impl IntoIterator<Item = NewEvent>) -> Self {
        self.add().extend(events.into_iter().map(Step::Event));
        self
    }

    /// Adds a trigger.
    pub fn trigger(mut self, trigger: Trigger) -> Self {
        self.add().push(Step::Trigger(trigger));
        self
    }

    /// Sets what must be so.
    pub fn expect(mut self, expect: Expect<Seq>) -> Self {
        self.expect = expect;
        self
    }

    /// Sets who writes it.
    pub fn actor(mut self, actor: Actor) -> Self {
        self.actor = Some(actor);
        self
    }

    /// Makes it a write of the run `run` under the lease `epoch`: it succeeds only while that lease lives.
    pub fn fence(mut self, run: RunId, epoch: Epoch) -> Self {
        self.run = Some(run);
        self.fence = Some(epoch);
        self
    }

    /// Who writes an event of this commit.
    pub(crate) fn actor_of(&self, event: &NewEvent) -> Actor {
        let said = event.actor.as_ref().or(self.actor.as_ref());
        said.cloned().unwrap_or_else(|| event.kind.usual_actor())
    }

    /// Checks what can be checked without knowing the session.
    pub(crate) fn check(&self) -> Result<()> {
        let session = self.session;
        if self.steps.is_empty() {
            return Err(Error::invalid(format!("commit {} for session {session} has no steps", self.id)));
        }
        let (mut events, mut bytes) = (0, 0);
        for step in &*self.steps {
            step.check(session)?;
            // The event that clears comes before those that take its place.
            events += usize::from(matches!(step, Step::Trigger(Trigger::Replace(_))));
            step.try_for_each_event(|data, extra| {
                (events, bytes) = (events + 1, bytes + checked_size(session, data, extra)?);
                Ok(())
            })?;
        }
        // What is restored holds what the library had added.
        let is_restored = matches!(self.steps.as_slice(), [Step::Trigger(Trigger::Restore(_))]);
        let added = if is_restored { PLANNED_MAX_EVENTS - COMMIT_MAX_EVENTS } else { 0 };
        if events > COMMIT_MAX_EVENTS + added || bytes > COMMIT_MAX_BYTES + added * 1024 {
            return Err(Error::limit(format!(
                "a commit of {events} events and {bytes} bytes for session {session}; at most {COMMIT_MAX_EVENTS} and {COMMIT_MAX_BYTES}, send several"
            )));
        }
        Ok(())
    }
}

impl Step {
    /// Calls `see` with the payload and the further fields of each event that the step brings.
    fn try_for_each_event(&self, mut see: impl FnMut(&RawJson, &RawFields) -> Result<()>) -> Result<()> {
        match self {
            Self::Event(event) => see(&event.data, &event.extra),
            Self::Trigger(Trigger::Replace(events) | Trigger::Adopt(events)) => {
                events.iter().try_for_each(|event| see(&event.data, &event.extra))
            }
            Self::Trigger(Trigger::Restore(events)) => {
                events.iter().try_for_each(|event| see(&event.data, &event.extra))
            }
            Self::Trigger(_) => Ok(()),
        }
    }

    /// Checks what it asks for beside its events.
    fn check(&self, session: SessionId) -> Result<()> {
        let Self::Trigger(trigger) = self else { return Ok(()) };
        match trigger {
            Trigger::Prepare(lease) | Trigger::BeginRun(lease) => lease.check(),
            Trigger::Fail(failure)
            | Trigger::EndRun(RunEnd::Failed(failure) | RunEnd::Retry { failure, .. }) => {
                check_reason(session, failure.class)?;
                failure.check(session)
            }
            Trigger::EndRun(RunEnd::Await(action)) => {
                check_reason(session, action.kind.reason())?;
                action.check(session)
            }
            Trigger::EndRun(RunEnd::Completed(reason))
            | Trigger::Suspend(reason)
            | Trigger::ForceSuspend(reason)
            | Trigger::Terminate(reason)
            | Trigger::Delete(reason) => check_reason(session, *reason),
            _ => Ok(()),
        }
    }
}

/// A reason that stands for one of a newer version would close the session to this one.
fn check_reason(session: SessionId, reason: Reason) -> Result<()> {
    match reason {
        Reason::Newer => Err(Error::invalid(format!(
            "a commit for session {session} gives a reason of a newer version of this library; give one of this version's"
        ))),
        _ => Ok(()),
    }
}

fn checked_size(session: SessionId, data: &RawJson, extra: &RawFields) -> Result<usize> {
    check_depth(session, data.depth(), extra)?;
    let size = data.get().len() + extra.size_bytes();
    if size > EVENT_MAX_BYTES {
        return Err(Error::limit(format!(
            "an event of {size} bytes for session {session}; at most {EVENT_MAX_BYTES} fit, store more as a blob"
        )));
    }
    Ok(size)
}

fn check_depth(session: SessionId, data: usize, extra: &RawFields) -> Result<()> {
    let deepest = extra.iter().map(|(_, value)| value.depth()).fold(data, usize::max);
    if deepest > RawJson::MAX_DEPTH {
        return Err(Error::limit(format!(
            "an event for session {session} whose payload nests {deepest} levels deep; at most {} are kept, store deeper JSON as a text",
            RawJson::MAX_DEPTH
        )));
    }
    Ok(())
}

/// What a commit came to.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Committed {
    /// The session as it is now; for a replay this may be later than just after the commit.
    pub session: Arc<Session>,
    /// Its first event. Above `last` where it had nothing to write.
    pub first: Seq,
    /// Its last event.
    pub last: Seq,
    /// The lease that it took. `None` where it asked for none, or [if ready](LeaseRequest::if_ready) and no run may
    /// start; then [`Session::lease`] names the holder.
    pub epoch: Option<Epoch>,
    /// Whether it had been applied before.
    pub replayed: bool,
}

impl From<Message> for NewEvent {
    fn from(message: Message) -> Self {
        Self::of(&crate::event::body::Body::UserMessage(message))
    }
}

impl NewEvent {
    /// Whether a run has to answer it.
    pub(crate) fn is_input(&self) -> bool {
        self.kind == EventType::USER_MESSAGE || self.kind == EventType::USER_DEFINE_OUTCOME
    }
}
