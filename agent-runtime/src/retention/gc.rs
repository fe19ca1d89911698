//! Garbage collection: workspaces that nobody uses, and what crashes left behind.
//!
//! A workspace is collected session by session, each only as it was when it was judged, so that a message that comes
//! first saves its session and the workspace. Only when none is left is the record marked, and only when a further look
//! finds no new one is the rest removed.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures::TryStreamExt;
use tracing::debug;

use crate::retention::delete::{COLLECTED, living};
use crate::retention::lease::abandoned;
use crate::retention::{Kept, Protection, before, newer, planned};
use crate::workspaces::WorkspaceManager;
use agent_core::commit::{Commit, Expect, LeaseRequest, Trigger};
use agent_core::json::RawJson;
use agent_core::model::{Workspace, WorkspaceStatus};
use agent_core::session::Session;
use agent_core::state::{Reason, SessionState};
use agent_core::store::{BindingQuery, Damaged, PAGE_MAX, Purge, SessionQuery, WorkspaceQuery, pages};
use agent_core::{
    Error, ErrorKind, Result, Seq, SessionId, SessionStoreExt, Timestamp, WorkspaceId, WorkspaceStoreExt,
};

/// Which workspaces gc collects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GcPolicy {
    /// Those that were not used for longer than this. The use of a workspace is an access to it, an event in any of
    /// its sessions, or a moment for which a session has plans.
    pub older_than: Duration,
    /// The longest that a lease is watched for a sign of life before its holder counts as gone; 30 seconds unless set.
    pub watch: Duration,
    /// Whether to say only what would be done.
    pub dry_run: bool,
}

impl GcPolicy {
    /// Those that were not used for longer than `age`. Any age is safe: none collects what is in use.
    pub const fn older_than(age: Duration) -> Self {
        Self { older_than: age, watch: LeaseRequest::DEFAULT_TTL, dry_run: false }
    }

    /// Those that were not used for more than so many days.
    pub const fn days(days: u64) -> Self {
        Self::older_than(Duration::from_secs(days.saturating_mul(24 * 3600)))
    }

    /// Sets the longest that a lease is watched.
    #[must_use]
    pub const fn watch(mut self, watch: Duration) -> Self {
        self.watch = watch;
        self
    }

    /// Only says what would be done.
    #[must_use]
    pub const fn dry_run(mut self) -> Self {
        self.dry_run = true;
        self
    }
}

/// What gc did, or in a dry run would do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct GcReport {
    /// Workspaces that nobody used, and that are gone now.
    pub collected: Vec<WorkspaceId>,
    /// Workspaces whose deletion had been cut off, and is finished now.
    pub finished: Vec<WorkspaceId>,
    /// Sessions that were left in deleted workspaces, and are gone now.
    pub orphans: Vec<SessionId>,
    /// Deleted workspaces to which devices were bound; they are free now.
    pub unbound: Vec<WorkspaceId>,
    /// Workspaces that are old enough, and what protects them.
    pub kept: Vec<Kept<WorkspaceId>>,
    /// What could not be read, and was left alone.
    pub damaged: Vec<Damaged>,
}

/// A workspace that may go, as it was when that was found.
struct Candidate {
    workspace: Workspace,
    sessions: Vec<Arc<Session>>,
}

/// A workspace after a look at it.
enum Judged {
    Young,
    Kept(Protection),
    Old(Candidate),
}

/// Collects workspaces, for [`WorkspaceManager::gc`].
pub(super) struct Collector<'a>(pub(super) &'a WorkspaceManager);

impl Collector<'_> {
    pub(super) async fn run(&self, policy: GcPolicy) -> Result<GcReport> {
        let mut report = GcReport::default();
        let cutoff = before(self.0.effects.now(), policy.older_than);
        let lost = self.lost().await?;
        let mut old = Vec::new();
        let mut pages = pages(WorkspaceQuery::new().with_deleting().limit(PAGE_MAX), |query| {
            self.0.storage.workspaces.list(query)
        });
        while let Some(page) = pages.try_next().await? {
            report.damaged.extend(page.damaged);
            for workspace in page.items {
                let id = workspace.id;
                if workspace.status == WorkspaceStatus::Deleting {
                    self.finish(&workspace, policy.dry_run, &mut report).await?;
                } else if let Some(damage) = lost.get(&id).filter(|_| workspace.last_accessed < cutoff) {
                    report.kept.push(Kept::new(id, Protection::Damaged(damage.clone())));
                } else if workspace.last_accessed < cutoff {
                    match self.judge(workspace, cutoff).await? {
                        Judged::Young => {}
                        Judged::Kept(by) => report.kept.push(Kept::new(id, by)),
                        Judged::Old(candidate) => old.push(candidate),
                    }
                }
            }
        }
        let leased = |session: &&Arc<Session>| session.lease.is_some();
        let leased: Vec<_> = old.iter().flat_map(|c| &c.sessions).filter(leased).cloned().collect();
        let gone = abandoned(&*self.0.storage.sessions, &leased, policy.watch).await?;
        for candidate in old {
            let id = candidate.workspace.id;
            match self.collect(candidate, &gone, policy.dry_run).await? {
                None => report.collected.push(id),
                Some(by) => report.kept.push(Kept::new(id, by)),
            }
        }
        self.collect_orphans(policy.dry_run, &mut report).await?;
        Ok(report)
    }

    /// The workspaces of which the list of all sessions names damage that theirs does not: a session that a person moved
    /// away may be pinned, or come back. Who has all counted is told of those, too, that a store finds only then.
    async fn lost(&self) -> Result<HashMap<WorkspaceId, String>> {
        let alive = SessionState::ALL.iter().copied().filter(|state| *state != SessionState::Deleted);
        let page =
            self.0.storage.sessions.list(SessionQuery::new().states(alive).with_total().limit(1)).await?;
        let lost = page.damaged.into_iter();
        Ok(lost.filter_map(|damage| Some((damage.workspace?, damage.to_string()))).collect())
    }

    /// Looks whether a workspace that was not accessed for long may go.
    async fn judge(&self, workspace: Workspace, cutoff: Timestamp) -> Result<Judged> {
        if workspace.id == WorkspaceId::DEFAULT {
            return Ok(Judged::Kept(Protection::Default));
        }
        let mut sessions = Vec::new();
        let mut pages =
            pages(living(workspace.id).limit(PAGE_MAX), |query| self.0.storage.sessions.list(query));
        while let Some(page) = pages.try_next().await? {
            if let Some(damage) = page.damaged.first() {
                return Ok(Judged::Kept(Protection::Damaged(damage.to_string())));
            }
            for item in &page.items {
                let session = match self.0.storage.sessions.load(item.id).await {
                    Err(error) if *error.kind() == ErrorKind::Corrupt => {
                        return Ok(Judged::Kept(Protection::Damaged(error.to_string())));
                    }
                    other => other?,
                };
                if session.last_active_at >= cutoff {
                    return Ok(Judged::Young);
                }
                if let Some(newer) = newer(&session) {
                    return Ok(Judged::Kept(newer));
                }
                if let Some(why) = session.attributes.pinned() {
                    let why = why.to_owned();
                    return Ok(Judged::Kept(Protection::Pinned { session: session.id, why }));
                }
                if let Some(until) = planned(&session).filter(|until| *until >= cutoff) {
                    return Ok(Judged::Kept(Protection::Scheduled { session: session.id, until }));
                }
                sessions.push(session);
            }
        }
        Ok(Judged::Old(Candidate { workspace, sessions }))
    }

    /// Collects a workspace; returns what protects it, where it stays.
    async fn collect(
        &self,
        candidate: Candidate,
        gone: &HashSet<SessionId>,
        dry_run: bool,
    ) -> Result<Option<Protection>> {
        let Candidate { workspace, sessions } = candidate;
        for session in &sessions {
            if let Some(lease) = session.lease.as_ref().filter(|_| !gone.contains(&session.id)) {
                let holder = lease.holder.clone();
                return Ok(Some(Protection::Leased { session: session.id, holder }));
            }
        }
        if dry_run {
            return Ok(None);
        }
        for session in &sessions {
            if !self.delete_as_seen(session.id, session.head).await? {
                return Ok(Some(Protection::Used { session: Some(session.id) }));
            }
        }
        let (id, mut marked) = (workspace.id, workspace);
        marked.status = WorkspaceStatus::Deleting;
        marked.extra.insert(COLLECTED, RawJson::of(&true)?);
        let last_accessed = marked.last_accessed;
        let marked = match self.0.storage.workspaces.update(marked).await {
            Err(error) if is_race(&error) => return Ok(Some(Protection::Used { session: None })),
            other => other?,
        };
        let used = self.0.storage.sessions.list(living(id).limit(1)).await?.items.pop();
        if used.is_some() || marked.last_accessed > last_accessed {
            debug!(workspace = %id, "the workspace came into use and is not collected");
            self.0.unmark(id).await?;
            return Ok(Some(Protection::Used { session: used.map(|session| session.id) }));
        }
        self.0.finish_deletion(id, Reason::Collected).await?;
        Ok(None)
    }

    /// Deletes a session, if it is still as it was seen.
    async fn delete_as_seen(&self, id: SessionId, head: Seq) -> Result<bool> {
        let commit = Commit::seal(&self.0.effects, id, head).expect(Expect::Is(head));
        match self.0.storage.sessions.settle(commit.trigger(Trigger::Delete(Reason::Collected))).await {
            Err(error) if is_race(&error) => Ok(false),
            other => other.map(|_| true),
        }
    }

    /// Finishes a deletion that was cut off.
    async fn finish(&self, workspace: &Workspace, dry_run: bool, report: &mut GcReport) -> Result<()> {
        let id = workspace.id;
        let collected = workspace.extra.get(COLLECTED).is_some();
        let used = collected && !self.0.storage.sessions.list(living(id).limit(1)).await?.items.is_empty();
        if used {
            // It came into use between the mark and the crash.
            if !dry_run {
                self.0.unmark(id).await?;
            }
            report.kept.push(Kept::new(id, Protection::Used { session: None }));
            return Ok(());
        }
        if !dry_run {
            let reason = if collected { Reason::Collected } else { Reason::UserDeleted };
            match self.0.finish_deletion(id, reason).await {
                Err(error) if *error.kind() == ErrorKind::Corrupt => {
                    report.damaged.push(Damaged::new(format!("workspace {id}"), error.to_string()));
                    return Ok(());
                }
                other => other?,
            };
        }
        report.finished.push(id);
        Ok(())
    }

    /// Removes sessions and bindings that are left in deleted workspaces.
    async fn collect_orphans(&self, dry_run: bool, report: &mut GcReport) -> Result<()> {
        let mut known = HashMap::new();
        let alive = SessionState::ALL.iter().copied().filter(|state| *state != SessionState::Deleted);
        let mut sessions = pages(SessionQuery::new().states(alive).limit(PAGE_MAX), |query| {
            self.0.storage.sessions.list(query)
        });
        while let Some(page) = sessions.try_next().await? {
            report.damaged.extend(page.damaged);
            for item in &page.items {
                if !self.is_deleted(item.workspace, &mut known).await? {
                    continue;
                }
                if !dry_run {
                    if !self.delete_as_seen(item.id, item.head).await? {
                        // Somebody else is at it. It stays for the next time.
                        continue;
                    }
                    let session = self.0.storage.sessions.load(item.id).await?;
                    match self.0.storage.sessions.purge(Purge::new(session.id, session.head)).await {
                        Err(error) if *error.kind() == ErrorKind::Corrupt => {
                            let object = format!("session {}", item.id);
                            report.damaged.push(Damaged::new(object, error.to_string()));
                            continue;
                        }
                        other => drop(other?),
                    }
                }
                report.orphans.push(item.id);
            }
        }
        let mut bindings =
            pages(BindingQuery::new().limit(PAGE_MAX), |query| self.0.storage.bindings.list(query));
        while let Some(page) = bindings.try_next().await? {
            for binding in &page.items {
                let id = binding.workspace;
                if !report.unbound.contains(&id) && self.is_deleted(id, &mut known).await? {
                    if !dry_run {
                        self.0.storage.bindings.unbind_workspace(id).await?;
                    }
                    report.unbound.push(id);
                }
            }
        }
        Ok(())
    }

    /// Whether a workspace is proven to be deleted.
    async fn is_deleted(&self, id: WorkspaceId, known: &mut HashMap<WorkspaceId, bool>) -> Result<bool> {
        if let Some(deleted) = known.get(&id) {
            return Ok(*deleted);
        }
        let deleted = match self.0.storage.workspaces.load(id).await {
            Err(error) if *error.kind() == ErrorKind::Deleted => true,
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Corrupt) => false,
            other => other.map(|_| false)?,
        };
        known.insert(id, deleted);
        Ok(deleted)
    }
}

/// Whether somebody else was quicker.
pub(super) fn is_race(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Conflict { .. } | ErrorKind::Deleted | ErrorKind::NotFound)
}
