//! Tools by which a model schedules timers, takes them back and starts sessions: each call takes effect once.

use std::sync::Arc;

use crate::common::dying::Dying;
use crate::common::{SetClock, agent_at, calls, check_log, device, dialogue, json, log, read};
use agent_core::clock::Effects;
use agent_core::commit::{Commit, LeaseRequest, Trigger};
use agent_core::event::{Decision, Event, EventType, NewEvent, ToolConfirmation, ToolOutcome};
use agent_core::model::{Actor, Patch, Timer};
use agent_core::session::{NewSession, SessionRecord};
use agent_core::state::SessionState;
use agent_core::store::SessionQuery;
use agent_core::{ErrorKind, RunId, Seq, SessionId, SessionStoreExt, Storage, Timestamp, WorkspaceId};
use agent_runtime::{
    AgentRuntime, Config, LlmProvider, Plugin, RunOutcome, Scheduler, ScriptedProvider, SessionTools,
    ToolContext, ToolPolicy, Turn,
};
use agent_tests::{Site, each_store};
use futures::TryStreamExt;

const TIMER: &str = r#"{"in_seconds":3600,"note":"Water the plants.","key":"plants","priority":2}"#;
const CHILD: &str = r#"{"task":"find it","title":"search"}"#;
const CANCEL: &str = r#"{"key":"plants"}"#;

fn agent(
    storage: &Storage,
    model: impl LlmProvider,
    clock: &Arc<SetClock>,
    tools: SessionTools,
    config: Config,
) -> AgentRuntime {
    agent_at(clock, storage, model, config, [Arc::new(tools) as _])
}

/// The events of these types in a log.
async fn events(storage: &Storage, id: SessionId, kind: EventType) -> Vec<Event> {
    let all: Vec<Event> = storage.sessions.events(id, Seq::ZERO).try_collect().await.unwrap();
    all.into_iter().filter(|event| event.kind == kind).collect()
}

async fn children(storage: &Storage, parent: SessionId) -> Vec<SessionId> {
    let listed = storage.sessions.list(SessionQuery::new().with_parent(parent)).await.unwrap();
    listed.items.iter().map(|child| child.id).collect()
}

/// A model schedules a timer, starts a session and takes the timer back. The timer is due when it asked for, and no
/// earlier than allowed; the session has the task, its parent, and the agent as its creator, and what it comes to is
/// told. Sessions that are deep enough start none.
async fn model_schedules_timers_and_starts_sessions(site: Site) {
    let (name, storage) = (site.name, site.open().await);
    let clock = SetClock::stopped();
    let model = ScriptedProvider::new([
        Turn::new().call("w", "schedule_timer", json(TIMER)).call("c", "start_child", json(CHILD)),
        Turn::new().text("planned"),
    ]);
    let tools = SessionTools::new().with_max_depth(1);
    let agent = agent(&storage, model.clone(), &clock, tools, Config::default());
    let chat = agent.open(&device("laptop")).await.unwrap();
    read(chat.prompt("go").await.unwrap()).await;
    let now = chat.refresh().await.unwrap();
    let hour: Timestamp = "2026-02-15T11:30:00Z".parse().unwrap();
    let expected = Timer::new("plants", hour).with_note("Water the plants.").with_priority(2);
    assert_eq!(
        now.timers.iter().map(|timer| (&timer.key, timer.at)).collect::<Vec<_>>(),
        [(&expected.key, hour)]
    );
    assert_eq!((now.timers[0].note.as_str(), now.timers[0].priority), ("Water the plants.", 2), "{name}");
    let scheduled = &events(&storage, chat.id(), EventType::SESSION_TIMER_SCHEDULED).await[0];
    assert_eq!((&scheduled.actor, scheduled.run.is_some()), (&Actor::AGENT, true), "{name}");
    let results: Vec<_> = calls(&chat).await.iter().map(|(_, results)| results[0].output.clone()).collect();
    assert_eq!(results[0].get(), r#"{"at":"2026-02-15T11:30:00.000000Z","key":"plants"}"#, "{name}");
    let child = children(&storage, chat.id()).await;
    assert_eq!(results[1].get(), format!(r#"{{"session":"{}"}}"#, child[0]), "{name}");

    // The child tries to go deeper, and to timer itself at once.
    let soon = r#"{"in_seconds":0,"note":"again"}"#;
    model.push(Turn::new().call("w", "schedule_timer", json(soon)).call("c", "start_child", json(CHILD)));
    model.push(Turn::new().text("found"));
    model.push(Turn::new().call("x", "cancel_timer", json(CANCEL)));
    model.push(Turn::new().text("taken back"));
    let scheduler = Scheduler::new(agent.clone());
    assert_eq!(scheduler.round().await.unwrap().ran, 1, "{name}: the child");
    let child = agent.conversation_by_id(child[0]).await.unwrap();
    assert_eq!(child.record().creator, Actor::AGENT, "{name}");
    assert_eq!(
        dialogue(&child).await,
        [("user", "find it".to_owned()), ("agent", "found".to_owned())],
        "{name}"
    );
    let outcomes: Vec<_> = calls(&child).await.iter().map(|(_, results)| results[0].outcome).collect();
    assert_eq!(outcomes, [ToolOutcome::Ok, ToolOutcome::Error], "{name}");
    assert_eq!(children(&storage, child.id()).await, [], "{name}: deep enough");
    let minute: Timestamp = "2026-02-15T10:31:00Z".parse().unwrap();
    assert_eq!(child.record().timers[0].at, minute, "{name}: no earlier than a minute from now");
    assert_eq!(child.record().timers[0].key, "w", "{name}: the call's id, where it named no key");

    // Its timer is still to come, so it has not come to rest; without that it has.
    child.cancel_timer("w").await.unwrap();
    let round = scheduler.round().await.unwrap();
    assert_eq!((round.reported, round.failed), (1, 0), "{name}");
    assert_eq!(scheduler.round().await.unwrap().ran, 1, "{name}: the report to the parent");
    assert!(dialogue(&chat).await[2].1.contains("\"search\""), "{name}: {:?}", dialogue(&chat).await);
    assert_eq!(chat.refresh().await.unwrap().timers, [], "{name}: and takes its timer back");

    model.push(Turn::new().call("y", "cancel_timer", json(r#"{"key":"none"}"#)));
    model.push(Turn::new().call("z", "schedule_timer", json(r#"{"note":"when?"}"#)).text("hm"));
    model.push(Turn::new().text("well"));
    read(chat.prompt("try").await.unwrap()).await;
    let wrong: Vec<_> =
        calls(&chat).await.into_iter().skip(3).map(|(_, results)| results[0].outcome).collect();
    assert_eq!(wrong, [ToolOutcome::Error, ToolOutcome::Error], "{name}");
    check_log(&chat).await;
    check_log(&child).await;
}

each_store!(model_schedules_timers_and_starts_sessions);

/// A host's policy decides on these tools as on any: a timer that a person is to allow is scheduled when it is
/// allowed, by the next run, and once; what is denied is not offered and not done.
async fn timer_tool_waits_for_consent_if_required(site: Site) {
    let (name, storage) = (site.name, site.open().await);
    let config = Config::default()
        .with_tool_policy(SessionTools::SCHEDULE_TIMER, ToolPolicy::Ask)
        .with_tool_policy(SessionTools::START_CHILD, ToolPolicy::Deny);
    let turn = || Turn::new().call("w", "schedule_timer", json(TIMER)).call("c", "start_child", json(CHILD));
    let model = ScriptedProvider::new([turn(), Turn::new().text("done"), turn(), Turn::new().text("well")]);
    let agent = agent(&storage, model.clone(), &SetClock::stopped(), SessionTools::new(), config);
    let chat = agent.open(&device("laptop")).await.unwrap();
    for (decision, timers) in [(Decision::Deny, 0), (Decision::Allow, 1)] {
        let (_, report) = read(chat.prompt("go").await.unwrap()).await;
        let RunOutcome::Awaiting(action) = report.outcome else { panic!("{name}: {report:?}") };
        assert_eq!(chat.refresh().await.unwrap().timers, [], "{name}: not before it is allowed");
        chat.answer(ToolConfirmation::new(action.id, decision)).await.unwrap();
        read(agent.run_pending(chat.id()).await.unwrap().unwrap()).await;
        assert_eq!(chat.refresh().await.unwrap().timers.len(), timers, "{name}");
    }
    let offered: Vec<_> = model.requests()[0].tools.iter().map(|tool| tool.name.clone()).collect();
    assert_eq!(offered, ["schedule_timer", "cancel_timer", "read_output"], "{name}");
    assert_eq!(children(&storage, chat.id()).await, [], "{name}");
    check_log(&chat).await;
}

each_store!(timer_tool_waits_for_consent_if_required);

/// A session that a run of this id holds, with a call of each tool open.
async fn calling(storage: &Storage, effects: &Effects) -> (Arc<SessionRecord>, RunId) {
    let new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
    let run = effects.new_run_id();
    let create = Commit::create(effects, new)
        .with_event(NewEvent::timer_scheduled(Timer::new("plants", effects.now())))
        .with_event(NewEvent::user_message("go"))
        .with_trigger(Trigger::BeginRun(LeaseRequest::new("laptop", run)));
    let begun = storage.sessions.commit(create).await.unwrap();
    let calls = Commit::seal(effects, begun.session.id, begun.last)
        .with_fence(run, begun.epoch.unwrap())
        .with_events(TOOLS.map(|(tool, input)| NewEvent::tool_use(tool.parse().unwrap(), tool, json(input))));
    (storage.sessions.commit(calls).await.unwrap().session, run)
}

/// The tools, and what each is asked; the ids of the calls are their names.
const TOOLS: [(&str, &str); 3] =
    [("cancel_timer", CANCEL), ("schedule_timer", TIMER), ("start_child", CHILD)];

fn context(
    storage: &Storage,
    effects: &Effects,
    session: &SessionRecord,
    run: RunId,
    tool: &str,
) -> ToolContext {
    ToolContext::new(session, run, tool.parse().unwrap(), storage.clone().with_effects(effects.clone()))
}

/// What the calls of [`calling`] are to come to, and no more.
async fn check_once(storage: &Storage, id: SessionId, when: &str) {
    let cancelled = events(storage, id, EventType::SESSION_TIMER_CANCELLED).await;
    let scheduled = events(storage, id, EventType::SESSION_TIMER_SCHEDULED).await;
    let created = events(storage, id, EventType::SESSION_CHILD_CREATED).await;
    // One of the timers was there before.
    assert_eq!((cancelled.len(), scheduled.len(), created.len()), (1, 2, 1), "{when}");
    let made = children(storage, id).await;
    assert_eq!(made.len(), 1, "{when}");
    assert!(created[0].payload.get().contains(&made[0].to_string()), "{when}");
    assert_eq!(events(storage, made[0], EventType::USER_MESSAGE).await.len(), 1, "{when}");
}

/// The same call, made by eight at the same moment, again much later, and again when its run is over, takes
/// effect once, and says what it did the first time. A later call of the same id is another call.
async fn repeated_call_takes_effect_once(site: Site) {
    let (name, storage) = (site.name, site.open().await);
    let clock = SetClock::stopped();
    let effects = Effects::default().with_clock(clock.clone());
    let storage = storage.with_effects(effects.clone());
    let (session, run) = calling(&storage, &effects).await;
    let mut outputs = Vec::new();
    for (tool, input) in TOOLS {
        let mut makers = tokio::task::JoinSet::new();
        for _ in 0..8 {
            let context = context(&storage, &effects, &session, run, tool);
            makers.spawn(async move { SessionTools::new().call(tool, json(input), context).await });
        }
        let mut results = Vec::new();
        while let Some(made) = makers.join_next().await {
            results.push(made.unwrap().unwrap());
        }
        assert!(results.iter().all(|result| *result == results[0]), "{name}: {results:?}");
        outputs.push(results.remove(0));
    }
    check_once(&storage, session.id, name).await;
    // So much later that the record no longer remembers the commits, by a clock that went on.
    for n in 0..40 {
        let label = NewEvent::updated(Patch::new().with_label("n", n.to_string()));
        storage.sessions.append(session.id, session.head, vec![label]).await.unwrap();
    }
    clock.forward(7_000);
    for ((tool, input), output) in TOOLS.into_iter().zip(&outputs) {
        let context = context(&storage, &effects, &session, run, tool);
        let again = SessionTools::new().call(tool, json(input), context).await.unwrap();
        assert_eq!(again, *output, "{name}");
    }
    check_once(&storage, session.id, name).await;

    let lost = Trigger::LeaseExpired(session.epoch);
    storage.sessions.trigger(session.id, lost).await.unwrap();
    for (tool, input) in TOOLS {
        let context = context(&storage, &effects, &session, run, tool);
        let error = SessionTools::new().call(tool, json(input), context).await.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Fenced { .. }), "{name}: {error}");
    }
    let run = effects.new_run_id();
    let begin = Trigger::BeginRun(LeaseRequest::new("phone", run));
    let begun = storage.sessions.trigger(session.id, begin).await.unwrap().session;
    for (tool, input) in TOOLS {
        let context = context(&storage, &effects, &session, run, tool);
        let error = SessionTools::new().call(tool, json(input), context).await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::InvalidInput, "{name}: it has its result: {error}");
    }
    check_once(&storage, session.id, name).await;

    let mut head = begun.head;
    for (tool, input) in &TOOLS[1..] {
        let again = NewEvent::tool_use(tool.parse().unwrap(), *tool, json(input));
        let again = Commit::seal(&effects, session.id, head).with_fence(run, begun.epoch).with_event(again);
        head = storage.sessions.commit(again).await.unwrap().last;
        let context = context(&storage, &effects, &session, run, tool);
        SessionTools::new().call(tool, json(input), context).await.unwrap();
    }
    let scheduled = events(&storage, session.id, EventType::SESSION_TIMER_SCHEDULED).await;
    let made = children(&storage, session.id).await;
    assert_eq!((scheduled.len(), made.len()), (3, 2), "{name}: providers use ids again");
}

each_store!(repeated_call_takes_effect_once and files, flavor = "multi_thread", worker_threads = 2);

/// The process dies at any call to the store, before or after that took effect. A call that is made
/// again has taken effect once; one that is not has done so once or not at all, and once where its result is stored.
async fn crash_during_a_call_takes_effect_at_most_once(site: Site) {
    let (name, storage) = (site.name, site.open().await);
    let mut deaths = 0;
    for (applied, again) in [(false, false), (false, true), (true, false), (true, true)] {
        for at in 0.. {
            let turn =
                Turn::new().call("w", "schedule_timer", json(TIMER)).call("c", "start_child", json(CHILD));
            let model = ScriptedProvider::new([turn, Turn::new().text("done")]);
            let clock = SetClock::stopped();
            let living = agent(&storage, model.clone(), &clock, SessionTools::new(), Config::default());
            let chat = living.open(&device(&format!("{applied} {again} {at}"))).await.unwrap();
            let dying = Dying::new(&storage);
            let doomed =
                living.for_storage(dying.storage(&storage)).conversation_by_id(chat.id()).await.unwrap();
            dying.die_in(at, applied);
            if let Ok(run) = doomed.prompt("go").await {
                let _ = run.finish().await;
            }
            let survived = !dying.is_dead();
            let when = format!("{name}: died at call {at}, applied: {applied}, made again: {again}");
            let now = chat.refresh().await.unwrap();
            let open: Vec<_> = now.open_calls.iter().map(|open| open.call.to_string()).collect();
            if let (true, Some(lease)) = (again, &now.lease) {
                for (id, tool, input) in [("w", "schedule_timer", TIMER), ("c", "start_child", CHILD)] {
                    if open.iter().any(|open| open == id) {
                        let context = context(&storage, living.effects(), &now, lease.run, id);
                        SessionTools::new().call(tool, json(input), context).await.unwrap();
                    }
                }
            }
            if now.status.state == SessionState::Running {
                let lost = Trigger::LeaseExpired(now.epoch);
                living.storage().sessions.trigger(chat.id(), lost).await.unwrap();
            }
            while model.requests().len() < 2
                && let Some(run) = chat.run_pending().await.unwrap()
            {
                read(run).await;
            }
            let timers = events(&storage, chat.id(), EventType::SESSION_TIMER_SCHEDULED).await.len();
            let created = events(&storage, chat.id(), EventType::SESSION_CHILD_CREATED).await.len();
            let made = children(&storage, chat.id()).await.len();
            assert!(timers <= 1 && made <= 1 && created <= made, "{when}: {timers} {made} {created}");
            for (call, results) in calls(&chat).await {
                assert_eq!(results.len(), 1, "{when}");
                let done = if call.name == "schedule_timer" { timers } else { made.min(created) };
                let repeated = again && open.contains(&call.call.to_string());
                assert!(
                    done == 1 || (results[0].outcome != ToolOutcome::Ok && !repeated),
                    "{when}: {results:?}"
                );
            }
            check_log(&chat).await;
            let all = log(&chat).await;
            assert!(all.windows(2).all(|pair| pair[0].seq < pair[1].seq), "{when}");
            deaths += 1;
            if survived {
                break;
            }
        }
    }
    println!("{name}: {deaths} deaths");
    assert!(deaths > 40, "{name}: {deaths}");
}

each_store!(crash_during_a_call_takes_effect_at_most_once and files);
