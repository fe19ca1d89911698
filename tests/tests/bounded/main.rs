//! Bounds that hold at any length: memory of idle conversations, of a verification and of an export, and I/O of a
//! session. Memory is counted for the whole process, so that one test runs after the other.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::print_stdout, reason = "what was counted is printed")]

mod administration;
mod idle;
mod length;

use std::fs;
use std::time::Duration;

use agent_core::clock::Effects;
use agent_core::commit::{Commit, LeaseRequest, RunEnd, Trigger};
use agent_core::event::NewEvent;
use agent_core::session::NewSession;
use agent_core::state::Reason;
use agent_core::{SessionId, Sessions, WorkspaceId};
use peak_alloc::PeakAlloc;
use tokio::sync::{Mutex, MutexGuard};

/// Counts what Rust code allocates; what SQLite allocates by itself is not in it.
#[global_allocator]
static HEAP: PeakAlloc = PeakAlloc;

/// How long to wait before a test is given up as stuck. Never what a test is about.
const STUCK: Duration = Duration::from_secs(900);

static ALONE: Mutex<()> = Mutex::const_new(());

/// Waits for the other tests of this program, whose memory and calls would be counted too.
async fn alone() -> MutexGuard<'static, ()> {
    tokio::time::timeout(8 * STUCK, ALONE.lock()).await.expect("another test hangs")
}

/// Number of events of a long session: that of `AGENT_TEST_EVENTS`, or this one.
fn many_events(default: u64) -> u64 {
    std::env::var("AGENT_TEST_EVENTS").map_or(default, |text| text.parse().unwrap())
}

/// What this process has read or written, by the system's count of this name; 0 if the system does not tell.
fn io(name: &str) -> u64 {
    let text = fs::read_to_string("/proc/self/io").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
    line.and_then(|count| count.parse().ok()).unwrap_or(0)
}

/// Form of a long session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// Runs with many messages first, and in the last 1,000 events runs of one question and one answer.
    Chat,
    /// One run with one question.
    OneRun,
}

/// Makes a session of at least `events` events.
async fn long_session(store: &Sessions, events: u64, form: Form) -> SessionId {
    let effects = Effects::default();
    let new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
    let mut session = store.create(new).await.unwrap();
    while session.head.get() < events {
        let left = events - session.head.get();
        let answers = if left > 1_100 || form == Form::OneRun { 98 } else { 1 };
        let text = |n: u64| format!("{:>200}", session.head.get() + n);
        let run = effects.new_run_id();
        let begin = Trigger::BeginRun(LeaseRequest::new("test", run));
        let asked =
            Commit::seal(&effects, session.id, session.head).with_event(NewEvent::user_message(text(1)));
        let begun = store.commit(asked.with_trigger(begin)).await.unwrap().session;
        let end = Trigger::EndRun(RunEnd::Completed(Reason::EndTurn));
        let mut head = begun.head;
        let answer = |head| {
            let answered = Commit::seal(&effects, begun.id, head).with_fence(run, begun.epoch);
            answered.with_events((0..answers).map(|n| NewEvent::agent_message(text(2 + n))))
        };
        while form == Form::OneRun && head.get() + answers < events {
            head = store.commit(answer(head)).await.unwrap().session.head;
        }
        session = store.commit(answer(head).with_trigger(end)).await.unwrap().session;
    }
    session.id
}
