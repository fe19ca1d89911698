//! Work that is due without a caller: scheduler, its rounds, and tools that schedule.

pub(crate) mod rounds;
pub(crate) mod scheduler;
pub(crate) mod session_tools;
