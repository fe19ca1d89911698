//! Creation and removal of files and folders: durable from the root down, obstacles named, foreign files untouched.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use crate::support::{Call, EACCES, EIO, EPERM, EROFS, Spy, fill, folder_of, hasty, session, watched};
use agent_core::clock::Effects;
use agent_core::commit::{Commit, Precondition};
use agent_core::model::Workspace;
use agent_core::session::NewSession;
use agent_core::{
    BindingStore, DeviceId, Error, ErrorKind, Result, Seq, SessionId, SessionStore, WorkspaceId,
    WorkspaceStore, WriteOutcome,
};
use agent_storage_fs::{FsConfig, FsStore, Sync};

const ENOENT: i32 = 2;
const EEXIST: i32 = 17;
#[cfg(target_os = "linux")]
const EOPNOTSUPP: i32 = 95;

fn laptop() -> DeviceId {
    "laptop".parse().unwrap()
}

async fn bind(store: &FsStore, effects: &Effects) -> Result<WorkspaceId> {
    store.bind(&laptop(), effects.new_workspace_id(), Precondition::None).await
}

async fn create(store: &FsStore, effects: &Effects) -> Result<SessionId> {
    let new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
    store.commit(Commit::create(effects, new)).await.map(|done| done.session.id)
}

async fn put(store: &FsStore, effects: &Effects) -> Result<Workspace> {
    let record = Workspace::new(WorkspaceId::DEFAULT, "home", effects.new_session_id(), effects.now());
    store.put(record, Precondition::MustNotExist).await
}

/// Fails the calls of a name on a path.
fn on(name: &'static str, path: &Path, errno: i32) -> impl Fn(usize, &Call) -> Option<i32> + use<> {
    let path = path.to_owned();
    move |_, call| (call.name == name && call.path == path).then_some(errno)
}

fn assert_names(error: &Error, kind: &ErrorKind, doing: &str, path: &Path) {
    assert_eq!(error.kind(), kind, "{error}");
    let start = format!("cannot {doing} {}: ", path.display());
    assert!(error.to_string().contains(&start), "{error:?} does not say {start:?}");
}

// --- folders ---------------------------------------------------------------------------------------------------------

/// Folders that another process made a moment ago may not be durable yet: each name from the root down is made so,
/// once, before anything in them is acknowledged.
#[tokio::test]
async fn folders_of_another_process_are_synced_first() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("store");
    let effects = Effects::default();
    session(&hasty(&root).await, &effects).await;
    let (store, spy) = watched(&root).await;
    create(&store, &effects).await.unwrap();
    let synced = |calls: Vec<Call>| -> Vec<_> {
        calls.into_iter().filter(|call| call.name == "sync_dir").map(|call| call.path).collect()
    };
    let first = synced(spy.take());
    let (workspaces, index) = (root.join("workspaces"), root.join("index"));
    let position = |path: &Path| first.iter().position(|synced| synced == path);
    let down = [folder.path(), &root, &workspaces, &workspaces.join("default")].map(position);
    assert!(down.iter().all(Option::is_some) && down.is_sorted(), "{down:?} of {first:?}");
    assert!(position(&index).is_some(), "{first:?}");
    create(&store, &effects).await.unwrap();
    let again = synced(spy.take());
    assert_eq!(again.len(), 2, "its folder and its name: {again:?}");
}

/// A folder that another process makes first is as good as one's own; one that cannot be made is named.
#[tokio::test]
async fn concurrently_created_folder_is_used() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("store");
    let effects = Effects::default();
    let (store, spy) = watched(&root).await;
    spy.fail(on("create_dir", &root, EROFS));
    assert_names(
        &create(&store, &effects).await.unwrap_err(),
        &ErrorKind::Denied,
        "create the folder",
        &root,
    );
    let first = root.clone();
    spy.fail(move |_, call| {
        (call.name == "create_dir" && call.path == first).then(|| {
            fs::create_dir(&first).unwrap();
            EEXIST
        })
    });
    create(&store, &effects).await.unwrap();
    assert_eq!(spy.heal(), 1);
}

/// The areas of a workspace: one that is there is used, a file in its place is named, and what cannot be made
/// leaves no workspace behind.
#[tokio::test]
async fn workspace_is_created_only_with_its_areas() {
    let folder = tempfile::tempdir().unwrap();
    let effects = Effects::default();
    let (store, spy) = watched(folder.path()).await;
    let home = folder.path().join("workspaces").join("default");
    let area = home.join("skills");
    spy.fail(on("create_dir", &area, EROFS));
    let error = put(&store, &effects).await.unwrap_err();
    assert_names(&error, &ErrorKind::Denied, "create the folder", &area);
    assert!(!area.exists() && !home.join("workspace.toml").exists());
    spy.heal();
    fs::write(&area, "mine").unwrap();
    let error = put(&store, &effects).await.unwrap_err();
    assert_names(&error, &ErrorKind::Corrupt, "create the folder", &area);
    fs::remove_file(&area).unwrap();
    fs::create_dir(&area).unwrap();
    put(&store, &effects).await.unwrap();
    assert!(home.join("memory").is_dir());
}

/// A root that was there before lies in a folder that may be closed to us; any other sync that fails is an error.
#[tokio::test]
async fn root_in_an_unreadable_folder_is_used() {
    let effects = Effects::default();
    for (made, synced, errno, works) in [
        (true, "", EACCES, true),
        (true, "", EIO, false),
        (false, "", EACCES, false),
        (true, "store", EACCES, false),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("store");
        if made {
            fs::create_dir(&root).unwrap();
        }
        let (store, spy) = watched(&root).await;
        let parent = if synced.is_empty() { folder.path().to_owned() } else { folder.path().join(synced) };
        spy.fail(on("sync_dir", &parent, errno));
        let done = create(&store, &effects).await;
        assert_eq!(done.is_ok(), works, "{made} {synced:?} {errno}: {done:?}");
        assert!(spy.heal() > 0);
        create(&store, &effects).await.unwrap();
    }
}

/// A folder above the root whose name could not be made durable does not stay, since nobody would sync it again; one
/// in the root stays, and is synced by the next who needs it.
#[tokio::test]
async fn unsynced_folder_above_the_root_is_removed() {
    let folder = tempfile::tempdir().unwrap();
    let above = folder.path().join("above");
    let root = above.join("store");
    let effects = Effects::default();
    let (store, spy) = watched(&root).await;
    spy.fail(on("sync_dir", folder.path(), EIO));
    create(&store, &effects).await.unwrap_err();
    assert!(!above.exists());
    spy.fail(on("sync_dir", &root, EIO));
    create(&store, &effects).await.unwrap_err();
    assert_eq!(spy.heal(), 1);
    let inside: Vec<_> = fs::read_dir(&root).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(!inside.is_empty(), "a folder in the root may be in use by others already");
    create(&store, &effects).await.unwrap();
    assert!(spy.take().iter().any(|call| call.name == "sync_dir" && call.path == root));
}

// --- files -----------------------------------------------------------------------------------------------------------

/// Two processes with the same seed draw the same names: a name that is taken is passed over, but not for ever.
#[tokio::test]
async fn taken_temporary_name_is_skipped() {
    let folder = tempfile::tempdir().unwrap();
    let effects = Effects::default();
    let (store, spy) = watched(folder.path()).await;
    bind(&store, &effects).await.unwrap();
    for taken in [1, 16, 17] {
        let tries = AtomicUsize::new(0);
        spy.fail(move |_, call| {
            let hit = call.name == "create" && call.file().starts_with(".bindings.toml.new-");
            (hit && tries.fetch_add(1, Ordering::Relaxed) < taken).then_some(EEXIST)
        });
        let done = bind(&store, &effects).await;
        assert_eq!(spy.heal(), taken);
        match done {
            Ok(_) => assert!(taken < 17),
            Err(error) => {
                assert_eq!(taken, 17, "{error}");
                assert_names(&error, &ErrorKind::Corrupt, "write", &folder.path().join("bindings.toml"));
            }
        }
    }
}

/// What crashes left is cleared away when it is an hour old, and only that: a name that starts with a dot, or one
/// that has our mark somewhere, may be a person's.
#[tokio::test]
async fn only_own_leftovers_over_an_hour_old_are_removed() {
    let folder = tempfile::tempdir().unwrap();
    let effects = Effects::default();
    let now = Duration::from_micros(u64::try_from(effects.now().as_micros()).unwrap());
    let store = hasty(folder.path()).await;
    let minutes = |minutes: u64| UNIX_EPOCH + now - Duration::from_secs(60 * minutes);
    let leave = |name: &str, modified| {
        let path = folder.path().join(name);
        fs::write(&path, "left").unwrap();
        fs::File::options().write(true).open(&path).unwrap().set_modified(modified).unwrap();
        path
    };
    let old = leave(".bindings.toml.new-0123456789abcdef", minutes(90));
    let others = [
        leave(".bindings.toml.new-fedcba9876543210", minutes(30)),
        leave(".gitignore", minutes(90)),
        leave("ideas.new-and-old", minutes(90)),
    ];
    bind(&store, &effects).await.unwrap();
    assert!(!old.exists());
    for path in others {
        assert!(path.exists(), "{}", path.display());
    }
}

/// Without syncs there is not one; and what can be made again from others is never waited for.
#[tokio::test]
async fn derived_files_are_never_synced() {
    let folder = tempfile::tempdir().unwrap();
    let effects = Effects::default();
    for sync in [Sync::Off, Sync::Full] {
        let spy = Spy::new();
        let config = FsConfig::new(folder.path()).with_sync(sync).with_io(Arc::new(spy.clone()));
        let store = config.open().await.unwrap();
        bind(&store, &effects).await.unwrap();
        let id = create(&store, &effects).await.unwrap();
        fill(&store, &effects, id, 300).await;
        drop(store);
        assert!(folder_of(folder.path(), id).join("session.json").exists());
        let calls = spy.take();
        let synced = |name: &str| calls.iter().filter(|call| call.name == name).count();
        assert_eq!(synced("sync") > 0, sync == Sync::Full);
        assert_eq!(synced("sync_dir") > 0, sync == Sync::Full);
        let mut caches = calls.iter().filter(|call| call.name == "sync" && call.file().contains("json.new-"));
        assert_eq!(caches.next(), None);
    }
}

/// Where the file system has no hard links, a file that must not exist yet is made all the same; any other refusal
/// is an error, and says whether the file may be there.
#[tokio::test]
async fn workspace_is_created_without_hard_links() {
    let left = |root: &Path| fs::read_dir(root).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    let check = async |errno: i32, works: bool, outcome: WriteOutcome| {
        let folder = tempfile::tempdir().unwrap();
        let effects = Effects::default();
        let (store, spy) = watched(folder.path()).await;
        let home = folder.path().join("workspaces").join("default");
        let path = home.join("workspace.toml");
        spy.fail(on("hard_link", &path, errno));
        match put(&store, &effects).await {
            Ok(_) => assert!(works, "{errno}"),
            Err(error) => {
                assert!(!works, "{errno}: {error}");
                assert_eq!(error.write_outcome(), outcome, "{errno}");
                assert!(error.to_string().contains("workspace.toml"), "{error}");
            }
        }
        assert_eq!((spy.heal(), path.exists()), (1, works), "{errno}");
        let names: Vec<std::ffi::OsString> = left(&home);
        assert!(!names.iter().any(|name| name.to_string_lossy().contains(".new-")), "{names:?}");
        assert_eq!(put(&store, &effects).await.is_ok(), !works);
    };
    check(EPERM, true, WriteOutcome::NotApplied).await;
    #[cfg(target_os = "linux")]
    check(EOPNOTSUPP, true, WriteOutcome::NotApplied).await;
    check(EACCES, false, WriteOutcome::NotApplied).await;
    check(EIO, false, WriteOutcome::Unknown).await;
}

/// A record that somebody who takes no locks puts there at the last moment is not overwritten, with hard links
/// and without.
#[tokio::test]
async fn concurrently_created_record_is_not_overwritten() {
    let effects = Effects::default();
    let other = tempfile::tempdir().unwrap();
    put(&hasty(other.path()).await, &effects).await.unwrap();
    let record = Path::new("workspaces").join("default").join("workspace.toml");
    let foreign = fs::read(other.path().join(&record)).unwrap();
    for errno in [EEXIST, EPERM] {
        let folder = tempfile::tempdir().unwrap();
        let (store, spy) = watched(folder.path()).await;
        let (path, bytes) = (folder.path().join(&record), foreign.clone());
        let made = path.clone();
        spy.fail(move |_, call| {
            (call.name == "hard_link").then(|| {
                fs::write(&made, &bytes).unwrap();
                errno
            })
        });
        let error = put(&store, &effects).await.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Conflict { .. }), "{error}");
        assert_eq!(spy.heal(), 1);
        assert_eq!(fs::read(&path).unwrap(), foreign);
    }
}

/// A change of a name that failed says whether it may have happened: not where it was refused, perhaps after an
/// I/O error; and what is gone already need not be removed.
#[tokio::test]
async fn rename_error_reports_whether_it_was_applied() {
    let folder = tempfile::tempdir().unwrap();
    let effects = Effects::default();
    let (store, spy) = watched(folder.path()).await;
    put(&store, &effects).await.unwrap();
    bind(&store, &effects).await.unwrap();
    let config = folder.path().join("workspaces").join("default").join("config.toml");
    for (errno, kind, outcome) in [
        (EACCES, ErrorKind::Denied, WriteOutcome::NotApplied),
        (EIO, ErrorKind::Unavailable, WriteOutcome::Unknown),
    ] {
        set(&store).await;
        spy.fail(on("remove_file", &config, errno));
        let error = store.save_config(WorkspaceId::DEFAULT, None, Precondition::MustExist).await.unwrap_err();
        assert_names(&error, &kind, "remove", &config);
        assert_eq!(error.write_outcome(), outcome);
        let bindings = folder.path().join("bindings.toml");
        spy.fail(on("rename", &bindings, errno));
        let error = bind(&store, &effects).await.unwrap_err();
        assert_names(&error, &kind, "replace", &bindings);
        assert_eq!(error.write_outcome(), outcome);
        spy.heal();
    }
    store.save_config(WorkspaceId::DEFAULT, None, Precondition::MustExist).await.unwrap();
    assert_eq!(store.load_config(WorkspaceId::DEFAULT).await.unwrap(), None);
    set(&store).await;
    spy.fail(on("remove_file", &config, ENOENT));
    store.save_config(WorkspaceId::DEFAULT, None, Precondition::MustExist).await.unwrap();
}

/// Writes a configuration, whether there is one or not.
async fn set(store: &FsStore) {
    let expect = match store.load_config(WorkspaceId::DEFAULT).await.unwrap() {
        Some(_) => Precondition::MustExist,
        None => Precondition::MustNotExist,
    };
    store.save_config(WorkspaceId::DEFAULT, Some("a = 1".into()), expect).await.unwrap();
}

/// Where it is in doubt whether a file's new name is durable, this store changes that file no more; the next does.
#[tokio::test]
async fn file_with_an_unknown_rename_is_poisoned() {
    let folder = tempfile::tempdir().unwrap();
    let effects = Effects::default();
    let (store, spy) = watched(folder.path()).await;
    put(&store, &effects).await.unwrap();
    bind(&store, &effects).await.unwrap();
    let home = folder.path().join("workspaces").join("default");
    set(&store).await;
    let save = |store: FsStore, text: &'static str| async move {
        store.save_config(WorkspaceId::DEFAULT, Some(text.into()), Precondition::MustExist).await
    };
    spy.fail(|_, call| (call.name == "sync_dir").then_some(EIO));
    for error in [bind(&store, &effects).await.unwrap_err(), save(store.clone(), "a = 2").await.unwrap_err()]
    {
        assert_eq!(error.write_outcome(), WriteOutcome::Unknown, "{error}");
    }
    spy.heal();
    for error in [bind(&store, &effects).await.unwrap_err(), save(store.clone(), "a = 3").await.unwrap_err()]
    {
        assert_eq!(*error.kind(), ErrorKind::Poisoned, "{error}");
    }
    assert_eq!(fs::read_to_string(home.join("config.toml")).unwrap(), "a = 2");
    let store = hasty(folder.path()).await;
    bind(&store, &effects).await.unwrap();
    save(store, "a = 4").await.unwrap();
}

/// A session that goes away while it is looked for is absent, and one that cannot be looked at is not.
#[tokio::test]
async fn session_removed_during_lookup_is_absent() {
    let folder = tempfile::tempdir().unwrap();
    let effects = Effects::default();
    let id = session(&hasty(folder.path()).await, &effects).await.id;
    let gone = folder_of(folder.path(), id);
    for (errno, kind) in [(ENOENT, ErrorKind::NotFound), (EIO, ErrorKind::Unavailable)] {
        let (store, spy) = watched(folder.path()).await;
        let (gone, opened) = (gone.clone(), std::sync::atomic::AtomicBool::new(false));
        spy.fail(move |_, call| {
            if call.name == "open" && call.file() == "events.jsonl" {
                opened.store(true, Ordering::Relaxed);
                return Some(ENOENT);
            }
            (call.path == gone && opened.load(Ordering::Relaxed)).then_some(errno)
        });
        let error = SessionStore::load(&store, id).await.unwrap_err();
        assert_eq!(*error.kind(), kind, "{error}");
        spy.heal();
        assert_eq!(SessionStore::load(&store, id).await.unwrap().head, Seq::new(1));
    }
}

/// A folder where a file should be is neither that file nor none; nor is a file that cannot be looked at.
#[tokio::test]
async fn folder_is_not_mistaken_for_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let effects = Effects::default();
    let (store, spy) = watched(folder.path()).await;
    put(&store, &effects).await.unwrap();
    let deleted = folder.path().join("workspaces").join("default").join("deleted");
    spy.fail(on("stat", &deleted, EIO));
    let error = WorkspaceStore::load(&store, WorkspaceId::DEFAULT).await.unwrap_err();
    assert_names(&error, &ErrorKind::Unavailable, "look at", &deleted);
    spy.heal();
    fs::create_dir(&deleted).unwrap();
    let error = WorkspaceStore::load(&store, WorkspaceId::DEFAULT).await.unwrap_err();
    assert_names(&error, &ErrorKind::Corrupt, "read", &deleted);
    fs::remove_dir(&deleted).unwrap();
    WorkspaceStore::load(&store, WorkspaceId::DEFAULT).await.unwrap();
}

/// A file that is far too long is not read into memory; one of the length that is just allowed is.
#[tokio::test]
async fn oversized_file_is_not_read_into_memory() {
    let folder = tempfile::tempdir().unwrap();
    let (store, spy) = watched(folder.path()).await;
    let most = 64 << 20;
    for (length, read) in [(most, true), (most + 1, false)] {
        // Without blocks on the disk: such a file reads as zeros, which are text.
        fs::File::create(folder.path().join("config.toml")).unwrap().set_len(length).unwrap();
        spy.take();
        let text = store.load_global_config().await;
        assert_eq!(spy.take().iter().any(|call| call.name == "read"), read, "{length}");
        match text {
            Ok(text) => assert!(read && text.unwrap().len() as u64 == length),
            Err(error) => {
                assert!(!read && *error.kind() == ErrorKind::Corrupt, "{error}");
                assert!(error.to_string().contains(&format!("at most {most}")), "{error}");
            }
        }
    }
}

/// A folder that has something else is not made a store: a home directory, a source checkout. What the host puts beside a store before
/// it is first opened is no hindrance, nor is anything once there is a store.
#[tokio::test]
async fn a_folder_with_something_else_becomes_no_store() {
    let effects = Effects::default();
    for (name, is_folder) in [(".bashrc", false), (".git", true), ("photos", true), ("index.html", false)] {
        let folder = tempfile::tempdir().unwrap();
        let other = folder.path().join(name);
        if is_folder {
            fs::create_dir(&other).unwrap();
        } else {
            fs::write(&other, "mine").unwrap();
        }
        fs::write(folder.path().join("zebra.txt"), "mine").unwrap();
        let error = FsConfig::new(folder.path()).open().await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::InvalidInput, "{error}");
        let place = folder.path().display();
        let text = format!(
            "the folder {place} holds no store and is not empty: it has \"{name}\"; name an empty folder, or a new one"
        );
        assert_eq!(error.to_string(), text);
        let error = FsConfig::new(folder.path()).with_create(false).open().await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::NotFound, "nothing is created: {error}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("config.toml"), "").unwrap();
    fs::create_dir(folder.path().join("lost+found")).unwrap();
    bind(&hasty(folder.path()).await, &effects).await.unwrap();
    fs::write(folder.path().join("notes.txt"), "mine").unwrap();
    create(&hasty(folder.path()).await, &effects).await.unwrap();
}
