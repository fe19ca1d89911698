//! Prefix law: a request to a model is a function of the log. It begins with the previous request, until an event opens
//! a new window.

use std::sync::{Arc, Mutex};

use agent_core::clock::Effects;
use agent_core::commit::Commit;
use agent_core::event::{
    Compaction, Decision, EventPayload, EventType, HostedCall, ModelOrigin, Native, NewEvent, Part,
    SystemMessage, ToolConfirmation,
};
use agent_core::event::{ToolOutcome, ToolResult};
use agent_core::json::RawJson;
use agent_core::model::{ActionKind, Timer};
use agent_core::state::SessionState;
use agent_core::store::ReadEvents;
use agent_core::{Error, ErrorKind, Result, Seq, SessionId, SessionStoreExt, Storage, async_trait};
use agent_runtime::context::{ContextLimits, Messages, ModelContext, ModelMessage};
use agent_runtime::{
    AgentBuilder, AgentRuntime, Config, Conversation, LlmProvider, ModelCall, ModelEvent, ModelPart,
    ModelRequest, ModelStream, ModelTarget, PartKind, Plugin, StopReason, Summarizer, SummaryRequest,
    ToolContext, ToolMode, ToolSpec, Usage, WrittenSummary,
};
use agent_tests::{Site, each_store};
use futures::{FutureExt, StreamExt, TryStreamExt};

/// One request, and the head of the log when it was made.
#[derive(Debug)]
struct Asked {
    session: SessionId,
    head: Seq,
    system: Option<String>,
    messages: Messages,
}

/// A model that answers by chance, and judges what it is asked; while it answers, others write.
#[derive(Debug)]
struct Judge {
    storage: Storage,
    effects: Effects,
    limits: ContextLimits,
    /// Bytes of contexts that are kept between runs: none, those of about one conversation, all.
    kept: usize,
    names_origin: bool,
    session: Mutex<Option<SessionId>>,
    asked: Mutex<Vec<Asked>>,
    counts: Mutex<Counts>,
    /// What broke the law; a run survives a provider that panics.
    broken: Mutex<Option<String>>,
}

#[derive(Debug, Default)]
struct Counts {
    requests: usize,
    grown: usize,
    windows: usize,
    others: usize,
    native: usize,
}

impl Judge {
    fn pick(&self, of: u64) -> u64 {
        self.effects.random_u64() % of
    }

    fn text(&self) -> String {
        format!("{} {}", self.pick(1000), "한🙂".repeat(usize::try_from(self.pick(20)).unwrap()))
    }

    async fn check(self: &Arc<Self>, request: ModelRequest) {
        if let Err(broken) = self.judged(request).await {
            self.broken.lock().unwrap().get_or_insert(broken);
        }
    }

    async fn judged(self: &Arc<Self>, request: ModelRequest) -> std::result::Result<(), String> {
        let id = self.session.lock().unwrap().unwrap();
        let sessions = &*self.storage.sessions;
        let now = sessions.load(id).await.unwrap();
        let context = ModelContext::read(sessions, &now, self.limits).await.unwrap();
        let tools = request.tools.clone();
        let target =
            ModelTarget::of(&Model(self.clone())).with_system(request.system.clone()).with_tools(tools);
        let expected = target.messages(&context);
        if !context.needs_compaction() && request.messages != expected {
            let (sent, record) = (&request.messages, now.to_json());
            return Err(format!("the log says {expected:#?}\nsent is {sent:#?}\n{record}"));
        }
        let events: Vec<_> = sessions.events(id, Seq::ZERO).try_collect().await.unwrap();
        let mut asked = self.asked.lock().unwrap();
        let mut counts = self.counts.lock().unwrap();
        counts.requests += 1;
        let before = asked.iter().rev().find(|asked| {
            asked.session == id
                || (now.lineage.segments.iter().any(|s| s.session == asked.session && asked.head <= s.until))
        });
        if let Some(before) = before {
            let opens = [EventType::SESSION_COMPACTED, EventType::SESSION_HISTORY_CLEARED];
            let is_new = events.iter().any(|event| event.seq > before.head && opens.contains(&event.kind));
            // The law holds for one target; another system prompt is another one.
            if is_new || before.system != request.system {
                counts.windows += 1;
            } else {
                if !request.messages.starts_with(&before.messages) {
                    let (before, now) = (&before.messages, &request.messages);
                    return Err(format!("asked before: {before:#?}\nasked now: {now:#?}"));
                }
                counts.grown += 1;
            }
        }
        let natives = request.messages.iter().filter_map(|message| match message {
            ModelMessage::Agent(message) => {
                Some(message.items.iter().filter(|item| item.native.is_some()).count())
            }
            _ => None,
        });
        counts.native += natives.sum::<usize>();
        let system = request.system;
        asked.push(Asked { session: id, head: now.head, system, messages: request.messages });
        Ok(())
    }

    /// What another process writes while the model answers.
    async fn interfere(&self) {
        let id = self.session.lock().unwrap().unwrap();
        let sessions = &self.storage.sessions;
        let event = match self.pick(24) {
            5 => {
                // Anywhere, also inside a commit, as only a host's own code does it.
                let now = sessions.load(id).await.unwrap();
                let from = now.context_from.max(now.visible_from).get();
                let until =
                    Seq::new(from + 1 + self.pick(now.pair_safe_head().get().saturating_sub(from).max(1)));
                let done = now.inputs_done_through;
                let open = ReadEvents::first(1000).with_after(done.max(now.visible_from));
                let open = open.with_before(until.next()).with_types([EventType::USER_MESSAGE]);
                let inputs =
                    sessions.history(id, open).await.unwrap().events.into_iter().map(|event| event.seq);
                let claimed = now.inputs_claimed_through.max(done).min(until);
                let compaction = Compaction::new(until, "anywhere").with_inputs(inputs, claimed);
                let event = NewEvent::of(&EventPayload::SessionCompacted(compaction));
                match sessions.commit(Commit::seal(&self.effects, id, now.head).with_event(event)).await {
                    Ok(_) => {}
                    Err(error) => assert_eq!(*error.kind(), ErrorKind::InvalidInput, "{error}"),
                }
                return;
            }
            0 => NewEvent::user_message(self.text()),
            1 => NewEvent::of(&EventPayload::SystemMessage(SystemMessage::injected(self.text()))),
            2 if self.pick(8) == 0 => NewEvent::system_prompt(self.text()),
            3 => NewEvent::new("x.app.note".parse().unwrap(), RawJson::parse("[1]").unwrap()),
            4 => {
                match sessions.compact(id, None, "by somebody else").await {
                    Ok(_) => {}
                    Err(error) => assert_eq!(*error.kind(), ErrorKind::InvalidInput, "{error}"),
                }
                return;
            }
            _ => return,
        };
        self.counts.lock().unwrap().others += 1;
        let head = sessions.load(id).await.unwrap().head;
        sessions
            .commit_new_with_retry(Commit::seal(&self.effects, id, head).with_event(event))
            .await
            .unwrap();
    }

    /// Numbered parts, some of them in forms of the provider's own.
    fn parts(&self) -> Vec<Result<ModelEvent>> {
        let mut events = Vec::new();
        for index in 0..u32::try_from(1 + self.pick(3)).unwrap() {
            let id = format!("call_{}", self.pick(30));
            let (part, kind) = match self.pick(5) {
                0 | 1 => (ModelPart::reasoning(self.text()), PartKind::Reasoning),
                2 => (ModelPart::text(self.text()), PartKind::Text),
                3 => (ModelPart::part(Part::HostedCall(HostedCall::new("search"))), PartKind::Other),
                _ => (ModelPart::call(ModelCall::new(id, "look", RawJson::empty_object())), PartKind::Call),
            };
            let native = Native::new("judge", RawJson::of(&self.text()).unwrap());
            let part = if self.pick(2) == 0 { part.with_native(native) } else { part };
            events.push(Ok(ModelEvent::part_started(index, kind)));
            events.push(Ok(ModelEvent::part_done(index, part)));
        }
        events
    }

    fn answer(&self) -> Vec<Result<ModelEvent>> {
        let mut events = Vec::new();
        if self.pick(2) == 0 {
            events = self.parts();
            events.push(Ok(ModelEvent::done(StopReason::EndTurn, Usage::default())));
            return events;
        }
        if self.pick(3) == 0 {
            events.push(Ok(ModelEvent::Thinking(self.text())));
        }
        if self.pick(3) > 0 {
            events.push(Ok(ModelEvent::Text(self.text())));
        }
        if self.pick(2) == 0 {
            for _ in 0..=self.pick(4) {
                let tool = ["look", "look", "look", "delete", "measure"][self.pick(5) as usize];
                let id = format!("call_{}", self.pick(30));
                events.push(Ok(ModelEvent::ToolUse(ModelCall::new(id, tool, RawJson::empty_object()))));
            }
        }
        let end = match self.pick(12) {
            0 => Err(Error::new(ErrorKind::Provider, "overloaded")),
            1 => Ok(ModelEvent::done(StopReason::MaxTokens, Usage::default())),
            _ => Ok(ModelEvent::done(StopReason::EndTurn, Usage::default())),
        };
        events.push(end);
        events
    }
}

#[derive(Clone, Debug)]
struct Model(Arc<Judge>);

#[async_trait]
impl LlmProvider for Model {
    fn name(&self) -> &str {
        "judge"
    }

    fn model(&self) -> &str {
        "judge"
    }

    fn origin(&self) -> Option<ModelOrigin> {
        // Half of the lives are of a provider that does not name its origin.
        self.0.names_origin.then(|| ModelOrigin::new("judge", "judge", "judge"))
    }

    async fn generate(&self, request: ModelRequest) -> Result<ModelStream> {
        self.0.check(request).await;
        let (judge, answer) = (self.0.clone(), self.0.answer());
        Ok(futures::stream::iter(answer)
            .then(move |event| {
                let judge = judge.clone();
                async move {
                    judge.interfere().await;
                    event
                }
            })
            .boxed())
    }
}

#[derive(Debug)]
struct Tools(Arc<Judge>);

#[async_trait]
impl Plugin for Tools {
    fn name(&self) -> &str {
        "tools"
    }

    fn tools(&self) -> Vec<ToolSpec> {
        vec![
            ToolSpec::new("look", "looks"),
            ToolSpec::new("delete", "deletes").with_mode(ToolMode::Confirm),
            ToolSpec::new("measure", "measures outside").with_mode(ToolMode::Outside),
        ]
    }

    async fn call(&self, _: &str, _: RawJson, _: ToolContext) -> Result<RawJson> {
        self.0.interfere().await;
        RawJson::of(&self.0.text())
    }
}

#[derive(Debug)]
struct Brief;

#[async_trait]
impl Summarizer for Brief {
    async fn summarize(&self, request: SummaryRequest) -> Result<WrittenSummary> {
        match request.messages.len() % 3 {
            0 => Err(Error::new(ErrorKind::Provider, "no")),
            count => Ok(format!("{count} and so on").into()),
        }
    }
}

fn start(judge: &Arc<Judge>) -> AgentRuntime {
    AgentBuilder::new()
        .with_config(Config::default().with_context_limits(judge.limits).with_context_cache_bytes(judge.kept))
        .with_llm(Model(judge.clone()))
        .with_plugin(Tools(judge.clone()))
        .with_summarizer(Brief)
        .with_storage(judge.storage.clone())
        .with_effects(judge.effects.clone())
        .build()
        .unwrap()
}

/// Answers what the session waits for.
async fn answer(judge: &Judge, chat: &Conversation) {
    let Some(action) = chat.refresh().await.unwrap().action.clone() else { return };
    if action.kind == ActionKind::ToolResult {
        let call = action.id.as_str().parse().unwrap();
        let result = ToolResult::new(call, ToolOutcome::Ok, RawJson::of(&judge.text()).unwrap());
        chat.answer(result).await.unwrap();
    } else {
        let decision = if judge.pick(2) == 0 { Decision::Allow } else { Decision::Deny };
        chat.answer(ToolConfirmation::new(action.id, decision)).await.unwrap();
    }
    if let Some(run) = chat.run_pending().await.unwrap() {
        drop(run.finish().await);
    }
}

async fn live(judge: &Arc<Judge>, steps: usize) {
    let mut agent = start(judge);
    let mut chat = agent.conversation("law").await.unwrap();
    for _ in 0..steps {
        *judge.session.lock().unwrap() = Some(chat.id());
        match judge.pick(16) {
            0 => {
                // Another process goes on.
                agent = start(judge);
                chat = agent.conversation_by_id(chat.id()).await.unwrap();
            }
            1 => {
                if let Ok(fork) = chat.fork(None).await {
                    chat = agent.conversation_by_id(fork.id()).await.unwrap();
                }
            }
            2 => {
                let timer = Timer::new("wake", judge.effects.now()).with_note(judge.text());
                chat.schedule(timer).await.unwrap();
                if let Some(run) = chat.run_pending().await.unwrap() {
                    drop(run.finish().await);
                }
            }
            3 if chat.refresh().await.unwrap().status.state == SessionState::Idle => {
                chat.clear().await.unwrap();
            }
            4 | 5 => drop(chat.send(judge.text()).await.unwrap()),
            6 => {
                let run = chat.prompt(judge.text()).await.unwrap();
                run.cancel();
                drop(run.finish().await);
            }
            7..10 => answer(judge, &chat).await,
            _ => {
                let run = chat.prompt(judge.text()).await.unwrap();
                drop(run.finish().await);
            }
        }
        let broken = judge.broken.lock().unwrap().take();
        assert!(broken.is_none(), "{}", broken.unwrap_or_default());
    }
    agent.shutdown(std::time::Duration::ZERO).await.unwrap();
}

/// Prompts while a run answers, parallel calls, answers much later, cancelled and failed runs, restarts, forks, timers,
/// cleared histories, other writers, and compactions by the run and by others. AGENT_LAW_SEED lives one life again.
async fn requests_begin_with_the_one_before(site: Site) {
    let one: Option<u64> = std::env::var("AGENT_LAW_SEED").ok().map(|seed| seed.parse().unwrap());
    let lives = if site.name == "memory" { 60 } else { 4 };
    let mut all = Counts::default();
    for seed in one.map_or(0..lives, |seed| seed..seed + 1) {
        let place = Site::new(site.name).await.unsynced();
        let effects = Effects::seeded(seed, "2026-02-15T10:30:00Z".parse().unwrap());
        let storage = place.open().await.with_effects(effects.clone());
        let limits =
            [ContextLimits::default(), ContextLimits::new(24, 1 << 20), ContextLimits::new(1000, 1500)];
        let judge = Arc::new(Judge {
            storage,
            effects,
            limits: limits[usize::try_from(seed % 3).unwrap()],
            kept: [128 << 20, 0, 8_000][usize::try_from(seed / 6 % 3).unwrap()],
            names_origin: seed % 2 == 0,
            session: Mutex::default(),
            asked: Mutex::default(),
            counts: Mutex::default(),
            broken: Mutex::default(),
        });
        let life = std::panic::AssertUnwindSafe(live(&judge, 40)).catch_unwind();
        let life = tokio::time::timeout(std::time::Duration::from_secs(120), life).await;
        assert!(life.is_ok_and(|life| life.is_ok()), "{}: AGENT_LAW_SEED={seed}", site.name);
        let counts = judge.counts.lock().unwrap();
        all.requests += counts.requests;
        all.grown += counts.grown;
        all.windows += counts.windows;
        all.others += counts.others;
        all.native += counts.native;
    }
    println!("proof: {} requests of runs that begin with the one before; {all:?}", all.grown);
    assert!(
        one.is_some()
            || (all.grown > all.requests / 3 && all.windows > 0 && all.others > 0 && all.native > 0),
        "{all:?}"
    );
}

each_store!(requests_begin_with_the_one_before and files);
