//! The time of an operation, and the life of a store: what is over is over.

use std::time::Duration;

use agent_core::clock::Effects;
use agent_core::commit::Commit;
use agent_core::event::NewEvent;
use agent_core::session::NewSession;
use agent_core::{ErrorKind, SessionStore, Timestamp, WorkspaceId, WriteOutcome};
use s3_simulator::{Fault, Op, Simulator};

use crate::backend::config;

/// A commit whose turn comes when its time is over is not sent, and says that it did not happen.
#[tokio::test(start_paused = true)]
async fn expired_commit_is_not_sent() {
    for seed in 0..20 {
        let simulator = Simulator::new(seed);
        let effects = Effects::seeded(seed, Timestamp::UNIX_EPOCH);
        let one_at_a_time = config(&simulator, "handle").with_effects(effects.clone()).with_concurrency(1);
        let store = one_at_a_time
            .with_deadline(Duration::from_secs(4))
            .with_attempt(Duration::from_secs(10))
            .open()
            .await
            .unwrap();
        simulator.next(Op::List, Fault::Hang);
        let absent = effects.new_session_id();
        let hangs = SessionStore::load(&store, absent);
        let commit = async {
            while simulator.entries().iter().all(|entry| entry.fault.is_none()) {
                tokio::task::yield_now().await;
            }
            let new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
            (simulator.requests(), store.commit(Commit::create(&effects, new)).await)
        };
        // Both have the same four seconds: the one place is free in the moment in which they are over, since of two that
        // are joined the first is looked at first.
        let (hung, (sent, done)) = futures::future::join(hangs, commit).await;
        let error = done.unwrap_err();
        assert_eq!(error.write_outcome(), WriteOutcome::NotApplied, "seed {seed}: {error:?}");
        assert_eq!(simulator.counts_since(sent).put, 0, "seed {seed}: it was sent all the same");
        assert!(hung.is_err());
    }
}

/// A closed store refuses everything, sends nothing more, and ends whoever waits for a change.
#[tokio::test(start_paused = true)]
async fn a_closed_store_sends_nothing_more() {
    let simulator = Simulator::new(1);
    let effects = Effects::seeded(1, Timestamp::from_micros(1_771_151_400_000_000));
    let store = config(&simulator, "closed").with_effects(effects.clone()).open().await.unwrap();
    let new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
    let session = store.commit(Commit::create(&effects, new)).await.unwrap().session;
    let waiting = tokio::spawn({
        let (store, id, head) = (store.clone(), session.id, session.head);
        async move { store.changed(id, head).await }
    });
    tokio::time::sleep(Duration::from_millis(10)).await;
    store.close().await.unwrap();
    store.close().await.unwrap();
    let before = simulator.requests();
    let append = Commit::seal(&effects, session.id, session.head).with_event(NewEvent::user_message("late"));
    let errors = [
        store.commit(append).await.unwrap_err(),
        SessionStore::load(&store.for_tenant(&"other".parse().unwrap()), session.id).await.unwrap_err(),
        waiting.await.unwrap().unwrap_err(),
    ];
    for error in errors {
        assert_eq!(*error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(error.to_string().ends_with("was closed; open it again"), "{error}");
    }
    assert_eq!(simulator.requests(), before);
}
