//! How a run begins: the input and the lease in one commit, and the take-over from a holder that is gone.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use tracing::{debug, info, warn};

use crate::runtime::agent::{Slot, shutting_down};
use crate::runtime::driver::Driver;
use crate::runtime::report::Stored;
use crate::runtime::run::{Input, Run};
use crate::runtime::session_ref::SessionRef;
use crate::runtime::settings::{Theirs, asks_workspace, freezes, opening, workspace_provider};
use crate::runtime::stop::is_set;
use crate::runtime::updates::updates;
use agent_core::commit::{Commit, Committed, LeaseRequest, Trigger};
use agent_core::event::NewEvent;
use agent_core::model::{ActionId, Lease};
use agent_core::session::Session;
use agent_core::state::SessionState;
use agent_core::{Epoch, ErrorKind, Result, Seq, SessionStoreExt};

/// How often a beginning that somebody else was quicker with is tried again.
const ATTEMPTS: usize = 4;

/// What a run is to be begun for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cause {
    /// What a person says.
    pub(crate) input: Option<Input>,
    /// The answer to what the session waits for.
    pub(crate) answer: Option<NewEvent>,
    /// The lease of a holder that is known to be gone.
    pub(crate) expired: Option<Epoch>,
    /// What the session waits for, and is given up now.
    pub(crate) overdue: Option<ActionId>,
    /// Nobody waits for the outcome: a run that fails is tried again.
    pub(crate) unattended: bool,
}

/// What came of a beginning.
#[derive(Debug)]
pub(crate) enum Begun {
    /// A run.
    Run(Run),
    /// None may start; an input or an answer, if there was one, is stored at `seq`.
    Waiting(Seq),
}

/// Stores the input, if there is one, and starts a run where one may start.
pub(crate) async fn begin(handle: &SessionRef, cause: Cause) -> Result<Begun> {
    let mut seq = Seq::ZERO;
    match try_begin(handle, cause, &mut seq).await {
        // An input that is stored must not look as if it were not: it would be sent again.
        Err(error) if seq > Seq::ZERO => {
            warn!(session = %handle.id(), %error, "the input is stored; the holder could not be replaced");
            Ok(Begun::Waiting(seq))
        }
        other => other,
    }
}

/// Notes in `seq` where the input is stored, as soon as it is.
async fn try_begin(handle: &SessionRef, cause: Cause, seq: &mut Seq) -> Result<Begun> {
    let Cause { mut input, mut answer, mut expired, mut overdue, unattended } = cause;
    let runtime = handle.runtime();
    let slot = Slot::admit(&runtime.shared)?;
    let (shared, sessions) = (&runtime.shared, &runtime.storage.sessions);
    let mut now = handle.snapshot();
    // A session that is run waits for no answer; the commit says so.
    if now.status.state == SessionState::Running && expired.is_none() && answer.is_none() {
        now = handle.refresh().await?;
        expired = dead_holder(handle, &now).await;
    }
    let mut resume = shared.config.resume_on_prompt && input.is_some();
    let mut say_provider = true;
    // What the workspace chooses, looked up once.
    let mut theirs = None;
    for attempt in 1.. {
        let run = shared.effects.new_run_id();
        let lease =
            LeaseRequest::new(shared.config.holder.clone(), run).ttl(shared.config.lease_ttl).if_ready();
        let mut commit = Commit::seal(&shared.effects, handle.id(), now.head);
        if let Some(epoch) = expired {
            commit = commit.trigger(if unattended {
                let retry = shared.config.retry;
                let ready_at = retry.ready_at(shared.effects.now(), now.attempts);
                Trigger::run_lost(epoch, ready_at, retry.limit)
            } else {
                Trigger::LeaseExpired(epoch)
            });
        }
        if let Some(action) = overdue.clone() {
            commit = commit.trigger(Trigger::ActionTimeout(action));
        }
        let likely = match now.status.state {
            SessionState::Running => expired.is_some(),
            SessionState::Queued => true,
            _ => input.is_some() || answer.is_some() || overdue.is_some(),
        };
        if likely && theirs.is_none() && asks_workspace(&now) {
            theirs = Some(workspace_provider(runtime, &now).await?);
        }
        let says = match likely && say_provider {
            true => opening(shared, &now, theirs.as_ref().and_then(Option::as_deref))?,
            false => Vec::new(),
        };
        let (says_provider, freezes) = (!says.is_empty(), !says.is_empty() && freezes(&shared.config, &now));
        for event in says {
            commit = commit.event(event);
        }
        if let Some(Input { message, actor }) = input.clone() {
            commit = commit.event(NewEvent::from(message).with_actor(actor));
        }
        commit = commit.events(answer.clone());
        let resumes = resume && now.status.state == SessionState::Suspended;
        if resumes {
            commit = commit.trigger(Trigger::Resume);
        }
        commit = commit.trigger(Trigger::BeginRun(lease));
        let committed = match sessions.settle(commit).await {
            Ok(committed) => committed,
            // Somebody else took over first, or the holder lives after all.
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::Conflict { .. } | ErrorKind::InvalidTransition { .. }
                ) && expired.is_some()
                    && attempt < ATTEMPTS =>
            {
                now = handle.refresh().await?;
                expired = dead_holder(handle, &now).await;
                continue;
            }
            // Somebody else let it go on.
            Err(error) if matches!(error.kind(), ErrorKind::InvalidTransition { .. }) && resumes => {
                resume = attempt < ATTEMPTS;
                now = handle.refresh().await?;
                continue;
            }
            // The answer came first.
            Err(error)
                if matches!(error.kind(), ErrorKind::InvalidInput | ErrorKind::InvalidTransition { .. })
                    && overdue.take().is_some() =>
            {
                now = handle.refresh().await?;
                continue;
            }
            // Another host wrote down the configuration first.
            Err(error)
                if matches!(error.kind(), ErrorKind::Conflict { .. }) && freezes && attempt < ATTEMPTS =>
            {
                now = handle.refresh().await?;
                continue;
            }
            // A record that is full must not keep a person from being heard.
            Err(error) if *error.kind() == ErrorKind::LimitExceeded && says_provider => {
                say_provider = false;
                continue;
            }
            Err(error) => return Err(error),
        };
        handle.note(&committed.session);
        if input.take().is_some() || answer.take().is_some() {
            *seq = committed.last;
        }
        let own = |lease: &&Lease| lease.run == run;
        let epoch = committed.epoch.or_else(|| committed.session.lease.as_ref().filter(own).map(|l| l.epoch));
        if let Some(epoch) = epoch {
            if expired.is_some() {
                info!(session = %handle.id(), %epoch, "took over from a holder that was gone");
            }
            return Ok(Begun::Run(start(handle, slot, run, epoch, committed, unattended, theirs)));
        }
        overdue = None;
        now = handle.snapshot();
        // That it was set aside may have been found only by this commit.
        if resume && now.status.state == SessionState::Suspended && attempt < ATTEMPTS {
            continue;
        }
        // The holder may have been found only by this commit; whether it is dead decides about one more.
        expired = dead_holder(handle, &now).await;
        if expired.is_none() || attempt >= ATTEMPTS {
            break;
        }
    }
    Ok(Begun::Waiting(*seq))
}

fn start(
    handle: &SessionRef,
    slot: Slot,
    run: agent_core::RunId,
    epoch: Epoch,
    committed: Committed,
    unattended: bool,
    theirs: Option<Theirs>,
) -> Run {
    let (sender, updates) = updates();
    let cancel = watch::Sender::new(false);
    let status = committed.session.status;
    let mut driver = Driver::new(handle.clone(), run, epoch, committed.session, sender, cancel.subscribe());
    (driver.unattended, driver.theirs) = (unattended, theirs);
    tokio::spawn(driver.run(slot));
    Run { updates, cancel, id: Some(run), stored: None, status }
}

/// The lease of the session's holder, where the store can prove that the holder is dead. One that cannot be looked at
/// is not: that must keep no input from being stored.
async fn dead_holder(handle: &SessionRef, now: &Session) -> Option<Epoch> {
    let lease = now.lease.as_ref().filter(|_| now.status.state == SessionState::Running)?;
    match handle.runtime().storage.sessions.pulse(handle.id(), lease.epoch).await {
        Ok(pulse) => pulse.dead.then_some(lease.epoch),
        Err(error) => {
            warn!(session = %handle.id(), epoch = %lease.epoch, %error, "the holder could not be looked at");
            None
        }
    }
}

/// What became of a holder that was watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Watched {
    /// It is gone: dead, or without a sign of life for a whole ttl.
    Gone(Epoch),
    /// It gave a sign of life.
    Alive,
    /// The session is no longer run by it.
    Released,
}

/// Watches the holder of a running session for a whole ttl, on this process's own clock; with `patience` for as long
/// as it lives.
pub(crate) async fn watch_holder(handle: &SessionRef, now: &Session, patience: bool) -> Result<Watched> {
    let sessions = &handle.runtime().storage.sessions;
    let Some(lease) = now.lease.as_ref().filter(|_| now.status.state == SessionState::Running) else {
        return Ok(Watched::Released);
    };
    let (epoch, ttl) = (lease.epoch, Duration::from_millis(lease.ttl_ms));
    let mut closing = handle.runtime().shared.runs.closing();
    let pause = (ttl / 16).clamp(Duration::from_millis(1), Duration::from_secs(1));
    let pulse = sessions.pulse(handle.id(), epoch).await?;
    if pulse.dead {
        return Ok(Watched::Gone(epoch));
    }
    let mut mark = (now.head, pulse.beat);
    let mut since = Instant::now();
    loop {
        tokio::select! {
            () = is_set(&mut closing) => return Err(shutting_down()),
            changed = sessions.changed(handle.id(), mark.0) => { changed?; }
            () = sleep(pause) => {}
        }
        let now = handle.refresh().await?;
        if now.lease.as_ref().is_none_or(|lease| lease.epoch != epoch) {
            return Ok(Watched::Released);
        }
        let pulse = sessions.pulse(handle.id(), epoch).await?;
        if pulse.dead {
            return Ok(Watched::Gone(epoch));
        }
        if (now.head, pulse.beat) != mark {
            if !patience {
                return Ok(Watched::Alive);
            }
            mark = (now.head, pulse.beat);
            since = Instant::now();
        } else if since.elapsed() >= ttl {
            debug!(session = %handle.id(), %epoch, "the holder gave no sign of life for a whole ttl");
            return Ok(Watched::Gone(epoch));
        }
    }
}

/// What a prompt is told that could start no run.
pub(crate) fn stored(now: &Session, seq: Seq) -> Stored {
    Stored { seq, holder: now.lease.as_ref().map(|lease| lease.holder.clone()), state: now.status.state }
}
