//! Handle to one session, and everything that a host does with it.

pub(crate) mod handle;
pub(crate) mod media;
pub(crate) mod messages;
pub(crate) mod open;
pub(crate) mod redelivered;
pub(crate) mod wait;
