//! Owners of one tenant: each sees its own sessions and workspaces, and what has no owner.

use std::sync::Arc;
use std::time::Duration;

use agent_core::commit::{Commit, LeaseRequest, Precondition, Trigger};
use agent_core::event::NewEvent;
use agent_core::model::{BlobInfo, Patch, WorkspaceStatus};
use agent_core::session::{ConversationKey, NewSession, SessionRecord, SessionSummary};
use agent_core::state::{Reason, SessionState};
use agent_core::store::{
    BindingQuery, BlobQuery, HiddenSession, Purge, PutBlob, ReadBlob, ReadEvents, SessionQuery, SweepBlobs,
    WorkspaceArea, WorkspaceQuery,
};
use agent_core::{ErrorKind, OwnerId, Storage, WorkspaceId};

use super::lists::all_sessions;
use crate::failure::{Checked, Failure, refused, same};
use crate::registry::{Clause, Needs, table};
use crate::stage::{START, Stage, ends};

pub(super) fn clauses() -> Vec<Clause> {
    table![Owners:
        owner_is_that_of_the_handle_and_is_kept,
        sessions_of_another_owner_are_not_found,
        workspaces_of_another_owner_are_not_found,
        creations_do_not_tell_who_has_an_id,
        forks_and_children_have_the_owner_of_their_parent,
        nothing_is_created_for_another_owner,
        workspaces_without_an_owner_are_shared,
        devices_of_another_owner_are_not_bound_again,
        keys_of_two_owners_name_two_sessions,
        work_on_the_whole_tenant_is_denied,
        lists_of_owners_show_their_own (Needs::ImmediateLists),
        pages_and_totals_of_an_owner_agree (Needs::ImmediateLists),
        an_owner_is_counted_and_erased (Needs::ImmediateLists),
    ]
}

/// Storages of two owners of one tenant, and that of the tenant.
pub(super) struct Owners {
    pub(super) tenant: Storage,
    pub(super) alice: Storage,
    pub(super) bob: Storage,
}

impl Owners {
    pub(super) async fn open(stage: &Stage) -> Checked<Self> {
        let tenant = stage.open().await?;
        let (alice, bob) = (tenant.for_owner(&owner("alice")?), tenant.for_owner(&owner("bob")?));
        Ok(Self { tenant, alice, bob })
    }
}

pub(super) fn owner(name: &str) -> Checked<OwnerId> {
    Ok(name.parse()?)
}

/// Creates a session in the shared workspace `default`.
pub(super) async fn session_in(
    stage: &Stage,
    storage: &Storage,
    workspace: WorkspaceId,
) -> Checked<Arc<SessionRecord>> {
    stage.create(storage, NewSession::new(stage.effects.new_session_id(), workspace)).await
}

pub(super) async fn in_default(stage: &Stage, storage: &Storage) -> Checked<Arc<SessionRecord>> {
    session_in(stage, storage, WorkspaceId::DEFAULT).await
}

/// A session and a workspace have the owner of the handle that created them: at once, after a restart, in lists, after
/// changes, and what a purge leaves of a session. Without an owner they have none.
async fn owner_is_that_of_the_handle_and_is_kept(stage: &Stage) -> Checked {
    let Owners { tenant, alice, .. } = Owners::open(stage).await?;
    let (own, none) = (Some(owner("alice")?), None);
    let workspace = stage.new_workspace(&alice).await?;
    same("the owner of a workspace", &workspace.owner, &own)?;
    same("a workspace of the tenant", &stage.new_workspace(&tenant).await?.owner, &none)?;
    let session = session_in(stage, &alice, workspace.id).await?;
    same("the owner of a session", &session.owner, &own)?;
    same("a session of the tenant", &in_default(stage, &tenant).await?.owner, &none)?;
    let appended = stage.append(&alice, &session, "hello").await?.session;
    same("after a message", &appended.owner, &own)?;
    let renamed = alice
        .workspaces
        .put(workspace.clone().with_name("renamed"), Precondition::Matches(workspace.revision));
    same("after a change", &renamed.await?.owner, &own)?;
    drop(alice);
    let tenant = stage.reopen(tenant).await?;
    same("the session after a restart", &tenant.sessions.load(session.id).await?.owner, &own)?;
    same("the workspace after a restart", &tenant.workspaces.load(workspace.id).await?.owner, &own)?;
    let mut taken = tenant.workspaces.load(workspace.id).await?;
    taken.owner = Some(owner("bob")?);
    let revision = taken.revision;
    let put = tenant.workspaces.put(taken, Precondition::Matches(revision)).await;
    refused!("another owner of a workspace", put, ErrorKind::InvalidInput)?;
    let delete = stage.seal(&appended).with_trigger(Trigger::Delete(Reason::UserDeleted));
    let deleted = tenant.sessions.commit(delete).await?.session;
    tenant.sessions.purge(Purge::new(deleted.id, deleted.head)).await?;
    same("what is left after a purge", &tenant.sessions.load(session.id).await?.owner, &own)
}

/// A session of another owner is `NotFound` for every operation, and stays as it was.
async fn sessions_of_another_owner_are_not_found(stage: &Stage) -> Checked {
    let Owners { tenant, alice, bob } = Owners::open(stage).await?;
    let session = in_default(stage, &alice).await?;
    let (session, _) = stage.begin_run(&alice, &session, "work").await?;
    let (id, epoch, head) = (session.id, session.epoch, session.head);
    let sessions = &bob.sessions;
    refused!("a load", sessions.load(id).await, ErrorKind::NotFound)?;
    refused!("a read", sessions.read(id, ReadEvents::default()).await, ErrorKind::NotFound)?;
    let commit = stage.seal(&session).with_event(NewEvent::user_message("into another's"));
    refused!("a commit", sessions.commit(commit).await, ErrorKind::NotFound)?;
    refused!("a purge", sessions.purge(Purge::new(id, head)).await, ErrorKind::NotFound)?;
    refused!("a heartbeat", sessions.leases().heartbeat(id, epoch).await, ErrorKind::NotFound)?;
    refused!("a lease status", sessions.leases().status(id, epoch).await, ErrorKind::NotFound)?;
    let followed = tokio::time::timeout(Duration::from_secs(60), sessions.changed(id, head)).await;
    let Ok(followed) = followed else {
        return Err(Failure::new("following", "an answer", "none in a minute"));
    };
    refused!("following", followed, ErrorKind::NotFound)?;
    let put = Commit::create(&stage.effects, NewSession::fork(stage.effects.new_session_id(), &session));
    refused!("a fork", sessions.commit(put).await, ErrorKind::Denied)?;
    let mut fork = NewSession::fork(stage.effects.new_session_id(), &session);
    fork.created.owner = None;
    refused!("a fork", sessions.commit(Commit::create(&stage.effects, fork)).await, ErrorKind::NotFound)?;
    if tenant.sessions.capabilities().blob_max_bytes > 0 {
        let blob = BlobInfo::of(b"content");
        let put = |storage: &Storage| {
            let put = PutBlob::of_bytes(id, b"content".to_vec());
            let blobs = storage.sessions.clone();
            async move { blobs.blobs().put(put).await }
        };
        put(&alice).await?;
        refused!("a blob", put(&bob).await, ErrorKind::NotFound)?;
        refused!(
            "the bytes",
            sessions.blobs().read(ReadBlob::new(id, blob.name)).await,
            ErrorKind::NotFound
        )?;
        refused!("the blobs", sessions.blobs().list(BlobQuery::new(id)).await, ErrorKind::NotFound)?;
        refused!("a sweep", sessions.blobs().sweep(SweepBlobs::of(id)).await, ErrorKind::NotFound)?;
    }
    same("the session", &alice.sessions.load(id).await?, &session)?;
    same("the session, for the tenant", &tenant.sessions.load(id).await?, &session)
}

/// A workspace of another owner is `NotFound` for every operation, and nothing is created in it.
async fn workspaces_of_another_owner_are_not_found(stage: &Stage) -> Checked {
    let Owners { alice, bob, .. } = Owners::open(stage).await?;
    let workspace = stage.new_workspace(&alice).await?;
    let (id, workspaces) = (workspace.id, &bob.workspaces);
    refused!("a load", workspaces.load(id).await, ErrorKind::NotFound)?;
    refused!("a load with it", workspaces.load_with_config(id).await, ErrorKind::NotFound)?;
    refused!("a configuration", workspaces.load_config(id).await, ErrorKind::NotFound)?;
    let saved = workspaces.save_config(id, Some("a = 1".to_owned()), Precondition::MustNotExist);
    refused!("a change of it", saved.await, ErrorKind::NotFound)?;
    refused!("a touch", workspaces.touch(id, START).await, ErrorKind::NotFound)?;
    refused!("a deletion", workspaces.delete(id).await, ErrorKind::NotFound)?;
    let mut renamed = workspace.clone().with_name("mine");
    renamed.owner = None;
    let put = workspaces.put(renamed, Precondition::Matches(workspace.revision));
    refused!("a change", put.await, ErrorKind::NotFound)?;
    let new = NewSession::new(stage.effects.new_session_id(), id);
    let created = bob.sessions.commit(Commit::create(&stage.effects, new)).await;
    refused!("a session there", created, ErrorKind::NotFound)?;
    let (bindings, device) = (&bob.bindings, stage.device("laptop")?);
    refused!("a device", bindings.bind(&device, id, Precondition::MustNotExist).await, ErrorKind::NotFound)?;
    refused!("unbinding its devices", bindings.unbind_workspace(id).await, ErrorKind::NotFound)?;
    let page = workspaces.list(WorkspaceQuery::new().with_deleting().with_total()).await?;
    same("the list", &(page.items.len(), page.total), &(0, Some(0)))?;
    same("the workspace", &alice.workspaces.load(id).await?, &workspace)
}

/// A creation with the id of another owner's session is a `Conflict` that says nothing about that session, whatever its
/// state.
async fn creations_do_not_tell_who_has_an_id(stage: &Stage) -> Checked {
    let Owners { alice, bob, .. } = Owners::open(stage).await?;
    let mut all = Vec::new();
    for trigger in [None, Some(Trigger::Archive), Some(Trigger::Delete(Reason::UserDeleted))] {
        let session = in_default(stage, &alice).await?;
        if let Some(trigger) = trigger {
            alice.sessions.commit(stage.seal(&session).with_trigger(trigger)).await?;
        }
        all.push(session.id);
    }
    for id in all {
        let create = Commit::create(&stage.effects, NewSession::new(id, WorkspaceId::DEFAULT));
        refused!("a creation", bob.sessions.commit(create).await, ErrorKind::Conflict { head: None })?;
    }
    Ok(())
}

/// A fork and a child have the owner of their parent, also if the tenant makes them.
async fn forks_and_children_have_the_owner_of_their_parent(stage: &Stage) -> Checked {
    let Owners { tenant, alice, .. } = Owners::open(stage).await?;
    let session = in_default(stage, &alice).await?;
    for storage in [&alice, &tenant] {
        let fork = storage.sessions.fork(session.id, None).await?;
        same("the owner of a fork", &fork.owner, &session.owner)?;
        let child = storage.sessions.create_child(session.id, Patch::new()).await?;
        same("the owner of a child", &child.owner, &session.owner)?;
        same("the child, for its owner", &alice.sessions.load(child.id).await?.owner, &session.owner)?;
        same("the fork, for its owner", &alice.sessions.load(fork.id).await?.owner, &session.owner)?;
    }
    Ok(())
}

/// The handle of an owner creates nothing with another owner, and restores nothing of another one.
async fn nothing_is_created_for_another_owner(stage: &Stage) -> Checked {
    let Owners { alice, bob, .. } = Owners::open(stage).await?;
    let mut new = NewSession::new(stage.effects.new_session_id(), WorkspaceId::DEFAULT);
    new.created.owner = Some(owner("alice")?);
    let created = bob.sessions.commit(Commit::create(&stage.effects, new)).await;
    refused!("a session of another", created, ErrorKind::Denied)?;
    let mut workspace = stage.workspace("another's");
    workspace.owner = Some(owner("alice")?);
    let put = bob.workspaces.put(workspace, Precondition::MustNotExist).await;
    refused!("a workspace of another", put, ErrorKind::Denied)?;
    let session = in_default(stage, &alice).await?;
    let events = alice.sessions.read(session.id, ReadEvents::first(10)).await?.events;
    let restore = |id| Commit::restore(id, events.clone());
    let id = stage.effects.new_session_id();
    refused!("another's session", bob.sessions.commit(restore(id)?).await, ErrorKind::Denied)?;
    let restored = alice.sessions.commit(restore(id)?).await?.session;
    same("the owner of a restored session", &restored.owner, &session.owner)?;
    let query = SessionQuery::new().with_owner(owner("alice")?);
    refused!("another's list", bob.sessions.list(query).await, ErrorKind::Denied)?;
    // A storage made from that of another owner shows nothing of either.
    let both = alice.for_owner(&owner("bob")?);
    refused!("a session of the first", both.sessions.load(session.id).await, ErrorKind::NotFound)?;
    let create =
        Commit::create(&stage.effects, NewSession::new(stage.effects.new_session_id(), WorkspaceId::DEFAULT));
    refused!("a session of the second", both.sessions.commit(create).await, ErrorKind::Denied).map(drop)
}

/// Every owner of a tenant uses the workspaces without an owner: it reads their record and configuration, and reads and
/// writes their hidden sessions, but changes neither the record nor the sessions of others there.
async fn workspaces_without_an_owner_are_shared(stage: &Stage) -> Checked {
    let Owners { tenant, alice, bob } = Owners::open(stage).await?;
    let shared = stage.new_workspace(&tenant).await?;
    let id = shared.id;
    let unowned = session_in(stage, &tenant, id).await?;
    same("the workspace", &bob.workspaces.load(id).await?, &shared)?;
    let touched = shared.last_accessed.plus_micros(60_000_000);
    bob.workspaces.touch(id, touched).await?;
    let renamed = bob.workspaces.put(shared.clone().with_name("mine"), Precondition::MustExist).await;
    refused!("a change", renamed, ErrorKind::Denied)?;
    refused!("a deletion", bob.workspaces.delete(id).await, ErrorKind::Denied)?;
    let saved = bob.workspaces.save_config(id, Some("a = 1".to_owned()), Precondition::MustNotExist).await;
    refused!("a configuration", saved, ErrorKind::Denied)?;
    refused!("unbinding all", bob.bindings.unbind_workspace(id).await, ErrorKind::Denied)?;
    refused!("a session without an owner", bob.sessions.load(unowned.id).await, ErrorKind::NotFound)?;
    for hidden in [
        HiddenSession::area(id, WorkspaceArea::Memory),
        HiddenSession::project(id, "a/b"),
        HiddenSession::project(id, "a/"),
        HiddenSession::objective(id, "a", "b/"),
        HiddenSession::objective(id, "a", "b/c"),
        HiddenSession::agent(id, "planner"),
        HiddenSession::Tenant,
    ] {
        let opened = hidden.open(&alice.sessions).await?;
        same(format_args!("the owner of {hidden:?}"), &opened.owner, &None)?;
        same("the same for another", &hidden.open(&bob.sessions).await?.id, &opened.id)?;
        let patch = NewEvent::updated(Patch::new().with_label("seen", "yes"));
        bob.sessions.commit(stage.seal(&opened).with_event(patch)).await?;
        same("its log", &alice.sessions.read(opened.id, ReadEvents::default()).await?.events.len(), &2)?;
    }
    // What an owner has in its own workspace is its own, whoever made it.
    let own = stage.new_workspace(&alice).await?;
    let made = session_in(stage, &tenant, own.id).await?;
    same("a session of the tenant there", &alice.sessions.load(made.id).await?, &made)?;
    let area = HiddenSession::area(own.id, WorkspaceArea::Skills).open(&tenant.sessions).await?;
    same("an area", &alice.sessions.load(area.id).await?, &area)?;
    refused!("an area of another", bob.sessions.load(area.id).await, ErrorKind::NotFound).map(drop)
}

/// A device that is bound to another owner's workspace resolves to nothing, is in no list, and is neither bound nor unbound.
async fn devices_of_another_owner_are_not_bound_again(stage: &Stage) -> Checked {
    let Owners { tenant, alice, bob } = Owners::open(stage).await?;
    let (laptop, own) = (stage.device("laptop")?, stage.new_workspace(&alice).await?.id);
    let others = stage.new_workspace(&bob).await?.id;
    same("a binding", &alice.bindings.bind(&laptop, own, Precondition::MustNotExist).await?, &own)?;
    same("another's device", &bob.bindings.resolve(&laptop).await?, &None)?;
    for expect in [
        Precondition::MustNotExist,
        Precondition::None,
        Precondition::MustExist,
        Precondition::Matches(others),
    ] {
        let bound = bob.bindings.bind(&laptop, others, expect).await;
        refused!("binding it", bound, ErrorKind::Conflict { head: None })?;
    }
    refused!(
        "binding it as known",
        bob.bindings.bind(&laptop, others, Precondition::Matches(own)).await,
        ErrorKind::Conflict { head: None }
    )?;
    same("unbinding it", &bob.bindings.unbind(&laptop).await?, &false)?;
    same("the list", &bob.bindings.list(BindingQuery::new()).await?.items.len(), &0)?;
    same("the binding", &tenant.bindings.resolve(&laptop).await?, &Some(own))?;
    let (hers, his) = (session_in(stage, &alice, own).await?, session_in(stage, &bob, others).await?);
    alice.bindings.set_last_session(&laptop, hers.id).await?;
    bob.bindings.set_last_session(&laptop, his.id).await?;
    same("its last session", &bob.bindings.last_session(&laptop).await?, &None)?;
    // Its own devices are bound as ever.
    let phone = stage.device("phone")?;
    for expect in [Precondition::None, Precondition::MustExist, Precondition::Matches(others)] {
        same("a binding", &bob.bindings.bind(&phone, others, expect).await?, &others)?;
    }
    let shared = WorkspaceId::DEFAULT;
    same("a change", &bob.bindings.bind(&phone, shared, Precondition::None).await?, &shared)?;
    same("a binding to what is shared", &alice.bindings.resolve(&phone).await?, &Some(shared))
}

/// One key of two owners names two sessions, and the key of none a third.
async fn keys_of_two_owners_name_two_sessions(stage: &Stage) -> Checked {
    let Owners { tenant, alice, bob } = Owners::open(stage).await?;
    let key: ConversationKey = "support/4711".parse()?;
    let mut ids = Vec::new();
    for storage in [&tenant, &alice, &bob] {
        let new = NewSession::conversation(&key, storage.owner(), WorkspaceId::DEFAULT, 0);
        let session = stage.create(storage, new).await?;
        same("its key", &session.conversation_key().as_ref(), &Some(&key))?;
        ids.push(session.id);
    }
    ids.sort();
    ids.dedup();
    same("sessions of the key", &ids.len(), &3)
}

/// Check, repair and maintenance of the store, and the audit, are for the tenant only.
async fn work_on_the_whole_tenant_is_denied(stage: &Stage) -> Checked {
    let Owners { tenant, alice, .. } = Owners::open(stage).await?;
    let session = in_default(stage, &alice).await?;
    let care = alice.sessions.maintenance();
    refused!("a check", care.check().await, ErrorKind::Denied)?;
    refused!("a repair", care.rebuild().await, ErrorKind::Denied)?;
    refused!("what is pending", care.pending().await, ErrorKind::Denied)?;
    refused!("maintenance", care.maintain().await, ErrorKind::Denied)?;
    let deleted = care.delete_damaged(session.id, START, Reason::UserDeleted).await;
    refused!("a deletion of damage", deleted, ErrorKind::Denied)?;
    let swept = alice.sessions.blobs().sweep(SweepBlobs::without_session()).await;
    refused!("a sweep", swept, ErrorKind::Denied)?;
    refused!("the audit", HiddenSession::Audit.open(&alice.sessions).await, ErrorKind::Denied)?;
    let audit = HiddenSession::Audit.open(&tenant.sessions).await?;
    refused!("the audit", alice.sessions.load(audit.id).await, ErrorKind::NotFound).map(drop)
}

/// Creates sessions of both owners and of none, some of them in a workspace of one owner.
async fn some(stage: &Stage, owners: &Owners, count: usize) -> Checked<WorkspaceId> {
    let own = stage.new_workspace(&owners.alice).await?.id;
    for n in 0..count {
        let storage = [&owners.alice, &owners.bob, &owners.tenant][n % 3];
        let workspace = if n % 6 == 0 { own } else { WorkspaceId::DEFAULT };
        let label = Patch::new().with_label("parity", (n % 2).to_string());
        let new = NewSession::new(stage.effects.new_session_id(), workspace).with_patch(&label);
        let mut commit = Commit::create(&stage.effects, new);
        commit.at = START.plus_micros(1_000_000 * n as i64);
        let session = storage.sessions.commit(commit).await?.session;
        let mut last = stage.seal(&session);
        last.at = session.last_active_at;
        let last = match n % 5 {
            1 => last.with_trigger(Trigger::Archive),
            2 => last.with_event(NewEvent::user_message("work")),
            3 => last
                .with_event(NewEvent::user_message("work"))
                .with_trigger(Trigger::BeginRun(LeaseRequest::new("holder", stage.effects.new_run_id()))),
            _ => continue,
        };
        storage.sessions.commit(last).await?;
    }
    Ok(own)
}

/// A list shows an owner its own sessions, and all of a workspace of its own, whatever else the query asks for.
async fn lists_of_owners_show_their_own(stage: &Stage) -> Checked {
    let owners = Owners::open(stage).await?;
    let own = some(stage, &owners, 60).await?;
    let everything = all_sessions(&owners.tenant, SessionQuery::new().with_hidden().with_limit(1000)).await?;
    same("all sessions", &everything.len(), &60)?;
    let due = START.plus_micros(3_600_000_000);
    let is_exact = owners.tenant.sessions.capabilities().recency == Duration::ZERO;
    for (storage, name) in [(&owners.alice, "alice"), (&owners.bob, "bob")] {
        let owner = owner(name)?;
        for query in [
            SessionQuery::new(),
            SessionQuery::new().with_hidden(),
            SessionQuery::new().with_workspace(WorkspaceId::DEFAULT),
            SessionQuery::new().with_workspace(own),
            SessionQuery::new().with_label("parity", "1"),
            SessionQuery::new().with_label("parity", "0").with_workspace(WorkspaceId::DEFAULT).with_hidden(),
            SessionQuery::new().with_due(due),
            SessionQuery::new().with_states([SessionState::Running]),
            SessionQuery::new().with_states([SessionState::Archived]),
        ] {
            let of_owner = |session: &SessionSummary| {
                session.owner.as_ref() == Some(&owner) || (name == "alice" && query.workspace == Some(own))
            };
            let expected = everything.iter().filter(|session| query.matches(session) && of_owner(session));
            let mut expected: Vec<_> = expected.cloned().collect();
            query.sort(&mut expected);
            let found = all_sessions(storage, query.clone().with_limit(4)).await?;
            // From page to page, the order may lag.
            let ids = |all: &[SessionSummary]| {
                let mut ids: Vec<_> = all.iter().map(|session| session.id).collect();
                if !is_exact {
                    ids.sort();
                }
                ids
            };
            same(format_args!("the list of {name} for {query:?}"), &ids(&found), &ids(&expected))?;
            let of_tenant = all_sessions(&owners.tenant, query.clone().with_owner(owner.clone())).await?;
            let owned: Vec<_> =
                expected.iter().filter(|it| it.owner.as_ref() == Some(&owner)).cloned().collect();
            same(format_args!("the same for the tenant, {query:?}"), &ids(&of_tenant), &ids(&owned))?;
        }
    }
    Ok(())
}

/// Pages of an owner's sessions and workspaces neither skip nor repeat one, and totals count what the pages show.
async fn pages_and_totals_of_an_owner_agree(stage: &Stage) -> Checked {
    let owners = Owners::open(stage).await?;
    some(stage, &owners, 30).await?;
    let query = || SessionQuery::new().with_hidden().with_total();
    let page = owners.bob.sessions.list(query().with_limit(3)).await?;
    same("a page and the total", &(page.items.len(), page.total), &(3, Some(10)))?;
    same("all pages", &all_sessions(&owners.bob, query().with_limit(3)).await?.len(), &10)?;
    let mut expected = Vec::new();
    for n in 0..18 {
        let storage = [&owners.alice, &owners.bob, &owners.tenant][n % 3];
        let mut workspace = stage.workspace(&format!("workspace {n}"));
        workspace.last_accessed = START.plus_micros(1_000_000 * (n as i64 + 1000));
        let mut put = storage.workspaces.put(workspace, Precondition::MustNotExist).await?;
        if n % 4 == 0 {
            put.status = WorkspaceStatus::Deleting;
            let revision = put.revision;
            put = storage.workspaces.put(put, Precondition::Matches(revision)).await?;
        }
        expected.push(put);
    }
    expected.reverse();
    let bob = Some(owner("bob")?);
    for (owned, deleting) in [(true, true), (true, false), (false, true), (false, false)] {
        let base = WorkspaceQuery::new().with_total().with_limit(2);
        let base = if deleting { base.with_deleting() } else { base };
        let base = if owned { base.with_owner(owner("bob")?) } else { base };
        let mut wanted: Vec<_> = expected
            .iter()
            .filter(|it| it.owner == bob || (!owned && it.owner.is_none()))
            .filter(|it| base.matches(it) || (!owned && deleting))
            .filter(|it| deleting || it.status == WorkspaceStatus::Active)
            .map(|it| it.id)
            .collect();
        let (mut found, mut cursor) = (Vec::new(), None);
        loop {
            let page = owners.bob.workspaces.list(base.clone().with_cursor(cursor)).await?;
            same("the total of workspaces", &page.total, &Some(wanted.len() as u64))?;
            found.extend(page.items.iter().map(|workspace| workspace.id));
            ends(found.len())?;
            cursor = page.next;
            if cursor.is_none() {
                break;
            }
        }
        // From page to page, the order may lag.
        if owners.tenant.sessions.capabilities().recency > Duration::ZERO {
            wanted.sort();
            found.sort();
        }
        same(format_args!("workspaces, owned {owned}, deleting {deleting}"), &found, &wanted)?;
    }
    Ok(())
}

/// All that an owner has is found by its lists, deleted and purged, and nothing of another owner is.
async fn an_owner_is_counted_and_erased(stage: &Stage) -> Checked {
    let owners = Owners::open(stage).await?;
    some(stage, &owners, 12).await?;
    let hidden = || SessionQuery::new().with_hidden().with_total();
    let before = owners.tenant.sessions.list(hidden()).await?.total;
    let page = owners.bob.sessions.list(hidden()).await?;
    same("sessions of the owner", &page.total, &Some(4))?;
    for session in page.items {
        let now = owners.bob.sessions.load(session.id).await?;
        let delete = stage.seal(&now).with_trigger(Trigger::Delete(Reason::UserDeleted));
        let deleted = owners.bob.sessions.commit(delete).await?.session;
        owners.bob.sessions.purge(Purge::new(deleted.id, deleted.head)).await?;
        let left = owners.bob.sessions.read(deleted.id, ReadEvents::default()).await?;
        same("events that are left", &left.events.len(), &0)?;
    }
    let living = SessionQuery::new().with_total();
    same("living sessions of the owner", &owners.bob.sessions.list(living).await?.total, &Some(0))?;
    same("sessions and tombstones", &owners.tenant.sessions.list(hidden()).await?.total, &before)
}
