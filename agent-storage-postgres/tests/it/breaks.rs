//! Connections that break, locks that are held, and the lines of the server's log about them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use agent_core::commit::{Commit, Trigger};
use agent_core::state::Reason;
use agent_core::store::{Purge, PutBlob, ReadEvents};
use agent_core::{ErrorKind, Seq, SessionId, SessionStore, SessionStoreExt, WriteOutcome};
use agent_storage_postgres::PostgresStore;
use sqlx::postgres::PgConnection;
use sqlx::{Connection, Executor};
use tokio::task::JoinHandle;

use crate::proxy::Proxy;
use crate::support::{OWNER, Server, address_of};
use crate::{SERVER, Scene, connect, message};

/// Time after which a test fails.
const LATE: Duration = Duration::from_secs(300);

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

/// Writers that append numbered messages to a session each, until they are told to end.
struct Writers {
    writers: Vec<JoinHandle<(SessionId, usize)>>,
    /// Number of messages that were acknowledged.
    done: Arc<AtomicUsize>,
    are_to_end: Arc<AtomicBool>,
}

impl Writers {
    async fn start(scene: &Scene, store: &PostgresStore) -> Self {
        let (done, are_to_end) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let mut writers = Vec::new();
        for _ in 0..8 {
            let session = scene.create(store).await;
            let (store, effects) = (store.clone(), scene.effects.clone());
            let (done, are_to_end) = (done.clone(), are_to_end.clone());
            writers.push(tokio::spawn(async move {
                let (mut head, mut count) = (session.head, 0);
                while !are_to_end.load(Ordering::SeqCst) {
                    let text = format!("m{count}");
                    let commit = Commit::seal(&effects, session.id, head).with_events(message(&text));
                    head = loop {
                        match store.commit(commit.clone()).await {
                            Ok(done) => break done.session.head,
                            Err(error) => assert!(error.is_retryable(), "{error:?}"),
                        }
                        tokio::time::sleep(Duration::from_millis(5)).await;
                    };
                    count += 1;
                    done.fetch_add(1, Ordering::SeqCst);
                }
                (session.id, count)
            }));
        }
        Self { writers, done, are_to_end }
    }

    /// Waits until so many more messages were acknowledged.
    async fn go_on(&self, more: usize) {
        let wanted = self.done.load(Ordering::SeqCst) + more;
        let wait = async {
            while self.done.load(Ordering::SeqCst) < wanted {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(LATE, wait).await.expect("the writers make no progress");
    }

    /// Ends the writers, and looks whether each message that was acknowledged is stored, once and in its place, and no other.
    async fn end(self, store: &PostgresStore) {
        self.are_to_end.store(true, Ordering::SeqCst);
        for writer in self.writers {
            let (id, count) =
                tokio::time::timeout(LATE, writer).await.expect("a writer does not end").unwrap();
            assert_eq!(store.load(id).await.unwrap().head.get(), count as u64 + 1);
            let (mut read, mut n) = (Some(ReadEvents::first(1000).with_after(Seq::new(1))), 0);
            while let Some(wanted) = read {
                let page = store.read(id, wanted).await.unwrap();
                for event in &page.events {
                    assert!(event.payload.get().contains(&format!("\"m{n}\"")), "{n}: {event:?}");
                    n += 1;
                }
                read = page.next;
            }
            assert_eq!(n, count);
        }
    }
}

/// Fifty connections are ended while eight writers work, directly and behind a pooler: what was acknowledged is stored, each message
/// once.
#[tokio::test(flavor = "multi_thread")]
async fn ended_connections_lose_nothing() {
    let scene = Scene::with_tables().await;
    let pooler = scene.pooler(4);
    let store = scene.open().await;
    let behind = format!("{}?application_name=ended", pooler.address);
    for ended in
        [scene.config_at(&scene.address_named("ended")), scene.config_at(&behind).with_transaction_pooler()]
    {
        let ended = ended.with_connections(8).open().await.unwrap();
        let writers = Writers::start(&scene, &ended).await;
        let end = "SELECT count(pg_terminate_backend(pid)) FROM (SELECT pid FROM pg_stat_activity \
            WHERE application_name = 'ended' LIMIT 2) AS two";
        let mut count = 0;
        while count < 50 {
            writers.go_on(2).await;
            count += sqlx::Row::get::<i64, _>(&connect().await.fetch_one(end).await.unwrap(), 0);
        }
        writers.end(&store).await;
    }
}

/// The server is killed ten times while eight writers work, and started again.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes half a minute"]
async fn a_killed_server_loses_nothing() {
    let scene = Scene::new();
    let server = Arc::new(tokio::task::spawn_blocking(Server::start).await.unwrap());
    // The server of the tests answers before a commit has left its memory.
    let mut admin = PgConnection::connect(server.address()).await.unwrap();
    let sql = format!("ALTER ROLE {OWNER} SET synchronous_commit = 'on'");
    admin.execute(sqlx::raw_sql(sqlx::AssertSqlSafe(sql))).await.unwrap();
    let config = scene.config_at(&address_of(server.address(), OWNER)).with_migrate(true);
    let store = config.with_connections(8).open().await.unwrap();
    let writers = Writers::start(&scene, &store).await;
    for _ in 0..10 {
        writers.go_on(40).await;
        let server = server.clone();
        let kill = move || {
            server.kill();
            server.start_again();
        };
        tokio::task::spawn_blocking(kill).await.unwrap();
    }
    writers.go_on(40).await;
    writers.end(&store).await;
}

/// A writer who is overtaken at each attempt has the session alone after three of them: nobody changes it between its lock and its
/// commit.
#[tokio::test(flavor = "multi_thread")]
async fn a_writer_that_is_overtaken_again_and_again_gets_the_session_alone() {
    let scene = Scene::with_tables().await;
    let store = scene.config_at(&scene.address_named("overtaken")).open().await.unwrap();
    let session = scene.create(&store).await;
    // The writer's statement has begun when the row changes under it, as long as it can change.
    scene
        .run(
            "CREATE FUNCTION @.wait() RETURNS trigger LANGUAGE plpgsql AS $$ DECLARE before bigint; BEGIN \
             IF current_setting('application_name') = 'overtaken' THEN SELECT version INTO before FROM @.sessions; \
             FOR n IN 1 .. 600 LOOP PERFORM pg_sleep(0.005); EXIT WHEN (SELECT version FROM @.sessions) <> before; END LOOP; END IF; \
             RETURN NULL; END $$; \
             CREATE TRIGGER wait BEFORE UPDATE ON @.sessions FOR EACH STATEMENT EXECUTE FUNCTION @.wait()",
        )
        .await;
    let is_done = Arc::new(AtomicBool::new(false));
    let overtake = tokio::spawn({
        let (is_done, mut conn) = (is_done.clone(), scene.connect().await);
        let sql = format!("UPDATE {}.sessions SET version = version % 1000000 + 1", scene.schema);
        async move {
            while !is_done.load(Ordering::SeqCst) {
                conn.execute(sqlx::raw_sql(sqlx::AssertSqlSafe(sql.clone()))).await.unwrap();
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
    });
    let commit = Commit::seal(&scene.effects, session.id, session.head).with_events(message("a"));
    let done = tokio::time::timeout(LATE, store.commit(commit)).await.expect("the writer makes no progress");
    is_done.store(true, Ordering::SeqCst);
    tokio::time::timeout(LATE, overtake).await.expect("the other one does not end").unwrap();
    assert_eq!(done.unwrap().session.head, Seq::new(2));
}

/// Of 32 writers on one session each gets its turn. A writer whom more commits
/// overtake than the record remembers is told so, and seals anew.
#[tokio::test(flavor = "multi_thread")]
async fn of_many_writers_on_one_session_each_makes_progress() {
    let scene = Scene::with_tables().await;
    let id = scene.create(&scene.open().await).await.id;
    let mut writers = Vec::new();
    for n in 0..32 {
        // Each has its own record of the session, which the others make old.
        let (store, effects) =
            (scene.config().with_connections(2).open().await.unwrap(), scene.effects.clone());
        writers.push(tokio::spawn(async move {
            let mut turn = 0;
            while turn < 10 {
                let head = store.load(id).await.unwrap().head;
                // Wherever the session ends by then.
                let commit = Commit::seal(&effects, id, head);
                match store.commit(commit.with_events(message(&format!("w{n}-{turn}")))).await {
                    Ok(_) => turn += 1,
                    Err(error) => assert!(error.to_string().contains("too long ago"), "{error:?}"),
                }
            }
        }));
    }
    for writer in writers {
        tokio::time::timeout(LATE, writer).await.expect("a writer makes no progress").unwrap();
    }
    assert_eq!(scene.open().await.load(id).await.unwrap().head, Seq::new(1 + 32 * 10));
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

/// A writer that meets a lock fails in time and has written nothing, directly and behind a pooler. Whatever ends its statement, its
/// words are not in the server's log.
#[tokio::test(flavor = "multi_thread")]
async fn a_held_lock_is_a_timeout_and_no_content_is_logged() {
    let scene = Scene::with_tables().await;
    let pooler = scene.pooler(2);
    for config in [scene.config(), scene.config_behind(&pooler)] {
        // Long enough to open a store on a busy machine.
        let (short, long) = (Duration::from_secs(2), Duration::from_secs(3600));
        let locked = config.clone().with_lock_timeout(short).open().await.unwrap();
        let slow = config.clone().with_lock_timeout(long).with_statement_timeout(short).open().await.unwrap();
        let patient = config.with_lock_timeout(long).with_statement_timeout(long).open().await.unwrap();
        let session = scene.create(&patient).await;
        let commit =
            || Commit::seal(&scene.effects, session.id, session.head).with_events(message("plantedword"));
        let mut holder = connect().await;
        let lock = format!("BEGIN; SELECT 1 FROM {}.sessions FOR UPDATE", scene.schema);
        holder.execute(sqlx::raw_sql(sqlx::AssertSqlSafe(lock))).await.unwrap();
        for (store, words) in [(&locked, "held a lock"), (&slow, "statement timeout")] {
            let error = store.commit(commit()).await.unwrap_err();
            let found = (error.kind(), error.write_outcome());
            assert_eq!(found, (&ErrorKind::Unavailable, WriteOutcome::NotApplied), "{error}");
            assert!(error.is_timeout() && error.to_string().contains(words), "{error}");
        }
        let (ended, last) = (patient.clone(), commit());
        let waiting = tokio::spawn(async move { ended.commit(last).await });
        let end = format!(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND usename = '{}'",
            scene.app()
        );
        let end = async {
            while scene.number(&end).await == 0 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(LATE, end).await.expect("nobody waits for the lock");
        holder.execute("ROLLBACK").await.unwrap();
        // One that was sent alone has an unknown outcome; one whose transaction was not ended is sent again.
        let done = tokio::time::timeout(LATE, waiting).await.expect("the commit does not end").unwrap();
        assert!(done.is_ok() || done.unwrap_err().write_outcome() == WriteOutcome::Unknown);
        patient.load(session.id).await.unwrap();
    }
    let log = SERVER.log();
    for words in ["lock timeout", "statement timeout", "terminating connection"] {
        assert!(log.contains(words), "{words}: {log}");
    }
    assert!(!log.contains("plantedword"), "{log}");
}
