//! Files under the name of another owner: each is distinguished from the right one, and named.
#![cfg(unix)]

use agent_admin::verify::verify;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::support::{append_text, folder_of, hasty, session, texts};
use agent_admin::verify::Verification;
use agent_core::clock::Effects;
use agent_core::commit::Precondition;
use agent_core::event::NewEvent;
use agent_core::model::Workspace;
use agent_core::session::{NewSession, SessionRecord};
use agent_core::state::Reason;
use agent_core::store::{Purge, ReadEvents};
use agent_core::{
    BindingStore, Error, ErrorKind, Seq, SessionId, SessionStore, SessionStoreExt, Storage, TenantId,
    WorkspaceId, WorkspaceStore,
};
use agent_storage_fs::FsStore;

fn log_of(root: &Path, id: SessionId) -> PathBuf {
    folder_of(root, id).join("events.jsonl")
}

/// Gives two files, or folders, each other's name.
fn swap(one: &Path, other: &Path) {
    let aside = one.with_extension("aside");
    fs::rename(one, &aside).unwrap();
    fs::rename(other, one).unwrap();
    fs::rename(&aside, other).unwrap();
}

async fn verified(store: &FsStore) -> Verification {
    verify(&Storage::from(store.clone()), |_| {}).await.unwrap()
}

/// A session in which one thing was said.
async fn talk(store: &FsStore, effects: &Effects, text: &str) -> Arc<SessionRecord> {
    let new = session(store, effects).await;
    append_text(store, effects, new.id, new.head, text).await;
    SessionStore::load(store, new.id).await.unwrap()
}

/// Every call on a session names its damage; and `verify` names it, and nothing else.
async fn is_named(root: &Path, ids: &[SessionId], seen: Seq) {
    let effects = Effects::default();
    let store = hasty(root).await;
    for id in ids {
        let mut errors: Vec<Error> = Vec::new();
        errors.push(SessionStore::load(&store, *id).await.unwrap_err());
        errors.push(store.read(*id, ReadEvents::first(10)).await.unwrap_err());
        errors.push(store.read(*id, ReadEvents::last(10)).await.unwrap_err());
        let events = vec![NewEvent::user_message("more")];
        errors.push(store.sessions(&effects).append(*id, seen, events).await.unwrap_err());
        let new = NewSession::new(*id, WorkspaceId::DEFAULT);
        errors.push(store.sessions(&effects).create(new).await.unwrap_err());
        for error in errors {
            assert_eq!(*error.kind(), ErrorKind::Corrupt, "{error}");
            assert!(error.to_string().contains(&id.to_string()), "{error}");
        }
    }
    let found = verified(&store).await;
    assert_eq!(
        found.findings.iter().filter(|it| it.kind.name() == "damaged").count(),
        ids.len(),
        "{found:?}"
    );
}

/// Logs of two sessions that were swapped are damage, and nothing is changed; swapped back, all is well.
#[tokio::test]
async fn swapped_logs_are_damage() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let effects = Effects::default();
    let store = hasty(root).await;
    let one = talk(&store, &effects, "one").await;
    let other = talk(&store, &effects, "other").await;
    drop(store);
    swap(&log_of(root, one.id), &log_of(root, other.id));
    let before = crate::support::files(root);
    is_named(root, &[one.id, other.id], one.head).await;
    assert_eq!(crate::support::files(root), before);
    // With everything that is beside them: snapshots too.
    swap(&log_of(root, one.id), &log_of(root, other.id));
    swap(&folder_of(root, one.id), &folder_of(root, other.id));
    is_named(root, &[one.id, other.id], one.head).await;
    swap(&folder_of(root, one.id), &folder_of(root, other.id));
    let store = hasty(root).await;
    assert_eq!(texts(&store, one.id).await, ["one"]);
    assert_eq!(texts(&store, other.id).await, ["other"]);
}

/// A session's folder that is a link to another's is damage; deleting it spares the other session.
#[tokio::test]
async fn a_link_to_another_session_is_damage() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let effects = Effects::default();
    let store = hasty(root).await;
    let one = talk(&store, &effects, "one").await;
    let other = talk(&store, &effects, "other").await;
    drop(store);
    let elsewhere = folder.path().join("elsewhere");
    fs::rename(folder_of(root, one.id), &elsewhere).unwrap();
    symlink(folder_of(root, other.id), folder_of(root, one.id)).unwrap();
    is_named(root, &[one.id], one.head).await;
    let store = hasty(root).await;
    let now = effects.now();
    let deleted = store.maintenance().delete_damaged(one.id, now, Reason::UserDeleted).await.unwrap();
    store.purge(Purge::new(one.id, deleted.head)).await.unwrap();
    assert_eq!(texts(&store, other.id).await, ["other"]);
    assert_eq!(SessionStore::load(&store, other.id).await.unwrap(), other);
    let found = verified(&store).await;
    assert!(found.findings.iter().all(|it| it.kind.name() == "dangling"), "{found:?}");
    drop(store);

    // One that leads to the session's own files on another disk is as good as a folder.
    fs::remove_dir_all(folder_of(root, one.id)).unwrap();
    symlink(&elsewhere, folder_of(root, one.id)).unwrap();
    assert_eq!(texts(&hasty(root).await, one.id).await, ["one"]);
}

/// A log written over that of another session, in the same file and under an open handle, is damage, and no part of it
/// is cut off.
#[tokio::test]
async fn a_log_written_over_another_is_damage() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let effects = Effects::default();
    let store = hasty(root).await;
    let one = talk(&store, &effects, "one").await;
    let other = talk(&store, &effects, &"other".repeat(100)).await;
    let foreign = fs::read(log_of(root, other.id)).unwrap();
    fs::write(log_of(root, one.id), &foreign).unwrap();
    let events = vec![NewEvent::user_message("more")];
    let error = store.sessions(&effects).append(one.id, one.head, events).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Corrupt, "{error}");
    let error = SessionStore::load(&store, one.id).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Corrupt, "{error}");
    assert_eq!(fs::read(log_of(root, one.id)).unwrap(), foreign);
}

/// `verify` names a session that was moved into another workspace's folder, and where it belongs.
#[tokio::test]
async fn verify_names_a_session_in_the_wrong_workspace() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let effects = Effects::default();
    let store = hasty(root).await;
    let one = talk(&store, &effects, "one").await;
    let workspace = effects.new_workspace_id();
    let record = Workspace::new(workspace, "other", effects.new_session_id(), effects.now());
    store.put(record, Precondition::MustNotExist).await.unwrap();
    drop(store);
    let moved = root.join(format!("workspaces/{workspace}/sessions/{}", one.id));
    fs::create_dir_all(moved.parent().unwrap()).unwrap();
    fs::rename(folder_of(root, one.id), &moved).unwrap();
    let found = verified(&hasty(root).await).await;
    let named = found.findings.iter().filter(|it| it.object == moved.display().to_string());
    let home = folder_of(root, one.id).display().to_string();
    assert_eq!(named.filter(|it| it.detail.contains(&home)).count(), 1, "{found:?}");
    assert_eq!(texts(&hasty(root).await, one.id).await, ["one"], "it is found where it is");
    fs::rename(&moved, folder_of(root, one.id)).unwrap();
    assert_eq!(texts(&hasty(root).await, one.id).await, ["one"]);
}

/// Bindings and workspaces of two tenants, and workspaces of one, that were swapped are refused by name.
#[tokio::test]
async fn swapped_records_are_damage() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let effects = Effects::default();
    let acme: TenantId = "acme".parse().unwrap();
    let other = effects.new_workspace_id();
    let put = async |store: &FsStore, id: WorkspaceId, name: &str| {
        let record = Workspace::new(id, name, effects.new_session_id(), effects.now());
        store.put(record, Precondition::MustNotExist).await.unwrap();
        store.bind(&name.parse().unwrap(), id, Precondition::MustNotExist).await.unwrap();
    };
    let store = hasty(root).await;
    put(&store, WorkspaceId::DEFAULT, "ours").await;
    put(&store, other, "second").await;
    put(&store.for_tenant(&acme), WorkspaceId::DEFAULT, "theirs").await;
    drop(store);

    let bindings = [root.join("bindings.toml"), root.join("tenants/acme/bindings.toml")];
    swap(&bindings[0], &bindings[1]);
    let store = hasty(root).await;
    for (store, owner) in [(&store, "acme"), (&store.for_tenant(&acme), "default")] {
        let error = store.resolve(&"ours".parse().unwrap()).await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::Corrupt, "{error}");
        assert!(error.to_string().contains(&format!("belongs to tenant {owner}")), "{error}");
        let error = store.bind(&"new".parse().unwrap(), other, Precondition::None).await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::Corrupt, "{error}");
        assert!(!verified(store).await.is_sound());
    }
    swap(&bindings[0], &bindings[1]);

    let home = root.join("workspaces/default/workspace.toml");
    for (with, owner) in [
        (root.join("tenants/acme/workspaces/default/workspace.toml"), "acme/default".to_owned()),
        (root.join(format!("workspaces/{other}/workspace.toml")), format!("default/{other}")),
    ] {
        swap(&home, &with);
        let store = hasty(root).await;
        let error = WorkspaceStore::load(&store, WorkspaceId::DEFAULT).await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::Corrupt, "{error}");
        assert!(error.to_string().contains(&format!("belongs to workspace {owner}")), "{error}");
        assert!(!verified(&store).await.is_sound());
        swap(&home, &with);
    }
    let store = hasty(root).await;
    let (all, others) = (verified(&store).await, verified(&store.for_tenant(&acme)).await);
    assert!(all.is_sound() && others.is_sound(), "{all:?} {others:?}");
}
