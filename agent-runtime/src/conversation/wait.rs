//! Waiting for the result of a queued input or answer, which the run of another process or an own run gives.

use std::time::Duration;

use tokio::time::sleep;

use crate::agent::runtime::shutting_down;
use crate::run::claim::{ANSWERS, Claim, no_input};
use crate::run::error::RunError;
use crate::run::report::{Queued, RunReport};
use crate::run::stop::is_set;
use crate::turn::begin::Cause;
use crate::turn::enqueue::begin_apart;
use crate::turn::session_ref::SessionRef;
use crate::turn::takeover::watch_holder;
use agent_core::model::ActionId;
use agent_core::session::SessionRecord;
use agent_core::state::SessionState;
use agent_core::store::ReadEvents;
use agent_core::{Epoch, Error, ErrorKind, Result, Seq};

/// Maximum time between two looks at a session without a run.
const PAUSE: Duration = Duration::from_secs(1);

/// Next step of a caller that waits.
enum Next {
    /// The log has the answer, or the reason for which there is none.
    Read,
    /// A run is active; wait for its end.
    Watch,
    /// Start a run; it gives up a pending action whose time limit has passed.
    Begin(Option<ActionId>),
    /// The session may not run for this time.
    Pause(Duration),
}

/// Waits until the input is answered; see [`Conversation::wait_for_answer`](crate::Conversation::wait_for_answer).
pub(crate) async fn wait_for_answer(handle: &SessionRef, queued: &Queued) -> Result<RunReport, RunError> {
    let (id, input) = (handle.id(), queued.seq);
    if queued.session != id {
        let text =
            format!("the input is queued in session {}, not in session {id}; open that one", queued.session);
        return Err(Error::invalid(text).into());
    }
    let (mut own, mut is_to_action) = (None, None);
    loop {
        let now = handle.refresh().await?;
        // What the record counts as done is read in the log, which also says what it is. The newest input is none.
        let is_open = input > now.inputs_done_through && now.status.state != SessionState::Deleted;
        if is_open && is_to_action.is_none() {
            is_to_action = Some(input != now.last_input && is_answer(handle, input).await?);
        }
        let next = match is_open && is_to_action == Some(true) {
            true => next_of_answer(handle, &now, input).await?,
            false => next(handle, &now, input)?,
        };
        let cause = match next {
            Next::Read => {
                let claim = Claim::read(&*handle.runtime().storage.sessions, &now, input).await?;
                return match own {
                    Some(ended) if run_of(&ended).is_some_and(|run| claim.run() == Some(run)) => ended,
                    _ => claim.report(&now),
                };
            }
            Next::Watch => match watch(handle, &now).await? {
                Some(epoch) => Cause { expired: Some(epoch), ..Cause::default() },
                None => continue,
            },
            Next::Begin(overdue) => Cause { overdue, ..Cause::default() },
            Next::Pause(time) => {
                pause(handle, now.head, time).await?;
                continue;
            }
        };
        match begin_apart(handle, cause).await?.run {
            Some(run) => match run.finish().await {
                // Another holder took the session over, and answers in its place.
                Err(RunError::Store(error)) if matches!(error.kind(), ErrorKind::Fenced { .. }) => {}
                Err(RunError::Store(error)) => return Err(error.into()),
                ended => own = Some(ended),
            },
            // Another caller was faster, or the session may not run now.
            None => pause(handle, handle.record().head.min(now.head), PAUSE).await?,
        }
    }
}

/// Returns the run whose end is known.
fn run_of(ended: &Result<RunReport, RunError>) -> Option<agent_core::RunId> {
    match ended {
        Ok(report) => report.run,
        Err(RunError::Failed(report)) => report.run,
        Err(_) => None,
    }
}

/// Returns the next step for an input by the session's record.
fn next(handle: &SessionRef, now: &SessionRecord, input: Seq) -> Result<Next, RunError> {
    if now.status.state == SessionState::Deleted {
        let text = format!("session {} was deleted; its input of event {input} has no answer", now.id);
        return Err(Error::deleted(text).into());
    }
    if input > now.last_input {
        return Err(no_input(now.id, input).into());
    }
    if input <= now.inputs_done_through {
        return Ok(Next::Read);
    }
    Ok(match now.status.state {
        SessionState::Running => Next::Watch,
        SessionState::Queued => of_queued(handle, now),
        SessionState::Initializing => Next::Pause(PAUSE),
        SessionState::Failed => Next::Read,
        SessionState::RequiresAction if input <= now.inputs_claimed_through => Next::Read,
        SessionState::RequiresAction if handle.overdue().is_some() => Next::Begin(handle.overdue()),
        _ => return Err(RunError::Queued(Queued::in_session(now, input))),
    })
}

/// Returns whether an event of the session's own log is the answer to a pending action.
async fn is_answer(handle: &SessionRef, seq: Seq) -> Result<bool> {
    let before = Seq::new(seq.get().saturating_sub(1));
    let read = ReadEvents::first(1).with_after(before);
    let page = handle.runtime().storage.sessions.read(handle.id(), read).await?;
    Ok(page.events.first().is_some_and(|event| event.seq == seq && ANSWERS.contains(&event.kind)))
}

/// Returns the next step for an answer to a pending action. The record does not say which answers are done; the log does.
async fn next_of_answer(handle: &SessionRef, now: &SessionRecord, answer: Seq) -> Result<Next, RunError> {
    let claim = Claim::read(&*handle.runtime().storage.sessions, now, answer).await?;
    Ok(match now.status.state {
        _ if claim.is_ended() => Next::Read,
        SessionState::Running => Next::Watch,
        SessionState::Queued => of_queued(handle, now),
        SessionState::Failed => Next::Read,
        _ => return Err(RunError::Queued(Queued::in_session(now, answer))),
    })
}

/// Returns the next step in a session whose work waits for a run.
fn of_queued(handle: &SessionRef, now: &SessionRecord) -> Next {
    let at = handle.runtime().effects().now();
    match now.ready_at.filter(|ready_at| *ready_at > at) {
        Some(ready_at) => {
            let micros = ready_at.as_micros().saturating_sub(at.as_micros());
            Next::Pause(Duration::from_micros(u64::try_from(micros).unwrap_or(0)).min(PAUSE))
        }
        None => Next::Begin(None),
    }
}

/// Waits until the active run has ended. Returns its epoch if its holder is dead or has lost its lease.
async fn watch(handle: &SessionRef, now: &SessionRecord) -> Result<Option<Epoch>> {
    let own = now.lease.as_ref().and_then(|lease| {
        let ended = handle.runtime().shared.runs.active.ended(lease.run)?;
        Some((ended, Duration::from_millis(lease.ttl_ms)))
    });
    let Some((mut ended, ttl)) = own else {
        return Ok(watch_holder(handle, now, true).await?.gone());
    };
    // A run of this process is awaited also in a shutdown, which gives it time. It may lose its lease unnoticed.
    tokio::select! {
        _ = ended.wait_for(|ended| *ended) => {}
        () = sleep(ttl) => {}
    }
    Ok(None)
}

/// Waits until the session has events after `seen`, at most for this time.
async fn pause(handle: &SessionRef, seen: Seq, time: Duration) -> Result<()> {
    let runtime = handle.runtime();
    let mut closing = runtime.shared.runs.closing();
    tokio::select! {
        () = is_set(&mut closing) => Err(shutting_down()),
        changed = runtime.storage.sessions.changed(handle.id(), seen) => changed.map(drop),
        () = sleep(time) => Ok(()),
    }
}
