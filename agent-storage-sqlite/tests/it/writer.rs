//! The writer: groups, failures inside of them, callers and runtimes that go away.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::support::Site;
use agent_core::commit::{Commit, Precondition, Trigger};
use agent_core::event::{EventType, NewEvent};
use agent_core::state::Reason;
use agent_core::store::{Purge, ReadEvents, SessionQuery};
use agent_core::{ErrorKind, Seq, SessionStore, SessionStoreExt, WriteOutcome};
use futures::future::join_all;

/// After this a test is stuck. Nothing measures time.
const PATIENCE: Duration = Duration::from_secs(60);

/// Whether a future is done after one look at it; what it sends it has sent then.
fn is_ready<F: Future>(future: std::pin::Pin<&mut F>) -> bool {
    matches!(future.poll(&mut Context::from_waker(Waker::noop())), Poll::Ready(_))
}

/// Of a group in which one caller's expectation does not hold, all others are stored; batches see what came before
/// them in the batch.
#[tokio::test(flavor = "multi_thread")]
async fn one_callers_conflict_fails_no_other_caller() {
    let site = Site::new();
    let store = site.open().await;
    let (calm, raced) = (site.session(&store).await, site.session(&store).await);
    // Another program holds the lock, so that all that follow wait together.
    let other = site.raw();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let commits: Vec<_> = (0..24)
        .map(|n| {
            let (session, expect) = if n % 2 == 0 {
                (&calm, Precondition::MustExist)
            } else {
                (&raced, Precondition::Matches(raced.head))
            };
            site.text_commit(session, format!("message {n}")).with_precondition(expect)
        })
        .collect();
    let mut waiting: Vec<_> = commits.into_iter().map(|commit| Box::pin(store.commit(commit))).collect();
    assert!(waiting.iter_mut().all(|commit| !is_ready(commit.as_mut())));
    let log = || std::fs::metadata(site.folder.path().join("agent.db-wal")).unwrap().len();
    let before = log();
    other.execute_batch("ROLLBACK").unwrap();
    let (mut stored, mut conflicts) = (0, 0);
    for (n, done) in join_all(waiting).await.into_iter().enumerate() {
        match done {
            Ok(_) => stored += 1,
            Err(error) => {
                assert_eq!(n % 2, 1, "{error}");
                assert_eq!(*error.kind(), ErrorKind::Conflict { head: Some(raced.head.next()) });
                assert_eq!(error.write_outcome(), WriteOutcome::NotApplied);
                conflicts += 1;
            }
        }
    }
    assert_eq!((stored, conflicts), (13, 11));
    // Each transaction writes each page that it changed once: together they write far fewer than one by one.
    let pages = (log() - before) / 4096;
    assert!(pages < 60, "{pages} pages for 24 commits: they did not share a transaction");
    let page = store.read(calm.id, ReadEvents::last(12)).await.unwrap();
    let texts: Vec<_> = page.events.iter().map(|event| event.payload.get().to_owned()).collect();
    let expected: Vec<_> = (0..12).map(|n| format!("{{\"text\":\"message {}\"}}", 2 * n)).collect();
    assert_eq!(texts, expected, "in the order in which they were sent");
}

/// A full disk fails all that wait, nothing of it is stored, and the store goes on when there is room again; a commit
/// that is too large for what is left fails none of those that are not.
#[tokio::test(flavor = "multi_thread")]
async fn full_disk_applies_nothing_and_is_recoverable() {
    let site = Site::new();
    let store = site.config().with_max_pages(500).open().await.unwrap();
    let (victim, session) = (site.session(&store).await, site.session(&store).await);
    let ballast = site.append_text(&store, &victim, "x".repeat(300_000)).await;
    let delete = Commit::seal(&site.effects, ballast.id, ballast.head)
        .with_trigger(Trigger::Delete(Reason::UserDeleted));
    let deleted = store.commit(delete).await.unwrap().session;

    // One is too large, the others are not.
    let other = site.raw();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let sizes = (0..12).map(|n| if n == 6 { 4_000_000 } else { 100 });
    let commits: Vec<_> = sizes.map(|size| site.text_commit(&session, "x".repeat(size))).collect();
    let mut waiting: Vec<_> = commits.iter().map(|commit| Box::pin(store.commit(commit.clone()))).collect();
    assert!(waiting.iter_mut().all(|commit| !is_ready(commit.as_mut())));
    other.execute_batch("ROLLBACK").unwrap();
    for (n, done) in join_all(waiting).await.into_iter().enumerate() {
        assert_eq!(done.is_err(), n == 6, "{n}: {done:?}");
        if let Err(error) = done {
            assert_eq!((error.kind(), error.write_outcome()), (&ErrorKind::Full, WriteOutcome::NotApplied));
        }
    }

    // Fill what is left, then all fail alike.
    let mut head = store.load(session.id).await.unwrap();
    for size in [100_000, 4_000] {
        loop {
            match store.commit(site.text_commit(&head, "x".repeat(size))).await {
                Ok(done) => head = done.session,
                Err(error) => {
                    assert_eq!(*error.kind(), ErrorKind::Full, "{error}");
                    break;
                }
            }
        }
    }
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let commits: Vec<_> = (0..8).map(|_| site.text_commit(&head, "x".repeat(40_000))).collect();
    let mut waiting: Vec<_> = commits.iter().map(|commit| Box::pin(store.commit(commit.clone()))).collect();
    assert!(waiting.iter_mut().all(|commit| !is_ready(commit.as_mut())));
    other.execute_batch("ROLLBACK").unwrap();
    for done in join_all(waiting).await {
        let error = done.unwrap_err();
        assert_eq!((error.kind(), error.write_outcome()), (&ErrorKind::Full, WriteOutcome::NotApplied));
    }
    assert_eq!(store.load(session.id).await.unwrap(), head, "nothing was applied");

    // Room is made; the same sealed commits go through.
    let purged = store.purge(Purge::new(deleted.id, deleted.head)).await.unwrap();
    assert_eq!(purged.events, deleted.head.get());
    for commit in commits.into_iter().take(5) {
        assert!(!store.commit(commit).await.unwrap().replayed);
    }
    assert_eq!(store.load(session.id).await.unwrap().head.get(), head.head.get() + 5);
}

/// A commit that waits is stored although its caller is dropped and its runtime ends; the store serves another runtime.
#[test]
fn commit_survives_the_end_of_the_hosts_runtime() {
    let site = Site::new();
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (first, second) = (runtime(), runtime());
    let (store, session, commit) = first.block_on(async {
        let store = site.open().await;
        let session = site.session(&store).await;
        store.load(session.id).await.unwrap();
        let commit = site.text_commit(&session, "in flight");
        (store, session, commit)
    });
    let other = site.raw();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    {
        let _inside = first.enter();
        let flight = pin!(store.commit(commit.clone()));
        assert!(!is_ready(flight));
    }
    drop(first);
    second.block_on(async {
        other.execute_batch("ROLLBACK").unwrap();
        let stored = tokio::time::timeout(PATIENCE, store.changed(session.id, session.head)).await;
        assert_eq!(stored.expect("it is stored").unwrap(), session.head.next());
        assert!(store.commit(commit).await.unwrap().replayed);
        let page = store.read(session.id, ReadEvents::last(1)).await.unwrap();
        assert_eq!(page.events[0].seq, session.head.next());
    });
}

/// A caller that has seen what this store wrote last is told what another has written since, before it began to wait and after.
#[tokio::test]
async fn waiting_after_an_own_write_finds_what_others_wrote() {
    let site = Site::new();
    let (store, other) = (site.open().await, site.open().await);
    let session = site.session(&store).await;
    let mut seen = session.head;
    for before in [true, false] {
        let own =
            store.commit(site.text_commit(&store.load(session.id).await.unwrap(), "ours")).await.unwrap();
        seen = seen.max(own.session.head);
        let theirs = other.commit(site.text_commit(&own.session, "theirs"));
        let waits = async { tokio::time::timeout(PATIENCE, store.changed(session.id, seen)).await };
        let found = if before {
            theirs.await.unwrap();
            waits.await
        } else {
            let (found, theirs) = tokio::join!(waits, theirs);
            theirs.unwrap();
            found
        };
        assert_eq!(found.expect("it is found in time").unwrap(), seen.next());
        seen = seen.next();
    }
}

/// What waits when the last handle is dropped is finished.
#[tokio::test]
async fn queued_writes_finish_after_the_last_handle_drops() {
    let site = Site::new();
    let store = site.open().await;
    let session = site.session(&store).await;
    {
        let mut waiting: Vec<_> =
            (0..12).map(|n| Box::pin(store.commit(site.text_commit(&session, format!("{n}"))))).collect();
        assert!(waiting.iter_mut().all(|commit| !is_ready(commit.as_mut())));
    }
    drop(store);
    let store = site.open().await;
    let last = Seq::new(session.head.get() + 12);
    let stored = store.changed(session.id, Seq::new(last.get() - 1));
    assert_eq!(tokio::time::timeout(PATIENCE, stored).await.expect("all are stored").unwrap(), last);
}

/// A lock that another process does not give up is `Unavailable` after the stated time, worth a retry, and not
/// SQLite's words.
#[tokio::test]
async fn lock_held_too_long_is_unavailable() {
    let site = Site::new();
    let store = site.config().with_busy_timeout(Duration::from_millis(50)).open().await.unwrap();
    let session = site.session(&store).await;
    let other = site.raw();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let commit = site.text_commit(&session, "patience");
    let error = store.commit(commit.clone()).await.unwrap_err();
    assert!(error.is_retryable(), "{error:?}");
    assert_eq!(error.write_outcome(), WriteOutcome::NotApplied);
    assert!(!format!("{error:?}").contains("database is locked"), "{error:?}");
    other.execute_batch("ROLLBACK").unwrap();
    assert!(!store.commit(commit).await.unwrap().replayed);
}

/// A crowd behind a lock that stays waits as long as one does, and is told so in a way that nobody waits anew for.
#[tokio::test]
#[allow(clippy::print_stdout, reason = "what was measured is printed")]
async fn callers_behind_a_lock_wait_only_once() {
    let site = Site::new();
    let wait = Duration::from_secs(1);
    let store = site.config().with_busy_timeout(wait).open().await.unwrap();
    let session = site.session(&store).await;
    let other = site.raw();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let mut waits = Vec::new();
    // More than three of the writer's transactions hold.
    for count in [1, 800] {
        let begun = tokio::time::Instant::now();
        let mut tasks = tokio::task::JoinSet::new();
        for n in 0..count {
            let (store, commit) = (store.clone(), site.text_commit(&session, format!("one of {count}: {n}")));
            tasks.spawn(async move { store.commit_with_retry(commit).await });
        }
        for done in tasks.join_all().await {
            let error = done.unwrap_err();
            assert!(error.is_timeout() && error.is_retryable(), "{error:?}");
            assert_eq!(error.write_outcome(), WriteOutcome::NotApplied);
        }
        waits.push(begun.elapsed());
    }
    println!("where {wait:?} are set one waits {:?}, and 800 at once {:?}", waits[0], waits[1]);
    // Waits one after another, or again and again, take four times as long and more.
    assert!(waits.iter().all(|waited| *waited < wait * 5 / 2), "{waits:?}");
    other.execute_batch("ROLLBACK").unwrap();
    assert_eq!(store.load(session.id).await.unwrap().head, session.head);
}

/// A reader that stays in its transaction blocks no writer; the write-ahead log is short again after it ends.
#[tokio::test]
async fn long_reader_blocks_no_writer() {
    let site = Site::new();
    let store = site.open().await;
    let mut session = site.session(&store).await;
    let reader = site.raw();
    reader.execute_batch("BEGIN; SELECT count(*) FROM events").unwrap();
    for _ in 0..40 {
        session = site.append_text(&store, &session, "x".repeat(1 << 20)).await;
    }
    let log = site.folder.path().join("agent.db-wal");
    let length = || std::fs::metadata(&log).unwrap().len();
    assert!(length() > 32 << 20, "the reader keeps the log: {}", length());
    reader.execute_batch("ROLLBACK").unwrap();
    for n in 0..64 {
        session = site.append_text(&store, &session, format!("{n}")).await;
    }
    assert!(length() < 16 << 20, "the log is short again: {}", length());
    assert_eq!(store.read(session.id, ReadEvents::last(3)).await.unwrap().events.len(), 3);
}

/// Signs of life are seen by another handle, also where the holder commits nothing.
#[tokio::test]
async fn heartbeats_are_seen_by_another_handle() {
    let site = Site::new();
    let (here, there) = (site.open().await, site.open().await);
    let session = site.session(&here).await;
    let begin = agent_core::commit::LeaseRequest::new("laptop", site.effects.new_run_id());
    let commit = Commit::seal(&site.effects, session.id, session.head)
        .with_event(NewEvent::user_message("go"))
        .with_trigger(Trigger::BeginRun(begin));
    let epoch = here.commit(commit).await.unwrap().epoch.unwrap();
    let before = there.leases().status(session.id, epoch).await.unwrap();
    here.leases().heartbeat(session.id, epoch).await.unwrap();
    let after = there.leases().status(session.id, epoch).await.unwrap();
    assert_ne!(before, after);
    here.leases().heartbeat(session.id, epoch.next()).await.unwrap();
    assert_eq!(there.leases().status(session.id, epoch).await.unwrap(), after, "a heartbeat of no lease");
}

/// What a writer remembers of a session counts only while nobody else has written to it: commits through
/// another handle, its deletion and purge are seen by the very next commit.
#[tokio::test]
async fn cache_is_not_used_after_another_handle_writes() {
    let site = Site::new();
    let (here, there) = (site.open().await, site.open().await);
    let session = site.session(&here).await;
    let session = site.append_text(&here, &session, "kept here").await;
    let other = site.append_text(&there, &session, "written there").await;
    let late = site.text_commit(&session, "late").with_precondition(Precondition::Matches(session.head));
    let error = here.commit(late).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Conflict { head: Some(other.head) });
    let session = site.append_text(&here, &other, "kept here again").await;
    site.append_text(&there, &session, "written there again").await;
    let any = site.text_commit(&session, "after both").with_precondition(Precondition::MustExist);
    let session = here.commit(any).await.unwrap().session;
    assert_eq!(session.head.get(), 6);
    let page = there.read(session.id, ReadEvents::first(10)).await.unwrap();
    assert_eq!((page.events.len(), page.damaged.len()), (6, 0));

    let delete = Commit::seal(&site.effects, session.id, session.head)
        .with_trigger(Trigger::Delete(Reason::UserDeleted));
    let deleted = there.commit(delete).await.unwrap().session;
    there.purge(Purge::new(deleted.id, deleted.head)).await.unwrap();
    // The place of the next event is free, and still nothing is written there.
    let error = here
        .commit(site.text_commit(&session, "too late").with_precondition(Precondition::MustExist))
        .await
        .unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Deleted);
    assert!(here.read(session.id, ReadEvents::first(10)).await.unwrap().events.is_empty());
}

/// Whether calls are done on the caller's thread: then each is done at the first look at it.
async fn is_at_once<F: Future>(call: impl Fn() -> F) -> bool {
    for _ in 0..50 {
        let mut call = pin!(call());
        if !is_ready(call.as_mut()) {
            call.await;
            return false;
        }
    }
    true
}

/// Whether calls are done on the caller's thread as soon as nobody else is busy with the file: a handle that was dropped
/// still puts it in order, and reads go to another thread meanwhile.
async fn is_soon_at_once<F: Future>(call: impl Fn() -> F) -> bool {
    for _ in 0..400 {
        if is_at_once(&call).await {
            return true;
        }
    }
    false
}

/// Whether calls are done on another thread: then one is not there yet at some look. It may need many where the
/// system lets that thread go first each time it is woken.
async fn is_elsewhere<F: Future>(call: impl Fn() -> F) -> bool {
    for _ in 0..400 {
        if !is_at_once(&call).await {
            return true;
        }
    }
    false
}

/// On the caller's thread only that is read which is small and was in use a moment ago; whatever else may take its
/// time is done by other threads, and blocks no executor.
#[tokio::test]
async fn callers_thread_reads_only_small_cached_data() {
    let site = Site::new();
    let store = site.open().await;
    let (mut many, mut large) = (site.session(&store).await, site.session(&store).await);
    for n in 0..100 {
        many = site.append_text(&store, &many, format!("message {n}")).await;
        large = site.append_text(&store, &large, "x".repeat(8 << 10)).await;
    }
    let mut first_reads = 0..100;
    let store = loop {
        let store = site.open().await;
        if !is_ready(pin!(store.load(many.id))) {
            break store;
        }
        first_reads.next().expect("what is not in memory yet is read on the caller's thread");
    };
    for id in [many.id, large.id] {
        store.load(id).await.unwrap();
        store.list(SessionQuery::new()).await.unwrap();
    }
    let (read, list) = (|id, read: ReadEvents| store.read(id, read), |query| store.list(query));
    assert!(is_soon_at_once(|| store.load(many.id)).await);
    assert!(is_soon_at_once(|| read(many.id, ReadEvents::last(50))).await);
    assert!(is_soon_at_once(|| list(SessionQuery::new().with_limit(50))).await);
    assert!(is_elsewhere(|| read(many.id, ReadEvents::last(65))).await, "too many events");
    assert!(is_elsewhere(|| read(large.id, ReadEvents::last(50))).await, "too many bytes");
    let of_a_kind = || ReadEvents::last(50).with_types([EventType::SESSION_CREATED]);
    assert!(is_elsewhere(|| read(many.id, of_a_kind())).await, "the whole log may have to be read");
    assert!(is_elsewhere(|| list(SessionQuery::new().with_limit(65))).await, "too many sessions");
    assert!(is_elsewhere(|| list(SessionQuery::new().with_limit(50).with_total())).await, "all are counted");
    assert!(is_elsewhere(|| store.leases().heartbeat(many.id, many.epoch)).await, "a write");
}

/// That somebody else writes at the same moment is waited for, and is nobody's error.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_writes_wait_and_are_not_refused() {
    let site = Site::new();
    let mut tasks = Vec::new();
    for _ in 0..8 {
        let store = site.open().await;
        let mut session = site.session(&store).await;
        let effects = site.effects.clone();
        tasks.push(tokio::spawn(async move {
            for n in 0..150 {
                let commit = Commit::seal(&effects, session.id, session.head);
                let event = commit.with_event(NewEvent::user_message(format!("message {n}")));
                session = store.commit(event).await.unwrap().session;
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    site.assert_is_whole();
}
