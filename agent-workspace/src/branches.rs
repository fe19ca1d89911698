//! Branches in the place of a session: the session that continues it from an earlier point, and those that it has superseded.
//!
//! The successor of a session is a fork of it, and has its place: its key, its place as main session of the workspace, its timers. The
//! former session is archived, and each names the other by a reference.

use std::sync::Arc;

use futures::TryStreamExt;

use agent_core::commit::Trigger;
use agent_core::event::NewEvent;
use agent_core::model::{Attributes, Patch, Timer, Workspace};
use agent_core::session::{Fork, ForkPoint, NewSession, SessionRecord, SessionSummary};
use agent_core::state::{Reason, SessionState, TriggerKind};
use agent_core::store::{PAGE_MAX, SessionQuery, pages};
use agent_core::{Error, ErrorKind, Result, Seq, SessionId, SessionStoreExt};

use crate::contested::Attempts;
use crate::manager::{ATTEMPTS, WorkspaceManager};
use crate::retention::{is_unread, refuse_hidden};

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
    /// Returns the session that is to continue `now` in its place, from a point in the history of `from`, which is `now` or a session that it has
    /// superseded. Notes in `now` that it is about to. When the successor is created, call [`supersede`](Self::supersede).
    ///
    /// Its id follows from that of `now`, or from its key, so that of several callers one creates it. If one did, and did not come to archive `now`, that
    /// is done here.
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
        let state = now.status.state;
        let by = now.attributes.superseded_by().filter(|_| state == SessionState::Archived);
        if let Some(by) = by {
            match self.storage.sessions.load(by).await {
                // It was about to be created, and then somebody archived this one.
                Err(error) if *error.kind() == ErrorKind::NotFound => {}
                _ => return Err(superseded_by(now, by)),
            }
        }
        if matches!(state, SessionState::Archived | SessionState::Terminated | SessionState::Deleted) {
            let kind = ErrorKind::InvalidTransition { from: state, trigger: TriggerKind::Archive };
            let text = format!("session {} is {}; no branch takes its place", now.id, now.status);
            return Err(Error::new(kind, text));
        }
        let (id, own) = self.next_of(now).await?;
        let patch = Patch::new()
            .with_reference(Attributes::SUPERSEDES, now.id.to_string())
            .with_reference(Attributes::SUPERSEDES_HEAD, now.head.get().to_string());
        let session = self
            .storage
            .sessions
            .plan_fork(from, id, fork)
            .await?
            .with_creator(now.creator.clone())
            .with_patch(&own)
            .with_patch(&patch);
        let end = match fork.point {
            ForkPoint::Last => Seq::new(u64::MAX),
            _ if from.id != now.id => Seq::new(u64::MAX),
            _ => session.created.lineage.base(),
        };
        let timers = now.timers.iter().filter(|timer| timer.seq <= end).cloned().collect();
        if now.attributes.superseded_by() != Some(id) {
            let patch = Patch::new().with_reference(Attributes::SUPERSEDED_BY, id.to_string());
            let commit = self.storage.sessions.seal(now.id, now.head).with_event(NewEvent::updated(patch));
            self.storage.sessions.commit_with_retry(commit).await?;
        }
        Ok(Successor { session, timers })
    }

    /// Returns the id of the next session in the place of this one, and what its key says of it.
    async fn next_of(&self, now: &SessionRecord) -> Result<(SessionId, Patch)> {
        let key = now.conversation_key();
        let generation = now.attributes.references.get(Attributes::CONVERSATION_GENERATION);
        let generation = generation.and_then(|number| number.parse().ok()).unwrap_or(0u64);
        for attempt in 0u64.. {
            let next = generation.saturating_add(attempt).saturating_add(1);
            let id = match &key {
                Some(key) => key.session_id(now.owner.as_ref(), now.workspace, next),
                None => now.id.successor(attempt),
            };
            let there = match self.storage.sessions.load(id).await {
                Err(error) if *error.kind() == ErrorKind::NotFound => {
                    let own = key.as_ref().map(|key| {
                        Patch::new()
                            .with_label(Attributes::CONVERSATION_KEY, key.as_str())
                            .with_reference(Attributes::CONVERSATION_GENERATION, next.to_string())
                    });
                    return Ok((id, own.unwrap_or_default()));
                }
                there => there?,
            };
            if continues(now, &there) {
                self.supersede(now.id, &there).await?;
                return Err(superseded_by(now, id));
            }
        }
        Err(Error::unavailable(format!("session {} has no free successor", now.id)))
    }

    /// Returns the session that is in the place of this one now: itself, if none is. One that was created, and whose creator did not come to
    /// archive this one, is put in its place.
    ///
    /// Reads the record of each session on the way, and one more only where a creation was cut off.
    ///
    /// # Errors
    ///
    /// `Deleted` if that session was deleted; errors of the stores.
    pub async fn in_place(&self, session: &Arc<SessionRecord>) -> Result<Arc<SessionRecord>> {
        let (mut now, mut passed) = (session.clone(), vec![session.id]);
        while let Some(next) = now.attributes.superseded_by().filter(|next| !passed.contains(next)) {
            let next = match self.storage.sessions.load(next).await {
                // It was about to be created.
                Err(error) if *error.kind() == ErrorKind::NotFound => break,
                next => next?,
            };
            if now.status.state != SessionState::Archived {
                if !continues(&now, &next) {
                    break;
                }
                self.supersede(now.id, &next).await?;
            }
            passed.push(next.id);
            now = next;
        }
        match now.status.state {
            SessionState::Deleted => Err(Error::deleted(format!("session {} was deleted", now.id))),
            _ => Ok(now),
        }
    }

    /// Archives a session whose successor was created, with a reference to it, and gives the successor its place as main session of the workspace
    /// and its timers. A run of the former session is fenced. Does nothing if another session has superseded it.
    ///
    /// # Errors
    ///
    /// Errors of the stores; `Conflict` if the session keeps changing.
    pub async fn supersede(&self, former: SessionId, successor: &SessionRecord) -> Result<()> {
        // An imported session may have no workspace; that of an owner has no main session in its record.
        let workspace = match self.load(successor.workspace).await {
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Deleted) => None,
            workspace => Some(workspace?),
        };
        if workspace.is_some_and(|workspace| workspace.main_session == former) {
            let replace = |workspace: &mut Workspace| {
                if workspace.main_session == former {
                    workspace.main_session = successor.id;
                }
            };
            self.change(successor.workspace, replace).await?;
        }
        let patch = Patch::new().with_reference(Attributes::SUPERSEDED_BY, successor.id.to_string());
        let mut attempts = Attempts::at_most(ATTEMPTS);
        loop {
            let now = self.storage.sessions.load(former).await?;
            if matches!(now.status.state, SessionState::Archived | SessionState::Deleted) {
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

    /// Returns the record of a session that is to be removed, `None` if it cannot be read, and the sessions that it has superseded, newest first.
    /// For one that cannot be read, the list of archived sessions is read.
    pub(crate) async fn with_superseded(
        &self,
        id: SessionId,
    ) -> Result<(Option<Arc<SessionRecord>>, Vec<Arc<SessionRecord>>)> {
        let session = match self.storage.sessions.load(id).await {
            Err(error) if is_unread(&error) => None,
            session => Some(session?),
        };
        let former = match &session {
            Some(session) => self.superseded(session, usize::MAX).await?,
            None => match self.superseded_by_damaged(id).await? {
                Some(newest) => {
                    let mut former = self.superseded(&newest, usize::MAX).await?;
                    former.insert(0, newest);
                    former
                }
                None => Vec::new(),
            },
        };
        Ok((session, former))
    }

    /// Returns the session that one, whose record cannot be read, has superseded; `None` if there is none.
    async fn superseded_by_damaged(&self, id: SessionId) -> Result<Option<Arc<SessionRecord>>> {
        let query = SessionQuery::new().with_states([SessionState::Archived]).with_limit(PAGE_MAX);
        let mut pages = pages(query, |query| self.storage.sessions.list(query));
        while let Some(page) = pages.try_next().await? {
            let is_former = |session: &&SessionSummary| session.attributes.superseded_by() == Some(id);
            if let Some(former) = page.items.iter().find(is_former) {
                return self.storage.sessions.load(former.id).await.map(Some);
            }
        }
        Ok(None)
    }

    /// Returns the sessions that this one has superseded, newest first, at most `limit`: each is archived, and this one, or the one before it in the
    /// list, continues it in its place.
    ///
    /// Reads one record for each.
    ///
    /// # Errors
    ///
    /// `Corrupt` if one of them cannot be read; errors of the store.
    pub async fn superseded(&self, session: &SessionRecord, limit: usize) -> Result<Vec<Arc<SessionRecord>>> {
        let mut found: Vec<Arc<SessionRecord>> = Vec::new();
        while found.len() < limit {
            let last = found.last().map_or(session, |last| &**last);
            let named = last.attributes.supersedes();
            // A purge removes the reference, and keeps the origin, which a fork of its own has, too.
            let is_purged = last.status.state == SessionState::Deleted;
            let origin = last.origin.parent().filter(|_| is_purged);
            let Some(former) = named.or(origin) else { break };
            let former = match self.storage.sessions.load(former).await {
                Err(error) if *error.kind() == ErrorKind::NotFound => break,
                Err(error) if *error.kind() == ErrorKind::Corrupt && named.is_none() => break,
                Err(error) if *error.kind() == ErrorKind::Corrupt => {
                    let text = format!(
                        "session {former}, which session {} has superseded, is damaged; erase session {former} by itself, then this one, then {former} \
                         again",
                        last.id
                    );
                    return Err(Error::corrupt(text).with_source(error));
                }
                former => former?,
            };
            // Only if both name each other: anybody may have set one of the references.
            let is_former = former.attributes.superseded_by() == Some(last.id);
            if !is_former || former.id == session.id || found.iter().any(|other| other.id == former.id) {
                break;
            }
            found.push(former);
        }
        Ok(found)
    }
}

/// Returns whether a session was made to continue `now`, and `now` has not gone on since then.
fn continues(now: &SessionRecord, there: &SessionRecord) -> bool {
    let head = there.attributes.references.get(Attributes::SUPERSEDES_HEAD);
    let head = head.and_then(|head| head.parse().ok()).map_or(Seq::ZERO, Seq::new);
    let is_living = there.status.state != SessionState::Deleted;
    is_living && there.attributes.supersedes() == Some(now.id) && now.last_input <= head
}

fn superseded_by(session: &SessionRecord, by: SessionId) -> Error {
    Error::new(
        ErrorKind::Conflict { head: Some(session.head) },
        format!("session {} is superseded by session {by}; go on in that one", session.id),
    )
}
