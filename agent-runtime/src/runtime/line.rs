//! The line of inputs that wait for one session in this process. Those that wait together go in one commit, so that a
//! crowd of them costs a few commits and each waits for a few only.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::oneshot;
use tokio::sync::oneshot::error::TryRecvError;

use crate::runtime::run::Input;
use crate::runtime::session_ref::SessionRef;
use crate::runtime::turn::{Begun, Cause, begin};
use agent_core::commit::Commit;
use agent_core::event::{Message, NewEvent};
use agent_core::session::Session;
use agent_core::{Error, ErrorKind, Result, Seq, SessionId, SessionStoreExt, WriteOutcome};

/// How many inputs go in one commit at most.
const TOGETHER: usize = 256;
/// How many bytes of what is said; a larger input goes alone.
const TOGETHER_BYTES: usize = 1 << 20;

/// The lines of the sessions that this process has handles of.
#[derive(Debug, Default)]
pub(crate) struct Lines(Mutex<HashMap<SessionId, Weak<Line>>>);

impl Lines {
    /// The line of a session: the same for all its handles.
    pub(crate) fn of(&self, id: SessionId) -> Arc<Line> {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(line) = lines.get(&id).and_then(Weak::upgrade) {
            return line;
        }
        if lines.len() == lines.capacity() {
            // Before the table grows: those that nobody has a handle of any more go.
            lines.retain(|_, line| line.strong_count() > 0);
        }
        let line = Arc::new(Line::default());
        lines.insert(id, Arc::downgrade(&line));
        line
    }
}

/// The line of one session.
#[derive(Debug, Default)]
pub(crate) struct Line {
    waiting: Mutex<VecDeque<Waiting>>,
    /// Held by whoever stores what waits.
    turn: tokio::sync::Mutex<()>,
}

/// What came of an input, and the record then.
type Told = (Result<Begun>, Arc<Session>);

/// An input in the line.
#[derive(Debug)]
struct Waiting {
    input: Input,
    /// Whether a run is to start for it.
    starts: bool,
    told: oneshot::Sender<Told>,
}

impl Line {
    /// Those that are first in the line, want the same and fit in one commit; one at least, if any waits.
    fn take(&self) -> Vec<Waiting> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let starts = waiting.front().is_some_and(|one| one.starts);
        let mut bytes = 0_usize;
        let fits = waiting.iter().take(TOGETHER).take_while(|one| {
            let Message { text, metadata, .. } = &one.input.message;
            bytes = bytes.saturating_add(text.len() + metadata.size_bytes());
            bytes <= TOGETHER_BYTES && one.starts == starts
        });
        let count = fits.count().max(1).min(waiting.len());
        waiting.drain(..count).collect()
    }

    fn take_all(&self) -> Vec<Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).drain(..).collect()
    }
}

/// Stores an input, together with others that wait for the session. With `starts` a run is started where one may start: one
/// caller gets it, and it answers them all.
pub(crate) async fn say(handle: &SessionRef, input: Input, starts: bool) -> Result<Begun> {
    let line = handle.line();
    let (told, mut outcome) = oneshot::channel();
    let waiting = Waiting { input, starts, told };
    line.waiting.lock().unwrap_or_else(PoisonError::into_inner).push_back(waiting);
    let _turn = line.turn.lock().await;
    loop {
        match outcome.try_recv() {
            // Whoever came before stored it with their own.
            Ok((outcome, now)) => {
                handle.see(&now);
                return outcome;
            }
            Err(TryRecvError::Closed) => return Err(cut_off(handle.id())),
            Err(TryRecvError::Empty) => store(handle, line.take()).await,
        }
    }
}

/// Stores inputs in one commit, and tells each caller what came of its own. A caller may be gone; a run goes on by itself
/// then.
async fn store(handle: &SessionRef, batch: Vec<Waiting>) {
    let starts = batch.first().is_some_and(|one| one.starts);
    let inputs = batch.iter().map(|one| one.input.clone()).collect();
    let behind = (0..batch.len() as u64).rev();
    match store_together(handle, inputs, starts).await {
        Ok(Begun { mut run, seq: last }) => {
            for (behind, one) in behind.zip(batch) {
                let begun = Begun { run: run.take(), seq: Seq::new(last.get().saturating_sub(behind)) };
                drop(one.told.send((Ok(begun), handle.snapshot())));
            }
        }
        Err(error) if batch.len() > 1 && is_of_one(error.kind()) => {
            for Waiting { input, told, .. } in batch {
                let alone = store_together(handle, vec![input], starts).await;
                drop(told.send((alone, handle.snapshot())));
            }
        }
        Err(error) => {
            // Who has waited for those who waited in vain does not wait as long once more.
            let late = if error.is_timeout() { handle.line().take_all() } else { Vec::new() };
            for one in batch {
                drop(one.told.send((Err(error.clone()), handle.snapshot())));
            }
            for one in late {
                let error = error.clone().with_outcome(WriteOutcome::NotApplied);
                drop(one.told.send((Err(error), handle.snapshot())));
            }
        }
    }
}

async fn store_together(handle: &SessionRef, inputs: Vec<Input>, starts: bool) -> Result<Begun> {
    if starts {
        return begin(handle, Cause { inputs, ..Cause::default() }).await;
    }
    let runtime = handle.runtime();
    let commit = Commit::seal(&runtime.shared.effects, handle.id(), handle.snapshot().head);
    let commit = commit.events(inputs.into_iter().map(NewEvent::from));
    let committed = runtime.storage.sessions.settle_new(commit).await?;
    handle.note(&committed.session);
    Ok(Begun { run: None, seq: committed.last })
}

/// Whether one input may be at fault, and the others not.
fn is_of_one(kind: &ErrorKind) -> bool {
    matches!(kind, ErrorKind::InvalidInput | ErrorKind::LimitExceeded)
}

/// Nobody knows what became of a beginning whose task is gone.
pub(crate) fn cut_off(id: SessionId) -> Error {
    let text = format!("the beginning of a run of session {id} was cut off; load the session again");
    Error::new(ErrorKind::Unavailable, text).with_outcome(WriteOutcome::Unknown)
}
