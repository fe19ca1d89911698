//! Tenants do not see each other, even if they use the same ids.

use agent_core::commit::{Commit, LeaseRequest, Precondition, Trigger};
use agent_core::event::NewEvent;
use agent_core::model::Timer;
use agent_core::session::NewSession;
use agent_core::state::{Reason, SessionState};
use agent_core::store::{BindingQuery, Purge, ReadEvents, SessionQuery, WorkspaceQuery};
use agent_core::{ErrorKind, Seq, Storage, TenantId};

use crate::failure::{Checked, Failure, holds_for, refused, same};
use crate::registry::{Clause, Needs, table};
use crate::stage::{START, Stage, ends, own_events};

pub(super) fn clauses() -> Vec<Clause> {
    table![Backend:
        equal_ids_are_separate_per_tenant,
        ids_of_another_tenant_are_not_found,
        deletion_leaves_other_tenants_unchanged,
        lease_of_one_tenant_affects_no_other,
        cursor_shows_nothing_of_another_tenant,
        sessions_cannot_be_forked_across_tenants,
        tenants_are_listed_once_they_hold_data (Needs::TenantList),
        tenants_with_work_are_busy (Needs::TenantList),
    ]
}

async fn two(stage: &Stage) -> Checked<(Storage, Storage)> {
    let (one, two): (TenantId, TenantId) = ("alpha".parse()?, "beta".parse()?);
    Ok((stage.open_for(&one).await?, stage.open_for(&two).await?))
}

/// Two tenants use the same workspace, session and device ids, and each has its own data.
async fn equal_ids_are_separate_per_tenant(stage: &Stage) -> Checked {
    let (one, two) = two(stage).await?;
    let workspace = stage.workspace("shared id");
    let session = stage.effects.new_session_id();
    let device = stage.device("laptop")?;
    let mut records = Vec::new();
    for (storage, name) in [(&one, "of one"), (&two, "of two")] {
        let put =
            storage.workspaces.put(workspace.clone().with_name(name), Precondition::MustNotExist).await?;
        let text = Some(format!("name = \"{name}\""));
        storage.workspaces.save_config(workspace.id, text.clone(), Precondition::MustNotExist).await?;
        let created = stage.create(storage, NewSession::new(session, workspace.id)).await?;
        let appended = stage.append(storage, &created, name).await?.session;
        let to = stage.effects.new_workspace_id();
        same("a first contact", &storage.bindings.bind(&device, to, Precondition::MustNotExist).await?, &to)?;
        records.push((put, text, appended, to));
    }
    for (storage, (put, text, appended, to)) in [&one, &two].into_iter().zip(&records) {
        same("the workspace", &storage.workspaces.load(workspace.id).await?, put)?;
        same("the configuration", &storage.workspaces.load_config(workspace.id).await?, text)?;
        same("the session", &storage.sessions.load(session).await?, appended)?;
        let events = own_events(storage, session, 10).await?;
        same("the last event", &events.last().map(|e| e.commit), &appended.recent.last().map(|c| c.id))?;
        same("the binding", &storage.bindings.resolve(&device).await?, &Some(*to))?;
        same("its sessions", &storage.sessions.list(SessionQuery::new()).await?.items.len(), &1)?;
        same(
            "its workspaces",
            &storage.workspaces.list(WorkspaceQuery::new()).await?.items,
            &vec![put.clone()],
        )?;
        same("its bindings", &storage.bindings.list(BindingQuery::new()).await?.items.len(), &1)?;
    }
    Ok(())
}

/// Ids of another tenant are `NotFound`, for reading and for writing.
async fn ids_of_another_tenant_are_not_found(stage: &Stage) -> Checked {
    let (one, two) = two(stage).await?;
    let session = stage.new_session(&one).await?;
    let device = stage.device("laptop")?;
    one.bindings.bind(&device, session.workspace, Precondition::MustNotExist).await?;
    let (id, epoch) = (session.id, session.epoch);
    refused!("a load", two.sessions.load(id).await, ErrorKind::NotFound)?;
    refused!("a read", two.sessions.read(id, ReadEvents::default()).await, ErrorKind::NotFound)?;
    refused!("a heartbeat", two.sessions.leases().heartbeat(id, epoch).await, ErrorKind::NotFound)?;
    refused!("a lease status", two.sessions.leases().status(id, epoch).await, ErrorKind::NotFound)?;
    refused!("a purge", two.sessions.purge(Purge::new(id, session.head)).await, ErrorKind::NotFound)?;
    let commit = stage.seal(&session).with_event(NewEvent::user_message("into another's"));
    refused!("a commit", two.sessions.commit(commit).await, ErrorKind::NotFound)?;
    let workspace = session.workspace;
    refused!("a workspace", two.workspaces.load(workspace).await, ErrorKind::NotFound)?;
    refused!("a touch", two.workspaces.touch(workspace, START).await, ErrorKind::NotFound)?;
    refused!("a configuration", two.workspaces.load_config(workspace).await, ErrorKind::NotFound)?;
    refused!("a deletion", two.workspaces.delete(workspace).await, ErrorKind::NotFound)?;
    same("a binding", &two.bindings.resolve(&device).await?, &None)?;
    same("an unbinding", &two.bindings.unbind(&device).await?, &false)?;
    same("unbinding all", &two.bindings.unbind_workspace(workspace).await?, &0)?;
    let hidden = SessionQuery::new().with_hidden().with_total();
    let page = two.sessions.list(hidden).await?;
    same("sessions", &(page.items.len(), page.total), &(0, Some(0)))?;
    let page = two.workspaces.list(WorkspaceQuery::new().with_deleting().with_total()).await?;
    same("workspaces", &(page.items.len(), page.total), &(0, Some(0)))?;
    same("bindings", &two.bindings.list(BindingQuery::new()).await?.items.len(), &0)?;
    same("the session, where it belongs", &one.sessions.load(id).await?, &session)?;
    same("the binding, where it belongs", &one.bindings.resolve(&device).await?, &Some(workspace))
}

/// Deleting, purging and unbinding in one tenant leave the other's objects with the same ids unchanged.
async fn deletion_leaves_other_tenants_unchanged(stage: &Stage) -> Checked {
    let (one, two) = two(stage).await?;
    let workspace = stage.workspace("shared id");
    let device = stage.device("laptop")?;
    let id = stage.effects.new_session_id();
    let mut sessions = Vec::new();
    for storage in [&one, &two] {
        storage.workspaces.put(workspace.clone(), Precondition::MustNotExist).await?;
        sessions.push(stage.create(storage, NewSession::new(id, workspace.id)).await?);
        storage.bindings.bind(&device, workspace.id, Precondition::MustNotExist).await?;
    }
    let delete = stage.seal(&sessions[0]).with_trigger(Trigger::Delete(Reason::UserDeleted));
    let deleted = one.sessions.commit(delete).await?.session;
    one.sessions.purge(Purge::new(id, deleted.head)).await?;
    same("unbinding all", &one.bindings.unbind_workspace(workspace.id).await?, &1)?;
    one.workspaces.delete(workspace.id).await?;
    same("the other's session", &two.sessions.load(id).await?, &sessions[1])?;
    same("its events", &own_events(&two, id, 10).await?.len(), &(sessions[1].head.get() as usize))?;
    same("the other's workspace", &two.workspaces.load(workspace.id).await?.name, &workspace.name)?;
    same("the other's binding", &two.bindings.resolve(&device).await?, &Some(workspace.id))
}

/// A run of one tenant, its lease and its heartbeat do not affect another tenant's session with the same id.
async fn lease_of_one_tenant_affects_no_other(stage: &Stage) -> Checked {
    let (one, two) = two(stage).await?;
    let id = stage.effects.new_session_id();
    let mut running = Vec::new();
    for storage in [&one, &two] {
        let workspace = stage.new_workspace(storage).await?;
        let session = stage.create(storage, NewSession::new(id, workspace.id)).await?;
        let appended = stage.append(storage, &session, "work").await?.session;
        let request = LeaseRequest::new("holder", stage.effects.new_run_id());
        running.push(
            storage
                .sessions
                .commit(stage.seal(&appended).with_trigger(Trigger::BeginRun(request)))
                .await?
                .session,
        );
    }
    let epoch = running[0].epoch;
    let before = two.sessions.leases().status(id, epoch).await?;
    one.sessions.leases().heartbeat(id, epoch).await?;
    same("the other's lease status", &two.sessions.leases().status(id, epoch).await?, &before)?;
    same("the other's session", &two.sessions.load(id).await?, &running[1])
}

/// A cursor of one tenant that is used by another shows at most the other's own data.
async fn cursor_shows_nothing_of_another_tenant(stage: &Stage) -> Checked {
    let (one, two) = two(stage).await?;
    for _ in 0..4 {
        stage.new_session(&one).await?;
    }
    let sessions = one.sessions.list(SessionQuery::new().with_limit(2)).await?.next;
    let workspaces = one.workspaces.list(WorkspaceQuery::new().with_limit(2)).await?.next;
    let page = two.sessions.list(SessionQuery::new().with_cursor(sessions)).await?;
    same("sessions", &page.items.len(), &0)?;
    let page = two.workspaces.list(WorkspaceQuery::new().with_cursor(workspaces)).await?;
    same("workspaces", &page.items.len(), &0)
}

/// A session of another tenant cannot be a parent: a session that names it as one is not created.
async fn sessions_cannot_be_forked_across_tenants(stage: &Stage) -> Checked {
    let (one, two) = two(stage).await?;
    let parent = stage.new_session(&one).await?;
    let id = stage.effects.new_session_id();
    let fork = Commit::create(&stage.effects, NewSession::fork(id, &parent));
    refused!("a fork of another's session", two.sessions.commit(fork).await, ErrorKind::NotFound)?;
    refused!("the fork", two.sessions.load(id).await, ErrorKind::NotFound)?;
    Ok(())
}

/// Tenants with data are listed, ordered by name.
async fn tenants_are_listed_once_they_hold_data(stage: &Stage) -> Checked {
    let names = ["beta", "alpha", "gamma", "a-b_c", "0"];
    for name in names {
        let storage = stage.open_for(&name.parse()?).await?;
        stage.new_session(&storage).await?;
    }
    let tenants = stage.tenants().await?;
    let mut expected = names;
    expected.sort_unstable();
    let (mut seen, mut after) = (Vec::new(), None);
    loop {
        let page = tenants.tenants(after).await?;
        let Some(last) = page.items.last().cloned() else { break };
        seen.extend(page.items.iter().map(ToString::to_string).filter(|name| name != "default"));
        ends(seen.len())?;
        after = Some(last);
    }
    same("the tenants", &seen, &expected.map(str::to_owned).to_vec())?;
    for name in names {
        let storage = tenants.tenant(&name.parse()?);
        let page = storage.sessions.list(SessionQuery::new()).await?;
        same(format_args!("the sessions of {name}"), &page.items.len(), &1)?;
    }
    Ok(())
}

/// A tenant with a session that is due, is run or is prepared is among the busy ones, for as long as it is; also if
/// these are listed from one on. Other tenants may be among them.
async fn tenants_with_work_are_busy(stage: &Stage) -> Checked {
    let tenants = stage.tenants().await?;
    let soon = START.plus_micros(10 * 60_000_000);
    let mut busy = Vec::new();
    for name in ["waits", "later", "prepared", "a-timer", "runs", "rests", "a"] {
        let storage = stage.open_for(&name.parse()?).await?;
        let session = stage.new_session(&storage).await?;
        match name {
            "waits" => drop(stage.append(&storage, &session, "hello").await?),
            "runs" => drop(stage.begin_run(&storage, &session, "hello").await?),
            "prepared" => {
                let prepare = Trigger::Prepare(LeaseRequest::new("holder", stage.effects.new_run_id()));
                let new = NewSession::new(stage.effects.new_session_id(), session.workspace);
                let create = Commit::seal(&stage.effects, new.id, Seq::ZERO)
                    .with_precondition(Precondition::MustNotExist)
                    .with_trigger(Trigger::Create(Box::new(new)))
                    .with_trigger(prepare);
                storage.sessions.commit(create).await?;
            }
            "a-timer" | "later" => {
                let minutes = if name == "later" { 60 } else { 9 };
                let timer = Timer::new("daily", START.plus_micros(minutes * 60_000_000));
                let timer = stage.seal(&session).with_event(NewEvent::timer_scheduled(timer));
                storage.sessions.commit(timer).await?;
            }
            _ => continue,
        }
        busy.push(name);
    }
    busy.sort_unstable();
    for until in [soon, START.plus_micros(70 * 60_000_000)] {
        for from in ["", "a", "a-timer", "b", "runs"] {
            let (mut after, mut seen) =
                (if from.is_empty() { None } else { Some(from.parse()?) }, Vec::new());
            loop {
                let page = tenants.busy_tenants(until, after).await?;
                seen.extend(page.items.iter().map(ToString::to_string));
                ends(seen.len())?;
                after = page.items.last().cloned().filter(|_| page.next.is_some());
                if after.is_none() {
                    break;
                }
            }
            let is_due = |name: &&&str| **name > from && (until > soon || **name != "later");
            let missing: Vec<_> =
                busy.iter().filter(is_due).filter(|name| !seen.iter().any(|seen| seen == **name)).collect();
            same(
                format_args!("the tenants with work behind {from:?} that are missing"),
                &missing,
                &Vec::new(),
            )?;
            let is_sorted = seen.is_sorted() && seen.iter().all(|name| name.as_str() > from);
            holds_for("they are listed in order, from that one on", &seen, is_sorted)?;
        }
    }
    // Who has nothing to do any more may be left out, and must be found again.
    let storage = tenants.tenant(&"runs".parse()?);
    let running = storage.sessions.list(SessionQuery::new().with_states([SessionState::Running])).await?;
    let id = running.items.first().map(|session| session.id);
    let id = id.ok_or_else(|| Failure::new("the session that runs", "one", "none"))?;
    let now = storage.sessions.load(id).await?;
    let end = stage.seal(&now).with_trigger(Trigger::LeaseExpired(now.epoch));
    let ended =
        storage.sessions.commit(end.with_trigger(Trigger::Suspend(Reason::UserPaused))).await?.session;
    tenants.busy_tenants(soon, None).await?;
    let resume = stage.seal(&ended).with_trigger(Trigger::Resume);
    storage.sessions.commit(resume).await?;
    let page = tenants.busy_tenants(soon, None).await?;
    holds_for("a session that waits again is found", &page.items, page.items.contains(&"runs".parse()?))
}
