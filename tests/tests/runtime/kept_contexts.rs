//! Contexts that are kept between the runs of a conversation. A run goes on with the messages of the last one, and its request is that
//! of a run which reads the whole log, whatever happened in between.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

use agent_core::event::{Citation, ToolOutcome};
use agent_core::event::{EventPayload, NewEvent, SystemMessage};
use agent_core::json::RawJson;
use agent_core::model::{Patch, ToolPayloads};
use agent_core::store::{Damaged, EventPage, Purge, ReadEvents, SessionStoreWrapper};
use agent_core::{
    Error, ErrorKind, MemoryStore, Result, SessionId, SessionStore, Storage, WorkspaceId, async_trait,
};
use agent_runtime::context::{ContextLimits, ModelContext, ModelMessage};
use agent_runtime::schemars::JsonSchema;
use agent_runtime::secrets::{Secret, SecretName, SecretSource, Secrets};
use agent_runtime::{
    AgentBuilder, AgentRuntime, Config, Conversation, Gate, LlmProvider, ModelCall, ModelCapabilities,
    ModelEvent, ModelPart, ModelRequest, ModelTarget, PartKind, ScriptedProvider, Summarizer, SummaryRequest,
    ToolContext, Turn, WrittenSummary, tool,
};
use serde::Deserialize;

#[derive(Deserialize, JsonSchema)]
#[schemars(crate = "agent_runtime::schemars")]
struct Nothing {}

async fn look(_: Nothing, _: ToolContext) -> Result<&'static str> {
    Ok("seen")
}

/// Memory whose events can be marked as damaged.
#[derive(Debug)]
struct Store {
    under: MemoryStore,
    is_damaged: AtomicBool,
    /// Number of events that were read.
    read: AtomicUsize,
}

#[async_trait]
impl SessionStoreWrapper for Store {
    fn inner(&self) -> &dyn SessionStore {
        &self.under
    }

    async fn read(&self, id: SessionId, read: ReadEvents) -> Result<EventPage> {
        let mut page = SessionStore::read(&self.under, id, read).await?;
        self.read.fetch_add(page.events.len(), SeqCst);
        if self.is_damaged.load(SeqCst) {
            page.damaged.push(Damaged::of("event 1", &Error::corrupt("it is damaged")));
        }
        Ok(page)
    }
}

/// Secret with a value that is replaced.
#[derive(Clone, Debug)]
struct Rotating(Arc<Mutex<&'static str>>);

#[async_trait]
impl SecretSource for Rotating {
    async fn secret(&self, _: WorkspaceId, _: &SecretName) -> Result<Option<Secret>> {
        let value = *self.0.lock().unwrap();
        Ok(Some(Secret::new(value)?))
    }
}

/// Number of messages before those of a scene: so many that they are a segment of their own.
const OLD: usize = 200;

#[derive(Debug)]
struct Brief;

#[async_trait]
impl Summarizer for Brief {
    async fn summarize(&self, request: SummaryRequest) -> Result<WrittenSummary> {
        Ok(format!("{} messages about rain", request.messages.len()).into())
    }
}

struct Scene {
    store: Arc<Store>,
    storage: Storage,
    model: ScriptedProvider,
    secrets: Secrets,
    rotating: Rotating,
    agent: AgentRuntime,
    chat: Conversation,
}

impl Scene {
    async fn new(config: Config) -> Self {
        let under = MemoryStore::new();
        let store = Arc::new(Store {
            under: under.clone(),
            is_damaged: AtomicBool::new(false),
            read: AtomicUsize::new(0),
        });
        let of: Storage = under.into();
        let storage = Storage::new(of.workspaces.clone(), store.clone(), of.bindings.clone());
        let model = ScriptedProvider::new([]).with_account("team");
        let small = ModelCapabilities::all().with_context_tokens(Some(50_000));
        let rotating = Rotating(Arc::new(Mutex::new("a first value")));
        let secrets = Secrets::new(rotating.clone());
        let agent = AgentBuilder::new()
            .with_llm(model.clone())
            .with_llm(ScriptedProvider::new([]).with_name("other").with_capabilities(small))
            .with_config(config.with_provider("scripted"))
            .with_tool(tool("look", "looks", look))
            .with_summarizer(Brief)
            .with_storage(storage.clone())
            .with_secrets(secrets.clone())
            .build()
            .unwrap();
        let chat = agent.conversation("chat").await.unwrap();
        let exchange = [NewEvent::user_message("How was it?"), NewEvent::agent_message("It rained.")];
        let events = std::iter::repeat_n(exchange, OLD / 2).flatten().collect();
        storage.sessions.append(chat.id(), chat.record().head, events).await.unwrap();
        let scene = Self { store, storage, model, secrets, rotating, agent, chat };
        for _ in 0..3 {
            scene.ask("How is it?").await;
        }
        scene
    }

    /// Prompts the model, which calls a tool first. Returns its last request, which is what the log says.
    async fn ask(&self, text: &str) -> ModelRequest {
        let id = format!("c{}", self.model.requests().len());
        let call = Turn::new().signed_thinking("I look.").signed_call(&id, "look", RawJson::empty_object());
        self.model.push(call);
        self.model.push(Turn::new().signed_thinking("I saw.").text("It rains."));
        self.chat.prompt(text).await.unwrap().finish().await.unwrap();
        let request = self.model.requests().pop().unwrap();
        let config = self.agent.config();
        if config.tool_payloads == ToolPayloads::Store && config.store_thinking {
            self.check(&request, &self.model).await;
        }
        request
    }

    /// Checks that a request, behind which the log has one answer, is what a reader of the whole log finds.
    async fn check(&self, request: &ModelRequest, model: &dyn LlmProvider) {
        let record = self.chat.refresh().await.unwrap();
        let limits = self.agent.config().limits.context;
        let context = ModelContext::read(&*self.storage.sessions, &record, limits).await.unwrap();
        let target =
            ModelTarget::of(model).with_system(request.system.clone()).with_tools(request.tools.clone());
        let mut all = Vec::from(target.messages(&context));
        all.pop();
        assert_eq!(request.messages, all);
    }

    async fn append(&self, event: NewEvent) {
        let head = self.chat.refresh().await.unwrap().head;
        self.storage.sessions.append(self.chat.id(), head, vec![event]).await.unwrap();
    }
}

/// Returns how many messages two requests share.
fn shared(one: &ModelRequest, other: &ModelRequest) -> usize {
    let both = one.messages.iter().zip(other.messages.iter());
    both.filter(|(one, other)| std::ptr::eq::<ModelMessage>(*one, *other)).count()
}

/// Returns whether the run after a change goes on with the messages of the run before it.
async fn goes_on(change: impl AsyncFnOnce(&Scene)) -> bool {
    let scene = Scene::new(Config::new()).await;
    let before = scene.ask("And now?").await;
    change(&scene).await;
    let after = scene.ask("And then?").await;
    let count = shared(&before, &after);
    assert!(count == 0 || count >= OLD, "{count}");
    count > 0
}

#[tokio::test]
async fn a_run_goes_on_with_the_messages_of_the_last_one() {
    assert!(goes_on(async |_| {}).await);
    assert!(goes_on(async |scene| scene.append(NewEvent::user_message("by another")).await).await);
    let note = NewEvent::of(&EventPayload::SystemMessage(SystemMessage::injected("a note")));
    assert!(goes_on(async |scene| scene.append(note).await).await);
    let more = async |scene: &Scene| {
        scene.chat.send("more").await.unwrap();
    };
    assert!(goes_on(more).await);
    let label = Patch::new().with_label("weather", "rain");
    assert!(goes_on(async |scene| scene.chat.update(label).await.unwrap()).await);
    // Another handle, and another process in between.
    assert!(goes_on(async |scene| drop(scene.agent.conversation("chat").await.unwrap())).await);
    let elsewhere = async |scene: &Scene| {
        let model = ScriptedProvider::new([Turn::new().text("Here, too.")]);
        let builder = AgentBuilder::new().with_llm(model).with_storage(scene.storage.clone());
        let chat = builder.build().unwrap().conversation("chat").await.unwrap();
        chat.prompt("Elsewhere?").await.unwrap().finish().await.unwrap();
        scene.chat.refresh().await.unwrap();
    };
    assert!(goes_on(elsewhere).await);
}

#[tokio::test]
async fn a_run_begins_anew_after_what_changes_more_than_the_end_of_the_log() {
    let compaction = async |scene: &Scene| {
        scene.storage.sessions.compact(scene.chat.id(), None, "It was about rain.").await.unwrap();
    };
    assert!(!goes_on(compaction).await, "a compaction");
    assert!(!goes_on(async |scene| scene.chat.clear().await.unwrap()).await, "a cleared history");
    assert!(
        !goes_on(async |scene| scene.chat.set_system_prompt("Be brief.").await.unwrap()).await,
        "a system prompt"
    );
    let name: SecretName = "token".parse().unwrap();
    let mounted =
        async |scene: &Scene| drop(scene.secrets.reveal(WorkspaceId::DEFAULT, &name).await.unwrap());
    assert!(!goes_on(mounted).await, "a secret");
    // A value that became known while a run asked its model.
    let scene = Scene::new(Config::new()).await;
    let gate = Gate::new();
    scene.model.push(Turn::new().gate(&gate).text("It is here."));
    let run = scene.chat.prompt("Where is it?").await.unwrap();
    mounted(&scene).await;
    gate.open();
    run.finish().await.unwrap();
    let before = scene.model.requests().pop().unwrap();
    assert_eq!(shared(&before, &scene.ask("And now?").await), 0);

    // More commits than the record remembers: nothing shows that the log is the same.
    let many = async |scene: &Scene| {
        for n in 0..20 {
            scene.append(NewEvent::user_message(format!("number {n}"))).await;
        }
    };
    assert!(!goes_on(many).await, "many commits");

    // A value that replaced another one.
    let scene = Scene::new(Config::new()).await;
    mounted(&scene).await;
    scene.ask("With the first?").await;
    let before = scene.ask("Still?").await;
    mounted(&scene).await;
    assert!(shared(&before, &scene.ask("The same value?").await) > 0);
    *scene.rotating.0.lock().unwrap() = "a second value";
    mounted(&scene).await;
    assert_eq!(shared(&before, &scene.ask("With the second?").await), 0);
}

#[tokio::test]
async fn a_damaged_log_is_read_as_without_a_kept_context() {
    let scene = Scene::new(Config::new()).await;
    let before = scene.ask("And now?").await;
    scene.store.is_damaged.store(true, SeqCst);
    scene.model.push(Turn::new().text("I see."));
    scene.chat.prompt("Is it damaged?").await.unwrap().finish().await.unwrap();
    // The run has read the log, in which a part is damaged, and made a summary of what it could not read.
    assert_eq!(shared(&before, &scene.model.requests().pop().unwrap()), 0);
    let now = scene.chat.refresh().await.unwrap();
    assert!(now.summary > agent_core::Seq::ZERO);
}

#[tokio::test]
async fn another_model_is_given_what_it_takes() {
    let scene = Scene::new(Config::new()).await;
    scene.ask("And now?").await;
    scene.chat.update(Patch::new().with_reference("provider", "other")).await.unwrap();
    let error = scene.chat.prompt("And you?").await.unwrap().finish().await.unwrap_err();
    assert!(error.to_string().contains("no more turns"), "{error}");
    // Back to the first, which is given its own items again.
    scene.chat.update(Patch::new().with_reference("provider", "scripted")).await.unwrap();
    let request = scene.ask("And then?").await;
    let signed = request.messages.iter().filter(|message| {
        matches!(message, ModelMessage::Agent(said) if said.items.iter().any(|item| item.native.is_some()))
    });
    assert_eq!(signed.count(), 9);
}

#[tokio::test]
async fn reasoning_that_the_log_omits_is_not_kept() {
    let scene = Scene::new(Config::new().with_store_thinking(false)).await;
    let before = scene.ask("And now?").await;
    let after = scene.ask("And then?").await;
    assert_eq!(shared(&before, &after), 0);
    let signed = after.messages.iter().filter(|message| {
        matches!(message, ModelMessage::Agent(said) if said.items.iter().any(|item| item.native.is_some()))
    });
    assert_eq!(signed.count(), 1, "that of this run");
}

/// Returns the summary of a conversation that comes over its limits between two runs.
async fn summary_of_too_much(kept: usize) -> String {
    let limits = ContextLimits::new(1000, 40_000);
    let scene = Scene::new(Config::new().with_context_limits(limits).with_context_cache_bytes(kept)).await;
    let long = || NewEvent::user_message("x".repeat(9_000));
    for _ in 0..3 {
        scene.append(long()).await;
    }
    scene.ask("And now?").await;
    for _ in 0..2 {
        scene.append(long()).await;
    }
    scene.model.push(Turn::new().text("I see."));
    scene.chat.prompt("What was it?").await.unwrap().finish().await.unwrap();
    let now = scene.chat.refresh().await.unwrap();
    let context = ModelContext::read(&*scene.storage.sessions, &now, limits).await.unwrap();
    context.summary().expect("there is a summary").to_owned()
}

/// A conversation that came over its limits is read up to these, and its summary is that of a run which reads it so.
#[tokio::test]
async fn a_context_over_its_limits_is_read_again() {
    assert_eq!(summary_of_too_much(128 << 20).await, summary_of_too_much(0).await);
}

#[tokio::test]
async fn what_the_log_omits_is_not_kept() {
    let scene = Scene::new(Config::new().with_tool_payloads(ToolPayloads::Omit)).await;
    let before = scene.ask("And now?").await;
    let after = scene.ask("And then?").await;
    assert_eq!(shared(&before, &after), 0);
    let results = after.messages.iter().filter(|message| matches!(message, ModelMessage::ToolResults(_)));
    assert_eq!(results.count(), 1, "those of this run");
}

#[tokio::test]
async fn nothing_is_kept_without_a_budget() {
    let scene = Scene::new(Config::new().with_context_cache_bytes(0)).await;
    let before = scene.ask("And now?").await;
    assert_eq!(shared(&before, &scene.ask("And then?").await), 0);
}

#[tokio::test]
async fn a_deleted_and_purged_conversation_gives_nothing_to_the_next_of_its_key() {
    let scene = Scene::new(Config::new()).await;
    scene.ask("And now?").await;
    scene.chat.delete().await.unwrap();
    let record = scene.chat.refresh().await.unwrap();
    scene.storage.sessions.purge(Purge::new(record.id, record.head)).await.unwrap();
    let refused = scene.chat.prompt("Are you there?").await.unwrap_err();
    assert_eq!(*refused.kind(), ErrorKind::Deleted);
    let next = scene.agent.recreate_conversation("chat").await.unwrap();
    scene.model.push(Turn::new().text("Hello."));
    next.prompt("Hello?").await.unwrap().finish().await.unwrap();
    let request = scene.model.requests().pop().unwrap();
    assert_eq!(request.messages, [ModelMessage::user("Hello?")]);
}

/// The contexts that were used longest ago go first, of all tenants together; a runtime of other stores has none of them.
#[tokio::test]
async fn contexts_share_a_budget_and_no_stores() {
    let model = ScriptedProvider::new([]);
    let storage = Storage::from(MemoryStore::new());
    // About three conversations of 20 messages of 1 KiB.
    let config = Config::new().with_context_cache_bytes(3 * 2 * 21 * 1400);
    let builder = AgentBuilder::new().with_llm(model.clone()).with_config(config);
    let agent = builder.with_storage(storage.clone()).build().unwrap();
    let ask = async |chat: &Conversation| {
        model.push(Turn::new().text("Yes."));
        chat.prompt("Is it?").await.unwrap().finish().await.unwrap();
        model.requests().pop().unwrap()
    };
    let (mut chats, mut asked) = (Vec::new(), BTreeMap::new());
    for n in 0..8 {
        let chat = agent.conversation(&n.to_string()).await.unwrap();
        let events = (0..20).map(|_| NewEvent::user_message("x".repeat(1024))).collect();
        storage.sessions.append(chat.id(), chat.record().head, events).await.unwrap();
        asked.insert(n, ask(&chat).await);
        chats.push(chat);
    }
    let mut kept = Vec::new();
    for n in (0..8).rev() {
        if shared(&asked[&n], &ask(&chats[n]).await) > 0 {
            kept.push(n);
        }
    }
    assert!(kept == [7, 6, 5] || kept == [7, 6], "{kept:?}");

    // The same session through other stores of the same runtime.
    let other = agent.for_storage(storage.clone());
    let chat = other.conversation_by_id(chats[0].id()).await.unwrap();
    let before = ask(&chats[0]).await;
    assert_eq!(shared(&before, &ask(&chat).await), 0);
    assert!(shared(&before, &ask(&chats[0]).await) > 0);
}

/// A turn reads the events since the last one, however long the conversation is.
#[tokio::test]
async fn a_turn_reads_what_is_new() {
    for (kept, is_all) in [(128 << 20, false), (0, true)] {
        let scene = Scene::new(Config::new().with_context_cache_bytes(kept)).await;
        scene.store.read.store(0, SeqCst);
        scene.model.push(Turn::new().text("It rains."));
        scene.chat.prompt("And now?").await.unwrap().finish().await.unwrap();
        let read = scene.store.read.load(SeqCst);
        assert_eq!(read > OLD, is_all, "{read} events with {kept} bytes");
        assert!(is_all || read < 12, "{read} events");
    }
}

/// What the log has without the value of a secret, the run that wrote it has without it, too.
#[tokio::test]
async fn what_is_redacted_in_the_log_is_redacted_in_the_context() {
    let scene = Scene::new(Config::new()).await;
    let name: SecretName = "token".parse().unwrap();
    scene.secrets.reveal(WorkspaceId::DEFAULT, &name).await.unwrap();
    let cited = ModelPart::text("See there.")
        .with_citation(Citation::new("https://cats.example/a%20first%20value").with_title("a first value"));
    let malformed = ModelCall::malformed("m1", "look", "{", "it has a first value");
    let answer = [
        ModelEvent::part_started(0, PartKind::Text),
        ModelEvent::part_done(0, cited),
        ModelEvent::part_started(1, PartKind::Call),
        ModelEvent::part_done(1, ModelPart::call(malformed)),
    ];
    scene.model.push(answer.into_iter().fold(Turn::new(), Turn::event));
    scene.model.push(Turn::new().text("It rains."));
    scene.chat.prompt("Where?").await.unwrap().finish().await.unwrap();
    let request = scene.model.requests().pop().unwrap();
    scene.check(&request, &scene.model).await;
    let mut results = request.messages.iter().filter_map(|message| match message {
        ModelMessage::ToolResults(results) => Some(&results[0]),
        _ => None,
    });
    let result = results.next_back().unwrap();
    assert_eq!(result.outcome, ToolOutcome::Error);
    assert!(result.output.contains("(secret token)"), "{}", result.output);
    scene.ask("And now?").await;
}

/// A summary without a model quotes the first message, which may be from before a value was known.
#[tokio::test]
async fn a_summary_that_nobody_wrote_names_no_secret() {
    let limits = ContextLimits::new(1000, 20_000);
    let under = Storage::from(MemoryStore::new());
    let model = ScriptedProvider::new([]);
    let rotating = Rotating(Arc::new(Mutex::new("a first value")));
    let secrets = Secrets::new(rotating);
    let builder = AgentBuilder::new().with_llm(model.clone()).with_secrets(secrets.clone());
    let config = Config::new().with_context_limits(limits);
    let agent = builder.with_config(config).with_storage(under.clone()).build().unwrap();
    let chat = agent.conversation("chat").await.unwrap();
    let ask = async |text: String| {
        model.push(Turn::new().text("Yes."));
        chat.prompt(text).await.unwrap().finish().await.unwrap();
        model.requests().pop().unwrap()
    };
    ask("My token is a first value.".to_owned()).await;
    secrets.reveal(WorkspaceId::DEFAULT, &"token".parse().unwrap()).await.unwrap();
    for _ in 0..3 {
        let request = ask("x".repeat(9_000)).await;
        let summary = request.messages.first().filter(|first| matches!(first, ModelMessage::Summary(_)));
        if let Some(ModelMessage::Summary(text)) = summary {
            assert!(text.contains("(secret token)") && !text.contains("a first value"), "{text}");
            return;
        }
    }
    panic!("there was no summary");
}
