//! Connections that break, locks that are held, and the lines of the server's log about them.

use std::time::Duration;

use agent_core::commit::{Commit, Trigger};
use agent_core::state::Reason;
use agent_core::store::{Purge, PutBlob, ReadEvents};
use agent_core::{ErrorKind, SessionStore, SessionStoreExt, WriteOutcome};
use sqlx::Executor;

use crate::proxy::Proxy;
use crate::{SERVER, Scene, connect, message};

/// An answer that is lost after the commit was sent: the outcome is unknown, and the commit that is sent again is found to
/// be applied.
#[tokio::test(flavor = "multi_thread")]
async fn a_commit_whose_answer_is_lost_is_unknown_and_takes_effect_once() {
    let scene = Scene::with_tables().await;
    let proxy = Proxy::before(&scene.address(&scene.app()));
    // No hint is sent meanwhile, whose answer would be withheld.
    let config = scene.config_at(&proxy.address).with_hint_interval(Duration::from_secs(60));
    let store = config.with_connections(1).open().await.unwrap();
    let session = scene.create(&store).await;
    let first = store.sessions(&scene.effects).append(session.id, session.head, message("a")).await.unwrap();
    let commit = Commit::seal(&scene.effects, session.id, first.session.head).with_events(message("b"));
    proxy.cut_next_answer();
    let error = store.commit(commit.clone()).await.unwrap_err();
    assert_eq!((error.kind(), error.write_outcome()), (&ErrorKind::Unavailable, WriteOutcome::Unknown));
    let again = store.commit(commit).await.unwrap();
    assert!(again.replayed, "the first one was applied");
    assert_eq!(store.load(session.id).await.unwrap().head.get(), 3);
}

/// Connections are ended while eight writers work: what was acknowledged is stored, each message once.
#[tokio::test(flavor = "multi_thread")]
async fn ended_connections_lose_nothing() {
    let scene = Scene::with_tables().await;
    let store = scene.config().with_connections(8).open().await.unwrap();
    let end =
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = 'ended'";
    let ended = scene.config_at(&scene.address_named("ended"));
    let ended = ended.with_connections(8).open().await.unwrap();
    let mut writers = Vec::new();
    for _ in 0..8 {
        let session = scene.create(&store).await;
        let (ended, effects) = (ended.clone(), scene.effects.clone());
        writers.push(tokio::spawn(async move {
            let mut head = session.head;
            for n in 0..40 {
                let commit = Commit::seal(&effects, session.id, head).with_events(message(&format!("m{n}")));
                head = loop {
                    match ended.commit(commit.clone()).await {
                        Ok(done) => break done.session.head,
                        Err(error) => assert!(error.is_retryable(), "{error:?}"),
                    }
                };
            }
            session.id
        }));
    }
    let killer = tokio::spawn(async move {
        let mut killed = 0;
        while killed < 50 {
            killed += sqlx::Row::get::<i64, _>(&connect().await.fetch_one(end).await.unwrap(), 0);
            tokio::time::sleep(Duration::from_millis(5)).await;
            if writers_are_done(&writers) {
                break;
            }
        }
        (writers, killed)
    });
    let late = Duration::from_secs(300);
    let (writers, killed) = tokio::time::timeout(late, killer).await.expect("50 connections").unwrap();
    assert!(killed > 8, "{killed} connections were ended");
    for writer in writers {
        let id = tokio::time::timeout(late, writer).await.expect("40 commits").unwrap();
        let events = store.read(id, ReadEvents::first(100)).await.unwrap().events;
        let texts: Vec<_> = events.iter().skip(1).map(|event| event.payload.get().to_owned()).collect();
        assert_eq!(texts.len(), 40);
        assert!((0..40).all(|n| texts[n].contains(&format!("\"m{n}\""))), "{texts:?}");
    }
}

fn writers_are_done<T>(writers: &[tokio::task::JoinHandle<T>]) -> bool {
    writers.iter().all(tokio::task::JoinHandle::is_finished)
}

/// Nothing is appended to a log that does not end where the record says.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_appended_after_missing_events() {
    let scene = Scene::new();
    let store = scene.open().await;
    let session = scene.create(&store).await;
    let head = store
        .sessions(&scene.effects)
        .append(session.id, session.head, message("lost"))
        .await
        .unwrap()
        .session
        .head;
    scene.run("DELETE FROM @.events WHERE seq = 2").await;
    let error = store.sessions(&scene.effects).append(session.id, head, message("b")).await.unwrap_err();
    assert_eq!(
        (error.kind(), error.write_outcome()),
        (&ErrorKind::Corrupt, WriteOutcome::NotApplied),
        "{error}"
    );
    assert_eq!(scene.number("SELECT count(*) FROM @.events").await, 1);
}

/// Whoever waits for the row of a session while it is purged finds it deleted, not damaged.
#[tokio::test(flavor = "multi_thread")]
async fn a_writer_that_waits_for_a_purge_finds_a_deleted_session() {
    let scene = Scene::new();
    let store = scene.open().await;
    for _ in 0..20 {
        let session = scene.create(&store).await;
        let delete = Commit::seal(&scene.effects, session.id, session.head);
        let deleted = store.commit(delete.with_trigger(Trigger::Delete(Reason::UserDeleted))).await.unwrap();
        let put = PutBlob::of_bytes(session.id, b"bytes".to_vec());
        let purge = Purge::new(session.id, deleted.session.head);
        let (put, purged) = tokio::join!(store.blobs().put(put), store.purge(purge));
        assert_eq!(*put.unwrap_err().kind(), ErrorKind::Deleted);
        purged.unwrap();
    }
}

/// Reads and writes in transactions do not notice that idle connections were ended.
#[tokio::test(flavor = "multi_thread")]
async fn ended_idle_connections_are_replaced() {
    let scene = Scene::with_tables().await;
    let store = scene.config_at(&scene.address_named("idle")).open().await.unwrap();
    let session = scene.create(&store).await;
    for _ in 0..3 {
        let end =
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = 'idle'";
        connect().await.fetch_all(end).await.unwrap();
        assert_eq!(store.load(session.id).await.unwrap(), session);
    }
}

/// A writer that meets a lock fails in time, has written nothing, and its words are not in the server's log.
#[tokio::test(flavor = "multi_thread")]
async fn a_held_lock_is_a_timeout_and_no_content_is_logged() {
    let scene = Scene::with_tables().await;
    let store = scene.config().with_lock_timeout(Duration::from_millis(100)).open().await.unwrap();
    let session = scene.create(&store).await;
    let mut holder = connect().await;
    let lock = format!("BEGIN; SELECT 1 FROM {}.sessions FOR UPDATE", scene.schema);
    holder.execute(sqlx::raw_sql(sqlx::AssertSqlSafe(lock))).await.unwrap();
    let commit = Commit::seal(&scene.effects, session.id, session.head).with_events(message("plantedword"));
    let error = store.commit(commit).await.unwrap_err();
    assert_eq!((error.kind(), error.write_outcome()), (&ErrorKind::Unavailable, WriteOutcome::NotApplied));
    assert!(error.is_timeout() && error.to_string().contains("lock"), "{error}");
    holder.execute("ROLLBACK").await.unwrap();
    assert_eq!(store.load(session.id).await.unwrap().head, session.head);
    let log = SERVER.log();
    assert!(log.contains("lock timeout"), "{log}");
    assert!(!log.contains("plantedword"), "{log}");
}
