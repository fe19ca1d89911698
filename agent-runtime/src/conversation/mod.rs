//! Handle to one session, and everything that a host does with it.

pub(crate) mod answer;
mod branch;
mod change;
mod ending;
pub(crate) mod handle;
mod live;
pub(crate) mod media;
pub(crate) mod messages;
pub(crate) mod open;
mod prompt;
pub(crate) mod read;
pub(crate) mod redelivered;
pub(crate) mod title;
pub(crate) mod wait;
