//! Sessions: the record that the events fold into, and requests for new sessions.

pub(crate) mod created;
mod fold;
pub(crate) mod key;
pub(crate) mod record;
pub(crate) mod summary;

pub use created::{Fork, ForkPoint, NewSession};
pub use key::ConversationKey;
pub use record::{
    OPEN_CALLS_MAX, RECENT_COMMITS, RECORD_CONTENT_MAX_BYTES, RECORD_MAX_BYTES, SessionRecord, TIMERS_MAX,
};
pub use summary::SessionSummary;
