//! Connections: one that writes, several that read, and what waits for them.

pub(crate) mod blob_steps;
pub(crate) mod pace;
pub(crate) mod readers;
pub(crate) mod request;
pub(crate) mod space;
pub(crate) mod writer;
