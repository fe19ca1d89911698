//! No session is stuck: the server of a model that signs its items accepts every request in the end. If nothing
//! changed, no signed item is lost.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use agent_core::clock::Effects;
use agent_core::commit::Commit;
use agent_core::event::{
    Decision, EventPayload, EventType, Media, MediaSource, Message, NewEvent, Part, SystemMessage,
    ToolConfirmation, ToolOutcome, ToolResult,
};
use agent_core::json::RawJson;
use agent_core::model::ActionKind;
use agent_core::session::SessionRecord;
use agent_core::state::SessionState;
use agent_core::store::ReadEvents;
use agent_core::{MemoryStore, Result, Seq, SessionId, SessionStoreExt, Storage, async_trait};
use agent_runtime::context::{ContextLimits, Messages, ModelContext, ModelMessage};
use agent_runtime::{
    AgentBuilder, AgentRuntime, Config, Conversation, FaultKind, LlmProvider, ModelCapabilities, ModelEvent,
    ModelRequest, ModelStream, ModelTarget, Plugin, ProviderFault, RunError, ScriptedProvider, StopReason,
    ToolContext, ToolMode, ToolSpec, Turn, Usage,
};
use futures::{FutureExt, StreamExt, TryStreamExt};

use crate::common::Faulty;
use crate::common::dying::Dying;

#[derive(Debug, Default)]
struct Counts {
    requests: usize,
    /// Requests in which every signed item of the history is.
    whole: usize,
    signed: usize,
    /// Refusals that the model made by chance, and those that the history caused.
    forced: usize,
    refused: usize,
    switched: usize,
    crashed: usize,
    /// Pictures that the model refused, requests that were too long for it, and those that it refused while it was down.
    pictures: usize,
    too_long: usize,
    down: usize,
    /// Shorter requests that were accepted.
    shorter: usize,
}

/// What the server of the model is like for the moment.
#[derive(Debug, Default)]
struct Server {
    /// Answers everything with 400.
    is_down: bool,
    /// Maximum bytes of the messages, in steps that the world chooses; `None` for no maximum.
    most: Option<usize>,
    /// The last request was refused because of its length or its content: the next one may be another than the log says.
    refused: bool,
    /// Request in another form than the log said, which was accepted: if the log has the answer, the next one to the same
    /// model with the same system prompt begins with it. Before it the name of the model, and the head of the log.
    accepted: Option<(String, Seq, ModelRequest)>,
}

/// Bytes of a picture that looks like one, and that the model refuses.
const BROKEN: &[u8] = b"\x89PNG\r\n\x1a\ncut";

/// What all processes of one life share.
#[derive(Debug)]
struct World {
    faulty: Faulty,
    storage: Storage,
    effects: Effects,
    limits: ContextLimits,
    session: Mutex<Option<SessionId>>,
    counts: Mutex<Counts>,
    broken: Mutex<Option<String>>,
    server: Mutex<Server>,
}

impl World {
    fn pick(&self, of: u64) -> u64 {
        self.effects.random_u64() % of
    }

    fn text(&self) -> String {
        format!("{} {}", self.pick(1000), "한🙂".repeat(usize::try_from(self.pick(20)).unwrap()))
    }

    fn turn(&self, has_signed: bool) -> Turn {
        let mut turn = Turn::new();
        for _ in 0..=self.pick(3) {
            turn = match self.pick(4) {
                0 | 1 => turn.signed_thinking(self.text()),
                _ => turn.text(self.text()),
            };
        }
        if self.pick(2) == 0 {
            for _ in 0..=self.pick(2) {
                let tool = ["look", "look", "delete"][usize::try_from(self.pick(3)).unwrap()];
                let id = format!("call_{}", self.pick(40));
                turn = match self.pick(2) {
                    0 => turn.signed_call(&id, tool, RawJson::empty_object()),
                    _ => turn.call(&id, tool, RawJson::empty_object()),
                };
            }
        }
        match self.pick(16) {
            0 => turn.cut(ProviderFault::new(FaultKind::Network, "lost")),
            1 => turn.done(StopReason::MaxTokens),
            // A server never refuses what has no items of its own.
            2 if has_signed => {
                self.counts.lock().unwrap().forced += 1;
                Turn::fault(ProviderFault::new(FaultKind::ReplayRejected, "by chance"))
            }
            _ => turn,
        }
    }

    /// Message of a person, sometimes with a picture that the model refuses.
    fn message(&self) -> Message {
        let message = Message::new(self.text());
        match self.pick(8) {
            0 => message.with_part(Part::Image(Media::inline("image/png", BROKEN))),
            1 => message.with_part(Part::Image(Media::inline("image/png", *b"no picture"))),
            _ => message,
        }
    }

    /// Returns the fault of the server, if it refuses the request.
    fn refusal(&self, request: &ModelRequest) -> Option<FaultKind> {
        let (mut server, mut counts) = (self.server.lock().unwrap(), self.counts.lock().unwrap());
        let size: usize = request.messages.iter().map(ModelMessage::size_bytes).sum();
        let is_broken = |part: &Part| match part {
            Part::Image(media) => matches!(&media.source, MediaSource::Inline(bytes) if bytes[..] == *BROKEN),
            _ => false,
        };
        let of = |message: &ModelMessage| match message {
            ModelMessage::User(content) => content.parts.iter().any(is_broken),
            ModelMessage::ToolResults(results) => {
                results.iter().flat_map(|result| &result.content).any(is_broken)
            }
            _ => false,
        };
        // One exchange fits in any case: no history can be shorter.
        let is_long = request.messages.len() > 3 && server.most.is_some_and(|most| size > most);
        let kind = if server.is_down {
            counts.down += 1;
            Some(FaultKind::InvalidRequest)
        } else if is_long {
            counts.too_long += 1;
            Some(FaultKind::ContextTooLong)
        } else if request.messages.iter().any(of) {
            counts.pictures += 1;
            Some(FaultKind::InvalidRequest)
        } else {
            None
        };
        server.refused = kind.is_some();
        kind
    }

    /// Compares a request with what the log says, and counts the signed items that it could hold.
    async fn judge(
        &self,
        request: &ModelRequest,
        model: &ScriptedProvider,
    ) -> std::result::Result<(), String> {
        let id = self.session.lock().unwrap().unwrap();
        let sessions = &*self.storage.sessions;
        let now = sessions.load(id).await.unwrap();
        let sent = natives(&request.messages);
        self.counts.lock().unwrap().requests += 1;
        self.counts.lock().unwrap().signed += sent;
        // After a refusal the rest of the run asks without native items.
        if request.effort.is_some() {
            return if sent == 0 { Ok(()) } else { Err("it asks with native items again".to_owned()) };
        }
        let context = ModelContext::read(sessions, &now, self.limits).await.unwrap();
        let target =
            ModelTarget::of(model).with_system(request.system.clone()).with_tools(request.tools.clone());
        let expected = target.messages(&context);
        let (is_other, accepted) = {
            let mut server = self.server.lock().unwrap();
            (server.refused, server.accepted.take())
        };
        if is_other {
            // It has less than the log says, because the server refused that.
            return Ok(());
        }
        if context.needs_compaction() {
            // The run could not divide the window, and gives its end.
            return Ok(());
        }
        if let Some((name, head, accepted)) = accepted
            && (name, accepted.system) == (model.name().to_owned(), request.system.clone())
            && now.visible_from <= head
            && is_same_window(&accepted.messages, &expected)
            && self.is_answered(&now, head).await
            && !request.messages.starts_with(&accepted.messages)
        {
            return Err(format!("accepted was {:#?}\nsent is {:#?}", accepted.messages, request.messages));
        }
        if request.messages != expected {
            let sent = &request.messages;
            return Err(format!("the log says {expected:#?}\nsent is {sent:#?}\n{}", now.to_json()));
        }
        let (mut signed, mut answer, mut changed) =
            (0, 0, now.summary > Seq::ZERO || now.system_prompt > Seq::ZERO);
        let mut events = sessions.events(id, now.visible_from);
        while let Some(event) = events.try_next().await.unwrap() {
            answer += event.payload.get().matches(r#""native""#).count();
            if let EventPayload::AgentResponse(response) = event.decode().unwrap() {
                // An answer that lost an item, or was cut, is not given back as it came.
                signed += if response.given.is_some() { answer } else { 0 };
                answer = 0;
                changed |= response.replay.is_some() || response.origin != model.origin();
            }
        }
        if !changed && sent != signed {
            return Err(format!("{sent} of {signed} signed items are sent: {:#?}", request.messages));
        }
        self.counts.lock().unwrap().whole += usize::from(!changed && signed > 0);
        Ok(())
    }

    /// Returns whether the log has an answer after an event.
    async fn is_answered(&self, now: &SessionRecord, after: Seq) -> bool {
        let read = ReadEvents::first(1).with_after(after).with_types([EventType::AGENT_RESPONSE]);
        !self.storage.sessions.history_of(now, read).await.unwrap().events.is_empty()
    }

    /// What another process writes while the model answers.
    async fn interfere(&self) {
        let id = self.session.lock().unwrap().unwrap();
        let sessions = &self.storage.sessions;
        let event = match self.pick(24) {
            0 => NewEvent::user_message(self.text()),
            1 => NewEvent::of(&EventPayload::SystemMessage(SystemMessage::injected(self.text()))),
            2 if self.pick(4) == 0 => NewEvent::system_prompt(self.text()),
            3 if self.pick(4) == 0 => {
                let summary = format!("by somebody else, {}", self.pick(1 << 40));
                drop(sessions.compact(id, None, &summary).await);
                return;
            }
            _ => return,
        };
        let head = sessions.load(id).await.unwrap().head;
        let commit = Commit::seal(&self.effects, id, head).with_event(event);
        sessions.commit_new_with_retry(commit).await.unwrap();
    }
}

/// Returns whether the messages begin with the same summary, if there is one.
fn is_same_window(one: &Messages, other: &Messages) -> bool {
    let summary = |messages: &Messages| match messages.first() {
        Some(ModelMessage::Summary(text)) => Some(text.clone()),
        _ => None,
    };
    summary(one) == summary(other)
}

fn natives(messages: &Messages) -> usize {
    let items = messages.iter().filter_map(|message| match message {
        ModelMessage::Agent(message) => Some(&message.items),
        _ => None,
    });
    items.flatten().filter(|item| item.native.is_some()).count()
}

/// A signing model that answers by chance.
#[derive(Clone, Debug)]
struct Model {
    world: Arc<World>,
    scripted: ScriptedProvider,
}

#[async_trait]
impl LlmProvider for Model {
    fn name(&self) -> &str {
        self.scripted.name()
    }

    fn model(&self) -> &str {
        self.scripted.model()
    }

    fn capabilities(&self) -> ModelCapabilities {
        self.scripted.capabilities()
    }

    fn origin(&self) -> Option<agent_core::event::ModelOrigin> {
        self.scripted.origin()
    }

    async fn generate(&self, request: ModelRequest) -> Result<ModelStream> {
        if let Err(broken) = self.world.judge(&request, &self.scripted).await {
            self.world.broken.lock().unwrap().get_or_insert(broken);
        }
        let is_other = self.world.server.lock().unwrap().refused;
        if let Some(kind) = self.world.refusal(&request) {
            return Err(ProviderFault::new(kind, "refused").into());
        }
        self.scripted.push(self.world.turn(natives(&request.messages) > 0));
        let id = self.world.session.lock().unwrap().unwrap();
        let head = self.world.storage.sessions.load(id).await.unwrap().head;
        let accepted = is_other.then(|| (self.name().to_owned(), head, request.clone()));
        let stream = match self.scripted.generate(request).await {
            Ok(stream) => {
                self.world.counts.lock().unwrap().shorter += usize::from(accepted.is_some());
                self.world.server.lock().unwrap().accepted = accepted;
                stream
            }
            Err(error) => {
                let fault = ProviderFault::of(&error).unwrap();
                let is_forced = fault.text == "by chance";
                if fault.kind == FaultKind::ReplayRejected && !is_forced {
                    println!("refused: {}", fault.text);
                }
                let mut counts = self.world.counts.lock().unwrap();
                counts.refused += usize::from(fault.kind == FaultKind::ReplayRejected && !is_forced);
                return Err(error);
            }
        };
        let world = self.world.clone();
        Ok(stream
            .then(move |event| {
                let world = world.clone();
                async move {
                    if !matches!(event, Ok(ModelEvent::Delta { .. })) {
                        world.interfere().await;
                    }
                    event
                }
            })
            .boxed())
    }
}

#[derive(Debug)]
struct Tools(Arc<World>);

#[async_trait]
impl Plugin for Tools {
    fn name(&self) -> &str {
        "tools"
    }

    fn tools(&self) -> Vec<ToolSpec> {
        vec![ToolSpec::new("look", "looks"), ToolSpec::new("delete", "").with_mode(ToolMode::Confirm)]
    }

    async fn call(&self, _: &str, _: RawJson, _: ToolContext) -> Result<RawJson> {
        self.0.interfere().await;
        RawJson::of(&self.0.text())
    }
}

fn start(world: &Arc<World>, storage: &Storage, name: &str) -> AgentRuntime {
    let scripted = ScriptedProvider::new([]).with_name(name).with_account("team-a");
    AgentBuilder::new()
        .with_config(Config::default().with_context_limits(world.limits).with_model_retries(0))
        .with_llm(Model { world: world.clone(), scripted })
        .with_plugin(Tools(world.clone()))
        .with_storage(storage.clone())
        .with_effects(world.effects.clone())
        .build()
        .unwrap()
}

/// Answers what the session waits for.
async fn answer(world: &World, chat: &Conversation) {
    let Some(action) = chat.refresh().await.unwrap().action.clone() else { return };
    if action.kind == ActionKind::ToolResult {
        let call = action.id.as_str().parse().unwrap();
        chat.answer(ToolResult::new(call, ToolOutcome::Ok, RawJson::of(&world.text()).unwrap()))
            .await
            .unwrap();
    } else {
        let decision = if world.pick(2) == 0 { Decision::Allow } else { Decision::Deny };
        chat.answer(ToolConfirmation::new(action.id, decision)).await.unwrap();
    }
    if let Some(run) = chat.run_pending().await.unwrap() {
        drop(run.finish().await);
    }
}

/// Prompts until a run is not refused. One exchange may be too long for a smaller model; then the next prompt may leave it
/// out.
async fn prompt(world: &World, chat: &Conversation) {
    for _ in 0..3 {
        match chat.prompt(world.message()).await.unwrap().finish().await {
            Err(RunError::Failed(report)) => match report.fault() {
                // Of a run that was answered, one step alone may be too long.
                Some(FaultKind::ContextTooLong) if report.usage == Usage::default() => {}
                Some(FaultKind::ReplayRejected | FaultKind::InvalidRequest) => {
                    panic!("it is stuck: {report:?}")
                }
                _ => return,
            },
            _ => return,
        }
    }
    panic!("it is stuck: each request is too long");
}

async fn live(world: &Arc<World>, steps: usize) {
    let mut name = "one";
    let mut agent = start(world, &world.storage, name);
    let mut chat = agent.conversation("life").await.unwrap();
    for _ in 0..steps {
        *world.session.lock().unwrap() = Some(chat.id());
        match world.pick(20) {
            0 => {
                // Another process goes on, sometimes with another model.
                if world.pick(2) == 0 {
                    name = if name == "one" { "two" } else { "one" };
                    world.counts.lock().unwrap().switched += 1;
                }
                agent = start(world, &world.storage, name);
                chat = agent.conversation_by_id(chat.id()).await.unwrap();
            }
            1 => {
                if let Ok(fork) = chat.fork(None).await {
                    chat = agent.conversation_by_id(fork.id()).await.unwrap();
                }
            }
            2 if chat.refresh().await.unwrap().status.state == SessionState::Idle && world.pick(3) == 0 => {
                chat.clear().await.unwrap();
            }
            3 | 4 => {
                // The process dies in a run, and another one finds out.
                let dying = Dying::new(&world.storage);
                let doomed = start(world, &dying.storage(&world.storage), name);
                let there = doomed.conversation_by_id(chat.id()).await.unwrap();
                dying.die_in(usize::try_from(world.pick(14)).unwrap(), world.pick(2) == 0);
                if let Ok(run) = there.prompt(world.message()).await {
                    drop(tokio::time::timeout(Duration::from_secs(20), run.finish()).await);
                }
                drop(doomed);
                let now = chat.refresh().await.unwrap();
                if now.status.state == SessionState::Running {
                    world.faulty.bury(now.epoch);
                    world.counts.lock().unwrap().crashed += 1;
                }
            }
            5 => {
                let run = chat.prompt(world.message()).await.unwrap();
                for _ in 0..world.pick(6) {
                    tokio::task::yield_now().await;
                }
                run.cancel();
                drop(run.finish().await);
            }
            6 => drop(chat.send(world.message()).await.unwrap()),
            7..11 => answer(world, &chat).await,
            11 => {
                // A smaller model, a larger one, or one without a limit.
                let most = [None, Some(500), Some(1000), Some(2000)][usize::try_from(world.pick(4)).unwrap()];
                world.server.lock().unwrap().most = most;
            }
            12 => {
                world.server.lock().unwrap().is_down = true;
                for _ in 0..world.pick(3) {
                    drop(chat.prompt(world.message()).await.unwrap().finish().await);
                }
                world.server.lock().unwrap().is_down = false;
            }
            _ => prompt(world, &chat).await,
        }
        let broken = world.broken.lock().unwrap().take();
        assert!(broken.is_none(), "{}", broken.unwrap_or_default());
    }
}

/// Cancelled, crashed, cut, compacted, cleared, forked, refused for a picture or for its length, and switched to another
/// model, at any point, while others write.
/// AGENT_STUCK_LIVES sets the number of histories; AGENT_STUCK_SEED lives one of them again.
#[tokio::test(start_paused = true)]
async fn every_history_is_accepted_in_the_end() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let one = number("AGENT_STUCK_SEED");
    let lives = number("AGENT_STUCK_LIVES").unwrap_or(200);
    let mut all = Counts::default();
    for seed in one.map_or(0..lives, |seed| seed..seed + 1) {
        let faulty = Faulty::new(MemoryStore::new().into());
        let effects = Effects::seeded(seed, "2026-02-15T10:30:00Z".parse().unwrap());
        let limits =
            [ContextLimits::default(), ContextLimits::new(24, 1 << 20), ContextLimits::new(1000, 1500)];
        let world = Arc::new(World {
            storage: faulty.storage().with_effects(effects.clone()),
            faulty,
            effects,
            limits: limits[usize::try_from(seed % 3).unwrap()],
            session: Mutex::default(),
            counts: Mutex::default(),
            broken: Mutex::default(),
            server: Mutex::default(),
        });
        let life = std::panic::AssertUnwindSafe(live(&world, 30)).catch_unwind();
        let life = tokio::time::timeout(Duration::from_secs(1 << 20), life).await;
        assert!(life.is_ok_and(|life| life.is_ok()), "AGENT_STUCK_SEED={seed}");
        let counts = world.counts.lock().unwrap();
        all.requests += counts.requests;
        all.whole += counts.whole;
        all.signed += counts.signed;
        all.forced += counts.forced;
        all.refused += counts.refused;
        all.switched += counts.switched;
        all.crashed += counts.crashed;
        all.pictures += counts.pictures;
        all.too_long += counts.too_long;
        all.down += counts.down;
        all.shorter += counts.shorter;
    }
    println!("proof: {} requests, {} of which hold every signed item; {all:?}", all.requests, all.whole);
    assert_eq!(all.refused, 0, "the log knows what a server accepts: {all:?}");
    assert!(
        one.is_some()
            || (all.whole > all.requests / 20
                && [all.switched, all.crashed, all.pictures, all.too_long, all.down, all.shorter]
                    .iter()
                    .all(|count| *count > 0)),
        "{all:?}"
    );
}
