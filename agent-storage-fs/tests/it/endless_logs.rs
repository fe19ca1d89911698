//! Logs with more bytes that are no lines than any commit has, such as the zeros that a disk leaves in a file.

use std::fs;
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;

use agent_admin::verify::verify;
use agent_core::clock::Effects;
use agent_core::event::NewEvent;
use agent_core::state::SessionState;
use agent_core::store::{ReadEvents, SessionQuery};
use agent_core::{Backend, ErrorKind, Seq, SessionId, SessionStore, SessionStoreExt, Storage, TenantId};
use agent_runtime::WorkspaceManager;
use agent_storage_fs::FsStore;

use crate::support::{Spy, append_text, folder_of, hasty, session, watched};

const LENGTH: u64 = 20_000_000_000;
/// Most bytes that one look at such a log reads: a little more than the longest commit has.
const CHECK_BYTES: usize = 120 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Made {
    /// The log consists of zeros.
    Zeros,
    /// The log ends with zeros.
    Tail,
    /// The log ends with zeros, and a line after them.
    Middle,
}

/// Creates a session with a snapshot of its log, and another one, and puts zeros into the log of the first.
async fn made(root: &Path, made: Made) -> (SessionId, SessionId) {
    let (store, effects) = (hasty(root).await, Effects::default());
    let [id, other] = [session(&store, &effects).await.id, session(&store, &effects).await.id];
    append_text(&store, &effects, id, Seq::new(1), "hello").await;
    append_text(&store, &effects, id, Seq::new(2), &"long ".repeat(2000)).await;
    store.close().await.unwrap();
    let folder = folder_of(root, id);
    let mut log = fs::File::options().write(true).open(folder.join("events.jsonl")).unwrap();
    if made == Made::Zeros {
        log.set_len(0).unwrap();
    }
    log.set_len(LENGTH).unwrap();
    if made == Made::Middle {
        log.seek(SeekFrom::End(0)).unwrap();
        log.write_all(b"\nlast\n").unwrap();
    }
    (id, other)
}

/// Returns the bytes that were read of logs and written to any file since the last time.
fn moved(spy: &Spy) -> (usize, usize) {
    let (mut read, mut written) = (0, 0);
    for call in spy.take() {
        match call.name {
            "read" if call.file() == "events.jsonl" => read += call.bytes,
            "write" => written += call.bytes,
            _ => {}
        }
    }
    (read, written)
}

async fn open(root: &Path) -> (FsStore, Spy) {
    let (store, spy) = watched(root).await;
    spy.take();
    (store, spy)
}

/// A log with zeros that are longer than any commit is damaged: every call names it after a bounded amount was read, the part
/// before them can be read, and the session can be deleted and purged without copying them.
#[tokio::test]
async fn log_of_20_gb_of_zeros_is_named_in_bounded_reads() {
    for kind in [Made::Zeros, Made::Tail, Made::Middle] {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let (id, other) = made(root, kind).await;
        let log = folder_of(root, id).join("events.jsonl");
        let (store, spy) = open(root).await;
        let effects = Effects::default();
        let within = |what: &str, checks: usize| {
            let (read, written) = moved(&spy);
            assert!(read <= checks * CHECK_BYTES, "{kind:?}: {what}: {read} bytes were read");
            assert!(written <= 1 << 20, "{kind:?}: {what}: {written} bytes were written");
        };
        let names = |text: String| text.contains(&log.display().to_string()) && text.contains("damaged");

        let page = SessionStore::list(&store, SessionQuery::new()).await.unwrap();
        within("list", 4);
        assert_eq!(page.items.iter().map(|found| found.id).collect::<Vec<_>>(), [other], "{kind:?}");
        assert!(
            page.damaged.len() == 1 && names(page.damaged[0].to_string()),
            "{kind:?}: {:?}",
            page.damaged
        );
        let error = SessionStore::load(&store, id).await.unwrap_err();
        within("load", 2);
        assert!(*error.kind() == ErrorKind::Corrupt && names(error.to_string()), "{kind:?}: {error}");
        let oldest = store.read(id, ReadEvents::first(50)).await;
        within("read", 6);
        match oldest {
            Ok(page) if kind != Made::Zeros => {
                assert_eq!(page.events.len(), 3, "{kind:?}");
                assert!(names(page.damaged[0].to_string()), "{kind:?}: {:?}", page.damaged);
            }
            Err(error) if kind == Made::Zeros => assert!(names(error.to_string()), "{error}"),
            other => panic!("{kind:?}: {other:?}"),
        }
        let error = store.read(id, ReadEvents::last(2)).await.unwrap_err();
        within("read the newest", 6);
        assert!(names(error.to_string()), "{kind:?}: {error}");
        // Reading so much takes its time; one of them shows it.
        if kind == Made::Tail {
            let messages = vec![NewEvent::user_message("more")];
            let error = store.sessions(&effects).append(id, Seq::new(3), messages).await.unwrap_err();
            within("append", 4);
            assert!(*error.kind() == ErrorKind::Corrupt && names(error.to_string()), "{error}");
            let found = verify(&Storage::from(store.clone()), |_| {}).await.unwrap();
            within("verify", 24);
            assert!(found.findings.iter().any(|found| names(found.to_string())), "{found:?}");
            store.maintenance().rebuild().await.unwrap();
            within("rebuild", 8);
        }

        let manager = WorkspaceManager::new(Storage::from(store.clone()).with_effects(effects.clone()));
        let deleted = manager.delete_session(id).await.unwrap();
        within("delete", 12);
        assert_eq!(deleted.status.state, SessionState::Deleted, "{kind:?}");
        assert_eq!(deleted.head.get(), if kind == Made::Zeros { 0 } else { 3 }, "{kind:?}");
        manager.purge(id).await.unwrap();
        within("purge", 2);
        let mut left: Vec<_> =
            fs::read_dir(folder_of(root, id)).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        left.retain(|name| name != "lock");
        assert_eq!(left, ["events.jsonl", "tombstone.json"], "{kind:?}");
        assert_eq!(fs::metadata(&log).unwrap().len(), 0, "{kind:?}");
        store.close().await.unwrap();
    }
}

/// A tenant with such a log is deleted like any other.
#[tokio::test]
async fn tenant_with_a_log_of_20_gb_is_deleted_in_bounded_reads() {
    for kind in [Made::Zeros, Made::Tail, Made::Middle] {
        let folder = tempfile::tempdir().unwrap();
        let (id, _) = made(folder.path(), kind).await;
        let (store, spy) = open(folder.path()).await;
        let removed = store.delete_tenant(&TenantId::default()).await.unwrap();
        let (read, written) = moved(&spy);
        assert!(read <= 4 * CHECK_BYTES && written <= 1 << 20, "{kind:?}: {read} read, {written} written");
        assert_eq!(removed.sessions, 2, "{kind:?}");
        assert_eq!(*SessionStore::load(&store, id).await.unwrap_err().kind(), ErrorKind::NotFound);
    }
}

/// A session that was deleted and purged before zeros came into its log is not read further for them.
#[tokio::test]
async fn purged_session_with_a_log_of_20_gb_stays_purged() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let (store, effects) = (hasty(root).await, Effects::default());
    let id = session(&store, &effects).await.id;
    let manager = WorkspaceManager::new(Storage::from(store.clone()).with_effects(effects.clone()));
    manager.delete_session(id).await.unwrap();
    manager.purge(id).await.unwrap();
    store.close().await.unwrap();
    let log = folder_of(root, id).join("events.jsonl");
    fs::File::options().write(true).open(&log).unwrap().set_len(LENGTH).unwrap();
    let (store, spy) = open(root).await;
    let manager = WorkspaceManager::new(Storage::from(store.clone()).with_effects(effects));
    assert_eq!(SessionStore::load(&store, id).await.unwrap().status.state, SessionState::Deleted);
    manager.purge(id).await.unwrap();
    let (read, written) = moved(&spy);
    assert!(read <= 4 * CHECK_BYTES && written <= 1 << 20, "{read} read, {written} written");
    assert_eq!(fs::metadata(&log).unwrap().len(), 0);
}

/// A session into whose log zeros came when it was deleted and not purged yet is deleted once more, and purged.
#[tokio::test]
async fn deleted_session_with_a_log_of_20_gb_is_purged() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let (store, effects) = (hasty(root).await, Effects::default());
    let id = session(&store, &effects).await.id;
    let manager = WorkspaceManager::new(Storage::from(store.clone()).with_effects(effects.clone()));
    let deleted = manager.delete_session(id).await.unwrap();
    store.close().await.unwrap();
    let log = folder_of(root, id).join("events.jsonl");
    fs::File::options().write(true).open(&log).unwrap().set_len(LENGTH).unwrap();
    let (store, spy) = open(root).await;
    let manager = WorkspaceManager::new(Storage::from(store.clone()).with_effects(effects));
    let again = manager.delete_session(id).await.unwrap();
    assert_eq!((again.status.state, again.ended_at), (SessionState::Deleted, deleted.ended_at));
    manager.purge(id).await.unwrap();
    let (read, written) = moved(&spy);
    assert!(read <= 16 * CHECK_BYTES && written <= 1 << 20, "{read} read, {written} written");
    assert_eq!(fs::metadata(&log).unwrap().len(), 0);
}
