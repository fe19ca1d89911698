//! Workspaces with their configuration, and bindings.

use std::collections::BTreeMap;

use futures::TryStreamExt;

use crate::copy::{CopyStage, Outcome, Stop, Work};
use agent_core::commit::Expect;
use agent_core::model::{Workspace, WorkspaceStatus};
use agent_core::store::{Binding, BindingQuery, PAGE_MAX, WorkspaceQuery, pages};
use agent_core::{ErrorKind, Result, Revision, SessionId, Timestamp, WorkspaceId};

/// The name of a workspace that is made to be deleted at once. One that bears it is this library's own work, cut off.
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
        let all = WorkspaceQuery::new().with_deleting().with_total().limit(PAGE_MAX);
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

    async fn copy_workspace(&self, workspace: Workspace) -> Result<Outcome, Stop> {
        let (from, to, id) = (&self.copy.from.workspaces, &self.copy.to.workspaces, workspace.id);
        let config = from.load_config(id).await.map_err(Stop::of_source)?;
        let mut outcome = Outcome::Present;
        match to.load(id).await {
            Ok(there) if is_same(&workspace, &there) => {}
            Ok(_) => {
                return Err(Stop::Refused(
                    "the target has another record under this id; it stays as it is".into(),
                ));
            }
            Err(error) if *error.kind() == ErrorKind::NotFound => {
                to.put(workspace, Expect::Absent).await.map_err(Stop::of_target)?;
                outcome = Outcome::Copied;
            }
            Err(error) => return Err(Stop::of_target(error)),
        }
        let Some(config) = config else { return Ok(outcome) };
        match to.load_config(id).await.map_err(Stop::of_target)? {
            Some(there) if there == config => Ok(outcome),
            Some(_) => {
                Err(Stop::Refused("the target has another configuration of it; that stays as it is".into()))
            }
            None => {
                to.save_config(id, Some(config.clone()), Expect::Absent).await.map_err(Stop::of_target)?;
                let back = to.load_config(id).await.map_err(Stop::of_target)?;
                if back.as_ref() != Some(&config) {
                    return Err(Stop::Refused(
                        "the target gives back another configuration than was saved".into(),
                    ));
                }
                Ok(Outcome::Copied)
            }
        }
    }

    /// Leaves a tombstone for each of these workspaces, of which one session is named, where it was deleted in the source.
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

    async fn workspace_tombstone(&self, id: WorkspaceId, session: SessionId) -> Result<Outcome, Stop> {
        let to = &self.copy.to.workspaces;
        match to.load(id).await {
            Err(error) if *error.kind() == ErrorKind::Deleted => return Ok(Outcome::Present),
            Err(error) if *error.kind() == ErrorKind::NotFound => {
                let mut workspace = Workspace::new(id, TOMBSTONE, session, Timestamp::UNIX_EPOCH);
                workspace.status = WorkspaceStatus::Deleting;
                to.put(workspace, Expect::Absent).await.map_err(Stop::of_target)?;
            }
            Ok(there) if there.name == TOMBSTONE && there.status == WorkspaceStatus::Deleting => {}
            Ok(_) => {
                return Err(Stop::Refused(
                    "it was deleted in the source, and is there in the target; delete it there".into(),
                ));
            }
            Err(error) => return Err(Stop::of_target(error)),
        }
        to.delete(id).await.map_err(Stop::of_target)?;
        Ok(Outcome::Copied)
    }

    /// Copies the bindings.
    pub(super) async fn bindings(&self) -> Result<()> {
        self.begin();
        let mut query = BindingQuery::new().limit(PAGE_MAX);
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

    async fn binding(&self, binding: &Binding) -> Result<Outcome, Stop> {
        let (to, device) = (&self.copy.to.bindings, &binding.device);
        let (now, outcome) = match to.resolve(device).await.map_err(Stop::of_target)? {
            Some(now) => (now, Outcome::Present),
            None => {
                let now = to.bind(device, binding.workspace, Expect::Absent).await;
                (now.map_err(Stop::of_target)?, Outcome::Copied)
            }
        };
        if now == binding.workspace {
            return Ok(outcome);
        }
        Err(Stop::Refused(format!(
            "it is bound to workspace {} in the source and to {now} in the target; it stays bound there",
            binding.workspace
        )))
    }
}

/// Whether two records say the same, but for what the store counts itself and when it was last used.
fn is_same(here: &Workspace, there: &Workspace) -> bool {
    let plain = |workspace: &Workspace| {
        let mut plain = workspace.clone();
        (plain.revision, plain.last_accessed) = (Revision::ZERO, Timestamp::UNIX_EPOCH);
        plain
    };
    plain(here) == plain(there)
}
