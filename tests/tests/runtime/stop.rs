//! Ends of a run from outside: cancelled, interrupted, suspended, shut down.

use std::time::Duration;

use crate::common::{Scene, agent, check_log, device, dialogue, eventually, log, queued, read, until_text};
use agent_core::commit::{Commit, Trigger};
use agent_core::event::{EventType, NewEvent};
use agent_core::model::{Patch, Timer};
use agent_core::state::{Reason, SessionState};
use agent_core::{ErrorKind, Seq, SessionStoreExt, Timestamp};
use agent_runtime::{Config, EchoProvider, Gate, RunOutcome, ScriptedProvider, Turn, Update};
use agent_tests::{Site, each_store};
use futures::StreamExt;
use tokio::time::Instant;

fn held_turn(gate: &Gate) -> Turn {
    Turn::new().text("half of ").gate(gate).text("the answer")
}

/// A run that is cancelled in the middle of its answer stores what it said, and the session is idle again.
async fn cancel_keeps_the_partial_text(site: Site) {
    let gate = Gate::new();
    let model = ScriptedProvider::new([held_turn(&gate), Turn::new().text("new")]);
    let Scene { name, agent: _, chat, .. } = Scene::new(&site, model.clone()).await;
    let mut run = chat.prompt("tell me").await.unwrap();
    assert_eq!(until_text(&mut run).await, "half of ", "{name}");
    run.cancel();
    let (rest, report) = read(run).await;
    assert_eq!((rest.as_str(), report.outcome), ("", RunOutcome::Interrupted), "{name}");
    assert_eq!(report.text, "half of ", "{name}");
    let now = chat.refresh().await.unwrap();
    assert_eq!((now.status.state, now.status.reason), (SessionState::Idle, Reason::Interrupted), "{name}");
    assert_eq!(dialogue(&chat).await, [("user", "tell me".into()), ("agent", "half of ".into())], "{name}");

    gate.open();
    read(chat.prompt("again").await.unwrap()).await;
    assert_eq!(model.requests()[1].messages.len(), 3, "{name}: the next run knows what was said");
    check_log(&chat).await;
}

each_store!(cancel_keeps_the_partial_text);

/// A run that is cancelled before it says anything ends as well, and so does one whose stream is read elsewhere.
async fn cancel_works_before_output_and_via_canceller(site: Site) {
    let gate = Gate::new();
    let silent = Turn::new().gate(&gate).text("never");
    let Scene { name, chat, .. } = Scene::new(&site, ScriptedProvider::new([silent.clone(), silent])).await;
    let run = chat.prompt("1").await.unwrap();
    run.cancel();
    assert_eq!(read(run).await.1.outcome, RunOutcome::Interrupted, "{name}");
    let run = chat.prompt("2").await.unwrap();
    let canceller = run.canceller();
    let reader = tokio::spawn(read(run));
    tokio::task::yield_now().await;
    canceller.cancel();
    assert_eq!(reader.await.unwrap().1.outcome, RunOutcome::Interrupted, "{name}");
    assert_eq!(dialogue(&chat).await.len(), 2, "{name}");
}

each_store!(cancel_works_before_output_and_via_canceller);

/// An interrupt from another handle is durable, ends the run while its model streams, and is a no-op when idle.
async fn an_interrupt_from_another_device_ends_the_run(site: Site) {
    let (name, storage) = (site.name, site.open().await);
    let gate = Gate::new();
    let chat = agent(&storage, ScriptedProvider::new([held_turn(&gate)]));
    let chat = chat.open(&device("laptop")).await.unwrap();
    let phone = agent(&storage, EchoProvider::new()).conversation_by_id(chat.id()).await.unwrap();
    phone.interrupt().await.unwrap();
    assert_eq!(phone.refresh().await.unwrap().head, chat.record().head, "{name}: idle, so nothing");

    let mut run = chat.prompt("tell me").await.unwrap();
    until_text(&mut run).await;
    phone.interrupt().await.unwrap();
    assert_eq!(phone.record().status.state, SessionState::Running, "{name}: asked, and recorded");
    let (_, report) = read(run).await;
    assert_eq!(report.outcome, RunOutcome::Interrupted, "{name}");
    let events = log(&chat).await;
    let kinds: Vec<_> = events.iter().rev().take(2).map(|event| event.kind.clone()).collect();
    assert_eq!(kinds, [EventType::AGENT_MESSAGE, EventType::USER_INTERRUPT], "{name}");
    assert_eq!(chat.refresh().await.unwrap().status.reason, Reason::Interrupted, "{name}");
    check_log(&chat).await;
}

each_store!(an_interrupt_from_another_device_ends_the_run, start_paused = true);

/// An interrupt of what waits closes inputs and timers, so that nothing runs afterwards.
async fn interrupt_clears_pending_work(site: Site) {
    let Scene { name, storage, chat, .. } = Scene::echo(&site).await;
    chat.send("later").await.unwrap();
    let timer = NewEvent::timer_scheduled(Timer::new("daily", Timestamp::MIN));
    storage.sessions.append(chat.id(), chat.record().head, vec![timer]).await.unwrap();
    assert_eq!(chat.refresh().await.unwrap().status.state, SessionState::Queued, "{name}");
    chat.interrupt().await.unwrap();
    let now = chat.refresh().await.unwrap();
    assert_eq!((now.status.state, now.inputs_open, now.timers.len()), (SessionState::Idle, 0, 0), "{name}");
    assert!(chat.run_pending().await.unwrap().is_none(), "{name}");
}

each_store!(interrupt_clears_pending_work);

/// A follow-up that came before the interrupted run ended is not lost.
async fn inputs_after_the_run_began_survive_its_interrupt(site: Site) {
    let (name, storage) = (site.name, site.open().await);
    let gate = Gate::new();
    let model = ScriptedProvider::new([held_turn(&gate), Turn::new().text("to the second")]);
    let chat = agent(&storage, model).open(&device("laptop")).await.unwrap();
    let mut run = chat.prompt("first").await.unwrap();
    until_text(&mut run).await;
    chat.send("second").await.unwrap();
    chat.interrupt().await.unwrap();
    let (_, report) = read(run).await;
    assert_eq!(report.status.state, SessionState::Queued, "{name}");
    let run = chat.run_pending().await.unwrap().unwrap();
    assert_eq!(read(run).await.0, "to the second", "{name}");
}

each_store!(inputs_after_the_run_began_survive_its_interrupt, start_paused = true);

/// A suspended session keeps inputs and runs nothing; resumed, it answers them. A run ends at its next step.
async fn suspended_session_answers_inputs_after_resume(site: Site) {
    let (name, storage) = (site.name, site.open().await);
    let gate = Gate::new();
    let model = ScriptedProvider::new([held_turn(&gate), Turn::new().text("back")]);
    let chat = agent(&storage, model).open(&device("laptop")).await.unwrap();
    let mut run = chat.prompt("first").await.unwrap();
    until_text(&mut run).await;
    chat.suspend().await.unwrap();
    assert_eq!(chat.record().status.state, SessionState::Running, "{name}: asked of the run");
    gate.open();
    let (_, report) = read(run).await;
    assert_eq!(report.text, "half of the answer", "{name}: the step is ended in peace");
    let now = chat.refresh().await.unwrap();
    assert_eq!(
        (now.status.state, now.status.reason),
        (SessionState::Suspended, Reason::UserPaused),
        "{name}"
    );

    let stored = queued(chat.prompt("second").await.unwrap()).await;
    assert_eq!((stored.state, stored.holder), (SessionState::Suspended, None), "{name}");
    assert!(chat.run_pending().await.unwrap().is_none(), "{name}");
    assert!(chat.run_when_free().await.unwrap().is_none(), "{name}");
    chat.resume().await.unwrap();
    assert_eq!(chat.record().status.state, SessionState::Queued, "{name}: resuming runs nothing");
    assert_eq!(read(chat.run_pending().await.unwrap().unwrap()).await.0, "back", "{name}");
}

each_store!(suspended_session_answers_inputs_after_resume, start_paused = true);

/// A run that would go on with tools is set aside before the next one is called.
async fn suspend_ends_a_run_between_its_steps(site: Site) {
    let (name, storage) = (site.name, site.open().await);
    let gate = Gate::new();
    let call = |turn: Turn| turn.call("c", "nothing", agent_core::json::RawJson::empty_object());
    let model = ScriptedProvider::new([call(held_turn(&gate)), Turn::new().text("never")]);
    let chat = agent(&storage, model.clone()).open(&device("laptop")).await.unwrap();
    let mut run = chat.prompt("first").await.unwrap();
    until_text(&mut run).await;
    chat.suspend().await.unwrap();
    gate.open();
    assert_eq!(read(run).await.1.outcome, RunOutcome::Interrupted, "{name}");
    assert_eq!(model.requests().len(), 1, "{name}");
    let now = chat.refresh().await.unwrap();
    assert_eq!((now.status.state, now.open_calls.len()), (SessionState::Suspended, 0), "{name}");
    check_log(&chat).await;
}

each_store!(suspend_ends_a_run_between_its_steps, start_paused = true);

/// Archived and terminated sessions refuse inputs, and say why; nothing is stored.
async fn archived_and_terminated_sessions_refuse_prompts(site: Site) {
    let (name, storage) = (site.name, site.open().await);
    let chat = agent(&storage, EchoProvider::new()).open(&device("laptop")).await.unwrap();
    read(chat.prompt("hello").await.unwrap()).await;
    chat.archive().await.unwrap();
    let head = chat.record().head;
    let error = chat.prompt("more").await.unwrap_err();
    assert!(
        matches!(error.kind(), ErrorKind::InvalidTransition { from: SessionState::Archived, .. }),
        "{name}: {error}"
    );
    assert!(!error.to_string().contains("more"), "{name}: payloads are in no error");
    assert_eq!(chat.refresh().await.unwrap().head, head, "{name}");
    chat.unarchive().await.unwrap();
    assert_eq!(read(chat.prompt("again").await.unwrap()).await.0, "again", "{name}");

    let fork = chat.fork(None).await.unwrap();
    chat.terminate().await.unwrap();
    assert!(chat.prompt("more").await.is_err(), "{name}");
    assert_eq!(dialogue(&chat).await.len(), 4, "{name}: still readable");
    assert_eq!(read(fork.prompt("on").await.unwrap()).await.0, "on", "{name}: and can be forked");
    assert_eq!(dialogue(&fork).await.len(), 6, "{name}");
    chat.delete().await.unwrap();
    let gone = chat.runtime().conversation_by_id(chat.id()).await.unwrap_err();
    assert_eq!(*gone.kind(), ErrorKind::Deleted, "{name}");
}

each_store!(archived_and_terminated_sessions_refuse_prompts);

/// Deleting or terminating a session under a run fences the run off.
async fn terminate_stops_a_run(site: Site) {
    let (name, storage) = (site.name, site.open().await);
    let gate = Gate::new();
    let chat = agent(&storage, ScriptedProvider::new([held_turn(&gate)]));
    let chat = chat.open(&device("laptop")).await.unwrap();
    let mut run = chat.prompt("first").await.unwrap();
    until_text(&mut run).await;
    chat.terminate().await.unwrap();
    let (_, end) = crate::common::try_read(run).await;
    assert!(matches!(end.unwrap_err().kind(), ErrorKind::Fenced { .. }), "{name}");
    assert_eq!(dialogue(&chat).await.len(), 1, "{name}");
}

each_store!(terminate_stops_a_run, start_paused = true);

/// A shutdown lets runs end within its grace, ends the late ones as interrupted, and starts no more.
async fn shutdown_waits_then_interrupts(site: Site) {
    let (name, storage) = (site.name, site.open().await);
    let gate = Gate::new();
    let agent = agent(&storage, ScriptedProvider::new([held_turn(&gate), held_turn(&gate)]));
    let quick = agent.open(&device("quick")).await.unwrap();
    let late = agent.open(&device("late")).await.unwrap();
    let mut runs = Vec::new();
    for chat in [&quick, &late] {
        let mut run = chat.prompt("go").await.unwrap();
        until_text(&mut run).await;
        runs.push(run);
    }
    let late_run = runs.pop().unwrap();
    let quick_run = runs.pop().unwrap();
    let closing = tokio::spawn({
        let agent = agent.clone();
        async move {
            let since = Instant::now();
            agent.shutdown(Duration::from_secs(10)).await.unwrap();
            since.elapsed()
        }
    });
    tokio::time::sleep(Duration::from_secs(3)).await;
    let refused = quick.prompt("more").await.unwrap_err();
    assert_eq!(*refused.kind(), ErrorKind::Unavailable, "{name}: {refused}");
    let waiting = late.run_when_free().await.unwrap_err();
    assert_eq!(*waiting.kind(), ErrorKind::Unavailable, "{name}: {waiting}");
    quick_run.cancel();
    assert_eq!(read(quick_run).await.1.outcome, RunOutcome::Interrupted, "{name}");
    assert!(!closing.is_finished(), "{name}: the late one has its grace");
    assert!(closing.await.unwrap() >= Duration::from_secs(10), "{name}");
    assert_eq!(read(late_run).await.1.outcome, RunOutcome::Interrupted, "{name}");
    assert_eq!(late.refresh().await.unwrap().status.state, SessionState::Idle, "{name}");
    assert_eq!(dialogue(&late).await.last().unwrap().1, "half of ", "{name}");
    assert!(late.run_pending().await.is_err(), "{name}");
    agent.shutdown(Duration::ZERO).await.unwrap();
}

each_store!(shutdown_waits_then_interrupts, start_paused = true);

/// A shutdown with nothing at work returns at once.
async fn an_idle_shutdown_returns_at_once(site: Site) {
    let Scene { name, agent, chat, .. } = Scene::echo(&site).await;
    read(chat.prompt("hello").await.unwrap()).await;
    let since = Instant::now();
    agent.shutdown(Duration::from_secs(60)).await.unwrap();
    assert_eq!(since.elapsed(), Duration::ZERO, "{name}");
}

each_store!(an_idle_shutdown_returns_at_once, start_paused = true);

/// Whoever follows a session is given all that its last runs stored, and then the stream ends; so it does for
/// those who follow later, and where a run did not end in time.
async fn follow_ends_at_shutdown(site: Site) {
    let gate = Gate::new();
    let Scene { name, agent, chat, .. } = Scene::new(&site, ScriptedProvider::new([held_turn(&gate)])).await;
    let idle = agent.new_session(chat.record().workspace, &Patch::new()).await.unwrap();
    let mut run = chat.prompt("go").await.unwrap();
    until_text(&mut run).await;
    let follow = |chat: &agent_runtime::Conversation| {
        let events = chat.follow(Seq::ZERO).map(|event| event.unwrap().seq).collect::<Vec<_>>();
        tokio::spawn(tokio::time::timeout(Duration::from_secs(20), events))
    };
    let (busy, quiet) = (follow(&chat), follow(&idle));
    agent.shutdown(Duration::ZERO).await.unwrap();
    let head = chat.refresh().await.unwrap().head;
    let expected = |head: Seq| (1..=head.get()).map(Seq::new).collect::<Vec<_>>();
    let ended = |follow: tokio::task::JoinHandle<_>| async move {
        let ended: Result<Vec<Seq>, tokio::time::error::Elapsed> = follow.await.unwrap();
        ended.unwrap_or_else(|_| panic!("{name}: it does not end"))
    };
    assert_eq!(ended(busy).await, expected(head), "{name}");
    assert_eq!(ended(quiet).await, expected(idle.record().head), "{name}");
    assert_eq!(ended(follow(&chat)).await, expected(head), "{name}: afterwards");
}

each_store!(follow_ends_at_shutdown);

/// With spans on, each run and tool has a start and an end, also where it was interrupted.
async fn spans_are_closed_by_an_interrupt(site: Site) {
    let gate = Gate::new();
    let model = ScriptedProvider::new([
        Turn::new().call("c", "nothing", agent_core::json::RawJson::empty_object()),
        held_turn(&gate),
    ]);
    let Scene { name, chat, .. } = Scene::with(&site, model, Config::default().with_spans(true), []).await;
    let mut run = chat.prompt("go").await.unwrap();
    until_text(&mut run).await;
    assert_eq!(chat.refresh().await.unwrap().open_spans.len(), 1, "{name}: the run's");
    run.cancel();
    while let Some(update) = run.next().await {
        assert!(!matches!(update.unwrap(), Update::NotStored(_)), "{name}");
    }
    eventually(async || chat.refresh().await.unwrap().status.state == SessionState::Idle).await;
    let count = |kind: EventType, events: &[agent_core::event::Event]| {
        events.iter().filter(|event| event.kind == kind).count()
    };
    let events = log(&chat).await;
    assert_eq!(count(EventType::SPAN_STARTED, &events), 2, "{name}");
    assert_eq!(count(EventType::SPAN_COMPLETED, &events), 2, "{name}");
    check_log(&chat).await;
}

each_store!(spans_are_closed_by_an_interrupt, start_paused = true);

/// An interrupt ends a run at once, also one that was asked to set the session aside at its next step.
async fn interrupt_overrides_a_requested_suspension(site: Site) {
    let (name, storage) = (site.name, site.open().await);
    for suspend_first in [true, false] {
        let gate = Gate::new();
        let agent = agent(&storage, ScriptedProvider::new([held_turn(&gate)]));
        let chat = agent.open(&device(&format!("{suspend_first}"))).await.unwrap();
        let mut run = chat.prompt("first").await.unwrap();
        until_text(&mut run).await;
        let other = agent.conversation_by_id(chat.id()).await.unwrap();
        if suspend_first {
            other.suspend().await.unwrap();
            tokio::time::sleep(Duration::from_secs(1)).await;
            other.interrupt().await.unwrap();
        } else {
            let commit = Commit::seal(agent.effects(), chat.id(), other.record().head)
                .with_event(NewEvent::interrupt())
                .with_trigger(Trigger::Suspend(Reason::UserPaused));
            storage.sessions.commit_with_retry(commit).await.unwrap();
        }
        let ended = tokio::time::timeout(Duration::from_secs(60), read(run)).await;
        let (_, report) = ended.unwrap_or_else(|_| panic!("{name}, {suspend_first}: it goes on"));
        assert_eq!(report.outcome, RunOutcome::Interrupted, "{name}");
        let now = chat.refresh().await.unwrap();
        assert_eq!((now.status.state, now.inputs_open), (SessionState::Suspended, 0), "{name}");
    }
}

each_store!(interrupt_overrides_a_requested_suspension, start_paused = true);
