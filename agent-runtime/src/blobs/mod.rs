//! Large content of a conversation, which becomes blobs of its session by itself.

mod inline;
mod spool;
mod store;

pub(crate) use inline::{change_media, media_mut};
pub(crate) use spool::Spool;
pub(crate) use store::with_blobs;

/// Maximum number of bytes that a medium has in the event itself, if the store has blobs.
pub(crate) const INLINE_MAX_BYTES: usize = 1 << 10;
