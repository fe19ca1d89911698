//! Copy of workspaces with their configuration, and of device bindings.

use std::collections::BTreeMap;

use futures::TryStreamExt;

use crate::copy::{CopyStage, ItemOutcome, Stop, Work};
use agent_core::commit::Precondition;
use agent_core::model::{Workspace, WorkspaceStatus};
use agent_core::store::{Binding, BindingQuery, PAGE_MAX, WorkspaceQuery, pages};
use agent_core::{ErrorKind, Result, Revision, SessionId, Timestamp, WorkspaceId};

/// Name of a workspace that a copy creates only to delete it. An interrupted copy leaves a workspace with this name.
const TOMBSTONE: &str = "deleted before it was copied";

impl Work<'_> {
    /// Copies the workspaces.
    pub(super) async fn workspaces(&self) -> Result<()> {
        self.begin();
        let from = &self.copy.from.workspaces;
        if let Some(id) = self.copy.workspace {
            let found = from.load(id).await.map_err(Stop::of_source);
            return self.workspace(id, found).await;
        }
        let all = WorkspaceQuery::new().with_deleting().with_total().with_limit(PAGE_MAX);
        let mut listed = pages(all, |query| from.list(query));
        while let Some(page) = self.page("workspaces", listed.try_next().await)? {
            self.tally().total = page.total;
            for workspace in page.items {
                self.workspace(workspace.id, Ok(workspace)).await?;
            }
        }
        Ok(())
    }

    async fn workspace(&self, id: WorkspaceId, found: Result<Workspace, Stop>) -> Result<()> {
        let copied = match found {
            Ok(workspace) => self.copy_workspace(workspace).await,
            Err(stop) => Err(stop),
        };
        self.note(CopyStage::Workspaces, || format!("workspace {id}"), copied).map(drop)
    }

    async fn copy_workspace(&self, workspace: Workspace) -> Result<ItemOutcome, Stop> {
        let (from, to, id) = (&self.copy.from.workspaces, &self.copy.to.workspaces, workspace.id);
        let config = from.load_config(id).await.map_err(Stop::of_source)?;
        let mut outcome = ItemOutcome::Present;
        match to.load(id).await {
            Ok(there) if is_same(&workspace, &there) => {}
            Ok(_) => {
                return Err(Stop::Refused(
                    "the target has a different record under this id, which was not changed".into(),
                ));
            }
            Err(error) if *error.kind() == ErrorKind::NotFound => {
                to.put(workspace, Precondition::MustNotExist).await.map_err(Stop::of_target)?;
                outcome = ItemOutcome::Copied;
            }
            Err(error) => return Err(Stop::of_target(error)),
        }
        let Some(config) = config else { return Ok(outcome) };
        match to.load_config(id).await.map_err(Stop::of_target)? {
            Some(there) if there == config => Ok(outcome),
            Some(_) => Err(Stop::Refused(
                "the target has a different configuration for it, which was not changed".into(),
            )),
            None => {
                to.save_config(id, Some(config.clone()), Precondition::MustNotExist)
                    .await
                    .map_err(Stop::of_target)?;
                let back = to.load_config(id).await.map_err(Stop::of_target)?;
                if back.as_ref() != Some(&config) {
                    return Err(Stop::Refused(
                        "the configuration that the target returned differs from the one that was written; check its disk".into(),
                    ));
                }
                Ok(ItemOutcome::Copied)
            }
        }
    }

    /// Creates a tombstone for each of these workspaces that was deleted in the source; each is given with one of its
    /// sessions.
    pub(super) async fn workspace_tombstones(&self, seen: BTreeMap<WorkspaceId, SessionId>) -> Result<()> {
        for (id, session) in seen {
            match self.copy.from.workspaces.load(id).await {
                Err(error) if *error.kind() == ErrorKind::Deleted => {}
                _ => continue,
            }
            let done = self.workspace_tombstone(id, session).await;
            self.note(CopyStage::Workspaces, || format!("workspace {id}"), done)?;
        }
        Ok(())
    }

    async fn workspace_tombstone(&self, id: WorkspaceId, session: SessionId) -> Result<ItemOutcome, Stop> {
        let to = &self.copy.to.workspaces;
        match to.load(id).await {
            Err(error) if *error.kind() == ErrorKind::Deleted => return Ok(ItemOutcome::Present),
            Err(error) if *error.kind() == ErrorKind::NotFound => {
                let mut workspace = Workspace::new(id, TOMBSTONE, session, Timestamp::UNIX_EPOCH);
                workspace.status = WorkspaceStatus::Deleting;
                to.put(workspace, Precondition::MustNotExist).await.map_err(Stop::of_target)?;
            }
            Ok(there) if there.name == TOMBSTONE && there.status == WorkspaceStatus::Deleting => {}
            Ok(_) => {
                return Err(Stop::Refused(
                    "it was deleted in the source, but exists in the target; delete it in the target".into(),
                ));
            }
            Err(error) => return Err(Stop::of_target(error)),
        }
        to.delete(id).await.map_err(Stop::of_target)?;
        Ok(ItemOutcome::Copied)
    }

    /// Copies the device bindings.
    pub(super) async fn bindings(&self) -> Result<()> {
        self.begin();
        let mut query = BindingQuery::new().with_limit(PAGE_MAX);
        query.workspace = self.copy.workspace;
        let mut listed = pages(query, |query| self.copy.from.bindings.list(query));
        while let Some(page) = self.page("bindings", listed.try_next().await)? {
            for binding in page.items {
                let copied = self.binding(&binding).await;
                self.note(CopyStage::Bindings, || format!("device {}", binding.device), copied)?;
            }
        }
        Ok(())
    }

    async fn binding(&self, binding: &Binding) -> Result<ItemOutcome, Stop> {
        let (to, device) = (&self.copy.to.bindings, &binding.device);
        let (now, outcome) = match to.resolve(device).await.map_err(Stop::of_target)? {
            Some(now) => (now, ItemOutcome::Present),
            None => {
                let now = to.bind(device, binding.workspace, Precondition::MustNotExist).await;
                (now.map_err(Stop::of_target)?, ItemOutcome::Copied)
            }
        };
        if now == binding.workspace {
            return Ok(outcome);
        }
        Err(Stop::Refused(format!(
            "it is bound to workspace {} in the source, but to {now} in the target, which was not changed",
            binding.workspace
        )))
    }
}

/// Returns whether two records are equal, except for the store's own counter and the last-access time.
fn is_same(here: &Workspace, there: &Workspace) -> bool {
    let plain = |workspace: &Workspace| {
        let mut plain = workspace.clone();
        (plain.revision, plain.last_accessed) = (Revision::ZERO, Timestamp::UNIX_EPOCH);
        plain
    };
    plain(here) == plain(there)
}
