//! The search for live runs before a deletion of a tenant.

use std::time::Duration;

use agent_core::clock::Effects;
use agent_core::commit::{Commit, LeaseRequest, RunEnd, Trigger};
use agent_core::event::NewEvent;
use agent_core::session::{NewSession, SessionRecord};
use agent_core::state::Reason;
use agent_core::store::check_no_live_run;
use agent_core::{ErrorKind, MemoryStore, SessionStore, SessionStoreExt, WorkspaceId};
use tokio::time::{Instant, sleep};

/// The search ends soon after the last run has ended, not after its whole lease; a run that goes on is found at its next
/// heartbeat. The clock is simulated.
#[tokio::test(start_paused = true)]
async fn ended_run_is_not_waited_for() {
    let (store, effects, ttl) = (MemoryStore::new(), Effects::default(), Duration::from_secs(30));
    let mut running = Vec::new();
    for _ in 0..2 {
        let new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
        let session = store.sessions(&effects).create(new).await.unwrap();
        let events = vec![NewEvent::user_message("go")];
        let session =
            store.sessions(&effects).append(session.id, session.head, events).await.unwrap().session;
        let lease = LeaseRequest::new("laptop", effects.new_run_id()).with_ttl(ttl);
        running.push(
            store.sessions(&effects).trigger(session.id, Trigger::BeginRun(lease)).await.unwrap().session,
        );
    }
    let begun = Instant::now();
    let end = async |session: &SessionRecord| {
        let run = session.lease.as_ref().unwrap().run;
        let commit = Commit::seal(&effects, session.id, session.head)
            .with_fence(run, session.epoch)
            .with_trigger(Trigger::EndRun(RunEnd::Completed(Reason::EndTurn)));
        store.commit_with_retry(commit).await.unwrap().session
    };
    let ends = async {
        for session in &running {
            sleep(Duration::from_secs(1)).await;
            end(session).await;
        }
    };
    let (checked, ()) = tokio::join!(check_no_live_run(&store), ends);
    checked.unwrap();
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());

    // A run that begins meanwhile in one of these sessions is a live one.
    let idle = store.load(running[0].id).await.unwrap();
    let begin = async |session: &SessionRecord, holder: &str| {
        let events = vec![NewEvent::user_message("go")];
        let session =
            store.sessions(&effects).append(session.id, session.head, events).await.unwrap().session;
        let lease = LeaseRequest::new(holder, effects.new_run_id()).with_ttl(ttl);
        store.sessions(&effects).trigger(session.id, Trigger::BeginRun(lease)).await.unwrap().session
    };
    let first = begin(&idle, "laptop").await;
    let next = async {
        sleep(Duration::from_secs(1)).await;
        let ended = end(&first).await;
        begin(&ended, "phone").await;
    };
    let (checked, ()) = tokio::join!(check_no_live_run(&store), next);
    // The error names the holder that runs it now.
    assert_eq!(*checked.unwrap_err().kind(), ErrorKind::Busy { holder: "phone".to_owned() });
}
