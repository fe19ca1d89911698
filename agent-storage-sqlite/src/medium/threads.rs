//! Threads of a store, which end when it is closed.

use std::sync::{Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use agent_core::{Error, Result};

/// Threads that were started and have not been joined yet.
#[derive(Debug, Default)]
pub(crate) struct Threads(Mutex<Vec<JoinHandle<()>>>);

impl Threads {
    /// Starts a thread. `to` is its purpose, for the error text.
    pub(crate) fn spawn(&self, name: &str, to: &str, run: impl FnOnce() + Send + 'static) -> Result<()> {
        // Started under the lock, so that a caller that waits for all threads sees this one, or comes before it.
        let mut threads = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let thread = thread::Builder::new().name(name.to_owned()).spawn(run).map_err(|source| {
            Error::unavailable(format!("the system gives no thread to {to}; try again")).with_source(source)
        })?;
        threads.retain(|thread| !thread.is_finished());
        threads.push(thread);
        Ok(())
    }

    /// Waits until all started threads have ended, except the calling one. They must have been asked to end before.
    pub(crate) fn join(&self) {
        let threads = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        // A thread may drop the last handle of the store, with the task of a caller that it wakes.
        for thread in threads.into_iter().filter(|thread| thread.thread().id() != thread::current().id()) {
            // A panic of the thread was reported to the caller that waited for its answer.
            let _ = thread.join();
        }
    }
}
