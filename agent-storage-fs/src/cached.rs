//! What this process remembers of a session.

use std::sync::Arc;

use agent_core::session::Session;

use crate::io::FileId;

/// A record, and the log that it is the fold of.
#[derive(Clone, Debug)]
pub(crate) struct Cached {
    pub(crate) record: Arc<Session>,
    /// The offset behind its last commit.
    pub(crate) end: u64,
    /// The log's length when it was looked at; more than `end` where a commit was being written.
    pub(crate) len: u64,
    /// How much of it this process has seen under the session's lock: no writer takes that back.
    pub(crate) sure: u64,
    pub(crate) id: FileId,
    pub(crate) purged: bool,
}
