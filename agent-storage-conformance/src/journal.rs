//! Steps of a clause: every call on every handle with its result, for the report of a failure.

use std::collections::VecDeque;
use std::fmt::{self, Display};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agent_core::commit::{Commit, Committed, Precondition, Step};
use agent_core::model::Workspace;
use agent_core::session::{SessionRecord, SessionSummary};
use agent_core::state::Reason;
use agent_core::store::{
    Binding, BindingQuery, BlobStore, Capabilities, ContentHash, Damaged, EventPage, LeaseStatus, LeaseStore,
    Maintenance, Page, Pending, Purge, Purged, ReadEvents, Rebuilt, SessionQuery, WorkspaceQuery,
};
use agent_core::{
    BindingStore, DeviceId, Epoch, Result, Revision, Seq, SessionId, SessionStore, Storage, TenantId,
    Timestamp, WorkspaceId, WorkspaceStore, async_trait,
};

use crate::claims::Claims;
use crate::failure::brief;

/// Number of last steps that a failure shows.
const KEPT: usize = 40;

/// Last steps of one clause. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Journal(Arc<Mutex<Steps>>);

#[derive(Debug, Default)]
struct Steps {
    count: usize,
    last: VecDeque<(usize, String, Option<String>)>,
}

impl Journal {
    fn steps(&self) -> MutexGuard<'_, Steps> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of steps that have begun.
    pub(crate) fn count(&self) -> usize {
        self.steps().count
    }

    /// Records that a step begins.
    fn begin(&self, what: String) -> usize {
        let mut steps = self.steps();
        steps.count += 1;
        if steps.last.len() == KEPT {
            steps.last.pop_front();
        }
        let number = steps.count;
        steps.last.push_back((number, what, None));
        number
    }

    fn end(&self, number: usize, outcome: String) {
        if let Some(step) = self.steps().last.iter_mut().find(|step| step.0 == number) {
            step.2 = Some(outcome);
        }
    }

    /// Records a step that is not a call.
    pub(crate) fn note(&self, what: impl Display) {
        let number = self.begin(what.to_string());
        self.end(number, String::new());
    }
}

impl Display for Journal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let steps = self.steps();
        let left_out = steps.count - steps.last.len();
        if left_out > 0 {
            writeln!(f, "steps     ({left_out} earlier)")?;
        } else {
            writeln!(f, "steps")?;
        }
        for (number, what, outcome) in &steps.last {
            match outcome.as_deref() {
                Some("") => writeln!(f, "  {number:>5}  {what}")?,
                Some(outcome) => writeln!(f, "  {number:>5}  {what} -> {outcome}")?,
                None => writeln!(f, "  {number:>5}  {what} -> (not answered)")?,
            }
        }
        Ok(())
    }
}

/// Handle of a store that records its calls.
#[derive(Debug)]
pub(crate) struct Recorded {
    inner: Storage,
    journal: Journal,
    claims: Claims,
    tenant: TenantId,
    name: String,
}

impl Recorded {
    pub(crate) fn new(
        inner: Storage,
        journal: Journal,
        claims: Claims,
        tenant: TenantId,
        name: String,
    ) -> Self {
        Self { inner, journal, claims, tenant, name }
    }

    async fn call<T>(
        &self,
        what: String,
        call: impl Future<Output = Result<T>>,
        outcome: impl FnOnce(&T) -> String,
    ) -> Result<T> {
        let number = self.journal.begin(format!("{} {what}", self.name));
        let result = call.await;
        self.journal.end(
            number,
            match &result {
                Ok(value) => outcome(value),
                Err(error) => brief(error),
            },
        );
        result
    }
}

fn short(id: impl Display) -> String {
    let text = id.to_string();
    text.rsplit('-').next().map_or(text.clone(), |tail| tail[tail.len().saturating_sub(6)..].to_owned())
}

fn steps(commit: &Commit) -> String {
    let names: Vec<_> = commit
        .steps
        .iter()
        .take(4)
        .map(|step| match step {
            Step::Event(event) => event.kind.to_string(),
            Step::Trigger(trigger) => {
                let text = format!("{trigger:?}");
                text.split(['(', ' ', '{']).next().unwrap_or_default().to_owned()
            }
            other => format!("{other:?}"),
        })
        .collect();
    let more = commit.steps.len() - names.len();
    if more > 0 { format!("{} and {more} more", names.join(" ")) } else { names.join(" ") }
}

fn ids<T>(items: &[T], id: impl Fn(&T) -> String) -> String {
    let shown: Vec<_> = items.iter().take(6).map(id).collect();
    let more = items.len() - shown.len();
    if more > 0 { format!("[{} and {more} more]", shown.join(" ")) } else { format!("[{}]", shown.join(" ")) }
}

fn expect<T: fmt::Debug>(expect: &Precondition<T>) -> String {
    match expect {
        Precondition::MustNotExist => "must not exist".to_owned(),
        Precondition::Matches(value) => format!("matches {value:?}"),
        Precondition::MustExist => "must exist".to_owned(),
        Precondition::None => "none".to_owned(),
    }
}

#[async_trait]
impl SessionStore for Recorded {
    async fn commit(&self, commit: Commit) -> Result<Committed> {
        let fence = commit.fence.map_or(String::new(), |epoch| format!(", fence {epoch}"));
        let what = format!(
            "commit {} to session {}: {} (expect {}, seen {}{fence})",
            short(commit.id),
            short(commit.session),
            steps(&commit),
            expect(&commit.precondition),
            commit.seen,
        );
        self.claims.sent(&self.tenant, &commit);
        let id = commit.id;
        let answer = self
            .call(what, self.inner.sessions.commit(commit), |done| {
                let again = if done.replayed { ", replayed" } else { "" };
                format!("events {} to {}, {}{again}", done.first, done.last, done.session.status)
            })
            .await;
        self.claims.answered(&self.tenant, id, &answer);
        answer
    }

    async fn load(&self, id: SessionId) -> Result<Arc<SessionRecord>> {
        self.call(format!("load session {}", short(id)), self.inner.sessions.load(id), |session| {
            format!("head {}, {}", session.head, session.status)
        })
        .await
    }

    async fn read(&self, id: SessionId, read: ReadEvents) -> Result<EventPage> {
        let what = format!(
            "read session {}: {} {} after {} before {:?}",
            short(id),
            if read.newest { "newest" } else { "oldest" },
            read.limit,
            read.after,
            read.before.map(Seq::get),
        );
        self.call(what, self.inner.sessions.read(id, read), |page| {
            let ends = page.events.first().zip(page.events.last());
            let range = ends.map_or(String::new(), |(a, b)| format!(" ({} to {})", a.seq, b.seq));
            let damaged = if page.damaged.is_empty() { "" } else { ", damage named" };
            let more = if page.next.is_some() { ", more" } else { "" };
            format!("{} events{range}{damaged}{more}", page.events.len())
        })
        .await
    }

    async fn list(&self, query: SessionQuery) -> Result<Page<SessionSummary>> {
        let what = format!("list sessions, {} a page{}", query.limit, cursor(query.cursor.is_some()));
        self.call(what, self.inner.sessions.list(query), |page| page_of(page, |s| short(s.id))).await
    }

    async fn purge(&self, purge: Purge) -> Result<Purged> {
        let what =
            format!("purge session {} at {} keep {}", short(purge.session), purge.head, purge.keep_through);
        self.call(what, self.inner.sessions.purge(purge), |purged| format!("{} events", purged.events)).await
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.sessions.capabilities()
    }

    async fn changed(&self, id: SessionId, seen: Seq) -> Result<Seq> {
        let what = format!("wait for session {} past {seen}", short(id));
        self.call(what, self.inner.sessions.changed(id, seen), ToString::to_string).await
    }

    async fn close(&self) -> Result<()> {
        self.call("close the store".to_owned(), self.inner.sessions.close(), ok).await
    }

    fn leases(&self) -> &dyn LeaseStore {
        self
    }

    fn blobs(&self) -> &dyn BlobStore {
        self
    }

    fn maintenance(&self) -> &dyn Maintenance {
        self
    }
}

#[async_trait]
impl LeaseStore for Recorded {
    async fn heartbeat(&self, id: SessionId, epoch: Epoch) -> Result<()> {
        let what = format!("heartbeat of session {} epoch {epoch}", short(id));
        self.call(what, self.inner.sessions.leases().heartbeat(id, epoch), ok).await
    }

    async fn status(&self, id: SessionId, epoch: Epoch) -> Result<LeaseStatus> {
        let what = format!("lease status of session {} epoch {epoch}", short(id));
        self.call(what, self.inner.sessions.leases().status(id, epoch), |lease_status| {
            format!("{lease_status:?}")
        })
        .await
    }
}

#[async_trait]
impl BlobStore for Recorded {
    async fn put(&self, put: agent_core::store::PutBlob) -> Result<()> {
        let what = format!("put blob {} of session {}", put.blob.name, short(put.session));
        self.call(what, self.inner.sessions.blobs().put(put), ok).await
    }

    async fn read(&self, read: agent_core::store::ReadBlob) -> Result<agent_core::store::BlobContent> {
        let what = format!("read blob {} of session {}", read.name, short(read.session));
        self.call(what, self.inner.sessions.blobs().read(read), |read| format!("{} bytes", read.blob.bytes))
            .await
    }

    async fn list(&self, query: agent_core::store::BlobQuery) -> Result<Page<agent_core::store::BlobInfo>> {
        let what = format!("list blobs of session {}", short(query.session));
        self.call(what, self.inner.sessions.blobs().list(query), |page| {
            page_of(page, |blob| blob.name.to_string())
        })
        .await
    }

    async fn sweep(&self, sweep: agent_core::store::SweepBlobs) -> Result<agent_core::store::SweptBlobs> {
        let what = format!("sweep blobs: {sweep:?}");
        self.call(what, self.inner.sessions.blobs().sweep(sweep), |swept| format!("{swept:?}")).await
    }
}

#[async_trait]
impl Maintenance for Recorded {
    async fn check(&self) -> Result<Vec<Damaged>> {
        self.call("check the store".to_owned(), self.inner.sessions.maintenance().check(), |found| {
            format!("{found:?}")
        })
        .await
    }

    async fn pending(&self) -> Result<Vec<Pending>> {
        let pending = self.inner.sessions.maintenance().pending();
        self.call("look for pending work".to_owned(), pending, |found| format!("{found:?}")).await
    }

    async fn maintain(&self) -> Result<Vec<Pending>> {
        let maintain = self.inner.sessions.maintenance().maintain();
        self.call("maintain the store".to_owned(), maintain, |done| format!("{done:?}")).await
    }

    async fn rebuild(&self) -> Result<Rebuilt> {
        let sessions =
            |done: &Rebuilt| format!("{} sessions, {} left out", done.sessions, done.damaged.len());
        self.call("rebuild what is derived".to_owned(), self.inner.sessions.maintenance().rebuild(), sessions)
            .await
    }

    async fn delete_damaged(
        &self,
        id: SessionId,
        at: Timestamp,
        reason: Reason,
    ) -> Result<Arc<SessionRecord>> {
        let what = format!("delete the damaged session {}", short(id));
        let deleted = self.inner.sessions.maintenance().delete_damaged(id, at, reason);
        self.call(what, deleted, |session| format!("a tombstone at event {}", session.head)).await
    }
}

fn cursor(there: bool) -> &'static str {
    if there { ", continued" } else { "" }
}

fn page_of<T>(page: &Page<T>, id: impl Fn(&T) -> String) -> String {
    let damaged =
        if page.damaged.is_empty() { String::new() } else { format!(", damaged {:?}", page.damaged) };
    let more = if page.next.is_some() { ", more" } else { "" };
    format!("{}{damaged}{more}", ids(&page.items, id))
}

// The calls' outcomes come as references; for these there is nothing to tell.
fn ok((): &()) -> String {
    "done".to_owned()
}

#[async_trait]
impl WorkspaceStore for Recorded {
    async fn load(&self, id: WorkspaceId) -> Result<Workspace> {
        let what = format!("load workspace {}", short(id));
        self.call(what, self.inner.workspaces.load(id), |w| format!("revision {}", w.revision)).await
    }

    async fn put(&self, workspace: Workspace, wanted: Precondition<Revision>) -> Result<Workspace> {
        let what = format!("put workspace {} (expect {})", short(workspace.id), expect(&wanted));
        let call = self.inner.workspaces.put(workspace, wanted);
        self.call(what, call, |workspace| format!("revision {}", workspace.revision)).await
    }

    async fn touch(&self, id: WorkspaceId, at: Timestamp) -> Result<()> {
        self.call(format!("touch workspace {} at {at}", short(id)), self.inner.workspaces.touch(id, at), ok)
            .await
    }

    async fn list(&self, query: WorkspaceQuery) -> Result<Page<Workspace>> {
        let what = format!("list workspaces, {} a page{}", query.limit, cursor(query.cursor.is_some()));
        self.call(what, self.inner.workspaces.list(query), |page| page_of(page, |w| short(w.id))).await
    }

    async fn delete(&self, id: WorkspaceId) -> Result<()> {
        self.call(format!("delete workspace {}", short(id)), self.inner.workspaces.delete(id), ok).await
    }

    async fn load_config(&self, id: WorkspaceId) -> Result<Option<String>> {
        let what = format!("load the configuration of workspace {}", short(id));
        self.call(what, self.inner.workspaces.load_config(id), |text| {
            text.as_ref().map_or("none".to_owned(), |text| format!("{} bytes", text.len()))
        })
        .await
    }

    async fn save_config(
        &self,
        id: WorkspaceId,
        text: Option<String>,
        wanted: Precondition<ContentHash>,
    ) -> Result<()> {
        let what = format!("save the configuration of workspace {} (expect {})", short(id), expect(&wanted));
        self.call(what, self.inner.workspaces.save_config(id, text, wanted), ok).await
    }

    async fn close(&self) -> Result<()> {
        self.call("close the store".to_owned(), self.inner.workspaces.close(), ok).await
    }
}

#[async_trait]
impl BindingStore for Recorded {
    async fn resolve(&self, device: &DeviceId) -> Result<Option<WorkspaceId>> {
        let what = format!("resolve {:.40?}", device.as_str());
        self.call(what, self.inner.bindings.resolve(device), |bound| format!("{:?}", bound.map(short))).await
    }

    async fn bind(
        &self,
        device: &DeviceId,
        to: WorkspaceId,
        wanted: Precondition<WorkspaceId>,
    ) -> Result<WorkspaceId> {
        let what = format!("bind {:.40?} to {} (expect {})", device.as_str(), short(to), expect(&wanted));
        self.call(what, self.inner.bindings.bind(device, to, wanted), |bound| short(bound)).await
    }

    async fn unbind(&self, device: &DeviceId) -> Result<bool> {
        let what = format!("unbind {:.40?}", device.as_str());
        self.call(what, self.inner.bindings.unbind(device), |was| format!("was bound: {was}")).await
    }

    async fn last_session(&self, device: &DeviceId) -> Result<Option<SessionId>> {
        let what = format!("last session of {:.40?}", device.as_str());
        let shown = |last: &Option<SessionId>| format!("{:?}", last.map(short));
        self.call(what, self.inner.bindings.last_session(device), shown).await
    }

    async fn set_last_session(&self, device: &DeviceId, session: SessionId) -> Result<()> {
        let what = format!("last session of {:.40?} is {}", device.as_str(), short(session));
        self.call(what, self.inner.bindings.set_last_session(device, session), ok).await
    }

    async fn unbind_workspace(&self, id: WorkspaceId) -> Result<u64> {
        let what = format!("unbind all of workspace {}", short(id));
        self.call(what, self.inner.bindings.unbind_workspace(id), |n| format!("{n} devices")).await
    }

    async fn list(&self, query: BindingQuery) -> Result<Page<Binding>> {
        let what = format!("list bindings, {} a page{}", query.limit, cursor(query.cursor.is_some()));
        self.call(what, self.inner.bindings.list(query), |page| {
            page_of(page, |binding| format!("{:.20?}", binding.device.as_str()))
        })
        .await
    }

    async fn close(&self) -> Result<()> {
        self.call("close the store".to_owned(), self.inner.bindings.close(), ok).await
    }
}
