//! Long histories: a run of thousands of calls compacts and goes on, and each request begins with the previous one.
//! Sessions that were stored before this rule continue under it.

use std::sync::{Arc, Mutex};

use crate::common::{Faulty, NoBlobs, Tools, agent_with, log, read};
use crate::provider_rules;
use agent_core::clock::Effects;
use agent_core::commit::{Commit, LeaseRequest, RunEnd, Trigger};
use agent_core::event::{EventPayload, EventType, NewEvent, SystemMessage, ToolOutcome, ToolResult};
use agent_core::json::RawJson;
use agent_core::model::{CURRENCIES_MAX, CallId, Cost};
use agent_core::session::NewSession;
use agent_core::state::Reason;
use agent_core::store::ReadEvents;
use agent_core::{Error, ErrorKind, MemoryStore, Result, Seq, Storage, WorkspaceId, async_trait};
use agent_runtime::context::{ContextLimits, ModelContext, ModelMessage};
use agent_runtime::{
    AgentBuilder, Config, Conversation, LlmProvider, ModelCall, ModelCapabilities, ModelEvent, ModelRequest,
    ModelStream, RunOutcome, ScriptedProvider, StopReason, Summarizer, SummaryRequest, ToolMode, Turn,
    Update, Usage, WrittenSummary,
};
use futures::{StreamExt, stream};

const QUESTION: &str = "Which of the files is it?";

/// A model that calls a tool so many times, one after the other.
#[derive(Clone, Debug, Default)]
struct Searching(Arc<Mutex<Seen>>);

#[derive(Debug, Default)]
struct Seen {
    requests: usize,
    longest: usize,
    without_question: usize,
    invalid: Vec<String>,
}

const CALLS: usize = 5000;

#[async_trait]
impl LlmProvider for Searching {
    fn name(&self) -> &str {
        "searching"
    }

    fn model(&self) -> &str {
        "searching"
    }

    async fn generate(&self, request: ModelRequest) -> Result<ModelStream> {
        let mut seen = self.0.lock().unwrap();
        seen.requests += 1;
        seen.longest = seen.longest.max(request.messages.len());
        let asks = |message: &ModelMessage| *message == ModelMessage::user(QUESTION);
        seen.without_question += usize::from(!request.messages.iter().any(asks));
        if let Err(invalid) = provider_rules::check(&request.messages) {
            seen.invalid.push(invalid.to_string());
        }
        let event = if seen.requests > CALLS {
            ModelEvent::text("the last one")
        } else {
            ModelEvent::ToolUse(ModelCall::new("call", "look", RawJson::empty_object()))
        };
        let events = [event, ModelEvent::done(StopReason::EndTurn, Usage::default())];
        Ok(stream::iter(events.map(Ok)).boxed())
    }
}

/// Five thousand calls under one prompt: the run compacts its session whenever the room is full, is asked the question
/// in every request, and ends.
#[tokio::test]
async fn a_long_run_compacts_and_goes_on() {
    let storage = Storage::from(MemoryStore::new());
    let model = Searching::default();
    let config = Config::default()
        .with_max_turns(6000)
        .with_max_tool_calls(6000)
        .with_context_limits(ContextLimits::new(1000, 100_000));
    let look =
        Tools::returning(RawJson::sure(&"nothing here, look on".repeat(20)), [("look", ToolMode::Direct)]);
    let agent = agent_with(&storage, model.clone(), config, [look as _]);
    let chat = agent.conversation("long").await.unwrap();
    let (_, report) = read(chat.prompt(QUESTION).await.unwrap()).await;
    assert_eq!(report.outcome, RunOutcome::Completed(Reason::EndTurn));
    assert_eq!(report.text, "the last one");
    let compacted =
        log(&chat).await.iter().filter(|event| event.kind == EventType::SESSION_COMPACTED).count();
    let seen = model.0.lock().unwrap();
    assert_eq!(seen.requests, CALLS + 1);
    assert_eq!(seen.without_question, 0, "the question is repeated behind each summary");
    assert!(seen.invalid.is_empty(), "{:?}", seen.invalid.first());
    println!("proof: {compacted} compactions in a run of {CALLS} calls, at most {} messages", seen.longest);
    assert!((20..200).contains(&compacted) && seen.longest < 500, "{compacted}, {}", seen.longest);
}

/// Two turns share what came before them: over 200 turns nearly all of a request begins like the one before.
#[tokio::test]
async fn requests_share_their_beginning() {
    let storage = Storage::from(MemoryStore::new());
    let model =
        ScriptedProvider::new((0..200).map(|n| Turn::new().text(format!("answer {n} {}", "a".repeat(200)))));
    let agent = agent_with(&storage, model.clone(), Config::default(), []);
    let chat = agent.conversation("cache").await.unwrap();
    for n in 0..200 {
        read(chat.prompt(format!("question {n} {}", "q".repeat(100))).await.unwrap()).await;
    }
    let requests = model.requests();
    let (mut shared, mut all) = (0, 0);
    for pair in requests.windows(2) {
        let (before, now) = (&pair[0].messages, &pair[1].messages);
        let same = before.iter().zip(now).take_while(|(before, now)| before == now).count();
        shared += now.iter().take(same).map(ModelMessage::size_bytes).sum::<usize>();
        all += before.iter().map(ModelMessage::size_bytes).sum::<usize>();
    }
    println!(
        "proof: {} percent of the bytes of 200 requests are sent again at the beginning of the next",
        100 * shared / all
    );
    assert_eq!(shared, all);
}

/// The cost of a request depends on its limits, not on the number of turns before it.
#[tokio::test]
async fn request_cost_does_not_grow_with_the_turns() {
    let effects = Effects::default();
    let mut costs = Vec::new();
    for turns in [2_000, 10_000] {
        let faulty = Faulty::new(MemoryStore::new().into());
        let storage = faulty.storage();
        let sessions = storage.sessions.clone();
        let new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
        let mut now = sessions.create(new).await.unwrap();
        for n in 0..turns {
            let run = effects.new_run_id();
            let begin = Trigger::BeginRun(LeaseRequest::new("test", run));
            let asked = NewEvent::user_message(format!("question {n}"));
            let commit = Commit::seal(&effects, now.id, now.head).with_event(asked).with_trigger(begin);
            now = sessions.commit(commit).await.unwrap().session;
            let end = Trigger::EndRun(RunEnd::Completed(Reason::EndTurn));
            let commit = Commit::seal(&effects, now.id, now.head).with_fence(run, now.epoch);
            let commit = commit.with_event(NewEvent::agent_message(format!("answer {n}"))).with_trigger(end);
            now = sessions.commit(commit).await.unwrap().session;
        }
        let model = ScriptedProvider::new([Turn::new().text("one"), Turn::new().text("two")]);
        let agent = agent_with(&storage, model.clone(), Config::default(), []);
        let chat = agent.conversation_by_id(now.id).await.unwrap();
        let mut reads = Vec::new();
        for _ in 0..2 {
            let before = faulty.reads();
            read(chat.prompt("and now?").await.unwrap()).await;
            reads.push(faulty.reads() - before);
        }
        let last = model.requests().pop().unwrap().messages;
        assert!(matches!(&last[0], ModelMessage::Summary(text) if text.ends_with("events are left out.")));
        costs.push((reads, last.len()));
    }
    println!(
        "proof: {} pages are read for the first run after 10,000 turns, {} for the next",
        costs[1].0[0], costs[1].0[1]
    );
    assert_eq!(costs[0], costs[1]);
}

/// A log that was written before this rule: long outputs and texts inline, ids used again.
#[tokio::test]
async fn a_conversation_of_before_goes_on() {
    let (effects, storage) = (Effects::default(), Storage::from(MemoryStore::new()));
    let sessions = storage.sessions.clone();
    let new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
    let mut now = sessions.create(new).await.unwrap();
    for n in 0..3 {
        let run = effects.new_run_id();
        let begin = Trigger::BeginRun(LeaseRequest::new("test", run));
        let asked = NewEvent::user_message("long ".repeat(60_000));
        let commit = Commit::seal(&effects, now.id, now.head).with_event(asked).with_trigger(begin);
        now = sessions.commit(commit).await.unwrap().session;
        let call = "call_1".parse::<CallId>().unwrap();
        let output = RawJson::of(&format!("{n}").repeat(200_000)).unwrap();
        let end = Trigger::EndRun(RunEnd::Completed(Reason::EndTurn));
        let commit = Commit::seal(&effects, now.id, now.head)
            .with_fence(run, now.epoch)
            .with_event(NewEvent::tool_use(call.clone(), "look", RawJson::empty_object()))
            .with_event(NewEvent::tool_result(call, ToolOutcome::Ok, output))
            .with_event(NewEvent::agent_message("found"))
            .with_trigger(end);
        now = sessions.commit(commit).await.unwrap().session;
    }
    let model = ScriptedProvider::new([Turn::new().text("one"), Turn::new().text("two")]);
    let agent = agent_with(&storage, model.clone(), Config::default(), []);
    let chat = agent.conversation_by_id(now.id).await.unwrap();
    for text in ["and?", "and then?"] {
        read(chat.prompt(text).await.unwrap()).await;
    }
    let requests = model.requests();
    for request in &requests {
        provider_rules::check(&request.messages).unwrap();
    }
    assert!(requests[1].messages.starts_with(&requests[0].messages));
    let (asked @ ModelMessage::User(_), ModelMessage::ToolResults(results)) =
        (&requests[0].messages[0], &requests[0].messages[2])
    else {
        panic!("{:?}", requests[0].messages.len())
    };
    for shown in [&*asked.text(), &results[0].output] {
        assert!((65_536..65_600).contains(&shown.len()), "first and last 32 KiB: {}", shown.len());
    }
    let limits = ContextLimits::default();
    let context = ModelContext::read(&*sessions, &chat.refresh().await.unwrap(), limits).await.unwrap();
    assert!(context.messages().starts_with(&requests[1].messages), "and so it stays");
}

/// A run that died after much work had claimed two questions: the next one is given both, though only the newest part
/// of the log is read.
#[tokio::test]
async fn all_open_questions_follow_a_summary() {
    let (effects, storage) = (Effects::default(), Storage::from(MemoryStore::new()));
    let sessions = storage.sessions.clone();
    let new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
    let mut now = sessions.create(new).await.unwrap();
    let run = effects.new_run_id();
    let commit = Commit::seal(&effects, now.id, now.head)
        .with_events([NewEvent::user_message("first"), NewEvent::user_message("second")])
        .with_trigger(Trigger::BeginRun(LeaseRequest::new("test", run)));
    now = sessions.commit(commit).await.unwrap().session;
    for _ in 0..100 {
        let commit = Commit::seal(&effects, now.id, now.head).with_fence(run, now.epoch);
        now = sessions.commit(commit.with_event(NewEvent::agent_message("working"))).await.unwrap().session;
    }
    let gone = Commit::seal(&effects, now.id, now.head).with_trigger(Trigger::LeaseExpired(now.epoch));
    sessions.commit(gone).await.unwrap();
    let model = ScriptedProvider::new([Turn::new().text("done")]);
    let config = Config::default().with_context_limits(ContextLimits::new(10, 100_000));
    let agent = agent_with(&storage, model.clone(), config, []);
    read(agent.conversation_by_id(now.id).await.unwrap().run_pending().await.unwrap().unwrap()).await;
    let given = format!("{:?}", model.requests()[0].messages);
    assert!(given.contains("earlier events are left out"), "{given}");
    assert!(given.contains("first") && given.contains("second"), "{given}");
}

/// A result that comes long after its call is given with the call, however much was written between.
#[tokio::test]
async fn late_result_is_given_with_its_distant_call() {
    let storage = Storage::from(MemoryStore::new());
    let model = ScriptedProvider::new([
        Turn::new().call("c", "measure", RawJson::empty_object()),
        Turn::new().text("done"),
    ]);
    let config = Config::default().with_context_limits(ContextLimits::new(10, 100_000));
    let measure = Tools::new([("measure", ToolMode::Outside)]);
    let agent = agent_with(&storage, model.clone(), config, [measure as _]);
    let chat = agent.conversation("late").await.unwrap();
    let (_, report) = read(chat.prompt("measure it").await.unwrap()).await;
    assert!(matches!(report.outcome, RunOutcome::Awaiting(_)), "{report:?}");
    let effects = Effects::default();
    for n in 0..100 {
        let text = EventPayload::SystemMessage(SystemMessage::injected(format!("note {n}")));
        let head = chat.refresh().await.unwrap().head;
        let commit = Commit::seal(&effects, chat.id(), head).with_event(NewEvent::of(&text));
        storage.sessions.commit(commit).await.unwrap();
    }
    let call = report_call(&report.outcome);
    chat.answer(ToolResult::new(call, ToolOutcome::Ok, RawJson::of(&"42 metres").unwrap())).await.unwrap();
    read(chat.run_pending().await.unwrap().unwrap()).await;
    let given = model.requests().pop().unwrap().messages;
    provider_rules::check(&given).unwrap();
    assert!(format!("{given:?}").contains("42 metres"), "{given:#?}");
}

fn report_call(outcome: &RunOutcome) -> CallId {
    match outcome {
        RunOutcome::Awaiting(action) => action.id.as_str().parse().unwrap(),
        other => panic!("{other:?}"),
    }
}

/// A summarizer that fails in any way is replaced by the number of events; the run goes on.
#[tokio::test(start_paused = true)]
async fn a_failing_summarizer_is_replaced() {
    for failure in [Failing::Error, Failing::Empty, Failing::Panic, Failing::Silence] {
        let model = ScriptedProvider::new((0..4).map(|_| Turn::new().text("yes")));
        let agent = AgentBuilder::new()
            .with_config(Config::default().with_context_limits(ContextLimits::new(4, 100_000)))
            .with_llm(model.clone())
            .with_summarizer(failure)
            .with_storage(MemoryStore::new())
            .build()
            .unwrap();
        let chat = agent.conversation("long").await.unwrap();
        for _ in 0..4 {
            read(chat.prompt("and?").await.unwrap()).await;
        }
        let last = &model.requests()[3].messages[0];
        let expected = |text: &str| text.ends_with(" earlier events are left out.");
        assert!(matches!(last, ModelMessage::Summary(text) if expected(text)), "{failure:?}: {last:?}");
    }
}

/// A reader of a run is notified when older messages are left out, and whether a summary stands for them.
#[tokio::test]
async fn a_compaction_is_reported_when_it_happens() {
    for summarizes in [true, false] {
        let builder = AgentBuilder::new()
            .with_config(Config::default().with_context_limits(ContextLimits::new(4, 100_000)))
            .with_llm(ScriptedProvider::new((0..4).map(|_| Turn::new().text("yes"))));
        let builder = if summarizes { builder.with_summarizer(Short) } else { builder };
        let agent = builder.with_storage(MemoryStore::new()).build().unwrap();
        let chat = agent.conversation("long").await.unwrap();
        let mut reported = 0;
        for _ in 0..4 {
            let mut run = chat.prompt("and?").await.unwrap();
            while let Some(update) = run.next().await {
                if let Update::Compacted { summarized, .. } = update.unwrap() {
                    assert_eq!(summarized, summarizes);
                    reported += 1;
                    assert!(chat.refresh().await.unwrap().summary > Seq::ZERO, "it is stored");
                }
            }
        }
        let read = ReadEvents::first(100).with_types([EventType::SESSION_COMPACTED]);
        let stored = chat.history(read).await.unwrap().events.len();
        assert!(stored > 0 && reported == stored, "{reported} of {stored}");
    }
}

#[derive(Debug)]
struct Short;

#[async_trait]
impl Summarizer for Short {
    async fn summarize(&self, _: SummaryRequest) -> Result<WrittenSummary> {
        Ok(WrittenSummary::new("They say yes."))
    }
}

#[derive(Clone, Copy, Debug)]
enum Failing {
    Error,
    Empty,
    Panic,
    Silence,
}

#[async_trait]
impl Summarizer for Failing {
    async fn summarize(&self, _: SummaryRequest) -> Result<WrittenSummary> {
        match self {
            Self::Error => Err(Error::new(ErrorKind::Provider, "no")),
            Self::Empty => Ok(WrittenSummary::new(" \n")),
            Self::Panic => panic!("as told"),
            Self::Silence => std::future::pending().await,
        }
    }
}

/// Of a model that is known to take few tokens, the history is shortened before it refuses a request; a host that knows better
/// says so.
#[tokio::test]
async fn history_fits_the_tokens_of_its_model() {
    for (tokens, most) in
        [(Some(1_000), 3_000), (None, usize::MAX), (Some(0), usize::MAX), (Some(u32::MAX), usize::MAX)]
    {
        let model = ScriptedProvider::new((0..9).map(|_| Turn::new().text("yes")))
            .with_capabilities(ModelCapabilities::new().with_context_tokens(tokens));
        let agent = agent_with(&MemoryStore::new().into(), model.clone(), Config::default(), []);
        let chat = agent.conversation("long").await.unwrap();
        for _ in 0..9 {
            read(chat.prompt("x".repeat(500)).await.unwrap()).await;
        }
        let bytes =
            |request: &ModelRequest| request.messages.iter().map(ModelMessage::size_bytes).sum::<usize>();
        let longest = model.requests().iter().map(bytes).max().unwrap();
        assert!(longest <= most && (longest > 4_500 || most == 3_000), "{tokens:?}: {longest}");
    }
}

/// A model that writes summaries, each with its own currency.
#[derive(Debug, Default)]
struct Priced {
    summaries: Mutex<u64>,
    currencies: usize,
}

#[async_trait]
impl Summarizer for Priced {
    async fn summarize(&self, _: SummaryRequest) -> Result<WrittenSummary> {
        let mut count = self.summaries.lock().unwrap();
        *count += 1;
        // One that is not used is paid as well.
        let text = if count.is_multiple_of(2) { "" } else { "They say yes." };
        let cost = Cost::new(format!("C{}", *count as usize % self.currencies), 7);
        Ok(WrittenSummary::new(text).with_usage(Usage::new(100, 10)).with_cost(Some(cost)))
    }
}

/// What a model takes for summaries is in the report of the run and in the sums of the session; a currency that a session
/// has no room for leaves the tokens.
#[tokio::test]
async fn usage_of_summaries_is_counted() {
    for currencies in [1, CURRENCIES_MAX + 2] {
        let summarizer = Arc::new(Priced { summaries: Mutex::default(), currencies });
        let config =
            Config::default().with_context_limits(ContextLimits::new(4, 100_000)).with_record_usage(true);
        let agent = AgentBuilder::new()
            .with_config(config)
            .with_llm(ScriptedProvider::new((0..40).map(|_| Turn::new().text("yes"))))
            .with_summarizer(summarizer.clone())
            .with_storage(MemoryStore::new())
            .build()
            .unwrap();
        let chat = agent.conversation("long").await.unwrap();
        let mut reported = Usage::default();
        for _ in 0..40 {
            reported = reported.plus(read(chat.prompt("and?").await.unwrap()).await.1.usage);
        }
        let summaries = *summarizer.summaries.lock().unwrap();
        assert!(summaries > CURRENCIES_MAX as u64 + 2, "{summaries}");
        let expected = Usage::new(40 + 100 * summaries, 40 + 10 * summaries);
        let sums = &chat.refresh().await.unwrap().usage;
        assert_eq!((reported, sums.usage), (expected, expected));
        let costs: Vec<u64> = sums.cost.values().copied().collect();
        match currencies {
            1 => assert_eq!(costs, [7 * summaries]),
            _ => assert_eq!(costs.len(), CURRENCIES_MAX),
        }
    }
}

/// In a store without blobs, an output whose stored form does not fit in an event fails its call, and not the run.
#[tokio::test]
async fn an_output_that_does_not_fit_fails_its_call() {
    let storage = NoBlobs::storage();
    let calls = Turn::new().call("c", "quotes", RawJson::empty_object());
    let model = ScriptedProvider::new([calls, Turn::new().text("done")]);
    let quotes = Tools::returning(RawJson::sure(&vec![""; 4 << 20]), [("quotes", ToolMode::Direct)]);
    let agent = agent_with(&storage, model.clone(), Config::default(), [quotes as _]);
    let chat = agent.conversation("large").await.unwrap();
    let (_, report) = read(chat.prompt("go").await.unwrap()).await;
    assert_eq!((report.outcome, &*report.text), (RunOutcome::Completed(Reason::EndTurn), "done"));
    let result = calls_of(&chat).await;
    assert_eq!(result.outcome, ToolOutcome::Error);
    let text: String = result.output.to().unwrap();
    assert!(text.contains("more than") && text.contains("an event holds"), "{text}");
}

async fn calls_of(chat: &Conversation) -> ToolResult {
    crate::common::calls(chat).await[0].1[0].clone()
}
