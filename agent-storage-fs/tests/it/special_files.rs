//! Pipes, sockets, links and folders in place of any file of a store. Nothing waits for one or follows one; it is named
//! as damage, and a session with it can be deleted and purged.
#![cfg(unix)]

use agent_admin::verify::verify;
use std::fs;
use std::future::Future;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use crate::support::{append_text, folder_of, hasty};
use agent_core::clock::Effects;
use agent_core::commit::{Commit, LeaseRequest, Precondition, Trigger};
use agent_core::event::NewEvent;
use agent_core::model::Workspace;
use agent_core::session::NewSession;
use agent_core::state::{Reason, SessionState};
use agent_core::store::{BindingQuery, Purge, ReadEvents, SessionQuery, WorkspaceQuery};
use agent_core::{
    Backend, BindingStore, Epoch, ErrorKind, Result, Seq, SessionId, SessionStore, SessionStoreExt, Storage,
    WorkspaceId, WorkspaceStore,
};
use agent_runtime::WorkspaceManager;
use agent_storage_fs::FsStore;

const HOME: WorkspaceId = WorkspaceId::DEFAULT;
const ODD: [Odd; 5] = [Odd::Pipe, Odd::Socket, Odd::Link, Odd::Dangling, Odd::Folder];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Odd {
    Pipe,
    Socket,
    Link,
    Dangling,
    Folder,
}

impl Odd {
    /// Puts it in the place of what is there.
    fn put(self, path: &Path) {
        let aside = path.with_file_name("what was there");
        let target = if path.exists() {
            fs::rename(path, &aside).unwrap();
            aside
        } else {
            PathBuf::from("/dev/zero")
        };
        match self {
            Self::Pipe => rustix::fs::mkfifoat(rustix::fs::CWD, path, rustix::fs::Mode::RWXU).unwrap(),
            Self::Socket => {
                // A socket's path is short.
                let folder = tempfile::tempdir().unwrap();
                drop(UnixListener::bind(folder.path().join("s")).unwrap());
                fs::rename(folder.path().join("s"), path).unwrap();
            }
            Self::Link => std::os::unix::fs::symlink(target, path).unwrap(),
            Self::Dangling => std::os::unix::fs::symlink("nowhere", path).unwrap(),
            Self::Folder => {
                fs::create_dir(path).unwrap();
                fs::write(path.join("mine"), "mine").unwrap();
            }
        }
    }
}

/// Runs something that must not wait for ever; if it does, the test ends all the same.
fn in_time<F: Future<Output = ()>>(what: &str, work: impl FnOnce() -> F + Send + 'static) {
    let (done, wait) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(work());
        drop(runtime);
        let _ = done.send(());
    });
    match wait.recv_timeout(Duration::from_secs(30)) {
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("{what}: it hangs"),
        _ => thread.join().unwrap_or_else(|_| panic!("{what}: it failed")),
    }
}

struct Made {
    main: SessionId,
    other: SessionId,
}

/// A store with all kinds of files.
async fn made(root: &Path) -> Made {
    let (store, effects) = (hasty(root).await, Effects::default());
    let [main, other] = [effects.new_session_id(), effects.new_session_id()];
    store.put(Workspace::new(HOME, "home", main, effects.now()), Precondition::MustNotExist).await.unwrap();
    store.bind(&"laptop".parse().unwrap(), HOME, Precondition::MustNotExist).await.unwrap();
    store.save_config(HOME, Some("a = 1".to_owned()), Precondition::MustNotExist).await.unwrap();
    store.touch(HOME, effects.now()).await.unwrap();
    for id in [main, other] {
        store.sessions(&effects).create(NewSession::new(id, HOME)).await.unwrap();
        let seen = append_text(&store, &effects, id, Seq::new(1), "hello").await;
        append_text(&store, &effects, id, seen, &"long ".repeat(2000)).await;
    }
    store.transcript_edits(HOME).await.unwrap();
    store.close().await.unwrap();
    fs::write(root.join("config.toml"), "b = 2").unwrap();
    Made { main, other }
}

/// Whether it is done, or what is in the way is named, as damage.
fn judge<T>(context: &str, path: &Path, done: Result<T>) -> bool {
    let Err(error) = done else { return true };
    assert_eq!(*error.kind(), ErrorKind::Corrupt, "{context}: {error}");
    assert!(error.to_string().contains(&path.display().to_string()), "{context}: {error}");
    false
}

/// Whatever stands in the place of whatever file, no call waits for it.
#[test]
fn special_files_block_no_call() {
    let names: [fn(&Path, &Made) -> PathBuf; 16] = [
        |root, _| root.join("bindings.toml"),
        |root, _| root.join("config.toml"),
        |root, _| root.join("workspaces/default/workspace.toml"),
        |root, _| root.join("workspaces/default/accessed"),
        |root, _| root.join("workspaces/default/config.toml"),
        |root, _| root.join("workspaces/default/deleted"),
        |root, _| root.join("workspaces/default/session.md"),
        |root, _| root.join("workspaces/default/session.md.lock"),
        |root, _| root.join("workspaces/default/session.edited-00000000.md"),
        |root, made| folder_of(root, made.main).join("events.jsonl"),
        |root, made| folder_of(root, made.main).join("session.json"),
        |root, made| folder_of(root, made.main).join("tombstone.json"),
        |root, made| folder_of(root, made.main).join("suspect"),
        |root, made| folder_of(root, made.main).join("lease"),
        |root, made| {
            let id = made.main.to_string();
            root.join("index/sessions").join(&id[id.len() - 2..]).join(&id)
        },
        |root, made| {
            let id = made.main.to_string();
            root.join("index/locks").join(&id[id.len() - 2..])
        },
    ];
    for name in names {
        for odd in ODD {
            in_time(&format!("{odd:?}"), move || async move {
                let folder = tempfile::tempdir().unwrap();
                let root = folder.path().join("store");
                let made = made(&root).await;
                let path = name(&root, &made);
                let context = format!("{odd:?} at {}", path.display());
                odd.put(&path);
                let (store, effects) = (hasty(&root).await, Effects::default());
                use_all(&store, &effects, &made, &context, &path).await;
                // The other session is as it was.
                assert_eq!(SessionStore::load(&store, made.other).await.unwrap().head.get(), 4, "{context}");
                store.close().await.unwrap();
            });
        }
    }
}

async fn use_all(store: &FsStore, effects: &Effects, made: &Made, context: &str, path: &Path) {
    let device = "laptop".parse().unwrap();
    let id = made.main;
    judge(context, path, store.load_global_config().await);
    judge(context, path, store.resolve(&device).await);
    judge(context, path, BindingStore::list(store, BindingQuery::new()).await);
    judge(context, path, WorkspaceStore::load(store, HOME).await);
    judge(context, path, store.load_config(HOME).await);
    judge(context, path, store.transcript_edits(HOME).await);
    let page = WorkspaceStore::list(store, WorkspaceQuery::new()).await.unwrap();
    assert_eq!(page.items.len() + page.damaged.len(), 1, "{context}");
    judge(context, path, SessionStore::load(store, id).await);
    judge(context, path, store.read(id, ReadEvents::last(5)).await);
    judge(context, path, store.leases().status(id, Epoch::new(7)).await);
    judge(context, path, store.leases().heartbeat(id, Epoch::new(7)).await);
    let page = SessionStore::list(store, SessionQuery::new()).await.unwrap();
    assert_eq!(page.items.len() + page.damaged.len(), 2, "{context}");
    assert!(
        page.damaged.iter().all(|damage| damage.to_string().contains(&path.display().to_string())),
        "{context}"
    );
    store.maintenance().rebuild().await.unwrap();
    verify(&Storage::from(store.clone()), |_| {}).await.unwrap();
    assert_eq!(Backend::tenants(store, None).await.unwrap().items.len(), 1, "{context}");
    judge(
        context,
        path,
        store.sessions(effects).append(id, Seq::new(3), vec![NewEvent::user_message("more")]).await,
    );
    judge(context, path, store.sessions(effects).fork(id, None).await);
    judge(context, path, store.bind(&"phone".parse().unwrap(), HOME, Precondition::None).await);
    judge(context, path, store.touch(HOME, effects.now()).await);
    judge(context, path, store.save_config(HOME, Some("a = 2".to_owned()), Precondition::MustExist).await);
    let record = Workspace::new(HOME, "home", id, effects.now());
    judge(context, path, store.put(record, Precondition::MustExist).await);
    let new = NewSession::new(effects.new_session_id(), HOME);
    judge(context, path, store.sessions(effects).create(new).await);
    append_text(store, effects, made.other, Seq::new(3), "on").await;
}

/// A lease that is no file is named at once, by whoever reads or writes it and by a check, and is not taken for a holder that
/// is silent. A session with one can be deleted and purged.
#[test]
fn lease_that_is_no_file_is_named_at_once() {
    for odd in ODD {
        in_time(&format!("{odd:?}"), move || async move {
            let folder = tempfile::tempdir().unwrap();
            let root = folder.path().join("store");
            let made = made(&root).await;
            let (id, context) = (made.other, format!("{odd:?}"));
            let path = folder_of(&root, id).join("lease");
            let effects = Effects::default();
            let run = || LeaseRequest::new("holder", Effects::default().new_run_id());
            let store = hasty(&root).await;
            let begin = |head| {
                Commit::seal(&effects, id, head)
                    .with_event(NewEvent::user_message("hello"))
                    .with_trigger(Trigger::BeginRun(run()))
            };
            let head = SessionStore::load(&store, id).await.unwrap().head;
            let running = store.commit(begin(head)).await.unwrap();
            let epoch = running.epoch.unwrap();
            store.close().await.unwrap();
            odd.put(&path);
            let store = hasty(&root).await;
            assert!(!judge(&context, &path, store.leases().status(id, epoch).await), "{context}");
            assert!(!judge(&context, &path, store.leases().heartbeat(id, epoch).await), "{context}");
            let damaged = store.maintenance().check().await.unwrap();
            let named = |text: String| text.contains(&path.display().to_string());
            assert!(damaged.len() == 1 && named(damaged[0].to_string()), "{context}: {damaged:?}");
            let found = verify(&Storage::from(store.clone()), |_| {}).await.unwrap();
            assert!(found.findings.iter().any(|found| named(found.to_string())), "{context}: {found:?}");
            let expired = store.sessions(&effects).trigger(id, Trigger::LeaseExpired(epoch)).await.unwrap();
            // A folder cannot be replaced; whatever else it is can.
            let again = judge(&context, &path, store.commit(begin(expired.last)).await);
            assert_eq!(again, odd != Odd::Folder, "{context}");
            let manager = WorkspaceManager::new(Storage::from(store.clone()).with_effects(effects.clone()));
            manager.delete_session(id).await.unwrap();
            manager.purge(id).await.unwrap();
            assert!(fs::symlink_metadata(&path).is_err(), "{context}");
        });
    }
}

/// A session of which a file is something else is deleted and purged, and nothing of it is left; what a link led
/// to is not touched.
#[test]
fn session_with_special_files_can_be_purged() {
    for name in ["events.jsonl", "tombstone.json", "session.json", "suspect"] {
        for odd in ODD {
            in_time(&format!("{odd:?} at {name}"), move || async move {
                let folder = tempfile::tempdir().unwrap();
                let root = folder.path().join("store");
                let made = made(&root).await;
                let path = folder_of(&root, made.other);
                odd.put(&path.join(name));
                let aside = path.join("what was there");
                let was = fs::read(&aside).ok();
                let store = hasty(&root).await;
                let manager = WorkspaceManager::new(Storage::from(store.clone()));
                let deleted = manager.delete_session(made.other).await.unwrap();
                assert_eq!(deleted.status.state, SessionState::Deleted);
                assert_eq!(SessionStore::load(&store, made.other).await.unwrap(), deleted);
                manager.purge(made.other).await.unwrap();
                assert_eq!(fs::read(&aside).ok(), was);
                let _ = fs::remove_file(aside);
                let mut left: Vec<_> =
                    fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().file_name()).collect();
                left.sort();
                left.retain(|name| name != "lock");
                assert_eq!(left, ["events.jsonl", "tombstone.json"], "{odd:?} at {name}");
                assert_eq!(fs::read(path.join("events.jsonl")).unwrap(), b"");
                let deleted = SessionStore::load(&hasty(&root).await, made.other).await.unwrap();
                store.purge(Purge::new(made.other, deleted.head)).await.unwrap();
                assert_eq!(deleted.status.reason, Reason::UserDeleted);
            });
        }
    }
}

/// A workspace whose record or mark is something else can be deleted.
#[test]
fn workspace_with_special_files_can_be_deleted() {
    for name in ["workspace.toml", "deleted", "config.toml", "accessed", "session.md"] {
        for odd in ODD {
            in_time(&format!("{odd:?} at {name}"), move || async move {
                let folder = tempfile::tempdir().unwrap();
                let root = folder.path().join("store");
                made(&root).await;
                let home = root.join("workspaces/default");
                odd.put(&home.join(name));
                let store = hasty(&root).await;
                store.delete(HOME).await.unwrap();
                let error = WorkspaceStore::load(&store, HOME).await.unwrap_err();
                assert_eq!(*error.kind(), ErrorKind::Deleted, "{odd:?} at {name}: {error}");
                let mut left: Vec<_> =
                    fs::read_dir(&home).unwrap().map(|entry| entry.unwrap().file_name()).collect();
                left.sort();
                left.retain(|name| name != "lock");
                assert_eq!(left, ["deleted", "sessions"], "{odd:?} at {name}");
            });
        }
    }
}

/// The root may be a link to a folder, and so may a workspace's folder.
#[tokio::test]
async fn folders_may_be_symlinks() {
    let folder = tempfile::tempdir().unwrap();
    let [real, link, elsewhere] = ["real", "link", "elsewhere"].map(|name| folder.path().join(name));
    fs::create_dir(&real).unwrap();
    std::os::unix::fs::symlink(&real, &link).unwrap();
    let made = made(&link).await;
    fs::rename(real.join("workspaces/default"), &elsewhere).unwrap();
    std::os::unix::fs::symlink(&elsewhere, real.join("workspaces/default")).unwrap();
    let (store, effects) = (hasty(&link).await, Effects::default());
    append_text(&store, &effects, made.main, Seq::new(3), "through links").await;
    assert_eq!(SessionStore::load(&hasty(&real).await, made.main).await.unwrap().head.get(), 4);
    assert_eq!(WorkspaceStore::list(&store, WorkspaceQuery::new()).await.unwrap().items.len(), 1);
}
