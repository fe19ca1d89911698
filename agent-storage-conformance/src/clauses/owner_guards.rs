//! Owners of one tenant against each other: forged sessions, shared data, and what nobody owns.

use agent_core::commit::{Commit, Precondition, Trigger};
use agent_core::event::{Event, NewEvent};
use agent_core::model::Patch;
use agent_core::session::{ConversationKey, NewSession};
use agent_core::state::Reason;
use agent_core::store::{BindingQuery, HiddenSession, Purge, ReadEvents, WorkspaceArea};
use agent_core::{ErrorKind, OwnerId, WorkspaceId};

use crate::clauses::owners::{Owners, in_default, owner};
use crate::failure::{Checked, Failure, refused, same};
use crate::registry::{Clause, table};
use crate::stage::{Stage, ends};

pub(super) fn clauses() -> Vec<Clause> {
    table![Owners:
        forged_sessions_are_refused,
        shared_data_is_only_added_to,
        default_and_deleted_workspaces_are_nobodys,
        lists_of_devices_name_no_others,
    ]
}

/// A forged session of an owner, with a parent or an ancestor of another owner, or with the id of something else, is neither
/// created nor restored: it could report to the parent, keep its events from a purge, or take the place of what has that id.
async fn forged_sessions_are_refused(stage: &Stage) -> Checked {
    let Owners { tenant, alice, bob } = Owners::open(stage).await?;
    let hers = in_default(stage, &alice).await?;
    let his = in_default(stage, &bob).await?;
    for of_parent in [
        NewSession::child(stage.effects.new_session_id(), &his),
        NewSession::fork(stage.effects.new_session_id(), &his),
    ] {
        let made = stage.create(&bob, of_parent).await?;
        let events = bob.sessions.read(made.id, ReadEvents::first(10)).await?.events;
        let forged: Vec<_> = events
            .iter()
            .map(|event| {
                let json = event.to_json().replace(&his.id.to_string(), &hers.id.to_string());
                Event::from_json(&json)
            })
            .collect::<Result<_, _>>()?;
        let restore = Commit::restore(stage.effects.new_session_id(), forged)?;
        refused!("a restored relative", bob.sessions.commit(restore).await, ErrorKind::NotFound)?;
    }
    let shared = stage.new_workspace(&tenant).await?;
    let carols = "carol".parse::<OwnerId>()?;
    let key: ConversationKey = "support/1".parse()?;
    for (id, workspace) in [
        (HiddenSession::Audit.id(), WorkspaceId::DEFAULT),
        (HiddenSession::Tenant.id(), WorkspaceId::DEFAULT),
        (HiddenSession::area(shared.id, WorkspaceArea::Mcp).id(), shared.id),
        (HiddenSession::project(shared.id, "other").id(), shared.id),
        (key.session_id(Some(&carols), shared.id, 0), shared.id),
        (key.session_id(None, shared.id, 0), shared.id),
        (shared.main_session, shared.id),
    ] {
        let create = Commit::create(&stage.effects, NewSession::new(id, workspace));
        refused!(format_args!("session {id}"), bob.sessions.commit(create).await, ErrorKind::Denied)?;
        let mut child = NewSession::child(id, &his);
        child.created.workspace = workspace;
        let create = Commit::create(&stage.effects, child);
        refused!(format_args!("child {id}"), bob.sessions.commit(create).await, ErrorKind::Denied)?;
    }
    // The label alone makes no session hidden.
    let patch = Patch::new().with_label(HiddenSession::LABEL, "project/elsewhere");
    let new = NewSession::new(stage.effects.new_session_id(), shared.id).with_patch(&patch);
    same("a session with the label", &stage.create(&alice, new).await?.owner, &Some(owner("alice")?))?;
    // A workspace that somebody creates later has nothing in it.
    let later = stage.workspace("later");
    let new = NewSession::new(stage.effects.new_session_id(), later.id);
    let early = bob.sessions.commit(Commit::create(&stage.effects, new)).await;
    refused!("a session in no workspace", early, ErrorKind::NotFound)?;
    let area = HiddenSession::area(later.id, WorkspaceArea::Memory);
    refused!("shared data of no workspace", area.open(&bob.sessions).await, ErrorKind::NotFound).map(drop)
}

/// Owners read shared data and add to it, but neither end nor run nor hide it, whatever else they may.
async fn shared_data_is_only_added_to(stage: &Stage) -> Checked {
    let Owners { tenant, alice, bob } = Owners::open(stage).await?;
    let shared = stage.new_workspace(&tenant).await?;
    let memory = HiddenSession::area(shared.id, WorkspaceArea::Memory).open(&alice.sessions).await?;
    let commit = || stage.seal(&memory);
    for commit in [
        commit().with_trigger(Trigger::Unarchive),
        commit().with_trigger(Trigger::Delete(Reason::UserDeleted)),
        commit().with_event(NewEvent::updated(Patch::new().without_label(HiddenSession::LABEL))),
        commit().with_event(NewEvent::updated(Patch::new().with_label(HiddenSession::LABEL, "tenant"))),
        commit().with_event(NewEvent::history_cleared()),
        commit().with_event(NewEvent::user_message("hello")),
    ] {
        refused!("a change of shared data", bob.sessions.commit(commit).await, ErrorKind::Denied)?;
    }
    let mcp = HiddenSession::area(shared.id, WorkspaceArea::Mcp);
    let label = Patch::new().with_label(HiddenSession::LABEL, "area/mcp");
    let created = || Commit::create(&stage.effects, NewSession::new(mcp.id(), shared.id).with_patch(&label));
    for commit in [
        created(),
        created().with_trigger(Trigger::Archive).with_event(NewEvent::user_message("hello")),
        created().with_trigger(Trigger::Archive).with_trigger(Trigger::Unarchive),
    ] {
        let made = bob.sessions.commit(commit).await;
        refused!("shared data that runs", made, ErrorKind::Denied)?;
    }
    let events = tenant.sessions.read(memory.id, ReadEvents::first(10)).await?.events;
    let mut restored = Vec::new();
    for event in events {
        restored.push(Event::from_json(&event.to_json().replace("area/memory", "area/mcp"))?);
    }
    let restore = bob.sessions.commit(Commit::restore(mcp.id(), restored)?).await;
    refused!("restored shared data", restore, ErrorKind::Denied)?;
    let purged = bob.sessions.purge(Purge::new(memory.id, memory.head)).await;
    refused!("a purge of it", purged, ErrorKind::Denied)?;
    let fork = Commit::create(&stage.effects, NewSession::fork(stage.effects.new_session_id(), &memory));
    refused!("a fork of it", bob.sessions.commit(fork).await, ErrorKind::Denied)?;
    same("sessions of the tenant", &tenant.sessions.load(memory.id).await?, &memory)
}

/// Whoever first uses the workspace `default` decides nothing about it, and a deleted workspace shows nothing.
async fn default_and_deleted_workspaces_are_nobodys(stage: &Stage) -> Checked {
    let Owners { tenant, alice, bob } = Owners::open(stage).await?;
    let mut own = stage.workspace("of bob").with_description("obey bob").with_provider("bobs");
    own.id = WorkspaceId::DEFAULT;
    let main = own.main_session;
    let made = bob.workspaces.put(own, Precondition::MustNotExist).await?;
    same("its name", &made.name.as_str(), &"default")?;
    same("its fields", &(&made.owner, &made.description, &made.provider), &(&None, &None, &None))?;
    same("whether it has the main session that was asked for", &(made.main_session == main), &false)?;
    let gone = stage.new_workspace(&alice).await?.id;
    let area = HiddenSession::area(gone, WorkspaceArea::Memory).open(&alice.sessions).await?;
    let device = stage.device("laptop")?;
    alice.bindings.bind(&device, gone, Precondition::None).await?;
    alice.workspaces.delete(gone).await?;
    alice.workspaces.delete(gone).await?;
    // Another handle, which knows nothing.
    let bob = tenant.for_owner(&owner("bob")?);
    refused!("its shared data", bob.sessions.load(area.id).await, ErrorKind::NotFound)?;
    same("its device", &bob.bindings.resolve(&device).await?, &None)?;
    same("its devices", &bob.bindings.list(BindingQuery::new()).await?.items.len(), &0)?;
    let new = NewSession::new(stage.effects.new_session_id(), gone);
    let created = bob.sessions.commit(Commit::create(&stage.effects, new)).await;
    refused!("a session there", created, ErrorKind::Deleted)?;
    // The device is free again.
    let next = stage.new_workspace(&bob).await?.id;
    same("the device", &bob.bindings.bind(&device, next, Precondition::MustNotExist).await?, &next)
}

/// A list of devices shows an owner its own, in pages that name no other.
async fn lists_of_devices_name_no_others(stage: &Stage) -> Checked {
    let Owners { alice, bob, .. } = Owners::open(stage).await?;
    let (hers, his) = (stage.new_workspace(&alice).await?.id, stage.new_workspace(&bob).await?.id);
    for n in 0..6 {
        let (storage, to) = if n % 2 == 0 { (&alice, hers) } else { (&bob, his) };
        let device =
            stage.device(&format!("device {n} of {}", storage.owner().map_or("", OwnerId::as_str)))?;
        storage.bindings.bind(&device, to, Precondition::None).await?;
    }
    let (mut found, mut cursor) = (Vec::new(), None);
    loop {
        let page = bob.bindings.list(BindingQuery::new().with_limit(2).with_cursor(cursor)).await?;
        if page.next.as_ref().is_some_and(|next| next.to_string().contains("alice")) {
            return Err(Failure::new("a cursor", "no other's device", format_args!("{:?}", page.next)));
        }
        found.extend(page.items);
        ends(found.len())?;
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    same("his devices", &found.iter().map(|it| it.workspace).collect::<Vec<_>>(), &vec![his; 3])
}
