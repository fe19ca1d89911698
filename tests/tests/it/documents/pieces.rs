//! Sessions that are exported in pieces: the bytes of the whole document, or an error.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use agent_admin::copy::StoreCopy;
use agent_admin::export::SessionExport;
use agent_admin::manifest::Manifest;
use agent_core::clock::Effects;
use agent_core::commit::Trigger;
use agent_core::event::NewEvent;
use agent_core::session::NewSession;
use agent_core::state::Reason;
use agent_core::store::{EventPage, Purge, ReadEvents, SessionStoreWrapper};
use agent_core::{
    ErrorKind, MemoryStore, Result, SessionId, SessionStore, SessionStoreExt, Sessions, Storage, WorkspaceId,
    async_trait,
};
use agent_tests::{Site, each_store};
use futures::TryStreamExt;

use crate::documents::blobs::{content, showing};

/// Returns the document of a session, as it is written in pieces.
pub(super) async fn in_pieces(store: &dyn SessionStore, id: SessionId) -> Result<String> {
    let export = SessionExport::read(store, id, |_| {}).await?;
    let pieces: Vec<_> = export.to_json()?.try_collect().await?;
    let document = String::from_utf8(pieces.concat()).unwrap();
    assert_eq!(export.document_bytes(), document.len() as u64);
    Ok(document)
}

/// A large document comes in pieces of 64 KiB and little more.
#[tokio::test]
async fn pieces_of_a_document_have_a_bounded_size() {
    let (effects, store) = (Effects::default(), MemoryStore::new());
    let new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
    let session = store.sessions(&effects).create(new).await.unwrap();
    let messages = (0..1_000).map(|n| NewEvent::agent_message(format!("{n:>1000}"))).collect();
    store.sessions(&effects).append(session.id, session.head, messages).await.unwrap();
    let mut outcome = Vec::new();
    let export = SessionExport::read(&store, session.id, |events| outcome.push(events)).await.unwrap();
    assert_eq!(outcome, [1_000]);
    let pieces: Vec<_> = export.to_json().unwrap().try_collect().await.unwrap();
    assert!(pieces.len() > 10, "{}", pieces.len());
    assert!(pieces.iter().all(|piece| piece.len() < 68 << 10));
}

/// A session that is purged after it was measured, or between two pieces, ends in an error and never in a whole document.
#[tokio::test]
async fn session_purged_during_its_export_is_refused() {
    let (effects, store) = (Effects::default(), MemoryStore::new());
    let new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
    let session = store.sessions(&effects).create(new).await.unwrap();
    let events = (0..1_000).map(|n| NewEvent::agent_message(format!("{n:>1000}"))).collect();
    store.sessions(&effects).append(session.id, session.head, events).await.unwrap();
    let export = SessionExport::read(&store, session.id, |_| {}).await.unwrap();
    let mut begun = export.to_json().unwrap();
    begun.try_next().await.unwrap().unwrap();
    let later = export.to_json().unwrap();
    let delete = Trigger::Delete(Reason::UserDeleted);
    let gone = store.sessions(&effects).trigger(session.id, delete).await.unwrap().session;
    SessionStore::purge(&store, Purge::new(session.id, gone.head)).await.unwrap();
    for pieces in [begun, later] {
        let error = pieces.try_collect::<Vec<_>>().await.unwrap_err();
        let is_named = matches!(error.kind(), ErrorKind::Conflict { .. } | ErrorKind::Deleted);
        assert!(is_named && error.to_string().contains(&session.id.to_string()), "{error:?}");
    }
    let error = SessionExport::read(&store, session.id, |_| {}).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Deleted);
}

/// Store in which the session that is read is deleted and purged behind the page with this number.
#[derive(Debug)]
struct PurgedBehind {
    inner: Storage,
    left: AtomicUsize,
}

#[async_trait]
impl SessionStoreWrapper for PurgedBehind {
    fn inner(&self) -> &dyn SessionStore {
        &*self.inner.sessions
    }

    async fn read(&self, id: SessionId, read: ReadEvents) -> Result<EventPage> {
        let page = self.inner.sessions.read(id, read).await?;
        if self.left.fetch_sub(1, Ordering::Relaxed) == 1 {
            purge(&self.inner.sessions, id).await;
        }
        Ok(page)
    }
}

async fn purge(store: &Sessions, id: SessionId) {
    let gone = store.trigger(id, Trigger::Delete(Reason::UserDeleted)).await.unwrap().session;
    store.purge(Purge::new(id, gone.head)).await.unwrap();
}

/// Contract 6: a session that is deleted and purged while it is exported or copied is deleted, and not damaged.
async fn a_session_purged_while_it_is_read_is_not_damaged(site: Site) {
    let (effects, name) = (Effects::default(), site.name);
    let storage = site.open().await;
    for pages in 1..=3 {
        for what in ["manifest", "pieces", "copy"] {
            let new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
            let mut session = storage.sessions.create(new).await.unwrap();
            for _ in 0..2 {
                let events = (0..1_000).map(|n| NewEvent::agent_message(format!("{n:>1000}"))).collect();
                session = storage.sessions.append(session.id, session.head, events).await.unwrap().session;
            }
            let left = AtomicUsize::new(pages);
            let store = PurgedBehind { inner: storage.clone(), left };
            let error = match what {
                "manifest" => Manifest::export(&store, session.id).await.unwrap_err(),
                "pieces" => SessionExport::read(&store, session.id, |_| {}).await.unwrap_err(),
                _ => {
                    let mut from = storage.clone();
                    from = from.with_session_store(Arc::new(store));
                    let report = StoreCopy::new(from, MemoryStore::new().into()).run().await.unwrap();
                    assert!(report.damaged.is_empty(), "{name} {pages}: {report:?}");
                    continue;
                }
            };
            assert_eq!(*error.kind(), ErrorKind::Deleted, "{name} {pages} {what}: {error}");
        }
    }
    if storage.sessions.capabilities().blob_max_bytes > 0 {
        let session = showing(&storage.sessions, &effects, &[content(1, 10)]).await;
        let export = SessionExport::read(&*storage.sessions, session.id, |_| {}).await.unwrap();
        let pieces = export.to_archive().unwrap();
        purge(&storage.sessions, session.id).await;
        let error = pieces.try_collect::<Vec<_>>().await.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Conflict { .. }), "{name}: {error}");
    }
}

each_store!(a_session_purged_while_it_is_read_is_not_damaged);
