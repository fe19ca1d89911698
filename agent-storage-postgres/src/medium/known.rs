//! Records that the store remembers, on which commits are planned. Each is compared with its row when it is used: one that is
//! out of date costs one more round trip, and nothing else.

use std::sync::Arc;

use agent_core::SessionId;
use agent_core::session::SessionRecord;
use agent_core::store::KnownSessions;

/// Session, by its tenant and its id.
pub(crate) type Key = (Arc<str>, SessionId);

/// Records by tenant and session.
pub(crate) type Known = KnownSessions<Versioned>;

/// Record of a session, with its version.
#[derive(Clone, Debug)]
pub(crate) struct Versioned {
    pub(crate) version: i64,
    pub(crate) session: Arc<SessionRecord>,
}
