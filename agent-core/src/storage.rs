//! What a host holds: the three stores of one tenant, and the tenants of a backend.

use std::fmt::Debug;
use std::sync::Arc;

use async_trait::async_trait;

use crate::binding::BindingStore;
use crate::error::Result;
use crate::id::TenantId;
use crate::page::Page;
use crate::session::SessionStore;
use crate::workspace::WorkspaceStore;

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
    /// As for [`SessionStore`](crate::session::SessionStore#errors).
    async fn list(&self, after: Option<TenantId>) -> Result<Page<TenantId>>;
}
