//! Requests of a server that wait for their answers. The protocol crate keeps each answer until it is sent, so a server
//! that asks without end and reads nothing would fill the memory.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use tokio::io::AsyncWrite;

/// Maximum number of requests that wait for their answers.
const REQUESTS_MAX: usize = 1000;

/// Number of requests of a server that wait for their answers. Clones count the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct Backlog(Arc<AtomicUsize>);

impl Backlog {
    /// Counts a request. Returns false if too many wait.
    pub(crate) fn add(&self) -> bool {
        self.0.fetch_add(1, Ordering::Relaxed) < REQUESTS_MAX
    }

    /// Counts messages that were sent, of which some may be answers.
    pub(crate) fn sent(&self, messages: usize) {
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |waiting| {
            Some(waiting.saturating_sub(messages))
        });
    }
}

/// Input of a server, on which messages are counted as they are sent: a line each.
#[derive(Debug)]
pub(crate) struct Counted<W> {
    pub(crate) inner: W,
    pub(crate) backlog: Backlog,
}

impl<W: AsyncWrite + Unpin> AsyncWrite for Counted<W> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write(cx, bytes);
        if let Poll::Ready(Ok(count)) = written {
            self.backlog.sent(bytes[..count].iter().filter(|byte| **byte == b'\n').count());
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}
