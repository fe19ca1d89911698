//! Summary of a session, for lists.

use serde::{Deserialize, Serialize};

use crate::base::{Seq, SessionId, Timestamp, WorkspaceId};
use crate::model::{Actor, Attributes, Counts, Origin, Status};
use crate::session::key::{ConversationKey, key_of};
use crate::session::record::SessionRecord;

/// Summary of a session, for lists.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/setup.rs"));
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
/// use agent_core::session::SessionSummary;
/// use agent_core::store::SessionQuery;
///
/// # let (store, effects, session) = session().await?;
/// let listed: SessionSummary = store.list(SessionQuery::new()).await?.items.remove(0);
/// assert_eq!(listed, SessionSummary::from(&*session));
/// assert_eq!(listed.conversation_key(), None);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SessionSummary {
    /// Id of the session.
    pub id: SessionId,
    /// Workspace that the session belongs to.
    pub workspace: WorkspaceId,
    /// Sequence number of the last event.
    pub head: Seq,
    /// State of the session and the reason for it.
    pub status: Status,
    /// Origin of the session: new, fork, child or import.
    pub origin: Origin,
    /// Number of forks and child creations that lead to this session; 0 for a session without a parent.
    pub depth: u32,
    /// Actor that created the session.
    pub creator: Actor,
    /// Title, labels, metadata, references, resources.
    pub attributes: Attributes,
    /// Time at which the session was created.
    pub created_at: Timestamp,
    /// Latest time of any of the session's events.
    pub last_active_at: Timestamp,
    /// Number of visible events of each kind.
    pub counts: Counts,
    /// Number of inputs that are not done.
    pub inputs_open: u64,
    /// Time at which a scheduler must next look at this session; see [`SessionRecord::next_due_at`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_due_at: Option<Timestamp>,
}

impl SessionSummary {
    /// Returns the key by which the host finds this conversation, like [`SessionRecord::conversation_key`].
    pub fn conversation_key(&self) -> Option<ConversationKey> {
        key_of(self.id, self.workspace, &self.attributes)
    }
}

impl From<&SessionRecord> for SessionSummary {
    fn from(session: &SessionRecord) -> Self {
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
            inputs_open: session.inputs_open,
            next_due_at: session.next_due_at(),
        }
    }
}
