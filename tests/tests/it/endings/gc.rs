//! Objects that gc collects, and protection of the rest.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use agent_core::commit::{Commit, LeaseRequest, Trigger};
use agent_core::event::NewEvent;
use agent_core::model::{AGE_MAX, Patch, Timer, WorkspaceStatus};
use agent_core::state::SessionState;
use agent_core::store::{Capabilities, SessionStoreWrapper};
use agent_core::{
    ErrorKind, MemoryStore, SessionId, SessionStore, Storage, WorkspaceId, WorkspaceStoreExt, async_trait,
};
use agent_runtime::retention::{GcPolicy, InactivityPolicy, RetainReason, SweepPolicy};
use agent_runtime::{AgentBuilder, Config, Gate, NewWorkspace, ScriptedProvider, Turn, Update};
use agent_tests::each_store;
use futures::FutureExt;

use crate::endings::cut::{Cut, Cutting};
use crate::endings::site::{
    DAY, Hands, Site, World, append_text, check_gone, device, effects, manager, read_all, sessions,
    small_world, world,
};

/// Age in days that no workspace has: the maximum.
const NEVER: u64 = AGE_MAX.as_secs() / (24 * 3600);

/// Exactly those that nobody used for longer than the limit go, whatever the limit; `default` and what was used in
/// time stay as they were. The dry run names them and touches nothing.
async fn gc_removes_exactly_those_over_the_age_limit(site: Site) {
    let limits = [0, 1, 2, 5, 9, 30, NEVER];
    for (round, days) in limits.into_iter().enumerate() {
        let (storage, clock) = (site.fresh(round), Hands::new());
        let manager = manager(&storage, &clock);
        manager.default_workspace().await.unwrap();
        let mut worlds = Vec::new();
        for age in [30u64, 9, 5, 2, 1] {
            // Created so many days ago, and used in one of three ways: a message, an access, or not at all.
            worlds.push((age, small_world(&storage, &clock, &format!("{age} days")).await));
            let next = [9, 5, 2, 1, 0].into_iter().find(|next| *next < age).unwrap();
            clock.forward(DAY * u32::try_from(age - next).unwrap());
            if age == 9 {
                append_text(&storage, &clock, worlds[0].1.main, "still here").await.unwrap();
                worlds[0].0 = 5;
            }
            if age == 5 {
                manager.touch(worlds[1].1.workspace).await.unwrap();
                worlds[1].0 = 2;
            }
        }
        clock.forward(Duration::from_secs(60));
        let expected: BTreeSet<_> =
            worlds.iter().filter(|(age, _)| *age >= days).map(|(_, world)| world.workspace).collect();
        let policy = GcPolicy::days(days);
        let mut before = Vec::new();
        for (_, world) in &worlds {
            before.push(read_all(&storage, world).await);
        }
        let when = format!("{}, {days} days", site.name);
        let dry = manager.gc(policy.with_dry_run()).await.unwrap();
        assert_eq!(dry.collected.iter().copied().collect::<BTreeSet<_>>(), expected, "{when}");
        for ((_, world), before) in worlds.iter().zip(&before) {
            assert_eq!(read_all(&storage, world).await, *before, "{when}: the dry run touches nothing");
        }
        let mut done = manager.gc(policy).await.unwrap();
        // A dry run cannot know this.
        done.rewrite_pending = false;
        assert_eq!(done, dry, "{when}");
        for ((_, world), before) in worlds.iter().zip(&before) {
            if expected.contains(&world.workspace) {
                check_gone(&storage, &clock, world, &when).await;
            } else {
                assert_eq!(read_all(&storage, world).await, *before, "{when}");
            }
        }
        assert_eq!(manager.load(WorkspaceId::DEFAULT).await.unwrap().status, WorkspaceStatus::Active);
        let again = manager.gc(policy).await.unwrap();
        // Looking made new workspaces for the devices, and those are as old as anything for the limit 0.
        assert!(again.collected.iter().all(|id| !expected.contains(id)), "{when}");
    }
}

each_store!(gc_removes_exactly_those_over_the_age_limit and files and mixed);

/// A pin, a plan, a lease and a use each protect a workspace that is old enough, and the report says which.
async fn gc_reports_why_a_workspace_is_retained(site: Site) {
    let (storage, clock) = (site.fresh(0), Hands::new());
    let storage = storage.with_effects(effects(&clock));
    let (manager, effects) = (manager(&storage, &clock), effects(&clock));
    manager.default_workspace().await.unwrap();
    let pinned = world(&storage, &clock, "pinned").await;
    let pin = NewEvent::updated(Patch::new().pin("evidence"));
    let one = pinned.sessions[3];
    storage.sessions.append(one, agent_core::Seq::ZERO, vec![pin]).await.unwrap();
    let planned = small_world(&storage, &clock, "planned").await;
    let until = effects.now().plus_micros(200 * 24 * 3600 * 1_000_000);
    let timer = NewEvent::timer_scheduled(Timer::new("report", until));
    storage.sessions.append(planned.main, agent_core::Seq::ZERO, vec![timer]).await.unwrap();
    let leased = small_world(&storage, &clock, "leased").await;
    begin(&storage, &clock, leased.main, Duration::from_secs(3600)).await;
    clock.forward(DAY * 100);
    let dry = manager.gc(GcPolicy::days(30).with_dry_run()).await.unwrap();
    let report = manager.gc(GcPolicy::days(30)).await.unwrap();
    assert_eq!(dry, report, "{}", site.name);
    assert_eq!(report.collected, [], "{}", site.name);
    let by = |id: WorkspaceId| {
        let kept = report.retained.iter().find(|kept| kept.id == id);
        kept.map(|kept| format!("{:?}", kept.reason)).unwrap()
    };
    assert!(by(WorkspaceId::DEFAULT).starts_with("Default"), "{}", site.name);
    let why = by(pinned.workspace);
    assert!(why.contains("evidence") && why.contains(&one.to_string()), "{}: {why}", site.name);
    assert!(by(planned.workspace).starts_with("Scheduled"), "{}", site.name);
    let why = by(leased.workspace);
    assert!(why.starts_with("Leased") && why.contains("laptop"), "{}: {why}", site.name);

    let unpin = NewEvent::updated(Patch::new().unpin());
    storage.sessions.append(one, agent_core::Seq::ZERO, vec![unpin]).await.unwrap();
    clock.forward(DAY * 200);
    let report = manager.gc(GcPolicy::days(30)).await.unwrap();
    let gone: BTreeSet<_> = report.collected.iter().copied().collect();
    assert_eq!(gone, [pinned.workspace, planned.workspace].into(), "{}", site.name);
}

each_store!(gc_reports_why_a_workspace_is_retained and mixed);

async fn begin(
    storage: &Storage,
    clock: &Hands,
    id: SessionId,
    ttl: Duration,
) -> std::sync::Arc<agent_core::session::SessionRecord> {
    let effects = effects(clock);
    let seen = storage.sessions.load(id).await.unwrap().head;
    let lease = LeaseRequest::new("laptop", effects.new_run_id()).with_ttl(ttl);
    let begin = Commit::seal(&effects, id, seen).with_trigger(Trigger::BeginRun(lease));
    storage.sessions.commit(begin).await.unwrap().session
}

/// A lease whose holder beats is live, however old its session looks; one without a sign of life for its whole ttl
/// is not, and no clock has a say in either.
async fn lease_depends_on_heartbeats_and_not_on_clocks(site: Site) {
    for beats in [true, false] {
        let (storage, clock) = (site.fresh(usize::from(beats)), Hands::new());
        let manager = manager(&storage, &clock);
        let world = small_world(&storage, &clock, "one").await;
        let running = begin(&storage, &clock, world.main, Duration::from_millis(400)).await;
        clock.forward(DAY * 10_000);
        let sessions = storage.sessions.clone();
        let beating = beats.then(|| {
            tokio::spawn(async move {
                loop {
                    sessions.leases().heartbeat(running.id, running.epoch).await.unwrap();
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            })
        });
        let report = manager.gc(GcPolicy::days(1)).await.unwrap();
        if let Some(beating) = beating {
            beating.abort();
        }
        if beats {
            assert!(
                matches!(report.retained[0].reason, RetainReason::Leased { .. }),
                "{}: {report:?}",
                site.name
            );
            let now = storage.sessions.load(world.main).await.unwrap();
            assert_eq!(now.status.state, SessionState::Running, "{}", site.name);
        } else {
            assert_eq!(report.collected, [world.workspace], "{}", site.name);
            check_gone(&storage, &clock, &world, site.name).await;
        }
    }
}

each_store!(lease_depends_on_heartbeats_and_not_on_clocks and files and mixed);

/// A store in memory on which leases are to have a ttl of some length.
#[derive(Debug)]
struct SlowLeases(MemoryStore, Duration);

#[async_trait]
impl SessionStoreWrapper for SlowLeases {
    fn inner(&self) -> &dyn SessionStore {
        &self.0
    }

    fn capabilities(&self) -> Capabilities {
        self.0.capabilities().with_min_lease(self.1)
    }
}

/// A lease is watched as long as the leases of the store last at least.
#[tokio::test(start_paused = true)]
async fn gc_watches_as_long_as_leases_last() {
    const TTL: Duration = Duration::from_secs(120);
    for (least, collected) in [(TTL, 1), (TTL / 2, 0)] {
        let (store, clock) = (MemoryStore::new(), Hands::new());
        let under = Storage::from(store.clone());
        let sessions = Arc::new(SlowLeases(store, least));
        let storage = Storage::new(under.workspaces, sessions, under.bindings);
        let world = small_world(&storage, &clock, "one").await;
        begin(&storage, &clock, world.main, TTL).await;
        clock.forward(DAY * 10);
        let report = manager(&storage, &clock).gc(GcPolicy::days(1)).await.unwrap();
        assert_eq!(report.collected.len(), collected, "at least {least:?}");
    }
}

/// The clock of a host that cleans up jumps a day forward, and two days back: a run that goes on comes to its
/// end, and what it says is stored.
async fn clock_jump_ends_no_live_run(site: Site) {
    let (storage, clock) = (site.fresh(0), Hands::new());
    let gate = Gate::new();
    let model = ScriptedProvider::new([Turn::new().text("first").gate(&gate).text(" and last")]);
    let agent = AgentBuilder::new()
        .with_config(Config::default().with_lease_ttl(Duration::from_millis(300)))
        .with_llm(model)
        .with_storage(storage.clone())
        .build()
        .unwrap();
    let chat = agent.open(&device("laptop")).await.unwrap();
    // The agent's host has the right time; the one that cleans up is off.
    let now = agent_core::clock::Effects::default().now().as_micros();
    let off = u64::try_from(now - effects(&clock).now().as_micros()).unwrap();
    clock.forward(Duration::from_micros(off));
    let mut run = chat.prompt("go").await.unwrap();
    while !matches!(run.next().await.unwrap().unwrap(), Update::Text(_)) {}
    let nothing = Duration::ZERO;
    let everything = SweepPolicy::new()
        .with_inactive(nothing, agent_runtime::retention::InactivityPolicy::Terminate)
        .with_delete_terminated(nothing)
        .with_delete_archived(nothing)
        .with_purge_deleted(nothing);
    for jump in [1, -2] {
        if jump > 0 {
            clock.forward(DAY);
        } else {
            clock.back(DAY * 2);
        }
        let manager = manager(&storage, &clock);
        let report = manager.gc(GcPolicy::days(0)).await.unwrap();
        assert_eq!(report.collected, [], "{}, {jump}", site.name);
        assert_eq!(manager.sweep(&everything).await.unwrap().swept, [], "{}, {jump}", site.name);
    }
    gate.open();
    assert_eq!(run.finish().await.unwrap().text, "first and last", "{}", site.name);
    let events = crate::endings::site::history(&storage, chat.id()).await;
    assert!(events.iter().any(|event| event.payload.get().contains("first and last")), "{}", site.name);
}

each_store!(clock_jump_ends_no_live_run and files and mixed);

/// Cut at every call, gc leaves every workspace usable or gone, and doing it again collects what is left.
async fn interrupted_gc_is_finished_later(site: Site) {
    let mut round = 0;
    for cut in Cut::ALL {
        for at in 1.. {
            round += 1;
            let (storage, clock) = (site.fresh(round), Hands::new());
            let old = world(&storage, &clock, "old").await;
            clock.forward(DAY * 100);
            let young = small_world(&storage, &clock, "young").await;
            let before = read_all(&storage, &young).await;
            let cutting = Cutting::new(&storage, at, cut);
            let result = manager(&cutting.storage(), &clock).gc(GcPolicy::days(30)).await;
            let was_cut = cutting.calls() >= at;
            let when = format!("{}, {cut:?} at call {at}", site.name);
            assert_eq!(result.is_err(), was_cut, "{when}");
            // Half an ending is none: whoever opens it gets all of it, or a new one.
            if let Ok(resolved) = manager(&storage, &clock).resolve(&old.devices[0]).await {
                let session = manager(&storage, &clock).main_session(&resolved.workspace).await.unwrap();
                assert_ne!(session.status.state, SessionState::Deleted, "{when}");
                clock.forward(DAY * 100);
                manager(&storage, &clock).touch(young.workspace).await.unwrap();
            }
            manager(&storage, &clock).gc(GcPolicy::days(30)).await.unwrap();
            check_gone(&storage, &clock, &old, &when).await;
            let now = read_all(&storage, &young).await;
            let (_, sessions) = before.split_once("revision").unwrap();
            assert!(now.ends_with(sessions), "{when}");
            if !was_cut {
                break;
            }
        }
    }
}

each_store!(interrupted_gc_is_finished_later and mixed);

/// Where somebody said something while gc was at work, if that was acknowledged.
type Received = Arc<Mutex<Option<SessionId>>>;

/// Somebody who comes in between, and says something in the main session or in a new one.
fn visitor(
    storage: &Storage,
    clock: &Hands,
    old: &World,
    new: bool,
) -> (Received, impl FnOnce() -> futures::future::BoxFuture<'static, ()> + Send + 'static) {
    let received = Received::default();
    let (storage, clock, old, shared) = (storage.clone(), clock.clone(), old.clone(), received.clone());
    let visit = move || {
        async move {
            let manager = manager(&storage, &clock);
            let session = if new {
                manager.new_session(old.workspace, &Patch::new()).await
            } else {
                match manager.resolve(&old.devices[0]).await {
                    Ok(resolved) => manager.main_session(&resolved.workspace).await,
                    Err(error) => Err(error),
                }
            };
            let Ok(session) = session else { return };
            if append_text(&storage, &clock, session.id, "am I heard").await.is_ok() {
                *shared.lock().unwrap() = Some(session.id);
            }
        }
        .boxed()
    };
    (received, visit)
}

/// A person who comes back at any step of gc can write, and the message stays, or gets an error; also where gc
/// dies at any later step and another gc goes on.
async fn a_message_that_races_with_gc_is_never_lost(site: Site) {
    let (mut round, mut received_late) = (0, 0);
    for (at, new) in (1..).flat_map(|at| [(at, false), (at, true)]) {
        // Each death after the visit in memory; elsewhere the first few, since the steps are the same.
        let deaths = if site.name == "memory" { usize::MAX } else { 3 };
        let mut calls = 0;
        for death in [usize::MAX].into_iter().chain((0..deaths).map(|later| at + later)) {
            round += 1;
            let (storage, clock) = (site.fresh(round), Hands::new());
            let old = small_world(&storage, &clock, "old").await;
            clock.forward(DAY * 100);
            let (received, visit) = visitor(&storage, &clock, &old, new);
            let cutting = Cutting::visited(&storage, at, visit, Some((death, Cut::DiesBefore)));
            let result = manager(&cutting.storage(), &clock).gc(GcPolicy::days(30)).await;
            assert_eq!(result.is_err(), cutting.calls() >= death);
            calls = cutting.calls();
            manager(&storage, &clock).gc(GcPolicy::days(30)).await.unwrap();
            let received = *received.lock().unwrap();
            if let Some(id) = received {
                let when = format!("{}, a visitor at call {at}, new: {new}, death at {death}", site.name);
                let session = storage.sessions.load(id).await.unwrap();
                assert_ne!(session.status.state, SessionState::Deleted, "{when}");
                let workspace = storage.workspaces.load(session.workspace).await.unwrap();
                assert_eq!(workspace.status, WorkspaceStatus::Active, "{when}");
                let events = crate::endings::site::history(&storage, id).await;
                assert!(events.iter().any(|event| event.payload.get().contains("am I heard")), "{when}");
                let main = storage.sessions.load(old.main).await.unwrap().status.state;
                let late = main == SessionState::Deleted && session.workspace == old.workspace;
                received_late += usize::from(late);
            }
            if death != usize::MAX && result.is_ok() || death == usize::MAX && calls < at {
                break;
            }
        }
        if calls < at {
            break;
        }
    }
    assert!(received_late > 0, "{}: nobody came so late that gc had to give way", site.name);
}

each_store!(a_message_that_races_with_gc_is_never_lost and files and mixed);

/// Sessions and bindings that were left in a deleted workspace are found and removed; those of a workspace
/// that nobody has made are left alone.
async fn gc_removes_orphans_of_deleted_workspaces(site: Site) {
    let (storage, clock) = (site.fresh(0), Hands::new());
    let manager = manager(&storage, &clock);
    let world = world(&storage, &clock, "gone").await;
    let stays = small_world(&storage, &clock, "stays").await;
    let before = read_all(&storage, &stays).await;
    storage.workspaces.delete(world.workspace).await.unwrap();
    let alone = agent_core::session::NewSession::new(effects(&clock).new_session_id(), WorkspaceId::DEFAULT);
    let alone = sessions(&storage, &clock).create(alone).await.unwrap();
    let dry = manager.gc(GcPolicy::days(NEVER).with_dry_run()).await.unwrap();
    let mut report = manager.gc(GcPolicy::days(NEVER)).await.unwrap();
    // A dry run cannot know this.
    report.rewrite_pending = false;
    assert_eq!((dry, report.orphans.len()), (report.clone(), 5), "{}", site.name);
    assert_eq!(report.unbound, [world.workspace], "{}", site.name);
    manager.purge(*world.sessions.last().unwrap()).await.unwrap();
    // Forks before their parents: what they needed is free now.
    for id in &world.sessions {
        manager.purge(*id).await.unwrap();
    }
    check_gone(&storage, &clock, &world, site.name).await;
    assert_eq!(read_all(&storage, &stays).await, before, "{}", site.name);
    assert_eq!(storage.sessions.load(alone.id).await.unwrap(), alone, "{}", site.name);
}

each_store!(gc_removes_orphans_of_deleted_workspaces and mixed);

/// Two hosts that clean up at once collect the same workspaces, and no error comes of it.
async fn concurrent_gc_of_two_hosts_is_safe(site: Site) {
    let (storage, clock) = (site.fresh(0), Hands::new());
    let mut worlds = Vec::new();
    for n in 0..4 {
        worlds.push(world(&storage, &clock, &format!("old {n}")).await);
    }
    manager(&storage, &clock).create(NewWorkspace::new("empty")).await.unwrap();
    clock.forward(DAY * 100);
    let tasks: Vec<_> = (0..4)
        .map(|_| {
            let manager = manager(&storage, &clock);
            tokio::spawn(async move { manager.gc(GcPolicy::days(30)).await })
        })
        .collect();
    for task in tasks {
        task.await.unwrap().unwrap();
    }
    manager(&storage, &clock).gc(GcPolicy::days(30)).await.unwrap();
    for world in &worlds {
        check_gone(&storage, &clock, world, site.name).await;
    }
}

each_store!(concurrent_gc_of_two_hosts_is_safe and mixed, flavor = "multi_thread", worker_threads = 4);

/// A workspace that is opened, or changed, at any step of gc before that has marked it stays, with the change; so
/// does the access alone, without a word in any session.
async fn workspace_used_during_gc_is_kept(site: Site) {
    let (mut round, mut spared) = (0, 0);
    for rename in [false, true] {
        // A new name alone is no access: before gc has looked at workspaces, its second call, it protects nothing.
        for at in 1 + 2 * usize::from(rename).. {
            round += 1;
            let (storage, clock) = (site.fresh(round), Hands::new());
            let old = small_world(&storage, &clock, "old").await;
            clock.forward(DAY * 100);
            let used = Arc::new(Mutex::new(false));
            let (visitor, shared, id) = (manager(&storage, &clock), used.clone(), old.workspace);
            let visit = move || {
                async move {
                    let is_active = |workspace: agent_core::Result<agent_core::model::Workspace>| {
                        workspace.is_ok_and(|workspace| workspace.status == WorkspaceStatus::Active)
                    };
                    if !is_active(visitor.load(id).await) {
                        return;
                    }
                    if rename {
                        visitor.rename(id, "in use").await.unwrap();
                    } else {
                        visitor.touch(id).await.unwrap();
                    }
                    *shared.lock().unwrap() = true;
                }
                .boxed()
            };
            let cutting = Cutting::visited(&storage, at, visit, None);
            manager(&cutting.storage(), &clock).gc(GcPolicy::days(30)).await.unwrap();
            if *used.lock().unwrap() {
                let when = format!("{}, a visitor at call {at}, rename: {rename}", site.name);
                let now = storage.workspaces.load(id).await.unwrap();
                assert_eq!(now.status, WorkspaceStatus::Active, "{when}");
                assert_eq!(now.name == "in use", rename, "{when}");
                spared += 1;
            }
            if cutting.calls() < at {
                break;
            }
        }
    }
    assert!(spared > 6, "{}: {spared}", site.name);
}

each_store!(workspace_used_during_gc_is_kept and mixed);

/// Calls of a deletion up to and including the mark: it lists the sessions, loads the workspace, and updates it.
const MARKED: usize = 3;

/// Gc takes no mark away that a person has made: not where it is at work itself and has to give way to a session
/// that came, and not where it finds what another gc and a deletion left when both died.
async fn gc_does_not_revert_a_requested_deletion(site: Site) {
    let mut round = 0;
    for at in 1.. {
        round += 1;
        let (storage, clock) = (site.fresh(round), Hands::new());
        let old = small_world(&storage, &clock, "old").await;
        clock.forward(DAY * 100);
        let (visitor, hands, id) = (storage.clone(), clock.clone(), old.workspace);
        let marked = Arc::new(Mutex::new(false));
        let shared = marked.clone();
        let visit = move || {
            async move {
                // Somebody who had looked at the workspace before comes, and then a person deletes it and dies.
                let fx = effects(&hands);
                let new = agent_core::session::NewSession::new(fx.new_session_id(), id);
                sessions(&visitor, &hands).create(new).await.unwrap();
                let dying = Cutting::new(&visitor, MARKED, Cut::DiesAfter);
                manager(&dying.storage(), &hands).delete(id).await.unwrap_err();
                *shared.lock().unwrap() = true;
            }
            .boxed()
        };
        let cutting = Cutting::visited(&storage, at, visit, None);
        manager(&cutting.storage(), &clock).gc(GcPolicy::days(30)).await.unwrap();
        let when = format!("{}, a deletion at call {at}", site.name);
        if *marked.lock().unwrap() {
            manager(&storage, &clock).gc(GcPolicy::days(30)).await.unwrap();
            check_gone(&storage, &clock, &old, &when).await;
        }
        if cutting.calls() < at {
            break;
        }
    }
    // What a gc leaves that dies when it has marked, and a session that came before it could look again.
    for at in MARKED.. {
        round += 1;
        let (storage, clock) = (site.fresh(round), Hands::new());
        let old = small_world(&storage, &clock, "old").await;
        let mut record = storage.workspaces.load(old.workspace).await.unwrap();
        record.status = WorkspaceStatus::Deleting;
        record.extra.insert("collected", agent_core::json::RawJson::of(&true).unwrap());
        storage.workspaces.update(record).await.unwrap();
        let dying = Cutting::new(&storage, at, Cut::DiesAfter);
        let _ = manager(&dying.storage(), &clock).delete(old.workspace).await;
        manager(&storage, &clock).gc(GcPolicy::days(NEVER)).await.unwrap();
        check_gone(&storage, &clock, &old, &format!("{}, died after call {at}", site.name)).await;
        if dying.calls() < at {
            break;
        }
    }
}

each_store!(gc_does_not_revert_a_requested_deletion and mixed);

/// A report counts every workspace that was examined, and lists those that were used recently if the policy says so.
async fn a_report_lists_recent_workspaces_on_request(site: Site) {
    let (storage, clock) = (site.fresh(0), Hands::new());
    let manager = manager(&storage, &clock);
    let old = small_world(&storage, &clock, "old").await;
    let spoken = small_world(&storage, &clock, "spoken").await;
    clock.forward(DAY * 40);
    append_text(&storage, &clock, spoken.main, "still here").await.unwrap();
    let last_used = storage.sessions.load(spoken.main).await.unwrap().last_active_at;
    let young = small_world(&storage, &clock, "young").await;
    let policy = GcPolicy::days(30).with_dry_run();
    let plain = manager.gc(policy).await.unwrap();
    assert_eq!((plain.examined, plain.retained.len()), (3, 0), "{}: {plain:?}", site.name);
    let report = manager.gc(policy.with_report_recent()).await.unwrap();
    assert_eq!(report.examined, 3, "{}", site.name);
    assert_eq!(report.collected, [old.workspace], "{}", site.name);
    let recent = |id: WorkspaceId| {
        let kept = report.retained.iter().find(|kept| kept.id == id).map(|kept| &kept.reason);
        match kept {
            Some(RetainReason::Recent { last_used, .. }) => Some(*last_used),
            _ => None,
        }
    };
    assert_eq!(recent(spoken.workspace), Some(last_used), "{}: {report:?}", site.name);
    assert!(recent(young.workspace).is_some(), "{}: {report:?}", site.name);
    assert_eq!(report.retained.len(), 2, "{}: {report:?}", site.name);
}

each_store!(a_report_lists_recent_workspaces_on_request and mixed);

/// An age that no store can have is named, before anything is removed.
async fn ages_have_a_maximum(site: Site) {
    let (storage, clock) = (site.fresh(0), Hands::new());
    let manager = manager(&storage, &clock);
    let world = small_world(&storage, &clock, "stays").await;
    clock.forward(30 * DAY);
    let before = read_all(&storage, &world).await;
    let long = AGE_MAX + Duration::from_secs(1);
    for policy in
        [GcPolicy::older_than(long), GcPolicy::days(u64::MAX), GcPolicy::days(0).with_watch(2 * DAY)]
    {
        let error = manager.gc(policy).await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::InvalidInput, "{}", site.name);
        let most = if policy.watch > DAY { "give at most 1 days" } else { "give at most 36500 days" };
        assert!(error.to_string().contains(most), "{}: {error}", site.name);
    }
    let rules = SweepPolicy::new().with_delete_archived(Duration::ZERO);
    for (policy, what) in [
        (rules.clone().with_inactive(long, InactivityPolicy::Terminate), "inactive"),
        (rules.clone().with_delete_terminated(Duration::MAX), "terminated"),
        (SweepPolicy::new().with_delete_archived(long), "archived"),
        (rules.with_purge_deleted(long), "deleted"),
    ] {
        let error = manager.sweep(&policy).await.unwrap_err().to_string();
        assert!(error.contains(what) && error.contains("give at most 36500 days"), "{}: {error}", site.name);
    }
    assert_eq!(read_all(&storage, &world).await, before, "{}", site.name);
}

each_store!(ages_have_a_maximum and files);
