//! Blobs and messages that clauses and their worker processes both make.

use agent_core::event::{Media, Message, NewEvent, Part};
use agent_core::store::BlobInfo;

/// Returns bytes that differ by `seed`, and from chunk to chunk.
pub(crate) fn content(seed: u64, size: usize) -> Vec<u8> {
    let byte = |n: u64| ((n + (seed << 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8;
    (0..size as u64).map(byte).collect()
}

/// Returns a message that shows a blob, with its size.
pub(crate) fn showing(blob: BlobInfo) -> NewEvent {
    let image = Media::blob("image/png", blob.name, blob.bytes);
    NewEvent::from(Message::new("Look").with_part(Part::Image(image)))
}
