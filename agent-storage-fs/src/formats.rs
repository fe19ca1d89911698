//! Format numbers of the stored files.

use crate::medium::record::{SNAPSHOT_FORMAT, TOMBSTONE_FORMAT};
use crate::owner::FORMAT as LINES;
use crate::places::{bindings, workspace_toml};
use crate::store::FsStore;

impl FsStore {
    /// Names and format numbers of the files that this version writes.
    ///
    /// A log or a tombstone with another number is refused as [`Unsupported`](agent_core::ErrorKind::Unsupported). `docs/stability.md`
    /// in the repository says what a number promises.
    ///
    /// ```
    /// use agent_storage_fs::FsStore;
    ///
    /// assert!(FsStore::FORMATS.contains(&("events.jsonl", 6)));
    /// ```
    pub const FORMATS: [(&'static str, u64); 6] = [
        ("events.jsonl", LINES as u64),
        ("session.json", SNAPSHOT_FORMAT as u64),
        ("tombstone.json", TOMBSTONE_FORMAT as u64),
        ("workspace.toml", workspace_toml::FORMAT as u64),
        ("bindings.toml", bindings::FORMAT as u64),
        ("session.md", agent_transcript::TRANSCRIPT_FORMAT),
    ];
}
