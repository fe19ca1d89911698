//! Panics in code of the host: the run ends at once, the answer so far is kept, and the next prompt works.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use crate::common::{
    Faulty, agent, agent_with, ask, calls, check_log, device, dialogue, eventually, read, try_read,
    until_text,
};
use agent_core::clock::{Clock, Effects};
use agent_core::event::ToolOutcome;
use agent_core::json::RawJson;
use agent_core::model::{Access, Patch, Usage};
use agent_core::session::SessionRecord;
use agent_core::state::{Reason, SessionState};
use agent_core::store::{DeletedTenant, Page};
use agent_core::{Backend, MemoryStore, Result, Storage, TenantId, Timestamp, WorkspaceId, async_trait};
use agent_runtime::context::{ContextLimits, ModelContext};
use agent_runtime::secrets::{Secret, SecretName, SecretSource, Secrets, TenantSecrets};
use agent_runtime::{
    AgentBuilder, AgentRuntime, Config, Conversation, EchoProvider, Gate, LlmProvider, ModelEvent,
    ModelRequest, ModelStream, Plugin, RunOutcome, RunReport, Scheduler, SchedulerConfig, ScriptedProvider,
    StopReason, ToolContext, ToolSpec, Turn,
};
use agent_tests::{Site, each_store};
use futures::future::BoxFuture;
use futures::stream::{self, Stream, StreamExt};

const DEADLINE: Duration = Duration::from_secs(60);

/// Panics when it is dropped.
#[derive(Debug)]
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("a drop of the host panics, as asked");
    }
}

/// Never there; panics when it is dropped.
struct NeverThere(Bomb);

impl Future for NeverThere {
    type Output = Result<()>;

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Pending
    }
}

/// A stream whose drop panics.
struct BadStream(ModelStream, Bomb);

impl Stream for BadStream {
    type Item = Result<ModelEvent>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_next_unpin(cx)
    }
}

/// What of a provider panics, once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    /// As soon as it is asked, before there is a future.
    Ask,
    Cost,
    /// The drop of its stream.
    Drop,
    /// The drop of what its panic carries.
    Payload,
    Nothing,
}

/// Sends `turn` for the first request, and panics; then it is sound.
#[derive(Clone, Debug)]
struct Panicky {
    at: At,
    turn: Turn,
    asked: Arc<AtomicUsize>,
    costs: Arc<AtomicUsize>,
    built: Arc<AtomicBool>,
}

impl Panicky {
    fn new(at: At, turn: Turn) -> Self {
        Self { at, turn, asked: Arc::default(), costs: Arc::default(), built: Arc::default() }
    }
}

impl LlmProvider for Panicky {
    fn name(&self) -> &str {
        assert!(!self.built.load(Ordering::SeqCst), "a run asks for the name, which panics, as asked");
        "panicky"
    }

    fn model(&self) -> &str {
        "panicky"
    }

    fn generate<'life0, 'async_trait>(
        &'life0 self,
        request: ModelRequest,
    ) -> Pin<Box<dyn Future<Output = Result<ModelStream>> + Send + 'async_trait>>
    where
        'life0: 'async_trait,
        Self: 'async_trait,
    {
        if self.asked.fetch_add(1, Ordering::SeqCst) > 0 {
            return Box::pin(async {
                let done = ModelEvent::done(StopReason::EndTurn, Usage::default());
                Ok(stream::iter([Ok(ModelEvent::Text("sound".to_owned())), Ok(done)]).boxed())
            });
        }
        assert!(self.at != At::Ask, "the provider panics when it is asked, as asked");
        Box::pin(async move {
            let stream = ScriptedProvider::new([self.turn.clone()]).generate(request).await?;
            Ok(match self.at {
                At::Drop => BadStream(stream, Bomb).boxed(),
                At::Payload => {
                    stream.chain(futures::stream::once(async { std::panic::panic_any(Bomb) })).boxed()
                }
                _ => stream,
            })
        })
    }

    fn cost(&self, _: Usage) -> Option<agent_core::model::Cost> {
        let first = self.costs.fetch_add(1, Ordering::SeqCst) == 0;
        assert!(self.at != At::Cost || !first, "the cost panics, as asked");
        None
    }
}

async fn open(agent: &AgentRuntime) -> Conversation {
    agent.open(&device("laptop")).await.unwrap()
}

/// The run has failed at once, this was kept of it, and the next prompt is answered.
async fn failed_and_goes_on(chat: &Conversation, kept: &str, name: &str) {
    let now = chat.refresh().await.unwrap();
    assert_eq!((now.status.state, now.status.reason), (SessionState::Idle, Reason::RunError), "{name}");
    assert!(now.failure.as_ref().unwrap().text.contains("panicked"), "{name}: {:?}", now.failure);
    goes_on(chat, kept, name).await;
}

async fn goes_on(chat: &Conversation, kept: &str, name: &str) {
    assert_eq!(chat.refresh().await.unwrap().status.state, SessionState::Idle, "{name}");
    let agent_texts: Vec<_> = dialogue(chat).await.into_iter().filter(|(who, _)| *who == "agent").collect();
    let expected: Vec<_> = Some(kept).filter(|kept| !kept.is_empty()).into_iter().collect();
    assert_eq!(agent_texts.iter().map(|(_, text)| &**text).collect::<Vec<_>>(), expected, "{name}");
    assert_eq!(ask(chat, "again").await.0, "sound", "{name}");
    check_log(chat).await;
}

/// If any part of a provider panics, the run fails at once, and its text so far is kept.
async fn a_provider_that_panics_fails_the_run_at_once(site: Site) {
    let turn = || Turn::new().text("said");
    for (at, turn, kept) in [
        (At::Ask, turn(), ""),
        (At::Cost, turn(), "said"),
        (At::Drop, turn(), "said"),
        (At::Payload, Turn::silent().text("said"), "said"),
        // It panics twice: as it is read, and as it is dropped.
        (At::Drop, Turn::silent().text("said").panic(), "said"),
    ] {
        let site = Site::new(site.name).await;
        let (name, storage) = (format!("{at:?} {}", site.name), site.open().await);
        let config = Config::default().with_record_usage(true);
        let chat = open(&agent_with(&storage, Panicky::new(at, turn.clone()), config, [])).await;
        let (text, report) = ask(&chat, "go").await;
        assert!(matches!(report.outcome, RunOutcome::Failed(_)), "{name}: {:?}", report.outcome);
        assert_eq!(text, kept, "{name}");
        failed_and_goes_on(&chat, kept, &name).await;
    }
}

each_store!(a_provider_that_panics_fails_the_run_at_once and files);

/// A provider whose stream panics as it is dropped does not keep a run from being cancelled, or a silent one from
/// being given up.
async fn stream_that_panics_on_drop_can_be_cancelled(site: Site) {
    let (name, storage) = (site.name, site.open().await);
    let turn = Turn::silent().text("said").gate(&Gate::new());
    let chat = open(&agent(&storage, Panicky::new(At::Drop, turn.clone()))).await;
    let mut run = chat.prompt("go").await.unwrap();
    until_text(&mut run).await;
    run.cancel();
    assert_eq!(read(run).await.1.outcome, RunOutcome::Interrupted, "{name}");
    goes_on(&chat, "said", name).await;

    let agent = agent_with(&storage, Panicky::new(At::Drop, turn), Config::default(), []);
    let chat = agent.new_session(chat.record().workspace, &Patch::new()).await.unwrap();
    let report = read(chat.prompt("go").await.unwrap()).await.1;
    assert!(matches!(report.outcome, RunOutcome::Failed(_)), "{name}: {:?}", report.outcome);
    assert!(chat.refresh().await.unwrap().failure.clone().unwrap().text.contains("silent"), "{name}");
}

each_store!(stream_that_panics_on_drop_can_be_cancelled and files, start_paused = true);

/// An answer whose cost panics is complete: nobody asks for it again.
async fn answer_whose_cost_panics_is_not_requested_again(site: Site) {
    let (name, storage) = (site.name, site.open().await);
    let model = Panicky::new(At::Cost, Turn::new().text("said"));
    let agent = agent_with(&storage, model.clone(), Config::default().with_record_usage(true), []);
    let chat = open(&agent).await;
    chat.send("go").await.unwrap();
    assert_eq!(Scheduler::new(agent).round().await.unwrap().ran, 1, "{name}");
    let now = chat.refresh().await.unwrap();
    assert_eq!((now.attempts, now.inputs_open), (0, 0), "{name}");
    let given = ModelContext::read(&*storage.sessions, &now, ContextLimits::default()).await.unwrap();
    assert_eq!(given.messages().len(), 2, "{name}: it is an answer");
    failed_and_goes_on(&chat, "said", name).await;
    assert_eq!(model.asked.load(Ordering::SeqCst), 2, "{name}");
}

each_store!(answer_whose_cost_panics_is_not_requested_again and files);

/// A cost that cannot be stored does not keep the answer from being stored.
async fn refused_cost_does_not_block_the_answer(site: Site) {
    #[derive(Debug)]
    struct Costly;

    #[async_trait]
    impl LlmProvider for Costly {
        fn name(&self) -> &str {
            "costly"
        }

        fn model(&self) -> &str {
            "costly"
        }

        async fn generate(&self, request: ModelRequest) -> Result<ModelStream> {
            EchoProvider::new().generate(request).await
        }

        fn cost(&self, _: Usage) -> Option<agent_core::model::Cost> {
            Some(agent_core::model::Cost::new("a currency that nobody knows", 1))
        }
    }
    let (name, storage) = (site.name, site.open().await);
    let chat = open(&agent_with(&storage, Costly, Config::default().with_record_usage(true), [])).await;
    let (text, report) = ask(&chat, "hello").await;
    assert_eq!((&*text, report.outcome), ("hello", RunOutcome::Completed(Reason::EndTurn)), "{name}");
    assert_eq!(dialogue(&chat).await.last().unwrap().1, "hello", "{name}");
}

each_store!(refused_cost_does_not_block_the_answer);

/// A run asks no provider for its name: it was asked when the agent was built.
async fn provider_name_is_read_only_at_build(site: Site) {
    let (name, storage) = (site.name, site.open().await);
    let model = Panicky::new(At::Nothing, Turn::new().text("said"));
    let chat = open(&agent(&storage, model.clone())).await;
    model.built.store(true, Ordering::SeqCst);
    assert_eq!(ask(&chat, "go").await.0, "said", "{name}");
}

each_store!(provider_name_is_read_only_at_build);

/// A plugin that panics in every way.
#[derive(Debug)]
struct BadPlugin;

fn never<'a>() -> BoxFuture<'a, Result<()>> {
    Box::pin(NeverThere(Bomb))
}

impl Plugin for BadPlugin {
    fn name(&self) -> &str {
        "bad"
    }

    fn tools(&self) -> Vec<ToolSpec> {
        ["panic", "payload", "never"].map(|name| ToolSpec::new(name, "panics")).into()
    }

    fn call<'life0, 'life1, 'async_trait>(
        &'life0 self,
        tool: &'life1 str,
        _: RawJson,
        _: ToolContext,
    ) -> Pin<Box<dyn Future<Output = Result<RawJson>> + Send + 'async_trait>>
    where
        'life0: 'async_trait,
        'life1: 'async_trait,
        Self: 'async_trait,
    {
        match tool {
            "panic" => panic!("the tool panics before there is a future, as asked"),
            "payload" => Box::pin(async { std::panic::panic_any(Bomb) }),
            _ => Box::pin(async { never().await.map(|()| RawJson::empty_object()) }),
        }
    }

    fn before_run<'life0, 'life1, 'async_trait>(
        &'life0 self,
        _: &'life1 SessionRecord,
    ) -> Pin<Box<dyn Future<Output = Result<()>> + Send + 'async_trait>>
    where
        'life0: 'async_trait,
        'life1: 'async_trait,
        Self: 'async_trait,
    {
        panic!("the hook panics before there is a future, as asked")
    }

    fn after_run<'life0, 'life1, 'life2, 'async_trait>(
        &'life0 self,
        _: &'life1 SessionRecord,
        _: &'life2 RunReport,
    ) -> Pin<Box<dyn Future<Output = Result<()>> + Send + 'async_trait>>
    where
        'life0: 'async_trait,
        'life1: 'async_trait,
        'life2: 'async_trait,
        Self: 'async_trait,
    {
        never()
    }
}

/// Tools and hooks that panic before there is a future, as they are dropped, or in what their panic carries, are
/// isolated: each call has its result, and the run goes on.
async fn plugins_that_panic_in_any_way_are_isolated(site: Site) {
    let (name, storage) = (site.name, site.open().await);
    let turn = ["panic", "payload", "never"]
        .iter()
        .fold(Turn::new(), |turn, tool| turn.call(tool, tool, RawJson::empty_object()));
    let model = ScriptedProvider::new([turn, Turn::new().text("said"), Turn::new().text("sound")]);
    let config = Config::default().with_tool_timeout(Duration::from_secs(1));
    let chat = open(&agent_with(&storage, model, config, [Arc::new(BadPlugin) as _])).await;
    let (text, report) = read(chat.prompt("go").await.unwrap()).await;
    assert_eq!((&*text, report.outcome), ("said", RunOutcome::Completed(Reason::EndTurn)), "{name}");
    let results = calls(&chat).await;
    let outcomes: Vec<_> = results.iter().map(|(_, results)| results[0].outcome).collect();
    assert_eq!(outcomes, [ToolOutcome::Error; 3], "{name}");
    assert!(results[0].1[0].output.get().contains("panicked"), "{name}");
    assert!(results[2].1[0].output.get().contains("longer than"), "{name}");
    goes_on(&chat, "said", name).await;
}

each_store!(plugins_that_panic_in_any_way_are_isolated and files, start_paused = true);

/// A store that panics once, in any commit of a run, costs neither the text nor the session.
async fn a_store_that_panics_once_loses_nothing(site: Site) {
    let (name, under) = (site.name, site.open().await);
    let faulty = Faulty::new(under);
    let gate = Gate::new();
    let model = ScriptedProvider::new([Turn::new().text("said").gate(&gate), Turn::new().text("sound")]);
    let chat = open(&agent(&faulty.storage(), model)).await;
    let mut run = chat.prompt("go").await.unwrap();
    until_text(&mut run).await;
    faulty.panic_commits(1);
    gate.open();
    assert_eq!(read(run).await.1.outcome, RunOutcome::Completed(Reason::EndTurn), "{name}");
    // In the commit that begins a run, too.
    faulty.panic_commits(1);
    goes_on(&chat, "said", name).await;
}

each_store!(a_store_that_panics_once_loses_nothing and files);

/// A clock that panics once, on demand.
#[derive(Debug, Default)]
struct BadClock(AtomicBool);

impl Clock for BadClock {
    fn now(&self) -> Timestamp {
        assert!(!self.0.swap(false, Ordering::SeqCst), "the clock panics, as asked");
        "2026-02-15T10:30:00Z".parse().unwrap()
    }
}

/// A clock that panics once, in the middle of a run, fails the run at once, and its text so far is kept.
async fn a_clock_that_panics_fails_the_run_at_once(site: Site) {
    let (name, storage) = (site.name, site.open().await);
    let (clock, gate) = (Arc::new(BadClock::default()), Gate::new());
    let model = ScriptedProvider::new([Turn::new().text("said").gate(&gate), Turn::new().text("sound")]);
    let agent = AgentBuilder::new()
        .with_llm(model)
        .with_storage(storage)
        .with_effects(Effects::default().with_clock(clock.clone()))
        .build()
        .unwrap();
    let chat = open(&agent).await;
    let mut run = chat.prompt("go").await.unwrap();
    until_text(&mut run).await;
    clock.0.store(true, Ordering::SeqCst);
    gate.open();
    let (_, end) = try_read(run).await;
    assert!(end.unwrap_err().to_string().contains("panicked"), "{name}");
    failed_and_goes_on(&chat, "said", name).await;
}

each_store!(a_clock_that_panics_fails_the_run_at_once and files);

/// A source of secrets that panics.
#[derive(Debug)]
struct BadSource;

#[async_trait]
impl SecretSource for BadSource {
    async fn secret(&self, _: WorkspaceId, _: &SecretName) -> Result<Option<Secret>> {
        panic!("the source of secrets panics, as asked")
    }
}

/// A source of secrets that panics has no value to give, and the run goes on.
async fn a_source_of_secrets_that_panics_fails_no_run(site: Site) {
    let (name, storage) = (site.name, site.open().await);
    let agent = agent(&storage, EchoProvider::new()).with_secrets(Secrets::new(BadSource));
    let chat = open(&agent).await;
    let secret: SecretName = "github".parse().unwrap();
    let mount = Patch::new().mount(secret.resource(), Access::Read);
    let chat = agent.new_session(chat.record().workspace, &mount).await.unwrap();
    let (text, report) = ask(&chat, "hello").await;
    assert_eq!((&*text, report.outcome), ("hello", RunOutcome::Completed(Reason::EndTurn)), "{name}");
}

each_store!(a_source_of_secrets_that_panics_fails_no_run and files);

/// Tenants of which one panics, and secrets that panic for another.
#[derive(Debug)]
struct BadTenants(MemoryStore);

#[async_trait]
impl Backend for BadTenants {
    fn tenant(&self, tenant: &TenantId) -> Storage {
        assert!(tenant.as_str() != "tenant-0", "the tenants panic, as asked");
        self.0.tenant(tenant)
    }

    async fn tenants(&self, after: Option<TenantId>) -> Result<Page<TenantId>> {
        Backend::tenants(&self.0, after).await
    }

    async fn delete_tenant(&self, tenant: &TenantId) -> Result<DeletedTenant> {
        self.0.delete_tenant(tenant).await
    }
}

impl TenantSecrets for BadTenants {
    fn of(&self, tenant: &TenantId) -> Option<Secrets> {
        assert!(tenant.as_str() != "tenant-1", "the secrets panic, as asked");
        let secrets: BTreeMap<SecretName, Secret> = BTreeMap::new();
        Some(Secrets::new(secrets))
    }
}

/// A tenant for whom the host's code panics keeps a scheduler from no other tenant.
#[tokio::test]
async fn panic_for_one_tenant_blocks_no_other() {
    let store = MemoryStore::new();
    let agent = agent(&store.clone().into(), EchoProvider::new());
    let mut chats = Vec::new();
    for n in 0..3 {
        let tenant: TenantId = format!("tenant-{n}").parse().unwrap();
        let chat = open(&agent.for_storage(store.tenant(&tenant))).await;
        chat.send("hello").await.unwrap();
        chats.push(chat);
    }
    let bad = Arc::new(BadTenants(store));
    let scheduler = Scheduler::over(agent.clone(), bad.clone()).with_secrets(bad);
    let config = SchedulerConfig::new().with_interval(Duration::from_millis(5));
    let task = tokio::spawn(scheduler.with_config(config).run());
    eventually(async || chats[2].refresh().await.unwrap().counts.agent == 1).await;
    assert_eq!(chats[0].refresh().await.unwrap().counts.agent, 0);
    agent.shutdown(Duration::from_secs(5)).await.unwrap();
    tokio::time::timeout(DEADLINE, task).await.expect("it ends").unwrap();
}
