//! What a purge takes, asked of the store alone: nothing that a living fork reads, and every word of the rest.

use std::sync::Arc;

use crate::shared::{log, new_session};
use agent_core::clock::Effects;
use agent_core::commit::{Commit, LeaseRequest, RunEnd, Trigger};
use agent_core::event::{DocumentWritten, NewEvent};
use agent_core::json::RawJson;
use agent_core::model::{Access, Actor, Attributes, ExternalHandle, Failure, Patch, Role, Title, Wake};
use agent_core::session::{NewSession, Session};
use agent_core::state::Reason;
use agent_core::store::{Purge, SessionQuery};
use agent_core::{ErrorKind, Seq, SessionId, SessionStoreExt, Storage, WorkspaceId};
use agent_tests::{Site, each_store};

async fn say(storage: &Storage, effects: &Effects, session: &Session, text: &str) -> Arc<Session> {
    let said = vec![NewEvent::user_message(text)];
    storage.sessions.append(effects, session.id, session.head, said).await.unwrap().session
}

async fn delete(storage: &Storage, effects: &Effects, id: SessionId) -> Arc<Session> {
    let delete = Trigger::Delete(Reason::UserDeleted);
    storage.sessions.trigger(effects, id, delete).await.unwrap().session
}

/// The plain call of the trait, with the plain request, spares what living forks read: forks of deleted
/// forks too, and no more than that.
async fn purge_keeps_what_a_fork_needs(site: Site) {
    let (storage, effects) = (site.open().await, Effects::default());
    let sessions = &storage.sessions;
    let parent = new_session(&storage, &effects).await;
    let parent = say(&storage, &effects, &parent, "one").await;
    let fork = sessions.fork(&effects, parent.id, None).await.unwrap();
    let nested = sessions.fork(&effects, fork.id, Some(Seq::new(2))).await.unwrap();
    let parent = say(&storage, &effects, &parent, "two").await;
    let (forked, nested_had) = (log(&storage, fork.id).await, log(&storage, nested.id).await);

    let purge = Purge::new(parent.id, parent.head.next());
    let refused = sessions.purge(purge.clone()).await.unwrap_err();
    assert_eq!(*refused.kind(), ErrorKind::InvalidInput, "{}: it lives", site.name);
    let deleted = delete(&storage, &effects, parent.id).await;
    assert_eq!(purge.head, deleted.head);
    assert_eq!(sessions.purge(purge.clone()).await.unwrap().events, 2, "{}", site.name);
    assert_eq!(log(&storage, fork.id).await, forked, "{}", site.name);
    assert_eq!(sessions.purge(purge.clone()).await.unwrap().events, 0, "{}", site.name);

    let gone = delete(&storage, &effects, fork.id).await;
    assert_eq!(sessions.purge(Purge::new(fork.id, gone.head)).await.unwrap().events, 2, "{}", site.name);
    assert_eq!(sessions.purge(purge.clone()).await.unwrap().events, 0, "{}: through the fork", site.name);
    assert_eq!(log(&storage, nested.id).await, nested_had, "{}", site.name);

    delete(&storage, &effects, nested.id).await;
    assert_eq!(sessions.purge(purge).await.unwrap().events, 2, "{}: nobody reads it", site.name);
}

each_store!(purge_keeps_what_a_fork_needs);

/// What a person, a model or a host can write into a record.
fn words() -> Patch {
    let value = || RawJson::parse("{\"note\":\"my password\"}").unwrap();
    Patch::new()
        .title(Title::by_user("my password"))
        .label("password", "my password")
        .metadata("password", value())
        .reference("password", "my password")
        .handle("password", ExternalHandle::new("password", "my password").with_note("password"))
        .mount("kb:password", Access::Read)
        .pin("my password")
}

/// Of a session that was deleted and purged its id, times, state and lineage are left, and no word of anybody's; in
/// the record, in lists, after the store was opened again and what it derives was made anew.
async fn tombstone_keeps_no_word(site: Site) {
    let (mut storage, effects) = (site.open().await, Effects::default());
    let creator = Actor::named(Role::User, "password").unwrap();
    let new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT).with(&words());
    let create = Commit::create(&effects, new).actor(creator.clone());
    let session = storage.sessions.commit(create).await.unwrap().session;
    let run = effects.new_run_id();
    let begin = Commit::seal(&effects, session.id, session.head)
        .event(NewEvent::user_message("the password"))
        .event(NewEvent::wake_scheduled(Wake::new("password", effects.now())))
        .event(NewEvent::document_written(DocumentWritten::after(
            None,
            "password",
            Some("my password".to_owned()),
        )))
        .trigger(Trigger::BeginRun(LeaseRequest::new("password", run)));
    let running = storage.sessions.commit(begin).await.unwrap();
    let failure = Failure::new(Reason::RunError, "the password is wrong");
    let end = Commit::seal(&effects, session.id, running.last)
        .fence(run, running.epoch.unwrap())
        .event(NewEvent::tool_use("password".parse().unwrap(), "sudo", RawJson::empty_object()))
        .trigger(Trigger::EndRun(RunEnd::Failed(failure)));
    let failed = storage.sessions.commit(end).await.unwrap().session;
    assert!(failed.to_json().matches("password").count() > 10, "{}", failed.to_json());
    let deleted = delete(&storage, &effects, session.id).await;
    let summary = |storage: &Storage| {
        let sessions = storage.sessions.clone();
        async move { sessions.list(SessionQuery::new().with_hidden()).await.unwrap().items }
    };
    assert!(format!("{:?}", summary(&storage).await).contains("password"), "deleted, not purged yet");
    storage.sessions.purge(Purge::new(session.id, deleted.head)).await.unwrap();
    for round in ["purged", "purged again", "opened again", "made anew"] {
        let left = storage.sessions.load(session.id).await.unwrap();
        assert!(!left.to_json().contains("password"), "{}, {round}: {}", site.name, left.to_json());
        let listed = summary(&storage).await;
        assert!(!format!("{listed:?}").contains("password"), "{}, {round}: {listed:?}", site.name);
        let kept = |of: &Session| {
            let lineage = (of.origin, of.depth, of.lineage.clone(), of.workspace);
            let times = (of.created_at, of.updated_at, of.last_active_at, of.ended_at);
            (of.id, of.head, of.status, lineage, times, of.recent.clone(), of.epoch)
        };
        assert_eq!(kept(&left), kept(&deleted), "{}, {round}", site.name);
        assert_eq!((left.creator.clone(), left.attributes.clone()), (Actor::USER, Attributes::default()));
        for query in [
            SessionQuery::new().creator(creator.clone()),
            SessionQuery::new().label("password", "my password"),
        ] {
            let found = storage.sessions.list(query.with_hidden()).await.unwrap();
            assert_eq!(found.items, [], "{}, {round}", site.name);
        }
        match round {
            "purged" => drop(storage.sessions.purge(Purge::new(session.id, deleted.head)).await.unwrap()),
            "purged again" => storage = site.open().await,
            _ => drop(storage.sessions.rebuild().await.unwrap()),
        }
    }
}

each_store!(tombstone_keeps_no_word);
