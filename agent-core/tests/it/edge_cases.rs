//! Corners of `plan` and the fold that other tests go by: what is refused, what stays, what is written and what is not.

use crate::common::{Driver, call, json};
use agent_core::clock::Effects;
use agent_core::commit::{Commit, Committed, LeaseRequest, RunEnd, Trigger};
use agent_core::event::{
    Decision, DocumentWritten, EventPayload, EventType, NewEvent, SpanCompleted, SpanStarted,
    ToolConfirmation, ToolOutcome, ToolUse,
};
use agent_core::json::RawJson;
use agent_core::model::{
    Access, ActionKind, Actor, Attributes, ExternalHandle, Failure, Patch, PendingAction, Role, Status,
    Timer, Title, ToolPayloads, Workspace,
};
use agent_core::session::{NewSession, RECORD_CONTENT_MAX_BYTES, SessionRecord, TIMERS_MAX};
use agent_core::state::{Reason, SessionState};
use agent_core::store::{EventPage, ReadEvents};
use agent_core::{ErrorKind, Plan, Result, Seq, Timestamp, WorkspaceId, plan};

fn end(driver: &mut Driver) {
    driver.run_trigger(Trigger::EndRun(RunEnd::Completed(Reason::EndTurn))).unwrap();
}

/// A timer that is due.
fn timer(key: &str) -> NewEvent {
    NewEvent::timer_scheduled(Timer::new(key, Timestamp::UNIX_EPOCH))
}

/// A tombstone keeps what its session was, when, and where it came from; and no word that anybody wrote.
#[test]
fn tombstone_keeps_metadata_but_no_text() {
    const WORD: &str = "password";
    let mut driver = Driver::nothing();
    let patch = Patch::new()
        .with_title(Title::by_user(WORD))
        .with_label(WORD, WORD)
        .with_metadata(WORD, json("{\"note\":\"password\"}"))
        .with_reference(WORD, WORD)
        .with_handle(WORD, ExternalHandle::new(WORD, WORD).with_note(WORD))
        .mount(WORD, Access::Read)
        .pin(WORD);
    let creator = Actor::named(Role::User, WORD).unwrap();
    let create = Commit::create(&driver.effects, driver.new_session().with_patch(&patch)).with_actor(creator);
    driver.commit(create).unwrap();
    let begin = LeaseRequest::new(WORD, driver.effects.new_run_id());
    let written = DocumentWritten::after(None, WORD, Some(WORD.to_owned()));
    let begin = driver
        .seal()
        .with_event(NewEvent::user_message(WORD))
        .with_event(timer(WORD))
        .with_event(NewEvent::document_written(written))
        .with_trigger(Trigger::BeginRun(begin));
    driver.commit(begin).unwrap();
    let end = driver
        .seal_fenced()
        .with_event(NewEvent::tool_use(call(WORD), "sudo", json("{}")))
        .with_trigger(Trigger::EndRun(RunEnd::Failed(Failure::new(Reason::RunError, WORD))));
    driver.commit(end).unwrap();
    assert!(driver.now().to_json().matches(WORD).count() > 10, "{}", driver.now().to_json());
    driver.trigger(Trigger::Delete(Reason::UserDeleted)).unwrap();
    let (deleted, left) = (driver.now(), driver.now().tombstone());
    assert!(!left.to_json().contains(WORD), "{}", left.to_json());
    let kept = |of: &SessionRecord| {
        let lineage = (of.origin, of.depth, of.lineage.clone(), of.workspace);
        let times = (of.created_at, of.updated_at, of.last_active_at, of.ended_at);
        (of.id, of.head, of.status, lineage, times, of.recent.clone(), of.epoch)
    };
    assert_eq!(kept(&left), kept(deleted));
    assert_eq!((left.creator, left.attributes), (Actor::USER, Attributes::default()));
}

/// A cleared session has had the runs that it had, and no messages.
#[test]
fn clear_resets_message_counts_but_not_runs() {
    let mut driver = Driver::created();
    driver.prompt();
    end(&mut driver);
    driver.event(NewEvent::history_cleared()).unwrap();
    let counts = driver.now().counts;
    assert_eq!((counts.runs, counts.user), (1, 0));
    assert_eq!(driver.status(), Status::new(SessionState::Idle, Reason::Fresh));
}

/// A session that goes on after a run says that its turn had ended; one that never ran is fresh.
#[test]
fn resumed_session_is_fresh_only_if_it_never_ran() {
    for ran in [false, true] {
        let mut driver = Driver::created();
        if ran {
            driver.prompt();
            end(&mut driver);
        }
        driver.trigger(Trigger::Suspend(Reason::UserPaused)).unwrap();
        driver.trigger(Trigger::Resume).unwrap();
        let reason = if ran { Reason::EndTurn } else { Reason::Fresh };
        assert_eq!(driver.status(), Status::new(SessionState::Idle, reason));
        driver.event(NewEvent::user_message("x")).unwrap();
        driver.event(NewEvent::history_cleared()).unwrap();
        assert_eq!(driver.status(), Status::new(SessionState::Idle, Reason::Fresh));
        assert_eq!(driver.folded(), *driver.now());
    }
}

/// A timer that is scheduled by the commit that begins a run is done by that run, whatever comes meanwhile.
#[test]
fn timer_in_the_begin_commit_belongs_to_that_run() {
    let mut driver = Driver::created();
    let begin = driver.seal().with_event(timer("a")).with_trigger(Trigger::BeginRun(driver.lease_request()));
    driver.commit(begin).unwrap();
    driver.event(timer("late")).unwrap();
    end(&mut driver);
    assert_eq!(driver.now().timers.iter().map(|timer| timer.key.as_str()).collect::<Vec<_>>(), ["late"]);
    // Where nothing came meanwhile nothing is said of it.
    let begin = driver.seal().with_trigger(Trigger::BeginRun(driver.lease_request()));
    driver.commit(begin).unwrap();
    end(&mut driver);
    assert_eq!(driver.now().timers, []);
    let last = driver.log.last().unwrap().to_json();
    assert!(last.contains("timers_done") && !last.contains("timers_seen"), "{last}");
}

/// Cancelling the last timer leaves a session as it is that has something else to do, or is at work.
#[test]
fn cancelling_the_last_timer_keeps_other_work() {
    let mut running = Driver::created();
    running.prompt();
    running.event(timer("w")).unwrap();
    let before = running.status();
    running.event(NewEvent::timer_cancelled("w")).unwrap();
    assert_eq!((running.status(), running.now().lease.is_some()), (before, true));

    let mut answered = Driver::created();
    answered.prompt();
    let action = PendingAction::new("a".parse().unwrap(), ActionKind::Approval, "?");
    answered.run_trigger(Trigger::EndRun(RunEnd::Await(action))).unwrap();
    answered.event(timer("w")).unwrap();
    let answer = ToolConfirmation::new("a".parse().unwrap(), Decision::Allow);
    answered.event(NewEvent::of(&EventPayload::UserToolConfirmation(answer))).unwrap();
    assert_eq!(answered.status(), Status::new(SessionState::Queued, Reason::ActionResolved));
    answered.event(NewEvent::timer_cancelled("w")).unwrap();
    assert_eq!(answered.status(), Status::new(SessionState::Queued, Reason::ActionResolved));
}

/// Cancelling a timer of a session whose failed run is to be tried again leaves that as it is.
#[test]
fn cancelling_a_timer_keeps_the_retry() {
    let mut driver = Driver::created();
    driver.prompt();
    let failure = Failure::new(Reason::RunError, "x");
    driver.run_trigger(Trigger::EndRun(RunEnd::retry(failure, Timestamp::MAX, 3))).unwrap();
    driver.event(timer("w")).unwrap();
    let before = driver.now().clone();
    driver.event(NewEvent::timer_cancelled("w")).unwrap();
    let now = driver.now();
    assert_eq!((now.attempts, now.ready_at, now.status), (1, Some(Timestamp::MAX), before.status));
}

/// A run that ends well takes back the failure before it and the count of attempts, and speaks of them only where there
/// was one.
#[test]
fn successful_run_clears_the_previous_failure() {
    let mut driver = Driver::created();
    driver.prompt();
    end(&mut driver);
    let last = driver.log.last().unwrap().to_json();
    assert!(!last.contains("attempts") && !last.contains("failure"), "{last}");
    driver.prompt();
    let failure = Failure::new(Reason::RunError, "x");
    driver.run_trigger(Trigger::EndRun(RunEnd::retry(failure, Timestamp::UNIX_EPOCH, 3))).unwrap();
    assert_eq!((driver.now().attempts, driver.now().failure.is_some()), (1, true));
    let begin = driver.seal().with_trigger(Trigger::BeginRun(driver.lease_request()));
    driver.commit(begin).unwrap();
    end(&mut driver);
    assert_eq!((driver.now().attempts, driver.now().failure.clone()), (0, None));
}

/// The end of a failed run holds its failure, also if the run before failed with the same text.
#[test]
fn each_failed_run_records_its_failure() {
    let mut driver = Driver::created();
    let failure = Failure::new(Reason::RunError, "the model is down");
    for _ in 0..2 {
        driver.prompt();
        driver.run_trigger(Trigger::EndRun(RunEnd::Failed(failure.clone()))).unwrap();
        let change = driver.log.last().unwrap().transition().unwrap().unwrap();
        assert_eq!(change.failure, Some(Some(failure.clone())));
    }
}

/// A workspace comes back from its JSON with its settings, and speaks of none where there are none.
#[test]
fn workspace_round_trips_through_json() {
    let effects = Effects::default();
    let bare = Workspace::new(WorkspaceId::DEFAULT, "n", effects.new_session_id(), effects.now());
    let set = bare.clone().with_setting("x", json("1e400"));
    for (workspace, speaks) in [(bare, false), (set, true)] {
        let text = workspace.to_json();
        assert_eq!(text.contains("settings"), speaks, "{text}");
        assert_eq!(Workspace::from_json(&text).unwrap(), workspace);
    }
}

/// A field that is there twice would be written again in place of the one that was read.
#[test]
fn records_with_a_field_twice_are_refused() {
    let effects = Effects::default();
    let workspace = Workspace::new(WorkspaceId::DEFAULT, "n", effects.new_session_id(), effects.now());
    let twice = |text: &str, field: &str, [one, two]: [&str; 2]| {
        format!("{},\"{field}\":{one},\"{field}\":{two}}}", text.strip_suffix('}').unwrap())
    };
    let mut whole = workspace.clone().with_setting("theme", RawJson::parse("1").unwrap());
    (whole.provider, whole.description) = (Some("p".into()), Some("d".into()));
    whole.creator = Some(Actor::SYSTEM);
    let json: std::collections::BTreeMap<String, RawJson> = serde_json::from_str(&whole.to_json()).unwrap();
    assert!(json.len() >= 11, "each own field is there: {json:?}");
    for field in json.keys() {
        // The record has the field already.
        let text = format!("{},\"{field}\":null}}", whole.to_json().strip_suffix('}').unwrap());
        let error = Workspace::from_json(&text).unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::Corrupt, "{field}");
        assert_eq!(error.to_string(), format!("the field {field} is there twice"));
        let mut hidden = workspace.clone();
        hidden.extra.insert(field.as_str(), RawJson::parse("null").unwrap());
        let refused = hidden.check().unwrap_err();
        assert_eq!(*refused.kind(), ErrorKind::InvalidInput, "{field}");
        assert!(refused.to_string().contains(field.as_str()), "{refused}");
    }
    let record = Driver::created().now().to_json();
    let error = SessionRecord::from_json(&twice(&record, "depth", ["0", "3"])).unwrap_err();
    assert_eq!((error.kind(), &*error.to_string()), (&ErrorKind::Corrupt, "the field depth is there twice"));
    let unknown = twice(&record, "later", ["1", "2"]);
    assert_eq!(SessionRecord::from_json(&unknown).unwrap().to_json(), unknown);
}

/// A patch is empty where it changes nothing: what a session keeps of its configuration is written where it differs.
#[test]
fn patch_is_empty_only_if_it_changes_nothing() {
    assert!(Patch::new().is_empty());
    assert!(!Patch::new().with_title(Title::by_user("x")).is_empty());
    assert!(!Patch::new().with_tool_payloads(ToolPayloads::Store).is_empty());
}

/// A span is begun once and ended once.
#[test]
fn spans_are_begun_and_ended_once() {
    let mut driver = Driver::created();
    let started = NewEvent::of(&EventPayload::SpanStarted(SpanStarted::new("s".parse().unwrap(), "step")));
    let completed =
        NewEvent::of(&EventPayload::SpanCompleted(SpanCompleted::new("s".parse().unwrap(), ToolOutcome::Ok)));
    let refused = |done: Result<Committed>| *done.unwrap_err().kind() == ErrorKind::InvalidInput;
    assert!(refused(driver.event(completed.clone())), "it is not begun");
    driver.event(started.clone()).unwrap();
    assert!(refused(driver.event(started.clone())), "it is begun");
    driver.event(completed.clone()).unwrap();
    assert!(refused(driver.event(completed)), "it is ended");
    driver.event(started).unwrap();
}

/// A run waits for a result from outside of the very call that is open, and runs outside.
#[test]
fn run_awaits_only_open_external_calls() {
    for (custom, id, good) in [(true, "c", true), (true, "d", false), (false, "c", false)] {
        let mut driver = Driver::created();
        driver.prompt();
        let use_ = ToolUse::new(call("c"), "t", json("1"));
        let body =
            if custom { EventPayload::AgentCustomToolUse(use_) } else { EventPayload::AgentToolUse(use_) };
        let commit = driver.seal_fenced().with_event(NewEvent::of(&body));
        driver.commit(commit).unwrap();
        let action = PendingAction::new(id.parse().unwrap(), ActionKind::ToolResult, "");
        let awaited = driver.run_trigger(Trigger::EndRun(RunEnd::Await(action)));
        assert_eq!(awaited.is_ok(), good, "{custom} {id}");
    }
}

/// A question without choices is answered without one; the refusal says so.
#[test]
fn question_without_choices_refuses_a_choice() {
    for (choices, expected) in [(vec![], "has no choices"), (vec!["red".to_owned()], "one of: red")] {
        let mut driver = Driver::created();
        driver.prompt();
        let action =
            PendingAction::new("a".parse().unwrap(), ActionKind::Approval, "?").with_choices(choices);
        driver.run_trigger(Trigger::EndRun(RunEnd::Await(action))).unwrap();
        let mut answer = ToolConfirmation::new("a".parse().unwrap(), Decision::Allow);
        answer.choice = Some("blue".to_owned());
        let refused = driver.event(NewEvent::of(&EventPayload::UserToolConfirmation(answer))).unwrap_err();
        assert_eq!(*refused.kind(), ErrorKind::InvalidInput);
        assert!(refused.to_string().contains(expected), "{refused}");
    }
}

/// A child says once that it failed, and nothing when it goes on without having run.
#[test]
fn child_reports_its_failure_once() {
    let parent = Driver::created();
    let mut child = Driver::nothing();
    let new = NewSession::child(child.id, parent.now());
    child.commit(Commit::create(&child.effects, new)).unwrap();
    assert_eq!(child.now().to_report(), None, "it did nothing yet");
    child.prompt();
    end(&mut child);
    let report = |child: &mut Driver, state: SessionState| {
        let outcome = child.now().to_report().unwrap();
        assert_eq!(outcome.state, state);
        child.event(NewEvent::of(&EventPayload::SessionReported(outcome))).unwrap();
        assert_eq!(child.now().to_report(), None, "{state:?} was told");
    };
    report(&mut child, SessionState::Idle);
    child.trigger(Trigger::Fail(Failure::new(Reason::RunError, "x"))).unwrap();
    report(&mut child, SessionState::Failed);
    child.trigger(Trigger::ClearFailure).unwrap();
    assert_eq!((child.status().state, child.now().to_report()), (SessionState::Idle, None));
}

/// Contract 6: of a log with a hole, or with an event twice, no record is made.
#[test]
fn log_with_a_gap_yields_no_record() {
    let mut driver = Driver::created();
    driver.event(NewEvent::user_message("x")).unwrap();
    let next = |head: u64, seq: u64| {
        let (mut session, mut event) = (driver.now().clone(), driver.log.last().unwrap().clone());
        (session.head, event.seq) = (Seq::new(head), Seq::new(seq));
        session.apply(&event).map_err(|error| error.kind().clone())
    };
    assert_eq!(next(2, 3), Ok(()));
    for (head, seq) in [(2, 1), (2, 2), (2, 4), (2, 5), (u64::MAX, u64::MAX)] {
        assert_eq!(next(head, seq), Err(ErrorKind::Corrupt), "{seq} behind {head}");
    }
}

/// Contract 4: a record remembers so many commits, however many events each has.
#[test]
fn recent_commits_are_remembered_at_any_size() {
    let mut driver = Driver::created();
    let first = driver.seal().with_event(NewEvent::user_message("first"));
    driver.commit(first.clone()).unwrap();
    let many = driver.seal().with_events(vec![NewEvent::agent_message("x"); 100]);
    let done = driver.commit(many.clone()).unwrap();
    assert!(driver.commit(first).unwrap().replayed);
    let again = driver.commit(many).unwrap();
    assert_eq!((again.replayed, again.first, again.last), (true, done.first, done.last));
}

/// Where a change comes with no event of its own, the event that carries it says so.
#[test]
fn trigger_without_event_writes_a_status_event() {
    let mut driver = Driver::created();
    driver.trigger(Trigger::Suspend(Reason::UserPaused)).unwrap();
    let last = driver.log.last().unwrap();
    assert!(matches!(last.decode().unwrap(), EventPayload::SessionStatusChanged(_)), "{last:?}");
}

/// Contract 5: only the run itself takes up inputs and ends, whatever it ends with.
#[test]
fn only_the_run_claims_its_inputs_and_ends() {
    let mut driver = Driver::created();
    driver.prompt();
    let failure = || Failure::new(Reason::RunError, "x");
    let action = PendingAction::new("a".parse().unwrap(), ActionKind::Approval, "?");
    let ends = [
        RunEnd::Completed(Reason::EndTurn),
        RunEnd::Await(action),
        RunEnd::Interrupted,
        RunEnd::retry(failure(), Timestamp::MAX, 3),
        RunEnd::Failed(failure()),
    ];
    for trigger in ends.map(Trigger::EndRun).into_iter().chain([Trigger::ClaimInputs]) {
        let refused = driver.trigger(trigger.clone()).unwrap_err();
        assert_eq!(*refused.kind(), ErrorKind::InvalidInput, "{trigger:?}");
    }
    end(&mut driver);
}

/// Contract 8: what fills a record may take just so many bytes.
#[test]
fn record_can_be_filled_to_the_last_byte() {
    let filled = |bytes: usize| {
        let mut driver = Driver::created();
        let patch = Patch::new().with_metadata("m", json(&format!("\"{}\"", "x".repeat(bytes))));
        driver.event(NewEvent::updated(patch)).map(|_| driver)
    };
    let one = filled(1).unwrap();
    let now = one.now();
    let open = (&now.open_calls, &now.open_spans, &now.timers, &now.action);
    let size = serde_json::to_string(&(&now.attributes, open, &now.documents, &now.extra)).unwrap().len();
    let most = 1 + RECORD_CONTENT_MAX_BYTES - size;
    assert!(filled(most - 1).is_ok() && filled(most).is_ok());
    for more in [1, 2] {
        assert_eq!(*filled(most + more).unwrap_err().kind(), ErrorKind::LimitExceeded);
    }
}

/// A page that a store collects has just what was asked for and fits, and one event at least.
#[test]
fn collected_page_holds_what_fits() {
    let mut driver = Driver::created();
    let same = driver.seal().with_events(vec![NewEvent::agent_message("x"); 4]);
    driver.commit(same).unwrap();
    let log = &driver.log[1..];
    let (one, first) = (log[0].size_bytes(), log[0].seq);
    assert!(log.iter().all(|event| event.size_bytes() == one));
    let collect = |read: ReadEvents| {
        let page = EventPage::collect(&read, log.iter().cloned().map(Ok)).unwrap();
        (page.events.len(), page.next.map(|next| next.after))
    };
    let all = ReadEvents::first(10);
    assert_eq!(collect(all.clone()), (4, None));
    assert_eq!(collect(all.clone().with_after(first)), (3, None));
    assert_eq!(collect(ReadEvents::first(3)), (3, Some(log[2].seq)));
    for (bytes, count) in [(1, 1), (one, 1), (2 * one - 1, 1), (2 * one, 2), (3 * one, 3), (3 * one + 1, 3)] {
        let page = collect(all.clone().with_max_bytes(bytes));
        assert_eq!(page, (count, Some(log[count - 1].seq)), "{bytes} bytes");
    }
    assert_eq!(collect(all.with_max_bytes(4 * one)), (4, None));
}

/// What the library writes itself nobody else writes, and where a session is over nobody says anything more.
#[test]
fn reserved_events_and_ended_sessions_are_refused() {
    let mut driver = Driver::created();
    for kind in [EventType::SESSION_STATUS_CHANGED, "session.teleported".parse().unwrap()] {
        let refused = driver.event(NewEvent::new(kind, json("{}"))).unwrap_err();
        assert_eq!(*refused.kind(), ErrorKind::InvalidInput);
        assert!(refused.to_string().contains("by the library only"), "{refused}");
    }
    driver.trigger(Trigger::Terminate(Reason::UserDeleted)).unwrap();
    for event in [NewEvent::agent_message("x"), NewEvent::system_prompt("x")] {
        let refused = driver.event(event).unwrap_err();
        assert!(matches!(refused.kind(), ErrorKind::InvalidTransition { .. }), "{refused}");
    }
}

/// Contract 8: a session that is over a limit, since another version had it higher, goes on; what is over grows no more.
#[test]
fn session_over_a_limit_stays_usable() {
    let mut driver = Driver::created();
    let mut over = driver.now().clone();
    over.timers = (0..TIMERS_MAX + 2).map(|n| Timer::new(n.to_string(), Timestamp::MAX)).collect();
    for n in 0..60 {
        over.attributes.labels.insert(format!("{n:064}"), "v".repeat(512));
    }
    driver.session = Some(over);
    driver.event(NewEvent::user_message("x")).unwrap();
    let same = Patch::new().with_label(format!("{:064}", 1), "w".repeat(512));
    driver.event(NewEvent::updated(same)).unwrap();
    driver.event(NewEvent::timer_cancelled("0")).unwrap();
    let more = [timer("more"), NewEvent::updated(Patch::new().with_label("l", "v"))];
    for event in more {
        assert_eq!(*driver.event(event).unwrap_err().kind(), ErrorKind::LimitExceeded);
    }
}

/// A commit to be restored has events.
#[test]
fn restoring_an_empty_commit_is_refused() {
    let driver = Driver::created();
    let commit = driver.seal().with_trigger(Trigger::Restore(Vec::new()));
    assert!(plan(driver.session.as_ref(), &commit).is_err());
    let commit = driver.seal().with_event(NewEvent::user_message("x"));
    assert!(matches!(plan(driver.session.as_ref(), &commit), Ok(Plan::Write { .. })));
}

/// What was said elsewhere is added in order and waits for no run; nothing is added while something waits.
#[test]
fn imported_messages_wait_for_no_run() {
    let mut driver = Driver::created();
    let events = || vec![NewEvent::user_message("hello"), NewEvent::agent_message("hi")];
    driver.trigger(Trigger::ImportEvents(events())).unwrap();
    let now = driver.now();
    assert_eq!((now.counts.user, now.counts.agent, now.head), (1, 1, Seq::new(3)));
    assert_eq!((now.last_input, now.inputs_done_through, now.inputs_open), (Seq::new(2), Seq::new(2), 0));
    assert_eq!(now.status.state, SessionState::Idle);
    // Each may have the time that it had elsewhere; no other event may.
    let at: Timestamp = "2001-02-03T04:05:06Z".parse().unwrap();
    let timed = || vec![NewEvent::user_message("once").with_at(at), NewEvent::agent_message("now")];
    let done = driver.trigger(Trigger::ImportEvents(timed())).unwrap();
    assert_eq!((driver.now().updated_at > at, done.last), (true, Seq::new(5)));
    assert_eq!(*driver.trigger(Trigger::Replace(timed())).unwrap_err().kind(), ErrorKind::InvalidInput);
    let error = driver.event(NewEvent::user_message("never").with_at(at)).unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::InvalidInput);
    driver.event(NewEvent::user_message("and now?")).unwrap();
    assert_eq!(*driver.trigger(Trigger::ImportEvents(events())).unwrap_err().kind(), ErrorKind::InvalidInput);
}

/// A run that was asked to end and be set aside, and fails: the session is set aside if it would be tried again, and failed if not.
#[test]
fn failed_run_suspends_only_if_it_can_retry() {
    for (limit, state) in [(3, SessionState::Suspended), (1, SessionState::Failed)] {
        let mut driver = Driver::created();
        driver.prompt();
        driver.trigger(Trigger::Suspend(Reason::UserPaused)).unwrap();
        let failure = Failure::new(Reason::RunError, "x");
        driver.run_trigger(Trigger::EndRun(RunEnd::retry(failure, Timestamp::UNIX_EPOCH, limit))).unwrap();
        assert_eq!(driver.now().status.state, state, "{limit}");
    }
}
