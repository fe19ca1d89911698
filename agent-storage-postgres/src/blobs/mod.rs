//! Blobs: put, read, listed, swept.

pub(crate) mod check;
pub(crate) mod chunks;
pub(crate) mod put;
pub(crate) mod removal;
