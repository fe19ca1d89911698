//! Scope of a purge: it removes nothing that a living fork reads, and every word of the rest.

use std::sync::Arc;

use agent_core::commit::{Commit, LeaseRequest, RunEnd, Trigger};
use agent_core::event::{DocumentWritten, NewEvent};
use agent_core::json::RawJson;
use agent_core::model::{
    Access, Actor, Attributes, ExternalHandle, Failure as RunFailure, Patch, Role, Timer, Title,
};
use agent_core::session::{NewSession, SessionRecord};
use agent_core::state::Reason;
use agent_core::store::{Purge, ReadEvents, SessionQuery};
use agent_core::{ErrorKind, OwnerId, Seq, SessionId, SessionStoreExt, Sessions, Storage};

use super::owners::{Owners, in_default, owner};
use crate::failure::{Checked, holds_for, refused, same};
use crate::registry::{Clause, table};
use crate::stage::Stage;

pub(super) fn clauses() -> Vec<Clause> {
    [
        table![Lineage: purge_keeps_events_that_live_forks_read,],
        table![NothingHides: purged_tombstone_keeps_no_text,],
        table![Owners:
            a_pseudonym_takes_the_owners_place_in_a_tombstone,
            a_later_pseudonym_replaces_the_name_and_a_plain_purge_keeps_it,
        ],
    ]
    .concat()
}

async fn delete(stage: &Stage, storage: &Storage, session: &SessionRecord) -> Checked<Arc<SessionRecord>> {
    let delete = stage.seal(session).with_trigger(Trigger::Delete(Reason::UserDeleted));
    Ok(storage.sessions.commit(delete).await?.session)
}

/// A plain request, without events to keep, keeps everything that living forks read, including forks of deleted forks.
/// When no fork reads it any more, it is removed.
async fn purge_keeps_events_that_live_forks_read(stage: &Stage) -> Checked {
    let mut storage = stage.open().await?;
    let parent = stage.new_session(&storage).await?;
    let parent = stage.fill(&storage, &parent, 2).await?;
    let parent = stage.fill(&storage, &parent, 2).await?;
    let fork = storage.sessions.fork(parent.id, None).await?;
    let nested = storage.sessions.fork(fork.id, Some(Seq::new(3))).await?;
    let child = storage.sessions.create_child(parent.id, Patch::new()).await?;
    let history = async |storage: &Storage, id: SessionId| -> Checked<_> {
        Ok(storage.sessions.history(id, ReadEvents::first(100)).await?.events)
    };
    let (forked, nested_had) = (history(&storage, fork.id).await?, history(&storage, nested.id).await?);
    let head = storage.sessions.load(parent.id).await?;

    let soon = Purge::new(parent.id, head.head.next());
    refused!("a purge before the deletion", storage.sessions.purge(soon).await, ErrorKind::InvalidInput)?;
    let deleted = delete(stage, &storage, &head).await?;
    let purge = Purge::new(parent.id, deleted.head);
    let gone = deleted.head.get() - parent.head.get();
    same("the events removed", &storage.sessions.purge(purge.clone()).await?.events, &gone)?;
    for _ in 0..2 {
        same("the fork's history", &history(&storage, fork.id).await?, &forked)?;
        storage = stage.reopen(storage).await?;
    }
    same("the state of the child", &storage.sessions.load(child.id).await?.head, &child.head)?;

    let ended = delete(stage, &storage, &fork).await?;
    storage.sessions.purge(Purge::new(fork.id, ended.head)).await?;
    storage.sessions.purge(purge.clone()).await?;
    for _ in 0..2 {
        same(
            "the history of the fork of the deleted fork",
            &history(&storage, nested.id).await?,
            &nested_had,
        )?;
        storage = stage.reopen(storage).await?;
    }

    delete(stage, &storage, &nested).await?;
    let left = storage.sessions.read(parent.id, ReadEvents::first(100)).await?.events.len() as u64;
    same("the events removed when nobody reads them", &storage.sessions.purge(purge).await?.events, &left)?;
    let left = storage.sessions.read(parent.id, ReadEvents::first(100)).await?.events;
    same("the events that are left then", &left.len(), &0)
}

const WORD: &str = "sesame";

/// Creates a session in whose record each text field contains the word.
async fn wordy(stage: &Stage, storage: &Storage, creator: &Actor) -> Checked<Arc<SessionRecord>> {
    let patch = Patch::new()
        .with_title(Title::by_user(WORD))
        .with_label(WORD, WORD)
        .with_metadata(WORD, RawJson::of(&WORD)?)
        .with_reference(WORD, WORD)
        .with_handle(WORD, ExternalHandle::new(WORD, WORD).with_note(WORD))
        .mount(WORD, Access::Read)
        .pin(WORD);
    let new = NewSession::new(stage.effects.new_session_id(), stage.new_workspace(storage).await?.id);
    let create = Commit::create(&stage.effects, new.with_patch(&patch)).with_actor(creator.clone());
    let session = storage.sessions.commit(create).await?.session;
    let run = stage.effects.new_run_id();
    let begin = stage
        .seal(&session)
        .with_event(NewEvent::user_message(WORD))
        .with_event(NewEvent::timer_scheduled(Timer::new(WORD, crate::stage::START)))
        .with_event(NewEvent::document_written(DocumentWritten::after(None, WORD, Some(WORD.to_owned()))))
        .with_trigger(Trigger::BeginRun(LeaseRequest::new(WORD, run)));
    let running = storage.sessions.commit(begin).await?.session;
    let failure = RunFailure::new(Reason::RunError, WORD);
    let end = stage.seal_run(&running, run).with_trigger(Trigger::EndRun(RunEnd::Failed(failure)));
    Ok(storage.sessions.commit(end).await?.session)
}

/// A session that was deleted and purged keeps its ids, times, state and lineage, and no text that a person or program
/// wrote: in its record, in lists, and in lists by its labels or its creator. This also holds after reopening and
/// rebuilding.
async fn purged_tombstone_keeps_no_text(stage: &Stage) -> Checked {
    let mut storage = stage.open().await?;
    let creator = Actor::named(Role::User, WORD)?;
    let session = wordy(stage, &storage, &creator).await?;
    let deleted = delete(stage, &storage, &session).await?;
    storage.sessions.purge(Purge::new(session.id, deleted.head)).await?;
    for round in 0..3 {
        stage.note(["purged", "reopened", "rebuilt"][round]);
        let left = storage.sessions.load(session.id).await?;
        same("what is left of the record", &*left, &deleted.tombstone())?;
        same("its attributes", &left.attributes, &Attributes::default())?;
        holds_for("the record has no word of anybody's", &left.id, !left.to_json().contains(WORD))?;
        if stage.lists_at_once(&storage) {
            let all = storage.sessions.list(SessionQuery::new().with_hidden()).await?;
            let item = all.items.iter().find(|item| item.id == session.id);
            let quiet = item.is_some_and(|item| !format!("{item:?}").contains(WORD));
            holds_for("the list has it without a word of anybody's", &session.id, quiet)?;
            for query in [
                SessionQuery::new().with_label(WORD, WORD),
                SessionQuery::new().with_creator(creator.clone()),
            ] {
                let found = storage.sessions.list(query.with_hidden()).await?;
                same("those found by a word", &found.items.len(), &0)?;
            }
        }
        if round == 1 {
            storage.sessions.maintenance().rebuild().await?;
        }
        storage = stage.reopen(storage).await?;
    }
    Ok(())
}

/// A deleted session with a message, made through this handle.
async fn ended(stage: &Stage, storage: &Storage) -> Checked<Arc<SessionRecord>> {
    let session = in_default(stage, storage).await?;
    let said = stage.append(storage, &session, "hello").await?.session;
    delete(stage, storage, &said).await
}

/// Checks whose a tombstone is: this owner's in the record and in lists, and nobody's else.
async fn is_of(stage: &Stage, tenant: &Storage, id: SessionId, name: &str, others: &[&str]) -> Checked {
    let name = owner(name)?;
    same("the owner in the tombstone", &tenant.sessions.load(id).await?.owner, &Some(name.clone()))?;
    for other in others {
        let load = tenant.for_owner(&owner(other)?).sessions.load(id).await;
        refused!("a load by a former name", load, ErrorKind::NotFound)?;
    }
    if !stage.lists_at_once(tenant) {
        return Ok(());
    }
    let listed = async |sessions: &Sessions, of: Option<&OwnerId>| -> Checked<Vec<Option<OwnerId>>> {
        let query = of.map_or_else(SessionQuery::new, |of| SessionQuery::new().with_owner(of.clone()));
        let page = sessions.list(query.with_hidden()).await?;
        Ok(page.items.into_iter().filter(|item| item.id == id).map(|item| item.owner).collect())
    };
    let shown = vec![Some(name.clone())];
    same("the list of the name", &listed(&tenant.sessions, Some(&name)).await?, &shown)?;
    same("the list of all", &listed(&tenant.sessions, None).await?, &shown)?;
    for other in others {
        let other = owner(other)?;
        same("the list of a former name", &listed(&tenant.sessions, Some(&other)).await?, &Vec::new())?;
        let own = tenant.for_owner(&other).sessions;
        same("what a former owner lists", &listed(&own, None).await?, &Vec::new())?;
    }
    Ok(())
}

/// A purge with a pseudonym puts it in the place of the owner: the owner neither loads nor lists the tombstone any more, also
/// after reopening and a rebuild. Other sessions of the owner keep the name, and a session without an owner gets none.
async fn a_pseudonym_takes_the_owners_place_in_a_tombstone(stage: &Stage) -> Checked {
    let Owners { mut tenant, alice, bob } = Owners::open(stage).await?;
    let (erased, kept) = (ended(stage, &alice).await?, in_default(stage, &alice).await?);
    let (unowned, others) = (ended(stage, &tenant).await?, ended(stage, &bob).await?);
    drop((alice, bob));
    for session in [&erased, &unowned] {
        let purge = Purge::new(session.id, session.head).with_pseudonym(owner("erased-1")?);
        let purged = tenant.sessions.purge(purge).await?;
        same("the events removed", &purged.events, &session.head.get())?;
    }
    tenant.sessions.purge(Purge::new(others.id, others.head)).await?;
    for round in ["purged", "reopened", "rebuilt"] {
        stage.note(round);
        is_of(stage, &tenant, erased.id, "erased-1", &["alice"]).await?;
        is_of(stage, &tenant, kept.id, "alice", &["erased-1"]).await?;
        is_of(stage, &tenant, others.id, "bob", &["erased-1"]).await?;
        let left = tenant.sessions.load(erased.id).await?;
        holds_for("the tombstone has no former name", &erased.id, !left.to_json().contains("alice"))?;
        same("the owner of none's", &tenant.sessions.load(unowned.id).await?.owner, &None)?;
        same("what is amiss", &tenant.sessions.maintenance().check().await?, &Vec::new())?;
        if round == "reopened" {
            tenant.sessions.maintenance().rebuild().await?;
        }
        tenant = stage.reopen(tenant).await?;
    }
    Ok(())
}

/// A session that was purged gets a pseudonym by another purge, and then another one; a purge without any changes nothing, and
/// no purge brings a former name back.
async fn a_later_pseudonym_replaces_the_name_and_a_plain_purge_keeps_it(stage: &Stage) -> Checked {
    let Owners { mut tenant, alice, bob } = Owners::open(stage).await?;
    let session = ended(stage, &alice).await?;
    drop((alice, bob));
    let plain = Purge::new(session.id, session.head);
    for (pseudonym, name, others) in [
        (None, "alice", &["erased-1"][..]),
        (Some("erased-1"), "erased-1", &["alice"]),
        (None, "erased-1", &["alice"]),
        (Some("erased-1"), "erased-1", &["alice"]),
        (Some("erased-2"), "erased-2", &["alice", "erased-1"]),
        (None, "erased-2", &["alice", "erased-1"]),
    ] {
        let purge = match pseudonym {
            Some(pseudonym) => plain.clone().with_pseudonym(owner(pseudonym)?),
            None => plain.clone(),
        };
        stage.note(format!("a purge with {pseudonym:?}"));
        tenant.sessions.purge(purge).await?;
        is_of(stage, &tenant, session.id, name, others).await?;
        same("what is amiss", &tenant.sessions.maintenance().check().await?, &Vec::new())?;
        tenant = stage.reopen(tenant).await?;
        is_of(stage, &tenant, session.id, name, others).await?;
    }
    tenant.sessions.maintenance().rebuild().await?;
    is_of(stage, &tenant, session.id, "erased-2", &["alice", "erased-1"]).await
}
