//! How a turn begins: the inputs and the lease in one commit, and the take-over from a holder that is gone.

use std::sync::Arc;

use tokio::sync::watch;
use tracing::{info, warn};

use crate::runtime::agent::Slot;
use crate::runtime::driver::Driver;
use crate::runtime::holder::dead_holder;
use crate::runtime::report::Stored;
use crate::runtime::run::{Begun, Input, Run};
use crate::runtime::session_ref::SessionRef;
use crate::runtime::settings::{Theirs, asks_workspace, freezes, opening, workspace_provider};
use crate::runtime::updates::updates;
use agent_core::commit::{Commit, Committed, LeaseRequest, Trigger};
use agent_core::event::NewEvent;
use agent_core::model::{ActionId, Lease};
use agent_core::session::Session;
use agent_core::state::SessionState;
use agent_core::{Epoch, Error, ErrorKind, Result, RunId, Seq, SessionStoreExt, WriteOutcome};

/// How often a beginning that somebody else was quicker with is tried again.
const ATTEMPTS: usize = 4;

/// What a run is to be begun for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cause {
    /// What people say, in order.
    pub(crate) inputs: Arc<[Input]>,
    /// The answer to what the session waits for.
    pub(crate) answer: Option<NewEvent>,
    /// The lease of a holder that is known to be gone.
    pub(crate) expired: Option<Epoch>,
    /// What the session waits for, and is given up now.
    pub(crate) overdue: Option<ActionId>,
    /// Nobody waits for the outcome: a run that fails is tried again.
    pub(crate) unattended: bool,
}

/// Stores the inputs, if there are any, and starts a run where one may start.
pub(crate) async fn begin(handle: &SessionRef, cause: Cause) -> Result<Begun> {
    let slot = Slot::admit(&handle.runtime().shared)?;
    let mut beginning = Beginning::new(handle, cause).await?;
    match beginning.carry_out(slot).await {
        // An input that is stored must not look as if it were not: it would be sent again.
        Err(error) if beginning.seq > Seq::ZERO => {
            warn!(session = %handle.id(), %error, "the input is stored; the holder could not be replaced");
            Ok(Begun { run: None, seq: beginning.seq })
        }
        other => other,
    }
}

/// A beginning that is under way.
struct Beginning<'a> {
    handle: &'a SessionRef,
    /// The record that the next attempt goes by.
    now: Arc<Session>,
    /// What is not stored yet.
    inputs: Arc<[Input]>,
    answer: Option<NewEvent>,
    /// Where the last of that is stored.
    seq: Seq,
    expired: Option<Epoch>,
    overdue: Option<ActionId>,
    unattended: bool,
    /// Whether a session that is set aside is to go on.
    resume: bool,
    /// Whether there may be room to say who is asked.
    has_room: bool,
    /// What the workspace chooses, looked up once.
    theirs: Option<Theirs>,
}

/// What a commit of a beginning holds that may be refused without anything being wrong with the rest.
#[derive(Clone, Copy)]
struct Extras {
    /// It lets a session that is set aside go on.
    resumes: bool,
    /// It says who is asked.
    says: bool,
    /// It writes the configuration down.
    freezes: bool,
}

/// What comes after an attempt.
enum Next {
    /// The run that was begun.
    Start(Epoch, Box<Committed>),
    /// Another attempt.
    Again,
    /// Nothing: no run may start.
    Wait,
}

impl<'a> Beginning<'a> {
    async fn new(handle: &'a SessionRef, cause: Cause) -> Result<Self> {
        let Cause { inputs, answer, mut expired, overdue, unattended } = cause;
        let mut now = handle.snapshot();
        // A session that is run waits for no answer; the commit says so.
        if now.status.state == SessionState::Running && expired.is_none() && answer.is_none() {
            now = handle.refresh().await?;
            expired = dead_holder(handle, &now).await;
        }
        let resume = handle.runtime().shared.config.resume_on_prompt && !inputs.is_empty();
        Ok(Self {
            handle,
            now,
            inputs,
            answer,
            seq: Seq::ZERO,
            expired,
            overdue,
            unattended,
            resume,
            has_room: true,
            theirs: None,
        })
    }

    async fn carry_out(&mut self, slot: Slot) -> Result<Begun> {
        let runtime = self.handle.runtime();
        for attempt in 1.. {
            let run = runtime.shared.effects.new_run_id();
            let (commit, extras) = self.seal(run).await?;
            let next = match runtime.storage.sessions.settle_new(commit).await {
                Ok(committed) => self.stored(committed, run, attempt).await,
                Err(error) => self.refused(error, extras, attempt).await?,
            };
            match next {
                Next::Start(epoch, committed) => {
                    let run = self.start(slot, run, epoch, *committed);
                    return Ok(Begun { run: Some(run), seq: self.seq });
                }
                Next::Again => {}
                Next::Wait => break,
            }
        }
        Ok(Begun { run: None, seq: self.seq })
    }

    /// The commit of the next attempt.
    async fn seal(&mut self, run: RunId) -> Result<(Commit, Extras)> {
        let runtime = self.handle.runtime();
        let (shared, now) = (&runtime.shared, self.now.clone());
        let mut commit = Commit::seal(&shared.effects, self.handle.id(), now.head);
        if let Some(epoch) = self.expired {
            commit = commit.trigger(if self.unattended {
                let ready_at = shared.config.retry.ready_at(shared.effects.now(), now.attempts);
                Trigger::run_lost(epoch, ready_at, shared.config.retry.limit)
            } else {
                Trigger::LeaseExpired(epoch)
            });
        }
        if let Some(action) = self.overdue.clone() {
            commit = commit.trigger(Trigger::ActionTimeout(action));
        }
        let says = self.opening().await?;
        let extras = Extras {
            resumes: self.resume && now.status.state == SessionState::Suspended,
            says: !says.is_empty(),
            freezes: !says.is_empty() && freezes(&shared.config, &now),
        };
        let said = self.inputs.iter().cloned().map(NewEvent::from);
        commit = commit.events(says).events(said).events(self.answer.clone());
        if extras.resumes {
            commit = commit.trigger(Trigger::Resume);
        }
        let lease =
            LeaseRequest::new(shared.config.holder.clone(), run).ttl(shared.config.lease_ttl).if_ready();
        Ok((commit.trigger(Trigger::BeginRun(lease)), extras))
    }

    /// What a run that is likely to begin has to say first.
    async fn opening(&mut self) -> Result<Vec<NewEvent>> {
        let likely = match self.now.status.state {
            SessionState::Running => self.expired.is_some(),
            SessionState::Queued => true,
            _ => !self.inputs.is_empty() || self.answer.is_some() || self.overdue.is_some(),
        };
        if !likely {
            return Ok(Vec::new());
        }
        let runtime = self.handle.runtime();
        if self.theirs.is_none() && asks_workspace(&self.now) {
            self.theirs = Some(workspace_provider(runtime, &self.now).await?);
        }
        if !self.has_room {
            return Ok(Vec::new());
        }
        opening(&runtime.shared, &self.now, self.theirs.as_ref().and_then(Option::as_deref))
    }

    /// What follows from a commit that was refused; the error, if nothing does.
    async fn refused(&mut self, error: Error, extras: Extras, attempt: usize) -> Result<Next> {
        use ErrorKind::{Conflict, InvalidInput, InvalidTransition, LimitExceeded};
        let may_try = attempt < ATTEMPTS;
        match error.kind() {
            // Somebody else took over first, or the holder lives after all.
            Conflict { .. } | InvalidTransition { .. } if self.expired.is_some() && may_try => {
                self.now = self.handle.refresh().await?;
                self.expired = dead_holder(self.handle, &self.now).await;
                return Ok(Next::Again);
            }
            // Somebody else let it go on.
            InvalidTransition { .. } if extras.resumes => self.resume = may_try,
            // The answer came first.
            InvalidInput | InvalidTransition { .. } if self.overdue.take().is_some() => {}
            // Another host wrote down the configuration first.
            Conflict { .. } if extras.freezes && may_try => {}
            // A record that is full must not keep a person from being heard.
            LimitExceeded if extras.says && error.write_outcome() == WriteOutcome::NotApplied => {
                self.has_room = false;
                return Ok(Next::Again);
            }
            _ => return Err(error),
        }
        self.now = self.handle.refresh().await?;
        Ok(Next::Again)
    }

    /// What follows from a commit that is stored.
    async fn stored(&mut self, committed: Committed, run: RunId, attempt: usize) -> Next {
        self.handle.note(&committed.session);
        let said = !self.inputs.is_empty() || self.answer.is_some();
        if said {
            self.seq = committed.last;
            (self.inputs, self.answer) = (Arc::default(), None);
        }
        let own = |lease: &&Lease| lease.run == run;
        let epoch = committed.epoch.or_else(|| committed.session.lease.as_ref().filter(own).map(|l| l.epoch));
        if let Some(epoch) = epoch {
            return Next::Start(epoch, Box::new(committed));
        }
        self.overdue = None;
        self.now = self.handle.snapshot();
        // That it was set aside may have been found only by this commit.
        if self.resume && self.now.status.state == SessionState::Suspended && attempt < ATTEMPTS {
            return Next::Again;
        }
        // The holder may have been found only by this commit; whether it is dead decides about one more.
        self.expired = dead_holder(self.handle, &self.now).await;
        if self.expired.is_some() && attempt < ATTEMPTS { Next::Again } else { Next::Wait }
    }

    fn start(&mut self, slot: Slot, run: RunId, epoch: Epoch, committed: Committed) -> Run {
        if self.expired.is_some() {
            info!(session = %self.handle.id(), %epoch, "took over from a holder that was gone");
        }
        let (sender, updates) = updates();
        let cancel = watch::Sender::new(false);
        let status = committed.session.status;
        let handle = self.handle.clone();
        let mut driver = Driver::new(handle, run, epoch, committed.session, sender, cancel.subscribe());
        (driver.unattended, driver.theirs) = (self.unattended, self.theirs.take());
        tokio::spawn(driver.run(slot));
        Run { updates, cancel, id: Some(run), stored: None, status }
    }
}

/// What a prompt is told that could start no run.
pub(crate) fn stored(now: &Session, seq: Seq) -> Stored {
    Stored { seq, holder: now.lease.as_ref().map(|lease| lease.holder.clone()), state: now.status.state }
}
