//! Storage of one tenant, made of three stores, and the tenants of a backend.

use std::fmt::Debug;
use std::sync::Arc;

use async_trait::async_trait;

use crate::base::{Effects, OwnerId, Result, TenantId, Timestamp};
use crate::store::binding::BindingStore;
use crate::store::erasable::ErasableKeys;
use crate::store::maintenance::Pending;
use crate::store::page::{Damaged, Page};
use crate::store::session::SessionStore;
use crate::store::sessions::Sessions;
use crate::store::workspace::WorkspaceStore;

/// Storage of one tenant: three stores, of one backend or of several. Cloning is cheap.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
/// use agent_core::clock::Effects;
/// use agent_core::session::NewSession;
/// use agent_core::{MemoryStore, Storage, WorkspaceId};
///
/// let (storage, effects) = (Storage::from(MemoryStore::new()), Effects::default());
/// let new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
/// let session = storage.sessions.create(new).await?;
/// assert_eq!(storage.sessions.load(session.id).await?, session);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Storage {
    /// Store of workspaces and their configuration.
    pub workspaces: Arc<dyn WorkspaceStore>,
    /// Sessions of a store, and the source of times and ids.
    pub sessions: Sessions,
    /// Store of device bindings.
    pub bindings: Arc<dyn BindingStore>,
}

impl Storage {
    /// Creates a storage of three stores, of any backends. Times and ids come from the system, unless
    /// [`with_effects`](Self::with_effects) sets another source.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// use std::sync::Arc;
    /// use agent_core::{MemoryStore, Storage};
    ///
    /// let (shared, local) = (Arc::new(MemoryStore::new()), Arc::new(MemoryStore::new()));
    /// let storage = Storage::new(shared.clone(), shared, local);
    /// assert!(storage.workspaces.list(Default::default()).await?.items.is_empty());
    /// # Ok(()) }
    /// ```
    pub fn new(
        workspaces: Arc<dyn WorkspaceStore>,
        sessions: Arc<dyn SessionStore>,
        bindings: Arc<dyn BindingStore>,
    ) -> Self {
        Self { workspaces, sessions: Sessions::new(sessions, Effects::default()), bindings }
    }

    /// Creates a storage of a handle on sessions, with its source of times and ids and its owner, and of two stores.
    pub fn of(
        workspaces: Arc<dyn WorkspaceStore>,
        sessions: Sessions,
        bindings: Arc<dyn BindingStore>,
    ) -> Self {
        Self { workspaces, sessions, bindings }
    }

    /// Sets the source of times and ids.
    #[must_use]
    pub fn with_effects(self, effects: Effects) -> Self {
        let owner = self.owner().cloned();
        let sessions = Sessions::new(self.sessions.store().clone(), effects).with_owner(owner);
        Self { sessions, ..self }
    }

    /// Replaces the store of sessions, for example by a wrapper around it.
    #[must_use]
    pub fn with_session_store(self, store: Arc<dyn SessionStore>) -> Self {
        let owner = self.owner().cloned();
        Self { sessions: Sessions::new(store, self.effects().clone()).with_owner(owner), ..self }
    }

    /// Replaces the three stores, for example by wrappers around them. Keeps the source of times and ids, and the owner.
    #[must_use]
    pub fn with_stores(
        self,
        workspaces: Arc<dyn WorkspaceStore>,
        sessions: Arc<dyn SessionStore>,
        bindings: Arc<dyn BindingStore>,
    ) -> Self {
        Self { workspaces, bindings, ..self }.with_session_store(sessions)
    }

    /// Sets the owner whose storage this is.
    pub(crate) fn with_owner(self, owner: OwnerId) -> Self {
        Self { sessions: self.sessions.with_owner(Some(owner)), ..self }
    }

    /// Returns the owner whose storage this is; `None` for that of the whole tenant.
    pub const fn owner(&self) -> Option<&OwnerId> {
        self.sessions.owner()
    }

    /// Returns the source of times and ids.
    pub const fn effects(&self) -> &Effects {
        self.sessions.effects()
    }

    /// Closes the backends of the three stores, each once.
    ///
    /// Finishes the writes that have begun, and releases threads, files, connections and the locks of leases. The
    /// backends are closed for all of their tenants and clones: later calls fail with `Unavailable`. Without this
    /// call, dropping the last clone of each store releases as much as possible.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// use agent_core::{ErrorKind, MemoryStore, Storage};
    /// use agent_core::store::SessionQuery;
    ///
    /// let storage = Storage::from(MemoryStore::new());
    /// storage.close().await?;
    /// let error = storage.sessions.list(SessionQuery::new()).await.unwrap_err();
    /// assert_eq!(*error.kind(), ErrorKind::Unavailable);
    /// # Ok(()) }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped before it returns, the stores are open, closing or closed; call it again to close
    /// them all.
    ///
    /// # Errors
    ///
    /// The first error of a store; the other stores are closed nevertheless.
    pub async fn close(&self) -> Result<()> {
        let (workspaces_apart, bindings_apart) = self.separate_backends();
        let mut closed = self.sessions.close().await;
        if workspaces_apart {
            closed = closed.and(self.workspaces.close().await);
        }
        if bindings_apart {
            closed = closed.and(self.bindings.close().await);
        }
        closed
    }

    /// Returns whether the store of workspaces is another object than that of sessions, and whether the store of
    /// bindings is another than both. Apart from `close`, because a future that holds a pointer is not `Send`.
    fn separate_backends(&self) -> (bool, bool) {
        let sessions = Arc::as_ptr(self.sessions.store()).cast::<()>();
        let workspaces = Arc::as_ptr(&self.workspaces).cast::<()>();
        let bindings = Arc::as_ptr(&self.bindings).cast::<()>();
        (workspaces != sessions, bindings != sessions && bindings != workspaces)
    }
}

impl<S: WorkspaceStore + SessionStore + BindingStore> From<Arc<S>> for Storage {
    fn from(store: Arc<S>) -> Self {
        Self::new(store.clone(), store.clone(), store)
    }
}

impl<S: WorkspaceStore + SessionStore + BindingStore> From<S> for Storage {
    fn from(store: S) -> Self {
        Arc::new(store).into()
    }
}

/// Backend that separates several tenants. Only servers and schedulers hold it: the [`Storage`] of one tenant cannot
/// reach another's data.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
/// use std::sync::Arc;
/// use agent_core::commit::Precondition;
/// use agent_core::{Backend, MemoryStore, TenantId, WorkspaceId};
///
/// let backend: Arc<dyn Backend> = Arc::new(MemoryStore::new());
/// let acme: TenantId = "acme".parse()?;
/// let storage = backend.tenant(&acme);
/// storage.bindings.bind(&"laptop".parse()?, WorkspaceId::DEFAULT, Precondition::MustNotExist).await?;
/// assert_eq!(backend.tenants(None).await?.items, [acme]);
/// backend.close().await?;
/// # Ok(()) }
/// ```
#[async_trait]
#[doc(alias = "Tenants")]
pub trait Backend: Debug + Send + Sync + 'static {
    /// Returns the stores of a tenant. No I/O: a tenant that was never written to is empty.
    #[doc(alias = "storage")]
    fn tenant(&self, tenant: &TenantId) -> Storage;

    /// Returns the tenants that hold data, in the order of their names.
    ///
    /// # Errors
    ///
    /// As for [`SessionStore`](crate::store::session::SessionStore#errors).
    #[doc(alias = "list")]
    async fn tenants(&self, after: Option<TenantId>) -> Result<Page<TenantId>>;

    /// Returns the tenants that a scheduler must look at, in the order of their names: at least each one with a session
    /// that is [due](crate::store::session::SessionQuery::with_due) by `until`, or that a lease holder runs or
    /// prepares. There may be others among them.
    ///
    /// A session counts if it is in that state when the call begins, and is not written to until the call returns.
    /// Which of the others count is not defined; the next call finds what is due then.
    ///
    /// The default returns [all tenants](Self::tenants). A store that finds work without a look at each tenant
    /// overrides it.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/setup.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// use agent_core::{Backend, TenantId};
    ///
    /// # let (store, effects) = (MemoryStore::new(), Effects::default());
    /// let acme: TenantId = "acme".parse()?;
    /// let sessions = store.tenant(&acme).sessions;
    /// let new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
    /// let id = sessions.create(new).await?.id;
    /// sessions.append(id, Seq::ZERO, vec![NewEvent::user_message("Hello")]).await?;
    ///
    /// let busy = store.busy_tenants(effects.now(), None).await?;
    /// assert!(busy.items.contains(&acme));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`SessionStore`](crate::store::session::SessionStore#errors).
    async fn busy_tenants(&self, until: Timestamp, after: Option<TenantId>) -> Result<Page<TenantId>> {
        let _ = until;
        self.tenants(after).await
    }

    /// Deletes all data of a tenant: workspaces with their configuration and areas, sessions, device bindings,
    /// tombstones, and everything derived from them. Returns what was removed.
    ///
    /// Other tenants are not affected. Damaged data is deleted too. Of a tenant without data nothing is removed, which
    /// is no error. Afterwards the tenant is empty, is not [listed](Self::tenants), and may be used again: the ids of
    /// its former workspaces and sessions can be created again.
    ///
    /// The bytes are removed from the medium as by [`SessionStore::purge`](crate::store::session::SessionStore::purge):
    /// if the result says [`rewrite_pending`](DeletedTenant::rewrite_pending), copies may be in unused parts of a shared
    /// file until [`maintain`](Self::maintain) rewrites it. [`erase_tenant`](Self::erase_tenant) does both.
    /// A backend may keep marks by which it refuses late writes; they contain ids and numbers, and no text that a
    /// person or program wrote. Its documentation names them.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// use agent_core::{MemoryStore, TenantId, Backend, WorkspaceId};
    /// use agent_core::commit::Precondition;
    ///
    /// let (store, tenant): (_, TenantId) = (MemoryStore::new(), "acme".parse()?);
    /// let bindings = store.tenant(&tenant).bindings;
    /// bindings.bind(&"laptop".parse()?, WorkspaceId::DEFAULT, Precondition::MustNotExist).await?;
    /// assert_eq!(store.delete_tenant(&tenant).await?.bindings, 1);
    ///
    /// assert!(store.tenants(None).await?.items.is_empty());
    /// assert!(store.delete_tenant(&tenant).await?.is_empty());
    /// # Ok(()) }
    /// ```
    ///
    /// # Runs
    ///
    /// The call is refused while a live holder runs or prepares a session of the tenant, as
    /// [`check_no_live_run`](crate::store::live::check_no_live_run) determines: a holder is live unless the store
    /// proves it dead, or it sends no heartbeat for one ttl of its lease. So the call may wait for as long as that ttl.
    /// A run that begins after this check is not waited for; its next write fails. A session whose record cannot be
    /// read counts as not run.
    ///
    /// # Concurrent reads and writes
    ///
    /// Through this backend value, all workspaces and sessions of the tenant disappear at one moment, and its device
    /// bindings at that moment or shortly after. Another process may see them disappear one by one, each whole or not
    /// at all; when the call returns, it sees none either. Pages of a list or of a log that were requested before that
    /// moment may end early, or with an error.
    ///
    /// A concurrent write is deleted with the rest, or fails with `NotFound`, `Deleted` or `Unavailable`, or comes
    /// after the deletion and creates its object in the empty tenant. It never leaves a part of an object. A write that
    /// begins when the call has returned finds an empty tenant.
    ///
    /// # Interruptions
    ///
    /// If the call fails, or the process ends, the tenant is as before, or its workspaces and sessions have disappeared
    /// and are partly removed. Call this again: it removes the rest. Until then writes may fail with `Unavailable`.
    ///
    /// # Cost
    ///
    /// Proportional to the data of the tenant, whatever else is in the store. Memory is bounded.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future is an interruption as above, or leaves the deletion running.
    ///
    /// # Errors
    ///
    /// `Busy` with the holder's name if a session is run; nothing is removed then. Otherwise as for
    /// [`SessionStore`](crate::store::session::SessionStore#errors).
    async fn delete_tenant(&self, tenant: &TenantId) -> Result<DeletedTenant>;

    /// Deletes all data of a tenant, and removes every copy of its bytes from the store's files before it returns.
    ///
    /// [Deletes the tenant](Self::delete_tenant), then [maintains](Self::maintain) the backend if a rewrite is pending,
    /// also one of an earlier call. For a host that must prove the erasure; a host that deletes several tenants calls
    /// `delete_tenant` for each, and `maintain` once.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// use agent_core::commit::Precondition;
    /// use agent_core::{Backend, MemoryStore, TenantId, WorkspaceId};
    ///
    /// let (store, tenant): (_, TenantId) = (MemoryStore::new(), "acme".parse()?);
    /// let bindings = store.tenant(&tenant).bindings;
    /// bindings.bind(&"laptop".parse()?, WorkspaceId::DEFAULT, Precondition::MustNotExist).await?;
    /// let erased = store.erase_tenant(&tenant).await?;
    /// assert_eq!((erased.bindings, erased.rewrite_pending), (1, false));
    /// # Ok(()) }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// As for both calls. Call it again: it removes the rest.
    ///
    /// # Errors
    ///
    /// Those of both calls. If the second fails, the tenant is deleted, and the rewrite is pending.
    async fn erase_tenant(&self, tenant: &TenantId) -> Result<DeletedTenant> {
        let deleted = self.delete_tenant(tenant).await?;
        if deleted.rewrite_pending {
            self.maintain().await?;
        }
        Ok(deleted.with_rewrite_pending(false))
    }

    /// Does the work that the backend has put off, and returns what was done. See
    /// [`Maintenance::maintain`](crate::store::Maintenance::maintain).
    ///
    /// The default maintains the store of the tenant `default`, which does so for all tenants.
    ///
    /// # Errors
    ///
    /// As for [`Maintenance::maintain`](crate::store::Maintenance::maintain).
    async fn maintain(&self) -> Result<Vec<Pending>> {
        self.tenant(&TenantId::default()).sessions.maintenance().maintain().await
    }

    /// Returns the faults of the structures that all tenants share, if
    /// [`Maintenance::check`](crate::store::Maintenance::check) checks nothing else; `None` if each tenant has
    /// structures of its own.
    ///
    /// A verification of several tenants calls it once, in place of `check` for each tenant, which would read a shared
    /// file again each time. Writes nothing; may read the whole store.
    ///
    /// The default returns `None`.
    async fn check_shared(&self) -> Result<Option<Vec<Damaged>>> {
        Ok(None)
    }

    /// Closes the backend of this store, like [`SessionStore::close`](crate::store::session::SessionStore::close).
    /// The default does nothing.
    async fn close(&self) -> Result<()> {
        Ok(())
    }

    /// Checks that the medium keeps no former versions of what is replaced or removed, before an erasure and the drop of a key. Returns
    /// what could not be found out, in words for people; `None` if nothing is kept.
    ///
    /// A store that has to ask a server asks once, and remembers the answer. It may write an object of its own, and remove it.
    ///
    /// The default returns `Ok(None)`. A wrapper of a backend asks the wrapped one.
    ///
    /// # Errors
    ///
    /// `Unsupported` if former versions are kept: the text names the place, and what to do. Those of the store.
    async fn check_removal(&self) -> Result<Option<String>> {
        Ok(None)
    }

    /// Returns the keys of a tenant, if the backend is encrypted, for an erasure that also drops them. No I/O.
    ///
    /// The default returns `None`. A wrapper of a backend returns those of the wrapped one.
    fn erasable_keys(&self, tenant: &TenantId) -> Option<Arc<dyn ErasableKeys>> {
        let _ = tenant;
        None
    }
}

/// Result of the deletion of a tenant: the number of objects that the call removed.
///
/// A call that finishes an interrupted deletion counts only what was left.
///
/// ```
/// use agent_core::store::DeletedTenant;
///
/// assert!(DeletedTenant::default().is_empty());
/// let deleted = DeletedTenant::new(1, 12, 3);
/// assert_eq!((deleted.sessions, deleted.rewrite_pending), (12, false));
/// assert!(deleted.with_rewrite_pending(true).rewrite_pending);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeletedTenant {
    /// Number of workspaces, tombstones included.
    pub workspaces: u64,
    /// Number of sessions, hidden ones and tombstones included.
    pub sessions: u64,
    /// Number of device bindings.
    pub bindings: u64,
    /// True if copies of bytes that this call or an earlier one removed may be in unused parts of the backend's files,
    /// until [`Backend::maintain`] rewrites them. No call of the backend returns such a copy.
    pub rewrite_pending: bool,
}

impl DeletedTenant {
    /// Creates the result for these numbers of workspaces, sessions and device bindings, of which no copy is left.
    pub const fn new(workspaces: u64, sessions: u64, bindings: u64) -> Self {
        Self { workspaces, sessions, bindings, rewrite_pending: false }
    }

    /// Sets whether copies of removed bytes may be left.
    #[must_use]
    pub const fn with_rewrite_pending(mut self, pending: bool) -> Self {
        self.rewrite_pending = pending;
        self
    }

    /// Returns whether the call removed nothing.
    pub const fn is_empty(&self) -> bool {
        self.workspaces == 0 && self.sessions == 0 && self.bindings == 0
    }
}
