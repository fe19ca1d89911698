//! Lists of sessions: order, filters, totals, and pages that neither skip nor repeat.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use agent_core::commit::{Commit, Precondition, Trigger};
use agent_core::event::NewEvent;
use agent_core::model::{Actor, Patch, Role};
use agent_core::session::{NewSession, SessionRecord, SessionSummary};
use agent_core::state::{Reason, SessionState};
use agent_core::store::{BindingQuery, ReadEvents, SessionQuery, WorkspaceQuery};
use agent_core::{ErrorKind, SessionId, Storage, Timestamp};

use crate::failure::{Checked, Failure, refused, same};
use crate::registry::{Clause, Needs, table};
use crate::stage::{START, Stage, ends};

pub(super) fn clauses() -> Vec<Clause> {
    table![Lists:
        a_workspace_has_many_sessions (Needs::ImmediateLists),
        sessions_are_listed_by_last_activity (Needs::ExactRecency),
        pages_neither_skip_nor_repeat_if_times_tie (Needs::ImmediateLists),
        pages_lose_nothing_while_sessions_are_used (Needs::ImmediateLists),
        filters_and_totals_agree (Needs::ImmediateLists),
        list_shows_the_current_state (Needs::ImmediateLists),
        archived_and_deleted_are_hidden_by_default (Needs::ImmediateLists),
        list_shows_state_reason_and_waiting_inputs (Needs::ImmediateLists),
        any_page_size_is_served (Needs::ImmediateLists),
        a_limit_of_zero_gives_nothing (Needs::ImmediateLists),
    ]
}

/// Returns all sessions of a query, read by pages.
pub(super) async fn all_sessions(storage: &Storage, query: SessionQuery) -> Checked<Vec<SessionSummary>> {
    let (mut found, mut cursor) = (Vec::new(), None);
    loop {
        let page = storage.sessions.list(query.clone().with_cursor(cursor)).await?;
        if page.items.len() > query.limit {
            return Err(Failure::new("a page", format_args!("at most {}", query.limit), page.items.len()));
        }
        if let Some(damage) = page.damaged.first() {
            return Err(Failure::new("a page", "nothing damaged", damage));
        }
        found.extend(page.items);
        ends(found.len())?;
        cursor = page.next;
        if cursor.is_none() {
            return Ok(found);
        }
    }
}

fn ids(sessions: &[SessionSummary]) -> Vec<SessionId> {
    sessions.iter().map(|session| session.id).collect()
}

/// Creates sessions of one workspace, `gap` microseconds apart.
async fn some(stage: &Stage, storage: &Storage, count: usize, gap: i64) -> Checked<Vec<Arc<SessionRecord>>> {
    let workspace = stage.new_workspace(storage).await?;
    let mut made = Vec::new();
    for n in 0..count {
        let new = NewSession::new(stage.effects.new_session_id(), workspace.id);
        let mut commit = Commit::create(&stage.effects, new);
        commit.at = START.plus_micros(gap * n as i64);
        made.push(storage.sessions.commit(commit).await?.session);
    }
    Ok(made)
}

async fn use_at(stage: &Stage, storage: &Storage, id: SessionId, at: Timestamp) -> Checked {
    let seen = storage.sessions.load(id).await?.head;
    let commit =
        Commit::new(stage.effects.new_commit_id(), id, at, seen).with_event(NewEvent::user_message("used"));
    storage.sessions.commit(commit).await?;
    Ok(())
}

/// A workspace has a main session and any number of others, and each is found by its workspace.
async fn a_workspace_has_many_sessions(stage: &Stage) -> Checked {
    let storage = stage.open().await?;
    for _ in 0..3 {
        let workspace = stage.new_workspace(&storage).await?;
        let mut expected = BTreeSet::new();
        for n in 0..4 {
            let id = if n == 0 { workspace.main_session } else { stage.effects.new_session_id() };
            stage.create(&storage, NewSession::new(id, workspace.id)).await?;
            expected.insert(id);
        }
        let found =
            all_sessions(&storage, SessionQuery::new().with_workspace(workspace.id).with_limit(3)).await?;
        same("the sessions of a workspace", &ids(&found).into_iter().collect(), &expected)?;
        same("each once", &found.len(), &4)?;
    }
    same("all sessions", &all_sessions(&storage, SessionQuery::new()).await?.len(), &12)
}

/// Lists are ordered by last activity, the latest first. A message moves its session to the top; a message that was
/// sealed long ago moves nothing.
async fn sessions_are_listed_by_last_activity(stage: &Stage) -> Checked {
    let mut storage = stage.open().await?;
    let made = some(stage, &storage, 8, 60_000_000).await?;
    let mut expected: Vec<_> = made.iter().rev().map(|session| session.id).collect();
    for limit in [1, 3, 8, 9] {
        let found = all_sessions(&storage, SessionQuery::new().with_limit(limit)).await?;
        same(format_args!("the list, {limit} a page"), &ids(&found), &expected)?;
    }
    use_at(stage, &storage, made[2].id, START.plus_micros(86_400_000_000)).await?;
    expected.retain(|id| *id != made[2].id);
    expected.insert(0, made[2].id);
    use_at(stage, &storage, made[5].id, START.plus_micros(-86_400_000_000)).await?;
    for _ in 0..2 {
        let found = all_sessions(&storage, SessionQuery::new()).await?;
        same("the list after two messages", &ids(&found), &expected)?;
        storage = stage.reopen(storage).await?;
    }
    Ok(())
}

/// If all times are equal, pages of any size hold each session once.
async fn pages_neither_skip_nor_repeat_if_times_tie(stage: &Stage) -> Checked {
    let storage = stage.open().await?;
    let expected: BTreeSet<_> =
        some(stage, &storage, 17, 0).await?.iter().map(|session| session.id).collect();
    for limit in [1, 2, 5, 16, 17, 18] {
        let found = all_sessions(&storage, SessionQuery::new().with_limit(limit)).await?;
        same(format_args!("how many, {limit} a page"), &found.len(), &17)?;
        same(format_args!("which, {limit} a page"), &ids(&found).into_iter().collect(), &expected)?;
    }
    Ok(())
}

/// Use of some sessions while pages are read does not make another session appear twice or not at all.
async fn pages_lose_nothing_while_sessions_are_used(stage: &Stage) -> Checked {
    let storage = stage.open().await?;
    let made = some(stage, &storage, 20, 60_000_000).await?;
    let (mut seen, mut cursor, mut moved) = (Vec::new(), None, Vec::new());
    for turn in 0.. {
        let page = storage.sessions.list(SessionQuery::new().with_limit(3).with_cursor(cursor)).await?;
        seen.extend(ids(&page.items));
        ends(seen.len())?;
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
        let id = made[(turn * 7) % 20].id;
        use_at(stage, &storage, id, START.plus_micros(86_400_000_000 + turn as i64)).await?;
        moved.push(id);
    }
    for (n, session) in made.iter().enumerate().filter(|(_, session)| !moved.contains(&session.id)) {
        let times = seen.iter().filter(|id| **id == session.id).count();
        same(format_args!("how often session {n} was listed, which was not used"), &times, &1)?;
    }
    Ok(())
}

/// Workspace, state, labels, creator, parent and time of the last activity filter in the store, alone and together.
/// Totals count the matches on all pages.
async fn filters_and_totals_agree(stage: &Stage) -> Checked {
    let mut storage = stage.open().await?;
    let workspaces = [stage.new_workspace(&storage).await?.id, stage.new_workspace(&storage).await?.id];
    let creators = [Actor::USER, Actor::named(Role::User, "alice")?, Actor::SYSTEM];
    let mut made: Vec<SessionSummary> = Vec::new();
    for n in 0..24 {
        let patch = Patch::new()
            .with_label("project", ["red", "blue"][n % 2])
            .with_label("user", ["a", "b", "c"][n % 3]);
        let patch = if n % 9 == 7 { patch.with_inactive_after(Duration::from_secs(60)) } else { patch };
        let id = stage.effects.new_session_id();
        let new = match made.get(n / 4).filter(|_| n % 5 == 4) {
            Some(parent) => NewSession::child(id, &*storage.sessions.load(parent.id).await?),
            None => NewSession::new(id, workspaces[n % 2]),
        };
        let commit =
            Commit::create(&stage.effects, new.with_patch(&patch)).with_actor(creators[n % 3].clone());
        let mut session = storage.sessions.commit(commit).await?.session;
        if n % 4 == 1 {
            session = stage.append(&storage, &session, "work").await?.session;
        }
        if n % 6 == 2 {
            let suspend = stage.seal(&session).with_trigger(Trigger::Suspend(Reason::UserPaused));
            session = storage.sessions.commit(suspend).await?.session;
        }
        made.push(SessionSummary::from(&*session));
    }
    let new = SessionQuery::new;
    let queries = [
        new(),
        new().with_workspace(workspaces[0]),
        new().with_workspace(stage.effects.new_workspace_id()),
        new().with_label("project", "red"),
        new().with_label("project", "red").with_label("user", "b"),
        new().with_label("project", "green"),
        new().with_label("nothing", "red"),
        new().with_creator(creators[1].clone()),
        new().with_creator(Actor::named(Role::Agent, "alice")?),
        new().with_parent(made[1].id),
        new().with_parent(stage.effects.new_session_id()),
        new().with_states([SessionState::Queued]),
        new().with_states([SessionState::Suspended, SessionState::Queued]),
        new().with_states([SessionState::Running]),
        new().with_inactive_since(made[12].last_active_at),
        new().with_inactive_since(made[0].last_active_at),
        new().with_inactive_since(made[12].last_active_at).with_label("user", "b"),
        new()
            .with_workspace(workspaces[1])
            .with_label("user", "a")
            .with_creator(creators[0].clone())
            .with_states([SessionState::Queued]),
    ];
    for _ in 0..2 {
        for query in &queries {
            let expected: BTreeSet<_> = made.iter().filter(|s| query.matches(s)).map(|s| s.id).collect();
            for limit in [2, 100] {
                let query = query.clone().with_limit(limit).with_total();
                let found = all_sessions(&storage, query.clone()).await?;
                same(format_args!("those of {query:?}"), &ids(&found).into_iter().collect(), &expected)?;
                same("each once", &found.len(), &expected.len())?;
                let page = storage.sessions.list(query).await?;
                same("the total", &page.total, &Some(expected.len() as u64))?;
            }
        }
        let plain = storage.sessions.list(new()).await?;
        same("no total is counted that was not asked for", &plain.total, &None)?;
        storage = stage.reopen(storage).await?;
    }
    Ok(())
}

/// A session is listed in its current state as soon as the state changes.
async fn list_shows_the_current_state(stage: &Stage) -> Checked {
    let storage = stage.open().await?;
    let session = stage.new_session(&storage).await?;
    let shown = async |state: SessionState| -> Checked {
        for other in
            [SessionState::Idle, SessionState::Running, SessionState::Suspended, SessionState::Terminated]
        {
            let found = all_sessions(&storage, SessionQuery::new().with_states([other])).await?;
            same(format_args!("how many are {other}"), &found.len(), &usize::from(other == state))?;
        }
        Ok(())
    };
    shown(SessionState::Idle).await?;
    let (running, run) = stage.begin_run(&storage, &session, "work").await?;
    shown(SessionState::Running).await?;
    let end = agent_core::commit::RunEnd::Completed(Reason::EndTurn);
    let end =
        storage.sessions.commit(stage.seal_run(&running, run).with_trigger(Trigger::EndRun(end))).await?;
    shown(SessionState::Idle).await?;
    let suspend = stage.seal(&end.session).with_trigger(Trigger::Suspend(Reason::UserPaused));
    let suspended = storage.sessions.commit(suspend).await?.session;
    shown(SessionState::Suspended).await?;
    storage
        .sessions
        .commit(stage.seal(&suspended).with_trigger(Trigger::Terminate(Reason::UserEnded)))
        .await?;
    shown(SessionState::Terminated).await
}

/// Archived and deleted sessions disappear from lists immediately, and are found by their state.
async fn archived_and_deleted_are_hidden_by_default(stage: &Stage) -> Checked {
    let mut storage = stage.open().await?;
    let made = some(stage, &storage, 4, 1_000_000).await?;
    let archive = stage.seal(&made[0]).with_trigger(Trigger::Archive);
    let archived = storage.sessions.commit(archive).await?.session;
    storage.sessions.commit(stage.seal(&made[1]).with_trigger(Trigger::Delete(Reason::UserDeleted))).await?;
    let set = |indexes: &[usize]| indexes.iter().map(|n| made[*n].id).collect::<BTreeSet<_>>();
    let found = async |storage: &Storage, query: SessionQuery| -> Checked<BTreeSet<SessionId>> {
        Ok(ids(&all_sessions(storage, query).await?).into_iter().collect())
    };
    for _ in 0..2 {
        let new = SessionQuery::new;
        same("the default", &found(&storage, new()).await?, &set(&[2, 3]))?;
        same("archived", &found(&storage, new().with_states([SessionState::Archived])).await?, &set(&[0]))?;
        same("deleted", &found(&storage, new().with_states([SessionState::Deleted])).await?, &set(&[1]))?;
        same("all", &found(&storage, new().with_hidden()).await?, &set(&[0, 1, 2, 3]))?;
        let page = storage.sessions.list(new().with_total()).await?;
        same("the total of the default", &page.total, &Some(2))?;
        storage = stage.reopen(storage).await?;
    }
    storage.sessions.commit(stage.seal(&archived).with_trigger(Trigger::Unarchive)).await?;
    same("after unarchiving", &found(&storage, SessionQuery::new()).await?, &set(&[0, 2, 3]))
}

/// A list shows each session's state, the reason, and the number of waiting inputs, like its record.
async fn list_shows_state_reason_and_waiting_inputs(stage: &Stage) -> Checked {
    let storage = stage.open().await?;
    let mut expected = Vec::new();
    for n in 0..3 {
        let mut session = stage.new_session(&storage).await?;
        for m in 0..n {
            session = stage.append(&storage, &session, &format!("message {m}")).await?.session;
        }
        same("what waits", &session.inputs_open, &n)?;
        expected.push(SessionSummary::from(&*session));
    }
    let mut found = all_sessions(&storage, SessionQuery::new()).await?;
    found.sort_by_key(|session| session.inputs_open);
    same("the list", &found, &expected)
}

/// A page may have one item, more items than exist, or more than the limit allows.
async fn any_page_size_is_served(stage: &Stage) -> Checked {
    let storage = stage.open().await?;
    some(stage, &storage, 3, 1).await?;
    for limit in [0, 1, 3, 1000, usize::MAX] {
        let mut query = SessionQuery::new();
        query.limit = limit;
        let page = storage.sessions.list(query).await?;
        same(format!("a page of {limit}"), &page.items.len(), &limit.min(3))?;
        same("whether more follow", &page.next.is_some(), &(limit > 0 && page.items.len() < 3))?;
    }
    Ok(())
}

/// A limit of zero returns no items and no next page: of sessions, workspaces, devices and events. Other information
/// on the page is still returned.
async fn a_limit_of_zero_gives_nothing(stage: &Stage) -> Checked {
    let storage = stage.open().await?;
    let session = some(stage, &storage, 2, 1).await?.remove(0);
    let device = stage.device("laptop")?;
    storage.bindings.bind(&device, session.workspace, Precondition::MustNotExist).await?;

    let page = storage.sessions.list(SessionQuery::new().with_limit(0).with_total()).await?;
    same("the sessions", &(page.items.len(), page.next, page.total), &(0, None, Some(2)))?;
    let page = storage.workspaces.list(WorkspaceQuery::new().with_limit(0).with_total()).await?;
    same("the workspaces", &(page.items.len(), page.next, page.total), &(0, None, Some(1)))?;
    let page = storage.bindings.list(BindingQuery::new().with_limit(0)).await?;
    same("the bindings", &(page.items.len(), page.next), &(0, None))?;
    for read in [ReadEvents::first(0), ReadEvents::last(0)] {
        let page = storage.sessions.read(session.id, read).await?;
        same("the events", &(page.events.len(), page.next), &(0, None))?;
    }
    let nobody = storage.sessions.read(stage.effects.new_session_id(), ReadEvents::first(0)).await;
    refused!("no events of a session that never was", nobody, ErrorKind::NotFound).map(drop)
}
