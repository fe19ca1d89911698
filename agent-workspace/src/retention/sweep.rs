//! Sweep of sessions by age: suspends, ends, deletes and purges them. Each change applies only to the state that was
//! judged: a message that arrives first wins.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures::TryStreamExt;
use serde::{Deserialize, Serialize};

use crate::manager::WorkspaceManager;
use crate::retention::gc::is_race;
use crate::retention::{RetainReason, Retained, before, check_time, newer, planned};
use agent_core::commit::Trigger;
use agent_core::model::AGE_MAX;
use agent_core::session::{SessionRecord, SessionSummary};
use agent_core::setters;
use agent_core::state::{Reason, SessionState};
use agent_core::store::{
    Damaged, HiddenSession, PAGE_MAX, Purge, ReadEvents, SessionQuery, needed_by_forks, pages,
};
use agent_core::{ErrorKind, Result, SessionId, SessionStoreExt, Timestamp, WorkspaceId};

/// Rules of a sweep by age. A policy without rules changes nothing. Each age is at most [`AGE_MAX`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SweepPolicy {
    /// Minimum time without an event, and the treatment of a session that reaches it; default no rule.
    pub inactive: Option<(Duration, InactivityPolicy)>,
    /// Time after which a terminated session is deleted; default never.
    pub delete_terminated: Option<Duration>,
    /// Time after which an archived session is deleted; default never.
    pub delete_archived: Option<Duration>,
    /// Time after which a deleted session is purged; default never.
    pub purge_deleted: Option<Duration>,
    /// Workspace to which the sweep is limited; default all workspaces.
    pub workspace: Option<WorkspaceId>,
    /// Dry run: if true, the sweep reports what it would do, and changes nothing; default false.
    pub dry_run: bool,
    /// If true, [`SweepReport::retained`] also lists sessions that were used recently; default false.
    pub report_recent: bool,
}

/// Treatment of an inactive session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
#[doc(alias = "Inactive")]
pub enum InactivityPolicy {
    /// The session is suspended, `Suspended (inactivity)`; inputs are kept, and it can be resumed.
    Suspend,
    /// The session is ended, `Terminated (expired)`; it stays readable, and inputs are refused.
    Terminate,
}

impl SweepPolicy {
    /// Creates a policy without rules.
    ///
    /// ```
    /// use agent_core::WorkspaceId;
    /// use agent_runtime::retention::{InactivityPolicy, SweepPolicy};
    /// use std::time::Duration;
    ///
    /// const DAY: Duration = Duration::from_secs(24 * 3600);
    /// let policy = SweepPolicy::new()
    ///     .with_inactive(14 * DAY, InactivityPolicy::Suspend)
    ///     .with_delete_terminated(30 * DAY)
    ///     .with_delete_archived(90 * DAY)
    ///     .with_purge_deleted(7 * DAY)
    ///     .with_workspace(WorkspaceId::DEFAULT)
    ///     .with_dry_run()
    ///     .with_report_recent();
    /// assert_eq!((policy.delete_archived, policy.purge_deleted), (Some(90 * DAY), Some(7 * DAY)));
    /// assert!(policy.dry_run && policy.report_recent);
    /// ```
    pub fn new() -> Self {
        Self::default()
    }

    setters! {
        /// Sets the treatment of a session without events for `after`; by default inactive sessions are not changed.
        ///
        /// A session with [a time of its own](agent_core::model::Patch::with_inactive_after) uses that time instead. Only
        /// sessions at rest are inactive: a session that runs, or that has work waiting for a run, is not. Nor is a session
        /// with a timer or a time limit in the future, or in the past by less than that time.
        pub fn with_inactive(after: Duration, then: InactivityPolicy) => inactive = Some((after, then));

        /// Deletes sessions that were terminated longer ago than `after`; by default never.
        pub fn with_delete_terminated(after: Duration) => delete_terminated = Some(after);

        /// Deletes sessions that were archived longer ago than `after`; by default never.
        pub fn with_delete_archived(after: Duration) => delete_archived = Some(after);

        /// Purges sessions that were deleted longer ago than `after`, except events that living sessions need; by default
        /// never.
        pub fn with_purge_deleted(after: Duration) => purge_deleted = Some(after);

        /// Limits the sweep to the sessions of a workspace; by default it covers all sessions of the tenant.
        pub fn with_workspace(id: WorkspaceId) => workspace = Some(id);

        /// Makes the sweep report what it would do, without changes.
        pub fn with_dry_run() => dry_run = true;

        /// Includes sessions that were used recently in [`SweepReport::retained`].
        pub fn with_report_recent() => report_recent = true;
    }

    pub(super) fn check(&self) -> Result<()> {
        for (noun, age) in [
            ("an age of inactive sessions", self.inactive.map(|(after, _)| after)),
            ("an age of terminated sessions", self.delete_terminated),
            ("an age of archived sessions", self.delete_archived),
            ("an age of deleted sessions", self.purge_deleted),
        ] {
            check_time(noun, age.unwrap_or_default(), AGE_MAX)?;
        }
        Ok(())
    }

    /// Returns the query for the sessions that a rule looks at: those without activity since `cutoff`, unless recent ones
    /// are reported.
    fn query(&self, states: &[SessionState], cutoff: Timestamp) -> SessionQuery {
        let mut query = SessionQuery::new().with_states(states.iter().copied()).with_limit(PAGE_MAX);
        query.workspace = self.workspace;
        query.inactive_since = Some(cutoff).filter(|_| !self.report_recent);
        query
    }
}

/// Result of a sweep; in a dry run, what the sweep would do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct SweepReport {
    /// Number of examined sessions, without purged ones: those in a state that a rule covers that are old enough for it or
    /// have a time of their own, and all others if [`SweepPolicy::report_recent`] is set.
    pub examined: u64,
    /// Actions that were taken, each with its session.
    pub swept: Vec<SweepEntry>,
    /// Sessions that are old enough, each with the reason for which it is kept. Recently used ones are included if
    /// [`SweepPolicy::report_recent`] is set.
    pub retained: Vec<Retained<SessionId>>,
    /// Objects that could not be read, and were not changed.
    pub damaged: Vec<Damaged>,
    /// True if copies of removed data may be left in the store, until
    /// [`Maintenance::maintain`](agent_core::store::Maintenance::maintain) rewrites it; see
    /// [`Purged::rewrite_pending`](agent_core::store::Purged::rewrite_pending).
    pub rewrite_pending: bool,
}

/// Action that was taken on a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
#[doc(alias = "Swept")]
pub struct SweepEntry {
    /// Id of the session.
    pub session: SessionId,
    /// Action on the session.
    pub action: SweepAction,
    /// State of the session before the action.
    pub state: SessionState,
    /// Time of the session's last event before the action.
    pub last_used: Timestamp,
}

impl SweepEntry {
    fn new(session: &SessionRecord, action: SweepAction) -> Self {
        Self { session: session.id, action, state: session.status.state, last_used: session.last_active_at }
    }
}

/// Action of a sweep on a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
#[doc(alias = "Act")]
pub enum SweepAction {
    /// The session was suspended.
    Suspended,
    /// The session was terminated.
    Terminated,
    /// The session was deleted; its bytes stay until it is purged.
    Deleted,
    /// The bytes of the session were removed, except those that other sessions need.
    Purged,
}

/// Executor of a policy, for [`WorkspaceManager::sweep`].
pub(super) struct Sweeper<'a> {
    pub(super) manager: &'a WorkspaceManager,
    /// Workspaces that a dry run would have deleted before, with their sessions.
    pub(super) without: &'a [WorkspaceId],
}

impl Sweeper<'_> {
    pub(super) async fn run(&self, policy: &SweepPolicy) -> Result<SweepReport> {
        policy.check()?;
        let mut report = SweepReport::default();
        let now = self.manager.storage.effects().now();
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
        // Each rule may report the same damage.
        report.damaged.sort();
        report.damaged.dedup();
        Ok(report)
    }

    async fn sweep_inactive(
        &self,
        policy: &SweepPolicy,
        now: Timestamp,
        after: Duration,
        then: InactivityPolicy,
        report: &mut SweepReport,
    ) -> Result<()> {
        use SessionState::{Failed, Idle, RequiresAction, Suspended};
        let (states, trigger, act): (&[_], _, _) = match then {
            InactivityPolicy::Suspend => {
                (&[Idle, RequiresAction], Trigger::Suspend(Reason::Inactivity), SweepAction::Suspended)
            }
            InactivityPolicy::Terminate => (
                &[Idle, RequiresAction, Suspended, Failed],
                Trigger::Terminate(Reason::Expired),
                SweepAction::Terminated,
            ),
        };
        let mut pages = pages(policy.query(states, before(now, after)), |query| {
            self.manager.storage.sessions.list(query)
        });
        while let Some(page) = pages.try_next().await? {
            report.damaged.extend(page.damaged);
            for item in &page.items {
                let cutoff = before(now, item.attributes.inactive_after().unwrap_or(after));
                let Some(session) = self.old(policy, item, cutoff, report).await? else { continue };
                // The session may have changed since the list was read.
                if session.last_active_at >= cutoff || !states.contains(&session.status.state) {
                    continue;
                }
                let plans = planned(&session).filter(|until| *until >= cutoff);
                if let Some(until) = plans {
                    let by = RetainReason::Scheduled { session: session.id, until };
                    report.retained.push(Retained::new(session.id, by));
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
        let swept = swept_so_far(report);
        let mut pages =
            pages(policy.query(&[state], cutoff), |query| self.manager.storage.sessions.list(query));
        while let Some(page) = pages.try_next().await? {
            report.damaged.extend(page.damaged);
            for item in page.items.iter().filter(|item| !swept.contains(&item.id)) {
                let Some(session) = self.old(policy, item, cutoff, report).await? else { continue };
                if session.last_active_at < cutoff && session.status.state == state {
                    let delete = Trigger::Delete(Reason::Collected);
                    self.act(policy, &session, delete, SweepAction::Deleted, report).await?;
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
        let sessions = &*self.manager.storage.sessions;
        let swept = swept_so_far(report);
        let mut pages = pages(policy.query(&[SessionState::Deleted], cutoff), |query| sessions.list(query));
        while let Some(page) = pages.try_next().await? {
            report.damaged.extend(page.damaged);
            for item in page.items.iter().filter(|item| !swept.contains(&item.id)) {
                let Some(session) = self.old(policy, item, cutoff, report).await? else { continue };
                let held = match sessions.read(item.id, ReadEvents::last(1)).await {
                    Ok(page) => page.events.last().map(|event| event.seq),
                    Err(error) if *error.kind() == ErrorKind::Corrupt => Some(session.head),
                    Err(error) => return Err(error),
                };
                // Most tombstones have no bytes left; they are not purged again and not counted.
                let Some(held) = held else {
                    report.examined -= 1;
                    continue;
                };
                let need = needed_by_forks(sessions, &session).await?;
                if let Some(by) = need.by {
                    report.retained.push(Retained::new(item.id, by.into()));
                }
                if held <= need.keep {
                    continue;
                }
                if !policy.dry_run {
                    let purged = sessions.purge(Purge::new(session.id, session.head)).await?;
                    report.rewrite_pending |= purged.rewrite_pending;
                }
                report.swept.push(SweepEntry::new(&session, SweepAction::Purged));
            }
        }
        Ok(())
    }

    /// Returns the session of a list's entry if it was last used before `cutoff` and can be read; reports it otherwise.
    async fn old(
        &self,
        policy: &SweepPolicy,
        item: &SessionSummary,
        cutoff: Timestamp,
        report: &mut SweepReport,
    ) -> Result<Option<Arc<SessionRecord>>> {
        if self.without.contains(&item.workspace) {
            return Ok(None);
        }
        report.examined += 1;
        if item.last_active_at >= cutoff {
            if policy.report_recent {
                let reason = RetainReason::Recent { last_used: item.last_active_at };
                report.retained.push(Retained::new(item.id, reason));
            }
            return Ok(None);
        }
        match self.manager.storage.sessions.load(item.id).await {
            Err(error) if *error.kind() == ErrorKind::Corrupt => {
                report.damaged.push(Damaged::of(format!("session {}", item.id), &error));
                Ok(None)
            }
            other => other.map(Some),
        }
    }

    /// Changes a session, if it has not changed since it was seen, and reports it.
    async fn act(
        &self,
        policy: &SweepPolicy,
        session: &SessionRecord,
        trigger: Trigger,
        act: SweepAction,
        report: &mut SweepReport,
    ) -> Result<()> {
        let (id, head) = (session.id, session.head);
        if let Some(by) = protection(session).or_else(|| newer(session)) {
            report.retained.push(Retained::new(id, by));
            return Ok(());
        }
        if !policy.dry_run {
            let sessions = &self.manager.storage.sessions;
            match sessions.commit_with_retry(sessions.seal_unchanged(id, head).with_trigger(trigger)).await {
                Err(error) if is_race(&error) => {
                    report.retained.push(Retained::new(id, RetainReason::Used { session: Some(id) }));
                    return Ok(());
                }
                other => other.map(drop)?,
            }
        }
        report.swept.push(SweepEntry::new(session, act));
        Ok(())
    }
}

/// Returns the reason for which a sweep does not change the session, if there is one. The session is pinned, or it is a
/// hidden session, which others read although nothing is written to it.
fn protection(session: &SessionRecord) -> Option<RetainReason> {
    let (id, attributes) = (session.id, &session.attributes);
    if let Some(why) = attributes.pinned() {
        return Some(RetainReason::Pinned { session: id, why: why.to_owned() });
    }
    let content = attributes.labels.get(HiddenSession::LABEL)?.clone();
    Some(RetainReason::Hidden { session: id, content })
}

/// Returns the sessions that earlier rules of this sweep changed. Later rules do not cover them.
fn swept_so_far(report: &SweepReport) -> HashSet<SessionId> {
    report.swept.iter().map(|entry| entry.session).collect()
}
