//! Blobs while another handle works on the same session: at each step of a put, a commit, a sweep and a purge.

use std::fs;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::support::{
    Call, EIO, LARGE, Spy, content, folder_of, hasty, names_in, naming, put, read_whole, session, watched,
};
use agent_core::clock::Effects;
use agent_core::commit::{Commit, Trigger};
use agent_core::session::NewSession;
use agent_core::state::Reason;
use agent_core::store::{Purge, SweepBlobs};
use agent_core::{
    BlobName, ErrorKind, Result, Seq, SessionId, SessionStore, SessionStoreExt, WorkspaceId, WriteOutcome,
};
use agent_storage_fs::{FsConfig, FsStore, Sync};

/// A handle that gives up at once if something is locked.
async fn impatient(root: &Path) -> FsStore {
    let config = FsConfig::new(root).with_sync(Sync::Off).with_lock_wait(Duration::ZERO);
    config.open().await.unwrap()
}

/// Runs something in the midst of a call of another handle, which it does not wait for.
fn meanwhile(spy: &Spy, at: impl Fn(usize, &Call) -> bool + Send + std::marker::Sync + 'static, work: Work) {
    let (runtime, work, todo) = (tokio::runtime::Handle::current(), Arc::new(work), AtomicBool::new(true));
    spy.fail(move |n, call| {
        if at(n, call) && todo.swap(false, Ordering::Relaxed) {
            runtime.block_on(work());
        }
        None
    });
}

type Work = Box<dyn Fn() -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + std::marker::Sync>;

fn work<F: Future<Output = ()> + Send + 'static>(
    make: impl Fn() -> F + Send + std::marker::Sync + 'static,
) -> Work {
    Box::new(move || Box::pin(make()))
}

fn early_of(root: &Path, id: SessionId) -> PathBuf {
    root.join("blobs").join(id.to_string())
}

fn blobs_of(root: &Path, id: SessionId) -> PathBuf {
    folder_of(root, id).join("blobs")
}

async fn delete_and_purge(store: &FsStore, effects: &Effects, id: SessionId) -> Result<()> {
    store.sessions(effects).trigger(id, Trigger::Delete(Reason::UserDeleted)).await?;
    let head = SessionStore::load(store, id).await?.head;
    store.purge(Purge::new(id, head)).await.map(drop)
}

async fn commit_naming(store: &FsStore, effects: &Effects, id: SessionId, names: &[BlobName]) -> Result<()> {
    let commit = Commit::seal(effects, id, Seq::new(1)).with_event(naming(names));
    store.commit(commit).await.map(drop)
}

fn create_naming(effects: &Effects, id: SessionId, names: &[BlobName]) -> Commit {
    Commit::create(effects, NewSession::new(id, WorkspaceId::DEFAULT)).with_event(naming(names))
}

/// A session is deleted and purged at each step of a put. The put answers `Deleted`, or was before that; nothing of it
/// stays.
#[tokio::test(flavor = "multi_thread")]
async fn put_during_a_purge_reports_deleted() {
    let effects = Effects::default();
    let (mut refused, mut stored) = (0, 0);
    for (size, is_early) in [(LARGE, false), (100, false), (LARGE, true)] {
        for step in 0.. {
            let folder = tempfile::tempdir().unwrap();
            let root = folder.path();
            let id = effects.new_session_id();
            let other = impatient(root).await;
            let new = NewSession::new(id, WorkspaceId::DEFAULT);
            if !is_early {
                other.sessions(&effects).create(new.clone()).await.unwrap();
            }
            let (store, spy) = watched(root).await;
            let (purger, of) = (other.clone(), effects.clone());
            let purge = move || {
                let (store, effects, new) = (purger.clone(), of.clone(), new.clone());
                async move {
                    // Nothing of it if the other handle holds the lock at this step.
                    if is_early && store.sessions(&effects).create(new).await.is_err() {
                        return;
                    }
                    let _ = delete_and_purge(&store, &effects, id).await;
                }
            };
            meanwhile(&spy, move |n, _| n == step, work(purge));
            let done = put(&store, id, &content(1, size)).await;
            let calls = spy.take().len();
            spy.heal();
            let context = format!("{size} bytes, early: {is_early}, step {step}: {done:?}");
            match &done {
                Err(error) => {
                    assert_eq!(
                        (error.kind(), error.write_outcome()),
                        (&ErrorKind::Deleted, WriteOutcome::NotApplied),
                        "{context}"
                    );
                    refused += 1;
                }
                Ok(_) => {
                    stored += 1;
                    if is_early && SessionStore::load(&other, id).await.is_err() {
                        let new = NewSession::new(id, WorkspaceId::DEFAULT);
                        other.sessions(&effects).create(new).await.unwrap();
                    }
                    if SessionStore::load(&other, id).await.unwrap().head == Seq::new(1) {
                        delete_and_purge(&other, &effects, id).await.unwrap();
                    }
                }
            }
            assert!(!blobs_of(root, id).exists(), "{context}: {:?}", names_in(&blobs_of(root, id)));
            assert!(!early_of(root, id).exists(), "{context}: {:?}", names_in(&early_of(root, id)));
            if step > calls {
                break;
            }
        }
    }
    assert!(refused > 20 && stored > 10, "{refused} {stored}");
}

/// Another handle sweeps, puts the same blob, or creates the session at each step of a put. The put succeeds.
#[tokio::test(flavor = "multi_thread")]
async fn others_at_each_step_of_a_put_spoil_nothing() {
    let effects = Effects::default();
    let bytes = content(1, LARGE);
    let mut steps = 0;
    for what in ["sweep", "put", "create"] {
        for is_early in [true, false] {
            for step in 0.. {
                let folder = tempfile::tempdir().unwrap();
                let root = folder.path();
                let id = effects.new_session_id();
                let other = impatient(root).await;
                let new = NewSession::new(id, WorkspaceId::DEFAULT);
                if !is_early {
                    other.sessions(&effects).create(new.clone()).await.unwrap();
                }
                let (store, spy) = watched(root).await;
                let (beside, of, same) = (other.clone(), effects.clone(), bytes.clone());
                let busy = move || {
                    let (store, effects, bytes) = (beside.clone(), of.clone(), same.clone());
                    let new = new.clone();
                    async move {
                        match what {
                            "sweep" => {
                                let _ = store.blobs().sweep(SweepBlobs::of(id)).await;
                                let _ = store.blobs().sweep(SweepBlobs::without_session()).await;
                            }
                            "put" => drop(put(&store, id, &bytes).await),
                            _ => drop(store.sessions(&effects).create(new).await),
                        }
                    }
                };
                meanwhile(&spy, move |n, _| n == step, work(busy));
                let done = put(&store, id, &bytes).await;
                let calls = spy.take().len();
                spy.heal();
                let context = format!("{what}, early: {is_early}, step {step} of {calls}");
                let name = done.unwrap_or_else(|error| panic!("{context}: {error:?}"));
                // A sweep behind the step that gave it its name has removed it.
                match read_whole(&other, id, name).await {
                    Ok(read) => assert!(read == bytes, "{context}"),
                    Err(error) => assert!(
                        what == "sweep" && *error.kind() == ErrorKind::NotFound,
                        "{context}: {error:?}"
                    ),
                }
                let sum = format!("{name}.sums");
                for name in names_in(&blobs_of(root, id)).iter().chain(&names_in(&early_of(root, id))) {
                    assert!(*name == sum || *name == sum[..64], "{context}: {name} is left");
                }
                steps += 1;
                if step > calls {
                    break;
                }
            }
        }
    }
    assert!(steps > 100, "{steps}");
}

/// Another handle sweeps at each step of a commit that names a blob. The commit has its blob, or was not applied.
#[tokio::test(flavor = "multi_thread")]
async fn sweep_at_each_step_of_a_commit_loses_nothing() {
    let effects = Effects::default();
    let bytes = content(1, LARGE);
    let (mut applied, mut refused) = (0, 0);
    for kind in ["own", "early", "create"] {
        for step in 0.. {
            let folder = tempfile::tempdir().unwrap();
            let root = folder.path();
            let id = effects.new_session_id();
            let other = impatient(root).await;
            let new = NewSession::new(id, WorkspaceId::DEFAULT);
            if kind == "own" {
                other.sessions(&effects).create(new.clone()).await.unwrap();
            }
            let name = put(&other, id, &bytes).await.unwrap();
            if kind == "early" {
                other.sessions(&effects).create(new).await.unwrap();
            }
            let (store, spy) = watched(root).await;
            let commit = match kind {
                "create" => create_naming(&effects, id, &[name]),
                _ => Commit::seal(&effects, id, Seq::new(1)).with_event(naming(&[name])),
            };
            let sweeper = other.clone();
            let sweep = move || {
                let store = sweeper.clone();
                async move {
                    let _ = store.blobs().sweep(SweepBlobs::without_session()).await;
                    let _ = store.blobs().sweep(SweepBlobs::of(id)).await;
                }
            };
            meanwhile(&spy, move |n, _| n == step, work(sweep));
            let done = store.commit(commit.clone()).await;
            let calls = spy.take().len();
            spy.heal();
            let context = format!("{kind}, step {step} of {calls}: {:?}", done.as_ref().map(drop));
            match done {
                Ok(_) => applied += 1,
                Err(error) => {
                    refused += 1;
                    assert_eq!(*error.kind(), ErrorKind::BlobMissing { blobs: vec![name] }, "{context}");
                    assert_eq!(error.write_outcome(), WriteOutcome::NotApplied, "{context}");
                    put(&store, id, &bytes).await.unwrap();
                    store.commit(commit).await.unwrap();
                }
            }
            other.blobs().sweep(SweepBlobs::of(id)).await.unwrap();
            assert!(read_whole(&other, id, name).await.unwrap() == bytes, "{context}");
            if step > calls {
                break;
            }
        }
    }
    assert!(applied > 30 && refused > 10, "{applied} {refused}");
}

/// A blob is looked for under the lock that a sweep takes, too.
#[tokio::test(flavor = "multi_thread")]
async fn commit_checks_its_blobs_under_the_lock() {
    let folder = tempfile::tempdir().unwrap();
    let effects = Effects::default();
    let (store, spy) = watched(folder.path()).await;
    let other = impatient(folder.path()).await;
    let id = session(&store, &effects).await.id;
    let name = put(&store, id, b"hello").await.unwrap();
    let sweeper = other.clone();
    let sweep = move || {
        let store = sweeper.clone();
        async move {
            assert_eq!(store.blobs().sweep(SweepBlobs::of(id)).await.unwrap().blobs, 1);
        }
    };
    meanwhile(&spy, |_, call| call.name == "lock", work(sweep));
    let error = commit_naming(&store, &effects, id, &[name]).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::BlobMissing { blobs: vec![name] });
    put(&store, id, b"hello").await.unwrap();
    commit_naming(&store, &effects, id, &[name]).await.unwrap();
    assert_eq!(read_whole(&other, id, name).await.unwrap(), b"hello");
}

/// A sweep reads what the log names under the lock that a commit takes, too.
#[tokio::test(flavor = "multi_thread")]
async fn sweep_keeps_what_is_named_before_its_lock() {
    let folder = tempfile::tempdir().unwrap();
    let effects = Effects::default();
    let (store, spy) = watched(folder.path()).await;
    let other = impatient(folder.path()).await;
    let id = session(&store, &effects).await.id;
    let name = put(&store, id, b"hello").await.unwrap();
    let (writer, of) = (other.clone(), effects.clone());
    let commit = move || {
        let (store, effects) = (writer.clone(), of.clone());
        async move { commit_naming(&store, &effects, id, &[name]).await.unwrap() }
    };
    meanwhile(&spy, |_, call| call.name == "lock", work(commit));
    assert_eq!(store.blobs().sweep(SweepBlobs::of(id)).await.unwrap().blobs, 0);
    assert_eq!(read_whole(&other, id, name).await.unwrap(), b"hello");
}

/// A blob of which the session's folder has a part, after a crash, is read where it is whole.
#[tokio::test]
async fn blob_is_read_from_the_folder_where_it_is_whole() {
    let folder = tempfile::tempdir().unwrap();
    let (root, effects) = (folder.path(), Effects::default());
    let store = hasty(root).await;
    let id = effects.new_session_id();
    let bytes = content(1, LARGE);
    let name = put(&store, id, &bytes).await.unwrap();
    let new = NewSession::new(id, WorkspaceId::DEFAULT);
    store.sessions(&effects).create(new).await.unwrap();
    let own = blobs_of(root, id);
    fs::create_dir(&own).unwrap();
    fs::hard_link(early_of(root, id).join(name.to_string()), own.join(name.to_string())).unwrap();
    assert!(read_whole(&store, id, name).await.unwrap() == bytes);
    // A commit brings the rest.
    commit_naming(&store, &effects, id, &[name]).await.unwrap();
    store.blobs().sweep(SweepBlobs::of(id)).await.unwrap();
    assert!(read_whole(&store, id, name).await.unwrap() == bytes);
    assert_eq!(names_in(&own), [name.to_string(), format!("{name}.sums")]);
}

/// The checksums of a blob that a commit brings from another folder are durable before its name is.
#[tokio::test]
async fn brought_checksums_are_durable_before_the_blob() {
    let folder = tempfile::tempdir().unwrap();
    let (root, effects) = (folder.path(), Effects::default());
    let (store, spy) = watched(root).await;
    let id = effects.new_session_id();
    let name = put(&store, id, &content(1, LARGE)).await.unwrap();
    store.sessions(&effects).create(NewSession::new(id, WorkspaceId::DEFAULT)).await.unwrap();
    spy.take();
    commit_naming(&store, &effects, id, &[name]).await.unwrap();
    let calls = spy.take();
    let changes: Vec<_> = calls
        .iter()
        .filter(|call| matches!(call.name, "hard_link" | "sync_dir" | "write"))
        .map(|call| (call.name, call.file().to_owned()))
        .collect();
    let expected = [
        ("hard_link", format!("{name}.sums")),
        ("sync_dir", "blobs".to_owned()),
        ("hard_link", name.to_string()),
        ("sync_dir", "blobs".to_owned()),
        ("sync_dir", id.to_string()),
        // The first names go: of the blob, then of its checksums with their folder.
        ("sync_dir", id.to_string()),
        ("sync_dir", "blobs".to_owned()),
        ("write", "events.jsonl".to_owned()),
    ];
    assert_eq!(changes, expected);
}

/// The folder of all early blobs, made by a process that was killed at once, is durable before a put is acknowledged.
#[tokio::test]
async fn folder_left_by_a_killed_put_is_synced() {
    let folder = tempfile::tempdir().unwrap();
    let (root, effects) = (folder.path(), Effects::default());
    let (store, spy) = watched(root).await;
    session(&store, &effects).await;
    spy.take();
    fs::create_dir(root.join("blobs")).unwrap();
    put(&store, effects.new_session_id(), b"hello").await.unwrap();
    let calls = spy.take();
    assert!(calls.iter().any(|call| call.name == "sync_dir" && call.path == root), "{calls:?}");
}

/// A purge whose cut was not made durable is not believed by the next one, which removes the blobs.
#[tokio::test]
async fn repeated_purge_syncs_the_cut_before_blobs() {
    let folder = tempfile::tempdir().unwrap();
    let (root, effects) = (folder.path(), Effects::default());
    let (store, spy) = watched(root).await;
    let id = session(&store, &effects).await.id;
    let name = put(&store, id, b"hello").await.unwrap();
    commit_naming(&store, &effects, id, &[name]).await.unwrap();
    store.sessions(&effects).trigger(id, Trigger::Delete(Reason::UserDeleted)).await.unwrap();
    let head = SessionStore::load(&store, id).await.unwrap().head;
    let renamed = AtomicBool::new(false);
    spy.fail(move |_, call| {
        renamed.fetch_or(call.name == "rename" && call.file() == "events.jsonl", Ordering::Relaxed);
        (call.name == "sync_dir" && renamed.load(Ordering::Relaxed)).then_some(EIO)
    });
    let error = store.purge(Purge::new(id, head)).await.unwrap_err();
    assert_eq!(error.write_outcome(), WriteOutcome::Unknown);
    assert!(spy.heal() > 0);
    assert_eq!(names_in(&blobs_of(root, id)), [name.to_string()]);
    spy.take();
    store.purge(Purge::new(id, head)).await.unwrap();
    let calls = spy.take();
    let removed =
        calls.iter().position(|call| call.name == "remove_file" && call.path.starts_with(blobs_of(root, id)));
    let synced = calls.iter().position(|call| call.name == "sync_dir" && call.path == folder_of(root, id));
    assert!(synced.unwrap() < removed.unwrap(), "{calls:?}");
    assert!(!blobs_of(root, id).exists());
}

/// A purge that removed early blobs, and failed before that was durable, is made durable by the next one.
#[tokio::test]
async fn repeated_purge_syncs_what_is_removed() {
    let folder = tempfile::tempdir().unwrap();
    let (root, effects) = (folder.path(), Effects::default());
    let (store, spy) = watched(root).await;
    let id = effects.new_session_id();
    put(&store, id, b"hello").await.unwrap();
    store.sessions(&effects).create(NewSession::new(id, WorkspaceId::DEFAULT)).await.unwrap();
    store.sessions(&effects).trigger(id, Trigger::Delete(Reason::UserDeleted)).await.unwrap();
    let head = SessionStore::load(&store, id).await.unwrap().head;
    let all = root.join("blobs");
    let failing = all.clone();
    spy.fail(move |_, call| (call.name == "sync_dir" && call.path == failing).then_some(EIO));
    let error = store.purge(Purge::new(id, head)).await.unwrap_err();
    assert_eq!((error.write_outcome(), spy.heal()), (WriteOutcome::Unknown, 1));
    assert!(!early_of(root, id).exists());
    spy.take();
    store.purge(Purge::new(id, head)).await.unwrap();
    let calls = spy.take();
    assert!(calls.iter().any(|call| call.name == "sync_dir" && call.path == all), "{calls:?}");
}

/// What stands in the place of a folder of early blobs is named, and keeps nobody else's from being swept.
#[tokio::test]
async fn odd_early_folder_is_named_and_stops_no_sweep() {
    let folder = tempfile::tempdir().unwrap();
    let (root, effects) = (folder.path(), Effects::default());
    let store = hasty(root).await;
    let [first, second, third] =
        [effects.new_session_id(), effects.new_session_id(), effects.new_session_id()];
    for id in [first, third] {
        put(&store, id, b"hello").await.unwrap();
    }
    let odd = early_of(root, second);
    fs::write(&odd, "mine").unwrap();
    let error = store.blobs().sweep(SweepBlobs::without_session()).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Corrupt);
    assert!(error.to_string().contains(&odd.display().to_string()), "{error}");
    assert_eq!(names_in(&root.join("blobs")), [second.to_string()]);
    let damaged = store.maintenance().check().await.unwrap();
    assert_eq!(damaged.len(), 1, "{damaged:?}");
    assert!(damaged[0].object.contains(&second.to_string()), "{damaged:?}");
    assert_eq!(fs::read_to_string(&odd).unwrap(), "mine");
}

/// A commit moves a blob that was put before its session, at each step of a reader, who finds it all the same. The commit
/// leaves no second name of it.
#[tokio::test(flavor = "multi_thread")]
async fn reader_finds_a_blob_that_a_commit_moves() {
    let effects = Effects::default();
    let bytes = content(1, LARGE);
    for is_created in [false, true] {
        for step in 0.. {
            let folder = tempfile::tempdir().unwrap();
            let root = folder.path();
            let id = effects.new_session_id();
            let other = impatient(root).await;
            let name = put(&other, id, &bytes).await.unwrap();
            if is_created {
                let new = NewSession::new(id, WorkspaceId::DEFAULT);
                other.sessions(&effects).create(new).await.unwrap();
            }
            let (reader, spy) = watched(root).await;
            let (writer, effects, moved) = (other.clone(), effects.clone(), Arc::new(AtomicBool::new(false)));
            let done = moved.clone();
            let commit = move || {
                let (store, effects, done) = (writer.clone(), effects.clone(), done.clone());
                async move {
                    if is_created {
                        commit_naming(&store, &effects, id, &[name]).await.unwrap();
                    } else {
                        store.commit(create_naming(&effects, id, &[name])).await.unwrap();
                    }
                    done.store(true, Ordering::Relaxed);
                }
            };
            meanwhile(&spy, move |n, _| n == step, work(commit));
            let read = read_whole(&reader, id, name).await;
            spy.heal();
            let context = format!("created before: {is_created}, step {step}");
            assert!(read.is_ok_and(|read| read == bytes), "{context}");
            if !moved.load(Ordering::Relaxed) {
                assert!(step > 4, "{context}");
                break;
            }
            assert!(!early_of(root, id).exists(), "{context}: {:?}", names_in(&early_of(root, id)));
            assert_eq!(
                other.blobs().sweep(SweepBlobs::without_session().with_dry_run()).await.unwrap().blobs,
                0
            );
        }
    }
}
