//! One run at a time: who waits, who takes over, and what becomes of the late.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::common::{
    Faulty, agent, agent_with, calls, check_log, device, dialogue, ended, eventually, log, queued, read,
    until_text,
};
use agent_core::commit::{Commit, LeaseRequest, Trigger};
use agent_core::event::{NewEvent, ToolOutcome};
use agent_core::json::RawJson;
use agent_core::state::{Reason, SessionState};
use agent_core::store::{Capabilities, LeaseStore, LeaseStoreWrapper, SessionStoreWrapper};
use agent_core::{
    Epoch, ErrorKind, MemoryStore, Result, SessionId, SessionStore, SessionStoreExt, Storage, async_trait,
};
use agent_runtime::{AgentRuntime, Config, Conversation, EchoProvider, Gate, ScriptedProvider, Turn, Update};
use agent_tests::{Site, each_store};
use tokio::time::Instant;

const TTL: Duration = Duration::from_secs(30);

fn named(storage: &Storage, holder: &str, model: ScriptedProvider) -> AgentRuntime {
    agent_with(storage, model, Config::default().with_holder(holder).with_lease_ttl(TTL), [])
}

/// A session that is run by `holder`, whose answer is held up at a gate after it has said "so".
async fn held(storage: &Storage, holder: &str, gate: &Gate) -> (Conversation, agent_runtime::Run) {
    let model = ScriptedProvider::new([Turn::new().text("so").gate(gate).text(" late")]);
    let chat = named(storage, holder, model).open(&device("laptop")).await.unwrap();
    let mut run = chat.prompt("first").await.unwrap();
    assert_eq!(until_text(&mut run).await, "so");
    (chat, run)
}

/// A session whose holder took the lease for an input and was killed.
async fn abandoned(storage: &Storage, input: &str) -> Conversation {
    let agent = named(storage, "killed", ScriptedProvider::new([]));
    let chat = agent.open(&device("laptop")).await.unwrap();
    let lease = LeaseRequest::new("killed", agent.effects().new_run_id()).with_ttl(TTL);
    let commit = Commit::seal(agent.effects(), chat.id(), chat.record().head)
        .with_event(NewEvent::user_message(input))
        .with_trigger(Trigger::BeginRun(lease));
    storage.sessions.commit_with_retry(commit).await.unwrap();
    chat.refresh().await.unwrap();
    chat
}

/// A store in memory on which leases are to have a ttl of some length, which counts the heartbeats.
#[derive(Debug)]
struct SlowLeases {
    store: MemoryStore,
    least: Duration,
    heartbeats: AtomicUsize,
}

#[async_trait]
impl SessionStoreWrapper for SlowLeases {
    fn inner(&self) -> &dyn SessionStore {
        &self.store
    }

    fn capabilities(&self) -> Capabilities {
        self.store.capabilities().with_min_lease(self.least)
    }

    fn leases(&self) -> &dyn LeaseStore {
        self
    }
}

#[async_trait]
impl LeaseStoreWrapper for SlowLeases {
    fn inner(&self) -> &dyn LeaseStore {
        self.store.leases()
    }

    async fn heartbeat(&self, id: SessionId, epoch: Epoch) -> Result<()> {
        self.heartbeats.fetch_add(1, Ordering::SeqCst);
        self.store.leases().heartbeat(id, epoch).await
    }
}

/// A lease lasts as long as it is configured, unless the store requires more; heartbeats are sent by that, and others
/// wait for that.
#[tokio::test(start_paused = true)]
async fn lease_is_as_long_as_the_store_requires() {
    for (least, ttl, heartbeats) in [(120, 120, 3), (10, 30, 12), (1_000_000, 86_400, 0)] {
        let store = MemoryStore::new();
        let (under, least) = (Storage::from(store.clone()), Duration::from_secs(least));
        let slow = Arc::new(SlowLeases { store, least, heartbeats: AtomicUsize::new(0) });
        let storage = Storage::new(under.workspaces, slow.clone(), under.bindings);
        let gate = Gate::new();
        let (chat, run) = held(&storage, "laptop", &gate).await;
        let lease = chat.refresh().await.unwrap().lease.clone().unwrap();
        assert_eq!(lease.ttl_ms, ttl * 1000, "at least {least:?}");
        tokio::time::sleep(Duration::from_secs(125)).await;
        assert_eq!(slow.heartbeats.load(Ordering::SeqCst), heartbeats, "at least {least:?}");
        gate.open();
        ended(run).await;
    }
}

/// Of many prompts at once one runs, the others are stored with the holder named; each is answered once, and
/// never interleaved.
async fn concurrent_prompts_are_never_interleaved(site: Site) {
    let (name, storage) = (site.name, site.open().await);
    let gate = Gate::new();
    let (chat, run) = held(&storage, "laptop", &gate).await;
    let model = ScriptedProvider::new([Turn::new().text("all answered")]);
    let other = named(&storage, "phone", model.clone());
    let tasks: Vec<_> = (0..8)
        .map(|n| {
            let (other, id) = (other.clone(), chat.id());
            tokio::spawn(async move {
                let mut run =
                    other.conversation_by_id(id).await.unwrap().prompt(format!("p{n}")).await.unwrap();
                let Some(Ok(Update::Queued(stored))) = run.next().await else { panic!("not stored") };
                assert!(run.next().await.is_none());
                stored
            })
        })
        .collect();
    for task in tasks {
        let stored = task.await.unwrap();
        assert_eq!(stored.holder.as_deref(), Some("laptop"), "{name}");
        assert_eq!(stored.state, SessionState::Running, "{name}");
    }
    assert!(model.requests().is_empty(), "{name}: no second run");
    gate.open();
    assert_eq!(read(run).await.1.status.state, SessionState::Queued, "{name}: they wait");
    assert_eq!(chat.record().status.reason, Reason::FollowUp, "{name}");

    let waiting = other.conversation_by_id(chat.id()).await.unwrap();
    let (text, report) = read(waiting.run_pending().await.unwrap().unwrap()).await;
    assert_eq!((text.as_str(), report.status.state), ("all answered", SessionState::Idle), "{name}");
    // The eight stand behind the answer to the first, though they came before it.
    let asked = &model.requests()[0].messages;
    assert_eq!(asked.len(), 10, "{name}");
    assert_eq!(asked[1], agent_runtime::context::ModelMessage::agent("so late"), "{name}");
    assert!(waiting.run_pending().await.unwrap().is_none(), "{name}: nothing is left");
    let runs = chat.refresh().await.unwrap().counts.runs;
    assert_eq!(runs, 2, "{name}");
    check_log(&chat).await;
}

each_store!(concurrent_prompts_are_never_interleaved, flavor = "multi_thread", worker_threads = 4);

/// Of prompts that start at the same moment on an idle session exactly one runs.
async fn prompts_at_the_same_moment_start_one_run(site: Site) {
    let (name, storage) = (site.name, site.open().await);
    for round in 0..20 {
        let agent = agent(&storage, EchoProvider::new().with_delay(Duration::from_millis(2)));
        let chat = agent.open(&device(&format!("laptop {round}"))).await.unwrap();
        let tasks: Vec<_> = (0..4)
            .map(|n| {
                let chat = chat.clone();
                tokio::spawn(async move {
                    let run = chat.prompt(format!("p{n} and more")).await.unwrap();
                    let started = run.id().is_some();
                    ended(run).await;
                    started
                })
            })
            .collect();
        let mut runs = 0;
        for task in tasks {
            runs += usize::from(task.await.unwrap());
        }
        assert!(runs >= 1, "{name}");
        while let Some(run) = chat.run_when_free().await.unwrap() {
            read(run).await;
        }
        let now = chat.refresh().await.unwrap();
        assert_eq!((now.counts.user, now.inputs_open), (4, 0), "{name}");
        check_alternation(&chat).await;
        check_log(&chat).await;
    }
}

each_store!(prompts_at_the_same_moment_start_one_run, flavor = "multi_thread", worker_threads = 4);

/// No event of one run lies between two events of another.
async fn check_alternation(chat: &Conversation) {
    let mut runs: Vec<_> = log(chat).await.iter().filter_map(|event| event.run).collect();
    runs.dedup();
    let mut unique = runs.clone();
    unique.sort();
    unique.dedup();
    assert_eq!(unique.len(), runs.len());
}

/// A holder without a sign of life for a whole ttl is replaced; not before, and the late writes are fenced.
async fn takeover_after_ttl_fences_the_old_holder(site: Site) {
    let (name, under) = (site.name, site.open().await);
    let faulty = Faulty::new(under.clone());
    let gate = Gate::new();
    let (chat, run) = held(&faulty.storage(), "sleeper", &gate).await;
    faulty.lose_beats();
    let model = ScriptedProvider::new([Turn::new().text("taken over")]);
    let other = named(&under, "waker", model).conversation_by_id(chat.id()).await.unwrap();
    queued(other.prompt("second").await.unwrap()).await;
    let epoch = other.record().epoch;

    let since = Instant::now();
    let run_of_other = other.run_when_free().await.unwrap().unwrap();
    assert!(since.elapsed() >= TTL, "{name}: {:?}", since.elapsed());
    assert!(since.elapsed() < TTL * 2, "{name}: {:?}", since.elapsed());
    assert_eq!(read(run_of_other).await.0, "taken over", "{name}");
    let head = other.refresh().await.unwrap().head;

    gate.open();
    let (_, end) = crate::common::try_read(run).await;
    assert!(matches!(end.unwrap_err().kind(), ErrorKind::Fenced { .. }), "{name}");
    let late = Commit::seal(chat.runtime().effects(), chat.id(), head)
        .with_fence(chat.runtime().effects().new_run_id(), epoch)
        .with_event(NewEvent::agent_message("late"));
    let late = under.sessions.commit(late).await.unwrap_err();
    assert!(matches!(late.kind(), ErrorKind::Fenced { .. }), "{name}");
    assert_eq!(other.refresh().await.unwrap().head, head, "{name}: nothing more was written");
    assert!(!dialogue(&other).await.iter().any(|(_, text)| text.contains("late")), "{name}");
    check_log(&other).await;
}

each_store!(takeover_after_ttl_fences_the_old_holder, start_paused = true);

/// A holder that lives is not replaced, however long its model takes, and `timer` gives up at its first sign of life.
async fn a_live_holder_is_never_replaced(site: Site) {
    let (name, storage) = (site.name, site.open().await);
    let gate = Gate::new();
    let (chat, run) = held(&storage, "worker", &gate).await;
    let other =
        named(&storage, "other", ScriptedProvider::new([])).conversation_by_id(chat.id()).await.unwrap();
    for _ in 0..8 {
        tokio::time::sleep(TTL).await;
        assert!(other.run_pending().await.unwrap().is_none(), "{name}");
    }
    assert_eq!(other.refresh().await.unwrap().epoch, chat.record().epoch, "{name}");
    gate.open();
    assert_eq!(read(run).await.0, " late", "{name}");
    assert_eq!(dialogue(&chat).await.last().unwrap().1, "so late", "{name}");
}

each_store!(a_live_holder_is_never_replaced, start_paused = true);

/// A holder that is proven dead is replaced by the next prompt, in the prompt's own commit.
async fn a_dead_holder_is_replaced_at_once(site: Site) {
    let (name, under) = (site.name, site.open().await);
    let dead = abandoned(&under, "first").await.record();
    let faulty = Faulty::new(under.clone());
    faulty.bury(dead.epoch);
    let model = ScriptedProvider::new([Turn::new().text("here")]);
    let other = named(&faulty.storage(), "heir", model.clone()).conversation_by_id(dead.id).await.unwrap();
    let since = Instant::now();
    let run = other.prompt("second").await.unwrap();
    assert_eq!(since.elapsed(), Duration::ZERO, "{name}");
    assert_eq!(read(run).await.0, "here", "{name}");
    assert_eq!(model.requests()[0].messages.len(), 2, "{name}: the first input is answered too");
    let events = log(&other).await;
    let mut after = events.iter().filter(|event| event.seq > dead.head);
    let kinds: Vec<_> = after.clone().map(|event| event.kind.as_str()).collect();
    assert_eq!(kinds[..3], ["session.status_changed", "session.updated", "user.message"], "{name}");
    assert_eq!(kinds[3..], ["agent.message"], "{name}");
    let commits: Vec<_> = after.by_ref().take(3).map(|event| event.commit).collect();
    assert!(commits.iter().all(|commit| *commit == commits[0]), "{name}: one commit");
    check_log(&other).await;
}

each_store!(a_dead_holder_is_replaced_at_once, start_paused = true);

/// The same where the handle had not seen yet that somebody runs the session: its text is stored, and the dead
/// one replaced right after.
async fn a_dead_holder_is_replaced_by_a_stale_handle_too(site: Site) {
    let (name, under) = (site.name, site.open().await);
    let faulty = Faulty::new(under.clone());
    let model = ScriptedProvider::new([Turn::new().text("here")]);
    let stale = named(&faulty.storage(), "heir", model.clone()).open(&device("laptop")).await.unwrap();
    let dead = abandoned(&under, "first").await.record();
    faulty.bury(dead.epoch);
    assert_eq!(stale.record().status.state, SessionState::Idle, "{name}");
    assert_eq!(read(stale.prompt("second").await.unwrap()).await.0, "here", "{name}");
    assert_eq!(model.requests()[0].messages.len(), 2, "{name}");
    let stored: Vec<_> = dialogue(&stale).await.into_iter().map(|(_, text)| text).collect();
    assert_eq!(stored, ["first", "second", "here"], "{name}: nothing is doubled");
}

each_store!(a_dead_holder_is_replaced_by_a_stale_handle_too, start_paused = true);

/// Who waits for its turn goes on as soon as the holder is done, and not at all where it was done for it.
async fn run_when_free_starts_after_the_holder(site: Site) {
    let (name, storage) = (site.name, site.open().await);
    let gate = Gate::new();
    let (chat, run) = held(&storage, "first", &gate).await;
    let model = ScriptedProvider::new([Turn::new().text("second's answer")]);
    let other = named(&storage, "second", model).conversation_by_id(chat.id()).await.unwrap();
    queued(other.prompt("second").await.unwrap()).await;
    let waiting = tokio::spawn({
        let other = other.clone();
        async move { read(other.run_when_free().await.unwrap().unwrap()).await.0 }
    });
    tokio::time::sleep(TTL * 3).await;
    assert!(!waiting.is_finished(), "{name}: the holder lives");
    let since = Instant::now();
    gate.open();
    read(run).await;
    assert_eq!(waiting.await.unwrap(), "second's answer", "{name}");
    assert!(since.elapsed() <= Duration::from_secs(2), "{name}: {:?}", since.elapsed());
    assert!(other.run_when_free().await.unwrap().is_none(), "{name}");
}

each_store!(run_when_free_starts_after_the_holder, start_paused = true);

/// After a take-over each open tool call has exactly one result, which says that its outcome is unknown.
async fn takeover_gives_each_open_call_one_result(site: Site) {
    let (name, under) = (site.name, site.open().await);
    let model = ScriptedProvider::new([Turn::new()
        .text("I look twice.")
        .call("a", "look", RawJson::empty_object())
        .call("b", "look", RawJson::empty_object())]);
    let config = Config::default().with_holder("sleeper").with_lease_ttl(TTL);
    let faulty = Faulty::new(under.clone());
    let agent = agent_with(&faulty.storage(), model, config, [std::sync::Arc::new(tools::Slow) as _]);
    let chat = agent.open(&device("laptop")).await.unwrap();
    let run = chat.prompt("look").await.unwrap();
    let open = async || chat.refresh().await.unwrap().open_calls.len() == 2;
    eventually(open).await;
    faulty.lose_beats();

    let model = ScriptedProvider::new([Turn::new().text("I see.")]);
    let other = named(&under, "heir", model.clone()).conversation_by_id(chat.id()).await.unwrap();
    let heir = other.run_when_free().await.unwrap().unwrap();
    read(heir).await;
    let calls = calls(&other).await;
    assert_eq!(calls.len(), 2, "{name}");
    for (call, results) in calls {
        let outcomes: Vec<_> = results.iter().map(|result| result.outcome).collect();
        assert_eq!(outcomes, [ToolOutcome::Interrupted], "{name}: {}", call.call);
    }
    assert_eq!(model.requests()[0].messages.len(), 3, "{name}: input, calls, results");
    // The sleeper timers up, and stops without a word.
    let (_, end) = crate::common::try_read(run).await;
    assert!(matches!(end.unwrap_err().kind(), ErrorKind::Fenced { .. }), "{name}");
    check_log(&other).await;
}

each_store!(takeover_gives_each_open_call_one_result, start_paused = true);

mod tools {
    use agent_core::json::RawJson;
    use agent_core::{Result, async_trait};
    use agent_runtime::{Plugin, ToolContext, ToolSpec};

    #[derive(Debug)]
    pub(crate) struct Slow;

    #[async_trait]
    impl Plugin for Slow {
        fn name(&self) -> &str {
            "slow"
        }

        fn tools(&self) -> Vec<ToolSpec> {
            vec![ToolSpec::new("look", "looks for a long time")]
        }

        async fn call(&self, _: &str, _: RawJson, _: ToolContext) -> Result<RawJson> {
            tokio::time::sleep(std::time::Duration::from_secs(90)).await;
            RawJson::parse("1")
        }
    }
}

/// A run that panics, and whose end panics, too, leaves a session that goes on when its lease has expired.
async fn panicking_run_loses_its_stream_and_lease(site: Site) {
    let (name, under) = (site.name, site.open().await);
    let faulty = Faulty::new(under.clone());
    let gate = Gate::new();
    let (chat, run) = held(&faulty.storage(), "panics", &gate).await;
    faulty.panic_commits(1000);
    gate.open();
    let (_, end) = crate::common::try_read(run).await;
    assert!(end.unwrap_err().to_string().contains("panicked"), "{name}");
    assert_eq!(chat.refresh().await.unwrap().status.state, SessionState::Running, "{name}");

    let model = ScriptedProvider::new([Turn::new().text("goes on")]);
    let other = named(&under, "heir", model).conversation_by_id(chat.id()).await.unwrap();
    let since = Instant::now();
    let run = other.run_pending().await.unwrap().unwrap();
    assert!(since.elapsed() >= TTL, "{name}");
    assert_eq!(read(run).await.0, "goes on", "{name}");
    chat.runtime().shutdown(Duration::ZERO).await.unwrap();
}

each_store!(panicking_run_loses_its_stream_and_lease, start_paused = true);

/// A dead holder whose run was interrupted left nothing to do: a timer frees the session, and runs nothing.
async fn run_pending_closes_a_dead_interrupted_run(site: Site) {
    let (name, under) = (site.name, site.open().await);
    let dead = abandoned(&under, "first").await;
    dead.interrupt().await.unwrap();
    assert_eq!(dead.record().status.state, SessionState::Running, "{name}");
    let faulty = Faulty::new(under.clone());
    faulty.bury(dead.record().epoch);
    let other = named(&faulty.storage(), "heir", ScriptedProvider::new([]));
    let other = other.conversation_by_id(dead.id()).await.unwrap();
    assert!(other.run_pending().await.unwrap().is_none(), "{name}");
    let now = other.refresh().await.unwrap();
    assert_eq!((now.status.state, now.status.reason), (SessionState::Idle, Reason::Interrupted), "{name}");
    assert_eq!(now.counts.runs, 1, "{name}");
}

each_store!(run_pending_closes_a_dead_interrupted_run, start_paused = true);

/// Of several that wait for a holder to fall silent one takes over, and the others go on waiting or have nothing
/// left to do.
async fn one_of_several_contenders_takes_over(site: Site) {
    let (name, storage) = (site.name, site.open().await);
    let dead = abandoned(&storage, "first").await;
    let tasks: Vec<_> = (0..6)
        .map(|n| {
            let model = ScriptedProvider::new([Turn::new().text("mine").wait(Duration::from_secs(5))]);
            let agent = named(&storage, &format!("heir {n}"), model);
            let id = dead.id();
            tokio::spawn(async move {
                match agent.conversation_by_id(id).await.unwrap().run_when_free().await.unwrap() {
                    Some(run) => Some(read(run).await.0),
                    None => None,
                }
            })
        })
        .collect();
    let mut answers = 0;
    for task in tasks {
        answers += usize::from(task.await.unwrap().is_some());
    }
    assert_eq!(answers, 1, "{name}");
    let stored: Vec<_> = dialogue(&dead).await.into_iter().map(|(_, text)| text).collect();
    assert_eq!(stored, ["first", "mine"], "{name}");
    check_log(&dead).await;
}

each_store!(one_of_several_contenders_takes_over, start_paused = true);

/// A text that is stored is never called refused because its holder could not be looked at, nor because it could
/// not be replaced: it would be said again, and be there twice.
async fn prompt_is_reported_stored_if_the_takeover_fails(site: Site) {
    let (name, under) = (site.name, site.open().await);
    for stale in [false, true] {
        let faulty = Faulty::new(under.clone());
        let device = device(&format!("stale {stale}"));
        let open = async |model| named(&faulty.storage(), "me", model).open(&device).await.unwrap();
        let waiting = open(ScriptedProvider::new([])).await;
        let gate = Gate::new();
        let holder = open(ScriptedProvider::new([Turn::new().text("so").gate(&gate)])).await;
        let mut run = holder.prompt("first").await.unwrap();
        until_text(&mut run).await;
        if !stale {
            waiting.refresh().await.unwrap();
        }
        faulty.fail_pulses(1);
        queued(waiting.prompt("second").await.unwrap()).await;
        let second = ("user", "second".to_owned());
        assert_eq!(dialogue(&holder).await.iter().filter(|said| **said == second).count(), 1, "{name}");
        gate.open();
        read(run).await;
    }
}

each_store!(prompt_is_reported_stored_if_the_takeover_fails);
