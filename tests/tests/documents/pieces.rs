//! Sessions that are exported in pieces: the bytes of the whole document, or an error.

use agent_admin::export::SessionExport;
use agent_core::clock::Effects;
use agent_core::commit::Trigger;
use agent_core::event::NewEvent;
use agent_core::session::NewSession;
use agent_core::state::Reason;
use agent_core::store::Purge;
use agent_core::{ErrorKind, MemoryStore, Result, SessionId, SessionStore, SessionStoreExt, WorkspaceId};
use futures::TryStreamExt;

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
    let session = SessionStoreExt::create(&store, &effects, new).await.unwrap();
    let said = (0..1_000).map(|n| NewEvent::agent_message(format!("{n:>1000}"))).collect();
    store.append(&effects, session.id, session.head, said).await.unwrap();
    let mut told = Vec::new();
    let export = SessionExport::read(&store, session.id, |events| told.push(events)).await.unwrap();
    assert_eq!(told, [1_000]);
    let pieces: Vec<_> = export.to_json().unwrap().try_collect().await.unwrap();
    assert!(pieces.len() > 10, "{}", pieces.len());
    assert!(pieces.iter().all(|piece| piece.len() < 68 << 10));
}

/// A session that is purged after it was measured, or between two pieces, ends in an error and never in a whole document.
#[tokio::test]
async fn session_purged_during_its_export_is_refused() {
    let (effects, store) = (Effects::default(), MemoryStore::new());
    let new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
    let session = SessionStoreExt::create(&store, &effects, new).await.unwrap();
    let said = (0..1_000).map(|n| NewEvent::agent_message(format!("{n:>1000}"))).collect();
    store.append(&effects, session.id, session.head, said).await.unwrap();
    let export = SessionExport::read(&store, session.id, |_| {}).await.unwrap();
    let mut begun = export.to_json().unwrap();
    begun.try_next().await.unwrap().unwrap();
    let later = export.to_json().unwrap();
    let delete = Trigger::Delete(Reason::UserDeleted);
    let gone = store.trigger(&effects, session.id, delete).await.unwrap().session;
    SessionStore::purge(&store, Purge::new(session.id, gone.head)).await.unwrap();
    for pieces in [begun, later] {
        let error = pieces.try_collect::<Vec<_>>().await.unwrap_err();
        let is_named = matches!(error.kind(), ErrorKind::Conflict { .. } | ErrorKind::Deleted);
        assert!(is_named && error.to_string().contains(&session.id.to_string()), "{error:?}");
    }
    let error = SessionExport::read(&store, session.id, |_| {}).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Deleted);
}
