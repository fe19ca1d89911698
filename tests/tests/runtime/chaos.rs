//! Many hosts on one session at once, with every operation and a store that fails now and then: the log stays whole.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::common::{Faulty, agent_with, calls, check_log, device, eventually, log};
use agent_core::clock::Effects;
use agent_core::commit::{Commit, LeaseRequest, Trigger};
use agent_core::event::{Decision, EventPayload, NewEvent, ToolConfirmation};
use agent_core::json::RawJson;
use agent_core::model::Usage;
use agent_core::state::{SessionState, TriggerKind};
use agent_core::{ErrorKind, Result, SessionStoreExt, Storage, Timestamp, async_trait};
use agent_runtime::context::ModelMessage;
use agent_runtime::{
    AgentRuntime, Config, Conversation, LlmProvider, ModelCall, ModelEvent, ModelRequest, ModelStream,
    Plugin, StopReason, ToolContext, ToolMode, ToolSpec,
};
use agent_tests::{Site, each_store};
use futures::StreamExt;

const TTL: Duration = Duration::from_millis(60);

/// Says something, calls tools, fails, or talks without end; and checks what it is given.
#[derive(Debug)]
struct Moody(Effects);

/// Conversations that were not pair-safe; a panic of the provider's would be survived.
static TORN: AtomicUsize = AtomicUsize::new(0);

#[async_trait]
impl LlmProvider for Moody {
    fn name(&self) -> &str {
        "moody"
    }

    fn model(&self) -> &str {
        "moody"
    }

    async fn generate(&self, request: ModelRequest) -> Result<ModelStream> {
        for (at, message) in request.messages.iter().enumerate() {
            let calls = match message {
                ModelMessage::Agent(message) => message.calls().count(),
                _ => 0,
            };
            let results = match request.messages.get(at + 1) {
                Some(ModelMessage::ToolResults(results)) => results.len(),
                _ => 0,
            };
            if calls != results {
                TORN.fetch_add(1, Ordering::SeqCst);
            }
        }
        let mut events = vec![Ok(ModelEvent::Text("well ".to_owned()))];
        let roll = self.0.random_u64();
        for n in 0..roll % 3 {
            let tool = ["look", "ask", "none"][usize::try_from(roll / 8 % 3).unwrap()];
            let call = ModelCall::new(format!("c{n}"), tool, RawJson::empty_object());
            events.push(Ok(ModelEvent::ToolUse(call)));
        }
        match roll / 64 % 8 {
            0 => {}
            1 => {
                let endless = futures::stream::repeat_with(|| Ok(ModelEvent::Text("and ".to_owned())));
                let slowly = endless.then(|event| async {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                    event
                });
                return Ok(slowly.take(200).boxed());
            }
            _ => events.push(Ok(ModelEvent::done(StopReason::EndTurn, Usage::default()))),
        }
        let slowly = futures::stream::iter(events).then(|event| async {
            tokio::task::yield_now().await;
            event
        });
        Ok(slowly.boxed())
    }
}

#[derive(Debug)]
struct Tools;

#[async_trait]
impl Plugin for Tools {
    fn name(&self) -> &str {
        "tools"
    }

    fn tools(&self) -> Vec<ToolSpec> {
        vec![ToolSpec::new("look", ""), ToolSpec::new("ask", "").with_mode(ToolMode::Confirm)]
    }

    async fn call(&self, _: &str, _: RawJson, _: ToolContext) -> Result<RawJson> {
        tokio::time::sleep(Duration::from_millis(1)).await;
        RawJson::of(&"seen")
    }
}

fn host(storage: &Storage, seed: u64) -> AgentRuntime {
    let moody = Moody(Effects::seeded(seed, Timestamp::UNIX_EPOCH));
    let config = Config::default()
        .with_holder(format!("host {seed}"))
        .with_lease_ttl(TTL)
        .with_max_turns(4)
        .with_spans(seed.is_multiple_of(2));
    agent_with(storage, moody, config, [Arc::new(Tools) as _])
}

/// What a host leaves that is killed right after it took the lease.
async fn begin_and_die(chat: &Conversation, text: String) -> Result<()> {
    let effects = chat.runtime().effects();
    let lease = LeaseRequest::new("killed", effects.new_run_id()).with_ttl(TTL).if_ready();
    let commit = Commit::seal(effects, chat.id(), chat.record().head)
        .with_event(NewEvent::user_message(text))
        .with_trigger(Trigger::BeginRun(lease));
    chat.runtime().storage().sessions.commit_with_retry(commit).await.map(drop)
}

/// Whatever is left is interrupted, or taken over by this host.
async fn come_to_rest(chat: &Conversation) {
    eventually(async || {
        let _ = chat.resume().await;
        chat.interrupt().await.unwrap();
        if let Some(run) = chat.run_pending().await.unwrap() {
            drop(run.finish().await);
        }
        chat.refresh().await.unwrap().status.state == SessionState::Idle
    })
    .await;
}

/// Does one thing, and waits for it or not. What it said, if it is stored for sure.
async fn act(chat: &Conversation, roll: u64, text: String) -> Option<String> {
    let run = match roll % 14 {
        0..=3 => match chat.prompt(text.clone()).await {
            Ok(run) => {
                match roll / 16 % 4 {
                    0 => run.cancel(),
                    1 => drop(run),
                    _ => drop(run.finish().await),
                }
                return Some(text);
            }
            Err(error) => Err(error),
        },
        11 | 12 => return begin_and_die(chat, text.clone()).await.ok().map(|_| text),
        4 | 5 => return chat.send(text.clone()).await.ok().map(|_| text),
        6 => chat.run_pending().await,
        7 => chat.interrupt().await.map(|()| None),
        8 => match roll / 16 % 4 {
            0 => chat.suspend().await.map(|()| None),
            _ => chat.resume().await.map(|()| None),
        },
        9 | 10 => match chat.record().action.clone() {
            Some(action) => {
                let decision = if roll & 64 == 0 { Decision::Allow } else { Decision::Deny };
                chat.answer(ToolConfirmation::new(action.id, decision)).await.map(|()| None)
            }
            None => chat.refresh().await.map(|_| None),
        },
        _ => tokio::time::timeout(TTL * 2, chat.run_when_free()).await.unwrap_or(Ok(None)),
    };
    match run {
        Ok(Some(run)) => drop(run.finish().await),
        Ok(None) => {}
        Err(error) => assert!(
            matches!(
                error.kind(),
                ErrorKind::InvalidTransition { .. }
                    | ErrorKind::InvalidInput
                    | ErrorKind::Full
                    | ErrorKind::Conflict { .. }
            ),
            "{error:?}"
        ),
    }
    None
}

/// Whatever many hosts do at once to one session, each input that was acknowledged is there once,
/// each call has exactly one result, no two runs interleave, and the session comes to rest.
async fn concurrent_hosts_leave_a_consistent_log(site: Site) {
    let (name, under) = (site.name, site.open().await);
    let mut taken_over = 0;
    for seed in 0..6u64 {
        let (faulty, sleepy) = (Faulty::new(under.clone()), Faulty::new(under.clone()));
        sleepy.lose_beats();
        let laptop = device(&format!("laptop {seed}"));
        let first = host(&under, seed * 100).open(&laptop).await.unwrap();
        let tasks: Vec<_> = (0..4u64)
            .map(|n| {
                let faulty = if n == 3 { sleepy.clone() } else { faulty.clone() };
                let (agent, id) = (host(&faulty.storage(), seed * 100 + n), first.id());
                tokio::spawn(async move {
                    let dice = Effects::seeded(seed * 1000 + n, Timestamp::UNIX_EPOCH);
                    let chat = agent.conversation_by_id(id).await.unwrap();
                    let mut kept = Vec::new();
                    for round in 0..25 {
                        let roll = dice.random_u64();
                        match roll % 32 {
                            0 => faulty.fail_commits(1),
                            1 | 2 => faulty.lose_answers(1),
                            _ => {}
                        }
                        kept.extend(act(&chat, roll / 32, format!("{n}.{round}")).await);
                    }
                    (agent, kept)
                })
            })
            .collect();
        let mut kept = BTreeSet::new();
        let mut agents = Vec::new();
        for task in tasks {
            let (agent, texts) = task.await.unwrap();
            kept.extend(texts);
            agents.push(agent);
        }
        for agent in agents {
            agent.shutdown(Duration::ZERO).await.unwrap();
        }
        come_to_rest(&first).await;
        // Chance may have replaced none of the killed: one is, whatever happened above.
        let text = "killed at last".to_owned();
        begin_and_die(&first, text.clone()).await.unwrap();
        kept.insert(text);
        first.run_when_free().await.unwrap().expect("the killed is replaced").finish().await.ok();
        come_to_rest(&first).await;

        check_log(&first).await;
        let mut counts: BTreeMap<String, u32> = BTreeMap::new();
        let mut runs = Vec::new();
        for event in log(&first).await {
            if let EventPayload::UserMessage(message) = event.decode().unwrap() {
                *counts.entry(message.text).or_default() += 1;
            }
            runs.extend(event.run);
            // Where the next run begins in the same commit, the two are one change.
            let gone = [TriggerKind::LeaseExpired, TriggerKind::BeginRun];
            let change = event.transition().unwrap();
            let replaced =
                change.is_some_and(|t| t.from == SessionState::Running && gone.contains(&t.trigger));
            taken_over += u32::from(replaced);
        }
        for text in kept {
            assert_eq!(counts.get(&text), Some(&1), "{name} {seed}: {text}");
        }
        assert!(counts.values().all(|count| *count == 1), "{name} {seed}: something is said twice");
        for (call, results) in calls(&first).await {
            assert_eq!(results.len(), 1, "{name} {seed}: {}", call.call);
        }
        runs.dedup();
        let unique: BTreeSet<_> = runs.iter().collect();
        assert_eq!(unique.len(), runs.len(), "{name} {seed}: two runs interleave");
        let now = first.refresh().await.unwrap();
        assert_eq!(TORN.load(Ordering::SeqCst), 0, "{name} {seed}: a model was given a torn conversation");
        assert_eq!((now.open_calls.len(), now.open_spans.len(), now.inputs_open), (0, 0, 0), "{name} {seed}");
    }
    assert!(taken_over > 0, "{name}: the killed were replaced");
}

each_store!(concurrent_hosts_leave_a_consistent_log, flavor = "multi_thread", worker_threads = 4);
