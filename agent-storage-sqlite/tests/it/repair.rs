//! Repair of damage: deletion of sessions without a readable record, omissions of a rebuild, and missing files.

use std::sync::Arc;

use crate::support::Site;
use agent_core::commit::Commit;
use agent_core::event::NewEvent;
use agent_core::session::SessionRecord;
use agent_core::state::{Reason, SessionState};
use agent_core::store::{ReadEvents, SessionQuery};
use agent_core::{ErrorKind, SessionStore, SessionStoreExt, Storage};
use agent_runtime::WorkspaceManager;
use agent_storage_sqlite::SqliteStore;

fn manager(site: &Site, store: &SqliteStore) -> WorkspaceManager {
    WorkspaceManager::new(Storage::from(store.clone()).with_effects(site.effects.clone()))
}

/// A session of three messages, of which the second, and the record, are damaged behind the store's back.
async fn damaged(site: &Site, store: &SqliteStore) -> Arc<SessionRecord> {
    let mut now = site.session(store).await;
    for text in ["first", "second", "third"] {
        now = site.append_text(store, &now, text).await;
    }
    let raw = site.raw();
    raw.execute("UPDATE events SET json = replace(json, 'second', 'secend')", []).unwrap();
    raw.execute("UPDATE sessions SET record = 'x', summary = 'x' WHERE id = ?", [now.id.to_string()])
        .unwrap();
    now
}

/// Every handle sees the deletion, one that wrote to the session before, too; its events stay until it is purged.
#[tokio::test]
async fn every_handle_sees_the_deletion() {
    let site = Site::new();
    let old = site.open().await;
    let now = damaged(&site, &old).await;
    let store = site.open().await;
    assert_eq!(*SessionStore::load(&store, now.id).await.unwrap_err().kind(), ErrorKind::Corrupt);
    let manager = manager(&site, &store);
    let deleted = manager.delete_session(now.id).await.unwrap();
    assert_eq!((deleted.status.state, deleted.head), (SessionState::Deleted, now.head));
    assert_eq!(manager.delete_session(now.id).await.unwrap(), deleted);
    let append = Commit::seal(&site.effects, now.id, now.head).with_event(NewEvent::user_message("on"));
    assert_eq!(*old.commit(append).await.unwrap_err().kind(), ErrorKind::Deleted);
    let bytes: i64 = site.raw().query_row("SELECT count(*) FROM events", [], |row| row.get(0)).unwrap();
    assert_eq!(bytes as u64, now.head.get(), "the damaged bytes are kept");

    // A rebuild goes by the tombstone.
    assert_eq!(store.maintenance().rebuild().await.unwrap().damaged, []);
    assert_eq!(SessionStore::load(&old, now.id).await.unwrap(), deleted);
    assert_eq!(manager.purge(now.id).await.unwrap().events, now.head.get());
    assert_eq!(store.read(now.id, ReadEvents::first(9)).await.unwrap().events, []);
    assert_eq!(SessionStore::load(&site.open().await, now.id).await.unwrap(), deleted);
    site.assert_is_whole();
}

/// What can be read is deleted by a commit, and by nothing else; of what is not there nothing is deleted.
#[tokio::test]
async fn delete_damaged_refuses_readable_sessions() {
    let site = Site::new();
    let store = site.open().await;
    let now = site.session(&store).await;
    let at = site.effects.now();
    let refused = store.maintenance().delete_damaged(now.id, at, Reason::UserDeleted).await.unwrap_err();
    assert_eq!(*refused.kind(), ErrorKind::InvalidInput);
    let nobody =
        store.maintenance().delete_damaged(site.effects.new_session_id(), at, Reason::UserDeleted).await;
    assert_eq!(*nobody.unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(SessionStore::load(&store, now.id).await.unwrap(), now);
}

/// A session of whose tombstone and record nothing can be read, with a log or without, is deleted, too.
#[tokio::test]
async fn a_damaged_tombstone_is_replaced() {
    for sql in [
        "UPDATE tombstones SET record = 'x'; UPDATE sessions SET record = 'x'",
        "UPDATE tombstones SET record = 'x'; UPDATE sessions SET record = 'x'; DELETE FROM logs",
        "UPDATE tombstones SET record = 'x'; DELETE FROM sessions; DELETE FROM logs",
    ] {
        let site = Site::new();
        let store = site.open().await;
        let now = site.session(&store).await;
        let manager = manager(&site, &store);
        manager.delete_session(now.id).await.unwrap();
        manager.purge(now.id).await.unwrap();
        site.raw().execute_batch(sql).unwrap();
        let store = site.open().await;
        let lost = SessionStore::load(&store, now.id).await.unwrap_err();
        assert_eq!(*lost.kind(), ErrorKind::Corrupt, "{sql}");
        let deleted = self::manager(&site, &store).delete_session(now.id).await.unwrap();
        assert_eq!((deleted.id, deleted.status.state), (now.id, SessionState::Deleted), "{sql}");
        let again = site.open().await;
        assert_eq!(SessionStore::load(&again, now.id).await.unwrap(), deleted, "{sql}");
        let all = SessionStore::list(&again, SessionQuery::new().with_hidden()).await.unwrap();
        assert_eq!((all.items.len(), all.damaged.len()), (1, 0), "{sql}");
    }
}

/// A living fork of a damaged session keeps what it reads, also when that session is deleted and purged.
#[tokio::test]
async fn fork_of_a_damaged_session_keeps_its_history() {
    let site = Site::new();
    let store = site.open().await;
    let first = site.session(&store).await;
    let first = site.append_text(&store, &first, "shared").await;
    let fork = store.sessions(&site.effects).fork(first.id, None).await.unwrap();
    let mut now = first.clone();
    for text in ["second", "third"] {
        now = site.append_text(&store, &now, text).await;
    }
    let raw = site.raw();
    raw.execute("UPDATE events SET json = replace(json, 'second', 'secend')", []).unwrap();
    raw.execute("UPDATE sessions SET record = 'x', summary = 'x' WHERE id = ?", [now.id.to_string()])
        .unwrap();
    let store = site.open().await;
    let manager = manager(&site, &store);
    manager.delete_session(now.id).await.unwrap();
    assert_eq!(manager.purge(now.id).await.unwrap().events, 2);
    let history = store.history(fork.id, ReadEvents::first(10)).await.unwrap();
    assert_eq!(history.events.len() as u64, fork.head.get(), "{history:?}");
}

/// A rebuild names what it leaves out: of its own tenant, and of all tenants if it is asked for all.
#[tokio::test]
async fn rebuild_covers_one_tenant_or_all() {
    let site = Site::new();
    let store = site.open().await;
    let bob = store.for_tenant(&"bob".parse().unwrap());
    site.session(&bob).await;
    let now = damaged(&site, &bob).await;
    site.session(&store).await;
    let own = store.maintenance().rebuild().await.unwrap();
    assert_eq!((own.sessions, own.damaged.len()), (1, 0));
    let of_bob = bob.maintenance().rebuild().await.unwrap();
    assert_eq!(
        (of_bob.sessions, of_bob.damaged[0].object.as_str()),
        (1, format!("session {}", now.id).as_str())
    );
    let all = store.rebuild_all().await.unwrap();
    assert_eq!(all.sessions, 2);
    assert_eq!(all.damaged[0].object, format!("tenant bob, session {}", now.id));
}

/// A store that is not to be made is opened where one is, and nothing is made elsewhere.
#[tokio::test]
async fn missing_store_is_not_created() {
    let site = Site::new();
    let open = || site.config().with_create(false).open();
    let refused = open().await.unwrap_err();
    assert_eq!(*refused.kind(), ErrorKind::NotFound);
    assert!(refused.to_string().contains("holds no store"), "{refused}");
    assert_eq!(std::fs::read_dir(site.folder.path()).unwrap().count(), 0);
    std::fs::write(site.path(), "").unwrap();
    assert_eq!(*open().await.unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(std::fs::metadata(site.path()).unwrap().len(), 0);
    // A database in which nobody has made anything.
    site.raw().execute_batch("VACUUM").unwrap();
    assert_eq!(*open().await.unwrap_err().kind(), ErrorKind::NotFound);

    let store = site.open().await;
    let now = site.session(&store).await;
    drop(store);
    assert_eq!(SessionStore::load(&open().await.unwrap(), now.id).await.unwrap(), now);
}
