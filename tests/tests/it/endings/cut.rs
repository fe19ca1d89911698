//! Stores that fail, die, or let another caller in between, at the n-th call.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use agent_core::commit::{Commit, Committed, Precondition};
use agent_core::model::Workspace;
use agent_core::session::{SessionRecord, SessionSummary};
use agent_core::store::{
    Binding, BindingQuery, BlobStore, Capabilities, ContentHash, Damaged, EventPage, LeaseStatus, LeaseStore,
    Maintenance, Page, Purge, Purged, ReadEvents, SessionQuery, WorkspaceQuery,
};
use agent_core::{
    BindingStore, DeviceId, Epoch, Error, ErrorKind, Result, Revision, Seq, SessionId, SessionStore, Storage,
    Timestamp, WorkspaceId, WorkspaceStore, WriteOutcome, async_trait,
};
use futures::future::BoxFuture;

/// What happens at the n-th call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    /// It fails, and all others work.
    Fails,
    /// The process dies before it: it and all later calls do nothing.
    DiesBefore,
    /// The process dies after it: it is done, its reply is lost, and all later calls do nothing.
    DiesAfter,
}

impl Cut {
    pub(crate) const ALL: [Self; 3] = [Self::Fails, Self::DiesBefore, Self::DiesAfter];
}

type Visit = Box<dyn FnOnce() -> BoxFuture<'static, ()> + Send>;

/// Three stores in front of three others.
#[derive(Clone)]
pub(crate) struct Cutting(Arc<Inner>);

struct Inner {
    under: Storage,
    calls: AtomicUsize,
    cut: Option<(usize, Cut)>,
    visit: Mutex<Option<(usize, Visit)>>,
}

impl fmt::Debug for Cutting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cutting({:?})", self.0.cut)
    }
}

impl Cutting {
    /// Cuts at the call `at`, counted from 1.
    pub(crate) fn new(under: &Storage, at: usize, cut: Cut) -> Self {
        Self::with(under, Some((at, cut)), None)
    }

    /// Lets somebody in before the call `at`, and cuts later, where `cut` says so.
    pub(crate) fn visited(
        under: &Storage,
        at: usize,
        visit: impl FnOnce() -> BoxFuture<'static, ()> + Send + 'static,
        cut: Option<(usize, Cut)>,
    ) -> Self {
        Self::with(under, cut, Some((at, Box::new(visit))))
    }

    fn with(under: &Storage, cut: Option<(usize, Cut)>, visit: Option<(usize, Visit)>) -> Self {
        let (calls, visit) = (AtomicUsize::new(0), Mutex::new(visit));
        Self(Arc::new(Inner { under: under.clone(), calls, cut, visit }))
    }

    pub(crate) fn storage(&self) -> Storage {
        Storage::new(Arc::new(self.clone()), Arc::new(self.clone()), Arc::new(self.clone()))
    }

    /// How many calls there were.
    pub(crate) fn calls(&self) -> usize {
        self.0.calls.load(Ordering::SeqCst)
    }

    async fn call<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        let n = self.0.calls.fetch_add(1, Ordering::SeqCst) + 1;
        let due = |visit: &mut Option<(usize, Visit)>| visit.take_if(|(at, _)| *at == n);
        let visit = due(&mut self.0.visit.lock().unwrap());
        if let Some((_, visit)) = visit {
            visit().await;
        }
        let dead = || Error::new(ErrorKind::Poisoned, "the process is dead, says the test");
        match self.0.cut {
            Some((at, Cut::Fails)) if n == at => Err(Error::new(ErrorKind::Full, "no space, says the test")),
            Some((at, Cut::DiesBefore)) if n >= at => Err(dead()),
            Some((at, Cut::DiesAfter)) if n == at => {
                let _ = work.await;
                Err(dead().with_outcome(WriteOutcome::Unknown))
            }
            Some((at, Cut::DiesAfter)) if n > at => Err(dead()),
            _ => work.await,
        }
    }
}

#[async_trait]
impl SessionStore for Cutting {
    async fn commit(&self, commit: Commit) -> Result<Committed> {
        self.call(self.0.under.sessions.commit(commit)).await
    }

    async fn load(&self, id: SessionId) -> Result<Arc<SessionRecord>> {
        self.call(self.0.under.sessions.load(id)).await
    }

    async fn read(&self, id: SessionId, read: ReadEvents) -> Result<EventPage> {
        self.call(self.0.under.sessions.read(id, read)).await
    }

    async fn list(&self, query: SessionQuery) -> Result<Page<SessionSummary>> {
        self.call(self.0.under.sessions.list(query)).await
    }

    async fn purge(&self, purge: Purge) -> Result<Purged> {
        self.call(self.0.under.sessions.purge(purge)).await
    }

    fn capabilities(&self) -> Capabilities {
        self.0.under.sessions.capabilities()
    }

    async fn changed(&self, id: SessionId, seen: Seq) -> Result<Seq> {
        self.call(self.0.under.sessions.changed(id, seen)).await
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
}

#[async_trait]
impl LeaseStore for Cutting {
    async fn heartbeat(&self, id: SessionId, epoch: Epoch) -> Result<()> {
        self.call(self.0.under.sessions.leases().heartbeat(id, epoch)).await
    }

    async fn status(&self, id: SessionId, epoch: Epoch) -> Result<LeaseStatus> {
        self.call(self.0.under.sessions.leases().status(id, epoch)).await
    }
}

#[async_trait]
impl BlobStore for Cutting {
    async fn put(&self, put: agent_core::store::PutBlob) -> Result<()> {
        self.call(self.0.under.sessions.blobs().put(put)).await
    }

    async fn read(&self, read: agent_core::store::ReadBlob) -> Result<agent_core::store::BlobContent> {
        self.call(self.0.under.sessions.blobs().read(read)).await
    }

    async fn list(&self, query: agent_core::store::BlobQuery) -> Result<Page<agent_core::store::BlobInfo>> {
        self.call(self.0.under.sessions.blobs().list(query)).await
    }

    async fn sweep(&self, sweep: agent_core::store::SweepBlobs) -> Result<agent_core::store::SweptBlobs> {
        self.call(self.0.under.sessions.blobs().sweep(sweep)).await
    }
}

#[async_trait]
impl Maintenance for Cutting {
    async fn check(&self) -> Result<Vec<Damaged>> {
        self.call(self.0.under.sessions.maintenance().check()).await
    }

    async fn rebuild(&self) -> Result<agent_core::store::Rebuilt> {
        self.call(self.0.under.sessions.maintenance().rebuild()).await
    }
}

#[async_trait]
impl WorkspaceStore for Cutting {
    async fn load(&self, id: WorkspaceId) -> Result<Workspace> {
        self.call(self.0.under.workspaces.load(id)).await
    }

    async fn put(&self, workspace: Workspace, expect: Precondition<Revision>) -> Result<Workspace> {
        self.call(self.0.under.workspaces.put(workspace, expect)).await
    }

    async fn touch(&self, id: WorkspaceId, at: Timestamp) -> Result<()> {
        self.call(self.0.under.workspaces.touch(id, at)).await
    }

    async fn list(&self, query: WorkspaceQuery) -> Result<Page<Workspace>> {
        self.call(self.0.under.workspaces.list(query)).await
    }

    async fn delete(&self, id: WorkspaceId) -> Result<()> {
        self.call(self.0.under.workspaces.delete(id)).await
    }

    async fn load_config(&self, id: WorkspaceId) -> Result<Option<String>> {
        self.call(self.0.under.workspaces.load_config(id)).await
    }

    async fn save_config(
        &self,
        id: WorkspaceId,
        text: Option<String>,
        expect: Precondition<ContentHash>,
    ) -> Result<()> {
        self.call(self.0.under.workspaces.save_config(id, text, expect)).await
    }
}

#[async_trait]
impl BindingStore for Cutting {
    async fn resolve(&self, device: &DeviceId) -> Result<Option<WorkspaceId>> {
        self.call(self.0.under.bindings.resolve(device)).await
    }

    async fn bind(
        &self,
        device: &DeviceId,
        to: WorkspaceId,
        expect: Precondition<WorkspaceId>,
    ) -> Result<WorkspaceId> {
        self.call(self.0.under.bindings.bind(device, to, expect)).await
    }

    async fn unbind(&self, device: &DeviceId) -> Result<bool> {
        self.call(self.0.under.bindings.unbind(device)).await
    }

    async fn unbind_workspace(&self, id: WorkspaceId) -> Result<u64> {
        self.call(self.0.under.bindings.unbind_workspace(id)).await
    }

    async fn list(&self, query: BindingQuery) -> Result<Page<Binding>> {
        self.call(self.0.under.bindings.list(query)).await
    }
}
