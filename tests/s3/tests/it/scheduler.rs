//! Scheduler over the tenants of a bucket: the cost of a check for due work.

use std::sync::Arc;

use agent_core::clock::Effects;
use agent_core::commit::{Commit, LeaseRequest, Trigger};
use agent_core::event::NewEvent;
use agent_core::session::NewSession;
use agent_core::{Backend, TenantId, WorkspaceId};
use agent_runtime::{AgentBuilder, EchoProvider, Scheduler};
use agent_storage_s3::{S3Config, S3Store};
use s3_simulator::{Counts, Simulator};

async fn open(simulator: &Simulator) -> S3Store {
    let option = |config: S3Config, name| config.with_option(name, "any").unwrap();
    let config = ["access_key_id", "secret_access_key", "region"]
        .into_iter()
        .fold(S3Config::new("bucket"), option)
        .with_http_connector(simulator.connector("scheduler"));
    config.open().await.unwrap()
}

/// What a look costs over so many tenants with a session each, of which three run.
async fn cost_of_a_check(tenants: usize) -> Counts {
    let (simulator, effects) = (Simulator::new(1), Effects::default());
    let store = open(&simulator).await;
    let mut last = Vec::new();
    for n in 0..tenants {
        let tenant: TenantId = format!("tenant-{n}").parse().unwrap();
        let storage = store.tenant(&tenant);
        let new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
        last.push((tenant, storage.sessions.commit(Commit::create(&effects, new)).await.unwrap().session));
    }
    // Another program, which knows none of the tenants.
    let store = open(&simulator).await;
    let model = EchoProvider::new();
    let agent = AgentBuilder::new().with_llm(model).with_storage(store.clone()).build().unwrap();
    let scheduler = Scheduler::over(agent, Arc::new(store.clone()));
    let before = simulator.requests();
    assert_eq!(scheduler.round().await.unwrap().ran, 0);
    let idle = simulator.counts_since(before);
    assert_eq!((idle.list, idle.total()), (1, 1), "nobody has anything to do: {idle}");

    for (tenant, session) in &last[tenants - 3..] {
        let lease = LeaseRequest::new("elsewhere", effects.new_run_id());
        let begin = Commit::seal(&effects, session.id, session.head)
            .with_event(NewEvent::user_message("hello"))
            .with_trigger(Trigger::BeginRun(lease));
        store.tenant(tenant).sessions.commit(begin).await.unwrap();
    }
    let before = simulator.requests();
    assert_eq!(scheduler.round().await.unwrap().ran, 0, "they are run elsewhere");
    simulator.counts_since(before)
}

/// A look over a thousand tenants costs one list request, and what those with work would cost alone.
#[tokio::test]
async fn a_check_costs_what_the_busy_tenants_cost() {
    let (few, many) = (cost_of_a_check(3).await, cost_of_a_check(1000).await);
    let of = |counts: &Counts| (counts.get, counts.put, counts.list, counts.delete);
    assert_eq!(of(&few), of(&many), "{few} and {many}");
}
