//! Every call to the system failed once, in what is done with blobs: put, commit, create, sweep, purge.

use std::path::Path;
use std::sync::Arc;

use crate::support::{EIO, EMFILE, ENOSPC, LARGE, Spy, content, hasty, naming, put, read_whole, session};
use agent_core::clock::Effects;
use agent_core::commit::{Commit, Trigger};
use agent_core::session::NewSession;
use agent_core::state::Reason;
use agent_core::store::{Purge, ReadEvents, SweepBlobs};
use agent_core::{
    BlobName, ErrorKind, Result, Seq, SessionId, SessionStore, SessionStoreExt, WorkspaceId, WriteOutcome,
};
use agent_storage_fs::{FsConfig, FsStore};

const STEPS: usize = 6;

/// A store with blobs in every place.
struct Life {
    effects: Effects,
    /// It names one blob, and has one that no event names.
    live: SessionId,
    named: BlobName,
    orphan: BlobName,
    /// Not created yet; a blob was put for it.
    coming: SessionId,
    /// It was put for the live session before that was created.
    early: BlobName,
    deleted: SessionId,
    head: Seq,
}

impl Life {
    async fn new(root: &Path) -> Self {
        let (effects, store) = (Effects::default(), hasty(root).await);
        let (live, coming) = (effects.new_session_id(), effects.new_session_id());
        let early = put(&store, live, &content(1, LARGE)).await.unwrap();
        let new = NewSession::new(live, WorkspaceId::DEFAULT);
        store.sessions(&effects).create(new).await.unwrap();
        let named = put(&store, live, b"named").await.unwrap();
        store.sessions(&effects).append(live, Seq::new(1), vec![naming(&[named])]).await.unwrap();
        let orphan = put(&store, live, b"orphan").await.unwrap();
        put(&store, coming, &content(1, LARGE)).await.unwrap();
        let deleted = session(&store, &effects).await.id;
        let name = put(&store, deleted, &content(2, LARGE)).await.unwrap();
        store.sessions(&effects).append(deleted, Seq::new(1), vec![naming(&[name])]).await.unwrap();
        let head = store
            .sessions(&effects)
            .trigger(deleted, Trigger::Delete(Reason::UserDeleted))
            .await
            .unwrap()
            .last;
        Self { effects, live, named, orphan, coming, early, deleted, head }
    }

    async fn step(&self, store: &FsStore, step: usize) -> Result<()> {
        match step {
            0 => put(store, self.live, &content(3, LARGE)).await.map(drop),
            1 => {
                let commit = Commit::seal(&self.effects, self.live, Seq::new(1));
                store.commit(commit.with_event(naming(&[self.early]))).await.map(drop)
            }
            2 => {
                let new = Commit::create(&self.effects, NewSession::new(self.coming, WorkspaceId::DEFAULT));
                store.commit(new.with_event(naming(&[self.early]))).await.map(drop)
            }
            3 => store.blobs().sweep(SweepBlobs::of(self.live)).await.map(drop),
            4 => store.blobs().sweep(SweepBlobs::without_session()).await.map(drop),
            _ => store.purge(Purge::new(self.deleted, self.head)).await.map(drop),
        }
    }

    /// Whether a step has happened for certain, and whether a part of it may have.
    async fn happened(&self, store: &FsStore, step: usize, context: &str) -> Option<bool> {
        let is_there = async |id, name| match read_whole(store, id, name).await {
            Ok(_) => true,
            Err(error) => {
                assert_eq!(*error.kind(), ErrorKind::NotFound, "{context}: {error}");
                false
            }
        };
        match step {
            // The sweep behind it may have removed it.
            0 | 4 => None,
            1 => {
                let head = SessionStore::load(store, self.live).await.unwrap().head;
                Some(head > Seq::new(2))
            }
            2 => match SessionStore::load(store, self.coming).await {
                Ok(_) => Some(true),
                Err(error) => {
                    assert_eq!(*error.kind(), ErrorKind::NotFound, "{context}: {error}");
                    Some(false)
                }
            },
            3 => Some(!is_there(self.live, self.orphan).await),
            _ => {
                let page = store.read(self.deleted, ReadEvents::first(10)).await.unwrap();
                Some(page.events.is_empty())
            }
        }
    }

    /// Every blob that an event names is there whole.
    async fn named_are_whole(&self, store: &FsStore, context: &str) {
        assert_eq!(read_whole(store, self.live, self.named).await.unwrap(), b"named", "{context}");
        for id in [self.live, self.coming, self.deleted] {
            let events = match store.read(id, ReadEvents::first(100)).await {
                Ok(page) => page.events,
                Err(error) if *error.kind() == ErrorKind::NotFound => continue,
                Err(error) => panic!("{context}: {error:?}"),
            };
            for name in events.iter().flat_map(|event| event.blobs.iter()) {
                let read = read_whole(store, id, *name).await;
                read.unwrap_or_else(|error| panic!("{context}: named and not there: {error:?}"));
            }
        }
    }
}

/// Fails one call of all, or all from one on; tries this with every third call, or with every one where `.ci/full` runs it.
async fn run(persistent: bool, errno: i32) {
    let every = if std::env::var_os("AGENT_TEST_THOROUGH").is_some() { 1 } else { 3 };
    let mut fired = 0;
    for n in (0..).step_by(every) {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let life = Life::new(root).await;
        let spy = Spy::new();
        let store = FsConfig::new(root).with_io(Arc::new(spy.clone())).open().await.unwrap();
        spy.take();
        spy.fail(move |index, _| (index == n || (persistent && index > n)).then_some(errno));
        let mut outcome = Vec::new();
        for step in 0..STEPS {
            outcome.push(life.step(&store, step).await);
        }
        let calls = spy.take();
        drop(store);
        if spy.heal() == 0 {
            break;
        }
        fired += 1;
        let store = hasty(root).await;
        let failed = calls.get(n);
        life.named_are_whole(&store, &format!("call {n}, {failed:?}, failed with {errno}")).await;
        for (step, outcome) in outcome.iter().enumerate() {
            let context = format!("step {step}, {outcome:?}; call {n}, {failed:?}, failed with {errno}");
            let happened = life.happened(&store, step, &context).await;
            match outcome {
                Ok(()) => assert!(happened != Some(false), "{context}: acknowledged"),
                Err(error) if error.write_outcome() == WriteOutcome::NotApplied => {
                    assert!(happened != Some(true), "{context}: said not to have happened");
                }
                Err(_) => {}
            }
            // It can be done, or done again. A sweep may have removed what a later commit was to name.
            if happened != Some(true) || step > 2 {
                if step == 1 || step == 2 {
                    let id = if step == 1 { life.live } else { life.coming };
                    put(&store, id, &content(1, LARGE)).await.unwrap();
                }
                let again = life.step(&store, step).await;
                again.unwrap_or_else(|error| panic!("{context}: then {error:?}"));
                assert!(life.happened(&store, step, &context).await != Some(false), "{context}: then");
            }
            life.named_are_whole(&store, &context).await;
        }
    }
    assert!(fired > 60 / every, "only {fired} calls were failed");
}

/// Calls fail, each once.
#[tokio::test]
async fn failed_call_loses_no_blob() {
    run(false, EIO).await;
}

/// Calls find no more file handles, each once.
#[tokio::test]
async fn exhausted_file_handles_lose_no_blob() {
    run(false, EMFILE).await;
}

/// The disk fills up at a call.
#[tokio::test]
async fn full_disk_loses_no_blob() {
    run(true, ENOSPC).await;
}

/// Each call of a put fails once: what is said not to have happened has left nothing, and the put succeeds when it is
/// sent again.
#[tokio::test]
async fn failed_put_leaves_nothing_and_succeeds_later() {
    let effects = Effects::default();
    for is_early in [false, true] {
        for n in 0.. {
            let folder = tempfile::tempdir().unwrap();
            let root = folder.path();
            let spy = Spy::new();
            let store = FsConfig::new(root).with_io(Arc::new(spy.clone())).open().await.unwrap();
            let id = if is_early { effects.new_session_id() } else { session(&store, &effects).await.id };
            let bytes = content(1, LARGE);
            // A call that only tidies up may fail unseen, and leaves what a sweep removes.
            spy.fail(move |index, call| (index == n && !call.name.starts_with("remove")).then_some(EIO));
            let done = put(&store, id, &bytes).await;
            if spy.heal() == 0 && n > 60 {
                break;
            }
            let blobs = match is_early {
                true => root.join("blobs").join(id.to_string()),
                false => crate::support::folder_of(root, id).join("blobs"),
            };
            if let Err(error) = done
                && error.write_outcome() == WriteOutcome::NotApplied
            {
                assert_eq!(crate::support::names_in(&blobs), [""; 0], "call {n}: {error}");
            }
            let name = put(&store, id, &bytes).await.unwrap_or_else(|error| panic!("call {n}: {error:?}"));
            assert!(read_whole(&store, id, name).await.unwrap() == bytes, "call {n}");
        }
    }
}

/// A lost blob of a deleted session is put again, and each call of that fails once. The answer is what failed, and not that
/// the session takes no blobs.
#[tokio::test]
async fn failed_restore_names_its_cause() {
    let effects = Effects::default();
    for n in 0.. {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let spy = Spy::new();
        let store = FsConfig::new(root).with_io(Arc::new(spy.clone())).open().await.unwrap();
        let session = session(&store, &effects).await;
        let (id, bytes) = (session.id, content(1, LARGE));
        let name = put(&store, id, &bytes).await.unwrap();
        let event = naming(&[name]);
        store.sessions(&effects).append(id, session.head, vec![event]).await.unwrap();
        store.sessions(&effects).trigger(id, Trigger::Delete(Reason::UserDeleted)).await.unwrap();
        std::fs::remove_dir_all(crate::support::folder_of(root, id).join("blobs")).unwrap();
        spy.fail(move |index, call| (index == n && !call.name.starts_with("remove")).then_some(EIO));
        let done = put(&store, id, &bytes).await;
        if spy.heal() == 0 && n > 60 {
            break;
        }
        if let Err(error) = done {
            assert_ne!(*error.kind(), ErrorKind::Deleted, "call {n}: {error}");
        }
        put(&store, id, &bytes).await.unwrap_or_else(|error| panic!("call {n}: {error:?}"));
        assert!(read_whole(&store, id, name).await.unwrap() == bytes, "call {n}");
    }
}
