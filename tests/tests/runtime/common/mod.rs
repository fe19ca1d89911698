//! Common code of the tests of the runtime: agents, and a store that fails on demand.

pub(crate) mod dying;
pub(crate) mod listening;
mod scene;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use agent_core::commit::{Commit, Committed, Precondition};
use agent_core::event::{Event, EventPayload, ToolResult, ToolUse};
use agent_core::model::Workspace;
use agent_core::session::{SessionRecord, SessionSummary};
use agent_core::store::{
    BlobStore, BlobStoreWrapper, Capabilities, ContentHash, EventPage, LeaseStatus, LeaseStore,
    LeaseStoreWrapper, Page, PutBlob, ReadEvents, SessionQuery, SessionStoreWrapper, WorkspaceQuery,
};
use agent_core::{
    DeviceId, Epoch, Error, ErrorKind, MemoryStore, Result, Revision, Seq, SessionId, SessionStore,
    SessionStoreExt, Storage, Timestamp, WorkspaceId, WorkspaceStore, WriteOutcome, async_trait,
};
use agent_runtime::{Conversation, Queued, Run, RunError, RunReport, Update};
use futures::TryStreamExt;
use tokio::sync::watch;

pub(crate) use scene::{Scene, SetClock, Tools, agent, agent_at, agent_with, awaited, json};

pub(crate) fn device(name: &str) -> DeviceId {
    name.parse().unwrap()
}

/// Time after which a test gives up on a run that does not end.
const DEADLINE: Duration = Duration::from_secs(120);

/// Reads a run to its end; the texts of its updates, and what it came to.
pub(crate) async fn read(run: Run) -> (String, RunReport) {
    let (text, report) = try_read(run).await;
    (text, report.unwrap())
}

/// Prompts, and reads the run to its end.
pub(crate) async fn ask(chat: &Conversation, text: &str) -> (String, RunReport) {
    let answered = async { read(chat.prompt(text).await.unwrap()).await };
    tokio::time::timeout(DEADLINE, answered).await.expect("the run ends")
}

pub(crate) async fn try_read(mut run: Run) -> (String, Result<RunReport>) {
    let mut text = String::new();
    while let Some(update) = run.next().await {
        match update {
            Ok(Update::Text(piece)) => text.push_str(&piece),
            Ok(Update::Ended(report)) => return (text, Ok(*report)),
            Ok(_) => {}
            Err(error) => return (text, Err(error)),
        }
    }
    panic!("the stream ended without an end");
}

/// The input of a run that was not started.
pub(crate) async fn queued(run: Run) -> Queued {
    match run.finish().await {
        Err(RunError::Queued(queued)) => queued,
        other => panic!("it is not queued: {other:?}"),
    }
}

/// Reads a run to its end, if it was started.
pub(crate) async fn ended(run: Run) {
    match run.finish().await {
        Ok(_) | Err(RunError::Queued(_)) => {}
        Err(error) => panic!("{error}"),
    }
}

/// Reads a run until its first text.
pub(crate) async fn until_text(run: &mut Run) -> String {
    loop {
        match run.next().await.expect("the run says something").unwrap() {
            Update::Text(text) => return text,
            Update::Ended(report) => panic!("ended: {report:?}"),
            _ => {}
        }
    }
}

/// The whole history.
pub(crate) async fn log(chat: &Conversation) -> Vec<Event> {
    let sessions = &chat.runtime().storage().sessions;
    sessions.events(chat.id(), Seq::ZERO).try_collect().await.unwrap()
}

/// Messages of user and agent, in the order of the log.
pub(crate) async fn dialogue(chat: &Conversation) -> Vec<(&'static str, String)> {
    let events = log(chat).await;
    events
        .iter()
        .filter_map(|event| match event.decode().unwrap() {
            EventPayload::UserMessage(message) => Some(("user", message.text)),
            EventPayload::AgentMessage(message) => Some(("agent", message.text)),
            _ => None,
        })
        .collect()
}

/// The calls in the log, each with its results.
pub(crate) async fn calls(chat: &Conversation) -> Vec<(ToolUse, Vec<ToolResult>)> {
    let mut calls: Vec<(ToolUse, Vec<ToolResult>)> = Vec::new();
    for event in log(chat).await {
        match event.decode().unwrap() {
            EventPayload::AgentToolUse(call) | EventPayload::AgentCustomToolUse(call) => {
                calls.push((call, Vec::new()));
            }
            EventPayload::AgentToolResult(result) | EventPayload::UserCustomToolResult(result) => {
                let called = calls.iter_mut().rev().find(|(call, _)| call.call == result.call);
                called.expect("no result without its call").1.push(result);
            }
            _ => {}
        }
    }
    calls
}

/// Checks that the record is what the log folds into, and that the log has no gap.
pub(crate) async fn check_log(chat: &Conversation) {
    let events = log(chat).await;
    let now = chat.refresh().await.unwrap();
    for (n, event) in (1..).zip(&events) {
        assert_eq!(event.seq, Seq::new(n));
    }
    let mut folded = SessionRecord::begin(now.id, &events[0]).unwrap();
    for event in &events[1..] {
        folded.apply(event).unwrap();
    }
    assert_eq!(folded, *now);
}

/// Waits, in tokio's time, until `holds`.
pub(crate) async fn eventually<F: Future<Output = bool>>(mut holds: impl FnMut() -> F) {
    for _ in 0..20_000 {
        if holds().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    panic!("it never came to hold");
}

/// A store in memory that keeps no blobs.
#[derive(Debug, Default)]
pub(crate) struct NoBlobs(MemoryStore);

impl NoBlobs {
    pub(crate) fn storage() -> Storage {
        let store = MemoryStore::new();
        let under: Storage = store.clone().into();
        Storage::new(under.workspaces, Arc::new(Self(store)), under.bindings)
    }
}

#[async_trait]
impl SessionStoreWrapper for NoBlobs {
    fn inner(&self) -> &dyn SessionStore {
        &self.0
    }

    fn capabilities(&self) -> Capabilities {
        self.0.capabilities().with_blobs(0)
    }

    fn blobs(&self) -> &dyn BlobStore {
        self
    }
}

#[async_trait]
impl BlobStoreWrapper for NoBlobs {
    fn inner(&self) -> &dyn BlobStore {
        self.0.blobs()
    }

    async fn put(&self, put: PutBlob) -> Result<()> {
        let _ = put;
        Err(Error::new(ErrorKind::Unsupported, "this store keeps no blobs"))
    }
}

/// Stores that fail, or report a holder as dead, on demand.
#[derive(Clone, Debug)]
pub(crate) struct Faulty(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    under: Storage,
    commits_down: AtomicUsize,
    commits_late: AtomicUsize,
    answers_lost: AtomicUsize,
    puts_down: AtomicUsize,
    load_down: Mutex<Option<ErrorKind>>,
    lists_down: AtomicUsize,
    pulses_down: AtomicUsize,
    beats_down: AtomicBool,
    dead: Mutex<Option<Epoch>>,
    commits: AtomicUsize,
    reads: AtomicUsize,
    panics: AtomicUsize,
    held: watch::Sender<bool>,
    slow: Mutex<Duration>,
    at_once: AtomicUsize,
    most_at_once: AtomicUsize,
}

impl Faulty {
    pub(crate) fn new(under: Storage) -> Self {
        Self(Arc::new(Inner {
            under,
            commits_down: AtomicUsize::new(0),
            commits_late: AtomicUsize::new(0),
            answers_lost: AtomicUsize::new(0),
            puts_down: AtomicUsize::new(0),
            load_down: Mutex::default(),
            lists_down: AtomicUsize::new(0),
            pulses_down: AtomicUsize::new(0),
            beats_down: AtomicBool::new(false),
            dead: Mutex::new(None),
            commits: AtomicUsize::new(0),
            reads: AtomicUsize::new(0),
            panics: AtomicUsize::new(0),
            held: watch::Sender::new(false),
            slow: Mutex::default(),
            at_once: AtomicUsize::new(0),
            most_at_once: AtomicUsize::new(0),
        }))
    }

    /// These stores in front of all three of those under them.
    pub(crate) fn storage(&self) -> Storage {
        Storage::new(Arc::new(self.clone()), Arc::new(self.clone()), self.0.under.bindings.clone())
    }

    /// The next so many commits fail.
    pub(crate) fn fail_commits(&self, count: usize) {
        self.0.commits_down.store(count, Ordering::SeqCst);
    }

    /// The next so many commits wait in vain for as long as they may.
    pub(crate) fn time_commits_out(&self, count: usize) {
        self.0.commits_late.store(count, Ordering::SeqCst);
    }

    /// The next so many commits are applied, and their replies are lost.
    pub(crate) fn lose_answers(&self, count: usize) {
        self.0.answers_lost.store(count, Ordering::SeqCst);
    }

    /// The next so many puts of a workspace fail.
    pub(crate) fn fail_puts(&self, count: usize) {
        self.0.puts_down.store(count, Ordering::SeqCst);
    }

    /// The next load of a workspace fails like this.
    pub(crate) fn fail_load(&self, kind: ErrorKind) {
        *self.0.load_down.lock().unwrap() = Some(kind);
    }

    /// The next so many lists of sessions fail.
    pub(crate) fn fail_lists(&self, count: usize) {
        self.0.lists_down.store(count, Ordering::SeqCst);
    }

    /// The next so many checks of a holder fail.
    pub(crate) fn fail_pulses(&self, count: usize) {
        self.0.pulses_down.store(count, Ordering::SeqCst);
    }

    /// Signs of life get lost, as if the process were stopped.
    pub(crate) fn lose_beats(&self) {
        self.0.beats_down.store(true, Ordering::SeqCst);
    }

    /// The holder of this lease is proven dead.
    pub(crate) fn bury(&self, epoch: Epoch) {
        *self.0.dead.lock().unwrap() = Some(epoch);
    }

    /// The next so many commits panic.
    pub(crate) fn panic_commits(&self, count: usize) {
        self.0.panics.store(count, Ordering::SeqCst);
    }

    /// Whether commits wait before anything is done with them.
    pub(crate) fn hold_commits(&self, hold: bool) {
        self.0.held.send_replace(hold);
    }

    /// Whether a commit waits.
    pub(crate) fn holds(&self) -> bool {
        *self.0.held.borrow() && self.0.held.receiver_count() > 0
    }

    /// Commits take so long from now on.
    pub(crate) fn slow_commits(&self, time: Duration) {
        *self.0.slow.lock().unwrap() = time;
    }

    /// The most commits that there ever were at once.
    pub(crate) fn most_at_once(&self) -> usize {
        self.0.most_at_once.load(Ordering::SeqCst)
    }

    pub(crate) fn commits(&self) -> usize {
        self.0.commits.load(Ordering::SeqCst)
    }

    pub(crate) fn reads(&self) -> usize {
        self.0.reads.load(Ordering::SeqCst)
    }
}

fn down(count: &AtomicUsize) -> Result<()> {
    let left = count.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
    match left {
        Ok(_) => Err(Error::new(ErrorKind::Full, "no space is left, says the test")
            .with_outcome(WriteOutcome::NotApplied)),
        Err(_) => Ok(()),
    }
}

#[async_trait]
impl SessionStoreWrapper for Faulty {
    fn inner(&self) -> &dyn SessionStore {
        &*self.0.under.sessions
    }

    async fn commit(&self, commit: Commit) -> Result<Committed> {
        self.0.held.subscribe().wait_for(|held| !held).await.unwrap();
        down(&self.0.commits_down)?;
        down(&self.0.commits_late)
            .map_err(|_| Error::new(ErrorKind::Unavailable, "it is locked, says the test").timed_out())?;
        assert!(down(&self.0.panics).is_ok(), "the store panics, as asked");
        self.0.commits.fetch_add(1, Ordering::SeqCst);
        let at_once = 1 + self.0.at_once.fetch_add(1, Ordering::SeqCst);
        self.0.most_at_once.fetch_max(at_once, Ordering::SeqCst);
        let slow = *self.0.slow.lock().unwrap();
        if !slow.is_zero() {
            tokio::time::sleep(slow).await;
        }
        let committed = self.0.under.sessions.commit(commit).await;
        self.0.at_once.fetch_sub(1, Ordering::SeqCst);
        let committed = committed?;
        down(&self.0.answers_lost).map_err(|_| {
            Error::new(ErrorKind::Unavailable, "the answer was lost, says the test")
                .with_outcome(WriteOutcome::Unknown)
        })?;
        Ok(committed)
    }

    async fn read(&self, id: SessionId, read: ReadEvents) -> Result<EventPage> {
        self.0.reads.fetch_add(1, Ordering::SeqCst);
        self.0.under.sessions.read(id, read).await
    }

    async fn list(&self, query: SessionQuery) -> Result<Page<SessionSummary>> {
        down(&self.0.lists_down)?;
        self.0.under.sessions.list(query).await
    }

    fn leases(&self) -> &dyn LeaseStore {
        self
    }
}

#[async_trait]
impl LeaseStoreWrapper for Faulty {
    fn inner(&self) -> &dyn LeaseStore {
        self.0.under.sessions.leases()
    }

    async fn heartbeat(&self, id: SessionId, epoch: Epoch) -> Result<()> {
        if self.0.beats_down.load(Ordering::SeqCst) {
            return Ok(());
        }
        self.0.under.sessions.leases().heartbeat(id, epoch).await
    }

    async fn status(&self, id: SessionId, epoch: Epoch) -> Result<LeaseStatus> {
        down(&self.0.pulses_down)?;
        let lease_status = self.0.under.sessions.leases().status(id, epoch).await?;
        Ok(LeaseStatus::new(lease_status.heartbeat, *self.0.dead.lock().unwrap() == Some(epoch)))
    }
}

#[async_trait]
impl WorkspaceStore for Faulty {
    async fn load(&self, id: WorkspaceId) -> Result<Workspace> {
        let failed = self.0.load_down.lock().unwrap().take();
        if let Some(kind) = failed {
            return Err(Error::new(kind, "it cannot be read, says the test"));
        }
        self.0.under.workspaces.load(id).await
    }

    async fn put(&self, workspace: Workspace, expect: Precondition<Revision>) -> Result<Workspace> {
        down(&self.0.puts_down)?;
        self.0.under.workspaces.put(workspace, expect).await
    }

    async fn touch(&self, id: WorkspaceId, at: Timestamp) -> Result<()> {
        self.0.under.workspaces.touch(id, at).await
    }

    async fn list(&self, query: WorkspaceQuery) -> Result<Page<Workspace>> {
        self.0.under.workspaces.list(query).await
    }

    async fn delete(&self, id: WorkspaceId) -> Result<()> {
        self.0.under.workspaces.delete(id).await
    }

    async fn load_config(&self, id: WorkspaceId) -> Result<Option<String>> {
        self.0.under.workspaces.load_config(id).await
    }

    async fn save_config(
        &self,
        id: WorkspaceId,
        text: Option<String>,
        expect: Precondition<ContentHash>,
    ) -> Result<()> {
        self.0.under.workspaces.save_config(id, text, expect).await
    }
}
