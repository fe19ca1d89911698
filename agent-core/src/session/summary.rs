//! Summary of a session, for lists.

use serde::{Deserialize, Serialize};

use crate::base::{OwnerId, Seq, SessionId, Timestamp, WorkspaceId, is_default};
use crate::model::{Actor, Attributes, ContentBytes, Counts, Origin, Status};
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
    /// Owner of the session; `None` for a session of the whole tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<OwnerId>,
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
    /// Number of bytes that the session's own events store, by kind of content.
    #[serde(default, skip_serializing_if = "is_default")]
    pub content_bytes: ContentBytes,
    /// Beginning of the first visible message of a person, in one line; see [`display_title`](Self::display_title).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_words: Option<String>,
    /// Beginning of the last visible message of a person or the agent, in one line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preview: Option<String>,
    /// Number of inputs that are not done.
    pub inputs_open: u64,
    /// Time at which a scheduler must next look at this session; see [`SessionRecord::next_due_at`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_due_at: Option<Timestamp>,
}

impl SessionSummary {
    /// Returns the title for a list: the given one, else the first words of the conversation, if it has any.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # use agent_core::{MemoryStore, SessionStoreExt, WorkspaceId};
    /// # use agent_core::clock::Effects;
    /// # use agent_core::event::NewEvent;
    /// # use agent_core::session::NewSession;
    /// # use agent_core::SessionStore;
    /// # use agent_core::store::SessionQuery;
    /// # let (store, effects) = (MemoryStore::new().sessions(&Effects::default()), Effects::default());
    /// # let session = store.create(NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT)).await?;
    /// let events = vec![NewEvent::user_message("A trip\nto Oslo?"), NewEvent::agent_message("Gladly.")];
    /// store.append(session.id, session.head, events).await?;
    /// let listed = store.list(SessionQuery::new()).await?.items.remove(0);
    /// assert_eq!((listed.display_title(), listed.preview.as_deref()), (Some("A trip to Oslo?"), Some("Gladly.")));
    /// # Ok(()) }
    /// ```
    pub fn display_title(&self) -> Option<&str> {
        let given = self.attributes.title.as_ref().map(|title| title.text.as_str());
        given.or(self.first_words.as_deref())
    }

    /// Returns the key by which the host finds this conversation, like [`SessionRecord::conversation_key`].
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # use agent_core::{MemoryStore, SessionStore, SessionStoreExt, WorkspaceId};
    /// # use agent_core::clock::Effects;
    /// # use agent_core::session::{ConversationKey, NewSession};
    /// use agent_core::store::SessionQuery;
    ///
    /// # let store = MemoryStore::new().sessions(&Effects::default());
    /// let key: ConversationKey = "support/4711".parse()?;
    /// store.create(NewSession::conversation(&key, None, WorkspaceId::DEFAULT, 0)).await?;
    /// let listed = store.list(SessionQuery::new()).await?.items.remove(0);
    /// assert_eq!(listed.conversation_key(), Some(key));
    /// # Ok(()) }
    /// ```
    pub fn conversation_key(&self) -> Option<ConversationKey> {
        key_of(self.id, self.owner.as_ref(), self.workspace, &self.attributes)
    }
}

impl From<&SessionRecord> for SessionSummary {
    fn from(session: &SessionRecord) -> Self {
        Self {
            id: session.id,
            workspace: session.workspace,
            owner: session.owner.clone(),
            head: session.head,
            status: session.status,
            origin: session.origin,
            depth: session.depth,
            creator: session.creator.clone(),
            attributes: session.attributes.clone(),
            created_at: session.created_at,
            last_active_at: session.last_active_at,
            counts: session.counts,
            content_bytes: session.content_bytes,
            first_words: session.first_words.clone(),
            preview: session.preview.clone(),
            inputs_open: session.inputs_open,
            next_due_at: session.next_due_at(),
        }
    }
}
