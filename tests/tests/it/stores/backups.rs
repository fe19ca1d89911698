//! Backups: a copy that is brought up to date.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use agent_admin::copy::StoreCopy;
use agent_admin::manifest::Manifest;
use agent_admin::verify::verify;
use agent_core::commit::{Commit, Trigger};
use agent_core::event::NewEvent;
use agent_core::session::{NewSession, SessionRecord};
use agent_core::state::Reason;
use agent_core::store::{EventPage, Purge, ReadEvents, SessionStoreWrapper};
use agent_core::{MemoryStore, Result, SessionId, SessionStore, Storage, WorkspaceId, async_trait};
use agent_runtime::WorkspaceManager;
use agent_tests::{Site, each_store};

/// Counts what is read of sessions.
#[derive(Debug)]
struct Counting {
    inner: Arc<dyn SessionStore>,
    loads: AtomicUsize,
    reads: AtomicUsize,
}

#[async_trait]
impl SessionStoreWrapper for Counting {
    fn inner(&self) -> &dyn SessionStore {
        &*self.inner
    }

    async fn load(&self, id: SessionId) -> Result<Arc<SessionRecord>> {
        self.loads.fetch_add(1, Ordering::Relaxed);
        self.inner.load(id).await
    }

    async fn read(&self, id: SessionId, read: ReadEvents) -> Result<EventPage> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.inner.read(id, read).await
    }
}

/// Returns sessions with a message each, the oldest first.
async fn filled(storage: &Storage, count: usize) -> Vec<SessionId> {
    WorkspaceManager::new(storage.clone()).default_workspace().await.unwrap();
    let mut ids = Vec::new();
    for n in 0..count {
        let new = NewSession::new(storage.effects().new_session_id(), WorkspaceId::DEFAULT);
        let session = storage.sessions.create(new).await.unwrap();
        let message = NewEvent::user_message(format!("message {n}"));
        storage.sessions.append(session.id, session.head, vec![message]).await.unwrap();
        ids.push(session.id);
    }
    ids
}

/// A backup of many sessions of which ten changed reads two lists and ten sessions, and has what a whole copy has.
async fn a_later_backup_reads_what_changed(site: Site) {
    let under = site.open().await;
    let counting = Arc::new(Counting {
        inner: under.sessions.store().clone(),
        loads: AtomicUsize::new(0),
        reads: AtomicUsize::new(0),
    });
    let storage = under.clone().with_session_store(counting.clone());
    let sessions = filled(&storage, 300).await;
    let backup = Storage::from(MemoryStore::new());
    let first = StoreCopy::new(storage.clone(), backup.clone()).with_changed_only().run().await.unwrap();
    assert!(first.is_whole() && first.copied.sessions == 300, "{first:?}");
    for id in sessions.iter().step_by(30) {
        let now = storage.sessions.load(*id).await.unwrap();
        storage.sessions.append(*id, now.head, vec![NewEvent::user_message("more")]).await.unwrap();
    }
    counting.loads.store(0, Ordering::Relaxed);
    counting.reads.store(0, Ordering::Relaxed);
    let again = StoreCopy::new(storage.clone(), backup.clone()).with_changed_only().run().await.unwrap();
    assert!(again.is_whole(), "{again:?}");
    assert_eq!((again.copied.sessions, again.present.sessions, again.events), (10, 290, 10));
    let (loads, reads) = (counting.loads.load(Ordering::Relaxed), counting.reads.load(Ordering::Relaxed));
    assert!(loads <= 30 && reads <= 20, "{loads} loads, {reads} reads");
    for id in &sessions {
        let here = Manifest::export(&*storage.sessions, *id).await.unwrap().to_json().unwrap();
        let there = Manifest::export(&*backup.sessions, *id).await.unwrap().to_json().unwrap();
        assert_eq!(here, there);
    }
    assert!(verify(&backup, |_| {}).await.unwrap().is_sound());
}

each_store!(a_later_backup_reads_what_changed and files);

/// What was deleted or erased in the source is so in the backup after its next run, with the pseudonym of the owner.
async fn deletions_and_erasures_reach_the_backup(site: Site) {
    let storage = site.open().await;
    let (backup, effects) = (Storage::from(MemoryStore::new()), storage.effects().clone());
    WorkspaceManager::new(storage.clone()).default_workspace().await.unwrap();
    let alice = storage.for_owner(&"alice".parse().unwrap());
    let mut ids = Vec::new();
    for text in ["deleted", "erased"] {
        let new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
        let session = alice.sessions.create(new).await.unwrap();
        alice.sessions.append(session.id, session.head, vec![NewEvent::user_message(text)]).await.unwrap();
        ids.push(session.id);
    }
    let run = || async {
        let done = StoreCopy::new(storage.clone(), backup.clone()).with_changed_only().run().await.unwrap();
        assert!(done.is_whole(), "{done:?}");
    };
    run().await;
    for id in &ids {
        let now = storage.sessions.load(*id).await.unwrap();
        let delete = Commit::seal(&effects, *id, now.head).with_trigger(Trigger::Delete(Reason::UserDeleted));
        storage.sessions.commit(delete).await.unwrap();
    }
    run().await;
    // Between two backups the second is erased, as an erasure of its owner does.
    let now = storage.sessions.load(ids[1]).await.unwrap();
    let purge = Purge::new(ids[1], now.head).with_pseudonym("erased-1".parse().unwrap());
    storage.sessions.purge(purge).await.unwrap();
    run().await;
    for (id, owner, events) in [(ids[0], "alice", true), (ids[1], "erased-1", false)] {
        let there = backup.sessions.load(id).await.unwrap();
        assert_eq!(there.status.state, agent_core::state::SessionState::Deleted);
        assert_eq!(there.owner.as_ref().map(ToString::to_string).as_deref(), Some(owner));
        let page = backup.sessions.read(id, ReadEvents::first(10)).await;
        assert_eq!(page.is_ok_and(|page| !page.events.is_empty()), events, "{owner}");
    }
}

each_store!(deletions_and_erasures_reach_the_backup);

/// Backups that are made while others write have whole commits of each session, up to a state that it had; the last one has all.
async fn a_backup_during_writes_is_consistent(site: Site) {
    const COMMITS: usize = 40;
    let storage = site.open().await;
    let sessions = filled(&storage, 4).await;
    let writes = sessions.iter().map(|id| {
        let (storage, id) = (storage.clone(), *id);
        tokio::spawn(async move {
            for n in 0..COMMITS {
                let now = storage.sessions.load(id).await.unwrap();
                let pair = ["question", "answer"].map(|what| NewEvent::user_message(format!("{what} {n}")));
                storage.sessions.append(id, now.head, pair.into()).await.unwrap();
            }
        })
    });
    let writers: Vec<_> = writes.collect();
    let backup = Storage::from(MemoryStore::new());
    let run = || StoreCopy::new(storage.clone(), backup.clone()).with_changed_only();
    let mut runs = 0;
    loop {
        let is_last = writers.iter().all(tokio::task::JoinHandle::is_finished);
        // A session to which somebody writes meanwhile is named, and is whole all the same.
        let report = run().run().await.unwrap();
        assert!(report.damaged.is_empty(), "{report:?}");
        runs += 1;
        assert!(verify(&backup, |_| {}).await.unwrap().is_sound());
        for id in &sessions {
            let there = backup.sessions.load(*id).await.unwrap();
            let page = backup.sessions.read(*id, ReadEvents::first(1000)).await.unwrap();
            let here = storage.sessions.read(*id, ReadEvents::first(1000)).await.unwrap();
            assert_eq!(page.events, here.events[..page.events.len()]);
            assert_eq!(
                (there.head.get() % 2, page.events.len() as u64),
                (0, there.head.get()),
                "whole commits"
            );
        }
        if is_last {
            assert!(report.is_whole(), "{report:?}");
            break;
        }
    }
    for id in &sessions {
        let (here, there) =
            (storage.sessions.load(*id).await.unwrap(), backup.sessions.load(*id).await.unwrap());
        assert_eq!(here.head, there.head);
    }
    assert!(runs > 0);
}

each_store!(a_backup_during_writes_is_consistent and files, flavor = "multi_thread");
