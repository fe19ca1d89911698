//! What is asked of the writer, and what it answers.

use std::sync::Arc;

use agent_core::session::Step as CommitStep;
use agent_core::{
    Commit, Committed, ContentHash, DeviceId, Epoch, Expect, Purge, Purged, Result, Revision, Session,
    SessionId, Timestamp, Trigger, Workspace, WorkspaceId,
};
use sqlx::sqlite::SqliteConnection;
use tokio::sync::oneshot;

use crate::batch::Batch;
use crate::error::Step;
use crate::sessions::{Known, no_session};
use crate::{bindings, rebuild, sessions, workspaces};

/// A write. It can be carried out again, from the start, for as long as its transaction is not committed.
#[derive(Debug)]
pub(crate) enum Request {
    Commit(Box<Commit>),
    Purge(Purge),
    Beat(SessionId, Epoch),
    /// Make a session's record anew, where it is damaged or missing.
    Mend(SessionId),
    /// Make all records anew.
    Rebuild,
    Put(Box<Workspace>, Expect<Revision>),
    Touch(WorkspaceId, Timestamp),
    Delete(WorkspaceId),
    SaveConfig(WorkspaceId, Option<String>, Expect<ContentHash>),
    Bind(DeviceId, WorkspaceId, Expect<WorkspaceId>),
    Unbind(DeviceId),
    UnbindWorkspace(WorkspaceId),
}

/// What a request came to.
#[derive(Debug)]
pub(crate) enum Answer {
    Committed(Box<Committed>),
    Purged(Purged),
    Session(Box<Session>),
    Workspace(Box<Workspace>),
    Bound(WorkspaceId),
    Was(bool),
    Count(u64),
    Done,
}

/// A request on its way, with whom to answer.
#[derive(Debug)]
pub(crate) struct Task {
    pub(crate) tenant: Arc<str>,
    pub(crate) request: Request,
    pub(crate) reply: oneshot::Sender<Result<Answer>>,
}

impl Request {
    /// Whether it may make this process the holder of a lease.
    pub(crate) fn may_take_a_lease(&self) -> bool {
        let takes = |step: &CommitStep| {
            matches!(step, CommitStep::Trigger(Trigger::BeginRun(_) | Trigger::Prepare(_)))
        };
        matches!(self, Self::Commit(commit) if commit.steps.iter().any(takes))
    }

    /// About how many bytes it writes.
    pub(crate) fn size_bytes(&self) -> usize {
        match self {
            Self::Commit(commit) => commit
                .steps
                .iter()
                .map(|step| match step {
                    CommitStep::Event(event) => event.data.get().len(),
                    _ => 0,
                })
                .sum(),
            _ => 0,
        }
    }

    /// Carries it out inside the transaction that `conn` is in.
    pub(crate) async fn run(
        &self,
        conn: &mut SqliteConnection,
        known: &mut Known,
        batch: &mut Batch,
        tenant: &Arc<str>,
    ) -> Step<Answer> {
        if !matches!(self, Self::Commit(_)) {
            // All others look at the rows themselves.
            batch.write(conn).await?;
        }
        Ok(match self {
            Self::Commit(commit) => {
                Answer::Committed(Box::new(sessions::commit(conn, known, batch, tenant, commit).await?))
            }
            Self::Purge(purge) => Answer::Purged(sessions::purge(conn, known, tenant, purge).await?),
            Self::Beat(id, epoch) => {
                sessions::beat(conn, tenant, *id, *epoch).await?;
                Answer::Done
            }
            Self::Mend(id) => {
                known.remove(&(tenant.clone(), *id));
                // The record may be whole and its summary not: both are written anew.
                let stored = rebuild::session(conn, tenant, *id, true).await?;
                Answer::Session(Box::new(stored.ok_or_else(|| no_session(*id))?.session))
            }
            Self::Rebuild => {
                known.clear();
                Answer::Count(rebuild::all(conn).await?)
            }
            Self::Put(workspace, expect) => {
                Answer::Workspace(Box::new(workspaces::put(conn, tenant, workspace, *expect).await?))
            }
            Self::Touch(id, at) => {
                workspaces::touch(conn, tenant, *id, *at).await?;
                Answer::Done
            }
            Self::Delete(id) => {
                workspaces::delete(conn, tenant, *id).await?;
                Answer::Done
            }
            Self::SaveConfig(id, text, expect) => {
                workspaces::save_config(conn, tenant, *id, text.as_deref(), *expect).await?;
                Answer::Done
            }
            Self::Bind(device, to, expect) => {
                Answer::Bound(bindings::bind(conn, tenant, device, *to, *expect).await?)
            }
            Self::Unbind(device) => Answer::Was(bindings::unbind(conn, tenant, device).await?),
            Self::UnbindWorkspace(id) => Answer::Count(bindings::unbind_workspace(conn, tenant, *id).await?),
        })
    }
}
