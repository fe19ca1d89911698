//! Keys by which hosts find conversations, and the session ids derived from them.

use std::fmt;
use std::str::FromStr;

use crate::base::{OwnerId, ParseError, SessionId, WorkspaceId, check_text, uuid_of};
use crate::model::Attributes;

/// Key by which a host finds a conversation: 1 to 512 bytes of text without control characters.
///
/// A key belongs to one owner and one workspace, is compared byte by byte, and never becomes a path. The id of its session is
/// [derived](Self::session_id) from it, so that of several concurrent creators one wins on every store. The session's
/// record holds the key as the label [`CONVERSATION_KEY`](crate::model::Attributes::CONVERSATION_KEY).
///
/// ```
/// use agent_core::WorkspaceId;
/// use agent_core::session::ConversationKey;
///
/// let key: ConversationKey = "support/4711".parse()?;
/// let session = key.session_id(None, WorkspaceId::DEFAULT, 0);
/// assert_eq!(session.to_string(), "b9ce3eee-5778-89b0-8cf1-5817a17120ca");
/// assert_ne!(session, key.session_id(None, WorkspaceId::DEFAULT, 1));
/// assert_ne!(session, key.session_id(Some(&"alice".parse()?), WorkspaceId::DEFAULT, 0));
/// assert!("line\nfeed".parse::<ConversationKey>().is_err());
/// # Ok::<(), agent_core::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConversationKey(Box<str>);

impl ConversationKey {
    /// Maximum number of bytes of a key.
    pub const MAX_BYTES: usize = 512;

    /// Returns the text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the id of the session of this key in a workspace.
    ///
    /// The first session of a key has generation 0. A session that replaces a deleted one has the next generation.
    ///
    /// The id is a UUID of version 8: the first bits of the SHA-256 of the workspace's id, the text
    /// `conversation key`, the generation in decimal digits, the key, and the owner, if there is one. Each of these texts is
    /// preceded by its length in 8 bytes, so that no two keys hash the same bytes. The derivation never changes.
    pub fn session_id(&self, owner: Option<&OwnerId>, workspace: WorkspaceId, generation: u64) -> SessionId {
        let generation = generation.to_string();
        let parts = ["conversation key", &generation, &self.0, owner.map_or("", OwnerId::as_str)];
        let used = if owner.is_some() { &parts[..] } else { &parts[..3] };
        SessionId::from_uuid(uuid_of(workspace.as_uuid(), used))
    }
}

/// Returns the key that a session's attributes name, if the session's id is derived from it.
pub(crate) fn key_of(
    id: SessionId,
    owner: Option<&OwnerId>,
    workspace: WorkspaceId,
    attributes: &Attributes,
) -> Option<ConversationKey> {
    let key: ConversationKey = attributes.labels.get(Attributes::CONVERSATION_KEY)?.parse().ok()?;
    let generation = match attributes.references.get(Attributes::CONVERSATION_GENERATION) {
        Some(generation) => generation.parse().ok()?,
        None => 0,
    };
    (key.session_id(owner, workspace, generation) == id).then_some(key)
}

impl FromStr for ConversationKey {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        check_text("conversation key", text, Self::MAX_BYTES)?;
        Ok(Self(text.into()))
    }
}

impl fmt::Display for ConversationKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Debug for ConversationKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ConversationKey({:?})", &self.0)
    }
}
