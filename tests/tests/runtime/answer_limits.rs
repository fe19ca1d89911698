//! Models that do not stop: each answer is cut at a limit while it streams, and what came until then is kept.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::common::{agent, agent_with, ask, calls, check_log, device, dialogue, log};
use agent_core::event::{EventPayload, EventType, ToolOutcome};
use agent_core::json::RawJson;
use agent_core::model::{Access, Patch, Usage};
use agent_core::state::{Reason, SessionState};
use agent_core::{Error, ErrorKind, MemoryStore, Result, async_trait};
use agent_runtime::secrets::{Secret, SecretName, Secrets};
use agent_runtime::{
    AgentBuilder, AgentRuntime, Config, Conversation, EchoProvider, FaultKind, Gate, LimitKind, LlmProvider,
    ModelCall, ModelEvent, ModelRequest, ModelStream, PartKind, Plugin, ProviderFault, ReachedLimit,
    RunOutcome, ScriptedProvider, StopReason, ToolContext, ToolMode, ToolSpec, Turn, Update,
};
use agent_tests::{Site, each_store};
use futures::stream::{self, StreamExt};

const MIB: usize = 1 << 20;
const MAX_OUTPUT: RunOutcome = RunOutcome::Completed(Reason::MaxOutput);
const DEADLINE: Duration = Duration::from_secs(120);

/// The most events that a [`Greedy`] streams: a test fails then, and does not fill the memory.
const MOST: usize = 200_000;

/// Streams one event again and again when it is asked for the first time, then answers as others do.
#[derive(Clone, Debug)]
struct Greedy {
    first: Vec<ModelEvent>,
    again: ModelEvent,
    most: usize,
    asked: Arc<AtomicUsize>,
    /// How many events were taken of its stream.
    taken: Arc<AtomicUsize>,
}

impl Greedy {
    fn new(again: ModelEvent) -> Self {
        Self { first: Vec::new(), again, most: MOST, asked: Arc::default(), taken: Arc::default() }
    }

    fn text(piece: &str) -> Self {
        Self::new(ModelEvent::Text(piece.to_owned()))
    }

    fn taken(&self) -> usize {
        self.taken.load(Ordering::SeqCst)
    }
}

#[async_trait]
impl LlmProvider for Greedy {
    fn name(&self) -> &str {
        "greedy"
    }

    fn model(&self) -> &str {
        "greedy"
    }

    async fn generate(&self, _: ModelRequest) -> Result<ModelStream> {
        let done = ModelEvent::done(StopReason::EndTurn, Usage::default());
        if self.asked.fetch_add(1, Ordering::SeqCst) > 0 {
            return Ok(stream::iter([Ok(ModelEvent::Text("enough".to_owned())), Ok(done)]).boxed());
        }
        let (again, taken, most) = (self.again.clone(), self.taken.clone(), self.most);
        let endless = stream::iter(0..most).map(move |n| {
            taken.fetch_add(1, Ordering::SeqCst);
            match again.clone() {
                ModelEvent::ToolUse(call) => {
                    ModelEvent::ToolUse(ModelCall::new(format!("c{n}"), call.name, call.input))
                }
                other => other,
            }
        });
        let first = stream::iter(self.first.clone());
        Ok(first.chain(endless).chain(stream::iter([done])).map(Ok).boxed())
    }
}

/// Tools of each mode; the one that is called makes a MiB.
#[derive(Debug)]
struct Tools;

#[async_trait]
impl Plugin for Tools {
    fn name(&self) -> &str {
        "tools"
    }

    fn tools(&self) -> Vec<ToolSpec> {
        vec![
            ToolSpec::new("make", "makes a MiB"),
            ToolSpec::new("small", "makes nothing"),
            ToolSpec::new("fail", "fails with 20 MiB"),
            ToolSpec::new("ask", "asks first").with_mode(ToolMode::Confirm),
        ]
    }

    async fn call(&self, tool: &str, _: RawJson, _: ToolContext) -> Result<RawJson> {
        match tool {
            "make" => RawJson::of(&"m".repeat(MIB)),
            "fail" => Err(Error::new(ErrorKind::Provider, "f".repeat(20 * MIB))),
            _ => RawJson::parse("0"),
        }
    }
}

fn call(name: &str, input: &str) -> ModelEvent {
    ModelEvent::ToolUse(ModelCall::new("c", name, RawJson::parse(input).unwrap()))
}

async fn open(agent: &AgentRuntime) -> Conversation {
    agent.open(&device("laptop")).await.unwrap()
}

/// The session can be used again.
async fn goes_on(chat: &Conversation, name: &str) {
    let now = chat.refresh().await.unwrap();
    assert!(now.lease.is_none() && now.open_calls.is_empty(), "{name}");
    assert_eq!(now.status.state, SessionState::Idle, "{name}");
    assert_eq!(ask(chat, "again").await.0, "enough", "{name}");
    check_log(chat).await;
}

/// Text without end is cut at its limit, at a character; what came until then is stored, and the reason named.
async fn endless_text_is_cut_and_kept(site: Site) {
    let (name, storage) = (site.name, site.open().await);
    // 3 bytes a character, so that the limit lies within one.
    let model = Greedy::text(&"한".repeat(10_000));
    let chat = open(&agent(&storage, model.clone())).await;
    let (text, report) = ask(&chat, "go").await;
    assert!(model.taken() <= MIB / 30_000 + 2, "{name}: {} pieces were taken", model.taken());
    assert_eq!(text.len(), MIB - MIB % 3, "{name}");
    assert_eq!(report.outcome, MAX_OUTPUT, "{name}");
    assert_eq!(report.text, text, "{name}");
    let now = chat.refresh().await.unwrap();
    assert_eq!(now.status.reason, Reason::MaxOutput, "{name}");
    assert!(dialogue(&chat).await.last().unwrap() == &("agent", text), "{name}: stored up to the limit");
    goes_on(&chat, name).await;
}

each_store!(endless_text_is_cut_and_kept and files);

/// One piece that is larger than the limit is cut, too.
async fn oversized_chunk_is_cut(site: Site) {
    let (name, storage) = (site.name, site.open().await);
    let mut model = Greedy::text(&"x".repeat(40 * MIB));
    model.most = 1;
    let chat = open(&agent(&storage, model)).await;
    let (text, report) = ask(&chat, "go").await;
    assert_eq!((text.len(), report.text.len()), (MIB, MIB), "{name}");
    goes_on(&chat, name).await;
}

each_store!(oversized_chunk_is_cut);

/// Reasoning without end is cut at its limit, and stored.
async fn endless_reasoning_is_cut_and_kept(site: Site) {
    let (name, storage) = (site.name, site.open().await);
    let model = Greedy::new(ModelEvent::Thinking("hm ".repeat(1000)));
    let chat = open(&agent(&storage, model.clone())).await;
    let (_, report) = ask(&chat, "go").await;
    assert!(model.taken() <= MIB / 3000 + 2, "{name}: {} pieces were taken", model.taken());
    assert_eq!(report.outcome, MAX_OUTPUT, "{name}");
    let events = log(&chat).await;
    let thought = events.iter().find_map(|event| match event.decode().unwrap() {
        EventPayload::AgentThinking(thought) => Some(thought.text.len()),
        _ => None,
    });
    assert_eq!(thought, Some(MIB), "{name}");
    goes_on(&chat, name).await;
}

each_store!(endless_reasoning_is_cut_and_kept and files);

/// A stream of empty pieces ends, too: each counts as a byte.
async fn endless_empty_chunks_are_stopped(site: Site) {
    let (name, storage) = (site.name, site.open().await);
    let mut model = Greedy::text("");
    model.most = usize::MAX;
    let chat = open(&agent_with(&storage, model, Config::default().with_max_answer_bytes(10_000), [])).await;
    assert_eq!(ask(&chat, "go").await.1.outcome, MAX_OUTPUT, "{name}");
    goes_on(&chat, name).await;
}

each_store!(endless_empty_chunks_are_stopped and files);

/// Calls over the limit are not stored, and the stream is dropped at the first of them.
async fn endless_calls_end_at_the_limit_of_calls(site: Site) {
    let (name, storage) = (site.name, site.open().await);
    let model = Greedy::new(call("small", "{}"));
    let config = Config::default().with_max_tool_calls(40);
    let chat = open(&agent_with(&storage, model.clone(), config, [Arc::new(Tools) as _])).await;
    let (_, report) = ask(&chat, "go").await;
    assert!(model.taken() <= 41, "{name}: {} calls were taken", model.taken());
    assert_eq!(report.outcome, RunOutcome::Completed(Reason::MaxTurns), "{name}");
    let made = calls(&chat).await;
    assert_eq!(made.len(), 40, "{name}");
    assert!(made.iter().all(|(_, results)| results.len() == 1 && results[0].outcome == ToolOutcome::Ok));
    let head = chat.refresh().await.unwrap().head.get();
    assert!(head < 2 * 40 + 10, "{name}: {head} events");
    goes_on(&chat, name).await;
}

each_store!(endless_calls_end_at_the_limit_of_calls and files);

/// Calls that wait for a person are bounded as those that are made, so that the record can hold them.
async fn endless_questions_end_at_the_limit_of_calls(site: Site) {
    let (name, storage) = (site.name, site.open().await);
    let model = Greedy::new(call("ask", "{}"));
    let chat = open(&agent_with(&storage, model.clone(), Config::default(), [Arc::new(Tools) as _])).await;
    let (_, report) = ask(&chat, "go").await;
    assert!(model.taken() <= 33, "{name}: {} calls were taken", model.taken());
    let waits = matches!(report.outcome, RunOutcome::Awaiting(_));
    assert!(waits, "{name}: {:?}", report.outcome);
    let now = chat.refresh().await.unwrap();
    assert_eq!((now.status.state, now.open_calls.len()), (SessionState::RequiresAction, 32), "{name}");
    chat.interrupt().await.unwrap();
    goes_on(&chat, name).await;
}

each_store!(endless_questions_end_at_the_limit_of_calls and files);

/// At a limit of bytes, the calls that came before it are kept, and none is made; one that is too large is not kept,
/// and names and ids of any size are not.
async fn calls_of_a_cut_answer_are_not_executed(site: Site) {
    let (name, storage) = (site.name, site.open().await);
    let large = format!("\"{}\"", "x".repeat(2 * MIB));
    let mut model = Greedy::new(call("small", &large));
    let odd = ModelCall::new("i".repeat(MIB), "n".repeat(MIB / 2), RawJson::empty_object());
    model.first = vec![
        ModelEvent::Text("I write.".to_owned()),
        call("ask", "[1]"),
        call("small", "[2]"),
        ModelEvent::ToolUse(odd),
    ];
    let chat = open(&agent_with(&storage, model.clone(), Config::default(), [Arc::new(Tools) as _])).await;
    let (_, report) = ask(&chat, "go").await;
    assert_eq!(model.taken(), 1, "{name}");
    assert_eq!(report.outcome, MAX_OUTPUT, "{name}");
    assert_eq!(dialogue(&chat).await[1].1, "I write.", "{name}");
    let kept = calls(&chat).await;
    assert_eq!(kept.len(), 3, "{name}");
    for (call, results) in &kept {
        assert!(call.call.as_str().len() <= 128 && call.name.len() <= 128, "{name}");
        assert_eq!(results.len(), 1, "{name}");
        assert!(results[0].output.get().contains("not called"), "{name}: {:?}", results[0]);
    }
    goes_on(&chat, name).await;
}

each_store!(calls_of_a_cut_answer_are_not_executed and files);

/// Many calls, each of which fits, are cut where all of the answer is too large.
async fn total_answer_size_is_limited(site: Site) {
    let (name, storage) = (site.name, site.open().await);
    let input = format!("\"{}\"", "x".repeat(900_000));
    let model = Greedy::new(call("small", &input));
    let chat = open(&agent_with(&storage, model.clone(), Config::default(), [Arc::new(Tools) as _])).await;
    let (_, report) = ask(&chat, "go").await;
    assert!(model.taken() <= 5, "{name}: {} calls were taken", model.taken());
    assert_eq!(report.outcome, MAX_OUTPUT, "{name}");
    assert_eq!(calls(&chat).await.len(), 4, "{name}: 4 MiB");
    goes_on(&chat, name).await;
}

each_store!(total_answer_size_is_limited and files);

/// A run whose stream nobody reads ends, and holds a bounded part of it; the end is there.
async fn an_unread_stream_is_bounded_and_ends(site: Site) {
    let (name, storage) = (site.name, site.open().await);
    let mut model = Greedy::new(call("make", "{}"));
    model.most = 20;
    let chat = open(&agent_with(&storage, model, Config::default(), [Arc::new(Tools) as _])).await;
    let mut run = chat.prompt("go").await.unwrap();
    let idle =
        crate::common::eventually(async || chat.refresh().await.unwrap().status.state == SessionState::Idle);
    tokio::time::timeout(DEADLINE, idle).await.expect("it ends unread");
    let (mut bytes, mut skipped, mut last) = (0, 0, None);
    while let Some(update) = run.next().await {
        match update.unwrap() {
            Update::ToolDone(result) => bytes += result.output.get().len(),
            Update::Ended(report) => last = Some(report),
            Update::Skipped { updates, .. } => skipped += updates,
            _ => {}
        }
    }
    assert!(bytes <= 4 * MIB, "{name}: {bytes} bytes were held");
    assert!(skipped > 0, "{name}: it does not say that something was left out");
    assert_eq!(last.unwrap().text, "enough", "{name}");
    let stored = log(&chat).await;
    let results = stored.iter().filter(|event| event.kind == EventType::AGENT_TOOL_RESULT).count();
    assert_eq!(results, 20, "{name}: all of it is stored");
}

each_store!(an_unread_stream_is_bounded_and_ends and files);

/// The error of a tool may be of any size; a part of it is its result.
async fn oversized_tool_error_is_cut(site: Site) {
    let (name, storage) = (site.name, site.open().await);
    let mut model = Greedy::new(call("fail", "{}"));
    model.most = 1;
    let chat = open(&agent_with(&storage, model, Config::default(), [Arc::new(Tools) as _])).await;
    let (text, report) = ask(&chat, "go").await;
    assert_eq!((&*text, report.outcome), ("enough", RunOutcome::Completed(Reason::EndTurn)), "{name}");
    let result = &calls(&chat).await[0].1[0];
    assert_eq!(result.outcome, ToolOutcome::Error, "{name}");
    assert!(result.output.get().contains("20971520 bytes"), "{name}: {} bytes", result.output.get().len());
}

each_store!(oversized_tool_error_is_cut);

/// Limits of bytes that allow nothing, or more than an event holds, are named when the agent is built.
#[test]
fn limits_of_bytes_are_checked() {
    let refused = [
        (Config::default().with_max_text_bytes(0), "bytes of text in an answer"),
        (Config::default().with_max_thinking_bytes(16 * MIB), "bytes of reasoning in an answer"),
        (Config::default().with_max_call_bytes(16 * MIB), "bytes of input of a tool call"),
        (Config::default().with_max_answer_bytes(33 * MIB), "bytes of an answer"),
    ];
    for (config, text) in refused {
        let builder = AgentBuilder::new().with_config(config).with_llm(EchoProvider::new());
        let error = builder.with_storage(MemoryStore::new()).build().unwrap_err();
        assert!(error.to_string().contains(text), "{error}");
    }
}

/// Returns cases: what the model says, with these limits, and the limit that the report names.
fn limited() -> Vec<(Vec<Turn>, Config, LimitKind, Option<u64>)> {
    let config = Config::default;
    let look = |id: &str| Turn::new().call(id, "small", RawJson::parse(r#"{"a":1}"#).unwrap());
    let calls = |tool: &str, count: usize| {
        (0..count).fold(Turn::new(), |turn, n| turn.call(&format!("c{n}"), tool, RawJson::empty_object()))
    };
    let parts = (0..=1000).fold(Turn::new(), |turn, n| {
        turn.event(ModelEvent::part_started(n, PartKind::Text)).event(ModelEvent::delta(n, "x"))
    });
    let thinks = Turn::new().event(ModelEvent::Thinking("0123456789".to_owned()));
    let item = Turn::new()
        .event(ModelEvent::part_started(0, PartKind::Call))
        .event(ModelEvent::delta(0, "x".repeat(15 * MIB + 1)));
    let too_long = ProviderFault::new(FaultKind::ContextTooLong, "too long");
    let text = || Turn::new().text("0123456789");
    vec![
        (vec![text()], config().with_max_text_bytes(9), LimitKind::TextBytes, Some(9)),
        (vec![thinks], config().with_max_thinking_bytes(9), LimitKind::ThinkingBytes, Some(9)),
        (vec![look("c1")], config().with_max_call_bytes(6), LimitKind::CallBytes, Some(6)),
        (vec![text()], config().with_max_answer_bytes(9), LimitKind::AnswerBytes, Some(9)),
        (vec![item], config(), LimitKind::ItemBytes, Some(15 << 20)),
        (vec![parts], config(), LimitKind::Parts, Some(1000)),
        (vec![text().done(StopReason::MaxTokens)], config(), LimitKind::MaxTokens, None),
        (
            vec![text().done(StopReason::MaxTokens)],
            config().with_max_tokens(4),
            LimitKind::MaxTokens,
            Some(4),
        ),
        (vec![look("c1"), look("c2")], config().with_max_turns(2), LimitKind::Turns, Some(2)),
        (vec![calls("small", 3)], config().with_max_tool_calls(2), LimitKind::ToolCalls, Some(2)),
        (vec![calls("ask", 33)], config(), LimitKind::WaitingCalls, Some(32)),
        (
            vec![Turn::new().gate(&Gate::new())],
            config().with_model_silence(Duration::from_millis(20)),
            LimitKind::ModelSilence,
            Some(20),
        ),
        (vec![Turn::fault(too_long)], config(), LimitKind::ContextTokens, None),
        (vec![text()], config(), LimitKind::TextBytes, Some(0)),
    ]
}

/// The report names the limit that ended the run or cut its answer, and none if there was none.
async fn the_limit_that_was_reached_is_in_the_report(site: Site) {
    let name = site.name;
    for (turns, config, kind, max) in limited() {
        let model = ScriptedProvider::new(turns.into_iter().chain([Turn::new().text("enough")]));
        let site = Site::new(name).await;
        let chat = open(&agent_with(&site.open().await, model, config, [Arc::new(Tools) as _])).await;
        let (_, report) = ask(&chat, "go").await;
        // The last case has no limit.
        let mut expected = ReachedLimit::new(kind);
        expected.max = max;
        let expected = (max != Some(0)).then_some(expected);
        assert_eq!(report.limit, expected, "{name}");
        let json = serde_json::to_string(&report).unwrap();
        assert_eq!(json.contains(&format!(r#""kind":"{}""#, kind.name())), expected.is_some(), "{json}");
        chat.interrupt().await.ok();
        assert_eq!(ask(&chat, "again").await.1.limit, None, "{name}: {kind:?}");
    }
}

each_store!(the_limit_that_was_reached_is_in_the_report and files);

/// Where an answer is cut within the value of a secret, no part of the value is kept.
async fn an_answer_cut_within_a_secret_shows_no_part_of_it(site: Site) {
    let (name, storage) = (site.name, site.open().await);
    let secret: SecretName = "github".parse().unwrap();
    let value = Secret::new("ghp_0123456789abcdef").unwrap();
    let mut model = Greedy::text(&format!("{}ghp_0123456789abcdef and more", "x".repeat(90)));
    model.most = 1;
    let secrets = Secrets::new(BTreeMap::from([(secret.clone(), value)]));
    let agent =
        agent_with(&storage, model, Config::default().with_max_text_bytes(100), []).with_secrets(secrets);
    let chat = open(&agent).await;
    let mount = Patch::new().mount(secret.resource(), Access::Read);
    let chat = agent.new_session(chat.record().workspace, &mount).await.unwrap();
    assert_eq!(ask(&chat, "go").await.1.outcome, MAX_OUTPUT, "{name}");
    let kept = dialogue(&chat).await.pop().unwrap().1;
    assert!(kept.starts_with(&"x".repeat(90)) && !kept.contains("gh"), "{name}: {kept}");
}

each_store!(an_answer_cut_within_a_secret_shows_no_part_of_it);
