//! Storage of large content as blobs: a store whose commits move images, audio and long outputs out of the log.

mod inline;
mod spool;
mod store;

pub(crate) use inline::change_media;
pub use inline::{INLINE_MAX_BYTES, media_mut};
pub use spool::Spool;
pub use store::with_blobs;
