//! Remains of a purge in the file, with and without a rewrite, and reasons for which a rewrite is not done.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use crate::support::{Site, content, put, read_blob};
use agent_core::clock::Effects;
use agent_core::commit::{Precondition, Trigger};
use agent_core::event::NewEvent;
use agent_core::model::{Patch, Workspace};
use agent_core::session::{NewSession, SessionRecord};
use agent_core::state::Reason;
use agent_core::store::{Purge, Purged, ReadEvents, SessionQuery, SweepBlobs};
use agent_core::{
    BindingStore, ErrorKind, Seq, SessionStore, SessionStoreExt, WorkspaceId, WorkspaceStore, WriteOutcome,
};
use agent_storage_sqlite::SqliteStore;

const SECRET: &str = "xyzzy-plugh-4711";

/// A session with a lot of text, which is deleted.
async fn deleted(store: &SqliteStore, effects: &Effects) -> Arc<SessionRecord> {
    let new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT)
        .with_patch(&Patch::new().with_label("secret", SECRET));
    let id = store.sessions(effects).create(new).await.unwrap().id;
    for n in 1..60 {
        let events = vec![NewEvent::user_message(SECRET.repeat(n * 20))];
        store.sessions(effects).append(id, Seq::ZERO, events).await.unwrap();
    }
    store.sessions(effects).trigger(id, Trigger::Delete(Reason::UserDeleted)).await.unwrap().session
}

/// Whether the file, or what lies beside it, holds the secret.
fn holds_secret(store: &SqliteStore) -> bool {
    let folder = store.path().parent().unwrap();
    fs::read_dir(folder).unwrap().any(|entry| {
        let bytes = fs::read(entry.unwrap().path()).unwrap();
        bytes.windows(SECRET.len()).any(|part| part == SECRET.as_bytes())
    })
}

/// The file is smaller, and everything else in it as it was, for this process and for another that has it open.
#[tokio::test]
async fn rewrite_keeps_everything_else() {
    let site = Site::new();
    let (store, other) = (site.open().await, site.open().await);
    let effects = &site.effects;
    let id = effects.new_workspace_id();
    let place = Workspace::new(id, "place", effects.new_session_id(), effects.now());
    store.put(place, Precondition::MustNotExist).await.unwrap();
    store.bind(&"laptop".parse().unwrap(), id, Precondition::MustNotExist).await.unwrap();
    let mut sessions = Vec::new();
    for n in 0..5 {
        let new = NewSession::new(effects.new_session_id(), id)
            .with_patch(&Patch::new().with_label("n", format!("{n}")));
        let new = other.sessions(effects).create(new).await.unwrap();
        sessions.push(site.append_text(&store, &new, "hello").await);
    }
    let gone = deleted(&store, effects).await;
    let rows_of = async |store: &SqliteStore| {
        let mut seen = String::new();
        for session in &sessions {
            seen += &format!("{:?}", SessionStore::load(store, session.id).await.unwrap());
            seen += &format!("{:?}", store.read(session.id, ReadEvents::first(100)).await.unwrap());
        }
        let labelled = SessionQuery::new().with_label("n", "3").with_total();
        seen += &format!("{:?}", SessionStore::list(store, labelled).await.unwrap());
        seen += &format!("{:?}", store.resolve(&"laptop".parse().unwrap()).await.unwrap());
        seen + &format!("{:?}", WorkspaceStore::load(store, id).await.unwrap())
    };
    let before = rows_of(&store).await;
    let purge = Purge::new(gone.id, gone.head).with_rewrite();
    assert_eq!(store.purge(purge.clone()).await.unwrap(), Purged::new(gone.head.get()));
    assert!(fs::metadata(store.path()).unwrap().len() < 300_000, "of the half megabyte nothing is left");
    assert!(!holds_secret(&store));
    assert_eq!(store.purge(purge).await.unwrap(), Purged::new(0));
    assert_eq!(rows_of(&store).await, before);
    assert_eq!(rows_of(&other).await, before);
    for (store, session) in [(&other, &sessions[0]), (&store, &sessions[1])] {
        let more = site.append_text(store, session, "more").await;
        assert_eq!(SessionStore::load(&other, session.id).await.unwrap(), more);
    }
    store.close().await.unwrap();
    other.close().await.unwrap();
    let store = site.open().await;
    assert_eq!(SessionStore::load(&store, gone.id).await.unwrap(), gone.tombstone().into());
    assert!(store.maintenance().check().await.unwrap().is_empty());
    assert!(!holds_secret(&store));
}

/// Nothing is left of blobs either: of large and small ones, of one that no event names, and of a put that did not end; and
/// the file has no room for them any more.
#[tokio::test]
async fn rewrite_leaves_no_byte_of_a_blob() {
    let site = Site::new();
    let store = site.open().await;
    let session = site.session(&store).await;
    let mut now = site.append_text(&store, &session, "hello").await;
    let other = site.session(&store).await;
    let (other, kept) = site.show(&store, &other, content(1, 300_000)).await;
    for n in 1..60 {
        (now, _) = site.show(&store, &now, SECRET.repeat(n * 20).into_bytes()).await;
    }
    (now, _) = site.show(&store, &now, SECRET.repeat(60_000).into_bytes()).await;
    put(&store, now.id, SECRET.repeat(7).into_bytes()).await;
    let unfinished = "INSERT INTO blobs (tenant, session, state, name, bytes, at, crc) \
        SELECT tenant, session, 'unfinished', name, bytes, at, crc FROM blobs ORDER BY blob DESC LIMIT 1; \
        INSERT INTO blob_chunks SELECT (SELECT max(blob) FROM blobs), n, crc, data FROM blob_chunks ORDER BY blob DESC LIMIT 1";
    site.raw().execute_batch(unfinished).unwrap();
    let gone = store
        .sessions(&site.effects)
        .trigger(now.id, Trigger::Delete(Reason::UserDeleted))
        .await
        .unwrap()
        .session;
    assert!(holds_secret(&store), "else this shows nothing");
    store.purge(Purge::new(gone.id, gone.head).with_rewrite()).await.unwrap();
    assert!(!holds_secret(&store));
    assert_eq!(site.count("SELECT count(*) FROM blobs"), 1);
    let size = fs::metadata(store.path()).unwrap().len();
    assert!(size < 500_000, "of the two megabytes nothing is left: {size}");
    assert_eq!(read_blob(&store, other.id, kept.name).await.unwrap(), content(1, 300_000));
    assert_eq!(store.maintenance().check().await.unwrap(), []);
}

/// While somebody reads from the file as it was, its log holds what was purged: that is said, and done by the next
/// call. The same while somebody writes.
#[tokio::test]
async fn rewrite_that_others_hold_up_is_repeated() {
    for (begin, what) in
        [("BEGIN; SELECT count(*) FROM events", "write-ahead log"), ("BEGIN IMMEDIATE", "write to")]
    {
        let site = Site::new();
        let store = site.config().with_busy_timeout(Duration::from_millis(300)).open().await.unwrap();
        let gone = deleted(&store, &site.effects).await;
        let reader = site.raw();
        for statement in begin.split("; ") {
            let mut statement = reader.prepare(statement).unwrap();
            let mut rows = statement.query([]).unwrap();
            while rows.next().unwrap().is_some() {}
        }
        let purge = Purge::new(gone.id, gone.head).with_rewrite();
        let error = store.purge(purge.clone()).await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(error.is_timeout() && error.to_string().contains(what), "{error}");
        if what == "write-ahead log" {
            assert_eq!(error.write_outcome(), WriteOutcome::Unknown);
            assert!(store.read(gone.id, ReadEvents::first(1)).await.unwrap().events.is_empty());
        }
        assert!(holds_secret(&store), "{what}: else this shows nothing");
        reader.execute_batch("COMMIT").unwrap();
        store.purge(purge).await.unwrap();
        assert!(!holds_secret(&store), "{what}");
    }
}

/// A purge without a rewrite, the removal of a blob and the deletion of a workspace report that one is pending; what removes
/// nothing does not. `maintain` does it.
#[tokio::test]
async fn every_erasure_leaves_a_rewrite_pending() {
    let site = Site::new();
    let store = site.open().await;
    let effects = &site.effects;
    assert!(store.maintenance().pending().await.unwrap().is_empty());
    let gone = deleted(&store, effects).await;
    assert!(store.maintenance().pending().await.unwrap().is_empty(), "what is deleted is not yet purged");
    let purge = Purge::new(gone.id, gone.head);
    let pending = Purged::new(gone.head.get()).with_rewrite_pending(true);
    assert_eq!(store.purge(purge.clone()).await.unwrap(), pending);
    assert_eq!(store.purge(purge.clone()).await.unwrap(), Purged::new(0).with_rewrite_pending(true));
    assert_eq!(store.maintenance().maintain().await.unwrap().len(), 1);
    assert!(!holds_secret(&store));
    assert_eq!(store.purge(purge).await.unwrap(), Purged::new(0));

    let session = site.session(&store).await;
    put(&store, session.id, SECRET.into()).await;
    assert!(store.maintenance().pending().await.unwrap().is_empty());
    store.blobs().sweep(SweepBlobs::of(session.id)).await.unwrap();
    assert_eq!(store.maintenance().maintain().await.unwrap().len(), 1);
    assert!(!holds_secret(&store));

    let id = effects.new_workspace_id();
    let place = Workspace::new(id, SECRET, effects.new_session_id(), effects.now());
    store.put(place, Precondition::MustNotExist).await.unwrap();
    for is_first in [true, false] {
        WorkspaceStore::delete(&store, id).await.unwrap();
        assert_eq!(store.maintenance().maintain().await.unwrap().len(), usize::from(is_first));
        assert!(!holds_secret(&store));
    }
}
