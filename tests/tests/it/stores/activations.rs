//! The journal of a session's activations: what became of the work that each run had claimed, on each kind of store.

use std::sync::Arc;

use crate::stores::shared::{check_record, new_session};
use agent_core::clock::Effects;
use agent_core::commit::{Commit, LeaseRequest, RunEnd, Trigger};
use agent_core::event::{Decision, EventPayload, NewEvent, ToolConfirmation};
use agent_core::model::{ActionId, ActionKind, Failure, PendingAction};
use agent_core::session::SessionRecord;
use agent_core::state::Reason;
use agent_core::{SessionId, Storage};
use agent_runtime::views::{Claim, RunStatus, SessionView};
use agent_tests::{Site, each_store};

/// A session and the processes that write to it.
struct Desk {
    storage: Storage,
    effects: Effects,
    id: SessionId,
}

impl Desk {
    async fn commit(&self, fill: impl FnOnce(Commit) -> Commit) -> Arc<SessionRecord> {
        let seen = self.storage.sessions.load(self.id).await.unwrap().head;
        let mut commit = fill(Commit::seal(&self.effects, self.id, seen));
        // Late enough for whatever is backed off.
        commit.at = commit.at.plus_micros(3_600_000_000);
        self.storage.sessions.commit(commit).await.unwrap().session
    }

    async fn prompt(&self, text: &str) {
        self.commit(|commit| commit.with_event(NewEvent::user_message(text))).await;
    }

    async fn trigger(&self, trigger: Trigger) {
        self.commit(|commit| commit.with_trigger(trigger)).await;
    }

    async fn begin(&self) -> Arc<SessionRecord> {
        let lease = LeaseRequest::new("laptop", self.effects.new_run_id());
        self.commit(|commit| commit.with_trigger(Trigger::BeginRun(lease))).await
    }

    /// A run that ends like this.
    async fn run(&self, end: RunEnd) {
        let begun = self.begin().await;
        let run = begun.lease.as_ref().unwrap().run;
        self.commit(|commit| commit.with_fence(run, begun.epoch).with_trigger(Trigger::EndRun(end))).await;
    }

    fn retry(&self, limit: u32) -> RunEnd {
        RunEnd::retry(Failure::new(Reason::RunError, "away"), self.effects.now(), limit)
    }
}

/// Each claim of a session's work is in its journal, with who had it and how it came out: leased while its run goes on,
/// blocked by a question, acked when it is done or was stopped, requeued when it is offered again, abandoned when it is
/// given up. The journal is the log's: after a restart, and page by page, it is the same.
async fn activations_record_the_outcome_of_each_claim(site: Site) {
    use Claim::{Abandoned, Acked, Blocked, Leased, Requeued};
    let (storage, effects) = (site.open().await, Effects::default());
    let id = new_session(&storage, &effects).await.id;
    let desk = Desk { storage, effects, id };
    let mut expected = Vec::new();
    desk.prompt("one").await;
    desk.run(RunEnd::Completed(Reason::EndTurn)).await;
    expected.push(Acked);
    desk.prompt("two").await;
    desk.run(RunEnd::Interrupted).await;
    expected.push(Acked);
    desk.prompt("three").await;
    let action: ActionId = "a".parse().unwrap();
    desk.run(RunEnd::Await(PendingAction::new(action.clone(), ActionKind::Approval, "may I"))).await;
    expected.push(Blocked);
    let answer = EventPayload::UserToolConfirmation(ToolConfirmation::new(action, Decision::Allow));
    desk.commit(|commit| commit.with_event(NewEvent::of(&answer))).await;
    desk.run(desk.retry(9)).await;
    expected.push(Requeued);
    let begun = desk.begin().await;
    desk.trigger(Trigger::LeaseExpired(begun.epoch)).await;
    expected.push(Requeued);
    let begun = desk.begin().await;
    desk.trigger(Trigger::run_lost(begun.epoch, desk.effects.now(), 9)).await;
    expected.push(Requeued);
    desk.begin().await;
    desk.trigger(Trigger::ForceSuspend(Reason::ResourcesReleased)).await;
    desk.trigger(Trigger::Resume).await;
    expected.push(Requeued);
    // Asked to stop, and lost before it could.
    let begun = desk.begin().await;
    desk.commit(|commit| commit.with_event(NewEvent::interrupt())).await;
    desk.trigger(Trigger::LeaseExpired(begun.epoch)).await;
    expected.push(Acked);
    desk.prompt("four").await;
    desk.run(RunEnd::Failed(Failure::new(Reason::RunError, "broken"))).await;
    expected.push(Abandoned);
    desk.prompt("five").await;
    desk.begin().await;
    desk.trigger(Trigger::Suspend(Reason::UserPaused)).await;
    let asked = desk.storage.sessions.load(id).await.unwrap();
    let (run, end) = (asked.lease.as_ref().unwrap().run, desk.retry(9));
    desk.commit(|commit| commit.with_fence(run, asked.epoch).with_trigger(Trigger::EndRun(end))).await;
    desk.trigger(Trigger::Resume).await;
    expected.push(Requeued);
    desk.run(desk.retry(1)).await;
    desk.trigger(Trigger::ClearFailure).await;
    expected.push(Abandoned);
    let begun = desk.begin().await;
    desk.trigger(Trigger::run_lost(begun.epoch, desk.effects.now(), 1)).await;
    desk.trigger(Trigger::ClearFailure).await;
    expected.push(Abandoned);
    desk.begin().await;

    let view = SessionView::new(site.open().await.sessions.store().clone(), id);
    let now = view.runs(1, None).await.unwrap().runs.remove(0);
    assert_eq!((now.claim, now.status, now.holder.as_str()), (Leased, RunStatus::Running, "laptop"));
    desk.trigger(Trigger::Terminate(Reason::UserEnded)).await;
    expected.push(Abandoned);
    let whole = view.runs(100, None).await.unwrap();
    let claims: Vec<_> = whole.runs.iter().rev().map(|entry| entry.claim).collect();
    assert_eq!(claims, expected, "{}", site.name);
    let (mut paged, mut next) = (Vec::new(), None);
    loop {
        let page = view.runs(3, next).await.unwrap();
        paged.extend(page.runs);
        next = page.next;
        if next.is_none() {
            break;
        }
    }
    assert_eq!(paged, whole.runs, "{}", site.name);
    check_record(&desk.storage, id).await;
}

each_store!(activations_record_the_outcome_of_each_claim);
