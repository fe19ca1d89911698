//! Calls into the host's code: a panic there ends the call, not what called it.
//!
//! Whatever the host implements is called through this module: [`called`] for what returns at once, [`isolated`] for what
//! is awaited. Both also catch a panic in a drop of what the host gave. A program that is built with `panic = "abort"` ends
//! all the same.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};

use futures::Stream;
use tracing::warn;

/// Calls the host's code; `None` if it panicked.
pub fn called<T>(work: impl FnOnce() -> T) -> Option<T> {
    // What the host shares between its calls is its own; of ours nothing is used again that a panic left half done.
    catch_unwind(AssertUnwindSafe(work)).map_err(drop_payload).ok()
}

/// Drops what a panic carried, which is the host's, too.
fn drop_payload(payload: Box<dyn std::any::Any + Send>) {
    if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        std::mem::forget(again);
    }
}

/// Starts the host's future, and gives what it gives; `None` if it panicked.
pub fn isolated<F: Future + Unpin>(start: impl FnOnce() -> F) -> Isolated<F> {
    Isolated(called(start))
}

/// What the host gave to be polled. It panics neither when it is polled nor when it is dropped.
#[derive(Debug)]
pub struct Isolated<T>(Option<T>);

impl<T> Isolated<T> {
    /// Isolates what the host gave.
    pub const fn new(theirs: T) -> Self {
        Self(Some(theirs))
    }

    /// Drops it; `false` if that panicked.
    pub fn end(&mut self) -> bool {
        match self.0.take() {
            Some(theirs) => called(move || drop(theirs)).is_some(),
            None => true,
        }
    }
}

impl<T> Drop for Isolated<T> {
    fn drop(&mut self) {
        if !self.end() {
            warn!("code of the host panicked when it was dropped");
        }
    }
}

impl<F: Future + Unpin> Future for Isolated<F> {
    type Output = Option<F::Output>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(theirs) = &mut self.0 else { return Poll::Ready(None) };
        called(|| Pin::new(theirs).poll(cx)).map_or(Poll::Ready(None), |polled| polled.map(Some))
    }
}

impl<S: Stream + Unpin> Stream for Isolated<S> {
    /// `None` for a panic.
    type Item = Option<S::Item>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Some(theirs) = &mut self.0 else { return Poll::Ready(None) };
        match called(|| Pin::new(theirs).poll_next(cx)) {
            Some(polled) => polled.map(|item| item.map(Some)),
            None => Poll::Ready(Some(None)),
        }
    }
}
