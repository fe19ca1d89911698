//! Documents: named, versioned texts of a session. Their entry in the session's record, and the limits.

use serde::{Deserialize, Serialize};

use crate::base::{Revision, Seq, is_default};
use crate::model::actor::Role;

/// Maximum number of documents of a session.
pub const DOCUMENTS_MAX: usize = 64;

/// Maximum number of bytes of a document's text.
pub const DOCUMENT_MAX_BYTES: usize = 1 << 20;

/// Maximum number of bytes of a document's name.
pub const DOCUMENT_NAME_MAX_BYTES: usize = 128;

/// Entry for a document in a session's record: the location of its text, and the version that the next one must follow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct DocumentHead {
    /// Name of the document.
    pub name: String,
    /// Number of the newest version.
    pub revision: Revision,
    /// Event with the newest version.
    pub seq: Seq,
    /// Size of the text, in bytes.
    pub bytes: u64,
    /// Role that wrote the newest version.
    pub by: Role,
    /// Version of the text's own format.
    #[serde(default, skip_serializing_if = "is_default")]
    pub format: u32,
    /// Maximum number of bytes of the text, if it is limited further than to 1 MiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
}
