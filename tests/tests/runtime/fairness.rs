//! Scheduler over tenants: a tenant with much work, or a model that does not answer, delays no other tenant.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::common::{agent_with, device, eventually};
use agent_core::state::SessionState;
use agent_core::store::SessionQuery;
use agent_core::{Backend, MemoryStore, Result, Storage, TenantId, async_trait};
use agent_runtime::context::ModelMessage;
use agent_runtime::{
    AgentRuntime, Config, Conversation, EchoProvider, LlmProvider, ModelRequest, ModelStream, Scheduler,
    SchedulerConfig,
};
use futures::stream::{self, StreamExt};

/// Says nothing to those who say "hang", and repeats what the others say.
#[derive(Clone, Debug, Default)]
struct Silent {
    hanging: Arc<AtomicUsize>,
}

#[async_trait]
impl LlmProvider for Silent {
    fn name(&self) -> &str {
        "silent"
    }

    fn model(&self) -> &str {
        "silent"
    }

    async fn generate(&self, request: ModelRequest) -> Result<ModelStream> {
        if request.messages.last() == Some(&ModelMessage::user("hang")) {
            self.hanging.fetch_add(1, Ordering::SeqCst);
            return Ok(stream::pending().boxed());
        }
        EchoProvider::new().generate(request).await
    }
}

const TENANTS: usize = 50;

fn tenant(name: &str) -> TenantId {
    name.parse().unwrap()
}

/// Sessions of one tenant, each with this input.
async fn sessions(agent: &AgentRuntime, count: usize, text: &str) -> Vec<Conversation> {
    let mut made = Vec::new();
    for n in 0..count {
        let session = agent.open(&device(&format!("device-{n}"))).await.unwrap();
        session.send(text).await.unwrap();
        made.push(session);
    }
    made
}

async fn count(storage: &Storage, state: SessionState) -> u64 {
    let query = SessionQuery::new().with_states([state]).with_limit(1).with_total();
    storage.sessions.list(query).await.unwrap().total.unwrap()
}

/// One tenant whose model is silent in many sessions, and fifty who are all served meanwhile, again and again.
#[tokio::test(start_paused = true)]
async fn quiet_tenants_are_served_beside_a_noisy_one() {
    let store = MemoryStore::new();
    let model = Silent::default();
    // Longer than the test, in simulated time.
    let config = Config::default().with_model_silence(Duration::from_secs(24 * 3600));
    let agent = agent_with(&store.clone().into(), model.clone(), config, []);
    let noisy = agent.for_storage(store.tenant(&tenant("a-noisy")));
    sessions(&noisy, 30, "hang").await;
    let mut quiet = Vec::new();
    for n in 0..TENANTS {
        let agent = agent.for_storage(store.tenant(&tenant(&format!("quiet-{n}"))));
        quiet.extend(sessions(&agent, 1, "hello").await);
    }
    let scheduler = Scheduler::over(agent.clone(), Arc::new(store.clone()))
        .with_config(SchedulerConfig::new().with_interval(Duration::from_millis(5)));
    let task = tokio::spawn(scheduler.run());
    for answers in 1..=3 {
        eventually(async || {
            let served = stream::iter(&quiet)
                .filter(|chat| async { chat.refresh().await.unwrap().counts.agent == answers });
            served.count().await == TENANTS
        })
        .await;
        let running = count(noisy.storage(), SessionState::Running).await;
        assert_eq!((running, model.hanging.load(Ordering::SeqCst)), (4, 4), "half of the places");
        for chat in &quiet {
            chat.send("hello").await.unwrap();
        }
    }
    assert_eq!(count(noisy.storage(), SessionState::Queued).await, 26, "nothing of it is lost");
    agent.shutdown(Duration::ZERO).await.unwrap();
    task.await.unwrap();
}
