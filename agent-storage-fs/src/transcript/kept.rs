//! What this process knows of the files of main sessions.

use agent_core::{Seq, SessionId};

use crate::io::Stat;

/// A file as it was last written or checked.
#[derive(Clone, Debug)]
pub(crate) struct Written {
    /// Where the log was read to.
    pub(crate) seen: Seq,
    pub(crate) stat: Stat,
    /// Its length and checksum, without the mark.
    pub(crate) len: u64,
    pub(crate) checksum: u32,
    pub(crate) visible_from: Seq,
}

/// What this process knows of a session's file.
#[derive(Debug, Default)]
pub(crate) struct Keeping {
    /// The file as it was last written or checked.
    pub(crate) file: Option<Written>,
    /// Whether a task will bring it up to date.
    pub(crate) scheduled: bool,
    /// The head for which that was last tried.
    pub(crate) tried: Option<Seq>,
}

/// A workspace's main session.
#[derive(Clone, Debug)]
pub(crate) struct Main {
    pub(crate) session: SessionId,
    pub(crate) provider: Option<String>,
}
