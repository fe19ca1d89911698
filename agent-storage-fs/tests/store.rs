//! The file store as a host uses it.

mod support;

use agent_core::{
    BindingStore, Effects, Expect, NewEvent, NewSession, ReadEvents, Seq, SessionQuery, SessionStore,
    SessionStoreExt, Workspace, WorkspaceId, WorkspaceQuery, WorkspaceStore,
};
use agent_storage_fs::FsStore;

/// A03, A05, A15, A29, R09: what was written is there in another handle, as it was.
#[tokio::test]
async fn a03_a05_a15_a29_r09_everything_is_there_again() {
    let folder = tempfile::tempdir().unwrap();
    let effects = Effects::default();
    let store = FsStore::open(folder.path()).await.unwrap();
    let id = effects.new_workspace_id();
    let workspace =
        Workspace::new(id, "Küche", effects.new_session_id(), effects.now()).with_provider("claude");
    let workspace = store.put(workspace, Expect::Absent).await.unwrap();
    let device = "laptop 2 / ../x".parse().unwrap();
    assert_eq!(store.bind(&device, id, Expect::Absent).await.unwrap(), id);
    let new = NewSession::new(workspace.main_session, id);
    let session = SessionStoreExt::create(&store, &effects, new).await.unwrap();
    let mut seen = session.head;
    for n in 0..100 {
        let event = NewEvent::user_message(format!("message {n}"));
        seen = store.append(&effects, session.id, seen, vec![event]).await.unwrap().last;
    }
    let record = SessionStore::load(&store, session.id).await.unwrap();
    let page = store.read(session.id, ReadEvents::first(1000)).await.unwrap();
    assert_eq!(page.events.len(), 101);
    drop(store);

    let store = FsStore::open(folder.path()).await.unwrap();
    assert_eq!(WorkspaceStore::load(&store, id).await.unwrap(), workspace);
    assert_eq!(store.resolve(&device).await.unwrap(), Some(id));
    assert_eq!(SessionStore::load(&store, session.id).await.unwrap(), record);
    assert_eq!(store.read(session.id, ReadEvents::first(1000)).await.unwrap(), page);
    let newest = store.read(session.id, ReadEvents::last(10)).await.unwrap();
    assert_eq!(newest.events, page.events[91..]);
    let middle = store.read(session.id, ReadEvents::first(3).after(Seq::new(50))).await.unwrap();
    assert_eq!(middle.events, page.events[50..53]);
    assert_eq!(SessionStore::list(&store, SessionQuery::new()).await.unwrap().items.len(), 1);
    assert_eq!(WorkspaceStore::list(&store, WorkspaceQuery::new()).await.unwrap().items, [workspace]);
    assert_eq!(WorkspaceId::DEFAULT.to_string(), "default");
}
