//! Several processes on one file: nothing is lost, no caller gets "database is locked", kills lose nothing.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::print_stdout, reason = "how much was tried is part of the result")]

#[path = "it/support/mod.rs"]
mod support;

use std::io::Write;
use std::time::Duration;

use agent_core::clock::Effects;
use agent_core::commit::{Commit, LeaseRequest, Precondition, Trigger};
use agent_core::event::NewEvent;
use agent_core::session::NewSession;
use agent_core::store::{ReadEvents, SweepBlobs};
use agent_core::{
    Backend, BindingStore, DeviceId, ErrorKind, Seq, SessionId, SessionStore, SessionStoreExt, TenantId,
    WorkspaceId,
};
use agent_storage_sqlite::SqliteStore;
use support::{MARK, Site, Worker, content, put, read_blob, showing};

const TASKS: usize = 32;

fn answer(what: impl std::fmt::Display) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{MARK}{what}").and_then(|()| out.flush()).unwrap();
}

/// Not a test by itself: what another process does, where the environment says so.
#[test]
fn worker() {
    let Ok(path) = std::env::var("WORKER_PATH") else { return };
    let order = std::env::var("WORKER_ORDER").unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let store = SqliteStore::open(path).await.unwrap();
        let effects = Effects::default();
        match order.rsplit_once(' ').unwrap() {
            ("append", id) => append(&store, &effects, id.parse().unwrap()).await,
            ("fill", id) => fill(&store, &effects, id.parse().unwrap()).await,
            ("copy and fill", id) => {
                let to = store.path().with_extension("copy");
                answer(failure(&store.backup(&to).await.expect_err("a large copy"), Seq::ZERO));
                fill(&store, &effects, id.parse().unwrap()).await;
                answer(store.load(id.parse().unwrap()).await.unwrap().head);
            }
            ("lease", id) => {
                let id: SessionId = id.parse().unwrap();
                let head = store.load(id).await.unwrap().head;
                let begin = LeaseRequest::new("laptop", effects.new_run_id());
                let commit = Commit::seal(&effects, id, head)
                    .with_event(NewEvent::user_message("go"))
                    .with_trigger(Trigger::BeginRun(begin));
                answer(store.commit(commit).await.unwrap().epoch.unwrap());
                std::future::pending::<()>().await;
            }
            ("show", id) => show(&store, &effects, id.parse().unwrap()).await,
            ("sweep", id) => sweep(&store, id.parse().unwrap()).await,
            ("erase", name) => erase(&store, &effects, &name.parse().unwrap()).await,
            ("write", count) => write(&store, &effects, count.parse().unwrap()).await,
            ("open", name) => {
                let device: DeviceId = name.parse().unwrap();
                answer(
                    store
                        .bind(&device, effects.new_workspace_id(), Precondition::MustNotExist)
                        .await
                        .unwrap(),
                );
            }
            other => panic!("{other:?}"),
        }
    });
}

/// Writes until that fails.
async fn fill(store: &SqliteStore, effects: &Effects, id: SessionId) {
    let mut session = store.load(id).await.unwrap();
    loop {
        let event = NewEvent::user_message("x".repeat(20_000));
        let commit = Commit::seal(effects, id, session.head).with_event(event);
        match store.commit(commit).await {
            Ok(done) => session = done.session,
            Err(error) => break answer(failure(&error, session.head)),
        }
    }
}

/// How a worker says that a write failed after `head` was acknowledged.
fn failure(error: &agent_core::Error, head: Seq) -> String {
    format!("{:?} {:?} after {head}", error.kind(), error.write_outcome())
}

/// Appends until it is killed, and says each number once it is acknowledged.
async fn append(store: &SqliteStore, effects: &Effects, id: SessionId) {
    let mut seen = store.load(id).await.unwrap().head;
    loop {
        let events = vec![NewEvent::user_message("text"), NewEvent::agent_message("x".repeat(3000))];
        seen = store.sessions(effects).append(id, seen, events).await.unwrap().last;
        answer(seen);
    }
}

/// Puts blobs of one to three chunks and names each in an event, until it is killed; says the head once it is
/// acknowledged.
async fn show(store: &SqliteStore, effects: &Effects, id: SessionId) {
    let mut seen = store.load(id).await.unwrap().head;
    loop {
        let bytes = content(effects.random_u64() >> 32, (effects.random_u64() % 600_000) as usize);
        let shown = showing(put(store, id, bytes).await);
        let commit = Commit::seal(effects, id, seen).with_event(shown);
        match store.commit(commit).await {
            Ok(done) => {
                seen = done.last;
                answer(seen);
            }
            // It was swept before it was named.
            Err(error) => assert!(matches!(error.kind(), ErrorKind::BlobMissing { .. }), "{error}"),
        }
    }
}

/// Sweeps and puts what no event names, until it is killed; says so each time.
async fn sweep(store: &SqliteStore, id: SessionId) {
    for n in 0.. {
        put(store, id, content(n, 300_000)).await;
        store.blobs().sweep(SweepBlobs::of(id)).await.unwrap();
        answer(n);
    }
}

/// 32 tasks, each with a session of its own, so many turns each (or for as many seconds as asked for).
async fn write(store: &SqliteStore, effects: &Effects, count: u64) {
    let soak = std::env::var("AGENT_SQLITE_SOAK_SECONDS").ok().map(|text| text.parse::<u64>().unwrap());
    let end = soak.map(|seconds| tokio::time::Instant::now() + Duration::from_secs(seconds));
    let tasks = (0..TASKS).map(|_| {
        let (store, effects) = (store.clone(), effects.clone());
        tokio::spawn(async move {
            let new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
            let session = store.sessions(&effects).create(new).await.unwrap();
            let (mut seen, mut turns) = (session.head, 0);
            while end.map_or(turns < count, |end| tokio::time::Instant::now() < end) {
                let turn = vec![NewEvent::user_message("question"), NewEvent::agent_message("answer")];
                seen = store.sessions(&effects).append(session.id, seen, turn).await.unwrap().last;
                turns += 1;
            }
            (session.id, seen)
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        let (id, seen) = task.await.unwrap();
        answer(format_args!("{id} {seen}"));
    }
}

/// Two processes with 32 tasks each write to one file: no caller sees a refusal, what was acknowledged is
/// stored, the file is whole. `AGENT_SQLITE_SOAK_SECONDS` makes it longer.
#[tokio::test(flavor = "multi_thread")]
async fn two_processes_with_32_tasks_each_lose_nothing() {
    let site = Site::new();
    let path = site.path().to_str().unwrap().to_owned();
    let orders = [("WORKER_PATH", path), ("WORKER_ORDER", "write 25".to_owned())];
    let mut workers: Vec<_> = (0..2).map(|_| Worker::start("worker", &orders)).collect();
    let mut acknowledged = Vec::new();
    for worker in &mut workers {
        while let Some(line) = worker.answer() {
            let (id, seen) = line.split_once(' ').unwrap();
            acknowledged.push((id.parse::<SessionId>().unwrap(), Seq::new(seen.parse().unwrap())));
        }
    }
    for worker in workers {
        assert!(worker.succeeded(), "no task was refused");
    }
    assert_eq!(acknowledged.len(), 2 * TASKS);
    let store = site.open().await;
    for (id, seen) in acknowledged {
        assert_eq!(store.load(id).await.unwrap().head, seen);
        assert!(seen >= Seq::new(50));
        let (mut read, mut count) = (ReadEvents::first(1000), 0);
        loop {
            let page = store.read(id, read).await.unwrap();
            assert!(page.damaged.is_empty());
            count += page.events.len() as u64;
            match page.next {
                Some(next) => read = next,
                None => break,
            }
        }
        assert_eq!(count, seen.get());
    }
    site.assert_is_whole();
}

/// Text of the tenant that is erased.
const SECRET: &str = "xyzzy-plugh-4711";

/// Fills a tenant in turns with another, deletes it and rewrites the file, until it is killed; says so each time.
async fn erase(store: &SqliteStore, effects: &Effects, name: &TenantId) {
    let [gone, other] = [name.clone(), "other".parse().unwrap()].map(|tenant| store.for_tenant(&tenant));
    for n in 0.. {
        for m in 0..8_usize {
            for (store, text) in [(&gone, SECRET), (&other, "barley")] {
                let new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
                let event = |k: usize| NewEvent::user_message(text.repeat((m * 7 + k * 13) % 90));
                store
                    .commit(Commit::create(effects, new).with_events((0..20_usize).map(event)))
                    .await
                    .unwrap();
            }
        }
        store.delete_tenant(name).await.unwrap();
        answer(format!("deleted {n}"));
        store.maintenance().maintain().await.unwrap();
        answer(format!("maintained {n}"));
    }
}

/// A process that deletes a tenant and rewrites the file is killed at any moment. Whatever it had done: if the next one has
/// deleted the tenant and finds no rewrite pending, no byte of it is left; otherwise the rewrite removes the rest. Nothing
/// else is lost.
#[tokio::test]
async fn kills_leave_a_rewrite_pending_or_nothing_to_rewrite() {
    let site = Site::new();
    let kept = site.session(&site.open().await).await;
    let name: TenantId = "gone".parse().unwrap();
    let holds = || {
        let mut files = std::fs::read_dir(site.folder.path()).unwrap().map(Result::unwrap);
        files.any(|file| String::from_utf8_lossy(&std::fs::read(file.path()).unwrap()).contains(SECRET))
    };
    let (mut pending, mut done) = (0, 0);
    for n in 0..16_u32 {
        let path = site.path().to_str().unwrap().to_owned();
        let orders = [("WORKER_PATH", path), ("WORKER_ORDER", format!("erase {name}"))];
        let mut worker = Worker::start("worker", &orders);
        worker.answer().expect("it deleted the tenant");
        // Sometimes within the rewrite, sometimes within the next deletion.
        if n % 2 == 1 {
            worker.answer().expect("it rewrote the file");
        }
        tokio::time::sleep(Duration::from_micros(u64::from(n * n) * 300)).await;
        worker.kill();
        let store = site.open().await;
        if store.delete_tenant(&name).await.unwrap().rewrite_pending {
            pending += 1;
            assert_eq!(store.maintenance().maintain().await.unwrap().len(), 1);
        } else {
            done += 1;
        }
        store.close().await.unwrap();
        assert!(!holds(), "kill {n}");
        let store = site.open().await;
        assert!(store.maintenance().pending().await.unwrap().is_empty());
        assert_eq!(store.load(kept.id).await.unwrap(), kept);
        assert_eq!(store.maintenance().check().await.unwrap(), []);
        site.assert_is_whole();
    }
    println!(
        "proof: 16 kills of a process that erases in SQLite: {pending} left a rewrite pending, {done} did not"
    );
    assert!(pending > 0);
}

/// After each of 50 kills every acknowledged commit is there, and at most one more.
#[tokio::test(flavor = "multi_thread")]
async fn fifty_kills_lose_nothing_that_was_acknowledged() {
    let site = Site::new();
    let session = site.session(&site.open().await).await;
    let path = site.path().to_str().unwrap().to_owned();
    let mut head = session.head;
    for round in 0..50 {
        let orders = [("WORKER_PATH", path.clone()), ("WORKER_ORDER", format!("append {}", session.id))];
        let mut worker = Worker::start("worker", &orders);
        let mut acknowledged = head;
        for _ in 0..=(site.effects.random_u64() % 20) {
            acknowledged = Seq::new(worker.answer().unwrap().parse().unwrap());
        }
        if let Some(last) = worker.kill().iter().filter_map(|line| line.parse().ok()).next_back() {
            acknowledged = Seq::new(last);
        }
        let store = site.open().await;
        head = store.load(session.id).await.unwrap().head;
        let more = head.get() - acknowledged.get();
        assert!(more == 0 || more == 2, "round {round}: acknowledged {acknowledged}, stored {head}");
        let page = store.read(session.id, ReadEvents::last(1000)).await.unwrap();
        assert!(page.damaged.is_empty());
        assert_eq!(page.events.last().unwrap().seq, head);
    }
    site.assert_is_whole();
    println!("proof: 50 kills of a writer to SQLite");
}

/// A writer that puts blobs and names them, and another process that sweeps, are killed at any moment: each event that was
/// acknowledged is there, and each blob that an event names reads back whole. A sweep leaves nothing else but what is
/// reported as unfinished, and an hour later nothing.
#[tokio::test(flavor = "multi_thread")]
async fn kills_lose_no_blob_that_an_event_names() {
    let site = Site::new();
    let session = site.session(&site.open().await).await;
    let path = site.path().to_str().unwrap().to_owned();
    let (mut head, mut read, mut unfinished) = (session.head, Seq::ZERO, 0);
    for round in 0..12 {
        let [mut writer, mut sweeper] = ["show", "sweep"].map(|order| {
            let order = format!("{order} {}", session.id);
            Worker::start("worker", &[("WORKER_PATH", path.clone()), ("WORKER_ORDER", order)])
        });
        let mut acknowledged = head;
        for _ in 0..=(site.effects.random_u64() % 4) {
            sweeper.answer().expect("it sweeps");
            acknowledged = Seq::new(writer.answer().expect("it writes").parse().unwrap());
        }
        // Not at the moment of an answer.
        tokio::time::sleep(Duration::from_micros(site.effects.random_u64() % 20_000)).await;
        let (first, second) = if round % 2 == 0 { (writer, sweeper) } else { (sweeper, writer) };
        let lines = [first.kill(), second.kill()];
        let heads = &lines[round % 2];
        acknowledged =
            heads.iter().filter_map(|line| line.parse().ok()).map(Seq::new).fold(acknowledged, Seq::max);

        let store = site.open().await;
        head = store.load(session.id).await.unwrap().head;
        let more = head.get() - acknowledged.get();
        assert!(more <= 1, "round {round}: acknowledged {acknowledged}, stored {head}");
        let swept = store.blobs().sweep(SweepBlobs::of(session.id)).await.unwrap();
        let bytes = "SELECT ifnull(sum(octet_length(data)), 0) FROM blob_chunks \
            WHERE blob NOT IN (SELECT blob FROM blobs WHERE state = 'whole' AND named > 0)";
        assert_eq!(site.count(bytes).unsigned_abs(), swept.unfinished, "round {round}");
        assert_eq!(
            site.count(
                "SELECT count(*) FROM blobs WHERE state = 'removed' OR (state = 'whole' AND named IS NULL)"
            ),
            0
        );
        unfinished = swept.unfinished;
        let page = store.read(session.id, ReadEvents::first(1000).with_after(read)).await.unwrap();
        assert!(page.damaged.is_empty(), "round {round}");
        assert_eq!(page.events.last().map_or(read, |event| event.seq), head, "round {round}");
        for name in page.events.iter().flat_map(|event| &event.blobs) {
            read_blob(&store, session.id, *name)
                .await
                .unwrap_or_else(|error| panic!("round {round}: {error}"));
        }
        read = head;
        assert_eq!(store.maintenance().check().await.unwrap(), []);
    }
    let later = Effects::default().now().plus_micros(2 * 3_600_000_000);
    let store = site.config().with_effects(Effects::seeded(1, later)).open().await.unwrap();
    assert_eq!(store.blobs().sweep(SweepBlobs::of(session.id)).await.unwrap().bytes, unfinished);
    let left = "SELECT count(*) FROM blobs WHERE state <> 'whole' OR named IS NULL";
    assert_eq!(site.count(left), 0);
    let page = store.read(session.id, ReadEvents::first(1000)).await.unwrap();
    for name in page.events.iter().flat_map(|event| &event.blobs) {
        read_blob(&store, session.id, *name).await.unwrap();
    }
    site.assert_is_whole();
    println!("proof: 12 kills of a writer of blobs to SQLite, and of a sweeper, {head} events");
}

/// Where the system fails in COMMIT itself, nobody knows whether the commit is in the file: it says so. What was
/// acknowledged is there, the commit in doubt is there whole or not at all, and the file is sound.
#[cfg(unix)]
#[tokio::test]
async fn system_error_in_commit_gives_an_unknown_outcome() {
    let site = Site::new();
    let store = site.open().await;
    let session = site.session(&store).await;
    let path = site.path().to_str().unwrap().to_owned();
    let orders = [("WORKER_PATH", path), ("WORKER_ORDER", format!("fill {}", session.id))];
    let mut worker = Worker::start_with_small_files("worker", &orders);
    let answer = worker.answer().expect("it failed in the end");
    let (what, head) = answer.split_once(" after ").unwrap();
    assert_eq!(what, "Full Unknown");
    assert!(worker.succeeded());
    let acknowledged: u64 = head.parse().unwrap();
    assert!(acknowledged > 10, "it wrote until the log was full: {acknowledged}");
    let now = store.load(session.id).await.unwrap();
    assert!((acknowledged..=acknowledged + 1).contains(&now.head.get()), "{acknowledged} {}", now.head);
    let page = store.read(session.id, ReadEvents::first(1000)).await.unwrap();
    assert_eq!((page.events.len() as u64, page.damaged.len()), (now.head.get(), 0));
    site.append_text(&store, &now, "the file goes on").await;
    site.assert_is_whole();
}

/// A limit on the size of files is the same to a caller as a full disk: for commits and copies. Nothing of a copy is left,
/// and what was acknowledged is there, for that process, too.
#[cfg(unix)]
#[tokio::test]
async fn file_size_limit_is_reported_as_a_full_disk() {
    let site = Site::new();
    let store = site.open().await;
    let session = site.session(&store).await;
    let session = site.append_text(&store, &session, "x".repeat(3 << 20)).await;
    store.close().await.unwrap();
    let path = site.path().to_str().unwrap().to_owned();
    let orders = [("WORKER_PATH", path), ("WORKER_ORDER", format!("copy and fill {}", session.id))];
    let mut worker = Worker::start_with_small_files("worker", &orders);
    let copied = worker.answer().expect("the copy failed");
    assert_eq!(copied, "Full NotApplied after 0");
    let filled = worker.answer().expect("a commit failed");
    let (what, head) = filled.split_once(" after ").unwrap();
    assert_eq!(what, "Full Unknown");
    let (acknowledged, seen) = (head.parse::<u64>().unwrap(), worker.answer().expect("it reads on"));
    assert!(seen.parse::<u64>().unwrap() >= acknowledged, "{seen} {acknowledged}");
    assert!(worker.succeeded());
    assert!(!site.path().with_extension("copy").exists());
    let store = site.open().await;
    assert!(store.load(session.id).await.unwrap().head.get() >= acknowledged);
    let names = std::fs::read_dir(site.folder.path()).unwrap();
    let parts = names.filter(|name| name.as_ref().unwrap().file_name().to_string_lossy().contains("copy"));
    assert_eq!(parts.count(), 0);
    site.assert_is_whole();
}

/// A holder that was killed is proven dead at once, one that lives is not; an epoch that is over proves nothing.
#[tokio::test]
async fn a_killed_holder_is_proven_dead() {
    let site = Site::new();
    let store = site.open().await;
    let session = site.session(&store).await;
    let path = site.path().to_str().unwrap().to_owned();
    let orders = [("WORKER_PATH", path), ("WORKER_ORDER", format!("lease {}", session.id))];
    let mut worker = Worker::start("worker", &orders);
    let epoch = agent_core::Epoch::new(worker.answer().expect("it took the lease").parse().unwrap());
    assert!(!store.leases().status(session.id, epoch).await.unwrap().holder_proven_dead, "it lives");
    // An input of another process is no sign of who holds the lease.
    let now = store.load(session.id).await.unwrap();
    let now = site.append_text(&store, &now, "meanwhile").await;
    assert!(!store.leases().status(session.id, epoch).await.unwrap().holder_proven_dead);
    // Making its record anew keeps who holds it.
    store.maintenance().rebuild().await.unwrap();
    assert!(!store.leases().status(session.id, epoch).await.unwrap().holder_proven_dead);
    worker.kill();
    assert!(store.leases().status(session.id, epoch).await.unwrap().holder_proven_dead);
    assert!(!store.leases().status(session.id, epoch.next()).await.unwrap().holder_proven_dead);
    let expired = Commit::seal(&site.effects, now.id, now.head).with_trigger(Trigger::LeaseExpired(epoch));
    let now = store.commit(expired).await.unwrap().session;
    let begin = LeaseRequest::new("phone", site.effects.new_run_id());
    let begin = Commit::seal(&site.effects, now.id, now.head).with_trigger(Trigger::BeginRun(begin));
    let epoch = store.commit(begin).await.unwrap().epoch.unwrap();
    let other = site.open().await;
    assert!(
        !other.leases().status(session.id, epoch).await.unwrap().holder_proven_dead,
        "this process lives"
    );
    drop(store);
    // The writer ends on its own thread.
    let dead = async {
        while !other.leases().status(session.id, epoch).await.unwrap().holder_proven_dead {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), dead).await.expect("it is over");
}

/// Eight processes open a file that is not there yet; one makes its tables, all work on it.
#[tokio::test(flavor = "multi_thread")]
async fn eight_openers_of_a_new_file_agree() {
    for _ in 0..3 {
        let site = Site::new();
        let path = site.path().to_str().unwrap().to_owned();
        let orders = [("WORKER_PATH", path), ("WORKER_ORDER", "open laptop".to_owned())];
        let mut workers: Vec<_> = (0..8).map(|_| Worker::start("worker", &orders)).collect();
        let outcome: std::collections::BTreeSet<_> =
            workers.iter_mut().map(|worker| worker.answer().expect("it opened the file")).collect();
        assert_eq!(outcome.len(), 1, "one first contact wins");
        let bound = site.open().await.resolve(&"laptop".parse().unwrap()).await.unwrap().unwrap();
        assert_eq!(outcome.first(), Some(&bound.to_string()));
    }
}
