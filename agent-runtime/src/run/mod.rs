//! One run as its caller sees it: updates, report, errors, and how it is cancelled.

pub(crate) mod claim;
pub(crate) mod error;
pub(crate) mod handle;
pub(crate) mod heartbeat;
pub(crate) mod limit;
pub(crate) mod live;
pub(crate) mod queue;
pub(crate) mod report;
pub(crate) mod spans;
pub(crate) mod stop;
pub(crate) mod telemetry;
pub(crate) mod updates;
