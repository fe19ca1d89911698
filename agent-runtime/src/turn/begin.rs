//! Beginning of a run: stores the inputs and the lease in one commit, and takes over from a dead or expired holder.

use std::sync::Arc;

use tokio::sync::watch;
use tracing::{info, warn};

use crate::agent::runtime::RunPermit;
use crate::run::handle::{Begun, Input, Run};
use crate::run::updates::UpdateSender;
use crate::turn::session_ref::SessionRef;
use crate::turn::settings::{Theirs, asks_workspace, freezes, opening, theirs};
use crate::turn::state::Driver;
use crate::turn::takeover::dead_holder;
use agent_core::commit::{Commit, Committed, LeaseRequest, Trigger};
use agent_core::event::NewEvent;
use agent_core::model::{ActionId, Lease};
use agent_core::session::{NewSession, SessionRecord};
use agent_core::state::SessionState;
use agent_core::{Epoch, Error, ErrorKind, Result, RunId, Seq, SessionStoreExt, WriteOutcome};

/// Maximum number of attempts to begin a run, if other writers interfere.
const ATTEMPTS: usize = 4;

/// Cause of a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cause {
    /// Session that does not exist yet, and is created with these events and the inputs.
    pub(crate) create: Option<(NewSession, Vec<NewEvent>)>,
    /// Inputs, in order.
    pub(crate) inputs: Arc<[Input]>,
    /// Answer to the pending action of the session.
    pub(crate) answer: Option<NewEvent>,
    /// Epoch of a lease whose holder is known to be dead or expired.
    pub(crate) expired: Option<Epoch>,
    /// Pending action whose time limit has passed, and which is given up now.
    pub(crate) overdue: Option<ActionId>,
    /// True if no caller waits for the outcome; a failed run is then retried.
    pub(crate) unattended: bool,
}

/// Stores the inputs, if there are any, and starts a run if one may start.
pub(crate) async fn begin(handle: SessionRef, cause: Cause) -> Result<Begun> {
    let slot = RunPermit::admit(&handle.runtime().shared)?;
    let mut beginning = Beginning::new(&handle, cause).await?;
    match beginning.carry_out(slot).await {
        // A stored input must not be reported as failed, because the caller would send it again.
        Err(error) if beginning.seq > Seq::ZERO => {
            warn!(session = %handle.id(), %error, "the input is stored; the holder could not be replaced");
            Ok(Begun { run: None, seq: beginning.seq })
        }
        other => other,
    }
}

/// Beginning of a run that is in progress.
struct Beginning<'a> {
    handle: &'a SessionRef,
    /// Record on which the next attempt is based.
    now: Arc<SessionRecord>,
    /// What is not done yet of the cause: each part is taken when it is stored, or when it is known to be in vain.
    cause: Cause,
    /// Sequence number of the last stored input or answer.
    seq: Seq,
    /// True if a suspended session is to be resumed.
    resume: bool,
    /// True if the record possibly has room for the provider and model references.
    has_room: bool,
    /// What the workspace says, read once.
    theirs: Option<Theirs>,
}

/// Parts of the first commit that may be refused although the rest is valid.
#[derive(Clone, Copy)]
struct Extras {
    /// The commit resumes a suspended session.
    resumes: bool,
    /// The commit records the provider and the model.
    says: bool,
    /// The commit stores the configuration.
    freezes: bool,
}

/// Next step after an attempt.
enum Next {
    /// A run was begun.
    Start(Epoch, Box<Committed>),
    /// Another attempt is needed.
    Again,
    /// No run may start.
    Wait,
}

impl<'a> Beginning<'a> {
    async fn new(handle: &'a SessionRef, mut cause: Cause) -> Result<Self> {
        let mut now = handle.record();
        // A running session waits for no answer; the commit refuses one.
        if now.status.state == SessionState::Running && cause.expired.is_none() && cause.answer.is_none() {
            now = handle.refresh().await?;
            cause.expired = dead_holder(handle, &now).await;
        }
        let resume = handle.runtime().shared.config.resume_on_prompt && !cause.inputs.is_empty();
        Ok(Self { handle, now, cause, seq: Seq::ZERO, resume, has_room: true, theirs: None })
    }

    async fn carry_out(&mut self, slot: RunPermit) -> Result<Begun> {
        let runtime = self.handle.runtime();
        for attempt in 1.. {
            let run = runtime.effects().new_run_id();
            let (commit, extras) = self.seal(run).await?;
            // Until the run is registered, or has not begun.
            let _beginning = runtime.shared.runs.active.begin(run);
            let next = match runtime.storage.sessions.commit_new_with_retry(commit).await {
                Ok(committed) => {
                    self.created(&committed.session).await?;
                    self.stored(committed, run, attempt).await
                }
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

    /// Returns the commit of the next attempt.
    async fn seal(&mut self, run: RunId) -> Result<(Commit, Extras)> {
        let runtime = self.handle.runtime();
        let (shared, now) = (&runtime.shared, self.now.clone());
        let mut commit = match &self.cause.create {
            Some((new, events)) => Commit::create(runtime.effects(), new.clone()).with_events(events.clone()),
            None => runtime.storage.sessions.seal(now.id, now.head),
        };
        if let Some(epoch) = self.cause.expired {
            commit = commit.with_trigger(if self.cause.unattended {
                let ready_at = shared.config.retry.ready_at(runtime.effects().now(), now.attempts, None);
                Trigger::run_lost(epoch, ready_at, shared.config.retry.limit)
            } else {
                Trigger::LeaseExpired(epoch)
            });
        }
        if let Some(action) = self.cause.overdue.clone() {
            commit = commit.with_trigger(Trigger::ActionTimeout(action));
        }
        let says = self.opening().await?;
        let extras = Extras {
            resumes: self.resume && now.status.state == SessionState::Suspended,
            says: !says.is_empty(),
            freezes: !says.is_empty() && freezes(&shared.config, &now),
        };
        let said = self.cause.inputs.iter().cloned().map(|input| NewEvent::from(runtime.fit_input(input)));
        commit = commit.with_events(says).with_events(said).with_events(self.cause.answer.clone());
        if extras.resumes {
            commit = commit.with_trigger(Trigger::Resume);
        }
        let lease =
            LeaseRequest::new(shared.config.holder.clone(), run).with_ttl(runtime.lease_ttl()).if_ready();
        Ok((commit.with_trigger(Trigger::BeginRun(lease)), extras))
    }

    /// Returns the first events of the run, if a run is likely to begin.
    async fn opening(&mut self) -> Result<Vec<NewEvent>> {
        let likely = match self.now.status.state {
            SessionState::Running => self.cause.expired.is_some(),
            SessionState::Queued => true,
            _ => !self.cause.inputs.is_empty() || self.cause.answer.is_some() || self.cause.overdue.is_some(),
        };
        if !likely {
            return Ok(Vec::new());
        }
        let runtime = self.handle.runtime();
        if self.theirs.is_none() && asks_workspace(&self.now) {
            self.theirs = Some(theirs(runtime, &self.now).await?);
        }
        if !self.has_room {
            return Ok(Vec::new());
        }
        opening(
            &runtime.shared,
            &self.now,
            self.theirs.as_ref().and_then(|theirs| theirs.provider.as_deref()),
        )
    }

    /// Returns the next step after a commit that was refused; the error, if there is none.
    async fn refused(&mut self, error: Error, extras: Extras, attempt: usize) -> Result<Next> {
        use ErrorKind::{Conflict, InvalidInput, InvalidTransition, LimitExceeded};
        let may_try = attempt < ATTEMPTS;
        match error.kind() {
            // Another caller created the session first.
            Conflict { .. } if self.cause.create.is_some() => return Err(error),
            // Another process took over first, or the holder is alive.
            Conflict { .. } | InvalidTransition { .. } if self.cause.expired.is_some() && may_try => {
                self.now = self.handle.refresh().await?;
                self.cause.expired = dead_holder(self.handle, &self.now).await;
                return Ok(Next::Again);
            }
            // Another caller resumed the session first.
            InvalidTransition { .. } if extras.resumes => self.resume = may_try,
            // The answer came first.
            InvalidInput | InvalidTransition { .. } if self.cause.overdue.take().is_some() => {}
            // Another host stored the configuration first.
            Conflict { .. } if extras.freezes && may_try => {}
            // A full record must not prevent the input from being stored.
            LimitExceeded if extras.says && error.write_outcome() == WriteOutcome::NotApplied => {
                self.has_room = false;
                return Ok(Next::Again);
            }
            _ => return Err(error),
        }
        self.now = self.handle.refresh().await?;
        Ok(Next::Again)
    }

    /// Checks, if the commit created the session, that its workspace is still in use.
    async fn created(&mut self, session: &SessionRecord) -> Result<()> {
        if self.cause.create.take().is_none() {
            return Ok(());
        }
        match self.handle.runtime().workspaces.confirm_created(session).await {
            Err(error) if !matches!(error.kind(), ErrorKind::Deleted | ErrorKind::Busy { .. }) => {
                // A stored input must not be reported as failed.
                warn!(session = %session.id, %error, "the workspace of a new session could not be read");
                Ok(())
            }
            confirmed => confirmed,
        }
    }

    /// Returns the next step after a commit that is stored.
    async fn stored(&mut self, committed: Committed, run: RunId, attempt: usize) -> Next {
        self.handle.cache_record(&committed.session);
        let said = !self.cause.inputs.is_empty() || self.cause.answer.is_some();
        if said {
            self.seq = committed.last;
            (self.cause.inputs, self.cause.answer) = (Arc::default(), None);
        }
        let own = |lease: &&Lease| lease.run == run;
        let epoch = committed.epoch.or_else(|| committed.session.lease.as_ref().filter(own).map(|l| l.epoch));
        if let Some(epoch) = epoch {
            return Next::Start(epoch, Box::new(committed));
        }
        self.cause.overdue = None;
        self.now = self.handle.record();
        // This commit may be the first to see that the session is suspended.
        if self.resume && self.now.status.state == SessionState::Suspended && attempt < ATTEMPTS {
            return Next::Again;
        }
        // This commit may be the first to see a holder; a dead one allows another attempt.
        self.cause.expired = dead_holder(self.handle, &self.now).await;
        if self.cause.expired.is_some() && attempt < ATTEMPTS { Next::Again } else { Next::Wait }
    }

    fn start(&mut self, slot: RunPermit, run: RunId, epoch: Epoch, committed: Committed) -> Run {
        if self.cause.expired.is_some() {
            info!(session = %self.handle.id(), %epoch, "took over from a holder that was dead or expired");
        }
        let (sender, updates) = UpdateSender::new();
        let (sender, cancel, handle) = (Arc::new(sender), watch::Sender::new(false), self.handle.clone());
        let runtime = handle.runtime();
        let at = (&runtime.lines, handle.id());
        let registration = runtime.shared.runs.active.register(at, (run, epoch), &sender, cancel.clone());
        let mut driver = Driver::new(handle, run, epoch, committed.session, sender, cancel.subscribe());
        (driver.unattended, driver.theirs) = (self.cause.unattended, self.theirs.take());
        tokio::spawn(driver.run(slot, registration));
        Run::started(self.handle.id(), run, updates, cancel)
    }
}
