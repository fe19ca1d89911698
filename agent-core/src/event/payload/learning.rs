//! Learnings: what an agent found out, as events of the shelf that all its sessions share.

use serde::{Deserialize, Serialize};

use crate::base::text::{check_text, words};
use crate::base::{Error, Result, Seq, SessionId};
use crate::model::DOCUMENT_NAME_MAX_BYTES;

/// The most bytes of a learning's text.
pub const LEARNING_MAX_BYTES: usize = 16 << 10;

words! {
    /// What kind of thing was found out.
    LearningKind {
        /// How something is done well.
        Lesson = "lesson",
        /// What somebody set right.
        Correction = "correction",
        /// What went wrong.
        Error = "error",
        /// A kind of a newer version of this library.
        Newer = "newer",
    } newer = Some(Self::Newer)
}

/// The payload of `session.learning_added`: something that an agent found out.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Learning {
    /// What kind of thing it is.
    pub kind: LearningKind,
    /// In words; at most 16 KiB.
    pub text: String,
    /// What makes it the same as another: 1 to 256 bytes. Without one, its kind and its text do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The session in which it was found out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionId>,
    /// The event of that session which it goes back to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seq: Option<Seq>,
}

impl Learning {
    /// Something that was found out.
    pub fn new(kind: LearningKind, text: impl Into<String>) -> Self {
        Self { kind, text: text.into(), key: None, session: None, seq: None }
    }

    /// Sets what makes it the same as another.
    pub fn with_key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// Says where it was found out.
    pub const fn from_session(mut self, session: SessionId, seq: Option<Seq>) -> Self {
        (self.session, self.seq) = (Some(session), seq);
        self
    }

    /// Whether both are the same thing: their keys are equal, or without keys their kinds and, but for white space at
    /// the ends, their texts.
    pub fn is_same(&self, other: &Self) -> bool {
        match (&self.key, &other.key) {
            (Some(key), Some(other)) => key == other,
            (None, None) => self.kind == other.kind && self.text.trim() == other.text.trim(),
            _ => false,
        }
    }

    /// Checks the lengths that the types do not.
    ///
    /// # Errors
    ///
    /// `LimitExceeded` for a text that is blank or longer than [`LEARNING_MAX_BYTES`], and for a key that is too long.
    pub fn check(&self) -> Result<()> {
        if self.text.trim().is_empty() || self.text.len() > LEARNING_MAX_BYTES {
            return Err(Error::limit(format!(
                "a learning of {} bytes; it must say something, in at most {LEARNING_MAX_BYTES}",
                self.text.len()
            )));
        }
        self.key.as_ref().map_or(Ok(()), |key| Ok(check_text("learning key", key, 256)?))
    }
}

/// The payload of `session.learning_promoted`: a learning was taken into a document that all sessions share; in one commit
/// with that document's version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct LearningPromoted {
    /// The event of the learning.
    pub learning: Seq,
    /// The document.
    pub document: String,
}

impl LearningPromoted {
    /// The learning at event `learning` stands in `document`.
    pub fn new(learning: Seq, document: impl Into<String>) -> Self {
        Self { learning, document: document.into() }
    }

    pub(crate) fn check(&self) -> Result<()> {
        Ok(check_text("document name", &self.document, DOCUMENT_NAME_MAX_BYTES)?)
    }
}
