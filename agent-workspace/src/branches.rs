//! Branches in the place of a session: the session that continues it from an earlier point, and those that it has superseded.
//!
//! The successor of a session is a fork of it, and has its place: its key, its place as main session of the workspace, its timers. The
//! former session is archived, and each names the other by a reference.

use std::sync::Arc;

use agent_core::commit::Trigger;
use agent_core::event::NewEvent;
use agent_core::model::{Attributes, Patch, Timer, Workspace};
use agent_core::session::{ConversationKey, Fork, ForkPoint, NewSession, SessionRecord};
use agent_core::state::{Reason, SessionState, TriggerKind};
use agent_core::{Error, ErrorKind, Result, Seq, SessionId, SessionStoreExt};

use crate::contested::Attempts;
use crate::manager::{ATTEMPTS, WorkspaceManager};
use crate::retention::refuse_hidden;

/// Session that is to take the place of another.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Successor {
    /// Request that creates it.
    pub session: NewSession,
    /// Timers that it takes over: those that were scheduled before the point at which it continues.
    pub timers: Vec<Timer>,
}

impl WorkspaceManager {
    /// Returns the session that continues `now` in its place, from a point in the history of `from`, which is `now` or a session that it has
    /// superseded. Writes nothing; when it is created, call [`supersede`](Self::supersede).
    ///
    /// # Errors
    ///
    /// `Conflict` if `now` is superseded already; `InvalidTransition` if it is archived or has ended; `InvalidInput` for a hidden session; those
    /// of [`Sessions::fork`](agent_core::Sessions::fork).
    pub async fn successor(
        &self,
        now: &SessionRecord,
        from: &SessionRecord,
        fork: Fork,
    ) -> Result<Successor> {
        refuse_hidden(now)?;
        refuse_superseded(now)?;
        let from_state = now.status.state;
        if matches!(from_state, SessionState::Archived | SessionState::Terminated | SessionState::Deleted) {
            let kind = ErrorKind::InvalidTransition { from: from_state, trigger: TriggerKind::Archive };
            return Err(Error::new(
                kind,
                format!("session {} is {}; no branch takes its place", now.id, now.status),
            ));
        }
        let key = now.conversation_key();
        let (id, generation) = match &key {
            Some(key) => self.next_of_key(now, key).await?,
            None => (self.storage.effects().new_session_id(), 0),
        };
        let mut patch = Patch::new().with_reference(Attributes::SUPERSEDES, now.id.to_string());
        if let Some(key) = &key {
            patch = patch
                .with_label(Attributes::CONVERSATION_KEY, key.as_str())
                .with_reference(Attributes::CONVERSATION_GENERATION, generation.to_string());
        }
        let session = self.storage.sessions.plan_fork(from, id, fork).await?.with_patch(&patch);
        let end = match fork.point {
            ForkPoint::Last => Seq::new(u64::MAX),
            _ if from.id != now.id => Seq::new(u64::MAX),
            _ => session.created.lineage.base(),
        };
        let timers = now.timers.iter().filter(|timer| timer.seq <= end).cloned().collect();
        Ok(Successor { session, timers })
    }

    /// Returns the id and the generation of the next session of a key. A successor that was created, and whose creator has not come to archive the
    /// session, is put in its place.
    async fn next_of_key(&self, now: &SessionRecord, key: &ConversationKey) -> Result<(SessionId, u64)> {
        let generation = now.attributes.references.get(Attributes::CONVERSATION_GENERATION);
        let mut next = generation.and_then(|number| number.parse().ok()).unwrap_or(0u64);
        loop {
            next = next.saturating_add(1);
            let id = key.session_id(now.owner.as_ref(), now.workspace, next);
            let there = match self.storage.sessions.load(id).await {
                Err(error) if *error.kind() == ErrorKind::NotFound => return Ok((id, next)),
                there => there?,
            };
            if there.status.state != SessionState::Deleted {
                self.supersede(now.id, &there).await?;
                return Err(superseded_by(now, there.id));
            }
        }
    }

    /// Archives a session whose successor was created, with a reference to it, and gives the successor its place as main session of the workspace
    /// and its timers. A run of the former session is fenced. Does nothing if another session has superseded it.
    ///
    /// # Errors
    ///
    /// Errors of the stores; `Conflict` if the session keeps changing.
    pub async fn supersede(&self, former: SessionId, successor: &SessionRecord) -> Result<()> {
        let now = self.storage.sessions.load(former).await?;
        if now.owner.is_none() && self.load(now.workspace).await?.main_session == former {
            let replace = |workspace: &mut Workspace| {
                if workspace.main_session == former {
                    workspace.main_session = successor.id;
                }
            };
            self.change(now.workspace, replace).await?;
        }
        let patch = Patch::new().with_reference(Attributes::SUPERSEDED_BY, successor.id.to_string());
        let mut attempts = Attempts::at_most(ATTEMPTS);
        loop {
            let now = self.storage.sessions.load(former).await?;
            if now.attributes.superseded_by().is_some() || now.status.state == SessionState::Deleted {
                return Ok(());
            }
            let taken = |timer: &&Timer| successor.timers.iter().any(|other| other.key == timer.key);
            let cancelled =
                now.timers.iter().filter(taken).map(|timer| NewEvent::timer_cancelled(&timer.key));
            let mut commit = self.storage.sessions.seal_unchanged(former, now.head);
            commit = commit.with_event(NewEvent::updated(patch.clone())).with_events(cancelled);
            if now.status.state == SessionState::Running {
                commit = commit.with_trigger(Trigger::ForceSuspend(Reason::UserPaused));
            }
            commit = commit.with_trigger(Trigger::Archive);
            if let Some(done) = attempts.outcome(self.storage.sessions.commit_with_retry(commit).await) {
                return done.map(drop);
            }
        }
    }

    /// Returns the sessions that this one has superseded, newest first, at most `limit`: each is archived, and this one, or the one before it in the
    /// list, continues it in its place.
    ///
    /// Reads one record for each.
    ///
    /// # Errors
    ///
    /// Errors of the store.
    pub async fn superseded(&self, session: &SessionRecord, limit: usize) -> Result<Vec<Arc<SessionRecord>>> {
        let mut found: Vec<Arc<SessionRecord>> = Vec::new();
        while found.len() < limit {
            let last = found.last().map_or(session, |last| &**last);
            // A purge removes the reference, and keeps the origin.
            let Some(former) = last.attributes.supersedes().or(last.origin.parent()) else { break };
            let former = match self.storage.sessions.load(former).await {
                Err(error) if *error.kind() == ErrorKind::NotFound => break,
                former => former?,
            };
            // Only if both say so: anybody may have set one of the references.
            let is_former = former.attributes.superseded_by() == Some(last.id);
            if !is_former || former.id == session.id || found.iter().any(|other| other.id == former.id) {
                break;
            }
            found.push(former);
        }
        Ok(found)
    }
}

/// Refuses a session in whose place is another.
fn refuse_superseded(session: &SessionRecord) -> Result<()> {
    match session.attributes.superseded_by() {
        None => Ok(()),
        Some(by) => Err(superseded_by(session, by)),
    }
}

fn superseded_by(session: &SessionRecord, by: SessionId) -> Error {
    Error::new(
        ErrorKind::Conflict { head: Some(session.head) },
        format!("session {} is superseded by session {by}; go on in that one", session.id),
    )
}
