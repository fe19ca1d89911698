//! Every call to the system failed once, with the error codes that the system is known to return.

use std::path::Path;
use std::sync::Arc;

use crate::support::{
    Call, EACCES, EIO, EMFILE, ENOSPC, EROFS, Spy, append_text, files, folder_of, hasty, session, texts,
    watched,
};
use agent_core::clock::Effects;
use agent_core::commit::{Commit, Precondition};
use agent_core::event::NewEvent;
use agent_core::model::Workspace;
use agent_core::session::NewSession;
use agent_core::store::{ReadEvents, SessionQuery};
use agent_core::{
    BindingStore, Error, ErrorKind, Result, Seq, SessionId, SessionStore, SessionStoreExt, Timestamp,
    WorkspaceId, WorkspaceStore, WriteOutcome,
};
use agent_storage_fs::{FsConfig, FsStore};

/// One step of a script: what it did, and with what outcome.
#[derive(Debug)]
enum Step {
    Done,
    Failed(Error),
}

/// What the script has been told, by which the store is judged afterwards.
#[derive(Debug, Default)]
struct Outcomes {
    workspace: Option<Step>,
    bound: Option<Step>,
    /// Commit by commit: the texts that it brings, and how it ended.
    commits: Vec<(Vec<String>, Step)>,
}

struct Script {
    effects: Effects,
    workspace: WorkspaceId,
    session: SessionId,
}

impl Script {
    fn new(seed: u64) -> Self {
        let effects = Effects::seeded(seed, Timestamp::UNIX_EPOCH);
        let (workspace, session) = (effects.new_workspace_id(), effects.new_session_id());
        Self { effects, workspace, session }
    }

    fn device(&self) -> agent_core::DeviceId {
        "laptop".parse().unwrap()
    }

    /// Creates a workspace, binds a device, creates a session, commits three times, reads.
    async fn run(&self, store: &FsStore) -> Outcomes {
        let mut outcomes = Outcomes::default();
        let step = |result: Result<()>| match result {
            Ok(()) => Step::Done,
            Err(error) => Step::Failed(error),
        };
        let record = Workspace::new(self.workspace, "work", self.session, self.effects.now());
        outcomes.workspace = Some(step(store.put(record, Precondition::MustNotExist).await.map(drop)));
        let bound = store.bind(&self.device(), self.workspace, Precondition::MustNotExist).await;
        outcomes.bound = Some(step(bound.map(drop)));
        let create = Commit::create(&self.effects, NewSession::new(self.session, self.workspace));
        outcomes.commits.push((Vec::new(), step(store.commit(create).await.map(drop))));
        for n in 0..3 {
            let texts: Vec<_> = (0..=n).map(|part| format!("commit {n} part {part}")).collect();
            let commit = Commit::seal(&self.effects, self.session, Seq::new(1))
                .with_events(texts.iter().map(NewEvent::user_message));
            outcomes.commits.push((texts, step(store.commit(commit).await.map(drop))));
        }
        let _ = store.read(self.session, ReadEvents::last(2)).await;
        let _ = SessionStore::list(store, SessionQuery::new()).await;
        outcomes
    }

    /// What is there afterwards is what was told: everything acknowledged, nothing half, nothing that was said not to
    /// have happened.
    async fn judge(&self, root: &Path, outcomes: &Outcomes, context: &str) {
        let store = hasty(root).await;
        let there = WorkspaceStore::load(&store, self.workspace).await;
        judge_step(outcomes.workspace.as_ref(), there.is_ok(), &format!("{context}: workspace"));
        if let Err(error) = there {
            assert_eq!(*error.kind(), ErrorKind::NotFound, "{context}: {error:?}");
        }
        let bound = store.resolve(&self.device()).await.unwrap();
        judge_step(outcomes.bound.as_ref(), bound.is_some(), &format!("{context}: binding"));
        let exists = match SessionStore::load(&store, self.session).await {
            Ok(_) => true,
            Err(error) => {
                assert_eq!(*error.kind(), ErrorKind::NotFound, "{context}: {error:?}");
                false
            }
        };
        let stored = if exists { texts(&store, self.session).await } else { Vec::new() };
        let mut rest = stored.as_slice();
        for (n, (texts, step)) in outcomes.commits.iter().enumerate() {
            let there = if n == 0 { exists } else { rest.starts_with(texts) };
            judge_step(Some(step), there, &format!("{context}: commit {n}"));
            if there {
                rest = &rest[texts.len()..];
            }
        }
        assert_eq!(rest, [""; 0], "{context}: what nobody wrote");
        // And it goes on.
        if exists {
            let seen = SessionStore::load(&store, self.session).await.unwrap().head;
            append_text(&store, &self.effects, self.session, seen, "on").await;
        }
    }
}

fn judge_step(step: Option<&Step>, there: bool, context: &str) {
    match step {
        Some(Step::Done) => assert!(there, "{context} was acknowledged and is not there"),
        Some(Step::Failed(error)) => {
            let typed = !error.to_string().is_empty();
            assert!(typed, "{context}: an error without words");
            if error.write_outcome() == WriteOutcome::NotApplied {
                assert!(!there, "{context} is there, though it was said not to have happened: {error:?}");
            }
        }
        None => assert!(!there, "{context} was not tried"),
    }
}

async fn run_with_fault(persistent: bool, errno: i32) {
    let mut fired = 0;
    for n in 0.. {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("store");
        let script = Script::new(n as u64);
        let spy = Spy::new();
        let config = FsConfig::new(&root).with_io(Arc::new(spy.clone()));
        let store = config.with_effects(script.effects.clone()).open().await.unwrap();
        let failing =
            move |index: usize, _: &Call| (index == n || (persistent && index > n)).then_some(errno);
        spy.fail(failing);
        let outcomes = script.run(&store).await;
        let calls = spy.take();
        drop(store);
        let failed = spy.heal();
        if failed == 0 {
            break;
        }
        fired += 1;
        let context = format!("call {n}, {:?}, fails with {errno}", calls.get(n + 1));
        script.judge(&root, &outcomes, &context).await;
    }
    assert!(fired > 50, "only {fired} calls were failed");
}

/// Each call of a script fails once.
#[tokio::test]
async fn failure_of_any_call_loses_nothing() {
    run_with_fault(false, EIO).await;
}

/// The disk fills up at any call.
#[tokio::test]
async fn disk_full_at_any_call_loses_nothing() {
    run_with_fault(true, ENOSPC).await;
}

fn on(name: &'static str, file: &'static str, errno: i32) -> impl Fn(usize, &Call) -> Option<i32> {
    move |_, call| (call.name == name && call.file() == file).then_some(errno)
}

async fn try_append(store: &FsStore, effects: &Effects, id: SessionId, seen: Seq, text: &str) -> Result<()> {
    let commit = Commit::seal(effects, id, seen).with_event(NewEvent::user_message(text));
    store.commit(commit).await.map(drop)
}

/// A sync that fails is taken back through another descriptor, and did not happen; the session goes on.
#[tokio::test]
async fn failed_sync_is_rolled_back() {
    let folder = tempfile::tempdir().unwrap();
    let effects = Effects::default();
    let (store, spy) = watched(folder.path()).await;
    let id = session(&store, &effects).await.id;
    append_text(&store, &effects, id, Seq::new(1), "first").await;
    spy.take();
    let once = std::sync::atomic::AtomicBool::new(true);
    spy.fail(move |_, call| {
        let hit = call.name == "sync" && once.swap(false, std::sync::atomic::Ordering::Relaxed);
        hit.then_some(EIO)
    });
    let error = try_append(&store, &effects, id, Seq::new(2), "lost").await.unwrap_err();
    assert_eq!((error.kind(), error.write_outcome()), (&ErrorKind::Unavailable, WriteOutcome::NotApplied));
    assert_eq!(spy.heal(), 1);
    let names: Vec<_> = spy.take().iter().map(|call| call.name).collect();
    let tried = ["lock", "stat", "stat", "append", "write", "sync"];
    let taken_back = ["open", "fstat", "truncate", "sync", "append", "unlock"];
    assert_eq!(names, [tried, taken_back].concat());
    assert_eq!(texts(&store, id).await, ["first"]);
    append_text(&store, &effects, id, Seq::new(2), "second").await;
    assert_eq!(texts(&FsStore::open(folder.path()).await.unwrap(), id).await, ["first", "second"]);
}

/// A sync that fails and cannot be taken back poisons the session for this store and leaves a mark, which the
/// next one honours.
#[tokio::test]
async fn unrecoverable_sync_failure_poisons_the_session() {
    let folder = tempfile::tempdir().unwrap();
    let effects = Effects::default();
    let (store, spy) = watched(folder.path()).await;
    let id = session(&store, &effects).await.id;
    let other = session(&store, &effects).await.id;
    spy.fail(on("sync", "events.jsonl", EIO));
    let commit = Commit::seal(&effects, id, Seq::new(1)).with_event(NewEvent::user_message("in doubt"));
    let error = store.commit(commit.clone()).await.unwrap_err();
    assert_eq!(error.write_outcome(), WriteOutcome::Unknown, "{error:?}");
    spy.heal();
    let error = store.commit(commit.clone()).await.unwrap_err();
    assert_eq!(error.kind(), &ErrorKind::Poisoned);
    append_text(&store, &effects, other, Seq::new(1), "another session is not concerned").await;
    let mark = folder_of(folder.path(), id).join("suspect");
    assert!(mark.exists());

    let (again, spy) = watched(folder.path()).await;
    let done = again.commit(commit).await.unwrap();
    assert_eq!(texts(&again, id).await, ["in doubt"]);
    assert_eq!(done.last, Seq::new(2));
    assert!(!mark.exists());
    let calls = spy.take();
    let removed =
        calls.iter().position(|call| call.name == "remove_file" && call.file() == "suspect").unwrap();
    assert!(calls[..removed].iter().any(|call| call.name == "sync" && call.file() == "events.jsonl"));
    let error = try_append(&store, &effects, id, Seq::new(2), "x").await.unwrap_err();
    assert_eq!(error.kind(), &ErrorKind::Poisoned, "until it is opened again");
}

/// Who sends a commit until it is settled is told that it may have landed, where the first attempt left
/// that open and the later ones were refused without a look.
#[tokio::test]
async fn unknown_outcome_stays_unknown_after_retries() {
    let folder = tempfile::tempdir().unwrap();
    let effects = Effects::default();
    let (store, spy) = watched(folder.path()).await;
    let id = session(&store, &effects).await.id;
    spy.fail(on("sync", "events.jsonl", EIO));
    let events = vec![NewEvent::user_message("in doubt")];
    let error = store.sessions(&effects).append(id, Seq::new(1), events).await.unwrap_err();
    assert_eq!(error.kind(), &ErrorKind::Poisoned);
    assert_eq!(error.write_outcome(), WriteOutcome::Unknown, "{error:?}");
}

/// A reader that saw a write which was then taken back forgets it.
#[tokio::test(flavor = "multi_thread")]
async fn reader_drops_a_rolled_back_write() {
    let folder = tempfile::tempdir().unwrap();
    let effects = Effects::default();
    let (store, spy) = watched(folder.path()).await;
    let reader = hasty(folder.path()).await;
    let id = session(&store, &effects).await.id;
    assert_eq!(SessionStore::load(&reader, id).await.unwrap().head, Seq::new(1));
    let (runtime, early) = (tokio::runtime::Handle::current(), reader.clone());
    let syncs = std::sync::atomic::AtomicUsize::new(0);
    spy.fail(move |_, call| {
        if call.name != "sync" || syncs.fetch_add(1, std::sync::atomic::Ordering::Relaxed) > 0 {
            return None;
        }
        assert_eq!(runtime.block_on(SessionStore::load(&early, id)).unwrap().head, Seq::new(2));
        Some(EIO)
    });
    let commit = Commit::seal(&effects, id, Seq::new(1)).with_event(NewEvent::user_message("taken back"));
    let error = store.commit(commit).await.unwrap_err();
    assert_eq!(error.write_outcome(), WriteOutcome::NotApplied);
    assert_eq!(spy.heal(), 1);
    let commit =
        Commit::seal(&effects, id, Seq::new(1)).with_event(NewEvent::user_message("written instead"));
    let done = store.commit(commit).await.unwrap();
    assert_eq!(SessionStore::load(&reader, id).await.unwrap(), done.session);
}

/// A commit that a killed writer left unsynced is made durable before its retry is answered.
#[tokio::test]
async fn a_replay_is_durable_before_it_is_answered() {
    let folder = tempfile::tempdir().unwrap();
    let effects = Effects::default();
    // What a process leaves that dies between its write and its sync looks like this, to everybody else.
    let writer = hasty(folder.path()).await;
    let id = session(&writer, &effects).await.id;
    let commit = Commit::seal(&effects, id, Seq::new(1)).with_event(NewEvent::user_message("hello"));
    writer.commit(commit.clone()).await.unwrap();
    let (store, spy) = watched(folder.path()).await;
    assert!(store.commit(commit.clone()).await.unwrap().replayed);
    let synced = |calls: &[Call]| calls.iter().filter(|call| call.name == "sync").count();
    assert_eq!(synced(&spy.take()), 1);
    assert!(store.commit(commit).await.unwrap().replayed);
    assert_eq!(synced(&spy.take()), 0, "once is enough");
}

/// What the system says comes out as a kind, with the name of the object and what to do.
#[tokio::test]
async fn system_errors_name_the_object_and_the_remedy() {
    for (errno, kind, remedy) in [
        (EACCES, ErrorKind::Denied, "permission"),
        (EROFS, ErrorKind::Denied, "read-only"),
        (ENOSPC, ErrorKind::Full, "make room"),
        (EMFILE, ErrorKind::Unavailable, "open files"),
        (EIO, ErrorKind::Unavailable, "try again"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let effects = Effects::default();
        let (store, spy) = watched(folder.path()).await;
        let id = session(&store, &effects).await.id;
        let device = "laptop".parse().unwrap();
        store.bind(&device, WorkspaceId::DEFAULT, Precondition::None).await.unwrap();
        let record = Workspace::new(WorkspaceId::DEFAULT, "home", id, effects.now());
        store.put(record, Precondition::MustNotExist).await.unwrap();
        let before = files(folder.path());

        spy.fail(move |_, call| call.writes().then_some(errno));
        let error = try_append(&store, &effects, id, Seq::new(1), "x").await.unwrap_err();
        assert_eq!(*error.kind(), kind);
        assert!(error.to_string().contains("events.jsonl") && error.to_string().contains(remedy), "{error}");
        let error = store.bind(&device, effects.new_workspace_id(), Precondition::None).await.unwrap_err();
        assert_eq!(*error.kind(), kind);
        assert!(error.to_string().contains("bindings."), "{error}");
        let other = Workspace::new(effects.new_workspace_id(), "x", id, effects.now());
        let error = store.put(other, Precondition::MustNotExist).await.unwrap_err();
        assert_eq!(*error.kind(), kind);
        let error = store.touch(WorkspaceId::DEFAULT, Timestamp::MAX).await.unwrap_err();
        assert_eq!(*error.kind(), kind);
        let error = store
            .save_config(WorkspaceId::DEFAULT, Some("a = 1".into()), Precondition::MustNotExist)
            .await
            .unwrap_err();
        assert_eq!(*error.kind(), kind);
        assert!(error.to_string().contains("workspaces/default"), "{error}");

        spy.fail(move |_, call| (call.name == "open").then_some(errno));
        for error in [
            store.read(id, ReadEvents::default()).await.unwrap_err(),
            store.resolve(&device).await.unwrap_err(),
            WorkspaceStore::load(&store, WorkspaceId::DEFAULT).await.unwrap_err(),
        ] {
            assert_eq!(*error.kind(), kind, "{error}");
            assert!(error.to_string().contains(&*folder.path().to_string_lossy()), "{error}");
        }
        spy.heal();
        drop(store);
        let left = |all: Vec<(std::path::PathBuf, Vec<u8>)>| -> Vec<_> {
            all.into_iter()
                .filter(|(path, _)| !path.ends_with("suspect") && !path.ends_with("lock"))
                .map(|(path, bytes)| (path, bytes.len()))
                .collect()
        };
        let (before, after) = (left(before), left(files(folder.path())));
        for known in &before {
            assert!(after.iter().any(|(path, len)| *path == known.0 && *len >= known.1), "{known:?}");
        }
    }
}

/// A file where a folder should be, and a folder where a file should be, are named and left alone.
#[tokio::test]
async fn misplaced_files_and_folders_are_left_unchanged() {
    let folder = tempfile::tempdir().unwrap();
    let effects = Effects::default();
    let file = folder.path().join("file");
    std::fs::write(&file, "mine").unwrap();
    let error = FsStore::open(&file).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Corrupt);
    assert!(error.to_string().contains("file"), "{error}");

    let root = folder.path().join("root");
    std::fs::create_dir(&root).unwrap();
    std::fs::write(root.join("workspaces"), "mine").unwrap();
    std::fs::create_dir(root.join("bindings.toml")).unwrap();
    let store = FsStore::open(&root).await.unwrap();
    let id = effects.new_session_id();
    let new = Commit::create(&effects, NewSession::new(id, WorkspaceId::DEFAULT));
    let record = Workspace::new(WorkspaceId::DEFAULT, "home", id, effects.now());
    let device = "laptop".parse().unwrap();
    for error in [
        store.commit(new).await.unwrap_err(),
        SessionStore::load(&store, id).await.unwrap_err(),
        SessionStore::list(&store, SessionQuery::new()).await.unwrap_err(),
        store.put(record, Precondition::MustNotExist).await.unwrap_err(),
        store.resolve(&device).await.unwrap_err(),
        store.bind(&device, WorkspaceId::DEFAULT, Precondition::None).await.unwrap_err(),
    ] {
        assert_eq!(*error.kind(), ErrorKind::Corrupt, "{error}");
        assert!(error.to_string().contains("move it away"), "{error}");
    }
    assert_eq!(std::fs::read_to_string(root.join("workspaces")).unwrap(), "mine");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "mine");
}

/// A file system whose locks keep nobody out is refused; nothing is written there.
#[tokio::test]
async fn file_system_with_ineffective_locks_is_refused() {
    #[derive(Debug)]
    struct Lax(agent_storage_fs::io::RealIo);
    #[derive(Debug)]
    struct LaxFile(Box<dyn agent_storage_fs::io::IoFile>);
    use agent_storage_fs::io::{Io, IoFile, Kind, OpenMode, Stat};
    use std::io::Result;
    impl Io for Lax {
        fn open(&self, path: &Path, mode: OpenMode) -> Result<Box<dyn IoFile>> {
            Ok(Box::new(LaxFile(self.0.open(path, mode)?)))
        }
        fn open_lock(&self, folder: &Path) -> Result<Box<dyn IoFile>> {
            Ok(Box::new(LaxFile(self.0.open_lock(folder)?)))
        }
        fn stat(&self, path: &Path) -> Result<Stat> {
            self.0.stat(path)
        }
        fn list(&self, path: &Path) -> Result<Vec<(std::ffi::OsString, Kind)>> {
            self.0.list(path)
        }
        fn create_dir(&self, path: &Path) -> Result<()> {
            self.0.create_dir(path)
        }
        fn rename(&self, from: &Path, to: &Path) -> Result<()> {
            self.0.rename(from, to)
        }
        fn hard_link(&self, from: &Path, to: &Path) -> Result<()> {
            self.0.hard_link(from, to)
        }
        fn remove_file(&self, path: &Path) -> Result<()> {
            self.0.remove_file(path)
        }
        fn remove_dir(&self, path: &Path) -> Result<()> {
            self.0.remove_dir(path)
        }
        fn sync_dir(&self, path: &Path) -> Result<()> {
            self.0.sync_dir(path)
        }
    }
    impl IoFile for LaxFile {
        fn stat(&self) -> Result<Stat> {
            self.0.stat()
        }
        fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
            self.0.read_at(buffer, offset)
        }
        fn write_at(&self, bytes: &[u8], offset: u64) -> Result<usize> {
            self.0.write_at(bytes, offset)
        }
        fn append(&self, bytes: &[u8]) -> Result<usize> {
            self.0.append(bytes)
        }
        fn truncate(&self, len: u64) -> Result<()> {
            self.0.truncate(len)
        }
        fn sync(&self) -> Result<()> {
            self.0.sync()
        }
        fn try_lock(&self) -> Result<bool> {
            Ok(true)
        }
        fn unlock(&self) -> Result<()> {
            Ok(())
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let effects = Effects::default();
    let io = Arc::new(Lax(agent_storage_fs::io::RealIo));
    let store = FsConfig::new(folder.path()).with_io(io).open().await.unwrap();
    let new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
    let error = store.commit(Commit::create(&effects, new)).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("locks"), "{error}");
    assert_eq!(files(folder.path()), []);
}

/// A session whose maker died before its name was durable gets that before anything is acknowledged in it; one
/// with more commits has it.
#[tokio::test]
async fn new_session_of_a_killed_writer_is_synced_first() {
    let folder = tempfile::tempdir().unwrap();
    let effects = Effects::default();
    let maker = hasty(folder.path()).await;
    let create = Commit::create(&effects, NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT));
    let id = maker.commit(create.clone()).await.unwrap().session.id;
    let synced =
        |calls: &[Call]| calls.iter().any(|call| call.name == "sync_dir" && call.file() == "sessions");
    let (store, spy) = watched(folder.path()).await;
    spy.fail(|_, call| (call.name == "sync_dir" && call.file() == "sessions").then_some(EIO));
    store.commit(create.clone()).await.unwrap_err();
    spy.heal();
    assert!(store.commit(create).await.unwrap().replayed);
    assert!(synced(&spy.take()));
    append_text(&store, &effects, id, Seq::new(1), "hello").await;
    let (store, spy) = watched(folder.path()).await;
    append_text(&store, &effects, id, Seq::new(2), "hello").await;
    assert!(!synced(&spy.take()));
}

/// What crashes left half made is passed over, and cleared away when it is old.
#[tokio::test]
async fn crash_leftovers_are_ignored_and_removed() {
    let folder = tempfile::tempdir().unwrap();
    let effects = Effects::default();
    let store = hasty(folder.path()).await;
    session(&store, &effects).await;
    let sessions = folder_of(folder.path(), effects.new_session_id()).parent().unwrap().to_owned();
    let [old, young] = ["old", "young"].map(|name| sessions.join(format!(".{name}.new-0123456789abcdef")));
    for left in [&old, &young] {
        std::fs::create_dir(left).unwrap();
        std::fs::write(left.join("events.jsonl"), "half").unwrap();
    }
    let long_ago = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000);
    std::fs::File::open(&old).unwrap().set_modified(long_ago).unwrap();
    let store = hasty(folder.path()).await;
    let page = SessionStore::list(&store, SessionQuery::new()).await.unwrap();
    assert_eq!((page.items.len(), page.damaged.len()), (1, 0));
    session(&store, &effects).await;
    assert!(!old.exists() && young.exists());
}
