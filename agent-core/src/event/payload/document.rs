//! Payload of a document's version.

use serde::{Deserialize, Serialize};

use crate::base::sealed::check_word;
use crate::base::{Result, Revision, Seq, is_default};
use crate::model::{DOCUMENT_NAME_MAX_BYTES, DocumentHead};
use crate::setters;

/// Payload of `session.document_written`: one complete version of a document.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/setup.rs"));
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
/// use agent_core::Revision;
/// use agent_core::event::{DocumentWritten, NewEvent};
///
/// # let (store, effects, session) = session().await?;
/// let text = Some("1. Book the flight".to_owned());
/// let plan = DocumentWritten::after(session.document("plan"), "plan", text).with_format(1).with_limit(Some(4096));
/// let events = vec![NewEvent::document_written(plan)];
/// let session = store.append(session.id, session.head, events).await?.session;
/// assert_eq!(session.document("plan").unwrap().revision, Revision::new(1));
///
/// let removed = DocumentWritten::after(session.document("plan"), "plan", None);
/// let events = vec![NewEvent::document_written(removed)];
/// let session = store.append(session.id, session.head, events).await?.session;
/// assert!(session.document("plan").is_none());
/// # Ok(()) }
/// ```
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct DocumentWritten {
    /// Name of the document: 1 to 128 bytes without control characters.
    pub name: String,
    /// Number of this version: one more than that of the previous version.
    pub revision: Revision,
    /// Event with the previous version; zero for the first. The versions form a chain that is read without reading
    /// other events.
    #[serde(default, skip_serializing_if = "is_default")]
    pub previous: Seq,
    /// Complete text, at most 1 MiB; `None` removes the document.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Version of the text's own format, if the writer keeps one.
    #[serde(default, skip_serializing_if = "is_default")]
    pub format: u32,
    /// Maximum number of bytes of the text, from this version on; `None` keeps the previous limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
}

impl DocumentWritten {
    /// Creates the version of the document `name` that follows `head`; `head` is `None` if there is no such document.
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

    setters! {
        /// Sets the version of the text's own format.
        pub const fn with_format(format: u32) => format = format;

        /// Sets the maximum number of bytes of the text, from this version on.
        pub const fn with_limit(limit: Option<u64>) => limit = limit;
    }

    pub(crate) fn check(&self) -> Result<()> {
        Ok(check_word("document name", &self.name, DOCUMENT_NAME_MAX_BYTES)?)
    }
}
