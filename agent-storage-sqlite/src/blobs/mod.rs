//! Blobs: chunks, removal and checks.

pub(crate) mod check;
pub(crate) mod chunks;
pub(crate) mod removal;
