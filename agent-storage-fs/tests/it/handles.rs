//! Cached state of a session's files while others change, move and replace them; and remains of a closed store.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::support::{Call, EACCES, EIO, append_text, fill, folder_of, hasty, session, texts, watched};
use agent_core::clock::Effects;
use agent_core::commit::{Commit, LeaseRequest, Precondition, RunEnd, Trigger};
use agent_core::event::NewEvent;
use agent_core::session::NewSession;
use agent_core::state::Reason;
use agent_core::store::{Purge, ReadEvents};
use agent_core::{ErrorKind, Seq, SessionId, SessionStore, SessionStoreExt, WorkspaceId, WriteOutcome};
use agent_storage_fs::{FsConfig, FsStore};

const ENOTEMPTY: i32 = if cfg!(target_os = "linux") { 39 } else { 66 };

async fn head(store: &FsStore, id: SessionId) -> Seq {
    SessionStore::load(store, id).await.unwrap().head
}

fn log_of(root: &Path, id: SessionId) -> std::path::PathBuf {
    folder_of(root, id).join("events.jsonl")
}

/// Fails the calls of a name on a file of a name.
fn on(name: &'static str, file: &str, errno: i32) -> impl Fn(usize, &Call) -> Option<i32> + use<> {
    let file = file.to_owned();
    move |_, call| (call.name == name && call.file() == file).then_some(errno)
}

fn read(calls: &[Call]) -> (usize, Vec<&str>) {
    let files = calls.iter().filter(|call| call.name == "open").map(Call::file).collect();
    (calls.iter().filter(|call| call.name == "read").map(|call| call.bytes).sum(), files)
}

// --- tenants ---------------------------------------------------------------------------------------------------------

/// Among any number of tenants that are asked for, one in which this process runs a session stays, though no handle of it is
/// alive; a handle that is alive works on; and one that nobody uses is closed, and found again.
#[tokio::test]
async fn tenant_with_a_lease_stays_among_many_names() {
    let folder = tempfile::tempdir().unwrap();
    let (store, effects) = (hasty(folder.path()).await, Effects::default());
    let tenant = |name: &str| store.for_tenant(&name.parse().unwrap());
    let runs = session(&tenant("runs"), &effects).await.id;
    let commit = Commit::seal(&effects, runs, Seq::new(1))
        .with_event(NewEvent::user_message("hello"))
        .with_trigger(Trigger::BeginRun(LeaseRequest::new("me", effects.new_run_id())));
    let epoch = tenant("runs").commit(commit).await.unwrap().epoch.unwrap();
    let used = tenant("used");
    let in_use = session(&used, &effects).await.id;
    let idle = session(&tenant("idle"), &effects).await.id;
    append_text(&tenant("idle"), &effects, idle, Seq::new(1), "hello").await;
    for n in 0..10_000 {
        let _ = tenant(&format!("user-{n}"));
    }
    let other = hasty(folder.path()).await;
    let status = other.for_tenant(&"runs".parse().unwrap()).leases().status(runs, epoch).await.unwrap();
    assert!(!status.holder_proven_dead);
    append_text(&used, &effects, in_use, Seq::new(1), "hello").await;
    append_text(&tenant("used"), &effects, in_use, Seq::new(2), "hello").await;
    append_text(&tenant("idle"), &effects, idle, Seq::new(2), "hello").await;
    store.close().await.unwrap();
    let status = other.for_tenant(&"runs".parse().unwrap()).leases().status(runs, epoch).await.unwrap();
    assert!(status.holder_proven_dead);
}

// --- what is remembered ----------------------------------------------------------------------------------------------

/// Of a session that a store knows, a load reads nothing; and what another appended is all that is read, by readers
/// and by writers.
#[tokio::test]
async fn reopened_session_reads_only_new_events() {
    let folder = tempfile::tempdir().unwrap();
    let effects = Effects::default();
    let other = hasty(folder.path()).await;
    let id = session(&other, &effects).await.id;
    fill(&other, &effects, id, 300).await;
    let (store, spy) = watched(folder.path()).await;
    let seen = append_text(&store, &effects, id, Seq::new(300), "mine").await;
    spy.take();
    assert_eq!(head(&store, id).await, seen);
    assert_eq!(read(&spy.take()), (0, Vec::new()), "one's own commit is known");
    for _ in 0..2 {
        let seen = append_text(&other, &effects, id, Seq::new(300), "theirs").await;
        spy.take();
        assert_eq!(head(&store, id).await, seen);
        let calls = spy.take();
        let (bytes, files) = read(&calls);
        assert!(bytes < 1000 && files == ["events.jsonl"], "{calls:?}");
        let seen = append_text(&other, &effects, id, Seq::new(300), "theirs").await;
        spy.take();
        append_text(&store, &effects, id, seen, "mine").await;
        let calls = spy.take();
        let (bytes, files) = read(&calls);
        assert!(bytes < 1000 && files == [""; 0], "{calls:?}");
    }
}

/// A log that was put back to an earlier state, where it lies, is what the session is now: for readers and writers
/// that knew more.
#[tokio::test]
async fn log_restored_to_an_earlier_state_is_used() {
    let folder = tempfile::tempdir().unwrap();
    let effects = Effects::default();
    let (reader, writer) = (hasty(folder.path()).await, hasty(folder.path()).await);
    let id = session(&writer, &effects).await.id;
    let seen = append_text(&writer, &effects, id, Seq::new(1), "first").await;
    let early = fs::read(log_of(folder.path(), id)).unwrap();
    append_text(&writer, &effects, id, seen, "second").await;
    assert_eq!(head(&reader, id).await, Seq::new(3));
    fs::write(log_of(folder.path(), id), &early).unwrap();
    assert_eq!(head(&reader, id).await, Seq::new(2));
    let commit = Commit::seal(&effects, id, seen).with_precondition(Precondition::Matches(seen));
    writer.commit(commit.with_event(NewEvent::user_message("instead"))).await.unwrap();
    assert_eq!(texts(&reader, id).await, ["first", "instead"]);
}

/// A log in whose place another was put, of the same length and with lines of the same lengths, is read anew, also
/// where that happens between two looks at it.
#[tokio::test]
async fn replaced_log_is_read_again() {
    let effects = Effects::default();
    for between in [false, true] {
        let folders = [(); 2].map(|()| tempfile::tempdir().unwrap());
        // One session that went two ways.
        let ids = [effects.new_session_id(); 2];
        for folder in &folders {
            let store = hasty(folder.path()).await;
            let new = NewSession::new(ids[0], WorkspaceId::DEFAULT);
            store.sessions(&effects).create(new).await.unwrap();
            fill(&store, &effects, ids[0], 20).await;
        }
        let foreign = hasty(folders[1].path()).await;
        let [mine, other] = [0, 1].map(|n| log_of(folders[n].path(), ids[n]));
        let (store, spy) = watched(folders[0].path()).await;
        assert_eq!(head(&store, ids[0]).await, Seq::new(20));
        if between {
            // Both go on; then, when the log is about to be opened, it is replaced.
            append_text(&hasty(folders[0].path()).await, &effects, ids[0], Seq::new(20), "more").await;
            append_text(&foreign, &effects, ids[1], Seq::new(20), "more").await;
            let (mine, other, once) = (mine.clone(), other.clone(), AtomicBool::new(true));
            spy.fail(move |_, call| {
                if call.name == "open" && call.path == mine && once.swap(false, Ordering::Relaxed) {
                    fs::copy(&other, mine.with_extension("copy")).unwrap();
                    fs::rename(mine.with_extension("copy"), &mine).unwrap();
                }
                None
            });
        } else {
            fs::copy(&other, mine.with_extension("copy")).unwrap();
            fs::rename(mine.with_extension("copy"), &mine).unwrap();
        }
        let found = SessionStore::load(&store, ids[0]).await.unwrap();
        let record = SessionStore::load(&foreign, ids[1]).await.unwrap();
        assert_eq!((&found.recent, found.created_at), (&record.recent, record.created_at), "{between}");
    }
}

/// A write that is taken back between two looks at the log is not seen.
#[tokio::test]
async fn write_rolled_back_between_reads_is_not_seen() {
    let folder = tempfile::tempdir().unwrap();
    let effects = Effects::default();
    let other = hasty(folder.path()).await;
    let id = session(&other, &effects).await.id;
    let log = log_of(folder.path(), id);
    let early = fs::read(&log).unwrap();
    append_text(&other, &effects, id, Seq::new(1), "first").await;
    let (store, spy) = watched(folder.path()).await;
    assert_eq!(head(&store, id).await, Seq::new(2));
    append_text(&other, &effects, id, Seq::new(2), "second").await;
    spy.fail(move |_, call| {
        if call.name == "open" && call.path == log {
            fs::write(&log, &early).unwrap();
        }
        None
    });
    assert_eq!(head(&store, id).await, Seq::new(1));
}

/// A session whose folder was moved to another workspace is found there; one without a log is damaged, and one
/// without a folder absent: also for who knew it elsewhere, and for every way to ask.
#[tokio::test]
async fn session_moved_to_another_workspace_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let effects = Effects::default();
    let other = hasty(folder.path()).await;
    let (first, second) = (session(&other, &effects).await.id, session(&other, &effects).await.id);
    let elsewhere = folder.path().join("workspaces").join(effects.new_workspace_id().to_string());
    fs::create_dir_all(elsewhere.join("sessions")).unwrap();
    let [loads, reads] = [hasty(folder.path()).await, hasty(folder.path()).await];
    for id in [first, second] {
        assert_eq!(head(&loads, id).await, Seq::new(1));
        reads.read(id, ReadEvents::first(1)).await.unwrap();
        fs::rename(folder_of(folder.path(), id), elsewhere.join("sessions").join(id.to_string())).unwrap();
    }
    assert_eq!(head(&loads, first).await, Seq::new(1));
    assert_eq!(reads.read(first, ReadEvents::first(1)).await.unwrap().events.len(), 1);
    let log = elsewhere.join("sessions").join(first.to_string()).join("events.jsonl");
    fs::remove_file(&log).unwrap();
    fs::remove_dir_all(elsewhere.join("sessions").join(second.to_string())).unwrap();
    for store in [&loads, &reads, &hasty(folder.path()).await] {
        for id in [first, second] {
            let commit = Commit::seal(&effects, id, Seq::new(1)).with_event(NewEvent::user_message("lost"));
            for error in [
                SessionStore::load(store, id).await.unwrap_err(),
                store.read(id, ReadEvents::first(1)).await.unwrap_err(),
                store.commit(commit).await.unwrap_err(),
            ] {
                assert_eq!(*error.kind(), ErrorKind::Corrupt, "{error}");
                assert!(error.to_string().contains("is missing"), "{error}");
            }
        }
    }
}

/// A log that this user may not open is refused as that, to whoever reads and whoever writes.
#[tokio::test]
async fn unreadable_log_is_not_reported_as_missing() {
    let folder = tempfile::tempdir().unwrap();
    let effects = Effects::default();
    let id = session(&hasty(folder.path()).await, &effects).await.id;
    let (store, spy) = watched(folder.path()).await;
    spy.fail(on("open", "events.jsonl", EACCES));
    let commit = Commit::seal(&effects, id, Seq::new(1)).with_event(NewEvent::user_message("refused"));
    for error in [
        store.commit(commit).await.unwrap_err(),
        store.read(id, ReadEvents::first(1)).await.unwrap_err(),
        SessionStore::load(&store, id).await.unwrap_err(),
    ] {
        assert_eq!(*error.kind(), ErrorKind::Denied, "{error}");
    }
}

// --- what is made ----------------------------------------------------------------------------------------------------

/// What was never there is looked for once.
#[tokio::test]
async fn new_session_is_searched_only_once() {
    let folder = tempfile::tempdir().unwrap();
    let effects = Effects::default();
    let (store, spy) = watched(folder.path()).await;
    for _ in 0..2 {
        spy.take();
        session(&store, &effects).await;
        let reads =
            spy.take().iter().filter(|call| call.name == "list" && call.file() == "workspaces").count();
        assert_eq!(reads, 1);
    }
}

/// What is wrong with a commit to a session that exists is told by its own record, also where nothing points to it.
#[tokio::test]
async fn session_without_an_index_entry_exists() {
    let folder = tempfile::tempdir().unwrap();
    let effects = Effects::default();
    let id = session(&hasty(folder.path()).await, &effects).await.id;
    for pointed in [true, false] {
        if !pointed {
            fs::remove_dir_all(folder.path().join("index")).unwrap();
        }
        let commit = Commit::seal(&effects, id, Seq::ZERO).with_precondition(Precondition::MustNotExist);
        let commit = commit.with_event(NewEvent::user_message("no beginning"));
        let error = hasty(folder.path()).await.commit(commit).await.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Conflict { .. }), "{pointed}: {error:?}");
    }
}

/// A session that somebody who takes no locks puts there at the last moment is the session; any other refusal
/// of its name is an error, and leaves nothing behind.
#[tokio::test]
async fn concurrently_created_session_is_kept() {
    let effects = Effects::default();
    let id = effects.new_session_id();
    let create = || Commit::create(&effects, NewSession::new(id, WorkspaceId::DEFAULT));
    for replayed in [true, false] {
        let [folder, other] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let first = create();
        hasty(other.path()).await.commit(first.clone()).await.unwrap();
        let (store, spy) = watched(folder.path()).await;
        let (from, to) = (folder_of(other.path(), id), folder_of(folder.path(), id));
        spy.fail(move |_, call| {
            (call.name == "rename" && call.path == to).then(|| {
                fs::rename(&from, &to).unwrap();
                ENOTEMPTY
            })
        });
        match store.commit(if replayed { first } else { create() }).await {
            Ok(done) => assert!(replayed && done.replayed),
            Err(error) => assert!(!replayed && matches!(error.kind(), ErrorKind::Conflict { .. }), "{error}"),
        }
        assert_eq!(spy.heal(), 1);
    }
    for (errno, outcome) in [(EACCES, WriteOutcome::NotApplied), (EIO, WriteOutcome::Unknown)] {
        let folder = tempfile::tempdir().unwrap();
        let (store, spy) = watched(folder.path()).await;
        spy.fail(on("rename", &id.to_string(), errno));
        let error = store.commit(create()).await.unwrap_err();
        assert_eq!(error.write_outcome(), outcome, "{error}");
        spy.heal();
        let sessions = folder_of(folder.path(), id).parent().unwrap().to_owned();
        assert_eq!(fs::read_dir(sessions).unwrap().count(), 0);
    }
}

// --- leases and locks ------------------------------------------------------------------------------------------------

/// Begins a run, and returns its epoch.
async fn begun(store: &FsStore, effects: &Effects, id: SessionId) -> agent_core::Epoch {
    let commit = Commit::seal(effects, id, head(store, id).await)
        .with_event(NewEvent::user_message("hello"))
        .with_trigger(Trigger::BeginRun(LeaseRequest::new("me", effects.new_run_id())));
    store.commit(commit).await.unwrap().epoch.unwrap()
}

async fn ended(store: &FsStore, effects: &Effects, id: SessionId) {
    let lease = SessionStore::load(store, id).await.unwrap().lease.clone().unwrap();
    let commit = Commit::seal(effects, id, head(store, id).await)
        .with_fence(lease.run, lease.epoch)
        .with_event(NewEvent::agent_message("Hello."))
        .with_trigger(Trigger::EndRun(RunEnd::Completed(Reason::EndTurn)));
    store.commit(commit).await.unwrap();
}

/// The runs of one process make one file of leases; each run has heartbeats of its own, and its holder's death shows, also
/// after a run of another process.
#[tokio::test]
async fn runs_of_one_process_share_a_lease_file() {
    let folder = tempfile::tempdir().unwrap();
    let effects = Effects::default();
    let (store, spy) = watched(folder.path()).await;
    let (other, reader) = (hasty(folder.path()).await, hasty(folder.path()).await);
    let id = session(&store, &effects).await.id;
    begun(&store, &effects, id).await;
    ended(&store, &effects, id).await;
    spy.take();
    let second = begun(&store, &effects, id).await;
    store.leases().heartbeat(id, second).await.unwrap();
    let status = reader.leases().status(id, second).await.unwrap();
    assert_eq!((status.heartbeat, status.holder_proven_dead), (1, false));
    ended(&store, &effects, id).await;
    let made: Vec<_> = spy.take().into_iter().filter(|call| call.name != "append" && call.writes()).collect();
    let (log, lease) = ("events.jsonl", "lease");
    // The file was opened under another name.
    let file = |call: &Call| if call.file() == log { log } else { lease };
    let names: Vec<_> = made.iter().map(|call| (call.name, file(call))).collect();
    let commit = [("write", log), ("sync", log)];
    let run = [("write", lease), commit[0], commit[1], ("write", lease), commit[0], commit[1]];
    assert_eq!(names, run, "the lease, its commit, a heartbeat, and the end");
    begun(&other, &effects, id).await;
    ended(&other, &effects, id).await;
    let third = begun(&store, &effects, id).await;
    let status = reader.leases().status(id, third).await.unwrap();
    assert_eq!((status.heartbeat, status.holder_proven_dead), (0, false));
    other.leases().heartbeat(id, second).await.unwrap();
    assert_eq!(
        reader.leases().status(id, third).await.unwrap().heartbeat,
        0,
        "a heartbeat of an earlier run"
    );
    drop(other);
    assert!(!reader.leases().status(id, third).await.unwrap().holder_proven_dead);
    drop(store);
    assert!(reader.leases().status(id, third).await.unwrap().holder_proven_dead);
}

/// Who holds a lease is alive while it writes, is read and is rebuilt: its lock goes with the lease and not before.
#[tokio::test]
async fn holder_lock_lasts_as_long_as_the_lease() {
    let folder = tempfile::tempdir().unwrap();
    let effects = Effects::default();
    let store = FsStore::open(folder.path()).await.unwrap();
    let id = session(&store, &effects).await.id;
    let commit = Commit::seal(&effects, id, Seq::new(1))
        .with_event(NewEvent::user_message("hello"))
        .with_trigger(Trigger::BeginRun(LeaseRequest::new("me", effects.new_run_id())));
    let done = store.commit(commit).await.unwrap();
    let (epoch, mut seen) = (done.epoch.unwrap(), done.last);
    let elsewhere = hasty(folder.path()).await;
    for _ in 0..2 {
        seen = append_text(&store, &effects, id, seen, "more").await;
        assert!(!elsewhere.leases().status(id, epoch).await.unwrap().holder_proven_dead);
        seen = append_text(&elsewhere, &effects, id, seen, "theirs").await;
        assert_eq!(store.maintenance().rebuild().await.unwrap().sessions, 1);
        assert!(!elsewhere.leases().status(id, epoch).await.unwrap().holder_proven_dead);
    }
}

/// A lock that could not be given back goes when the files are closed, so that others can write: after a commit,
/// after one that was refused, and after a rebuild.
#[tokio::test]
async fn failed_unlock_still_frees_the_lock() {
    let folder = tempfile::tempdir().unwrap();
    let effects = Effects::default();
    let (store, spy) = watched(folder.path()).await;
    let other = FsConfig::new(folder.path()).with_lock_wait(Duration::from_millis(200)).open().await.unwrap();
    let id = session(&store, &effects).await.id;
    let mut seen = Seq::new(1);
    for step in 0..3 {
        seen = append_text(&store, &effects, id, seen, "mine").await;
        // The lock of the session, which is unlocked by its open file.
        spy.fail(move |_, call| {
            (call.name == "unlock" && call.path.parent().unwrap().ends_with("sessions")).then_some(EIO)
        });
        match step {
            0 => seen = append_text(&store, &effects, id, seen, "mine").await,
            1 => {
                let commit =
                    Commit::seal(&effects, id, seen).with_precondition(Precondition::Matches(Seq::new(1)));
                store.commit(commit.with_event(NewEvent::user_message("refused"))).await.unwrap_err();
            }
            _ => assert!(store.maintenance().rebuild().await.is_ok()),
        }
        assert!(spy.heal() > 0, "{step}");
        seen = append_text(&other, &effects, id, seen, "theirs").await;
    }
}

/// Who waits for a lock in vain is told so in a way that nobody waits anew for, also behind others of the same process.
#[tokio::test]
#[allow(clippy::print_stdout, reason = "what was measured is printed")]
async fn callers_behind_a_lock_wait_only_once() {
    let folder = tempfile::tempdir().unwrap();
    let effects = Effects::default();
    let wait = Duration::from_secs(1);
    let store = FsConfig::new(folder.path()).with_lock_wait(wait).open().await.unwrap();
    let id = session(&store, &effects).await.id;
    let lock = fs::File::open(folder_of(folder.path(), id)).unwrap();
    lock.try_lock().unwrap();
    let mut waits = Vec::new();
    for count in [1, 50] {
        let begun = tokio::time::Instant::now();
        let mut tasks = tokio::task::JoinSet::new();
        for n in 0..count {
            let event = NewEvent::user_message(format!("one of {count}: {n}"));
            let (store, commit) = (store.clone(), Commit::seal(&effects, id, Seq::new(1)).with_event(event));
            tasks.spawn(async move { store.commit_with_retry(commit).await });
        }
        for done in tasks.join_all().await {
            let error = done.unwrap_err();
            assert!(error.is_timeout() && error.is_retryable(), "{error:?}");
            assert_eq!(error.write_outcome(), WriteOutcome::NotApplied);
        }
        waits.push(begun.elapsed());
    }
    println!("where {wait:?} are set one waits {:?}, and 50 at once {:?}", waits[0], waits[1]);
    // Waits one after another, or again and again, take four times as long and more.
    assert!(waits.iter().all(|waited| *waited < wait * 5 / 2), "{waits:?}");
    lock.unlock().unwrap();
    append_text(&store, &effects, id, Seq::new(1), "at last").await;
}

/// A store that was closed has brought its files up to date and given back its lease, at once, and refuses whatever comes
/// through its clones and tenants.
#[tokio::test]
async fn closed_store_releases_its_files_and_lease() {
    let folder = tempfile::tempdir().unwrap();
    let effects = Effects::default();
    let store = FsConfig::new(folder.path()).with_transcripts(true).open().await.unwrap();
    let id = session(&store, &effects).await.id;
    let record = agent_core::model::Workspace::new(WorkspaceId::DEFAULT, "home", id, effects.now());
    agent_core::WorkspaceStore::put(&store, record, Precondition::MustNotExist).await.unwrap();
    let commit = Commit::seal(&effects, id, Seq::new(1))
        .with_event(NewEvent::user_message("what was said last"))
        .with_trigger(Trigger::BeginRun(LeaseRequest::new("me", effects.new_run_id())));
    let done = store.commit(commit).await.unwrap();
    let (clone, other) = (store.clone(), store.for_tenant(&"other".parse().unwrap()));
    let waiting = tokio::spawn({
        let store = store.clone();
        async move { store.changed(id, done.last).await }
    });
    store.close().await.unwrap();
    store.close().await.unwrap();
    let text = fs::read_to_string(folder_of(folder.path(), id).join("../../session.md")).unwrap();
    assert!(text.contains("what was said last"));
    let elsewhere = hasty(folder.path()).await;
    assert!(elsewhere.leases().status(id, done.epoch.unwrap()).await.unwrap().holder_proven_dead);
    let late = Commit::seal(&effects, id, done.last).with_event(NewEvent::user_message("late"));
    let errors = [
        clone.commit(late).await.unwrap_err(),
        SessionStore::load(&clone, id).await.unwrap_err(),
        SessionStore::list(&other, agent_core::store::SessionQuery::new()).await.unwrap_err(),
        agent_core::BindingStore::resolve(&other, &"laptop".parse().unwrap()).await.unwrap_err(),
        tokio::time::timeout(Duration::from_secs(60), waiting).await.unwrap().unwrap().unwrap_err(),
    ];
    for error in errors {
        assert_eq!(
            (error.kind(), error.write_outcome()),
            (&ErrorKind::Unavailable, WriteOutcome::NotApplied)
        );
        assert!(error.to_string().ends_with("was closed; open it again"), "{error}");
    }
    assert_eq!(head(&elsewhere, id).await, done.last);
}

// --- what is left ----------------------------------------------------------------------------------------------------

/// No more sessions are kept open than may be.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn open_sessions_stay_within_the_limit() {
    let folder = tempfile::tempdir().unwrap();
    let effects = Effects::default();
    let store = FsConfig::new(folder.path()).with_open_sessions(4).open().await.unwrap();
    for _ in 0..20 {
        let id = session(&store, &effects).await.id;
        append_text(&store, &effects, id, Seq::new(1), "hello").await;
    }
    let open = || {
        let files =
            fs::read_dir("/proc/self/fd").unwrap().filter_map(|fd| fs::read_link(fd.unwrap().path()).ok());
        files.filter(|path| path.starts_with(folder.path()) && path.ends_with("events.jsonl")).count()
    };
    // Closing goes on behind what is asked for.
    for _ in 0..100 {
        if open() <= 4 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("{} sessions are open", open());
}

/// A session that is closed leaves little to fold for the next who opens it; where its log was replaced meanwhile,
/// it leaves nothing.
#[tokio::test]
async fn closing_writes_no_snapshot_of_a_replaced_log() {
    let folder = tempfile::tempdir().unwrap();
    let effects = Effects::default();
    for purged in [false, true] {
        let store = hasty(folder.path()).await;
        let id = session(&store, &effects).await.id;
        fill(&store, &effects, id, 25).await;
        let snapshot = folder_of(folder.path(), id).join("session.json");
        let length = fs::metadata(log_of(folder.path(), id)).unwrap().len();
        assert!((5000..16000).contains(&length) && !snapshot.exists(), "{length}");
        if purged {
            let other = hasty(folder.path()).await;
            let head = other
                .sessions(&effects)
                .trigger(id, Trigger::Delete(Reason::UserDeleted))
                .await
                .unwrap()
                .last;
            other.purge(Purge::new(id, head).with_keep_through(Seq::new(1))).await.unwrap();
            assert!(!snapshot.exists());
        }
        drop(store);
        assert_eq!(snapshot.exists(), !purged);
    }
    // Of a short log there is little to fold, and nothing is written.
    let store = hasty(folder.path()).await;
    let id = session(&store, &effects).await.id;
    append_text(&store, &effects, id, Seq::new(1), "hello").await;
    drop(store);
    assert!(!folder_of(folder.path(), id).join("session.json").exists());
}

/// A purge that fails half way leaves nothing new that is made of the log, and a rebuild goes by what was purged.
#[tokio::test]
async fn failed_purge_leaves_no_new_files() {
    let folder = tempfile::tempdir().unwrap();
    let effects = Effects::default();
    let (store, spy) = watched(folder.path()).await;
    let id = session(&store, &effects).await.id;
    fill(&store, &effects, id, 25).await;
    let head = store.sessions(&effects).trigger(id, Trigger::Delete(Reason::UserDeleted)).await.unwrap().last;
    let snapshot = folder_of(folder.path(), id).join("session.json");
    spy.fail(on("rename", "events.jsonl", EIO));
    store.purge(Purge::new(id, head)).await.unwrap_err();
    drop(store);
    assert!(!snapshot.exists());
    spy.heal();
    let store = hasty(folder.path()).await;
    let record = SessionStore::load(&store, id).await.unwrap();
    store.purge(Purge::new(id, head)).await.unwrap();
    assert_eq!(store.maintenance().rebuild().await.unwrap().sessions, 1);
    assert!(!snapshot.exists());
    assert_eq!(SessionStore::load(&hasty(folder.path()).await, id).await.unwrap(), record);
}

/// Of a long log a purge keeps what is asked for, and not one byte more.
#[tokio::test]
async fn purge_of_a_long_log_keeps_exactly_the_request() {
    let folder = tempfile::tempdir().unwrap();
    let effects = Effects::default();
    let store = hasty(folder.path()).await;
    let id = session(&store, &effects).await.id;
    fill(&store, &effects, id, 1000).await;
    let log = log_of(folder.path(), id);
    let whole = fs::read(&log).unwrap();
    let head = store.sessions(&effects).trigger(id, Trigger::Delete(Reason::UserDeleted)).await.unwrap().last;
    store.purge(Purge::new(id, head).with_keep_through(Seq::new(500))).await.unwrap();
    let kept: Vec<_> = whole.split_inclusive(|byte| *byte == b'\n').take(500).collect();
    assert!(kept.concat().len() > 100_000);
    assert!(fs::read(&log).unwrap() == kept.concat());
}

/// A rebuild makes the snapshot anew, whatever was there.
#[tokio::test]
async fn rebuild_recreates_the_snapshot() {
    let folder = tempfile::tempdir().unwrap();
    let effects = Effects::default();
    let store = hasty(folder.path()).await;
    let id = session(&store, &effects).await.id;
    let snapshot = folder_of(folder.path(), id).join("session.json");
    fs::write(&snapshot, "rubbish").unwrap();
    assert_eq!(store.maintenance().rebuild().await.unwrap().sessions, 1);
    assert!(fs::read_to_string(&snapshot).unwrap().starts_with("{\"format\":6,\"offset\":"));
}

/// Who waits for a change through the same store is told at once, and not at the next look.
#[tokio::test(start_paused = true)]
async fn change_through_the_same_store_notifies_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let effects = Effects::default();
    let store = hasty(folder.path()).await;
    let id = session(&store, &effects).await.id;
    for seen in 1..4 {
        let waiting = tokio::spawn({
            let store = store.clone();
            async move { store.changed(id, Seq::new(seen)).await.unwrap() }
        });
        // The clock goes on by itself while nothing is done, and stands still while files are worked on.
        tokio::time::sleep(Duration::from_millis(1234)).await;
        let before = tokio::time::Instant::now();
        append_text(&store, &effects, id, Seq::new(seen), "hello").await;
        assert_eq!(waiting.await.unwrap(), Seq::new(seen + 1));
        assert_eq!(before.elapsed(), Duration::ZERO);
    }
}

/// A log that somebody cut within its last commit, under a handle that saw that commit acknowledged, is damage to
/// whoever writes, loads, reads or waits there, at once; nothing is cut off or written. With the rest back all goes on.
#[tokio::test]
async fn log_truncated_under_a_handle_is_damage() {
    let folder = tempfile::tempdir().unwrap();
    let effects = Effects::default();
    let store = hasty(folder.path()).await;
    let id = session(&store, &effects).await.id;
    let seen = append_text(&store, &effects, id, Seq::new(1), "first").await;
    let seen = append_text(&store, &effects, id, seen, "second").await;
    let log = log_of(folder.path(), id);
    let whole = fs::read(&log).unwrap();
    for cut in [1, 10, 100] {
        let left = &whole[..whole.len() - cut];
        fs::write(&log, left).unwrap();
        for _ in 0..2 {
            let events = vec![NewEvent::user_message("third")];
            for error in [
                store.sessions(&effects).append(id, seen, events).await.unwrap_err(),
                SessionStore::load(&store, id).await.unwrap_err(),
                store.read(id, ReadEvents::last(10)).await.unwrap_err(),
                store.changed(id, seen).await.unwrap_err(),
            ] {
                assert_eq!(*error.kind(), ErrorKind::Corrupt, "{error}");
                assert!(error.to_string().contains("was cut by another program"), "{error}");
            }
        }
        assert_eq!(fs::read(&log).unwrap(), left);
        assert!(!folder_of(folder.path(), id).join("session.json").exists());
        fs::write(&log, &whole).unwrap();
        assert_eq!(head(&store, id).await, seen);
    }
    append_text(&store, &effects, id, seen, "third").await;
    assert_eq!(texts(&store, id).await, ["first", "second", "third"]);
}
