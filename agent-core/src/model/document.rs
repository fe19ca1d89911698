//! Documents: named texts that a session holds, in versions. What the record keeps of one, and the limits.

use serde::{Deserialize, Serialize};

use crate::base::{Revision, Seq, is_default};
use crate::model::actor::Role;

/// The most documents that a session may hold.
pub const DOCUMENTS_MAX: usize = 64;

/// The most bytes that a document's text may have.
pub const DOCUMENT_MAX_BYTES: usize = 1 << 20;

/// The most bytes of a document's name.
pub const DOCUMENT_NAME_MAX_BYTES: usize = 128;

/// What a session's record keeps of a document: where its text is, and what the next version must go by.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct DocumentHead {
    /// Its name.
    pub name: String,
    /// The number of its newest version.
    pub revision: Revision,
    /// The event with its newest version.
    pub seq: Seq,
    /// The size of its text.
    pub bytes: u64,
    /// Who wrote its newest version.
    pub by: Role,
    /// The version of the text's own format.
    #[serde(default, skip_serializing_if = "is_default")]
    pub format: u32,
    /// The most bytes that its text may have, where that is limited further than to 1 MiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
}
