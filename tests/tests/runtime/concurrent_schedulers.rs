//! Many schedulers on one store, and some of them killed: each session that is due is run, and its work is done once.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use agent_core::clock::Effects;
use agent_core::commit::Commit;
use agent_core::event::{EventType, NewEvent};
use agent_core::model::{Timer, Usage};
use agent_core::session::NewSession;
use agent_core::state::{SessionState, TriggerKind};
use agent_core::store::{ReadEvents, SessionQuery};
use agent_core::{MemoryStore, Result, SessionId, SessionStoreExt, Storage, WorkspaceId, async_trait};
use agent_runtime::{
    AgentBuilder, Config, LlmProvider, ModelEvent, ModelRequest, ModelStream, Retry, Scheduler,
    SchedulerConfig, StopReason,
};
use agent_storage_fs::FsStore;
use agent_storage_sqlite::SqliteStore;
use futures::{StreamExt, stream};

const SESSIONS: usize = 1000;
const SCHEDULERS: usize = 16;
const KILLED: usize = 3;
const PARALLEL: usize = 4;

/// Says where the scheduler that is a process of its own finds its store.
const STORE: &str = "AGENT_TEST_SCHEDULED_STORE";

/// Takes a moment, so that whoever is killed is killed in the middle.
#[derive(Debug)]
struct Slow;

#[async_trait]
impl LlmProvider for Slow {
    fn name(&self) -> &str {
        "slow"
    }

    fn model(&self) -> &str {
        "slow"
    }

    async fn generate(&self, _: ModelRequest) -> Result<ModelStream> {
        tokio::time::sleep(Duration::from_millis(20)).await;
        let said =
            [ModelEvent::Text("done".to_owned()), ModelEvent::done(StopReason::EndTurn, Usage::default())];
        Ok(stream::iter(said.map(Ok)).boxed())
    }
}

fn scheduler(storage: Storage) -> Scheduler {
    let retry = Retry::new(Duration::from_millis(100), Duration::from_secs(1), 100);
    let config = Config::default().with_lease_ttl(Duration::from_secs(2)).with_retry(retry);
    let agent = AgentBuilder::new().with_config(config).with_llm(Slow).with_storage(storage).build().unwrap();
    let config = SchedulerConfig::new()
        .with_interval(Duration::from_millis(200))
        .with_max_runs(PARALLEL)
        .with_page_size(100);
    Scheduler::new(agent).with_config(config)
}

async fn storage_at(place: &str) -> Storage {
    match place.split_once(':').unwrap() {
        ("files", path) => FsStore::open(path).await.unwrap().into(),
        ("sqlite", path) => SqliteStore::open(path).await.unwrap().into(),
        other => panic!("no such store: {other:?}"),
    }
}

/// A scheduler as a process of its own; as a test by itself it does nothing.
#[tokio::test]
async fn a_scheduler_process() {
    if let Ok(place) = std::env::var(STORE) {
        scheduler(storage_at(&place).await).run().await;
    }
}

/// Sessions of which each has one thing to do: an input, or a timer that is due.
async fn due_sessions(storage: &Storage) -> Vec<SessionId> {
    let effects = Effects::default();
    let mut made = Vec::new();
    for n in 0..SESSIONS {
        let new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
        made.push(new.id);
        let work = match n % 2 {
            0 => NewEvent::user_message("hello"),
            _ => NewEvent::timer_scheduled(Timer::new("daily", effects.now())),
        };
        storage.sessions.commit(Commit::create(&effects, new).with_event(work)).await.unwrap();
    }
    made
}

async fn count(storage: &Storage, states: &[SessionState]) -> u64 {
    let query = SessionQuery::new().with_states(states.iter().copied()).with_limit(1).with_total();
    storage.sessions.list(query).await.unwrap().total.unwrap()
}

async fn until_idle(storage: &Storage, least: u64) {
    for _ in 0..2400 {
        if count(storage, &[SessionState::Idle]).await >= least {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let left = count(storage, &[SessionState::Queued]).await;
    let running = count(storage, &[SessionState::Running]).await;
    panic!("after two minutes {left} sessions are queued and {running} running");
}

/// Each session was run to its end once: one answer, one end, nothing left; and only runs that were killed began twice.
async fn check(storage: &Storage, sessions: &[SessionId]) {
    let mut lost = 0;
    for id in sessions {
        let now = storage.sessions.load(*id).await.unwrap();
        assert_eq!((now.status.state, now.inputs_open, now.timers.len()), (SessionState::Idle, 0, 0), "{id}");
        let events = storage.sessions.history(*id, ReadEvents::last(1000)).await.unwrap().events;
        let answers = events.iter().filter(|event| event.kind == EventType::AGENT_MESSAGE).count();
        assert_eq!(answers, 1, "{id} was answered {answers} times");
        let ends = events.iter().filter(|event| {
            event.transition().unwrap().is_some_and(|change| change.trigger == TriggerKind::EndRun)
        });
        assert_eq!(ends.count(), 1, "{id}");
        lost += now.counts.runs - 1;
    }
    assert!(lost <= (KILLED * PARALLEL) as u64, "{lost} runs began and did not end");
}

/// Sixteen schedulers in one process.
#[test]
fn sixteen_schedulers_in_memory_do_work_once() {
    let store = MemoryStore::new();
    let storage: Storage = store.clone().into();
    let main = tokio::runtime::Runtime::new().unwrap();
    let sessions = main.block_on(due_sessions(&storage));
    let mut runtimes: Vec<_> = (0..SCHEDULERS)
        .map(|_| {
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
            let runtime = runtime.unwrap();
            runtime.spawn(scheduler(store.clone().into()).run());
            runtime
        })
        .collect();
    main.block_on(until_idle(&storage, 100));
    // All that they do stops in the middle; nobody gives a sign of life for them, or an end.
    runtimes.drain(..KILLED).for_each(tokio::runtime::Runtime::shutdown_background);
    main.block_on(until_idle(&storage, SESSIONS as u64));
    runtimes.into_iter().for_each(tokio::runtime::Runtime::shutdown_background);
    main.block_on(check(&storage, &sessions));
}

fn start(place: &str) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "concurrent_schedulers::a_scheduler_process", "--nocapture"])
        .env(STORE, place)
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

/// Ends what it started also where the test fails.
struct Children(Vec<Child>);

impl Children {
    fn kill(&mut self, count: usize) {
        for mut child in self.0.drain(..count.min(self.0.len())) {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
}

impl Drop for Children {
    fn drop(&mut self) {
        self.kill(SCHEDULERS);
    }
}

async fn processes(place: &str) {
    let storage = storage_at(place).await;
    let sessions = due_sessions(&storage).await;
    let mut children = Children((0..SCHEDULERS).map(|_| start(place)).collect());
    until_idle(&storage, 100).await;
    children.kill(KILLED);
    until_idle(&storage, SESSIONS as u64).await;
    children.kill(SCHEDULERS);
    check(&storage, &sessions).await;
}

/// Sixteen processes on one folder, three of them killed in the middle.
#[tokio::test]
async fn sixteen_schedulers_on_files_do_work_once() {
    let folder = tempfile::tempdir().unwrap();
    processes(&format!("files:{}", folder.path().display())).await;
}

/// Sixteen processes on one database file, three of them killed in the middle.
#[tokio::test]
async fn sixteen_schedulers_on_sqlite_do_work_once() {
    let folder = tempfile::tempdir().unwrap();
    processes(&format!("sqlite:{}", folder.path().join("agent.db").display())).await;
}
