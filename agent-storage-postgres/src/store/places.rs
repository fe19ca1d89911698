//! Workspaces and the devices that are bound to them.

use std::sync::Arc;

use agent_core::commit::Precondition;
use agent_core::model::Workspace;
use agent_core::store::{Binding, BindingQuery, ContentHash, Page, WorkspaceQuery, observed};
use agent_core::{
    BindingStore, DeviceId, OwnerId, Result, Revision, SessionId, Timestamp, WorkspaceId, WorkspaceStore,
    async_trait,
};
use tracing::field::Empty;
use tracing::info_span;

use crate::medium::attempts::{Mode, run};
use crate::places::{bindings, workspaces};
use crate::store::PostgresStore;

/// Runs one step in a task of the store, in a span.
macro_rules! step {
    ($store:ident, $span:expr, $mode:expr, $doing:literal, $db:ident => $step:expr) => {{
        let site = $store.site.clone();
        let work = async move { run!(site, $mode, $doing, $db => $step.await) };
        observed($span, $store.task(work)).await
    }};
}

#[async_trait]
impl WorkspaceStore for PostgresStore {
    fn of_owner(&self, owner: &OwnerId) -> Option<Arc<dyn WorkspaceStore>> {
        Some(Arc::new(self.narrowed(owner)))
    }

    async fn load(&self, id: WorkspaceId) -> Result<Workspace> {
        let span = info_span!("store.load_workspace", store = "postgres", workspace = %id, outcome = Empty);
        step!(self, span, Mode::Read, "read a workspace", db => workspaces::load(db, id))
    }

    async fn put(&self, workspace: Workspace, expect: Precondition<Revision>) -> Result<Workspace> {
        let span =
            info_span!("store.put_workspace", store = "postgres", workspace = %workspace.id, outcome = Empty);
        step!(self, span, Mode::Shared, "store a workspace", db => workspaces::put(db, &workspace, expect))
    }

    async fn touch(&self, id: WorkspaceId, at: Timestamp) -> Result<()> {
        let span = info_span!("store.touch", store = "postgres", workspace = %id, outcome = Empty);
        step!(self, span, Mode::Shared, "touch a workspace", db => workspaces::touch(db, id, at))
    }

    async fn list(&self, query: WorkspaceQuery) -> Result<Page<Workspace>> {
        let span = info_span!("store.list_workspaces", store = "postgres", outcome = Empty);
        step!(self, span, Mode::Snapshot, "list workspaces", db => workspaces::list(db, &query))
    }

    async fn delete(&self, id: WorkspaceId) -> Result<()> {
        let span = info_span!("store.delete_workspace", store = "postgres", workspace = %id, outcome = Empty);
        step!(self, span, Mode::Shared, "delete a workspace", db => workspaces::delete(db, id))
    }

    async fn load_config(&self, id: WorkspaceId) -> Result<Option<String>> {
        let span = info_span!("store.load_config", store = "postgres", workspace = %id, outcome = Empty);
        step!(self, span, Mode::Read, "read a configuration", db => workspaces::load_config(db, id))
    }

    async fn save_config(
        &self,
        id: WorkspaceId,
        text: Option<String>,
        expect: Precondition<ContentHash>,
    ) -> Result<()> {
        let span = info_span!("store.save_config", store = "postgres", workspace = %id, outcome = Empty);
        step!(self, span, Mode::Shared, "store a configuration", db => workspaces::save_config(db, id, text.as_deref(), expect))
    }

    async fn close(&self) -> Result<()> {
        self.close().await
    }
}

#[async_trait]
impl BindingStore for PostgresStore {
    async fn resolve(&self, device: &DeviceId) -> Result<Option<WorkspaceId>> {
        let span = info_span!("store.resolve", store = "postgres", outcome = Empty);
        let device = device.clone();
        step!(self, span, Mode::Read, "read a binding", db => bindings::resolve(db, &device))
    }

    async fn bind(
        &self,
        device: &DeviceId,
        to: WorkspaceId,
        expect: Precondition<WorkspaceId>,
    ) -> Result<WorkspaceId> {
        let span = info_span!("store.bind", store = "postgres", workspace = %to, outcome = Empty);
        let device = device.clone();
        step!(self, span, Mode::Shared, "bind a device", db => bindings::bind(db, &device, to, expect))
    }

    async fn unbind(&self, device: &DeviceId) -> Result<bool> {
        let span = info_span!("store.unbind", store = "postgres", outcome = Empty);
        let device = device.clone();
        step!(self, span, Mode::Shared, "unbind a device", db => bindings::unbind(db, &device))
    }

    async fn last_session(&self, device: &DeviceId) -> Result<Option<SessionId>> {
        let span = info_span!("store.last_session", store = "postgres", outcome = Empty);
        let device = device.clone();
        step!(self, span, Mode::Read, "read a binding", db => bindings::last_session(db, &device))
    }

    async fn set_last_session(&self, device: &DeviceId, session: SessionId) -> Result<()> {
        let span =
            info_span!("store.set_last_session", store = "postgres", session = %session, outcome = Empty);
        let device = device.clone();
        step!(self, span, Mode::Write, "store a binding", db => bindings::set_last_session(db, &device, session))
    }

    async fn unbind_workspace(&self, id: WorkspaceId) -> Result<u64> {
        let span = info_span!("store.unbind_workspace", store = "postgres", workspace = %id, outcome = Empty);
        step!(self, span, Mode::Shared, "unbind devices", db => bindings::unbind_workspace(db, id))
    }

    /// The order is that of the bytes of the device ids.
    async fn list(&self, query: BindingQuery) -> Result<Page<Binding>> {
        let span = info_span!("store.list_bindings", store = "postgres", outcome = Empty);
        step!(self, span, Mode::Read, "list bindings", db => bindings::list(db, &query))
    }

    async fn close(&self) -> Result<()> {
        self.close().await
    }
}
