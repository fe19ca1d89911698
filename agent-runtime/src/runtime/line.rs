//! The line of inputs that wait for one session in this process. Those that wait together go in one commit, so that a
//! crowd of them costs a few commits and each waits for a few only.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::{Mutex as Turn, MutexGuard as TurnGuard, oneshot};
use tokio::time::Instant;

use crate::runtime::run::{Begun, Input};
use agent_core::event::Message;
use agent_core::session::Session;
use agent_core::{Result, SessionId};

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
            let left = lines.len();
            lines.reserve(left.max(16));
        }
        let line = Arc::new(Line::default());
        lines.insert(id, Arc::downgrade(&line));
        line
    }
}

/// The line of one session.
#[derive(Debug, Default)]
pub(crate) struct Line {
    waiting: Mutex<Queue>,
    /// Held by whoever stores what waits.
    turn: Turn<()>,
    /// Whether somebody waited for the turn in vain: then nobody else does, for as long as it is held.
    stuck: AtomicBool,
}

#[derive(Debug, Default)]
struct Queue {
    inputs: VecDeque<Waiting>,
    /// How many ever joined.
    joined: u64,
    /// How often some were taken.
    taken: u64,
}

/// What came of an input, and the record then.
pub(crate) type Told = (Result<Begun>, Arc<Session>);

/// An input in the line.
#[derive(Debug)]
pub(crate) struct Waiting {
    /// Its number, of all that ever joined.
    pub(crate) place: u64,
    since: Instant,
    pub(crate) input: Input,
    /// Whether a run is to start for it.
    pub(crate) starts: bool,
    pub(crate) told: oneshot::Sender<Told>,
}

impl Line {
    fn waiting(&self) -> MutexGuard<'_, Queue> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts an input at the end. Returns its place.
    pub(crate) fn join(&self, input: Input, starts: bool, told: oneshot::Sender<Told>) -> u64 {
        let mut waiting = self.waiting();
        waiting.joined += 1;
        let place = waiting.joined;
        waiting.inputs.push_back(Waiting { place, since: Instant::now(), input, starts, told });
        place
    }

    /// Takes an input out, if nobody has taken it.
    pub(crate) fn leave(&self, place: u64) -> Option<Waiting> {
        let mut waiting = self.waiting();
        let at = waiting.inputs.iter().position(|one| one.place == place)?;
        waiting.inputs.remove(at)
    }

    /// Takes those that are first in the line, want the same and fit in one commit; one at least, if any waits.
    pub(crate) fn take(&self) -> Vec<Waiting> {
        let mut waiting = self.waiting();
        waiting.taken += 1;
        // Those of a runtime that was shut down meanwhile are nobody's any more.
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

    /// Takes those that have waited for at least half of `time`.
    pub(crate) fn take_late(&self, time: Duration) -> Vec<Waiting> {
        let mut waiting = self.waiting();
        let late = waiting.inputs.iter().take_while(|one| one.since.elapsed() >= time / 2).count();
        waiting.inputs.drain(..late).collect()
    }

    /// Returns how often some were taken: as long as that grows, the line moves.
    pub(crate) fn taken(&self) -> u64 {
        self.waiting().taken
    }

    /// Waits for the turn.
    pub(crate) async fn turn(&self) -> TurnGuard<'_, ()> {
        self.turn.lock().await
    }

    /// Notes that whoever has the turn was waited for in vain.
    pub(crate) fn give_up(&self) {
        self.stuck.store(true, Ordering::Relaxed);
    }

    /// Returns whether the turn is held by somebody who was waited for in vain.
    pub(crate) fn is_stuck(&self) -> bool {
        if self.stuck.load(Ordering::Relaxed) && self.turn.try_lock().is_ok() {
            self.stuck.store(false, Ordering::Relaxed);
        }
        self.stuck.load(Ordering::Relaxed)
    }
}
