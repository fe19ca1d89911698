//! Wiring: what is missing is named, and what is there can be reached.

use std::sync::Arc;
use std::time::Duration;

use crate::common::{Scene, agent, device, dialogue, read};
use agent_core::clock::Effects;
use agent_core::{Backend, ErrorKind, MemoryStore, Storage, TenantId, Timestamp, async_trait};
use agent_runtime::{
    AgentBuilder, AgentRuntime, Config, EchoProvider, Plugin, Retry, ScriptedProvider, ToolSpec, Turn,
};
use agent_tests::{Site, each_store};

#[derive(Debug)]
struct Named(&'static str);

#[async_trait]
impl Plugin for Named {
    fn name(&self) -> &str {
        self.0
    }

    fn tools(&self) -> Vec<ToolSpec> {
        vec![ToolSpec::new("look", "looks")]
    }
}

/// One error names everything that is missing.
#[test]
fn every_missing_part_is_named_at_once() {
    let error =
        AgentBuilder::new().with_config(Config::default().with_provider("claude")).build().unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::InvalidInput);
    let text = error.to_string();
    for part in ["workspace store", "session store", "binding store", "provider (with_llm)", "\"claude\""] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

/// A provider that is not there, an ambiguous one, two of one name, bad limits, a tool offered twice.
#[test]
fn builder_names_unknown_provider_and_bad_limits() {
    let text =
        |builder: AgentBuilder| builder.with_storage(MemoryStore::new()).build().unwrap_err().to_string();
    let echo = || Arc::new(EchoProvider::new());
    let scripted = || Arc::new(ScriptedProvider::new([]));
    let unknown =
        text(AgentBuilder::new().with_config(Config::default().with_provider("gemini")).with_llm(echo()));
    assert!(unknown.contains("\"gemini\"") && unknown.contains("echo"), "{unknown}");
    let ambiguous = text(AgentBuilder::new().with_llm(echo()).with_llm(scripted()));
    assert!(ambiguous.contains("choose one of echo, scripted"), "{ambiguous}");
    let twice = text(
        AgentBuilder::new()
            .with_config(Config::default().with_provider("echo"))
            .with_llm(echo())
            .with_llm(echo()),
    );
    assert!(twice.contains("two providers are named echo"), "{twice}");
    let config =
        Config::default().with_max_turns(0).with_holder("").with_lease_ttl(std::time::Duration::ZERO);
    let limits = text(AgentBuilder::new().with_config(config).with_llm(echo()));
    for part in ["model calls", "lease holder", "a lease of 0ns"] {
        assert!(limits.contains(part), "{part}: {limits}");
    }
    let tools = AgentBuilder::new().with_llm(echo()).with_plugin(Named("a")).with_plugin(Named("b"));
    let tools = text(tools);
    assert!(tools.contains("tool look is offered twice, by plugin a and plugin b"), "{tools}");
}

/// A time that no calendar has would overflow where it is added to now.
#[test]
fn builder_names_times_beyond_their_maximum() {
    let (long, retry) = (Duration::from_secs(u64::MAX), Retry::new(Duration::MAX, Duration::MAX, 1));
    let config = Config::default()
        .with_tool_timeout(long)
        .with_model_silence(long)
        .with_answer_timeout(long)
        .with_lease_ttl(long)
        .with_retry(retry);
    let builder = AgentBuilder::new().with_config(config).with_llm(EchoProvider::new());
    let text = builder.with_storage(MemoryStore::new()).build().unwrap_err().to_string();
    for part in [
        "time for a tool call",
        "time for the model",
        "time for an answer",
        "first pause of a retry",
        "longest pause of a retry",
        "a lease of",
        "give at most 3650 days",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

/// One store for all three slots, or three, behave alike.
#[tokio::test]
async fn mixed_backends_behave_like_one() {
    let mixed = AgentBuilder::new()
        .with_llm(EchoProvider::new())
        .with_workspace_store(Arc::new(MemoryStore::new()))
        .with_session_store(Arc::new(MemoryStore::new()))
        .with_binding_store(Arc::new(MemoryStore::new()))
        .build()
        .unwrap();
    let one = agent(&MemoryStore::new().into(), EchoProvider::new());
    for agent in [mixed, one] {
        let chat = agent.open(&device("laptop")).await.unwrap();
        read(chat.prompt("hello").await.unwrap()).await;
        assert_eq!(dialogue(&chat).await, [("user", "hello".to_owned()), ("agent", "hello".to_owned())]);
    }
}

/// Stores, workspaces, providers and configuration can be reached from one handle.
async fn the_host_reaches_everything_from_one_handle(site: Site) {
    let Scene { name, chat, .. } = Scene::echo(&site).await;
    let runtime = chat.runtime();
    assert_eq!(runtime.storage().sessions.load(chat.id()).await.unwrap().id, chat.id(), "{name}");
    assert_eq!(runtime.providers().len(), 1, "{name}");
    assert_eq!(runtime.active_provider().name(), "echo", "{name}");
    assert_eq!(runtime.config().limits.turns, Config::default().limits.turns, "{name}");
    assert!(runtime.workspaces().load(chat.record().workspace).await.is_ok(), "{name}");
    assert!(runtime.effects().now() > agent_core::Timestamp::UNIX_EPOCH, "{name}");
    assert_eq!(runtime.conversation_by_id(chat.id()).await.unwrap().id(), chat.id(), "{name}");
}

each_store!(the_host_reaches_everything_from_one_handle);

/// The same models serve another tenant, and nothing of one is seen by the other.
#[tokio::test]
async fn for_storage_serves_another_tenant() {
    let store = MemoryStore::new();
    let (a, b): (TenantId, TenantId) = ("a".parse().unwrap(), "b".parse().unwrap());
    let model = ScriptedProvider::new([Turn::new().text("for a"), Turn::new().text("for b")]);
    let first = crate::common::agent(&store.tenant(&a), model);
    let second = first.for_storage(store.tenant(&b));
    let chat_a = first.open(&device("laptop")).await.unwrap();
    let chat_b = second.open(&device("laptop")).await.unwrap();
    read(chat_a.prompt("1").await.unwrap()).await;
    read(chat_b.prompt("2").await.unwrap()).await;
    assert_eq!(dialogue(&chat_b).await, [("user", "2".to_owned()), ("agent", "for b".to_owned())]);
    assert_eq!(*second.conversation_by_id(chat_a.id()).await.unwrap_err().kind(), ErrorKind::NotFound);
}

/// Times and ids come from the storage, unless the builder is given others; a runtime keeps its own on another storage.
#[tokio::test]
async fn the_agents_effects_come_before_those_of_a_storage() {
    let storage = |year: i64| {
        let effects = Effects::seeded(1, Timestamp::from_micros(year * 31_557_600_000_000));
        Storage::from(MemoryStore::new()).with_effects(effects)
    };
    let year_of = |agent: &AgentRuntime| agent.effects().now().as_micros() / 31_557_600_000_000;
    let builder = || AgentBuilder::new().with_llm(EchoProvider::new()).with_storage(storage(10));
    let of_storage = builder().build().unwrap();
    assert_eq!(year_of(&of_storage), 10);
    let chat = of_storage.conversation("a").await.unwrap();
    assert_eq!(chat.record().created_at.as_micros() / 31_557_600_000_000, 10, "stored with that time");
    let wrapped = builder().with_session_store(storage(30).sessions.store().clone()).build().unwrap();
    assert_eq!(year_of(&wrapped), 10, "a store that is replaced keeps the effects");
    let own = Effects::seeded(1, Timestamp::from_micros(20 * 31_557_600_000_000));
    let own = builder().with_effects(own).build().unwrap();
    assert_eq!(year_of(&own), 20);
    assert_eq!(year_of(&own.for_storage(storage(30))), 20);
}

/// The parts are object-safe, and can be used from any task.
#[test]
fn the_runtime_is_send_and_sync() {
    fn check<T: Send + Sync + Clone + std::fmt::Debug + 'static>() {}
    check::<agent_runtime::AgentRuntime>();
    check::<agent_runtime::Conversation>();
    check::<agent_runtime::WorkspaceManager>();
    check::<Storage>();
}
