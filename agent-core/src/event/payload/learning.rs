//! Learnings of an agent, as events of the hidden session that all its sessions share.

use serde::{Deserialize, Serialize};

use crate::base::text::{check_text, words};
use crate::base::{Error, Result, Seq, SessionId};
use crate::model::DOCUMENT_NAME_MAX_BYTES;

/// Maximum number of bytes of a learning's text.
pub const LEARNING_MAX_BYTES: usize = 16 << 10;

words! {
    /// Kind of a learning.
    LearningKind {
        /// Way of doing something well.
        Lesson = "lesson",
        /// Correction by a person or a program.
        Correction = "correction",
        /// Error that occurred.
        Error = "error",
        /// Kind of a newer version of this library.
        Newer = "newer",
    } newer = Some(Self::Newer)
}

/// Payload of `session.learning_added`: a learning of an agent.
///
/// ```
/// use agent_core::Seq;
/// use agent_core::clock::Effects;
/// use agent_core::event::{Learning, LearningKind};
///
/// let session = Effects::default().new_session_id();
/// let learning = Learning::new(LearningKind::Correction, "Prices are in euros.")
///     .with_key("currency")
///     .with_session(session, Some(Seq::new(12)));
/// learning.check()?;
/// assert!(learning.is_same(&Learning::new(LearningKind::Lesson, "Use euros.").with_key("currency")));
/// # Ok::<(), agent_core::Error>(())
/// ```
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Learning {
    /// Kind of the learning.
    pub kind: LearningKind,
    /// Text of the learning; at most 16 KiB.
    pub text: String,
    /// Key that identifies equal learnings: 1 to 256 bytes. Without a key, kind and text identify them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Session in which the agent learned it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionId>,
    /// Event of that session from which the agent learned it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seq: Option<Seq>,
}

impl Learning {
    /// Creates a learning.
    pub fn new(kind: LearningKind, text: impl Into<String>) -> Self {
        Self { kind, text: text.into(), key: None, session: None, seq: None }
    }

    /// Sets the key that identifies equal learnings.
    pub fn with_key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// Sets the session, and the event in it, from which the agent learned it.
    #[doc(alias = "from_session")]
    pub const fn with_session(mut self, session: SessionId, seq: Option<Seq>) -> Self {
        (self.session, self.seq) = (Some(session), seq);
        self
    }

    /// Returns whether both are the same learning.
    ///
    /// They are if their keys are equal, or if neither has a key, their kinds are equal and their texts are equal but
    /// for white space at the ends.
    pub fn is_same(&self, other: &Self) -> bool {
        match (&self.key, &other.key) {
            (Some(key), Some(other)) => key == other,
            (None, None) => self.kind == other.kind && self.text.trim() == other.text.trim(),
            _ => false,
        }
    }

    /// Checks the lengths that the types do not check.
    ///
    /// # Errors
    ///
    /// `LimitExceeded` for a text that is blank or longer than [`LEARNING_MAX_BYTES`], and for a key that is too
    /// long.
    pub fn check(&self) -> Result<()> {
        if self.text.trim().is_empty() || self.text.len() > LEARNING_MAX_BYTES {
            return Err(Error::limit(format!(
                "a learning of {} bytes; give a text of 1 to {LEARNING_MAX_BYTES} bytes that is not blank",
                self.text.len()
            )));
        }
        self.key.as_ref().map_or(Ok(()), |key| Ok(check_text("learning key", key, 256)?))
    }
}

/// Payload of `session.learning_promoted`: a learning was included in a document that all sessions share.
///
/// Written in the same commit as that document's version.
///
/// ```
/// use agent_core::Seq;
/// use agent_core::event::LearningPromoted;
///
/// let promoted = LearningPromoted::new(Seq::new(7), "handbook");
/// assert_eq!(promoted.document, "handbook");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct LearningPromoted {
    /// Event of the learning.
    pub learning: Seq,
    /// Name of the document.
    pub document: String,
}

impl LearningPromoted {
    /// Creates the payload for the learning at event `learning` and the document `document`.
    pub fn new(learning: Seq, document: impl Into<String>) -> Self {
        Self { learning, document: document.into() }
    }

    pub(crate) fn check(&self) -> Result<()> {
        Ok(check_text("document name", &self.document, DOCUMENT_NAME_MAX_BYTES)?)
    }
}
