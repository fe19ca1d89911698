//! Deletion of a tenant: nothing is left of it, no reader sees a part of an object, and the tenant may be used again.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use agent_core::commit::{Commit, LeaseRequest, Precondition, RunEnd, Trigger};
use agent_core::event::NewEvent;
use agent_core::model::{Patch, Timer, Workspace};
use agent_core::session::{NewSession, SessionRecord};
use agent_core::state::{Reason, SessionState};
use agent_core::store::{
    BindingQuery, DeletedTenant, HiddenSession, Purge, Purged, ReadEvents, SessionQuery, WorkspaceQuery,
};
use agent_core::{Backend, DeviceId, Error, ErrorKind, Seq, Storage, TenantId, WorkspaceId};
use futures::future::BoxFuture;

use crate::factory::FailingCall;
use crate::failure::{Checked, Failure, holds_for, refused, same};
use crate::registry::{Clause, Needs, table};
use crate::stage::{START, Stage, dropped_after, own_events, race};

pub(super) fn clauses() -> Vec<Clause> {
    table![Backend:
        a_tenant_that_was_only_opened_is_not_listed (Needs::TenantList),
        a_deleted_tenant_is_empty_and_usable_again (Needs::TenantList),
        a_pending_rewrite_is_reported_until_it_is_done (Needs::TenantList),
        a_tenant_with_a_live_run_is_not_deleted (Needs::TenantList),
        writers_during_a_deletion_leave_nothing_torn (Needs::TenantList),
        a_dropped_deletion_is_finished_by_the_next (Needs::TenantList),
        a_failed_deletion_is_finished_by_the_next (Needs::TenantFaults),
        a_deletion_of_a_tenant_outlives_a_power_loss (Needs::TenantPowerLoss),
    ]
}

/// Objects of a tenant, of every kind that a store keeps.
struct Stock {
    kept: Workspace,
    deleted: Workspace,
    device: DeviceId,
    /// Sessions, the third of which was purged.
    sessions: Vec<Arc<SessionRecord>>,
}

/// Stores the objects.
async fn stock(stage: &Stage, storage: &Storage) -> Checked<Stock> {
    let kept = storage.workspaces.put(stage.workspace("kept"), Precondition::MustNotExist).await?;
    storage.workspaces.save_config(kept.id, Some("a = 1".to_owned()), Precondition::MustNotExist).await?;
    let deleted = storage.workspaces.put(stage.workspace("deleted"), Precondition::MustNotExist).await?;
    storage.workspaces.delete(deleted.id).await?;
    let device = stage.device("laptop")?;
    storage.bindings.bind(&device, kept.id, Precondition::MustNotExist).await?;
    let mut sessions = Vec::new();
    for _ in 0..3 {
        let new = NewSession::new(stage.effects.new_session_id(), kept.id);
        let session =
            stage.create(storage, new.with_patch(&Patch::new().with_label("kind", "stock"))).await?;
        let timer = NewEvent::timer_scheduled(Timer::new("later", START));
        let append = stage.seal(&session).with_event(NewEvent::user_message("hello")).with_event(timer);
        sessions.push(storage.sessions.commit(append).await?.session);
    }
    for session in &mut sessions[1..] {
        let delete = stage.seal(session).with_trigger(Trigger::Delete(Reason::UserDeleted));
        *session = storage.sessions.commit(delete).await?.session;
    }
    storage.sessions.purge(Purge::new(sessions[2].id, sessions[2].head)).await?;
    Ok(Stock { kept, deleted, device, sessions })
}

impl Stock {
    /// Adds sessions that belong to others, and `events` events.
    async fn add_family(&mut self, stage: &Stage, storage: &Storage, events: usize) -> Checked {
        let first = stage.fill(storage, &self.sessions[0], events).await?;
        self.sessions.push(storage.sessions.fork(first.id, None).await?);
        self.sessions.push(storage.sessions.create_child(first.id, Patch::new()).await?);
        self.sessions[0] = storage.sessions.load(first.id).await?;
        self.sessions.push(HiddenSession::Audit.open(&storage.sessions).await?);
        Ok(())
    }

    /// Checks that a handle finds nothing of the tenant.
    async fn is_gone(&self, storage: &Storage, whose: &str) -> Checked {
        is_empty(storage, whose).await?;
        same("the device", &storage.bindings.resolve(&self.device).await?, &None)?;
        for id in [self.kept.id, self.deleted.id] {
            refused!("a workspace", storage.workspaces.load(id).await, ErrorKind::NotFound)?;
            refused!("its configuration", storage.workspaces.load_config(id).await, ErrorKind::NotFound)?;
        }
        for session in &self.sessions {
            let (id, read) = (session.id, ReadEvents::first(1));
            refused!("a session", storage.sessions.load(id).await, ErrorKind::NotFound)?;
            refused!("its events", storage.sessions.read(id, read).await, ErrorKind::NotFound)?;
        }
        Ok(())
    }

    /// Checks that everything is as it was stored.
    async fn is_there(&self, storage: &Storage) -> Checked {
        let found = self.is_whole_or_absent(storage).await?;
        same("the number of objects", &found, &(2 + self.sessions.len()))?;
        for session in self.sessions.iter().filter(|session| session.status.state != SessionState::Deleted) {
            same("a session", &storage.sessions.load(session.id).await?, session)?;
        }
        Ok(())
    }

    /// Checks that each object is whole or absent. Returns the number of objects that are there.
    async fn is_whole_or_absent(&self, storage: &Storage) -> Checked<usize> {
        nothing_is_damaged(storage).await?;
        let bound = storage.bindings.resolve(&self.device).await?;
        let mut found = usize::from(bound.is_some());
        match storage.workspaces.load(self.kept.id).await {
            Err(error) if *error.kind() == ErrorKind::NotFound => {}
            workspace => {
                same("a workspace", &workspace?.name, &self.kept.name)?;
                let config = storage.workspaces.load_config(self.kept.id).await?;
                same("its configuration", &config.as_deref(), &Some("a = 1"))?;
                found += 1;
            }
        }
        for session in &self.sessions {
            match storage.sessions.load(session.id).await {
                Err(error) if *error.kind() == ErrorKind::NotFound => {}
                there => {
                    same("a session's head", &there?.head, &session.head)?;
                    found += 1;
                }
            }
        }
        Ok(found)
    }
}

/// Checks that lists show nothing of a tenant.
async fn is_empty(storage: &Storage, whose: &str) -> Checked {
    let page = storage.sessions.list(SessionQuery::new().with_hidden().with_total()).await?;
    let seen = (page.items.len(), page.total, page.damaged);
    same(format_args!("the sessions that {whose} lists"), &seen, &(0, Some(0), Vec::new()))?;
    let page = storage.workspaces.list(WorkspaceQuery::new().with_deleting().with_total()).await?;
    let seen = (page.items.len(), page.total, page.damaged);
    same(format_args!("the workspaces that {whose} lists"), &seen, &(0, Some(0), Vec::new()))?;
    let page = storage.bindings.list(BindingQuery::new()).await?;
    same(format_args!("the bindings that {whose} lists"), &page.items.len(), &0)
}

/// Checks that lists name no damage, and that each listed session has all events that its record counts.
async fn nothing_is_damaged(storage: &Storage) -> Checked {
    let damaged =
        storage.workspaces.list(WorkspaceQuery::new().with_deleting().with_limit(1000)).await?.damaged;
    same("damaged workspaces", &damaged, &Vec::new())?;
    same("damaged bindings", &storage.bindings.list(BindingQuery::new()).await?.damaged, &Vec::new())?;
    let page = storage.sessions.list(SessionQuery::new().with_hidden().with_total().with_limit(1000)).await?;
    same("damaged sessions", &page.damaged, &Vec::new())?;
    for item in page.items.iter().filter(|item| item.status.state != SessionState::Deleted) {
        let session = storage.sessions.load(item.id).await?;
        let events = own_events(storage, item.id, 1000).await?.len() as u64;
        same("the events of a session", &events, &(session.head.get() - session.lineage.base().get()))?;
    }
    Ok(())
}

async fn names(tenants: &dyn Backend) -> Checked<Vec<String>> {
    Ok(tenants.tenants(None).await?.items.iter().map(ToString::to_string).collect())
}

/// A tenant is listed if it has data, and not because somebody opened it.
async fn a_tenant_that_was_only_opened_is_not_listed(stage: &Stage) -> Checked {
    let tenants = stage.tenants().await?;
    same("the tenants of an empty store", &names(&*tenants).await?, &Vec::new())?;
    let (opened, written): (TenantId, TenantId) = ("opened".parse()?, "written".parse()?);
    let storage = tenants.tenant(&opened);
    refused!("a session", storage.sessions.load(stage.effects.new_session_id()).await, ErrorKind::NotFound)?;
    is_empty(&storage, "a tenant that was only opened").await?;
    let storage = tenants.tenant(&written);
    let device = stage.device("laptop")?;
    storage.bindings.bind(&device, WorkspaceId::DEFAULT, Precondition::MustNotExist).await?;
    same("the tenants", &names(&*tenants).await?, &vec!["written".to_owned()])?;
    same("the deletion of one that was only opened", &tenants.delete_tenant(&opened).await?.is_empty(), &true)
}

/// A deleted tenant is empty for every handle, and its ids can be used again. Another tenant keeps objects with the same
/// ids.
async fn a_deleted_tenant_is_empty_and_usable_again(stage: &Stage) -> Checked {
    for (name, other) in [("default", "alpha"), ("beta", "alpha")] {
        let (tenant, other): (TenantId, TenantId) = (name.parse()?, other.parse()?);
        let [storage, late] = [stage.open_for(&tenant).await?, stage.open_for(&tenant).await?];
        let mut stocked = stock(stage, &storage).await?;
        stocked.add_family(stage, &storage, 1100).await?;
        stocked.is_there(&late).await?;
        let others = stage.open_for(&other).await?;
        let beside = NewSession::new(stocked.sessions[0].id, stocked.kept.id);
        let beside = stage.create(&others, beside).await?;
        others.bindings.bind(&stocked.device, stocked.kept.id, Precondition::None).await?;

        let tenants = stage.tenants().await?;
        let done = tenants.delete_tenant(&tenant).await?;
        let counts = done.with_rewrite_pending(false);
        same("what was removed", &counts, &DeletedTenant::new(2, stocked.sessions.len() as u64, 1))?;
        let again = stage.open_for(&tenant).await?;
        let readers = [(&storage, "the writer"), (&late, "a reader from before"), (&again, "a new handle")];
        for (reader, whose) in readers {
            stocked.is_gone(reader, whose).await?;
        }
        holds_for("it is not listed", &tenant, !names(&*tenants).await?.contains(&name.to_owned()))?;
        same("the session of the other tenant", &others.sessions.load(beside.id).await?, &beside)?;
        let bound = others.bindings.resolve(&stocked.device).await?;
        same("the device of the other tenant", &bound, &Some(stocked.kept.id))?;
        let again = tenants.delete_tenant(&tenant).await?;
        holds_for("nothing is removed again", &again, again.is_empty())?;
        use_again(stage, &stocked, &late, &storage).await?;
        holds_for("it is listed again", &tenant, names(&*tenants).await?.contains(&name.to_owned()))?;
    }
    Ok(())
}

/// If a purge or a deletion leaves a rewrite pending, its result says so, and every handle names the work, also one that is
/// opened later, until a maintenance has done it; all other data is as before. An erasure leaves none.
async fn a_pending_rewrite_is_reported_until_it_is_done(stage: &Stage) -> Checked {
    let (tenant, other): (TenantId, TenantId) = ("alpha".parse()?, "beta".parse()?);
    let [storage, others] = [stage.open_for(&tenant).await?, stage.open_for(&other).await?];
    let tenants = stage.tenants().await?;
    let nothing = Vec::new();
    same("what is pending in an empty store", &others.sessions.maintenance().pending().await?, &nothing)?;
    let beside = stock(stage, &others).await?;
    for erases in [false, true] {
        stock(stage, &storage).await?;
        let done = match erases {
            true => tenants.erase_tenant(&tenant).await?,
            false => tenants.delete_tenant(&tenant).await?,
        };
        same("the sessions that were removed", &done.sessions, &3)?;
        let pending = others.sessions.maintenance().pending().await?;
        same("whether a rewrite is pending", &done.rewrite_pending, &!pending.is_empty())?;
        let late = stage.open_for(&other).await?;
        same("what a new handle names as pending", &late.sessions.maintenance().pending().await?, &pending)?;
        if erases {
            same("what an erasure leaves pending", &pending, &nothing)?;
        }
        same("what a maintenance does", &tenants.maintain().await?, &pending)?;
        same("what it leaves pending", &late.sessions.maintenance().pending().await?, &nothing)?;
        same("what is left to do", &others.sessions.maintenance().maintain().await?, &nothing)?;
        beside.is_there(&others).await?;
    }
    let deleted = &beside.sessions[1];
    let purge = Purge::new(deleted.id, deleted.head);
    let done = others.sessions.purge(purge.clone()).await?;
    let pending = others.sessions.maintenance().pending().await?;
    same("whether a purge leaves a rewrite pending", &done.rewrite_pending, &!pending.is_empty())?;
    let again = others.sessions.purge(purge.with_rewrite()).await?;
    same("a purge again, with a rewrite", &again, &Purged::new(0))?;
    same("what that leaves pending", &others.sessions.maintenance().pending().await?, &nothing)
}

/// Creates objects under the ids of deleted ones, by a handle from before the deletion, and reads them by another.
async fn use_again(stage: &Stage, stocked: &Stock, writer: &Storage, reader: &Storage) -> Checked {
    let workspace = writer.workspaces.put(stocked.kept.clone(), Precondition::MustNotExist).await?;
    same("the workspace", &reader.workspaces.load(workspace.id).await?, &workspace)?;
    same("its configuration", &reader.workspaces.load_config(workspace.id).await?, &None)?;
    writer.workspaces.put(stocked.deleted.clone(), Precondition::MustNotExist).await?;
    let to = writer.bindings.bind(&stocked.device, stocked.deleted.id, Precondition::MustNotExist).await?;
    same("the binding", &reader.bindings.resolve(&stocked.device).await?, &Some(to))?;
    for former in &stocked.sessions {
        if HiddenSession::may_have(former.id) {
            HiddenSession::Audit.open(&writer.sessions).await?;
            continue;
        }
        let session = stage.create(writer, NewSession::new(former.id, workspace.id)).await?;
        let session = stage.append(writer, &session, "again").await?.session;
        same("a session", &reader.sessions.load(former.id).await?, &session)?;
        same("its events", &own_events(reader, former.id, 100).await?.len(), &2)?;
        if former.head != session.head {
            let late = stage
                .seal(former)
                .with_precondition(Precondition::Matches(former.head))
                .with_event(NewEvent::user_message("late"));
            refused!("a late commit", reader.sessions.commit(late).await, ErrorKind::Conflict { .. })?;
        }
    }
    nothing_is_damaged(reader).await
}

/// While a holder sends heartbeats, the deletion is refused, names the holder and changes nothing. It succeeds when the
/// holder has been silent for the ttl of its lease.
async fn a_tenant_with_a_live_run_is_not_deleted(stage: &Stage) -> Checked {
    let tenant: TenantId = "alpha".parse()?;
    let storage = stage.open_for(&tenant).await?;
    let tenants = stage.tenants().await?;
    let session = stage.new_session(&storage).await?;
    let lease = |ttl| LeaseRequest::new("the holder", stage.effects.new_run_id()).with_ttl(ttl);
    let live = lease(Duration::from_secs(10));
    let begin = stage
        .seal(&session)
        .with_event(NewEvent::user_message("go"))
        .with_trigger(Trigger::BeginRun(live.clone()));
    let running = storage.sessions.commit(begin).await?.session;
    let beats = async {
        loop {
            storage.sessions.leases().heartbeat(running.id, running.epoch).await?;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let refused = tokio::select! {
        beaten = beats => { let beaten: agent_core::Result<()> = beaten; return Ok(beaten?) }
        deleted = tenants.delete_tenant(&tenant) => {
            refused!("a deletion during a run", deleted, ErrorKind::Busy { .. })?
        }
    };
    holds_for(
        "the error names the holder",
        &refused.to_string(),
        refused.to_string().contains("the holder"),
    )?;
    same("the session", &storage.sessions.load(running.id).await?, &running)?;
    same("its events", &(own_events(&storage, running.id, 100).await?.len() as u64), &running.head.get())?;

    let end =
        stage.seal_run(&running, live.run).with_trigger(Trigger::EndRun(RunEnd::Completed(Reason::EndTurn)));
    let idle = storage.sessions.commit(end).await?.session;
    let silent = stage.seal(&idle).with_event(NewEvent::user_message("go"));
    let silent = silent.with_trigger(Trigger::BeginRun(lease(Duration::from_millis(200))));
    storage.sessions.commit(silent).await?;
    tenants.delete_tenant(&tenant).await?;
    is_empty(&storage, "the silent holder").await
}

type Racer = BoxFuture<'static, Checked<()>>;

/// Writers on other handles that write while the tenant is deleted leave whole objects or none. What is written after
/// the deletion has returned stays.
async fn writers_during_a_deletion_leave_nothing_torn(stage: &Stage) -> Checked {
    stage.in_parts_of(10, stage.settings.rounds.div_ceil(10), race_deletions).await
}

async fn race_deletions(stage: Arc<Stage>, rounds: Range<usize>) -> Checked {
    let tenant: TenantId = "alpha".parse()?;
    let tenants = stage.tenants().await?;
    let mut handles = Vec::new();
    for _ in 0..4 {
        handles.push(stage.open_for(&tenant).await?);
    }
    for _ in rounds {
        let stocked = stock(&stage, &handles[0]).await?;
        let (id, session) = (stocked.kept.id, stocked.sessions[0].clone());
        let mut racers: Vec<Racer> = Vec::new();
        let (writer, effects) = (handles[0].clone(), stage.effects.clone());
        racers.push(Box::pin(async move {
            for n in 0..12 {
                let event = NewEvent::user_message(format!("message {n}"));
                let commit = Commit::seal(&effects, session.id, session.head).with_event(event);
                tolerated("an append", writer.sessions.commit(commit).await)?;
            }
            Ok(())
        }));
        let (writer, effects) = (handles[1].clone(), stage.effects.clone());
        racers.push(Box::pin(async move {
            for _ in 0..6 {
                let new = NewSession::new(effects.new_session_id(), id);
                let append = Commit::create(&effects, new).with_event(NewEvent::user_message("new"));
                tolerated("a creation", writer.sessions.commit(append).await)?;
            }
            Ok(())
        }));
        let (writer, workspace) = (handles[2].clone(), stocked.kept.clone());
        let devices = (0..6).map(|n| stage.device(&format!("device {n}"))).collect::<Checked<Vec<_>>>()?;
        racers.push(Box::pin(async move {
            for device in devices {
                tolerated("a binding", writer.bindings.bind(&device, id, Precondition::None).await)?;
                tolerated(
                    "a record",
                    writer.workspaces.put(workspace.clone(), Precondition::MustExist).await,
                )?;
                let text = Some("b = 2".to_owned());
                tolerated(
                    "a configuration",
                    writer.workspaces.save_config(id, text, Precondition::MustExist).await,
                )?;
            }
            Ok(())
        }));
        let (tenants_, tenant_, writer) = (tenants.clone(), tenant.clone(), handles[3].clone());
        let (late, effects, former) =
            (stage.effects.new_session_id(), stage.effects.clone(), stocked.sessions[0].id);
        racers.push(Box::pin(async move {
            tenants_.delete_tenant(&tenant_).await?;
            refused!("a session", writer.sessions.load(former).await, ErrorKind::NotFound)?;
            let new = Commit::create(&effects, NewSession::new(late, WorkspaceId::DEFAULT));
            writer.sessions.commit(new).await?;
            Ok(())
        }));
        race(racers).await?.into_iter().collect::<Checked<()>>()?;
        for reader in [&handles[0], &stage.open_for(&tenant).await?] {
            nothing_is_damaged(reader).await?;
            same("a session from after the deletion", &reader.sessions.load(late).await?.head, &Seq::new(1))?;
        }
        tenants.delete_tenant(&tenant).await?;
        stocked.is_gone(&handles[1], "a handle after the second deletion").await?;
    }
    Ok(())
}

/// Checks the error of a write that came too late.
fn tolerated<T>(what: &str, done: Result<T, Error>) -> Checked {
    use ErrorKind::{Conflict, Deleted, NotFound, Unavailable};
    match done {
        Err(error) if !matches!(error.kind(), NotFound | Deleted | Unavailable | Conflict { .. }) => {
            Err(Failure::of(what, "success, or an error that the tenant is deleted", &error))
        }
        _ => Ok(()),
    }
}

/// A deletion that is dropped at any point can be called again, and is complete then.
async fn a_dropped_deletion_is_finished_by_the_next(stage: &Stage) -> Checked {
    const MOST: usize = 200;
    let tenant: TenantId = "alpha".parse()?;
    let storage = stage.open_for(&tenant).await?;
    let tenants = stage.tenants().await?;
    // A deletion on a slow server has hundreds of polls, and each try two deletions: with few rounds, some of them.
    let step = MOST.div_ceil(stage.settings.rounds.clamp(1, MOST));
    for polls in (0..MOST).step_by(step) {
        let stocked = stock(stage, &storage).await?;
        let ended = dropped_after(tenants.delete_tenant(&tenant), polls).await;
        stage.note(format_args!("the deletion was dropped after {polls} polls, if it had not ended"));
        tenants.delete_tenant(&tenant).await?;
        stocked.is_gone(&storage, "a handle").await?;
        if ended.is_some() {
            return Ok(());
        }
    }
    Ok(())
}

/// Limit on calls to the medium, more than a store makes for one deletion.
const MOST_CALLS: usize = 5000;

/// Each call of a deletion fails, with and without its effect. Then each object is whole or absent, and the next deletion
/// removes the rest.
async fn a_failed_deletion_is_finished_by_the_next(stage: &Stage) -> Checked {
    for done in [false, true] {
        let stage = stage.for_faults().await?;
        let other = stage.open_for(&"other".parse()?).await?;
        let beside = stock(&stage, &other).await?;
        for skip in 0..MOST_CALLS {
            let tenant = format!("tenant-{skip}").parse()?;
            if !fail_call(&stage, &tenant, FailingCall::new(skip, done)).await? {
                break;
            }
        }
        beside.is_there(&other).await?;
    }
    Ok(())
}

/// Fails one call of a deletion; returns whether that call was made.
async fn fail_call(stage: &Stage, tenant: &TenantId, call: FailingCall) -> Checked<bool> {
    let tenants = stage.tenants().await?;
    let stocked = stock(stage, &stage.open_for(tenant).await?).await?;
    stage.fail(Some(call)).await?;
    let done = tenants.delete_tenant(tenant).await;
    let struck = stage.fail(None).await?;
    if let Err(error) = &done
        && !struck
    {
        return Err(Failure::of("a deletion while no call failed", "success", error));
    }
    // An error may leave a handle of no use.
    drop(tenants);
    let storage = stage.open_for(tenant).await?;
    if done.is_err() {
        stocked.is_whole_or_absent(&storage).await?;
        stage.tenants().await?.delete_tenant(tenant).await?;
    }
    stocked.is_gone(&storage, "a handle").await?;
    Ok(struck)
}

/// The power is lost after a deletion, and at any point of one. A deletion that has returned stays done; after another
/// one, each object is whole or absent, and the next deletion removes the rest.
async fn a_deletion_of_a_tenant_outlives_a_power_loss(stage: &Stage) -> Checked {
    let tenant: TenantId = "alpha".parse()?;
    for skip in (0..MOST_CALLS).step_by(3) {
        let stage = stage.for_faults().await?;
        let tenants = stage.tenants().await?;
        let storage = stage.open_for(&tenant).await?;
        let stocked = stock(&stage, &storage).await?;
        let other = stage.open_for(&"other".parse()?).await?;
        let beside = stock(&stage, &other).await?;
        let offered = stage.fail(Some(FailingCall::new(skip, false))).await;
        let done = tenants.delete_tenant(&tenant).await;
        let stage = stage.lose_power(storage).await?;
        drop((tenants, other));
        let (storage, other) = (stage.open_for(&tenant).await?, stage.open_for(&"other".parse()?).await?);
        if done.is_ok() {
            stocked.is_gone(&storage, "a handle after the loss of power").await?;
        } else {
            stocked.is_whole_or_absent(&storage).await?;
            stage.tenants().await?.delete_tenant(&tenant).await?;
            stocked.is_gone(&storage, "a handle after the second deletion").await?;
        }
        beside.is_there(&other).await?;
        if done.is_ok() || offered.is_err() {
            return Ok(());
        }
    }
    Ok(())
}
