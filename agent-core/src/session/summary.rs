//! What lists show of a session.

use serde::{Deserialize, Serialize};

use crate::base::{Seq, SessionId, Timestamp, WorkspaceId};
use crate::model::{Actor, Attributes, Counts, Origin, Status};
use crate::session::record::Session;

/// What lists show of a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SessionSummary {
    /// Its id.
    pub id: SessionId,
    /// The workspace that it belongs to.
    pub workspace: WorkspaceId,
    /// Its last event.
    pub head: Seq,
    /// Its state, and why.
    pub status: Status,
    /// How it came to be.
    pub origin: Origin,
    /// How many sessions there are between it and one that came from nothing.
    pub depth: u32,
    /// Who created it.
    pub creator: Actor,
    /// Title, labels, metadata, references, resources.
    pub attributes: Attributes,
    /// When it was created.
    pub created_at: Timestamp,
    /// The latest time of any of its events.
    pub last_active_at: Timestamp,
    /// How many events of each kind it shows.
    pub counts: Counts,
    /// How many inputs are not done with.
    pub pending: u64,
    /// When it wants somebody to come; see [`Session::due_at`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due_at: Option<Timestamp>,
}

impl From<&Session> for SessionSummary {
    fn from(session: &Session) -> Self {
        Self {
            id: session.id,
            workspace: session.workspace,
            head: session.head,
            status: session.status,
            origin: session.origin,
            depth: session.depth,
            creator: session.creator.clone(),
            attributes: session.attributes.clone(),
            created_at: session.created_at,
            last_active_at: session.last_active_at,
            counts: session.counts,
            pending: session.pending,
            due_at: session.due_at(),
        }
    }
}
