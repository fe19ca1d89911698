//! Large content of a conversation, which becomes blobs of its session by itself.

mod inline;
mod spool;
mod store;

pub(crate) use inline::{INLINE_MAX_BYTES, change_media, media_mut};
pub(crate) use spool::Spool;
pub(crate) use store::with_blobs;
