//! Contract 6: absent, deleted, damaged and refused are different answers. Damaged data is never taken for absent,
//! never overwritten, and does not hide anything else.

use std::sync::Arc;

use agent_admin::salvage::salvage;
use agent_admin::verify::{Finding, FindingKind, verify};
use agent_core::commit::{Commit, Precondition, Trigger};
use agent_core::event::{EventPayload, NewEvent};
use agent_core::session::{NewSession, SessionRecord};
use agent_core::state::{Reason, SessionState};
use agent_core::store::{BindingQuery, Purge, ReadEvents, SessionQuery, WorkspaceQuery};
use agent_core::{ErrorKind, Seq, Storage};

use crate::factory::{Damage, DamageKind};
use crate::failure::{Checked, Failure, holds_for, refused, same};
use crate::registry::{Clause, Needs, table};
use crate::stage::{START, Stage, own_events};

pub(super) fn clauses() -> Vec<Clause> {
    table![NothingHides:
        unknown_session_is_not_found,
        a_deleted_session_is_a_tombstone,
        purge_needs_a_tombstone_at_the_expected_head,
        purge_keeps_events_that_descendants_read,
        a_damaged_event_is_reported_and_the_rest_is_read (Needs::Damage(DamageKind::Event)),
        damaged_session_is_never_recreated (Needs::Damage(DamageKind::Event)),
        damaged_workspace_is_reported_and_not_replaced (Needs::Damage(DamageKind::Workspace)),
        damaged_bindings_are_not_treated_as_absent (Needs::Damage(DamageKind::Bindings)),
        verify_finds_no_damage_in_a_sound_store,
        verify_finds_only_the_damaged_event (Needs::Damage(DamageKind::Event)),
        verify_finds_damaged_workspaces (Needs::Damage(DamageKind::Workspace)),
        verify_finds_damaged_bindings (Needs::Damage(DamageKind::Bindings)),
        salvage_copies_all_readable_events (Needs::Damage(DamageKind::Event)),
        salvaged_fork_includes_its_shared_history (Needs::Damage(DamageKind::Event)),
        a_rebuild_changes_no_answer,
        rebuilt_derived_data_gives_the_same_answers (Needs::Damage(DamageKind::Derived)),
    ]
}

/// A session that never existed is `NotFound`, and no operation creates it.
async fn unknown_session_is_not_found(stage: &Stage) -> Checked {
    let storage = stage.open().await?;
    let (id, store) = (stage.effects.new_session_id(), &storage.sessions);
    refused!("a load", store.load(id).await, ErrorKind::NotFound)?;
    for read in [ReadEvents::default(), ReadEvents::last(10), ReadEvents::first(10).with_after(Seq::new(5))] {
        refused!("a read", store.read(id, read).await, ErrorKind::NotFound)?;
    }
    refused!("a purge", store.purge(Purge::new(id, Seq::new(1))).await, ErrorKind::NotFound)?;
    refused!("waiting for it", store.changed(id, Seq::ZERO).await, ErrorKind::NotFound)?;
    for expect in
        [Precondition::MustExist, Precondition::Matches(Seq::ZERO), Precondition::Matches(Seq::new(1))]
    {
        let commit = stage
            .seal_at(id, Seq::ZERO)
            .with_precondition(expect)
            .with_event(NewEvent::user_message("hello?"));
        refused!("a commit", store.commit(commit).await, ErrorKind::NotFound)?;
    }
    let commit = stage
        .seal_at(id, Seq::ZERO)
        .with_precondition(Precondition::MustNotExist)
        .with_event(NewEvent::user_message("hello?"));
    refused!("a commit that creates nothing", store.commit(commit).await, ErrorKind::InvalidInput)?;
    refused!("a load after all that", store.load(id).await, ErrorKind::NotFound)?;
    let page = store.list(SessionQuery::new().with_hidden().with_total()).await?;
    same("the list after all that", &(page.items.len(), page.total), &(0, Some(0)))
}

/// A deleted session is loaded as a tombstone, and its events stay until they are purged. It accepts no commits, is
/// not listed unless requested, and its id is not used again. This also holds after reopening.
async fn a_deleted_session_is_a_tombstone(stage: &Stage) -> Checked {
    let mut storage = stage.open().await?;
    let session = stage.new_session(&storage).await?;
    let session = stage.fill(&storage, &session, 5).await?;
    let delete = stage.seal(&session).with_trigger(Trigger::Delete(Reason::UserDeleted));
    let deleted = storage.sessions.commit(delete).await?.session;
    same("the state", &deleted.status.state, &SessionState::Deleted)?;
    for round in 0..4 {
        stage.note(["deleted", "reopened", "purged", "reopened"][round]);
        let store = &storage.sessions;
        let whole = if round < 2 { deleted.clone() } else { Arc::new(deleted.tombstone()) };
        same("the tombstone", &store.load(session.id).await?, &whole)?;
        let left = if round < 2 { deleted.head.get() } else { 0 };
        same("its events", &(own_events(&storage, session.id, 3).await?.len() as u64), &left)?;
        let commit = stage.seal(&deleted).with_event(NewEvent::user_message("again"));
        refused!("a commit", store.commit(commit).await, ErrorKind::Deleted)?;
        let create = Commit::create(&stage.effects, NewSession::new(session.id, session.workspace));
        refused!("a creation of its id", store.commit(create).await, ErrorKind::Deleted)?;
        let again = stage.seal(&deleted).with_trigger(Trigger::Delete(Reason::Collected));
        same("deleting twice", &store.commit(again).await?.session, &whole)?;
        same("the list", &store.list(SessionQuery::new()).await?.items.len(), &0)?;
        let hidden = store.list(SessionQuery::new().with_states([SessionState::Deleted])).await?;
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

/// A purge is refused for a session that is not deleted, and for one whose head is not the expected one.
async fn purge_needs_a_tombstone_at_the_expected_head(stage: &Stage) -> Checked {
    let storage = stage.open().await?;
    let session = stage.new_session(&storage).await?;
    let purge = storage.sessions.purge(Purge::new(session.id, session.head)).await;
    refused!("a purge of a session that lives", purge, ErrorKind::InvalidInput)?;
    let delete = stage.seal(&session).with_trigger(Trigger::Delete(Reason::UserDeleted));
    let deleted = storage.sessions.commit(delete).await?.session;
    let purge = storage.sessions.purge(Purge::new(session.id, session.head)).await;
    refused!("a purge at an old head", purge, ErrorKind::Conflict { head } if *head == Some(deleted.head))?;
    let events = own_events(&storage, session.id, 10).await?;
    same("its events", &(events.len() as u64), &deleted.head.get())
}

/// A purge keeps the events up to `keep`; a fork that reads them reads the same as before.
async fn purge_keeps_events_that_descendants_read(stage: &Stage) -> Checked {
    use agent_core::SessionStoreExt;

    let mut storage = stage.open().await?;
    let session = stage.new_session(&storage).await?;
    let parent = stage.fill(&storage, &session, 9).await?;
    let child = storage.sessions.fork(parent.id, None).await?;
    let after = stage.fill(&storage, &parent, 5).await?;
    let before = storage.sessions.history(child.id, ReadEvents::first(100)).await?.events;
    let delete = stage.seal(&after).with_trigger(Trigger::Delete(Reason::UserDeleted));
    let deleted = storage.sessions.commit(delete).await?.session;
    let purge = Purge::new(parent.id, deleted.head).with_keep_through(parent.head);
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

/// Creates a session of some events, and damages one in the middle.
async fn damaged(stage: &Stage, storage: Storage) -> Checked<(Storage, Arc<SessionRecord>, Seq)> {
    let session = stage.new_session(&storage).await?;
    let mut session = session;
    for n in 0..8 {
        session = stage.append(&storage, &session, &format!("message {n}")).await?.session;
    }
    drop(storage);
    let at = Seq::new(5);
    stage.damage(Damage::Event(session.id, at)).await?;
    Ok((stage.open().await?, session, at))
}

/// A page ends before damage in the middle and reports it; a page that would start with it is `Corrupt`. The events
/// before and after it can be read, and so can every other session.
async fn a_damaged_event_is_reported_and_the_rest_is_read(stage: &Stage) -> Checked {
    let storage = stage.open().await?;
    let other = stage.new_session(&storage).await?;
    let (storage, session, at) = damaged(stage, storage).await?;
    let page = storage.sessions.read(session.id, ReadEvents::first(100)).await?;
    let seqs: Vec<_> = page.events.iter().map(|event| event.seq.get()).collect();
    same("the events before the damage", &seqs, &(1..at.get()).collect())?;
    holds_for("the damage is named on the page", &page, !page.damaged.is_empty())?;
    let from = ReadEvents::first(100).with_after(Seq::new(at.get() - 1));
    refused!(
        "a page that starts with it",
        storage.sessions.read(session.id, from).await,
        ErrorKind::Corrupt
    )?;
    let rest = storage.sessions.read(session.id, ReadEvents::first(100).with_after(at)).await?;
    let seqs: Vec<_> = rest.events.iter().map(|event| event.seq.get()).collect();
    same("the events behind the damage", &seqs, &(at.get() + 1..=session.head.get()).collect())?;
    same("another session", &storage.sessions.load(other.id).await?, &other)?;
    own_events(&storage, other.id, 10).await.map(drop)
}

/// A damaged session is never absent: it is not created again, and no write hides the damage.
async fn damaged_session_is_never_recreated(stage: &Stage) -> Checked {
    let storage = stage.open().await?;
    let (mut storage, session, at) = damaged(stage, storage).await?;
    let create = Commit::create(&stage.effects, NewSession::new(session.id, session.workspace));
    let result = storage.sessions.commit(create).await;
    refused!("a creation of its id", result, ErrorKind::Conflict { .. } | ErrorKind::Corrupt)?;
    match storage.sessions.load(session.id).await {
        Ok(loaded) => same("its record, where it can be known", &loaded, &session)?,
        Err(error) => holds_for("its record is Corrupt", &error, *error.kind() == ErrorKind::Corrupt)?,
    }
    let append = storage.sessions.commit(stage.seal(&session).with_event(NewEvent::user_message("on"))).await;
    if let Err(error) = &append {
        holds_for("a refused write says Corrupt", error, *error.kind() == ErrorKind::Corrupt)?;
    }
    for _ in 0..2 {
        let from = ReadEvents::first(100).with_after(Seq::new(at.get() - 1));
        let read = storage.sessions.read(session.id, from).await;
        refused!("the damaged event", read, ErrorKind::Corrupt)?;
        let before = storage.sessions.read(session.id, ReadEvents::first(at.get() as usize - 1)).await?;
        same("the events before it", &(before.events.len() as u64), &(at.get() - 1))?;
        storage = stage.reopen(storage).await?;
    }
    Ok(())
}

/// A damaged workspace is `Corrupt`, is reported in the list beside the others, and is not replaced.
async fn damaged_workspace_is_reported_and_not_replaced(stage: &Stage) -> Checked {
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
            store.put(hurt.clone(), Precondition::MustNotExist).await,
            ErrorKind::Corrupt | ErrorKind::Conflict { .. }
        )?;
        refused!("a put", store.put(hurt.clone(), Precondition::MustExist).await, ErrorKind::Corrupt)?;
        refused!("a touch", store.touch(hurt.id, START).await, ErrorKind::Corrupt)?;
        let page = store.list(WorkspaceQuery::new()).await?;
        same("those that can be read", &page.items, &vec![fine.clone()])?;
        let named = page.damaged.iter().any(|damaged| damaged.object.contains(&hurt.id.to_string()));
        holds_for("the damaged one is named in the list", &page, named)?;
        storage = stage.reopen(storage).await?;
    }
    Ok(())
}

/// Damaged bindings are `Corrupt`: no device counts as unbound, and the next bind does not erase them.
async fn damaged_bindings_are_not_treated_as_absent(stage: &Stage) -> Checked {
    let storage = stage.open().await?;
    let (device, workspace) = (stage.device("laptop")?, stage.effects.new_workspace_id());
    for n in 0..4 {
        storage
            .bindings
            .bind(&stage.device(&format!("device {n}"))?, workspace, Precondition::MustNotExist)
            .await?;
    }
    storage.bindings.bind(&device, workspace, Precondition::MustNotExist).await?;
    drop(storage);
    stage.damage(Damage::Bindings).await?;
    let mut storage = stage.open().await?;
    for _ in 0..2 {
        let store = &storage.bindings;
        refused!("resolving", store.resolve(&device).await, ErrorKind::Corrupt)?;
        let other = stage.effects.new_workspace_id();
        for expect in [Precondition::MustNotExist, Precondition::MustExist] {
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

/// Data that is derived from the logs is rebuilt, if it is missing, to the same records, lists and histories.
async fn rebuilt_derived_data_gives_the_same_answers(stage: &Stage) -> Checked {
    use agent_core::SessionStoreExt;

    let storage = stage.open().await?;
    let mut sessions = Vec::new();
    for n in 0..6 {
        let session = stage.new_session(&storage).await?;
        sessions.push(stage.fill(&storage, &session, n * 3).await?);
    }
    let child = storage.sessions.fork(sessions[5].id, None).await?;
    sessions.push(stage.begin_run(&storage, &child, "on").await?.0);
    let delete = stage.seal(&sessions[0]).with_trigger(Trigger::Delete(Reason::UserDeleted));
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
    stage.append(&storage, &sessions[3], "on").await.map(drop)
}

/// A rebuild of derived data changes no answer: of the handle that requests it, of another, and of one that is opened
/// later. A run that is at work keeps its lease, and can write.
async fn a_rebuild_changes_no_answer(stage: &Stage) -> Checked {
    let (here, there) = (stage.open().await?, stage.open().await?);
    let mut sessions = Vec::new();
    for n in 0..4 {
        let session = stage.new_session(&here).await?;
        sessions.push(stage.fill(&here, &session, n * 3).await?);
    }
    let child = here.sessions.fork(sessions[3].id, None).await?;
    let (running, run) = stage.begin_run(&here, &child, "on").await?;
    let delete = stage.seal(&sessions[0]).with_trigger(Trigger::Delete(Reason::UserDeleted));
    sessions[0] = here.sessions.commit(delete).await?.session;
    here.sessions.purge(Purge::new(sessions[0].id, sessions[0].head)).await?;
    sessions[0] = Arc::new(sessions[0].tombstone());
    sessions.push(running.clone());
    let list = here.sessions.list(SessionQuery::new().with_hidden().with_total()).await?;
    here.sessions.maintenance().rebuild().await?;
    let later = stage.open().await?;
    for storage in [&here, &there, &later] {
        let again = storage.sessions.list(SessionQuery::new().with_hidden().with_total()).await?;
        same("the list", &again, &list)?;
        for session in &sessions {
            same("a record", &storage.sessions.load(session.id).await?, session)?;
        }
    }
    let sealed = stage.seal_run(&running, run).with_event(NewEvent::agent_message("still here"));
    here.sessions.commit(sealed).await?;
    there.sessions.maintenance().rebuild().await?;
    stage.append(&there, &sessions[2], "on").await.map(drop)
}

/// Verifying a store with objects of every kind finds no damage, and counts each object.
async fn verify_finds_no_damage_in_a_sound_store(stage: &Stage) -> Checked {
    let storage = stage.open().await?;
    let workspace = stage.new_workspace(&storage).await?;
    storage
        .workspaces
        .save_config(workspace.id, Some("a = 1".to_owned()), Precondition::MustNotExist)
        .await?;
    storage.bindings.bind(&stage.device("laptop")?, workspace.id, Precondition::MustNotExist).await?;
    let new = NewSession::new(stage.effects.new_session_id(), workspace.id);
    let session = stage.create(&storage, new).await?;
    let session = stage.fill(&storage, &session, 12).await?;
    let child = storage.sessions.fork(session.id, None).await?;
    stage.begin_run(&storage, &child, "on").await?;
    let gone = NewSession::new(stage.effects.new_session_id(), workspace.id);
    let gone = stage.create(&storage, gone).await?;
    let delete = stage.seal(&gone).with_trigger(Trigger::Delete(Reason::UserDeleted));
    let gone = storage.sessions.commit(delete).await?.session;
    storage.sessions.purge(Purge::new(gone.id, gone.head)).await?;
    let mut calls = 0;
    let seen = verify(&storage, |_| calls += 1).await?;
    same("what is found", &seen.findings, &vec![])?;
    same("what was looked at", &(seen.workspaces, seen.sessions, seen.bindings), &(1, 3, 1))?;
    holds_for("its events were read", &seen.events, seen.events > session.head.get())?;
    same("how often it told of its progress", &calls, &5)
}

/// Verifying finds a damaged event, in its session and nowhere else.
async fn verify_finds_only_the_damaged_event(stage: &Stage) -> Checked {
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

/// Verifying finds a damaged workspace.
async fn verify_finds_damaged_workspaces(stage: &Stage) -> Checked {
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

/// Verifying finds damaged bindings.
async fn verify_finds_damaged_bindings(stage: &Stage) -> Checked {
    let storage = stage.open().await?;
    let workspace = stage.new_workspace(&storage).await?.id;
    for n in 0..4 {
        storage
            .bindings
            .bind(&stage.device(&format!("device {n}"))?, workspace, Precondition::MustNotExist)
            .await?;
    }
    storage.bindings.bind(&stage.device("laptop")?, workspace, Precondition::MustNotExist).await?;
    drop(storage);
    stage.damage(Damage::Bindings).await?;
    let found = verify(&stage.open().await?, |_| ()).await?.findings;
    let damage = found.iter().any(|finding| finding.kind == FindingKind::Damaged);
    holds_for("damage is found", &found, damage)
}

/// All readable events of a damaged session are copied to a new one, in order, with a note in place of the lost ones.
/// The damaged session stays unchanged, and the new one can continue.
async fn salvage_copies_all_readable_events(stage: &Stage) -> Checked {
    let storage = stage.open().await?;
    let (storage, session, at) = damaged(stage, storage).await?;
    let saved = salvage(&storage, session.id, Some(session.workspace)).await?;
    same("the events that were read", &saved.read, &(session.head.get() - 1))?;
    let gaps: Vec<_> = saved.lost.iter().map(|gap| (gap.first, gap.last)).collect();
    same("what could not be read", &gaps, &vec![(at, at)])?;
    let mut texts = Vec::new();
    for event in own_events(&storage, saved.session.id, 100).await? {
        match event.decode()? {
            EventPayload::UserMessage(message) => texts.push(message.text),
            EventPayload::SystemMessage(message) => {
                holds_for("the note names what is lost", &message.text, message.text.contains("event 5"))?;
                let has_reason = saved.lost.iter().any(|gap| message.text.contains(&gap.reason));
                holds_for("the note says nothing of where it is kept", &message.text, !has_reason)?;
                texts.push("lost".to_owned());
            }
            body => {
                let made_up = matches!(body, EventPayload::UserInterrupt(_));
                holds_for("nothing that nobody did", &event.kind, !made_up)?;
            }
        }
    }
    let mut expected: Vec<_> = (0..8).map(|n| format!("message {n}")).collect();
    // The first message is event 2.
    expected[3] = "lost".to_owned();
    same("what the new session says", &texts, &expected)?;
    same(
        "what waits in it",
        &(saved.session.inputs_open, saved.session.status.state),
        &(0, SessionState::Idle),
    )?;
    let from = ReadEvents::first(100).with_after(Seq::new(at.get() - 1));
    refused!("the damaged event", storage.sessions.read(session.id, from).await, ErrorKind::Corrupt)?;
    stage.append(&storage, &saved.session, "on").await.map(drop)
}

/// Saving a damaged fork also saves the events that it shares with its parent.
async fn salvaged_fork_includes_its_shared_history(stage: &Stage) -> Checked {
    let storage = stage.open().await?;
    let parent = stage.new_session(&storage).await?;
    let parent = stage.append(&storage, &parent, "shared").await?.session;
    let mut fork = storage.sessions.fork(parent.id, None).await?;
    for n in 0..6 {
        fork = stage.append(&storage, &fork, &format!("message {n}")).await?.session;
    }
    drop(storage);
    // Behind the shared history stands the event that made the fork.
    let at = Seq::new(parent.head.get() + 4);
    stage.damage(Damage::Event(fork.id, at)).await?;
    let storage = stage.open().await?;
    let saved = salvage(&storage, fork.id, None).await?;
    same("where it is", &saved.session.workspace, &fork.workspace)?;
    let gaps: Vec<_> = saved.lost.iter().map(|gap| (gap.first, gap.last)).collect();
    same("what could not be read", &gaps, &vec![(at, at)])?;
    let mut texts = Vec::new();
    for event in own_events(&storage, saved.session.id, 100).await? {
        if let EventPayload::UserMessage(message) = event.decode()? {
            texts.push(message.text);
        }
    }
    let expected = ["shared", "message 0", "message 1", "message 3", "message 4", "message 5"];
    same("what the new session says", &texts, &expected.map(str::to_owned).to_vec())
}
