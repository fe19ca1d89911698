//! Many schedulers on one store, and some of them killed: each session that is due is run, and its work is done once.

use std::time::Duration;

use agent_core::clock::Effects;
use agent_core::commit::Commit;
use agent_core::event::NewEvent;
use agent_core::model::Timer;
use agent_core::session::NewSession;
use agent_core::state::SessionState;
use agent_core::store::SessionQuery;
use agent_core::{MemoryStore, SessionId, Storage, WorkspaceId};
use agent_runtime::{AgentBuilder, Config, Retry, Scheduler, SchedulerConfig};
use agent_storage_fs::FsStore;
use agent_storage_sqlite::SqliteStore;

use crate::scheduled::{Children, Slow, lost_runs, start};

const SESSIONS: usize = 1000;
const SCHEDULERS: usize = 16;
const KILLED: usize = 3;
const PARALLEL: usize = 4;

/// Says where the scheduler that is a process of its own finds its store.
const STORE: &str = "AGENT_TEST_SCHEDULED_STORE";
const PROCESS: &str = "concurrent_schedulers::a_scheduler_process";

fn scheduler(storage: Storage) -> Scheduler {
    let retry = Retry::new(Duration::from_millis(100), Duration::from_secs(1), 100);
    let config = Config::default().with_lease_ttl(Duration::from_secs(2)).with_retry(retry);
    let agent = AgentBuilder::new()
        .with_config(config)
        .with_llm(Slow(Duration::from_millis(20)))
        .with_storage(storage)
        .build()
        .unwrap();
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

/// Each session was run to its end once, and only runs that were killed began twice.
async fn check(storage: &Storage, sessions: &[SessionId]) {
    let mut lost = 0;
    for id in sessions {
        lost += lost_runs(&*storage.sessions, *id).await;
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

async fn processes(place: &str) {
    let storage = storage_at(place).await;
    let sessions = due_sessions(&storage).await;
    let mut children = Children((0..SCHEDULERS).map(|_| start(PROCESS, &[(STORE, place)])).collect());
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
