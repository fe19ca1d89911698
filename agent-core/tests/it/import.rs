//! History that was written elsewhere: put in place of what is visible, and restored commit by commit.

use crate::common::{Driver, call, json};
use agent_core::clock::Effects;
use agent_core::commit::{COMMIT_MAX_BYTES, COMMIT_MAX_EVENTS, Commit, Precondition, RunEnd, Trigger};
use agent_core::event::{EVENT_MAX_BYTES, Event, EventPayload, EventType, NewEvent, SpanStarted};
use agent_core::json::{RawFields, RawJson};
use agent_core::model::{Patch, Timer};
use agent_core::session::OPEN_CALLS_MAX;
use agent_core::state::{Reason, SessionState};
use agent_core::{ErrorKind, Seq};

fn messages() -> Vec<NewEvent> {
    ["one", "two", "three"]
        .into_iter()
        .flat_map(|text| [NewEvent::user_message(text), NewEvent::agent_message(text.to_uppercase())])
        .collect()
}

/// What is said after what was cleared.
fn visible(driver: &Driver) -> Vec<String> {
    let after = driver.now().visible_from;
    let new_event = driver.log.iter().filter(|event| event.seq > after).filter_map(|event| {
        match event.decode().unwrap() {
            EventPayload::UserMessage(message) | EventPayload::AgentMessage(message) => Some(message.text),
            _ => None,
        }
    });
    new_event.collect()
}

/// A full write is one commit; nothing of what was visible remains, and nothing waits for a run.
#[test]
fn replaced_history_hides_the_previous_one() {
    let mut driver = Driver::created();
    driver.event(NewEvent::user_message("old")).unwrap();
    driver.event(NewEvent::system_prompt("old prompt")).unwrap();
    let timer = Timer::new("later", driver.effects.now().plus_micros(1_000_000_000));
    driver.event(NewEvent::timer_scheduled(timer)).unwrap();
    let before = driver.now().head;
    let commit = driver
        .seal()
        .with_precondition(Precondition::Matches(before))
        .with_trigger(Trigger::Replace(messages()));
    let committed = driver.commit(commit.clone()).unwrap();
    assert_eq!((committed.first, committed.last.get()), (before.next(), before.get() + 7));
    assert_eq!(visible(&driver), ["one", "ONE", "two", "TWO", "three", "THREE"]);
    let now = driver.now();
    assert_eq!((now.counts.user, now.counts.agent, now.counts.system), (3, 3, 0));
    assert_eq!((now.inputs_open, now.inputs_done_through), (0, now.last_input));
    // What was scheduled stays scheduled, as with clearing.
    assert_eq!((now.status.state, now.timers.len()), (SessionState::Queued, 1));
    assert_eq!(driver.folded(), *driver.now());
    assert!(driver.commit(commit).unwrap().replayed);
    assert_eq!(driver.log.len(), committed.last.get() as usize);

    let stale = driver
        .seal()
        .with_precondition(Precondition::Matches(before))
        .with_trigger(Trigger::Replace(messages()));
    assert!(matches!(driver.commit(stale).unwrap_err().kind(), ErrorKind::Conflict { .. }));
    driver.trigger(Trigger::Replace(Vec::new())).unwrap();
    assert_eq!(visible(&driver), [""; 0]);
}

/// Nothing is replaced under a run, and by nothing but messages.
#[test]
fn history_is_not_replaced_during_a_run() {
    let mut driver = Driver::created();
    driver.prompt();
    let refused = driver.trigger(Trigger::Replace(messages())).unwrap_err();
    assert!(matches!(refused.kind(), ErrorKind::InvalidTransition { from: SessionState::Running, .. }));
    driver.run_trigger(Trigger::EndRun(RunEnd::Completed(Reason::EndTurn))).unwrap();
    for event in [
        NewEvent::tool_use(call("c1"), "ls", json("{}")),
        NewEvent::interrupt(),
        NewEvent::new(EventType::USER_MESSAGE, json("{}")),
        NewEvent::user_message("x").with_extra("seq", json("1")),
    ] {
        let refused = driver.trigger(Trigger::Replace(vec![event])).unwrap_err();
        assert_eq!(*refused.kind(), ErrorKind::InvalidInput);
    }
    let many = vec![NewEvent::agent_message(""); 1024];
    let refused = driver.trigger(Trigger::Replace(many)).unwrap_err();
    assert_eq!(*refused.kind(), ErrorKind::LimitExceeded);
    driver.trigger(Trigger::Replace(vec![NewEvent::agent_message(""); 1023])).unwrap();
}

/// A log of many kinds of commits.
fn rich() -> Driver {
    let mut driver = Driver::created();
    driver.event(NewEvent::system_prompt("Be brief.")).unwrap();
    driver.event(NewEvent::user_message("안녕").with_extra("x", json("1e400"))).unwrap();
    driver.prompt();
    let commit = driver.seal_fenced().with_event(NewEvent::tool_use(call("c1"), "ls", json("{\"n\":1.10}")));
    driver.commit(commit).unwrap();
    driver.run_trigger(Trigger::EndRun(RunEnd::Completed(Reason::EndTurn))).unwrap();
    driver.trigger(Trigger::Replace(messages())).unwrap();
    driver.event(NewEvent::new("x.app.note".parse().unwrap(), json("[1]"))).unwrap();
    driver.event(NewEvent::updated(Patch::new().with_label("project", "x"))).unwrap();
    driver.prompt();
    driver
}

/// Another store: there is no session of the same id yet, and its writers draw other ids.
fn elsewhere() -> Driver {
    let effects = Effects::seeded(2, "2026-02-16T10:30:00Z".parse().unwrap());
    Driver { effects, ..Driver::nothing() }
}

fn commits(log: &[Event]) -> Vec<Vec<Event>> {
    log.chunk_by(|a, b| a.commit == b.commit).map(<[Event]>::to_vec).collect()
}

/// A log that is restored commit by commit folds to the same record; each commit takes effect once.
#[test]
fn restored_log_folds_to_the_same_record() {
    let (source, mut target) = (rich(), elsewhere());
    for events in commits(&source.log) {
        let commit = Commit::restore(source.id, events).unwrap();
        target.commit(commit.clone()).unwrap();
        assert!(target.commit(commit).unwrap().replayed);
    }
    assert_eq!(target.log, source.log);
    assert_eq!(target.now(), source.now());
    // It goes on from there, and is then another session.
    target.trigger(Trigger::LeaseExpired(target.now().epoch)).unwrap();
    assert_ne!(target.now(), source.now());
}

/// What does not follow on, is no whole commit, or is no event of its type is refused, and changes nothing.
#[test]
fn non_contiguous_commit_is_not_restored() {
    let source = rich();
    let commits = commits(&source.log);
    let restore = |events: &[Event]| Commit::restore(source.id, events.to_vec()).unwrap();
    let kind = |driver: &mut Driver, commit: Commit| driver.commit(commit).unwrap_err().kind().clone();
    let mut target = elsewhere();
    assert_eq!(kind(&mut target, restore(&commits[1])), ErrorKind::NotFound);
    target.commit(restore(&commits[0])).unwrap();
    assert!(matches!(kind(&mut target, restore(&commits[2])), ErrorKind::Conflict { .. }));
    let changed = |change: &dyn Fn(&mut Event)| {
        let mut events = commits[1].clone();
        change(&mut events[0]);
        restore(&events)
    };
    let bad = [
        changed(&|event| event.n = 2),
        changed(&|event| event.of = 2),
        changed(&|event| event.payload = json("{}")),
        changed(&|event| event.transition = Some(json("1"))),
        changed(&|event| event.kind = EventType::SESSION_CREATED).with_precondition(Precondition::MustExist),
        restore(&commits[1]).with_event(NewEvent::user_message("and more")),
    ];
    for commit in bad {
        assert_eq!(kind(&mut target, commit), ErrorKind::InvalidInput);
    }
    let again = source.log[0].payload.clone();
    let again = changed(&|event| (event.kind, event.payload) = (EventType::SESSION_CREATED, again.clone()));
    assert_eq!(
        kind(&mut target, again.with_precondition(Precondition::MustExist)),
        ErrorKind::InvalidInput,
        "created a second time"
    );
    let newer = changed(&|event| event.kind = "session.teleported".parse().unwrap());
    assert_eq!(kind(&mut target, newer), ErrorKind::Unsupported);
    let large = changed(&|event| event.payload = RawJson::of(&"x".repeat((16 << 20) + 1)).unwrap());
    assert_eq!(kind(&mut target, large), ErrorKind::LimitExceeded);
    assert!(Commit::restore(source.id, Vec::new()).is_err());
    target.commit(restore(&commits[1])).unwrap();

    // Somebody wrote there meanwhile.
    target.event(NewEvent::user_message("mine")).unwrap();
    assert!(matches!(kind(&mut target, restore(&commits[2])), ErrorKind::Conflict { .. }));
}

/// Whatever commit one store took can be restored to another, with all that the library itself added to it; and
/// nothing larger.
#[test]
fn the_largest_commit_can_be_restored() {
    let mut source = Driver::created();
    source.prompt();
    let open = (0..OPEN_CALLS_MAX).flat_map(|n| {
        let span = SpanStarted::new(format!("s{n}").parse().unwrap(), "step");
        [
            NewEvent::tool_use(call(&format!("c{n}")), "ls", json("{}")),
            NewEvent::of(&EventPayload::SpanStarted(span)),
        ]
    });
    let opened = source.seal_fenced().with_events(open);
    source.commit(opened).unwrap();
    let most = source
        .seal_fenced()
        .with_events(vec![NewEvent::agent_message(""); COMMIT_MAX_EVENTS])
        .with_trigger(Trigger::EndRun(RunEnd::Completed(Reason::EndTurn)));
    let most = source.commit(most).unwrap();
    let count = most.last.get() - most.first.get() + 1;
    assert_eq!(count as usize, COMMIT_MAX_EVENTS + 2 * OPEN_CALLS_MAX);
    let mut target = elsewhere();
    for events in commits(&source.log) {
        target.commit(Commit::restore(source.id, events).unwrap()).unwrap();
    }
    assert_eq!(target.now(), source.now());

    // One event more than the library ever adds, and one byte.
    let mut one = source.log.last().unwrap().clone();
    (one.kind, one.payload, one.transition) = (EventType::AGENT_MESSAGE, json("{\"text\":\"\"}"), None);
    let id = source.effects.new_commit_id();
    let restored = |datas: &[RawJson], extra: &RawFields| {
        let event = |(n, data): (usize, &RawJson)| {
            let mut event = one.clone();
            event.seq = Seq::new(source.now().head.get() + 1 + n as u64);
            event.commit = id;
            (event.n, event.of, event.payload) = (n as u32 + 1, datas.len() as u32, data.clone());
            event.extra = extra.clone();
            event
        };
        let commit = Commit::restore(source.id, datas.iter().enumerate().map(event).collect()).unwrap();
        agent_core::plan(Some(source.now()), &commit).map(drop).map_err(|error| error.kind().clone())
    };
    let (room, plain) = (2 * OPEN_CALLS_MAX + 2, RawFields::default());
    let many = |more| restored(&vec![one.payload.clone(); COMMIT_MAX_EVENTS + room + more], &plain);
    assert_eq!(
        (many(0), many(1), many(2)),
        (Ok(()), Err(ErrorKind::LimitExceeded), Err(ErrorKind::LimitExceeded))
    );
    let text = |bytes: usize| json(&format!("{{\"text\":\"{}\"}}", "x".repeat(bytes - "{'text':''}".len())));
    let (whole, none) = (text(EVENT_MAX_BYTES - "{}".len()), "{}".len());
    let large = |more| {
        let mut datas = vec![whole.clone(); COMMIT_MAX_BYTES / EVENT_MAX_BYTES];
        datas.push(text(room * 1024 - none + more));
        restored(&datas, &plain)
    };
    assert_eq!((large(0), large(1)), (Ok(()), Err(ErrorKind::LimitExceeded)));
    let mut extra = RawFields::default();
    extra.insert("e", json("1"));
    let single = |more| restored(&[text(EVENT_MAX_BYTES - "{'e':1}".len() + more)], &extra);
    assert_eq!((single(0), single(1)), (Ok(()), Err(ErrorKind::LimitExceeded)));
}
