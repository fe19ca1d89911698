//! The store: the three traits, each method thin over the tenant's part of the bucket.

use std::sync::Arc;
use std::time::Duration;

use agent_core::commit::{Commit, Committed, Expect, Step};
use agent_core::event::Event;
use agent_core::model::Workspace;
use agent_core::session::{Session, SessionSummary};
use agent_core::store::{
    Binding, BindingQuery, Capabilities, ContentHash, Durability, EventPage, Page, Pulse, Purge, Purged,
    ReadEvents, Scope, SessionQuery, StoreAddress, WorkspaceQuery,
};
use agent_core::{
    BindingStore, DeviceId, Epoch, Error, ErrorKind, OpenState, Result, Revision, Seq, SessionId,
    SessionStore, Storage, TenantId, Tenants, Timestamp, WorkspaceId, WorkspaceStore, async_trait,
};
use tracing::field::Empty;
use tracing::{Instrument, Span, info_span};

use crate::config::S3Config;
use crate::keys::{self, Keys};
use crate::object::{Bucket, Requests};
use crate::tenant::Tenant;
use crate::{beats, commits, listing, probe, purging, reading};

/// How often a session is looked at by those who wait for a change that another store makes. Each look is a request.
const LOOK: Duration = Duration::from_millis(250);
const LOOK_MAX: Duration = Duration::from_secs(2);

/// Keeps workspaces, sessions and bindings in a bucket, for one tenant. Clones share their connections; other handles
/// on the same bucket and prefix, on this machine or another, behave like this one.
///
/// Needs tokio's time, and a runtime that drives its network.
#[derive(Clone, Debug)]
pub struct S3Store {
    bucket: Arc<Bucket>,
    prefix: Arc<str>,
    tenant: Arc<Tenant>,
    open: OpenState,
}

impl S3Store {
    pub(crate) async fn open(config: S3Config) -> Result<Self> {
        let span = info_span!("store.open", store = "s3", outcome = Empty);
        let work = async {
            let mut bucket = Bucket::new(&config)?;
            if !config.create {
                let all = keys::tenants(config.prefix());
                if bucket.first(&all, None, bucket.deadline()).await?.is_none() {
                    let text = format!("{config} holds no store; check the address");
                    return Err(Error::new(ErrorKind::NotFound, text));
                }
            }
            probe::probe(&mut bucket, config.prefix()).await?;
            let open = OpenState::new(format!("the store {config}"));
            Ok(Self::on(Arc::new(bucket), config.prefix().into(), &TenantId::default(), open))
        };
        observed(span, work).await
    }

    fn on(bucket: Arc<Bucket>, prefix: Arc<str>, tenant: &TenantId, open: OpenState) -> Self {
        let tenant = Arc::new(Tenant::new(&bucket, &Keys::new(&prefix, tenant)));
        Self { bucket, prefix, tenant, open }
    }

    /// The same store for another tenant. No I/O: a tenant that was never written to is empty.
    #[must_use]
    pub fn tenant(&self, tenant: &TenantId) -> Self {
        Self::on(self.bucket.clone(), self.prefix.clone(), tenant, self.open.clone())
    }

    /// How many requests were sent since the store was opened, by it, its clones, and its other tenants.
    pub fn requests(&self) -> Requests {
        self.bucket.requests()
    }

    /// Closes the store for all of its tenants and clones: calls after it fail with `Unavailable`. What has begun goes on to
    /// its end with its callers; connections are given back when the last clone is dropped.
    ///
    /// # Errors
    ///
    /// None.
    pub async fn close(&self) -> Result<()> {
        self.open.close(async { Ok(()) }).await
    }

    /// Runs an operation on the open store.
    async fn observed<T>(&self, span: Span, work: impl Future<Output = Result<T>>) -> Result<T> {
        let work = async {
            self.open.check()?;
            work.await
        };
        observed(span, work).await
    }
}

impl S3Config {
    /// Opens the store, after a probe that the server keeps the preconditions on which everything rests.
    ///
    /// # Errors
    ///
    /// `Unsupported` where the server ignores a precondition, lists late or out of order; the text names what.
    /// `NotFound` where there is no such bucket, or no store and [none is to be made](Self::with_create); `InvalidInput`, `Denied`, `Unavailable`.
    pub async fn open(self) -> Result<S3Store> {
        S3Store::open(self).await
    }
}

#[async_trait]
impl StoreAddress for S3Config {
    async fn open(&self) -> Result<Arc<dyn Tenants>> {
        Ok(Arc::new(self.clone().open().await?))
    }
}

/// Runs an operation in its span, and notes there how it ended.
async fn observed<T>(span: Span, work: impl Future<Output = Result<T>>) -> Result<T> {
    let done = work.instrument(span.clone()).await;
    span.record("outcome", done.as_ref().map_or_else(|error| error.kind().name(), |_| "ok"));
    done
}

fn size_bytes(commit: &Commit) -> usize {
    let size = |step: &Step| match step {
        Step::Event(event) => event.data.get().len(),
        _ => 0,
    };
    commit.steps.iter().map(size).sum()
}

#[async_trait]
impl SessionStore for S3Store {
    async fn commit(&self, commit: Commit) -> Result<Committed> {
        let bytes = size_bytes(&commit);
        let span = info_span!("store.commit", store = "s3", session = %commit.session, events = Empty, bytes, outcome = Empty);
        let noted = span.clone();
        let work = async {
            let done = commits::commit(&self.tenant.slots, commit).await?;
            noted.record("events", (done.last.get() + 1).saturating_sub(done.first.get()));
            Ok(done)
        };
        self.observed(span, work).await
    }

    async fn load(&self, id: SessionId) -> Result<Arc<Session>> {
        let span = info_span!("store.load", store = "s3", session = %id, outcome = Empty);
        let until = self.bucket.deadline();
        self.observed(span, self.tenant.slots.load(id, until)).await
    }

    async fn read(&self, id: SessionId, read: ReadEvents) -> Result<EventPage> {
        let span = info_span!("store.read", store = "s3", session = %id, events = Empty, bytes = Empty, outcome = Empty);
        let noted = span.clone();
        let work = async {
            let page = reading::read(&self.tenant.slots, id, &read).await?;
            noted.record("events", page.events.len());
            noted.record("bytes", page.events.iter().map(Event::size_bytes).sum::<usize>());
            Ok(page)
        };
        self.observed(span, work).await
    }

    async fn list(&self, query: SessionQuery) -> Result<Page<SessionSummary>> {
        let span = info_span!("store.list_sessions", store = "s3", outcome = Empty);
        self.observed(span, listing::list(&self.tenant.slots, &query)).await
    }

    async fn purge(&self, purge: Purge) -> Result<Purged> {
        let span = info_span!("store.purge", store = "s3", session = %purge.session, outcome = Empty);
        let work = async {
            let purge = purge.sparing_forks(self).await?;
            purging::purge(&self.tenant.slots, &purge).await
        };
        self.observed(span, work).await
    }

    async fn beat(&self, id: SessionId, epoch: Epoch) -> Result<()> {
        let span = info_span!("store.beat", store = "s3", session = %id, outcome = Empty);
        self.observed(span, beats::beat(&self.tenant.slots, id, epoch)).await
    }

    async fn pulse(&self, id: SessionId, epoch: Epoch) -> Result<Pulse> {
        let span = info_span!("store.pulse", store = "s3", session = %id, outcome = Empty);
        self.observed(span, beats::pulse(&self.tenant.slots, id, epoch)).await
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::new(Scope::Network, Durability::PowerLoss)
    }

    async fn changed(&self, id: SessionId, seen: Seq) -> Result<Seq> {
        let span = info_span!("store.changed", store = "s3", session = %id, outcome = Empty);
        let work = async {
            // What this store writes or sees is told at once; what others write is looked for.
            let mut told = self.tenant.slots.heads.watch();
            let mut pause = LOOK;
            loop {
                let head = self.tenant.slots.load(id, self.bucket.deadline()).await?.head;
                if head > seen {
                    return Ok(head);
                }
                let known = || self.tenant.slots.heads.get(id).is_some_and(|head| head.head.last > seen);
                let _ = tokio::time::timeout(pause, told.wait_for(|_| known())).await;
                self.open.check()?;
                pause = (pause * 3 / 2).min(LOOK_MAX);
            }
        };
        self.observed(span, work).await
    }

    async fn close(&self) -> Result<()> {
        self.close().await
    }
}

#[async_trait]
impl WorkspaceStore for S3Store {
    async fn load(&self, id: WorkspaceId) -> Result<Workspace> {
        let span = info_span!("store.load_workspace", store = "s3", workspace = %id, outcome = Empty);
        self.observed(span, self.tenant.workspaces.load(id)).await
    }

    async fn put(&self, workspace: Workspace, expect: Expect<Revision>) -> Result<Workspace> {
        let span =
            info_span!("store.put_workspace", store = "s3", workspace = %workspace.id, outcome = Empty);
        self.observed(span, self.tenant.workspaces.put(workspace, expect)).await
    }

    async fn touch(&self, id: WorkspaceId, at: Timestamp) -> Result<()> {
        let span = info_span!("store.touch", store = "s3", workspace = %id, outcome = Empty);
        self.observed(span, self.tenant.workspaces.touch(id, at)).await
    }

    async fn list(&self, query: WorkspaceQuery) -> Result<Page<Workspace>> {
        let span = info_span!("store.list_workspaces", store = "s3", outcome = Empty);
        self.observed(span, self.tenant.workspaces.list(&query)).await
    }

    async fn delete(&self, id: WorkspaceId) -> Result<()> {
        let span = info_span!("store.delete_workspace", store = "s3", workspace = %id, outcome = Empty);
        self.observed(span, self.tenant.workspaces.delete(id)).await
    }

    async fn load_config(&self, id: WorkspaceId) -> Result<Option<String>> {
        let span = info_span!("store.load_config", store = "s3", workspace = %id, outcome = Empty);
        self.observed(span, self.tenant.workspaces.load_config(id)).await
    }

    async fn save_config(
        &self,
        id: WorkspaceId,
        text: Option<String>,
        expect: Expect<ContentHash>,
    ) -> Result<()> {
        let span = info_span!("store.save_config", store = "s3", workspace = %id, outcome = Empty);
        self.observed(span, self.tenant.workspaces.save_config(id, text, expect)).await
    }

    async fn close(&self) -> Result<()> {
        self.close().await
    }
}

#[async_trait]
impl BindingStore for S3Store {
    async fn resolve(&self, device: &DeviceId) -> Result<Option<WorkspaceId>> {
        let span = info_span!("store.resolve", store = "s3", outcome = Empty);
        self.observed(span, self.tenant.bindings.resolve(device)).await
    }

    async fn bind(
        &self,
        device: &DeviceId,
        to: WorkspaceId,
        expect: Expect<WorkspaceId>,
    ) -> Result<WorkspaceId> {
        let span = info_span!("store.bind", store = "s3", workspace = %to, outcome = Empty);
        self.observed(span, self.tenant.bindings.bind(device, to, expect)).await
    }

    async fn unbind(&self, device: &DeviceId) -> Result<bool> {
        let span = info_span!("store.unbind", store = "s3", outcome = Empty);
        self.observed(span, self.tenant.bindings.unbind(device)).await
    }

    async fn unbind_workspace(&self, id: WorkspaceId) -> Result<u64> {
        let span = info_span!("store.unbind_workspace", store = "s3", workspace = %id, outcome = Empty);
        self.observed(span, self.tenant.bindings.unbind_workspace(id)).await
    }

    async fn list(&self, query: BindingQuery) -> Result<Page<Binding>> {
        let span = info_span!("store.list_bindings", store = "s3", outcome = Empty);
        self.observed(span, self.tenant.bindings.list(&query)).await
    }

    async fn close(&self) -> Result<()> {
        self.close().await
    }
}

#[async_trait]
impl Tenants for S3Store {
    fn storage(&self, tenant: &TenantId) -> Storage {
        self.tenant(tenant).into()
    }

    async fn list(&self, after: Option<TenantId>) -> Result<Page<TenantId>> {
        let span = info_span!("store.list_tenants", store = "s3", outcome = Empty);
        self.observed(span, listing::tenants(&self.bucket, &self.prefix, after.as_ref())).await
    }

    async fn close(&self) -> Result<()> {
        self.close().await
    }
}
