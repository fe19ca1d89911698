//! Requests to a model: options of the configuration, what a model takes, and wrappers of providers.

use std::collections::BTreeMap;
use std::sync::Arc;

use agent_core::json::RawJson;
use agent_core::model::Cost;
use agent_core::{MemoryStore, Result, SessionStoreExt, Storage, async_trait};
use agent_runtime::{
    AgentBuilder, AgentRuntime, Config, EchoProvider, Effort, FaultKind, LlmProvider, MediaKind,
    ModelCapabilities, ModelEvent, ModelRequest, ModelStream, ProviderFault, RunError, ScriptedProvider,
    StopReason, ToolChoice, Turn, Usage, tool,
};
use agent_tests::{Site, each_store};
use futures::TryStreamExt;
use serde_json::Value;

const SCHEMA: &str = r#"{"type":"object","properties":{"city":{"type":"string"}}}"#;

fn agent(storage: &Storage, model: impl LlmProvider, config: Config) -> AgentRuntime {
    let search = |_: BTreeMap<String, Value>, _| async move { Ok::<_, String>("found") };
    let builder = AgentBuilder::new().with_config(config).with_llm(model);
    builder.with_tool(tool("search", "Search", search)).with_storage(storage.clone()).build().unwrap()
}

fn config() -> Config {
    Config::new()
        .with_tool_choice(ToolChoice::Tool("search".to_owned()))
        .with_output_schema(RawJson::constant(SCHEMA))
        .with_effort(Effort::High)
}

fn called_once() -> ScriptedProvider {
    let search = Turn::new().call("1", "search", RawJson::empty_object());
    ScriptedProvider::new([search, Turn::new().text("{}"), Turn::new().text("{}")])
}

#[tokio::test]
async fn options_of_the_configuration_reach_the_model() {
    let model = called_once();
    let agent = agent(&MemoryStore::new().into(), model.clone(), config());
    let chat = agent.conversation("key").await.unwrap();
    for text in ["one", "two"] {
        chat.prompt(text).await.unwrap().finish().await.unwrap();
    }
    let requests = model.requests();
    let choices: Vec<_> = requests.iter().map(|request| request.tool_choice.clone()).collect();
    let search = ToolChoice::Tool("search".to_owned());
    assert_eq!(choices, [search.clone(), ToolChoice::Auto, search], "results end the choice of a tool");
    for request in requests {
        assert_eq!(request.effort, Some(Effort::High));
        assert_eq!(request.output_schema.unwrap().get(), SCHEMA);
        assert_eq!(request.tools.len(), 2, "its own, and the one that reads outputs");
    }
    // Without options a request has none.
    let model = called_once();
    let agent = self::agent(&MemoryStore::new().into(), model.clone(), Config::new());
    agent.conversation("key").await.unwrap().prompt("one").await.unwrap().finish().await.unwrap();
    let plain = &model.requests()[0];
    assert_eq!((&plain.tool_choice, &plain.output_schema, plain.effort), (&ToolChoice::Auto, &None, None));
}

#[tokio::test]
async fn kept_configurations_keep_the_options() {
    let storage = Storage::from(MemoryStore::new());
    let first = agent(&storage, called_once(), config().with_freeze_config(true));
    first.conversation("key").await.unwrap().prompt("one").await.unwrap().finish().await.unwrap();
    let model = ScriptedProvider::new([Turn::new().text("{}")]);
    let other = agent(&storage, model.clone(), Config::new().with_effort(Effort::Low));
    other.conversation("key").await.unwrap().prompt("two").await.unwrap().finish().await.unwrap();
    let request = &model.requests()[0];
    assert_eq!((request.effort, request.output_schema.is_some()), (Some(Effort::High), true));
    assert_eq!(request.tool_choice, ToolChoice::Tool("search".to_owned()));
}

#[tokio::test]
async fn a_model_gets_only_what_it_takes() {
    let plain = ModelCapabilities::new().with_tools(false);
    let model = called_once().with_capabilities(plain);
    let config = Config::new().with_tool_choice(ToolChoice::Required);
    let chat = agent(&MemoryStore::new().into(), model.clone(), config).conversation("key").await.unwrap();
    chat.prompt("one").await.unwrap().finish().await.unwrap();
    let first = &model.requests()[0];
    assert!(first.tools.is_empty() && first.tool_choice == ToolChoice::Auto);
    // A schema is not left out: the host would read a text that does not follow it.
    let model = called_once().with_capabilities(ModelCapabilities::new());
    let chat =
        agent(&MemoryStore::new().into(), model.clone(), self::config()).conversation("key").await.unwrap();
    let Err(RunError::Failed(report)) = chat.prompt("one").await.unwrap().finish().await else {
        panic!("a schema that the model does not take")
    };
    assert_eq!((report.fault(), model.requests().len()), (Some(FaultKind::InvalidRequest), 0));
}

#[test]
fn bad_options_are_refused_when_the_agent_is_built() {
    let unknown = Config::new().with_tool_choice(ToolChoice::Tool("other".to_owned()));
    let schema = Config::new().with_output_schema(RawJson::constant("[]"));
    let name = Config::new().with_agent_name("");
    for (config, text) in [(unknown, "\"other\""), (schema, "output schema"), (name, "agent name")] {
        let builder = AgentBuilder::new().with_config(config).with_llm(EchoProvider::new());
        let error = builder.with_storage(MemoryStore::new()).build().unwrap_err();
        assert!(error.to_string().contains(text), "{error}");
    }
}

/// Provider with an own version of every method.
#[derive(Debug)]
struct Own {
    capabilities: Option<ModelCapabilities>,
}

fn usage() -> Usage {
    Usage::new(100, 20).with_cache(60, 30).with_reasoning(15)
}

#[async_trait]
impl LlmProvider for Own {
    fn name(&self) -> &str {
        "own"
    }

    fn model(&self) -> &str {
        "own-1"
    }

    fn capabilities(&self) -> ModelCapabilities {
        self.capabilities.clone().expect("a panic of the provider")
    }

    fn rendering(&self) -> &str {
        "own/7"
    }

    async fn generate(&self, _: ModelRequest) -> Result<ModelStream> {
        let events = [ModelEvent::Text("so".to_owned()), ModelEvent::done(StopReason::EndTurn, usage())];
        Ok(Box::pin(futures::stream::iter(events.map(Ok))))
    }

    fn cost(&self, usage: Usage) -> Option<Cost> {
        let fresh = usage.input_tokens - usage.cache_read_tokens;
        Some(Cost::new("USD", 10 * fresh + usage.cache_read_tokens + usage.reasoning_tokens))
    }
}

#[tokio::test]
async fn wrappers_forward_every_method() {
    let capabilities = ModelCapabilities::new().with_media([MediaKind::Image]).with_parallel_calls(true);
    let own = Arc::new(Own { capabilities: Some(capabilities.clone()) });
    let wrapped: Arc<Arc<dyn LlmProvider>> = Arc::new(own);
    assert_eq!((wrapped.name(), wrapped.model(), wrapped.rendering()), ("own", "own-1", "own/7"));
    assert_eq!(wrapped.capabilities(), capabilities);
    assert_eq!(LlmProvider::cost(&wrapped, usage()), Some(Cost::new("USD", 475)));
    let stream = wrapped.generate(ModelRequest::new(Vec::new())).await.unwrap();
    assert_eq!(stream.try_collect::<Vec<_>>().await.unwrap().len(), 2);
    // A method that is added with a default is not lost in a wrapper.
    let source = include_str!("../../../agent-runtime/src/model/provider.rs");
    let methods = |from: &str| {
        let (_, rest) = source.split_once(from).unwrap();
        let body = rest.split_once("\n}\n").unwrap().0;
        let lines =
            body.lines().filter(|line| line.starts_with("    fn ") || line.starts_with("    async fn "));
        lines.map(|line| line.split_once("fn ").unwrap().1.split_once('(').unwrap().0).collect::<Vec<_>>()
    };
    let offered = methods("pub trait LlmProvider");
    assert!(offered.len() >= 6, "{offered:?}");
    assert_eq!(offered, methods("LlmProvider for Arc<P> {"));
}

#[tokio::test]
async fn a_panic_in_capabilities_fails_the_run() {
    let chat = agent(&MemoryStore::new().into(), Own { capabilities: None }, Config::new());
    let chat = chat.conversation("key").await.unwrap();
    let Err(RunError::Failed(report)) = chat.prompt("one").await.unwrap().finish().await else {
        panic!("the provider panicked")
    };
    assert_eq!(report.fault(), Some(FaultKind::Other));
}

#[tokio::test]
async fn usage_of_a_cut_answer_is_counted() {
    let so_far = |tokens| ModelEvent::Usage(Usage::new(tokens, 0).with_cache(7, 0));
    let lost = ProviderFault::new(FaultKind::Network, "connection reset");
    let model = ScriptedProvider::new([
        Turn::silent().event(so_far(100)).event(so_far(120)).text("It is ").cut(lost),
        // The end has the whole usage.
        Turn::new().event(so_far(100)).text("fine"),
    ]);
    let chat = agent(&MemoryStore::new().into(), model, Config::new()).conversation("key").await.unwrap();
    let Err(RunError::Failed(report)) = chat.prompt("one").await.unwrap().finish().await else {
        panic!("the answer was cut")
    };
    assert_eq!(report.usage, Usage::new(120, 0).with_cache(7, 0));
    assert_eq!(chat.prompt("two").await.unwrap().finish().await.unwrap().usage, Usage::new(1, 1));
}

/// Tokens of caches and of reasoning are counted, priced and stored with the run.
async fn all_tokens_are_counted_priced_and_stored(site: Site) {
    let storage = site.open().await;
    let own = Own { capabilities: Some(ModelCapabilities::new()) };
    let chat = agent(&storage, own, Config::new().with_record_usage(true)).conversation("key").await.unwrap();
    for _ in 0..2 {
        let report = chat.prompt("one").await.unwrap().finish().await.unwrap();
        assert_eq!(report.usage, usage(), "{}", site.name);
    }
    let stored = site.open().await.sessions.load(chat.id()).await.unwrap();
    assert_eq!(stored.usage.usage, usage().plus(usage()), "{}", site.name);
    assert_eq!(stored.usage.cost["USD"], 950, "{}", site.name);
    // The sums are made of what the log has.
    let sessions = site.open().await.sessions;
    let events: Vec<_> = sessions.events(chat.id(), agent_core::Seq::ZERO).try_collect().await.unwrap();
    let used = events.iter().find(|event| event.kind.as_str() == "session.run_usage").unwrap();
    let json: Value = used.payload.to().unwrap();
    assert_eq!(json["usage"]["cache_read_tokens"], 60, "{}: {json}", site.name);
}

each_store!(all_tokens_are_counted_priced_and_stored);
