//! The audit of what is done to workspaces, devices and configuration, and of what removes sessions.

use agent_admin::audit;
use agent_tests::each_store;
use std::fmt::Write as _;

use agent_admin::audit::{Audit, AuditEntry};
use agent_core::commit::{Commit, Precondition, Trigger};
use agent_core::event::{NewEvent, OperationOutcome};
use agent_core::model::{Actor, Patch};
use agent_core::session::NewSession;
use agent_core::state::{Reason, SessionState};
use agent_core::store::{ContentHash, HiddenSession, ReadEvents};
use agent_core::{ErrorKind, MemoryStore, Storage, WorkspaceId};
use agent_runtime::retention::{GcPolicy, SweepPolicy};
use agent_runtime::{NewWorkspace, WorkspaceManager};

use crate::endings::cut::{Cut, Cutting};
use crate::endings::site::{
    DAY, Hands, SECRET, Site, check_gone, device, effects, sessions, small_world, world,
};

fn alice() -> Actor {
    "user:alice".parse().unwrap()
}

/// The stores as alice uses them.
fn audited(storage: &Storage, clock: &Hands) -> (Storage, WorkspaceManager) {
    let storage = audit::audited(&storage.clone().with_effects(effects(clock)), alice());
    (storage.clone(), WorkspaceManager::new(storage))
}

/// All notes, the oldest first, two at a time.
async fn notes(storage: &Storage) -> Vec<AuditEntry> {
    let (mut notes, mut before) = (Vec::new(), None);
    loop {
        let page = Audit::of(storage).list(2, before).await.unwrap();
        assert!(page.entries.len() <= 2);
        notes.extend(page.entries);
        before = page.next;
        if before.is_none() {
            notes.reverse();
            return notes;
        }
    }
}

/// What was done, and what became of it: a line each, the intent left out after it was seen to come just before.
fn ended(notes: &[AuditEntry]) -> String {
    let mut text = String::new();
    for pair in notes.chunks(2) {
        let [begun, ended] = pair else { panic!("{pair:?}") };
        assert_eq!((begun.audited.outcome, begun.audited.begun), (None, None), "{begun:?}");
        assert_eq!(ended.audited.begun, Some(begun.seq), "{ended:?}");
        assert!(begun.at < ended.at && begun.by == ended.by);
        assert!(begun.at.to_string().starts_with("2026-02"), "by the clock of the test: {}", begun.at);
        let (audited, outcome) = (&ended.audited, ended.audited.outcome.unwrap());
        assert_eq!(
            (audited.operation, audited.workspace, audited.session, &audited.device),
            (begun.audited.operation, begun.audited.workspace, begun.audited.session, &begun.audited.device),
        );
        writeln!(
            text,
            "{} {outcome}{}",
            audited.operation,
            audited.error.as_ref().map_or(String::new(), |e| format!(" {e}"))
        )
        .unwrap();
    }
    text
}

/// A deletion that comes with the events of another store is recorded as any other; what else comes with them is not.
async fn restored_deletion_is_recorded(site: Site) {
    let (plain, clock) = (site.fresh(0), Hands::new());
    let (storage, _) = audited(&plain, &clock);
    let elsewhere = Storage::from(MemoryStore::new());
    let new = NewSession::new(elsewhere.effects().new_session_id(), WorkspaceId::DEFAULT);
    let id = elsewhere.sessions.create(new).await.unwrap().id;
    elsewhere.sessions.trigger(id, Trigger::Delete(Reason::UserDeleted)).await.unwrap();
    let page = elsewhere.sessions.read(id, ReadEvents::first(10)).await.unwrap();
    for events in page.events.chunk_by(|a, b| a.commit == b.commit) {
        storage.sessions.commit(Commit::restore(id, events.to_vec()).unwrap()).await.unwrap();
    }
    assert_eq!(ended(&notes(&plain).await), "session.delete done\n", "{}", site.name);
}

each_store!(restored_deletion_is_recorded and mixed);

/// Who did what, when, to which workspace, device and configuration is recorded before and after, also where it failed
/// or changed nothing; reading notes nothing; a configuration's text is nowhere in the audit.
async fn audit_records_actor_action_time_and_object(site: Site) {
    let (plain, clock) = (site.fresh(0), Hands::new());
    let (storage, manager) = audited(&plain, &clock);
    assert_eq!(notes(&plain).await, [], "{}", site.name);
    let before = effects(&clock).now();
    let id = manager.create(NewWorkspace::new("Notes")).await.unwrap().id;
    manager.rename(id, "Drafts").await.unwrap();
    manager.bind(&device("phone"), id).await.unwrap();
    manager.unbind(&device("phone")).await.unwrap();
    manager.unbind(&device("phone")).await.unwrap();
    let config = format!("key = '{SECRET}'");
    storage.workspaces.save_config(id, Some(config.clone()), Precondition::MustNotExist).await.unwrap();
    let wrong = Precondition::Matches(ContentHash::of("something else"));
    storage.workspaces.save_config(id, None, wrong).await.unwrap_err();
    manager.create(NewWorkspace::new("again").with_id(id)).await.unwrap_err();
    let laptop = manager.resolve(&device("laptop")).await.unwrap().workspace;
    manager.resolve(&device("laptop")).await.unwrap();
    manager.load(id).await.unwrap();
    manager.touch(id).await.unwrap();
    let session = manager.main_session(&laptop).await.unwrap();
    sessions(&storage, &clock)
        .append(session.id, session.head, vec![NewEvent::user_message(SECRET)])
        .await
        .unwrap();

    let notes = notes(&plain).await;
    let expected = "workspace.create done\nworkspace.update done\ndevice.bind done\ndevice.unbind done\n\
        device.unbind unchanged\nworkspace.configure done\nworkspace.configure failed conflict\n\
        workspace.create failed conflict\ndevice.bind done\nworkspace.create done\n";
    assert_eq!(ended(&notes), expected, "{}", site.name);
    assert!(notes.iter().all(|note| note.by == alice() && note.at > before), "{}", site.name);
    let of = |n: usize| &notes[n].audited;
    assert!((0..4).all(|n| of(n).workspace == Some(id)), "{}", site.name);
    assert_eq!((of(5).workspace, &of(5).device), (Some(id), &Some(device("phone"))), "{}", site.name);
    assert_eq!((of(17).workspace, &of(17).device), (Some(laptop.id), &Some(device("laptop"))));
    let log = crate::endings::site::history(&plain, HiddenSession::Audit.id()).await;
    assert!(log.iter().all(|event| !event.to_json().contains(SECRET)), "{}", site.name);
}

each_store!(audit_records_actor_action_time_and_object and files and mixed);

/// What gc and a sweep remove is recorded, each workspace and session by its id, with whose gc it was; a dry run notes
/// nothing; and neither removes the audit, however old it is.
async fn gc_and_sweep_are_recorded_and_keep_the_audit(site: Site) {
    let (plain, clock) = (site.fresh(0), Hands::new());
    let (_, manager) = audited(&plain, &clock);
    let old = world(&plain, &clock, "old").await;
    let default = manager.default_workspace().await.unwrap().id;
    let ended = manager.new_session(default, &Patch::new()).await.unwrap().id;
    sessions(&plain, &clock).trigger(ended, Trigger::Terminate(Reason::Expired)).await.unwrap();
    clock.forward(400 * DAY);
    let sweep =
        SweepPolicy::new().with_delete_terminated(DAY).with_delete_archived(DAY).with_purge_deleted(DAY);
    let audited = notes(&plain).await.len();
    manager.gc(GcPolicy::days(90).with_dry_run()).await.unwrap();
    manager.sweep(&sweep.clone().with_dry_run()).await.unwrap();
    assert_eq!(notes(&plain).await.len(), audited, "{}: a dry run does nothing", site.name);

    manager.gc(GcPolicy::days(90)).await.unwrap();
    manager.sweep(&sweep).await.unwrap();
    clock.forward(2 * DAY);
    manager.sweep(&sweep).await.unwrap();
    check_gone(&plain, &clock, &old, site.name).await;
    let notes = notes(&plain).await;
    assert!(notes.iter().all(|note| note.by == alice()), "{}", site.name);
    let done = |what: &str, of: &dyn Fn(&AuditEntry) -> bool| {
        let done = |note: &&AuditEntry| note.audited.outcome == Some(OperationOutcome::Done);
        let found = notes[audited..].iter().filter(done);
        found.filter(|note| note.audited.operation.as_str() == what && of(note)).count()
    };
    for what in ["workspace.begin_deletion", "workspace.unbind", "workspace.delete"] {
        assert_eq!(
            done(what, &|note| note.audited.workspace == Some(old.workspace)),
            1,
            "{}: {what}",
            site.name
        );
    }
    for id in old.sessions.iter().chain([&ended]) {
        assert!(done("session.purge", &|note| note.audited.session == Some(*id)) >= 1, "{}: {id}", site.name);
        // The last of the world was deleted before.
        let deleted = usize::from(Some(id) != old.sessions.last());
        assert_eq!(
            done("session.delete", &|note| note.audited.session == Some(*id)),
            deleted,
            "{}",
            site.name
        );
    }
}

each_store!(gc_and_sweep_are_recorded_and_keep_the_audit and files and mixed);

/// Nothing that goes through audited stores changes or removes the audit.
async fn audit_is_append_only(site: Site) {
    let (plain, clock) = (site.fresh(0), Hands::new());
    let (storage, manager) = audited(&plain, &clock);
    manager.create(NewWorkspace::new("Notes")).await.unwrap();
    let audit = HiddenSession::Audit.id();
    let before = notes(&plain).await;
    for trigger in [Trigger::Delete(Reason::UserDeleted), Trigger::Unarchive] {
        let error = storage.sessions.trigger(audit, trigger).await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::Denied, "{}: {error}", site.name);
    }
    let forged = vec![NewEvent::updated(Patch::new().with_label("hidden", "mine"))];
    storage.sessions.append(audit, agent_core::Seq::ZERO, forged).await.unwrap_err();
    assert_eq!(manager.delete(WorkspaceId::DEFAULT).await.unwrap_err().kind(), &ErrorKind::InvalidInput);
    assert_eq!(notes(&plain).await, before, "{}", site.name);
    assert_eq!(plain.sessions.load(audit).await.unwrap().status.state, SessionState::Archived);
}

each_store!(audit_is_append_only and files and mixed);

/// Whichever call fails or is the last before the process dies, nothing was done that is not recorded before; what
/// was recorded and has no outcome is the last; and an error of the audit is none about the workspace.
async fn nothing_is_done_before_it_is_recorded(site: Site) {
    let mut unrecorded = 0;
    for cut in Cut::ALL {
        for at in 1.. {
            let (plain, clock) = (site.fresh(at * 3 + cut as usize), Hands::new());
            let world = small_world(&plain, &clock, "a").await;
            let cutting = Cutting::new(&plain, at, cut);
            let (storage, manager) = audited(&cutting.storage(), &clock);
            let config = Some("model = 'echo'".to_owned());
            let saved =
                storage.workspaces.save_config(world.workspace, config, Precondition::MustNotExist).await;
            let deleted = manager.delete(world.workspace).await;
            let when = format!("{}, {cut:?} at {at}: {saved:?}, {deleted:?}", site.name);
            let audited = notes(&plain).await;
            let has = |what: &str| audited.iter().any(|note| note.audited.operation.as_str() == what);
            let configure = |note: &&AuditEntry| note.audited.operation.as_str() == "workspace.configure";
            if cut == Cut::Fails && audited.iter().filter(configure).count() == 1 {
                assert!(saved.is_ok(), "what came of it could not be noted, and it keeps its result: {when}");
                unrecorded += 1;
            }
            match plain.workspaces.load(world.workspace).await {
                Ok(record) => {
                    assert!(
                        record.status == agent_core::model::WorkspaceStatus::Active
                            || has("workspace.begin_deletion"),
                        "{when}"
                    );
                    let config = plain.workspaces.load_config(world.workspace).await.unwrap();
                    assert!(config.is_none() || has("workspace.configure"), "{when}");
                }
                Err(error) => {
                    assert!(
                        *error.kind() == ErrorKind::Deleted && has("workspace.delete"),
                        "{when}: {error}"
                    );
                }
            }
            let bound = plain.bindings.resolve(&world.devices[0]).await.unwrap();
            assert!(bound.is_some() || has("workspace.unbind"), "{when}");
            let main = plain.sessions.load(world.main).await.unwrap();
            assert!(main.status.state != SessionState::Deleted || has("session.delete"), "{when}");
            for error in [saved.as_ref().err(), deleted.as_ref().err()].into_iter().flatten() {
                assert!(matches!(error.kind(), ErrorKind::Full | ErrorKind::Poisoned), "{when}");
            }
            let calls = cutting.calls();
            if calls < at {
                break;
            }
        }
    }
    assert!(unrecorded > 0, "{}", site.name);
}

each_store!(nothing_is_done_before_it_is_recorded and files and mixed);

/// Where the audit is gone or is something else, nothing is done, and the answer is not that the workspace is gone.
async fn nothing_is_done_without_the_audit(site: Site) {
    let (plain, clock) = (site.fresh(0), Hands::new());
    let world = small_world(&plain, &clock, "a").await;
    plain.sessions.create(NewSession::new(HiddenSession::Audit.id(), WorkspaceId::DEFAULT)).await.unwrap();
    for round in 0..2 {
        let (_, manager) = audited(&plain, &clock);
        let before = crate::endings::site::read_all(&plain, &world).await;
        for error in [
            manager.rename(world.workspace, "Drafts").await.unwrap_err(),
            manager.unbind(&world.devices[0]).await.unwrap_err(),
            manager.delete(world.workspace).await.unwrap_err(),
        ] {
            assert_eq!(*error.kind(), ErrorKind::Denied, "{}, {round}: {error}", site.name);
            assert!(error.to_string().contains("audit"), "{error}");
        }
        assert_eq!(crate::endings::site::read_all(&plain, &world).await, before, "{}", site.name);
        plain.sessions.trigger(HiddenSession::Audit.id(), Trigger::Delete(Reason::UserDeleted)).await.ok();
    }
}

each_store!(nothing_is_done_without_the_audit and files and mixed);
