//! Requests to the writer, and its answers.

use std::any::Any;
use std::sync::Arc;

use agent_core::commit::{Commit, Committed, OptimisticCommit, Step as CommitStep, Trigger};
use agent_core::event::Event;
use agent_core::session::SessionRecord;
use agent_core::state::Reason;
use agent_core::store::{Purge, Purged, Rebuilt};
use agent_core::{Epoch, Result, SessionId, Timestamp, WorkspaceId};
use rusqlite::Connection;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::connections::blob_steps::{BlobAnswer, BlobStep};
use crate::error::Step;
use crate::log::{commit, rebuild};
use crate::medium::known::Known;
use crate::medium::session_rows::Rows;
use crate::medium::stored::no_session;
use crate::places::tenants::Removed;
use crate::places::{tenants, workspaces};

/// Change that the writer makes for a tenant, in a transaction; again if the transaction is.
pub(crate) type Change = Box<dyn Fn(&Connection, &str) -> Step<Box<dyn Any + Send>> + Send>;

/// Write request. It can be executed again, from the start, until its transaction is committed.
pub(crate) enum Request {
    Commit(Box<OptimisticCommit<Rows>>),
    Purge(Purge),
    /// Rewrites the whole file, so that nothing is left of what was erased, if that is pending.
    Rewrite,
    /// Moves the write-ahead log into the database, and empties it, so that nothing of what was deleted is left there. The
    /// answer is `false` if others use what the log holds; the writer does not wait for them.
    EmptyLog,
    Heartbeat(SessionId, Epoch),
    Blob(BlobStep),
    /// Rebuilds a session's record, if it is damaged or missing.
    Mend(SessionId),
    /// Rebuilds all records: of the tenant, or of all tenants.
    Rebuild {
        all: bool,
    },
    /// Deletes a session whose record cannot be rebuilt.
    DeleteDamaged(SessionId, Timestamp, Reason),
    Touch(WorkspaceId, Timestamp),
    /// A change of workspaces or bindings.
    Change(Change),
    /// Marks the tenant as being deleted.
    BeginDeletion,
    /// Removes a part of the tenant that is being deleted.
    RemoveTenant,
    /// Removes the mark, when nothing else is left of the tenant.
    EndDeletion,
    /// Does only what the writer does before each write: rebuilds indexes that another program has dropped.
    RebuildIndexes,
}

/// Result of a request.
#[derive(Debug)]
pub(crate) enum Answer {
    Committed(Box<Committed>),
    Purged(Purged),
    Blob(BlobAnswer),
    Session(Arc<SessionRecord>),
    Was(bool),
    /// What a [`Change`] returned.
    Changed(Box<dyn Any + Send>),
    Rebuilt(Rebuilt),
    Removed(Removed),
    Done,
}

/// Request on its way to the writer, with the channel for the answer.
pub(crate) struct Task {
    pub(crate) tenant: Arc<str>,
    pub(crate) request: Request,
    /// Time until which other processes may keep the request waiting.
    pub(crate) until: Instant,
    pub(crate) reply: oneshot::Sender<Result<Answer>>,
}

impl Request {
    /// Returns whether the request may make this process the holder of a lease.
    pub(crate) fn may_take_a_lease(&self) -> bool {
        let takes = |step: &CommitStep| {
            matches!(step, CommitStep::Trigger(Trigger::BeginRun(_) | Trigger::Prepare(_)))
        };
        matches!(self, Self::Commit(commit) if commit.commit().steps.iter().any(takes))
    }

    /// Returns whether the request may be lost in a power failure. A transaction of only such requests needs no sync.
    pub(crate) const fn is_advisory(&self) -> bool {
        matches!(self, Self::Touch(..) | Self::Heartbeat(..))
    }

    /// Returns about how many bytes the request writes.
    pub(crate) fn size_bytes(&self) -> usize {
        match self {
            Self::Commit(commit) => commit_size_bytes(commit.commit()),
            Self::Blob(step) => step.size_bytes(),
            _ => 0,
        }
    }

    /// Returns whether this is a step that writes or deletes the bytes of a blob, or belongs between two of them.
    pub(crate) const fn is_step_of_bytes(&self) -> bool {
        matches!(self, Self::Blob(BlobStep::Chunk { .. } | BlobStep::Discard(_) | BlobStep::Delete))
    }

    /// Returns whether bytes that were to be removed may now be in the write-ahead log only. `answer` is the request's.
    pub(crate) fn leaves_bytes_in_log(&self, answer: &Result<Answer>) -> bool {
        match (self, answer) {
            (Self::Purge(_) | Self::EndDeletion, _) => true,
            (_, Ok(Answer::Blob(BlobAnswer::Deleted(deleted)))) => deleted.any && !deleted.is_left,
            _ => false,
        }
    }

    /// Executes the request inside the transaction that `conn` is in. If the request is refused, it has written
    /// nothing.
    pub(crate) fn run(
        &self,
        conn: &Connection,
        known: &Known,
        holder: Option<&str>,
        tenant: &Arc<str>,
    ) -> Step<Answer> {
        match self {
            Self::BeginDeletion => {
                known.remove_tenant(tenant);
                return Ok(Answer::Removed(tenants::begin(conn, tenant)?));
            }
            Self::RemoveTenant => return Ok(Answer::Removed(tenants::remove(conn, tenant)?)),
            Self::EndDeletion => {
                tenants::end(conn, tenant)?;
                return Ok(Answer::Done);
            }
            Self::Rebuild { all: true } | Self::Rewrite | Self::EmptyLog | Self::RebuildIndexes => {}
            _ => tenants::check(conn, tenant)?,
        }
        self.change(conn, known, holder, tenant)
    }

    /// Changes data of the tenant, whose deletion has not begun.
    fn change(
        &self,
        conn: &Connection,
        known: &Known,
        holder: Option<&str>,
        tenant: &Arc<str>,
    ) -> Step<Answer> {
        Ok(match self {
            Self::Commit(commit) => {
                Answer::Committed(Box::new(commit::commit(conn, known, holder, tenant, commit)?))
            }
            Self::Change(change) => Answer::Changed(change(conn, tenant)?),
            Self::Blob(step) => Answer::Blob(step.run(conn, known, tenant)?),
            Self::Purge(purge) => Answer::Purged(commit::purge(conn, known, tenant, purge)?),
            Self::Heartbeat(id, epoch) => {
                commit::heartbeat(conn, tenant, *id, *epoch)?;
                Answer::Done
            }
            Self::Mend(id) => {
                known.remove(&(tenant.clone(), *id));
                // The record may be valid and its summary damaged: both are written again.
                let session = rebuild::mend(conn, tenant, *id, true)?;
                Answer::Session(session.ok_or_else(|| no_session(*id))?)
            }
            Self::Rebuild { all } => {
                known.clear();
                Answer::Rebuilt(rebuild::all(conn, (!all).then_some(&**tenant))?)
            }
            Self::DeleteDamaged(id, at, reason) => {
                known.remove(&(tenant.clone(), *id));
                Answer::Session(rebuild::delete_damaged(conn, tenant, *id, (*at, *reason))?)
            }
            Self::Touch(id, at) => {
                workspaces::touch(conn, tenant, *id, *at)?;
                Answer::Done
            }
            // The writer does the rest outside of the transaction.
            Self::Rewrite | Self::EmptyLog => Answer::Was(false),
            Self::RebuildIndexes | Self::BeginDeletion | Self::RemoveTenant | Self::EndDeletion => {
                Answer::Done
            }
        })
    }
}

/// Returns about how many bytes a commit writes.
pub(crate) fn commit_size_bytes(commit: &Commit) -> usize {
    let size_bytes = |step: &CommitStep| match step {
        CommitStep::Event(event) => event.payload.get().len(),
        CommitStep::Trigger(Trigger::Restore(events)) => events.iter().map(Event::size_bytes).sum(),
        _ => 0,
    };
    commit.steps.iter().map(size_bytes).sum()
}
