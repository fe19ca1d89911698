//! Sessions by their age: set aside, ended, deleted, purged. Each change is made only to what was judged: a message that
//! comes first wins, and one that comes later finds the session as the change left it.

use std::sync::Arc;
use std::time::Duration;

use futures::TryStreamExt;

use crate::retention::gc::is_race;
use crate::retention::{Kept, Protection, before, newer, planned};
use crate::workspaces::WorkspaceManager;
use agent_core::commit::{Commit, Expect, Trigger};
use agent_core::model::Attributes;
use agent_core::session::Session;
use agent_core::state::{Reason, SessionState};
use agent_core::store::{Damaged, PAGE_MAX, Purge, ReadEvents, SessionQuery, Shelf, needed_by_forks, pages};
use agent_core::{ErrorKind, Result, SessionId, SessionStoreExt, Timestamp, WorkspaceId};

/// What a sweep does with sessions of which age. Without a rule it does nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SweepPolicy {
    /// What becomes of a session in which nothing has happened for so long.
    pub inactive: Option<(Duration, Inactive)>,
    /// After what time a terminated session is deleted.
    pub delete_terminated: Option<Duration>,
    /// After what time an archived session is deleted.
    pub delete_archived: Option<Duration>,
    /// After what time a deleted session is purged.
    pub purge_deleted: Option<Duration>,
    /// Only sessions of this workspace.
    pub workspace: Option<WorkspaceId>,
    /// Whether to say only what would be done.
    pub dry_run: bool,
}

/// What becomes of a session in which nothing happens any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Inactive {
    /// It is set aside, `Suspended (inactivity)`; inputs are kept, and it can be resumed.
    Suspend,
    /// It is over, `Terminated (expired)`; it stays readable, and inputs are refused.
    Terminate,
}

impl SweepPolicy {
    /// No rule.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets what becomes of a session in which nothing has happened for `after`, or for the time that it has
    /// [of its own](agent_core::model::Patch::inactive_after). Only sessions at rest: one that runs, or has work waiting for a run,
    /// is not inactive, nor is one with a wake or a time-out that is still to come.
    #[must_use]
    pub fn inactive(mut self, after: Duration, then: Inactive) -> Self {
        self.inactive = Some((after, then));
        self
    }

    /// Deletes sessions that were terminated longer ago than `after`.
    #[must_use]
    pub fn delete_terminated(mut self, after: Duration) -> Self {
        self.delete_terminated = Some(after);
        self
    }

    /// Deletes sessions that were archived longer ago than `after`.
    #[must_use]
    pub fn delete_archived(mut self, after: Duration) -> Self {
        self.delete_archived = Some(after);
        self
    }

    /// Purges sessions that were deleted longer ago than `after`, except the events that living sessions need.
    #[must_use]
    pub fn purge_deleted(mut self, after: Duration) -> Self {
        self.purge_deleted = Some(after);
        self
    }

    /// Only sessions of this workspace.
    #[must_use]
    pub fn workspace(mut self, id: WorkspaceId) -> Self {
        self.workspace = Some(id);
        self
    }

    /// Only says what would be done.
    #[must_use]
    pub fn dry_run(mut self) -> Self {
        self.dry_run = true;
        self
    }

    fn query(&self, states: &[SessionState]) -> SessionQuery {
        let mut query = SessionQuery::new().states(states.iter().copied()).limit(PAGE_MAX);
        query.workspace = self.workspace;
        query
    }
}

/// What a sweep did, or in a dry run would do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SweepReport {
    /// What was done, and to which session.
    pub swept: Vec<Swept>,
    /// Sessions that are old enough, and what protects them.
    pub kept: Vec<Kept<SessionId>>,
    /// What could not be read, and was left alone.
    pub damaged: Vec<Damaged>,
}

/// What was done to a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Swept {
    /// The session.
    pub session: SessionId,
    /// What was done.
    pub act: Act,
}

/// What a sweep does to a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Act {
    /// It was set aside.
    Suspended,
    /// It was ended.
    Terminated,
    /// It was deleted; its bytes stay until it is purged.
    Deleted,
    /// Its bytes were removed, but for what others need.
    Purged,
}

/// Applies a policy, for [`WorkspaceManager::sweep`].
pub(super) struct Sweeper<'a>(pub(super) &'a WorkspaceManager);

impl Sweeper<'_> {
    pub(super) async fn run(&self, policy: &SweepPolicy) -> Result<SweepReport> {
        let mut report = SweepReport::default();
        let now = self.0.effects.now();
        if let Some((after, then)) = policy.inactive {
            self.sweep_inactive(policy, now, after, then, &mut report).await?;
        }
        for (state, after) in [
            (SessionState::Terminated, policy.delete_terminated),
            (SessionState::Archived, policy.delete_archived),
        ] {
            if let Some(after) = after {
                self.sweep_ended(policy, state, before(now, after), &mut report).await?;
            }
        }
        if let Some(after) = policy.purge_deleted {
            self.sweep_deleted(policy, before(now, after), &mut report).await?;
        }
        // Each pass names what is damaged.
        report.damaged.sort();
        report.damaged.dedup();
        Ok(report)
    }

    async fn sweep_inactive(
        &self,
        policy: &SweepPolicy,
        now: Timestamp,
        after: Duration,
        then: Inactive,
        report: &mut SweepReport,
    ) -> Result<()> {
        use SessionState::{Failed, Idle, RequiresAction, Suspended};
        let (states, trigger, act): (&[_], _, _) = match then {
            Inactive::Suspend => {
                (&[Idle, RequiresAction], Trigger::Suspend(Reason::Inactivity), Act::Suspended)
            }
            Inactive::Terminate => (
                &[Idle, RequiresAction, Suspended, Failed],
                Trigger::Terminate(Reason::Expired),
                Act::Terminated,
            ),
        };
        let mut pages = pages(policy.query(states), |query| self.0.storage.sessions.list(query));
        while let Some(page) = pages.try_next().await? {
            report.damaged.extend(page.damaged);
            for item in &page.items {
                let cutoff = before(now, item.attributes.inactive_after().unwrap_or(after));
                if item.last_active_at >= cutoff {
                    continue;
                }
                let Some(session) = self.load_known(item.id, report).await? else { continue };
                // It may have moved on since the list was made.
                if session.last_active_at >= cutoff || !states.contains(&session.status.state) {
                    continue;
                }
                let plans = planned(&session).filter(|until| *until >= cutoff);
                if let Some(until) = plans {
                    let by = Protection::Scheduled { session: session.id, until };
                    report.kept.push(Kept::new(session.id, by));
                    continue;
                }
                self.act(policy, &session, trigger.clone(), act, report).await?;
            }
        }
        Ok(())
    }

    async fn sweep_ended(
        &self,
        policy: &SweepPolicy,
        state: SessionState,
        cutoff: Timestamp,
        report: &mut SweepReport,
    ) -> Result<()> {
        let mut pages = pages(policy.query(&[state]), |query| self.0.storage.sessions.list(query));
        while let Some(page) = pages.try_next().await? {
            report.damaged.extend(page.damaged);
            for item in page.items.iter().filter(|item| item.last_active_at < cutoff) {
                let Some(session) = self.load_known(item.id, report).await? else { continue };
                if session.last_active_at < cutoff && session.status.state == state {
                    let delete = Trigger::Delete(Reason::Collected);
                    self.act(policy, &session, delete, Act::Deleted, report).await?;
                }
            }
        }
        Ok(())
    }

    async fn sweep_deleted(
        &self,
        policy: &SweepPolicy,
        cutoff: Timestamp,
        report: &mut SweepReport,
    ) -> Result<()> {
        let sessions = &*self.0.storage.sessions;
        let mut pages = pages(policy.query(&[SessionState::Deleted]), |query| sessions.list(query));
        while let Some(page) = pages.try_next().await? {
            report.damaged.extend(page.damaged);
            for item in page.items.iter().filter(|item| item.last_active_at < cutoff) {
                let Some(session) = self.load_known(item.id, report).await? else { continue };
                let held = match sessions.read(item.id, ReadEvents::last(1)).await {
                    Ok(page) => page.events.last().map(|event| event.seq),
                    Err(error) if *error.kind() == ErrorKind::Corrupt => Some(session.head),
                    Err(error) => return Err(error),
                };
                // Most tombstones have no bytes any more, and cost no write.
                let Some(held) = held else { continue };
                let need = needed_by_forks(sessions, &session).await?;
                if let Some(by) = need.by {
                    report.kept.push(Kept::new(item.id, by.into()));
                }
                if held <= need.keep {
                    continue;
                }
                if !policy.dry_run {
                    sessions.purge(Purge::new(session.id, session.head)).await?;
                }
                report.swept.push(Swept { session: item.id, act: Act::Purged });
            }
        }
        Ok(())
    }

    /// The record; `None`, and a line in the report, where it cannot be read.
    async fn load_known(&self, id: SessionId, report: &mut SweepReport) -> Result<Option<Arc<Session>>> {
        match self.0.storage.sessions.load(id).await {
            Err(error) if *error.kind() == ErrorKind::Corrupt => {
                report.damaged.push(Damaged::new(format!("session {id}"), error.to_string()));
                Ok(None)
            }
            other => other.map(Some),
        }
    }

    /// Changes a session, if it is still as it was seen, and says so.
    async fn act(
        &self,
        policy: &SweepPolicy,
        session: &Session,
        trigger: Trigger,
        act: Act,
        report: &mut SweepReport,
    ) -> Result<()> {
        let (id, head) = (session.id, session.head);
        if let Some(why) = spared(&session.attributes) {
            let by = Protection::Pinned { session: id, why };
            report.kept.push(Kept::new(id, by));
            return Ok(());
        }
        if let Some(newer) = newer(session) {
            report.kept.push(Kept::new(id, newer));
            return Ok(());
        }
        if !policy.dry_run {
            let commit = Commit::seal(&self.0.effects, id, head).expect(Expect::Is(head)).trigger(trigger);
            match self.0.storage.sessions.settle(commit).await {
                Err(error) if is_race(&error) => {
                    report.kept.push(Kept::new(id, Protection::Used { session: Some(id) }));
                    return Ok(());
                }
                other => other.map(drop)?,
            }
        }
        report.swept.push(Swept { session: id, act });
        Ok(())
    }
}

/// Why a sweep leaves the session as it is: it is pinned, or others read what lies in it, and nobody writes there.
fn spared(attributes: &Attributes) -> Option<String> {
    let shelf = || attributes.labels.get(Shelf::LABEL).map(|of| format!("it is the shelf of {of}"));
    attributes.pinned().map(str::to_owned).or_else(shelf)
}
