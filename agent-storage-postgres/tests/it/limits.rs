//! Limits in time and size: idle connections, long statements, large purges.

use std::time::Duration;

use agent_core::commit::{Commit, Trigger};
use agent_core::event::NewEvent;
use agent_core::session::{NewSession, SessionRecord};
use agent_core::state::{Reason, SessionState};
use agent_core::store::{Purge, ReadEvents};
use agent_core::{ErrorKind, SessionStore, SessionStoreExt, WorkspaceId, WriteOutcome};
use agent_storage_postgres::PostgresStore;

use crate::{Scene, message};

impl Scene {
    /// Creates a session with these messages, and deletes it.
    async fn deleted(&self, store: &PostgresStore, messages: Vec<String>) -> std::sync::Arc<SessionRecord> {
        let session = self.create(store).await;
        let mut head = session.head;
        for messages in messages.chunks(1000) {
            let events: Vec<_> = messages.iter().map(NewEvent::user_message).collect();
            head = store.sessions(&self.effects).append(session.id, head, events).await.unwrap().session.head;
        }
        let delete = Commit::seal(&self.effects, session.id, head);
        store.commit(delete.with_trigger(Trigger::Delete(Reason::UserDeleted))).await.unwrap().session
    }

    /// Makes each statement that removes events do something before.
    async fn before_events_are_removed(&self, what: &str) {
        self.run(&format!(
            "CREATE SEQUENCE @.n; GRANT USAGE ON SEQUENCE @.n TO PUBLIC; CREATE FUNCTION @.hinder() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {what}; RETURN NULL; END $$; \
             CREATE TRIGGER hinder BEFORE DELETE ON @.events FOR EACH STATEMENT EXECUTE FUNCTION @.hinder()"
        ))
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_nobody_uses_are_closed() {
    let scene = Scene::with_tables().await;
    let config = scene.config_at(&scene.address_named("ages")).with_idle_timeout(Duration::from_millis(100));
    let store = config.with_hint_interval(Duration::from_millis(1)).open().await.unwrap();
    let session = scene.create(&store).await;
    for _ in 0..3 {
        let load = |_| {
            let (store, id) = (store.clone(), session.id);
            tokio::spawn(async move { store.load(id).await.unwrap() })
        };
        for load in (0..8).map(load).collect::<Vec<_>>() {
            load.await.unwrap();
        }
        let count = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'ages'";
        let closed = async {
            while scene.number(count).await > 0 {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(120), closed).await.expect("idle connections stay");
    }
}

/// Callers beyond the connections that the server gives wait for those that the store has.
#[tokio::test(flavor = "multi_thread")]
async fn a_burst_beyond_the_servers_limit_waits_for_the_stores_own_connections() {
    let scene = Scene::with_tables().await;
    let limit = |most: i32| format!("ALTER ROLE {} CONNECTION LIMIT {most}", scene.app());
    scene.run(&limit(3)).await;
    // Long enough for all of them on a busy machine.
    let config = scene.config().with_connections(16).with_wait_timeout(Duration::from_secs(120));
    let store = config.clone().open().await.unwrap();
    let create = |_| {
        let (store, effects) = (store.clone(), scene.effects.clone());
        tokio::spawn(async move {
            let new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
            // This one is not sent again by itself.
            store.commit(Commit::create(&effects, new)).await.map(drop)
        })
    };
    for create in (0..64).map(create).collect::<Vec<_>>() {
        create.await.unwrap().unwrap();
    }
    // One that has none does not wait. Its error has the words of the server, and no line of the server's source.
    store.close().await.unwrap();
    scene.run(&limit(0)).await;
    let error = config.open().await.unwrap_err();
    assert_eq!((error.kind(), error.is_timeout()), (&ErrorKind::Unavailable, false), "{error:?}");
    assert!(error.to_string().contains("no connection left"), "{error}");
    let cause = std::error::Error::source(&error).unwrap().to_string();
    assert!(cause.contains("too many connections for role") && cause.contains("53300"), "{cause}");
    assert!(!cause.contains("at line"), "{cause}");
}

#[tokio::test(flavor = "multi_thread")]
async fn long_statements_have_a_limit_of_their_own() {
    let scene = Scene::new();
    let store = scene.open().await;
    let (first, second) = (scene.deleted(&store, Vec::new()).await, scene.deleted(&store, Vec::new()).await);
    scene.before_events_are_removed("PERFORM pg_sleep(3)").await;
    // Long enough for the other statements on a busy machine.
    let limited =
        |long| scene.config().with_statement_timeout(Duration::from_secs(2)).with_long_timeout(long);
    let store = limited(Duration::ZERO).open().await.unwrap();
    let error = store.purge(Purge::new(first.id, first.head)).await.unwrap_err();
    assert!(error.is_timeout(), "{error:?}");
    assert_eq!((error.kind(), error.write_outcome()), (&ErrorKind::Unavailable, WriteOutcome::Unknown));
    let store = limited(Duration::from_secs(120)).open().await.unwrap();
    store.purge(Purge::new(second.id, second.head)).await.unwrap();
}

/// A purge that is cut off between its parts is seen as a whole one, and a repeated one does the rest.
#[tokio::test(flavor = "multi_thread")]
async fn a_purge_that_is_cut_off_is_finished_by_the_next() {
    for (messages, left) in [
        (vec!["m".to_owned(); 2500], 2502 - 1000),
        // The status of the deletion, and two of those with 3 MiB, which are more than 4 MiB.
        (vec!["m".repeat(3 << 20); 5], 7 - 3),
    ] {
        let scene = Scene::new();
        let store = scene.open().await;
        let session = scene.deleted(&store, messages).await;
        let count = format!("SELECT count(*) FROM @.events WHERE session = '{}'", session.id);
        let all = scene.number(&count).await;
        let stop = "IF nextval('@.n') > 1 THEN PERFORM pg_terminate_backend(pg_backend_pid()); END IF";
        scene.before_events_are_removed(stop).await;
        let error = store.purge(Purge::new(session.id, session.head)).await.unwrap_err();
        assert_eq!((error.kind(), error.write_outcome()), (&ErrorKind::Unavailable, WriteOutcome::Unknown));
        assert_eq!(scene.number(&count).await, left, "of {all}");

        for read in [ReadEvents::first(10), ReadEvents::last(10)] {
            let page = store.read(session.id, read).await.unwrap();
            assert_eq!((page.events.len(), page.damaged.len(), page.next), (0, 0, None));
        }
        let now = store.load(session.id).await.unwrap();
        assert_eq!((now.status.state, now.head), (SessionState::Deleted, session.head));
        assert!(store.maintenance().check().await.unwrap().is_empty());
        assert_eq!(store.maintenance().rebuild().await.unwrap().damaged.len(), 0);
        assert_eq!(store.read(session.id, ReadEvents::first(10)).await.unwrap().events.len(), 0);

        scene.run("DROP TRIGGER hinder ON @.events").await;
        let purged = store.purge(Purge::new(session.id, session.head)).await.unwrap();
        assert_eq!(purged.events, u64::try_from(left).unwrap());
        assert_eq!(scene.number(&count).await, 0);
    }
}

/// What is kept for forks is kept by every part of a purge.
#[tokio::test(flavor = "multi_thread")]
async fn a_purge_in_parts_keeps_what_it_has_to() {
    let scene = Scene::new();
    let store = scene.open().await;
    let session = scene.deleted(&store, vec!["m".to_owned(); 2100]).await;
    let keep = agent_core::Seq::new(50);
    let purged = store.purge(Purge::new(session.id, session.head).with_keep_through(keep)).await.unwrap();
    assert_eq!(purged.events, session.head.get() - 50);
    let page = store.read(session.id, ReadEvents::last(10)).await.unwrap();
    assert_eq!((page.events[9].seq, page.damaged.len()), (keep, 0));
    assert_eq!(
        *store
            .sessions(&scene.effects)
            .append(session.id, session.head, message("a"))
            .await
            .unwrap_err()
            .kind(),
        ErrorKind::Deleted
    );
}
