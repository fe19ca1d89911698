//! Ledger of runs and artifacts, and the calls that inspect a session, on each kind of store.

use crate::stores::shared::{agent, agent_with, check_record, log, new_session};
use agent_core::clock::Effects;
use agent_core::commit::{Commit, LeaseRequest, RunEnd, Trigger};
use agent_core::event::{Decision, Event, EventType, Message, NewEvent, ToolConfirmation};
use agent_core::json::RawJson;
use agent_core::model::{
    ActionKind, Actor, Artifact, Cost, Origin, Patch, RunUsage, Status, Usage, UsageTotals,
};
use agent_core::state::{Reason, SessionState};
use agent_core::store::{ReadEvents, SessionQuery};
use agent_core::{Epoch, Error, ErrorKind, Result, RunId, Seq, Storage, WorkspaceId, async_trait};
use agent_runtime::secrets::{Secret, SecretName, Secrets};
use agent_runtime::views::{RunStatus, SessionView, Stage, active_sessions};
use agent_runtime::{
    AgentRuntime, Config, Conversation, EchoProvider, Input, LlmProvider, ModelEvent, ModelRequest,
    ModelStream, OnStoreError, Plugin, RunError, RunReport, ScriptedProvider, StopReason, ToolContext,
    ToolMode, ToolSpec,
};
use agent_tests::{Site, each_store};
use futures::StreamExt;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A model that reads ten tokens and writes two, at two millionths a token; asked to `fail`, it fails; asked to `ask`,
/// it calls a tool that needs to be confirmed.
#[derive(Debug)]
struct Priced;

#[async_trait]
impl LlmProvider for Priced {
    fn name(&self) -> &'static str {
        "priced"
    }

    fn model(&self) -> &'static str {
        "priced-1"
    }

    async fn generate(&self, request: ModelRequest) -> Result<ModelStream> {
        let last = format!("{:?}", request.messages.last());
        if last.contains("fail") {
            return Err(Error::new(ErrorKind::Provider, "the model failed"));
        }
        let usage = Usage::new(10, 2);
        let mut events = vec![];
        if last.contains("ask") || last.contains("tool") {
            let name = if last.contains("ask") { "confirmed" } else { "plain" };
            let call = agent_runtime::ModelCall::new("call", name, RawJson::empty_object());
            events.push(Ok(ModelEvent::ToolUse(call)));
        } else {
            events.push(Ok(ModelEvent::Text("said".to_owned())));
        }
        events.push(Ok(ModelEvent::done(StopReason::EndTurn, usage)));
        Ok(futures::stream::iter(events).boxed())
    }

    fn cost(&self, usage: Usage) -> Option<Cost> {
        Some(Cost::new("USD", (usage.input_tokens + usage.output_tokens) * 2))
    }
}

/// Two tools: one that a person confirms, one that is called at once and registers what it made.
#[derive(Debug)]
struct Tools(Storage);

#[async_trait]
impl Plugin for Tools {
    fn name(&self) -> &'static str {
        "tools"
    }

    fn tools(&self) -> Vec<ToolSpec> {
        vec![
            ToolSpec::new("confirmed", "waits").with_mode(ToolMode::Confirm),
            ToolSpec::new("plain", "makes a report"),
        ]
    }

    async fn call(&self, _: &str, _: RawJson, context: ToolContext) -> Result<RawJson> {
        let id = context.session;
        let seen = self.0.sessions.load(id).await?.head;
        let report = Artifact::new("artifacts/report.md").with_hash("sha256:00").with_run(context.run);
        self.0.sessions.append(id, seen, vec![NewEvent::artifact_registered(report)]).await?;
        RawJson::of(&"made")
    }
}

fn priced(storage: &Storage, record: bool) -> AgentRuntime {
    agent_with(
        storage,
        Priced,
        Config::default().with_record_usage(record),
        [Arc::new(Tools(storage.clone()))],
    )
}

async fn chat(runtime: &AgentRuntime) -> Conversation {
    runtime.open(&"laptop".parse().unwrap()).await.unwrap()
}

async fn prompt(chat: &Conversation, text: &str) -> RunReport {
    match chat.prompt(text).await.unwrap().finish().await {
        Ok(report) => report,
        Err(RunError::Failed(report)) => *report,
        Err(error) => panic!("{error}"),
    }
}

/// What a run used is not stored unless the host asks for it.
async fn usage_is_stored_only_on_request(site: Site) {
    let storage = site.open().await;
    let quiet = chat(&priced(&storage, false)).await;
    assert_eq!(prompt(&quiet, "hello").await.usage, Usage::new(10, 2), "the host is told all the same");
    let text: String = log(&storage, quiet.id()).await.iter().map(Event::to_json).collect();
    assert!(!text.contains("tokens") && !text.contains("usage"), "{}: {text}", site.name);
    assert_eq!(check_record(&storage, quiet.id()).await.usage, UsageTotals::default());
    assert_eq!(quiet.view().runs(10, None).await.unwrap().runs[0].usage, None, "{}", site.name);

    let kept = chat(&priced(&storage, true)).await;
    let run = prompt(&kept, "hello").await.run.unwrap();
    let entry = kept.view().run(run).await.unwrap();
    assert_eq!(entry.usage.unwrap().usage, Usage::new(10, 2), "{}", site.name);
}

each_store!(usage_is_stored_only_on_request);

/// The sum of what all runs used stands in the record at any time, not only at the end: after each run that was
/// answered, failed or waits, after a restart and a clearing; a fork starts at nothing.
async fn usage_totals_match_the_runs_at_any_time(site: Site) {
    let mut storage = site.open().await;
    let (mut sum, mut id) = (Usage::default(), None);
    for (n, text) in ["one", "fail", "tool", "two", "ask"].iter().enumerate() {
        let runtime = priced(&storage, true);
        let chat = chat(&runtime).await;
        id = Some(chat.id());
        sum = sum.plus(prompt(&chat, text).await.usage);
        let now = check_record(&storage, chat.id()).await;
        assert_eq!(now.usage.usage, sum, "{} after {text}", site.name);
        let cost = now.usage.cost.get("USD").copied().unwrap_or_default();
        assert_eq!(cost, (sum.input_tokens + sum.output_tokens) * 2, "{}", site.name);
        let runs = chat.view().runs(100, None).await.unwrap().runs;
        let of_runs = runs.iter().filter_map(|run| run.usage.as_ref()).map(|used| used.usage);
        assert_eq!(of_runs.fold(Usage::default(), Usage::plus), sum, "the ledger and the record agree");
        if n == 3 {
            chat.clear().await.unwrap();
        }
        drop((chat, runtime, storage));
        storage = site.open().await;
    }
    assert!(sum.input_tokens >= 40);
    let (id, effects) = (id.unwrap(), Effects::default());
    let now = storage.sessions.load(id).await.unwrap();
    assert_eq!(now.usage.usage, sum);
    // What is known later is added.
    let late =
        RunUsage::new(effects.new_run_id(), Usage::new(u64::MAX, 1)).with_cost(Some(Cost::new("EUR", 5)));
    storage.sessions.append(id, now.head, vec![NewEvent::run_usage(late)]).await.unwrap();
    let now = check_record(&storage, id).await;
    assert_eq!(now.usage.usage, Usage::new(u64::MAX, sum.output_tokens + 1), "{}", site.name);
    assert_eq!(now.usage.cost["EUR"], 5);
    for n in 0..6 {
        let used = RunUsage::new(effects.new_run_id(), Usage::default())
            .with_cost(Some(Cost::new(format!("C{n}"), 1)));
        let now = storage.sessions.load(id).await.unwrap();
        storage.sessions.append(id, now.head, vec![NewEvent::run_usage(used)]).await.unwrap();
    }
    let now = storage.sessions.load(id).await.unwrap();
    let ninth = RunUsage::new(effects.new_run_id(), Usage::default()).with_cost(Some(Cost::new("C9", 1)));
    let error = storage.sessions.append(id, now.head, vec![NewEvent::run_usage(ninth)]).await;
    assert_eq!(*error.unwrap_err().kind(), ErrorKind::LimitExceeded, "{}", site.name);
    let fork = storage.sessions.fork(id, None).await.unwrap();
    assert_eq!(fork.usage, UsageTotals::default(), "{}: it was spent once", site.name);
}

each_store!(usage_totals_match_the_runs_at_any_time);

/// The ledger has every run of a session once, numbered without gaps, however it ended: completed, failed,
/// waiting for an answer, cancelled, fenced off, lost with its holder; in order, a page at a time, also after a restart.
async fn ledger_lists_every_run_however_it_ended(site: Site) {
    let (storage, effects) = (site.open().await, Effects::default());
    let runtime = priced(&storage, true);
    let chat = chat(&runtime).await;
    let id = chat.id();
    let mut runs = Vec::new();
    for text in ["one", "fail", "tool", "ask"] {
        runs.push(prompt(&chat, text).await.run.unwrap());
    }
    let action = chat.refresh().await.unwrap().action.clone().unwrap().id;
    chat.answer(ToolConfirmation::new(action, Decision::Deny)).await.unwrap();
    runs.push(chat.run_pending().await.unwrap().unwrap().finish().await.unwrap().run.unwrap());
    // Runs of other processes: one that is told to stop, one whose holder dies, one that is taken over by the next.
    let begin = async |run: RunId, expired: Option<Epoch>| {
        let seen = storage.sessions.load(id).await.unwrap().head;
        let mut commit = Commit::seal(&effects, id, seen);
        if let Some(epoch) = expired {
            commit = commit.with_trigger(Trigger::LeaseExpired(epoch));
        } else {
            commit = commit.with_event(NewEvent::user_message("by hand"));
        }
        let commit = commit.with_trigger(Trigger::BeginRun(LeaseRequest::new("by hand", run)));
        storage.sessions.commit(commit).await.unwrap().epoch.unwrap()
    };
    let by_hand: Vec<_> = (0..5).map(|_| effects.new_run_id()).collect();
    let epoch = begin(by_hand[0], None).await;
    let seen = storage.sessions.load(id).await.unwrap().head;
    let end = Commit::seal(&effects, id, seen).with_fence(by_hand[0], epoch);
    storage.sessions.commit(end.with_trigger(Trigger::EndRun(RunEnd::Interrupted))).await.unwrap();
    let lost = begin(by_hand[1], None).await;
    let taken_over = begin(by_hand[2], Some(lost)).await;
    storage.sessions.trigger(id, Trigger::LeaseExpired(taken_over)).await.unwrap();
    storage.sessions.trigger(id, Trigger::ForceSuspend(Reason::UserPaused)).await.unwrap();
    storage.sessions.trigger(id, Trigger::Resume).await.unwrap();
    begin(by_hand[3], None).await;
    storage.sessions.trigger(id, Trigger::ForceSuspend(Reason::UserPaused)).await.unwrap();
    storage.sessions.trigger(id, Trigger::Resume).await.unwrap();
    begin(by_hand[4], None).await;
    runs.extend(by_hand);
    drop((chat, runtime));

    let sessions = site.open().await.sessions;
    let view = SessionView::new(sessions.store().clone(), id);
    let mut found = view.runs(100, None).await.unwrap().runs;
    found.reverse();
    use RunStatus::{Awaiting, Cancelled, Completed, Failed, Lost, Running, Stopped};
    let statuses: Vec<_> = found.iter().map(|run| run.status).collect();
    let expected =
        [Completed, Failed, Completed, Awaiting, Completed, Cancelled, Lost, Lost, Stopped, Running];
    assert_eq!(statuses, expected, "{}", site.name);
    assert_eq!(found.iter().map(|run| run.run).collect::<Vec<_>>(), runs, "{}", site.name);
    assert_eq!(found.iter().map(|run| run.index).collect::<Vec<_>>(), (1..=10).collect::<Vec<_>>());
    assert_eq!(found[1].failure.as_ref().unwrap().class, Reason::RunError);
    assert_eq!(found[0].failure, None);
    assert!(found[..9].iter().all(|run| run.latency().is_some()) && found[9].latency().is_none());
    let firsts: Vec<_> = found.iter().map(|run| run.first).collect();
    assert!(firsts.is_sorted() && found[..9].iter().all(|run| run.last.unwrap() >= run.first));
    // By pages of every size.
    for limit in 1..=11 {
        let (mut paged, mut before) = (Vec::new(), None);
        loop {
            let page = view.runs(limit, before).await.unwrap();
            assert!(page.runs.len() <= limit);
            paged.extend(page.runs);
            before = page.next;
            if before.is_none() {
                break;
            }
        }
        paged.reverse();
        assert_eq!(paged, found, "{} by {limit}", site.name);
    }
    let fork = sessions.fork(id, None).await.unwrap();
    assert_eq!(SessionView::new(sessions.store().clone(), fork.id).runs(9, None).await.unwrap().runs, []);
    let other = new_session(&storage, &effects).await;
    let none = SessionView::new(sessions.store().clone(), other.id).run(runs[0]).await.unwrap_err();
    assert_eq!(*none.kind(), ErrorKind::NotFound, "a run belongs to its session");
}

each_store!(ledger_lists_every_run_however_it_ended);

/// A turn of which something could not be stored is distinguished from one that is whole.
async fn degraded_turn_is_marked(site: Site) {
    let storage = site.open().await;
    let config = Config::default().with_record_usage(true).with_on_store_error(OnStoreError::Continue);
    // It is stored with a long name in place of each short value, and an event does not hold that.
    let name: SecretName = "n".repeat(64).parse().unwrap();
    let values = BTreeMap::from([(name.clone(), Secret::new("x".repeat(8)).unwrap())]);
    let secrets = Secrets::new(values);
    secrets.reveal(WorkspaceId::DEFAULT, &name).await.unwrap();
    let large = "x".repeat(2 << 20);
    let config = config.with_max_text_bytes(large.len());
    let turns = [agent_runtime::Turn::new().text(large), agent_runtime::Turn::new().text("short")];
    let agent = agent(&storage, ScriptedProvider::new(turns), config).with_secrets(secrets);
    let chat = chat(&agent).await;
    let degraded = prompt(&chat, "one").await;
    let whole = prompt(&chat, "two").await;
    assert_eq!((degraded.stored, whole.stored), (false, true), "{}", site.name);
    let runs = chat.view().runs(10, None).await.unwrap().runs;
    assert_eq!([runs[1].degraded, runs[0].degraded], [true, false], "{}", site.name);
    assert_eq!([runs[1].status, runs[0].status], [RunStatus::Completed; 2]);
}

each_store!(degraded_turn_is_marked);

/// One call each for a snapshot, for what is around an event, by type too, and for what a run did.
async fn snapshot_around_and_trace_are_one_call_each(site: Site) {
    let storage = site.open().await;
    let runtime = priced(&storage, true);
    let original = chat(&runtime).await;
    prompt(&original, "one").await;
    prompt(&original, "tool").await;
    let fork = original.fork(None).await.unwrap();
    let run = {
        let run = fork.prompt("tool").await.unwrap();
        let id = run.id().unwrap();
        // Somebody else writes meanwhile.
        let seen = fork.record().head;
        storage.sessions.append(fork.id(), seen, vec![NewEvent::user_message("aside")]).await.unwrap();
        run.finish().await.unwrap();
        id
    };
    let (view, all) = (fork.view(), log(&storage, fork.id()).await);
    let seqs = |events: &[Event]| events.iter().map(|event| event.seq.get()).collect::<Vec<_>>();
    let snapshot = view.latest(4).await.unwrap();
    assert_eq!(snapshot.session.head, all.last().unwrap().seq);
    assert_eq!(snapshot.events.events, all[all.len() - 4..], "{}", site.name);
    for event in &all {
        for count in [0, 1, 3, 100] {
            let around = view.around(event.seq, count, &ReadEvents::default()).await.unwrap();
            let at = event.seq.get() as usize - 1;
            assert_eq!(around.event, *event);
            assert_eq!(around.before, all[at.saturating_sub(count)..at], "{}", site.name);
            assert_eq!(around.after, all[at + 1..all.len().min(at + 1 + count)], "{}", site.name);
        }
    }
    let kinds = ReadEvents::default().with_types([EventType::AGENT_TOOL_USE]);
    let calls = view.around(all.last().unwrap().seq, 2, &kinds).await.unwrap();
    assert!(calls.before.len() == 2 && calls.before.iter().all(|it| it.kind == EventType::AGENT_TOOL_USE));
    for outside in [Seq::ZERO, all.last().unwrap().seq.next()] {
        let error = view.around(outside, 1, &ReadEvents::default()).await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::InvalidInput, "{}", site.name);
    }
    let trace = view.trace(run).await.unwrap();
    let expected: Vec<_> = all.iter().filter(|event| event.run == Some(run)).cloned().collect();
    assert_eq!(seqs(&trace[1..]), seqs(&expected), "{}", site.name);
    assert_eq!(trace[0].kind, EventType::USER_MESSAGE, "the input by which it began");
    assert_eq!(trace.last().unwrap().transition().unwrap().unwrap().lease, Some(None), "and its end");
    let aside = |event: &&Event| event.payload.get().contains("aside");
    assert!(all.iter().any(|event| aside(&event)) && !trace.iter().any(|event| aside(&event)));
}

each_store!(snapshot_around_and_trace_are_one_call_each);

/// A session leads to its runs, and each run to what it made; nothing of another session is among it.
async fn session_lists_its_runs_and_their_artifacts(site: Site) {
    let (storage, effects) = (site.open().await, Effects::default());
    let runtime = priced(&storage, false);
    let chat = chat(&runtime).await;
    let other = runtime.new_session(WorkspaceId::DEFAULT, &Patch::new()).await;
    assert!(other.is_err(), "the default workspace was not made yet");
    let workspace = chat.record().workspace;
    let other = runtime.new_session(workspace, &Patch::new()).await.unwrap();
    let (mut runs, began) = (Vec::new(), effects.now());
    for text in ["tool", "one", "tool"] {
        runs.push(prompt(&chat, text).await.run.unwrap());
        prompt(&other, "tool").await;
    }
    for n in 0..20 {
        chat.register_artifact(Artifact::new(format!("by hand {n}")).with_media("text/plain")).await.unwrap();
    }
    let view = chat.view();
    let of = async |run: RunId| view.artifacts(Some(run), 10, None).await.unwrap().artifacts;
    assert_eq!((of(runs[0]).await.len(), of(runs[1]).await.len(), of(runs[2]).await.len()), (1, 0, 1));
    let made = of(runs[0]).await.remove(0);
    assert_eq!(
        (made.artifact.path.as_str(), made.artifact.hash.as_deref()),
        ("artifacts/report.md", Some("sha256:00"))
    );
    assert!((began..=effects.now()).contains(&made.at), "{}: {made:?}", site.name);
    let entry = view.run(runs[0]).await.unwrap();
    assert!(made.seq > entry.first && made.seq < entry.last.unwrap(), "{}", site.name);
    let (mut paths, mut before) = (Vec::new(), None);
    loop {
        let page = view.artifacts(None, 7, before).await.unwrap();
        paths.extend(page.artifacts.into_iter().map(|made| made.artifact.path));
        before = page.next;
        if before.is_none() {
            break;
        }
    }
    assert_eq!(paths.len(), 22, "{}: {paths:?}", site.name);
    assert_eq!((paths[0].as_str(), paths[20].as_str()), ("by hand 19", "artifacts/report.md"));
    for bad in [Artifact::new(""), Artifact::new("x").with_hash("a\nb"), Artifact::new("x".repeat(1025))] {
        let error = chat.register_artifact(bad).await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::InvalidInput, "{}", site.name);
    }
    let fork = storage.sessions.fork(chat.id(), None).await.unwrap();
    let inherited =
        SessionView::new(storage.sessions.store().clone(), fork.id).artifacts(None, 100, None).await;
    assert_eq!(inherited.unwrap().artifacts.len(), 22, "{}", site.name);
}

each_store!(session_lists_its_runs_and_their_artifacts);

/// What a session is to achieve can be defined, read and followed back, also after clearing and in a fork.
async fn outcomes_are_defined_and_listed_newest_first(site: Site) {
    let storage = site.open().await;
    let chat = chat(&priced(&storage, false)).await;
    assert_eq!(chat.view().outcome().await.unwrap(), None);
    assert!(chat.view().outcomes(9).await.unwrap().is_empty());
    for text in ["a green build", "a release"] {
        chat.define_outcome(Input::from(text).with_actor("user:alice".parse().unwrap())).await.unwrap();
        chat.run_pending().await.unwrap().unwrap().finish().await.unwrap();
    }
    let fork = chat.fork(None).await.unwrap();
    chat.clear().await.unwrap();
    chat.define_outcome("a rest").await.unwrap();
    let texts = async |chat: &Conversation, limit| {
        let outcomes = chat.view().outcomes(limit).await.unwrap();
        outcomes.into_iter().map(|outcome| outcome.message.text).collect::<Vec<_>>()
    };
    assert_eq!(texts(&chat, 9).await, ["a rest", "a release", "a green build"], "{}", site.name);
    assert_eq!(texts(&chat, 2).await, ["a rest", "a release"]);
    assert_eq!(texts(&fork, 9).await, ["a release", "a green build"], "{}", site.name);
    let outcome = fork.view().outcome().await.unwrap().unwrap();
    assert_eq!((outcome.message.text.as_str(), outcome.by.name()), ("a release", Some("alice")));
    check_record(&storage, chat.id()).await;
}

each_store!(outcomes_are_defined_and_listed_newest_first);

/// Who comes back gets in one call what was done, what was made, how it stands and what is waited for, also in
/// another process.
async fn topic_is_returned_in_one_call(site: Site) {
    let storage = site.open().await;
    let before = chat(&priced(&storage, false)).await;
    let empty = before.view().topic().await.unwrap();
    assert_eq!((empty.asked.is_none(), empty.said.is_none(), empty.runs.len()), (true, true, 0));
    before.set_title("The report").await.unwrap();
    before.define_outcome("a report").await.unwrap();
    prompt(&before, "write it").await;
    prompt(&before, "tool").await;
    let note = agent_runtime::documents::DocumentWrite::new("state", "nearly done", Actor::AGENT);
    before.documents().put(note).await.unwrap();
    prompt(&before, "ask").await;
    before.send("and more").await.unwrap();
    let id = before.id();
    drop((before, storage));

    let storage = site.open().await;
    let topic = SessionView::new(storage.sessions.store().clone(), id).topic().await.unwrap();
    assert_eq!(topic.session.attributes.title.as_ref().unwrap().text, "The report");
    assert_eq!(topic.outcome.as_ref().unwrap().message.text, "a report");
    let text = |event: &Option<Event>| event.as_ref().unwrap().payload_as::<Message>().unwrap().text;
    assert_eq!((text(&topic.asked).as_str(), text(&topic.said).as_str()), ("and more", "said"));
    let statuses: Vec<_> = topic.runs.iter().map(|run| run.status).collect();
    assert_eq!(statuses, [RunStatus::Awaiting, RunStatus::Completed, RunStatus::Completed], "{}", site.name);
    assert_eq!(topic.artifacts[0].artifact.path, "artifacts/report.md");
    assert_eq!(topic.status(), Status::new(SessionState::RequiresAction, Reason::AwaitToolConfirmation));
    assert_eq!(
        (topic.action().unwrap().kind, topic.pending()),
        (ActionKind::ToolConfirmation, 2),
        "{}",
        site.name
    );
    let other = agent(&storage, EchoProvider::new(), Config::default()).conversation_by_id(id).await.unwrap();
    other.interrupt().await.unwrap();
    other.clear().await.unwrap();
    let cleared = other.view().topic().await.unwrap();
    assert!(cleared.asked.is_none() && cleared.said.is_none() && cleared.action().is_none(), "{}", site.name);
    assert_eq!((cleared.runs.len(), cleared.artifacts.len()), (3, 1));
    assert_eq!((topic.documents()[0].name.as_str(), topic.timers().len()), ("state", 0));
}

each_store!(topic_is_returned_in_one_call);

/// What is open now is one list, with the stage of each session and what it waits for.
async fn open_work_is_listed_with_its_stage(site: Site) {
    let (storage, effects) = (site.open().await, Effects::default());
    let runtime = priced(&storage, false);
    let asks = chat(&runtime).await;
    let workspace = asks.record().workspace;
    prompt(&asks, "ask").await;
    let at_rest = runtime.new_session(workspace, &Patch::new()).await.unwrap();
    prompt(&at_rest, "hello").await;
    let waits = runtime.new_session(workspace, &Patch::new()).await.unwrap();
    waits.send("later").await.unwrap();
    let runs = runtime.new_session(workspace, &Patch::new().with_label("user", "alice")).await.unwrap();
    let run = effects.new_run_id();
    let begin = Commit::seal(&effects, runs.id(), runs.record().head)
        .with_event(NewEvent::user_message("go"))
        .with_trigger(Trigger::BeginRun(LeaseRequest::new("desk", run)));
    let begun = storage.sessions.commit(begin).await.unwrap();
    let open = async |query: SessionQuery| {
        let page = active_sessions(&*storage.sessions, query.with_total()).await.unwrap();
        assert_eq!(page.total, Some(page.items.len() as u64));
        let mut open: Vec<_> =
            page.items.into_iter().map(|it| (it.session.id, it.stage, it.session)).collect();
        open.sort_by_key(|(id, ..)| *id);
        open
    };
    let found = open(SessionQuery::new().with_workspace(workspace)).await;
    let stages: Vec<_> = found.iter().map(|(id, stage, _)| (*id, *stage)).collect();
    let mut expected =
        vec![(asks.id(), Stage::Answer), (waits.id(), Stage::Waiting), (runs.id(), Stage::Model)];
    expected.sort_by_key(|(id, _)| *id);
    assert_eq!(stages, expected, "{}", site.name);
    let asked = &found.iter().find(|(id, ..)| *id == asks.id()).unwrap().2;
    assert_eq!(asked.action.as_ref().unwrap().kind, ActionKind::ToolConfirmation);
    let call = NewEvent::tool_use("call".parse().unwrap(), "plain", RawJson::empty_object());
    let commit = Commit::seal(&effects, runs.id(), begun.session.head).with_fence(run, begun.epoch.unwrap());
    storage.sessions.commit(commit.with_event(call)).await.unwrap();
    let of_alice = open(SessionQuery::new().with_label("user", "alice")).await;
    assert_eq!(of_alice.len(), 1);
    assert_eq!(
        (of_alice[0].1, of_alice[0].2.lease.as_ref().unwrap().holder.as_str()),
        (Stage::Tools, "desk")
    );
}

each_store!(open_work_is_listed_with_its_stage);

/// A message that is said otherwise is a branch: each knows the message that it follows, and siblings are listed
/// from any of them.
async fn branches_list_their_parent_and_siblings(site: Site) {
    let storage = site.open().await;
    let chat = chat(&priced(&storage, false)).await;
    prompt(&chat, "first").await;
    let point = chat.refresh().await.unwrap().head;
    prompt(&chat, "second").await;
    let mut forks = Vec::new();
    for text in ["second, otherwise", "second, a third way"] {
        let fork = chat.fork(Some(point)).await.unwrap();
        prompt(&fork, text).await;
        forks.push(fork);
    }
    let silent = chat.fork(Some(point)).await.unwrap();
    let elsewhere = chat.fork(None).await.unwrap();
    let gone = chat.fork(Some(point)).await.unwrap();
    gone.delete().await.unwrap();
    forks[1].archive().await.unwrap();
    let texts = |branches: &agent_runtime::views::Branches| {
        let text = |event: &Event| event.payload_as::<Message>().unwrap().text;
        branches.branches.iter().map(|it| (it.session, it.message.as_ref().map(text))).collect::<Vec<_>>()
    };
    let some = |text: &str| Some(text.to_owned());
    let mut expected = vec![
        (chat.id(), some("second")),
        (forks[0].id(), some("second, otherwise")),
        (forks[1].id(), some("second, a third way")),
        (silent.id(), None),
    ];
    expected[1..].sort();
    let found = chat.view().branches(point).await.unwrap();
    assert_eq!(texts(&found), expected, "{}", site.name);
    assert!(found.damaged.is_empty());
    for fork in forks.iter().chain([&silent]) {
        let siblings = fork.view().siblings().await.unwrap().unwrap();
        assert_eq!((siblings.point, texts(&siblings)), (point, expected.clone()), "{}", site.name);
        let Origin::Fork { parent, at, .. } = fork.record().origin else { panic!("a fork") };
        assert_eq!((parent, at), (chat.id(), point));
    }
    assert_eq!(elsewhere.view().siblings().await.unwrap().unwrap().branches.len(), 2);
    assert_eq!(chat.view().siblings().await.unwrap(), None, "{}", site.name);
}

each_store!(branches_list_their_parent_and_siblings);
