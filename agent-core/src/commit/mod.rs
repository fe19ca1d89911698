//! Commits: events and triggers that are applied together or not at all, sealed before the first attempt.

pub(crate) mod optimistic;
pub(crate) mod plan;

pub use crate::model::precondition::Precondition;
pub use optimistic::{OptimisticCommit, Planned};
pub use plan::import::apply_untrusted;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use memchr::memmem;

use crate::base::sealed::refuse_sealed;
use crate::base::{
    BlobName, CommitId, Effects, Epoch, Error, RawFields, RawJson, Reason, Result, RunId, Seq, SessionId,
    Timestamp, check_text,
};
use crate::event::payload::blobs::NamedBlobs;
use crate::event::{EVENT_MAX_BYTES, Event, EventPayload, EventType, Message, NewEvent};
use crate::model::{ActionId, Actor, Failure, PendingAction};
use crate::sealing::{SealedBy, Sealing};
use crate::session::{NewSession, OPEN_CALLS_MAX, SessionRecord};
use crate::setters;

/// Maximum number of events that a caller may put in one commit.
pub const COMMIT_MAX_EVENTS: usize = 1024;
/// Maximum number of events of one commit, including those that the library adds: the results of open calls, the ends
/// of spans, the status.
pub(crate) const PLANNED_MAX_EVENTS: usize = COMMIT_MAX_EVENTS + 2 * OPEN_CALLS_MAX + 2;
/// Maximum number of blobs that the events of one commit name.
pub const COMMIT_MAX_BLOBS: usize = 64;
/// Maximum number of payload bytes in one commit.
pub const COMMIT_MAX_BYTES: usize = 64 << 20;
/// Minimum by which [`Trigger::Fence`] raises the epoch of a session: more runs than one begins between two backups.
pub const EPOCHS_PER_FENCE: u64 = 1 << 16;

/// Events and triggers for one session, applied atomically.
///
/// Id and time are fixed when the commit is made. A commit that is sent again is the same commit, and takes effect
/// once. Steps are applied in order; a trigger is recorded on the event before it, so a whole chat turn is two
/// events:
///
/// ```
/// use agent_core::Seq;
/// use agent_core::clock::Effects;
/// use agent_core::commit::{Commit, LeaseRequest, Trigger};
/// use agent_core::event::NewEvent;
/// # let effects = Effects::default();
/// # let (session, run) = (effects.new_session_id(), effects.new_run_id());
/// let commit = Commit::new(effects.new_commit_id(), session, effects.now(), Seq::new(4))
///     .with_event(NewEvent::user_message("What did we decide yesterday?"))
///     .with_trigger(Trigger::BeginRun(LeaseRequest::new("laptop", run).if_ready()));
/// assert_eq!(commit.steps.len(), 2);
/// ```
#[must_use]
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Commit {
    /// Unique id of this commit; retries reuse it.
    pub id: CommitId,
    /// Session that the commit applies to.
    pub session: SessionId,
    /// Time at which the commit was sealed.
    pub at: Timestamp,
    /// Actor that writes the commit; an event may name another. If neither is set, the family of the event's type
    /// decides.
    pub actor: Option<Actor>,
    /// Precondition on the session's head; [`Precondition::MustExist`] by default.
    pub precondition: Precondition<Seq>,
    /// Head that the writer knew when it sealed the commit. Limits how far back a duplicate of the commit can be in
    /// the log.
    pub seen: Seq,
    /// Epoch of the run that writes the commit.
    pub fence: Option<Epoch>,
    /// Run that writes the commit.
    pub run: Option<RunId>,
    /// Steps of the commit, in order. Clones share them, so sending a commit again copies nothing.
    pub steps: Arc<Vec<Step>>,
    /// Keys with which an encrypted store seals what the commit writes.
    pub(crate) sealing: Option<SealedBy>,
}

impl fmt::Debug for Commit {
    /// Shows the steps, but of a commit that an encrypted store seals their number alone: the store around which it is may log this.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, session, at, actor, precondition, seen, fence, run, steps, sealing } = self;
        let mut shown = f.debug_struct("Commit");
        shown.field("id", id).field("session", session).field("at", at).field("actor", actor);
        shown.field("precondition", precondition).field("seen", seen).field("fence", fence).field("run", run);
        match sealing {
            Some(sealing) => shown.field("steps", &steps.len()).field("sealing", sealing).finish(),
            None => shown.field("steps", steps).finish(),
        }
    }
}

/// Step of a [`Commit`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Step {
    /// Event. Some events are triggers themselves: an input, an answer, an interrupt, a timer, a clearing.
    Event(NewEvent),
    /// Change of status that no event expresses.
    Trigger(Trigger),
}

/// Request to change the session's status. [`TABLE`](crate::base::state_machine::TABLE) defines what each trigger does, and
/// in which states it is legal.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/setup.rs"));
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
/// use agent_core::SessionStore;
/// use agent_core::commit::{Commit, LeaseRequest, RunEnd, Trigger};
/// use agent_core::event::NewEvent;
/// use agent_core::state::{Reason, SessionState};
///
/// # let (store, effects, session) = greeted().await?;
/// let run = effects.new_run_id();
/// let begin = Commit::seal(&effects, session.id, session.head)
///     .with_trigger(Trigger::BeginRun(LeaseRequest::new("laptop", run)));
/// let begun = store.commit(begin).await?;
/// assert_eq!(begun.session.status.state, SessionState::Running);
///
/// let end = Commit::seal(&effects, session.id, begun.last)
///     .with_fence(run, begun.epoch.unwrap())
///     .with_event(NewEvent::agent_message("Hello, what can I do for you?"))
///     .with_trigger(Trigger::EndRun(RunEnd::Completed(Reason::EndTurn)));
/// assert_eq!(store.commit(end).await?.session.status.state, SessionState::Idle);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Trigger {
    /// Creates the session. Legal only as the first step, and only if the session does not exist.
    Create(Box<NewSession>),
    /// Takes a lease to prepare the session.
    Prepare(LeaseRequest),
    /// Ends the preparation.
    Ready,
    /// Starts a run, which takes the lease.
    BeginRun(LeaseRequest),
    /// Claims the inputs that arrived since the run began.
    ClaimInputs,
    /// Ends the run. Each open call and span gets its one result: interrupted, outcome unknown.
    EndRun(RunEnd),
    /// Ends the lease of this epoch: its holder is dead, or sent no heartbeat for one ttl.
    LeaseExpired(Epoch),
    /// Ends a lease like [`LeaseExpired`](Self::LeaseExpired), if no caller waits for the run's outcome. The work of
    /// the run is retried, as after [`RunEnd::Retry`].
    #[non_exhaustive]
    RunLost {
        /// Epoch of the lease.
        epoch: Epoch,
        /// Earliest time of the next attempt.
        ready_at: Timestamp,
        /// Number of consecutive failures after which the session becomes `Failed`.
        limit: u32,
    },
    /// Ends the wait for an answer that did not arrive in time.
    ActionTimeout(ActionId),
    /// Ends the lease, if there is one, and raises the epoch by at least [`EPOCHS_PER_FENCE`], so that no run from before a restore of
    /// this session writes again, also none that the restored log does not have. Two fences after one backup lead to different
    /// epochs: how many more they add comes from the id of the commit.
    Fence,
    /// Suspends the session; a run is asked to end first.
    Suspend(Reason),
    /// Suspends the session now; a run is fenced.
    ForceSuspend(Reason),
    /// Resumes a suspended session.
    Resume,
    /// Marks the session as failed.
    Fail(Failure),
    /// Clears a failure after its cause was fixed.
    ClearFailure,
    /// Hides the session from lists.
    Archive,
    /// Shows an archived session again.
    Unarchive,
    /// Ends the session permanently.
    Terminate(Reason),
    /// Deletes the session; a tombstone remains.
    Delete(Reason),
    /// Replaces the visible history with these messages; none of them waits for a run. Legal if clearing is, and
    /// recorded as clearing.
    Replace(Vec<NewEvent>),
    /// Adds events of a conversation that took place elsewhere; none of them waits for a run. Each may have a
    /// [time](field@NewEvent::at) of its own.
    ///
    /// Legal if clearing is legal and no input, timer or question is open.
    ImportEvents(Vec<NewEvent>),
    /// Adds the events of a commit as they were stored elsewhere; legal only as the one step of [`Commit::restore`].
    Restore(Vec<Event>),
}

impl Trigger {
    /// Creates the trigger for a lost run of the lease `epoch`, to be retried from `ready_at` on.
    ///
    /// The session becomes `Failed` after `limit` consecutive failures.
    pub const fn run_lost(epoch: Epoch, ready_at: Timestamp, limit: u32) -> Self {
        Self::RunLost { epoch, ready_at, limit }
    }
}

/// Way in which a run ends.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RunEnd {
    /// The run is complete, or reached a limit: `EndTurn`, `MaxTokens`, `MaxTurns`, `MaxOutput`, `StopSequence`,
    /// `Refusal`.
    Completed(Reason),
    /// The run needs an answer before it can continue.
    Await(PendingAction),
    /// The run was cancelled.
    Interrupted,
    /// The run failed, and will be retried.
    #[non_exhaustive]
    Retry {
        /// Cause of the failure.
        failure: Failure,
        /// Earliest time of the next attempt.
        ready_at: Timestamp,
        /// Number of consecutive failures after which the session becomes `Failed`.
        limit: u32,
    },
    /// The run failed and will not be retried; its inputs are done, and the session stays usable.
    Failed(Failure),
}

impl RunEnd {
    /// Creates the end of a failed run that is retried from `ready_at` on.
    ///
    /// The session becomes `Failed` after `limit` consecutive failures.
    pub fn retry(failure: Failure, ready_at: Timestamp, limit: u32) -> Self {
        Self::Retry { failure, ready_at, limit }
    }
}

/// Request for a lease: its holder, its run and its lifetime without a heartbeat.
///
/// ```
/// use std::time::Duration;
/// use agent_core::clock::Effects;
/// use agent_core::commit::LeaseRequest;
///
/// let run = Effects::default().new_run_id();
/// let request = LeaseRequest::new("laptop", run).with_ttl(Duration::from_secs(10)).if_ready();
/// assert_eq!((request.ttl.as_secs(), request.if_ready), (10, true));
/// assert_eq!(LeaseRequest::new("laptop", run).ttl, LeaseRequest::DEFAULT_TTL);
/// ```
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeaseRequest {
    /// Name of the holder, shown to others that wait: 1 to 256 bytes, no control characters.
    pub holder: String,
    /// Run that takes the lease.
    pub run: RunId,
    /// Time that the lease lasts without a heartbeat; 30 seconds by default, at most a day.
    pub ttl: Duration,
    /// True if the rest of the commit is applied even if no run may start; false by default.
    pub if_ready: bool,
}

impl LeaseRequest {
    /// Default time that a lease lasts without a heartbeat.
    pub const DEFAULT_TTL: Duration = Duration::from_secs(30);
    /// Maximum time that a lease lasts without a heartbeat: a day.
    pub const MAX_TTL: Duration = Duration::from_secs(24 * 3600);

    /// Creates a request for a lease of 30 seconds for `run`.
    pub fn new(holder: impl Into<String>, run: RunId) -> Self {
        Self { holder: holder.into(), run, ttl: Self::DEFAULT_TTL, if_ready: false }
    }

    setters! {
        /// Sets the time that the lease lasts without a heartbeat: more than zero and at most a day, which is checked when
        /// the lease is taken. 30 seconds by default.
        pub fn with_ttl(ttl: Duration) => ttl = ttl;

        /// Applies the rest of the commit even if no run may start. [`Committed::epoch`] is set if one did.
        pub fn if_ready() => if_ready = true;
    }

    pub(crate) fn check(&self) -> Result<()> {
        check_text("lease holder", &self.holder, 256)?;
        if self.ttl.is_zero() || self.ttl > Self::MAX_TTL {
            return Err(Error::invalid(format!(
                "a lease of {:?}; give more than zero and at most a day",
                self.ttl
            )));
        }
        Ok(())
    }
}

impl Commit {
    /// Creates a commit without steps. `seen` is the session's head as the writer last saw it.
    pub fn new(id: CommitId, session: SessionId, at: Timestamp, seen: Seq) -> Self {
        Self {
            id,
            session,
            at,
            actor: None,
            precondition: Precondition::MustExist,
            seen,
            fence: None,
            run: None,
            steps: Arc::default(),
            sealing: None,
        }
    }

    /// Creates a commit without steps, with a new id and the current time.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/setup.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// use agent_core::commit::{Commit, Precondition};
    /// use agent_core::event::NewEvent;
    /// use agent_core::model::{Actor, Role};
    ///
    /// # let (store, effects, session) = session().await?;
    /// let commit = Commit::seal(&effects, session.id, session.head)
    ///     .with_precondition(Precondition::Matches(session.head))
    ///     .with_actor(Actor::named(Role::User, "alice")?)
    ///     .with_events([NewEvent::user_message("Hello"), NewEvent::user_message("Are you there?")]);
    /// let first = store.commit_with_retry(commit.clone()).await?;
    /// assert_eq!(first.last.get(), first.first.get() + 1);
    ///
    /// // A commit that is sent again is the same commit, and takes effect once.
    /// let again = store.commit_with_retry(commit).await?;
    /// assert_eq!((again.replayed, again.last), (true, first.last));
    /// # Ok(()) }
    /// ```
    pub fn seal(effects: &Effects, session: SessionId, seen: Seq) -> Self {
        Self::new(effects.new_commit_id(), session, effects.now(), seen)
    }

    /// Creates a commit that creates a session which needs no preparation.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// use agent_core::clock::Effects;
    /// use agent_core::commit::Commit;
    /// use agent_core::session::NewSession;
    /// use agent_core::state::SessionState;
    /// use agent_core::{MemoryStore, SessionStore, WorkspaceId};
    ///
    /// # let (store, effects) = (MemoryStore::new(), Effects::default());
    /// let new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
    /// let created = store.commit(Commit::create(&effects, new)).await?;
    /// assert_eq!(created.session.status.state, SessionState::Idle);
    /// # Ok(()) }
    /// ```
    pub fn create(effects: &Effects, new: NewSession) -> Self {
        let seen = new.created.lineage.base();
        Self::seal(effects, new.id, seen)
            .with_precondition(Precondition::MustNotExist)
            .with_trigger(Trigger::Create(Box::new(new)))
            .with_trigger(Trigger::Ready)
    }

    /// Creates a commit that stores the events of another store's commit unchanged, with ids, times and transitions.
    /// Restoring all commits in order creates the same session again.
    ///
    /// Like any commit, it takes effect once. It is refused unless its first event is the next one of the session.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if there are no events.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/setup.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// use agent_core::commit::Commit;
    ///
    /// # let (store, effects, session) = session().await?;
    /// let events = store.read(session.id, ReadEvents::first(100)).await?.events;
    /// let copy = MemoryStore::new();
    /// let restored = copy.commit(Commit::restore(session.id, events)?).await?.session;
    /// assert_eq!(restored, session);
    /// # Ok(()) }
    /// ```
    pub fn restore(session: SessionId, events: Vec<Event>) -> Result<Self> {
        let Some(first) = events.first() else {
            return Err(Error::invalid(format!(
                "a commit of session {session} without events cannot be restored; give the events of one whole commit"
            )));
        };
        let before = Seq::new(first.seq.get().saturating_sub(1));
        let expect = if first.kind == EventType::SESSION_CREATED {
            Precondition::MustNotExist
        } else {
            Precondition::Matches(before)
        };
        let commit = Self::new(first.commit, session, first.at, before).with_precondition(expect);
        Ok(commit.with_trigger(Trigger::Restore(events)))
    }

    fn add(&mut self) -> &mut Vec<Step> {
        Arc::make_mut(&mut self.steps)
    }

    /// Adds an event.
    pub fn with_event(mut self, event: NewEvent) -> Self {
        self.add().push(Step::Event(event));
        self
    }

    /// Adds events.
    pub fn with_events(mut self, events: impl IntoIterator<Item = NewEvent>) -> Self {
        self.add().extend(events.into_iter().map(Step::Event));
        self
    }

    /// Adds a trigger.
    pub fn with_trigger(mut self, trigger: Trigger) -> Self {
        self.add().push(Step::Trigger(trigger));
        self
    }

    setters! {
        /// Sets the precondition.
        #[doc(alias = "expect")]
        pub fn with_precondition(expect: Precondition<Seq>) => precondition = expect;

        /// Sets the actor that writes the commit.
        pub fn with_actor(actor: Actor) => actor = Some(actor);
    }

    /// Makes the commit a write of the run `run` under the lease `epoch`: it succeeds only while that lease is held.
    pub fn with_fence(mut self, run: RunId, epoch: Epoch) -> Self {
        self.run = Some(run);
        self.fence = Some(epoch);
        self
    }

    /// For encrypted stores: seals what the commit writes by these keys. The session must be, or become, one that they sealed.
    pub fn with_sealing(mut self, sealing: Arc<dyn Sealing>) -> Self {
        self.sealing = Some(SealedBy(sealing));
        self
    }

    /// For encrypted stores: returns the names of the blobs that the events of the commit name, sorted, each once. An event that cannot
    /// be read names those that it gives itself; [`plan`](crate::plan()) refuses it.
    pub fn named_blobs(&self) -> Vec<BlobName> {
        let mut names = Vec::new();
        let mut add = |kind: &EventType, payload: &RawJson, given: &[BlobName]| {
            names.extend_from_slice(given);
            // A blob stands by its hash; a payload without one need not be decoded.
            if !["sha256", "\\u00"]
                .iter()
                .any(|part| memmem::find(payload.get().as_bytes(), part.as_bytes()).is_some())
            {
                return;
            }
            let Ok(body) = EventPayload::parse(kind, payload) else { return };
            let named = NamedBlobs::of(&body).with_given(given).unwrap_or_default();
            names.extend(named.iter().map(|blob| blob.name));
        };
        for step in self.steps.iter() {
            match step {
                Step::Event(event) => add(&event.kind, &event.payload, &event.blobs),
                Step::Trigger(Trigger::Replace(events) | Trigger::ImportEvents(events)) => {
                    events.iter().for_each(|event| add(&event.kind, &event.payload, &event.blobs));
                }
                Step::Trigger(Trigger::Restore(events)) => {
                    events.iter().for_each(|event| add(&event.kind, &event.payload, &event.blobs));
                }
                Step::Trigger(_) => {}
            }
        }
        names.sort_unstable();
        names.dedup();
        names
    }

    /// Returns the actor of an event of this commit.
    pub(crate) fn actor_of(&self, event: &NewEvent) -> Actor {
        let given = event.actor.as_ref().or(self.actor.as_ref());
        given.cloned().unwrap_or_else(|| event.kind.usual_actor())
    }

    /// Checks everything that does not depend on the session.
    pub(crate) fn check(&self) -> Result<()> {
        let session = self.session;
        if self.steps.is_empty() {
            return Err(Error::invalid(format!("commit {} for session {session} has no steps", self.id)));
        }
        if self.precondition == Precondition::None {
            return Err(self.precondition.refused(&format_args!("session {session}")));
        }
        let (mut events, mut bytes) = (0, 0);
        for step in &*self.steps {
            step.check(session)?;
            // The event that clears comes before the replacing ones.
            events += usize::from(matches!(step, Step::Trigger(Trigger::Replace(_))));
            step.try_for_each_event(|data, extra| {
                (events, bytes) = (events + 1, bytes + checked_size(session, data, extra)?);
                Ok(())
            })?;
        }
        // A restored commit includes the events that the library had added.
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
    /// Calls `see` with the payload and the additional fields of each event of the step.
    fn try_for_each_event(&self, mut see: impl FnMut(&RawJson, &RawFields) -> Result<()>) -> Result<()> {
        match self {
            Self::Event(event) => see(&event.payload, &event.extra),
            Self::Trigger(Trigger::Replace(events) | Trigger::ImportEvents(events)) => {
                events.iter().try_for_each(|event| see(&event.payload, &event.extra))
            }
            Self::Trigger(Trigger::Restore(events)) => {
                events.iter().try_for_each(|event| see(&event.payload, &event.extra))
            }
            Self::Trigger(_) => Ok(()),
        }
    }

    /// Checks the parameters of the step besides its events.
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

/// Refuses a reason of a newer version, which would close the session to this version.
fn check_reason(session: SessionId, reason: Reason) -> Result<()> {
    match reason {
        Reason::Newer => Err(Error::invalid(format!(
            "a commit for session {session} gives a reason of a newer version of this library; give one of this version's"
        ))),
        _ => Ok(()),
    }
}

fn checked_size(session: SessionId, data: &RawJson, extra: &RawFields) -> Result<usize> {
    refuse_sealed(data, extra).map_err(|error| error.about(format_args!("session {session}")))?;
    check_depth(session, data.depth(), extra)?;
    let size = data.get().len() + extra.size_bytes();
    if size > EVENT_MAX_BYTES {
        return Err(Error::limit(format!(
            "an event of {size} bytes for session {session}; at most {EVENT_MAX_BYTES} fit; put \
             larger content as a blob, and name it in the event"
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

/// Result of a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Committed {
    /// Record of the session as it is now; for a replayed commit, this may be later than just after the commit.
    pub session: Arc<SessionRecord>,
    /// First event of the commit. Greater than `last` if there was nothing to write.
    pub first: Seq,
    /// Last event of the commit.
    pub last: Seq,
    /// Epoch of the lease that the commit took.
    ///
    /// `None` if it requested none, or if it requested one [if ready](LeaseRequest::if_ready) and no run may start;
    /// then [`SessionRecord::lease`] names the holder.
    pub epoch: Option<Epoch>,
    /// True if the commit had been applied before.
    pub replayed: bool,
}

impl From<Message> for NewEvent {
    fn from(message: Message) -> Self {
        Self::of(&crate::event::body::EventPayload::UserMessage(message))
    }
}

impl NewEvent {
    /// Returns whether the event is an input, which a run has to answer.
    pub(crate) fn is_input(&self) -> bool {
        self.kind == EventType::USER_MESSAGE || self.kind == EventType::USER_DEFINE_OUTCOME
    }
}
