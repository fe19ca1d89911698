//! Channels from a run to the readers of its updates: a slow reader neither blocks the run nor fills the memory.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use tokio::sync::{mpsc, watch};

use crate::run::live::Answering;
use crate::run::report::Update;
use agent_core::Result;
use agent_core::event::{MediaSource, Part};
use agent_core::json::RawJson;

/// Maximum bytes of updates that wait to be read by one reader.
pub(crate) const UNREAD_MAX_BYTES: usize = 4 << 20;

/// Fixed size of an update without its texts.
const OVERHEAD_BYTES: usize = size_of::<Result<Update>>();

/// Sender side of the streams, held by the run.
#[derive(Debug)]
pub(crate) struct UpdateSender {
    /// Readers; `None` after the last update. The lock is never held while anything waits.
    readers: Mutex<Option<Vec<Reader>>>,
    /// Answer that is being written.
    answer: watch::Sender<Answering>,
}

/// Sender side of one reader.
#[derive(Debug)]
struct Reader {
    to: mpsc::UnboundedSender<(usize, Result<Update>)>,
    unread: Arc<AtomicUsize>,
    /// Number of consecutive updates that were left out until now.
    skipped: u64,
}

/// Receiver side of a stream.
#[derive(Debug)]
pub(crate) struct UpdateReceiver {
    from: mpsc::UnboundedReceiver<(usize, Result<Update>)>,
    unread: Arc<AtomicUsize>,
}

/// Creates both sides of one reader's stream.
fn reader() -> (Reader, UpdateReceiver) {
    let (to, from) = mpsc::unbounded_channel();
    let unread = Arc::new(AtomicUsize::new(0));
    (Reader { to, unread: unread.clone(), skipped: 0 }, UpdateReceiver { from, unread })
}

impl UpdateSender {
    /// Creates the sender side and its first reader.
    pub(crate) fn new() -> (Self, UpdateReceiver) {
        let (reader, receiver) = reader();
        (Self { readers: Mutex::new(Some(vec![reader])), answer: watch::Sender::default() }, receiver)
    }

    /// Adds a reader, which receives every update from now on; `None` after the last update.
    pub(crate) fn subscribe(&self) -> Option<UpdateReceiver> {
        let (reader, receiver) = reader();
        self.readers.lock().unwrap_or_else(PoisonError::into_inner).as_mut()?.push(reader);
        Some(receiver)
    }

    /// Returns the answer that is being written.
    pub(crate) const fn answer(&self) -> &watch::Sender<Answering> {
        &self.answer
    }

    /// Sends an update to all readers; leaves it out for those that have too much unread. Never waits.
    pub(crate) fn send(&self, update: Update) {
        match &update {
            Update::PartStarted { index, kind, .. } => {
                self.answer.send_modify(|answer| answer.turn_to(*index, *kind));
            }
            Update::Text(piece) | Update::Thinking(piece) => {
                self.answer.send_modify(|answer| answer.push(piece));
            }
            _ => {}
        }
        let mut readers = self.readers.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(readers) = readers.as_mut() else { return };
        readers.retain(|reader| !reader.to.is_closed());
        let bytes = OVERHEAD_BYTES + size_bytes(&update);
        if let Some((last, others)) = readers.split_last_mut() {
            for reader in others {
                reader.send(bytes, || update.clone());
            }
            last.send(bytes, || update);
        }
    }

    /// Sends the last update, also to readers that have too much unread.
    pub(crate) fn finish(&self, last: &Result<Update>) {
        let readers = self.readers.lock().unwrap_or_else(PoisonError::into_inner).take();
        for mut reader in readers.into_iter().flatten() {
            reader.say_skipped();
            reader.push(0, last.clone());
        }
    }
}

impl Reader {
    fn send(&mut self, bytes: usize, update: impl FnOnce() -> Update) {
        if self.unread.load(Ordering::Acquire) + bytes > UNREAD_MAX_BYTES {
            self.skipped += 1;
            return;
        }
        self.say_skipped();
        self.push(bytes, Ok(update()));
    }

    fn say_skipped(&mut self) {
        let updates = std::mem::take(&mut self.skipped);
        if updates > 0 {
            self.push(OVERHEAD_BYTES, Ok(Update::Skipped { updates }));
        }
    }

    fn push(&self, bytes: usize, update: Result<Update>) {
        self.unread.fetch_add(bytes, Ordering::AcqRel);
        // A stream without a reader is not a failure.
        let _ = self.to.send((bytes, update));
    }
}

impl UpdateReceiver {
    /// Creates a receiver of a stream that consists of one update.
    pub(crate) fn of(only: Update) -> Self {
        let (reader, receiver) = reader();
        reader.push(0, Ok(only));
        receiver
    }

    pub(crate) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Update>>> {
        self.from.poll_recv(cx).map(|read| {
            read.map(|(bytes, update)| {
                self.unread.fetch_sub(bytes, Ordering::AcqRel);
                update
            })
        })
    }
}

/// Returns the number of bytes of an update's texts.
fn size_bytes(update: &Update) -> usize {
    match update {
        Update::Text(text) | Update::Thinking(text) | Update::ProviderMessage(text) => text.len(),
        Update::ToolCalled(call) => {
            let native = call.native.as_ref().map_or(0, |native| native.item.get().len());
            let malformed = call.malformed.as_ref().map_or(0, String::len);
            call.call.as_str().len() + call.name.len() + call.input.get().len() + native + malformed
        }
        Update::ToolDone(result) => {
            let whole = result.full.as_ref().and_then(|full| full.text.as_ref()).map_or(0, String::len);
            let structured = result.structured.as_ref().map_or(0, |structured| structured.get().len());
            let parts = result.content.iter().map(part_bytes).sum::<usize>();
            result.call.as_str().len() + result.output.get().len() + whole + structured + parts
        }
        Update::Part(part) => part_bytes(part),
        Update::Failed(failure) => failure.text.len(),
        Update::Retrying { fault, .. } => fault.text.len(),
        Update::NotStored(error) => error.to_string().len(),
        Update::Ended(report) => report.text.len(),
        Update::Queued(_)
        | Update::Started { .. }
        | Update::PartStarted { .. }
        | Update::Compacted { .. }
        | Update::Skipped { .. } => 0,
    }
}

/// Returns the bytes of a part of an answer or an output.
fn part_bytes(part: &Part) -> usize {
    match part.media().map(|media| &media.source) {
        Some(MediaSource::Inline(bytes)) => bytes.len(),
        _ => RawJson::of(part).map_or(0, |json| json.get().len()),
    }
}
