//! Storages of owners on stores that fail, and what lists show of sessions.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};

use agent_core::clock::Effects;
use agent_core::commit::{Commit, Committed, Precondition, Trigger, apply_untrusted};
use agent_core::event::{EventPayload, Message, NewEvent, ToolOutcome};
use agent_core::json::{RawFields, RawJson};
use agent_core::model::{Artifact, BlobInfo, ContentBytes, WORDS_MAX_BYTES, Workspace};
use agent_core::session::{Fork, NewSession, SessionRecord};
use agent_core::store::{BindingStoreWrapper, PutBlob, ReadEvents, SessionStoreWrapper};
use agent_core::{
    BindingStore, DeviceId, Error, ErrorKind, MemoryStore, OwnerId, Result, SessionId, SessionStore,
    SessionStoreExt, Storage, WorkspaceId, WriteOutcome, async_trait,
};

use crate::common::{call, json};

/// Sessions that cannot be loaded for a while, and commits whose answers are lost.
#[derive(Debug)]
struct Failing {
    under: MemoryStore,
    no_loads: AtomicBool,
    lost_answers: AtomicU32,
}

#[async_trait]
impl SessionStoreWrapper for Failing {
    fn inner(&self) -> &dyn SessionStore {
        &self.under
    }

    async fn commit(&self, commit: Commit) -> Result<Committed> {
        let committed = SessionStore::commit(&self.under, commit).await;
        match self.lost_answers.fetch_update(SeqCst, SeqCst, |lost| lost.checked_sub(1)) {
            Ok(_) => Err(Error::new(ErrorKind::Unavailable, "lost").with_outcome(WriteOutcome::Unknown)),
            Err(_) => committed,
        }
    }

    async fn load(&self, id: SessionId) -> Result<Arc<SessionRecord>> {
        match self.no_loads.load(SeqCst) {
            true => Err(Error::new(ErrorKind::Unavailable, "cut off")),
            false => SessionStore::load(&self.under, id).await,
        }
    }
}

/// Two owners of a tenant on a failing store.
fn failing() -> (Arc<Failing>, Storage, Storage) {
    let under = MemoryStore::new();
    let sessions = Arc::new(Failing {
        under: under.clone(),
        no_loads: AtomicBool::new(false),
        lost_answers: AtomicU32::new(0),
    });
    let under = Arc::new(under);
    let storage = Storage::new(under.clone(), sessions.clone(), under);
    (sessions, storage.for_owner(&owner("alice")), storage.for_owner(&owner("bob")))
}

fn owner(name: &str) -> OwnerId {
    name.parse().unwrap()
}

fn creation(effects: &Effects, id: SessionId) -> Commit {
    let new = NewSession::new(id, WorkspaceId::DEFAULT);
    Commit::seal(effects, id, agent_core::Seq::ZERO)
        .with_precondition(Precondition::MustNotExist)
        .with_trigger(Trigger::Create(Box::new(new)))
}

/// A creation whose answer is lost while the store is cut off may have happened: it is not told that its id is taken.
#[tokio::test]
async fn a_creation_in_doubt_is_no_conflict() {
    let (store, alice, bob) = failing();
    let effects = Effects::default();
    let commit = creation(&effects, effects.new_session_id());
    store.no_loads.store(true, SeqCst);
    store.lost_answers.store(1, SeqCst);
    let error = SessionStore::commit(&*alice.sessions, commit.clone()).await.unwrap_err();
    assert_eq!(
        (error.kind(), error.write_outcome()),
        (&ErrorKind::Unavailable, WriteOutcome::Unknown),
        "{error}"
    );
    store.no_loads.store(false, SeqCst);
    assert!(SessionStore::commit(&*alice.sessions, commit.clone()).await.unwrap().replayed);

    // Whether it may be told that its id is taken cannot be found out: it is tried again, and is told then.
    let other = creation(&effects, commit.session);
    store.no_loads.store(true, SeqCst);
    let error = SessionStore::commit(&*bob.sessions, other.clone()).await.unwrap_err();
    assert_eq!(
        (error.kind(), error.write_outcome()),
        (&ErrorKind::Unavailable, WriteOutcome::NotApplied),
        "{error}"
    );
    store.no_loads.store(false, SeqCst);
    let error = SessionStore::commit(&*bob.sessions, other).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Conflict { head: None }, "{error}");
}

/// An outage is not taken for a device that used no session.
#[tokio::test]
async fn an_outage_hides_no_last_session() {
    let (store, alice, _) = failing();
    let laptop: DeviceId = "laptop".parse().unwrap();
    let effects = Effects::default();
    let session =
        alice.sessions.create(NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT)).await.unwrap();
    alice.bindings.bind(&laptop, WorkspaceId::DEFAULT, Precondition::None).await.unwrap();
    alice.bindings.set_last_session(&laptop, session.id).await.unwrap();
    // It remembers no session yet.
    let again = Storage::new(alice.workspaces.clone(), store.clone(), Arc::new(store.under.clone()));
    let again = again.for_owner(&owner("alice"));
    store.no_loads.store(true, SeqCst);
    let error = again.bindings.last_session(&laptop).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Unavailable, "{error}");
    store.no_loads.store(false, SeqCst);
    assert_eq!(again.bindings.last_session(&laptop).await.unwrap(), Some(session.id));
}

/// Bindings as they were before anybody bound a device.
#[derive(Debug)]
struct Stale(MemoryStore);

#[async_trait]
impl BindingStoreWrapper for Stale {
    fn inner(&self) -> &dyn BindingStore {
        &self.0
    }

    async fn resolve(&self, _: &DeviceId) -> Result<Option<WorkspaceId>> {
        Ok(None)
    }
}

/// Another owner's binding is not replaced by one who did not see it.
#[tokio::test]
async fn a_binding_that_was_not_seen_is_not_replaced() {
    let (under, effects) = (MemoryStore::new(), Effects::default());
    let shared = Arc::new(under.clone());
    let stale = Storage::new(shared.clone(), shared, Arc::new(Stale(under.clone())));
    let (alice, bob) =
        (Storage::from(under.clone()).for_owner(&owner("alice")), stale.for_owner(&owner("bob")));
    let mut places = Vec::new();
    for of in [&alice, &bob] {
        let new = Workspace::new(effects.new_workspace_id(), "home", effects.new_session_id(), effects.now());
        places.push(of.workspaces.put(new, Precondition::MustNotExist).await.unwrap().id);
    }
    let laptop: DeviceId = "laptop".parse().unwrap();
    alice.bindings.bind(&laptop, places[0], Precondition::MustNotExist).await.unwrap();
    for expect in [Precondition::MustExist, Precondition::Matches(places[1]), Precondition::MustNotExist] {
        let error = bob.bindings.bind(&laptop, places[1], expect).await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::Conflict { head: None }, "{expect:?}: {error}");
        assert_eq!(under.resolve(&laptop).await.unwrap(), Some(places[0]), "{expect:?}");
    }
}

/// What a session stores is counted by its kind; a clearing changes nothing of it, a fork begins at zero, and a purge takes it away.
#[tokio::test]
async fn content_is_counted_by_its_kind() {
    let (under, effects) = (MemoryStore::new(), Effects::default());
    let store = under.sessions(&effects);
    let new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
    let mut session = store.create(new).await.unwrap();
    let put = PutBlob::of_bytes(session.id, "a report");
    let blob = BlobInfo::new(put.blob.name, put.blob.bytes);
    store.blobs().put(put).await.unwrap();
    let artifact = Artifact::new("report").with_blob(blob);
    let result = NewEvent::tool_result(call("c1"), ToolOutcome::Ok, json(r#"{"rain":true}"#));
    let thinking = NewEvent::of(&EventPayload::AgentThinking(Message::new("Is it?")));
    let events = [
        (NewEvent::user_message("Rain?"), "texts"),
        (thinking, "reasoning"),
        (NewEvent::tool_use(call("c1"), "weather", RawJson::empty_object()), ""),
        (result, "tool_results"),
        (NewEvent::artifact_registered(artifact), "blobs"),
        (NewEvent::agent_message("It rains."), "texts"),
    ];
    let mut expected = ContentBytes::default();
    for (event, kind) in events {
        session = store.append(session.id, session.head, vec![event]).await.unwrap().session;
        let stored = store.read(session.id, ReadEvents::last(1)).await.unwrap().events.remove(0);
        let bytes = stored.payload.get().len() as u64;
        match kind {
            "texts" => expected.texts += bytes,
            "reasoning" => expected.reasoning += bytes,
            "tool_results" => expected.tool_results += bytes,
            "blobs" => expected.blobs += "a report".len() as u64,
            _ => {}
        }
        assert_eq!(session.content_bytes, expected, "{kind}");
    }
    let fork = store.fork(session.id, Fork::at(session.head)).await.unwrap();
    assert_eq!(fork.content_bytes, ContentBytes::default());
    let clear = vec![NewEvent::history_cleared()];
    let session = store.append(session.id, session.head, clear).await.unwrap().session;
    assert_eq!((session.content_bytes, session.preview.as_ref()), (expected, None));
}

/// Words that begin as those of encrypted stores do are not kept for lists, nor in what forks inherit.
#[tokio::test]
async fn a_preview_is_never_taken_for_a_sealed_word() {
    let (under, effects) = (MemoryStore::new(), Effects::default());
    let store = under.sessions(&effects);
    let session =
        store.create(NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT)).await.unwrap();
    let text = vec![NewEvent::user_message("~1.5 hours left")];
    let session = store.append(session.id, session.head, text).await.unwrap().session;
    assert_eq!(session.preview.as_deref(), Some("1.5 hours left"));
    let fork = store.fork(session.id, Fork::at(session.head)).await.unwrap();
    assert_eq!(fork.first_words.as_deref(), Some("1.5 hours left"));
}

/// A restored fork inherits no words that no session has.
#[tokio::test]
async fn forged_words_are_not_restored() {
    let (under, effects) = (MemoryStore::new(), Effects::default());
    let store = under.sessions(&effects);
    let session =
        store.create(NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT)).await.unwrap();
    let hello = vec![NewEvent::user_message("Hello")];
    let session = store.append(session.id, session.head, hello).await.unwrap().session;
    let fork = store.fork(session.id, Fork::at(session.head)).await.unwrap();
    let first = store.read(fork.id, ReadEvents::first(1)).await.unwrap().events.remove(0);
    apply_untrusted(&mut None, fork.id, &first).unwrap();
    for words in ["x".repeat(WORDS_MAX_BYTES + 1), "two\nlines".to_owned(), "~1.AAAA".to_owned()] {
        for name in ["first_words", "preview"] {
            let mut forged = first.clone();
            let mut fields: RawFields = forged.payload.to().unwrap();
            let mut inherited: RawFields = fields.get("inherited").unwrap().to().unwrap();
            inherited.insert(name, RawJson::sure(&words));
            fields.insert("inherited", RawJson::sure(&inherited));
            forged.payload = RawJson::sure(&fields);
            let error = apply_untrusted(&mut None, fork.id, &forged).unwrap_err();
            assert_eq!(*error.kind(), ErrorKind::Corrupt, "{error}");
        }
    }
}
