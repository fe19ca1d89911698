//! Timers as `plan` decides on them: which a run is for, what is done with when it ends, and what is tried again when.

use crate::common::Driver;
use agent_core::commit::{Committed, RunEnd, Trigger};
use agent_core::event::NewEvent;
use agent_core::model::{Failure, Status, Timer};
use agent_core::state::{Reason, SessionState};
use agent_core::{Result, Timestamp};

fn at(minutes: i64) -> Timestamp {
    "2026-02-15T10:30:00Z".parse::<Timestamp>().unwrap().plus_micros(minutes * 60_000_000)
}

fn timer(key: &str, minutes: i64) -> NewEvent {
    NewEvent::timer_scheduled(Timer::new(key, at(minutes)))
}

/// Begins a run by a clock that shows `minutes`.
fn begin(driver: &mut Driver, minutes: i64) -> Result<Committed> {
    let mut commit = driver.seal().with_trigger(Trigger::BeginRun(driver.lease_request()));
    commit.at = at(minutes);
    driver.commit(commit)
}

fn end(driver: &mut Driver) {
    driver.run_trigger(Trigger::EndRun(RunEnd::Completed(Reason::EndTurn))).unwrap();
}

fn keys(driver: &Driver) -> Vec<&str> {
    driver.now().timers.iter().map(|timer| timer.key.as_str()).collect()
}

/// Two timers are due, the session is queued; the last of three is not.
fn woken() -> Driver {
    let mut driver = Driver::created();
    for (key, minutes) in [("a", 5), ("b", 10), ("c", 30)] {
        driver.event(timer(key, minutes)).unwrap();
    }
    driver
}

/// A run is for the timers that are due when it begins, and when it ends these are done with, once; the others wait
/// for their own time.
#[test]
fn run_completes_the_timers_due_at_its_start() {
    let mut driver = woken();
    assert!(begin(&mut driver, 4).is_err(), "nothing is due yet");
    begin(&mut driver, 10).unwrap();
    assert_eq!(driver.now().due_timers().map(|timer| timer.key.as_str()).collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(keys(&driver), ["a", "b", "c"], "nothing is done before the run ends");
    end(&mut driver);
    assert_eq!(keys(&driver), ["c"]);
    assert_eq!(driver.status(), Status::new(SessionState::Queued, Reason::TimerDue));
    assert!(begin(&mut driver, 29).is_err());
    begin(&mut driver, 30).unwrap();
    end(&mut driver);
    assert_eq!((keys(&driver), driver.status().state), (vec![], SessionState::Idle));
    assert_eq!(driver.folded(), *driver.now());
}

/// A key is used once at a time: the later timer of a key takes the place of the earlier.
#[test]
fn timer_replaces_the_earlier_one_of_its_key() {
    let mut driver = woken();
    driver.event(timer("a", 40)).unwrap();
    assert_eq!(keys(&driver), ["b", "c", "a"]);
    assert_eq!(driver.now().next_due_at(), Some(at(10)));
}

/// A timer that is scheduled while a run goes on is never done with by that run, whatever its time says: a host
/// whose clock is a day behind loses none, nor does an agent that moves its own timer.
#[test]
fn a_timer_scheduled_during_a_run_is_for_the_next() {
    let day = 24 * 60;
    for minutes in [-day, 0, 10, day] {
        let mut driver = woken();
        begin(&mut driver, 10).unwrap();
        driver.event(timer("late", minutes)).unwrap();
        driver.event(timer("a", minutes)).unwrap();
        end(&mut driver);
        assert_eq!(keys(&driver), ["c", "late", "a"], "scheduled for {minutes}");
        assert_eq!(driver.status().state, SessionState::Queued);
        begin(&mut driver, day).unwrap();
        end(&mut driver);
        assert_eq!((keys(&driver), driver.status().state), (vec![], SessionState::Idle));
        assert_eq!(driver.folded(), *driver.now());
    }
}

/// A run that is cut off does no timer: they are offered again, and done with by the run that ends.
#[test]
fn lost_run_leaves_its_timers_open() {
    let mut driver = woken();
    let epoch = begin(&mut driver, 10).unwrap().epoch.unwrap();
    driver.trigger(Trigger::LeaseExpired(epoch)).unwrap();
    assert_eq!(keys(&driver), ["a", "b", "c"]);
    assert_eq!(driver.status(), Status::new(SessionState::Queued, Reason::LeaseLost));
    begin(&mut driver, 10).unwrap();
    end(&mut driver);
    assert_eq!(keys(&driver), ["c"]);
}

/// A timer that is cancelled is gone; where nothing else waits, the session is idle; cancelling it twice, or one
/// that never was, writes nothing.
#[test]
fn timer_can_be_cancelled() {
    let mut driver = woken();
    for (key, left) in
        [("b", vec!["a", "c"]), ("b", vec!["a", "c"]), ("never", vec!["a", "c"]), ("a", vec!["c"])]
    {
        driver.event(NewEvent::timer_cancelled(key)).unwrap();
        assert_eq!((keys(&driver), driver.status().state), (left, SessionState::Queued));
    }
    let events = driver.log.len();
    driver.event(NewEvent::timer_cancelled("a")).unwrap();
    assert_eq!(driver.log.len(), events);
    driver.event(NewEvent::timer_cancelled("c")).unwrap();
    assert_eq!(driver.status(), Status::new(SessionState::Idle, Reason::Fresh));

    driver.event(timer("d", 1)).unwrap();
    driver.event(NewEvent::user_message("hello")).unwrap();
    driver.event(NewEvent::timer_cancelled("d")).unwrap();
    assert_eq!(driver.status().state, SessionState::Queued, "the input waits");
    assert_eq!(driver.folded(), *driver.now());
    assert!(driver.event(NewEvent::timer_cancelled("")).is_err());
}

/// What a failed run was for, inputs and timers, is offered again when its back-off is over; what came after it is
/// not held up. After the last attempt the session has failed.
#[test]
fn failed_runs_retry_with_back_off_up_to_a_limit() {
    let fail = |driver: &mut Driver, ready| {
        let failure = Failure::new(Reason::RunError, "the model is away");
        driver.run_trigger(Trigger::EndRun(RunEnd::retry(failure, at(ready), 3))).unwrap();
    };
    let mut driver = woken();
    begin(&mut driver, 10).unwrap();
    fail(&mut driver, 20);
    assert_eq!(keys(&driver), ["a", "b", "c"], "offered again");
    assert_eq!(driver.now().next_due_at(), Some(at(20)));
    assert!(begin(&mut driver, 19).is_err(), "timers are backed off as well");
    driver.event(timer("new", 12)).unwrap();
    assert_eq!(driver.now().next_due_at(), Some(at(12)), "what is new is not held up");
    begin(&mut driver, 12).unwrap();
    fail(&mut driver, 25);
    begin(&mut driver, 25).unwrap();
    fail(&mut driver, 60);
    assert_eq!(driver.status(), Status::new(SessionState::Failed, Reason::RunError));
    driver.trigger(Trigger::ClearFailure).unwrap();
    begin(&mut driver, 30).unwrap();
    end(&mut driver);
    assert_eq!((keys(&driver), driver.now().attempts), (vec![], 0));
    assert_eq!(driver.folded(), *driver.now());
}

/// A run whose process is lost again and again is a failure like another: backed off, and not tried for ever.
#[test]
fn lost_runs_are_backed_off_and_limited() {
    let mut driver = woken();
    for attempt in 1..=3_i64 {
        let now = attempt * 20;
        let epoch = begin(&mut driver, now).unwrap().epoch.unwrap();
        driver.trigger(Trigger::run_lost(epoch, at(now + 10), 3)).unwrap();
        assert_eq!(i64::from(driver.now().attempts), attempt);
        if attempt < 3 {
            assert_eq!(driver.status(), Status::new(SessionState::Queued, Reason::LeaseLost));
            assert_eq!(driver.now().next_due_at(), Some(at(now + 10)));
            assert!(begin(&mut driver, now + 9).is_err());
        }
    }
    assert_eq!(driver.status(), Status::new(SessionState::Failed, Reason::RunError));
    assert_eq!(driver.folded(), *driver.now());

    // Nothing is left to do: lost is lost.
    let mut driver = Driver::created();
    let epoch = driver.prompt().epoch.unwrap();
    driver.event(NewEvent::interrupt()).unwrap();
    driver.trigger(Trigger::run_lost(epoch, at(10), 3)).unwrap();
    assert_eq!(driver.status(), Status::new(SessionState::Idle, Reason::Interrupted));
    assert_eq!(driver.now().attempts, 0);
}

/// What may run at once may do so by any clock.
#[test]
fn input_is_due_on_any_clock() {
    for minutes in [-3_000_000_000, -24 * 60, 24 * 60] {
        let mut driver = Driver::created();
        driver.event(NewEvent::user_message("hello")).unwrap();
        assert_eq!(driver.now().next_due_at(), Some(Timestamp::UNIX_EPOCH));
        begin(&mut driver, minutes).unwrap();
        end(&mut driver);
        assert_eq!(driver.status().state, SessionState::Idle);
    }
}
