//! Workspaces and device bindings of one owner.

use async_trait::async_trait;
use futures::TryStreamExt;

use crate::base::{DeviceId, Error, ErrorKind, Result, Revision, SessionId, Timestamp, WorkspaceId};
use crate::commit::Precondition;
use crate::model::Workspace;
use crate::store::binding::{Binding, BindingQuery, BindingStore, decide_bind};
use crate::store::owner::{OwnerStore, Share, no_workspace, unread};
use crate::store::page::{PAGE_MAX, Page, pages};
use crate::store::workspace::{ContentHash, WorkspaceQuery, WorkspaceStore};

impl OwnerStore {
    /// Refuses to change a workspace that is not the owner's own.
    async fn check_own(&self, id: WorkspaceId) -> Result<()> {
        if self.check_workspace(id).await? == Share::Own {
            return Ok(());
        }
        self.own.workspaces.load(id).await?;
        Err(self.only_for_tenant(&format!("a change of workspace {id}, which has no owner,")))
    }

    /// Returns the workspace that a device is bound to; `None` also for one that does not exist.
    ///
    /// # Errors
    ///
    /// `Conflict` if it is another owner's.
    async fn bound(&self, device: &DeviceId) -> Result<Option<(WorkspaceId, Share)>> {
        let Some(workspace) = self.tenant.bindings.resolve(device).await? else { return Ok(None) };
        match self.share(workspace).await? {
            Share::Others => Err(device_is_taken(device)),
            share => Ok(Some((workspace, share))),
        }
    }

    /// Returns the bindings to all workspaces that the owner sees.
    async fn all_bindings(&self) -> Result<Vec<Binding>> {
        let mut all = Vec::new();
        let workspaces = WorkspaceQuery::new().with_deleting().with_limit(PAGE_MAX);
        let mut workspaces = pages(workspaces, |query| WorkspaceStore::list(self, query));
        while let Some(page) = workspaces.try_next().await? {
            // `default` has bindings before it has a record.
            let seen = page.items.into_iter().map(|workspace| workspace.id);
            for id in seen.filter(|id| *id != WorkspaceId::DEFAULT) {
                all.extend(self.bindings_of(id).await?);
            }
        }
        all.extend(self.bindings_of(WorkspaceId::DEFAULT).await?);
        Ok(all)
    }

    async fn bindings_of(&self, id: WorkspaceId) -> Result<Vec<Binding>> {
        let query = BindingQuery::new().with_workspace(id).with_limit(PAGE_MAX);
        let pages = pages(query, |query| self.tenant.bindings.list(query));
        let found: Vec<_> = pages.try_collect().await?;
        Ok(found.into_iter().flat_map(|page: Page<Binding>| page.items).collect())
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
        let workspace = self.own.workspaces.load(id).await;
        let workspace = workspace.map_err(|error| unread(format_args!("workspace {id}"), error))?;
        match self.remember_share(id, workspace.owner.as_ref()) {
            Share::Others => Err(no_workspace(id)),
            _ => Ok(workspace),
        }
    }

    async fn put(&self, mut workspace: Workspace, expect: Precondition<Revision>) -> Result<Workspace> {
        self.check_owner(workspace.owner.as_ref())?;
        if expect != Precondition::MustNotExist {
            self.check_own(workspace.id).await?;
        } else if workspace.id == WorkspaceId::DEFAULT {
            // All owners share it, so the first of them decides nothing about it.
            let main = self.tenant.effects().new_session_id();
            workspace = Workspace::new(workspace.id, "default", main, workspace.created_at);
        } else {
            workspace.owner = Some(self.owner.clone());
        }
        self.own.workspaces.put(workspace, expect).await
    }

    async fn touch(&self, id: WorkspaceId, at: Timestamp) -> Result<()> {
        self.check_workspace(id).await?;
        self.own.workspaces.touch(id, at).await
    }

    async fn list(&self, query: WorkspaceQuery) -> Result<Page<Workspace>> {
        self.check_owner(query.owner.as_ref())?;
        let mut query = query;
        query.with_unowned |= query.owner.is_none();
        let mut page = self.own.workspaces.list(query.with_owner(self.owner.clone())).await?;
        // Whose a workspace was that cannot be read is not known.
        page.damaged.clear();
        Ok(page)
    }

    async fn delete(&self, id: WorkspaceId) -> Result<()> {
        match self.check_own(id).await {
            // It was deleted before, which succeeds again.
            Err(error) if *error.kind() == ErrorKind::Deleted => {}
            checked => checked?,
        }
        self.own.workspaces.delete(id).await
    }

    async fn load_config(&self, id: WorkspaceId) -> Result<Option<String>> {
        self.check_workspace(id).await?;
        self.own.workspaces.load_config(id).await
    }

    async fn load_with_config(&self, id: WorkspaceId) -> Result<(Workspace, Option<String>)> {
        let loaded = self.own.workspaces.load_with_config(id).await;
        let (workspace, config) = loaded.map_err(|error| unread(format_args!("workspace {id}"), error))?;
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
        self.own.workspaces.save_config(id, text, expect).await
    }

    async fn close(&self) -> Result<()> {
        self.tenant.close().await
    }
}

#[async_trait]
impl BindingStore for OwnerStore {
    async fn resolve(&self, device: &DeviceId) -> Result<Option<WorkspaceId>> {
        let Some(bound) = self.tenant.bindings.resolve(device).await? else { return Ok(None) };
        Ok(match self.share(bound).await? {
            Share::Own | Share::Shared => Some(bound),
            Share::Others | Share::Nobodys => None,
        })
    }

    async fn bind(
        &self,
        device: &DeviceId,
        to: WorkspaceId,
        expect: Precondition<WorkspaceId>,
    ) -> Result<WorkspaceId> {
        // So that nobody else creates the workspace of a device.
        if self.check_workspace(to).await? == Share::Nobodys {
            return Err(no_workspace(to));
        }
        loop {
            // Only a binding that was seen is replaced: it is none of another owner.
            let seen = match (self.bound(device).await?, expect) {
                (Some((gone, Share::Nobodys)), Precondition::None | Precondition::MustNotExist) => {
                    Precondition::Matches(gone)
                }
                (Some((now, _)), Precondition::None | Precondition::MustExist) => Precondition::Matches(now),
                (None, Precondition::None) => Precondition::MustNotExist,
                (None, Precondition::MustExist | Precondition::Matches(_)) => {
                    return decide_bind(device, None, to, expect);
                }
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
        if self.resolve(device).await?.is_none() {
            return Ok(None);
        }
        // A workspace that owners share has sessions of each.
        match self.check_session(session).await {
            Ok(_) => Ok(Some(session)),
            Err(error) if error.is_absent() || *error.kind() == ErrorKind::Corrupt => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn set_last_session(&self, device: &DeviceId, session: SessionId) -> Result<()> {
        self.check_session(session).await?;
        match self.resolve(device).await? {
            Some(_) => self.tenant.bindings.set_last_session(device, session).await,
            None => Ok(()),
        }
    }

    async fn unbind_workspace(&self, id: WorkspaceId) -> Result<u64> {
        self.check_own(id).await?;
        self.tenant.bindings.unbind_workspace(id).await
    }

    /// Reads the bindings of all workspaces that the owner sees for each page, unless a workspace is named. The order is that
    /// of the bytes of the device ids.
    async fn list(&self, query: BindingQuery) -> Result<Page<Binding>> {
        let all = match query.workspace {
            None => self.all_bindings().await?,
            Some(workspace) if matches!(self.share(workspace).await?, Share::Own | Share::Shared) => {
                return self.tenant.bindings.list(query).await;
            }
            Some(_) => Vec::new(),
        };
        query.page(all)
    }

    async fn close(&self) -> Result<()> {
        self.tenant.close().await
    }
}
