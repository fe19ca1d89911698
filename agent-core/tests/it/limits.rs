//! Limits: data that is too large is refused before it is written; a reader accepts any number.

use std::sync::Arc;

use crate::common::{Driver, call, json};
use agent_core::clock::Effects;
use agent_core::commit::{Commit, RunEnd, Trigger};
use agent_core::event::{EVENT_MAX_BYTES, NewEvent};
use agent_core::json::RawJson;
use agent_core::model::{Access, ExternalHandle, Failure, Patch, Resource, Timer};
use agent_core::session::{NewSession, RECORD_CONTENT_MAX_BYTES, RECORD_MAX_BYTES, SessionRecord};
use agent_core::state::Reason;
use agent_core::{ErrorKind, MemoryStore, SessionStoreExt, Timestamp, WorkspaceId};

async fn session(store: &MemoryStore, effects: &Effects) -> Arc<SessionRecord> {
    let new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
    store.sessions(effects).create(new).await.unwrap()
}

/// The names of further fields count as they are stored, with their escapes; else an event could be written that
/// is too long to be read.
#[tokio::test]
async fn field_names_are_measured_with_escapes() {
    let (store, effects) = (MemoryStore::new(), Effects::default());
    let session = session(&store, &effects).await;
    let name = "\u{1}".repeat(EVENT_MAX_BYTES / 4);
    let event = NewEvent::user_message("x").with_extra(name, RawJson::empty_object());
    let error = store.sessions(&effects).append(session.id, session.head, vec![event]).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::LimitExceeded);
}

/// The text of a failure is bounded however it was set.
#[tokio::test]
async fn the_text_of_a_failure_is_bounded() {
    let (store, effects) = (MemoryStore::new(), Effects::default());
    let session = session(&store, &effects).await;
    let mut failure = Failure::new(Reason::ResourceError, "x");
    failure.text = "x".repeat(Failure::TEXT_MAX_BYTES + 1);
    for trigger in [
        Trigger::Fail(failure.clone()),
        Trigger::EndRun(RunEnd::Failed(failure.clone())),
        Trigger::EndRun(RunEnd::retry(failure.clone(), effects.now(), 3)),
    ] {
        let error = store.sessions(&effects).trigger(session.id, trigger).await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::LimitExceeded);
    }
    failure.text.pop();
    for fault in [String::new(), "x".repeat(Failure::FAULT_MAX_BYTES + 1), "two\nlines".to_owned()] {
        let failure = failure.clone().with_fault(Some(fault));
        let error = store.sessions(&effects).trigger(session.id, Trigger::Fail(failure)).await.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::InvalidInput | ErrorKind::LimitExceeded), "{error}");
    }
    let failure = failure.with_fault(Some("x".repeat(Failure::FAULT_MAX_BYTES)));
    store.sessions(&effects).trigger(session.id, Trigger::Fail(failure)).await.unwrap();
}

/// Counts that are as large as they can be stay so.
#[tokio::test]
async fn counts_do_not_overflow() {
    let (store, effects) = (MemoryStore::new(), Effects::default());
    let mut new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
    new.created.inherited.inputs_open = u64::MAX;
    new.created.inherited.counts.user = u64::MAX;
    let session = store.sessions(&effects).create(new).await.unwrap();
    let events = vec![NewEvent::user_message("x")];
    let now = store.sessions(&effects).append(session.id, session.head, events).await.unwrap().session;
    assert_eq!((now.inputs_open, now.counts.user), (u64::MAX, u64::MAX));
}

/// Makes a kind of change again and again, until one is refused.
fn fill(driver: &mut Driver, mut change: impl FnMut(&Driver, usize) -> Commit) {
    let full = (0..1000).find_map(|n| {
        let commit = change(driver, n);
        driver.commit(commit).err()
    });
    let full = full.expect("a limit");
    assert_eq!(*full.kind(), ErrorKind::LimitExceeded, "{full}");
}

/// Contract 8: what fills the record is counted as it is stored, with its escapes, whatever it is: nothing is
/// refused long before the limit, and nothing goes past it.
#[test]
fn record_stays_within_its_limit() {
    let text = |n: usize, long: usize| format!("{n}{}", "\"".repeat(long));
    let patch = |driver: &Driver, patch: Patch| driver.seal().with_event(NewEvent::updated(patch));
    type Change = Box<dyn Fn(&Driver, usize) -> Commit>;
    let changes: [(&str, Change); 9] = [
        ("labels", Box::new(move |d, n| patch(d, Patch::new().with_label(text(n, 60), text(n, 500))))),
        (
            "references",
            Box::new(move |d, n| patch(d, Patch::new().with_reference(text(n, 60), text(n, 500)))),
        ),
        (
            "metadata",
            Box::new(move |d, n| patch(d, Patch::new().with_metadata(text(n, 100), json("[1,2,3]")))),
        ),
        (
            "resources",
            Box::new(move |d, n| {
                let mut all = d.now().attributes.resources.clone();
                all.push(Resource::new(text(n, 300), text(n, 300), text(n, 300)).with_access(Access::Write));
                patch(d, Patch::new().with_resources(all))
            }),
        ),
        (
            "handles",
            Box::new(move |d, n| {
                let handle = ExternalHandle::new(text(n, 60), text(n, 300)).with_note("\u{1}".repeat(512));
                patch(d, Patch::new().with_handle(text(n, 60), handle.with_process(text(n, 200))))
            }),
        ),
        ("pinned", Box::new(move |d, n| patch(d, Patch::new().mount(text(n, 250), Access::Write)))),
        ("removed", Box::new(move |d, n| patch(d, Patch::new().remove_mount(text(n, 250))))),
        (
            "timers",
            Box::new(move |d, n| {
                let mut timer = Timer::new(format!("{n:0128}"), Timestamp::MAX);
                timer.note = "\"".repeat(500);
                d.seal().with_event(NewEvent::timer_scheduled(timer))
            }),
        ),
        (
            "calls",
            Box::new(move |d, n| {
                let use_ = NewEvent::tool_use(call(&format!("{n:0128}")), "t", json("{}"));
                d.seal_fenced().with_event(use_)
            }),
        ),
    ];
    for (what, change) in &changes {
        let mut driver = Driver::created();
        if *what == "calls" {
            driver.prompt();
        }
        let empty = driver.now().to_json().len();
        fill(&mut driver, change);
        let bytes = driver.now().to_json().len();
        assert!(bytes <= RECORD_MAX_BYTES, "{what}: {bytes}");
        if !matches!(*what, "pinned" | "removed" | "calls") {
            assert!(bytes - empty > RECORD_CONTENT_MAX_BYTES - 5000, "{what}: refused at {bytes} already");
        }
    }

    // Everything at once, and what the library itself keeps, as long as it may be.
    let mut driver = Driver::created();
    for (what, change) in &changes {
        if *what == "calls" {
            driver.prompt();
        }
        fill(&mut driver, change);
    }
    for _ in 0..agent_core::session::RECENT_COMMITS {
        driver.event(NewEvent::user_message("x")).unwrap();
    }
    driver.trigger(Trigger::Fail(Failure::new(Reason::SystemError, "\u{1}".repeat(4000)))).unwrap();
    let bytes = driver.now().to_json().len();
    assert!(bytes <= RECORD_MAX_BYTES, "{bytes}");
}
