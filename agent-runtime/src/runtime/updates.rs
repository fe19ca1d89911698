//! The way from a run to whoever reads its stream: a reader that does not read holds up no run and fills no memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll};

use tokio::sync::mpsc;

use crate::runtime::report::Update;
use agent_core::Result;

/// The most bytes of updates that wait to be read.
pub(crate) const UNREAD_MAX_BYTES: usize = 4 << 20;

/// What of an update is not in its texts.
const OVERHEAD_BYTES: usize = size_of::<Result<Update>>();

/// The run's end of the stream.
#[derive(Debug)]
pub(crate) struct UpdateSender {
    to: mpsc::UnboundedSender<(usize, Result<Update>)>,
    unread: Arc<AtomicUsize>,
    /// How many updates in a row were left out, up to now.
    skipped: AtomicU64,
}

/// The reader's end of the stream.
#[derive(Debug)]
pub(crate) struct UpdateReceiver {
    from: mpsc::UnboundedReceiver<(usize, Result<Update>)>,
    unread: Arc<AtomicUsize>,
}

/// Both ends of a stream.
pub(crate) fn updates() -> (UpdateSender, UpdateReceiver) {
    let (to, from) = mpsc::unbounded_channel();
    let unread = Arc::new(AtomicUsize::new(0));
    let skipped = AtomicU64::new(0);
    (UpdateSender { to, unread: unread.clone(), skipped }, UpdateReceiver { from, unread })
}

impl UpdateSender {
    /// Hands an update on, or leaves it out while too much is unread. Never waits.
    pub(crate) fn send(&self, update: Update) {
        if self.to.is_closed() {
            return;
        }
        let bytes = OVERHEAD_BYTES + size_bytes(&update);
        if self.unread.load(Ordering::Acquire) + bytes > UNREAD_MAX_BYTES {
            self.skipped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        self.say_skipped();
        self.push(bytes, Ok(update));
    }

    /// Hands the last update on, in any case.
    pub(crate) fn finish(&self, last: Result<Update>) {
        self.say_skipped();
        self.push(0, last);
    }

    fn say_skipped(&self) {
        let updates = self.skipped.swap(0, Ordering::Relaxed);
        if updates > 0 {
            self.push(OVERHEAD_BYTES, Ok(Update::Skipped { updates }));
        }
    }

    fn push(&self, bytes: usize, update: Result<Update>) {
        self.unread.fetch_add(bytes, Ordering::AcqRel);
        // A stream that nobody reads is no failure.
        let _ = self.to.send((bytes, update));
    }
}

impl UpdateReceiver {
    pub(crate) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Update>>> {
        self.from.poll_recv(cx).map(|read| {
            read.map(|(bytes, update)| {
                self.unread.fetch_sub(bytes, Ordering::AcqRel);
                update
            })
        })
    }
}

/// The bytes of an update's texts.
fn size_bytes(update: &Update) -> usize {
    match update {
        Update::Text(text) | Update::Thinking(text) => text.len(),
        Update::ToolCalled(call) => call.call.as_str().len() + call.name.len() + call.input.get().len(),
        Update::ToolDone(result) => result.call.as_str().len() + result.output.get().len(),
        Update::Failed(failure) => failure.text.len(),
        Update::NotStored(error) => error.to_string().len(),
        Update::Ended(report) => report.text.len(),
        Update::Stored(_) | Update::Started { .. } | Update::Skipped { .. } => 0,
    }
}
