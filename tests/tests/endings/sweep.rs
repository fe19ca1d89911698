//! What a sweep does to sessions, and what protects them.

use std::sync::Arc;
use std::time::Duration;

use agent_core::commit::{RunEnd, Trigger};
use agent_core::event::{Learning, LearningKind, NewEvent};
use agent_core::model::{Access, ActionKind, Actor, Patch, PendingAction, Status, Wake};
use agent_core::session::Session;
use agent_core::state::{Reason, SessionState};
use agent_core::store::Shelf;
use agent_core::{SessionId, SessionStoreExt, Storage};
use agent_runtime::holdings::{Learnings, effective_mounts, update_scope};
use agent_runtime::retention::{Act, Inactive, Protection, SweepPolicy, Swept};
use agent_tests::each_store;
use futures::FutureExt;

use crate::cut::{Cut, Cutting};
use crate::site::{DAY, Hands, Site, effects, history, manager, say, small_world, world};

const HOUR: Duration = Duration::from_secs(3600);

/// A session at rest, of a label.
async fn at_rest(storage: &Storage, clock: &Hands, patch: Patch) -> Arc<Session> {
    let manager = manager(storage, clock);
    let workspace = manager.default_workspace().await.unwrap().id;
    manager.new_session(workspace, &patch).await.unwrap()
}

async fn status(storage: &Storage, id: SessionId) -> Status {
    storage.sessions.load(id).await.unwrap().status
}

/// Only sessions in which nothing has happened for the time that holds for them are set aside, or ended, by policy;
/// what runs, has work or plans is not inactive; doing it again does nothing; a dry run says the same.
async fn only_real_inactivity_counts_and_each_session_has_its_own_limit(site: Site) {
    for (round, then) in [Inactive::Suspend, Inactive::Terminate].into_iter().enumerate() {
        let (storage, clock) = (site.fresh(round), Hands::new());
        let (manager, fx) = (manager(&storage, &clock), effects(&clock));
        let plain = at_rest(&storage, &clock, Patch::new()).await.id;
        let patient = at_rest(&storage, &clock, Patch::new().inactive_after(48 * HOUR)).await.id;
        let hasty = at_rest(&storage, &clock, Patch::new().inactive_after(HOUR / 2)).await.id;
        let pinned = at_rest(&storage, &clock, Patch::new().pin("demo")).await.id;
        let queued = at_rest(&storage, &clock, Patch::new()).await.id;
        say(&storage, &clock, queued, "answer me").await.unwrap();
        let planned = at_rest(&storage, &clock, Patch::new()).await.id;
        let at = fx.now().plus_micros(30 * 24 * 3600 * 1_000_000);
        let wake = NewEvent::wake_scheduled(Wake::new("monthly", at));
        storage.sessions.append(&fx, planned, agent_core::Seq::ZERO, vec![wake]).await.unwrap();
        let asking = waiting(&storage, &clock, None).await;
        let until = fx.now().plus_micros(7 * 24 * 3600 * 1_000_000);
        let deciding = waiting(&storage, &clock, Some(until)).await;
        let running = at_rest(&storage, &clock, Patch::new()).await.id;
        run(&storage, &clock, running, None).await;
        clock.forward(HOUR);
        let policy = SweepPolicy::new().inactive(24 * HOUR, then);
        let (act, became) = match then {
            Inactive::Suspend => (Act::Suspended, Status::new(SessionState::Suspended, Reason::Inactivity)),
            _ => (Act::Terminated, Status::new(SessionState::Terminated, Reason::Expired)),
        };
        let swept = |report: &agent_runtime::retention::SweepReport| {
            let mut ids: Vec<_> = report.swept.iter().map(|swept: &Swept| swept.session).collect();
            assert!(report.swept.iter().all(|swept| swept.act == act), "{}", site.name);
            ids.sort();
            ids
        };
        assert_eq!(swept(&manager.sweep(&policy).await.unwrap()), [hasty], "{}", site.name);
        clock.forward(20 * HOUR);
        let active = at_rest(&storage, &clock, Patch::new()).await.id;
        clock.forward(4 * HOUR);
        let dry = manager.sweep(&policy.clone().dry_run()).await.unwrap();
        assert_eq!(status(&storage, plain).await.state, SessionState::Idle, "{}: dry", site.name);
        let report = manager.sweep(&policy).await.unwrap();
        assert_eq!(report, dry, "{}", site.name);
        let mut expected = vec![plain, asking];
        expected.sort();
        assert_eq!(swept(&report), expected, "{}", site.name);
        for id in [plain, asking, hasty] {
            assert_eq!(status(&storage, id).await, became, "{}", site.name);
        }
        let kept: Vec<_> = report.kept.iter().map(|kept| kept.id).collect();
        assert!(kept.contains(&pinned) && kept.contains(&deciding), "{}: {report:?}", site.name);
        for (id, state) in [
            (patient, SessionState::Idle),
            (pinned, SessionState::Idle),
            (active, SessionState::Idle),
            (queued, SessionState::Queued),
            (planned, SessionState::Queued),
            (deciding, SessionState::RequiresAction),
            (running, SessionState::Running),
        ] {
            assert_eq!(status(&storage, id).await.state, state, "{}", site.name);
        }
        let again = manager.sweep(&policy).await.unwrap();
        assert_eq!(again.swept, [], "{}: once is enough", site.name);
    }
}

each_store!(only_real_inactivity_counts_and_each_session_has_its_own_limit and mixed);

/// Begins a run, and ends it as `end` says.
async fn run(storage: &Storage, clock: &Hands, id: SessionId, end: Option<RunEnd>) -> Arc<Session> {
    let effects = effects(clock);
    let seen = storage.sessions.load(id).await.unwrap().head;
    let run = effects.new_run_id();
    let begin = agent_core::commit::Commit::seal(&effects, id, seen)
        .event(NewEvent::user_message("go"))
        .trigger(Trigger::BeginRun(agent_core::commit::LeaseRequest::new("laptop", run)));
    let running = storage.sessions.commit(begin).await.unwrap().session;
    let Some(end) = end else { return running };
    let end = agent_core::commit::Commit::seal(&effects, id, running.head)
        .fence(run, running.epoch)
        .trigger(Trigger::EndRun(end));
    storage.sessions.commit(end).await.unwrap().session
}

async fn waiting(storage: &Storage, clock: &Hands, until: Option<agent_core::Timestamp>) -> SessionId {
    let id = at_rest(storage, clock, Patch::new()).await.id;
    let mut action = PendingAction::new("approve".parse().unwrap(), ActionKind::Approval, "Deploy?");
    action.expires_at = until;
    run(storage, clock, id, Some(RunEnd::Await(action))).await.id
}

/// What was suspended for inactivity goes on where it was: a question that was asked is still asked, a message
/// is kept, and nothing that was answered is answered again.
async fn a_suspended_session_goes_on_where_it_was(site: Site) {
    let (storage, clock) = (site.fresh(0), Hands::new());
    let (manager, fx) = (manager(&storage, &clock), effects(&clock));
    let asking = waiting(&storage, &clock, None).await;
    let idle = at_rest(&storage, &clock, Patch::new()).await.id;
    run(&storage, &clock, idle, Some(RunEnd::Completed(Reason::EndTurn))).await;
    clock.forward(DAY);
    manager.sweep(&SweepPolicy::new().inactive(HOUR, Inactive::Suspend)).await.unwrap();
    for id in [asking, idle] {
        assert_eq!(status(&storage, id).await.state, SessionState::Suspended, "{}", site.name);
        storage.sessions.trigger(&fx, id, Trigger::Resume).await.unwrap();
    }
    let asked = storage.sessions.load(asking).await.unwrap();
    assert_eq!(asked.status.state, SessionState::RequiresAction, "{}", site.name);
    assert_eq!(asked.action.as_ref().unwrap().question, "Deploy?", "{}", site.name);
    let rested = storage.sessions.load(idle).await.unwrap();
    assert_eq!((rested.status.state, rested.pending), (SessionState::Idle, 0), "{}", site.name);
    assert!(!rested.has_open_work(), "{}: what was answered is not answered again", site.name);
    clock.forward(DAY);
    manager.sweep(&SweepPolicy::new().inactive(HOUR, Inactive::Suspend)).await.unwrap();
    say(&storage, &clock, idle, "are you there").await.unwrap();
    assert_eq!(status(&storage, idle).await.state, SessionState::Suspended, "{}: kept", site.name);
    storage.sessions.trigger(&fx, idle, Trigger::Resume).await.unwrap();
    let now = storage.sessions.load(idle).await.unwrap();
    assert_eq!((now.status.state, now.pending), (SessionState::Queued, 1), "{}", site.name);
}

each_store!(a_suspended_session_goes_on_where_it_was and mixed);

/// The rules by which everything goes in the end.
fn all_rules() -> SweepPolicy {
    SweepPolicy::new()
        .inactive(DAY, Inactive::Terminate)
        .delete_terminated(7 * DAY)
        .delete_archived(30 * DAY)
        .purge_deleted(DAY)
}

/// Age and state decide what goes, a dry run says it first, and what is gone leaves its metadata: who it
/// was, when it ended, how much it held; what it was called only until then.
async fn age_and_state_remove_old_sessions_and_keep_their_metadata(site: Site) {
    let (storage, clock) = (site.fresh(0), Hands::new());
    let manager = manager(&storage, &clock);
    let world = world(&storage, &clock, "one").await;
    let label = NewEvent::updated(Patch::new().label("project", "apollo"));
    let main = world.main;
    storage.sessions.append(&effects(&clock), main, agent_core::Seq::ZERO, vec![label]).await.unwrap();
    let was = run(&storage, &clock, main, Some(RunEnd::Completed(Reason::EndTurn))).await;
    let mut acts = Vec::new();
    for _ in 0..60 {
        clock.forward(DAY);
        let dry = manager.sweep(&all_rules().dry_run()).await.unwrap();
        let done = manager.sweep(&all_rules()).await.unwrap();
        assert_eq!(done, dry, "{}", site.name);
        let again = manager.sweep(&all_rules()).await.unwrap();
        assert_eq!(again.swept, [], "{}: idempotent", site.name);
        acts.extend(done.swept.iter().filter(|swept| swept.session == main).map(|swept| swept.act));
        let now = storage.sessions.load(main).await.unwrap();
        let called = now.attributes.labels.get("project").map(String::as_str);
        let kept = (!acts.contains(&Act::Purged)).then_some("apollo");
        assert_eq!(called, kept, "{}: what it was called goes with its bytes", site.name);
    }
    // Purged twice: at first all but what its forks read, which stay, since they have inputs to answer.
    assert_eq!(acts, [Act::Terminated, Act::Deleted, Act::Purged], "{}", site.name);
    let now = storage.sessions.load(main).await.unwrap();
    assert_eq!(now.status.state, SessionState::Deleted, "{}", site.name);
    assert_eq!((now.counts, now.created_at, now.workspace), (was.counts, was.created_at, was.workspace));
    assert!(now.ended_at.is_some(), "{}", site.name);
    let [_, fork, grandchild, child, archived, deleted] = world.sessions[..] else { panic!() };
    for (id, state) in [
        (fork, SessionState::Queued),
        (grandchild, SessionState::Queued),
        (child, SessionState::Deleted),
        (archived, SessionState::Deleted),
        (deleted, SessionState::Deleted),
    ] {
        assert_eq!(status(&storage, id).await.state, state, "{}", site.name);
    }
    assert!(history(&storage, fork).await.len() > 5, "{}: forks keep their history", site.name);
    let report = manager.sweep(&all_rules()).await.unwrap();
    let by = report.kept.iter().find(|kept| kept.id == main).map(|kept| &kept.by);
    let needed = |id: SessionId| matches!(by, Some(Protection::NeededBy { session, .. }) if *session == id);
    assert!(needed(fork) || needed(grandchild), "{}: {by:?}", site.name);
    for id in [fork, grandchild] {
        let delete = Trigger::Delete(Reason::UserDeleted);
        storage.sessions.trigger(&effects(&clock), id, delete).await.unwrap();
    }
    clock.forward(2 * DAY);
    manager.sweep(&all_rules()).await.unwrap();
    for id in &world.sessions {
        let left = storage.sessions.read(*id, agent_core::store::ReadEvents::first(1)).await.unwrap();
        assert_eq!(left.events, [], "{}", site.name);
    }
    assert_eq!(manager.sweep(&all_rules()).await.unwrap().kept, [], "{}", site.name);
}

each_store!(age_and_state_remove_old_sessions_and_keep_their_metadata and mixed);

/// What is pinned, and what others share, stays at any age.
async fn what_is_pinned_or_shared_stays(site: Site) {
    let (storage, clock) = (site.fresh(0), Hands::new());
    let manager = manager(&storage, &clock);
    let pinned = at_rest(&storage, &clock, Patch::new().pin("evidence")).await.id;
    let shelf = at_rest(&storage, &clock, Patch::new().label("shelf", "project apollo")).await.id;
    let other = at_rest(&storage, &clock, Patch::new()).await.id;
    for id in [pinned, shelf, other] {
        storage.sessions.trigger(&effects(&clock), id, Trigger::Archive).await.unwrap();
    }
    clock.forward(1000 * DAY);
    let report = manager.sweep(&all_rules()).await.unwrap();
    assert_eq!(report.swept.iter().map(|swept| swept.session).collect::<Vec<_>>(), [other], "{}", site.name);
    for (id, why) in [(pinned, "evidence"), (shelf, "apollo")] {
        assert_eq!(status(&storage, id).await.state, SessionState::Archived, "{}", site.name);
        let by = report.kept.iter().find(|kept| kept.id == id).map(|kept| kept.by.to_string());
        assert!(by.is_some_and(|by| by.contains(why)), "{}: {report:?}", site.name);
    }
}

each_store!(what_is_pinned_or_shared_stays and mixed);

/// What sessions share stays at any age, however it came to be there: what an agent found out, what a project
/// and the whole tenant mount. It is read as before after any number of sweeps, which say why it stays.
async fn a_sweep_spares_what_sessions_share(site: Site) {
    let (storage, clock) = (site.fresh(0), Hands::new());
    let (manager, fx, sessions) = (manager(&storage, &clock), effects(&clock), &storage.sessions);
    let user = at_rest(&storage, &clock, Patch::new().label("project", "apollo")).await;
    let learnings = Learnings::new(sessions.clone(), fx.clone(), user.workspace, "scout");
    learnings.add(Learning::new(LearningKind::Lesson, "Water is wet."), Actor::AGENT).await.unwrap();
    let shelves =
        [Shelf::Tenant, Shelf::project(user.workspace, "apollo"), Shelf::agent(user.workspace, "scout")];
    for shelf in &shelves[..2] {
        let mount = Patch::new().mount(format!("of {shelf:?}"), Access::Read);
        update_scope(sessions, &fx, shelf, mount).await.unwrap();
    }
    let before = effective_mounts(&**sessions, &user).await.unwrap();
    for _ in 0..3 {
        clock.forward(1000 * DAY);
        let report = manager.sweep(&all_rules().purge_deleted(Duration::ZERO)).await.unwrap();
        for shelf in &shelves {
            let kept = report.kept.iter().find(|kept| kept.id == shelf.id());
            assert!(
                kept.is_some_and(|kept| kept.by.to_string().contains("shelf")),
                "{}: {report:?}",
                site.name
            );
            assert!(shelf.find(&**sessions).await.unwrap().is_some(), "{}: {shelf:?}", site.name);
        }
    }
    assert_eq!(status(&storage, user.id).await.state, SessionState::Deleted, "{}", site.name);
    let later = at_rest(&storage, &clock, Patch::new().label("project", "apollo")).await;
    assert_eq!(effective_mounts(&**sessions, &later).await.unwrap(), before, "{}", site.name);
    let known = learnings.list(10, None).await.unwrap();
    assert_eq!(known.learnings.len(), 1, "{}", site.name);
}

each_store!(a_sweep_spares_what_sessions_share and mixed);

/// A message that comes at any step of a sweep is stored, and is answered after a resume, or is refused whole:
/// nothing that was acknowledged is in a session that was ended.
async fn a_message_that_races_with_a_sweep_wins_or_is_refused_whole(site: Site) {
    let mut round = 0;
    for then in [Inactive::Suspend, Inactive::Terminate] {
        for at in 1.. {
            round += 1;
            let (storage, clock) = (site.fresh(round), Hands::new());
            let id = at_rest(&storage, &clock, Patch::new()).await.id;
            clock.forward(DAY);
            let heard = std::sync::Arc::new(std::sync::Mutex::new(None));
            let (visitor, slot) = ((storage.clone(), clock.clone()), heard.clone());
            let visit = move || {
                async move {
                    let said = say(&visitor.0, &visitor.1, id, "am I heard").await;
                    *slot.lock().unwrap() = Some(said.is_ok());
                }
                .boxed()
            };
            let cutting = Cutting::visited(&storage, at, visit, None);
            let policy = SweepPolicy::new().inactive(HOUR, then);
            manager(&cutting.storage(), &clock).sweep(&policy).await.unwrap();
            let when = format!("{}, {then:?}, a message at call {at}", site.name);
            let stored = history(&storage, id).await.iter().any(|e| e.data.get().contains("am I heard"));
            let heard = *heard.lock().unwrap();
            assert_eq!(stored, heard.unwrap_or(false), "{when}");
            let now = storage.sessions.load(id).await.unwrap();
            if stored {
                let open = [SessionState::Queued, SessionState::Suspended];
                assert!(open.contains(&now.status.state) && now.pending == 1, "{when}: {}", now.status);
            }
            if heard.is_none() {
                assert!(at > 3, "{when}: the sweep made no calls");
                break;
            }
        }
    }
}

each_store!(a_message_that_races_with_a_sweep_wins_or_is_refused_whole and mixed);

/// Cut at every call, a sweep that is done again comes to the same end.
async fn a_sweep_that_is_cut_at_any_step_is_finished_later(site: Site) {
    let mut round = 0;
    for cut in Cut::ALL {
        for at in 1.. {
            round += 1;
            let (storage, clock) = (site.fresh(round), Hands::new());
            let world = small_world(&storage, &clock, "one").await;
            run(&storage, &clock, world.main, Some(RunEnd::Completed(Reason::EndTurn))).await;
            let ended = at_rest(&storage, &clock, Patch::new()).await.id;
            let user = Trigger::Terminate(Reason::UserEnded);
            storage.sessions.trigger(&effects(&clock), ended, user).await.unwrap();
            clock.forward(10 * DAY);
            let cutting = Cutting::new(&storage, at, cut);
            let policy = all_rules().purge_deleted(Duration::ZERO);
            let result = manager(&cutting.storage(), &clock).sweep(&policy).await;
            let was_cut = cutting.calls() >= at;
            let when = format!("{}, {cut:?} at call {at}", site.name);
            assert_eq!(result.is_err(), was_cut, "{when}");
            for _ in 0..2 {
                // What was deleted a moment ago is purged a moment later.
                clock.forward(Duration::from_secs(1));
                manager(&storage, &clock).sweep(&policy).await.unwrap();
            }
            assert_eq!(status(&storage, world.main).await.state, SessionState::Terminated, "{when}");
            assert_eq!(status(&storage, ended).await.state, SessionState::Deleted, "{when}");
            let left = storage.sessions.read(ended, agent_core::store::ReadEvents::first(1)).await.unwrap();
            assert_eq!(left.events, [], "{when}");
            if !was_cut {
                break;
            }
        }
    }
}

each_store!(a_sweep_that_is_cut_at_any_step_is_finished_later and mixed);
