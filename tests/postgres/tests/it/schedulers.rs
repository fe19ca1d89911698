//! Schedulers in processes of their own on one database: each session that is due is run once.

use std::sync::Arc;
use std::time::Duration;

use agent_core::clock::Effects;
use agent_core::commit::Commit;
use agent_core::event::NewEvent;
use agent_core::model::Timer;
use agent_core::session::NewSession;
use agent_core::{Backend, SessionId, SessionStore, TenantId, WorkspaceId};
use agent_runtime::{AgentBuilder, Config, Scheduler, SchedulerConfig};
use agent_storage_postgres::{PostgresConfig, PostgresStore};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::Database;
use crate::scheduled::{Children, Slow, lost_runs, start};

/// Variable with the address of the store, for the processes.
const STORE: &str = "AGENT_TEST_SCHEDULED_POSTGRES";
/// Time after which a test is stuck. No test measures it.
const STUCK: Duration = Duration::from_secs(560);
/// Tasks that create sessions.
const WRITERS: usize = 8;

/// Scheduler as a process of its own; as a test by itself it does nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_scheduler_process() {
    let Ok(address) = std::env::var(STORE) else { return };
    let store = Arc::new(PostgresConfig::from_url(&address).unwrap().open().await.unwrap());
    // Longer than the test: no run is taken from a process that is only slow.
    let config = Config::default().with_lease_ttl(STUCK * 2);
    let storage = store.tenant(&TenantId::default());
    let agent = AgentBuilder::new()
        .with_config(config)
        .with_llm(Slow(Duration::from_millis(5)))
        .with_storage(storage);
    let config = SchedulerConfig::new().with_interval(Duration::from_millis(100)).with_max_runs(4);
    // Whoever has started it kills it, or has died.
    let run = Scheduler::over(agent.build().unwrap(), store).with_config(config).run();
    let _ = timeout(STUCK * 2, run).await;
}

/// Creates sessions in three tenants, of which each has one thing to do: an input, or a timer that is due.
async fn due_sessions(store: &PostgresStore, count: usize) -> Vec<(TenantId, SessionId)> {
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        let (store, effects) = (store.clone(), Effects::default());
        writers.spawn(async move {
            let mut made = Vec::new();
            for n in (writer..count).step_by(WRITERS) {
                let tenant: TenantId = format!("tenant-{}", n % 3).parse().unwrap();
                let new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
                let id = new.id;
                let work = match n % 2 {
                    0 => NewEvent::user_message("hello"),
                    _ => NewEvent::timer_scheduled(Timer::new("daily", effects.now())),
                };
                let commit = Commit::create(&effects, new).with_event(work);
                store.for_tenant(&tenant).commit(commit).await.unwrap();
                made.push((tenant, id));
            }
            made
        });
    }
    writers.join_all().await.concat()
}

async fn each_is_run_once(processes: usize, sessions: usize) {
    let database = Database::new().await;
    let store = database.open().await;
    let made = due_sessions(&store, sessions).await;
    assert_eq!(database.due().await, i64::try_from(sessions).unwrap());
    let address = database.address();
    let started = (0..processes).map(|_| start("schedulers::a_scheduler_process", &[(STORE, &address)]));
    let children = Children(started.collect());
    let done = async {
        while database.due().await > 0 {
            sleep(Duration::from_millis(100)).await;
        }
    };
    let is_done = timeout(STUCK, done).await.is_ok();
    assert!(is_done, "{} sessions are still due", database.due().await);
    // They go on looking, and find nothing more.
    sleep(Duration::from_millis(500)).await;
    drop(children);
    for (tenant, id) in made {
        assert_eq!(lost_runs(&store.for_tenant(&tenant), id).await, 0, "a run began and did not end: {id}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn four_schedulers_run_each_session_once() {
    each_is_run_once(4, 400).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes minutes; .ci/full runs it"]
async fn sixteen_schedulers_run_each_of_ten_thousand_sessions_once() {
    each_is_run_once(16, 10_000).await;
}
