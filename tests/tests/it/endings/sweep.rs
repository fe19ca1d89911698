//! Effects of a sweep on sessions, and protection from it.

use std::sync::Arc;
use std::time::Duration;

use agent_core::commit::{RunEnd, Trigger};
use agent_core::event::{Learning, LearningKind, NewEvent};
use agent_core::model::{Access, ActionKind, Actor, Patch, PendingAction, Status, Timer};
use agent_core::session::SessionRecord;
use agent_core::state::{Reason, SessionState};
use agent_core::store::HiddenSession;
use agent_core::{SessionId, Storage};
use agent_runtime::learnings::Learnings;
use agent_runtime::mounts::{effective_mounts, update_scope};
use agent_runtime::retention::{InactivityPolicy, RetainReason, SweepAction, SweepEntry, SweepPolicy};
use agent_tests::each_store;
use futures::FutureExt;

use crate::endings::cut::{Cut, Cutting};
use crate::endings::site::{
    DAY, Hands, Site, append_text, effects, history, manager, sessions, small_world, world,
};

const HOUR: Duration = Duration::from_secs(3600);

/// A session at rest, of a label.
async fn at_rest(storage: &Storage, clock: &Hands, patch: Patch) -> Arc<SessionRecord> {
    let manager = manager(storage, clock);
    let workspace = manager.default_workspace().await.unwrap().id;
    manager.new_session(workspace, &patch).await.unwrap()
}

async fn status(storage: &Storage, id: SessionId) -> Status {
    storage.sessions.load(id).await.unwrap().status
}

/// Only sessions in which nothing has happened for the time that holds for them are set aside, or ended, by policy;
/// what runs, has work or plans is not inactive; doing it again does nothing; a dry run says the same.
async fn sweep_applies_each_sessions_inactivity_limit(site: Site) {
    for (round, then) in [InactivityPolicy::Suspend, InactivityPolicy::Terminate].into_iter().enumerate() {
        let (storage, clock) = (site.fresh(round), Hands::new());
        let (manager, fx) = (manager(&storage, &clock), effects(&clock));
        let plain = at_rest(&storage, &clock, Patch::new()).await.id;
        let patient = at_rest(&storage, &clock, Patch::new().with_inactive_after(48 * HOUR)).await.id;
        let hasty = at_rest(&storage, &clock, Patch::new().with_inactive_after(HOUR / 2)).await.id;
        let pinned = at_rest(&storage, &clock, Patch::new().pin("demo")).await.id;
        let queued = at_rest(&storage, &clock, Patch::new()).await.id;
        append_text(&storage, &clock, queued, "answer me").await.unwrap();
        let planned = at_rest(&storage, &clock, Patch::new()).await.id;
        let at = fx.now().plus_micros(30 * 24 * 3600 * 1_000_000);
        let timer = NewEvent::timer_scheduled(Timer::new("monthly", at));
        sessions(&storage, &clock).append(planned, agent_core::Seq::ZERO, vec![timer]).await.unwrap();
        let asking = waiting(&storage, &clock, None).await;
        let until = fx.now().plus_micros(7 * 24 * 3600 * 1_000_000);
        let deciding = waiting(&storage, &clock, Some(until)).await;
        let running = at_rest(&storage, &clock, Patch::new()).await.id;
        run(&storage, &clock, running, None).await;
        clock.forward(HOUR);
        let policy = SweepPolicy::new().with_inactive(24 * HOUR, then);
        let (act, became) = match then {
            InactivityPolicy::Suspend => {
                (SweepAction::Suspended, Status::new(SessionState::Suspended, Reason::Inactivity))
            }
            _ => (SweepAction::Terminated, Status::new(SessionState::Terminated, Reason::Expired)),
        };
        let swept = |report: &agent_runtime::retention::SweepReport| {
            let mut ids: Vec<_> = report.swept.iter().map(|swept: &SweepEntry| swept.session).collect();
            assert!(report.swept.iter().all(|swept| swept.action == act), "{}", site.name);
            ids.sort();
            ids
        };
        assert_eq!(swept(&manager.sweep(&policy).await.unwrap()), [hasty], "{}", site.name);
        clock.forward(20 * HOUR);
        let active = at_rest(&storage, &clock, Patch::new()).await.id;
        clock.forward(4 * HOUR);
        let dry = manager.sweep(&policy.clone().with_dry_run()).await.unwrap();
        assert_eq!(status(&storage, plain).await.state, SessionState::Idle, "{}: dry", site.name);
        let report = manager.sweep(&policy).await.unwrap();
        assert_eq!(report, dry, "{}", site.name);
        let mut expected = vec![plain, asking];
        expected.sort();
        assert_eq!(swept(&report), expected, "{}", site.name);
        for id in [plain, asking, hasty] {
            assert_eq!(status(&storage, id).await, became, "{}", site.name);
        }
        let kept: Vec<_> = report.retained.iter().map(|kept| kept.id).collect();
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

each_store!(sweep_applies_each_sessions_inactivity_limit and mixed);

/// Begins a run, and ends it as `end` says.
async fn run(storage: &Storage, clock: &Hands, id: SessionId, end: Option<RunEnd>) -> Arc<SessionRecord> {
    let effects = effects(clock);
    let seen = storage.sessions.load(id).await.unwrap().head;
    let run = effects.new_run_id();
    let begin = agent_core::commit::Commit::seal(&effects, id, seen)
        .with_event(NewEvent::user_message("go"))
        .with_trigger(Trigger::BeginRun(agent_core::commit::LeaseRequest::new("laptop", run)));
    let running = storage.sessions.commit(begin).await.unwrap().session;
    let Some(end) = end else { return running };
    let end = agent_core::commit::Commit::seal(&effects, id, running.head)
        .with_fence(run, running.epoch)
        .with_trigger(Trigger::EndRun(end));
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
async fn suspended_session_resumes_where_it_stopped(site: Site) {
    let (storage, clock) = (site.fresh(0), Hands::new());
    let manager = manager(&storage, &clock);
    let asking = waiting(&storage, &clock, None).await;
    let idle = at_rest(&storage, &clock, Patch::new()).await.id;
    run(&storage, &clock, idle, Some(RunEnd::Completed(Reason::EndTurn))).await;
    clock.forward(DAY);
    manager.sweep(&SweepPolicy::new().with_inactive(HOUR, InactivityPolicy::Suspend)).await.unwrap();
    for id in [asking, idle] {
        assert_eq!(status(&storage, id).await.state, SessionState::Suspended, "{}", site.name);
        sessions(&storage, &clock).trigger(id, Trigger::Resume).await.unwrap();
    }
    let asked = storage.sessions.load(asking).await.unwrap();
    assert_eq!(asked.status.state, SessionState::RequiresAction, "{}", site.name);
    assert_eq!(asked.action.as_ref().unwrap().question, "Deploy?", "{}", site.name);
    let rested = storage.sessions.load(idle).await.unwrap();
    assert_eq!((rested.status.state, rested.inputs_open), (SessionState::Idle, 0), "{}", site.name);
    assert!(!rested.has_open_work(), "{}: what was answered is not answered again", site.name);
    clock.forward(DAY);
    manager.sweep(&SweepPolicy::new().with_inactive(HOUR, InactivityPolicy::Suspend)).await.unwrap();
    append_text(&storage, &clock, idle, "are you there").await.unwrap();
    assert_eq!(status(&storage, idle).await.state, SessionState::Suspended, "{}: kept", site.name);
    sessions(&storage, &clock).trigger(idle, Trigger::Resume).await.unwrap();
    let now = storage.sessions.load(idle).await.unwrap();
    assert_eq!((now.status.state, now.inputs_open), (SessionState::Queued, 1), "{}", site.name);
}

each_store!(suspended_session_resumes_where_it_stopped and mixed);

/// The rules by which everything goes in the end.
fn all_rules() -> SweepPolicy {
    SweepPolicy::new()
        .with_inactive(DAY, InactivityPolicy::Terminate)
        .with_delete_terminated(7 * DAY)
        .with_delete_archived(30 * DAY)
        .with_purge_deleted(DAY)
}

/// Age and state decide what goes, a dry run says it first, and what is gone leaves its metadata: who it
/// was, when it ended, how much it held; what it was called only until then.
async fn sweep_removes_old_sessions_and_keeps_metadata(site: Site) {
    let (storage, clock) = (site.fresh(0), Hands::new());
    let manager = manager(&storage, &clock);
    let world = world(&storage, &clock, "one").await;
    let label = NewEvent::updated(Patch::new().with_label("project", "apollo"));
    let main = world.main;
    sessions(&storage, &clock).append(main, agent_core::Seq::ZERO, vec![label]).await.unwrap();
    let was = run(&storage, &clock, main, Some(RunEnd::Completed(Reason::EndTurn))).await;
    let mut acts = Vec::new();
    for _ in 0..60 {
        clock.forward(DAY);
        let dry = manager.sweep(&all_rules().with_dry_run()).await.unwrap();
        let mut done = manager.sweep(&all_rules()).await.unwrap();
        // A dry run cannot know this.
        done.rewrite_pending = false;
        assert_eq!(done, dry, "{}", site.name);
        let again = manager.sweep(&all_rules()).await.unwrap();
        assert_eq!(again.swept, [], "{}: idempotent", site.name);
        acts.extend(done.swept.iter().filter(|swept| swept.session == main).map(|swept| swept.action));
        let now = storage.sessions.load(main).await.unwrap();
        let called = now.attributes.labels.get("project").map(String::as_str);
        let kept = (!acts.contains(&SweepAction::Purged)).then_some("apollo");
        assert_eq!(called, kept, "{}: what it was called goes with its bytes", site.name);
    }
    // Purged twice: at first all but what its forks read, which stay, since they have inputs to answer.
    assert_eq!(acts, [SweepAction::Terminated, SweepAction::Deleted, SweepAction::Purged], "{}", site.name);
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
    let by = report.retained.iter().find(|kept| kept.id == main).map(|kept| &kept.reason);
    let needed = |id: SessionId| matches!(by, Some(RetainReason::NeededBy { session, .. }) if *session == id);
    assert!(needed(fork) || needed(grandchild), "{}: {by:?}", site.name);
    for id in [fork, grandchild] {
        let delete = Trigger::Delete(Reason::UserDeleted);
        sessions(&storage, &clock).trigger(id, delete).await.unwrap();
    }
    clock.forward(2 * DAY);
    manager.sweep(&all_rules()).await.unwrap();
    for id in &world.sessions {
        let left = storage.sessions.read(*id, agent_core::store::ReadEvents::first(1)).await.unwrap();
        assert_eq!(left.events, [], "{}", site.name);
    }
    assert_eq!(manager.sweep(&all_rules()).await.unwrap().retained, [], "{}", site.name);
}

each_store!(sweep_removes_old_sessions_and_keeps_metadata and mixed);

/// What is pinned, and what others share, stays at any age.
async fn sweep_keeps_pinned_and_shared_sessions(site: Site) {
    let (storage, clock) = (site.fresh(0), Hands::new());
    let manager = manager(&storage, &clock);
    let pinned = at_rest(&storage, &clock, Patch::new().pin("evidence")).await.id;
    let hidden = at_rest(&storage, &clock, Patch::new().with_label("hidden", "project apollo")).await.id;
    let other = at_rest(&storage, &clock, Patch::new()).await.id;
    for id in [pinned, hidden, other] {
        sessions(&storage, &clock).trigger(id, Trigger::Archive).await.unwrap();
    }
    clock.forward(1000 * DAY);
    let report = manager.sweep(&all_rules()).await.unwrap();
    assert_eq!(report.swept.iter().map(|swept| swept.session).collect::<Vec<_>>(), [other], "{}", site.name);
    for (id, why) in [(pinned, "evidence"), (hidden, "apollo")] {
        assert_eq!(status(&storage, id).await.state, SessionState::Archived, "{}", site.name);
        let by = report.retained.iter().find(|kept| kept.id == id).map(|kept| kept.reason.to_string());
        assert!(by.is_some_and(|by| by.contains(why)), "{}: {report:?}", site.name);
    }
}

each_store!(sweep_keeps_pinned_and_shared_sessions and mixed);

/// What sessions share stays at any age, however it came to be there: what an agent found out, what a project
/// and the whole tenant mount. It is read as before after any number of sweeps, which say why it stays.
async fn sweep_keeps_shared_learnings_and_mounts(site: Site) {
    let (storage, clock) = (site.fresh(0), Hands::new());
    let (manager, storage) = (manager(&storage, &clock), storage.with_effects(effects(&clock)));
    let sessions = &storage.sessions;
    let user = at_rest(&storage, &clock, Patch::new().with_label("project", "apollo")).await;
    let learnings = Learnings::new(&storage, user.workspace, "scout");
    learnings.add(Learning::new(LearningKind::Lesson, "Water is wet."), Actor::AGENT).await.unwrap();
    let hidden = [
        HiddenSession::Tenant,
        HiddenSession::project(user.workspace, "apollo"),
        HiddenSession::agent(user.workspace, "scout"),
    ];
    for hidden in &hidden[..2] {
        let mount = Patch::new().mount(format!("of {hidden:?}"), Access::Read);
        update_scope(sessions, hidden, mount).await.unwrap();
    }
    let before = effective_mounts(&**sessions, &user).await.unwrap();
    for _ in 0..3 {
        clock.forward(1000 * DAY);
        let report = manager.sweep(&all_rules().with_purge_deleted(Duration::ZERO)).await.unwrap();
        for hidden in &hidden {
            let kept = report.retained.iter().find(|kept| kept.id == hidden.id());
            assert!(
                kept.is_some_and(|kept| kept.reason.to_string().contains("hidden")),
                "{}: {report:?}",
                site.name
            );
            assert!(hidden.find(&**sessions).await.unwrap().is_some(), "{}: {hidden:?}", site.name);
        }
    }
    assert_eq!(status(&storage, user.id).await.state, SessionState::Deleted, "{}", site.name);
    let later = at_rest(&storage, &clock, Patch::new().with_label("project", "apollo")).await;
    assert_eq!(effective_mounts(&**sessions, &later).await.unwrap(), before, "{}", site.name);
    let known = learnings.list(10, None).await.unwrap();
    assert_eq!(known.learnings.len(), 1, "{}", site.name);
}

each_store!(sweep_keeps_shared_learnings_and_mounts and mixed);

/// A message that comes at any step of a sweep is stored, and is answered after a resume, or is refused whole:
/// nothing that was acknowledged is in a session that was ended.
async fn message_racing_with_a_sweep_is_kept_or_refused(site: Site) {
    let mut round = 0;
    for then in [InactivityPolicy::Suspend, InactivityPolicy::Terminate] {
        for at in 1.. {
            round += 1;
            let (storage, clock) = (site.fresh(round), Hands::new());
            let id = at_rest(&storage, &clock, Patch::new()).await.id;
            clock.forward(DAY);
            let received = std::sync::Arc::new(std::sync::Mutex::new(None));
            let (visitor, shared) = ((storage.clone(), clock.clone()), received.clone());
            let visit = move || {
                async move {
                    let messages = append_text(&visitor.0, &visitor.1, id, "am I heard").await;
                    *shared.lock().unwrap() = Some(messages.is_ok());
                }
                .boxed()
            };
            let cutting = Cutting::visited(&storage, at, visit, None);
            let policy = SweepPolicy::new().with_inactive(HOUR, then);
            manager(&cutting.storage(), &clock).sweep(&policy).await.unwrap();
            let when = format!("{}, {then:?}, a message at call {at}", site.name);
            let stored = history(&storage, id).await.iter().any(|e| e.payload.get().contains("am I heard"));
            let received = *received.lock().unwrap();
            assert_eq!(stored, received.unwrap_or(false), "{when}");
            let now = storage.sessions.load(id).await.unwrap();
            if stored {
                let open = [SessionState::Queued, SessionState::Suspended];
                assert!(open.contains(&now.status.state) && now.inputs_open == 1, "{when}: {}", now.status);
            }
            if received.is_none() {
                assert!(at > 3, "{when}: the sweep made no calls");
                break;
            }
        }
    }
}

each_store!(message_racing_with_a_sweep_is_kept_or_refused and files and mixed);

/// Cut at every call, a sweep that is done again comes to the same end.
async fn interrupted_sweep_is_finished_later(site: Site) {
    let mut round = 0;
    for cut in Cut::ALL {
        for at in 1.. {
            round += 1;
            let (storage, clock) = (site.fresh(round), Hands::new());
            let world = small_world(&storage, &clock, "one").await;
            run(&storage, &clock, world.main, Some(RunEnd::Completed(Reason::EndTurn))).await;
            let ended = at_rest(&storage, &clock, Patch::new()).await.id;
            let user = Trigger::Terminate(Reason::UserEnded);
            sessions(&storage, &clock).trigger(ended, user).await.unwrap();
            clock.forward(10 * DAY);
            let cutting = Cutting::new(&storage, at, cut);
            let policy = all_rules().with_purge_deleted(Duration::ZERO);
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

each_store!(interrupted_sweep_is_finished_later and mixed);

/// A report counts each session that is old enough once, and counts and lists those that were used recently if the policy
/// says so.
async fn a_report_lists_recent_sessions_on_request(site: Site) {
    let (storage, clock) = (site.fresh(0), Hands::new());
    let manager = manager(&storage, &clock);
    let old = at_rest(&storage, &clock, Patch::new()).await;
    clock.forward(2 * HOUR);
    let young = at_rest(&storage, &clock, Patch::new()).await;
    clock.forward(HOUR / 2);
    let policy = SweepPolicy::new()
        .with_inactive(HOUR, InactivityPolicy::Terminate)
        .with_delete_terminated(24 * HOUR)
        .with_purge_deleted(24 * HOUR);
    let plain = manager.sweep(&policy.clone().with_dry_run()).await.unwrap();
    assert_eq!((plain.examined, plain.retained.len()), (1, 0), "{}: {plain:?}", site.name);
    // The second rule finds the session that the first one has terminated.
    let report = manager.sweep(&policy.with_report_recent()).await.unwrap();
    assert_eq!(report.examined, 2, "{}: {report:?}", site.name);
    let entry = report.swept[0];
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["swept"][0]["session"], entry.session.to_string(), "a report is JSON: {json}");
    assert_eq!(json["swept"][0]["action"].as_str(), Some("terminated"), "{json}");
    assert_eq!((entry.session, entry.action), (old.id, SweepAction::Terminated), "{}", site.name);
    assert_eq!((entry.state, entry.last_used), (SessionState::Idle, old.last_active_at), "{}", site.name);
    let [kept] = &report.retained[..] else { panic!("{}: {report:?}", site.name) };
    assert_eq!(kept.id, young.id, "{}", site.name);
    let message = format!("used recently, at {}", young.last_active_at);
    assert_eq!(kept.reason.to_string(), message, "{}", site.name);
}

each_store!(a_report_lists_recent_sessions_on_request and mixed);
