//! Spans of runs, model calls and tool calls: the names of the OpenTelemetry conventions, and no content.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use agent_core::MemoryStore;
use agent_core::json::RawJson;
use agent_runtime::{
    AgentBuilder, AgentRuntime, Config, FaultKind, ModelEvent, ProviderFault, ScriptedProvider, StopReason,
    Turn, Usage, tool,
};
use serde_json::Value;
use tracing::Subscriber;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::DefaultGuard;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;

use crate::common::listening::listen;

/// Text that stands in each prompt, answer, reasoning, argument, output and error of these tests.
const CONTENT: &str = "c0ntent";

/// Span as a subscriber sees it.
#[derive(Clone, Debug, Default)]
struct Seen {
    name: &'static str,
    parent: Option<&'static str>,
    fields: BTreeMap<&'static str, String>,
}

impl Visit for Seen {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.fields.insert(field.name(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.fields.insert(field.name(), value.to_owned());
    }
}

impl Seen {
    fn get(&self, field: &str) -> &str {
        self.fields.get(field).map_or("", String::as_str)
    }
}

/// Layer that keeps the spans in the order of their start, each with the name of its parent.
#[derive(Clone, Debug, Default)]
struct Spans(Arc<Mutex<Vec<(u64, Seen)>>>);

impl Spans {
    fn of(&self, name: &str) -> Vec<Seen> {
        let spans = self.0.lock().unwrap();
        spans.iter().map(|(_, span)| span).filter(|span| span.name == name).cloned().collect()
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Spans {
    fn on_new_span(&self, span: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut seen = Seen { name: span.metadata().name(), ..Seen::default() };
        seen.parent = context.span(id).unwrap().parent().map(|parent| parent.name());
        span.record(&mut seen);
        self.0.lock().unwrap().push((id.into_u64(), seen));
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, _: Context<'_, S>) {
        let mut spans = self.0.lock().unwrap();
        // An id is used again after its span has ended.
        let (_, seen) = spans.iter_mut().rev().find(|(seen, _)| *seen == id.into_u64()).unwrap();
        values.record(seen);
    }
}

/// Agent with a tool that gives content back, whose model follows the script; the spans are collected in this thread.
fn observed(model: ScriptedProvider) -> (AgentRuntime, Spans, DefaultGuard) {
    let spans = Spans::default();
    let guard = listen(tracing_subscriber::registry().with(spans.clone()));
    let look_up = |_: BTreeMap<String, Value>, _| async move { Ok::<_, String>(CONTENT.to_owned()) };
    let config = Config::new().with_agent_name("support").with_system_prompt(CONTENT).with_max_tokens(99);
    let builder = AgentBuilder::new().with_config(config).with_llm(model.with_name("test-model"));
    let agent = builder.with_tool(tool("look_up", CONTENT, look_up)).with_storage(MemoryStore::new());
    (agent.build().unwrap(), spans, guard)
}

fn input() -> RawJson {
    RawJson::of(&BTreeMap::from([("city", CONTENT)])).unwrap()
}

/// Fields of a span that are set; numbers of a time are left out.
fn fields(span: &Seen) -> Vec<(&str, &str)> {
    let is_named = |name: &str| name.contains('.');
    let time = "gen_ai.response.time_to_first_chunk";
    let all = span.fields.iter().map(|(name, value)| (*name, value.as_str()));
    all.filter(|(name, _)| is_named(name) && *name != time).collect()
}

#[tokio::test]
async fn spans_have_the_names_of_the_conventions() {
    let usage = Usage::new(100, 20).with_cache(60, 30).with_reasoning(15);
    let (agent, spans, _guard) = observed(ScriptedProvider::new([
        Turn::new().text(CONTENT).call("call-1", "look_up", input()),
        Turn::silent().text(CONTENT).event(ModelEvent::done(StopReason::EndTurn, usage)),
    ]));
    let chat = agent.conversation("key").await.unwrap();
    let report = chat.prompt(CONTENT).await.unwrap().finish().await.unwrap();
    let (session, run) = (chat.id().to_string(), report.run.unwrap().to_string());
    let [whole] = &spans.of("invoke_agent")[..] else { panic!("one run") };
    assert_eq!((whole.get("session"), whole.get("run"), whole.get("epoch")), (&*session, &*run, "1"));
    assert_eq!(
        fields(whole),
        [
            ("gen_ai.agent.name", "support"),
            ("gen_ai.conversation.id", &session),
            ("gen_ai.operation.name", "invoke_agent"),
            ("gen_ai.provider.name", "test-model"),
            ("gen_ai.request.model", "test-model"),
            ("gen_ai.usage.cache_read.input_tokens", "60"),
            ("gen_ai.usage.cache_write.input_tokens", "30"),
            ("gen_ai.usage.input_tokens", "101"),
            ("gen_ai.usage.output_tokens", "21"),
            ("gen_ai.usage.reasoning.output_tokens", "15"),
            ("otel.kind", "internal"),
            ("otel.name", "invoke_agent support"),
        ]
    );
    let [first, second] = &spans.of("chat")[..] else { panic!("two model calls") };
    assert_eq!(first.parent, Some("invoke_agent"));
    assert!(first.fields.contains_key("gen_ai.response.time_to_first_chunk"));
    assert_eq!(
        fields(first),
        [
            ("gen_ai.conversation.id", &*session),
            ("gen_ai.operation.name", "chat"),
            ("gen_ai.provider.name", "test-model"),
            ("gen_ai.request.max_tokens", "99"),
            ("gen_ai.request.model", "test-model"),
            ("gen_ai.request.stream", "true"),
            ("gen_ai.response.finish_reasons", "[\"tool_call\"]"),
            ("gen_ai.usage.input_tokens", "1"),
            ("gen_ai.usage.output_tokens", "1"),
            ("otel.kind", "client"),
            ("otel.name", "chat test-model"),
        ]
    );
    assert_eq!(second.get("gen_ai.response.finish_reasons"), "[\"stop\"]");
    assert_eq!(second.get("gen_ai.usage.cache_read.input_tokens"), "60");
    let [call] = &spans.of("execute_tool")[..] else { panic!("one tool call") };
    assert_eq!(call.parent, Some("invoke_agent"));
    assert_eq!(
        fields(call),
        [
            ("gen_ai.conversation.id", &*session),
            ("gen_ai.operation.name", "execute_tool"),
            ("gen_ai.tool.call.id", "call-1"),
            ("gen_ai.tool.name", "look_up"),
            ("gen_ai.tool.type", "function"),
            ("otel.kind", "internal"),
            ("otel.name", "execute_tool look_up"),
        ]
    );
}

#[tokio::test]
async fn spans_of_failures_have_a_class_and_no_content() {
    let (agent, spans, _guard) = observed(ScriptedProvider::new([
        // The model invents a tool, whose name is text of the model.
        Turn::new().event(ModelEvent::Thinking(CONTENT.into())).call("1", CONTENT, input()),
        Turn::fault(ProviderFault::new(FaultKind::Overloaded, CONTENT).with_retry_after(Duration::ZERO)),
        Turn::new().text(CONTENT).cut(ProviderFault::new(FaultKind::Overloaded, CONTENT)),
        Turn::new().text(CONTENT).fail(CONTENT),
    ]));
    let chat = agent.conversation("key").await.unwrap();
    for _ in 0..2 {
        chat.prompt(CONTENT).await.unwrap().finish().await.unwrap_err();
    }
    let class = |span: &Seen| (span.get("error.type").to_owned(), span.get("otel.status_code").to_owned());
    let failed = |class: &str| (class.to_owned(), "ERROR".to_owned());
    let chats = spans.of("chat");
    assert_eq!(class(&chats[0]), (String::new(), String::new()));
    // One span for the call and its retry.
    assert_eq!((chats.len(), class(&chats[1])), (3, failed("overloaded")));
    assert_eq!(class(&chats[2]), failed("provider"));
    assert_eq!(chats[1].get("gen_ai.response.finish_reasons"), "[\"error\"]");
    let runs: Vec<_> = spans.of("invoke_agent").iter().map(class).collect();
    assert_eq!(runs, [failed("overloaded"), failed("provider")]);
    let call = &spans.of("execute_tool")[0];
    assert_eq!((call.get("gen_ai.tool.name"), class(call)), ("unknown", failed("tool_error")));
    for (_, span) in &*spans.0.lock().unwrap() {
        assert!(!format!("{span:?}").contains(CONTENT), "{span:?}");
    }
}
