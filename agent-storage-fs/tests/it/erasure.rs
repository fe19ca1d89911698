//! Remains of a deletion and of a purge in the files.

use std::path::Path;
use std::sync::Arc;

use crate::support::{append_text, files, hasty};
use agent_core::clock::Effects;
use agent_core::commit::{Commit, Precondition, Trigger};
use agent_core::event::NewEvent;
use agent_core::json::RawJson;
use agent_core::model::{Patch, Title, Workspace};
use agent_core::session::{NewSession, SessionRecord};
use agent_core::state::Reason;
use agent_core::store::{Purge, ReadEvents, SessionQuery};
use agent_core::{Seq, SessionStore, SessionStoreExt, WorkspaceId, WorkspaceStore};
use agent_storage_fs::FsStore;

/// The files below a folder with a word in them.
fn with_word(root: &Path) -> Vec<std::path::PathBuf> {
    let has = |bytes: &[u8]| bytes.windows(11).any(|part| part == b"my password");
    files(root).into_iter().filter(|(_, bytes)| has(bytes)).map(|(path, _)| path).collect()
}

/// The main session of the default workspace, with a word in all that is said of it.
async fn wordy(store: &FsStore, effects: &Effects) -> Arc<SessionRecord> {
    let main = effects.new_session_id();
    let home = Workspace::new(WorkspaceId::DEFAULT, "home", main, effects.now());
    store.put(home, Precondition::MustNotExist).await.unwrap();
    let patch = Patch::new()
        .with_title(Title::by_user("my password"))
        .with_label("login", "my password")
        .with_metadata("login", RawJson::of(&"my password").unwrap());
    let new = NewSession::new(main, WorkspaceId::DEFAULT).with_patch(&patch);
    let session = store.sessions(effects).create(new).await.unwrap();
    // Enough for a snapshot.
    let mut seen = session.head;
    for _ in 0..40 {
        seen = append_text(store, effects, main, seen, &"my password ".repeat(100)).await;
    }
    SessionStore::load(store, main).await.unwrap()
}

async fn delete(store: &FsStore, effects: &Effects, session: &SessionRecord) -> Arc<SessionRecord> {
    let delete =
        Commit::seal(effects, session.id, session.head).with_trigger(Trigger::Delete(Reason::UserDeleted));
    store.commit(delete).await.unwrap().session
}

/// After a deletion and a purge no file has a word of what was said in the session or of it.
#[tokio::test]
async fn purge_leaves_no_text_in_any_file() {
    let folder = tempfile::tempdir().unwrap();
    let effects = Effects::default();
    let store = hasty(folder.path()).await;
    let session = wordy(&store, &effects).await;
    // `session.md` is there a moment later.
    for _ in 0..400 {
        if folder.path().join("workspaces/default/session.md").exists() {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(25)).await;
    }
    let listed = SessionStore::list(&store, SessionQuery::new()).await.unwrap();
    assert_eq!(listed.items.len(), 1);
    assert!(with_word(folder.path()).len() >= 3, "{:?}", with_word(folder.path()));
    let deleted = delete(&store, &effects, &session).await;
    store.purge(Purge::new(session.id, deleted.head)).await.unwrap();
    assert_eq!(with_word(folder.path()), [""; 0].map(std::path::PathBuf::from));
    drop(store);
    let store = hasty(folder.path()).await;
    assert_eq!(SessionStore::load(&store, session.id).await.unwrap(), deleted.tombstone().into());
    store.maintenance().rebuild().await.unwrap();
    drop(store);
    assert_eq!(with_word(folder.path()), [""; 0].map(std::path::PathBuf::from));
}

/// What another handle remembers of the record is noticed to be old, also if the purge removes no event.
#[tokio::test]
async fn purge_keeping_all_events_is_seen_by_all_handles() {
    let folder = tempfile::tempdir().unwrap();
    let effects = Effects::default();
    let (store, other) = (hasty(folder.path()).await, hasty(folder.path()).await);
    let session = wordy(&store, &effects).await;
    let deleted = delete(&store, &effects, &session).await;
    let all = SessionQuery::new().with_hidden();
    for handle in [&store, &other] {
        assert_eq!(SessionStore::load(handle, session.id).await.unwrap(), deleted);
        let listed = SessionStore::list(handle, all.clone()).await.unwrap().items;
        assert_eq!(listed[0].attributes, deleted.attributes);
    }
    let purge = Purge::new(session.id, deleted.head).with_keep_through(deleted.head);
    assert_eq!(store.purge(purge.clone()).await.unwrap().events, 0);
    for handle in [&store, &other] {
        assert_eq!(SessionStore::load(handle, session.id).await.unwrap(), deleted.tombstone().into());
        let listed = SessionStore::list(handle, all.clone()).await.unwrap().items;
        assert_eq!(listed[0].attributes, deleted.tombstone().attributes);
        let kept = handle.read(session.id, ReadEvents::last(1)).await.unwrap().events;
        assert_eq!(kept.last().map(|event| event.seq), Some(deleted.head));
    }
    let seen = Seq::new(1);
    let refused = store.sessions(&effects).append(session.id, seen, vec![NewEvent::user_message("x")]).await;
    assert!(refused.is_err());
    assert_eq!(other.purge(purge).await.unwrap().events, 0);
}

/// While a session is damaged that may be a fork of it, a purge takes nothing and says why; then it goes on.
#[tokio::test]
async fn purge_is_refused_if_a_damaged_fork_may_exist() {
    let folder = tempfile::tempdir().unwrap();
    let effects = Effects::default();
    let store = hasty(folder.path()).await;
    let session = wordy(&store, &effects).await;
    let fork = store.sessions(&effects).fork(session.id, None).await.unwrap();
    let deleted = delete(&store, &effects, &session).await;
    drop(store);
    let damaged = crate::support::folder_of(folder.path(), fork.id);
    let hidden = folder.path().join("elsewhere");
    std::fs::rename(damaged.join("events.jsonl"), &hidden).unwrap();
    let store = hasty(folder.path()).await;
    let purge = Purge::new(session.id, deleted.head);
    let refused = store.purge(purge.clone()).await.unwrap_err();
    assert_eq!(*refused.kind(), agent_core::ErrorKind::Corrupt, "{refused}");
    assert_eq!(refused.write_outcome(), agent_core::WriteOutcome::NotApplied);
    assert!(refused.to_string().contains(&fork.id.to_string()), "{refused}");
    assert_eq!(SessionStore::load(&store, session.id).await.unwrap(), deleted);
    std::fs::rename(&hidden, damaged.join("events.jsonl")).unwrap();
    assert_eq!(store.purge(purge).await.unwrap().events, deleted.head.get() - session.head.get());
    let history = store.history(fork.id, ReadEvents::first(100)).await.unwrap().events;
    assert_eq!(history.len() as u64, fork.head.get());
}
