//! Servers that refuse every request: the error of the store, and how soon it comes.

use std::time::Duration;

use agent_core::clock::Effects;
use agent_core::commit::{Commit, Precondition};
use agent_core::event::NewEvent;
use agent_core::model::Workspace;
use agent_core::session::{NewSession, SessionRecord};
use agent_core::store::{BindingQuery, PutBlob, ReadEvents, SessionQuery, WorkspaceQuery};
use agent_core::{
    Backend, BindingStore, Error, ErrorKind, SessionStore, SessionStoreExt, WorkspaceId, WorkspaceStore,
    WriteOutcome,
};
use agent_storage_s3::S3Store;
use s3_simulator::Simulator;
use tokio::time::Instant;

use crate::backend::config;

/// The text of an error and of its causes, as the program shows it.
fn full_text(error: &Error) -> String {
    let (mut text, mut cause) = (error.to_string(), std::error::Error::source(error));
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

/// One call of each kind, each refused.
async fn refusals(store: &S3Store, effects: &Effects, session: &SessionRecord) -> Vec<Error> {
    let (id, device) = (session.id, "laptop".parse().unwrap());
    let other = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
    let place = Workspace::new(effects.new_workspace_id(), "place", id, effects.now());
    let append = Commit::seal(effects, id, session.head).with_event(NewEvent::user_message("more"));
    vec![
        SessionStore::load(store, id).await.unwrap_err(),
        store.read(id, ReadEvents::last(10)).await.unwrap_err(),
        store.commit(append).await.unwrap_err(),
        store.sessions(effects).create(other).await.unwrap_err(),
        SessionStore::list(store, SessionQuery::new()).await.unwrap_err(),
        store.blobs().put(PutBlob::of_bytes(id, "file")).await.unwrap_err(),
        store.maintenance().check().await.unwrap_err(),
        WorkspaceStore::load(store, WorkspaceId::DEFAULT).await.unwrap_err(),
        store.put(place, Precondition::MustNotExist).await.unwrap_err(),
        WorkspaceStore::list(store, WorkspaceQuery::new()).await.unwrap_err(),
        store.resolve(&device).await.unwrap_err(),
        store.bind(&device, WorkspaceId::DEFAULT, Precondition::None).await.unwrap_err(),
        BindingStore::list(store, BindingQuery::new()).await.unwrap_err(),
        Backend::tenants(store, None).await.unwrap_err(),
        store.busy_tenants(effects.now(), None).await.unwrap_err(),
    ]
}

/// A store with a session, before the server refuses.
async fn opened(simulator: &Simulator, effects: &Effects) -> (S3Store, std::sync::Arc<SessionRecord>) {
    let store = config(simulator, "a").open().await.unwrap();
    let new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
    let session = store.sessions(effects).create(new).await.unwrap();
    (store, session)
}

/// Temporary credentials that have ended are refused like others, soon, and the text says what to do.
#[tokio::test(start_paused = true)]
async fn ended_credentials_are_denied_at_once() {
    for (status, code, expected) in [
        (400, "ExpiredToken", "have ended; get new ones (AWS_ACCESS_KEY_ID"),
        (403, "ExpiredToken", "have ended; get new ones (AWS_ACCESS_KEY_ID"),
        (400, "ExpiredTokenException", "have ended; get new ones (AWS_ACCESS_KEY_ID"),
        (400, "InvalidToken", "session token is not valid; set AWS_ACCESS_KEY_ID"),
    ] {
        let (simulator, effects) = (Simulator::new(1), Effects::default());
        let (store, session) = opened(&simulator, &effects).await;
        simulator.refuse_all(Some((status, code)));
        let begun = Instant::now();
        for error in refusals(&store, &effects, &session).await {
            let text = full_text(&error);
            assert_eq!(*error.kind(), ErrorKind::Denied, "{text}");
            assert_eq!(error.write_outcome(), WriteOutcome::NotApplied, "{text}");
            assert!(text.contains(expected), "{text}");
            assert!(!text.contains('<') && text.matches("simulated").count() == 1, "{text}");
        }
        assert!(begun.elapsed() < Duration::from_secs(5), "{status} {code}: {:?}", begun.elapsed());
        // The same store goes on when there are credentials again.
        simulator.refuse_all(None);
        assert_eq!(SessionStore::load(&store, session.id).await.unwrap().head, session.head);
    }
}

/// A request that is signed for a wrong region is not sent again, and the text says what to name.
#[tokio::test(start_paused = true)]
async fn wrong_regions_are_named_at_once() {
    let (simulator, effects) = (Simulator::new(1), Effects::default());
    let (store, session) = opened(&simulator, &effects).await;
    simulator.refuse_all(Some((400, "AuthorizationHeaderMalformed")));
    let begun = Instant::now();
    for error in refusals(&store, &effects, &session).await {
        let text = full_text(&error);
        assert_eq!(*error.kind(), ErrorKind::InvalidInput, "{text}");
        assert_eq!(error.write_outcome(), WriteOutcome::NotApplied, "{text}");
        assert!(text.contains("in another region; name it (AWS_REGION"), "{text}");
    }
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
}

/// A bucket that is gone is no proof that a session or a device does not exist, which a host would create then. Each call
/// says which bucket it is; the same store goes on when it is back. Only opening says that there is no store.
#[tokio::test(start_paused = true)]
async fn vanished_buckets_are_not_absent_objects() {
    for code in ["NoSuchBucket", "ContainerNotFound"] {
        let (simulator, effects) = (Simulator::new(1), Effects::default());
        let (store, session) = opened(&simulator, &effects).await;
        simulator.refuse_all(Some((404, code)));
        let begun = Instant::now();
        for error in refusals(&store, &effects, &session).await {
            let text = full_text(&error);
            assert_eq!(*error.kind(), ErrorKind::Unavailable, "{text}");
            assert_eq!(error.write_outcome(), WriteOutcome::NotApplied, "{text}");
            assert!(
                !error.is_absent() && text.contains("there is no such bucket: s3://bucket at "),
                "{text}"
            );
            assert!(!text.contains('<') && text.matches("simulated").count() == 1, "{text}");
        }
        assert!(begun.elapsed() < Duration::from_secs(5), "{code}: {:?}", begun.elapsed());
        let error = config(&simulator, "b").open().await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::NotFound, "{error}");
        assert!(error.to_string().contains("there is no such bucket: s3://bucket at "), "{error}");
        simulator.refuse_all(None);
        assert_eq!(SessionStore::load(&store, session.id).await.unwrap().head, session.head);
    }
}
