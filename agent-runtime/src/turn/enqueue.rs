//! Storing of an input: queued with other inputs that wait for the session, and stored together with them.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::sync::oneshot::error::RecvError;
use tokio::time::{Instant, sleep, timeout};
use tracing::Instrument;

use crate::run::handle::{Begun, Input};
use crate::run::queue::{Told, Waiting};
use crate::turn::begin::{Cause, begin};
use crate::turn::session_ref::SessionRef;
use agent_core::event::NewEvent;
use agent_core::{Error, ErrorKind, Result, Seq, SessionId, WriteOutcome};

/// Maximum time that an input waits in a queue that makes no progress before it is stored alone. Longer than a store
/// keeps a caller waiting by default.
const PATIENCE: Duration = Duration::from_secs(60);

/// Maximum wait for a caller that stores this input with its own. After that it is unknown whether the input is stored.
const OUTCOME: Duration = Duration::from_secs(600);

/// Begins a run in its own task, so that a caller that drops the future leaves no lease without a run.
pub(crate) async fn apart<T: Send + 'static>(
    id: SessionId,
    beginning: impl Future<Output = Result<T>> + Send + 'static,
) -> Result<T> {
    let begun = tokio::spawn(beginning.in_current_span()).await;
    begun.unwrap_or_else(|failed| Err(cut_off(id).with_source(failed)))
}

/// Begins a run in a task of its own, like [`apart`].
pub(crate) async fn begin_apart(handle: &SessionRef, cause: Cause) -> Result<Begun> {
    apart(handle.id(), begin(handle.clone(), cause)).await
}

/// Stores an input, together with others that wait for the session. With `starts`, a run is started if one may start:
/// one caller receives it, and it answers all of the inputs.
pub(crate) async fn say(handle: SessionRef, input: Input, starts: bool) -> Result<Begun> {
    let handle = &handle;
    let line = handle.line();
    if line.is_stuck() {
        return store_together(handle, [input].into(), starts).await;
    }
    let (told, mut outcome) = oneshot::channel();
    let place = line.join(input, starts, told);
    let patience = sleep(PATIENCE);
    tokio::pin!(patience);
    let mut taken = line.taken();
    loop {
        tokio::select! {
            biased;
            // An earlier caller stored it with its own input.
            told = &mut outcome => return heard(handle, told),
            _turn = line.turn() => store(handle, line.take(), place).await,
            () = &mut patience => {
                if line.taken() == taken {
                    break;
                }
                taken = line.taken();
                patience.as_mut().reset(Instant::now() + PATIENCE);
            }
        }
    }
    // The caller that holds the lock is probably not polled any more: its tokio runtime may have ended.
    line.give_up();
    match line.leave(place) {
        Some(Waiting { input, .. }) => store_together(handle, [input].into(), starts).await,
        None => match timeout(OUTCOME, outcome).await {
            Ok(told) => heard(handle, told),
            Err(_) => Err(cut_off(handle.id())),
        },
    }
}

fn heard(handle: &SessionRef, told: Result<Told, RecvError>) -> Result<Begun> {
    let (outcome, now) = told.map_err(|_| cut_off(handle.id()))?;
    handle.cache_record(&now);
    outcome
}

/// Stores inputs in one commit, and sends each caller its result. A run continues even if its caller has dropped the
/// future. The caller at `place` receives the run, which its tokio runtime executes, if that caller is in the batch;
/// otherwise the first caller receives it.
async fn store(handle: &SessionRef, batch: Vec<Waiting>, place: u64) {
    let Some(first) = batch.first() else { return };
    let (starts, begun_at) = (first.starts, Instant::now());
    let runs = batch.iter().position(|one| one.place == place).unwrap_or(0);
    let (inputs, callers): (Vec<_>, Vec<_>) = batch.into_iter().map(|one| (one.input, one.told)).unzip();
    let (inputs, count): (Arc<[Input]>, _) = (inputs.into(), callers.len());
    match store_together(handle, inputs.clone(), starts).await {
        Ok(Begun { mut run, seq: last }) => {
            for (at, told) in callers.into_iter().enumerate() {
                let run = run.take_if(|_| at == runs);
                let behind = (count - 1 - at) as u64;
                let begun = Begun { run, seq: Seq::new(last.get().saturating_sub(behind)) };
                drop(told.send((Ok(begun), handle.record())));
            }
        }
        Err(error) if count > 1 && is_of_one(&error) => {
            let mut late = None;
            for (input, told) in inputs.iter().zip(callers) {
                let alone = match &late {
                    None => store_together(handle, [input.clone()].into(), starts).await,
                    Some(error) => Err(not_tried(error)),
                };
                late = late.or_else(|| alone.as_ref().err().filter(|error| error.is_timeout()).cloned());
                drop(told.send((alone, handle.record())));
            }
        }
        Err(error) => {
            // Inputs that waited as long as this batch fail too, so that their callers do not wait as long again.
            let late = match error.is_timeout() {
                true => handle.line().take_late(begun_at.elapsed()),
                false => Vec::new(),
            };
            for told in callers {
                drop(told.send((Err(error.clone()), handle.record())));
            }
            for one in late {
                drop(one.told.send((Err(not_tried(&error)), handle.record())));
            }
        }
    }
}

/// Returns the error of others for an input that was not tried because of that error.
fn not_tried(error: &Error) -> Error {
    error.clone().with_outcome(WriteOutcome::NotApplied)
}

async fn store_together(handle: &SessionRef, inputs: Arc<[Input]>, starts: bool) -> Result<Begun> {
    if starts {
        return begin(handle.clone(), Cause { inputs, ..Cause::default() }).await;
    }
    let events = inputs.iter().cloned().map(|input| NewEvent::from(handle.runtime().fit_input(input)));
    let committed = handle.commit(handle.seal().with_events(events)).await?;
    Ok(Begun { run: None, seq: committed.last })
}

/// Returns whether one input may be the cause of the error and the others not.
fn is_of_one(error: &Error) -> bool {
    let at_fault = matches!(error.kind(), ErrorKind::InvalidInput | ErrorKind::LimitExceeded);
    at_fault && error.write_outcome() == WriteOutcome::NotApplied
}

/// Returns the error for an input, or for the beginning of a run, whose task was lost: the outcome is unknown.
pub(crate) fn cut_off(id: SessionId) -> Error {
    let text = format!(
        "session {id}: the task of this call was lost; load the session to see whether the call took effect"
    );
    Error::unavailable(text).with_outcome(WriteOutcome::Unknown)
}
