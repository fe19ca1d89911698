//! Files that are moved or replaced while a store has them open: acknowledged data is under the current names, and
//! nothing is written elsewhere.

use std::fs;
use std::path::{Path, PathBuf};

use crate::support::{ENOSPC, Spy, append_text, folder_of, hasty, session, texts, watched};
use agent_core::clock::Effects;
use agent_core::commit::{Commit, Precondition, Trigger};
use agent_core::event::NewEvent;
use agent_core::model::Workspace;
use agent_core::session::NewSession;
use agent_core::state::Reason;
use agent_core::store::Purge;
use agent_core::{
    BindingStore, ErrorKind, Result, Seq, SessionId, SessionStore, SessionStoreExt, WorkspaceId,
    WorkspaceStore, WriteOutcome,
};
use agent_storage_fs::FsStore;

const HOME: WorkspaceId = WorkspaceId::DEFAULT;

/// Copies a folder, or a file, as a backup would.
fn copy(from: &Path, to: &Path) {
    if from.is_file() {
        fs::copy(from, to).unwrap();
        return;
    }
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        copy(&entry.path(), &to.join(entry.file_name()));
    }
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let name = path.file_name().unwrap().to_string_lossy().into_owned();
    path.with_file_name(format!("{name}.{suffix}"))
}

/// What can be moved, from the root down to a session's log.
fn places(root: &Path, id: SessionId) -> [PathBuf; 6] {
    let session = folder_of(root, id);
    let workspaces = root.join("workspaces");
    let home = workspaces.join("default");
    [
        root.to_owned(),
        workspaces,
        home.clone(),
        home.join("sessions"),
        session.clone(),
        session.join("events.jsonl"),
    ]
}

/// Tries to say something, and holds what comes of it against what a new store sees.
async fn append_and_reload(
    store: &FsStore,
    effects: &Effects,
    root: &Path,
    id: SessionId,
    text: &str,
) -> bool {
    let head = SessionStore::load(store, id).await.map_or(Seq::new(1), |session| session.head);
    let events = store.sessions(effects).append(id, head, vec![NewEvent::user_message(text)]).await;
    let reopened = FsStore::open(root).await.unwrap();
    let there = match SessionStore::load(&reopened, id).await {
        Ok(_) => texts(&reopened, id).await,
        Err(_) => Vec::new(),
    };
    let count = there.iter().filter(|there| *there == text).count();
    match events {
        Ok(_) => assert_eq!(count, 1, "{text:?} was acknowledged"),
        Err(error) => {
            assert_eq!(error.write_outcome(), WriteOutcome::NotApplied, "{error}");
            assert_eq!(count, 0, "{text:?}: {error}");
        }
    }
    count == 1
}

/// A backup is put in the place of the root, or of anything below it, while a store has it open: the store
/// writes to what is there now.
#[tokio::test]
async fn commits_follow_a_restored_backup() {
    for place in 0..6 {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("store");
        let (store, effects) = (hasty(&root).await, Effects::default());
        let id = session(&store, &effects).await.id;
        let seen = append_text(&store, &effects, id, Seq::new(1), "before").await;
        let path = &places(&root, id)[place];
        copy(path, &beside(path, "backup"));
        append_text(&store, &effects, id, seen, "lost with the old one").await;
        fs::rename(path, beside(path, "old")).unwrap();
        fs::rename(beside(path, "backup"), path).unwrap();
        // By the head that the store saw last, too.
        let stale =
            store.sessions(&effects).append(id, Seq::new(3), vec![NewEvent::user_message("stale")]).await;
        let reopened = FsStore::open(&root).await.unwrap();
        let there = texts(&reopened, id).await;
        assert_eq!(there.contains(&"stale".to_owned()), stale.is_ok(), "{}: {there:?}", path.display());
        assert!(append_and_reload(&store, &effects, &root, id, "after").await, "{}", path.display());
        let there = texts(&reopened, id).await;
        assert_eq!((there.first().unwrap().as_str(), there.last().unwrap().as_str()), ("before", "after"));
        assert!(!there.contains(&"lost with the old one".to_owned()));
    }
}

/// With nothing in its place, the store says what is missing, makes nothing anew, and goes on once it is back.
#[tokio::test]
async fn moved_files_are_reported_and_not_recreated() {
    for place in 0..6 {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("store");
        let (store, effects) = (hasty(&root).await, Effects::default());
        let id = session(&store, &effects).await.id;
        let device = "laptop".parse().unwrap();
        store.bind(&device, HOME, Precondition::MustNotExist).await.unwrap();
        let seen = append_text(&store, &effects, id, Seq::new(1), "before").await;
        let path = &places(&root, id)[place];
        fs::rename(path, beside(path, "old")).unwrap();
        let events = store.sessions(&effects).append(id, seen, vec![NewEvent::user_message("nowhere")]).await;
        let error = events.map(drop).unwrap_err();
        assert_eq!(error.write_outcome(), WriteOutcome::NotApplied, "{error}");
        if place < 2 {
            assert_eq!(*error.kind(), ErrorKind::Unavailable, "{error}");
            assert!(error.to_string().contains(&format!("{}", path.display())), "{error}");
            let new = NewSession::new(effects.new_session_id(), HOME);
            let error = store.sessions(&effects).create(new).await.unwrap_err();
            assert_eq!(*error.kind(), ErrorKind::Unavailable, "{error}");
            let error = WorkspaceStore::load(&store, HOME).await.unwrap_err();
            assert_eq!(*error.kind(), ErrorKind::Unavailable, "{error}");
        }
        if place == 0 {
            let bound = store.resolve(&device).await;
            assert_eq!(*bound.unwrap_err().kind(), ErrorKind::Unavailable);
            let bound = store.bind(&device, HOME, Precondition::MustNotExist).await;
            assert_eq!(*bound.unwrap_err().kind(), ErrorKind::Unavailable);
        }
        assert!(!path.exists(), "{}", path.display());
        fs::rename(beside(path, "old"), path).unwrap();
        assert!(append_and_reload(&store, &effects, &root, id, "after").await);
        assert_eq!(texts(&store, id).await, ["before", "after"]);
    }
}

/// It is replaced while a commit is being written, at any call: what is acknowledged is in the new one.
#[tokio::test]
async fn a_log_replaced_in_mid_commit_gets_the_commit() {
    for place in 0..6 {
        for step in ["lock", "write", "sync"] {
            let folder = tempfile::tempdir().unwrap();
            let root = folder.path().join("store");
            let effects = Effects::default();
            let (store, spy) = watched(&root).await;
            let id = session(&store, &effects).await.id;
            append_text(&store, &effects, id, Seq::new(1), "before").await;
            let path = places(&root, id)[place].clone();
            copy(&path, &beside(&path, "backup"));
            let once = std::sync::atomic::AtomicBool::new(true);
            spy.fail(move |_, call| {
                if call.name == step && once.swap(false, std::sync::atomic::Ordering::Relaxed) {
                    fs::rename(&path, beside(&path, "old")).unwrap();
                    fs::rename(beside(&path, "backup"), &path).unwrap();
                }
                None
            });
            assert!(append_and_reload(&store, &effects, &root, id, "at that moment").await, "{place} {step}");
            assert_eq!(texts(&store, id).await, ["before", "at that moment"]);
        }
    }
}

/// A write that fails is taken back from the file that it went to, and not from one that took its place.
#[tokio::test]
async fn rollback_spares_a_restored_log() {
    let folder = tempfile::tempdir().unwrap();
    let effects = Effects::default();
    let (store, spy) = watched(folder.path()).await;
    let id = session(&store, &effects).await.id;
    let seen = append_text(&store, &effects, id, Seq::new(1), "first").await;
    let log = folder_of(folder.path(), id).join("events.jsonl");
    // A longer log takes its place while a write to it fails.
    let long = [fs::read(&log).unwrap(), b"and more".to_vec()].concat();
    let (path, bytes) = (log.clone(), long.clone());
    spy.fail(move |_, call| {
        (call.name == "write" && call.file() == "events.jsonl").then(|| {
            let new = path.with_file_name("restored");
            fs::write(&new, &bytes).unwrap();
            fs::rename(&new, &path).unwrap();
            ENOSPC
        })
    });
    let commit = Commit::seal(&effects, id, seen).with_event(NewEvent::user_message("third"));
    let error = store.commit(commit).await.unwrap_err();
    assert_eq!((error.kind(), error.write_outcome()), (&ErrorKind::Full, WriteOutcome::NotApplied));
    spy.heal();
    assert!(fs::read(&log).unwrap() == long);
    assert!(append_and_reload(&store, &effects, folder.path(), id, "fourth").await);
    assert_eq!(texts(&store, id).await, ["first", "fourth"]);
}

/// How many calls a change makes up to its last look at where the names lead. What is replaced after that was written
/// before.
fn calls_to_last_check(spy: &Spy) -> usize {
    let calls = spy.take();
    1 + calls.iter().rposition(|call| call.name == "stat" && call.file() != "changes").unwrap()
}

/// Puts `backup` in the place of `path`, which becomes `old`, when the n-th call comes.
fn swap_at(spy: &Spy, n: usize, path: &Path, backup: &Path, old: &Path) {
    let (path, backup, old) = (path.to_owned(), backup.to_owned(), old.to_owned());
    spy.fail(move |number, _| {
        if number == n {
            fs::rename(&path, &old).unwrap();
            fs::rename(&backup, &path).unwrap();
        }
        None
    });
}

/// What came of a change, and whether what it was to change shows it.
fn assert_reported<T: std::fmt::Debug>(done: &Result<T>, there: bool, context: &str) {
    match done {
        Ok(_) => assert!(there, "{context}: {done:?}"),
        Err(error) if error.write_outcome() == WriteOutcome::NotApplied => {
            assert!(!there, "{context}: {done:?}");
        }
        Err(_) => {}
    }
}

/// A session's folder is replaced while it is purged: what is there at the end is purged.
#[tokio::test]
async fn a_purge_follows_a_restored_backup() {
    let mut most = 1;
    let mut n = 0;
    while n <= most {
        let folder = tempfile::tempdir().unwrap();
        let effects = Effects::default();
        let (store, spy) = watched(folder.path()).await;
        let id = session(&store, &effects).await.id;
        append_text(&store, &effects, id, Seq::new(1), "a secret").await;
        let deleted =
            store.sessions(&effects).trigger(id, Trigger::Delete(Reason::UserDeleted)).await.unwrap();
        let path = folder_of(folder.path(), id);
        let backup = beside(&path, "backup");
        copy(&path, &backup);
        if n > 0 {
            swap_at(&spy, n - 1, &path, &backup, &beside(&path, "old"));
        }
        spy.take();
        let done = store.purge(Purge::new(id, deleted.last)).await;
        spy.heal();
        if n == 0 {
            most = calls_to_last_check(&spy);
            assert!(most > 20, "{most}");
            n += 1;
            continue;
        }
        let left = fs::read_to_string(path.join("events.jsonl")).unwrap();
        assert_reported(&done, !left.contains("a secret"), &format!("replaced at call {n}"));
        store.purge(Purge::new(id, deleted.last)).await.unwrap();
        assert!(!fs::read_to_string(path.join("events.jsonl")).unwrap().contains("a secret"));
        n += 1;
    }
}

/// Lets the root be replaced at each call of a change in turn.
async fn at_each_call<F>(change: impl Fn(FsStore, Effects) -> F, shown: impl AsyncFn(&FsStore) -> bool)
where
    F: Future<Output = Result<()>>,
{
    let mut most = 1;
    let mut n = 0;
    while n <= most {
        let folder = tempfile::tempdir().unwrap();
        let [root, backup, old] = ["store", "backup", "old"].map(|name| folder.path().join(name));
        let effects = Effects::default();
        let (store, spy) = watched(&root).await;
        let record = Workspace::new(HOME, "home", effects.new_session_id(), effects.now());
        store.put(record, Precondition::MustNotExist).await.unwrap();
        store.bind(&"first".parse().unwrap(), HOME, Precondition::MustNotExist).await.unwrap();
        session(&store, &effects).await;
        copy(&root, &backup);
        if n > 0 {
            swap_at(&spy, n - 1, &root, &backup, &old);
        }
        spy.take();
        let done = change(store.clone(), effects.clone()).await;
        spy.heal();
        if n == 0 {
            most = calls_to_last_check(&spy);
            assert!(done.is_ok() && most > 5, "{most}: {done:?}");
            n += 1;
            continue;
        }
        let there = shown(&FsStore::open(&root).await.unwrap()).await;
        assert_reported(&done, there, &format!("replaced at call {n}"));
        change(store.clone(), effects).await.unwrap();
        assert!(shown(&FsStore::open(&root).await.unwrap()).await, "again, after call {n}");
        n += 1;
    }
}

/// A binding is in the root that is there, or the bind says that it is not.
#[tokio::test]
async fn a_bind_follows_a_replaced_root() {
    let device = || "second".parse().unwrap();
    at_each_call(
        async |store, _| store.bind(&device(), HOME, Precondition::None).await.map(drop),
        async |store| store.resolve(&device()).await.unwrap().is_some(),
    )
    .await;
}

/// So it is with a workspace,
#[tokio::test]
async fn a_workspace_follows_a_replaced_root() {
    let id: WorkspaceId = "019c60d9-9c40-7000-8000-000000000001".parse().unwrap();
    at_each_call(
        async |store, effects| {
            let record = Workspace::new(id, "new", effects.new_session_id(), effects.now());
            match store.put(record, Precondition::MustNotExist).await {
                Err(error) if matches!(error.kind(), ErrorKind::Conflict { .. }) => Ok(()),
                done => done.map(drop),
            }
        },
        async |store| WorkspaceStore::load(store, id).await.is_ok(),
    )
    .await;
}

/// Its configuration,
#[tokio::test]
async fn a_configuration_follows_a_replaced_root() {
    at_each_call(
        async |store, _| {
            // Whether it was there already depends on the call at which the root was replaced.
            match store.save_config(HOME, Some("a = 1".to_owned()), Precondition::MustNotExist).await {
                Err(error) if matches!(error.kind(), ErrorKind::Conflict { .. }) => {
                    store.save_config(HOME, Some("a = 1".to_owned()), Precondition::MustExist).await
                }
                done => done,
            }
        },
        async |store| store.load_config(HOME).await.unwrap().is_some(),
    )
    .await;
}

/// And a session that is made.
#[tokio::test]
async fn a_new_session_follows_a_replaced_root() {
    let id: SessionId = "019c60d9-9c41-7000-8000-000000000001".parse().unwrap();
    at_each_call(
        async |store, effects| match store.sessions(&effects).create(NewSession::new(id, HOME)).await {
            Err(error) if matches!(error.kind(), ErrorKind::Conflict { .. }) => Ok(()),
            done => done.map(drop),
        },
        async |store| SessionStore::load(store, id).await.is_ok(),
    )
    .await;
}
