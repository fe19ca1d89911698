//! Garbage collection: unused workspaces, and remains of crashes.
//!
//! A workspace is collected session by session, each only if it is still in the state in which it was judged, so a
//! message that arrives first saves its session and the workspace. The record is marked only after all sessions are
//! deleted, and the rest is removed only if a second check finds no new session.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures::TryStreamExt;
use serde::Serialize;
use tracing::debug;

use crate::manager::WorkspaceManager;
use crate::retention::delete::{COLLECTED, living};
use crate::retention::lease::abandoned;
use crate::retention::{RetainReason, Retained, before, check_time, newer, planned};
use agent_core::commit::{LeaseRequest, Trigger};
use agent_core::json::RawJson;
use agent_core::model::{AGE_MAX, Workspace, WorkspaceStatus};
use agent_core::session::SessionRecord;
use agent_core::setters;
use agent_core::state::{Reason, SessionState};
use agent_core::store::{
    BindingQuery, Damaged, PAGE_MAX, Purge, SessionQuery, SweepBlobs, SweptBlobs, WorkspaceQuery, pages,
};
use agent_core::{
    Error, ErrorKind, Result, Seq, SessionId, SessionStoreExt, Timestamp, WorkspaceId, WorkspaceStoreExt,
};

/// Policy that selects the workspaces that gc collects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GcPolicy {
    /// Minimum time without use. A workspace is used by an access to it, an event in any of its sessions, or a time for
    /// which a session has scheduled work. At most [`AGE_MAX`].
    pub older_than: Duration,
    /// Maximum time to watch a lease for a heartbeat before it counts as expired; default 30 seconds. A lease with a
    /// longer ttl protects its workspace. At most [`LeaseRequest::MAX_TTL`], one day. A shorter time than the store's
    /// [`min_lease`](agent_core::store::Capabilities::min_lease) is raised to that, since no lease of a run is shorter.
    pub watch: Duration,
    /// Dry run: if true, gc reports what it would do, and changes nothing; default false.
    pub dry_run: bool,
    /// If true, [`GcReport::retained`] also lists workspaces that were used recently; default false.
    pub report_recent: bool,
}

impl GcPolicy {
    /// Creates a policy for workspaces that were not used for longer than `age`. Every age is safe, as gc collects no
    /// workspace that is in use; it is at most [`AGE_MAX`].
    ///
    /// ```
    /// use agent_runtime::retention::GcPolicy;
    /// use std::time::Duration;
    ///
    /// let policy = GcPolicy::older_than(Duration::from_secs(3600));
    /// assert_eq!((policy.watch, policy.dry_run, policy.report_recent), (Duration::from_secs(30), false, false));
    ///
    /// let policy = policy.with_watch(Duration::from_secs(5)).with_dry_run().with_report_recent();
    /// assert_eq!((policy.watch, policy.dry_run, policy.report_recent), (Duration::from_secs(5), true, true));
    /// ```
    pub const fn older_than(age: Duration) -> Self {
        Self { older_than: age, watch: LeaseRequest::DEFAULT_TTL, dry_run: false, report_recent: false }
    }

    /// Creates a policy for workspaces that were not used for more than `days` days.
    pub const fn days(days: u64) -> Self {
        Self::older_than(Duration::from_secs(days.saturating_mul(24 * 3600)))
    }

    setters! {
        /// Sets the maximum time to watch a lease; default 30 seconds.
        pub const fn with_watch(watch: Duration) => watch = watch;

        /// Makes gc report what it would do, without changes.
        pub const fn with_dry_run() => dry_run = true;

        /// Includes workspaces that were used recently in [`GcReport::retained`].
        pub const fn with_report_recent() => report_recent = true;
    }
}

/// Result of gc; in a dry run, what gc would do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct GcReport {
    /// Number of workspaces that were examined, including those whose deletion had begun.
    pub examined: u64,
    /// Unused workspaces that were removed.
    pub collected: Vec<WorkspaceId>,
    /// Workspaces whose interrupted deletion was finished.
    pub finished: Vec<WorkspaceId>,
    /// Sessions that were left in deleted workspaces and were removed.
    pub orphans: Vec<SessionId>,
    /// Deleted workspaces to which devices were bound; these devices were unbound.
    pub unbound: Vec<WorkspaceId>,
    /// Workspaces that are old enough, each with the reason for which it is kept. Recently used ones are included if
    /// [`GcPolicy::report_recent`] is set.
    pub retained: Vec<Retained<WorkspaceId>>,
    /// Objects that could not be read, and were not changed.
    pub damaged: Vec<Damaged>,
    /// Removed blobs that no event named: of sessions, and of ids of which no session was created.
    pub blobs: SweptBlobs,
    /// True if copies of removed data may be left in the store, until
    /// [`Maintenance::maintain`](agent_core::store::Maintenance::maintain) rewrites it; see
    /// [`Purged::rewrite_pending`](agent_core::store::Purged::rewrite_pending).
    pub rewrite_pending: bool,
}

/// Workspace that may be removed, as it was when that was found.
struct Candidate {
    workspace: Workspace,
    sessions: Vec<Arc<SessionRecord>>,
}

/// Result of judging a workspace.
enum Judged {
    Recent(Timestamp),
    Retained(RetainReason),
    Old(Candidate),
}

/// Collector of workspaces, for [`WorkspaceManager::gc`].
pub(super) struct Collector<'a>(pub(super) &'a WorkspaceManager);

impl Collector<'_> {
    pub(super) async fn run(&self, policy: GcPolicy) -> Result<GcReport> {
        check_time("an age", policy.older_than, AGE_MAX)?;
        check_time("a watch", policy.watch, LeaseRequest::MAX_TTL)?;
        let mut report = GcReport::default();
        let cutoff = before(self.0.storage.effects().now(), policy.older_than);
        let lost = self.lost().await?;
        let mut old = Vec::new();
        let mut pages = pages(WorkspaceQuery::new().with_deleting().with_limit(PAGE_MAX), |query| {
            self.0.storage.workspaces.list(query)
        });
        while let Some(page) = pages.try_next().await? {
            report.damaged.extend(page.damaged);
            for workspace in page.items {
                let id = workspace.id;
                report.examined += 1;
                if workspace.status == WorkspaceStatus::Deleting {
                    self.finish(&workspace, policy.dry_run, &mut report).await?;
                    continue;
                }
                match self.judge(workspace, cutoff, &lost).await? {
                    Judged::Recent(last_used) if policy.report_recent => {
                        report.retained.push(Retained::new(id, RetainReason::Recent { last_used }));
                    }
                    Judged::Recent(_) => {}
                    Judged::Retained(by) => report.retained.push(Retained::new(id, by)),
                    Judged::Old(candidate) => old.push(candidate),
                }
            }
        }
        let leased = |session: &&Arc<SessionRecord>| session.lease.is_some();
        let leased: Vec<_> = old.iter().flat_map(|c| &c.sessions).filter(leased).cloned().collect();
        let sessions = &*self.0.storage.sessions;
        let patience = policy.watch.max(sessions.capabilities().min_lease);
        let gone = abandoned(sessions, &leased, patience).await?;
        for candidate in old {
            let id = candidate.workspace.id;
            match self.collect(candidate, &gone, policy.dry_run, &mut report).await? {
                None => report.collected.push(id),
                Some(by) => report.retained.push(Retained::new(id, by)),
            }
        }
        self.collect_orphans(policy.dry_run, &mut report).await?;
        self.sweep_blobs(policy.dry_run, &mut report).await?;
        // Each list may report the same damage, also on several pages.
        report.damaged.sort();
        report.damaged.dedup();
        Ok(report)
    }

    /// Removes the blobs that no event names.
    async fn sweep_blobs(&self, dry_run: bool, report: &mut GcReport) -> Result<()> {
        let sessions = &self.0.storage.sessions;
        if sessions.capabilities().blob_max_bytes == 0 {
            return Ok(());
        }
        let sweep =
            |sweep: SweepBlobs| sessions.blobs().sweep(if dry_run { sweep.with_dry_run() } else { sweep });
        report.blobs += sweep(SweepBlobs::without_session()).await?;
        let mut pages =
            pages(SessionQuery::new().with_hidden().with_limit(PAGE_MAX), |query| sessions.list(query));
        while let Some(page) = pages.try_next().await? {
            for session in page.items {
                match sweep(SweepBlobs::of(session.id)).await {
                    Ok(swept) => report.blobs += swept,
                    // It is unknown which blobs a damaged log names.
                    Err(error) if *error.kind() == ErrorKind::Corrupt => {
                        report.damaged.push(Damaged::of(format!("session {}", session.id), &error));
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }

    /// Returns the workspaces with damage that the list of all sessions reports.
    ///
    /// A session whose file was moved away may be pinned, or may be restored. The query asks for a total, because some
    /// stores find such damage only then.
    async fn lost(&self) -> Result<HashMap<WorkspaceId, String>> {
        let alive = SessionState::ALL.iter().copied().filter(|state| *state != SessionState::Deleted);
        let page = self
            .0
            .storage
            .sessions
            .list(SessionQuery::new().with_states(alive).with_total().with_limit(1))
            .await?;
        let lost = page.damaged.into_iter();
        Ok(lost.filter_map(|damage| Some((damage.workspace?, damage.to_string()))).collect())
    }

    /// Judges whether a workspace may be removed.
    async fn judge(
        &self,
        workspace: Workspace,
        cutoff: Timestamp,
        lost: &HashMap<WorkspaceId, String>,
    ) -> Result<Judged> {
        if workspace.last_accessed >= cutoff {
            return Ok(Judged::Recent(workspace.last_accessed));
        }
        if let Some(damage) = lost.get(&workspace.id) {
            return Ok(Judged::Retained(RetainReason::Damaged(damage.clone())));
        }
        if workspace.id == WorkspaceId::DEFAULT {
            return Ok(Judged::Retained(RetainReason::Default));
        }
        let mut sessions = Vec::new();
        let mut pages =
            pages(living(workspace.id).with_limit(PAGE_MAX), |query| self.0.storage.sessions.list(query));
        while let Some(page) = pages.try_next().await? {
            if let Some(damage) = page.damaged.first() {
                return Ok(Judged::Retained(RetainReason::Damaged(damage.to_string())));
            }
            for item in &page.items {
                let session = match self.0.storage.sessions.load(item.id).await {
                    Err(error) if *error.kind() == ErrorKind::Corrupt => {
                        return Ok(Judged::Retained(RetainReason::Damaged(error.to_string())));
                    }
                    other => other?,
                };
                if session.last_active_at >= cutoff {
                    return Ok(Judged::Recent(session.last_active_at));
                }
                if let Some(newer) = newer(&session) {
                    return Ok(Judged::Retained(newer));
                }
                if let Some(why) = session.attributes.pinned() {
                    let why = why.to_owned();
                    return Ok(Judged::Retained(RetainReason::Pinned { session: session.id, why }));
                }
                if let Some(until) = planned(&session).filter(|until| *until >= cutoff) {
                    return Ok(Judged::Retained(RetainReason::Scheduled { session: session.id, until }));
                }
                sessions.push(session);
            }
        }
        Ok(Judged::Old(Candidate { workspace, sessions }))
    }

    /// Collects a workspace; returns the reason for which it is kept, if it is.
    async fn collect(
        &self,
        candidate: Candidate,
        gone: &HashSet<SessionId>,
        dry_run: bool,
        report: &mut GcReport,
    ) -> Result<Option<RetainReason>> {
        let Candidate { workspace, sessions } = candidate;
        for session in &sessions {
            if let Some(lease) = session.lease.as_ref().filter(|_| !gone.contains(&session.id)) {
                let holder = lease.holder.clone();
                return Ok(Some(RetainReason::Leased { session: session.id, holder }));
            }
        }
        if dry_run {
            return Ok(None);
        }
        for session in &sessions {
            if !self.delete_as_seen(session.id, session.head).await? {
                return Ok(Some(RetainReason::Used { session: Some(session.id) }));
            }
        }
        let (id, mut marked) = (workspace.id, workspace);
        marked.status = WorkspaceStatus::Deleting;
        marked.extra.insert(COLLECTED, RawJson::of(&true)?);
        let last_accessed = marked.last_accessed;
        let marked = match self.0.storage.workspaces.update(marked).await {
            Err(error) if is_race(&error) => return Ok(Some(RetainReason::Used { session: None })),
            other => other?,
        };
        let used = self.0.storage.sessions.list(living(id).with_limit(1)).await?.items.pop();
        if used.is_some() || marked.last_accessed > last_accessed {
            debug!(workspace = %id, "the workspace came into use and is not collected");
            self.0.unmark(id).await?;
            return Ok(Some(RetainReason::Used { session: used.map(|session| session.id) }));
        }
        report.rewrite_pending |= self.0.finish_deletion(id, Reason::Collected).await?.rewrite_pending;
        Ok(None)
    }

    /// Deletes a session, if it has not changed.
    async fn delete_as_seen(&self, id: SessionId, head: Seq) -> Result<bool> {
        let sessions = &self.0.storage.sessions;
        let delete = sessions.seal_unchanged(id, head).with_trigger(Trigger::Delete(Reason::Collected));
        match sessions.commit_with_retry(delete).await {
            Err(error) if is_race(&error) => Ok(false),
            other => other.map(|_| true),
        }
    }

    /// Finishes an interrupted deletion.
    async fn finish(&self, workspace: &Workspace, dry_run: bool, report: &mut GcReport) -> Result<()> {
        let id = workspace.id;
        let collected = workspace.extra.get(COLLECTED).is_some();
        let used =
            collected && !self.0.storage.sessions.list(living(id).with_limit(1)).await?.items.is_empty();
        if used {
            // The workspace came into use between the mark and the crash.
            if !dry_run {
                self.0.unmark(id).await?;
            }
            report.retained.push(Retained::new(id, RetainReason::Used { session: None }));
            return Ok(());
        }
        if !dry_run {
            let reason = if collected { Reason::Collected } else { Reason::UserDeleted };
            match self.0.finish_deletion(id, reason).await {
                Err(error) if *error.kind() == ErrorKind::Corrupt => {
                    report.damaged.push(Damaged::of(format!("workspace {id}"), &error));
                    return Ok(());
                }
                done => report.rewrite_pending |= done?.rewrite_pending,
            }
        }
        report.finished.push(id);
        Ok(())
    }

    /// Removes sessions and bindings that are left in deleted workspaces.
    async fn collect_orphans(&self, dry_run: bool, report: &mut GcReport) -> Result<()> {
        let mut known = HashMap::new();
        let alive = SessionState::ALL.iter().copied().filter(|state| *state != SessionState::Deleted);
        let mut sessions = pages(SessionQuery::new().with_states(alive).with_limit(PAGE_MAX), |query| {
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
                        // Another process changed the session; the next gc examines it again.
                        continue;
                    }
                    let session = self.0.storage.sessions.load(item.id).await?;
                    match self.0.storage.sessions.purge(Purge::new(session.id, session.head)).await {
                        Err(error) if *error.kind() == ErrorKind::Corrupt => {
                            let object = format!("session {}", item.id);
                            report.damaged.push(Damaged::of(object, &error));
                            continue;
                        }
                        purged => report.rewrite_pending |= purged?.rewrite_pending,
                    }
                }
                report.orphans.push(item.id);
            }
        }
        let mut bindings =
            pages(BindingQuery::new().with_limit(PAGE_MAX), |query| self.0.storage.bindings.list(query));
        while let Some(page) = bindings.try_next().await? {
            report.damaged.extend(page.damaged);
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

    /// Returns whether a workspace is proven to be deleted.
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

/// Returns whether another writer was faster.
pub(super) fn is_race(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Conflict { .. } | ErrorKind::Deleted | ErrorKind::NotFound)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {

    use agent_core::commit::Precondition;
    use agent_core::store::{Binding, Page};
    use agent_core::{BindingStore, DeviceId, MemoryStore, Storage};
    use async_trait::async_trait;

    use super::*;

    /// Store of bindings in which one binding is damaged.
    #[derive(Debug)]
    struct DamagedBindings(Arc<dyn BindingStore>);

    #[async_trait]
    impl BindingStore for DamagedBindings {
        async fn resolve(&self, device: &DeviceId) -> Result<Option<WorkspaceId>> {
            self.0.resolve(device).await
        }

        async fn bind(
            &self,
            device: &DeviceId,
            to: WorkspaceId,
            expect: Precondition<WorkspaceId>,
        ) -> Result<WorkspaceId> {
            self.0.bind(device, to, expect).await
        }

        async fn unbind(&self, device: &DeviceId) -> Result<bool> {
            self.0.unbind(device).await
        }

        async fn unbind_workspace(&self, id: WorkspaceId) -> Result<u64> {
            self.0.unbind_workspace(id).await
        }

        async fn list(&self, query: BindingQuery) -> Result<Page<Binding>> {
            let damage = Damaged::new("device phone", "its checksum does not match");
            Ok(self.0.list(query).await?.with_damaged(vec![damage.clone(), damage]))
        }
    }

    #[tokio::test]
    async fn damaged_binding_is_reported_once() {
        let mut storage = Storage::from(MemoryStore::new());
        storage.bindings = Arc::new(DamagedBindings(storage.bindings));
        let manager = WorkspaceManager::new(storage);
        let report = manager.gc(GcPolicy::days(1)).await.unwrap();
        assert_eq!(report.damaged, [Damaged::new("device phone", "its checksum does not match")]);
    }
}
