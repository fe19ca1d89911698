//! Documents: named texts that a session holds, in versions. What an event of one says, and what the record keeps.

use serde::{Deserialize, Serialize};

use crate::base::error::{Error, ErrorKind, Result};
use crate::base::id::{Revision, Seq};
use crate::base::text::check_text;
use crate::session::event::{Event, Role};
use crate::session::record::{Session, is_default};

/// The most documents that a session may hold.
pub const DOCUMENTS_MAX: usize = 64;
/// The most bytes that a document's text may have.
pub const DOCUMENT_MAX_BYTES: usize = 1 << 20;
/// The most bytes of a document's name.
pub const DOCUMENT_NAME_MAX_BYTES: usize = 128;

/// The payload of `session.document_written`: a version of a document, whole.
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
    #[must_use]
    pub const fn with_format(mut self, format: u32) -> Self {
        self.format = format;
        self
    }

    /// Sets the most bytes that the text may have, from this version on.
    #[must_use]
    pub const fn with_limit(mut self, limit: Option<u64>) -> Self {
        self.limit = limit;
        self
    }

    pub(crate) fn check(&self) -> Result<()> {
        Ok(check_text("document name", &self.name, DOCUMENT_NAME_MAX_BYTES)?)
    }
}

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

impl Session {
    /// What the record knows of the document `name`.
    pub fn document(&self, name: &str) -> Option<&DocumentHead> {
        self.documents.iter().find(|head| head.name == name)
    }

    /// Applies a version. Never refuses: what was accepted once folds for ever.
    pub(crate) fn document_written(&mut self, written: DocumentWritten, event: &Event) {
        let at = self.documents.iter().position(|head| head.name == written.name);
        let Some(text) = written.text else {
            at.map(|at| self.documents.remove(at));
            return;
        };
        let limit = written.limit.or_else(|| self.documents.get(at?)?.limit);
        let head = DocumentHead {
            name: written.name,
            revision: written.revision,
            seq: event.seq,
            bytes: text.len() as u64,
            by: event.actor.role(),
            format: written.format,
            limit,
        };
        match at.and_then(|at| self.documents.get_mut(at)) {
            Some(slot) => *slot = head,
            None => self.documents.push(head),
        }
    }

    /// Checks that a version by `role` follows what there is: that it takes nothing away that its writer had not
    /// seen, that the system does not write over what an agent or a person wrote, and that it is not too long.
    pub(crate) fn check_document(&self, written: &DocumentWritten, role: Role) -> Result<()> {
        let (id, name, head) = (self.id, &written.name, self.document(&written.name));
        let (revision, seq) = head.map_or((Revision::ZERO, Seq::ZERO), |head| (head.revision, head.seq));
        if written.revision != revision.next() || written.previous != seq {
            return Err(Error::new(
                ErrorKind::Conflict { head: Some(self.head) },
                format!(
                    "document {name} of session {id} is at version {revision}, and version {} does not follow it; read it again",
                    written.revision
                ),
            ));
        }
        if let Some(head) = head.filter(|head| role == Role::System && head.by != Role::System) {
            return Err(Error::invalid(format!(
                "document {name} of session {id} was written by the {}; the system does not write over that",
                head.by
            )));
        }
        let limit = written.limit.or_else(|| head?.limit).unwrap_or(u64::MAX).min(DOCUMENT_MAX_BYTES as u64);
        let bytes = written.text.as_ref().map_or(0, String::len) as u64;
        if bytes > limit {
            return Err(Error::limit(format!(
                "document {name} of session {id} would have {bytes} bytes; at most {limit} are allowed, nothing was cut"
            )));
        }
        Ok(())
    }
}
