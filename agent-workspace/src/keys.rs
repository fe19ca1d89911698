//! Sessions by the host's own keys: lookup, and the session to create if there is none.
//!
//! A key has one living session at most. Each session that is created after the deletion of the one before it, or [in its place](crate::branches), has
//! the next *generation*, from which, with the workspace and the key, its id is derived.

use std::sync::Arc;

use agent_core::session::{ConversationKey, NewSession, SessionRecord};
use agent_core::state::SessionState;
use agent_core::text::quoted;
use agent_core::{Error, ErrorKind, Result, SessionId, WorkspaceId};

use crate::manager::{ATTEMPTS, WorkspaceManager};

/// Key of the main session of an owner in a workspace without an owner.
const MAIN_SESSION_KEY: &str = "main session";

/// Result of a lookup by key.
#[derive(Clone, Debug)]
pub enum Lookup {
    /// The conversation exists.
    Taken(Arc<SessionRecord>),
    /// The conversation does not exist; create this session for it.
    Free(Box<NewSession>),
}

/// Newest session of a key.
#[derive(Debug)]
pub struct Newest {
    /// Number of the session among those of the key, from 0.
    pub generation: u64,
    /// Record of the session; `Err` if it is damaged.
    pub record: Result<Arc<SessionRecord>>,
}

impl Newest {
    fn is_living(&self) -> bool {
        self.record.as_ref().is_ok_and(|session| session.status.state != SessionState::Deleted)
    }

    /// Returns whether no later session of the key was created.
    fn is_last(&self) -> bool {
        let is_superseded = |session: &Arc<SessionRecord>| {
            session.status.state == SessionState::Archived && session.attributes.superseded_by().is_some()
        };
        self.is_living() && !self.record.as_ref().is_ok_and(is_superseded)
    }
}

impl WorkspaceManager {
    /// Returns the conversation of a key, or the session to create for it. With `recreates`, a deleted conversation is
    /// replaced, too.
    ///
    /// # Errors
    ///
    /// `Deleted` if the conversation was deleted, `Corrupt` if it is damaged, `NotFound` or `Busy` for the workspace.
    pub async fn lookup_conversation(
        &self,
        workspace: WorkspaceId,
        key: &ConversationKey,
        recreates: bool,
    ) -> Result<Lookup> {
        let generation = match self.newest_conversation(workspace, key).await? {
            None => 0,
            // A branch whose creator did not come to put it in its place is put there.
            Some(newest) if newest.is_living() => {
                return Ok(Lookup::Taken(self.in_place(&newest.record?).await?));
            }
            Some(Newest { generation, record }) => {
                record?;
                if !recreates {
                    return Err(deleted(workspace, key));
                }
                generation + 1
            }
        };
        self.need_workspace(workspace).await?;
        Ok(Lookup::Free(Box::new(NewSession::conversation(key, self.storage.owner(), workspace, generation))))
    }

    /// Returns the main session of the storage's owner in a workspace without an owner.
    pub(crate) fn is_main_of_owner(&self, session: &SessionRecord) -> bool {
        session.owner.is_some()
            && session.conversation_key().is_some_and(|key| key.as_str() == MAIN_SESSION_KEY)
    }

    pub(crate) async fn main_session_of_owner(&self, workspace: WorkspaceId) -> Result<Arc<SessionRecord>> {
        let key: ConversationKey = MAIN_SESSION_KEY.parse()?;
        for _ in 0..ATTEMPTS {
            let created = match self.lookup_conversation(workspace, &key, true).await? {
                Lookup::Taken(session) => return Ok(session),
                Lookup::Free(new) => self.create_session(*new).await,
            };
            if let Some(session) = self.unless_raced(workspace, created).await? {
                return Ok(session);
            }
        }
        Err(Error::new(
            ErrorKind::Unavailable,
            format!("the main session in workspace {workspace} keeps changing; try again"),
        ))
    }

    /// Returns the newest session of a key; `None` if no session has this key.
    ///
    /// Each session of a key is created after the deletion of the one before it, or continues it in its place, and tombstones stay. The
    /// generations therefore have no gaps, and the last one is found by doubling the step, then by halving it.
    ///
    /// # Errors
    ///
    /// Errors of the session store; damage is in the record of the result.
    pub async fn newest_conversation(
        &self,
        workspace: WorkspaceId,
        key: &ConversationKey,
    ) -> Result<Option<Newest>> {
        let Some(mut last) = self.generation(workspace, key, 0).await? else { return Ok(None) };
        let (mut step, mut free) = (1, u64::MAX);
        while !last.is_last() && last.generation + 1 < free {
            let next = match free {
                u64::MAX => last.generation.saturating_add(step),
                free => last.generation + (free - last.generation) / 2,
            };
            match self.generation(workspace, key, next).await? {
                Some(later) => {
                    last = later;
                    step *= 2;
                }
                None => free = next,
            }
        }
        Ok(Some(last))
    }

    /// Returns one session of a key; `None` if it does not exist.
    async fn generation(
        &self,
        workspace: WorkspaceId,
        key: &ConversationKey,
        generation: u64,
    ) -> Result<Option<Newest>> {
        let id = key.session_id(self.storage.owner(), workspace, generation);
        let record = match self.storage.sessions.load(id).await {
            Err(error) if *error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) if *error.kind() == ErrorKind::Corrupt => Err(damaged(workspace, key, id, error)),
            record => Ok(record?),
        };
        Ok(Some(Newest { generation, record }))
    }

    /// Returns the created object; `None` if another caller created it first, and possibly deleted it since.
    ///
    /// # Errors
    ///
    /// Errors of the creation, except for `Conflict` and `Deleted`; those of the workspace if it was deleted.
    pub async fn unless_raced<T>(&self, workspace: WorkspaceId, created: Result<T>) -> Result<Option<T>> {
        match created {
            Err(error) if matches!(error.kind(), ErrorKind::Conflict { .. }) => Ok(None),
            // Either the session or its workspace was deleted.
            Err(error) if *error.kind() == ErrorKind::Deleted => {
                self.need_workspace(workspace).await.map(|()| None)
            }
            created => created.map(Some),
        }
    }

    /// Checks that a workspace can receive a new session; creates the default one if it does not exist.
    async fn need_workspace(&self, id: WorkspaceId) -> Result<()> {
        if id == WorkspaceId::DEFAULT {
            return self.default_workspace().await.map(drop);
        }
        self.load_in_use(id).await.map(drop)
    }
}

/// Returns the error of a key that never had a session.
pub fn absent(workspace: WorkspaceId, key: &ConversationKey) -> Error {
    Error::not_found(format!(
        "workspace {workspace} never had a conversation with the key {}",
        quoted(key.as_str())
    ))
}

/// Returns the error of a key whose newest session is deleted.
pub fn deleted(workspace: WorkspaceId, key: &ConversationKey) -> Error {
    Error::deleted(format!(
        "the conversation {} of workspace {workspace} was deleted; recreate_conversation begins a new one with this key, if the workspace is still there",
        quoted(key.as_str())
    ))
}

fn damaged(workspace: WorkspaceId, key: &ConversationKey, id: SessionId, error: Error) -> Error {
    Error::corrupt(format!(
        "the conversation {} of workspace {workspace} is session {id}, which is damaged; run `session salvage {id}` \
         (`agent_admin::salvage`), then delete it and call recreate_conversation",
        quoted(key.as_str())
    ))
    .with_source(error)
}

/// Returns the error of a lookup that other processes kept invalidating.
pub fn keeps_changing(workspace: WorkspaceId, key: &ConversationKey) -> Error {
    Error::unavailable(format!(
        "the conversation {} of workspace {workspace} keeps being created and deleted; try again",
        quoted(key.as_str())
    ))
}
