//! A process that dies in the middle of its work, seen from its store.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use agent_core::commit::{Commit, Committed, Step};
use agent_core::event::{EventType, NewEvent};
use agent_core::session::{SessionRecord, SessionSummary};
use agent_core::store::{
    BlobStore, Capabilities, Damaged, EventPage, LeaseStatus, LeaseStore, Maintenance, Page, Purge, Purged,
    ReadEvents, SessionQuery,
};
use agent_core::{
    Epoch, Error, ErrorKind, Result, Seq, SessionId, SessionStore, Storage, WriteOutcome, async_trait,
};

/// A session store that dies: from some call on nothing gets through any more.
#[derive(Debug)]
pub(crate) struct Dying {
    under: Arc<dyn SessionStore>,
    left: AtomicUsize,
    applied: AtomicBool,
    dead: AtomicBool,
    noting: Mutex<Option<SessionId>>,
}

impl Dying {
    pub(crate) fn new(storage: &Storage) -> Arc<Self> {
        Arc::new(Self {
            under: storage.sessions.store().clone(),
            left: AtomicUsize::new(usize::MAX),
            applied: false.into(),
            dead: false.into(),
            noting: Mutex::default(),
        })
    }

    pub(crate) fn storage(self: &Arc<Self>, storage: &Storage) -> Storage {
        Storage::new(storage.workspaces.clone(), self.clone(), storage.bindings.clone())
    }

    /// Dies in the call number `call` from now on, before or after that took effect.
    pub(crate) fn die_in(&self, call: usize, applied: bool) {
        self.left.store(call, Ordering::SeqCst);
        self.applied.store(applied, Ordering::SeqCst);
    }

    /// Dies when it is to record in this child's log that the parent has its report.
    pub(crate) fn die_before_noting(&self, child: SessionId) {
        *self.noting.lock().unwrap() = Some(child);
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.dead.load(Ordering::SeqCst)
    }

    /// Whether this call still takes effect, and whether anybody hears of it.
    fn call(&self) -> (bool, bool) {
        if self.is_dead() {
            return (false, false);
        }
        let left = self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        if left.is_ok() {
            return (true, true);
        }
        self.dead.store(true, Ordering::SeqCst);
        (self.applied.load(Ordering::SeqCst), false)
    }
}

fn dead(applied: bool) -> Error {
    let outcome = if applied { WriteOutcome::Unknown } else { WriteOutcome::NotApplied };
    Error::new(ErrorKind::Poisoned, "the process has died, says the test").with_outcome(outcome)
}

macro_rules! unless_dead {
    ($self:ident, $call:expr) => {{
        let (runs, replies) = $self.call();
        let result = if runs { $call.await } else { return Err(dead(false)) };
        if replies { result } else { Err(dead(true)) }
    }};
}

#[async_trait]
impl SessionStore for Dying {
    async fn commit(&self, commit: Commit) -> Result<Committed> {
        let notes = commit.steps.iter().any(
            |step| matches!(step, Step::Event(NewEvent { kind, .. }) if *kind == EventType::SESSION_REPORTED),
        );
        if notes && *self.noting.lock().unwrap() == Some(commit.session) {
            self.dead.store(true, Ordering::SeqCst);
        }
        unless_dead!(self, self.under.commit(commit))
    }

    async fn load(&self, id: SessionId) -> Result<Arc<SessionRecord>> {
        unless_dead!(self, self.under.load(id))
    }

    async fn read(&self, id: SessionId, read: ReadEvents) -> Result<EventPage> {
        unless_dead!(self, self.under.read(id, read))
    }

    async fn list(&self, query: SessionQuery) -> Result<Page<SessionSummary>> {
        unless_dead!(self, self.under.list(query))
    }

    async fn purge(&self, purge: Purge) -> Result<Purged> {
        unless_dead!(self, self.under.purge(purge))
    }

    fn capabilities(&self) -> Capabilities {
        self.under.capabilities()
    }

    /// Not counted: a run looks for changes as often as it likes.
    async fn changed(&self, id: SessionId, seen: Seq) -> Result<Seq> {
        self.under.changed(id, seen).await
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
impl LeaseStore for Dying {
    async fn heartbeat(&self, id: SessionId, epoch: Epoch) -> Result<()> {
        if self.is_dead() { Ok(()) } else { self.under.leases().heartbeat(id, epoch).await }
    }

    async fn status(&self, id: SessionId, epoch: Epoch) -> Result<LeaseStatus> {
        unless_dead!(self, self.under.leases().status(id, epoch))
    }
}

#[async_trait]
impl BlobStore for Dying {
    async fn put(&self, put: agent_core::store::PutBlob) -> Result<()> {
        unless_dead!(self, self.under.blobs().put(put))
    }

    async fn read(&self, read: agent_core::store::ReadBlob) -> Result<agent_core::store::BlobContent> {
        unless_dead!(self, self.under.blobs().read(read))
    }

    async fn list(&self, query: agent_core::store::BlobQuery) -> Result<Page<agent_core::store::BlobInfo>> {
        unless_dead!(self, self.under.blobs().list(query))
    }

    async fn sweep(&self, sweep: agent_core::store::SweepBlobs) -> Result<agent_core::store::SweptBlobs> {
        unless_dead!(self, self.under.blobs().sweep(sweep))
    }
}

#[async_trait]
impl Maintenance for Dying {
    async fn check(&self) -> Result<Vec<Damaged>> {
        unless_dead!(self, self.under.maintenance().check())
    }

    async fn rebuild(&self) -> Result<agent_core::store::Rebuilt> {
        unless_dead!(self, self.under.maintenance().rebuild())
    }
}
