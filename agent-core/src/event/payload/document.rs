//! A version of a document.

use serde::{Deserialize, Serialize};

use crate::base::{Result, Revision, Seq, check_text, is_default};
use crate::model::{DOCUMENT_NAME_MAX_BYTES, DocumentHead};

/// The payload of `session.document_written`: a version of a document, whole.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct DocumentWritten {
    /// Its name: 1 to 128 bytes without control characters.
    pub name: String,
    /// The number of this version: one more than that of the version before.
    pub revision: Revision,
    /// The event with the version before; zero for the first. So the versions are a chain that is walked without
    /// reading anything else.
    #[serde(default, skip_serializing_if = "is_default")]
    pub previous: Seq,
    /// The whole text, at most 1 MiB; `None` removes the document.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The version of the text's own format, where its writer keeps count of that.
    #[serde(default, skip_serializing_if = "is_default")]
    pub format: u32,
    /// The most bytes that the text may have, from this version on; as before where it is not named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
}

impl DocumentWritten {
    /// The version of the document `name` that follows `head`, which is `None` where there is no such document.
    pub fn after(head: Option<&DocumentHead>, name: impl Into<String>, text: Option<String>) -> Self {
        Self {
            name: name.into(),
            revision: head.map_or(Revision::ZERO, |head| head.revision).next(),
            previous: head.map_or(Seq::ZERO, |head| head.seq),
            text,
            format: 0,
            limit: None,
        }
    }

    /// Sets the version of the text's own format.
    pub const fn with_format(mut self, format: u32) -> Self {
        self.format = format;
        self
    }

    /// Sets the most bytes that the text may have, from this version on.
    pub const fn with_limit(mut self, limit: Option<u64>) -> Self {
        self.limit = limit;
        self
    }

    pub(crate) fn check(&self) -> Result<()> {
        Ok(check_text("document name", &self.name, DOCUMENT_NAME_MAX_BYTES)?)
    }
}
