//! Workspaces and the devices that are bound to them.

use agent_core::commit::Precondition;
use agent_core::model::Workspace;
use agent_core::store::{Binding, BindingQuery, ContentHash, Page, WorkspaceQuery, observed};
use agent_core::{
    BindingStore, DeviceId, Result, Revision, SessionId, Timestamp, WorkspaceId, WorkspaceStore, async_trait,
};
use rusqlite::Connection;
use tracing::field::Empty;
use tracing::info_span;

use crate::connections::readers::Warm;
use crate::connections::request::Request;
use crate::places::{bindings, workspaces};
use crate::store::SqliteStore;

#[async_trait]
impl WorkspaceStore for SqliteStore {
    async fn load(&self, id: WorkspaceId) -> Result<Workspace> {
        let span = info_span!("store.load_workspace", store = "sqlite", workspace = %id, outcome = Empty);
        let load = move |conn: &Connection, tenant: &str| workspaces::load(conn, tenant, id);
        observed(span, self.read_row("read a workspace", self.workspace(id), load)).await
    }

    async fn put(&self, workspace: Workspace, expect: Precondition<Revision>) -> Result<Workspace> {
        let span =
            info_span!("store.put_workspace", store = "sqlite", workspace = %workspace.id, outcome = Empty);
        let put = self.change(move |conn, tenant| workspaces::put(conn, tenant, &workspace, expect));
        observed(span, put).await
    }

    async fn touch(&self, id: WorkspaceId, at: Timestamp) -> Result<()> {
        let span = info_span!("store.touch", store = "sqlite", workspace = %id, outcome = Empty);
        observed(span, async { self.ask(Request::Touch(id, at)).await.map(drop) }).await
    }

    async fn list(&self, query: WorkspaceQuery) -> Result<Page<Workspace>> {
        let span = info_span!("store.list_workspaces", store = "sqlite", outcome = Empty);
        let list = self.shown(move |conn, tenant| workspaces::list(conn, tenant, &query));
        observed(span, self.read_rows("list workspaces", list)).await
    }

    async fn delete(&self, id: WorkspaceId) -> Result<()> {
        let span = info_span!("store.delete_workspace", store = "sqlite", workspace = %id, outcome = Empty);
        observed(span, self.change(move |conn, tenant| workspaces::delete(conn, tenant, id))).await
    }

    async fn load_config(&self, id: WorkspaceId) -> Result<Option<String>> {
        let span = info_span!("store.load_config", store = "sqlite", workspace = %id, outcome = Empty);
        let load = move |conn: &Connection, tenant: &str| workspaces::load_config(conn, tenant, id);
        observed(span, self.read_row("read a configuration", self.workspace(id), load)).await
    }

    async fn save_config(
        &self,
        id: WorkspaceId,
        text: Option<String>,
        expect: Precondition<ContentHash>,
    ) -> Result<()> {
        let span = info_span!("store.save_config", store = "sqlite", workspace = %id, outcome = Empty);
        let save = move |conn: &Connection, tenant: &str| {
            workspaces::save_config(conn, tenant, id, text.as_deref(), expect)
        };
        observed(span, self.change(save)).await
    }

    async fn close(&self) -> Result<()> {
        self.close().await
    }
}

#[async_trait]
impl BindingStore for SqliteStore {
    async fn resolve(&self, device: &DeviceId) -> Result<Option<WorkspaceId>> {
        let span = info_span!("store.resolve", store = "sqlite", outcome = Empty);
        let device = device.clone();
        let resolve = self.shown(move |conn, tenant| bindings::resolve(conn, tenant, &device));
        observed(span, self.read_rows("read a binding", resolve)).await
    }

    async fn bind(
        &self,
        device: &DeviceId,
        to: WorkspaceId,
        expect: Precondition<WorkspaceId>,
    ) -> Result<WorkspaceId> {
        let span = info_span!("store.bind", store = "sqlite", workspace = %to, outcome = Empty);
        let device = device.clone();
        let bind = self.change(move |conn, tenant| bindings::bind(conn, tenant, &device, to, expect));
        observed(span, bind).await
    }

    async fn unbind(&self, device: &DeviceId) -> Result<bool> {
        let span = info_span!("store.unbind", store = "sqlite", outcome = Empty);
        let device = device.clone();
        let unbind = self.change(move |conn, tenant| bindings::unbind(conn, tenant, &device));
        observed(span, unbind).await
    }

    async fn last_session(&self, device: &DeviceId) -> Result<Option<SessionId>> {
        let span = info_span!("store.last_session", store = "sqlite", outcome = Empty);
        let device = device.clone();
        let last = self.shown(move |conn, tenant| bindings::last_session(conn, tenant, &device));
        observed(span, self.read_rows("read a binding", last)).await
    }

    async fn set_last_session(&self, device: &DeviceId, session: SessionId) -> Result<()> {
        let span =
            info_span!("store.set_last_session", store = "sqlite", session = %session, outcome = Empty);
        let device = device.clone();
        let set = self.change(move |conn, tenant| bindings::set_last_session(conn, tenant, &device, session));
        observed(span, set).await
    }

    async fn unbind_workspace(&self, id: WorkspaceId) -> Result<u64> {
        let span = info_span!("store.unbind_workspace", store = "sqlite", workspace = %id, outcome = Empty);
        observed(span, self.change(move |conn, tenant| bindings::unbind_workspace(conn, tenant, id))).await
    }

    /// The order is that of the bytes of the device ids.
    async fn list(&self, query: BindingQuery) -> Result<Page<Binding>> {
        let span = info_span!("store.list_bindings", store = "sqlite", outcome = Empty);
        let list = self.shown(move |conn, tenant| bindings::list(conn, tenant, &query));
        observed(span, self.read_rows("list bindings", list)).await
    }

    async fn close(&self) -> Result<()> {
        self.close().await
    }
}

impl SqliteStore {
    fn workspace(&self, id: WorkspaceId) -> Warm {
        Warm::Workspace(self.tenant.clone(), id)
    }
}
