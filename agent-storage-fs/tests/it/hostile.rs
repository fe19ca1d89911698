//! Logs that no store writes, and damage before the offset of a snapshot: no panic, no double, no loss.

use std::fs;
use std::path::{Path, PathBuf};

use crate::support::{append_text, folder_of, framed, hasty, session};
use agent_core::clock::Effects;
use agent_core::commit::{Commit, Trigger};
use agent_core::event::NewEvent;
use agent_core::json::RawJson;
use agent_core::state::Reason;
use agent_core::store::{Purge, ReadEvents, SessionQuery};
use agent_core::{ErrorKind, Result, Seq, SessionId, SessionStore, SessionStoreExt, WriteOutcome};
use agent_storage_fs::FsStore;

fn log_of(root: &Path, id: SessionId) -> PathBuf {
    folder_of(root, id).join("events.jsonl")
}

/// A message with any numbers.
fn message_line(session: SessionId, seq: u64, n: u32, of: u32) -> String {
    let id = "019c60d9-9c43-79b5-81d1-d854bb718009";
    let at = "2026-02-15T10:30:00.000000Z";
    framed(
        session,
        &format!(
            r#"{{"seq":{seq},"id":"{id}","commit":"{id}","n":{n},"of":{of},"at":"{at}","type":"user.message","actor":"user","data":{{"text":"x"}}}}"#
        ),
    )
}

/// Whether the log is fine or damaged, but nothing else.
fn judge<T>(what: &str, done: Result<T>) {
    if let Err(error) = done {
        assert_eq!(*error.kind(), ErrorKind::Corrupt, "{what}: {error}");
    }
}

async fn use_all(store: &FsStore, id: SessionId, what: &str) {
    judge(what, SessionStore::load(store, id).await);
    for seq in [Seq::ZERO, Seq::new(1), Seq::new(u64::MAX - 1), Seq::new(u64::MAX)] {
        judge(what, store.read(id, ReadEvents::first(10).with_after(seq)).await);
        judge(what, store.read(id, ReadEvents::last(10).with_before(seq)).await);
        judge(what, store.history(id, ReadEvents::last(10).with_before(seq)).await);
    }
    judge(what, SessionStore::list(store, SessionQuery::new()).await);
    for _ in 0..2 {
        judge(
            what,
            store
                .sessions(&Effects::default())
                .append(id, Seq::new(1), vec![NewEvent::user_message("y")])
                .await,
        );
    }
}

/// Any number may stand in a log.
#[tokio::test]
async fn any_number_in_a_log_is_read_or_refused() {
    const MOST: u64 = u64::MAX;
    let folder = tempfile::tempdir().unwrap();
    let effects = Effects::default();
    for case in 0..7 {
        let store = hasty(folder.path()).await;
        let id = session(&store, &effects).await.id;
        let created = store.read(id, ReadEvents::first(1)).await.unwrap().events[0].to_json();
        drop(store);
        let with = |field: &str| created.replace("\"workspace\":", &format!("{field},\"workspace\":"));
        let forked = |until: u64| {
            let lineage = format!(r#""lineage":{{"segments":[{{"session":"{id}","until":{until}}}]}}"#);
            framed(id, &with(&lineage).replace("\"seq\":1,", &format!("\"seq\":{},", until + 1)))
        };
        let inherited = format!(
            r#""inherited":{{"counts":{{"user":{MOST},"agent":{MOST},"system":{MOST},"tool_calls":{MOST},"runs":{MOST}}},"last_input":0,"inputs_done_through":0,"inputs_open":{MOST},"visible_from":0,"system_prompt":0}}"#
        );
        let log = match case {
            0 => framed(id, &created) + &message_line(id, MOST, 1, 1),
            1 => forked(MOST - 1),
            2 => forked(MOST - 1) + &message_line(id, MOST, 1, 1),
            3 => {
                framed(id, &created)
                    + &message_line(id, 2, u32::MAX, u32::MAX)
                    + &message_line(id, 3, u32::MAX, u32::MAX)
            }
            4 => framed(id, &with(&inherited)) + &message_line(id, 2, 1, 1),
            5 => forked(MOST - 2) + &message_line(id, MOST, 1, 2),
            _ => framed(id, &created) + &message_line(id, 2, 7, 9),
        };
        std::fs::write(folder_of(folder.path(), id).join("events.jsonl"), log).unwrap();
        use_all(&hasty(folder.path()).await, id, &format!("case {case}")).await;
    }
}

/// A payload as deep as any may be comes back as it was; a deeper one is refused before anything is written.
#[tokio::test]
async fn payload_depth_is_kept_or_refused() {
    let folder = tempfile::tempdir().unwrap();
    let effects = Effects::default();
    let store = hasty(folder.path()).await;
    let made = session(&store, &effects).await;
    let nested = |levels| RawJson::parse(&("[".repeat(levels) + &"]".repeat(levels))).unwrap();
    let event = NewEvent::new("x.app.deep".parse().unwrap(), nested(100_000));
    let refused = store.sessions(&effects).append(made.id, made.head, vec![event]).await.unwrap_err();
    assert_eq!(*refused.kind(), ErrorKind::LimitExceeded);
    let deep = nested(RawJson::MAX_DEPTH);
    let event = NewEvent::new("x.app.deep".parse().unwrap(), deep.clone()).with_extra("more", deep.clone());
    let done = store.sessions(&effects).append(made.id, made.head, vec![event]).await.unwrap();
    drop(store);
    let store = hasty(folder.path()).await;
    assert_eq!(SessionStore::load(&store, made.id).await.unwrap(), done.session);
    assert_eq!(store.read(made.id, ReadEvents::last(1)).await.unwrap().events[0].payload, deep);
}

/// A session of 40 messages of 1 KiB, the snapshot far behind the `damaged`-th of them, in which one byte is flipped.
async fn damaged_before_the_snapshot(root: &Path, id: SessionId, damaged: u64) -> FsStore {
    let (store, effects) = (hasty(root).await, Effects::default());
    let mut seen = SessionStore::load(&store, id).await.unwrap().head;
    for n in seen.get() + 1..=40 {
        seen = append_text(&store, &effects, id, seen, &format!("number {n}.{}", "x".repeat(1000))).await;
    }
    drop(store);
    let mut bytes = fs::read(log_of(root, id)).unwrap();
    let text = format!("number {damaged}.");
    let at = bytes.windows(text.len()).position(|found| found == text.as_bytes()).unwrap();
    bytes[at] = b'N';
    fs::write(log_of(root, id), bytes).unwrap();
    hasty(root).await
}

/// A commit that may lie in the damaged part of a log is not taken for one that did not land.
#[tokio::test]
async fn commit_possibly_in_damage_is_not_written_again() {
    let folder = tempfile::tempdir().unwrap();
    let (store, effects) = (hasty(folder.path()).await, Effects::default());
    let made = session(&store, &effects).await;
    let old = Commit::seal(&effects, made.id, made.head).with_event(NewEvent::user_message("number 3."));
    append_text(&store, &effects, made.id, made.head, "before").await;
    store.commit(old.clone()).await.unwrap();
    drop(store);
    let store = damaged_before_the_snapshot(folder.path(), made.id, 3).await;
    let head = SessionStore::load(&store, made.id).await.unwrap().head;
    let error = store.commit_with_retry(old).await.unwrap_err();
    assert_eq!((error.kind(), error.write_outcome()), (&ErrorKind::Corrupt, WriteOutcome::Unknown));
    assert_eq!(SessionStore::load(&store, made.id).await.unwrap().head, head);
}

/// A purge keeps what descendants need also behind damage, and the damaged bytes with it.
#[tokio::test]
async fn purge_keeps_damage_and_the_events_behind_it() {
    let folder = tempfile::tempdir().unwrap();
    let (store, effects) = (hasty(folder.path()).await, Effects::default());
    let id = session(&store, &effects).await.id;
    drop(store);
    let store = damaged_before_the_snapshot(folder.path(), id, 5).await;
    let deleted = store.sessions(&effects).trigger(id, Trigger::Delete(Reason::UserDeleted)).await.unwrap();
    let purged = store.purge(Purge::new(id, deleted.last).with_keep_through(Seq::new(30))).await.unwrap();
    assert_eq!(purged.events, 11);
    let page = store.read(id, ReadEvents::first(100).with_after(Seq::new(5))).await.unwrap();
    assert_eq!(page.events.len(), 25);
    assert!(fs::read_to_string(log_of(folder.path(), id)).unwrap().contains("Number 5."));
    let purged = store.purge(Purge::new(id, deleted.last)).await.unwrap();
    assert_eq!(purged.events, 30);
    assert_eq!(fs::read(log_of(folder.path(), id)).unwrap(), b"");
}
