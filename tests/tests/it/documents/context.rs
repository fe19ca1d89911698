//! Model contexts with little room, of a history that is far too long, and of a damaged one.

use std::sync::{Arc, Mutex};

use crate::common::call;
use agent_core::clock::Effects;
use agent_core::commit::{Commit, LeaseRequest, RunEnd, Trigger};
use agent_core::event::{Compaction, EventPayload, NewEvent, ToolOutcome};
use agent_core::json::RawJson;
use agent_core::model::Patch;
use agent_core::session::{NewSession, SessionRecord};
use agent_core::state::Reason;
use agent_core::store::{EventPage, ReadEvents, SessionStoreWrapper};
use agent_core::{
    Error, ErrorKind, MemoryStore, Result, Seq, SessionId, SessionStore, SessionStoreExt, Sessions,
    Timestamp, WorkspaceId, async_trait,
};
use agent_runtime::context::{ContextLimits, ModelContext, ModelMessage};

/// A session in a store that counts how often it is read, and fails on demand.
#[derive(Debug)]
struct Site {
    inner: MemoryStore,
    effects: Effects,
    id: SessionId,
    reads: Mutex<usize>,
    /// Pages that end before this event cannot be read.
    fails: Option<(Seq, ErrorKind)>,
}

#[async_trait]
impl SessionStoreWrapper for Site {
    fn inner(&self) -> &dyn SessionStore {
        &self.inner
    }

    async fn read(&self, id: SessionId, read: ReadEvents) -> Result<EventPage> {
        *self.reads.lock().unwrap() += 1;
        match &self.fails {
            Some((end, kind)) if read.newest && read.before.is_some_and(|before| before <= *end) => {
                Err(Error::new(kind.clone(), "as told"))
            }
            _ => self.inner.read(id, read).await,
        }
    }
}

impl Site {
    fn sessions(&self) -> Sessions {
        self.inner.sessions(&self.effects)
    }

    /// A new session, with what `patch` says of it. Its first event is the second of the log.
    async fn with(patch: &Patch) -> Self {
        let (inner, effects) = (MemoryStore::new(), Effects::seeded(1, Timestamp::UNIX_EPOCH));
        let new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT).with_patch(patch);
        let id = inner.sessions(&effects).create(new).await.unwrap().id;
        Self { inner, effects, id, reads: Mutex::default(), fails: None }
    }

    async fn new() -> Self {
        Self::with(&Patch::new()).await
    }

    async fn now(&self) -> Arc<SessionRecord> {
        SessionStore::load(self, self.id).await.unwrap()
    }

    /// One commit, of the run where there is one.
    async fn append(&self, events: impl IntoIterator<Item = NewEvent>) {
        let now = self.now().await;
        let commit = Commit::seal(&self.effects, now.id, now.head).with_events(events);
        if commit.steps.is_empty() {
            return;
        }
        let commit = match &now.lease {
            Some(lease) => commit.with_fence(lease.run, lease.epoch),
            None => commit,
        };
        SessionStore::commit(self, commit).await.unwrap();
    }

    /// A question, and the run that is to answer it.
    async fn ask(&self, text: &str) {
        let now = self.now().await;
        let begin = Trigger::BeginRun(LeaseRequest::new("test", self.effects.new_run_id()));
        let commit = Commit::seal(&self.effects, now.id, now.head);
        SessionStore::commit(self, commit.with_event(NewEvent::user_message(text)).with_trigger(begin))
            .await
            .unwrap();
    }

    async fn answer(&self, text: &str) {
        let now = self.now().await;
        let lease = now.lease.clone().unwrap();
        let commit = Commit::seal(&self.effects, now.id, now.head)
            .with_fence(lease.run, lease.epoch)
            .with_event(NewEvent::agent_message(text))
            .with_trigger(Trigger::EndRun(RunEnd::Completed(Reason::EndTurn)));
        SessionStore::commit(self, commit).await.unwrap();
    }

    async fn context(&self, limits: ContextLimits) -> Result<ModelContext> {
        *self.reads.lock().unwrap() = 0;
        ModelContext::read(self, &*self.now().await, limits).await
    }

    fn reads(&self) -> usize {
        *self.reads.lock().unwrap()
    }
}

/// So many messages of the agent.
fn messages(count: usize, text: &str) -> impl Iterator<Item = NewEvent> {
    std::iter::repeat_n(NewEvent::agent_message(text), count)
}

fn use_(id: &str) -> NewEvent {
    NewEvent::tool_use(call(id), "look", RawJson::empty_object())
}

fn result(id: &str, output: &str) -> NewEvent {
    NewEvent::tool_result(call(id), ToolOutcome::Ok, RawJson::of(&output).unwrap())
}

fn user(text: &str) -> ModelMessage {
    ModelMessage::user(text)
}

/// A summary comes first, and is given as it was committed, with any limits.
#[tokio::test]
async fn summary_comes_first_and_whole() {
    let site = Site::new().await;
    site.append(messages(3, "old")).await;
    let plain = site.context(ContextLimits::default()).await.unwrap();
    assert_eq!((plain.summary(), plain.messages().len()), (None, 3));
    site.sessions().compact(site.id, None, "z".repeat(200)).await.unwrap();
    site.append(messages(1, "new")).await;
    let whole = site.context(ContextLimits::default()).await.unwrap();
    assert_eq!(whole.summary(), Some("z".repeat(200).as_str()));
    assert_eq!(whole.messages(), [ModelMessage::Summary("z".repeat(200)), ModelMessage::agent("new")]);
    let short = site.context(ContextLimits::new(10, 100)).await.unwrap();
    assert_eq!(short.summary(), Some("z".repeat(200).as_str()));
    assert!(short.needs_compaction());
}

/// As many bytes are given as there is room for, and not one more; what is left begins with what was asked.
#[tokio::test]
async fn newest_messages_that_fit_are_included() {
    let site = Site::new().await;
    site.append(messages(12, &"m".repeat(100))).await;
    for (bytes, count) in [(1000, 10), (999, 9), (1001, 10), (50, 1)] {
        let context = site.context(ContextLimits::new(100, bytes)).await.unwrap();
        assert_eq!(context.messages().len(), count, "of 100 bytes each in {bytes}");
    }
    let site = Site::new().await;
    for n in 0..3 {
        site.ask(&format!("question {n}")).await;
        site.answer(&format!("answer {n}")).await;
    }
    let last = [user("question 2"), ModelMessage::agent("answer 2")];
    for (most, from) in [(6, 0), (5, 2), (4, 2), (3, 4), (2, 4)] {
        let context = site.context(ContextLimits::new(most, 1 << 20)).await.unwrap();
        let messages = Vec::from(context.messages());
        assert_eq!(
            (messages.len(), &messages[messages.len() - 2..]),
            (6 - from, &last[..]),
            "at most {most}"
        );
    }
    let one = site.context(ContextLimits::new(1, 1 << 20)).await.unwrap().messages();
    assert_eq!(one, last, "the answer alone would begin with the agent");
    // Where nothing is left out the agent may have spoken first.
    let site = Site::new().await;
    site.append(messages(1, "welcome")).await;
    site.ask("question").await;
    site.answer("answer").await;
    assert_eq!(site.context(ContextLimits::new(3, 1 << 20)).await.unwrap().messages().len(), 3);
}

/// Peers 14: what the agent says while a call is open follows the call's result; ids that are used again are distinguished.
#[tokio::test]
async fn an_open_call_keeps_its_result_and_its_id() {
    let site = Site::new().await;
    for _ in 0..6 {
        site.append([use_("c")]).await;
        site.append([NewEvent::agent_message("meanwhile")]).await;
        site.append([result("c", "ok")]).await;
    }
    let messages = Vec::from(site.context(ContextLimits::default()).await.unwrap().messages());
    let mut ids = Vec::new();
    for three in messages.chunks(3) {
        let [ModelMessage::Agent(answer), ModelMessage::ToolResults(results), texts] = three else {
            panic!("{three:?}")
        };
        assert_eq!((results[0].output.as_str(), texts), ("ok", &ModelMessage::agent("meanwhile")));
        let call = answer.calls().next().unwrap();
        assert_eq!(results[0].call, call.call);
        ids.push(call.call.as_str());
    }
    assert_eq!(ids, ["c", "c-2", "c-3", "c-4", "c-5", "c-6"]);
}

/// The question that is answered comes first however long the answer is; not a later one, which nobody took up.
#[tokio::test]
async fn long_answer_keeps_its_question() {
    let site = Site::new().await;
    site.ask("first").await;
    site.inner
        .sessions(&site.effects)
        .append(site.id, site.now().await.head, vec![NewEvent::user_message("second")])
        .await
        .unwrap();
    site.append(messages(100, "working")).await;
    for most in [10, 64] {
        let context = site.context(ContextLimits::new(most, 1 << 20)).await.unwrap();
        let messages = context.messages();
        assert_eq!((&messages[0], messages.len()), (&user("first"), most + 1));
        assert!(context.needs_compaction());
    }
}

/// A fork from the middle of a run, which no run of its own asks anything, is given what that run was asked; the
/// log is searched for it only where it was not among what was read.
#[tokio::test]
async fn fork_within_a_run_includes_its_question() {
    for (before, behind, reads) in [(0, 100, 1), (100, 20, 0)] {
        let site = Site::new().await;
        site.append(messages(before, "old")).await;
        site.ask("why?").await;
        site.append(messages(behind, "working")).await;
        let mut fork = site.sessions().fork(site.id, None).await.unwrap();
        let limits = ContextLimits::new(30, 1 << 20);
        *site.reads.lock().unwrap() = 0;
        let context = ModelContext::read(&site, &fork, limits).await.unwrap();
        let messages = context.messages();
        assert_eq!(messages[0], user("why?"), "{behind} behind it");
        assert_eq!(site.reads(), 2 + reads, "{behind} behind it");
        // What was cleared is not searched.
        let last_input = fork.last_input;
        Arc::make_mut(&mut fork).visible_from = last_input;
        let context = ModelContext::read(&site, &fork, limits).await.unwrap();
        assert!(!Vec::from(context.messages()).contains(&user("why?")));
    }
}

/// Contract 6: damage behind what was read is named; damage in what is newest, and a store that cannot be reached, are
/// errors.
#[tokio::test]
async fn damage_in_older_history_is_reported() {
    let mut site = Site::new().await;
    for _ in 0..25 {
        site.append(messages(4, "said")).await;
    }
    let head = site.now().await.head;
    let limits = ContextLimits::default();
    for (end, kind, good) in [
        (head, ErrorKind::Corrupt, true),
        (head, ErrorKind::Unavailable, false),
        (head.next(), ErrorKind::Corrupt, false),
        (head.next(), ErrorKind::Unavailable, false),
    ] {
        site.fails = Some((end, kind.clone()));
        match site.context(limits).await {
            Ok(context) => {
                assert!(good, "{kind:?}");
                assert_eq!((context.damaged().len(), context.messages().len()), (1, 64));
                assert!(context.needs_compaction());
            }
            Err(error) => assert_eq!((error.kind(), good), (&kind, false)),
        }
    }
}

/// Contract 6 and 8: a summary that ends in a run names the question, which is read alone, however far away it is; where
/// that is damaged it is named, and what follows is given.
#[tokio::test]
async fn a_question_behind_a_summary_is_read_alone() {
    let mut site = Site::new().await;
    site.ask("why?").await;
    let asked = site.now().await.last_input;
    for _ in 0..3 {
        site.append(messages(1000, "because")).await;
    }
    let until = site.now().await.head;
    let compaction = Compaction::new(until, "They thought.").with_inputs([asked], asked);
    site.append([NewEvent::of(&EventPayload::SessionCompacted(compaction))]).await;
    site.answer("so").await;
    site.ask("and then?").await;
    let behind = [ModelMessage::agent("so"), user("and then?")];

    let context = site.context(ContextLimits::default()).await.unwrap();
    assert_eq!(Vec::from(context.messages())[1..], [&[user("why?")], &behind[..]].concat());
    assert!(context.damaged().is_empty() && !context.needs_compaction());
    assert_eq!(site.reads(), 3, "the summary, the question, and what follows");

    site.fails = Some((asked.next(), ErrorKind::Corrupt));
    let context = site.context(ContextLimits::default()).await.unwrap();
    assert_eq!((&Vec::from(context.messages())[1..], context.damaged().len()), (&behind[..], 1));
    site.fails = Some((asked.next(), ErrorKind::Unavailable));
    let error = site.context(ContextLimits::default()).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Unavailable);
}

/// A message of which only the end can be read is left out, and its results; one that begins with its call is whole.
#[tokio::test]
async fn partial_message_is_left_out() {
    for (texts, whole) in
        [(vec![NewEvent::agent_message("I look"), use_("a"), use_("b")], false), (vec![use_("b")], true)]
    {
        let mut site = Site::new().await;
        site.append(messages(10, "old")).await;
        site.append(texts).await;
        // With the last call they fill a page.
        site.append([result("b", "found")].into_iter().chain(messages(62, "said"))).await;
        site.fails = Some((site.now().await.head, ErrorKind::Corrupt));
        let context = site.context(ContextLimits::default()).await.unwrap();
        assert_eq!(context.damaged().len(), 1);
        assert_eq!(context.messages().len(), if whole { 64 } else { 62 });
    }
}

/// Contract 8: the call of the newest result is looked for beyond the limits, and not through the whole history.
#[tokio::test]
async fn search_for_a_distant_call_is_bounded() {
    let site = Site::new().await;
    site.append([use_("far")]).await;
    for _ in 0..3 {
        site.append(messages(1000, &"m".repeat(100))).await;
    }
    site.append([result("far", "ok")]).await;
    for limits in
        [ContextLimits::new(1, 1 << 20), ContextLimits::new(100_000, 4000).with_tool_output_bytes(10)]
    {
        let context = site.context(limits).await.unwrap();
        assert!(context.needs_compaction());
        assert!((10..100).contains(&site.reads()), "{} pages for {limits:?}", site.reads());
    }
}

/// A model is given the messages in their order, and a stale writer gets an error, through a store.
#[tokio::test]
async fn model_receives_the_replaced_history_in_order() {
    let (store, effects) = (MemoryStore::default(), Effects::default());
    let messages: Vec<_> = ["one", "two", "three"]
        .into_iter()
        .flat_map(|text| [NewEvent::user_message(text), NewEvent::agent_message(text.to_uppercase())])
        .collect();
    let new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
    let session = store.sessions(&effects).create(new).await.unwrap();
    let head = store
        .sessions(&effects)
        .append(session.id, session.head, vec![NewEvent::user_message("old")])
        .await
        .unwrap()
        .last;
    let replaced =
        store.sessions(&effects).replace(session.id, head, messages.clone()).await.unwrap().session;
    let context = ModelContext::read(&store, &replaced, ContextLimits::default()).await.unwrap();
    let expected: Vec<_> = ["one", "two", "three"]
        .into_iter()
        .flat_map(|text| [ModelMessage::user(text), ModelMessage::agent(text.to_uppercase())])
        .collect();
    assert_eq!(context.messages(), expected);
    let stale = store.sessions(&effects).replace(session.id, head, messages.clone()).await.unwrap_err();
    assert_eq!(*stale.kind(), ErrorKind::Conflict { head: Some(replaced.head) });
}
