//! Contract 6: absent, deleted, damaged and refused are different answers; what is damaged is never taken for absent,
//! never overwritten, and hides nothing else.

use agent_core::{
    BindingQuery, Commit, ErrorKind, Expect, NewEvent, NewSession, Purge, ReadEvents, Reason, Seq, Session,
    SessionQuery, SessionState, Storage, Trigger, WorkspaceQuery,
};

use crate::factory::{Damage, DamageKind};
use crate::failure::{Checked, Failure, holds_for, refused, same};
use crate::registry::{Clause, Needs, table};
use crate::stage::{START, Stage, own_events};

pub(super) fn clauses() -> Vec<Clause> {
    table![NothingHides:
        x01_a_session_that_never_was_is_not_found,
        x01_r13_a_deleted_session_is_a_tombstone,
        r13_only_a_deleted_session_is_purged_and_only_as_it_was_decided,
        r13_r17_a_purge_keeps_what_descendants_read,
        x01_a30_a_damaged_event_is_reported_and_the_rest_is_read (Needs::Damage(DamageKind::Event)),
        x01_a30_a_damaged_session_is_never_started_anew (Needs::Damage(DamageKind::Event)),
        a04_a05_a_damaged_workspace_is_named_and_not_replaced (Needs::Damage(DamageKind::Workspace)),
        a16_x01_damaged_bindings_are_no_missing_bindings (Needs::Damage(DamageKind::Bindings)),
        x08_what_is_derived_is_rebuilt_to_the_same_answers (Needs::Damage(DamageKind::Derived)),
    ]
}

/// X01: nothing is known of a session that never was, and no operation makes it.
async fn x01_a_session_that_never_was_is_not_found(stage: &Stage) -> Checked {
    let storage = stage.open().await?;
    let (id, store) = (stage.effects.new_session_id(), &storage.sessions);
    refused!("a load", store.load(id).await, ErrorKind::NotFound)?;
    for read in [ReadEvents::default(), ReadEvents::last(10), ReadEvents::first(10).after(Seq::new(5))] {
        refused!("a read", store.read(id, read).await, ErrorKind::NotFound)?;
    }
    refused!("a purge", store.purge(Purge::new(id, Seq::new(1))).await, ErrorKind::NotFound)?;
    refused!("waiting for it", store.changed(id, Seq::ZERO).await, ErrorKind::NotFound)?;
    for expect in [Expect::Any, Expect::Is(Seq::ZERO), Expect::Is(Seq::new(1))] {
        let commit = stage.seal_at(id, Seq::ZERO).expect(expect).event(NewEvent::user_message("hello?"));
        refused!("a commit", store.commit(commit).await, ErrorKind::NotFound)?;
    }
    let commit = stage.seal_at(id, Seq::ZERO).expect(Expect::Absent).event(NewEvent::user_message("hello?"));
    refused!("a commit that creates nothing", store.commit(commit).await, ErrorKind::InvalidInput)?;
    refused!("a load after all that", store.load(id).await, ErrorKind::NotFound)?;
    let page = store.list(SessionQuery::new().with_hidden().with_total()).await?;
    same("the list after all that", &(page.items.len(), page.total), &(0, Some(0)))
}

/// X01, R13: of a deleted session the tombstone is loaded, its events are there until they are purged, it takes no
/// commits, is not listed unless asked for, and its id is not used again; also after reopening.
async fn x01_r13_a_deleted_session_is_a_tombstone(stage: &Stage) -> Checked {
    let mut storage = stage.open().await?;
    let session = stage.new_session(&storage).await?;
    let session = stage.fill(&storage, &session, 5).await?;
    let delete = stage.seal(&session).trigger(Trigger::Delete(Reason::UserDeleted));
    let deleted = storage.sessions.commit(delete).await?.session;
    same("the state", &deleted.status.state, &SessionState::Deleted)?;
    for round in 0..4 {
        stage.note(["deleted", "reopened", "purged", "reopened"][round]);
        let store = &storage.sessions;
        same("the tombstone", &store.load(session.id).await?, &deleted)?;
        let left = if round < 2 { deleted.head.get() } else { 0 };
        same("its events", &(own_events(&storage, session.id, 3).await?.len() as u64), &left)?;
        let commit = stage.seal(&deleted).event(NewEvent::user_message("again"));
        refused!("a commit", store.commit(commit).await, ErrorKind::Deleted)?;
        let create = Commit::create(&stage.effects, NewSession::new(session.id, session.workspace));
        refused!("a creation of its id", store.commit(create).await, ErrorKind::Deleted)?;
        let again = stage.seal(&deleted).trigger(Trigger::Delete(Reason::Collected));
        same("deleting twice", &store.commit(again).await?.session, &deleted)?;
        same("the list", &store.list(SessionQuery::new()).await?.items.len(), &0)?;
        let hidden = store.list(SessionQuery::new().states([SessionState::Deleted])).await?;
        same("the list of deleted ones", &hidden.items.first().map(|item| item.id), &Some(session.id))?;
        if round == 1 {
            let purged = store.purge(Purge::new(session.id, deleted.head)).await?;
            same("the events removed", &purged.events, &deleted.head.get())?;
            let again = store.purge(Purge::new(session.id, deleted.head)).await?;
            same("the events removed the second time", &again.events, &0)?;
        } else {
            storage = stage.reopen(storage).await?;
        }
    }
    Ok(())
}

/// R13: a session that lives is not purged, nor one whose head is not the one that was decided on.
async fn r13_only_a_deleted_session_is_purged_and_only_as_it_was_decided(stage: &Stage) -> Checked {
    let storage = stage.open().await?;
    let session = stage.new_session(&storage).await?;
    let purge = storage.sessions.purge(Purge::new(session.id, session.head)).await;
    refused!("a purge of a session that lives", purge, ErrorKind::InvalidInput)?;
    let delete = stage.seal(&session).trigger(Trigger::Delete(Reason::UserDeleted));
    let deleted = storage.sessions.commit(delete).await?.session;
    let purge = storage.sessions.purge(Purge::new(session.id, session.head)).await;
    refused!("a purge at an old head", purge, ErrorKind::Conflict { head } if *head == Some(deleted.head))?;
    let events = own_events(&storage, session.id, 10).await?;
    same("its events", &(events.len() as u64), &deleted.head.get())
}

/// R13, R17: a purge keeps the events up to `keep`; a fork that reads them reads what it did before.
async fn r13_r17_a_purge_keeps_what_descendants_read(stage: &Stage) -> Checked {
    use agent_core::SessionStoreExt;

    let mut storage = stage.open().await?;
    let session = stage.new_session(&storage).await?;
    let parent = stage.fill(&storage, &session, 9).await?;
    let child = storage.sessions.fork(&stage.effects, parent.id, None).await?;
    let after = stage.fill(&storage, &parent, 5).await?;
    let before = storage.sessions.history(child.id, ReadEvents::first(100)).await?.events;
    let delete = stage.seal(&after).trigger(Trigger::Delete(Reason::UserDeleted));
    let deleted = storage.sessions.commit(delete).await?.session;
    let purge = Purge::new(parent.id, deleted.head).keep(parent.head);
    let purged = storage.sessions.purge(purge).await?;
    same("the events removed", &purged.events, &(deleted.head.get() - parent.head.get()))?;
    for _ in 0..2 {
        let history = storage.sessions.history(child.id, ReadEvents::first(100)).await?.events;
        same("the child's history", &history, &before)?;
        let kept = own_events(&storage, parent.id, 4).await?;
        same("the parent's last event", &kept.last().map(|event| event.seq), &Some(parent.head))?;
        storage = stage.reopen(storage).await?;
    }
    Ok(())
}

/// A session of some events, one of which in the middle is then damaged.
async fn damaged(stage: &Stage, storage: Storage) -> Checked<(Storage, Session, Seq)> {
    let session = stage.new_session(&storage).await?;
    let mut session = session;
    for n in 0..8 {
        session = stage.say(&storage, &session, &format!("message {n}")).await?.session;
    }
    drop(storage);
    let at = Seq::new(5);
    stage.damage(Damage::Event(session.id, at)).await?;
    Ok((stage.open().await?, session, at))
}

/// X01, A30: damage in the middle ends a page before it and is named; a page that would start with it is `Corrupt`;
/// what lies before and behind it is read, and so is every other session.
async fn x01_a30_a_damaged_event_is_reported_and_the_rest_is_read(stage: &Stage) -> Checked {
    let storage = stage.open().await?;
    let other = stage.new_session(&storage).await?;
    let (storage, session, at) = damaged(stage, storage).await?;
    let page = storage.sessions.read(session.id, ReadEvents::first(100)).await?;
    let seqs: Vec<_> = page.events.iter().map(|event| event.seq.get()).collect();
    same("the events before the damage", &seqs, &(1..at.get()).collect())?;
    holds_for("the damage is named on the page", &page, !page.damaged.is_empty())?;
    let from = ReadEvents::first(100).after(Seq::new(at.get() - 1));
    refused!(
        "a page that starts with it",
        storage.sessions.read(session.id, from).await,
        ErrorKind::Corrupt
    )?;
    let rest = storage.sessions.read(session.id, ReadEvents::first(100).after(at)).await?;
    let seqs: Vec<_> = rest.events.iter().map(|event| event.seq.get()).collect();
    same("the events behind the damage", &seqs, &(at.get() + 1..=session.head.get()).collect())?;
    same("another session", &storage.sessions.load(other.id).await?, &other)?;
    own_events(&storage, other.id, 10).await.map(drop)
}

/// X01, A30: a damaged session is never absent: it is not created anew, and no write makes the damage unseen.
async fn x01_a30_a_damaged_session_is_never_started_anew(stage: &Stage) -> Checked {
    let storage = stage.open().await?;
    let (mut storage, session, at) = damaged(stage, storage).await?;
    let create = Commit::create(&stage.effects, NewSession::new(session.id, session.workspace));
    let result = storage.sessions.commit(create).await;
    refused!("a creation of its id", result, ErrorKind::Conflict { .. } | ErrorKind::Corrupt)?;
    match storage.sessions.load(session.id).await {
        Ok(loaded) => same("its record, where it can be known", &loaded, &session)?,
        Err(error) => holds_for("its record is Corrupt", &error, *error.kind() == ErrorKind::Corrupt)?,
    }
    let said = storage.sessions.commit(stage.seal(&session).event(NewEvent::user_message("on"))).await;
    if let Err(error) = &said {
        holds_for("a refused write says Corrupt", error, *error.kind() == ErrorKind::Corrupt)?;
    }
    for _ in 0..2 {
        let from = ReadEvents::first(100).after(Seq::new(at.get() - 1));
        let read = storage.sessions.read(session.id, from).await;
        refused!("the damaged event", read, ErrorKind::Corrupt)?;
        let before = storage.sessions.read(session.id, ReadEvents::first(at.get() as usize - 1)).await?;
        same("the events before it", &(before.events.len() as u64), &(at.get() - 1))?;
        storage = stage.reopen(storage).await?;
    }
    Ok(())
}

/// A04, A05: a damaged workspace is `Corrupt`, is named in the list beside the others, and is not replaced.
async fn a04_a05_a_damaged_workspace_is_named_and_not_replaced(stage: &Stage) -> Checked {
    let storage = stage.open().await?;
    let (hurt, fine) = (stage.new_workspace(&storage).await?, stage.new_workspace(&storage).await?);
    drop(storage);
    stage.damage(Damage::Workspace(hurt.id)).await?;
    let mut storage = stage.open().await?;
    for _ in 0..2 {
        let store = &storage.workspaces;
        refused!("a load", store.load(hurt.id).await, ErrorKind::Corrupt)?;
        refused!(
            "a creation",
            store.put(hurt.clone(), Expect::Absent).await,
            ErrorKind::Corrupt | ErrorKind::Conflict { .. }
        )?;
        refused!("a put", store.put(hurt.clone(), Expect::Any).await, ErrorKind::Corrupt)?;
        refused!("a touch", store.touch(hurt.id, START).await, ErrorKind::Corrupt)?;
        let page = store.list(WorkspaceQuery::new()).await?;
        same("those that can be read", &page.items, &vec![fine.clone()])?;
        let named = page.damaged.iter().any(|damaged| damaged.object.contains(&hurt.id.to_string()));
        holds_for("the damaged one is named in the list", &page, named)?;
        storage = stage.reopen(storage).await?;
    }
    Ok(())
}

/// A16, X01: damaged bindings are `Corrupt`: no device is taken for unbound, and the next bind does not erase them.
async fn a16_x01_damaged_bindings_are_no_missing_bindings(stage: &Stage) -> Checked {
    let storage = stage.open().await?;
    let (device, workspace) = (stage.device("laptop")?, stage.effects.new_workspace_id());
    for n in 0..4 {
        storage.bindings.bind(&stage.device(&format!("device {n}"))?, workspace, Expect::Absent).await?;
    }
    storage.bindings.bind(&device, workspace, Expect::Absent).await?;
    drop(storage);
    stage.damage(Damage::Bindings).await?;
    let mut storage = stage.open().await?;
    for _ in 0..2 {
        let store = &storage.bindings;
        refused!("resolving", store.resolve(&device).await, ErrorKind::Corrupt)?;
        let other = stage.effects.new_workspace_id();
        for expect in [Expect::Absent, Expect::Any] {
            refused!("a bind", store.bind(&device, other, expect).await, ErrorKind::Corrupt)?;
        }
        refused!("an unbinding", store.unbind(&device).await, ErrorKind::Corrupt)?;
        match store.list(BindingQuery::new()).await {
            Ok(page) => holds_for("the list names the damage", &page, !page.damaged.is_empty())?,
            Err(error) => holds_for("the list is Corrupt", &error, *error.kind() == ErrorKind::Corrupt)?,
        }
        storage = stage.reopen(storage).await?;
    }
    Ok(())
}

/// X08: whatever is derived from the logs is rebuilt, when it is gone, to the same records, lists and histories.
async fn x08_what_is_derived_is_rebuilt_to_the_same_answers(stage: &Stage) -> Checked {
    use agent_core::SessionStoreExt;

    let storage = stage.open().await?;
    let mut sessions = Vec::new();
    for n in 0..6 {
        let session = stage.new_session(&storage).await?;
        sessions.push(stage.fill(&storage, &session, n * 3).await?);
    }
    let child = storage.sessions.fork(&stage.effects, sessions[5].id, None).await?;
    sessions.push(stage.begin_run(&storage, &child, "on").await?.0);
    let delete = stage.seal(&sessions[0]).trigger(Trigger::Delete(Reason::UserDeleted));
    sessions[0] = storage.sessions.commit(delete).await?.session;
    let list = storage.sessions.list(SessionQuery::new().with_hidden().with_total()).await?;
    let history = storage.sessions.history(child.id, ReadEvents::first(100)).await?.events;
    drop(storage);
    stage.damage(Damage::Derived).await?;
    let storage = stage.open().await?;
    let again = storage.sessions.list(SessionQuery::new().with_hidden().with_total()).await?;
    same("the list", &again, &list)?;
    for session in &sessions {
        same("a record", &storage.sessions.load(session.id).await?, session)?;
        let last = session.recent.last().ok_or_else(|| Failure::new("a record", "a last commit", "none"))?;
        same("its last event", &last.last, &session.head)?;
    }
    let again = storage.sessions.history(child.id, ReadEvents::first(100)).await?.events;
    same("a history across sessions", &again, &history)?;
    stage.say(&storage, &sessions[3], "on").await.map(drop)
}
