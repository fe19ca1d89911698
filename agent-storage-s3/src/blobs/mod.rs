//! Blobs: put, read, listed and swept.

pub(crate) mod content;
pub(crate) mod sweep;
