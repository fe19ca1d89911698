//! For backends: open state of a store, and its running operations.

use std::sync::Arc;

use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore, watch};

use crate::base::{Error, Result};

/// Number of operations above what any store runs at once; the maximum that one request of a semaphore can acquire.
const MOST: u32 = u32::MAX >> 3;

/// State of a store that can be closed: open, closing or closed. Clones share it.
///
/// A backend keeps one state for all of its tenants, starts each operation with [`begin`](Self::begin), and
/// implements its `close` with [`close`](Self::close).
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
/// use agent_core::{ErrorKind, OpenState};
///
/// let state = OpenState::new("the store in memory");
/// let operation = state.begin()?;
/// drop(operation);
/// state.close(async { Ok(()) }).await?;
/// let error = state.begin().unwrap_err();
/// assert_eq!(*error.kind(), ErrorKind::Unavailable);
/// assert_eq!(error.to_string(), "the store in memory was closed; open it again");
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct OpenState(Arc<State>);

#[derive(Debug)]
struct State {
    /// Name of the store, for errors.
    name: Box<str>,
    closed: watch::Sender<bool>,
    operations: Arc<Semaphore>,
    /// True if the work of closing is done. Locked while that work runs.
    done: Mutex<bool>,
}

/// Running operation on an open store. [`OpenState::close`] waits until it is dropped.
///
/// Hold it in code that runs to its end by itself, such as a thread, and not across an `.await` of the caller: a
/// future that is not polled would make `close` wait.
#[derive(Debug)]
#[must_use = "the operation ends when this is dropped"]
pub struct Operating(#[allow(dead_code, reason = "it is held, not read")] OwnedSemaphorePermit);

impl OpenState {
    /// Creates the state of an open store. `name` names the store in errors.
    pub fn new(name: impl Into<String>) -> Self {
        Self(Arc::new(State {
            name: name.into().into(),
            closed: watch::Sender::new(false),
            operations: Arc::new(Semaphore::new(MOST as usize)),
            done: Mutex::default(),
        }))
    }

    /// Checks that the store is open.
    ///
    /// # Errors
    ///
    /// `Unavailable` if the store is closing or closed.
    pub fn check(&self) -> Result<()> {
        if *self.0.closed.borrow() { Err(self.error()) } else { Ok(()) }
    }

    /// Starts an operation, which ends when the guard is dropped.
    ///
    /// # Errors
    ///
    /// `Unavailable` if the store is closing or closed; nothing was done then.
    pub fn begin(&self) -> Result<Operating> {
        self.check()?;
        // None is left only while the store is closing.
        self.0.operations.clone().try_acquire_owned().map(Operating).map_err(|_| self.error())
    }

    /// Waits until the store begins to close, and returns the error for operations that wait for something else until
    /// then. Cancel safe.
    pub async fn closed(&self) -> Error {
        // The sender is here, so waiting cannot fail.
        let _ = self.0.closed.subscribe().wait_for(|closed| *closed).await;
        self.error()
    }

    /// Refuses new operations, waits for the running ones, then does the `work` of closing. Does nothing if closing
    /// succeeded before.
    ///
    /// # Cancel safety
    ///
    /// After the first poll no operation starts any more. If the future is dropped before it returns, `close` may be
    /// called again, and waits and works from the start.
    ///
    /// # Errors
    ///
    /// Those of `work`.
    pub async fn close(&self, work: impl Future<Output = Result<()>>) -> Result<()> {
        self.0.closed.send_replace(true);
        let mut done = self.0.done.lock().await;
        if !*done {
            // The semaphore is never closed, so waiting cannot fail.
            let _all = self.0.operations.acquire_many(MOST).await;
            work.await?;
            *done = true;
        }
        Ok(())
    }

    fn error(&self) -> Error {
        Error::unavailable(format!("{} was closed; open it again", self.0.name))
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;
    use crate::base::ErrorKind;

    /// Closing waits for what has begun, refuses what comes later, and does its work once.
    #[tokio::test]
    async fn close_waits_for_running_and_refuses_new_calls() {
        let state = OpenState::new("the store");
        let operation = state.begin().unwrap();
        let mut close = Box::pin(state.close(async { Ok(()) }));
        assert!((&mut close).now_or_never().is_none());
        assert_eq!(*state.begin().unwrap_err().kind(), ErrorKind::Unavailable);
        assert!(state.closed().await.to_string().starts_with("the store was closed"));
        drop(operation);
        close.await.unwrap();
        let again = state.close(async { panic!("done already") });
        again.await.unwrap();
    }

    /// Closing that was dropped, or that failed, can be done again.
    #[tokio::test]
    async fn dropped_close_can_be_repeated() {
        let state = OpenState::new("the store");
        let operation = state.begin().unwrap();
        {
            let mut close = Box::pin(state.close(async { Ok(()) }));
            assert!((&mut close).now_or_never().is_none());
        }
        assert!(state.begin().is_err(), "it stays closed");
        drop(operation);
        let failed = state.close(async { Err(Error::new(ErrorKind::Full, "no room")) });
        assert_eq!(*failed.await.unwrap_err().kind(), ErrorKind::Full);
        state.close(async { Ok(()) }).await.unwrap();
    }
}
