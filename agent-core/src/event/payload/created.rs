//! Payload of a session's first event.

use serde::{Deserialize, Serialize};

use crate::base::sealed::check_word;
use crate::base::{OwnerId, Result, Seq, WorkspaceId, is_default};
use crate::model::{Attributes, Counts, DocumentHead, Lineage, Origin, WORDS_MAX_BYTES};

/// Payload of a session's first event: everything that the session's record starts from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Created {
    /// Workspace that the session belongs to.
    pub workspace: WorkspaceId,
    /// Owner of the session, set by the [handle](crate::Storage::for_owner) through which it was created, or taken from
    /// its parent; `None` for a session of the whole tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<OwnerId>,
    /// Origin of the session: new, fork, child or import.
    #[serde(default, skip_serializing_if = "is_default")]
    pub origin: Origin,
    /// Number of forks and child creations that lead to this session; 0 for a session without a parent.
    #[serde(default, skip_serializing_if = "is_default")]
    pub depth: u32,
    /// Ancestors whose logs hold the older part of the history.
    #[serde(default, skip_serializing_if = "is_default")]
    pub lineage: Lineage,
    /// Title, labels, metadata, references, resources.
    #[serde(default, skip_serializing_if = "is_default")]
    pub attributes: Attributes,
    /// State inherited from the session that this one was forked from.
    #[serde(default, skip_serializing_if = "is_default")]
    pub inherited: Inherited,
}

/// Checks the words that lists show, which a session inherits.
pub(crate) fn check_words(first: Option<&String>, preview: Option<&String>) -> Result<()> {
    first
        .into_iter()
        .chain(preview)
        .try_for_each(|words| Ok(check_word("the inherited text", words, WORDS_MAX_BYTES)?))
}

/// State that a fork inherits: the cursors, counts and documents at the point of the fork.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Inherited {
    /// Number of visible events of each kind.
    pub counts: Counts,
    /// Sequence number of the last input.
    pub last_input: Seq,
    /// Sequence number of the last input that is done.
    pub inputs_done_through: Seq,
    /// Number of inputs that are not done.
    pub inputs_open: u64,
    /// Last event before the visible history.
    pub visible_from: Seq,
    /// Event with the custom system prompt in force.
    pub system_prompt: Seq,
    /// Event with the outcome that was defined last.
    #[serde(default, skip_serializing_if = "is_default")]
    pub outcome: Seq,
    /// Documents; their texts stay in the ancestor's log.
    #[serde(default, skip_serializing_if = "is_default")]
    pub documents: Vec<DocumentHead>,
    /// Beginning of the first visible message of a person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_words: Option<String>,
    /// Beginning of the last visible message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preview: Option<String>,
    /// Event with the summary in force.
    #[serde(default, skip_serializing_if = "is_default")]
    pub summary: Seq,
    /// Last event that the summary in force replaces.
    #[serde(default, skip_serializing_if = "is_default")]
    pub context_from: Seq,
}
