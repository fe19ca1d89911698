//! Work of a session without a caller: timers, retries, and the schedulers that run them.

use std::sync::Arc;
use std::time::Duration;

use crate::common::{SetClock, agent_at, check_log, device, dialogue, eventually, read};
use agent_core::event::{EventType, NewEvent};
use agent_core::model::Timer;
use agent_core::state::{Reason, SessionState};
use agent_core::store::{DeletedTenant, Page, ReadEvents};
use agent_core::{Backend, ErrorKind, MemoryStore, Result, SessionStoreExt, Storage, TenantId, async_trait};
use agent_runtime::context::ModelMessage;
use agent_runtime::{
    AgentRuntime, Config, Conversation, EchoProvider, FaultKind, Gate, ProviderFault, Retry, Scheduler,
    ScriptedProvider, Turn,
};
use agent_tests::{Site, each_store};

async fn open(agent: &AgentRuntime, name: &str) -> Conversation {
    agent.open(&device(name)).await.unwrap()
}

const DAY: i64 = 24 * 3600;

/// A timer is stored with its note, key and priority, replaced by a later one of its key, cancelled, and run once
/// when it is due, by the first process that checks; the model is given its note, the higher priority first.
async fn timers_are_scheduled_cancelled_and_run_once(site: Site) {
    let (name, storage) = (site.name, site.open().await);
    let clock = SetClock::new();
    let model = ScriptedProvider::new([Turn::new().text("done"), Turn::new().text("never")]);
    let agent = agent_at(&clock, &storage, model.clone(), Config::default(), []);
    let chat = open(&agent, "laptop").await;
    chat.schedule(Timer::new("daily", clock.in_seconds(5))).await.unwrap();
    let water = Timer::new("daily", clock.in_seconds(60)).with_note("Water the plants.");
    chat.schedule(water).await.unwrap();
    chat.schedule(Timer::new("mail", clock.in_seconds(30)).with_note("Read it.").with_priority(9))
        .await
        .unwrap();
    chat.schedule(Timer::new("wrong", clock.in_seconds(20))).await.unwrap();
    chat.cancel_timer("wrong").await.unwrap();
    chat.cancel_timer("wrong").await.unwrap();
    drop(chat);

    let agent = agent_at(&clock, &storage, model.clone(), Config::default(), []);
    let chat = open(&agent, "laptop").await;
    assert!(agent.run_pending(chat.id()).await.unwrap().is_none(), "{name}: not due yet");
    let scheduler = Scheduler::new(agent.clone());
    clock.forward(25);
    assert_eq!(scheduler.round().await.unwrap().ran, 0, "{name}: cancelled, and not due");
    clock.forward(60);
    assert_eq!(scheduler.round().await.unwrap().ran, 1, "{name}");
    let notices = [
        "The scheduled timer \"mail\" is due. Read it.",
        "The scheduled timer \"daily\" is due. Water the plants.",
    ];
    let notices = notices.map(|text| ModelMessage::System(text.to_owned()));
    assert_eq!(model.requests()[0].messages, notices, "{name}");
    let now = chat.refresh().await.unwrap();
    assert_eq!((now.status.state, now.timers.len(), now.counts.runs), (SessionState::Idle, 0, 1), "{name}");
    clock.forward(10 * DAY);
    assert_eq!(scheduler.round().await.unwrap().ran, 0, "{name}: done once");
    assert!(agent.run_pending(chat.id()).await.unwrap().is_none(), "{name}");
    check_log(&chat).await;

    chat.archive().await.unwrap();
    let error = chat.schedule(Timer::new("late", clock.in_seconds(1))).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::InvalidTransition { .. }), "{name}: {error}");
}

each_store!(timers_are_scheduled_cancelled_and_run_once);

/// What a failed run was for is offered again, after pauses that double, and no more once the limit is reached; then
/// the session has failed and says why, until somebody recovers it, and nothing is lost.
async fn failures_retry_with_back_off_until_the_limit(site: Site) {
    let (name, storage) = (site.name, site.open().await);
    let clock = SetClock::new();
    let model = ScriptedProvider::new([
        Turn::silent().fail("away"),
        Turn::silent().fail("still away"),
        Turn::silent().fail("gone"),
        Turn::new().text("back"),
    ]);
    let retry = Retry::new(Duration::from_secs(10), Duration::from_secs(3600), 3);
    let agent = agent_at(&clock, &storage, model.clone(), Config::default().with_retry(retry), []);
    let chat = open(&agent, "laptop").await;
    chat.send("hello").await.unwrap();
    chat.schedule(Timer::new("daily", clock.in_seconds(-1))).await.unwrap();
    let scheduler = Scheduler::new(agent.clone());
    for (attempt, pause) in [(1, 10), (2, 20)] {
        assert_eq!(scheduler.round().await.unwrap().ran, 1, "{name}");
        let now = chat.refresh().await.unwrap();
        assert_eq!(now.status.reason, Reason::RetryBackoff, "{name}");
        assert_eq!(
            (now.attempts, now.inputs_open, now.timers.len()),
            (attempt, 1, 1),
            "{name}: nothing is lost"
        );
        clock.forward(pause - 2);
        assert_eq!(scheduler.round().await.unwrap().ran, 0, "{name}: backed off");
        clock.forward(3);
    }
    assert_eq!(scheduler.round().await.unwrap().ran, 1, "{name}");
    let now = chat.refresh().await.unwrap();
    assert_eq!((now.status.state, now.attempts), (SessionState::Failed, 3), "{name}");
    assert_eq!(now.failure.as_ref().unwrap().text, "gone", "{name}");
    clock.forward(10 * DAY);
    assert_eq!(scheduler.round().await.unwrap().ran, 0, "{name}: not for ever");
    chat.clear_failure().await.unwrap();
    assert_eq!(scheduler.round().await.unwrap().ran, 1, "{name}");
    let now = chat.refresh().await.unwrap();
    assert_eq!((now.status.state, now.inputs_open, now.timers.len()), (SessionState::Idle, 0, 0), "{name}");
    assert_eq!(dialogue(&chat).await.last().unwrap().1, "back", "{name}");
    check_log(&chat).await;
}

each_store!(failures_retry_with_back_off_until_the_limit);

/// A provider that asks for a longer pause gets it, up to the longest that the host allows.
#[tokio::test]
async fn a_provider_that_asks_for_a_pause_gets_it() {
    let clock = SetClock::new();
    let limited = |seconds| {
        let fault = ProviderFault::new(FaultKind::RateLimited, "slow down");
        Turn::fault(fault.with_retry_after(Duration::from_secs(seconds)))
    };
    let model = ScriptedProvider::new([limited(600), limited(100_000), limited(1)]);
    let retry = Retry::new(Duration::from_secs(10), Duration::from_secs(3600), 5);
    let config = Config::default().with_retry(retry).with_model_retries(0);
    let agent = agent_at(&clock, &MemoryStore::new().into(), model, config, []);
    let chat = open(&agent, "laptop").await;
    chat.send("hello").await.unwrap();
    let scheduler = Scheduler::new(agent);
    for expected in [600, 3600, 40] {
        assert_eq!(scheduler.round().await.unwrap().ran, 1);
        let ready_at = chat.refresh().await.unwrap().ready_at.unwrap();
        let (least, most) = (clock.in_seconds(expected - 1), clock.in_seconds(expected + 1));
        assert!(ready_at > least && ready_at < most, "{expected}: {ready_at}");
        clock.forward(expected + 1);
    }
}

/// A person who is there gets a failure at once, and is not made to wait for a retry.
async fn failed_prompt_is_reported_without_back_off(site: Site) {
    let (name, storage) = (site.name, site.open().await);
    let model = ScriptedProvider::new([Turn::silent().fail("away"), Turn::new().text("back")]);
    let agent = agent_at(&SetClock::new(), &storage, model, Config::default(), []);
    let chat = open(&agent, "laptop").await;
    let (_, report) = read(chat.prompt("hello").await.unwrap()).await;
    assert_eq!(report.status.reason, Reason::RunError, "{name}");
    assert_eq!(read(chat.prompt("again").await.unwrap()).await.0, "back", "{name}");
}

each_store!(failed_prompt_is_reported_without_back_off);

/// A scheduler over tenants looks after each tenant's sessions, and answers where it was asked.
#[tokio::test]
async fn scheduler_serves_all_tenants() {
    let store = MemoryStore::new();
    let clock = SetClock::new();
    let agent = agent_at(&clock, &store.clone().into(), EchoProvider::new(), Config::default(), []);
    let mut chats = Vec::new();
    for n in 0..5 {
        let tenant: TenantId = format!("tenant-{n}").parse().unwrap();
        let chat = open(&agent.for_storage(store.tenant(&tenant)), "laptop").await;
        chat.send(format!("to {n}")).await.unwrap();
        chats.push(chat);
    }
    let scheduler = Scheduler::over(agent, Arc::new(store));
    assert_eq!(scheduler.round().await.unwrap().ran, 5);
    for (n, chat) in chats.iter().enumerate() {
        assert_eq!(dialogue(chat).await.last().unwrap(), &("agent", format!("to {n}")));
    }
}

/// Tenants of one store, of whom one cannot be asked.
#[derive(Debug)]
struct OneDown {
    store: MemoryStore,
    down: crate::common::Faulty,
    /// Whether there is nobody else.
    alone: bool,
}

#[async_trait]
impl Backend for OneDown {
    fn tenant(&self, tenant: &TenantId) -> Storage {
        match tenant.as_str() {
            "tenant-1" => self.down.storage(),
            _ => self.store.tenant(tenant),
        }
    }

    async fn tenants(&self, after: Option<TenantId>) -> Result<Page<TenantId>> {
        let mut page = Backend::tenants(&self.store, after).await?;
        page.items.retain(|tenant| !self.alone || tenant.as_str() == "tenant-1");
        Ok(page)
    }

    async fn delete_tenant(&self, tenant: &TenantId) -> Result<DeletedTenant> {
        self.store.delete_tenant(tenant).await
    }
}

/// A tenant whose stores cannot be asked keeps a scheduler from no other tenant; where none can be asked, it says
/// so.
#[tokio::test]
async fn unavailable_tenant_blocks_no_other() {
    let store = MemoryStore::new();
    let clock = SetClock::new();
    let agent = agent_at(&clock, &store.clone().into(), EchoProvider::new(), Config::default(), []);
    for n in 0..3 {
        let tenant: TenantId = format!("tenant-{n}").parse().unwrap();
        open(&agent.for_storage(store.tenant(&tenant)), "laptop").await.send("hello").await.unwrap();
    }
    let down = crate::common::Faulty::new(store.tenant(&"tenant-1".parse().unwrap()));
    let over = |alone| {
        let tenants = OneDown { store: store.clone(), down: down.clone(), alone };
        Scheduler::over(agent.clone(), Arc::new(tenants))
    };
    let scheduler = over(false);
    down.fail_lists(usize::MAX);
    assert_eq!(scheduler.round().await.unwrap().ran, 2);
    down.fail_lists(0);
    assert_eq!(scheduler.round().await.unwrap().ran, 1);
    down.fail_lists(usize::MAX);
    assert_eq!(*over(true).round().await.unwrap_err().kind(), ErrorKind::Full);
}

/// A holder that goes silent is replaced by a scheduler after its lease, what it ran is backed off and run
/// again; one that beats is left alone however long it takes.
async fn a_silent_holder_is_replaced_and_a_live_one_is_not(site: Site) {
    let (name, storage) = (site.name, site.open().await);
    let clock = SetClock::new();
    let config = || {
        let retry = Retry::new(Duration::from_secs(10), Duration::from_secs(60), 3);
        Config::default().with_lease_ttl(Duration::from_millis(300)).with_retry(retry)
    };
    let faulty = crate::common::Faulty::new(storage.clone());
    let gate = Gate::new();
    let slow = ScriptedProvider::new([Turn::new().gate(&gate).text("slow")]);
    let holder = agent_at(&clock, &faulty.storage(), slow, config(), []);
    let chat = open(&holder, "laptop").await;
    let mut run = chat.prompt("hello").await.unwrap();
    let other = agent_at(&clock, &storage, EchoProvider::new(), config(), []);
    let scheduler = Scheduler::new(other);
    for _ in 0..8 {
        assert_eq!(scheduler.round().await.unwrap().ran, 0, "{name}: it is alive");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(chat.refresh().await.unwrap().status.state, SessionState::Running, "{name}");

    faulty.lose_beats();
    eventually(|| async {
        tokio::time::sleep(Duration::from_millis(20)).await;
        scheduler.round().await.unwrap();
        chat.refresh().await.unwrap().status.reason == Reason::LeaseLost
    })
    .await;
    assert_eq!(chat.record().attempts, 1, "{name}");
    clock.forward(11);
    assert_eq!(scheduler.round().await.unwrap().ran, 1, "{name}");
    assert_eq!(dialogue(&chat).await.last().unwrap(), &("agent", "hello".to_owned()), "{name}");
    gate.open();
    while let Some(update) = run.next().await {
        if let Err(error) = update {
            assert!(matches!(error.kind(), ErrorKind::Fenced { .. }), "{name}: {error}");
        }
    }
    let agent_texts = dialogue(&chat).await.iter().filter(|(who, _)| *who == "agent").count();
    assert_eq!(agent_texts, 1, "{name}: the late one wrote nothing");
    check_log(&chat).await;
}

each_store!(a_silent_holder_is_replaced_and_a_live_one_is_not);

/// A scheduler whose clock is a day ahead or behind ends no live run, and loses no timer: what is scheduled,
/// before, during or after, by any host, is run.
async fn clock_a_day_off_ends_no_run_and_loses_no_timer(site: Site) {
    for off in [-DAY, DAY] {
        let site = Site::new(site.name).await;
        let (name, storage) = (site.name, site.open().await);
        let (clock, wrong) = (SetClock::new(), SetClock::new());
        wrong.forward(off);
        let config = || Config::default().with_lease_ttl(Duration::from_millis(500));
        let gate = Gate::new();
        let model = ScriptedProvider::new([Turn::new().gate(&gate).text("one"), Turn::new(), Turn::new()]);
        let right = agent_at(&clock, &storage, model.clone(), config(), []);
        let chat = open(&right, "laptop").await;
        let run = chat.prompt("hello").await.unwrap();
        let astray = agent_at(&wrong, &storage, model.clone(), config(), []);
        let there = astray.conversation_by_id(chat.id()).await.unwrap();
        let scheduler = Scheduler::new(astray.clone());
        assert_eq!(scheduler.round().await.unwrap().ran, 0, "{name}");
        chat.schedule(Timer::new("right", clock.in_seconds(0))).await.unwrap();
        there.schedule(Timer::new("wrong", wrong.in_seconds(0))).await.unwrap();
        assert_eq!(scheduler.round().await.unwrap().ran, 0, "{name}");
        assert_eq!(chat.refresh().await.unwrap().epoch.get(), 1, "{name}: the run lives");
        gate.open();
        assert_eq!(read(run).await.0, "one", "{name}");
        let now = chat.refresh().await.unwrap();
        assert_eq!(now.timers.len(), 2, "{name}: neither is done with by a run that did not know of it");
        clock.forward(2 * DAY);
        Scheduler::new(right).round().await.unwrap();
        scheduler.round().await.unwrap();
        let now = chat.refresh().await.unwrap();
        assert_eq!((now.timers.len(), now.status.state), (0, SessionState::Idle), "{name}");
        let notices = ReadEvents::last(100).with_types([EventType::SYSTEM_MESSAGE]);
        let notices = storage.sessions.history(chat.id(), notices).await.unwrap().events;
        assert_eq!(notices.len(), 2, "{name}: each notice was given once");
        check_log(&chat).await;
    }
}

each_store!(clock_a_day_off_ends_no_run_and_loses_no_timer and files);

/// A scheduler that is left to itself runs what comes, goes on when the store fails for a while, and ends with the
/// runtime.
async fn a_scheduler_runs_until_the_shutdown(site: Site) {
    let (name, storage) = (site.name, site.open().await);
    let clock = SetClock::new();
    let agent = agent_at(&clock, &storage, EchoProvider::new(), Config::default(), []);
    let config = agent_runtime::SchedulerConfig::new().with_interval(Duration::from_millis(5));
    let task = tokio::spawn(Scheduler::new(agent.clone()).with_config(config).run());
    let chat = open(&agent, "laptop").await;
    for n in 1..=3 {
        chat.send(format!("message {n}")).await.unwrap();
        eventually(|| async { chat.refresh().await.unwrap().counts.agent == n }).await;
    }
    agent.shutdown(Duration::from_secs(5)).await.unwrap();
    task.await.unwrap();
    agent
        .storage()
        .sessions
        .append(chat.id(), chat.record().head, vec![NewEvent::user_message("late")])
        .await
        .unwrap();
    assert_eq!(chat.refresh().await.unwrap().status.state, SessionState::Queued, "{name}");
}

each_store!(a_scheduler_runs_until_the_shutdown);
