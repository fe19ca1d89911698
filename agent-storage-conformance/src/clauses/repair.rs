//! Contract 6, after damage: a damaged session can be deleted by its id, and a rebuild reports what it left out.

use std::sync::Arc;

use agent_core::commit::{Commit, Trigger};
use agent_core::event::NewEvent;
use agent_core::session::{NewSession, SessionRecord};
use agent_core::state::{Reason, SessionState};
use agent_core::store::{Purge, ReadEvents, SessionQuery};
use agent_core::{ErrorKind, Seq, SessionId, Storage};

use crate::factory::{Damage, DamageKind};
use crate::failure::{Checked, holds_for, refused, same};
use crate::registry::{Clause, Needs, table};
use crate::stage::{Stage, own_events};

pub(super) fn clauses() -> Vec<Clause> {
    table![NothingHides:
        a_damaged_session_can_be_deleted (Needs::Damage(DamageKind::Event)),
        rebuild_names_the_sessions_it_skipped (Needs::Damage(DamageKind::Event)),
    ]
}

/// Creates a session of some events with one damaged in the middle, and a session without damage.
async fn damaged(stage: &Stage) -> Checked<(Storage, Arc<SessionRecord>, Arc<SessionRecord>)> {
    let storage = stage.open().await?;
    let (mut session, other) = (stage.new_session(&storage).await?, stage.new_session(&storage).await?);
    for n in 0..8 {
        session = stage.append(&storage, &session, &format!("message {n}")).await?.session;
    }
    drop(storage);
    stage.damage(Damage::Event(session.id, Seq::new(5))).await?;
    Ok((stage.open().await?, session, other))
}

/// Deletes a session like hosts do: by a commit, or as a damaged session if its record is unreadable.
async fn delete(stage: &Stage, storage: &Storage, id: SessionId) -> Checked<Arc<SessionRecord>> {
    let (store, reason) = (&storage.sessions, Reason::UserDeleted);
    match store.trigger(id, Trigger::Delete(reason)).await {
        Err(error) if *error.kind() == ErrorKind::Corrupt => {
            Ok(store.maintenance().delete_damaged(id, stage.effects.now(), reason).await?)
        }
        deleted => Ok(deleted?.session),
    }
}

/// A damaged session can be deleted by its id: every handle then finds a tombstone, its id is not used again, no
/// session can be created from it, and its bytes are removed by a purge.
async fn a_damaged_session_can_be_deleted(stage: &Stage) -> Checked {
    let (storage, session, other) = damaged(stage).await?;
    let deleted = delete(stage, &storage, session.id).await?;
    same("the state", &deleted.status.state, &SessionState::Deleted)?;
    same("its workspace", &deleted.workspace, &session.workspace)?;
    same("deleting twice", &delete(stage, &storage, session.id).await?, &deleted)?;
    let mut storage = storage;
    for _ in 0..2 {
        for storage in [&storage, &stage.open().await?] {
            let store = &storage.sessions;
            same("the tombstone", &store.load(session.id).await?, &deleted)?;
            let append = stage.seal(&deleted).with_event(NewEvent::user_message("on"));
            refused!("a commit", store.commit(append).await, ErrorKind::Deleted)?;
            let create = Commit::create(&stage.effects, NewSession::new(session.id, session.workspace));
            refused!("a creation of its id", store.commit(create).await, ErrorKind::Deleted)?;
            let fork = store.fork(session.id, None).await;
            refused!("a fork", fork, ErrorKind::Deleted)?;
            if stage.lists_at_once(storage) {
                let page = store.list(SessionQuery::new()).await?;
                let ids: Vec<_> = page.items.iter().map(|item| item.id).collect();
                same("the list", &(ids, page.damaged), &(vec![other.id], Vec::new()))?;
                let query = SessionQuery::new().with_states([SessionState::Deleted]);
                let ids: Vec<_> = store.list(query).await?.items.iter().map(|item| item.id).collect();
                same("the list of deleted ones", &ids, &vec![session.id])?;
            }
        }
        storage = stage.reopen(storage).await?;
    }
    storage.sessions.purge(Purge::new(session.id, deleted.head)).await?;
    for _ in 0..2 {
        same("the tombstone", &*storage.sessions.load(session.id).await?, &deleted.tombstone())?;
        let left = storage.sessions.read(session.id, ReadEvents::first(100)).await?;
        same("what is left of it", &(left.events.len(), left.damaged), &(0, Vec::new()))?;
        same("another session", &own_events(&storage, other.id, 10).await?.len(), &1)?;
        storage = stage.reopen(storage).await?;
    }
    Ok(())
}

/// Data derived from a damaged log is not rebuilt, and the result names the session.
async fn rebuild_names_the_sessions_it_skipped(stage: &Stage) -> Checked {
    let (storage, session, _) = damaged(stage).await?;
    let rebuilt = storage.sessions.maintenance().rebuild().await?;
    if rebuilt.sessions == 0 && rebuilt.damaged.is_empty() {
        // It derives nothing.
        return Ok(());
    }
    same("how many were made anew", &rebuilt.sessions, &1)?;
    let id = session.id.to_string();
    let named = rebuilt.damaged.len() == 1 && rebuilt.damaged[0].object.contains(&id);
    holds_for("the damaged session is named", &rebuilt, named)
}
