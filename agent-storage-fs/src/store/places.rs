//! Workspaces and device bindings of a store: each method an async layer over the synchronous core.

use agent_core::commit::Precondition;
use agent_core::model::Workspace;
use agent_core::store::{Binding, BindingQuery, ContentHash, Page, WorkspaceQuery, observed};
use agent_core::{
    BindingStore, DeviceId, Result, Revision, SessionId, Timestamp, WorkspaceId, WorkspaceStore, async_trait,
};
use tracing::field::Empty;
use tracing::info_span;

use crate::places::{bindings, workspaces};
use crate::store::FsStore;

#[async_trait]
impl WorkspaceStore for FsStore {
    async fn load(&self, id: WorkspaceId) -> Result<Workspace> {
        let span = info_span!("store.load_workspace", store = "fs", workspace = %id, outcome = Empty);
        observed(span, self.run(move |tenant| workspaces::load(tenant, id))).await
    }

    async fn put(&self, workspace: Workspace, expect: Precondition<Revision>) -> Result<Workspace> {
        let id = workspace.id;
        let span = info_span!("store.put_workspace", store = "fs", workspace = %id, outcome = Empty);
        let work = self
            .workspace_writer(id)
            .with_lock(move |tenant, ()| workspaces::put(tenant, workspace.clone(), expect));
        observed(span, work).await
    }

    async fn touch(&self, id: WorkspaceId, at: Timestamp) -> Result<()> {
        let span = info_span!("store.touch", store = "fs", workspace = %id, outcome = Empty);
        let work = self.workspace_writer(id).with_lock(move |tenant, ()| workspaces::touch(tenant, id, at));
        observed(span, work).await
    }

    async fn list(&self, query: WorkspaceQuery) -> Result<Page<Workspace>> {
        let span = info_span!("store.list_workspaces", store = "fs", outcome = Empty);
        observed(span, self.run(move |tenant| workspaces::list(tenant, &query))).await
    }

    async fn delete(&self, id: WorkspaceId) -> Result<()> {
        let span = info_span!("store.delete_workspace", store = "fs", workspace = %id, outcome = Empty);
        let work = self.workspace_writer(id).with_lock(move |tenant, ()| workspaces::delete(tenant, id));
        observed(span, work).await
    }

    async fn load_config(&self, id: WorkspaceId) -> Result<Option<String>> {
        let span = info_span!("store.load_config", store = "fs", workspace = %id, outcome = Empty);
        observed(span, self.run(move |tenant| workspaces::load_config(tenant, id))).await
    }

    async fn save_config(
        &self,
        id: WorkspaceId,
        text: Option<String>,
        expect: Precondition<ContentHash>,
    ) -> Result<()> {
        let span = info_span!("store.save_config", store = "fs", workspace = %id, outcome = Empty);
        let work = self
            .workspace_writer(id)
            .with_lock(move |tenant, ()| workspaces::save_config(tenant, id, text.as_deref(), expect));
        observed(span, work).await
    }

    async fn close(&self) -> Result<()> {
        self.close().await
    }
}

#[async_trait]
impl BindingStore for FsStore {
    async fn resolve(&self, device: &DeviceId) -> Result<Option<WorkspaceId>> {
        let device = device.clone();
        let span = info_span!("store.resolve", store = "fs", outcome = Empty);
        observed(span, self.run(move |tenant| bindings::resolve(tenant, &device))).await
    }

    async fn bind(
        &self,
        device: &DeviceId,
        to: WorkspaceId,
        expect: Precondition<WorkspaceId>,
    ) -> Result<WorkspaceId> {
        let device = device.clone();
        let span = info_span!("store.bind", store = "fs", workspace = %to, outcome = Empty);
        let work =
            self.binding_writer().with_lock(move |tenant, ()| bindings::bind(tenant, &device, to, expect));
        observed(span, work).await
    }

    async fn unbind(&self, device: &DeviceId) -> Result<bool> {
        let device = device.clone();
        let span = info_span!("store.unbind", store = "fs", outcome = Empty);
        let work = self.binding_writer().with_lock(move |tenant, ()| bindings::unbind(tenant, &device));
        observed(span, work).await
    }

    async fn last_session(&self, device: &DeviceId) -> Result<Option<SessionId>> {
        let device = device.clone();
        let span = info_span!("store.last_session", store = "fs", outcome = Empty);
        observed(span, self.run(move |tenant| bindings::last_session(tenant, &device))).await
    }

    async fn set_last_session(&self, device: &DeviceId, session: SessionId) -> Result<()> {
        let device = device.clone();
        let span = info_span!("store.set_last_session", store = "fs", session = %session, outcome = Empty);
        let work = self
            .binding_writer()
            .with_lock(move |tenant, ()| bindings::set_last_session(tenant, &device, session));
        observed(span, work).await
    }

    async fn unbind_workspace(&self, id: WorkspaceId) -> Result<u64> {
        let span = info_span!("store.unbind_workspace", store = "fs", workspace = %id, outcome = Empty);
        let work = self.binding_writer().with_lock(move |tenant, ()| bindings::unbind_workspace(tenant, id));
        observed(span, work).await
    }

    /// The order is that of the bytes of the device ids.
    async fn list(&self, query: BindingQuery) -> Result<Page<Binding>> {
        let span = info_span!("store.list_bindings", store = "fs", outcome = Empty);
        observed(span, self.run(move |tenant| bindings::list(tenant, &query))).await
    }

    async fn close(&self) -> Result<()> {
        self.close().await
    }
}
