//! Contract 6: absent, deleted, damaged and refused are different answers; what is damaged is never taken for absent,
//! never overwritten, and hides nothing else.

use std::sync::Arc;

use agent_admin::salvage::salvage;
use agent_admin::verify::{Finding, FindingKind, verify};
use agent_core::commit::{Commit, Expect, Trigger};
use agent_core::event::{Body, NewEvent};
use agent_core::session::{NewSession, Session};
use agent_core::state::{Reason, SessionState};
use agent_core::store::{BindingQuery, Purge, ReadEvents, SessionQuery, WorkspaceQuery};
use agent_core::{ErrorKind, Seq, Storage};

use crate::factory::{Damage, DamageKind};
use crate::failure::{Checked, Failure, holds_for, refused, same};
use crate::registry::{Clause, Needs, table};
use crate::stage::{START, Stage, own_events};

pub(super) fn clauses() -> Vec<Clause> {
    table![NothingHides:
        a_session_that_never_was_is_not_found,
        a_deleted_session_is_a_tombstone,
        only_a_deleted_session_is_purged_and_only_as_it_was_decided,
        a_purge_keeps_what_descendants_read,
        a_damaged_event_is_reported_and_the_rest_is_read (Needs::Damage(DamageKind::Event)),
        a_damaged_session_is_never_started_anew (Needs::Damage(DamageKind::Event)),
        a_damaged_workspace_is_named_and_not_replaced (Needs::Damage(DamageKind::Workspace)),
        damaged_bindings_are_no_missing_bindings (Needs::Damage(DamageKind::Bindings)),
        what_is_sound_is_verified,
        damage_is_found_and_nothing_else (Needs::Damage(DamageKind::Event)),
        damaged_workspaces_are_found (Needs::Damage(DamageKind::Workspace)),
        damaged_bindings_are_found (Needs::Damage(DamageKind::Bindings)),
        what_can_be_read_of_a_damaged_session_is_saved (Needs::Damage(DamageKind::Event)),
        a_damaged_fork_is_saved_with_what_it_shares (Needs::Damage(DamageKind::Event)),
        a_rebuild_changes_no_answer,
        what_is_derived_is_rebuilt_to_the_same_answers (Needs::Damage(DamageKind::Derived)),
    ]
}

/// Nothing is known of a session that never was, and no operation makes it.
async fn a_session_that_never_was_is_not_found(stage: &Stage) -> Checked {
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

/// Of a deleted session the tombstone is loaded, its events are there until they are purged, it takes no
/// commits, is not listed unless asked for, and its id is not used again; also after reopening.
async fn a_deleted_session_is_a_tombstone(stage: &Stage) -> Checked {
    let mut storage = stage.open().await?;
    let session = stage.new_session(&storage).await?;
    let session = stage.fill(&storage, &session, 5).await?;
    let delete = stage.seal(&session).trigger(Trigger::Delete(Reason::UserDeleted));
    let deleted = storage.sessions.commit(delete).await?.session;
    same("the state", &deleted.status.state, &SessionState::Deleted)?;
    for round in 0..4 {
        stage.note(["deleted", "reopened", "purged", "reopened"][round]);
        let store = &storage.sessions;
        let whole = if round < 2 { deleted.clone() } else { Arc::new(deleted.tombstone()) };
        same("the tombstone", &store.load(session.id).await?, &whole)?;
        let left = if round < 2 { deleted.head.get() } else { 0 };
        same("its events", &(own_events(&storage, session.id, 3).await?.len() as u64), &left)?;
        let commit = stage.seal(&deleted).event(NewEvent::user_message("again"));
        refused!("a commit", store.commit(commit).await, ErrorKind::Deleted)?;
        let create = Commit::create(&stage.effects, NewSession::new(session.id, session.workspace));
        refused!("a creation of its id", store.commit(create).await, ErrorKind::Deleted)?;
        let again = stage.seal(&deleted).trigger(Trigger::Delete(Reason::Collected));
        same("deleting twice", &store.commit(again).await?.session, &whole)?;
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

/// A session that lives is not purged, nor one whose head is not the one that was decided on.
async fn only_a_deleted_session_is_purged_and_only_as_it_was_decided(stage: &Stage) -> Checked {
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

/// A purge keeps the events up to `keep`; a fork that reads them reads what it did before.
async fn a_purge_keeps_what_descendants_read(stage: &Stage) -> Checked {
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
async fn damaged(stage: &Stage, storage: Storage) -> Checked<(Storage, Arc<Session>, Seq)> {
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

/// Damage in the middle ends a page before it and is named; a page that would start with it is `Corrupt`;
/// what lies before and behind it is read, and so is every other session.
async fn a_damaged_event_is_reported_and_the_rest_is_read(stage: &Stage) -> Checked {
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

/// A damaged session is never absent: it is not created anew, and no write makes the damage unseen.
async fn a_damaged_session_is_never_started_anew(stage: &Stage) -> Checked {
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

/// A damaged workspace is `Corrupt`, is named in the list beside the others, and is not replaced.
async fn a_damaged_workspace_is_named_and_not_replaced(stage: &Stage) -> Checked {
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

/// Damaged bindings are `Corrupt`: no device is taken for unbound, and the next bind does not erase them.
async fn damaged_bindings_are_no_missing_bindings(stage: &Stage) -> Checked {
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

/// Whatever is derived from the logs is rebuilt, when it is gone, to the same records, lists and histories.
async fn what_is_derived_is_rebuilt_to_the_same_answers(stage: &Stage) -> Checked {
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

/// Making anew what is derived changes no answer, of the handle that asks for it, of another and of one that
/// comes later; a run that goes on keeps its lease, and can write.
async fn a_rebuild_changes_no_answer(stage: &Stage) -> Checked {
    use agent_core::SessionStoreExt;

    let (here, there) = (stage.open().await?, stage.open().await?);
    let mut sessions = Vec::new();
    for n in 0..4 {
        let session = stage.new_session(&here).await?;
        sessions.push(stage.fill(&here, &session, n * 3).await?);
    }
    let child = here.sessions.fork(&stage.effects, sessions[3].id, None).await?;
    let (running, run) = stage.begin_run(&here, &child, "on").await?;
    let delete = stage.seal(&sessions[0]).trigger(Trigger::Delete(Reason::UserDeleted));
    sessions[0] = here.sessions.commit(delete).await?.session;
    here.sessions.purge(Purge::new(sessions[0].id, sessions[0].head)).await?;
    sessions[0] = Arc::new(sessions[0].tombstone());
    sessions.push(running.clone());
    let list = here.sessions.list(SessionQuery::new().with_hidden().with_total()).await?;
    here.sessions.rebuild().await?;
    let later = stage.open().await?;
    for storage in [&here, &there, &later] {
        let again = storage.sessions.list(SessionQuery::new().with_hidden().with_total()).await?;
        same("the list", &again, &list)?;
        for session in &sessions {
            same("a record", &storage.sessions.load(session.id).await?, session)?;
        }
    }
    let said = stage.seal_run(&running, run).event(NewEvent::agent_message("still here"));
    here.sessions.commit(said).await?;
    there.sessions.rebuild().await?;
    stage.say(&there, &sessions[2], "on").await.map(drop)
}

/// Of a store with a bit of everything nothing is found; each object is counted.
async fn what_is_sound_is_verified(stage: &Stage) -> Checked {
    use agent_core::SessionStoreExt;

    let storage = stage.open().await?;
    let workspace = stage.new_workspace(&storage).await?;
    storage.workspaces.save_config(workspace.id, Some("a = 1".to_owned()), Expect::Absent).await?;
    storage.bindings.bind(&stage.device("laptop")?, workspace.id, Expect::Absent).await?;
    let new = NewSession::new(stage.effects.new_session_id(), workspace.id);
    let session = stage.create(&storage, new).await?;
    let session = stage.fill(&storage, &session, 12).await?;
    let child = storage.sessions.fork(&stage.effects, session.id, None).await?;
    stage.begin_run(&storage, &child, "on").await?;
    let gone = NewSession::new(stage.effects.new_session_id(), workspace.id);
    let gone = stage.create(&storage, gone).await?;
    let delete = stage.seal(&gone).trigger(Trigger::Delete(Reason::UserDeleted));
    let gone = storage.sessions.commit(delete).await?.session;
    storage.sessions.purge(Purge::new(gone.id, gone.head)).await?;
    let mut calls = 0;
    let seen = verify(&storage, |_| calls += 1).await?;
    same("what is found", &seen.findings, &vec![])?;
    same("what was looked at", &(seen.workspaces, seen.sessions, seen.bindings), &(1, 3, 1))?;
    holds_for("its events were read", &seen.events, seen.events > session.head.get())?;
    same("how often it told of its progress", &calls, &5)
}

/// A damaged event is found, in its session and nowhere else.
async fn damage_is_found_and_nothing_else(stage: &Stage) -> Checked {
    let storage = stage.open().await?;
    let workspace = stage.new_workspace(&storage).await?;
    let new = NewSession::new(stage.effects.new_session_id(), workspace.id);
    stage.create(&storage, new).await?;
    let (storage, session, _) = damaged(stage, storage).await?;
    let found = verify(&storage, |_| ()).await?.findings;
    let damage = found.iter().filter(|finding| finding.kind == FindingKind::Damaged);
    let named = damage.clone().all(|finding| {
        [&finding.object, &finding.detail].iter().any(|text| text.contains(&session.id.to_string()))
    });
    holds_for("damage is found", &found, damage.count() > 0)?;
    holds_for("of that session only", &found, named)?;
    let differs = found.iter().any(|finding| finding.kind == FindingKind::Differs);
    holds_for("nothing that is derived differs", &found, !differs)
}

/// A damaged workspace is found.
async fn damaged_workspaces_are_found(stage: &Stage) -> Checked {
    let storage = stage.open().await?;
    let (hurt, _) = (stage.new_workspace(&storage).await?, stage.new_workspace(&storage).await?);
    drop(storage);
    stage.damage(Damage::Workspace(hurt.id)).await?;
    let seen = verify(&stage.open().await?, |_| ()).await?;
    same("what can be read", &seen.workspaces, &1)?;
    let named = |finding: &&Finding| {
        finding.kind == FindingKind::Damaged && finding.object.contains(&hurt.id.to_string())
    };
    same("how often it is named", &seen.findings.iter().filter(named).count(), &1)
}

/// Damaged bindings are found.
async fn damaged_bindings_are_found(stage: &Stage) -> Checked {
    let storage = stage.open().await?;
    let workspace = stage.new_workspace(&storage).await?.id;
    for n in 0..4 {
        storage.bindings.bind(&stage.device(&format!("device {n}"))?, workspace, Expect::Absent).await?;
    }
    storage.bindings.bind(&stage.device("laptop")?, workspace, Expect::Absent).await?;
    drop(storage);
    stage.damage(Damage::Bindings).await?;
    let found = verify(&stage.open().await?, |_| ()).await?.findings;
    let damage = found.iter().any(|finding| finding.kind == FindingKind::Damaged);
    holds_for("damage is found", &found, damage)
}

/// All that can be read of a damaged session is in a new one, in its order, with a note in the place of what is
/// lost; the damaged one stays as it is, and the new one goes on.
async fn what_can_be_read_of_a_damaged_session_is_saved(stage: &Stage) -> Checked {
    let storage = stage.open().await?;
    let (storage, session, at) = damaged(stage, storage).await?;
    let saved = salvage(&storage, &stage.effects, session.id, Some(session.workspace)).await?;
    same("the events that were read", &saved.read, &(session.head.get() - 1))?;
    let gaps: Vec<_> = saved.gaps.iter().map(|gap| (gap.first, gap.last)).collect();
    same("what could not be read", &gaps, &vec![(at, at)])?;
    let mut texts = Vec::new();
    for event in own_events(&storage, saved.session.id, 100).await? {
        match event.body()? {
            Body::UserMessage(said) => texts.push(said.text),
            Body::SystemMessage(said) => {
                holds_for("the note names what is lost", &said.text, said.text.contains("event 5"))?;
                let told = saved.gaps.iter().any(|gap| said.text.contains(&gap.reason));
                holds_for("the note says nothing of where it is kept", &said.text, !told)?;
                texts.push("lost".to_owned());
            }
            body => {
                let made_up = matches!(body, Body::UserInterrupt(_));
                holds_for("nothing that nobody did", &event.kind, !made_up)?;
            }
        }
    }
    let mut expected: Vec<_> = (0..8).map(|n| format!("message {n}")).collect();
    // The first message is event 2.
    expected[3] = "lost".to_owned();
    same("what the new session says", &texts, &expected)?;
    same("what waits in it", &(saved.session.pending, saved.session.status.state), &(0, SessionState::Idle))?;
    let from = ReadEvents::first(100).after(Seq::new(at.get() - 1));
    refused!("the damaged event", storage.sessions.read(session.id, from).await, ErrorKind::Corrupt)?;
    stage.say(&storage, &saved.session, "on").await.map(drop)
}

/// Of a damaged fork also that is saved which it shares with what it was made from.
async fn a_damaged_fork_is_saved_with_what_it_shares(stage: &Stage) -> Checked {
    use agent_core::SessionStoreExt;

    let storage = stage.open().await?;
    let parent = stage.new_session(&storage).await?;
    let parent = stage.say(&storage, &parent, "shared").await?.session;
    let mut fork = storage.sessions.fork(&stage.effects, parent.id, None).await?;
    for n in 0..6 {
        fork = stage.say(&storage, &fork, &format!("message {n}")).await?.session;
    }
    drop(storage);
    // Behind the shared history stands the event that made the fork.
    let at = Seq::new(parent.head.get() + 4);
    stage.damage(Damage::Event(fork.id, at)).await?;
    let storage = stage.open().await?;
    let saved = salvage(&storage, &stage.effects, fork.id, None).await?;
    same("where it is", &saved.session.workspace, &fork.workspace)?;
    let gaps: Vec<_> = saved.gaps.iter().map(|gap| (gap.first, gap.last)).collect();
    same("what could not be read", &gaps, &vec![(at, at)])?;
    let mut texts = Vec::new();
    for event in own_events(&storage, saved.session.id, 100).await? {
        if let Body::UserMessage(said) = event.body()? {
            texts.push(said.text);
        }
    }
    let expected = ["shared", "message 0", "message 1", "message 3", "message 4", "message 5"];
    same("what the new session says", &texts, &expected.map(str::to_owned).to_vec())
}
