//! Parts of answers: stored as they came, in one commit, and given back to the model that made them as they were.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use agent_core::clock::Effects;
use agent_core::commit::Commit;
use agent_core::event::{
    AgentResponse, Citation, Event, EventPayload, EventType, HostedCall, Media, Message, ModelOrigin, Native,
    NewEvent, Part, SystemMessage,
};
use agent_core::json::RawJson;
use agent_core::model::{Access, Patch};
use agent_core::state::Reason;
use agent_core::{MemoryStore, Result, SessionStoreExt, Storage, async_trait};
use agent_runtime::context::{ContextLimits, Messages, ModelContext, ModelMessage};
use agent_runtime::secrets::{Secret, SecretName, Secrets};
use agent_runtime::{
    AgentBuilder, Config, Conversation, Effort, FaultKind, Gate, LlmProvider, MediaKind, ModelCall,
    ModelCapabilities, ModelEvent, ModelPart, ModelRequest, ModelStream, ModelTarget, PartKind,
    ProviderFault, RunError, RunOutcome, ScriptedProvider, StopReason, ToolMode, Turn, Usage,
};
use futures::{StreamExt, stream};

use crate::common::{Tools, agent_with, check_log, json, log, until_text};

fn signing(turns: impl IntoIterator<Item = Turn>) -> ScriptedProvider {
    ScriptedProvider::new(turns).with_account("team-a")
}

async fn start(model: &ScriptedProvider, config: Config) -> Conversation {
    start_on(&MemoryStore::new().into(), model, config).await
}

async fn start_on(storage: &Storage, model: &ScriptedProvider, config: Config) -> Conversation {
    let tools =
        Tools::returning(json("\"seen\""), [("look", ToolMode::Direct), ("delete", ToolMode::Confirm)]);
    agent_with(storage, model.clone(), config, [tools as _]).conversation("key").await.unwrap()
}

async fn ask(chat: &Conversation, text: &str) -> String {
    let run = chat.prompt(text).await.unwrap();
    tokio::time::timeout(Duration::from_secs(600), run.finish()).await.expect("the run ends").unwrap().text
}

/// Number of native items in a request.
fn natives(messages: &Messages) -> usize {
    let items = messages.iter().filter_map(|message| match message {
        ModelMessage::Agent(message) => Some(&message.items),
        _ => None,
    });
    items.flatten().filter(|item| item.native.is_some()).count()
}

/// The events of the last answer and of what followed it, by type and payload.
async fn after_input(chat: &Conversation) -> Vec<(String, RawJson)> {
    let events = log(chat).await;
    let input = events.iter().rposition(|event| event.kind == EventType::USER_MESSAGE).unwrap();
    let of_agent = |event: &&Event| event.kind.is_of("agent");
    events[input..]
        .iter()
        .filter(of_agent)
        .map(|event| (event.kind.to_string(), event.payload.clone()))
        .collect()
}

fn responses(events: &[Event]) -> Vec<AgentResponse> {
    let response = |event: &Event| match event.decode().unwrap() {
        EventPayload::AgentResponse(response) => Some(response),
        _ => None,
    };
    events.iter().filter_map(response).collect()
}

#[tokio::test]
async fn plain_answers_keep_their_bytes() {
    let turns = [
        Turn::new().event(ModelEvent::thinking("hm")).text("I ").text("look.").call(
            "c1",
            "look",
            RawJson::empty_object(),
        ),
        Turn::new().text("Seen."),
    ];
    let chat = start(&ScriptedProvider::new(turns), Config::new()).await;
    ask(&chat, "Hello").await;
    let expected = [
        ("agent.thinking", r#"{"text":"hm"}"#),
        ("agent.message", r#"{"text":"I look."}"#),
        ("agent.tool_use", r#"{"call":"c1","name":"look","input":{}}"#),
        ("agent.tool_result", r#"{"call":"c1","outcome":"ok","output":"seen"}"#),
        ("agent.message", r#"{"text":"Seen."}"#),
    ];
    let stored = after_input(&chat).await;
    let stored: Vec<_> = stored.iter().map(|(kind, payload)| (kind.as_str(), payload.get())).collect();
    assert_eq!(stored, expected);
}

#[tokio::test]
async fn parts_are_stored_in_the_order_of_the_provider() {
    let native = Native::new("x", RawJson::constant(r#"{"b":1,"a":1.50}"#));
    let cited =
        ModelPart::text("A tabby.").with_citation(Citation::new("https://cats.example").with_range(2, 7));
    let search = ModelPart::part(Part::HostedCall(HostedCall::new("search"))).with_native(native.clone());
    let cat = Part::Image(Media::inline("image/png", *b"\x89PNG"));
    let turn = Turn::silent()
        .event(ModelEvent::part_started(0, PartKind::Reasoning))
        .event(ModelEvent::part_started(1, PartKind::Text))
        .event(ModelEvent::delta(1, "A "))
        .event(ModelEvent::delta(0, "cat?"))
        .event(ModelEvent::Ping)
        .event(ModelEvent::delta(1, "tabby."))
        .event(ModelEvent::part_done(0, ModelPart::reasoning("cat?")))
        .event(ModelEvent::part_done(1, cited))
        .event(ModelEvent::part_done(2, search))
        .event(ModelEvent::part_done(
            3,
            ModelPart::call(ModelCall::new("c1", "look", RawJson::empty_object())),
        ))
        .event(ModelEvent::part_done(4, ModelPart::part(cat)))
        .done(StopReason::EndTurn);
    let model = ScriptedProvider::new([turn, Turn::new().text("Done.")]);
    let chat = start(&model, Config::new().with_store_thinking(false)).await;
    assert_eq!(ask(&chat, "What is it?").await, "Done.");
    let stored = after_input(&chat).await;
    let after = log(&chat).await.iter().find(|event| event.kind == EventType::AGENT_MESSAGE).unwrap().seq;
    let response = format!(r#"{{"stop":"end_turn","after":{}}}"#, after.get() - 1);
    // The log keeps no reasoning, so that later requests give the answer as text and calls.
    let expected = [
        (
            "agent.message",
            r#"{"text":"A tabby.","citations":[{"url":"https://cats.example","start":2,"end":7}],"part":1}"#,
        ),
        (
            "agent.part",
            r#"{"type":"hosted_call","name":"search","native":{"api":"x","item":{"b":1,"a":1.50}},"part":2}"#,
        ),
        ("agent.tool_use", r#"{"call":"c1","name":"look","input":{},"part":3}"#),
        ("agent.part", r#"{"type":"image","media":"image/png","data":"iVBORw==","part":4}"#),
        ("agent.response", &*response),
        ("agent.tool_result", r#"{"call":"c1","outcome":"ok","output":"seen"}"#),
        ("agent.message", r#"{"text":"Done."}"#),
    ];
    let stored: Vec<_> = stored.iter().map(|(kind, payload)| (kind.as_str(), payload.get())).collect();
    assert_eq!(stored, expected);
    let commits: Vec<_> = log(&chat).await.iter().map(|event| event.commit).collect();
    let answer = commits.iter().position(|commit| *commit == log_commit(&commits, after)).unwrap();
    assert!(commits[answer..answer + 5].iter().all(|commit| *commit == commits[answer]), "one commit");
}

fn log_commit(commits: &[agent_core::CommitId], seq: agent_core::Seq) -> agent_core::CommitId {
    commits[usize::try_from(seq.get()).unwrap() - 1]
}

#[tokio::test]
async fn signed_items_go_back_as_they_came() {
    let storage: Storage = MemoryStore::new().into();
    let signed = || Turn::new().signed_thinking("They ask.").text("So.");
    let model = signing([
        Turn::new().signed_thinking("I look.").signed_call("c1", "look", RawJson::empty_object()),
        signed(),
        signed(),
        Turn::new().text("Bye."),
    ]);
    ask(&start_on(&storage, &model, Config::new()).await, "One").await;
    // Another process goes on.
    let chat = start_on(&storage, &model, Config::new()).await;
    ask(&chat, "Two").await;
    ask(&chat, "Three").await;
    let requests = model.requests();
    let counts: Vec<_> = requests.iter().map(|request| natives(&request.messages)).collect();
    assert_eq!(counts, [0, 2, 3, 4], "no request is refused, and no item is lost");
    for pair in requests.windows(2) {
        assert!(pair[1].messages.starts_with(&pair[0].messages));
    }
    let responses = responses(&log(&chat).await);
    assert_eq!(responses.len(), 4);
    for response in responses {
        let origin = ModelOrigin::new("scripted.messages", "scripted", "scripted").with_account("team-a");
        assert_eq!((response.origin, response.stop.as_deref()), (Some(origin), Some("end_turn")));
        assert_eq!(response.given.map(|hash| hash.len()), Some(64));
    }
    check_log(&chat).await;
}

#[tokio::test]
async fn a_changed_prefix_costs_the_items_before_it() {
    let signed = || Turn::new().signed_thinking("hm").text("so");
    let model = signing((0..4).map(|_| signed()));
    let chat = start(&model, Config::new()).await;
    ask(&chat, "One").await;
    chat.set_system_prompt("Answer briefly.").await.unwrap();
    for text in ["Two", "Three", "Four"] {
        ask(&chat, text).await;
    }
    let counts: Vec<_> = model.requests().iter().map(|request| natives(&request.messages)).collect();
    assert_eq!(counts, [0, 0, 1, 2], "the first is lost, the later ones are not");
}

#[tokio::test]
async fn another_model_is_given_text_and_calls() {
    let storage: Storage = MemoryStore::new().into();
    let look = Turn::new().signed_thinking("hm").signed_call("c1", "look", RawJson::empty_object());
    ask(
        &start_on(&storage, &signing([look, Turn::new().signed_thinking("ah").text("so")]), Config::new())
            .await,
        "One",
    )
    .await;
    let other = signing([Turn::new().signed_thinking("oh").text("yes")]).with_name("other");
    ask(&start_on(&storage, &other, Config::new()).await, "Two").await;
    let [request] = &other.requests()[..] else { panic!("one request") };
    let ModelMessage::Agent(message) = &request.messages[1] else { panic!("{request:?}") };
    assert_eq!((message.items.len(), message.calls().count()), (1, 1), "no reasoning");
    assert_eq!(request.messages[3], ModelMessage::agent("so"));
    // Back with the first model, its own items are behind nothing new.
    let first = signing([Turn::new().text("again")]);
    ask(&start_on(&storage, &first, Config::new()).await, "Three").await;
    assert_eq!(natives(&first.requests()[0].messages), 3, "the items of the other model are left out");
}

#[tokio::test]
async fn a_refused_replay_is_asked_without_native_items() {
    let refused = || Turn::fault(ProviderFault::new(FaultKind::ReplayRejected, "the signature is too old"));
    let model = signing([
        Turn::new().signed_thinking("hm").text("so"),
        refused(),
        Turn::new().call("c1", "look", RawJson::empty_object()),
        Turn::new().text("seen"),
        Turn::new().signed_thinking("hm").text("so"),
        Turn::new().text("bye"),
    ]);
    let chat = start(&model, Config::new()).await;
    for text in ["One", "Two", "Three", "Four"] {
        ask(&chat, text).await;
    }
    let requests = model.requests();
    let counts: Vec<_> = requests.iter().map(|request| natives(&request.messages)).collect();
    assert_eq!(counts, [0, 1, 0, 0, 0, 1]);
    let efforts: Vec<_> = requests.iter().map(|request| request.effort).collect();
    let off = Some(Effort::Off);
    assert_eq!(efforts, [None, None, off, off, None, None], "until the turn ends");
    let replays: Vec<_> = responses(&log(&chat).await).into_iter().map(|response| response.replay).collect();
    let canonical = || Some("canonical".to_owned());
    assert_eq!(replays, [None, canonical(), canonical(), None, None]);
}

/// A provider whose API signs the effort, which is no part of what the log knows.
#[derive(Clone, Debug, Default)]
struct SignsEffort {
    /// Number of requests, and of those that were refused.
    counts: Arc<Mutex<(u32, u32)>>,
}

#[async_trait]
impl LlmProvider for SignsEffort {
    fn name(&self) -> &str {
        "effort"
    }

    fn model(&self) -> &str {
        "effort-1"
    }

    fn origin(&self) -> Option<ModelOrigin> {
        Some(ModelOrigin::new("effort", "effort", "effort-1"))
    }

    async fn generate(&self, request: ModelRequest) -> Result<ModelStream> {
        let signature = RawJson::of(&format!("{:?}", request.effort)).unwrap();
        let items = request.messages.iter().filter_map(|message| match message {
            ModelMessage::Agent(message) => Some(&message.items),
            _ => None,
        });
        let is_refused =
            items.flatten().filter_map(|item| item.native.as_ref()).any(|native| native.item != signature);
        let mut counts = self.counts.lock().unwrap();
        counts.0 += 1;
        if is_refused {
            counts.1 += 1;
            return Err(ProviderFault::new(FaultKind::ReplayRejected, "another effort").into());
        }
        let thought = ModelPart::reasoning("hm").with_native(Native::new("effort", signature));
        let events = [
            ModelEvent::part_done(0, thought),
            ModelEvent::part_done(1, ModelPart::text("so")),
            ModelEvent::done(StopReason::EndTurn, Usage::default()),
        ];
        Ok(stream::iter(events.map(Ok)).boxed())
    }
}

/// What a provider refuses costs one request where it changed, and none in the turns after it.
#[tokio::test]
async fn a_refusal_is_not_repeated_in_later_turns() {
    let (storage, model) = (Storage::from(MemoryStore::new()), SignsEffort::default());
    for (effort, expected) in [(Effort::Low, (3, 0)), (Effort::High, (7, 1)), (Effort::Low, (11, 2))] {
        let agent = agent_with(&storage, model.clone(), Config::new().with_effort(effort), []);
        let chat = agent.conversation("key").await.unwrap();
        for text in ["One", "Two", "Three"] {
            assert_eq!(ask(&chat, text).await, "so");
        }
        assert_eq!(*model.counts.lock().unwrap(), expected, "{effort:?}");
    }
}

#[tokio::test]
async fn a_context_that_is_too_long_is_halved_until_it_fits() {
    let long = || Turn::fault(ProviderFault::new(FaultKind::ContextTooLong, "too long"));
    let turns = (0..4)
        .map(|_| Turn::new().text("so"))
        .chain([long(), Turn::new().text("well")])
        .chain((0..9).map(|_| long()));
    let model = ScriptedProvider::new(turns);
    let chat = start(&model, Config::new()).await;
    for text in ["1", "2", "3", "4"] {
        ask(&chat, text).await;
    }
    assert_eq!(ask(&chat, "5").await, "well");
    let requests = model.requests();
    assert!(matches!(requests[5].messages[0], ModelMessage::Summary(_)), "{:?}", requests[5]);
    assert!(requests[5].messages.len() < requests[4].messages.len());
    assert_eq!(requests[5].messages.last(), Some(&ModelMessage::user("5")));
    let Err(RunError::Failed(report)) = chat.prompt("6").await.unwrap().finish().await else {
        panic!("one exchange is left")
    };
    assert_eq!(report.fault(), Some(FaultKind::ContextTooLong));
    assert_eq!(model.requests().len(), 9);
    let compacted = |event: &&Event| event.kind == EventType::SESSION_COMPACTED;
    assert_eq!(log(&chat).await.iter().filter(compacted).count(), 1, "only the summary that helped is kept");
}

#[tokio::test]
async fn cut_answers_keep_finished_parts_as_text() {
    let gate = Gate::new();
    let begin = || {
        Turn::silent()
            .signed_thinking("hm")
            .text("I look")
            .signed_call("c1", "look", RawJson::empty_object())
            .event(ModelEvent::part_started(3, PartKind::Reasoning))
            .event(ModelEvent::delta(3, "unfinished"))
            .event(ModelEvent::part_started(4, PartKind::Call))
            .event(ModelEvent::delta(4, "{"))
            .event(ModelEvent::part_started(5, PartKind::Text))
            .event(ModelEvent::delta(5, "So"))
    };
    let cuts = [
        (begin().cut(ProviderFault::new(FaultKind::Network, "lost")), "failed"),
        (begin().done(StopReason::MaxTokens), "max_tokens"),
        (begin().gate(&gate), "cancelled"),
    ];
    for (turn, how) in cuts {
        let model = signing([turn, Turn::new().text("again")]);
        let chat = start(&model, Config::new()).await;
        let mut run = chat.prompt("Go").await.unwrap();
        until_text(&mut run).await;
        while how == "cancelled" && until_text(&mut run).await != "So" {}
        run.cancel();
        drop(run.finish().await);
        let stored = after_input(&chat).await;
        let kinds: Vec<_> = stored.iter().map(|(kind, _)| kind.as_str()).collect();
        let expected = [
            "agent.thinking",
            "agent.message",
            "agent.tool_use",
            "agent.tool_result",
            "agent.message",
            "agent.response",
        ];
        assert_eq!(kinds, expected, "{how}");
        assert!(stored.iter().all(|(_, payload)| !payload.get().contains("native")), "{how}: {stored:?}");
        assert!(stored[3].1.get().contains(r#""outcome":"denied","output":"not called"#), "{how}");
        assert!(!stored[5].1.get().contains("given"), "{how}");
        let commits: Vec<_> =
            log(&chat).await.iter().filter(|e| e.kind.is_of("agent")).map(|e| e.commit).collect();
        assert!(commits.iter().all(|commit| *commit == commits[0]), "{how}: one commit");
        assert_eq!(ask(&chat, "Again").await, "again", "{how}");
        let requests = model.requests();
        let messages = &requests.last().unwrap().messages;
        if how == "failed" {
            assert!(messages.iter().all(|said| matches!(said, ModelMessage::User(_))), "{how}: {messages:?}");
            check_log(&chat).await;
            continue;
        }
        let ModelMessage::Agent(message) = &messages[1] else { panic!("{how}: {messages:?}") };
        assert_eq!((message.items.len(), natives(messages)), (3, 0), "{how}: text, call, text");
        check_log(&chat).await;
    }
}

/// What others write while a model answers stands behind the answer and its results, in the run and for its readers.
#[tokio::test]
async fn texts_of_others_stand_behind_the_answer() {
    let (storage, gate) = (Storage::from(MemoryStore::new()), Gate::new());
    let look = Turn::new().signed_thinking("hm").text("I look").gate(&gate).call(
        "c1",
        "look",
        RawJson::empty_object(),
    );
    let model = signing([look, Turn::new().signed_thinking("ah").text("so"), Turn::new().text("bye")]);
    let chat = start_on(&storage, &model, Config::new()).await;
    let mut run = chat.prompt("Go").await.unwrap();
    until_text(&mut run).await;
    let effects = Effects::default();
    let head = storage.sessions.load(chat.id()).await.unwrap().head;
    let text = NewEvent::of(&EventPayload::SystemMessage(SystemMessage::injected("It rains.")));
    let commit = Commit::seal(&effects, chat.id(), head).with_event(text);
    storage.sessions.commit_new_with_retry(commit).await.unwrap();
    gate.open();
    run.finish().await.unwrap();
    let request = model.requests().remove(1);
    assert_eq!(request.messages[3], ModelMessage::System("It rains.".to_owned()), "{request:?}");
    assert_eq!(natives(&request.messages), 1, "the answer is where its request was");
    let now = chat.refresh().await.unwrap();
    let context = ModelContext::read(&*storage.sessions, &now, ContextLimits::default()).await.unwrap();
    let target = ModelTarget::of(&model).with_tools(request.tools.clone());
    assert!(target.messages(&context).starts_with(&request.messages));
    ask(&chat, "Bye").await;
    let last = model.requests().remove(2);
    assert!(last.messages.starts_with(&request.messages));
    assert_eq!(natives(&last.messages), 2);
}

#[tokio::test(start_paused = true)]
async fn signs_of_life_do_not_hold_a_run() {
    /// Provider that sends nothing but signs of life.
    #[derive(Debug)]
    struct Pinging(Duration);

    #[async_trait]
    impl LlmProvider for Pinging {
        fn name(&self) -> &str {
            "pinging"
        }
        fn model(&self) -> &str {
            "pinging"
        }
        async fn generate(&self, _: ModelRequest) -> Result<ModelStream> {
            let pause = self.0;
            let ping = move |()| async move {
                if !pause.is_zero() {
                    tokio::time::sleep(pause).await;
                }
                Some((Ok(ModelEvent::Ping), ()))
            };
            Ok(futures::stream::unfold((), ping).boxed())
        }
    }
    for pause in [Duration::ZERO, Duration::from_secs(20)] {
        let config = Config::new().with_model_silence(Duration::from_secs(60));
        let chat =
            agent_with(&MemoryStore::new().into(), Pinging(pause), config, []).conversation("key").await;
        let Err(RunError::Failed(report)) = chat.unwrap().prompt("Hello").await.unwrap().finish().await
        else {
            panic!("it has no answer")
        };
        assert_eq!(report.fault(), Some(FaultKind::Timeout));
    }
}

#[tokio::test]
async fn greedy_and_invalid_parts_end_the_answer() {
    let started = |n: u32| (0..n).map(|index| ModelEvent::part_started(index, PartKind::Text));
    let many = started(5000).fold(Turn::silent(), Turn::event);
    let chat = start(&ScriptedProvider::new([many.done(StopReason::EndTurn)]), Config::new()).await;
    let report = chat.prompt("Go").await.unwrap().finish().await.unwrap();
    assert_eq!(report.outcome, RunOutcome::Completed(Reason::MaxOutput));

    let big = Native::new("x", RawJson::of(&"x".repeat(5 << 20)).unwrap());
    let big = Turn::new().text("so").part(ModelPart::reasoning("").with_native(big));
    let chat = start(&ScriptedProvider::new([big]), Config::new()).await;
    let report = chat.prompt("Go").await.unwrap().finish().await.unwrap();
    assert_eq!((report.text.as_str(), report.outcome), ("so", RunOutcome::Completed(Reason::MaxOutput)));

    let text = |text: &str| ModelPart::text(text);
    let deep = RawJson::parse(&format!("{}{}", "[".repeat(127), "]".repeat(127))).unwrap();
    let invalid = [
        vec![ModelEvent::part_started(1, PartKind::Text)],
        vec![ModelEvent::delta(0, "x")],
        vec![ModelEvent::part_done(0, text("x")), ModelEvent::part_done(0, text("x"))],
        vec![ModelEvent::part_started(0, PartKind::Reasoning), ModelEvent::part_done(0, text("x"))],
        vec![ModelEvent::part_done(0, text("x").with_citation(Citation::new("u").with_range(0, 9)))],
        vec![ModelEvent::part_done(0, text("x").with_native(Native::new("", RawJson::empty_object())))],
        vec![ModelEvent::part_done(0, text("x").with_native(Native::new("x", deep)))],
        vec![ModelEvent::part_done(0, ModelPart::part(Part::Image(Media::inline("image/png", []))))],
        vec![ModelEvent::part_started(0, PartKind::Call)],
        vec![ModelEvent::text("x"), ModelEvent::delta(0, "y")],
    ];
    for events in invalid {
        let turn = events.clone().into_iter().fold(Turn::new(), Turn::event);
        let chat = start(&ScriptedProvider::new([turn, Turn::new().text("again")]), Config::new()).await;
        let failed = chat.prompt("Go").await.unwrap().finish().await;
        assert!(matches!(&failed, Err(RunError::Failed(report)) if report.stored), "{events:?}: {failed:?}");
        assert_eq!(ask(&chat, "Again").await, "again");
    }
}

#[tokio::test]
async fn media_are_given_to_models_that_take_them() {
    let cat = Part::Image(Media::inline("image/png", *b"\x89PNG").with_name("cat.png"));
    let storage: Storage = MemoryStore::new().into();
    let message = Message::of_parts([Part::text("What is this?"), cat.clone()]);
    let sees = ScriptedProvider::new([Turn::new().text("A cat.")]);
    let chat = start_on(&storage, &sees, Config::new()).await;
    chat.prompt(agent_runtime::Input::new(message)).await.unwrap().finish().await.unwrap();
    let expected = ModelMessage::user(vec![Part::text("What is this?"), cat]);
    assert_eq!(sees.requests()[0].messages, [expected]);
    let blind = ModelCapabilities::new().with_media([MediaKind::Audio]);
    let blind = ScriptedProvider::new([Turn::new().text("I see nothing.")]).with_capabilities(blind);
    ask(&start_on(&storage, &blind, Config::new()).await, "And now?").await;
    let text = "What is this?\n[image cat.png, image/png, 4 bytes] (left out: this model does not take it)";
    assert_eq!(blind.requests()[0].messages[0].text(), text);
}

#[tokio::test]
async fn items_with_secrets_lose_their_native_form() {
    let storage: Storage = MemoryStore::new().into();
    let name: SecretName = "github".parse().unwrap();
    let secrets = BTreeMap::from([(name.clone(), Secret::new("s3cr3t-value").unwrap())]);
    let item = |text: &str| Native::new("x", RawJson::of(&format!("signed {text}")).unwrap());
    let turn = Turn::new()
        .part(ModelPart::reasoning("The token is 's3cr3t-value'.").with_native(item("a")))
        .part(ModelPart::text("So.").with_native(item("s3cr3t-value")))
        .part(ModelPart::text("Well.").with_native(item("c")));
    let model = ScriptedProvider::new([turn]).with_account("team-a");
    let builder = AgentBuilder::new().with_llm(model).with_storage(storage);
    let agent = builder.with_secrets(Secrets::new(secrets)).build().unwrap();
    let chat = agent.conversation("key").await.unwrap();
    chat.update(Patch::new().mount(name.resource(), Access::Read)).await.unwrap();
    ask(&chat, "Go").await;
    let stored = after_input(&chat).await;
    let stored: Vec<_> = stored.iter().map(|(_, payload)| payload.get()).collect();
    assert_eq!(stored[0], r#"{"text":"The token is '(secret github)'."}"#);
    assert_eq!(stored[1], r#"{"text":"So."}"#);
    assert_eq!(stored[2], r#"{"text":"Well.","native":{"api":"x","item":"signed c"}}"#);
}
