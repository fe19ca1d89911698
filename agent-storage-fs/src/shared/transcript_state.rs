//! State of the main sessions' files in this process.

use agent_core::{Seq, SessionId};

use crate::io::Stat;

/// File as it was last written or checked.
#[derive(Clone, Debug)]
pub(crate) struct Written {
    /// Sequence number up to which the log was read.
    pub(crate) seen: Seq,
    pub(crate) stat: Stat,
    /// Length of the text without the mark; `checksum` is its checksum.
    pub(crate) len: u64,
    pub(crate) checksum: u32,
    pub(crate) visible_from: Seq,
}

/// State of a session's file in this process.
#[derive(Debug, Default)]
pub(crate) struct Keeping {
    /// File as it was last written or checked.
    pub(crate) file: Option<Written>,
    /// True if a task that brings it up to date is scheduled.
    pub(crate) scheduled: bool,
    /// Head for which an update was last tried.
    pub(crate) tried: Option<Seq>,
}

/// Main session of a workspace.
#[derive(Clone, Debug)]
pub(crate) struct Main {
    pub(crate) session: SessionId,
    pub(crate) provider: Option<String>,
}
