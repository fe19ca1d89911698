//! Model contexts: pair-safe, within their limits, from any history.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::common::{Faulty, Scene, agent_with, device, log, read};
use agent_core::clock::Effects;
use agent_core::commit::{Commit, Committed};
use agent_core::event::{
    Event, EventPayload, EventType, Message, NewEvent, SystemMessage, ToolOutcome, ToolResult, ToolUse,
};
use agent_core::json::RawJson;
use agent_core::model::CallId;
use agent_core::session::{NewSession, SessionRecord, SessionSummary};
use agent_core::store::{
    Capabilities, Durability, EventPage, LeaseStore, Page, Purge, Purged, ReadEvents, Scope, SessionQuery,
    SessionStoreWrapper,
};
use agent_core::{MemoryStore, Result, Seq, SessionId, SessionStore, Timestamp, WorkspaceId, async_trait};
use agent_runtime::context::{ContextLimits, Messages, ModelContext, ModelMessage};
use agent_runtime::{Config, Gate, ScriptedProvider, Turn};
use agent_tests::{Site, each_store};
use futures::FutureExt;
use proptest::prelude::*;

/// A log of any events, also such as no commit would let through.
#[derive(Clone, Debug)]
struct Canned(Vec<Event>);

#[async_trait]
impl SessionStore for Canned {
    async fn commit(&self, _: Commit) -> Result<Committed> {
        unreachable!()
    }
    async fn load(&self, _: SessionId) -> Result<Arc<SessionRecord>> {
        unreachable!()
    }
    async fn read(&self, _: SessionId, read: ReadEvents) -> Result<EventPage> {
        if read.newest {
            EventPage::collect(&read, self.0.iter().rev().cloned().map(Ok))
        } else {
            EventPage::collect(&read, self.0.iter().cloned().map(Ok))
        }
    }
    async fn list(&self, _: SessionQuery) -> Result<Page<SessionSummary>> {
        unreachable!()
    }
    async fn purge(&self, _: Purge) -> Result<Purged> {
        unreachable!()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::new(Scope::Process, Durability::None)
    }

    fn leases(&self) -> &dyn LeaseStore {
        unreachable!()
    }
}

/// One random event.
#[derive(Clone, Debug)]
enum Piece {
    User(String, bool),
    Agent(String),
    Injected(String),
    Prompt(String),
    Call(u8),
    Result(u8, String),
    Custom(u8),
    Delivered(u8),
    Unknown,
    Broken,
    Thinking,
}

fn piece() -> impl Strategy<Value = Piece> {
    prop_oneof![
        3 => (".{0,40}", any::<bool>()).prop_map(|(text, takes)| Piece::User(text, takes)),
        3 => ".{0,40}".prop_map(Piece::Agent),
        1 => ".{0,9}".prop_map(Piece::Injected),
        1 => ".{0,9}".prop_map(Piece::Prompt),
        5 => (0u8..6).prop_map(Piece::Call),
        5 => (0u8..6, ".{0,60}").prop_map(|(call, text)| Piece::Result(call, text)),
        1 => (0u8..6).prop_map(Piece::Custom),
        1 => (0u8..6).prop_map(Piece::Delivered),
        1 => Just(Piece::Unknown),
        1 => Just(Piece::Broken),
        1 => Just(Piece::Thinking),
    ]
}

fn call_id(n: u8) -> CallId {
    format!("call {n}").parse().unwrap()
}

impl Piece {
    fn event(&self) -> NewEvent {
        let body = match self {
            Self::User(text, _) => EventPayload::UserMessage(Message::new(text.clone())),
            Self::Agent(text) => EventPayload::AgentMessage(Message::new(text.clone())),
            Self::Thinking => EventPayload::AgentThinking(Message::new("hm")),
            Self::Injected(text) => EventPayload::SystemMessage(SystemMessage::injected(text.clone())),
            Self::Prompt(text) => EventPayload::SystemMessage(SystemMessage::custom(text.clone())),
            Self::Call(n) => {
                EventPayload::AgentToolUse(ToolUse::new(call_id(*n), "look", RawJson::empty_object()))
            }
            Self::Custom(n) => {
                EventPayload::AgentCustomToolUse(ToolUse::new(call_id(*n), "ask", RawJson::empty_object()))
            }
            Self::Result(n, text) => {
                let output = RawJson::of(text).unwrap();
                EventPayload::AgentToolResult(ToolResult::new(call_id(*n), ToolOutcome::Ok, output))
            }
            Self::Delivered(n) => {
                let output = RawJson::parse("[1]").unwrap();
                EventPayload::UserCustomToolResult(ToolResult::new(call_id(*n), ToolOutcome::Ok, output))
            }
            Self::Unknown => {
                return NewEvent::new("x.app.thing".parse().unwrap(), RawJson::parse("[1,2]").unwrap());
            }
            Self::Broken => return NewEvent::new(EventType::AGENT_MESSAGE, RawJson::parse("3").unwrap()),
        };
        NewEvent::of(&body)
    }
}

/// The pieces as a log, in commits of random lengths; and the record, as far as a context depends on it.
fn canned(pieces: &[(Piece, bool)]) -> (Canned, SessionRecord) {
    let effects = Effects::seeded(1, Timestamp::UNIX_EPOCH);
    let new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
    let commit = Commit::create(&effects, new);
    let plan = agent_core::plan(None, &commit).unwrap();
    let agent_core::Plan::Write { events, after, .. } = plan else { panic!("creates") };
    let (template, mut session) = (events[0].clone(), Arc::unwrap_or_clone(after));
    let mut log: Vec<Event> = Vec::new();
    for (piece, continues) in pieces {
        let new = piece.event();
        let mut event = template.clone();
        event.seq = Seq::new(log.len() as u64 + 1);
        (event.kind, event.payload, event.transition) = (new.kind, new.payload, None);
        (event.commit, event.n) = match log.last() {
            Some(last) if *continues => (last.commit, last.n + 1),
            _ => (effects.new_commit_id(), 1),
        };
        if let Piece::User(_, takes) = piece {
            session.last_input = event.seq;
            if *takes {
                session.inputs_claimed_through = event.seq;
                let taken = event.seq;
                let change = format!(
                    r#"{{"trigger":"begin_run","from":"queued","to":"running","reason":"input","inputs_claimed_through":{taken}}}"#
                );
                event.transition = Some(RawJson::parse(&change).unwrap());
            }
        }
        if let Piece::Prompt(_) = piece {
            session.system_prompt = event.seq;
        }
        log.push(event);
    }
    for at in (1..log.len()).rev() {
        log[at - 1].of = if log[at].n > 1 { log[at].of.max(log[at].n) } else { log[at - 1].n };
    }
    session.head = Seq::new(log.len() as u64);
    (Canned(log), session)
}

/// What every provider asks of a conversation.
fn validate(messages: &Messages) {
    let mut ids = BTreeSet::new();
    let mut at = 0;
    while at < messages.len() {
        match &messages[at] {
            ModelMessage::Agent(message) if message.calls().next().is_some() => {
                let Some(ModelMessage::ToolResults(results)) = messages.get(at + 1) else {
                    panic!("calls without results right behind them");
                };
                let called: Vec<_> = message.calls().map(|call| &call.call).collect();
                let answered: Vec<_> = results.iter().map(|result| &result.call).collect();
                assert_eq!(called, answered, "exactly one result for each call, in order");
                for id in called {
                    assert!(ids.insert(id.clone()), "the id {id} is used twice");
                }
                at += 2;
            }
            ModelMessage::ToolResults(_) => panic!("results without calls"),
            _ => at += 1,
        }
    }
}

fn context(store: &Canned, session: &SessionRecord, limits: ContextLimits) -> ModelContext {
    ModelContext::read(store, session, limits).now_or_never().unwrap().unwrap()
}

/// Returns the number of messages for the limit: results are a part of the answer that called.
fn counted(messages: &Messages) -> usize {
    messages.iter().filter(|message| !matches!(message, ModelMessage::ToolResults(_))).count()
}

/// A history of as many messages as the limit allows is given whole, with the results beside them.
#[test]
fn results_count_with_the_calls_that_they_answer() {
    let user = |takes| (Piece::User("x".to_owned(), takes), false);
    let answer = Piece::Result(3, String::new());
    let pieces = [
        user(false),
        (Piece::Call(3), false),
        (answer, false),
        user(false),
        user(true),
        (Piece::Call(0), false),
    ];
    let (store, session) = canned(&pieces);
    for (most, is_cut) in [(5, false), (4, true)] {
        let context = context(&store, &session, ContextLimits::new(most, 10_000));
        assert_eq!(context.needs_compaction(), is_cut, "{most}");
        assert!(counted(&context.messages()) <= most, "{most}: {:?}", context.messages());
    }
    let whole = context(&store, &session, ContextLimits::new(5, 10_000)).messages();
    assert_eq!((counted(&whole), whole.len()), (5, 7), "{whole:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    /// Peers 14: with any log, cut at any event, what the model is given is pair-safe, within the
    /// limits, and starts with what a person said.
    #[test]
    fn any_history_yields_a_valid_conversation(
        pieces in prop::collection::vec((piece(), any::<bool>()), 0..120),
        most in 1usize..40,
        bytes in 1usize..2000,
    ) {
        let (store, session) = canned(&pieces);
        let limits = ContextLimits::new(most, bytes);
        let context = context(&store, &session, limits);
        let messages = context.messages();
        validate(&messages);
        prop_assert!(counted(&messages) <= most.max(2) + 1, "{} of {most}", counted(&messages));
        if context.needs_compaction() && session.inputs_claimed_through > Seq::ZERO {
            let first = messages.first();
            prop_assert!(matches!(first, Some(ModelMessage::User(_))), "{first:?}");
        }
        let system = pieces.iter().rev().find_map(|(piece, _)| match piece {
            Piece::Prompt(text) => Some(text.as_str()),
            _ => None,
        });
        prop_assert_eq!(context.system(), system);
    }

    /// Without a cut nothing that was said is missing, said twice or out of order; what no run has taken up
    /// is not there yet.
    #[test]
    fn uncut_history_is_complete(pieces in prop::collection::vec((piece(), any::<bool>()), 0..120)) {
        let (store, session) = canned(&pieces);
        let context = context(&store, &session, ContextLimits::new(10_000, 1 << 20));
        prop_assert!(!context.needs_compaction());
        let messages = context.messages();
        validate(&messages);
        let taken = usize::try_from(session.inputs_claimed_through.get()).unwrap();
        let users: Vec<_> = pieces[..taken].iter().filter_map(|(piece, _)| match piece {
            // A provider refuses a message of white space only.
            Piece::User(text, _) if text.trim().is_empty() => Some("(no text)".to_owned()),
            Piece::User(text, _) => Some(text.clone()),
            _ => None,
        }).collect();
        let agents: Vec<_> = pieces.iter().filter_map(|(piece, _)| match piece {
            Piece::Agent(text) => Some(text.clone()),
            _ => None,
        }).collect();
        let shown: Vec<_> = messages.iter().filter_map(|message| match message {
            ModelMessage::User(message) => Some(message.text().into_owned()),
            _ => None,
        }).collect();
        prop_assert_eq!(shown, users);
        let shown: Vec<_> = messages.iter().filter_map(|message| match message {
            ModelMessage::Agent(message) => Some(message.text().into_owned()),
            _ => None,
        }).collect();
        // A text that is blank is none.
        let agents: Vec<_> = agents.into_iter().filter(|text| !text.trim().is_empty()).collect();
        let shown: Vec<_> = shown.into_iter().filter(|text| !text.is_empty()).collect();
        prop_assert_eq!(shown, agents);
    }
}

/// The cost of a context depends on its limits, not on the length of the history.
#[tokio::test]
async fn context_reads_only_the_end_of_a_long_history() {
    let effects = Effects::default();
    let faulty = Faulty::new(MemoryStore::new().into());
    let sessions = faulty.storage().sessions;
    let new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
    let mut session = sessions.create(new).await.unwrap();
    for _ in 0..1000 {
        let events = (0..10).map(|n| NewEvent::agent_message(format!("message {n}"))).collect();
        session = sessions.append(session.id, session.head, events).await.unwrap().session;
    }
    let before = faulty.reads();
    let context = ModelContext::read(&*sessions, &session, ContextLimits::new(100, 1 << 20)).await.unwrap();
    assert_eq!(faulty.reads() - before, 2, "two pages of 64 hold 100 messages");
    assert!(context.needs_compaction());
    assert_eq!(context.messages().len(), 100);
}

/// Many messages, and little room: the newest are given, and what is asked always is.
async fn limits_keep_the_newest_and_the_question(site: Site) {
    let turn = (0..6)
        .map(|n| Turn::new().text("t".repeat(90)).call(&format!("{n}"), "none", RawJson::empty_object()));
    let model =
        ScriptedProvider::new((0..10).map(|_| Turn::new().text("answer")).chain(turn).chain([Turn::new()]));
    let config = Config::default().with_context_limits(ContextLimits::new(4, 600));
    let Scene { name, chat, .. } = Scene::with(&site, model.clone(), config, []).await;
    for n in 0..10 {
        read(chat.prompt(format!("question {n}")).await.unwrap()).await;
    }
    let request = &model.requests()[9].messages;
    let expected = [
        ModelMessage::Summary(
            "The conversation began with this message:\nquestion 0\n\n25 earlier events are left out."
                .to_owned(),
        ),
        ModelMessage::user("question 8"),
        ModelMessage::agent("answer"),
        ModelMessage::user("question 9"),
    ];
    assert_eq!(*request, expected, "{name}: as few as half of the room holds");
    read(chat.prompt("the last question").await.unwrap()).await;
    for request in &model.requests()[11..] {
        validate(&request.messages);
        assert!(matches!(request.messages[0], ModelMessage::Summary(_)), "{name}");
        assert!(
            request.messages.iter().any(|message| *message == ModelMessage::user("the last question")),
            "{name}"
        );
        assert!(request.messages.len() <= 5, "{name}");
    }
}

each_store!(limits_keep_the_newest_and_the_question);

/// A summary that ends in a run repeats what that run was asked, and nothing that was answered before, also where the
/// history is not read back to those answers.
async fn a_summary_in_a_run_repeats_its_question_alone(site: Site) {
    let (name, storage) = (site.name, site.open().await);
    let model = ScriptedProvider::new((0..9).map(|n| Turn::new().text(format!("answer {n}"))));
    let chat =
        agent_with(&storage, model.clone(), Config::default(), []).open(&device("laptop")).await.unwrap();
    for n in 0..5 {
        read(chat.prompt(format!("question {n}")).await.unwrap()).await;
    }
    let large = "q".repeat(700);
    read(chat.prompt(large.clone()).await.unwrap()).await;
    drop(chat);
    let small = Config::default().with_context_limits(ContextLimits::new(100, 600));
    let chat = agent_with(&storage, model.clone(), small, []).open(&device("laptop")).await.unwrap();
    read(chat.prompt("next").await.unwrap()).await;
    let request = model.requests().pop().unwrap().messages;
    let expected = [ModelMessage::user(large), ModelMessage::agent("answer 5"), ModelMessage::user("next")];
    assert!(matches!(request[0], ModelMessage::Summary(_)), "{name}: {request:?}");
    assert_eq!(Vec::from(request)[1..], expected, "{name}");
    let compacted = log(&chat).await.into_iter().rfind(|event| event.kind == EventType::SESSION_COMPACTED);
    let EventPayload::SessionCompacted(compaction) = compacted.expect(name).decode().unwrap() else {
        panic!("{name}")
    };
    assert_eq!(compaction.inputs.expect(name).len(), 1, "{name}");
}

each_store!(a_summary_in_a_run_repeats_its_question_alone and files);

/// A single text that is larger than all room is shortened in its middle, at characters.
async fn a_huge_question_is_shortened_at_characters(site: Site) {
    let model = ScriptedProvider::new([Turn::new()]);
    let config = Config::default().with_context_limits(ContextLimits::new(10, 1001));
    let Scene { name, chat, .. } = Scene::with(&site, model.clone(), config, []).await;
    read(chat.prompt("대화🙂".repeat(1000)).await.unwrap()).await;
    let text = model.requests()[0].messages[0].text().into_owned();
    assert!(text.len() < 1100, "{name}: {}", text.len());
    assert!(text.starts_with("대화🙂") && text.ends_with('🙂'), "{name}");
    assert!(text.contains("bytes left out"), "{name}");
    let log = log(&chat).await;
    let asked = log.iter().find(|event| event.kind == EventType::USER_MESSAGE).expect(name);
    let EventPayload::UserMessage(message) = asked.decode().unwrap() else { panic!("{name}") };
    assert_eq!(
        (message.text, message.shown),
        ("대화🙂".repeat(1000), Some(500)),
        "{name}: all of it is stored"
    );
}

each_store!(a_huge_question_is_shortened_at_characters);

/// Peers 14: what a person says while calls are open stands behind their results; calls of one answer stay one message.
#[test]
fn input_between_call_and_result_follows_both() {
    let pieces = [
        Piece::User("first".to_owned(), true),
        Piece::Agent("I look".to_owned()),
        Piece::Call(1),
        Piece::Call(2),
        Piece::Result(2, "two".to_owned()),
        Piece::User("second".to_owned(), true),
        Piece::Injected("note".to_owned()),
        Piece::Result(1, "one".to_owned()),
        Piece::Result(1, "again".to_owned()),
        Piece::Agent("seen".to_owned()),
        Piece::Call(1),
    ];
    let pieces: Vec<_> = pieces.into_iter().enumerate().map(|(n, piece)| (piece, n == 2 || n == 3)).collect();
    let (store, session) = canned(&pieces);
    let messages = context(&store, &session, ContextLimits::default()).messages();
    validate(&messages);
    let shapes: Vec<String> = messages
        .iter()
        .map(|message| match message {
            ModelMessage::User(_) | ModelMessage::System(_) => message.text().into_owned(),
            ModelMessage::Agent(message) => format!("{}+{}", message.text(), message.calls().count()),
            ModelMessage::ToolResults(results) => {
                results.iter().map(|result| result.output.as_str()).collect::<Vec<_>>().join(",")
            }
            other => panic!("{other:?}"),
        })
        .collect();
    let interrupted = "interrupted, outcome unknown";
    let expected = ["first", "I look+2", "one,two", "second", "note", "seen+0", "+1", interrupted];
    assert_eq!(shapes, expected);
}

/// Peers 14: the newest exchange is given whole, also where it is larger than a page or all room.
#[test]
fn newest_exchange_is_never_split() {
    for (calls, output) in [(60u8, 10usize), (20, 4000)] {
        let mut pieces = vec![(Piece::User("old".to_owned(), true), false); 30];
        pieces.push((Piece::User("do it".to_owned(), true), false));
        pieces.push((Piece::Agent("I do".to_owned()), false));
        pieces.extend((0..calls).map(|n| (Piece::Call(n), true)));
        pieces.extend((0..calls).map(|n| (Piece::Result(n, "한".repeat(output)), false)));
        let (store, session) = canned(&pieces);
        let context = context(&store, &session, ContextLimits::new(3, 20_000));
        let messages = context.messages();
        validate(&messages);
        assert_eq!(messages[0], ModelMessage::user("do it"));
        let ModelMessage::ToolResults(results) = &messages[2] else { panic!("{:?}", messages[2]) };
        assert_eq!((messages.len(), results.len()), (3, usize::from(calls)));
    }
}

/// What was cleared does not reach the model, and a fork's history does, through its ancestors.
async fn context_excludes_cleared_and_includes_forked(site: Site) {
    let model = ScriptedProvider::new((0..4).map(|n| Turn::new().text(format!("a{n}"))));
    let Scene { name, chat, .. } = Scene::with(&site, model.clone(), Config::default(), []).await;
    read(chat.prompt("q0").await.unwrap()).await;
    chat.clear().await.unwrap();
    read(chat.prompt("q1").await.unwrap()).await;
    let fork = chat.fork(None).await.unwrap();
    read(chat.prompt("only in the parent").await.unwrap()).await;
    read(fork.prompt("q3").await.unwrap()).await;
    let texts = |n: usize| -> Vec<String> {
        let requests = model.requests();
        requests[n]
            .messages
            .iter()
            .map(|message| match message {
                ModelMessage::User(_) | ModelMessage::Agent(_) => message.text().into_owned(),
                other => panic!("{other:?}"),
            })
            .collect()
    };
    assert_eq!(texts(1), ["q1"], "{name}");
    assert_eq!(texts(3), ["q1", "a1", "q3"], "{name}");
}

each_store!(context_excludes_cleared_and_includes_forked);

/// Damage in older history leaves the newer part usable, and is named.
#[test]
fn damage_in_older_history_is_named_and_survived() {
    #[derive(Debug)]
    struct Damaged(Canned);
    #[async_trait]
    impl SessionStoreWrapper for Damaged {
        fn inner(&self) -> &dyn SessionStore {
            &self.0
        }

        async fn read(&self, id: SessionId, read: ReadEvents) -> Result<EventPage> {
            if read.newest && read.before.is_some_and(|before| before <= Seq::new(51)) {
                let text = "event 50 cannot be read; run a verification";
                return Err(agent_core::Error::new(agent_core::ErrorKind::Corrupt, text));
            }
            SessionStore::read(&self.0, id, read).await
        }
    }

    let pieces: Vec<_> = (0..114).map(|n| (Piece::User(n.to_string(), true), false)).collect();
    let (store, session) = canned(&pieces);
    let store = Damaged(store);
    let read = ModelContext::read(&store, &session, ContextLimits::default());
    let context = read.now_or_never().unwrap().unwrap();
    assert_eq!(context.damaged().len(), 1);
    assert_eq!(context.messages().len(), 64, "the page before the damage");
}

/// Questions that came while a long run went on stand where they were taken up, behind all that the run
/// said, however far back in the log they lie; and all of them are asked.
async fn inputs_during_a_long_run_follow_its_output(site: Site) {
    let (name, storage) = (site.name, site.open().await);
    // So many that the questions lie within what is read at once, and so many that they do not.
    for calls in [15, 80] {
        let gate = Gate::new();
        let turns = (0..calls).map(|n| {
            let turn = Turn::new().text("working").call(&format!("{n}"), "none", RawJson::empty_object());
            if n == 0 { turn.gate(&gate) } else { turn }
        });
        let model = ScriptedProvider::new(turns.chain([Turn::new().text("done"), Turn::new().text("yes")]));
        let config =
            Config::default().with_context_limits(ContextLimits::new(6, 1 << 20)).with_max_turns(100);
        let agent = agent_with(&storage, model.clone(), config, []);
        let chat = agent.open(&device(&format!("{calls}"))).await.unwrap();
        let mut run = chat.prompt("first").await.unwrap();
        crate::common::until_text(&mut run).await;
        chat.send("second").await.unwrap();
        chat.send("third").await.unwrap();
        gate.open();
        read(run).await;
        read(chat.run_pending().await.unwrap().unwrap()).await;
        let request = &model.requests()[calls + 1].messages;
        validate(request);
        let expected = [ModelMessage::user("second"), ModelMessage::user("third")];
        assert!(Vec::from(request.clone()).ends_with(&expected), "{name}, {calls}: {request:#?}");
    }
}

each_store!(inputs_during_a_long_run_follow_its_output);
