//! Queue of inputs that wait for one session in this process. Inputs that wait together are stored in one commit, so
//! many inputs cost few commits and each waits for few commits only.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::{Mutex as Turn, MutexGuard as TurnGuard, oneshot};
use tokio::time::Instant;

use crate::run::handle::{Begun, Input};
use agent_core::event::Message;
use agent_core::session::SessionRecord;
use agent_core::{Result, SessionId};

/// Maximum number of inputs in one commit.
const TOGETHER: usize = 256;
/// Maximum bytes of the inputs in one commit; a larger input is stored alone.
const TOGETHER_BYTES: usize = 1 << 20;

/// Queues of the sessions for which this process has handles.
#[derive(Debug, Default)]
pub(crate) struct Lines(Mutex<HashMap<SessionId, Weak<Line>>>);

impl Lines {
    /// Returns the queue of a session; all handles of the session share it.
    pub(crate) fn of(&self, id: SessionId) -> Arc<Line> {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(line) = lines.get(&id).and_then(Weak::upgrade) {
            return line;
        }
        if lines.len() == lines.capacity() {
            // Before the table grows, queues without handles are removed.
            lines.retain(|_, line| line.strong_count() > 0);
            let left = lines.len();
            lines.reserve(left.max(16));
        }
        let line = Arc::new(Line::default());
        lines.insert(id, Arc::downgrade(&line));
        line
    }
}

/// Queue of one session.
#[derive(Debug, Default)]
pub(crate) struct Line {
    waiting: Mutex<Queue>,
    /// Lock that is held by the caller that stores the waiting inputs.
    turn: Turn<()>,
    /// True if a caller timed out waiting for the lock. While the lock is held, no other caller then waits for it.
    stuck: AtomicBool,
}

#[derive(Debug, Default)]
struct Queue {
    inputs: VecDeque<Waiting>,
    /// Number of inputs that ever joined.
    joined: u64,
    /// Number of times that inputs were taken.
    taken: u64,
}

/// Result of an input, and the session record at that time.
pub(crate) type Told = (Result<Begun>, Arc<SessionRecord>);

/// Input in the queue.
#[derive(Debug)]
pub(crate) struct Waiting {
    /// Position among all inputs that ever joined.
    pub(crate) place: u64,
    since: Instant,
    pub(crate) input: Input,
    /// True if a run must start for the input.
    pub(crate) starts: bool,
    pub(crate) told: oneshot::Sender<Told>,
}

impl Line {
    fn waiting(&self) -> MutexGuard<'_, Queue> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an input at the end of the queue. Returns its position.
    pub(crate) fn join(&self, input: Input, starts: bool, told: oneshot::Sender<Told>) -> u64 {
        let mut waiting = self.waiting();
        waiting.joined += 1;
        let place = waiting.joined;
        waiting.inputs.push_back(Waiting { place, since: Instant::now(), input, starts, told });
        place
    }

    /// Removes an input from the queue, unless it was taken.
    pub(crate) fn leave(&self, place: u64) -> Option<Waiting> {
        let mut waiting = self.waiting();
        let at = waiting.inputs.iter().position(|one| one.place == place)?;
        waiting.inputs.remove(at)
    }

    /// Takes the first inputs of the queue that have the same `starts` flag and fit in one commit; at least one, if any
    /// waits.
    pub(crate) fn take(&self) -> Vec<Waiting> {
        let mut waiting = self.waiting();
        waiting.taken += 1;
        // Inputs whose tokio runtime was shut down meanwhile have no caller any more.
        waiting.inputs.retain(|one| !one.told.is_closed());
        let starts = waiting.inputs.front().is_some_and(|one| one.starts);
        let mut bytes = 0_usize;
        let fits = waiting.inputs.iter().take(TOGETHER).take_while(|one| {
            let Message { text, metadata, .. } = &one.input.message;
            bytes = bytes.saturating_add(text.len() + metadata.size_bytes());
            bytes <= TOGETHER_BYTES && one.starts == starts
        });
        let count = fits.count().max(1).min(waiting.inputs.len());
        waiting.inputs.drain(..count).collect()
    }

    /// Takes the inputs that have waited for at least half of `time`.
    pub(crate) fn take_late(&self, time: Duration) -> Vec<Waiting> {
        let mut waiting = self.waiting();
        let late = waiting.inputs.iter().take_while(|one| one.since.elapsed() >= time / 2).count();
        waiting.inputs.drain(..late).collect()
    }

    /// Returns the number of times that inputs were taken; the queue makes progress as long as it grows.
    pub(crate) fn taken(&self) -> u64 {
        self.waiting().taken
    }

    /// Waits for the lock of the queue.
    pub(crate) async fn turn(&self) -> TurnGuard<'_, ()> {
        self.turn.lock().await
    }

    /// Records that a caller timed out waiting for the lock.
    pub(crate) fn give_up(&self) {
        self.stuck.store(true, Ordering::Relaxed);
    }

    /// Returns whether the lock is held by a caller for which another caller waited in vain.
    pub(crate) fn is_stuck(&self) -> bool {
        if self.stuck.load(Ordering::Relaxed) && self.turn.try_lock().is_ok() {
            self.stuck.store(false, Ordering::Relaxed);
        }
        self.stuck.load(Ordering::Relaxed)
    }
}
