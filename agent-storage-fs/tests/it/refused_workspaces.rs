//! Workspace to which the system refuses access, for any reason: it is damage of that workspace alone. Every list, a
//! check, a copy and a rebuild name it and go on, and new devices, workspaces and sessions begin beside it.
#![cfg(unix)]

use std::fs;
use std::path::Path;
use std::sync::Arc;

use crate::support::{EACCES, EIO, EMFILE, Spy, append_text};
use agent_admin::copy::StoreCopy;
use agent_admin::verify::verify;
use agent_core::clock::Effects;
use agent_core::commit::Precondition;
use agent_core::model::Workspace;
use agent_core::session::NewSession;
use agent_core::store::{SessionQuery, WorkspaceQuery};
use agent_core::{
    Backend, BindingStore, ErrorKind, MemoryStore, Seq, SessionId, SessionStore, SessionStoreExt, Storage,
    WorkspaceId, WorkspaceStore,
};
use agent_runtime::{NewWorkspace, WorkspaceManager};
use agent_storage_fs::{FsConfig, FsStore, Sync};

/// How the system refuses a workspace.
#[derive(Clone, Copy, Debug)]
enum Refusal {
    /// The folder is a link to itself.
    LoopAt,
    /// The folder of its sessions is one.
    LoopBelow,
    /// Two links lead to each other.
    LoopOfTwo,
    /// The folder belongs to another user.
    Denied,
    /// The disk cannot read it.
    Unreadable,
    /// A file stands there.
    File,
}

const REFUSALS: [Refusal; 6] = [
    Refusal::LoopAt,
    Refusal::LoopBelow,
    Refusal::LoopOfTwo,
    Refusal::Denied,
    Refusal::Unreadable,
    Refusal::File,
];

async fn spied(root: &Path) -> (FsStore, Spy) {
    let spy = Spy::new();
    let config = FsConfig::new(root).with_sync(Sync::Off).with_io(Arc::new(spy.clone()));
    (config.open().await.unwrap(), spy)
}

/// Fails every call on what is in a folder, and those that need to open it.
fn refuse(spy: &Spy, folder: &Path, errno: i32) {
    let folder = folder.to_owned();
    spy.fail(move |_, call| {
        let is_inside = call.path.starts_with(&folder) && call.path != folder;
        let is_opened = call.path == folder && matches!(call.name, "list" | "open");
        (is_inside || is_opened).then_some(errno)
    });
}

impl Refusal {
    fn put(self, path: &Path, spy: &Spy) {
        let link = |to: &Path, at: &Path| std::os::unix::fs::symlink(to, at).unwrap();
        match self {
            Self::LoopAt => {
                fs::remove_dir_all(path).unwrap();
                link(path, path);
            }
            Self::LoopBelow => {
                fs::remove_dir_all(path.join("sessions")).unwrap();
                link(&path.join("sessions"), &path.join("sessions"));
            }
            Self::LoopOfTwo => {
                fs::remove_dir_all(path).unwrap();
                let other = path.with_file_name("other");
                link(&other, path);
                link(path, &other);
            }
            Self::Denied => refuse(spy, path, EACCES),
            Self::Unreadable => refuse(spy, path, EIO),
            Self::File => {
                fs::remove_dir_all(path).unwrap();
                fs::write(path, "mine").unwrap();
            }
        }
    }
}

/// Makes two workspaces, each with a session, and returns the ids.
async fn two(store: &FsStore, effects: &Effects) -> ([WorkspaceId; 2], [SessionId; 2]) {
    let workspaces = [effects.new_workspace_id(), effects.new_workspace_id()];
    let sessions = [effects.new_session_id(), effects.new_session_id()];
    for (workspace, session) in workspaces.into_iter().zip(sessions) {
        let record = Workspace::new(workspace, "home", session, effects.now());
        store.put(record, Precondition::MustNotExist).await.unwrap();
        store.sessions(effects).create(NewSession::new(session, workspace)).await.unwrap();
        append_text(store, effects, session, Seq::new(1), "hello").await;
    }
    (workspaces, sessions)
}

#[tokio::test]
async fn refused_workspace_is_damage_there() {
    for refusal in REFUSALS {
        let folder = tempfile::tempdir().unwrap();
        let effects = Effects::default();
        let ([_, bad], [session, lost]) = two(&spied(folder.path()).await.0, &effects).await;
        let (store, spy) = spied(folder.path()).await;
        let bound = store.bind(&"bound there".parse().unwrap(), bad, Precondition::MustNotExist).await;
        assert_eq!(bound.unwrap(), bad);
        let path = folder.path().join("workspaces").join(bad.to_string());
        refusal.put(&path, &spy);
        let named = |damage: String| damage.contains(&bad.to_string()) || damage.contains(&lost.to_string());

        let page = SessionStore::list(&store, SessionQuery::new().with_hidden()).await.unwrap();
        let ids: Vec<_> = page.items.iter().map(|item| item.id).collect();
        assert_eq!(ids, [session], "{refusal:?}");
        assert!(page.damaged.iter().any(|damage| named(damage.to_string())), "{refusal:?}: {page:?}");
        let page = WorkspaceStore::list(&store, WorkspaceQuery::new()).await.unwrap();
        let sound = if matches!(refusal, Refusal::LoopBelow) { 2 } else { 1 };
        assert_eq!((page.items.len(), page.damaged.len()), (sound, 2 - sound), "{refusal:?}: {page:?}");

        let storage = Storage::from(store.clone());
        let found = verify(&storage, |_| {}).await.unwrap();
        assert_eq!(found.sessions, 1, "{refusal:?}: {found:?}");
        assert!(found.findings.iter().any(|found| named(found.to_string())), "{refusal:?}: {found:?}");
        assert!(found.findings.iter().all(|found| named(found.to_string())), "{refusal:?}: {found:?}");
        let report = StoreCopy::new(storage.clone(), MemoryStore::new().into()).run().await.unwrap();
        assert_eq!(report.copied.sessions, 1, "{refusal:?}: {report:?}");
        assert!(report.damaged.iter().any(|damage| named(damage.to_string())), "{refusal:?}: {report:?}");
        let rebuilt = store.maintenance().rebuild().await.unwrap();
        assert_eq!(rebuilt.sessions, 1, "{refusal:?}: {rebuilt:?}");
        assert!(rebuilt.damaged.iter().any(|damage| named(damage.to_string())), "{refusal:?}: {rebuilt:?}");

        // What was in there is not said to be absent.
        let error = SessionStore::load(&store, lost).await.unwrap_err();
        assert!(!error.is_absent(), "{refusal:?}: {error}");

        let manager = WorkspaceManager::new(storage.with_effects(effects.clone()));
        let device = "a new device".parse().unwrap();
        let new = manager.resolve_or_create(&device, &NewWorkspace::default()).await.unwrap().workspace;
        let error = SessionStore::load(&store, new.main_session).await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::NotFound, "{refusal:?}: {error}");
        let main = NewSession::new(new.main_session, new.id);
        let main = store.sessions(&effects).create(main).await.unwrap();
        append_text(&store, &effects, main.id, main.head, "begun").await;
        assert_eq!(Backend::tenants(&store, None).await.unwrap().items.len(), 1, "{refusal:?}");
    }
}

/// Without the index, a workspace that is refused may contain any session: none is said to be absent.
#[tokio::test]
async fn session_that_may_be_in_a_refused_workspace_is_not_absent() {
    let folder = tempfile::tempdir().unwrap();
    let effects = Effects::default();
    let ([_, bad], [session, lost]) = two(&spied(folder.path()).await.0, &effects).await;
    fs::remove_dir_all(folder.path().join("index")).unwrap();
    let (store, spy) = spied(folder.path()).await;
    Refusal::Denied.put(&folder.path().join("workspaces").join(bad.to_string()), &spy);
    let error = SessionStore::load(&store, lost).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Denied);
    SessionStore::load(&store, session).await.unwrap();
}

/// A refusal that is of this process is none of a workspace: the call fails, and says what to do.
#[tokio::test]
async fn too_many_open_files_are_no_damage() {
    let folder = tempfile::tempdir().unwrap();
    let effects = Effects::default();
    let ([_, bad], _) = two(&spied(folder.path()).await.0, &effects).await;
    let (store, spy) = spied(folder.path()).await;
    refuse(&spy, &folder.path().join("workspaces").join(bad.to_string()), EMFILE);
    for _ in 0..2 {
        let error = SessionStore::list(&store, SessionQuery::new()).await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::Unavailable);
        assert!(error.to_string().contains("too many open files"), "{error}");
    }
    spy.heal();
    let page = SessionStore::list(&store, SessionQuery::new()).await.unwrap();
    assert_eq!((page.items.len(), page.damaged.len()), (2, 0));
}
