//! The in-memory store, broken in one way.

#![allow(clippy::unwrap_used, reason = "a test's helper")]

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use agent_core::{
    Binding, BindingQuery, BindingStore, Capabilities, Commit, CommitId, Committed, ContentHash, Damaged,
    DeviceId, Epoch, Error, ErrorKind, EventPage, Expect, MemoryStore, Page, Pulse, Purge, Purged, RawFields,
    RawJson, ReadEvents, Result, Revision, Seq, Session, SessionId, SessionQuery, SessionState, SessionStore,
    SessionSummary, Step, Storage, TenantId, Timestamp, Workspace, WorkspaceId, WorkspaceQuery,
    WorkspaceStore, WriteOutcome, async_trait, session,
};
use agent_storage_conformance::{Damage, DamageKind, Factory};

/// What is wrong with a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Nothing: the control.
    None,
    LostUpdate,
    HalfCommitVisible,
    RefusedCommitLeavesItsStart,
    DroppedCommitIsHalfApplied,
    DroppedCommitBlocksTheStore,
    AcknowledgedBeforeStored,
    CommitIdIgnored,
    ReplayCheckedAfterTheFence,
    FenceIgnored,
    EndedRunMayWrite,
    LookingIsASignOfLife,
    CorruptAsAbsent,
    DamagedEventSkipped,
    DamagedWorkspaceHidden,
    IndexIsTheTruth,
    TombstoneForgotten,
    PurgeHarmsAChild,
    ConflictHidesTheHead,
    RefusalsInDoubt,
    ErrorsQuotePayloads,
    PageOffByOne,
    PageTooLarge,
    NewestIsOldest,
    TypesIgnored,
    WaitingEndsEarly,
    ClearLeaks,
    NumbersRewritten,
    UnknownFieldsDropped,
    LineEndsRewritten,
    OrderedByTheClock,
    CursorSkipsTies,
    HiddenShown,
    TotalsOfEverything,
    LabelsIgnored,
    DueInAnyOrder,
    DueWithoutAnEnd,
    ForkSeesLaterEvents,
    ForkLosesItsParent,
    TenantLeak,
    PutIgnoresTheRevision,
    TouchStepsBack,
    DeletedConfigurationStays,
    ConfigurationRaces,
    BindRace,
    UnbindErasesANewerBind,
    DevicesFolded,
    BindLostOnReopening,
}

pub(crate) const ALL: &[Fault] = &[
    Fault::LostUpdate,
    Fault::HalfCommitVisible,
    Fault::RefusedCommitLeavesItsStart,
    Fault::DroppedCommitIsHalfApplied,
    Fault::DroppedCommitBlocksTheStore,
    Fault::AcknowledgedBeforeStored,
    Fault::CommitIdIgnored,
    Fault::ReplayCheckedAfterTheFence,
    Fault::FenceIgnored,
    Fault::EndedRunMayWrite,
    Fault::LookingIsASignOfLife,
    Fault::CorruptAsAbsent,
    Fault::DamagedEventSkipped,
    Fault::DamagedWorkspaceHidden,
    Fault::IndexIsTheTruth,
    Fault::TombstoneForgotten,
    Fault::PurgeHarmsAChild,
    Fault::ConflictHidesTheHead,
    Fault::RefusalsInDoubt,
    Fault::ErrorsQuotePayloads,
    Fault::PageOffByOne,
    Fault::PageTooLarge,
    Fault::NewestIsOldest,
    Fault::TypesIgnored,
    Fault::WaitingEndsEarly,
    Fault::ClearLeaks,
    Fault::NumbersRewritten,
    Fault::UnknownFieldsDropped,
    Fault::LineEndsRewritten,
    Fault::OrderedByTheClock,
    Fault::CursorSkipsTies,
    Fault::HiddenShown,
    Fault::TotalsOfEverything,
    Fault::LabelsIgnored,
    Fault::ForkSeesLaterEvents,
    Fault::ForkLosesItsParent,
    Fault::TenantLeak,
    Fault::PutIgnoresTheRevision,
    Fault::TouchStepsBack,
    Fault::DeletedConfigurationStays,
    Fault::ConfigurationRaces,
    Fault::BindRace,
    Fault::UnbindErasesANewerBind,
    Fault::DevicesFolded,
    Fault::BindLostOnReopening,
];

/// Where one broken store lies.
pub(crate) struct Site {
    store: MemoryStore,
    shared: Arc<Shared>,
}

/// What the handles on one broken store have in common.
#[derive(Debug, Default)]
struct Shared {
    hidden: Mutex<Option<(SessionId, Seq)>>,
    touched: Mutex<HashMap<WorkspaceId, Timestamp>>,
    configs: Mutex<HashMap<WorkspaceId, String>>,
    last_bound: Mutex<Option<DeviceId>>,
    bindings_damaged: AtomicBool,
    event_damaged: Mutex<Option<(SessionId, Seq)>>,
    workspace_damaged: Mutex<Option<WorkspaceId>>,
    derived_removed: AtomicBool,
    busy: AtomicBool,
    looks: AtomicU64,
    ids: AtomicU64,
}

pub(crate) struct Broken(pub(crate) Fault);

#[async_trait]
impl Factory for Broken {
    type Site = Site;

    async fn fresh(&self) -> Result<Site> {
        Ok(Site { store: MemoryStore::new(), shared: Arc::default() })
    }

    async fn open(&self, site: &Site, tenant: &TenantId) -> Result<Storage> {
        if self.0 == Fault::BindLostOnReopening {
            let lost = site.shared.last_bound.lock().unwrap().take();
            if let Some(device) = lost {
                site.store.unbind(&device).await?;
            }
        }
        let store = if self.0 == Fault::TenantLeak { site.store.clone() } else { site.store.tenant(tenant) };
        Ok(Handle { store, shared: site.shared.clone(), fault: self.0, pending: Mutex::default() }.into())
    }

    fn damages(&self) -> &[DamageKind] {
        &[DamageKind::Event, DamageKind::Workspace, DamageKind::Bindings, DamageKind::Derived]
    }

    async fn damage(&self, site: &Site, damage: Damage) -> Result<()> {
        match damage {
            Damage::Event(id, seq) => *site.shared.event_damaged.lock().unwrap() = Some((id, seq)),
            Damage::Workspace(id) => *site.shared.workspace_damaged.lock().unwrap() = Some(id),
            Damage::Derived => site.shared.derived_removed.store(true, Ordering::SeqCst),
            _ => site.shared.bindings_damaged.store(true, Ordering::SeqCst),
        }
        Ok(())
    }
}

#[derive(Debug)]
struct Handle {
    store: MemoryStore,
    shared: Arc<Shared>,
    fault: Fault,
    /// What was acknowledged and is not stored yet.
    pending: Mutex<Option<Commit>>,
}

impl Handle {
    fn is(&self, fault: Fault) -> bool {
        self.fault == fault
    }

    async fn now(&self, id: SessionId) -> Option<Session> {
        SessionStore::load(&self.store, id).await.ok()
    }

    async fn flush(&self) {
        let pending = self.pending.lock().unwrap().take();
        if let Some(commit) = pending {
            let _ = self.store.commit(commit).await;
        }
    }

    fn fresh_id(&self) -> CommitId {
        let n = self.shared.ids.fetch_add(1, Ordering::SeqCst);
        format!("00000000-0000-7000-8000-{n:012x}").parse().unwrap()
    }

    /// The commit in two, of which each is whole by itself.
    async fn in_two(&self, commit: Commit) -> Result<Committed> {
        let half = commit.steps.len() / 2;
        let (mut first, mut second) = (commit.clone(), commit.clone());
        first.id = self.fresh_id();
        first.steps.truncate(half);
        second.steps.drain(..half);
        if half > 0 && self.now(commit.session).await.is_some_and(|now| now.head == commit.seen) {
            second.seen = self.store.commit(first).await?.last;
            tokio::task::yield_now().await;
        }
        self.store.commit(second).await
    }

    async fn disturbed(&self, mut commit: Commit) -> Commit {
        let Some(now) = self.now(commit.session).await else { return commit };
        let lease = now.lease.as_ref().map(|lease| lease.epoch);
        if self.is(Fault::LostUpdate) && matches!(commit.expect, Expect::Is(_)) {
            (commit.expect, commit.seen) = (Expect::Any, now.head);
        }
        if self.is(Fault::CommitIdIgnored) && now.recent.iter().any(|recent| recent.id == commit.id) {
            (commit.id, commit.seen) = (self.fresh_id(), now.head);
        }
        if self.is(Fault::FenceIgnored) && commit.fence.is_some() {
            commit.fence = lease;
        }
        if self.is(Fault::EndedRunMayWrite) && lease.is_none() && commit.fence == Some(now.epoch) {
            commit.fence = None;
        }
        commit
    }

    fn change_payloads(&self, commit: &mut Commit) {
        for step in &mut commit.steps {
            let Step::Event(event) = step else { continue };
            let json = event.data.get();
            match self.fault {
                Fault::NumbersRewritten => {
                    if let Ok(value) = serde_json::from_str::<serde_json::Value>(json) {
                        event.data = RawJson::of(&value).unwrap();
                    }
                }
                Fault::LineEndsRewritten => {
                    event.data = RawJson::parse(&json.replace("\\r\\n", "\\n")).unwrap();
                }
                Fault::UnknownFieldsDropped => event.extra = RawFields::new(),
                _ => {}
            }
        }
    }

    fn spoiled(&self, error: Error, said: &str) -> Error {
        match (self.fault, error.kind()) {
            (Fault::ConflictHidesTheHead, ErrorKind::Conflict { .. }) => {
                Error::new(ErrorKind::Conflict { head: None }, error.to_string())
            }
            (Fault::RefusalsInDoubt, _) => error.with_outcome(WriteOutcome::Unknown),
            (Fault::ErrorsQuotePayloads, kind) => Error::new(kind.clone(), format!("{error}: {said}")),
            _ => error,
        }
    }
}

#[async_trait]
impl SessionStore for Handle {
    async fn commit(&self, mut commit: Commit) -> Result<Committed> {
        self.flush().await;
        let said = format!("{:?}", commit.steps);
        self.change_payloads(&mut commit);
        commit = self.disturbed(commit).await;
        match self.fault {
            Fault::ReplayCheckedAfterTheFence => {
                let lease = self.now(commit.session).await.and_then(|now| now.lease).map(|lease| lease.epoch);
                if commit.fence.is_some() && commit.fence != lease {
                    return Err(Error::new(ErrorKind::Fenced { epoch: Epoch::ZERO }, "fenced"));
                }
            }
            Fault::DroppedCommitIsHalfApplied => return self.in_two(commit).await,
            Fault::DroppedCommitBlocksTheStore => {
                if self.shared.busy.swap(true, Ordering::SeqCst) {
                    return Err(Error::new(ErrorKind::Unavailable, "a write is going on"));
                }
                tokio::task::yield_now().await;
                let result = self.store.commit(commit).await;
                self.shared.busy.store(false, Ordering::SeqCst);
                return result;
            }
            Fault::AcknowledgedBeforeStored => {
                let now = self.now(commit.session).await;
                let planned = session::plan(now.as_ref(), &commit)?;
                if matches!(planned, session::Plan::Write { .. }) {
                    *self.pending.lock().unwrap() = Some(commit);
                }
                return Ok(planned.committed());
            }
            Fault::RefusedCommitLeavesItsStart => {
                let mut start = commit.clone();
                let result = self.store.commit(commit).await;
                if result.is_err() && start.steps.len() > 1 {
                    start.steps.pop();
                    let _ = self.store.commit(start).await;
                }
                return result;
            }
            Fault::HalfCommitVisible => {
                let id = commit.session;
                let done = self.store.commit(commit).await?;
                *self.shared.hidden.lock().unwrap() = Some((id, done.first));
                tokio::task::yield_now().await;
                *self.shared.hidden.lock().unwrap() = None;
                return Ok(done);
            }
            _ => {}
        }
        self.store.commit(commit).await.map_err(|error| self.spoiled(error, &said))
    }

    async fn load(&self, id: SessionId) -> Result<Session> {
        self.flush().await;
        let mut session = SessionStore::load(&self.store, id).await?;
        if self.is(Fault::TombstoneForgotten) && session.status.state == SessionState::Deleted {
            return Err(Error::new(ErrorKind::NotFound, format!("session {id} does not exist")));
        }
        if self.is(Fault::ClearLeaks) {
            session.visible_from = Seq::ZERO;
        }
        Ok(session)
    }

    async fn read(&self, id: SessionId, mut read: ReadEvents) -> Result<EventPage> {
        self.flush().await;
        match self.fault {
            Fault::ForkSeesLaterEvents => read.before = None,
            Fault::TypesIgnored => read.kinds.clear(),
            Fault::PageTooLarge => read.max_bytes = usize::MAX,
            Fault::NewestIsOldest => read.newest = false,
            _ => {}
        }
        let mut page = self.store.read(id, read).await?;
        let damage = *self.shared.event_damaged.lock().unwrap();
        if let Some((_, at)) = damage.filter(|(damaged, _)| *damaged == id) {
            match page.events.iter().position(|event| event.seq == at) {
                Some(n) if self.is(Fault::DamagedEventSkipped) => drop(page.events.remove(n)),
                Some(0) => return Err(Error::new(ErrorKind::Corrupt, "an event is damaged")),
                Some(n) => {
                    page.events.truncate(n);
                    page = EventPage::new(page.events)
                        .with_damaged(vec![Damaged::new("an event", "it is damaged")]);
                }
                None => {}
            }
        }
        match self.fault {
            Fault::PageOffByOne => {
                if let Some(next) = &mut page.next {
                    next.after = next.after.next();
                }
            }
            Fault::OrderedByTheClock => page.events.sort_by_key(|event| event.at),
            Fault::HalfCommitVisible => {
                if let Some((hidden, first)) = *self.shared.hidden.lock().unwrap() {
                    page.events.retain(|event| hidden != id || event.seq <= first);
                }
            }
            _ => {}
        }
        Ok(page)
    }

    async fn list(&self, mut query: SessionQuery) -> Result<Page<SessionSummary>> {
        self.flush().await;
        if self.is(Fault::LabelsIgnored) {
            query.labels.clear();
        }
        if self.is(Fault::HiddenShown) && query.states.is_empty() {
            query = query.with_hidden();
        }
        if self.is(Fault::DueWithoutAnEnd) && query.due.is_some() {
            query.due = Some(Timestamp::MAX);
            query.cursor = None;
        }
        let mut page = SessionStore::list(&self.store, query.clone()).await?;
        if self.is(Fault::DueInAnyOrder) && query.due.is_some() {
            page.items.reverse();
        }
        if let (Fault::CursorSkipsTies, Some(cursor)) = (self.fault, &query.cursor) {
            let (at, _) = cursor.recent_key::<SessionId>(query.fingerprint())?;
            page.items.retain(|session| session.last_active_at < at);
        }
        if self.is(Fault::TotalsOfEverything) && query.with_total {
            let all = SessionQuery::new().with_hidden().with_total();
            page.total = SessionStore::list(&self.store, all).await?.total;
        }
        let lost = self.is(Fault::IndexIsTheTruth) && self.shared.derived_removed.load(Ordering::SeqCst);
        if lost || (self.is(Fault::ForkLosesItsParent) && query.parent.is_some()) {
            page.items.clear();
        }
        Ok(page)
    }

    async fn purge(&self, mut purge: Purge) -> Result<Purged> {
        if self.is(Fault::PurgeHarmsAChild) {
            purge.keep = Seq::ZERO;
        }
        self.store.purge(purge).await
    }

    async fn beat(&self, id: SessionId, epoch: Epoch) -> Result<()> {
        self.store.beat(id, epoch).await
    }

    async fn pulse(&self, id: SessionId, epoch: Epoch) -> Result<Pulse> {
        let mut pulse = self.store.pulse(id, epoch).await?;
        if self.is(Fault::LookingIsASignOfLife) {
            pulse.beat += self.shared.looks.fetch_add(1, Ordering::SeqCst);
        }
        Ok(pulse)
    }

    fn capabilities(&self) -> Capabilities {
        self.store.capabilities()
    }

    async fn changed(&self, id: SessionId, seen: Seq) -> Result<Seq> {
        if self.is(Fault::WaitingEndsEarly) {
            return Ok(SessionStore::load(&self.store, id).await?.head);
        }
        self.store.changed(id, seen).await
    }
}

#[async_trait]
impl WorkspaceStore for Handle {
    async fn load(&self, id: WorkspaceId) -> Result<Workspace> {
        self.check_workspace(id)?;
        let mut workspace = WorkspaceStore::load(&self.store, id).await?;
        if let Some(at) = self.shared.touched.lock().unwrap().get(&id) {
            workspace.last_accessed = *at;
        }
        Ok(workspace)
    }

    async fn put(&self, workspace: Workspace, expect: Expect<Revision>) -> Result<Workspace> {
        self.check_workspace(workspace.id)?;
        let any = self.is(Fault::PutIgnoresTheRevision) && matches!(expect, Expect::Is(_));
        self.store.put(workspace, if any { Expect::Any } else { expect }).await
    }

    async fn touch(&self, id: WorkspaceId, at: Timestamp) -> Result<()> {
        self.check_workspace(id)?;
        if self.is(Fault::TouchStepsBack) {
            self.shared.touched.lock().unwrap().insert(id, at);
        }
        self.store.touch(id, at).await
    }

    async fn list(&self, query: WorkspaceQuery) -> Result<Page<Workspace>> {
        let mut page = WorkspaceStore::list(&self.store, query).await?;
        if let Some(id) = *self.shared.workspace_damaged.lock().unwrap() {
            page.items.retain(|workspace| workspace.id != id);
            if !self.is(Fault::DamagedWorkspaceHidden) {
                page.damaged.push(Damaged::new(id.to_string(), "its record is damaged"));
            }
        }
        Ok(page)
    }

    async fn delete(&self, id: WorkspaceId) -> Result<()> {
        if let Ok(Some(text)) = self.store.load_config(id).await {
            self.shared.configs.lock().unwrap().insert(id, text);
        }
        self.store.delete(id).await
    }

    async fn load_config(&self, id: WorkspaceId) -> Result<Option<String>> {
        let left = self.shared.configs.lock().unwrap().get(&id).cloned();
        if self.is(Fault::DeletedConfigurationStays) && left.is_some() {
            return Ok(left);
        }
        self.store.load_config(id).await
    }

    async fn save_config(
        &self,
        id: WorkspaceId,
        text: Option<String>,
        expect: Expect<ContentHash>,
    ) -> Result<()> {
        if self.is(Fault::ConfigurationRaces) {
            let now = self.store.load_config(id).await?;
            ContentHash::check(expect, now.as_deref(), &"the configuration")?;
            tokio::task::yield_now().await;
            return self.store.save_config(id, text, Expect::Any).await;
        }
        self.store.save_config(id, text, expect).await
    }
}

impl Handle {
    fn check_workspace(&self, id: WorkspaceId) -> Result<()> {
        if *self.shared.workspace_damaged.lock().unwrap() == Some(id) {
            return Err(Error::new(ErrorKind::Corrupt, format!("workspace {id} is damaged")));
        }
        Ok(())
    }

    fn check_bindings(&self) -> Result<()> {
        if self.shared.bindings_damaged.load(Ordering::SeqCst) && !self.is(Fault::CorruptAsAbsent) {
            return Err(Error::new(ErrorKind::Corrupt, "the bindings are damaged"));
        }
        Ok(())
    }

    fn folded(&self, device: &DeviceId) -> DeviceId {
        let folded = device.as_str().to_lowercase();
        if self.is(Fault::DevicesFolded) { folded.parse().unwrap() } else { device.clone() }
    }
}

#[async_trait]
impl BindingStore for Handle {
    async fn resolve(&self, device: &DeviceId) -> Result<Option<WorkspaceId>> {
        self.check_bindings()?;
        if self.shared.bindings_damaged.load(Ordering::SeqCst) {
            return Ok(None);
        }
        self.store.resolve(&self.folded(device)).await
    }

    async fn bind(
        &self,
        device: &DeviceId,
        to: WorkspaceId,
        expect: Expect<WorkspaceId>,
    ) -> Result<WorkspaceId> {
        self.check_bindings()?;
        let device = self.folded(device);
        if self.is(Fault::BindRace) && expect == Expect::Absent {
            if let Some(bound) = self.store.resolve(&device).await? {
                return Ok(bound);
            }
            tokio::task::yield_now().await;
            return self.store.bind(&device, to, Expect::Any).await;
        }
        *self.shared.last_bound.lock().unwrap() = Some(device.clone());
        self.store.bind(&device, to, expect).await
    }

    async fn unbind(&self, device: &DeviceId) -> Result<bool> {
        self.check_bindings()?;
        self.store.unbind(&self.folded(device)).await
    }

    async fn unbind_workspace(&self, id: WorkspaceId) -> Result<u64> {
        if !self.is(Fault::UnbindErasesANewerBind) {
            return self.store.unbind_workspace(id).await;
        }
        let bound = BindingStore::list(&self.store, BindingQuery::new().workspace(id)).await?.items;
        tokio::task::yield_now().await;
        for binding in &bound {
            self.store.unbind(&binding.device).await?;
        }
        Ok(bound.len() as u64)
    }

    async fn list(&self, query: BindingQuery) -> Result<Page<Binding>> {
        self.check_bindings()?;
        BindingStore::list(&self.store, query).await
    }
}
