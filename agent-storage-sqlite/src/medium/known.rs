//! Records that the writer remembers, so that it does not read them again for each commit.

use std::collections::HashMap;
use std::sync::Arc;

use agent_core::SessionId;
use agent_core::session::SessionRecord;

/// Session, by its tenant and its id.
pub(crate) type Key = (Arc<str>, SessionId);

/// Records by tenant and session.
pub(crate) type Known = HashMap<Key, StoredSession>;

/// Record of a session, the number of its log, and whether it is one of the recent sessions.
#[derive(Clone, Debug)]
pub(crate) struct StoredSession {
    pub(crate) log: i64,
    pub(crate) session: Arc<SessionRecord>,
    pub(crate) is_recent: bool,
}
