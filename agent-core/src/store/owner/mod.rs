//! Stores of one owner: those of the tenant, in which nothing of another owner is seen or changed.

mod places;
mod sessions;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::base::{Error, ErrorKind, OwnerId, Result, SessionId, WorkspaceId};
use crate::session::SessionRecord;
use crate::store::hidden::HiddenSession;
use crate::store::storage::Storage;

/// Number of sessions, and of workspaces, that are remembered. Beyond it they are forgotten, and read again.
const REMEMBERED_MAX: usize = 4096;

/// The three stores of one owner: wrappers around those of the tenant.
///
/// Owners never change, and ids are never used again while the tenant exists, so what was found out about one holds for as
/// long.
#[derive(Debug)]
struct OwnerStore {
    owner: OwnerId,
    /// Stores of the tenant, in which is looked up whose something is.
    tenant: Storage,
    /// Stores through which the owner's work is done: those of the tenant, narrowed if the backend can do that.
    own: Storage,
    known: Mutex<Known>,
}

/// What the owner is known to see.
#[derive(Debug, Default)]
struct Known {
    sessions: HashMap<SessionId, Seen>,
    workspaces: HashMap<WorkspaceId, Share>,
}

/// Whose a workspace is, as one owner sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Share {
    /// The owner's own.
    Own,
    /// Without an owner: all owners of the tenant use it.
    Shared,
    /// Another owner's.
    Others,
    /// None's: it does not exist, or was deleted.
    Nobodys,
}

/// How an owner sees a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    /// As its own: it may do everything.
    Own,
    /// As shared data of a workspace without an owner: it may read and add.
    Shared,
}

impl Storage {
    /// Returns the storage of one owner: a user of this tenant. No I/O.
    ///
    /// Through it, what other owners have cannot be listed, counted, loaded, read, followed, forked, bound to or written,
    /// and is answered as absent. It shows:
    ///
    /// - the owner's sessions, and each session without an owner in the owner's workspaces. A session that is created
    ///   through it, and a workspace, get the owner, which never changes; a fork and a child have that of their parent.
    ///   A list of a workspace of the owner shows all of its sessions, any other list those that have the owner;
    /// - the workspaces without an owner, among them always the workspace `default`: their record and configuration to
    ///   read, and their [shared data](crate::store::HiddenSession), but the audit, to read and to add to;
    /// - the device bindings to these workspaces. Ids of devices belong to the tenant: a device that is bound to another
    ///   owner's workspace cannot be bound again, which is a `Conflict`; one that is bound to a workspace without an owner
    ///   is any owner's.
    ///
    /// Work on the whole tenant is refused as `Denied`: check, repair, maintenance, the audit, a change of a workspace
    /// without an owner, the end of its shared data. Damage is listed to the tenant only, since nobody knows whose it
    /// was; whoever asks for a damaged session by its id gets `Corrupt`, without its place.
    ///
    /// Sessions are created in existing workspaces, or in `default`. An id of version 8, which is derived, is taken only
    /// from a conversation key of the owner, or for shared data.
    ///
    /// The first operation on a session, or on a workspace, reads its record to find its owner; up to 4,096 of each are
    /// remembered. Drop the storage when the tenant is deleted. [`close`](Self::close) closes the backend for all owners.
    /// The storage of an owner made from that of another owner shows nothing of either.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// use agent_core::session::NewSession;
    /// use agent_core::store::SessionQuery;
    /// use agent_core::{MemoryStore, Storage, WorkspaceId};
    ///
    /// let storage = Storage::from(MemoryStore::new());
    /// let (alice, bob) = (storage.for_owner(&"alice".parse()?), storage.for_owner(&"bob".parse()?));
    /// let new = NewSession::new(alice.effects().new_session_id(), WorkspaceId::DEFAULT);
    /// let session = alice.sessions.create(new).await?;
    /// assert_eq!(session.owner.as_ref(), alice.owner());
    ///
    /// assert!(bob.sessions.load(session.id).await.unwrap_err().is_absent());
    /// assert!(bob.sessions.list(SessionQuery::new()).await?.items.is_empty());
    /// assert_eq!(storage.sessions.load(session.id).await?, session);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn for_owner(&self, owner: &OwnerId) -> Self {
        let (owner, tenant, mut own) = (owner.clone(), self.clone(), self.clone());
        if let Some(sessions) = self.sessions.store().of_owner(&owner) {
            own = own.with_session_store(sessions);
        }
        if let Some(workspaces) = self.workspaces.of_owner(&owner) {
            own.workspaces = workspaces;
        }
        let store = Arc::new(OwnerStore { owner: owner.clone(), tenant, own, known: Mutex::default() });
        Self::from(store).with_effects(self.effects().clone()).with_owner(owner)
    }
}

impl OwnerStore {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whose the workspace is.
    async fn share(&self, id: WorkspaceId) -> Result<Share> {
        if id == WorkspaceId::DEFAULT {
            return Ok(Share::Shared);
        }
        if let Some(share) = self.known().workspaces.get(&id) {
            return Ok(*share);
        }
        match self.tenant.workspaces.load(id).await {
            Ok(workspace) => Ok(self.remember_share(id, workspace.owner.as_ref())),
            Err(error) if error.is_absent() => Ok(Share::Nobodys),
            Err(error) => Err(unread(format_args!("workspace {id}"), error)),
        }
    }

    /// Returns whose the workspace of this owner is, and remembers it.
    fn remember_share(&self, id: WorkspaceId, owner: Option<&OwnerId>) -> Share {
        let share = match owner {
            None => Share::Shared,
            Some(owner) if *owner == self.owner => Share::Own,
            Some(_) => Share::Others,
        };
        let known = &mut self.known().workspaces;
        if known.len() >= REMEMBERED_MAX {
            known.clear();
        }
        known.insert(id, share);
        share
    }

    /// Refuses a workspace of another owner as if it did not exist.
    async fn check_workspace(&self, id: WorkspaceId) -> Result<Share> {
        match self.share(id).await? {
            Share::Others => Err(no_workspace(id)),
            share => Ok(share),
        }
    }

    /// Returns how the owner sees a session; `None` if it does not.
    async fn seen(&self, session: &SessionRecord) -> Result<Option<Seen>> {
        if let Some(owner) = &session.owner {
            return Ok((*owner == self.owner).then_some(Seen::Own));
        }
        let hidden = HiddenSession::of(session.id, session.workspace, &session.attributes);
        Ok(match self.share(session.workspace).await? {
            Share::Own => Some(Seen::Own),
            Share::Shared => is_shared(hidden).then_some(Seen::Shared),
            Share::Others | Share::Nobodys => None,
        })
    }

    /// Returns how the owner sees a session, and refuses one that it does not see as if it did not exist.
    async fn check_session(&self, id: SessionId) -> Result<Seen> {
        self.check_session_if_any(id).await?.ok_or_else(|| no_session(id))
    }

    /// As [`check_session`](Self::check_session), but returns `None` for an id that no session has.
    async fn check_session_if_any(&self, id: SessionId) -> Result<Option<Seen>> {
        if let Some(seen) = self.known().sessions.get(&id) {
            return Ok(Some(*seen));
        }
        match self.tenant.sessions.load(id).await {
            Ok(session) => self.check_record(&session).await.map(Some),
            Err(error) if *error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(unread(format_args!("session {id}"), error)),
        }
    }

    async fn check_record(&self, session: &SessionRecord) -> Result<Seen> {
        let Some(seen) = self.seen(session).await? else { return Err(no_session(session.id)) };
        let known = &mut self.known().sessions;
        if known.len() >= REMEMBERED_MAX {
            known.clear();
        }
        known.insert(session.id, seen);
        Ok(seen)
    }

    /// Refuses to change more of shared data than to add to it.
    async fn check_own_session(&self, id: SessionId, what: &str) -> Result<()> {
        match self.check_session(id).await? {
            Seen::Own => Ok(()),
            Seen::Shared => {
                Err(self.only_for_tenant(&format!("{what} of session {id}, which owners share,")))
            }
        }
    }

    /// Returns the error for an operation on data of the whole tenant.
    fn only_for_tenant(&self, what: &str) -> Error {
        Error::new(
            ErrorKind::Denied,
            format!("{what} is not for the handle of an owner; use the storage of the tenant"),
        )
    }

    /// Refuses another owner than that of the handle.
    fn check_owner(&self, owner: Option<&OwnerId>) -> Result<()> {
        if owner.is_none_or(|owner| *owner == self.owner) {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Denied, "the handle of an owner reads and writes nothing of another owner"))
    }
}

/// Returns the error for an object that cannot be read, and so has an owner that nobody knows: without its place.
fn unread(object: impl std::fmt::Display, error: Error) -> Error {
    match error.kind() {
        ErrorKind::Corrupt | ErrorKind::Unsupported => Error::new(
            error.kind().clone(),
            format!("{object} cannot be read; the storage of the tenant, or `verify`, says why"),
        ),
        _ => error,
    }
}

/// Returns whether the owners of a tenant share this hidden session: all but the audit.
fn is_shared(hidden: Option<HiddenSession>) -> bool {
    hidden.is_some_and(|hidden| hidden != HiddenSession::Audit)
}

fn no_session(id: SessionId) -> Error {
    Error::new(ErrorKind::NotFound, format!("session {id} does not exist"))
}

fn no_workspace(id: WorkspaceId) -> Error {
    Error::new(ErrorKind::NotFound, format!("workspace {id} does not exist"))
}
