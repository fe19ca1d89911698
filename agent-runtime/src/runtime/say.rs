//! How an input is stored: in line with others that wait for the session, and together with them.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::sync::oneshot::error::RecvError;
use tokio::time::{Instant, sleep, timeout};

use crate::runtime::line::{Told, Waiting};
use crate::runtime::run::{Begun, Input};
use crate::runtime::session_ref::SessionRef;
use crate::runtime::turn::{Cause, begin};
use agent_core::commit::Commit;
use agent_core::event::NewEvent;
use agent_core::{Error, ErrorKind, Result, Seq, SessionId, SessionStoreExt, WriteOutcome};

/// How long an input waits in a line that does not move before it goes alone. Longer than a store keeps anybody waiting, unless it is told to.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long somebody who was taken along is waited for: nobody knows whether the input is stored if that is over.
const OUTCOME: Duration = Duration::from_secs(600);

/// Stores an input, together with others that wait for the session. With `starts` a run is started where one may start: one
/// caller gets it, and it answers them all.
pub(crate) async fn say(handle: &SessionRef, input: Input, starts: bool) -> Result<Begun> {
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
            // Whoever came before stored it with their own.
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
    // Whoever has the turn is not polled any more, as it seems: a host may have left the runtime that it was begun on.
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
    handle.note(&now);
    outcome
}

/// Stores inputs in one commit, and tells each caller what came of its own. A caller may be gone; a run goes on by itself
/// then. It is that of the caller at `place`, on whose runtime it goes on, if that is among them.
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
                drop(told.send((Ok(begun), handle.snapshot())));
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
                drop(told.send((alone, handle.snapshot())));
            }
        }
        Err(error) => {
            // Who has waited for those who waited in vain does not wait as long once more.
            let late = match error.is_timeout() {
                true => handle.line().take_late(begun_at.elapsed()),
                false => Vec::new(),
            };
            for told in callers {
                drop(told.send((Err(error.clone()), handle.snapshot())));
            }
            for one in late {
                drop(one.told.send((Err(not_tried(&error)), handle.snapshot())));
            }
        }
    }
}

/// The error of others, for who was not tried because of it.
fn not_tried(error: &Error) -> Error {
    error.clone().with_outcome(WriteOutcome::NotApplied)
}

async fn store_together(handle: &SessionRef, inputs: Arc<[Input]>, starts: bool) -> Result<Begun> {
    if starts {
        return begin(handle, Cause { inputs, ..Cause::default() }).await;
    }
    let runtime = handle.runtime();
    let commit = Commit::seal(&runtime.shared.effects, handle.id(), handle.snapshot().head);
    let commit = commit.events(inputs.iter().cloned().map(NewEvent::from));
    let committed = runtime.storage.sessions.settle_new(commit).await?;
    handle.note(&committed.session);
    Ok(Begun { run: None, seq: committed.last })
}

/// Whether one input may be at fault, and the others not.
fn is_of_one(error: &Error) -> bool {
    let at_fault = matches!(error.kind(), ErrorKind::InvalidInput | ErrorKind::LimitExceeded);
    at_fault && error.write_outcome() == WriteOutcome::NotApplied
}

/// Nobody knows what became of an input, or of the beginning of a run, whose task is gone.
pub(crate) fn cut_off(id: SessionId) -> Error {
    let text = format!("what was begun with session {id} was cut off; load the session again");
    Error::new(ErrorKind::Unavailable, text).with_outcome(WriteOutcome::Unknown)
}
