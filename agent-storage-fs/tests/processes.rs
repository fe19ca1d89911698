//! Several processes on one directory, and processes that are killed.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::print_stdout, reason = "how much was tried is part of the result")]

#[path = "it/support/mod.rs"]
mod support;

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use agent_core::clock::Effects;
use agent_core::commit::{Commit, LeaseRequest, Precondition, Trigger};
use agent_core::event::NewEvent;
use agent_core::session::SessionSummary;
use agent_core::store::{ReadEvents, SessionQuery, SweepBlobs};
use agent_core::{
    BindingStore, BlobName, Epoch, ErrorKind, Seq, SessionId, SessionStore, SessionStoreExt, Timestamp,
};
use agent_storage_fs::{FsConfig, FsStore};
use support::{LARGE, content, names_in, naming, put, read_whole, session, texts};

const ORDER: &str = "AGENT_STORAGE_FS_TEST_ORDER";

/// A process that does what an order says; it is gone when this is dropped.
struct Worker(Child);

impl Worker {
    fn start(order: &str, root: &Path, session: Option<SessionId>) -> Self {
        let session = session.map_or_else(String::new, |id| id.to_string());
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "worker", "--nocapture", "--test-threads", "1"])
            .env(ORDER, format!("{order}\n{session}\n{}", root.display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Self(child)
    }

    /// What it says, without what the test harness says.
    fn lines(&mut self) -> impl Iterator<Item = String> + use<> {
        let out = self.0.stdout.take().unwrap();
        BufReader::new(out).lines().map_while(Result::ok).filter_map(|line| {
            // The harness prints its own text in front of the first.
            line.rsplit_once("said ").map(|(_, texts)| texts.to_owned())
        })
    }

    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn emit(what: impl std::fmt::Display) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "said {what}").unwrap();
    out.flush().unwrap();
}

/// Not a test of its own: what the other processes run.
#[test]
fn worker() {
    let Ok(order) = std::env::var(ORDER) else { return };
    // What waits for this process ends with it, at the latest then.
    std::thread::spawn(|| {
        #[allow(clippy::disallowed_methods, reason = "a deadline for the whole process")]
        std::thread::sleep(std::time::Duration::from_secs(300));
        std::process::exit(1);
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut parts = order.splitn(3, '\n');
        let (verb, session, root) = (parts.next().unwrap(), parts.next().unwrap(), parts.next().unwrap());
        let store = FsStore::open(root).await.unwrap();
        let effects = Effects::default();
        match verb {
            "append" | "append for ever" => {
                let id = session.parse().unwrap();
                let mut seen = SessionStore::load(&store, id).await.unwrap().head;
                for n in 0.. {
                    if verb == "append" && n == 100 {
                        break;
                    }
                    // Sometimes several at once, which must come whole or not at all.
                    let events = (0..=(n % 3))
                        .map(|part| NewEvent::user_message(format!("{} {n} {part}", std::process::id())));
                    let done = store.sessions(&effects).append(id, seen, events.collect()).await.unwrap();
                    seen = done.last;
                    emit(format_args!("{} {}", done.first, done.last));
                }
            }
            "bind" => {
                for n in 0..50 {
                    let device = format!("{} {n}", std::process::id()).parse().unwrap();
                    store
                        .bind(&device, effects.new_workspace_id(), Precondition::MustNotExist)
                        .await
                        .unwrap();
                    emit(device);
                }
            }
            "blobs for ever" => {
                let id: SessionId = session.parse().unwrap();
                let mut seen = SessionStore::load(&store, id).await.unwrap().head;
                for n in 0u64.. {
                    let bytes = content(effects.random_u64(), if n.is_multiple_of(3) { LARGE } else { 100 });
                    let name = put(&store, id, &bytes).await.unwrap();
                    let commit = Commit::seal(&effects, id, seen).with_event(naming(&[name]));
                    // A sweep may come between the two.
                    let done = loop {
                        match store.commit(commit.clone()).await {
                            Err(error) if matches!(error.kind(), ErrorKind::BlobMissing { .. }) => {
                                put(&store, id, &bytes).await.unwrap();
                            }
                            done => break done.unwrap(),
                        }
                    };
                    seen = done.last;
                    emit(format_args!("{} {name}", done.last));
                }
            }
            "use many for ever" => {
                // Those that others know, too.
                let page = SessionStore::list(&store, SessionQuery::new()).await.unwrap();
                let mut ids: Vec<SessionId> = page.items.iter().map(|item| item.id).collect();
                loop {
                    let dice = effects.random_u64();
                    if dice.is_multiple_of(20) {
                        ids.push(support::session(&store, &effects).await.id);
                        continue;
                    }
                    let id = ids[dice as usize / 7 % ids.len()];
                    let seen = SessionStore::load(&store, id).await.unwrap().head;
                    // The other process may write to it at the same time.
                    let hello = vec![NewEvent::user_message("hello")];
                    if store.sessions(&effects).append(id, seen, hello).await.is_ok() {
                        emit(id);
                    }
                }
            }
            "sweep for ever" => {
                let id: SessionId = session.parse().unwrap();
                loop {
                    let swept = store.blobs().sweep(SweepBlobs::of(id)).await.unwrap();
                    emit(swept.blobs);
                    // Otherwise it holds the lock nearly all the time, and the other process waits for it.
                    tokio::time::sleep(std::time::Duration::from_millis(1)).await;
                }
            }
            "hold" => {
                let id: SessionId = session.parse().unwrap();
                let head = SessionStore::load(&store, id).await.unwrap().head;
                let commit = Commit::seal(&effects, id, head)
                    .with_event(NewEvent::user_message("hello"))
                    .with_trigger(Trigger::BeginRun(LeaseRequest::new("worker", effects.new_run_id())));
                let epoch = store.commit(commit).await.unwrap().epoch.unwrap();
                store.leases().heartbeat(id, epoch).await.unwrap();
                emit(epoch.get());
                std::future::pending::<()>().await;
            }
            other => panic!("no order {other}"),
        }
    });
}

/// Processes that append at once lose nothing, double nothing, and each sees what the others wrote.
#[tokio::test]
async fn processes_that_append_at_once_lose_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let effects = Effects::default();
    let store = FsStore::open(folder.path()).await.unwrap();
    let id = session(&store, &effects).await.id;
    let mut workers: Vec<_> = (0..3).map(|_| Worker::start("append", folder.path(), Some(id))).collect();
    // One in this process as well.
    let mut mine = Vec::new();
    let mut seen = Seq::new(1);
    for n in 0..100 {
        let text = format!("mine {n}");
        seen = support::append_text(&store, &effects, id, seen, &text).await;
        mine.push(text);
    }
    let mut acknowledged = 0;
    for worker in &mut workers {
        let ranges: Vec<_> = worker.lines().collect();
        assert_eq!(ranges.len(), 100);
        for range in ranges {
            let (first, last) = range.split_once(' ').unwrap();
            acknowledged += 1 + last.parse::<u64>().unwrap() - first.parse::<u64>().unwrap();
        }
    }
    let head = SessionStore::load(&store, id).await.unwrap().head;
    assert_eq!(head.get(), 1 + 100 + acknowledged);
    let stored = texts(&store, id).await;
    assert_eq!(stored.len() as u64, 100 + acknowledged);
    let mut unique = stored.clone();
    unique.sort();
    unique.dedup();
    assert_eq!(unique.len(), stored.len());
    let own: Vec<_> = stored.iter().filter(|text| text.starts_with("mine")).cloned().collect();
    assert_eq!(own, mine, "in the order of their writer");
}

/// What is no part of a log may be removed while processes write, the files of locks above all: nothing that was
/// acknowledged is lost or doubled.
#[tokio::test]
async fn removed_lock_files_lose_no_commit() {
    let folder = tempfile::tempdir().unwrap();
    let effects = Effects::default();
    let store = FsStore::open(folder.path()).await.unwrap();
    let id = session(&store, &effects).await.id;
    let mut workers: Vec<_> = (0..2).map(|_| Worker::start("append", folder.path(), Some(id))).collect();
    let mut binders: Vec<_> = (0..2).map(|_| Worker::start("bind", folder.path(), None)).collect();
    let done = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let remover = std::thread::spawn({
        let (root, done) = (folder.path().to_owned(), done.clone());
        move || {
            let session = support::folder_of(&root, id);
            let mut rounds = 0;
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                for file in [session.join("lock"), session.join("session.json"), root.join("bindings.lock")] {
                    let _ = std::fs::remove_file(file);
                }
                let _ = std::fs::remove_dir_all(root.join("index"));
                rounds += 1;
            }
            rounds
        }
    });
    let content: Vec<Vec<String>> = workers.iter_mut().map(|worker| worker.lines().collect()).collect();
    let bound: Vec<Vec<String>> = binders.iter_mut().map(|worker| worker.lines().collect()).collect();
    done.store(true, std::sync::atomic::Ordering::Relaxed);
    println!("proof: {} rounds of removing locks under writers", remover.join().unwrap());
    assert_eq!(content.iter().map(Vec::len).collect::<Vec<_>>(), [100, 100], "commits acknowledged");
    assert_eq!(bound.iter().map(Vec::len).collect::<Vec<_>>(), [50, 50], "binds acknowledged");
    // A store that knows nothing of it.
    let store = FsStore::open(folder.path()).await.unwrap();
    let stored = texts(&store, id).await;
    // 100 commits of one, two and three messages in turn.
    assert_eq!(stored.len(), 2 * 199);
    let mut unique = stored.clone();
    unique.sort();
    unique.dedup();
    assert_eq!(unique.len(), stored.len());
    for device in bound.iter().flatten() {
        assert!(store.resolve(&device.parse().unwrap()).await.unwrap().is_some(), "{device}");
    }
}

/// Binds of several processes lose none.
#[tokio::test]
async fn processes_that_bind_at_once_lose_no_bind() {
    let folder = tempfile::tempdir().unwrap();
    let mut workers: Vec<_> = (0..3).map(|_| Worker::start("bind", folder.path(), None)).collect();
    let bound: Vec<Vec<String>> = workers.iter_mut().map(|worker| worker.lines().collect()).collect();
    let store = FsStore::open(folder.path()).await.unwrap();
    for device in bound.iter().flatten() {
        assert!(store.resolve(&device.parse().unwrap()).await.unwrap().is_some(), "{device}");
    }
    assert_eq!(bound.iter().map(Vec::len).sum::<usize>(), 150);
}

/// 50 kills at random moments: every acknowledged event is there, at most one commit more, and none
/// in part.
#[tokio::test]
async fn fifty_kills_lose_no_acknowledged_event() {
    let folder = tempfile::tempdir().unwrap();
    let effects = Effects::default();
    let store = FsStore::open(folder.path()).await.unwrap();
    let id = session(&store, &effects).await.id;
    let mut head = Seq::new(1);
    for kill in 0..50 {
        let mut worker = Worker::start("append for ever", folder.path(), Some(id));
        let mut lines = worker.lines();
        // Some of the time it is killed while it starts.
        let count = usize::try_from(effects.random_u64() % 40).unwrap();
        let mut acknowledged = head;
        let mut receive = |line: String| {
            acknowledged = Seq::new(line.split_once(' ').unwrap().1.parse().unwrap());
        };
        lines.by_ref().take(count).for_each(&mut receive);
        worker.kill();
        // What it had said before it died.
        lines.for_each(&mut receive);
        // A reader that was there all the time, and one that comes anew, see the same.
        let there = SessionStore::load(&store, id).await.unwrap();
        let reopened = FsStore::open(folder.path()).await.unwrap();
        assert_eq!(SessionStore::load(&reopened, id).await.unwrap(), there, "kill {kill}");
        assert!(there.head >= acknowledged, "kill {kill}: {acknowledged} was acknowledged");
        let page = reopened.read(id, ReadEvents::last(1)).await.unwrap();
        let last = &page.events[0];
        assert_eq!((last.seq, last.n), (there.head, last.of), "kill {kill}: whole commits only");
        let more = there.head.get() - acknowledged.get();
        assert!(more == 0 || more == u64::from(last.of), "kill {kill}: {more} more events than acknowledged");
        head = there.head;
    }
    let stored = texts(&store, id).await;
    assert_eq!(stored.len() as u64, head.get() - 1);
    // It goes on, with all caches gone too.
    support::append_text(&store, &effects, id, head, "on").await;
    assert_eq!(texts(&store, id).await.len(), stored.len() + 1);
    println!("proof: 50 kills of a writer to files");
}

/// A writer that puts and names blobs and a process that sweeps are killed at random moments: every blob that an event
/// names is there, and a later sweep leaves no other file.
#[tokio::test]
async fn kills_of_putters_and_sweepers_lose_no_blob() {
    let folder = tempfile::tempdir().unwrap();
    let effects = Effects::default();
    let store = FsStore::open(folder.path()).await.unwrap();
    let id = session(&store, &effects).await.id;
    let (mut acknowledged, mut swept, mut leftovers) = (Vec::new(), 0, 0);
    for kill in 0..25u64 {
        let mut writer = Worker::start("blobs for ever", folder.path(), Some(id));
        let mut sweeper = Worker::start("sweep for ever", folder.path(), Some(id));
        let (mut texts, mut removed) = (writer.lines(), sweeper.lines());
        let mut receive = |line: String| {
            acknowledged.push(line.split_once(' ').unwrap().1.parse::<BlobName>().unwrap());
        };
        // Some of the time they are killed while they start.
        texts.by_ref().take(usize::try_from(effects.random_u64() % 12).unwrap()).for_each(&mut receive);
        let (first, second) =
            if kill.is_multiple_of(2) { (&mut writer, &mut sweeper) } else { (&mut sweeper, &mut writer) };
        first.kill();
        second.kill();
        texts.for_each(&mut receive);
        swept += removed.by_ref().map(|line| line.parse::<u64>().unwrap()).sum::<u64>();
        let young = store.blobs().sweep(SweepBlobs::of(id)).await.unwrap();
        leftovers += u64::from(young.unfinished > 0);
        for name in acknowledged.iter().rev().take(20) {
            read_whole(&store, id, *name).await.unwrap();
        }
    }
    let mut expected = BTreeSet::new();
    let mut read = Some(ReadEvents::first(1000));
    while let Some(next) = read {
        let page = store.read(id, next).await.unwrap();
        for name in page.events.iter().flat_map(|event| event.blobs.iter()) {
            let bytes = read_whole(&store, id, *name).await.unwrap();
            expected.insert(name.to_string());
            if bytes.len() == LARGE {
                expected.insert(format!("{name}.sums"));
            }
        }
        read = page.next;
    }
    for name in &acknowledged {
        assert!(expected.contains(&name.to_string()), "{name} was acknowledged and is not in the log");
    }
    // Hours later, what was half made is removed.
    let later = Effects::seeded(7, Timestamp::from_micros(effects.now().as_micros() + 7_200_000_000));
    let old = FsConfig::new(folder.path()).with_effects(later).open().await.unwrap();
    assert_eq!(old.blobs().sweep(SweepBlobs::of(id)).await.unwrap().unfinished, 0);
    let kept = names_in(&support::folder_of(folder.path(), id).join("blobs"));
    assert_eq!(kept, expected.into_iter().collect::<Vec<_>>());
    println!(
        "proof: 25 kills of a writer of blobs and a sweeper, {} named, {swept} swept, {leftovers} times leftovers",
        acknowledged.len()
    );
    assert!(acknowledged.len() > 30, "{}", acknowledged.len());
}

/// While the holder of a lease lives it is not taken for dead, however long; when it is killed that shows at
/// once.
#[tokio::test]
async fn death_of_a_holder_is_detected_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let effects = Effects::default();
    let store = FsStore::open(folder.path()).await.unwrap();
    let id = session(&store, &effects).await.id;
    let mut worker = Worker::start("hold", folder.path(), Some(id));
    let epoch = Epoch::new(worker.lines().next().unwrap().parse().unwrap());
    for _ in 0..3 {
        let lease_status = store.leases().status(id, epoch).await.unwrap();
        assert_eq!((lease_status.heartbeat, lease_status.holder_proven_dead), (1, false));
    }
    worker.kill();
    let lease_status = store.leases().status(id, epoch).await.unwrap();
    assert_eq!((lease_status.heartbeat, lease_status.holder_proven_dead), (1, true));
    // Taken over, the next holder is alive, and nothing is said of the dead one any more.
    let head = SessionStore::load(&store, id).await.unwrap().head;
    let commit = Commit::seal(&effects, id, head)
        .with_trigger(Trigger::LeaseExpired(epoch))
        .with_trigger(Trigger::BeginRun(LeaseRequest::new("me", effects.new_run_id())));
    let next = store.commit(commit).await.unwrap().epoch.unwrap();
    assert!(!store.leases().status(id, next).await.unwrap().holder_proven_dead);
    assert_eq!(store.leases().status(id, epoch).await.unwrap(), agent_core::store::LeaseStatus::default());
    // A handle that is dropped gives its leases up as a process does that dies.
    drop(store);
    let store = FsStore::open(folder.path()).await.unwrap();
    assert!(store.leases().status(id, next).await.unwrap().holder_proven_dead);
}

/// Processes create sessions and write to them, and are killed at any moment. A process that has listed before lists after each
/// kill what it can load, and what was acknowledged first.
#[tokio::test]
async fn lists_agree_with_loads_after_any_kill() {
    let folder = tempfile::tempdir().unwrap();
    let config = || FsConfig::new(folder.path()).with_list_scan_max(0);
    let (store, idle) = (config().open().await.unwrap(), config().open().await.unwrap());
    let effects = Effects::default();
    for _ in 0..60 {
        session(&store, &effects).await;
    }
    const ROUNDS: usize = 16;
    for round in 0..ROUNDS {
        let mut workers = [(); 2].map(|()| Worker::start("use many for ever", folder.path(), None));
        let mut lines = workers[0].lines();
        let mut last = lines.next();
        for _ in 0..effects.random_u64() % 40 {
            last = lines.next();
        }
        let acknowledged: SessionId = last.unwrap().parse().unwrap();
        for worker in &mut workers {
            worker.kill();
        }
        // One of them lists after each kill, the other one only now and then.
        let listing = if round % 4 == 3 { vec![&store, &idle] } else { vec![&store] };
        for store in listing {
            // One page: the sessions on it would be looked at anyway, the others would not.
            let page = SessionStore::list(store, SessionQuery::new().with_limit(5)).await.unwrap();
            assert_eq!(page.damaged, []);
            let mut loaded = Vec::new();
            for name in names_in(&folder.path().join("workspaces/default/sessions")) {
                let Ok(id) = name.parse() else { continue };
                loaded.push(SessionSummary::from(&*SessionStore::load(store, id).await.unwrap()));
            }
            assert!(loaded.iter().any(|item| item.id == acknowledged), "round {round}");
            SessionQuery::new().sort(&mut loaded);
            loaded.truncate(5);
            assert_eq!(page.items, loaded, "round {round}");
        }
    }
    println!("proof: {} kills of a writer to files that others list", 2 * ROUNDS);
}
