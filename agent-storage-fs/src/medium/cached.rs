//! Cache of one session in this process.

use std::sync::Arc;

use agent_core::session::SessionRecord;

use crate::io::FileId;

/// Session record, and the state of the log that it was folded from.
#[derive(Clone, Debug)]
pub(crate) struct Cached {
    pub(crate) record: Arc<SessionRecord>,
    /// Offset after the last whole commit.
    pub(crate) end: u64,
    /// Length of the log when it was last checked. Larger than `end` if a commit was being written then.
    pub(crate) len: u64,
    /// Length of the log that this process has seen under the session's lock. No writer undoes anything before it.
    pub(crate) sure: u64,
    pub(crate) id: FileId,
    pub(crate) purged: bool,
}

/// Position in a log, so that what comes next need not be searched for. The line there tells whether it is right.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogPosition {
    pub(crate) log: FileId,
    /// Last event before the position.
    pub(crate) after: u64,
    pub(crate) offset: u64,
}
