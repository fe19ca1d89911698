//! What is asked of the writer, and what it answers.

use std::sync::Arc;

use agent_core::commit::{Commit, Committed, Expect, Step as CommitStep, Trigger};
use agent_core::model::Workspace;
use agent_core::session::Session;
use agent_core::state::Reason;
use agent_core::store::{ContentHash, Purge, Purged, Rebuilt};
use agent_core::{DeviceId, Epoch, Result, Revision, SessionId, Timestamp, WorkspaceId};
use rusqlite::Connection;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::error::Step;
use crate::sessions::Known;
use crate::stored::no_session;
use crate::{bindings, rebuild, sessions, workspaces};

/// A write. It can be carried out again, from the start, for as long as its transaction is not committed.
#[derive(Debug)]
pub(crate) enum Request {
    Commit(Box<Commit>),
    Purge(Purge),
    Beat(SessionId, Epoch),
    /// Make a session's record anew, where it is damaged or missing.
    Mend(SessionId),
    /// Make all records anew: of the tenant, or of all tenants.
    Rebuild {
        all: bool,
    },
    /// Delete a session whose record cannot be made anew.
    DeleteDamaged(SessionId, Timestamp, Reason),
    Put(Box<Workspace>, Expect<Revision>),
    Touch(WorkspaceId, Timestamp),
    Delete(WorkspaceId),
    SaveConfig(WorkspaceId, Option<String>, Expect<ContentHash>),
    Bind(DeviceId, WorkspaceId, Expect<WorkspaceId>),
    Unbind(DeviceId),
    UnbindWorkspace(WorkspaceId),
    /// Nothing but what the writer does by itself before each write: make indexes anew that another program has dropped.
    Look,
}

/// What a request came to.
#[derive(Debug)]
pub(crate) enum Answer {
    Committed(Box<Committed>),
    Purged(Purged),
    Session(Arc<Session>),
    Workspace(Box<Workspace>),
    Bound(WorkspaceId),
    Was(bool),
    Count(u64),
    Rebuilt(Rebuilt),
    Done,
}

/// A request on its way, with whom to answer.
#[derive(Debug)]
pub(crate) struct Task {
    pub(crate) tenant: Arc<str>,
    pub(crate) request: Request,
    /// For how long other processes may keep it waiting.
    pub(crate) until: Instant,
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

    /// Carries it out inside the transaction that `conn` is in. Where it is refused, it has written nothing.
    pub(crate) fn run(
        &self,
        conn: &Connection,
        known: &mut Known,
        holder: Option<&str>,
        tenant: &Arc<str>,
    ) -> Step<Answer> {
        Ok(match self {
            Self::Commit(commit) => {
                Answer::Committed(Box::new(sessions::commit(conn, known, holder, tenant, commit)?))
            }
            Self::Purge(purge) => Answer::Purged(sessions::purge(conn, known, tenant, purge)?),
            Self::Beat(id, epoch) => {
                sessions::beat(conn, tenant, *id, *epoch)?;
                Answer::Done
            }
            Self::Mend(id) => {
                known.remove(&(tenant.clone(), *id));
                // The record may be whole and its summary not: both are written anew.
                let stored = rebuild::mend(conn, tenant, *id, true)?;
                Answer::Session(stored.ok_or_else(|| no_session(*id))?.session)
            }
            Self::Rebuild { all } => {
                known.clear();
                Answer::Rebuilt(rebuild::all(conn, (!all).then_some(&**tenant))?)
            }
            Self::DeleteDamaged(id, at, reason) => {
                known.remove(&(tenant.clone(), *id));
                Answer::Session(rebuild::delete_damaged(conn, tenant, *id, (*at, *reason))?)
            }
            Self::Put(workspace, expect) => {
                Answer::Workspace(Box::new(workspaces::put(conn, tenant, workspace, *expect)?))
            }
            Self::Touch(id, at) => {
                workspaces::touch(conn, tenant, *id, *at)?;
                Answer::Done
            }
            Self::Delete(id) => {
                workspaces::delete(conn, tenant, *id)?;
                Answer::Done
            }
            Self::SaveConfig(id, text, expect) => {
                workspaces::save_config(conn, tenant, *id, text.as_deref(), *expect)?;
                Answer::Done
            }
            Self::Bind(device, to, expect) => {
                Answer::Bound(bindings::bind(conn, tenant, device, *to, *expect)?)
            }
            Self::Unbind(device) => Answer::Was(bindings::unbind(conn, tenant, device)?),
            Self::Look => Answer::Done,
            Self::UnbindWorkspace(id) => Answer::Count(bindings::unbind_workspace(conn, tenant, *id)?),
        })
    }
}
