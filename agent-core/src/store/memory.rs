//! In-memory backend: the reference implementation, and the proof that the three traits suffice. Not durable.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use futures::future::{Either, select};
use tokio::sync::watch;

use crate::base::{
    BlobName, DeviceId, Epoch, Error, ErrorKind, Result, Revision, Seq, SessionId, SessionState, TenantId,
    Timestamp, WorkspaceId,
};
use crate::commit::plan::plan;
use crate::commit::plan::planner::Plan;
use crate::commit::{Commit, Committed, Precondition};
use crate::event::Event;
use crate::model::{BlobInfo, NeededBlob, Workspace};
use crate::session::{SessionRecord, SessionSummary};
use crate::store::binding::{Binding, BindingQuery, BindingStore, decide_bind};
use crate::store::blob::{BLOB_MAX_BYTES, BlobContent, BlobQuery, PutBlob, ReadBlob, SweepBlobs, SweptBlobs};
use crate::store::blob_store::BlobStore;
use crate::store::lease::{LeaseStatus, LeaseStore};
use crate::store::live::check_no_live_run;
use crate::store::open_state::OpenState;
use crate::store::page::Page;
use crate::store::read::{EventPage, ReadEvents};
use crate::store::session::{Capabilities, Durability, Purge, Purged, Scope, SessionQuery, SessionStore};
use crate::store::storage::{Backend, DeletedTenant, Storage};
use crate::store::workspace::{ContentHash, WorkspaceQuery, WorkspaceStore};

/// Store in memory, for one tenant. Clones share the data.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
/// use agent_core::{MemoryStore, Seq, SessionStore, SessionStoreExt, WorkspaceId};
/// use agent_core::clock::Effects;
/// use agent_core::event::NewEvent;
/// use agent_core::session::NewSession;
///
/// let (store, effects) = (MemoryStore::new().sessions(&Effects::default()), Effects::default());
/// let new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
/// let session = store.create(new).await?;
/// let done = store.append(session.id, session.head, vec![NewEvent::user_message("hello")]).await?;
/// assert_eq!(done.last, Seq::new(2));
/// # Ok(()) }
/// ```
#[must_use]
#[derive(Clone, Debug)]
pub struct MemoryStore {
    tenants: Arc<Mutex<Tenants>>,
    tenant: Arc<Tenant>,
    open: OpenState,
}

/// Tenants by their names. Those without data and without a handle are removed from time to time.
#[derive(Debug, Default)]
struct Tenants {
    named: BTreeMap<TenantId, Arc<Tenant>>,
    /// Number of tenants at which such ones are looked for next.
    full: usize,
}

/// Smallest number of tenants at which those without data are looked for.
const TENANTS_FEW: usize = 256;

impl Tenants {
    fn get(&mut self, id: &TenantId) -> Arc<Tenant> {
        if let Some(tenant) = self.named.get(id) {
            return tenant.clone();
        }
        if self.named.len() >= self.full.max(TENANTS_FEW) {
            self.named.retain(|_, tenant| Arc::strong_count(tenant) > 1 || !tenant.data().is_empty());
            // So that each search of all of them is paid by as many new ones.
            self.full = 2 * self.named.len();
        }
        self.named.entry(id.clone()).or_default().clone()
    }
}

/// Data of one tenant. One lock: each operation is short and copies what it returns.
#[derive(Debug, Default)]
struct Tenant {
    data: Mutex<Data>,
}

#[derive(Debug, Default)]
struct Data {
    workspaces: HashMap<WorkspaceId, WorkspaceEntry>,
    sessions: HashMap<SessionId, Log>,
    /// Sessions made from each session, so that a list by parent does not scan the others.
    children: HashMap<SessionId, Vec<SessionId>>,
    bindings: BTreeMap<DeviceId, WorkspaceId>,
    /// Session that each device has used last in the workspace that it is bound to.
    last_sessions: HashMap<DeviceId, SessionId>,
    /// Blobs of each session, also of ids of which no session was created yet.
    blobs: HashMap<SessionId, BTreeMap<BlobName, Bytes>>,
}

#[derive(Debug)]
enum WorkspaceEntry {
    Live { record: Box<Workspace>, config: Option<String> },
    Tombstone,
}

#[derive(Debug)]
struct Log {
    record: Arc<SessionRecord>,
    /// The session's own events; the first has the number after the lineage's base, less the purged ones.
    events: Vec<Event>,
    heartbeats: u64,
    head: watch::Sender<Seq>,
}

impl MemoryStore {
    /// Creates an empty store, for the tenant `default`.
    pub fn new() -> Self {
        let mut tenants = Tenants::default();
        let tenant = tenants.get(&TenantId::default());
        Self { tenants: Arc::new(Mutex::new(tenants)), tenant, open: OpenState::new("the store in memory") }
    }

    /// Returns the same store for another tenant.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// use agent_core::commit::Precondition;
    /// use agent_core::{BindingStore, MemoryStore, WorkspaceId};
    ///
    /// let acme = MemoryStore::new().for_tenant(&"acme".parse()?);
    /// acme.bind(&"laptop".parse()?, WorkspaceId::DEFAULT, Precondition::MustNotExist).await?;
    /// let umbrella = acme.for_tenant(&"umbrella".parse()?);
    /// assert_eq!(umbrella.resolve(&"laptop".parse()?).await?, None);
    /// # Ok(()) }
    /// ```
    pub fn for_tenant(&self, tenant: &TenantId) -> Self {
        let mut tenants = self.tenants.lock().unwrap_or_else(PoisonError::into_inner);
        let tenant = tenants.get(tenant);
        Self { tenants: self.tenants.clone(), tenant, open: self.open.clone() }
    }

    fn data(&self) -> Result<MutexGuard<'_, Data>> {
        self.open.check()?;
        Ok(self.tenant.data())
    }

    /// Closes the store for all of its tenants and clones: later calls fail with `Unavailable`. The data is lost when
    /// the last clone is dropped.
    ///
    /// # Errors
    ///
    /// None.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// use agent_core::store::SessionQuery;
    /// use agent_core::{ErrorKind, MemoryStore, SessionStore};
    ///
    /// let store = MemoryStore::new();
    /// store.close().await?;
    /// let error = store.list(SessionQuery::new()).await.unwrap_err();
    /// assert_eq!(*error.kind(), ErrorKind::Unavailable);
    /// # Ok(()) }
    /// ```
    pub async fn close(&self) -> Result<()> {
        self.open.close(async { Ok(()) }).await
    }
}

impl Tenant {
    fn data(&self) -> MutexGuard<'_, Data> {
        // A panic while the lock is held cannot leave half a change: each write is a single assignment at its end.
        self.data.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl Data {
    fn count(&self) -> DeletedTenant {
        let count = |length: usize| length as u64;
        DeletedTenant::new(
            count(self.workspaces.len()),
            count(self.sessions.len()),
            count(self.bindings.len()),
        )
    }

    fn is_empty(&self) -> bool {
        self.count().is_empty() && self.blobs.is_empty()
    }

    fn log(&self, id: SessionId) -> Result<&Log> {
        self.sessions.get(&id).ok_or_else(|| no_session(id))
    }

    fn sweep_blobs(&mut self, sweep: SweepBlobs) -> SweptBlobs {
        let Self { sessions, blobs, .. } = self;
        let mut swept = SweptBlobs::default();
        for (id, blobs) in blobs.iter_mut() {
            let log = sessions.get(id);
            if sweep.session.map_or(log.is_some(), |session| session != *id) {
                continue;
            }
            let named: HashSet<_> =
                log.iter().flat_map(|log| &log.events).flat_map(|event| &event.blobs).copied().collect();
            blobs.retain(|name, bytes| {
                let is_kept = named.contains(name);
                if !is_kept {
                    swept += SweptBlobs::new(1, bytes.len() as u64);
                }
                is_kept || sweep.dry_run
            });
        }
        blobs.retain(|_, blobs| !blobs.is_empty());
        swept
    }

    fn workspace(&self, id: WorkspaceId) -> Result<(&Workspace, Option<&String>)> {
        match self.workspaces.get(&id) {
            Some(WorkspaceEntry::Live { record, config }) => Ok((record, config.as_ref())),
            Some(WorkspaceEntry::Tombstone) => Err(workspace_deleted(id)),
            None => Err(no_workspace(id)),
        }
    }
}

fn no_session(id: SessionId) -> Error {
    Error::not_found(format!("session {id} does not exist"))
}

fn no_workspace(id: WorkspaceId) -> Error {
    Error::not_found(format!("workspace {id} does not exist"))
}

fn workspace_deleted(id: WorkspaceId) -> Error {
    Error::deleted(format!("workspace {id} was deleted; its id is not used again"))
}

#[async_trait]
impl SessionStore for MemoryStore {
    async fn commit(&self, commit: Commit) -> Result<Committed> {
        let mut data = self.data()?;
        let now = data.sessions.get(&commit.session).map(|log| &*log.record);
        let planned = plan(now, &commit)?;
        if let Plan::Write { events, after, blobs } = &planned {
            let there = data.blobs.get(&commit.session);
            NeededBlob::check::<Error>(commit.session, blobs, |name| {
                Ok(there.and_then(|blobs| blobs.get(&name)).map(|bytes| bytes.len() as u64))
            })?;
            if now.is_none()
                && let Some(parent) = after.origin.parent()
            {
                check_parent(&data, parent)?;
                data.children.entry(parent).or_default().push(commit.session);
            }
            let log = data.sessions.entry(commit.session).or_insert_with(|| Log {
                record: after.clone(),
                events: Vec::new(),
                heartbeats: 0,
                head: watch::Sender::new(Seq::ZERO),
            });
            log.events.extend(events.iter().cloned());
            log.record = after.clone();
            log.head.send_replace(after.head);
        }
        Ok(planned.committed())
    }

    async fn load(&self, id: SessionId) -> Result<Arc<SessionRecord>> {
        Ok(self.data()?.log(id)?.record.clone())
    }

    async fn read(&self, id: SessionId, read: ReadEvents) -> Result<EventPage> {
        let data = self.data()?;
        let events = &data.log(id)?.events;
        let start = events.partition_point(|event| event.seq <= read.after);
        let end = events.partition_point(|event| read.matches_before(event)).max(start);
        let wanted = events[start..end].iter().filter(|event| read.matches(event));
        if read.newest {
            EventPage::collect(&read, wanted.rev().cloned().map(Ok))
        } else {
            EventPage::collect(&read, wanted.cloned().map(Ok))
        }
    }

    async fn list(&self, query: SessionQuery) -> Result<Page<SessionSummary>> {
        let data = self.data()?;
        let summary = |log: &Log| SessionSummary::from(&*log.record);
        let Some(parent) = query.parent else { return query.page(data.sessions.values().map(summary)) };
        let children = data.children.get(&parent).into_iter().flatten();
        query.page(children.filter_map(|id| data.sessions.get(id)).map(summary))
    }

    async fn purge(&self, purge: Purge) -> Result<Purged> {
        let purge = purge.sparing_forks(self).await?;
        let mut data = self.data()?;
        let log = data.sessions.get_mut(&purge.session).ok_or_else(|| no_session(purge.session))?;
        purge.check(&log.record)?;
        let before = log.events.len();
        log.events.retain(|event| event.seq <= purge.keep_through);
        log.record = Arc::new(purge.tombstone_of(&log.record));
        let removed = before - log.events.len();
        data.sweep_blobs(SweepBlobs::of(purge.session));
        Ok(Purged::new(removed as u64))
    }

    fn leases(&self) -> &dyn LeaseStore {
        self
    }

    fn blobs(&self) -> &dyn BlobStore {
        self
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::new(Scope::Process, Durability::None).with_blobs(BLOB_MAX_BYTES)
    }

    async fn changed(&self, id: SessionId, seen: Seq) -> Result<Seq> {
        let mut head = self.data()?.log(id)?.head.subscribe();
        let (head, closed) = (pin!(head.wait_for(|head| *head > seen)), pin!(self.open.closed()));
        match select(head, closed).await {
            Either::Left((head, _)) => Ok(*head.map_err(|_| no_session(id))?),
            Either::Right((closed, _)) => Err(closed),
        }
    }

    async fn close(&self) -> Result<()> {
        self.close().await
    }
}

/// Refuses a session whose parent is deleted.
fn check_parent(data: &Data, parent: SessionId) -> Result<()> {
    let record = &data.log(parent)?.record;
    if record.status.state == SessionState::Deleted {
        return Err(Error::deleted(format!("session {parent} was deleted; it has no new forks or children")));
    }
    Ok(())
}

#[async_trait]
impl LeaseStore for MemoryStore {
    async fn heartbeat(&self, id: SessionId, epoch: Epoch) -> Result<()> {
        let mut data = self.data()?;
        let log = data.sessions.get_mut(&id).ok_or_else(|| no_session(id))?;
        if log.record.lease.as_ref().is_some_and(|lease| lease.epoch == epoch) {
            log.heartbeats += 1;
        }
        Ok(())
    }

    async fn status(&self, id: SessionId, _: Epoch) -> Result<LeaseStatus> {
        Ok(LeaseStatus::new(self.data()?.log(id)?.heartbeats, false))
    }
}

#[async_trait]
impl BlobStore for MemoryStore {
    async fn put(&self, put: PutBlob) -> Result<()> {
        let (session, name) = (put.session, put.blob.name);
        let bytes = put.into_chunks(BLOB_MAX_BYTES)?.into_bytes().await?;
        let mut data = self.data()?;
        let is_refused = |log: &Log| {
            log.record.status.state == SessionState::Deleted
                && !log.events.iter().any(|event| event.blobs.contains(&name))
        };
        if data.sessions.get(&session).is_some_and(is_refused) {
            return Err(Error::deleted(format!(
                "session {session} was deleted; it takes no blobs but those that its remaining events name"
            )));
        }
        data.blobs.entry(session).or_default().insert(name, bytes);
        Ok(())
    }

    async fn read(&self, read: ReadBlob) -> Result<BlobContent> {
        let data = self.data()?;
        let bytes = data.blobs.get(&read.session).and_then(|blobs| blobs.get(&read.name)).cloned();
        Ok(BlobContent::from_bytes(&read, bytes.ok_or_else(|| read.not_found())?))
    }

    async fn list(&self, query: BlobQuery) -> Result<Page<BlobInfo>> {
        let data = self.data()?;
        let blobs = data.blobs.get(&query.session).into_iter().flatten();
        query.page(blobs.map(|(name, bytes)| BlobInfo::new(*name, bytes.len() as u64)))
    }

    async fn sweep(&self, sweep: SweepBlobs) -> Result<SweptBlobs> {
        Ok(self.data()?.sweep_blobs(sweep))
    }
}

#[async_trait]
impl WorkspaceStore for MemoryStore {
    async fn load(&self, id: WorkspaceId) -> Result<Workspace> {
        self.data()?.workspace(id).map(|(record, _)| record.clone())
    }

    async fn put(&self, mut workspace: Workspace, expect: Precondition<Revision>) -> Result<Workspace> {
        workspace.check()?;
        let mut data = self.data()?;
        let (now, config) = match data.workspace(workspace.id) {
            Ok((record, config)) => (Some(record), config.cloned()),
            Err(error) if *error.kind() == ErrorKind::NotFound => (None, None),
            Err(error) => return Err(error),
        };
        workspace.prepare_put(now, expect)?;
        data.workspaces
            .insert(workspace.id, WorkspaceEntry::Live { record: Box::new(workspace.clone()), config });
        Ok(workspace)
    }

    async fn touch(&self, id: WorkspaceId, at: Timestamp) -> Result<()> {
        let mut data = self.data()?;
        data.workspace(id)?;
        if let Some(WorkspaceEntry::Live { record, .. }) = data.workspaces.get_mut(&id) {
            record.last_accessed = record.last_accessed.max(at);
        }
        Ok(())
    }

    async fn list(&self, query: WorkspaceQuery) -> Result<Page<Workspace>> {
        let data = self.data()?;
        query.page(data.workspaces.values().filter_map(|slot| match slot {
            WorkspaceEntry::Live { record, .. } => Some((**record).clone()),
            WorkspaceEntry::Tombstone => None,
        }))
    }

    async fn delete(&self, id: WorkspaceId) -> Result<()> {
        match self.data()?.workspaces.get_mut(&id) {
            Some(slot) => *slot = WorkspaceEntry::Tombstone,
            None => return Err(no_workspace(id)),
        }
        Ok(())
    }

    async fn load_config(&self, id: WorkspaceId) -> Result<Option<String>> {
        self.data()?.workspace(id).map(|(_, config)| config.cloned())
    }

    async fn save_config(
        &self,
        id: WorkspaceId,
        text: Option<String>,
        expect: Precondition<ContentHash>,
    ) -> Result<()> {
        ContentHash::check_size(text.as_deref())
            .map_err(|error| error.about(format_args!("the configuration of workspace {id}")))?;
        let mut data = self.data()?;
        let (_, now) = data.workspace(id)?;
        ContentHash::check(
            expect,
            now.map(String::as_str),
            &format_args!("the configuration of workspace {id}"),
        )?;
        if let Some(WorkspaceEntry::Live { config, .. }) = data.workspaces.get_mut(&id) {
            *config = text;
        }
        Ok(())
    }

    async fn close(&self) -> Result<()> {
        self.close().await
    }
}

#[async_trait]
impl BindingStore for MemoryStore {
    async fn resolve(&self, device: &DeviceId) -> Result<Option<WorkspaceId>> {
        Ok(self.data()?.bindings.get(device).copied())
    }

    async fn bind(
        &self,
        device: &DeviceId,
        to: WorkspaceId,
        expect: Precondition<WorkspaceId>,
    ) -> Result<WorkspaceId> {
        let mut data = self.data()?;
        let bound = decide_bind(device, data.bindings.get(device).copied(), to, expect)?;
        if data.bindings.insert(device.clone(), bound) != Some(bound) {
            data.last_sessions.remove(device);
        }
        Ok(bound)
    }

    async fn unbind(&self, device: &DeviceId) -> Result<bool> {
        let mut data = self.data()?;
        data.last_sessions.remove(device);
        Ok(data.bindings.remove(device).is_some())
    }

    async fn last_session(&self, device: &DeviceId) -> Result<Option<SessionId>> {
        Ok(self.data()?.last_sessions.get(device).copied())
    }

    async fn set_last_session(&self, device: &DeviceId, session: SessionId) -> Result<()> {
        let mut data = self.data()?;
        if data.bindings.contains_key(device) {
            data.last_sessions.insert(device.clone(), session);
        }
        Ok(())
    }

    async fn unbind_workspace(&self, id: WorkspaceId) -> Result<u64> {
        let mut data = self.data()?;
        let Data { bindings, last_sessions, .. } = &mut *data;
        let before = bindings.len();
        bindings.retain(|_, workspace| *workspace != id);
        last_sessions.retain(|device, _| bindings.contains_key(device));
        Ok((before - bindings.len()) as u64)
    }

    /// The order is that of the bytes of the device ids.
    async fn list(&self, query: BindingQuery) -> Result<Page<Binding>> {
        query.page(
            self.data()?.bindings.iter().map(|(device, workspace)| Binding::new(device.clone(), *workspace)),
        )
    }

    async fn close(&self) -> Result<()> {
        self.close().await
    }
}

#[async_trait]
impl Backend for MemoryStore {
    fn tenant(&self, tenant: &TenantId) -> Storage {
        self.for_tenant(tenant).into()
    }

    async fn tenants(&self, after: Option<TenantId>) -> Result<Page<TenantId>> {
        self.open.check()?;
        let tenants = self.tenants.lock().unwrap_or_else(PoisonError::into_inner);
        let held = tenants.named.iter().filter(|(_, tenant)| !tenant.data().is_empty());
        let after = |id: &&TenantId| after.as_ref().is_none_or(|after| *id > after);
        Ok(Page::new(held.map(|(id, _)| id).filter(after).cloned().collect()))
    }

    async fn delete_tenant(&self, tenant: &TenantId) -> Result<DeletedTenant> {
        let store = self.for_tenant(tenant);
        check_no_live_run(&store).await?;
        Ok(std::mem::take(&mut *store.data()?).count())
    }

    async fn close(&self) -> Result<()> {
        self.close().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ten thousand names that were asked for leave a bounded number of tenants, and those that have data or a handle.
    #[tokio::test]
    async fn names_asked_for_take_bounded_memory() {
        let store = MemoryStore::new();
        let name = |n: usize| format!("user-{n}").parse::<TenantId>().unwrap();
        let laptop: DeviceId = "laptop".parse().unwrap();
        let bound = |n| store.for_tenant(&name(n));
        bound(7).bind(&laptop, WorkspaceId::DEFAULT, Precondition::None).await.unwrap();
        let held = bound(8);
        for n in 0..10_000 {
            let asked = store.for_tenant(&name(n));
            assert_eq!(asked.resolve(&laptop).await.unwrap().is_some(), n == 7, "{n}");
        }
        let kept = store.tenants.lock().unwrap().named.len();
        assert!(kept <= 2 * TENANTS_FEW, "{kept}");
        held.bind(&laptop, WorkspaceId::DEFAULT, Precondition::None).await.unwrap();
        assert!(bound(8).resolve(&laptop).await.unwrap().is_some());
        assert_eq!(Backend::tenants(&store, None).await.unwrap().items, [name(7), name(8)]);
    }
}
