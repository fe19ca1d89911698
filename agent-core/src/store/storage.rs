//! What a host holds: the three stores of one tenant, and the tenants of a backend.

use std::fmt::Debug;
use std::sync::Arc;

use async_trait::async_trait;

use crate::base::{Result, TenantId};
use crate::store::binding::BindingStore;
use crate::store::page::Page;
use crate::store::session::SessionStore;
use crate::store::workspace::WorkspaceStore;

/// The three stores of one tenant: of one backend, or of three. Cheap to clone.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Storage {
    /// Workspaces and their configuration.
    pub workspaces: Arc<dyn WorkspaceStore>,
    /// Sessions.
    pub sessions: Arc<dyn SessionStore>,
    /// Device bindings.
    pub bindings: Arc<dyn BindingStore>,
}

impl Storage {
    /// Three stores from wherever.
    pub fn new(
        workspaces: Arc<dyn WorkspaceStore>,
        sessions: Arc<dyn SessionStore>,
        bindings: Arc<dyn BindingStore>,
    ) -> Self {
        Self { workspaces, sessions, bindings }
    }

    /// Closes the backends of the three stores, each once: finishes the writes that have begun, and gives back threads,
    /// files, connections and the locks of leases. That ends them for all of their tenants and clones: later calls fail
    /// with `Unavailable`. Without it, dropping the last clone of each store does as much as it can.
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
    /// Dropped before it returns, the stores are open, closing or closed; call it again to close them all.
    ///
    /// # Errors
    ///
    /// The first error of a store; the others are closed all the same.
    pub async fn close(&self) -> Result<()> {
        let sessions = Arc::as_ptr(&self.sessions).cast::<()>();
        let workspaces = Arc::as_ptr(&self.workspaces).cast::<()>();
        let bindings = Arc::as_ptr(&self.bindings).cast::<()>();
        let mut closed = self.sessions.close().await;
        if workspaces != sessions {
            closed = closed.and(self.workspaces.close().await);
        }
        if bindings != sessions && bindings != workspaces {
            closed = closed.and(self.bindings.close().await);
        }
        closed
    }
}

impl<S: WorkspaceStore + SessionStore + BindingStore> From<Arc<S>> for Storage {
    fn from(store: Arc<S>) -> Self {
        Self { workspaces: store.clone(), sessions: store.clone(), bindings: store }
    }
}

impl<S: WorkspaceStore + SessionStore + BindingStore> From<S> for Storage {
    fn from(store: S) -> Self {
        Arc::new(store).into()
    }
}

/// A backend that keeps several tenants apart. Held by servers and schedulers only: a tenant's [`Storage`] cannot
/// reach another's data.
#[async_trait]
pub trait Tenants: Debug + Send + Sync + 'static {
    /// The stores of a tenant. No I/O: a tenant that was never written to is empty.
    fn storage(&self, tenant: &TenantId) -> Storage;

    /// The tenants that hold anything, in the order of their names.
    ///
    /// # Errors
    ///
    /// As for [`SessionStore`](crate::store::session::SessionStore#errors).
    async fn list(&self, after: Option<TenantId>) -> Result<Page<TenantId>>;

    /// Closes the backend of this store, as [`SessionStore::close`](crate::store::session::SessionStore::close) does. As provided
    /// it does nothing.
    async fn close(&self) -> Result<()> {
        Ok(())
    }
}
