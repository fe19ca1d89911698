//! Position up to which a summary may replace the history, found through a store.

use std::sync::Arc;

use crate::common::{call, json};
use agent_core::clock::Effects;
use agent_core::commit::{Commit, LeaseRequest, RunEnd, Trigger};
use agent_core::event::{NewEvent, ToolOutcome};
use agent_core::model::Timer;
use agent_core::session::{NewSession, SessionRecord};
use agent_core::state::Reason;
use agent_core::{
    ErrorKind, MemoryStore, Result, Seq, SessionStore, SessionStoreExt, Timestamp, WorkspaceId,
};

/// A session in memory, and who writes to it.
struct Site {
    store: MemoryStore,
    effects: Effects,
    now: Arc<SessionRecord>,
}

impl Site {
    async fn new() -> Self {
        let (store, effects) = (MemoryStore::new(), Effects::seeded(1, Timestamp::UNIX_EPOCH));
        let new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
        let now = store.sessions(&effects).create(new).await.unwrap();
        Self { store, effects, now }
    }

    async fn commit(&mut self, change: impl FnOnce(Commit) -> Commit) {
        let commit = change(Commit::seal(&self.effects, self.now.id, self.now.head));
        self.now = self.store.commit(commit).await.unwrap().session;
    }

    async fn begin(&mut self, change: impl FnOnce(Commit) -> Commit) {
        let request = LeaseRequest::new("test", self.effects.new_run_id());
        self.commit(|commit| change(commit).with_trigger(Trigger::BeginRun(request))).await;
    }

    /// A commit of the present run.
    async fn run(&mut self, change: impl FnOnce(Commit) -> Commit) {
        let lease = self.now.lease.clone().unwrap();
        self.commit(|commit| change(commit.with_fence(lease.run, lease.epoch))).await;
    }

    /// Up to where the summary stands, or what is said of why it cannot.
    async fn compact(&mut self, until: Option<u64>) -> Result<u64, String> {
        let until = until.map(Seq::new);
        let done = self.store.sessions(&self.effects).compact(self.now.id, until, "short").await;
        let done = done.map_err(|error| {
            assert_eq!(*error.kind(), ErrorKind::InvalidInput);
            error.to_string()
        })?;
        self.now = done.session;
        Ok(self.now.context_from.get())
    }
}

fn use_(id: &str) -> NewEvent {
    NewEvent::tool_use(call(id), "look", json("{}"))
}

fn result(id: &str) -> NewEvent {
    NewEvent::tool_result(call(id), ToolOutcome::Ok, json("{}"))
}

fn done() -> Trigger {
    Trigger::EndRun(RunEnd::Completed(Reason::EndTurn))
}

/// A turn of four events, from the second on: a question, a call, its result, an answer.
async fn turn(site: &mut Site) {
    site.begin(|commit| commit.with_event(NewEvent::user_message("look"))).await;
    site.run(|commit| commit.with_event(use_("c"))).await;
    site.run(|commit| commit.with_event(result("c"))).await;
    site.run(|commit| commit.with_event(NewEvent::agent_message("done")).with_trigger(done())).await;
    assert_eq!(site.now.head, Seq::new(5));
}

/// A summary stands for what is asked, up to the end and not beyond; not for what another stands for, and not from
/// within a call that was open there, though it is closed now.
#[tokio::test]
async fn summary_range_must_exist_and_be_closed() {
    let mut site = Site::new().await;
    turn(&mut site).await;
    for at in [0, 6, 7] {
        let refused = site.compact(Some(at)).await.unwrap_err();
        assert!(refused.contains("has the events 1 to 5; those up to"), "{at}: {refused}");
    }
    site.commit(|commit| commit.with_events([NewEvent::agent_message("a"), NewEvent::agent_message("b")]))
        .await;
    let refused = site.compact(Some(6)).await.unwrap_err();
    assert!(refused.contains("inside a commit; compact up to 5 or 7"), "{refused}");
    let refused = site.compact(Some(3)).await.unwrap_err();
    assert!(refused.contains("open at event 3") && refused.contains("compact up to 2"), "{refused}");
    assert_eq!(site.compact(Some(2)).await, Ok(2));
    let refused = site.compact(Some(2)).await.unwrap_err();
    assert!(refused.contains("those up to 2 are compacted"), "{refused}");
    assert_eq!(site.compact(Some(4)).await, Ok(4));
    let head = site.now.head.get();
    assert_eq!(site.compact(Some(head)).await, Ok(head));
}

/// Where nothing is asked a summary stands for all there is; for nothing there is none.
#[tokio::test]
async fn summary_covers_the_visible_history_by_default() {
    let mut site = Site::new().await;
    turn(&mut site).await;
    assert_eq!(site.compact(None).await, Ok(5));
    site.commit(|commit| commit.with_event(NewEvent::history_cleared())).await;
    let refused = site.compact(None).await.unwrap_err();
    assert!(refused.contains("are compacted already, or cannot be yet"), "{refused}");
    site.commit(|commit| commit.with_event(use_("c"))).await;
    let refused = site.compact(None).await.unwrap_err();
    assert!(refused.contains("are compacted already, or cannot be yet"), "{refused}");
}

/// An input that is not answered yet stays, whoever asks, and what comes behind it; what lies before it does not.
#[tokio::test]
async fn summary_excludes_unanswered_inputs() {
    let mut site = Site::new().await;
    turn(&mut site).await;
    let events = [NewEvent::user_message("and?"), NewEvent::system_prompt("Be brief.")];
    site.commit(|commit| commit.with_events(events)).await;
    for at in [6, 7] {
        let refused = site.compact(Some(at)).await.unwrap_err();
        assert!(refused.contains("event 6") && refused.contains("compact up to 5 at most"), "{refused}");
    }
    assert_eq!(site.compact(Some(5)).await, Ok(5));
    site.begin(|commit| commit).await;
    let refused = site.compact(None).await.unwrap_err();
    assert!(refused.contains("are compacted already, or cannot be yet"), "{refused}");
}

/// While calls are open a summary stands for what came before the first of them, and before those that were open
/// then and are closed now.
#[tokio::test]
async fn summary_ends_before_the_first_open_call() {
    let mut site = Site::new().await;
    turn(&mut site).await;
    let timer = NewEvent::timer_scheduled(Timer::new("w", Timestamp::UNIX_EPOCH));
    site.begin(|commit| commit.with_event(timer)).await;
    let before = site.now.head.get();
    // a is closed between b, which is open, and c.
    site.run(|commit| commit.with_events([use_("a"), use_("b"), result("a"), use_("c")])).await;
    assert_eq!(site.compact(None).await, Ok(before));
    // What the run says next is not lost on its end.
    site.run(|commit| commit.with_events([result("b"), result("c")]).with_trigger(done())).await;
    let head = site.now.head.get();
    assert_eq!(site.compact(None).await, Ok(head));
}
