//! Async layer: runs the synchronous core on threads that may block.

use agent_core::{Error, ErrorKind, OpenState, Result, WriteOutcome};
use tracing::Span;

/// Runs `work` to its end on a thread that may block, even if the caller is dropped.
pub(crate) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
    let span = Span::current();
    let done = tokio::task::spawn_blocking(move || span.in_scope(work)).await;
    done.map_err(|source| {
        if source.is_cancelled() {
            return Error::unavailable("the runtime is shutting down; open the store in another");
        }
        Error::new(ErrorKind::Poisoned, "the file store failed unexpectedly; open it again")
            .with_outcome(WriteOutcome::Unknown)
    })
}

/// Like [`blocking`], for work on a store, which is refused once the store is closed.
pub(crate) async fn working<T: Send + 'static>(
    open: &OpenState,
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let open = open.clone();
    blocking(move || {
        let _working = open.begin()?;
        work()
    })
    .await?
}

/// Drops what closing may write files for, on a thread that may block. Closing the store waits for that.
pub(crate) fn drop_aside<T: Send + 'static>(open: &OpenState, gone: Vec<T>) {
    if gone.is_empty() {
        return;
    }
    let working = open.begin();
    let work = move || {
        drop(gone);
        drop(working);
    };
    match tokio::runtime::Handle::try_current() {
        Ok(runtime) => drop(runtime.spawn_blocking(work)),
        Err(_) => work(),
    }
}
