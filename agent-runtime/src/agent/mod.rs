//! The agent: its builder, its shared parts, and its runs in this process.

pub(crate) mod active;
pub(crate) mod builder;
pub(crate) mod fit;
pub(crate) mod runtime;
pub(crate) mod touches;
