//! Threads of a store, which end when it is closed.

use std::sync::{Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use agent_core::{Error, ErrorKind, Result};

/// Threads that were started and not waited for yet.
#[derive(Debug, Default)]
pub(crate) struct Threads(Mutex<Vec<JoinHandle<()>>>);

impl Threads {
    /// Starts a thread. `to` says for what, in the error.
    pub(crate) fn spawn(&self, name: &str, to: &str, run: impl FnOnce() + Send + 'static) -> Result<()> {
        // Started under the lock, so that whoever waits for all sees it, or comes first.
        let mut threads = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let thread = thread::Builder::new().name(name.to_owned()).spawn(run).map_err(|source| {
            Error::new(ErrorKind::Unavailable, format!("the system gives no thread to {to}; try again"))
                .with_source(source)
        })?;
        threads.retain(|thread| !thread.is_finished());
        threads.push(thread);
        Ok(())
    }

    /// Waits until all that were started have ended, but for the thread that asks. They must have been told to end.
    pub(crate) fn join(&self) {
        let threads = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        // One of them may drop the last handle of the store, with the task of a caller that it wakes.
        for thread in threads.into_iter().filter(|thread| thread.thread().id() != thread::current().id()) {
            // What panicked there was told to whoever waited for its answer.
            let _ = thread.join();
        }
    }
}
