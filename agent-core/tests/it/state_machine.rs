//! The state machine against a matrix that was written by hand from its description, and against the five systems
//! whose states it takes in.

use crate::common::{Driver, call, json};
use agent_core::clock::Effects;
use agent_core::commit::{Commit, Precondition, RunEnd, Trigger};
use agent_core::event::{
    Decision, EventPayload, EventType, NewEvent, ToolConfirmation, ToolOutcome, ToolResult, ToolUse,
};
use agent_core::model::{ActionKind, Failure, PendingAction, Status, Timer};
use agent_core::state::{Reason, SessionState, TriggerKind, target};
use agent_core::{Epoch, ErrorKind, WriteOutcome};

/// One letter a state.
fn letter(state: SessionState) -> char {
    match state {
        SessionState::Initializing => 'n',
        SessionState::Idle => 'i',
        SessionState::Queued => 'q',
        SessionState::Running => 'r',
        SessionState::RequiresAction => 'a',
        SessionState::Suspended => 's',
        SessionState::Failed => 'f',
        SessionState::Archived => 'h',
        SessionState::Terminated => 't',
        SessionState::Deleted => 'd',
        _ => '?',
    }
}

const STATES: &[SessionState] = &[
    SessionState::Initializing,
    SessionState::Idle,
    SessionState::Queued,
    SessionState::Running,
    SessionState::RequiresAction,
    SessionState::Suspended,
    SessionState::Failed,
    SessionState::Archived,
    SessionState::Terminated,
    SessionState::Deleted,
];

/// Where each trigger leads from each state of [`STATES`], as [`in_state`] makes them: a letter for the state after,
/// `.` for refused, `b` for refused with the holder's name, `c` for a conflict since no lease is held, `=` for a success that writes nothing. In `Queued` and `Running` one input is open; the others
/// have none.
const MATRIX: &[(TriggerKind, &str)] = &[
    //                             niqrasfhtd
    (TriggerKind::Prepare, /*   */ "n........."),
    (TriggerKind::Ready, /*     */ "i........."),
    (TriggerKind::Input, /*     */ "nqqras...."),
    (TriggerKind::ScheduleTimer, /**/ "nqqras...."),
    (TriggerKind::CancelTimer, /**/ "=======..."),
    (TriggerKind::BeginRun, /*  */ "..rb......"),
    (TriggerKind::ClaimInputs, /*      */ "...=......"),
    (TriggerKind::EndRun, /*    */ "...i......"),
    (TriggerKind::AwaitAnswer, /**/ "...a......"),
    (TriggerKind::EndInterrupted, "...i......"),
    (TriggerKind::EndRetry, /*  */ "...q......"),
    (TriggerKind::EndFailed, /* */ "...i......"),
    (TriggerKind::LeaseExpired, "c..q......"),
    (TriggerKind::ResolveAction, "....q....."),
    (TriggerKind::ActionTimeout, "....q....."),
    (TriggerKind::Interrupt, /* */ "..iri....."),
    (TriggerKind::Suspend, /*   */ ".ssrs=...."),
    (TriggerKind::ForceSuspend, ".ssss=...."),
    (TriggerKind::Resume, /*    */ ".....i...."),
    (TriggerKind::Fail, /*      */ "ffffff...."),
    (TriggerKind::ClearFailure, /*   */ "......i..."),
    (TriggerKind::Archive, /*   */ "hhh.hhh=h."),
    (TriggerKind::Unarchive, /* */ ".......i.."),
    (TriggerKind::Terminate, /* */ "tttttttt=."),
    (TriggerKind::Delete, /*    */ "ddddddddd="),
    (TriggerKind::Clear, /*     */ ".ii..sf..."),
    (TriggerKind::Fork, /*      */ "niqrasfht."),
    (TriggerKind::Fence, /*     */ "niqqasfht."),
];

/// A session brought into `state` by legal commits.
fn in_state(state: SessionState) -> Driver {
    let mut driver = Driver::created();
    match state {
        SessionState::Initializing => return Driver::initializing(),
        SessionState::Idle => {}
        SessionState::Queued => drop(driver.event(NewEvent::user_message("hello")).unwrap()),
        SessionState::Running => drop(driver.prompt()),
        SessionState::RequiresAction => {
            driver.prompt();
            driver.run_trigger(Trigger::EndRun(RunEnd::Await(approval()))).unwrap();
            assert_eq!(driver.now().action.as_ref(), Some(&approval()));
        }
        SessionState::Suspended => drop(driver.trigger(Trigger::Suspend(Reason::UserPaused)).unwrap()),
        SessionState::Failed => {
            drop(driver.trigger(Trigger::Fail(Failure::new(Reason::SystemError, "it broke"))).unwrap());
        }
        SessionState::Archived => drop(driver.trigger(Trigger::Archive).unwrap()),
        SessionState::Terminated => drop(driver.trigger(Trigger::Terminate(Reason::UserEnded)).unwrap()),
        SessionState::Deleted => drop(driver.trigger(Trigger::Delete(Reason::UserDeleted)).unwrap()),
        _ => unreachable!(),
    }
    assert_eq!(driver.now().status.state, state);
    driver
}

fn approval() -> PendingAction {
    PendingAction::new("question-1".parse().unwrap(), ActionKind::Approval, "Shall I?")
}

fn retry(effects: &Effects) -> RunEnd {
    RunEnd::retry(Failure::new(Reason::RunError, "the model was away"), effects.now(), 3)
}

/// The commit by which `trigger` is asked of the session, as a user would send it.
fn ask(driver: &Driver, trigger: TriggerKind) -> Commit {
    let lease = driver.now().lease.clone();
    let plain = driver.seal();
    // What only a run may do carries its fence where there is a run.
    let own = lease.as_ref().map_or(plain.clone(), |lease| plain.clone().with_fence(lease.run, lease.epoch));
    let epoch = lease.as_ref().map_or(Epoch::new(1), |lease| lease.epoch);
    match trigger {
        TriggerKind::Prepare => plain.with_trigger(Trigger::Prepare(driver.lease_request())),
        TriggerKind::Ready => plain.with_trigger(Trigger::Ready),
        TriggerKind::Input => plain.with_event(NewEvent::user_message("more")),
        TriggerKind::ScheduleTimer => plain.with_event(NewEvent::timer_scheduled(Timer::new(
            "later",
            "2030-01-01T00:00:00Z".parse().unwrap(),
        ))),
        TriggerKind::CancelTimer => plain.with_event(NewEvent::timer_cancelled("later")),
        TriggerKind::BeginRun => plain.with_trigger(Trigger::BeginRun(driver.lease_request())),
        TriggerKind::ClaimInputs => own.with_trigger(Trigger::ClaimInputs),
        TriggerKind::EndRun => own.with_trigger(Trigger::EndRun(RunEnd::Completed(Reason::EndTurn))),
        TriggerKind::AwaitAnswer => own.with_trigger(Trigger::EndRun(RunEnd::Await(approval()))),
        TriggerKind::EndInterrupted => own.with_trigger(Trigger::EndRun(RunEnd::Interrupted)),
        TriggerKind::EndRetry => own.with_trigger(Trigger::EndRun(retry(&driver.effects))),
        TriggerKind::EndFailed => {
            own.with_trigger(Trigger::EndRun(RunEnd::Failed(Failure::new(Reason::RunError, "no"))))
        }
        TriggerKind::LeaseExpired => plain.with_trigger(Trigger::LeaseExpired(epoch)),
        TriggerKind::ResolveAction => plain.with_event(NewEvent::of(&EventPayload::UserToolConfirmation(
            ToolConfirmation::new(approval().id, Decision::Allow),
        ))),
        TriggerKind::ActionTimeout => plain.with_trigger(Trigger::ActionTimeout(approval().id)),
        TriggerKind::Interrupt => plain.with_event(NewEvent::interrupt()),
        TriggerKind::Suspend => plain.with_trigger(Trigger::Suspend(Reason::UserPaused)),
        TriggerKind::ForceSuspend => plain.with_trigger(Trigger::ForceSuspend(Reason::UserPaused)),
        TriggerKind::Fence => plain.with_trigger(Trigger::Fence),
        TriggerKind::Resume => plain.with_trigger(Trigger::Resume),
        TriggerKind::Fail => plain.with_trigger(Trigger::Fail(Failure::new(Reason::SystemError, "it broke"))),
        TriggerKind::ClearFailure => plain.with_trigger(Trigger::ClearFailure),
        TriggerKind::Archive => plain.with_trigger(Trigger::Archive),
        TriggerKind::Unarchive => plain.with_trigger(Trigger::Unarchive),
        TriggerKind::Terminate => plain.with_trigger(Trigger::Terminate(Reason::UserEnded)),
        TriggerKind::Delete => plain.with_trigger(Trigger::Delete(Reason::UserDeleted)),
        // A session that waits for an answer cannot be cleared before it is interrupted.
        TriggerKind::Clear => plain.with_event(NewEvent::history_cleared()),
        _ => unreachable!("{trigger}"),
    }
}

/// Every trigger in every state does what the matrix says, or is refused with the state and the
/// trigger in the error, and then changes nothing.
#[test]
fn every_state_and_trigger_follows_the_matrix() {
    let mut pairs = 0;
    for (trigger, row) in MATRIX {
        for (state, expected) in STATES.iter().zip(row.chars()) {
            pairs += 1;
            let place = format!("{trigger} in {state}");
            let in_table = target(*state, *trigger);
            assert_eq!(in_table.is_some(), !".b".contains(expected), "{place}: the table says {in_table:?}");
            if *trigger == TriggerKind::Fork {
                continue;
            }
            let mut driver = in_state(*state);
            let events = driver.log.len();
            let commit = ask(&driver, *trigger);
            match (driver.commit(commit), expected) {
                (Ok(_), '=') => assert_eq!(driver.log.len(), events, "{place} writes nothing"),
                (Ok(done), _) => {
                    assert_eq!(
                        letter(done.session.status.state),
                        expected,
                        "{place} came to {}",
                        done.session.status
                    );
                    assert!(driver.log.len() > events, "{place} is recorded");
                    assert_eq!(driver.folded(), *driver.now(), "{place}: the log says the same");
                }
                (Err(error), 'b') => {
                    assert_eq!(*error.kind(), ErrorKind::Busy { holder: "the test".into() }, "{place}");
                }
                (Err(error), 'c') => {
                    assert_eq!(
                        *error.kind(),
                        ErrorKind::Conflict { head: Some(driver.now().head) },
                        "{place}"
                    );
                }
                (Err(error), '.') if *state == SessionState::Deleted => {
                    assert_eq!(*error.kind(), ErrorKind::Deleted, "{place}");
                }
                (Err(error), '.') => {
                    let refused = ErrorKind::InvalidTransition { from: *state, trigger: *trigger };
                    assert_eq!(*error.kind(), refused, "{place}: {error}");
                    assert_eq!(error.write_outcome(), WriteOutcome::NotApplied);
                }
                (Err(error), _) => panic!("{place} should lead to {expected}: {error}"),
            }
        }
    }
    assert_eq!(
        pairs,
        (TriggerKind::ALL.len() - 2) * STATES.len(),
        "all triggers but Create and Newer, all states"
    );
}

/// A session that does not exist can only be created, and one that exists cannot.
#[test]
fn only_a_missing_session_can_be_created() {
    let mut driver = Driver::nothing();
    let commit = driver.seal().with_precondition(Precondition::MustNotExist).with_trigger(Trigger::Ready);
    assert_eq!(*driver.commit(commit).unwrap_err().kind(), ErrorKind::InvalidInput);
    let commit = driver.seal().with_event(NewEvent::user_message("hello"));
    assert_eq!(*driver.commit(commit).unwrap_err().kind(), ErrorKind::NotFound);
    for state in STATES {
        let mut driver = in_state(*state);
        let commit = Commit::create(&driver.effects, driver.new_session());
        let kind = driver.commit(commit).unwrap_err().kind().clone();
        if *state == SessionState::Deleted {
            assert_eq!(kind, ErrorKind::Deleted);
        } else {
            assert_eq!(kind, ErrorKind::Conflict { head: Some(driver.now().head) });
        }
    }
}

type Drive = fn() -> Driver;

/// Each seed's conditions: its name for it, how a session gets there, and the status that it then has.
const SEEDS: &[(&str, &str, Drive, SessionState, Reason)] = {
    use agent_core::state::{Reason as R, SessionState as S};
    &[
        ("raworc", "init", || in_state(S::Initializing), S::Initializing, R::Fresh),
        ("raworc", "idle", after_turn, S::Idle, R::EndTurn),
        ("raworc", "busy", || in_state(S::Running), S::Running, R::Input),
        ("raworc", "closed", || suspended(R::ResourcesReleased), S::Suspended, R::ResourcesReleased),
        ("raworc", "errored", || failed(R::ResourceError), S::Failed, R::ResourceError),
        ("raworc", "error", || failed(R::SystemError), S::Failed, R::SystemError),
        ("raworc", "deleted", || in_state(S::Deleted), S::Deleted, R::UserDeleted),
        ("raworc v0.1", "INIT", || in_state(S::Initializing), S::Initializing, R::Fresh),
        ("raworc v0.1", "READY", after_turn, S::Idle, R::EndTurn),
        ("raworc v0.1", "BUSY", || in_state(S::Running), S::Running, R::Input),
        ("raworc v0.1", "ERROR", || failed(R::ResourceError), S::Failed, R::ResourceError),
        ("raworc v0.1", "IDLE", || suspended(R::Inactivity), S::Suspended, R::Inactivity),
        ("openboa", "idle", after_turn, S::Idle, R::EndTurn),
        ("openboa", "idle after a failed run", run_failed, S::Idle, R::RunError),
        ("openboa", "running", || in_state(S::Running), S::Running, R::Input),
        ("openboa", "running a timer", woken, S::Running, R::TimerDue),
        ("openboa", "rescheduling, input", || in_state(S::Queued), S::Queued, R::Input),
        ("openboa", "rescheduling, more input", follow_up, S::Queued, R::FollowUp),
        ("openboa", "rescheduling, timer", wake_queued, S::Queued, R::TimerDue),
        ("openboa", "rescheduling, retry", retrying, S::Queued, R::RetryBackoff),
        ("openboa", "requires_action, confirmation", confirming, S::RequiresAction, R::AwaitToolConfirmation),
        ("openboa", "requires_action, custom tool", delivering, S::RequiresAction, R::AwaitToolResult),
        ("openboa", "terminated", || in_state(S::Terminated), S::Terminated, R::UserEnded),
        ("nyqst", "created", || in_state(S::Initializing), S::Initializing, R::Fresh),
        ("nyqst", "active", after_turn, S::Idle, R::EndTurn),
        ("nyqst", "active, running", || in_state(S::Running), S::Running, R::Input),
        ("nyqst", "idle", || suspended(R::Inactivity), S::Suspended, R::Inactivity),
        ("nyqst", "paused", || suspended(R::UserPaused), S::Suspended, R::UserPaused),
        ("nyqst", "closed by the user", || in_state(S::Terminated), S::Terminated, R::UserEnded),
        ("nyqst", "closed by time", expired, S::Terminated, R::Expired),
        ("fleet-rlm", "idle", || in_state(S::Idle), S::Idle, R::Fresh),
        ("fleet-rlm", "executing", || in_state(S::Running), S::Running, R::Input),
        ("fleet-rlm", "awaiting_hitl", || in_state(S::RequiresAction), S::RequiresAction, R::AwaitApproval),
        ("fleet-rlm", "hitl_resolved", resolved, S::Queued, R::ActionResolved),
        ("fleet-rlm", "retrying", retrying, S::Queued, R::RetryBackoff),
        ("fleet-rlm", "completed", after_turn, S::Idle, R::EndTurn),
        ("fleet-rlm", "cancelled", cancelled, S::Idle, R::Interrupted),
        ("fleet-rlm", "stage failed", run_failed, S::Idle, R::RunError),
        ("fleet-rlm", "session failed", || failed(R::RunError), S::Failed, R::RunError),
        ("fleet-rlm", "archived", || in_state(S::Archived), S::Archived, R::UserArchived),
        ("aptove", "new, or after clear", cleared, S::Idle, R::Fresh),
        ("aptove", "after a prompt", after_turn, S::Idle, R::EndTurn),
        ("aptove", "after a prompt, cut", || ended(R::MaxTokens), S::Idle, R::MaxTokens),
        ("aptove", "after a prompt, stopped", || ended(R::StopSequence), S::Idle, R::StopSequence),
        ("aptove", "iteration limit", || ended(R::MaxTurns), S::Idle, R::MaxTurns),
        ("aptove", "is_busy", || in_state(S::Running), S::Running, R::Input),
        ("aptove", "cancelled", cancelled, S::Idle, R::Interrupted),
        ("aptove", "loop error", run_failed, S::Idle, R::RunError),
        ("aptove", "corrupt session.md", || failed(R::StorageCorrupt), S::Failed, R::StorageCorrupt),
        ("aptove", "workspace deleted", || in_state(S::Deleted), S::Deleted, R::UserDeleted),
        ("aptove", "workspace collected", collected, S::Deleted, R::Collected),
    ]
};

fn ended(reason: Reason) -> Driver {
    let mut driver = in_state(SessionState::Running);
    let commit = driver
        .seal_fenced()
        .with_event(NewEvent::agent_message("well"))
        .with_trigger(Trigger::EndRun(RunEnd::Completed(reason)));
    driver.commit(commit).unwrap();
    driver
}

fn after_turn() -> Driver {
    ended(Reason::EndTurn)
}

fn cleared() -> Driver {
    let mut driver = after_turn();
    driver.event(NewEvent::history_cleared()).unwrap();
    driver
}

fn suspended(reason: Reason) -> Driver {
    let mut driver = after_turn();
    driver.trigger(Trigger::Suspend(reason)).unwrap();
    driver
}

fn failed(class: Reason) -> Driver {
    let mut driver = after_turn();
    driver.trigger(Trigger::Fail(Failure::new(class, "it broke"))).unwrap();
    driver
}

fn run_failed() -> Driver {
    let mut driver = in_state(SessionState::Running);
    driver.run_trigger(Trigger::EndRun(RunEnd::Failed(Failure::new(Reason::RunError, "no")))).unwrap();
    driver
}

fn wake_queued() -> Driver {
    let mut driver = after_turn();
    let due = driver.effects.now();
    driver.event(NewEvent::timer_scheduled(Timer::new("look again", due))).unwrap();
    driver
}

fn woken() -> Driver {
    let mut driver = wake_queued();
    let request = driver.lease_request();
    driver.trigger(Trigger::BeginRun(request)).unwrap();
    driver
}

fn follow_up() -> Driver {
    let mut driver = in_state(SessionState::Running);
    driver.event(NewEvent::user_message("and another thing")).unwrap();
    driver.run_trigger(Trigger::EndRun(RunEnd::Completed(Reason::EndTurn))).unwrap();
    driver
}

fn retrying() -> Driver {
    let mut driver = in_state(SessionState::Running);
    let end = retry(&driver.effects);
    driver.run_trigger(Trigger::EndRun(end)).unwrap();
    driver
}

fn awaiting(action: PendingAction, use_: &EventPayload) -> Driver {
    let mut driver = in_state(SessionState::Running);
    let commit = driver
        .seal_fenced()
        .with_event(NewEvent::of(use_))
        .with_trigger(Trigger::EndRun(RunEnd::Await(action)));
    driver.commit(commit).unwrap();
    driver
}

fn confirming() -> Driver {
    awaiting(
        PendingAction::new("call-1".parse().unwrap(), ActionKind::ToolConfirmation, "Delete the file?"),
        &EventPayload::AgentToolUse(ToolUse::new(call("call-1"), "delete", json("{}"))),
    )
}

fn delivering() -> Driver {
    awaiting(
        PendingAction::new("call-1".parse().unwrap(), ActionKind::ToolResult, "Scan the badge"),
        &EventPayload::AgentCustomToolUse(ToolUse::new(call("call-1"), "scan", json("{}"))),
    )
}

fn resolved() -> Driver {
    let mut driver = in_state(SessionState::RequiresAction);
    let answer = ToolConfirmation::new(approval().id, Decision::Allow);
    driver.event(NewEvent::of(&EventPayload::UserToolConfirmation(answer))).unwrap();
    driver
}

fn cancelled() -> Driver {
    let mut driver = in_state(SessionState::Running);
    driver.event(NewEvent::interrupt()).unwrap();
    assert_eq!(driver.now().stop_request, Some(agent_core::model::Request::Cancel));
    driver.run_trigger(Trigger::EndRun(RunEnd::Interrupted)).unwrap();
    driver
}

fn expired() -> Driver {
    let mut driver = after_turn();
    driver.trigger(Trigger::Terminate(Reason::Expired)).unwrap();
    driver
}

fn collected() -> Driver {
    let mut driver = after_turn();
    driver.trigger(Trigger::Delete(Reason::Collected)).unwrap();
    driver
}

/// Every condition of the five systems has a status of its own, is reached by commits, and comes back from
/// the log and from the stored words alone. No two conditions of one system fall together.
#[test]
fn states_of_the_five_source_systems_round_trip() {
    for (seed, name, drive, state, reason) in SEEDS {
        let driver = drive();
        let status = Status::new(*state, *reason);
        assert_eq!(driver.status(), status, "{seed}: {name}");
        assert_eq!(driver.folded().status, status, "{seed}: {name}, from the log");
        let words = (state.as_str(), reason.as_str());
        let back = (SessionState::from_word(words.0), Reason::from_word(words.1));
        assert_eq!(back, (Some(*state), Some(*reason)), "{seed}: {name}, from words");
        let of_seed: Vec<_> = SEEDS.iter().filter(|row| row.0 == *seed).collect();
        let same = of_seed.iter().filter(|row| (row.3, row.4) == (*state, *reason)).count();
        let expected = of_seed.iter().filter(|row| row.1 == *name).count();
        assert_eq!(same, expected, "{seed}: {name} shares {status} with another condition");
    }
}

/// A pause for a confirmation or an outside tool ends with the one matching answer, once.
#[test]
fn only_the_matching_answer_resumes_and_only_once() {
    let confirmation = |id: &str| {
        NewEvent::of(&EventPayload::UserToolConfirmation(ToolConfirmation::new(
            id.parse().unwrap(),
            Decision::Deny,
        )))
    };
    let delivery = |id: &str| {
        NewEvent::of(&EventPayload::UserCustomToolResult(ToolResult::new(
            call(id),
            ToolOutcome::Ok,
            json("\"badge 7\""),
        )))
    };

    let mut driver = confirming();
    for wrong in [confirmation("call-2"), delivery("call-1")] {
        assert_eq!(*driver.event(wrong).unwrap_err().kind(), ErrorKind::InvalidInput);
    }
    driver.event(confirmation("call-1")).unwrap();
    assert_eq!(driver.status(), Status::new(SessionState::Queued, Reason::ActionResolved));
    assert_eq!(driver.now().action, None);
    let again = driver.event(confirmation("call-1")).unwrap_err();
    assert!(matches!(again.kind(), ErrorKind::InvalidTransition { .. }), "{again}");
    assert_eq!(driver.now().open_calls.len(), 1, "the confirmed call is still to be run");
    let request = driver.lease_request();
    driver.trigger(Trigger::BeginRun(request)).unwrap();
    assert_eq!(driver.now().status.state, SessionState::Running);

    let mut driver = delivering();
    assert_eq!(*driver.event(confirmation("call-1")).unwrap_err().kind(), ErrorKind::InvalidInput);
    driver.event(delivery("call-1")).unwrap();
    assert!(driver.now().open_calls.is_empty(), "the delivery is the call's one result");
    assert_eq!(driver.status(), Status::new(SessionState::Queued, Reason::ActionResolved));
}

/// An interrupt clears what is waited for and queued, and asks a run to end.
#[test]
fn interrupt_clears_action_inputs_and_timers() {
    let mut driver = delivering();
    let due = driver.effects.now();
    driver.event(NewEvent::timer_scheduled(Timer::new("w", due))).unwrap();
    driver.event(NewEvent::user_message("are you there?")).unwrap();
    driver.event(NewEvent::interrupt()).unwrap();
    let now = driver.now();
    assert_eq!(now.status, Status::new(SessionState::Idle, Reason::Interrupted));
    assert_eq!((now.action.is_none(), now.inputs_open, now.timers.len()), (true, 0, 0));
    assert!(now.open_calls.is_empty());
    let closed = driver.log.iter().filter(|event| event.kind == EventType::AGENT_TOOL_RESULT).count();
    assert_eq!(closed, 1, "the open call has its one result");
    assert_eq!(driver.folded(), *driver.now());
}

/// Failing keeps class and text, and only an explicit recovery leads on; what was queued is still there.
#[test]
fn failure_is_kept_and_recovered_from_explicitly() {
    let mut driver = in_state(SessionState::Queued);
    driver.trigger(Trigger::Fail(Failure::new(Reason::ResourceError, "disk detached"))).unwrap();
    let failure = driver.now().failure.clone().unwrap();
    assert_eq!((failure.class, failure.text.as_str()), (Reason::ResourceError, "disk detached"));
    assert!(driver.event(NewEvent::user_message("hello?")).is_err());
    driver.trigger(Trigger::ClearFailure).unwrap();
    assert_eq!(driver.now().status.state, SessionState::Initializing, "what it runs on is prepared anew");
    assert_eq!(driver.now().failure, None);
    driver.trigger(Trigger::Ready).unwrap();
    assert_eq!(driver.status(), Status::new(SessionState::Queued, Reason::Input));
}

/// Inputs that come before it is ready, or while it is set aside, are served afterwards, and none twice.
#[test]
fn early_inputs_are_kept_and_served_once() {
    let mut driver = Driver::initializing();
    driver.event(NewEvent::user_message("early")).unwrap();
    driver.trigger(Trigger::Ready).unwrap();
    assert_eq!(driver.status(), Status::new(SessionState::Queued, Reason::Input));
    let request = driver.lease_request();
    driver.trigger(Trigger::BeginRun(request)).unwrap();
    driver.run_trigger(Trigger::EndRun(RunEnd::Completed(Reason::EndTurn))).unwrap();
    assert_eq!((driver.now().inputs_open, driver.now().inputs_done_through), (0, driver.now().last_input));

    driver.trigger(Trigger::Suspend(Reason::ResourcesReleased)).unwrap();
    driver.trigger(Trigger::Resume).unwrap();
    assert_eq!(driver.now().status.state, SessionState::Idle, "what was handled is not handed out again");
    driver.trigger(Trigger::Suspend(Reason::ResourcesReleased)).unwrap();
    driver.event(NewEvent::user_message("while away")).unwrap();
    assert_eq!(driver.now().status.state, SessionState::Suspended);
    driver.trigger(Trigger::Resume).unwrap();
    assert_eq!(driver.status(), Status::new(SessionState::Queued, Reason::Input));
    assert_eq!(driver.now().inputs_open, 1);
}

/// A run that was asked to let the session be set aside does so when it ends, however it ends.
#[test]
fn suspend_while_running_takes_effect_at_the_end() {
    for end in [0, 1, 2] {
        let mut driver = in_state(SessionState::Running);
        driver.trigger(Trigger::Suspend(Reason::UserPaused)).unwrap();
        assert_eq!(driver.now().status.state, SessionState::Running);
        match end {
            0 => driver.run_trigger(Trigger::EndRun(RunEnd::Completed(Reason::EndTurn))).unwrap(),
            1 => driver.run_trigger(Trigger::EndRun(RunEnd::Await(approval()))).unwrap(),
            _ => {
                let epoch = driver.now().epoch;
                driver.trigger(Trigger::LeaseExpired(epoch)).unwrap()
            }
        };
        assert_eq!(driver.status(), Status::new(SessionState::Suspended, Reason::UserPaused), "{end}");
        assert_eq!(driver.folded(), *driver.now());
        driver.trigger(Trigger::Resume).unwrap();
        let expected = [SessionState::Idle, SessionState::RequiresAction, SessionState::Queued][end];
        assert_eq!(driver.now().status.state, expected);
    }
}

/// One prepares at a time; a dead one is replaced, and its late writes are fenced off.
#[test]
fn preparation_is_leased() {
    let mut driver = Driver::initializing();
    let request = driver.lease_request();
    driver.trigger(Trigger::Prepare(request.clone())).unwrap();
    let error = driver.trigger(Trigger::Prepare(request.clone())).unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Busy { holder: "the test".into() });
    let late = driver.seal_fenced().with_trigger(Trigger::Ready);
    let replace = driver
        .seal()
        .with_trigger(Trigger::LeaseExpired(Epoch::new(1)))
        .with_trigger(Trigger::Prepare(request));
    driver.commit(replace).unwrap();
    assert_eq!(*driver.commit(late).unwrap_err().kind(), ErrorKind::Fenced { epoch: Epoch::new(2) });
    driver.run_trigger(Trigger::Ready).unwrap();
    assert_eq!(driver.status(), Status::new(SessionState::Idle, Reason::Fresh));
    assert_eq!(driver.now().lease, None);
    assert_eq!(driver.folded(), *driver.now());
}

/// Whoever ends a session while it runs fences the run off, and closes its open calls in the same commit.
#[test]
fn ending_a_running_session_fences_its_run() {
    for trigger in [
        Trigger::Terminate(Reason::AdminEnded),
        Trigger::Delete(Reason::UserDeleted),
        Trigger::Fail(Failure::new(Reason::SystemError, "gone")),
        Trigger::ForceSuspend(Reason::UserPaused),
    ] {
        let mut driver = in_state(SessionState::Running);
        let commit = driver.seal_fenced().with_event(NewEvent::tool_use(call("c"), "sleep", json("{}")));
        driver.commit(commit).unwrap();
        let late = driver.seal_fenced().with_event(NewEvent::agent_message("too late"));
        let epoch = driver.now().epoch;
        let events = driver.log.len();
        driver.trigger(trigger.clone()).unwrap();
        let now = driver.now();
        assert!(now.lease.is_none() && now.open_calls.is_empty(), "{trigger:?}");
        assert_eq!(now.epoch, epoch.next(), "{trigger:?}");
        assert!(driver.log[events..].iter().all(|event| event.commit == driver.log[events].commit));
        let error = driver.commit(late).unwrap_err();
        let expected = if matches!(trigger, Trigger::Delete(_)) {
            ErrorKind::Deleted
        } else {
            ErrorKind::Fenced { epoch: epoch.next() }
        };
        assert_eq!(*error.kind(), expected, "{trigger:?}");
    }
}
