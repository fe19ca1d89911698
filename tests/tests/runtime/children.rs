//! Child sessions: started with a task, run by any scheduler, and reported to the parent once.

use crate::common::dying::Dying;
use crate::common::{agent, check_log, device, dialogue, log, read};
use agent_core::event::{EventPayload, EventType};
use agent_core::model::{Patch, Title};
use agent_core::session::SessionSummary;
use agent_core::state::SessionState;
use agent_core::store::SessionQuery;
use agent_runtime::{AgentRuntime, Conversation, EchoProvider, Scheduler, ScriptedProvider, Turn};
use agent_tests::{Site, each_store};

/// A session with a child that has done its task, reported or not.
async fn family(agent: &AgentRuntime, name: &str) -> (Conversation, Conversation) {
    let parent = agent.open(&device(name)).await.unwrap();
    let patch = Patch::new().with_title(Title::by_user("search"));
    let child = parent.start_child("find it", &patch).await.unwrap();
    (parent, child)
}

/// What the parent's log says of its children's ends, and the inputs that these were.
async fn reports(parent: &Conversation) -> (Vec<Option<String>>, Vec<String>) {
    let (mut ends, mut inputs) = (Vec::new(), Vec::new());
    for event in log(parent).await {
        match event.decode().unwrap() {
            EventPayload::SessionChildIdle(end) => ends.push(end.result),
            EventPayload::UserMessage(message) => inputs.push(message.text),
            _ => {}
        }
    }
    (ends, inputs)
}

fn found() -> (Vec<Option<String>>, Vec<String>) {
    let words = "The session \"search\" that was started here has come to rest: idle (end_turn).\n\nfind it";
    (vec![Some("find it".to_owned())], vec![words.to_owned()])
}

/// A child is linked when it is made, recorded in its parent's log, listed by its parent, and run with its task; its
/// result is an input of the parent, once, and the parent's next run answers it.
async fn child_result_reaches_its_parent_once(site: Site) {
    let (name, storage) = (site.name, site.open().await);
    let agent = agent(&storage, EchoProvider::new());
    let (parent, child) = family(&agent, "laptop").await;
    let made = child.record();
    assert_eq!((made.origin.parent(), made.depth), (Some(parent.id()), 1), "{name}");
    assert_eq!(made.status.state, SessionState::Queued, "{name}: it waits for whoever runs it");
    let listed = storage.sessions.list(SessionQuery::new().with_parent(parent.id())).await.unwrap().items;
    assert_eq!(listed.iter().map(|child| child.id).collect::<Vec<_>>(), [child.id()], "{name}");
    let announced = log(&parent).await;
    assert_eq!(announced.last().unwrap().kind, EventType::SESSION_CHILD_CREATED, "{name}");

    let scheduler = Scheduler::new(agent.clone());
    assert_eq!(scheduler.round().await.unwrap().ran, 1, "{name}");
    assert_eq!(reports(&parent).await, found(), "{name}: as soon as it is done");
    let round = scheduler.round().await.unwrap();
    assert_eq!((round.ran, round.reported), (1, 0), "{name}: the parent, with the result");
    assert_eq!(dialogue(&parent).await.last().unwrap().1, found().1[0], "{name}");
    let round = scheduler.round().await.unwrap();
    assert_eq!((round.ran, round.reported), (0, 0), "{name}: nothing is left to do");

    // What the child does later is told as well, each time once.
    read(child.prompt("and that").await.unwrap()).await;
    read(child.prompt("and this").await.unwrap()).await;
    assert_eq!(reports(&parent).await.0.len(), 3, "{name}");
    child.terminate().await.unwrap();
    let round = scheduler.round().await.unwrap();
    assert_eq!(round.reported, 1, "{name}: that it is over");
    scheduler.round().await.unwrap();
    assert_eq!(reports(&parent).await.0.len(), 4, "{name}");
    check_log(&parent).await;
    check_log(&child).await;
}

each_store!(child_result_reaches_its_parent_once);

/// A parent that takes no inputs any more gets the report in its log; if there is no parent any more, nothing is reported,
/// and nothing is tried again.
async fn ended_parent_gets_a_log_entry_but_no_input(site: Site) {
    let (name, storage) = (site.name, site.open().await);
    for delete in [false, true] {
        let agent = agent(&storage, EchoProvider::new());
        let (parent, child) = family(&agent, &format!("{delete}")).await;
        if delete {
            parent.delete().await.unwrap();
        } else {
            parent.terminate().await.unwrap();
        }
        let scheduler = Scheduler::new(agent.clone());
        assert_eq!(scheduler.round().await.unwrap().ran, 1, "{name}");
        assert!(child.refresh().await.unwrap().to_report().is_none(), "{name}");
        let round = scheduler.round().await.unwrap();
        assert_eq!((round.ran, round.reported, round.failed), (0, 0, 0), "{name}");
        if !delete {
            assert_eq!(reports(&parent).await, (found().0, vec![]), "{name}");
        }
    }
}

each_store!(ended_parent_gets_a_log_entry_but_no_input);

/// Many reports at the same moment, and one that is repeated much later since its process died before it could
/// record it, count once.
async fn concurrent_deliveries_report_a_result_once(site: Site) {
    let (name, storage) = (site.name, site.open().await);
    let dying = Dying::new(&storage);
    let agent = agent(&storage, EchoProvider::new());
    let doomed = agent.for_storage(dying.storage(&storage));
    let (parent, child) = family(&agent, "laptop").await;
    // Begin, end, read what was said, tell; then it dies.
    dying.die_before_noting(child.id());
    let doomed_child = doomed.conversation_by_id(child.id()).await.unwrap();
    read(doomed_child.run_pending().await.unwrap().unwrap()).await;
    assert_eq!(reports(&parent).await, found(), "{name}");
    assert!(child.refresh().await.unwrap().to_report().is_some(), "{name}: it could not note that");
    for n in 0..40 {
        parent.update(Patch::new().with_label("n", n.to_string())).await.unwrap();
    }
    let mut tellers = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let scheduler = Scheduler::new(agent.clone());
        tellers.spawn(async move { scheduler.round().await.unwrap() });
    }
    while let Some(round) = tellers.join_next().await {
        assert_eq!(round.unwrap().failed, 0, "{name}");
    }
    assert_eq!(reports(&parent).await, found(), "{name}");
    assert!(child.refresh().await.unwrap().to_report().is_none(), "{name}");
    check_log(&parent).await;
    check_log(&child).await;
}

each_store!(concurrent_deliveries_report_a_result_once, flavor = "multi_thread", worker_threads = 2);

/// Whoever runs and delivers dies at any call to the store, before or after it took effect: once somebody
/// else looks, the child's result has been reported once, and the parent has one input.
async fn crash_during_delivery_delivers_once(site: Site) {
    let (name, storage) = (site.name, site.open().await);
    let mut steps = 0;
    for applied in [false, true] {
        for call in 0.. {
            let living = agent(&storage, ScriptedProvider::new((0..4).map(|_| Turn::new().text("find it"))));
            let (parent, child) = family(&living, &format!("{applied} {call}")).await;
            let dying = Dying::new(&storage);
            let doomed = living.for_storage(dying.storage(&storage));
            let doomed_child = doomed.conversation_by_id(child.id()).await.unwrap();
            dying.die_in(call, applied);
            let ended = match doomed_child.run_pending().await {
                Ok(Some(run)) => run.finish().await.is_ok(),
                _ => false,
            };
            let survived = !dying.is_dead();
            // A holder that died is replaced; in memory there is no proof of death, so its lease is ended by hand.
            let now = child.refresh().await.unwrap();
            if now.status.state == SessionState::Running {
                let lost = agent_core::commit::Trigger::LeaseExpired(now.epoch);
                storage.sessions.trigger(child.id(), lost).await.unwrap();
            }
            let scheduler = Scheduler::new(living.clone());
            let due = |id| move |session: &SessionSummary| session.id == id;
            for _ in 0..3 {
                scheduler.round().await.unwrap();
                let left =
                    storage.sessions.list(SessionQuery::new().with_due(agent_core::Timestamp::MAX)).await;
                if !left.unwrap().items.iter().any(due(child.id())) {
                    break;
                }
            }
            let (ends, inputs) = reports(&parent).await;
            let what = format!("{name}: died at call {call}, applied: {applied}, ended: {ended}");
            assert_eq!((ends, inputs.len()), (found().0, 1), "{what}");
            assert!(child.refresh().await.unwrap().to_report().is_none(), "{what}");
            check_log(&parent).await;
            check_log(&child).await;
            steps += 1;
            if survived {
                break;
            }
        }
    }
    println!("{name}: {steps} deaths");
    assert!(steps > 10, "{name}: {steps}");
}

each_store!(crash_during_delivery_delivers_once and files);
