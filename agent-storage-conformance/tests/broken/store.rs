//! The in-memory store, broken in one way.

#![allow(clippy::unwrap_used, reason = "a test's helper")]

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use agent_core::commit::{Commit, Committed, Precondition, Step, Trigger};
use agent_core::event::{Event, EventType, NewEvent};
use agent_core::json::{RawFields, RawJson};
use agent_core::model::{Actor, Lease, Workspace};
use agent_core::session::{SessionRecord, SessionSummary};
use agent_core::state::SessionState;
use agent_core::store::{
    Binding, BindingQuery, BlobContent, BlobInfo, BlobQuery, BlobStore, Capabilities, ContentHash, Damaged,
    DeletedTenant, EventPage, LeaseStatus, LeaseStore, Maintenance, Page, Pending, Purge, Purged, PutBlob,
    ReadBlob, ReadEvents, Rebuilt, SessionQuery, SweepBlobs, SweptBlobs, WorkspaceQuery,
};
use agent_core::{
    Backend, BindingStore, CommitId, DeviceId, Epoch, Error, ErrorKind, MemoryStore, OwnerId, Result,
    Revision, Seq, SessionId, SessionStore, Storage, TenantId, Timestamp, WorkspaceId, WorkspaceStore,
    WriteOutcome, async_trait,
};
use agent_storage_conformance::{Damage, DamageKind, Factory};

use crate::blobs;
use crate::record::{Column, without};

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
    AnswersStampedAgain,
    StatusReadsAreHeartbeats,
    CorruptAsAbsent,
    DamagedEventSkipped,
    ListShowsAnotherState,
    DamagedEventShown,
    DamagedWorkspaceHidden,
    IndexIsTheTruth,
    RebuildEmptiesTheLists,
    TombstoneForgotten,
    PurgeHarmsAChild,
    TombstoneKeepsTheRecord,
    RawLineBreaksTearTheLog,
    ConflictHidesTheHead,
    RefusalsInDoubt,
    ErrorsQuotePayloads,
    ErrorsNameNothing,
    PageOffByOne,
    PageTooLarge,
    NewestIsOldest,
    NewestLags,
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
    DueThoughDone,
    DueLostOnReopening,
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
    OldCommitIdsForgotten,
    RefusedIsRemembered,
    AnybodySpeaksAsTheAgent,
    InputsRefusedDuringARun,
    DecidedOnAnOldRecord,
    CommitsNoteThemselves,
    ChildrenListedLate,
    BoundToItsRuntime,
    BusyHidesTheHolder,
    TransitionsUnnamed,
    LimitsUnnamed,
    InterruptLeavesInputs,
    LeaseOfTheWorkspace,
    ReopenedWithoutLabels,
    /// A part of the record is lost.
    Loses(Column),
    AbsentIsEmpty,
    DroppedReadBlocks,
    AfterIsInclusive,
    ActorForgotten,
    RunForgotten,
    EarlyTimesLost,
    LongTextsCut,
    ThoughtsEmptied,
    ListLags,
    WorkspaceIgnored,
    OwnerIgnored,
    WorkspaceOwnerLost,
    LastSessionStays,
    ListReversed,
    LaterPagesDropOne,
    OneSessionForALimitOfZero,
    OneWorkspaceForALimitOfZero,
    OneBindingForALimitOfZero,
    OneEventForALimitOfZero,
    DamagedSessionStays,
    RebuildSkipsSilently,
    PurgeAtAnyHead,
    PseudonymIgnored,
    PseudonymTakenOnce,
    PlainPurgeBringsTheNameBack,
    FormerNameListed,
    TenantsHidden,
    DroppedPutIsHalfApplied,
    WorkspaceCreationRaces,
    DescriptionLost,
    PutReplaces,
    PutCreates,
    DefaultRefused,
    EmptyConfigurationIsNone,
    ConfigurationHashIgnored,
    WorkspaceFieldsDropped,
    DroppedBindIsHalfApplied,
    RebindRaces,
    UnknownDeviceIsDefault,
    BindExpectIgnored,
    FirstContactMoves,
    UnbindingReportsTrue,
    BindingsRewrittenWhole,
    UnbindingLeavesOne,
    StoresTiedTogether,
    MovedIsWritten,
    MovedIsRead,
    MovedIsAbsent,
    OpenedTenantsListed,
    BusyTenantLeftOut,
    DeletedTenantKeepsBindings,
    PendingRewriteUnreported,
    RunningTenantDeleted,
    DeletionRunsOn,
    DroppedDeletionBlocks,
    BlobCutToOneChunk,
    BlobRangeOffByOne,
    BlobListUnordered,
    LongBlobListCut,
    BlobsLostOnReopening,
    WrongContentAccepted,
    LargeBlobReadFirst,
    MissingBlobsAccepted,
    MissingBlobsOfCreationsAccepted,
    MissingBlobsOfRestoredAccepted,
    OneMissingBlobNamed,
    BlobSizeUnchecked,
    BlobsOfParentsAccepted,
    BlobsCheckedBeforeReplay,
    UnfinishedPutListed,
    DroppedReaderBlocks,
    ConcurrentPutRefused,
    RemovalEndsReaders,
    /// Nothing: a store without blobs, as it says.
    NoBlobs,
    BlobsUndeclared,
    SweepRemovesNamed,
    SweepKeepsOrphans,
    DryRunSweeps,
    SweepOfNoneSweepsAll,
    SweepDecidesEarly,
    EarlyBlobsLost,
    PurgeKeepsBlobs,
    PurgeTakesBlobsFromForks,
    DeletedTakesBlobs,
}

impl Fault {
    /// The same store without the fault.
    pub(crate) fn control(self) -> Self {
        if self == Self::BlobsUndeclared { Self::NoBlobs } else { Self::None }
    }
}

/// Where one broken store lies.
pub(crate) struct Site {
    store: MemoryStore,
    shared: Arc<Shared>,
}

/// What the handles on one broken store have in common.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    pub(crate) blobs: blobs::Shared,
    hidden: Mutex<Option<(SessionId, Seq)>>,
    touched: Mutex<HashMap<WorkspaceId, Timestamp>>,
    configs: Mutex<HashMap<WorkspaceId, String>>,
    last_bound: Mutex<Option<DeviceId>>,
    /// What was recorded for devices, also since they were unbound.
    last_sessions: Mutex<HashMap<DeviceId, SessionId>>,
    bindings_damaged: AtomicBool,
    event_damaged: Mutex<Option<(SessionId, Seq)>>,
    workspace_damaged: Mutex<Option<WorkspaceId>>,
    derived_removed: AtomicBool,
    moved: AtomicBool,
    pub(crate) busy: AtomicBool,
    status_reads: AtomicU64,
    ids: AtomicU64,
    refused: Mutex<HashSet<CommitId>>,
    unlisted: Mutex<HashSet<SessionId>>,
    leases: Mutex<HashMap<WorkspaceId, Lease>>,
    listed: Mutex<Page<SessionSummary>>,
    binds: AtomicU64,
    /// Up to where the events of purged sessions are shown, where the store under this one kept more.
    purged: Mutex<HashMap<SessionId, Seq>>,
    /// The records of purged sessions, as they were before.
    unburied: Mutex<HashMap<SessionId, SessionRecord>>,
    opened: Mutex<HashSet<TenantId>>,
    /// The first names of the owners of purged sessions.
    names: Mutex<HashMap<SessionId, OwnerId>>,
}

impl Shared {
    fn fresh_id(&self) -> CommitId {
        let n = self.ids.fetch_add(1, Ordering::SeqCst);
        format!("00000000-0000-7000-8000-{n:012x}").parse().unwrap()
    }
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
        if self.0 == Fault::BlobsLostOnReopening {
            site.store.for_tenant(tenant).blobs().sweep(SweepBlobs::without_session()).await?;
        }
        let store =
            if self.0 == Fault::TenantLeak { site.store.clone() } else { site.store.for_tenant(tenant) };
        Ok(Handle {
            store,
            shared: site.shared.clone(),
            fault: self.0,
            wrote: AtomicBool::new(false),
            thread: std::thread::current().name().map(str::to_owned),
            pending: Mutex::default(),
        }
        .into())
    }

    async fn tenants(&self, site: &Site) -> Result<Option<Arc<dyn Backend>>> {
        let store = if self.0 == Fault::TenantsHidden { MemoryStore::new() } else { site.store.clone() };
        Ok(Some(Arc::new(FaultyBackend { store, shared: site.shared.clone(), fault: self.0 })))
    }

    fn damages(&self) -> &[DamageKind] {
        const KINDS: &[DamageKind] = &[
            DamageKind::Event,
            DamageKind::Workspace,
            DamageKind::Bindings,
            DamageKind::Derived,
            DamageKind::Moved,
        ];
        KINDS
    }

    async fn damage(&self, site: &Site, damage: Damage) -> Result<()> {
        match damage {
            Damage::Event(id, seq) => *site.shared.event_damaged.lock().unwrap() = Some((id, seq)),
            Damage::Workspace(id) => *site.shared.workspace_damaged.lock().unwrap() = Some(id),
            Damage::Derived => site.shared.derived_removed.store(true, Ordering::SeqCst),
            Damage::MovedAway => site.shared.moved.store(true, Ordering::SeqCst),
            Damage::MovedBack => site.shared.moved.store(false, Ordering::SeqCst),
            _ => site.shared.bindings_damaged.store(true, Ordering::SeqCst),
        }
        Ok(())
    }
}

/// The store as a server has it.
#[derive(Debug)]
struct FaultyBackend {
    store: MemoryStore,
    shared: Arc<Shared>,
    fault: Fault,
}

#[async_trait]
impl Backend for FaultyBackend {
    fn tenant(&self, tenant: &TenantId) -> Storage {
        self.shared.opened.lock().unwrap().insert(tenant.clone());
        self.store.tenant(tenant)
    }

    async fn tenants(&self, after: Option<TenantId>) -> Result<Page<TenantId>> {
        let mut page = Backend::tenants(&self.store, after.clone()).await?;
        if self.fault == Fault::OpenedTenantsListed && after.is_none() {
            page.items.extend(self.shared.opened.lock().unwrap().iter().cloned());
            page.items.sort();
            page.items.dedup();
        }
        Ok(page)
    }

    async fn busy_tenants(&self, until: Timestamp, after: Option<TenantId>) -> Result<Page<TenantId>> {
        let mut page = self.tenants(after).await?;
        if self.fault == Fault::BusyTenantLeftOut {
            let mut busy = Vec::new();
            for tenant in page.items {
                // What runs is forgotten.
                let due = SessionQuery::new().with_due(until);
                let due = SessionStore::list(&self.store.for_tenant(&tenant), due).await?.items;
                busy.extend((!due.is_empty()).then_some(tenant));
            }
            page.items = busy;
        }
        Ok(page)
    }

    async fn delete_tenant(&self, tenant: &TenantId) -> Result<DeletedTenant> {
        let of_tenant = self.store.for_tenant(tenant);
        match self.fault {
            Fault::DeletedTenantKeepsBindings => {
                let bound = BindingStore::list(&of_tenant, BindingQuery::new()).await?.items;
                let done = self.store.delete_tenant(tenant).await?;
                for binding in bound {
                    of_tenant.bind(&binding.device, binding.workspace, Precondition::None).await?;
                }
                Ok(done)
            }
            Fault::RunningTenantDeleted => {
                for session in SessionStore::list(&of_tenant, SessionQuery::new()).await?.items {
                    let now = SessionStore::load(&of_tenant, session.id).await?;
                    if let Some(lease) = &now.lease {
                        let end = Commit::new(self.shared.fresh_id(), now.id, now.updated_at, now.head);
                        of_tenant.commit(end.with_trigger(Trigger::LeaseExpired(lease.epoch))).await?;
                    }
                }
                self.store.delete_tenant(tenant).await
            }
            Fault::DeletionRunsOn => {
                let done = self.store.delete_tenant(tenant).await;
                let (store, tenant) = (self.store.clone(), tenant.clone());
                tokio::spawn(async move {
                    tokio::task::yield_now().await;
                    store.delete_tenant(&tenant).await
                });
                done
            }
            Fault::DroppedDeletionBlocks => {
                if self.shared.busy.swap(true, Ordering::SeqCst) {
                    return Err(Error::new(ErrorKind::Unavailable, "another deletion is at work"));
                }
                tokio::task::yield_now().await;
                let done = self.store.delete_tenant(tenant).await;
                self.shared.busy.store(false, Ordering::SeqCst);
                done
            }
            _ => self.store.delete_tenant(tenant).await,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Handle {
    pub(crate) store: MemoryStore,
    pub(crate) shared: Arc<Shared>,
    pub(crate) fault: Fault,
    /// Whether this handle has written.
    wrote: AtomicBool,
    /// The name that the threads of its runtime have.
    thread: Option<String>,
    /// What was acknowledged and is not stored yet.
    pending: Mutex<Option<Commit>>,
}

impl Handle {
    pub(crate) fn is(&self, fault: Fault) -> bool {
        self.fault == fault
    }

    pub(crate) async fn now(&self, id: SessionId) -> Option<Arc<SessionRecord>> {
        SessionStore::load(&self.store, id).await.ok()
    }

    async fn flush(&self) {
        let pending = self.pending.lock().unwrap().take();
        if let Some(commit) = pending {
            let _ = self.store.commit(commit).await;
        }
    }

    fn fresh_id(&self) -> CommitId {
        self.shared.fresh_id()
    }

    /// The commit in two, of which each is whole by itself.
    async fn in_two(&self, commit: Commit) -> Result<Committed> {
        let half = commit.steps.len() / 2;
        let (mut first, mut second) = (commit.clone(), commit.clone());
        first.id = self.fresh_id();
        Arc::make_mut(&mut first.steps).truncate(half);
        Arc::make_mut(&mut second.steps).drain(..half);
        if half > 0 && self.now(commit.session).await.is_some_and(|now| now.head == commit.seen) {
            second.seen = self.store.commit(first).await?.last;
            tokio::task::yield_now().await;
        }
        self.store.commit(second).await
    }

    async fn disturbed(&self, mut commit: Commit) -> Commit {
        let Some(now) = self.now(commit.session).await else { return commit };
        let lease = now.lease.as_ref().map(|lease| lease.epoch);
        if self.is(Fault::LostUpdate) && matches!(commit.precondition, Precondition::Matches(_)) {
            (commit.precondition, commit.seen) = (Precondition::MustExist, now.head);
        }
        if self.is(Fault::CommitIdIgnored) && now.recent.iter().any(|recent| recent.id == commit.id) {
            (commit.id, commit.seen) = (self.fresh_id(), now.head);
        }
        if self.is(Fault::FenceIgnored) && commit.fence.is_some() {
            commit.fence = lease;
        }
        if self.is(Fault::OldCommitIdsForgotten) && now.recent.iter().all(|recent| recent.id != commit.id) {
            commit.seen = now.head;
        }
        if let (Fault::AnybodySpeaksAsTheAgent, None, Some(lease)) = (self.fault, commit.fence, &now.lease) {
            commit = commit.with_fence(lease.run, lease.epoch);
        }
        if self.is(Fault::CommitsNoteThemselves) {
            commit = commit.with_event(NewEvent::new("x.app.note".parse().unwrap(), RawJson::empty_object()));
        }
        if self.is(Fault::AnswersStampedAgain) && now.action.is_some() {
            commit.at = now.updated_at;
        }
        if self.is(Fault::EndedRunMayWrite) && lease.is_none() && commit.fence == Some(now.epoch) {
            commit.fence = None;
        }
        commit
    }

    fn change_payloads(&self, commit: &mut Commit) {
        for step in Arc::make_mut(&mut commit.steps) {
            let Step::Event(event) = step else { continue };
            let json = event.payload.get();
            match self.fault {
                Fault::NumbersRewritten => {
                    if let Ok(value) = serde_json::from_str::<serde_json::Value>(json) {
                        event.payload = RawJson::of(&value).unwrap();
                    }
                }
                Fault::LineEndsRewritten => {
                    event.payload = RawJson::parse(&json.replace("\\r\\n", "\\n")).unwrap();
                }
                Fault::UnknownFieldsDropped => event.extra = RawFields::new(),
                _ => {}
            }
        }
    }

    /// The record as the fault shows it.
    fn shown(&self, session: SessionRecord) -> SessionRecord {
        match self.fault {
            Fault::Loses(column) => without(column, session),
            Fault::ReopenedWithoutLabels if !self.wrote.load(Ordering::SeqCst) => {
                without(Column::Labels, session)
            }
            _ => session,
        }
    }

    fn at_home(&self) -> Result<()> {
        if self.is(Fault::BoundToItsRuntime) && std::thread::current().name() != self.thread.as_deref() {
            return Err(Error::new(ErrorKind::Unavailable, "a runtime that the store was not opened on"));
        }
        Ok(())
    }

    async fn not_busy(&self) -> Result<()> {
        if self.is(Fault::DroppedReadBlocks) {
            if self.shared.busy.swap(true, Ordering::SeqCst) {
                return Err(Error::new(ErrorKind::Unavailable, "a read is going on"));
            }
            tokio::task::yield_now().await;
            self.shared.busy.store(false, Ordering::SeqCst);
        }
        Ok(())
    }

    fn spoiled(&self, error: Error, texts: &str) -> Error {
        match (self.fault, error.kind()) {
            (Fault::ConflictHidesTheHead, ErrorKind::Conflict { .. }) => {
                Error::new(ErrorKind::Conflict { head: None }, error.to_string())
            }
            (Fault::BusyHidesTheHolder, ErrorKind::Busy { .. }) => {
                Error::new(ErrorKind::Busy { holder: String::new() }, error.to_string())
            }
            (Fault::TransitionsUnnamed, ErrorKind::InvalidTransition { .. })
            | (Fault::LimitsUnnamed, ErrorKind::LimitExceeded) => {
                Error::new(ErrorKind::InvalidInput, error.to_string())
            }
            (Fault::RefusalsInDoubt, _) => error.with_outcome(WriteOutcome::Unknown),
            (Fault::ErrorsNameNothing, kind) => Error::new(kind.clone(), "the write was refused"),
            (Fault::ErrorsQuotePayloads, kind) => Error::new(kind.clone(), format!("{error}: {texts}")),
            _ => error,
        }
    }
}

impl Handle {
    /// Fails while the store is not where it was, unless it is broken in that way.
    fn not_moved(&self, broken: Fault) -> Result<()> {
        let kind = if self.is(Fault::MovedIsAbsent) { ErrorKind::NotFound } else { ErrorKind::Unavailable };
        match self.shared.moved.load(Ordering::SeqCst) && !self.is(broken) {
            true => Err(Error::new(kind, "the store was moved; put it back")),
            false => Ok(()),
        }
    }
}

#[async_trait]
impl SessionStore for Handle {
    async fn commit(&self, mut commit: Commit) -> Result<Committed> {
        self.flush().await;
        let message = format!("{:?}", commit.steps);
        self.not_moved(Fault::MovedIsWritten)?;
        self.change_payloads(&mut commit);
        self.at_home()?;
        self.wrote.store(true, Ordering::SeqCst);
        commit = self.disturbed(commit).await;
        let damaged = self.shared.event_damaged.lock().unwrap().map(|(id, _)| id);
        if self.is(Fault::DamagedSessionStays) && damaged == Some(commit.session) {
            return Err(Error::new(ErrorKind::Corrupt, "an event is damaged"));
        }
        if let Some(done) = self.commit_of_blobs(&commit).await {
            return done;
        }
        match self.fault {
            Fault::RefusedIsRemembered => {
                let id = commit.id;
                if self.shared.refused.lock().unwrap().contains(&id) {
                    return Err(Error::new(ErrorKind::Conflict { head: None }, "it was refused before"));
                }
                return self.store.commit(commit).await.inspect_err(|_| {
                    self.shared.refused.lock().unwrap().insert(id);
                });
            }
            Fault::InputsRefusedDuringARun if commit.fence.is_none() => {
                let lease = self.now(commit.session).await.and_then(|now| now.lease.clone());
                if let Some(lease) =
                    lease.filter(|_| commit.steps.iter().all(|s| matches!(s, Step::Event(_))))
                {
                    return Err(Error::new(ErrorKind::Busy { holder: lease.holder }, "a run is at work"));
                }
            }
            Fault::DecidedOnAnOldRecord => {
                let old = self.now(commit.session).await;
                tokio::task::yield_now().await;
                let done = self.store.commit(commit.clone()).await;
                if done.is_ok() {
                    return done;
                }
                return agent_core::plan(old.as_deref(), &commit).map(|plan| plan.committed());
            }
            Fault::ChildrenListedLate if commit.precondition == Precondition::MustNotExist => {
                let id = commit.session;
                self.shared.unlisted.lock().unwrap().insert(id);
                let done = self.store.commit(commit).await;
                for _ in 0..20 {
                    tokio::task::yield_now().await;
                }
                self.shared.unlisted.lock().unwrap().remove(&id);
                return done;
            }
            Fault::InterruptLeavesInputs => {
                let is_interrupt =
                    |step: &Step| matches!(step, Step::Event(e) if e.kind == EventType::USER_INTERRUPT);
                let interrupt = commit.steps.iter().any(is_interrupt);
                let mut done = self.store.commit(commit).await?;
                Arc::make_mut(&mut done.session).inputs_open += u64::from(interrupt);
                return Ok(done);
            }
            Fault::LeaseOfTheWorkspace => {
                let done = self.store.commit(commit).await?;
                if let Some(lease) = &done.session.lease {
                    self.shared.leases.lock().unwrap().insert(done.session.workspace, lease.clone());
                }
                return Ok(done);
            }
            Fault::ReplayCheckedAfterTheFence => {
                let lease =
                    self.now(commit.session).await.and_then(|now| now.lease.clone()).map(|lease| lease.epoch);
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
                let planned = agent_core::plan(now.as_deref(), &commit)?;
                if matches!(planned, agent_core::Plan::Write { .. }) {
                    *self.pending.lock().unwrap() = Some(commit);
                }
                return Ok(planned.committed());
            }
            Fault::RefusedCommitLeavesItsStart => {
                let mut start = commit.clone();
                let result = self.store.commit(commit).await;
                if result.is_err() && start.steps.len() > 1 {
                    Arc::make_mut(&mut start.steps).pop();
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
        match self.store.commit(commit).await {
            Ok(mut done) => {
                done.session = Arc::new(self.shown(Arc::unwrap_or_clone(done.session)));
                Ok(done)
            }
            Err(error) => Err(self.spoiled(error, &message)),
        }
    }

    async fn load(&self, id: SessionId) -> Result<Arc<SessionRecord>> {
        self.flush().await;
        self.not_moved(Fault::MovedIsRead)?;
        self.at_home()?;
        self.not_busy().await?;
        let mut session = self.shown(Arc::unwrap_or_clone(SessionStore::load(&self.store, id).await?));
        if self.is(Fault::LeaseOfTheWorkspace) && session.lease.is_none() {
            session.lease = self.shared.leases.lock().unwrap().get(&session.workspace).cloned();
        }
        if self.is(Fault::TombstoneForgotten) && session.status.state == SessionState::Deleted {
            return Err(Error::new(ErrorKind::NotFound, format!("session {id} does not exist")));
        }
        if let Some(unburied) = self.shared.unburied.lock().unwrap().get(&id) {
            session = unburied.clone();
        }
        if self.is(Fault::ClearLeaks) {
            session.visible_from = Seq::ZERO;
        }
        Ok(Arc::new(session))
    }

    async fn read(&self, id: SessionId, mut read: ReadEvents) -> Result<EventPage> {
        self.flush().await;
        self.not_moved(Fault::MovedIsRead)?;
        match self.fault {
            Fault::ForkSeesLaterEvents => read.before = None,
            Fault::TypesIgnored => read.kinds.clear(),
            Fault::PageTooLarge => read.max_bytes = usize::MAX,
            Fault::NewestIsOldest => read.newest = false,
            Fault::OneEventForALimitOfZero => read.limit = read.limit.max(1),
            Fault::AfterIsInclusive if read.after > Seq::ZERO => read.after = Seq::new(read.after.get() - 1),
            Fault::AbsentIsEmpty if self.now(id).await.is_none() => return Ok(EventPage::default()),
            _ => {}
        }
        self.not_busy().await?;
        let newest = read.newest;
        let mut page = SessionStore::read(&self.store, id, read).await?;
        let damage = *self.shared.event_damaged.lock().unwrap();
        if let Some((_, at)) = damage.filter(|(damaged, _)| *damaged == id) {
            match page.events.iter().position(|event| event.seq == at) {
                Some(n) if self.is(Fault::DamagedEventSkipped) => drop(page.events.remove(n)),
                Some(_) if self.is(Fault::DamagedEventShown) => {}
                Some(0) => return Err(Error::new(ErrorKind::Corrupt, "an event is damaged")),
                Some(n) => {
                    page.events.truncate(n);
                    page = EventPage::new(page.events)
                        .with_damaged(vec![Damaged::new("an event", "it is damaged")]);
                }
                None => {}
            }
        }
        if let Some(kept) = self.shared.purged.lock().unwrap().get(&id) {
            page.events.retain(|event| event.seq <= *kept);
        }
        let breaks = |event: &Event| event.payload.get().contains("\\n");
        match self.fault {
            // A line that ends too early is torn, and so is all that comes after it.
            Fault::RawLineBreaksTearTheLog if !self.wrote.load(Ordering::SeqCst) => {
                let whole = page.events.iter().position(breaks).unwrap_or(page.events.len());
                page.events.truncate(whole);
            }
            Fault::PageOffByOne => {
                if let Some(next) = &mut page.next {
                    next.after = next.after.next();
                }
            }
            Fault::NewestLags if newest => {
                let last = page.events.last().map(|event| event.commit);
                if page.events.iter().any(|event| Some(event.commit) != last) {
                    page.events.retain(|event| Some(event.commit) != last);
                }
            }
            Fault::ActorForgotten => page.events.iter_mut().for_each(|event| event.actor = Actor::USER),
            Fault::RunForgotten => page.events.iter_mut().for_each(|event| event.run = None),
            Fault::EarlyTimesLost => {
                page.events.iter_mut().for_each(|event| event.at = event.at.max(Timestamp::UNIX_EPOCH));
            }
            Fault::LongTextsCut => {
                for event in page.events.iter_mut().filter(|event| event.payload.get().len() > 1 << 20) {
                    event.payload = RawJson::empty_object();
                }
            }
            Fault::ThoughtsEmptied => {
                for event in page.events.iter_mut().filter(|event| event.kind == EventType::AGENT_THINKING) {
                    event.payload = RawJson::parse("{\"text\":\"\"}").unwrap();
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
        if self.is(Fault::DueThoughDone) && query.due.take().is_some() {
            query.cursor = None;
        }
        let reopened = !self.wrote.load(Ordering::SeqCst);
        if self.is(Fault::DueLostOnReopening) && query.due.is_some() && reopened {
            return Ok(Page::default());
        }
        if self.is(Fault::WorkspaceIgnored) {
            query.workspace = None;
        }
        if self.is(Fault::OwnerIgnored) {
            query.owner = None;
        }
        if self.is(Fault::OneSessionForALimitOfZero) {
            query.limit = query.limit.max(1);
        }
        let mut page = SessionStore::list(&self.store, query.clone()).await?;
        match self.fault {
            Fault::ListLags => {
                let mut listed = self.shared.listed.lock().unwrap();
                return Ok(std::mem::replace(&mut listed, page));
            }
            Fault::ListReversed => page.items.reverse(),
            Fault::DueInAnyOrder if query.due.is_some() => page.items.reverse(),
            Fault::LaterPagesDropOne if query.cursor.is_some() => page.items.truncate(page.items.len() - 1),
            Fault::ChildrenListedLate if query.parent.is_some() => {
                let unlisted = self.shared.unlisted.lock().unwrap();
                page.items.retain(|session| !unlisted.contains(&session.id));
            }
            Fault::Loses(Column::Pending) => {
                page.items.iter_mut().for_each(|session| session.inputs_open = 0);
            }
            _ => {}
        }
        if let (Fault::CursorSkipsTies, Some(cursor)) = (self.fault, &query.cursor) {
            let (at, _) = cursor.recent_key::<SessionId>(query.fingerprint())?;
            page.items.retain(|session| session.last_active_at < at);
        }
        if self.is(Fault::TotalsOfEverything) && query.with_total {
            let all = SessionQuery::new().with_hidden().with_total();
            page.total = SessionStore::list(&self.store, all).await?.total;
        }
        if self.is(Fault::ListShowsAnotherState) {
            page.items.iter_mut().for_each(|item| item.inputs_open += 1);
        }
        let lost = (self.is(Fault::IndexIsTheTruth) || self.is(Fault::RebuildEmptiesTheLists))
            && self.shared.derived_removed.load(Ordering::SeqCst);
        if let (Fault::FormerNameListed, Some(owner)) = (self.fault, &query.owner) {
            let former: Vec<_> = self.shared.names.lock().unwrap().clone().into_iter().collect();
            let all = SessionStore::list(&self.store, SessionQuery::new().with_hidden()).await?.items;
            let is_former = |id: SessionId| former.iter().any(|(of, name)| *of == id && name == owner);
            let known: Vec<_> = page.items.iter().map(|item| item.id).collect();
            page.items.extend(all.into_iter().filter(|it| is_former(it.id) && !known.contains(&it.id)));
        }
        if lost || (self.is(Fault::ForkLosesItsParent) && query.parent.is_some()) {
            page.items.clear();
        }
        Ok(page)
    }

    async fn purge(&self, mut purge: Purge) -> Result<Purged> {
        let id = purge.session;
        if self.is(Fault::PurgeHarmsAChild) {
            self.shared.purged.lock().unwrap().insert(id, Seq::ZERO);
        }
        if self.is(Fault::ChildrenListedLate) {
            // It looks for forks in its own lists.
            let keep = purge.clone().sparing_forks(self).await?.keep_through;
            self.shared.purged.lock().unwrap().insert(id, keep);
        }
        if let (Fault::TombstoneKeepsTheRecord, Some(now)) = (self.fault, self.now(id).await) {
            self.shared.unburied.lock().unwrap().insert(id, Arc::unwrap_or_clone(now));
        }
        if let (Fault::PurgeAtAnyHead, Some(now)) = (self.fault, self.now(purge.session).await) {
            purge.head = now.head;
        }
        if let Some(owner) = self.now(id).await.and_then(|now| now.owner.clone()) {
            let mut names = self.shared.names.lock().unwrap();
            let is_again = names.contains_key(&id);
            let name = names.entry(id).or_insert(owner).clone();
            match self.fault {
                Fault::PseudonymIgnored => purge.pseudonym = None,
                Fault::PseudonymTakenOnce if is_again => purge.pseudonym = None,
                Fault::PlainPurgeBringsTheNameBack => drop(purge.pseudonym.get_or_insert(name)),
                _ => {}
            }
        }
        self.purge_blobs(purge).await
    }

    fn capabilities(&self) -> Capabilities {
        let capabilities = self.store.capabilities();
        let without = matches!(self.fault, Fault::NoBlobs | Fault::BlobsUndeclared);
        if without { capabilities.with_blobs(0) } else { capabilities }
    }

    async fn changed(&self, id: SessionId, seen: Seq) -> Result<Seq> {
        if self.is(Fault::WaitingEndsEarly) {
            return Ok(SessionStore::load(&self.store, id).await?.head);
        }
        self.store.changed(id, seen).await
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
impl LeaseStore for Handle {
    async fn heartbeat(&self, id: SessionId, epoch: Epoch) -> Result<()> {
        self.store.leases().heartbeat(id, epoch).await
    }

    async fn status(&self, id: SessionId, epoch: Epoch) -> Result<LeaseStatus> {
        let mut lease_status = self.store.leases().status(id, epoch).await?;
        if self.is(Fault::StatusReadsAreHeartbeats) {
            lease_status.heartbeat += self.shared.status_reads.fetch_add(1, Ordering::SeqCst);
        }
        Ok(lease_status)
    }
}

#[async_trait]
impl BlobStore for Handle {
    async fn put(&self, put: PutBlob) -> Result<()> {
        Handle::put_blob(self, put).await
    }

    async fn read(&self, read: ReadBlob) -> Result<BlobContent> {
        Handle::read_blob(self, read).await
    }

    async fn list(&self, query: BlobQuery) -> Result<Page<BlobInfo>> {
        Handle::list_blobs(self, query).await
    }

    async fn sweep(&self, sweep: SweepBlobs) -> Result<SweptBlobs> {
        Handle::sweep_blobs(self, sweep).await
    }
}

#[async_trait]
impl Maintenance for Handle {
    async fn check(&self) -> Result<Vec<Damaged>> {
        self.store.maintenance().check().await
    }

    async fn pending(&self) -> Result<Vec<Pending>> {
        let tenants = Backend::tenants(&self.store, None).await?.items;
        let is_left = self.is(Fault::PendingRewriteUnreported) && !tenants.is_empty();
        Ok(if is_left { vec![Pending::new("the store", "rewrite it")] } else { Vec::new() })
    }

    async fn rebuild(&self) -> Result<Rebuilt> {
        self.shared.derived_removed.store(self.is(Fault::RebuildEmptiesTheLists), Ordering::SeqCst);
        if self.is(Fault::RebuildSkipsSilently) {
            return Ok(Rebuilt::new(1));
        }
        self.store.maintenance().rebuild().await
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

    async fn put(&self, mut workspace: Workspace, mut expect: Precondition<Revision>) -> Result<Workspace> {
        self.check_workspace(workspace.id)?;
        let there = WorkspaceStore::load(&self.store, workspace.id).await.is_ok();
        match (self.fault, expect) {
            (Fault::DroppedPutIsHalfApplied, Precondition::MustNotExist) if !there => {
                let half = workspace.clone().with_name("half");
                let half = WorkspaceStore::put(&self.store, half, Precondition::MustNotExist).await?;
                tokio::task::yield_now().await;
                (workspace.revision, expect) = (half.revision, Precondition::MustExist);
            }
            (Fault::WorkspaceCreationRaces, Precondition::MustNotExist) if !there => {
                tokio::task::yield_now().await;
                let created =
                    WorkspaceStore::put(&self.store, workspace.clone(), Precondition::MustNotExist).await;
                return if created.is_ok() {
                    created
                } else {
                    WorkspaceStore::put(&self.store, workspace, Precondition::MustExist).await
                };
            }
            (Fault::DescriptionLost, _) => workspace.description = None,
            (Fault::WorkspaceOwnerLost, _) => workspace.owner = None,
            (Fault::WorkspaceFieldsDropped, _) => workspace.extra = RawFields::new(),
            (Fault::PutReplaces, Precondition::MustNotExist) if there => expect = Precondition::MustExist,
            (Fault::PutCreates, Precondition::MustExist | Precondition::Matches(_)) if !there => {
                expect = Precondition::MustNotExist;
            }
            (Fault::DefaultRefused, _) if workspace.id == WorkspaceId::DEFAULT => {
                return Err(Error::new(ErrorKind::InvalidInput, "the default workspace is there already"));
            }
            _ => {}
        }
        let any = self.is(Fault::PutIgnoresTheRevision) && matches!(expect, Precondition::Matches(_));
        let put =
            WorkspaceStore::put(&self.store, workspace, if any { Precondition::MustExist } else { expect })
                .await;
        put.map_err(|error| self.spoiled(error, ""))
    }

    async fn touch(&self, id: WorkspaceId, at: Timestamp) -> Result<()> {
        self.check_workspace(id)?;
        if self.is(Fault::TouchStepsBack) {
            self.shared.touched.lock().unwrap().insert(id, at);
        }
        self.store.touch(id, at).await
    }

    async fn list(&self, mut query: WorkspaceQuery) -> Result<Page<Workspace>> {
        let later = query.cursor.is_some();
        if self.is(Fault::OneWorkspaceForALimitOfZero) {
            query.limit = query.limit.max(1);
        }
        let mut page = WorkspaceStore::list(&self.store, query).await?;
        match self.fault {
            Fault::ListReversed => page.items.reverse(),
            Fault::LaterPagesDropOne if later => page.items.truncate(page.items.len() - 1),
            _ => {}
        }
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
        let text = self.store.load_config(id).await?;
        Ok(text.filter(|text| !(self.is(Fault::EmptyConfigurationIsNone) && text.is_empty())))
    }

    async fn save_config(
        &self,
        id: WorkspaceId,
        text: Option<String>,
        expect: Precondition<ContentHash>,
    ) -> Result<()> {
        if self.is(Fault::ConfigurationRaces) {
            let now = self.store.load_config(id).await?;
            ContentHash::check(expect, now.as_deref(), &"the configuration")?;
            tokio::task::yield_now().await;
            return self.store.save_config(id, text, Precondition::MustExist).await;
        }
        let ignored = self.is(Fault::ConfigurationHashIgnored) && matches!(expect, Precondition::Matches(_));
        self.store.save_config(id, text, if ignored { Precondition::MustExist } else { expect }).await
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
        let bound = self.store.resolve(&self.folded(device)).await?;
        Ok(if self.is(Fault::UnknownDeviceIsDefault) { bound.or(Some(WorkspaceId::DEFAULT)) } else { bound })
    }

    async fn bind(
        &self,
        device: &DeviceId,
        to: WorkspaceId,
        expect: Precondition<WorkspaceId>,
    ) -> Result<WorkspaceId> {
        self.check_bindings()?;
        let device = self.folded(device);
        if self.is(Fault::BindRace) && expect == Precondition::MustNotExist {
            if let Some(bound) = self.store.resolve(&device).await? {
                return Ok(bound);
            }
            tokio::task::yield_now().await;
            return self.store.bind(&device, to, Precondition::None).await;
        }
        match (self.fault, expect) {
            (Fault::StoresTiedTogether, _) => drop(WorkspaceStore::load(&self.store, to).await?),
            (Fault::DroppedBindIsHalfApplied, Precondition::MustNotExist)
                if self.store.resolve(&device).await?.is_none() =>
            {
                self.store.bind(&device, WorkspaceId::DEFAULT, expect).await?;
                tokio::task::yield_now().await;
                return self.store.bind(&device, to, Precondition::None).await;
            }
            (Fault::RebindRaces, Precondition::Matches(old))
                if self.store.resolve(&device).await? == Some(old) =>
            {
                tokio::task::yield_now().await;
                return self.store.bind(&device, to, Precondition::None).await;
            }
            (Fault::BindExpectIgnored, Precondition::Matches(_))
            | (Fault::FirstContactMoves, Precondition::MustNotExist) => {
                return self.store.bind(&device, to, Precondition::None).await;
            }
            (Fault::BindingsRewrittenWhole, _) => {
                let read = self.shared.binds.load(Ordering::SeqCst);
                tokio::task::yield_now().await;
                // What others bound since this one read them all is overwritten.
                let others = self.shared.last_bound.lock().unwrap().clone();
                if let Some(lost) = others.filter(|_| self.shared.binds.load(Ordering::SeqCst) != read) {
                    self.store.unbind(&lost).await?;
                }
                self.shared.binds.fetch_add(1, Ordering::SeqCst);
            }
            _ => {}
        }
        *self.shared.last_bound.lock().unwrap() = Some(device.clone());
        self.store.bind(&device, to, expect).await
    }

    async fn last_session(&self, device: &DeviceId) -> Result<Option<SessionId>> {
        let kept = self.shared.last_sessions.lock().unwrap().get(device).copied();
        match kept.filter(|_| self.is(Fault::LastSessionStays)) {
            Some(session) => Ok(Some(session)),
            None => self.store.last_session(device).await,
        }
    }

    async fn set_last_session(&self, device: &DeviceId, session: SessionId) -> Result<()> {
        if self.store.resolve(device).await?.is_some() {
            self.shared.last_sessions.lock().unwrap().insert(device.clone(), session);
        }
        self.store.set_last_session(device, session).await
    }

    async fn unbind(&self, device: &DeviceId) -> Result<bool> {
        self.check_bindings()?;
        let was_bound = self.store.unbind(&self.folded(device)).await?;
        Ok(was_bound || self.is(Fault::UnbindingReportsTrue))
    }

    async fn unbind_workspace(&self, id: WorkspaceId) -> Result<u64> {
        if self.is(Fault::UnbindingLeavesOne) {
            let bound = BindingStore::list(&self.store, BindingQuery::new().with_workspace(id)).await?.items;
            for binding in bound.iter().skip(1) {
                self.store.unbind(&binding.device).await?;
            }
            return Ok(bound.len() as u64);
        }
        if !self.is(Fault::UnbindErasesANewerBind) {
            return self.store.unbind_workspace(id).await;
        }
        let bound = BindingStore::list(&self.store, BindingQuery::new().with_workspace(id)).await?.items;
        tokio::task::yield_now().await;
        for binding in &bound {
            self.store.unbind(&binding.device).await?;
        }
        Ok(bound.len() as u64)
    }

    async fn list(&self, mut query: BindingQuery) -> Result<Page<Binding>> {
        self.check_bindings()?;
        if self.is(Fault::OneBindingForALimitOfZero) {
            query.limit = query.limit.max(1);
        }
        BindingStore::list(&self.store, query).await
    }
}
