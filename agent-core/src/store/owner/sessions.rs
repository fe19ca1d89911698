//! Sessions of one owner.

use std::sync::Arc;

use async_trait::async_trait;

use crate::base::{
    Epoch, Error, ErrorKind, OwnerId, Reason, Result, Seq, SessionId, Timestamp, WorkspaceId, WriteOutcome,
};
use crate::commit::{Commit, Committed, Step, Trigger};
use crate::event::{Created, EventType};
use crate::model::{BlobInfo, Patch, Workspace};
use crate::session::key::key_of;
use crate::session::{NewSession, SessionRecord, SessionSummary};
use crate::store::blob::{BlobContent, BlobQuery, PutBlob, ReadBlob, SweepBlobs, SweptBlobs};
use crate::store::blob_store::BlobStore;
use crate::store::hidden::HiddenSession;
use crate::store::lease::{LeaseStatus, LeaseStore};
use crate::store::maintenance::{Maintenance, Pending, Rebuilt};
use crate::store::owner::{OwnerStore, Seen, Share, unread};
use crate::store::page::{Damaged, Page};
use crate::store::read::{EventPage, ReadEvents};
use crate::store::session::{Capabilities, Purge, Purged, SessionQuery, SessionStore};
use crate::store::workspace::WorkspaceStore;

/// Types of events that owners may add to shared data, besides changes of its attributes.
const ADDED: [EventType; 4] = [
    EventType::SESSION_DOCUMENT_WRITTEN,
    EventType::SESSION_ARTIFACT_REGISTERED,
    EventType::SESSION_LEARNING_ADDED,
    EventType::SESSION_LEARNING_PROMOTED,
];

#[async_trait]
impl SessionStore for OwnerStore {
    async fn commit(&self, mut commit: Commit) -> Result<Committed> {
        let id = commit.session;
        if !self.prepare_creation(&mut commit).await? {
            if self.check_session(id).await? == Seen::Shared {
                self.check_addition(&commit)?;
            }
            return self.own.sessions.commit(commit).await;
        }
        let committed = match self.own.sessions.commit(commit).await {
            Ok(committed) => committed,
            Err(error) => return Err(self.hide_holder(id, error).await),
        };
        match self.check_record(&committed.session).await {
            Ok(_) => Ok(committed),
            // The commit has the id of another owner's commit.
            Err(error) if *error.kind() == ErrorKind::NotFound => Err(id_is_taken(id)),
            Err(error) => Err(error.with_outcome(WriteOutcome::Unknown)),
        }
    }

    async fn load(&self, id: SessionId) -> Result<Arc<SessionRecord>> {
        let session = self.own.sessions.load(id).await;
        let session = session.map_err(|error| unread(format_args!("session {id}"), error))?;
        self.check_record(&session).await?;
        Ok(session)
    }

    async fn read(&self, id: SessionId, read: ReadEvents) -> Result<EventPage> {
        self.check_session(id).await?;
        self.own.sessions.read(id, read).await
    }

    async fn list(&self, query: SessionQuery) -> Result<Page<SessionSummary>> {
        self.check_owner(query.owner.as_ref())?;
        let is_own = match query.workspace {
            Some(workspace) => self.share(workspace).await? == Share::Own,
            None => false,
        };
        // In a workspace of the owner are no sessions of another one, but some may have none.
        let query = if is_own { query } else { query.with_owner(self.owner.clone()) };
        let mut page = self.own.sessions.list(query).await?;
        page.items.retain(|item| item.owner.as_ref().map_or(is_own, |owner| *owner == self.owner));
        if !is_own {
            // Whose a session was that cannot be read is not known.
            page.damaged.clear();
        }
        Ok(page)
    }

    async fn purge(&self, purge: Purge) -> Result<Purged> {
        self.check_own_session(purge.session, "a purge").await?;
        self.own.sessions.purge(purge).await
    }

    fn leases(&self) -> &dyn LeaseStore {
        self
    }

    fn blobs(&self) -> &dyn BlobStore {
        self
    }

    fn maintenance(&self) -> &dyn Maintenance {
        self
    }

    fn capabilities(&self) -> Capabilities {
        self.tenant.sessions.capabilities()
    }

    async fn changed(&self, id: SessionId, seen: Seq) -> Result<Seq> {
        self.check_session(id).await?;
        self.own.sessions.changed(id, seen).await
    }

    async fn close(&self) -> Result<()> {
        self.tenant.close().await
    }
}

impl OwnerStore {
    /// Sets the owner of the session that the commit creates; returns `false` if it creates none.
    async fn prepare_creation(&self, commit: &mut Commit) -> Result<bool> {
        match commit.steps.first() {
            Some(Step::Trigger(Trigger::Create(new))) => {
                let owner = self.owner_of_new(new).await?;
                if owner.is_none() && self.share(new.created.workspace).await? == Share::Shared {
                    let rest = &commit.steps[1..];
                    let is_archived = |step: &Step| matches!(step, Step::Trigger(Trigger::Archive));
                    let opens = |step: &Step| {
                        matches!(step, Step::Trigger(Trigger::Ready | Trigger::Archive)) || is_addition(step)
                    };
                    if !rest.iter().any(is_archived) || !rest.iter().all(opens) {
                        return Err(self.only_for_tenant("shared data that is not archived"));
                    }
                }
                if owner != new.created.owner
                    && let Some(Step::Trigger(Trigger::Create(new))) =
                        Arc::make_mut(&mut commit.steps).first_mut()
                {
                    new.created.owner = owner;
                }
                Ok(true)
            }
            Some(Step::Trigger(Trigger::Restore(events))) => {
                let first = events.first().filter(|event| event.kind == EventType::SESSION_CREATED);
                let Some(first) = first else { return Ok(false) };
                let created: Created = first.payload.to().map_err(|source| {
                    Error::invalid(format!("event {} does not create session {}", first.seq, commit.session))
                        .with_source(source)
                })?;
                let new = NewSession::of(commit.session, created);
                let owner = self.owner_of_new(&new).await?;
                let is_own = owner.is_some() || self.share(new.created.workspace).await? == Share::Own;
                match is_own && owner == new.created.owner {
                    true => Ok(true),
                    false => Err(self.only_for_tenant("a restored session of another owner, or of none,")),
                }
            }
            _ => Ok(false),
        }
    }

    /// Returns the owner of a new session: that of its parent, none for shared data, else that of the handle.
    async fn owner_of_new(&self, new: &NewSession) -> Result<Option<OwnerId>> {
        let (id, created) = (new.id, &new.created);
        self.check_owner(created.owner.as_ref())?;
        let workspace = self.check_place_of_new(new).await?;
        let hidden = HiddenSession::of(id, created.workspace, &created.attributes);
        if hidden == Some(HiddenSession::Audit) || id == HiddenSession::Audit.id() {
            return Err(self.only_for_tenant("the audit"));
        }
        let key = key_of(id, Some(&self.owner), created.workspace, &created.attributes);
        let is_main_of_tenant =
            workspace.is_some_and(|workspace| workspace.owner.is_none() && workspace.main_session == id);
        if is_main_of_tenant || (HiddenSession::may_have(id) && key.is_none() && hidden.is_none()) {
            return Err(
                self.only_for_tenant(&format!("session {id}, whose id is derived for something else,"))
            );
        }
        let parent = match created.origin.parent() {
            Some(parent) => Some(SessionStore::load(self, parent).await?),
            None => None,
        };
        for ancestor in &created.lineage.segments {
            self.check_own_session(ancestor.session, "a fork").await?;
        }
        let Some(parent) = parent else {
            return Ok(if hidden.is_some() { None } else { Some(self.owner.clone()) });
        };
        self.check_own_session(parent.id, "a fork or child").await?;
        if hidden.is_some() || (parent.owner.is_none() && parent.workspace != created.workspace) {
            return Err(self.only_for_tenant("this fork or child"));
        }
        Ok(parent.owner.clone())
    }

    /// Returns the record of the workspace of a new session, which must exist, unless it is `default`.
    async fn check_place_of_new(&self, new: &NewSession) -> Result<Option<Workspace>> {
        let id = new.created.workspace;
        match WorkspaceStore::load(self, id).await {
            Err(error) if id == WorkspaceId::DEFAULT && *error.kind() == ErrorKind::NotFound => Ok(None),
            loaded => loaded.map(Some),
        }
    }

    /// Refuses a commit to shared data that does more than add to it.
    fn check_addition(&self, commit: &Commit) -> Result<()> {
        if commit.steps.iter().all(is_addition) {
            return Ok(());
        }
        Err(self.only_for_tenant(&format!("this change of session {}, which owners share,", commit.session)))
    }

    /// Returns the error of a creation, without a trace of another owner's session that has the id.
    async fn hide_holder(&self, id: SessionId, error: Error) -> Error {
        // What may have happened, or may happen yet, says nothing of a holder, and is the caller's to try again.
        if error.is_retryable() || error.write_outcome() == WriteOutcome::Unknown {
            return error;
        }
        match self.check_session_if_any(id).await {
            Ok(_) => error,
            Err(failed) if failed.is_retryable() => failed.with_outcome(error.write_outcome()),
            Err(_) => id_is_taken(id),
        }
    }
}

/// Returns whether a step adds to shared data.
fn is_addition(step: &Step) -> bool {
    let Step::Event(event) = step else { return false };
    if event.kind != EventType::SESSION_UPDATED {
        return ADDED.contains(&event.kind);
    }
    event.payload.to::<Patch>().is_ok_and(|patch| !patch.labels.contains_key(HiddenSession::LABEL))
}

fn id_is_taken(id: SessionId) -> Error {
    Error::new(
        ErrorKind::Conflict { head: None },
        format!("session {id} cannot be created, since its id is in use; choose another id"),
    )
}

#[async_trait]
impl LeaseStore for OwnerStore {
    async fn heartbeat(&self, id: SessionId, epoch: Epoch) -> Result<()> {
        self.check_session(id).await?;
        self.own.sessions.leases().heartbeat(id, epoch).await
    }

    async fn status(&self, id: SessionId, epoch: Epoch) -> Result<LeaseStatus> {
        self.check_session(id).await?;
        self.own.sessions.leases().status(id, epoch).await
    }
}

#[async_trait]
impl BlobStore for OwnerStore {
    async fn put(&self, put: PutBlob) -> Result<()> {
        // The session may be created later.
        self.check_session_if_any(put.session).await?;
        self.own.sessions.blobs().put(put).await
    }

    async fn read(&self, read: ReadBlob) -> Result<BlobContent> {
        self.check_session(read.session).await?;
        self.own.sessions.blobs().read(read).await
    }

    async fn list(&self, query: BlobQuery) -> Result<Page<BlobInfo>> {
        self.check_session(query.session).await?;
        self.own.sessions.blobs().list(query).await
    }

    async fn sweep(&self, sweep: SweepBlobs) -> Result<SweptBlobs> {
        let Some(session) = sweep.session else {
            return Err(self.only_for_tenant("a sweep of the blobs without a session"));
        };
        self.check_own_session(session, "a sweep").await?;
        self.own.sessions.blobs().sweep(sweep).await
    }
}

#[async_trait]
impl Maintenance for OwnerStore {
    async fn check(&self) -> Result<Vec<Damaged>> {
        Err(self.only_for_tenant("the check of a store"))
    }

    async fn rebuild(&self) -> Result<Rebuilt> {
        Err(self.only_for_tenant("the repair of a store"))
    }

    async fn delete_damaged(&self, _: SessionId, _: Timestamp, _: Reason) -> Result<Arc<SessionRecord>> {
        Err(self.only_for_tenant("the deletion of a damaged session"))
    }

    async fn pending(&self) -> Result<Vec<Pending>> {
        Err(self.only_for_tenant("the maintenance of a store"))
    }

    async fn maintain(&self) -> Result<Vec<Pending>> {
        Err(self.only_for_tenant("the maintenance of a store"))
    }
}
