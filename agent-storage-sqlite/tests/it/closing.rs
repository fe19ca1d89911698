//! Closing: what is left of a store in this process, and beside its file.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use crate::support::Site;
use agent_core::commit::{LeaseRequest, Trigger};
use agent_core::store::{BindingQuery, ReadEvents, SessionQuery, WorkspaceQuery};
use agent_core::{
    Backend, BindingStore, ErrorKind, SessionStore, Storage, TenantId, WorkspaceStore, WriteOutcome,
};
use agent_storage_sqlite::SqliteStore;
use futures::FutureExt;
use futures::future::join_all;

/// How often a race is run.
const ROUNDS: usize = 40;
/// After how long a test is stuck.
const STUCK: Duration = Duration::from_secs(60);

fn names(site: &Site) -> Vec<String> {
    let entries = fs::read_dir(site.folder.path()).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Writes, reads on several threads, and takes a lease, so that everything that a store can hold is held.
async fn use_it(site: &Site, store: &SqliteStore) {
    let session = site.session(store).await;
    let session = site.append_text(store, &session, "hello").await;
    let run = site.effects.new_run_id();
    let begin =
        site.text_commit(&session, "go").with_trigger(Trigger::BeginRun(LeaseRequest::new("test", run)));
    store.commit(begin).await.unwrap();
    let reads = (0..8).map(|_| store.maintenance().check());
    for found in join_all(reads).await {
        assert_eq!(found.unwrap(), []);
    }
}

/// A store that was closed, or whose last handle was dropped, leaves one file, which holds everything.
#[tokio::test(flavor = "multi_thread")]
async fn closed_store_leaves_one_file() {
    for round in 0..ROUNDS {
        let site = Site::new();
        let store = site.open().await;
        use_it(&site, &store).await;
        let clones = (store.clone(), store.for_tenant(&"other".parse().unwrap()));
        if round % 2 == 0 {
            tokio::time::timeout(STUCK, store.close()).await.unwrap().unwrap();
        } else {
            drop((store, clones));
        }
        assert_eq!(names(&site), ["agent.db"], "round {round}");
        let elsewhere = Site::new();
        fs::copy(site.path(), elsewhere.path()).unwrap();
        let copy = elsewhere.open().await;
        let sessions = SessionStore::list(&copy, SessionQuery::new()).await.unwrap().items;
        assert_eq!((sessions.len(), sessions[0].head.get()), (1, 3), "round {round}");
        assert_eq!(copy.read(sessions[0].id, ReadEvents::last(9)).await.unwrap().events.len(), 3);
    }
}

/// Whatever is asked of a closed store, through any clone, tenant or trait, is refused as closed, and closing again is
/// fine.
#[tokio::test]
async fn a_closed_store_refuses_everything() {
    let site = Site::new();
    let store = site.open().await;
    let session = site.session(&store).await;
    let clone = store.clone();
    let other = Backend::tenant(&store, &"other".parse::<TenantId>().unwrap());
    let waiting = tokio::spawn({
        let (store, id, head) = (store.clone(), session.id, session.head);
        async move { store.changed(id, head).await }
    });
    Storage::from(store.clone()).close().await.unwrap();
    store.close().await.unwrap();
    let late = clone.commit(site.text_commit(&session, "late")).await.unwrap_err();
    assert_eq!(late.write_outcome(), WriteOutcome::NotApplied);
    let errors = [
        late,
        SessionStore::load(&clone, session.id).await.unwrap_err(),
        clone.read(session.id, ReadEvents::last(1)).await.unwrap_err(),
        SessionStore::list(&clone, SessionQuery::new()).await.unwrap_err(),
        WorkspaceStore::list(&clone, WorkspaceQuery::new()).await.unwrap_err(),
        BindingStore::list(&clone, BindingQuery::new()).await.unwrap_err(),
        Backend::tenants(&clone, None).await.unwrap_err(),
        other.bindings.resolve(&"laptop".parse().unwrap()).await.unwrap_err(),
        clone.backup(site.folder.path().join("copy.db")).await.unwrap_err(),
        clone.maintenance().rebuild().await.unwrap_err(),
        tokio::time::timeout(STUCK, waiting).await.unwrap().unwrap().unwrap_err(),
    ];
    for error in errors {
        assert_eq!(*error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(error.to_string().contains("agent.db was closed; open it again"), "{error}");
    }
    assert_eq!(names(&site), ["agent.db"]);
}

/// Writes that meet a store that is being closed are done and acknowledged, or refused and not done.
#[tokio::test(flavor = "multi_thread")]
async fn writes_during_close_are_applied_or_refused() {
    for round in 0..ROUNDS {
        let site = Arc::new(Site::new());
        let store = site.open().await;
        let session = site.session(&store).await;
        let writers: Vec<_> = (0..8)
            .map(|n| {
                let (site, store) = (site.clone(), store.clone());
                tokio::spawn(async move {
                    let mut now = site.session(&store).await;
                    for text in 0..200 {
                        match store.commit(site.text_commit(&now, format!("{n}: {text}"))).await {
                            Ok(done) => now = done.session,
                            Err(error) => return (now, error),
                        }
                    }
                    panic!("the store was not closed");
                })
            })
            .collect();
        // However far they have come by then.
        for _ in 0..round {
            SessionStore::load(&store, session.id).await.unwrap();
        }
        tokio::time::timeout(STUCK, store.close()).await.unwrap().unwrap();
        let copy = site.open().await;
        for writer in writers {
            let Ok((now, error)) = tokio::time::timeout(STUCK, writer).await.unwrap() else {
                continue; // It had not even made its session.
            };
            assert_eq!(*error.kind(), ErrorKind::Unavailable, "{error}");
            let head = SessionStore::load(&copy, now.id).await.unwrap().head;
            let more = u64::from(error.write_outcome() == WriteOutcome::Unknown);
            assert!((now.head.get()..=now.head.get() + more).contains(&head.get()), "{head} for {error}");
        }
    }
}

/// Closing does not wait for a caller that is not polled, and goes on if whoever closes is dropped.
#[tokio::test]
async fn close_does_not_wait_for_idle_callers() {
    let site = Site::new();
    let store = site.open().await;
    let session = site.session(&store).await;
    let mut reads: Vec<_> = (0..20).map(|_| Box::pin(store.maintenance().check())).collect();
    // On a busy machine some are done at the first look.
    let waiting = reads.iter_mut().filter_map(|read| read.now_or_never().is_none().then_some(())).count();
    assert!(waiting > 0);
    let mut write = Box::pin(store.commit(site.text_commit(&session, "said")));
    let written = (&mut write).now_or_never();
    {
        let mut close = Box::pin(store.close());
        let _ = (&mut close).now_or_never();
    }
    tokio::time::timeout(STUCK, store.close()).await.unwrap().unwrap();
    assert_eq!(names(&site), ["agent.db"]);
    match written {
        Some(written) => written.unwrap(),
        None => write.await.unwrap(),
    };
    assert_eq!(SessionStore::load(&site.open().await, session.id).await.unwrap().head.get(), 2);
}

/// Two stores on one file that are closed at the same moment leave it alone, too.
#[tokio::test(flavor = "multi_thread")]
async fn two_stores_closed_at_once_leave_one_file() {
    for round in 0..ROUNDS {
        let site = Site::new();
        let stores = [site.open().await, site.open().await];
        for store in &stores {
            use_it(&site, store).await;
        }
        let closing = stores.map(|store| tokio::spawn(async move { store.close().await }));
        for closed in join_all(closing).await {
            closed.unwrap().unwrap();
        }
        assert_eq!(names(&site), ["agent.db"], "round {round}");
    }
}
