//! Store: implements the three traits, each method a thin layer over the tenant's part of the bucket.

use std::sync::Arc;
use std::time::Duration;

use agent_core::commit::{Commit, Committed, Precondition, Step};
use agent_core::event::Event;
use agent_core::model::Workspace;
use agent_core::session::{SessionRecord, SessionSummary};
use agent_core::state::Reason;
use agent_core::store::{
    BLOB_MAX_BYTES, BackendConfig, Binding, BindingQuery, BlobContent, BlobInfo, BlobQuery, BlobStore,
    Capabilities, ContentHash, Damaged, DeletedTenant, Durability, EventPage, LeaseStatus, LeaseStore,
    Maintenance, Page, Purge, Purged, PutBlob, ReadBlob, ReadEvents, Rebuilt, Scope, SessionQuery,
    SweepBlobs, SweptBlobs, WorkspaceQuery, check_no_live_run, observed,
};
use agent_core::{
    Backend, BindingStore, DeviceId, Epoch, Error, ErrorKind, OpenState, Result, Revision, Seq, SessionId,
    SessionStore, Storage, TenantId, Timestamp, WorkspaceId, WorkspaceStore, WriteOutcome, async_trait,
};
use tracing::field::Empty;
use tracing::{Span, info_span};

use crate::blobs::content::Place;
use crate::blobs::{content, sweep};
use crate::care::{delete_damaged, foreign, purge, rebuild};
use crate::config::S3Config;
use crate::error::at_opening;
use crate::layout::keys::{self, LAG_MINUTES, Minute};
use crate::lists::pages;
use crate::log::{commit, heartbeats, read};
use crate::medium::busy;
use crate::medium::object::Bucket;
use crate::medium::requests::Requests;
use crate::medium::versions;
use crate::opening::probe::{self, Known};
use crate::places::delete_tenant;
use crate::places::generations::{self, Current, Generations, is_absence};
use crate::places::tenant::Tenant;

/// Interval at which a session is checked for changes by other stores while a caller waits for one. Each check is a
/// request.
const POLL: Duration = Duration::from_millis(250);
const POLL_MAX: Duration = Duration::from_secs(2);
/// Shortest sensible ttl of a lease. A holder sends three heartbeats in a ttl, and each is a request: with this ttl, a
/// run of half a minute sends none.
const MIN_LEASE: Duration = Duration::from_secs(120);

/// Store of workspaces, sessions and bindings in a bucket, for one tenant. Clones share their connections. Other
/// handles on the same bucket and prefix, on this machine or another, work on the same data.
///
/// Needs tokio with time enabled, and a runtime that drives its network I/O.
///
/// ```no_run
/// # async fn example() -> agent_core::Result<()> {
/// use agent_core::SessionStore;
/// use agent_core::store::SessionQuery;
/// use agent_storage_s3::S3Config;
///
/// let store = S3Config::from_url("s3://my-bucket/agents?region=eu-central-1")?.open().await?;
/// let page = store.list(SessionQuery::new()).await?;
/// println!("{} sessions", page.items.len());
/// store.close().await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct S3Store {
    bucket: Arc<Bucket>,
    prefix: Arc<str>,
    generations: Arc<Generations>,
    current: Arc<Current>,
    open: OpenState,
}

impl S3Store {
    pub(crate) async fn open(config: S3Config) -> Result<Self> {
        let span = info_span!("store.open", store = "s3", outcome = Empty);
        let work = async {
            let mut bucket = Bucket::new(&config)?;
            match probe::known(&bucket, config.prefix()).await? {
                Known::Passed(tags, settings) => (bucket.tags, bucket.settings) = (tags, settings),
                known => {
                    let all = keys::tenants(config.prefix());
                    if known == Known::Absent
                        && !config.create
                        && bucket.first(&all, None, bucket.deadline()).await?.is_none()
                    {
                        let text = format!("{config} holds no store; check the address");
                        return Err(Error::not_found(text));
                    }
                    probe::probe(&mut bucket, config.prefix(), &config.wanted).await?;
                }
            }
            config.wanted.check(&config, &bucket.settings)?;
            let open = OpenState::new(format!("the store {config}"));
            let (bucket, prefix) = (Arc::new(bucket), Arc::<str>::from(config.prefix()));
            let generations = Arc::new(Generations::new(bucket.clone(), prefix.clone()));
            let tenant = TenantId::default();
            generations.read(&tenant, bucket.deadline()).await?;
            let current = Arc::new(Current::new(generations.clone(), tenant));
            Ok(Self { bucket, prefix, generations, current, open })
        };
        observed(span, async { work.await.map_err(at_opening) }).await
    }

    /// Returns the same store for another tenant. Does no I/O: a tenant that was never written to is empty.
    ///
    /// ```no_run
    /// # async fn example() -> agent_core::Result<()> {
    /// # use agent_storage_s3::S3Config;
    /// # let store = S3Config::new("my-bucket").open().await?;
    /// use agent_core::commit::Precondition;
    /// use agent_core::{BindingStore, WorkspaceId};
    ///
    /// let acme = store.for_tenant(&"acme".parse()?);
    /// acme.bind(&"laptop".parse()?, WorkspaceId::DEFAULT, Precondition::MustNotExist).await?;
    /// assert_eq!(store.resolve(&"laptop".parse()?).await?, None);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn for_tenant(&self, tenant: &TenantId) -> Self {
        Self { current: Arc::new(Current::new(self.generations.clone(), tenant.clone())), ..self.clone() }
    }

    /// Returns the number of requests sent since the store was opened, by it, its clones, and its other tenants.
    pub fn requests(&self) -> Requests {
        self.bucket.requests()
    }

    /// Closes the store for all of its tenants and clones: later calls fail with `Unavailable`. Operations that have
    /// begun complete, as their callers await them. Connections are released when the last clone is dropped.
    ///
    /// # Errors
    ///
    /// None.
    ///
    /// ```no_run
    /// # async fn example() -> agent_core::Result<()> {
    /// # use agent_core::{ErrorKind, SessionStore};
    /// # use agent_core::store::SessionQuery;
    /// # use agent_storage_s3::S3Config;
    /// let store = S3Config::new("my-bucket").open().await?;
    /// store.close().await?;
    /// let error = store.list(SessionQuery::new()).await.unwrap_err();
    /// assert_eq!(*error.kind(), ErrorKind::Unavailable);
    /// # Ok(()) }
    /// ```
    pub async fn close(&self) -> Result<()> {
        self.generations.background.stop();
        let finish = async {
            self.generations.background.finish().await;
            Ok(())
        };
        self.open.close(finish).await
    }

    /// Runs an operation on the tenant. If its result `relies` on the tenant not being deleted, that is checked, and
    /// the operation is repeated on the empty tenant.
    async fn on<T, F: Future<Output = Result<T>>>(
        &self,
        span: Span,
        relies: impl Fn(&Result<T>) -> bool,
        work: impl Fn(Arc<Tenant>) -> F,
    ) -> Result<T> {
        self.observed(span, self.current.run(&self.bucket, relies, work, generations::nothing)).await
    }

    /// Like [`on`](Self::on), for an operation that may create an object, which `take_back` removes.
    async fn create<T, F: Future<Output = Result<T>>, G: Future<Output = Result<()>>>(
        &self,
        span: Span,
        relies: impl Fn(&Result<T>) -> bool,
        work: impl Fn(Arc<Tenant>) -> F,
        take_back: impl Fn(Arc<Tenant>) -> G,
    ) -> Result<T> {
        self.observed(span, self.current.run(&self.bucket, relies, work, take_back)).await
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
    /// Opens the store, after probing that the server supports the preconditions that the protocol depends on. An
    /// object below the prefix says that this server passed the probe in the last week; then opening takes two
    /// requests, and needs no right to write.
    ///
    /// # Errors
    ///
    /// `Unsupported` if the server ignores a precondition, or lists late or out of order; the text names what is
    /// missing. `NotFound` if the bucket does not exist, or there is no store and [creation is
    /// disabled](Self::with_create); `InvalidInput`, `Denied`, `Unavailable`.
    ///
    /// ```no_run
    /// # async fn example() -> agent_core::Result<()> {
    /// use agent_storage_s3::S3Config;
    ///
    /// // Credentials come from the environment, as for other S3 clients.
    /// let store = S3Config::new("my-bucket").with_prefix("agents")?.open().await?;
    /// # Ok(()) }
    /// ```
    pub async fn open(self) -> Result<S3Store> {
        S3Store::open(self).await
    }
}

#[async_trait]
impl BackendConfig for S3Config {
    async fn open(&self) -> Result<Arc<dyn Backend>> {
        Ok(Arc::new(self.clone().open().await?))
    }
}

/// Result of an operation that is right only if the tenant was not deleted.
fn always<T>(_: &Result<T>) -> bool {
    true
}

fn size_bytes(commit: &Commit) -> usize {
    let size = |step: &Step| match step {
        Step::Event(event) => event.payload.get().len(),
        _ => 0,
    };
    commit.steps.iter().map(size).sum()
}

#[async_trait]
impl SessionStore for S3Store {
    async fn commit(&self, commit: Commit) -> Result<Committed> {
        let (id, bytes) = (commit.session, size_bytes(&commit));
        let span =
            info_span!("store.commit", store = "s3", session = %id, events = Empty, bytes, outcome = Empty);
        let recorded = span.clone();
        let commit = &commit;
        let work = |tenant: Arc<Tenant>| async move { commit::commit(&tenant.slots, commit.clone()).await };
        // The commit may have created the session.
        let is_first = |done: &Committed| done.first == done.session.lineage.base().next();
        let is_missing = |error: &Error| matches!(error.kind(), ErrorKind::BlobMissing { .. });
        let relies =
            |done: &Result<Committed>| is_absence(done) || done.as_ref().map_or_else(is_missing, is_first);
        let take_back = |tenant: Arc<Tenant>| async move {
            delete_tenant::remove_session(&tenant.slots, id).await.map(drop)
        };
        let done = self.create(span, relies, work, take_back).await?;
        recorded.record("events", (done.last.get() + 1).saturating_sub(done.first.get()));
        Ok(done)
    }

    async fn load(&self, id: SessionId) -> Result<Arc<SessionRecord>> {
        let span = info_span!("store.load", store = "s3", session = %id, outcome = Empty);
        let until = self.bucket.deadline();
        self.on(span, is_absence, |tenant| async move { tenant.slots.load(id, until).await }).await
    }

    async fn read(&self, id: SessionId, read: ReadEvents) -> Result<EventPage> {
        let span = info_span!("store.read", store = "s3", session = %id, events = Empty, bytes = Empty, outcome = Empty);
        let recorded = span.clone();
        let read = &read;
        let work = |tenant: Arc<Tenant>| async move { read::read(&tenant.slots, id, read).await };
        let relies = |done: &Result<EventPage>| {
            is_absence(done) || done.as_ref().is_ok_and(|page| !page.damaged.is_empty())
        };
        let page = self.on(span, relies, work).await?;
        recorded.record("events", page.events.len());
        recorded.record("bytes", page.events.iter().map(Event::size_bytes).sum::<usize>());
        Ok(page)
    }

    async fn list(&self, query: SessionQuery) -> Result<Page<SessionSummary>> {
        let span = info_span!("store.list_sessions", store = "s3", outcome = Empty);
        let query = &query;
        let work = |tenant: Arc<Tenant>| async move { pages::list(&tenant.slots, query).await };
        self.on(span, always, work).await
    }

    async fn purge(&self, purge: Purge) -> Result<Purged> {
        let id = purge.session;
        let span = info_span!("store.purge", store = "s3", session = %id, outcome = Empty);
        let purge = async { purge.sparing_forks(self).await };
        let purge = self.observed(span.clone(), purge).await?;
        let purge = &purge;
        let work = |tenant: Arc<Tenant>| async move { purge::purge(&tenant.slots, purge).await };
        self.on(span, is_absence, work).await
    }

    fn capabilities(&self) -> Capabilities {
        let lag = Duration::from_secs(60 * LAG_MINUTES);
        Capabilities::new(Scope::Network, Durability::PowerLoss)
            .with_recency(lag)
            .with_min_lease(MIN_LEASE)
            .with_blobs(BLOB_MAX_BYTES)
    }

    async fn changed(&self, id: SessionId, seen: Seq) -> Result<Seq> {
        let span = info_span!("store.changed", store = "s3", session = %id, outcome = Empty);
        let work = async {
            let mut pause = POLL;
            // A waiting caller has mostly just read up to the head that is known, which was a check.
            let mut is_checked = true;
            loop {
                let tenant = self.current.part(self.bucket.deadline()).await?.tenant;
                let heads = &tenant.slots.heads;
                let mut changed = heads.watch();
                let known = || heads.get(id).map(|head| head.head.last);
                match known() {
                    Some(head) if head > seen => return Ok(head),
                    Some(head) if is_checked && head == seen => {}
                    _ => {
                        let head = SessionStore::load(self, id).await?.head;
                        if head > seen {
                            return Ok(head);
                        }
                    }
                }
                is_checked = false;
                // Writes that this store makes or sees are notified at once; those of others are found by checking.
                let is_new = || known().is_some_and(|head| head > seen);
                let _ = tokio::time::timeout(pause, changed.wait_for(|_| is_new())).await;
                self.open.check()?;
                pause = (pause * 3 / 2).min(POLL_MAX);
            }
        };
        self.observed(span, work).await
    }

    async fn close(&self) -> Result<()> {
        self.close().await
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
impl LeaseStore for S3Store {
    async fn heartbeat(&self, id: SessionId, epoch: Epoch) -> Result<()> {
        let span = info_span!("store.heartbeat", store = "s3", session = %id, outcome = Empty);
        self.on(
            span,
            is_absence,
            |tenant| async move { heartbeats::heartbeat(&tenant.slots, id, epoch).await },
        )
        .await
    }

    async fn status(&self, id: SessionId, epoch: Epoch) -> Result<LeaseStatus> {
        let span = info_span!("store.lease_status", store = "s3", session = %id, outcome = Empty);
        self.on(
            span,
            is_absence,
            |tenant| async move { heartbeats::lease_status(&tenant.slots, id, epoch).await },
        )
        .await
    }
}

#[async_trait]
impl BlobStore for S3Store {
    /// Holds up to 8 MiB of the content in memory. A blob of more is uploaded in parts; a process that is killed leaves
    /// those that it has uploaded, which a lifecycle rule of the bucket removes.
    async fn put(&self, put: PutBlob) -> Result<()> {
        let id = put.session;
        let span = info_span!("store.put_blob", store = "s3", session = %id, bytes = put.blob.bytes, outcome = Empty);
        let chunks = self.observed(span.clone(), async { put.into_chunks(BLOB_MAX_BYTES) }).await?;
        let name = chunks.blob().name;
        // The content can be read once, so that the tenant is looked at before.
        let work = |tenant: Arc<Tenant>| async move {
            let place = content::place(&tenant.slots, id, name).await?;
            Ok((tenant, place))
        };
        let relies = |done: &Result<(Arc<Tenant>, Place)>| {
            is_absence(done) || done.as_ref().is_ok_and(|(_, place)| place.is_early)
        };
        let (tenant, place) = self.on(span.clone(), relies, work).await?;
        self.observed(span, content::put(&tenant.slots, place, id, chunks)).await
    }

    async fn read(&self, read: ReadBlob) -> Result<BlobContent> {
        let span = info_span!("store.read_blob", store = "s3", session = %read.session, outcome = Empty);
        let read = &read;
        let work = |tenant: Arc<Tenant>| async move { content::read(tenant, read).await };
        self.on(span, is_absence, work).await
    }

    async fn list(&self, query: BlobQuery) -> Result<Page<BlobInfo>> {
        let span = info_span!("store.list_blobs", store = "s3", session = %query.session, outcome = Empty);
        let query = &query;
        let work = |tenant: Arc<Tenant>| async move { content::list(&tenant.slots, query).await };
        self.on(span, always, work).await
    }

    /// Removes a blob of a living session only after 256 more events: until then a commit that is under way may name it.
    /// Such blobs are counted as unfinished. What was put before its session stays for a week by the server's clock. If the
    /// session was not created by then, a sweep of all such ids gives the id up.
    async fn sweep(&self, sweep: SweepBlobs) -> Result<SweptBlobs> {
        let span = info_span!("store.sweep_blobs", store = "s3", outcome = Empty);
        self.on(span, always, |tenant| async move { sweep::sweep(&tenant.slots, &sweep).await }).await
    }
}

#[async_trait]
impl Maintenance for S3Store {
    /// Puts the keys of the index that are missing, and removes those that are not in force. Reads the newest commit of
    /// each session, each workspace, and each device.
    async fn rebuild(&self) -> Result<Rebuilt> {
        let span = info_span!("store.rebuild", store = "s3", outcome = Empty);
        let work = |tenant: Arc<Tenant>| async move {
            let mut rebuilt = rebuild::rebuild(&tenant.slots).await?;
            rebuilt.damaged.extend(tenant.workspaces.objects().rebuild().await?);
            rebuilt.damaged.extend(tenant.bindings.objects().rebuild().await?);
            Ok(rebuilt)
        };
        self.on(span, always, work).await
    }

    /// Reads the commits from the newest on, up to one that can be read. A process that had read the newest one before it was
    /// damaged may still write: if neither the header nor the record of that one can be read, such writes are not refused,
    /// and are never seen.
    async fn delete_damaged(
        &self,
        id: SessionId,
        at: Timestamp,
        reason: Reason,
    ) -> Result<Arc<SessionRecord>> {
        let span = info_span!("store.delete_damaged", store = "s3", session = %id, outcome = Empty);
        let work = |tenant: Arc<Tenant>| async move {
            delete_damaged::delete_damaged(&tenant.slots, id, at, reason).await
        };
        self.on(span, is_absence, work).await
    }

    async fn check(&self) -> Result<Vec<Damaged>> {
        let span = info_span!("store.check", store = "s3", outcome = Empty);
        let work = |tenant: Arc<Tenant>| async move {
            let mut faults = rebuild::check(&tenant.slots).await?;
            faults.extend(foreign::check(&tenant.slots).await?);
            faults.extend(tenant.workspaces.objects().check().await?);
            faults.extend(tenant.bindings.objects().check().await?);
            Ok(faults)
        };
        self.on(span, always, work).await
    }
}

#[async_trait]
impl WorkspaceStore for S3Store {
    async fn load(&self, id: WorkspaceId) -> Result<Workspace> {
        let span = info_span!("store.load_workspace", store = "s3", workspace = %id, outcome = Empty);
        self.on(span, is_absence, |tenant| async move { tenant.workspaces.load(id).await }).await
    }

    async fn put(&self, workspace: Workspace, expect: Precondition<Revision>) -> Result<Workspace> {
        let id = workspace.id;
        let span = info_span!("store.put_workspace", store = "s3", workspace = %id, outcome = Empty);
        let workspace = &workspace;
        let work =
            |tenant: Arc<Tenant>| async move { tenant.workspaces.put(workspace.clone(), expect).await };
        let relies = |done: &Result<Workspace>| {
            is_absence(done) || (done.is_ok() && expect == Precondition::MustNotExist)
        };
        let take_back = |tenant: Arc<Tenant>| async move { tenant.workspaces.remove(id).await };
        self.create(span, relies, work, take_back).await
    }

    async fn touch(&self, id: WorkspaceId, at: Timestamp) -> Result<()> {
        let span = info_span!("store.touch", store = "s3", workspace = %id, outcome = Empty);
        self.on(span, is_absence, |tenant| async move { tenant.workspaces.touch(id, at).await }).await
    }

    /// A page takes one list request, and one request for each workspace on it. The order lags behind the last access by at
    /// most 15 minutes from page to page. A workspace whose deletion has begun is read as well, if it comes between those
    /// of the page. One that is damaged is on the page where its key is; if it has no key,
    /// [`check`](Maintenance::check) names it.
    async fn list(&self, query: WorkspaceQuery) -> Result<Page<Workspace>> {
        let span = info_span!("store.list_workspaces", store = "s3", outcome = Empty);
        let query = &query;
        let work = |tenant: Arc<Tenant>| async move { tenant.workspaces.list(query).await };
        self.on(span, always, work).await
    }

    async fn delete(&self, id: WorkspaceId) -> Result<()> {
        let span = info_span!("store.delete_workspace", store = "s3", workspace = %id, outcome = Empty);
        self.on(span, is_absence, |tenant| async move { tenant.workspaces.delete(id).await }).await
    }

    async fn load_config(&self, id: WorkspaceId) -> Result<Option<String>> {
        let span = info_span!("store.load_config", store = "s3", workspace = %id, outcome = Empty);
        self.on(span, is_absence, |tenant| async move { tenant.workspaces.load_config(id).await }).await
    }

    async fn load_with_config(&self, id: WorkspaceId) -> Result<(Workspace, Option<String>)> {
        let span = info_span!("store.load_workspace", store = "s3", workspace = %id, outcome = Empty);
        self.on(span, is_absence, |tenant| async move { tenant.workspaces.load_with_config(id).await }).await
    }

    async fn save_config(
        &self,
        id: WorkspaceId,
        text: Option<String>,
        expect: Precondition<ContentHash>,
    ) -> Result<()> {
        let span = info_span!("store.save_config", store = "s3", workspace = %id, outcome = Empty);
        let text = &text;
        let work = |tenant: Arc<Tenant>| async move {
            tenant.workspaces.save_config(id, text.clone(), expect).await
        };
        self.on(span, is_absence, work).await
    }

    async fn close(&self) -> Result<()> {
        self.close().await
    }
}

#[async_trait]
impl BindingStore for S3Store {
    async fn resolve(&self, device: &DeviceId) -> Result<Option<WorkspaceId>> {
        let span = info_span!("store.resolve", store = "s3", outcome = Empty);
        let relies = |done: &Result<Option<_>>| is_absence(done) || matches!(done, Ok(None));
        let work = |tenant: Arc<Tenant>| async move { tenant.bindings.resolve(device).await };
        self.on(span, relies, work).await
    }

    async fn bind(
        &self,
        device: &DeviceId,
        to: WorkspaceId,
        expect: Precondition<WorkspaceId>,
    ) -> Result<WorkspaceId> {
        let span = info_span!("store.bind", store = "s3", workspace = %to, outcome = Empty);
        let work = |tenant: Arc<Tenant>| async move { tenant.bindings.bind(device, to, expect).await };
        let relies = |done: &Result<(WorkspaceId, bool)>| {
            is_absence(done) || matches!(done, Ok((_, is_new)) if *is_new)
        };
        let take_back = |tenant: Arc<Tenant>| async move { tenant.bindings.remove(device).await };
        self.create(span, relies, work, take_back).await.map(|(bound, _)| bound)
    }

    async fn unbind(&self, device: &DeviceId) -> Result<bool> {
        let span = info_span!("store.unbind", store = "s3", outcome = Empty);
        let relies = |done: &Result<bool>| is_absence(done) || matches!(done, Ok(false));
        let work = |tenant: Arc<Tenant>| async move { tenant.bindings.unbind(device).await };
        self.on(span, relies, work).await
    }

    async fn last_session(&self, device: &DeviceId) -> Result<Option<SessionId>> {
        let span = info_span!("store.last_session", store = "s3", outcome = Empty);
        let relies = |done: &Result<Option<SessionId>>| is_absence(done) || matches!(done, Ok(None));
        let work = |tenant: Arc<Tenant>| async move { tenant.bindings.last_session(device).await };
        self.on(span, relies, work).await
    }

    async fn set_last_session(&self, device: &DeviceId, session: SessionId) -> Result<()> {
        let span = info_span!("store.set_last_session", store = "s3", session = %session, outcome = Empty);
        let work =
            |tenant: Arc<Tenant>| async move { tenant.bindings.set_last_session(device, session).await };
        self.on(span, always, work).await
    }

    async fn unbind_workspace(&self, id: WorkspaceId) -> Result<u64> {
        let span = info_span!("store.unbind_workspace", store = "s3", workspace = %id, outcome = Empty);
        self.on(span, always, |tenant| async move { tenant.bindings.unbind_workspace(id).await }).await
    }

    /// The order is that of the workspaces' ids, then of the SHA-256 of the device ids. A page takes one list request, and
    /// one request for each device on it.
    async fn list(&self, query: BindingQuery) -> Result<Page<Binding>> {
        let span = info_span!("store.list_bindings", store = "s3", outcome = Empty);
        let query = &query;
        let work = |tenant: Arc<Tenant>| async move { tenant.bindings.list(query).await };
        self.on(span, always, work).await
    }

    async fn close(&self) -> Result<()> {
        self.close().await
    }
}

#[async_trait]
impl Backend for S3Store {
    fn tenant(&self, tenant: &TenantId) -> Storage {
        self.for_tenant(tenant).into()
    }

    async fn tenants(&self, after: Option<TenantId>) -> Result<Page<TenantId>> {
        let span = info_span!("store.list_tenants", store = "s3", outcome = Empty);
        let work = async {
            let found = delete_tenant::tenants(&self.bucket, &self.prefix, &self.generations, after.as_ref());
            found.await.map(Page::new)
        };
        self.observed(span, work).await
    }

    /// Returns the tenants with keys of due or running work. Takes one list request for each 1,000 keys, of all tenants,
    /// and fewer if one tenant has most of them. Some of the tenants may have no work any more.
    async fn busy_tenants(&self, until: Timestamp, after: Option<TenantId>) -> Result<Page<TenantId>> {
        let span = info_span!("store.list_busy_tenants", store = "s3", outcome = Empty);
        let work = async {
            let mut busy = busy::busy(&self.bucket, &self.prefix, Minute::of(until)).await?;
            busy.retain(|tenant| after.as_ref().is_none_or(|after| tenant > after));
            Ok(Page::new(busy.into_iter().collect()))
        };
        self.observed(span, work).await
    }

    /// Begins a new generation of the tenant, with keys of its own, then removes the objects of the former one. Handles
    /// of this store, and those of others that use the tenant for the first time after that, see an empty tenant from
    /// then on; a store that used the tenant before sees each object until it is removed.
    ///
    /// What stays is one object for the tenant, and for each former commit one of about 190 bytes, which holds ids and
    /// numbers and keeps the slot taken: a store that has read the session before, however long ago, must not win it. A
    /// creation of another process that was cut off in the middle may leave an object that nobody reads; the next
    /// deletion of the tenant removes it. Credentials without the right to delete objects cannot delete a tenant.
    async fn delete_tenant(&self, tenant: &TenantId) -> Result<DeletedTenant> {
        let span = info_span!("store.delete_tenant", store = "s3", outcome = Empty);
        let work = async {
            check_no_live_run(&self.for_tenant(tenant)).await?;
            let done = delete_tenant::delete(&self.bucket, &self.generations, tenant).await;
            // A part may be removed; the same call again removes the rest.
            done.map_err(|error| error.with_outcome(WriteOutcome::Unknown))
        };
        self.observed(span, work).await
    }

    /// Writes and deletes an object of its own, once: the server names its version if the bucket has versions. Google's does not tell.
    async fn check_removal(&self) -> Result<Option<String>> {
        let span = info_span!("store.check_removal", store = "s3", outcome = Empty);
        self.observed(span, versions::check(&self.bucket, &self.prefix)).await
    }

    async fn close(&self) -> Result<()> {
        self.close().await
    }
}
