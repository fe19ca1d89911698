//! Meaning of a commit: the order of the checks, doubles, fences, limits, and the fold.

use crate::common::{Driver, call, fold, json};
use agent_core::commit::{COMMIT_MAX_EVENTS, Commit, Precondition, RunEnd, Step, Trigger};
use agent_core::event::{Event, EventPayload, EventType, NewEvent, ToolOutcome};
use agent_core::json::RawJson;
use agent_core::model::{
    Access, ActionKind, Failure, Patch, PendingAction, Resource, SpanId, Status, Timer, Title,
};
use agent_core::session::{OPEN_CALLS_MAX, RECENT_COMMITS, RECORD_MAX_BYTES, SessionRecord, TIMERS_MAX};
use agent_core::state::{Reason, SessionState, TriggerKind};
use agent_core::{Epoch, ErrorKind, Plan, Seq, Timestamp, plan};
use proptest::prelude::*;

/// A chat turn is two commits of one event each, and the record says what happened.
#[test]
fn a_chat_turn_is_two_events() {
    let mut driver = Driver::created();
    let prompt = driver.prompt();
    assert_eq!((prompt.first, prompt.last, prompt.epoch), (Seq::new(2), Seq::new(2), Some(Epoch::new(1))));
    assert_eq!(driver.status(), Status::new(SessionState::Running, Reason::Input));
    let answer = driver
        .seal_fenced()
        .with_event(NewEvent::agent_message("hi"))
        .with_trigger(Trigger::EndRun(RunEnd::Completed(Reason::EndTurn)));
    driver.commit(answer).unwrap();
    assert_eq!(driver.log.len(), 3);
    let now = driver.now();
    assert_eq!(now.status, Status::new(SessionState::Idle, Reason::EndTurn));
    assert_eq!((now.counts.user, now.counts.agent, now.counts.runs, now.inputs_open), (1, 1, 1, 0));
    assert_eq!(
        (now.lease.as_ref(), now.inputs_claimed_through, now.inputs_done_through),
        (None, Seq::new(2), Seq::new(2))
    );
}

/// The same commit again is answered with its result, however the session has gone on: while it is
/// remembered, even when it was deleted or its lease is gone.
#[test]
fn a_replay_is_answered_before_everything_else() {
    let mut driver = Driver::created();
    let request = driver.lease_request();
    let prompt =
        driver.seal().with_event(NewEvent::user_message("hello")).with_trigger(Trigger::BeginRun(request));
    let first = driver.commit(prompt.clone()).unwrap();
    let step = driver
        .seal_fenced()
        .with_precondition(Precondition::Matches(Seq::new(2)))
        .with_event(NewEvent::agent_message("h"));
    driver.commit(step.clone()).unwrap();
    driver.trigger(Trigger::LeaseExpired(Epoch::new(1))).unwrap();
    driver.trigger(Trigger::Delete(Reason::UserDeleted)).unwrap();
    let events = driver.log.len();

    let again = driver.commit(prompt).unwrap();
    assert!(again.replayed && !first.replayed);
    assert_eq!((again.first, again.last, again.epoch), (first.first, first.last, first.epoch));
    let again = driver.commit(step).unwrap();
    assert!(again.replayed, "neither the tombstone, nor the fence, nor the expectation is looked at first");
    assert_eq!(driver.log.len(), events);
}

/// A run that begins and ends in one commit was one: it is counted, and the next lease has another number.
#[test]
fn run_within_one_commit_is_counted() {
    let mut driver = Driver::created();
    let request = driver.lease_request();
    let at_once =
        driver.seal().with_event(NewEvent::user_message("hello")).with_trigger(Trigger::BeginRun(request));
    let ended =
        driver.commit(at_once.with_trigger(Trigger::EndRun(RunEnd::Completed(Reason::EndTurn)))).unwrap();
    let now = driver.now();
    assert_eq!(now.status, Status::new(SessionState::Idle, Reason::EndTurn));
    assert_eq!((now.counts.runs, now.epoch, ended.epoch), (1, Epoch::new(1), Some(Epoch::new(1))));
    assert_eq!((now.begun, now.inputs_done_through, now.inputs_open), (Seq::new(2), Seq::new(2), 0));
    assert_eq!(fold(driver.id, &driver.log), *now);
    assert_eq!(driver.prompt().epoch, Some(Epoch::new(2)));
}

/// What only a newer version may say is refused, alone and before a step that says something else: it would close the session.
#[test]
fn reasons_of_newer_versions_are_refused() {
    let newer = Reason::Newer;
    let mut driver = Driver::created();
    let mut refused = |steps: Vec<Trigger>| {
        let commit = steps.into_iter().fold(driver.seal(), Commit::with_trigger);
        let error = driver.commit(commit).unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::InvalidInput, "{error}");
        assert!(error.to_string().contains("newer version"), "{error}");
    };
    refused(vec![Trigger::Suspend(newer), Trigger::Resume]);
    refused(vec![Trigger::ForceSuspend(newer)]);
    refused(vec![Trigger::Fail(Failure::new(newer, "x")), Trigger::ClearFailure]);
    refused(vec![Trigger::Terminate(newer), Trigger::Delete(Reason::UserDeleted)]);
    refused(vec![Trigger::Delete(newer)]);
    let question = PendingAction::new("q".parse().unwrap(), ActionKind::Newer, "?");
    for end in [
        RunEnd::Completed(newer),
        RunEnd::Failed(Failure::new(newer, "x")),
        RunEnd::retry(Failure::new(newer, "x"), Timestamp::UNIX_EPOCH, 3),
        RunEnd::Await(question),
    ] {
        refused(vec![Trigger::EndRun(end), Trigger::Archive]);
    }
}

/// Triggers alone can come to more events than a commit may have, too.
#[test]
fn events_added_by_triggers_are_limited() {
    let mut driver = Driver::created();
    let failure = Failure::new(Reason::RunError, "x");
    let end = RunEnd::retry(failure, Timestamp::UNIX_EPOCH, u32::MAX);
    let runs = |driver: &Driver, count| {
        let append = driver.seal().with_event(NewEvent::user_message("hello"));
        (0..count).fold(append, |commit, _| {
            commit
                .with_trigger(Trigger::BeginRun(driver.lease_request()))
                .with_trigger(Trigger::EndRun(end.clone()))
        })
    };
    let error = driver.commit(runs(&driver, COMMIT_MAX_EVENTS * 2)).unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::LimitExceeded, "{error}");
    driver.commit(runs(&driver, 1000)).unwrap();
    let commits = driver.log.chunk_by(|a, b| a.commit == b.commit).map(<[_]>::to_vec);
    let mut again = Driver::nothing();
    for events in commits {
        again.commit(Commit::restore(driver.id, events).unwrap()).unwrap();
    }
    assert_eq!(again.now(), driver.now());
}

/// A commit that is not remembered any more is a conflict, not a double; one whose writer has seen enough is new.
#[test]
fn a_commit_from_too_long_ago_is_a_conflict() {
    for later in [1, 15, 16, 17, 300] {
        let mut driver = Driver::created();
        let commit = driver.seal().with_event(NewEvent::user_message("once"));
        driver.commit(commit.clone()).unwrap();
        for _ in 0..later {
            driver.event(NewEvent::user_message("more")).unwrap();
        }
        let events = driver.log.len();
        let again = driver.commit(commit.clone());
        if later < RECENT_COMMITS {
            assert!(again.unwrap().replayed, "{later}");
        } else {
            assert_eq!(
                *again.unwrap_err().kind(),
                ErrorKind::Conflict { head: Some(driver.now().head) },
                "{later}"
            );
        }
        assert_eq!(driver.log.len(), events, "{later}");

        // A new commit of a writer that has not looked for as long: nobody can tell that it is new.
        let stale =
            Commit::seal(&driver.effects, driver.id, Seq::new(1)).with_event(NewEvent::user_message("stale"));
        assert_eq!(driver.commit(stale.clone()).is_ok(), later < RECENT_COMMITS, "{later}");
        let mut fresh = stale;
        fresh.id = driver.effects.new_commit_id();
        fresh.seen = driver.now().head;
        assert!(driver.commit(fresh).is_ok());
    }
}

/// A stale writer is refused, for ever, until it reads again; the error says where the session is.
#[test]
fn stale_writer_conflicts_until_it_reads() {
    let mut driver = Driver::created();
    for _ in 0..40 {
        driver.event(NewEvent::user_message("x")).unwrap();
    }
    for stale in [0, 1, 39, 40, 42, u64::MAX] {
        let commit = driver
            .seal()
            .with_precondition(Precondition::Matches(Seq::new(stale)))
            .with_event(NewEvent::user_message("y"));
        let error = driver.commit(commit).unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::Conflict { head: Some(Seq::new(41)) }, "{stale}");
        assert!(!error.is_retryable());
    }
    let commit = driver
        .seal()
        .with_precondition(Precondition::Matches(Seq::new(41)))
        .with_event(NewEvent::user_message("y"));
    assert_eq!(driver.commit(commit).unwrap().last, Seq::new(42));
}

/// Writes of a stale, an ended and a future epoch are fenced, those of the live one are not.
#[test]
fn only_the_live_epoch_can_write() {
    let mut driver = Driver::created();
    driver.prompt();
    let run = driver.now().lease.as_ref().unwrap().run;
    let write = |driver: &Driver, epoch| {
        driver.seal().with_fence(run, Epoch::new(epoch)).with_event(NewEvent::agent_message("x"))
    };
    for epoch in [0, 2, u64::MAX] {
        let commit = write(&driver, epoch);
        assert_eq!(*driver.commit(commit).unwrap_err().kind(), ErrorKind::Fenced { epoch: Epoch::new(1) });
    }
    let commit = write(&driver, 1);
    driver.commit(commit).unwrap();
    driver.run_trigger(Trigger::EndRun(RunEnd::Completed(Reason::EndTurn))).unwrap();
    let commit = write(&driver, 1);
    assert_eq!(
        *driver.commit(commit).unwrap_err().kind(),
        ErrorKind::Fenced { epoch: Epoch::new(1) },
        "it has ended"
    );
    driver.prompt();
    let commit = write(&driver, 1);
    assert_eq!(
        *driver.commit(commit).unwrap_err().kind(),
        ErrorKind::Fenced { epoch: Epoch::new(2) },
        "another has it"
    );
}

/// What the agent says comes from the run alone while there is one; inputs come from anywhere, at any time.
#[test]
fn nobody_else_writes_as_the_agent() {
    let mut driver = Driver::created();
    driver.prompt();
    let error = driver.event(NewEvent::agent_message("me too")).unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Busy { holder: "the test".into() });
    driver.event(NewEvent::user_message("in between")).unwrap();
    assert_eq!(driver.now().inputs_open, 2);
    let second = driver.lease_request().if_ready();
    let commit =
        driver.seal().with_event(NewEvent::user_message("and more")).with_trigger(Trigger::BeginRun(second));
    let done = driver.commit(commit).unwrap();
    assert_eq!(done.epoch, None, "no second run starts");
    assert_eq!(done.session.lease.as_ref().unwrap().holder, "the test");
    assert_eq!(driver.now().inputs_open, 3, "and the text is kept");
    driver.run_trigger(Trigger::EndRun(RunEnd::Completed(Reason::EndTurn))).unwrap();
    assert_eq!(driver.status(), Status::new(SessionState::Queued, Reason::FollowUp));
    assert_eq!(driver.now().inputs_open, 2);
}

/// A run that takes up what came meanwhile is done with that, too.
#[test]
fn claiming_inputs_moves_the_cursor() {
    let mut driver = Driver::created();
    driver.prompt();
    driver.event(NewEvent::user_message("in between")).unwrap();
    driver.run_trigger(Trigger::ClaimInputs).unwrap();
    driver.event(NewEvent::user_message("later")).unwrap();
    driver.run_trigger(Trigger::EndRun(RunEnd::Completed(Reason::EndTurn))).unwrap();
    let now = driver.now();
    assert_eq!(
        (now.inputs_claimed_through, now.inputs_done_through, now.last_input, now.inputs_open),
        (Seq::new(3), Seq::new(3), Seq::new(5), 1)
    );
}

/// A failed run's inputs wait for their time; a new input does not.
#[test]
fn back_off_delays_only_failed_inputs() {
    let mut driver = Driver::created();
    driver.prompt();
    let later = driver.effects.now().plus_micros(60_000_000);
    let end = RunEnd::retry(Failure::new(Reason::RunError, "away"), later, 3);
    driver.run_trigger(Trigger::EndRun(end)).unwrap();
    assert_eq!(driver.status(), Status::new(SessionState::Queued, Reason::RetryBackoff));
    let early = driver.lease_request();
    assert!(driver.trigger(Trigger::BeginRun(early.clone())).is_err(), "not before its time");
    let mut in_time = driver.seal().with_trigger(Trigger::BeginRun(early.clone()));
    in_time.at = later;
    assert!(plan(driver.session.as_ref(), &in_time).is_ok());
    let commit =
        driver.seal().with_event(NewEvent::user_message("new")).with_trigger(Trigger::BeginRun(early));
    assert!(driver.commit(commit).unwrap().epoch.is_some());
    assert_eq!(driver.now().attempts, 1);
    for _ in 0..2 {
        let end = RunEnd::retry(Failure::new(Reason::RunError, "away"), later, 3);
        driver.run_trigger(Trigger::EndRun(end)).unwrap();
        if driver.now().status.state != SessionState::Failed {
            driver.prompt();
        }
    }
    assert_eq!(
        driver.status(),
        Status::new(SessionState::Failed, Reason::RunError),
        "the third time is the last"
    );
}

/// Contract 5: a run that ends, however it ends, leaves no call without its one result and no span open.
#[test]
fn every_run_end_closes_calls_and_spans() {
    type End = fn(&Driver) -> Commit;
    let ends: Vec<(&str, End)> = vec![
        ("completed", |d| d.seal_fenced().with_trigger(Trigger::EndRun(RunEnd::Completed(Reason::EndTurn)))),
        ("interrupted", |d| d.seal_fenced().with_trigger(Trigger::EndRun(RunEnd::Interrupted))),
        ("failed", |d| {
            d.seal_fenced().with_trigger(Trigger::EndRun(RunEnd::Failed(Failure::new(Reason::RunError, "x"))))
        }),
        ("lost", |d| d.seal().with_trigger(Trigger::LeaseExpired(d.now().epoch))),
        ("terminated", |d| d.seal().with_trigger(Trigger::Terminate(Reason::UserEnded))),
        ("deleted", |d| d.seal().with_trigger(Trigger::Delete(Reason::UserDeleted))),
        ("suspended", |d| d.seal().with_trigger(Trigger::ForceSuspend(Reason::UserPaused))),
    ];
    for (name, end) in ends {
        let mut driver = Driver::created();
        driver.prompt();
        let span = |text: &str| text.parse::<SpanId>().unwrap();
        let work = driver
            .seal_fenced()
            .with_event(NewEvent::of(&EventPayload::SpanStarted(agent_core::event::SpanStarted::new(
                span("s1"),
                "tool",
            ))))
            .with_event(NewEvent::tool_use(call("c1"), "sleep", json("{}")))
            .with_event(NewEvent::tool_use(call("c2"), "sleep", json("{}")))
            .with_event(NewEvent::tool_result(call("c1"), ToolOutcome::Ok, json("1")));
        driver.commit(work).unwrap();
        let commit = end(&driver);
        driver.commit(commit).unwrap();
        assert!(driver.now().open_calls.is_empty() && driver.now().open_spans.is_empty(), "{name}");
        let results: Vec<_> = driver
            .log
            .iter()
            .filter_map(|event| match event.decode().unwrap() {
                EventPayload::AgentToolResult(result) => Some((result.call.to_string(), result.outcome)),
                _ => None,
            })
            .collect();
        assert_eq!(
            results,
            [("c1".into(), ToolOutcome::Ok), ("c2".into(), ToolOutcome::Interrupted)],
            "{name}"
        );
        assert_eq!(driver.folded(), *driver.now(), "{name}");
    }
}

/// Where the holder of a lease is gone, the session runs again, nothing is lost and nothing doubled.
#[test]
fn takeover_in_one_commit_loses_nothing() {
    let mut driver = Driver::created();
    driver.prompt();
    let commit = driver.seal_fenced().with_event(NewEvent::tool_use(call("c1"), "sleep", json("{}")));
    driver.commit(commit).unwrap();
    let request = driver.lease_request();
    let wrong = driver.seal().with_trigger(Trigger::LeaseExpired(Epoch::new(7)));
    assert!(matches!(driver.commit(wrong).unwrap_err().kind(), ErrorKind::Conflict { .. }));
    let take_over = driver
        .seal()
        .with_trigger(Trigger::LeaseExpired(Epoch::new(1)))
        .with_event(NewEvent::user_message("are you there?"))
        .with_trigger(Trigger::BeginRun(request));
    let done = driver.commit(take_over).unwrap();
    assert_eq!(done.epoch, Some(Epoch::new(2)));
    assert_eq!(driver.now().inputs_open, 2, "the first input is still to be answered");
    let messages = driver.log.iter().filter(|e| e.kind == EventType::SESSION_STATUS_CHANGED).count();
    assert_eq!(messages, 1, "the take-over stands in the log");
    driver.run_trigger(Trigger::EndRun(RunEnd::Completed(Reason::EndTurn))).unwrap();
    assert_eq!(driver.now().inputs_open, 0);
    assert_eq!(driver.folded(), *driver.now());
}

/// Clearing hides the history, and nothing else.
#[test]
fn clear_keeps_metadata_and_prompt() {
    let mut driver = Driver::created();
    driver.event(NewEvent::system_prompt("be brief")).unwrap();
    driver
        .event(NewEvent::updated(Patch::new().with_reference("model", "m1").with_label("project", "p")))
        .unwrap();
    driver.event(NewEvent::user_message("secret")).unwrap();
    driver.event(NewEvent::history_cleared()).unwrap();
    let now = driver.now();
    assert_eq!((now.visible_from, now.counts.messages(), now.inputs_open), (Seq::new(5), 0, 0));
    assert_eq!(now.system_prompt, Seq::new(2));
    assert_eq!(now.attributes.references["model"], "m1");
    assert_eq!(now.status, Status::new(SessionState::Idle, Reason::Fresh));
    assert_eq!(driver.log.len(), 5, "the log keeps everything");
}

/// A clock that steps back changes timestamps and nothing else; activity does not step back.
#[test]
fn events_are_ordered_by_sequence_not_by_clock() {
    let mut driver = Driver::created();
    let late: Timestamp = "2030-01-01T00:00:00Z".parse().unwrap();
    for at in [late, Timestamp::MIN, Timestamp::MAX, Timestamp::UNIX_EPOCH] {
        let mut commit = driver.seal().with_event(NewEvent::user_message("x"));
        commit.at = at;
        driver.commit(commit).unwrap();
        assert_eq!(driver.now().updated_at, at);
    }
    assert_eq!(driver.now().last_active_at, Timestamp::MAX);
    assert_eq!(driver.log.iter().map(|event| event.seq.get()).collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
    assert_eq!(driver.folded(), *driver.now());
}

/// A patch changes what it names; a title that a person chose is not replaced by a made-up one.
#[test]
fn patch_changes_only_the_named_fields() {
    let mut driver = Driver::created();
    let set = Patch::new()
        .with_label("a", "1")
        .with_label("b", "2")
        .with_metadata("n", json("123456789012345678901234567890.5"))
        .with_reference("thread.coder", "t-1")
        .with_resources(vec![Resource::new("directory", "/srv", "/mnt").with_access(Access::Write)])
        .with_title(Title::by_user("Mine"));
    driver.event(NewEvent::updated(set)).unwrap();
    let change = Patch::new().with_label("b", "3").without_label("a").with_title(Title::generated("Yours"));
    driver.event(NewEvent::updated(change)).unwrap();
    let messages = &driver.now().attributes;
    assert_eq!(
        messages.labels.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect::<Vec<_>>(),
        [("b", "3")]
    );
    assert_eq!(messages.title.as_ref().unwrap().text, "Mine");
    assert_eq!(messages.metadata.get("n").unwrap().get(), "123456789012345678901234567890.5");
    assert_eq!((messages.references["thread.coder"].as_str(), messages.resources.len()), ("t-1", 1));
    for bad in [
        Patch::new().with_label("", "x"),
        Patch::new().with_label("x", "a\nb"),
        Patch::new().with_title(Title::by_user("")),
        Patch::new().with_reference("k", "v".repeat(513)),
    ] {
        assert_eq!(*driver.event(NewEvent::updated(bad)).unwrap_err().kind(), ErrorKind::InvalidInput);
    }
}

/// Contract 8: the record stays within its limit whatever is asked of it, and a session at its limit can still
/// close its calls, be answered, cleared and ended.
#[test]
fn full_record_keeps_the_session_usable() {
    let mut driver = Driver::created();
    let mut refused = 0;
    for n in 0..200 {
        let patch = Patch::new()
            .with_label(format!("{n:064}"), "v".repeat(512))
            .with_reference(format!("r{n}"), "w".repeat(512));
        refused += u32::from(driver.event(NewEvent::updated(patch)).is_err());
    }
    let metadata = Patch::new().with_metadata("m", json(&format!("\"{}\"", "x".repeat(20_000))));
    refused += u32::from(driver.event(NewEvent::updated(metadata)).is_err());
    driver.prompt();
    for n in 0..OPEN_CALLS_MAX + 8 {
        let commit =
            driver.seal_fenced().with_event(NewEvent::tool_use(call(&format!("{n:0128}")), "t", json("{}")));
        refused += u32::from(driver.commit(commit).is_err());
    }
    for n in 0..TIMERS_MAX + 8 {
        let mut timer = Timer::new(format!("{n:0128}"), Timestamp::MAX);
        timer.note = "n".repeat(512);
        refused += u32::from(driver.event(NewEvent::timer_scheduled(timer)).is_err());
    }
    assert!(refused > 200, "{refused}");
    let question = "?".repeat(PendingAction::QUESTION_MAX_BYTES);
    let action = PendingAction::new("a".repeat(128).parse().unwrap(), ActionKind::Approval, question);
    let _ = driver.run_trigger(Trigger::EndRun(RunEnd::Await(action)));
    if driver.now().status.state == SessionState::Running {
        driver.run_trigger(Trigger::EndRun(RunEnd::Completed(Reason::EndTurn))).unwrap();
    }
    assert!(driver.now().to_json().len() <= RECORD_MAX_BYTES, "{}", driver.now().to_json().len());
    driver.event(NewEvent::interrupt()).or_else(|_| driver.event(NewEvent::user_message("x"))).unwrap();
    driver.event(NewEvent::history_cleared()).unwrap();
    let failure = Failure::new(Reason::SystemError, "é".repeat(4000));
    assert!(failure.text.len() <= Failure::TEXT_MAX_BYTES);
    driver.trigger(Trigger::Fail(failure)).unwrap();
    assert!(driver.now().to_json().len() <= RECORD_MAX_BYTES);
    driver.trigger(Trigger::Terminate(Reason::UserEnded)).unwrap();
    driver.trigger(Trigger::Delete(Reason::UserDeleted)).unwrap();
}

/// An event that is too large, and a commit with nothing in it, are refused before anything happens.
#[test]
fn malformed_commits_are_refused() {
    let mut driver = Driver::created();
    let empty = driver.seal();
    assert_eq!(*driver.commit(empty).unwrap_err().kind(), ErrorKind::InvalidInput);
    let huge = json(&format!("{{\"text\":\"{}\"}}", "x".repeat(agent_core::event::EVENT_MAX_BYTES)));
    let error = driver.event(NewEvent::new(EventType::USER_MESSAGE, huge)).unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::LimitExceeded);
    for (kind, data) in [
        ("user.message", "{}"),
        ("user.message", "\"text\""),
        ("user.message", "{\"text\":7}"),
        ("agent.tool_use", "{\"call\":\"\",\"name\":\"n\",\"input\":1}"),
        ("agent.tool_result", "{\"call\":\"never made\",\"outcome\":\"ok\",\"output\":1}"),
        ("session.created", "{\"workspace\":\"default\"}"),
        ("session.status_changed", "{}"),
        ("session.of_the_future", "{}"),
    ] {
        let event = NewEvent::new(kind.parse().unwrap(), json(data));
        assert_eq!(*driver.event(event).unwrap_err().kind(), ErrorKind::InvalidInput, "{kind} {data}");
    }
    for kind in ["", "nodot", "a.", ".b", "UPPER.case", "a b.c", "\u{e9}.x"] {
        assert!(kind.parse::<EventType>().is_err(), "{kind:?}");
    }
    let double = driver.seal().with_event(NewEvent::user_message("x").with_extra("seq", json("7")));
    assert!(driver.commit(double).is_err(), "no field of the header can be written from outside");
    assert_eq!(driver.log.len(), 1);
}

/// Unknown types, unknown fields and numbers of any size are kept byte for byte.
#[test]
fn unknown_data_is_kept_byte_for_byte() {
    let mut driver = Driver::created();
    let data = "{\"n\":1e400,\"big\":123456789012345678901234567890,\"b\":1,\"a\":2,\"b\":3,\"s\":\"\\u0000\\ud83d\\ude00\"}";
    let event = NewEvent::new("x.app.measured".parse().unwrap(), json(data))
        .with_extra("trace", json("{\"z\":0.10,\"y\":[1.0,-0]}"))
        .with_extra("more", json("null"));
    driver.event(event).unwrap();
    let stored = driver.log[1].to_json();
    let back = Event::from_json(&stored).unwrap();
    assert_eq!((back.to_json().as_str(), back.payload.get()), (stored.as_str(), data));
    assert!(stored.ends_with(",\"trace\":{\"z\":0.10,\"y\":[1.0,-0]},\"more\":null}"), "{stored}");
    assert!(matches!(back.decode().unwrap(), EventPayload::Other(..)));

    // A record of a newer version: what this version does not know is handed back.
    let text = driver.now().to_json();
    let newer = format!("{},\"colour\":{{\"n\":1.00}}}}", &text[..text.len() - 1]);
    let mut record = SessionRecord::from_json(&newer).unwrap();
    assert_eq!(record.to_json(), newer);
    let commit = driver.seal().with_event(NewEvent::user_message("hi"));
    let Plan::Write { after, .. } = plan(Some(&record), &commit).unwrap() else { panic!() };
    assert!(after.to_json().ends_with(",\"colour\":{\"n\":1.00}}"));

    // A type or a state that would change what the record means: readable, and closed to commits.
    let mut line = driver.log[1].clone();
    (line.seq, line.kind) = (record.head.next(), "session.moved".parse().unwrap());
    record.apply(&line).unwrap();
    let error = plan(Some(&record), &driver.seal().with_event(NewEvent::user_message("x"))).unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("session.moved"), "{error}");
    for transition in [
        "{\"trigger\":\"hibernate\",\"from\":\"idle\",\"to\":\"idle\",\"reason\":\"fresh\"}",
        "{\"trigger\":\"input\",\"from\":\"idle\",\"to\":\"frozen\",\"reason\":\"fresh\"}",
        "{\"trigger\":\"input\",\"from\":\"idle\",\"to\":\"idle\",\"reason\":\"moonlight\"}",
        "{\"trigger\":\"input\",\"from\":\"idle\",\"to\":\"idle\",\"reason\":\"fresh\",\"mood\":\"good\"}",
    ] {
        let mut record = driver.now().clone();
        let mut line = driver.log[1].clone();
        (line.seq, line.transition) = (record.head.next(), Some(json(transition)));
        record.apply(&line).unwrap();
        assert!(record.unsupported.is_some(), "{transition}");
    }
}

/// Folding assigns what the log says, also what the present table would not allow.
#[test]
fn an_old_log_folds_the_same_under_a_changed_table() {
    let mut driver = Driver::created();
    driver.trigger(Trigger::Terminate(Reason::UserEnded)).unwrap();
    assert_eq!(agent_core::state::target(SessionState::Terminated, TriggerKind::Resume), None);
    let mut event = driver.log.last().unwrap().clone();
    event.seq = event.seq.next();
    event.transition =
        Some(json("{\"trigger\":\"resume\",\"from\":\"terminated\",\"to\":\"queued\",\"reason\":\"input\"}"));
    driver.log.push(event);
    assert_eq!(driver.folded().status, Status::new(SessionState::Queued, Reason::Input));
}

/// The stored form of events and of the record, word for word: what other programs rely on.
#[test]
fn golden_json() {
    let mut driver = Driver::created();
    driver.prompt();
    let lines: Vec<_> = driver.log.iter().map(Event::to_json).collect();
    assert_eq!(lines.join("\n"), include_str!("golden/events.jsonl").trim_end());
    assert_eq!(driver.now().to_json(), include_str!("golden/session.json").trim_end());
    for line in include_str!("golden/events.jsonl").lines() {
        assert_eq!(Event::from_json(line).unwrap().to_json(), line);
    }
    assert_eq!(SessionRecord::from_json(include_str!("golden/session.json")).unwrap(), *driver.now());
}

/// No bytes bring the decoders down.
#[test]
fn decoders_refuse_and_do_not_panic() {
    let line = include_str!("golden/events.jsonl").lines().next().unwrap();
    let record = include_str!("golden/session.json");
    for text in [line, record] {
        for cut in (0..text.len()).filter(|at| text.is_char_boundary(*at)) {
            let _ = (Event::from_json(&text[..cut]), SessionRecord::from_json(&text[..cut]));
            let mut changed = text.as_bytes().to_vec();
            changed[cut] ^= 0x15;
            if let Ok(changed) = std::str::from_utf8(&changed) {
                let _ = (Event::from_json(changed), SessionRecord::from_json(changed));
            }
        }
    }
}

#[derive(Clone, Debug)]
enum Move {
    Send(String),
    Answer(String),
    Call(u8),
    Result(u8),
    Begin,
    End(u8),
    Lost,
    Interrupt,
    Clear,
    Suspend,
    Resume,
    Patch(String, Option<String>),
    Timer(u8, i64),
    Unwake(u8),
    RunLost(u32),
    Custom(String),
    Archive,
    Unarchive,
    Fail,
    Recover,
    Pair,
}

fn moves() -> impl Strategy<Value = Move> {
    prop_oneof![
        4 => any::<String>().prop_map(Move::Send),
        4 => any::<String>().prop_map(Move::Answer),
        3 => (0..6u8).prop_map(Move::Call),
        3 => (0..6u8).prop_map(Move::Result),
        4 => Just(Move::Begin),
        4 => (0..5u8).prop_map(Move::End),
        1 => Just(Move::Lost),
        1 => Just(Move::Interrupt),
        1 => Just(Move::Clear),
        1 => Just(Move::Suspend),
        1 => Just(Move::Resume),
        2 => ("[a-c]", proptest::option::of("[x-z]{1,9}")).prop_map(|(k, v)| Move::Patch(k, v)),
        1 => (0..3u8, any::<i64>()).prop_map(|(k, at)| Move::Timer(k, at)),
        1 => (0..3u8).prop_map(Move::Unwake),
        1 => (1..4u32).prop_map(Move::RunLost),
        1 => any::<String>().prop_map(Move::Custom),
        1 => Just(Move::Archive),
        1 => Just(Move::Unarchive),
        1 => Just(Move::Fail),
        1 => Just(Move::Recover),
        2 => Just(Move::Pair),
    ]
}

fn commit_of(driver: &Driver, next: &Move) -> Commit {
    let fenced = if driver.now().lease.is_some() { driver.seal_fenced() } else { driver.seal() };
    let plain = driver.seal();
    let request = driver.lease_request().if_ready();
    let failure = Failure::new(Reason::RunError, "x");
    match next.clone() {
        Move::Send(text) => plain.with_event(NewEvent::user_message(text)),
        Move::Answer(text) => fenced.with_event(NewEvent::agent_message(text)),
        Move::Call(n) => fenced.with_event(NewEvent::tool_use(call(&format!("c{n}")), "t", json("{}"))),
        Move::Result(n) => {
            fenced.with_event(NewEvent::tool_result(call(&format!("c{n}")), ToolOutcome::Ok, json("1")))
        }
        Move::Begin => {
            plain.with_event(NewEvent::user_message("go")).with_trigger(Trigger::BeginRun(request))
        }
        Move::End(0) => fenced.with_trigger(Trigger::EndRun(RunEnd::Completed(Reason::EndTurn))),
        Move::End(1) => fenced.with_trigger(Trigger::EndRun(RunEnd::Interrupted)),
        Move::End(2) => fenced.with_trigger(Trigger::EndRun(RunEnd::Failed(failure))),
        Move::End(3) => fenced.with_trigger(Trigger::EndRun(RunEnd::retry(failure, driver.effects.now(), 3))),
        Move::End(_) => fenced.with_trigger(Trigger::EndRun(RunEnd::Await(PendingAction::new(
            "q".parse().unwrap(),
            ActionKind::Approval,
            "?",
        )))),
        Move::Lost => plain.with_trigger(Trigger::LeaseExpired(driver.now().epoch)),
        Move::Interrupt => plain.with_event(NewEvent::interrupt()),
        Move::Clear => plain.with_event(NewEvent::history_cleared()),
        Move::Suspend => plain.with_trigger(Trigger::Suspend(Reason::UserPaused)),
        Move::Resume => plain.with_trigger(Trigger::Resume),
        Move::Patch(key, Some(value)) => {
            plain.with_event(NewEvent::updated(Patch::new().with_label(key, value)))
        }
        Move::Patch(key, None) => plain.with_event(NewEvent::updated(Patch::new().without_label(key))),
        Move::Timer(key, at) => plain
            .with_event(NewEvent::timer_scheduled(Timer::new(format!("w{key}"), Timestamp::from_micros(at)))),
        Move::Unwake(key) => plain.with_event(NewEvent::timer_cancelled(format!("w{key}"))),
        Move::RunLost(limit) => {
            plain.with_trigger(Trigger::run_lost(driver.now().epoch, driver.effects.now(), limit))
        }
        Move::Custom(text) => {
            plain.with_event(NewEvent::new("x.test.y".parse().unwrap(), RawJson::of(&text).unwrap()))
        }
        Move::Archive => plain.with_trigger(Trigger::Archive),
        Move::Unarchive => plain.with_trigger(Trigger::Unarchive),
        Move::Fail => plain.with_trigger(Trigger::Fail(failure)),
        Move::Recover => plain.with_trigger(Trigger::ClearFailure),
        Move::Pair => fenced
            .with_event(NewEvent::tool_use(call("pair"), "t", json("{}")))
            .with_event(NewEvent::tool_result(call("pair"), ToolOutcome::Ok, json("1"))),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Whatever is asked of a session, its log folds to the record that was kept step by step, also
    /// after a way through text; calls have at most one result; sequence numbers have no gap; a lease lives only in
    /// states that may hold one; and what waits agrees with what is counted.
    #[test]
    fn the_fold_equals_the_record(commits in prop::collection::vec(prop::collection::vec(moves(), 1..4), 1..60)) {
        let mut driver = Driver::created();
        for next in &commits {
            let mut parts = next.iter().map(|next| commit_of(&driver, next));
            let first = parts.next().unwrap();
            let commit = parts.flat_map(|part| part.steps.to_vec()).fold(first, |commit, step| match step {
                Step::Event(event) => commit.with_event(event),
                Step::Trigger(trigger) => commit.with_trigger(trigger),
                other => panic!("{other:?}"),
            });
            let _ = driver.commit(commit);
            let now = driver.now();
            prop_assert!(now.lease.is_none() || now.status.state == SessionState::Running, "{next:?}: {now:?}");
            prop_assert_eq!(now.lease.is_some(), now.status.state == SessionState::Running);
            prop_assert_eq!(now.inputs_open > 0, now.last_input > now.inputs_done_through, "{:?}", next);
            prop_assert_eq!(now.status.state == SessionState::RequiresAction,
                now.action.is_some() && !matches!(now.status.state, SessionState::Suspended | SessionState::Archived));
            prop_assert!(now.status.state != SessionState::Queued || now.has_open_work()
                || matches!(now.status.reason, Reason::ActionResolved | Reason::ActionTimedOut), "{next:?}: {now:?}");
            prop_assert!(now.status.state != SessionState::Idle || !now.has_open_work(), "{next:?}: {now:?}");
        }
        let lines: Vec<_> = driver.log.iter().map(Event::to_json).collect();
        let read: Vec<_> = lines.iter().map(|line| Event::from_json(line).unwrap()).collect();
        prop_assert_eq!(&read, &driver.log);
        prop_assert_eq!(fold(driver.id, &read), driver.now().clone());
        prop_assert_eq!(&SessionRecord::from_json(&driver.now().to_json()).unwrap(), driver.now());
        let numbers: Vec<_> = driver.log.iter().map(|event| event.seq.get()).collect();
        prop_assert_eq!(numbers, (1..=driver.log.len() as u64).collect::<Vec<_>>());
        prop_assert!(lines.iter().all(|line| !line.contains('\n')));

        let mut open = std::collections::BTreeSet::new();
        for event in &driver.log {
            match event.decode().unwrap() {
                EventPayload::AgentToolUse(call) => prop_assert!(open.insert(call.call)),
                EventPayload::AgentToolResult(result) => prop_assert!(open.remove(&result.call)),
                _ => {}
            }
        }
        prop_assert_eq!(open.len(), driver.now().open_calls.len());
    }
}
