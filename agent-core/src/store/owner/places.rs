//! Workspaces and device bindings of one owner.

use async_trait::async_trait;

use crate::base::{DeviceId, Error, ErrorKind, Result, Revision, SessionId, Timestamp, WorkspaceId};
use crate::commit::Precondition;
use crate::model::Workspace;
use crate::store::binding::{Binding, BindingQuery, BindingStore};
use crate::store::owner::{OwnerStore, Share, no_workspace};
use crate::store::page::Page;
use crate::store::workspace::{ContentHash, WorkspaceQuery, WorkspaceStore};

impl OwnerStore {
    /// Refuses to change a workspace that is not the owner's own.
    async fn check_own(&self, id: WorkspaceId) -> Result<()> {
        if self.check_workspace(id).await? == Share::Own {
            return Ok(());
        }
        self.tenant.workspaces.load(id).await?;
        Err(self.only_for_tenant(&format!("a change of workspace {id}, which has no owner,")))
    }

    /// Returns the workspace that a device is bound to.
    ///
    /// # Errors
    ///
    /// `Conflict` if it is bound to one of another owner.
    async fn bound(&self, device: &DeviceId) -> Result<Option<WorkspaceId>> {
        let bound = self.tenant.bindings.resolve(device).await?;
        match bound {
            Some(workspace) if self.share(workspace).await? == Share::Others => Err(device_is_taken(device)),
            bound => Ok(bound),
        }
    }
}

fn device_is_taken(device: &DeviceId) -> Error {
    Error::new(
        ErrorKind::Conflict { head: None },
        format!("device {device} is bound already, by another owner; choose another id for the device"),
    )
}

#[async_trait]
impl WorkspaceStore for OwnerStore {
    async fn load(&self, id: WorkspaceId) -> Result<Workspace> {
        let workspace = self.tenant.workspaces.load(id).await?;
        match self.remember_share(id, workspace.owner.as_ref()) {
            Share::Others => Err(no_workspace(id)),
            _ => Ok(workspace),
        }
    }

    async fn put(&self, mut workspace: Workspace, expect: Precondition<Revision>) -> Result<Workspace> {
        self.check_owner(workspace.owner.as_ref())?;
        if expect != Precondition::MustNotExist {
            self.check_own(workspace.id).await?;
        } else if workspace.id != WorkspaceId::DEFAULT {
            workspace.owner = Some(self.owner.clone());
        }
        self.tenant.workspaces.put(workspace, expect).await
    }

    async fn touch(&self, id: WorkspaceId, at: Timestamp) -> Result<()> {
        self.check_workspace(id).await?;
        self.tenant.workspaces.touch(id, at).await
    }

    async fn list(&self, query: WorkspaceQuery) -> Result<Page<Workspace>> {
        self.check_owner(query.owner.as_ref())?;
        let mut query = query;
        query.with_unowned |= query.owner.is_none();
        let mut page = self.tenant.workspaces.list(query.with_owner(self.owner.clone())).await?;
        // Whose a workspace was that cannot be read is not known.
        page.damaged.clear();
        Ok(page)
    }

    async fn delete(&self, id: WorkspaceId) -> Result<()> {
        self.check_own(id).await?;
        self.tenant.workspaces.delete(id).await
    }

    async fn load_config(&self, id: WorkspaceId) -> Result<Option<String>> {
        self.check_workspace(id).await?;
        self.tenant.workspaces.load_config(id).await
    }

    async fn load_with_config(&self, id: WorkspaceId) -> Result<(Workspace, Option<String>)> {
        let (workspace, config) = self.tenant.workspaces.load_with_config(id).await?;
        match self.remember_share(id, workspace.owner.as_ref()) {
            Share::Others => Err(no_workspace(id)),
            _ => Ok((workspace, config)),
        }
    }

    async fn save_config(
        &self,
        id: WorkspaceId,
        text: Option<String>,
        expect: Precondition<ContentHash>,
    ) -> Result<()> {
        self.check_own(id).await?;
        self.tenant.workspaces.save_config(id, text, expect).await
    }

    async fn close(&self) -> Result<()> {
        self.tenant.close().await
    }
}

#[async_trait]
impl BindingStore for OwnerStore {
    async fn resolve(&self, device: &DeviceId) -> Result<Option<WorkspaceId>> {
        let bound = self.tenant.bindings.resolve(device).await?;
        match bound {
            Some(workspace) if self.share(workspace).await? == Share::Others => Ok(None),
            bound => Ok(bound),
        }
    }

    async fn bind(
        &self,
        device: &DeviceId,
        to: WorkspaceId,
        expect: Precondition<WorkspaceId>,
    ) -> Result<WorkspaceId> {
        self.check_workspace(to).await?;
        loop {
            // Only a binding that was seen is replaced: it is none of another owner.
            let seen = match (self.bound(device).await?, expect) {
                (Some(now), Precondition::None | Precondition::MustExist) => Precondition::Matches(now),
                (None, Precondition::None) => Precondition::MustNotExist,
                _ => expect,
            };
            match self.tenant.bindings.bind(device, to, seen).await {
                Ok(bound) if expect == Precondition::None && bound != to => {}
                Ok(bound) if self.share(bound).await? == Share::Others => {
                    return Err(device_is_taken(device));
                }
                Err(error) if seen != expect && matches!(error.kind(), ErrorKind::Conflict { .. }) => {}
                bound => return bound,
            }
        }
    }

    async fn unbind(&self, device: &DeviceId) -> Result<bool> {
        match self.resolve(device).await? {
            Some(_) => self.tenant.bindings.unbind(device).await,
            None => Ok(false),
        }
    }

    async fn last_session(&self, device: &DeviceId) -> Result<Option<SessionId>> {
        let Some(session) = self.tenant.bindings.last_session(device).await? else { return Ok(None) };
        match self.resolve(device).await? {
            // A workspace that owners share has sessions of each.
            Some(_) if self.check_session(session).await.is_ok() => Ok(Some(session)),
            _ => Ok(None),
        }
    }

    async fn set_last_session(&self, device: &DeviceId, session: SessionId) -> Result<()> {
        match self.resolve(device).await? {
            Some(_) => self.tenant.bindings.set_last_session(device, session).await,
            None => Ok(()),
        }
    }

    async fn unbind_workspace(&self, id: WorkspaceId) -> Result<u64> {
        self.check_own(id).await?;
        self.tenant.bindings.unbind_workspace(id).await
    }

    async fn list(&self, query: BindingQuery) -> Result<Page<Binding>> {
        let mut page = self.tenant.bindings.list(query).await?;
        let mut seen = Vec::with_capacity(page.items.len());
        for binding in page.items.drain(..) {
            if self.share(binding.workspace).await? != Share::Others {
                seen.push(binding);
            }
        }
        page.items = seen;
        Ok(page)
    }

    async fn close(&self) -> Result<()> {
        self.tenant.close().await
    }
}
