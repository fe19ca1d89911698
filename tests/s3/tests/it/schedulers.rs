//! Two schedulers in two processes over the tenants of a bucket on a real server, one of them killed in the middle.
//! Each session that is due is run, and its work is done once.

use std::process::Child;
use std::sync::Arc;
use std::time::Duration;

use crate::scheduled::{Children, Slow, lost_runs, start};
use agent_core::clock::Effects;
use agent_core::commit::Commit;
use agent_core::event::NewEvent;
use agent_core::model::Timer;
use agent_core::session::NewSession;
use agent_core::state::SessionState;
use agent_core::store::{Capabilities, DeletedTenant, Page, SessionQuery, SessionStoreWrapper};
use agent_core::{
    Backend, Result, SessionId, SessionStore, Storage, TenantId, Timestamp, WorkspaceId, async_trait,
};
use agent_runtime::{AgentBuilder, Config, Retry, Scheduler, SchedulerConfig};
use agent_storage_s3::{S3Config, S3Store};
use s3_servers::{Kind, Server};
use tokio::time::{sleep, timeout};

const TENANTS: usize = 3;
const SESSIONS: usize = 12;
const PARALLEL: usize = 4;
/// Time after which a test is stuck. No test measures it.
const STUCK: Duration = Duration::from_secs(180);
/// Says where the scheduler that is a process of its own finds its store.
const STORE: &str = "AGENT_TEST_SCHEDULED_BUCKET";

/// Says how long a model of that process takes to answer, in milliseconds.
const TAKES: &str = "AGENT_TEST_ANSWER_TAKES";

/// The store with shorter leases than it recommends, so that nobody waits two minutes for one that ends.
#[derive(Debug)]
struct Brief(S3Store);

#[derive(Debug)]
struct BriefSessions(Arc<dyn SessionStore>);

impl SessionStoreWrapper for BriefSessions {
    fn inner(&self) -> &dyn SessionStore {
        &*self.0
    }

    fn capabilities(&self) -> Capabilities {
        self.0.capabilities().with_min_lease(Duration::from_secs(3))
    }
}

#[async_trait]
impl Backend for Brief {
    fn tenant(&self, tenant: &TenantId) -> Storage {
        let storage = self.0.tenant(tenant);
        let brief = BriefSessions(storage.sessions.store().clone());
        storage.with_session_store(Arc::new(brief))
    }

    async fn tenants(&self, after: Option<TenantId>) -> Result<Page<TenantId>> {
        self.0.tenants(after).await
    }

    async fn busy_tenants(&self, until: Timestamp, after: Option<TenantId>) -> Result<Page<TenantId>> {
        self.0.busy_tenants(until, after).await
    }

    async fn delete_tenant(&self, tenant: &TenantId) -> Result<DeletedTenant> {
        self.0.delete_tenant(tenant).await
    }

    async fn close(&self) -> Result<()> {
        Backend::close(&self.0).await
    }
}

async fn open(address: &str) -> Arc<Brief> {
    Arc::new(Brief(S3Config::from_url(address).unwrap().open().await.unwrap()))
}

fn tenant(n: usize) -> TenantId {
    format!("tenant-{n}").parse().unwrap()
}

/// A scheduler as a process of its own; as a test by itself it does nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_scheduler_process() {
    let Ok(address) = std::env::var(STORE) else { return };
    let store = open(&address).await;
    let retry = Retry::new(Duration::from_millis(100), Duration::from_secs(1), 100);
    let config = Config::default().with_lease_ttl(Duration::from_secs(3)).with_retry(retry);
    let storage = store.tenant(&TenantId::default());
    let model = Slow(Duration::from_millis(std::env::var(TAKES).unwrap().parse().unwrap()));
    let agent =
        AgentBuilder::new().with_config(config).with_llm(model).with_storage(storage).build().unwrap();
    let config = SchedulerConfig::new().with_interval(Duration::from_millis(300)).with_max_runs(PARALLEL);
    // Whoever has started it kills it, or has died.
    let run = Scheduler::over(agent, store).with_config(config).run();
    let _ = timeout(STUCK * 2, run).await;
}

fn start_scheduler(address: &str, takes: Duration) -> Child {
    let takes = takes.as_millis().to_string();
    start("schedulers::a_scheduler_process", &[(STORE, address), (TAKES, &takes)])
}

/// Sessions of which each has one thing to do: an input, or a timer that is due.
async fn due_sessions(store: &Brief) -> Vec<(TenantId, SessionId)> {
    let effects = Effects::default();
    let mut made = Vec::new();
    for n in 0..TENANTS * SESSIONS {
        let tenant = tenant(n % TENANTS);
        let new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
        made.push((tenant.clone(), new.id));
        let work = match n % 2 {
            0 => NewEvent::user_message("hello"),
            _ => NewEvent::timer_scheduled(Timer::new("daily", effects.now())),
        };
        let commit = Commit::create(&effects, new).with_event(work);
        store.tenant(&tenant).sessions.commit(commit).await.unwrap();
    }
    made
}

async fn count(store: &Brief, state: SessionState) -> usize {
    let mut found = 0;
    for n in 0..TENANTS {
        let query = SessionQuery::new().with_states([state]);
        found += store.tenant(&tenant(n)).sessions.list(query).await.unwrap().items.len();
    }
    found
}

async fn until(store: &Brief, state: SessionState, least: usize) {
    let wait = async {
        while count(store, state).await < least {
            sleep(Duration::from_millis(200)).await;
        }
    };
    if timeout(STUCK, wait).await.is_err() {
        let (idle, queued) =
            (count(store, SessionState::Idle).await, count(store, SessionState::Queued).await);
        panic!("fewer than {least} sessions are {state}: {idle} are idle and {queued} queued");
    }
}

async fn two_schedulers(kind: Kind) {
    let server = match kind.check().and_then(|()| Server::start(kind)) {
        Ok(server) => server,
        Err(missing) if missing.may_be_passed_over() => return,
        Err(missing) => panic!("{missing}"),
    };
    let address = server.address("schedulers");
    let store = open(&address).await;
    let sessions = due_sessions(&store).await;
    // The first one ends no run before it is killed.
    let mut children = Children(vec![start_scheduler(&address, STUCK * 2)]);
    until(&store, SessionState::Running, 1).await;
    children.0.push(start_scheduler(&address, Duration::from_millis(50)));
    until(&store, SessionState::Idle, SESSIONS).await;
    children.kill(1);
    until(&store, SessionState::Idle, sessions.len()).await;
    children.kill(1);
    let mut lost = 0;
    for (tenant, id) in &sessions {
        lost += lost_runs(&*store.tenant(tenant).sessions, *id).await;
    }
    assert!((1..=PARALLEL as u64).contains(&lost), "{lost} runs began and did not end");
    for n in 0..TENANTS {
        assert_eq!(store.tenant(&tenant(n)).sessions.maintenance().check().await.unwrap(), []);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Ceph; `.ci/full` runs it"]
async fn two_schedulers_on_ceph_do_work_once() {
    two_schedulers(Kind::Ceph).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_schedulers_on_ministack_do_work_once() {
    two_schedulers(Kind::Ministack).await;
}
