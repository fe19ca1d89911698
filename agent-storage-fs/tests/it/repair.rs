//! After damage: sessions that are deleted though no commit can be added to them; and stores that are not there.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::support::{append_text, folder_of, hasty, session, texts};
use agent_core::clock::Effects;
use agent_core::commit::Commit;
use agent_core::event::NewEvent;
use agent_core::session::SessionRecord;
use agent_core::state::{Reason, SessionState};
use agent_core::store::ReadEvents;
use agent_core::{ErrorKind, Seq, SessionId, SessionStore, SessionStoreExt, Storage};
use agent_runtime::WorkspaceManager;
use agent_storage_fs::{FsConfig, FsStore};

fn log_of(root: &Path, id: SessionId) -> PathBuf {
    folder_of(root, id).join("events.jsonl")
}

/// Flips a byte of the text of the first message, so that the log keeps its length.
fn damage(root: &Path, id: SessionId) -> Vec<u8> {
    let log = log_of(root, id);
    let text = fs::read_to_string(&log).unwrap().replacen("first", "fjrst", 1);
    fs::write(&log, &text).unwrap();
    text.into_bytes()
}

fn manager(store: &FsStore, effects: &Effects) -> WorkspaceManager {
    WorkspaceManager::new(Storage::from(store.clone()).with_effects(effects.clone()))
}

/// A session of three messages.
async fn three(store: &FsStore, effects: &Effects) -> Arc<SessionRecord> {
    let new = session(store, effects).await;
    let mut head = new.head;
    for text in ["first", "second", "third"] {
        head = append_text(store, effects, new.id, head, text).await;
    }
    SessionStore::load(store, new.id).await.unwrap()
}

/// A handle that remembers the session as it was before the damage sees the deletion, and adds nothing to it.
#[tokio::test]
async fn every_handle_sees_the_deletion() {
    let (folder, effects) = (tempfile::tempdir().unwrap(), Effects::default());
    let old = hasty(folder.path()).await;
    let now = three(&old, &effects).await;
    let bytes = damage(folder.path(), now.id);
    // By what it remembers nothing is wrong.
    assert_eq!(SessionStore::load(&old, now.id).await.unwrap().head, now.head);

    let store = hasty(folder.path()).await;
    assert_eq!(*SessionStore::load(&store, now.id).await.unwrap_err().kind(), ErrorKind::Corrupt);
    let deleted = manager(&store, &effects).delete_session(now.id).await.unwrap();
    assert_eq!((deleted.status.state, deleted.head), (SessionState::Deleted, now.head));
    assert_eq!(SessionStore::load(&old, now.id).await.unwrap(), deleted);
    let append = Commit::seal(&effects, now.id, now.head).with_event(NewEvent::user_message("on"));
    assert_eq!(*old.commit(append).await.unwrap_err().kind(), ErrorKind::Deleted);
    assert_eq!(fs::read(log_of(folder.path(), now.id)).unwrap(), bytes, "the damaged bytes are kept");
}

/// What can be read is deleted by a commit, and by nothing else; of what is not there nothing is deleted.
#[tokio::test]
async fn delete_damaged_refuses_readable_sessions() {
    let (folder, effects) = (tempfile::tempdir().unwrap(), Effects::default());
    let store = hasty(folder.path()).await;
    let now = three(&store, &effects).await;
    let refused =
        store.maintenance().delete_damaged(now.id, effects.now(), Reason::UserDeleted).await.unwrap_err();
    assert_eq!(*refused.kind(), ErrorKind::InvalidInput);
    let nobody = store
        .maintenance()
        .delete_damaged(effects.new_session_id(), effects.now(), Reason::UserDeleted)
        .await;
    assert_eq!(*nobody.unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(SessionStore::load(&store, now.id).await.unwrap(), now);
}

/// A living fork of a damaged session keeps what it reads, also when that session is deleted and purged.
#[tokio::test]
async fn fork_of_a_damaged_session_keeps_its_history() {
    let (folder, effects) = (tempfile::tempdir().unwrap(), Effects::default());
    let store = hasty(folder.path()).await;
    let now = three(&store, &effects).await;
    let fork = store.sessions(&effects).fork(now.id, Some(Seq::new(3))).await.unwrap();
    // Behind what the fork reads.
    let log = log_of(folder.path(), now.id);
    let head = append_text(&store, &effects, now.id, now.head, "fourth").await;
    let text = fs::read_to_string(&log).unwrap().replacen("third", "thjrd", 1);
    fs::write(&log, text).unwrap();
    let store = hasty(folder.path()).await;
    let manager = manager(&store, &effects);
    manager.delete_session(now.id).await.unwrap();
    assert_eq!(manager.purge(now.id).await.unwrap().events, head.get() - 3);
    let history = store.history(fork.id, ReadEvents::first(10)).await.unwrap();
    assert_eq!(history.events.len() as u64, fork.head.get(), "{history:?}");
}

/// A tombstone that cannot be read is no end: another takes its place, and the bytes of the first are kept until the
/// session is purged.
#[tokio::test]
async fn a_damaged_tombstone_is_replaced() {
    let (folder, effects) = (tempfile::tempdir().unwrap(), Effects::default());
    let store = hasty(folder.path()).await;
    let now = three(&store, &effects).await;
    let manager = manager(&store, &effects);
    manager.delete_session(now.id).await.unwrap();
    manager.purge(now.id).await.unwrap();
    let tombstone = folder_of(folder.path(), now.id).join("tombstone.json");
    fs::write(&tombstone, "x").unwrap();
    let store = hasty(folder.path()).await;
    assert_eq!(*SessionStore::load(&store, now.id).await.unwrap_err().kind(), ErrorKind::Corrupt);
    let manager = self::manager(&store, &effects);
    let deleted = manager.delete_session(now.id).await.unwrap();
    let again = hasty(folder.path()).await;
    assert_eq!(SessionStore::load(&again, now.id).await.unwrap(), deleted);
    let kept = || {
        let names = fs::read_dir(tombstone.parent().unwrap()).unwrap().map(|it| it.unwrap().path());
        let kept = names.filter(|path| path.to_string_lossy().contains("tombstone.damaged-"));
        kept.map(|path| fs::read_to_string(path).unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(kept(), ["x"]);
    manager.purge(now.id).await.unwrap();
    assert_eq!(kept(), [""; 0]);
}

/// A store that is not to be made is opened where one is, and nothing is made elsewhere.
#[tokio::test]
async fn missing_store_is_not_created() {
    let (folder, effects) = (tempfile::tempdir().unwrap(), Effects::default());
    let root = folder.path().join("data");
    let refused = FsConfig::new(&root).with_create(false).open().await.unwrap_err();
    assert_eq!(*refused.kind(), ErrorKind::NotFound);
    assert!(refused.to_string().contains("holds no store"), "{refused}");
    assert!(!root.exists());
    fs::create_dir(&root).unwrap();
    fs::write(root.join("config.toml"), "").unwrap();
    let refused = FsConfig::new(&root).with_create(false).open().await.unwrap_err();
    assert_eq!(*refused.kind(), ErrorKind::NotFound);

    let store = FsConfig::new(&root).open().await.unwrap();
    let bob = store.for_tenant(&"bob".parse().unwrap());
    let now = three(&bob, &effects).await;
    let store = FsConfig::new(&root).with_create(false).open().await.unwrap();
    assert_eq!(texts(&store.for_tenant(&"bob".parse().unwrap()), now.id).await, ["first", "second", "third"]);
}
