//! Calls into the host's code. A panic there ends the call, not the caller.
//!
//! The library calls everything that the host implements through this module: [`called`] for synchronous code,
//! [`isolated`] for futures. Both also catch a panic in a drop of a value that the host gave. In a program built with
//! `panic = "abort"`, a panic still ends the process.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};

use futures::Stream;
use tracing::warn;

/// Calls the host's code and returns its result; `None` if it panicked.
///
/// ```
/// use agent_core::isolated::called;
///
/// assert_eq!(called(|| 6 * 7), Some(42));
/// assert_eq!(called(|| "".parse::<u8>().unwrap()), None);
/// ```
pub fn called<T>(work: impl FnOnce() -> T) -> Option<T> {
    // State that the host's calls share is the host's own. Of its own state, the library uses none again that a panic
    // left half changed.
    catch_unwind(AssertUnwindSafe(work)).map_err(drop_payload).ok()
}

/// Drops the payload of a panic. The payload belongs to the host, so its drop may panic too.
fn drop_payload(payload: Box<dyn std::any::Any + Send>) {
    if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        std::mem::forget(again);
    }
}

/// Starts the host's future and resolves to its output; `None` if it panicked.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
/// use agent_core::isolated::isolated;
///
/// let whole = isolated(|| Box::pin(async { "7".parse::<u8>().unwrap() }));
/// let broken = isolated(|| Box::pin(async { "".parse::<u8>().unwrap() }));
/// assert_eq!((whole.await, broken.await), (Some(7), None));
/// # Ok(()) }
/// ```
pub fn isolated<F: Future + Unpin>(start: impl FnOnce() -> F) -> Isolated<F> {
    Isolated(called(start))
}

/// Wrapper around a future, a stream or another value of the host. Does not panic when it is polled or dropped.
///
/// ```
/// use agent_core::isolated::Isolated;
///
/// let mut plugin = Isolated::new(vec![1, 2, 3]);
/// assert!(plugin.end(), "the drop did not panic");
/// ```
#[derive(Debug)]
pub struct Isolated<T>(Option<T>);

impl<T> Isolated<T> {
    /// Wraps a value of the host.
    pub const fn new(hosted: T) -> Self {
        Self(Some(hosted))
    }

    /// Drops the value; returns `false` if that panicked.
    pub fn end(&mut self) -> bool {
        match self.0.take() {
            Some(hosted) => called(move || drop(hosted)).is_some(),
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
        let Some(hosted) = &mut self.0 else { return Poll::Ready(None) };
        called(|| Pin::new(hosted).poll(cx)).map_or(Poll::Ready(None), |polled| polled.map(Some))
    }
}

impl<S: Stream + Unpin> Stream for Isolated<S> {
    /// Item of the stream; `None` for a panic.
    type Item = Option<S::Item>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Some(hosted) = &mut self.0 else { return Poll::Ready(None) };
        match called(|| Pin::new(hosted).poll_next(cx)) {
            Some(polled) => polled.map(|item| item.map(Some)),
            None => Poll::Ready(Some(None)),
        }
    }
}
