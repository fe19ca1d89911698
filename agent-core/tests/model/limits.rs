//! What is too large is refused before it is written; what is read may hold any number.

use agent_core::session::commit::RunEnd;
use agent_core::session::event::EVENT_MAX_BYTES;
use agent_core::*;

async fn session(store: &MemoryStore, effects: &Effects) -> Session {
    let new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
    SessionStoreExt::create(store, effects, new).await.unwrap()
}

/// X05: the names of further fields count as they are stored, with their escapes; else an event could be written that
/// is too long to be read.
#[tokio::test]
async fn x05_names_of_fields_count_with_their_escapes() {
    let (store, effects) = (MemoryStore::new(), Effects::default());
    let session = session(&store, &effects).await;
    let name = "\u{1}".repeat(EVENT_MAX_BYTES / 4);
    let event = NewEvent::user_message("x").with_extra(name, RawJson::empty_object());
    let error = store.append(&effects, session.id, session.head, vec![event]).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::LimitExceeded);
}

/// X05: the text of a failure is bounded however it was set.
#[tokio::test]
async fn x05_the_text_of_a_failure_is_bounded() {
    let (store, effects) = (MemoryStore::new(), Effects::default());
    let session = session(&store, &effects).await;
    let mut failure = Failure::new(Reason::ResourceError, "x");
    failure.text = "x".repeat(Failure::TEXT_MAX_BYTES + 1);
    for trigger in [
        Trigger::Fail(failure.clone()),
        Trigger::EndRun(RunEnd::Failed(failure.clone())),
        Trigger::EndRun(RunEnd::retry(failure.clone(), effects.now(), 3)),
    ] {
        let error = store.trigger(&effects, session.id, trigger).await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::LimitExceeded);
    }
    failure.text.pop();
    store.trigger(&effects, session.id, Trigger::Fail(failure)).await.unwrap();
}

/// X05: counts that are as large as they can be stay so.
#[tokio::test]
async fn x05_counts_do_not_overflow() {
    let (store, effects) = (MemoryStore::new(), Effects::default());
    let mut new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
    new.created.inherited.pending = u64::MAX;
    new.created.inherited.counts.user = u64::MAX;
    let session = SessionStoreExt::create(&store, &effects, new).await.unwrap();
    let said = vec![NewEvent::user_message("x")];
    let now = store.append(&effects, session.id, session.head, said).await.unwrap().session;
    assert_eq!((now.pending, now.counts.user), (u64::MAX, u64::MAX));
}
