//! Files that were moved away while no store was open: other files name what is missing, and nothing starts from zero.

use agent_admin::verify::verify;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::support::{Spy, append_text, folder_of, hasty, session, texts};
use agent_admin::verify::{FindingKind, Verification};
use agent_core::clock::Effects;
use agent_core::commit::{Precondition, Trigger};
use agent_core::event::NewEvent;
use agent_core::model::Workspace;
use agent_core::session::{NewSession, SessionRecord};
use agent_core::state::{Reason, SessionState};
use agent_core::store::{HiddenSession, Purge, ReadEvents, SessionQuery};
use agent_core::{
    Backend, Epoch, Error, ErrorKind, SessionId, SessionStore, SessionStoreExt, Storage, TenantId,
    WorkspaceId, WorkspaceStore,
};
use agent_runtime::WorkspaceManager;
use agent_storage_fs::{FsConfig, FsStore};

async fn verified(store: &FsStore) -> Verification {
    verify(&Storage::from(store.clone()), |_| {}).await.unwrap()
}

/// The main session of the default workspace, in which one thing was said.
async fn talk(store: &FsStore, effects: &Effects) -> Arc<SessionRecord> {
    let id = effects.new_session_id();
    let record = Workspace::new(WorkspaceId::DEFAULT, "home", id, effects.now());
    store.put(record, Precondition::MustNotExist).await.unwrap();
    let new = NewSession::new(id, WorkspaceId::DEFAULT);
    let new = store.sessions(effects).create(new).await.unwrap();
    append_text(store, effects, id, new.head, "hello").await;
    SessionStore::load(store, id).await.unwrap()
}

/// Every call on the session says that it is missing, and makes nothing; `verify` names it.
async fn is_named(root: &Path, session: &SessionRecord) {
    let effects = Effects::default();
    let (id, store) = (session.id, hasty(root).await);
    let mut errors: Vec<Error> = Vec::new();
    let new = NewSession::new(id, WorkspaceId::DEFAULT);
    errors.push(store.sessions(&effects).create(new).await.unwrap_err());
    let events = vec![NewEvent::user_message("more")];
    errors.push(store.sessions(&effects).append(id, session.head, events).await.unwrap_err());
    errors.push(SessionStore::load(&store, id).await.unwrap_err());
    errors.push(store.read(id, ReadEvents::last(10)).await.unwrap_err());
    errors.push(store.leases().status(id, Epoch::new(1)).await.unwrap_err());
    errors.push(store.sessions(&effects).fork(id, None).await.unwrap_err());
    for error in errors {
        assert_eq!(*error.kind(), ErrorKind::Corrupt, "{error}");
        for wording in [id.to_string().as_str(), "moved or removed", "put it back"] {
            assert!(error.to_string().contains(wording), "{error}");
        }
    }
    // Whatever reads all, as a copy does.
    let page = SessionStore::list(&store, SessionQuery::new().with_hidden()).await.unwrap();
    assert!(page.damaged.iter().any(|it| it.object == format!("session {id}")), "{page:?}");
    // Whatever counts, as the program's lists do.
    let other = effects.new_workspace_id();
    for (workspace, is_named) in [(WorkspaceId::DEFAULT, true), (other, false)] {
        let query = SessionQuery::new().with_workspace(workspace).with_total();
        let page = SessionStore::list(&store, query).await.unwrap();
        let named = page.damaged.iter().any(|it| it.object == format!("session {id}"));
        assert_eq!(named, is_named, "{workspace}: {page:?}");
    }
    let rebuilt = store.maintenance().rebuild().await.unwrap();
    assert!(rebuilt.damaged.iter().any(|it| it.object == format!("session {id}")), "{rebuilt:?}");
    let tenants = Backend::tenants(&store, None).await.unwrap();
    assert_eq!(tenants.items, [TenantId::default()]);
    FsConfig::new(root).with_create(false).open().await.unwrap();
    let found = verified(&store).await;
    let named = found.findings.iter().filter(|it| it.detail.contains("moved or removed"));
    assert_eq!(named.filter(|it| it.object.contains(&id.to_string())).count(), 1, "{found:?}");
    assert!(!folder_of(root, id).exists());
}

/// A session's folder, all of a workspace's, or all workspaces, moved away by a person, is damage and not begun
/// anew; put back, all is well.
#[tokio::test]
async fn moved_session_is_damage_and_not_recreated() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("root");
    let aside = folder.path().join("aside");
    let store = hasty(&root).await;
    let session = talk(&store, &Effects::default()).await;
    drop(store);
    let own = folder_of(&root, session.id);
    let above = |n: usize| own.ancestors().nth(n).unwrap().to_owned();
    for moved in [own.clone(), above(1), above(2), above(3)] {
        fs::rename(&moved, &aside).unwrap();
        is_named(&root, &session).await;
        // What calls made on their way.
        fs::remove_dir_all(&moved).ok();
        fs::rename(&aside, &moved).unwrap();
        let store = hasty(&root).await;
        assert!(verified(&store).await.is_sound(), "{}", moved.display());
        assert_eq!(texts(&store, session.id).await, ["hello"]);
    }
}

/// Without the index, which can be deleted, the file `session.md` still knows of the main session.
#[tokio::test]
async fn a_moved_main_session_is_known_by_its_transcript() {
    let folder = tempfile::tempdir().unwrap();
    let (root, aside) = (folder.path().join("root"), folder.path().join("aside"));
    let store = hasty(&root).await;
    let session = talk(&store, &Effects::default()).await;
    store.transcript_edits(WorkspaceId::DEFAULT).await.unwrap();
    drop(store);
    fs::remove_dir_all(root.join("index")).unwrap();
    fs::rename(folder_of(&root, session.id), &aside).unwrap();
    is_named(&root, &session).await;
    fs::rename(&aside, folder_of(&root, session.id)).unwrap();
    let store = hasty(&root).await;
    assert!(verified(&store).await.is_sound());
    assert_eq!(texts(&store, session.id).await, ["hello"]);
}

/// Two sessions of one id, as when a folder was moved away, its id was used again, and the folder was put back, are named.
#[tokio::test]
async fn two_sessions_of_one_id_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let (root, aside) = (folder.path().join("root"), folder.path().join("aside"));
    let effects = Effects::default();
    let store = hasty(&root).await;
    let session = talk(&store, &effects).await;
    drop(store);
    let own = folder_of(&root, session.id);
    fs::rename(&own, &aside).unwrap();
    fs::remove_dir_all(root.join("index")).unwrap();
    let store = hasty(&root).await;
    let other = effects.new_workspace_id();
    store.sessions(&effects).create(NewSession::new(session.id, other)).await.unwrap();
    drop(store);
    fs::rename(&aside, &own).unwrap();
    let found = verified(&hasty(&root).await).await;
    let message = "has the id of another session, in the folder of workspace";
    let is_named =
        found.findings.iter().any(|it| it.detail.contains(message) && it.kind == FindingKind::Damaged);
    assert!(is_named, "{found:?}");
}

/// A missing session can be deleted, and purged; then nothing is wrong any more, and the id is not used again.
#[tokio::test]
async fn a_missing_session_can_be_deleted() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("root");
    let effects = Effects::default();
    let store = hasty(&root).await;
    let lost = talk(&store, &effects).await;
    let kept = session(&store, &effects).await;
    drop(store);
    fs::rename(folder_of(&root, lost.id), folder.path().join("aside")).unwrap();
    let store = hasty(&root).await;
    let deleted =
        store.maintenance().delete_damaged(lost.id, effects.now(), Reason::UserDeleted).await.unwrap();
    assert_eq!((deleted.status.state, deleted.workspace), (SessionState::Deleted, WorkspaceId::DEFAULT));
    store.purge(Purge::new(lost.id, deleted.head)).await.unwrap();
    assert!(verified(&store).await.is_sound());
    assert_eq!(SessionStore::load(&store, kept.id).await.unwrap(), kept);
    let new = NewSession::new(lost.id, WorkspaceId::DEFAULT);
    let error = store.sessions(&effects).create(new).await.unwrap_err();
    assert_ne!(*error.kind(), ErrorKind::Corrupt, "{error}");

    let nobody: SessionId = effects.new_session_id();
    let error =
        store.maintenance().delete_damaged(nobody, effects.now(), Reason::UserDeleted).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::NotFound, "{error}");
}

/// An audit whose log was moved away is damage, and is not begun anew.
#[tokio::test]
async fn moved_audit_is_damage_and_not_recreated() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("root");

    let storage = Storage::from(hasty(&root).await);
    let audit = HiddenSession::Audit.open(&storage.sessions).await.unwrap();
    drop(storage);
    let (own, aside): (PathBuf, _) = (folder_of(&root, audit.id), folder.path().join("aside"));
    fs::rename(&own, &aside).unwrap();
    let storage = Storage::from(hasty(&root).await);
    let error = HiddenSession::Audit.open(&storage.sessions).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Corrupt, "{error}");
    assert!(!verify(&storage, |_| {}).await.unwrap().is_sound());
    fs::rename(&aside, &own).unwrap();
    assert_eq!(HiddenSession::Audit.open(&storage.sessions).await.unwrap(), audit);
    assert!(verify(&storage, |_| {}).await.unwrap().is_sound());
}

/// A session that is missing may be a fork: what it may read is not purged until it is back, or deleted.
#[tokio::test]
async fn purge_keeps_what_a_missing_fork_may_read() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("root");
    let effects = Effects::default();
    let store = hasty(&root).await;
    let parent = session(&store, &effects).await;
    let seen = append_text(&store, &effects, parent.id, parent.head, "shared").await;
    let fork = store.sessions(&effects).fork(parent.id, None).await.unwrap();
    let aside = folder.path().join("aside");
    fs::rename(folder_of(&root, fork.id), &aside).unwrap();
    drop(store);
    let store = hasty(&root).await;
    let deleted =
        store.sessions(&effects).trigger(parent.id, Trigger::Delete(Reason::UserDeleted)).await.unwrap();
    let error = store.purge(Purge::new(parent.id, deleted.last)).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Corrupt, "{error}");
    assert!(error.to_string().contains(&fork.id.to_string()), "{error}");
    fs::rename(&aside, folder_of(&root, fork.id)).unwrap();
    assert_eq!(
        store.purge(Purge::new(parent.id, deleted.last)).await.unwrap().events,
        deleted.last.get() - seen.get()
    );
    assert_eq!(store.history(fork.id, ReadEvents::first(10)).await.unwrap().events.len(), 3);
}

/// A workspace whose folder was moved away is damage: nothing of the same id is made in its place; put back, all is
/// well, and what is lost for good can be deleted.
#[tokio::test]
async fn moved_workspace_is_damage_and_not_recreated() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("root");
    let effects = Effects::default();
    let device = "laptop".parse().unwrap();
    let manager = async || WorkspaceManager::new(hasty(&root).await.into());
    let made = manager().await.resolve(&device).await.unwrap().workspace;
    let aside = folder.path().join("aside");
    let own = root.join("workspaces").join(made.id.to_string());
    for moved in [own.clone(), root.join("workspaces"), own.join("workspace.toml")] {
        fs::rename(&moved, &aside).unwrap();
        let store = hasty(&root).await;
        let record = Workspace::new(made.id, "another", effects.new_session_id(), effects.now());
        for error in [
            manager().await.resolve(&device).await.unwrap_err(),
            WorkspaceStore::load(&store, made.id).await.unwrap_err(),
            store.put(record, Precondition::MustNotExist).await.unwrap_err(),
            store.put(made.clone(), Precondition::MustExist).await.unwrap_err(),
            store.touch(made.id, effects.now()).await.unwrap_err(),
            store.save_config(made.id, Some("a = 1".into()), Precondition::MustExist).await.unwrap_err(),
        ] {
            assert_eq!(*error.kind(), ErrorKind::Corrupt, "{error}");
            assert!(error.to_string().contains(&format!("workspace {} is missing", made.id)), "{error}");
        }
        let found = verified(&store).await;
        assert!(found.findings.iter().any(|it| it.object == format!("workspace {}", made.id)), "{found:?}");
        assert!(!moved.exists());
        fs::rename(&aside, &moved).unwrap();
        assert_eq!(manager().await.resolve(&device).await.unwrap().workspace, made);
        assert!(verified(&hasty(&root).await).await.is_sound());
    }

    fs::rename(&own, &aside).unwrap();
    manager().await.delete(made.id).await.unwrap();
    assert!(verified(&hasty(&root).await).await.is_sound());
    let error = WorkspaceStore::load(&hasty(&root).await, made.id).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Deleted, "{error}");
    assert_ne!(manager().await.resolve(&device).await.unwrap().workspace.id, made.id);
}

/// Whatever stands in place of what the index says of a session, it says that there was one.
#[tokio::test]
async fn malformed_index_entry_still_proves_existence() {
    let folder = tempfile::tempdir().unwrap();
    let (root, aside) = (folder.path().join("root"), folder.path().join("aside"));
    let store = hasty(&root).await;
    let session = talk(&store, &Effects::default()).await;
    drop(store);
    let name = session.id.to_string();
    let mut folders =
        fs::read_dir(root.join("index/sessions")).unwrap().map(|it| it.unwrap().path().join(&name));
    let entry = folders.find(|path| path.exists()).unwrap();
    fs::remove_file(&entry).unwrap();
    fs::create_dir(&entry).unwrap();
    fs::rename(folder_of(&root, session.id), &aside).unwrap();
    is_named(&root, &session).await;
    fs::rename(&aside, folder_of(&root, session.id)).unwrap();
    assert_eq!(texts(&hasty(&root).await, session.id).await, ["hello"]);
}

/// A workspace that another process makes at whatever step of a call is there or not there yet, and never missing.
#[tokio::test]
async fn concurrently_created_workspace_is_not_missing() {
    let folder = tempfile::tempdir().unwrap();
    let (root, spy, effects) = (folder.path().join("root"), Spy::new(), Effects::default());
    let store = FsConfig::new(&root).with_io(Arc::new(spy.clone())).open().await.unwrap();
    let other = hasty(&root).await;
    for at in 0..40 {
        for is_put in [true, false] {
            let id = effects.new_workspace_id();
            let record = Workspace::new(id, "home", effects.new_session_id(), effects.now());
            let foreign = (other.clone(), record.clone());
            spy.fail(move |number, _| {
                if number == at {
                    let (other, record) = foreign.clone();
                    let made = std::thread::spawn(move || {
                        let runtime =
                            tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                        // Who holds the lock of its folder waits for this.
                        let put = async {
                            tokio::time::timeout(
                                Duration::from_millis(100),
                                other.put(record, Precondition::MustNotExist),
                            )
                            .await
                        };
                        drop(runtime.block_on(put));
                    });
                    made.join().unwrap();
                }
                None
            });
            let refused = match is_put {
                true => store.put(record, Precondition::MustNotExist).await.err(),
                false => WorkspaceStore::load(&store, id).await.err(),
            };
            spy.heal();
            let fits =
                |error: &Error| matches!(error.kind(), ErrorKind::Conflict { .. } | ErrorKind::NotFound);
            assert!(refused.as_ref().is_none_or(fits), "call {at}, put: {is_put}: {refused:?}");
        }
    }
}
