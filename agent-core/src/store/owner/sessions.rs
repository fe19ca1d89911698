//! Sessions of one owner.

use std::sync::Arc;

use async_trait::async_trait;

use crate::base::{Epoch, Error, ErrorKind, OwnerId, Reason, Result, Seq, SessionId, Timestamp};
use crate::commit::{Commit, Committed, Step, Trigger};
use crate::event::{Created, EventType};
use crate::model::BlobInfo;
use crate::session::{NewSession, SessionRecord, SessionSummary};
use crate::store::blob::{BlobContent, BlobQuery, PutBlob, ReadBlob, SweepBlobs, SweptBlobs};
use crate::store::blob_store::BlobStore;
use crate::store::hidden::HiddenSession;
use crate::store::lease::{LeaseStatus, LeaseStore};
use crate::store::maintenance::{Maintenance, Pending, Rebuilt};
use crate::store::owner::{OwnerStore, Share, is_shared};
use crate::store::page::{Damaged, Page};
use crate::store::read::{EventPage, ReadEvents};
use crate::store::session::{Capabilities, Purge, Purged, SessionQuery, SessionStore};

#[async_trait]
impl SessionStore for OwnerStore {
    async fn commit(&self, mut commit: Commit) -> Result<Committed> {
        let id = commit.session;
        if !self.prepare_creation(&mut commit).await? {
            self.check_session(id).await?;
            return self.tenant.sessions.commit(commit).await;
        }
        let committed = match self.tenant.sessions.commit(commit).await {
            Ok(committed) => committed,
            Err(error) => return Err(self.hide_holder(id, error).await),
        };
        // The commit may have the id of another owner's commit.
        self.check_record(&committed.session).await.map_err(|_| id_is_taken(id))?;
        Ok(committed)
    }

    async fn load(&self, id: SessionId) -> Result<Arc<SessionRecord>> {
        let session = self.tenant.sessions.load(id).await?;
        self.check_record(&session).await?;
        Ok(session)
    }

    async fn read(&self, id: SessionId, read: ReadEvents) -> Result<EventPage> {
        self.check_session(id).await?;
        self.tenant.sessions.read(id, read).await
    }

    async fn list(&self, query: SessionQuery) -> Result<Page<SessionSummary>> {
        self.check_owner(query.owner.as_ref())?;
        let share = match query.workspace {
            Some(workspace) => self.share(workspace).await?,
            None => Share::Shared,
        };
        // Whatever is in a workspace of the owner is the owner's to see.
        if share == Share::Own {
            return self.tenant.sessions.list(query).await;
        }
        let mut page = self.tenant.sessions.list(query.with_owner(self.owner.clone())).await?;
        // Whose a session was that cannot be read is not known.
        page.damaged.clear();
        Ok(page)
    }

    async fn purge(&self, purge: Purge) -> Result<Purged> {
        self.check_session(purge.session).await?;
        self.tenant.sessions.purge(purge).await
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
        self.tenant.sessions.changed(id, seen).await
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
                self.check_workspace(created.workspace).await?;
                let hidden = HiddenSession::of(commit.session, created.workspace, &created.attributes);
                match created.owner.as_ref() == Some(&self.owner) || is_shared(hidden) {
                    true => Ok(true),
                    false => Err(self.only_for_tenant("a restored session of another owner, or of none,")),
                }
            }
            _ => Ok(false),
        }
    }

    /// Returns the owner of a new session: that of its parent, none for a hidden session, else that of the handle.
    async fn owner_of_new(&self, new: &NewSession) -> Result<Option<OwnerId>> {
        let created = &new.created;
        self.check_owner(created.owner.as_ref())?;
        self.check_workspace(created.workspace).await?;
        for ancestor in &created.lineage.segments {
            self.check_session(ancestor.session).await?;
        }
        if let Some(parent) = created.origin.parent() {
            return Ok(self.load(parent).await?.owner.clone());
        }
        match HiddenSession::of(new.id, created.workspace, &created.attributes) {
            None => Ok(Some(self.owner.clone())),
            hidden if is_shared(hidden.clone()) => Ok(None),
            Some(_) => Err(self.only_for_tenant("the audit")),
        }
    }

    /// Returns whether no session has this id.
    async fn is_free(&self, id: SessionId) -> Result<bool> {
        match self.tenant.sessions.load(id).await {
            Ok(_) => Ok(false),
            Err(error) if *error.kind() == ErrorKind::NotFound => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// Returns the error of a creation, without a trace of another owner's session that has the id.
    async fn hide_holder(&self, id: SessionId, error: Error) -> Error {
        match self.tenant.sessions.load(id).await {
            Ok(session) if self.check_record(&session).await.is_err() => id_is_taken(id),
            _ => error,
        }
    }
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
        self.tenant.sessions.leases().heartbeat(id, epoch).await
    }

    async fn status(&self, id: SessionId, epoch: Epoch) -> Result<LeaseStatus> {
        self.check_session(id).await?;
        self.tenant.sessions.leases().status(id, epoch).await
    }
}

#[async_trait]
impl BlobStore for OwnerStore {
    async fn put(&self, put: PutBlob) -> Result<()> {
        match self.check_session(put.session).await {
            // The session may be created later.
            Err(error) if *error.kind() == ErrorKind::NotFound && self.is_free(put.session).await? => {}
            checked => checked?,
        }
        self.tenant.sessions.blobs().put(put).await
    }

    async fn read(&self, read: ReadBlob) -> Result<BlobContent> {
        self.check_session(read.session).await?;
        self.tenant.sessions.blobs().read(read).await
    }

    async fn list(&self, query: BlobQuery) -> Result<Page<BlobInfo>> {
        self.check_session(query.session).await?;
        self.tenant.sessions.blobs().list(query).await
    }

    async fn sweep(&self, sweep: SweepBlobs) -> Result<SweptBlobs> {
        let Some(session) = sweep.session else {
            return Err(self.only_for_tenant("a sweep of the blobs without a session"));
        };
        self.check_session(session).await?;
        self.tenant.sessions.blobs().sweep(sweep).await
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
