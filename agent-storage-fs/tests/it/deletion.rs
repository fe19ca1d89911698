//! Remains of a tenant's deletion in the folders.

use std::fs;
use std::path::{Path, PathBuf};

use crate::support::{files, hasty, watched};
use agent_core::clock::Effects;
use agent_core::commit::Precondition;
use agent_core::event::NewEvent;
use agent_core::model::Workspace;
use agent_core::session::NewSession;
use agent_core::store::Pending;
use agent_core::{
    Backend, BindingStore, ErrorKind, SessionStore, SessionStoreExt, TenantId, WorkspaceId, WorkspaceStore,
};
use agent_storage_fs::{FsConfig, FsStore};

const WORD: &[u8] = b"sesame";

fn tenant(name: &str) -> TenantId {
    name.parse().unwrap()
}

/// Stores the word wherever a store keeps text; returns the workspace.
async fn wordy(store: &FsStore, effects: &Effects) -> WorkspaceId {
    let main = effects.new_session_id();
    let home = Workspace::new(effects.new_workspace_id(), "sesame", main, effects.now());
    let home = store.put(home, Precondition::MustNotExist).await.unwrap();
    store.save_config(home.id, Some("open = 'sesame'".to_owned()), Precondition::MustNotExist).await.unwrap();
    store.bind(&"sesame".parse().unwrap(), home.id, Precondition::MustNotExist).await.unwrap();
    let session = store.sessions(effects).create(NewSession::new(main, home.id)).await.unwrap();
    for _ in 0..40 {
        let events = vec![NewEvent::user_message("sesame ".repeat(100))];
        let head = SessionStore::load(store, session.id).await.unwrap().head;
        store.sessions(effects).append(session.id, head, events).await.unwrap();
    }
    home.id
}

fn with_word(root: &Path) -> Vec<PathBuf> {
    let has = |bytes: &[u8]| bytes.windows(WORD.len()).any(|part| part == WORD);
    let found = files(root)
        .into_iter()
        .filter(|(path, bytes)| has(bytes) || has(path.as_os_str().as_encoded_bytes()));
    found.map(|(path, _)| path).collect()
}

/// No file of the tenant has a word left, `session.md` and damaged copies included. What belongs to the host and what
/// the store does not know stays.
#[tokio::test]
async fn no_word_of_the_tenant_is_left() {
    for name in ["default", "acme"] {
        let folder = tempfile::tempdir().unwrap();
        let (store, effects) = (hasty(folder.path()).await, Effects::default());
        let of_tenant = store.for_tenant(&tenant(name));
        let home = wordy(&of_tenant, &effects).await;
        let root =
            if name == "default" { folder.path().to_owned() } else { folder.path().join("tenants/acme") };
        fs::write(root.join("bindings.toml.damaged-00000000"), WORD).unwrap();
        fs::write(root.join("workspaces").join(home.to_string()).join("mcp/servers"), WORD).unwrap();
        fs::write(root.join("config.toml"), "a = 1").unwrap();
        fs::write(root.join("notes.txt"), "a person's").unwrap();
        // Brings `session.md` up to date.
        store.close().await.unwrap();
        assert!(with_word(&root).len() > 5, "{:?}", with_word(&root));

        let store = hasty(folder.path()).await;
        let done = store.delete_tenant(&tenant(name)).await.unwrap();
        assert_eq!((done.workspaces, done.sessions, done.bindings), (1, 1, 1));
        assert_eq!(with_word(folder.path()), Vec::<PathBuf>::new());
        let left: Vec<_> = files(&root).into_iter().map(|(path, _)| path).collect();
        let hosts: &[&str] = if name == "default" { &["config.toml", "notes.txt"] } else { &["notes.txt"] };
        assert_eq!(left, hosts.iter().map(PathBuf::from).collect::<Vec<_>>());
        assert!(fs::read_dir(root.join("workspaces")).unwrap().next().is_none());
    }
}

/// A link in a tenant's folders is removed, and what it leads to is left alone. If the folder of all workspaces is a
/// link, nothing is removed.
#[cfg(unix)]
#[tokio::test]
async fn links_are_not_followed() {
    let folder = tempfile::tempdir().unwrap();
    let [root, outside] = ["store", "outside"].map(|name| folder.path().join(name));
    let (store, effects) = (hasty(&root).await, Effects::default());
    let home = wordy(&store, &effects).await;
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("kept"), "kept").unwrap();
    let areas = root.join("workspaces").join(home.to_string());
    std::os::unix::fs::symlink(&outside, areas.join("mcp/linked")).unwrap();
    std::os::unix::fs::symlink(&outside, root.join("workspaces/linked")).unwrap();
    assert_eq!(store.delete_tenant(&TenantId::default()).await.unwrap().workspaces, 1);
    assert_eq!(files(&outside), [(PathBuf::from("kept"), b"kept".to_vec())]);
    assert!(fs::symlink_metadata(root.join("workspaces/linked")).is_err());

    let moved = folder.path().join("moved");
    wordy(&store, &effects).await;
    store.close().await.unwrap();
    fs::rename(root.join("workspaces"), &moved).unwrap();
    std::os::unix::fs::symlink(&moved, root.join("workspaces")).unwrap();
    let store = hasty(&root).await;
    let error = store.delete_tenant(&TenantId::default()).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::InvalidInput, "{error}");
    assert!(error.to_string().contains("workspaces is a link"), "{error}");
    assert!(!with_word(&moved).is_empty());
}

/// A link in the place of a tenant's folder leads to another tenant, or out of the store: nothing behind it is removed.
#[cfg(unix)]
#[tokio::test]
async fn link_to_another_tenant_deletes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (store, effects) = (hasty(folder.path()).await, Effects::default());
    wordy(&store.for_tenant(&tenant("victim")), &effects).await;
    store.close().await.unwrap();
    let tenants = folder.path().join("tenants");
    let outside = tempfile::tempdir().unwrap();
    fs::create_dir_all(outside.path().join("workspaces/keep")).unwrap();
    fs::write(outside.path().join("workspaces/keep/precious"), "kept").unwrap();
    std::os::unix::fs::symlink("victim", tenants.join("alias")).unwrap();
    std::os::unix::fs::symlink(outside.path(), tenants.join("ext")).unwrap();
    let before = (files(&tenants.join("victim")), files(outside.path()));
    let store = hasty(folder.path()).await;
    for name in ["alias", "ext"] {
        let error = store.delete_tenant(&tenant(name)).await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::InvalidInput, "{error}");
        assert!(error.to_string().contains(&format!("tenants/{name} is a link")), "{error}");
    }
    assert_eq!((files(&tenants.join("victim")), files(outside.path())), before);
}

/// What a deletion that was killed left under its new name is removed by the next one, and seen by nobody before.
#[tokio::test]
async fn what_a_killed_deletion_left_is_removed() {
    let folder = tempfile::tempdir().unwrap();
    let (store, effects) = (hasty(folder.path()).await, Effects::default());
    wordy(&store, &effects).await;
    store.close().await.unwrap();
    let away = folder.path().join(".workspaces.deleted-0123456789abcdef");
    fs::rename(folder.path().join("workspaces"), &away).unwrap();
    fs::write(folder.path().join("deletion"), "").unwrap();
    let config = FsConfig::new(folder.path()).with_create(false);
    let store = config.open().await.unwrap();
    let sessions =
        SessionStore::list(&store, agent_core::store::SessionQuery::new().with_total()).await.unwrap();
    assert_eq!((sessions.total, sessions.damaged.len()), (Some(0), 0));
    // Whoever looks after the store finds the tenant, and learns what to do.
    fs::create_dir_all(folder.path().join("tenants/acme/.index.deleted-0123456789abcdef")).unwrap();
    assert_eq!(store.tenants(None).await.unwrap().items, [tenant("acme"), tenant("default")]);
    let of_acme = store.for_tenant(&tenant("acme")).maintenance().pending().await.unwrap();
    assert_eq!(of_acme.len(), 1);
    store.delete_tenant(&tenant("acme")).await.unwrap();
    assert_eq!(store.tenants(None).await.unwrap().items, [tenant("default")]);
    let pending = store.maintenance().pending().await.unwrap();
    assert_eq!(pending, [Pending::of_deletion(folder.path().display().to_string(), &tenant("default"))]);
    let done = store.delete_tenant(&TenantId::default()).await.unwrap();
    assert_eq!((done.workspaces, done.sessions, done.bindings), (1, 1, 1));
    assert_eq!(files(folder.path()), Vec::new());
    assert!(store.delete_tenant(&TenantId::default()).await.unwrap().is_empty());
    assert_eq!(store.maintenance().pending().await.unwrap(), []);
}

/// While another handle deletes the tenant there is a moment without the folder of its workspaces: whoever reads then sees nothing of
/// the tenant. Without a deletion that folder is missed.
#[tokio::test]
async fn a_reader_beside_a_deletion_sees_nothing_and_misses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (store, effects) = (hasty(folder.path()).await, Effects::default());
    wordy(&store, &effects).await;
    let query = || agent_core::store::SessionQuery::new().with_total();
    assert_eq!(SessionStore::list(&store, query()).await.unwrap().total, Some(1));
    let mark = folder.path().join("deletion");
    fs::write(&mark, "").unwrap();
    fs::rename(folder.path().join("workspaces"), folder.path().join(".workspaces.deleted-0123456789abcdef"))
        .unwrap();
    let beside = SessionStore::list(&store, query()).await.unwrap();
    assert_eq!((beside.total, beside.damaged.len()), (Some(0), 0));
    fs::remove_file(&mark).unwrap();
    let missed = SessionStore::list(&store, query()).await.unwrap_err();
    assert_eq!(*missed.kind(), ErrorKind::Unavailable, "{missed}");
}

/// Another process deletes the workspace before any call of a read: the read sees it whole, or that it was deleted.
#[tokio::test]
async fn a_reader_beside_the_deletion_of_a_workspace_sees_all_of_it_or_its_tombstone() {
    let (mut whole, mut deleted) = (0, 0);
    for at in 0.. {
        let folder = tempfile::tempdir().unwrap();
        let (store, spy) = watched(folder.path()).await;
        let effects = Effects::default();
        let new = Workspace::new(effects.new_workspace_id(), "home", effects.new_session_id(), effects.now());
        let id = store.put(new, Precondition::MustNotExist).await.unwrap().id;
        store.save_config(id, Some("open = 1".to_owned()), Precondition::MustNotExist).await.unwrap();
        let place = folder.path().join("workspaces").join(id.to_string());
        spy.fail(move |index, _| {
            if index == at {
                fs::write(place.join("deleted"), "").unwrap();
                fs::remove_file(place.join("workspace.toml")).unwrap();
                fs::remove_file(place.join("config.toml")).unwrap();
            }
            None
        });
        spy.take();
        let read = store.load_with_config(id).await;
        if spy.take().len() <= at {
            break;
        }
        match read {
            Ok((workspace, config)) => {
                assert_eq!((&*workspace.name, config.as_deref()), ("home", Some("open = 1")), "at {at}");
                whole += 1;
            }
            Err(error) => {
                assert_eq!(*error.kind(), ErrorKind::Deleted, "at {at}: {error}");
                deleted += 1;
            }
        }
    }
    assert!(whole > 0 && deleted > 3, "{whole} reads were before the deletion, {deleted} after it");
}

/// A handle that has a session open whose tenant another one deletes is told so by its next write. The tenant is then as one
/// that was never written to: a new session makes it again.
#[tokio::test]
async fn commit_names_the_deletion_of_its_tenant() {
    for name in ["default", "acme"] {
        let folder = tempfile::tempdir().unwrap();
        let effects = Effects::default();
        let (one, other) = (hasty(folder.path()).await, hasty(folder.path()).await);
        let store = one.for_tenant(&tenant(name));
        let new = || NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
        let session = store.sessions(&effects).create(new()).await.unwrap();
        let events = || vec![NewEvent::user_message("more")];
        let head = store.sessions(&effects).append(session.id, session.head, events()).await.unwrap().last;
        other.delete_tenant(&tenant(name)).await.unwrap();
        let error = store.sessions(&effects).append(session.id, head, events()).await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::NotFound, "{error}");
        let text = error.to_string();
        assert!(text.contains(&session.id.to_string()), "{text}");
        assert!(text.contains(&format!("tenant {name} has no data: it was deleted")), "{text}");

        let made = store.sessions(&effects).create(new()).await.unwrap();
        store.sessions(&effects).append(made.id, made.head, events()).await.unwrap();
        let error = store.sessions(&effects).append(session.id, head, events()).await.unwrap_err();
        assert!(!error.to_string().contains("has no data"), "{error}");
    }
}
