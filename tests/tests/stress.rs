//! Unusual hosts: they drop a runtime in mid-commit, start other programs, keep ten thousand sessions in use, or one
//! session without end.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::print_stdout, reason = "what was counted is printed")]

use std::collections::HashMap;
use std::fs;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use agent_core::clock::Effects;
use agent_core::commit::{Commit, LeaseRequest, Trigger};
use agent_core::event::{EventPayload, NewEvent};
use agent_core::session::NewSession;
use agent_core::store::{ReadEvents, SessionQuery};
use agent_core::{Seq, SessionId, SessionStoreExt, Storage, WorkspaceId};
use agent_tests::{Site, each_store};
use futures::TryStreamExt;
use tokio::time::{sleep, timeout};

/// How long to wait before a test is given up as stuck. Never what a test is about.
const STUCK: Duration = Duration::from_secs(120);

/// How many sessions are in use at once.
const SESSIONS: u64 = 10_000;

async fn create(storage: &Storage, effects: &Effects) -> SessionId {
    let new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
    storage.sessions.create(new).await.unwrap().id
}

fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").map_or(0, Iterator::count)
}

/// The runtime that a commit runs on is dropped in the middle of it. The store goes on for all others, and what was
/// acknowledged is there once.
async fn runtime_dropped_mid_commit_affects_no_other(site: Site) {
    let runtime =
        || tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let site = site.unsynced();
    let kind = site.name;
    let effects = Effects::default();
    let storage = site.open().await;
    let id = create(&storage, &effects).await;
    let acked = Arc::new(Mutex::new(Vec::new()));
    for round in 0..20_u64 {
        let other = runtime();
        for task in 0..4 {
            let (storage, acked) = (storage.clone(), acked.clone());
            other.spawn(async move {
                for n in 0.. {
                    let text = format!("{round}-{task}-{n}");
                    let messages = vec![NewEvent::user_message(text.clone())];
                    if storage.sessions.append(id, Seq::ZERO, messages).await.is_ok() {
                        acked.lock().unwrap().push(text);
                    }
                    // A store in memory never waits, and a task that never waits cannot be stopped.
                    tokio::task::yield_now().await;
                }
            });
        }
        sleep(Duration::from_millis(5 + round)).await;
        other.shutdown_background();
    }
    let inspect = async {
        let messages = vec![NewEvent::user_message("at last")];
        storage.sessions.append(id, Seq::ZERO, messages).await.unwrap();
        let events: Vec<_> = storage.sessions.events(id, Seq::ZERO).try_collect().await.unwrap();
        events
    };
    let events = timeout(STUCK, inspect).await.expect("the store hangs");
    let mut found = HashMap::<String, u64>::new();
    for event in &events {
        if let Ok(EventPayload::UserMessage(message)) = event.decode() {
            *found.entry(message.text).or_default() += 1;
        }
    }
    let acked = acked.lock().unwrap().clone();
    assert!(!acked.is_empty(), "{kind}: nothing was written");
    for text in &acked {
        assert_eq!(found.get(text), Some(&1), "{kind}: {text}");
    }
    assert!(found.values().all(|count| *count == 1), "{kind}: something is there twice");
    timeout(STUCK, storage.close()).await.expect("closing hangs").unwrap();
}

each_store!(runtime_dropped_mid_commit_affects_no_other, flavor = "multi_thread", worker_threads = 2);

/// A program that the host starts while a store is in use inherits no lock and no file of it.
async fn child_process_inherits_no_locks_or_files(site: Site) {
    let site = site.unsynced();
    let kind = site.name;
    let effects = Effects::default();
    let storage = site.open().await;
    let id = create(&storage, &effects).await;
    let now = storage.sessions.load(id).await.unwrap();
    let begin = Commit::seal(&effects, id, now.head)
        .with_event(NewEvent::user_message("go"))
        .with_trigger(Trigger::BeginRun(LeaseRequest::new("host", effects.new_run_id())));
    storage.sessions.commit(begin).await.unwrap();
    let mut child = Command::new("sleep").arg("600").stdin(Stdio::null()).spawn().unwrap();
    let open_there = fs::read_dir(format!("/proc/{}/fd", child.id())).into_iter().flatten().flatten();
    let names: Vec<_> = open_there.filter_map(|entry| fs::read_link(entry.path()).ok()).collect();
    let ours: Vec<_> = names.iter().filter(|name| name.starts_with(site.folder.path())).collect();
    let inherited = ours.len();
    storage.close().await.unwrap();
    drop(storage);
    // Nobody holds the lease any more, though the program runs on.
    let again = site.open().await;
    let events = vec![NewEvent::user_message("after")];
    let written = timeout(STUCK, again.sessions.append(id, Seq::ZERO, events)).await;
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(inherited, 0, "{kind}: {names:?}");
    written.expect("a lock is held").unwrap();
    again.close().await.unwrap();
}

each_store!(child_process_inherits_no_locks_or_files on disk);

/// Contract 8: ten thousand sessions in use in one process take no descriptor and no thread each, and each still answers.
async fn ten_thousand_sessions_are_in_use_at_once(site: Site) {
    let site = site.unsynced();
    let kind = site.name;
    let effects = Effects::default();
    let storage = site.open().await;
    let before = descriptors();
    let mut ids = Vec::new();
    for _ in 0..SESSIONS {
        ids.push(create(&storage, &effects).await);
    }
    // Somebody waits for each of some.
    let waiting: Vec<_> = ids
        .iter()
        .take(1_000)
        .map(|id| {
            let (storage, id) = (storage.clone(), *id);
            tokio::spawn(async move { storage.sessions.changed(id, Seq::new(1)).await })
        })
        .collect();
    sleep(Duration::from_millis(50)).await;
    let open_now = descriptors();
    for id in &ids[..1_000] {
        let events = vec![NewEvent::user_message("hello")];
        storage.sessions.append(*id, Seq::ZERO, events).await.unwrap();
    }
    for waiter in waiting {
        let seen = timeout(STUCK, waiter).await.expect("a waiter is not told").unwrap().unwrap();
        assert_eq!(seen, Seq::new(2), "{kind}");
    }
    let page = storage.sessions.list(SessionQuery::new().with_total().with_limit(1)).await.unwrap();
    assert_eq!(page.total, Some(SESSIONS), "{kind}");
    println!("{kind}: {} descriptors", open_now.saturating_sub(before));
    assert!(open_now < before + 600, "{kind}: {open_now} descriptors, {before} before");
    storage.close().await.unwrap();
}

each_store!(ten_thousand_sessions_are_in_use_at_once);

/// Contract 8: of a very long session a page costs a page. `AGENT_TEST_EVENTS=1000000` makes it longer.
async fn a_very_long_session_is_read_page_by_page(site: Site) {
    let events: u64 = std::env::var("AGENT_TEST_EVENTS").map_or(20_000, |text| text.parse().unwrap());
    let site = site.unsynced();
    let kind = site.name;
    let effects = Effects::default();
    let storage = site.open().await;
    let id = create(&storage, &effects).await;
    let mut head = Seq::new(1);
    while head.get() < events {
        let many = (0..1_000).map(|n| NewEvent::user_message(format!("{head} {n}"))).collect();
        head = storage.sessions.append(id, head, many).await.unwrap().last;
    }
    storage.close().await.unwrap();
    drop(storage);
    if kind == "memory" {
        return;
    }
    let storage = site.open().await;
    let session = storage.sessions.load(id).await.unwrap();
    assert_eq!((session.head, session.counts.user), (head, head.get() - 1), "{kind}");
    for read in [ReadEvents::last(10), ReadEvents::first(10).with_after(Seq::new(events / 2))] {
        let page = storage.sessions.read(id, read).await.unwrap();
        assert_eq!(page.events.len(), 10, "{kind}");
    }
    let read = ReadEvents::first(1).with_after(Seq::new(events / 2));
    let middle = storage.sessions.read(id, read).await.unwrap().events.remove(0);
    let end = Seq::new(middle.seq.get() + u64::from(middle.of - middle.n));
    let fork = storage.sessions.fork(id, Some(end)).await.unwrap();
    let page = storage.sessions.history(fork.id, ReadEvents::last(3)).await.unwrap();
    assert_eq!(page.events.len(), 3, "{kind}");
    storage.close().await.unwrap();
}

each_store!(a_very_long_session_is_read_page_by_page);
