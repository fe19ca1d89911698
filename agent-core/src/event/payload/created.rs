//! How a session begins.

use serde::{Deserialize, Serialize};

use crate::base::{Seq, WorkspaceId, is_default};
use crate::model::{Attributes, Counts, DocumentHead, Lineage, Origin};

/// The payload of a session's first event: everything that its record starts from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Created {
    /// The workspace that it belongs to.
    pub workspace: WorkspaceId,
    /// How it came to be.
    #[serde(default, skip_serializing_if = "is_default")]
    pub origin: Origin,
    /// How many sessions there are between it and one that came from nothing.
    #[serde(default, skip_serializing_if = "is_default")]
    pub depth: u32,
    /// Where the older part of its history lies.
    #[serde(default, skip_serializing_if = "is_default")]
    pub lineage: Lineage,
    /// Title, labels, metadata, references, resources.
    #[serde(default, skip_serializing_if = "is_default")]
    pub attributes: Attributes,
    /// What it takes over from the session that it was forked from.
    #[serde(default, skip_serializing_if = "is_default")]
    pub inherited: Inherited,
}

/// What a fork takes over: the cursors, counts and documents at the point of the fork.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Inherited {
    /// How many events of each kind are visible.
    pub counts: Counts,
    /// The last input.
    pub last_input: Seq,
    /// The last input that is done with.
    pub handled: Seq,
    /// How many inputs are not done with.
    pub pending: u64,
    /// What is visible lies after this.
    pub visible_from: Seq,
    /// The event with the custom system prompt in force.
    pub system_prompt: Seq,
    /// The event with the outcome that was defined last.
    #[serde(default, skip_serializing_if = "is_default")]
    pub outcome: Seq,
    /// The documents; their texts stay in the ancestor's log.
    #[serde(default, skip_serializing_if = "is_default")]
    pub documents: Vec<DocumentHead>,
    /// The event with the summary in force.
    #[serde(default, skip_serializing_if = "is_default")]
    pub summary: Seq,
    /// What the summary does not stand for lies after this.
    #[serde(default, skip_serializing_if = "is_default")]
    pub context_from: Seq,
}
