//! A session: the record that its events fold into, and how a new one is asked for.

pub(crate) mod created;
mod fold;
pub(crate) mod record;
pub(crate) mod summary;

pub use created::{Fork, NewSession};
pub use record::{
    OPEN_CALLS_MAX, RECENT_COMMITS, RECORD_CONTENT_MAX_BYTES, RECORD_MAX_BYTES, Session, WAKES_MAX,
};
pub use summary::SessionSummary;
