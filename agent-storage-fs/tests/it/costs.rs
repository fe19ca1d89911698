//! Costs of operations, counted at the I/O interface.

use crate::support::{Call, append_text, fill, folder_of, hasty, session, watched};
use agent_core::clock::Effects;
use agent_core::commit::{Precondition, Trigger};
use agent_core::model::Workspace;
use agent_core::state::Reason;
use agent_core::store::{Purge, ReadEvents, SessionQuery};
use agent_core::{BindingStore, BlobName, Seq, SessionStore, SessionStoreExt, WorkspaceId, WorkspaceStore};

fn names(calls: &[Call]) -> Vec<&'static str> {
    calls.iter().map(|call| call.name).collect()
}

fn bytes(calls: &[Call], name: &str) -> usize {
    calls.iter().filter(|call| call.name == name).map(|call| call.bytes).sum()
}

/// A commit is one write and one sync, under one lock; three looks tell that the names lead to what is written, also when it
/// was written. One line, and a look whether its file has its name, tell those who list sessions.
#[tokio::test]
async fn a_commit_is_one_write_and_one_sync() {
    let folder = tempfile::tempdir().unwrap();
    let effects = Effects::default();
    let (store, spy) = watched(folder.path()).await;
    let session = session(&store, &effects).await;
    let mut seen = session.head;
    for n in 0..5 {
        spy.take();
        seen = append_text(&store, &effects, session.id, seen, &format!("message {n}")).await;
        let calls = spy.take();
        let expected = ["lock", "stat", "stat", "append", "write", "sync", "stat", "stat", "unlock"];
        assert_eq!(names(&calls), expected);
        let files: Vec<_> = calls[3..8].iter().map(Call::file).collect();
        assert_eq!(files, ["changes", "events.jsonl", "events.jsonl", "events.jsonl", "changes"]);
    }
}

/// What is made is durable before it has its name, and its name before it is acknowledged.
#[tokio::test]
async fn new_files_are_durable_before_acknowledgement() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("root");
    let effects = Effects::default();
    let (store, spy) = watched(&root).await;
    let durable = |calls: &[Call], publish: &str, name: &str| {
        let at = calls.iter().position(|call| call.name == publish && call.file() == name);
        let (before, after) =
            calls.split_at(at.unwrap_or_else(|| panic!("no {publish} of {name}: {calls:?}")));
        let written = before.iter().rposition(|call| call.name == "write").unwrap();
        assert!(before[written..].iter().any(|call| call.name == "sync"), "{name}: {calls:?}");
        let home = after[0].path.parent().unwrap();
        assert!(after.iter().any(|call| call.name == "sync_dir" && call.path == home), "{name}: {calls:?}");
    };
    let id = session(&store, &effects).await.id;
    let calls = spy.take();
    durable(&calls, "rename", &id.to_string());
    let made: Vec<_> = calls.iter().filter(|call| call.name == "create_dir").map(|call| &call.path).collect();
    for name in ["root", "workspaces", "default", "sessions"] {
        let made = made.iter().find(|path| path.ends_with(name)).unwrap();
        let synced = |call: &Call| call.name == "sync_dir" && call.path == made.parent().unwrap();
        assert!(calls.iter().any(synced), "{name}");
    }
    let record = Workspace::new(WorkspaceId::DEFAULT, "home", id, effects.now());
    let record = store.put(record, Precondition::MustNotExist).await.unwrap();
    durable(&spy.take(), "hard_link", "workspace.toml");
    store.put(record, Precondition::MustExist).await.unwrap();
    durable(&spy.take(), "rename", "workspace.toml");
    store.save_config(WorkspaceId::DEFAULT, Some("a = 1".into()), Precondition::MustNotExist).await.unwrap();
    durable(&spy.take(), "rename", "config.toml");
    store.bind(&"laptop".parse().unwrap(), WorkspaceId::DEFAULT, Precondition::None).await.unwrap();
    durable(&spy.take(), "rename", "bindings.toml");
    let deleted =
        store.sessions(&effects).trigger(id, Trigger::Delete(Reason::UserDeleted)).await.unwrap().session;
    spy.take();
    store.purge(Purge::new(id, deleted.head).with_keep_through(Seq::new(1))).await.unwrap();
    let calls = spy.take();
    durable(&calls, "rename", "tombstone.json");
    let tombstone = calls.iter().position(|call| call.name == "rename" && call.file() == "tombstone.json");
    durable(&calls[tombstone.unwrap() + 1..], "rename", "events.jsonl");
}

/// An append at event 100,000 costs what one at event 100 costs: the same calls, and the same bytes but for
/// the digits of the number.
#[tokio::test]
async fn an_append_costs_the_same_at_any_length() {
    let folder = tempfile::tempdir().unwrap();
    let effects = Effects::default();
    let id = session(&hasty(folder.path()).await, &effects).await.id;
    let mut costs = Vec::new();
    for length in [100, 100_000] {
        fill(&hasty(folder.path()).await, &effects, id, length).await;
        let (store, spy) = watched(folder.path()).await;
        // The first opens the session, and may write the snapshot.
        let seen = append_text(&store, &effects, id, Seq::new(length), "the same").await;
        spy.take();
        let seen = append_text(&store, &effects, id, seen, "the same").await;
        let calls = spy.take();
        let digits = seen.to_string().len();
        costs.push((names(&calls), bytes(&calls, "write") - digits, bytes(&calls, "read")));
    }
    assert_eq!(costs[0], costs[1]);
}

/// Opening a session of 100,000 events and reading the last 50 reads at most 64 KiB beyond these, also
/// after a crash; a page from the middle is found without reading up to it.
#[tokio::test]
async fn opening_reads_only_the_end_of_the_log() {
    let folder = tempfile::tempdir().unwrap();
    let effects = Effects::default();
    let store = hasty(folder.path()).await;
    let id = session(&store, &effects).await.id;
    fill(&store, &effects, id, 100_000).await;
    // As much as there can be behind a snapshot.
    for _ in 0..75 {
        append_text(&store, &effects, id, Seq::new(100_000), "one more").await;
    }
    // A crash writes no snapshot.
    std::mem::forget(store);

    for store in ["after a crash", "again"] {
        let (handle, spy) = watched(folder.path()).await;
        let record = SessionStore::load(&handle, id).await.unwrap();
        assert_eq!(record.head, Seq::new(100_075));
        let page = handle.read(id, ReadEvents::last(50)).await.unwrap();
        assert_eq!((page.events.len(), page.events[49].seq), (50, record.head));
        let own: usize = page.events.iter().map(|event| event.to_json().len() + 19).sum();
        let read = bytes(&spy.take(), "read");
        assert!(read <= (64 << 10) + own, "{store}: {read} bytes read, {own} of them asked for");

        let page = handle.read(id, ReadEvents::first(50).with_after(Seq::new(43_210))).await.unwrap();
        assert_eq!((page.events.len(), page.events[0].seq), (50, Seq::new(43_211)));
        let page = handle.read(id, ReadEvents::last(50).with_before(Seq::new(43_211))).await.unwrap();
        assert_eq!((page.events.len(), page.events[49].seq), (50, Seq::new(43_210)));
        let read = bytes(&spy.take(), "read");
        assert!(read <= 1 << 20, "{store}: {read} bytes read of a log of 30 MB");
    }
}

/// Reading a session of 10,000 events page by page reads little more than its log: no page is searched for.
#[tokio::test]
async fn page_after_page_reads_the_log_once() {
    let folder = tempfile::tempdir().unwrap();
    let effects = Effects::default();
    let id = session(&hasty(folder.path()).await, &effects).await.id;
    fill(&hasty(folder.path()).await, &effects, id, 10_000).await;
    let len = std::fs::metadata(folder_of(folder.path(), id).join("events.jsonl")).unwrap().len();
    let (store, spy) = watched(folder.path()).await;
    SessionStore::load(&store, id).await.unwrap();
    spy.take();
    let (mut pages, mut events) = (0, 0);
    let mut next = Some(ReadEvents::first(1000).with_max_bytes(256 << 10));
    while let Some(read) = next {
        let page = store.read(id, read).await.unwrap();
        (pages, events, next) = (pages + 1, events + page.events.len(), page.next);
    }
    assert_eq!(events, 10_000);
    let calls = spy.take();
    let read = bytes(&calls, "read") as u64;
    // The first page is searched for, and each page reads on behind its end.
    assert!(read <= len + (64 << 10) * pages as u64, "{read} bytes read of {len}, in {pages} pages");
    assert!(calls.len() <= 8 * pages + 4, "{} calls for {pages} pages", calls.len());
}

/// The same from the end: the page before a page is not searched for, as a reader who scrolls up asks for them, or the context of
/// a model.
#[tokio::test]
async fn page_before_page_reads_the_log_once() {
    let folder = tempfile::tempdir().unwrap();
    let effects = Effects::default();
    let id = session(&hasty(folder.path()).await, &effects).await.id;
    fill(&hasty(folder.path()).await, &effects, id, 10_000).await;
    let len = std::fs::metadata(folder_of(folder.path(), id).join("events.jsonl")).unwrap().len();
    let (store, spy) = watched(folder.path()).await;
    SessionStore::load(&store, id).await.unwrap();
    spy.take();
    let (mut pages, mut seqs) = (0, Vec::new());
    let mut next = Some(ReadEvents::last(1000).with_max_bytes(256 << 10));
    while let Some(read) = next {
        let page = store.read(id, read).await.unwrap();
        seqs.extend(page.events.iter().rev().map(|event| event.seq.get()));
        (pages, next) = (pages + 1, page.next);
    }
    assert_eq!(seqs, (1..=10_000).rev().collect::<Vec<_>>());
    let calls = spy.take();
    let read = bytes(&calls, "read") as u64;
    assert!(read <= len + (64 << 10) * pages as u64, "{read} bytes read of {len}, in {pages} pages");
    // Backwards the log is read in pieces of 16 KiB.
    assert!(calls.len() <= 20 * pages + 4, "{} calls for {pages} pages", calls.len());
}

/// A page is found also where the log is another one than that in which the last page ended, under the same name and in the
/// same file.
#[tokio::test]
async fn page_of_a_log_that_was_restored_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let effects = Effects::default();
    let (store, _) = watched(folder.path()).await;
    let id = session(&store, &effects).await.id;
    let log = folder_of(folder.path(), id).join("events.jsonl");
    let before = std::fs::read(&log).unwrap();
    let mut logs = Vec::new();
    for text in ["a longer text than the other", "short"] {
        std::fs::write(&log, &before).unwrap();
        let writer = hasty(folder.path()).await;
        let mut seen = Seq::new(1);
        for _ in 0..4 {
            seen = append_text(&writer, &effects, id, seen, text).await;
        }
        logs.push(std::fs::read(&log).unwrap());
    }
    for restored in logs {
        let first = store.read(id, ReadEvents::first(2)).await.unwrap();
        let last = store.read(id, ReadEvents::last(2)).await.unwrap();
        std::fs::write(&log, &restored).unwrap();
        let before = store.read(id, last.next.unwrap()).await.unwrap();
        let seqs: Vec<_> = before.events.iter().map(|event| event.seq.get()).collect();
        assert_eq!((seqs, before.damaged.len()), (vec![2, 3], 0));
        let second = store.read(id, first.next.unwrap()).await.unwrap();
        let seqs: Vec<_> = second.events.iter().map(|event| event.seq.get()).collect();
        assert_eq!((seqs, second.damaged.len()), (vec![3, 4], 0));
        let whole = store.read(id, ReadEvents::first(9)).await.unwrap().events;
        assert_eq!((&before.events[..], &second.events[..]), (&whole[1..3], &whole[2..4]));
    }
}

/// Reading on from the same event, as the context of each turn is read, searches for it once, also if there are commits in
/// between.
#[tokio::test]
async fn reading_from_the_same_event_searches_once() {
    let folder = tempfile::tempdir().unwrap();
    let effects = Effects::default();
    let id = session(&hasty(folder.path()).await, &effects).await.id;
    fill(&hasty(folder.path()).await, &effects, id, 20_000).await;
    let (store, spy) = watched(folder.path()).await;
    let mut seen = Seq::new(20_000);
    let mut reads = Vec::new();
    for _ in 0..5 {
        spy.take();
        let page = store.read(id, ReadEvents::first(1_000).with_after(Seq::new(19_950))).await.unwrap();
        assert_eq!(page.events.last().unwrap().seq, seen);
        reads.push(spy.take().iter().filter(|call| call.name == "read").count());
        for text in ["a prompt", "an answer"] {
            seen = append_text(&store, &effects, id, seen, text).await;
        }
    }
    assert!(reads[0] > 6, "else there is nothing to save: {reads:?}");
    assert!(reads[1..].iter().all(|count| *count <= 3), "{reads:?}");
}

/// A fork at 10,000 events writes what one at 10 events writes.
#[tokio::test]
async fn fork_cost_is_independent_of_history_length() {
    let folder = tempfile::tempdir().unwrap();
    let effects = Effects::default();
    let mut costs = Vec::new();
    let id = session(&hasty(folder.path()).await, &effects).await.id;
    for length in [1000, 10_000] {
        fill(&hasty(folder.path()).await, &effects, id, length).await;
        let (store, spy) = watched(folder.path()).await;
        store.sessions(&effects).fork(id, None).await.unwrap();
        spy.take();
        let child = store.sessions(&effects).fork(id, None).await.unwrap();
        let calls = spy.take();
        costs.push((names(&calls), bytes(&calls, "write")));
        let whole = store.history(child.id, ReadEvents::first(1000)).await.unwrap();
        assert_eq!(whole.events.len(), 1000);
    }
    // The number of the event, and counts of as many digits, stand in the child's first event.
    assert_eq!(costs[0].0, costs[1].0);
    assert!(costs[1].1 - costs[0].1 <= 16, "{costs:?}");
}

/// A list reads only what changed since the last one.
#[tokio::test]
async fn a_list_reads_only_what_changed() {
    let folder = tempfile::tempdir().unwrap();
    let effects = Effects::default();
    let (store, spy) = watched(folder.path()).await;
    let mut sessions = Vec::new();
    for _ in 0..20 {
        sessions.push(session(&store, &effects).await);
    }
    let first = SessionStore::list(&store, SessionQuery::new()).await.unwrap();
    spy.take();
    assert_eq!(SessionStore::list(&store, SessionQuery::new()).await.unwrap(), first);
    assert_eq!(bytes(&spy.take(), "read"), 0);
    let one = &sessions[7];
    append_text(&store, &effects, one.id, one.head, "hello").await;
    spy.take();
    let page = SessionStore::list(&store, SessionQuery::new()).await.unwrap();
    assert_eq!((page.items[0].id, page.items[0].counts.user), (one.id, 1));
    let read: Vec<_> = spy.take().into_iter().filter(|call| call.name == "read").collect();
    let own = folder_of(folder.path(), one.id);
    assert!(read.iter().all(|call| call.path.starts_with(&own) || call.file() == "changes"), "{read:?}");
}

/// A session with 10,000 blobs is written and read as one without: the same calls, the same bytes, and no look at the
/// folder of the blobs.
#[tokio::test]
async fn ten_thousand_blobs_cost_the_log_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let effects = Effects::default();
    let mut costs = Vec::new();
    for blobs in [0, 10_000u32] {
        let store = hasty(folder.path()).await;
        let id = session(&store, &effects).await.id;
        fill(&store, &effects, id, 100).await;
        drop(store);
        let own = folder_of(folder.path(), id).join("blobs");
        if blobs > 0 {
            std::fs::create_dir(&own).unwrap();
        }
        for blob in 0..blobs {
            let bytes = blob.to_le_bytes();
            std::fs::write(own.join(BlobName::of(&bytes).to_string()), bytes).unwrap();
        }
        let (store, spy) = watched(folder.path()).await;
        spy.take();
        let mut cost = Vec::new();
        let mut note = |what: &'static str| {
            for call in spy.take() {
                assert!(!call.path.starts_with(&own), "{what}: {call:?}");
                cost.push((what, call.name, call.bytes));
            }
        };
        SessionStore::load(&store, id).await.unwrap();
        note("load");
        assert_eq!(store.read(id, ReadEvents::last(50)).await.unwrap().events.len(), 50);
        note("last 50");
        let seen = append_text(&store, &effects, id, Seq::new(100), "the same").await;
        note("first append");
        append_text(&store, &effects, id, seen, "the same").await;
        note("append");
        costs.push(cost);
    }
    assert_eq!(costs[0], costs[1]);
}
