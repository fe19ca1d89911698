//! The deletion of a workspace.

use std::path::Path;

use agent_core::event::NewEvent;
use agent_core::model::{AGE_MAX, Patch, WorkspaceStatus};
use agent_core::session::NewSession;
use agent_core::state::SessionState;
use agent_core::{ErrorKind, SessionStoreExt, Storage, WorkspaceId};
use agent_runtime::retention::GcPolicy;
use agent_runtime::{NewWorkspace, WorkspaceManager};
use agent_tests::each_store;
use futures::TryStreamExt;

use crate::endings::cut::{Cut, Cutting};
use crate::endings::site::{
    DAY, Hands, SECRET, Site, World, append_text, check_gone, device, effects, history, manager, read_all,
    sessions, small_world, world,
};

/// Whether any file under a folder holds the text.
pub(crate) fn holds(folder: &Path, text: &str) -> bool {
    std::fs::read_dir(folder).unwrap().map(Result::unwrap).any(|entry| {
        let path = entry.path();
        if path.is_dir() {
            return holds(&path, text);
        }
        let bytes = std::fs::read(&path).unwrap();
        bytes.windows(text.len()).any(|part| part == text.as_bytes())
    })
}

/// Bindings, sessions, events, configuration and folders are gone, on all stores; another workspace is as it
/// was; a tombstone of each session is left, without a word that anybody wrote.
async fn nothing_is_left_of_a_deleted_workspace(site: Site) {
    let (storage, clock) = (site.fresh(0), Hands::new());
    let gone = world(&storage, &clock, "gone").await;
    let titled = Patch::new().with_label("project", "apollo");
    let titled = vec![NewEvent::updated(titled)];
    let seen = agent_core::Seq::ZERO;
    sessions(&storage, &clock).append(gone.main, seen, titled).await.unwrap();
    let events: usize = {
        let mut count = 0;
        for id in &gone.sessions {
            let own = storage.sessions.read(*id, agent_core::store::ReadEvents::first(1000)).await.unwrap();
            count += own.events.len();
        }
        count
    };
    let done = manager(&storage, &clock).delete(gone.workspace).await.unwrap();
    assert_eq!((done.sessions, done.devices, done.retained.len()), (5, 2, 0), "{}", site.name);
    // Each of the five living ones got one event more, that of its deletion.
    assert_eq!(done.events, events as u64 + 5, "{}", site.name);
    check_gone(&storage, &clock, &gone, site.name).await;
    let tombstone = storage.sessions.load(gone.main).await.unwrap();
    assert!(!tombstone.to_json().contains("apollo"), "{}", site.name);
    let again = manager(&storage, &clock).delete(gone.workspace).await.unwrap();
    assert_eq!((again.sessions, again.events, again.devices), (0, 0, 0), "{}", site.name);
    if site.name == "files" {
        assert!(!holds(site.folder.path(), SECRET), "no byte of it is left in any file");
    }
}

each_store!(nothing_is_left_of_a_deleted_workspace and files and mixed);

/// Checks that a workspace whose deletion was cut off is not half alive: it is whole, or nobody can use it.
async fn check_not_half_alive(storage: &Storage, clock: &Hands, world: &World, before: &str, when: &str) {
    let manager = manager(storage, clock);
    let id = world.workspace;
    match storage.workspaces.load(id).await {
        Ok(workspace) if workspace.status == WorkspaceStatus::Active => {
            assert_eq!(read_all(storage, world).await, before, "{when}: nothing has happened yet");
            return;
        }
        Ok(workspace) => assert_eq!(workspace.status, WorkspaceStatus::Deleting, "{when}"),
        Err(error) => assert_eq!(*error.kind(), ErrorKind::Deleted, "{when}: {error}"),
    }
    for device in &world.devices {
        match manager.resolve(device).await {
            Ok(resolved) => assert_ne!(resolved.workspace.id, id, "{when}"),
            Err(error) => assert!(matches!(error.kind(), ErrorKind::Busy { .. }), "{when}: {error}"),
        }
    }
    let refused = |error: agent_core::Error| {
        let kind = error.kind();
        assert!(matches!(kind, ErrorKind::Busy { .. } | ErrorKind::Deleted), "{when}: {error}");
    };
    refused(manager.new_session(id, &Patch::new()).await.unwrap_err());
    refused(manager.bind(&device("a new device"), id).await.unwrap_err());
}

/// Cut at every call, by an error, by a death before it and by a death after it, a deletion leaves nothing half
/// alive; doing it again, or gc of any age, finishes it; another workspace stays as it is.
async fn interrupted_deletion_is_finished_later(site: Site) {
    let clock = Hands::new();
    let mut round = 0;
    for cut in Cut::ALL {
        let mut at = 0;
        loop {
            (at, round) = (at + 1, round + 1);
            let when = format!("{}, {cut:?} at call {at}", site.name);
            let storage = site.fresh(round);
            let gone = world(&storage, &clock, "gone").await;
            let stays = small_world(&storage, &clock, "stays").await;
            let (before, stays_before) = (read_all(&storage, &gone).await, read_all(&storage, &stays).await);
            let cutting = Cutting::new(&storage, at, cut);
            let result = manager(&cutting.storage(), &clock).delete(gone.workspace).await;
            let was_cut = cutting.calls() >= at;
            assert_eq!(result.is_err(), was_cut, "{when}");
            if was_cut {
                check_not_half_alive(&storage, &clock, &gone, &before, &when).await;
            }
            let manager = manager(&storage, &clock);
            let marked = storage.workspaces.load(gone.workspace).await;
            if at % 2 == 0 && !marked.is_ok_and(|workspace| workspace.status == WorkspaceStatus::Active) {
                manager.gc(GcPolicy::older_than(AGE_MAX)).await.unwrap();
            } else {
                manager.delete(gone.workspace).await.unwrap();
            }
            check_gone(&storage, &clock, &gone, &when).await;
            assert_eq!(read_all(&storage, &stays).await, stays_before, "{when}");
            if !was_cut {
                assert!(at > 20, "{when}: the deletion took no more calls");
                break;
            }
        }
    }
}

each_store!(interrupted_deletion_is_finished_later and files and mixed);

/// The workspace `default` is never deleted.
async fn the_default_workspace_is_not_deleted(site: Site) {
    let (storage, clock) = (site.fresh(0), Hands::new());
    let manager = manager(&storage, &clock);
    let before = manager.default_workspace().await.unwrap();
    let error = manager.delete(WorkspaceId::DEFAULT).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::InvalidInput, "{}", site.name);
    clock.forward(DAY * 1000);
    manager.gc(GcPolicy::days(0)).await.unwrap();
    assert_eq!(manager.default_workspace().await.unwrap(), before, "{}", site.name);
}

each_store!(the_default_workspace_is_not_deleted and mixed);

/// A deletion fences off the run that goes on in its workspace.
async fn a_run_in_a_deleted_workspace_writes_nothing_more(site: Site) {
    use agent_core::commit::{Commit, LeaseRequest, Trigger};
    let (storage, clock) = (site.fresh(0), Hands::new());
    let (world, effects) = (world(&storage, &clock, "gone").await, effects(&clock));
    let run = effects.new_run_id();
    let seen = storage.sessions.load(world.main).await.unwrap().head;
    let begin = Commit::seal(&effects, world.main, seen)
        .with_event(NewEvent::user_message("go"))
        .with_trigger(Trigger::BeginRun(LeaseRequest::new("laptop", run)));
    let running = storage.sessions.commit(begin).await.unwrap().session;
    manager(&storage, &clock).delete(world.workspace).await.unwrap();
    let late = Commit::seal(&effects, world.main, running.head)
        .with_fence(run, running.epoch)
        .with_event(NewEvent::agent_message("too late"));
    let error = storage.sessions.commit(late).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Deleted, "{}", site.name);
    check_gone(&storage, &clock, &world, site.name).await;
}

each_store!(a_run_in_a_deleted_workspace_writes_nothing_more and mixed);

/// Sessions and devices that come to a workspace at any step of its deletion are refused, or go with it.
async fn additions_during_deletion_are_refused_or_deleted(site: Site) {
    use futures::FutureExt;
    let clock = Hands::new();
    for at in 1.. {
        let storage = site.fresh(at);
        let gone = world(&storage, &clock, "gone").await;
        let (id, visitor) = (gone.workspace, manager(&storage, &clock));
        let workspace = visitor.load(id).await.unwrap();
        let fork_of = (sessions(&storage, &clock), gone.main);
        let visit = move || {
            async move {
                let _ = visitor.new_session(id, &Patch::new()).await;
                let _ = visitor.bind(&device("visitor"), id).await;
                let _ = visitor.main_session(&workspace).await;
                let (sessions, main) = fork_of;
                let _ = sessions.fork(main, None).await;
            }
            .boxed()
        };
        let cutting = Cutting::visited(&storage, at, visit, None);
        manager(&cutting.storage(), &clock).delete(gone.workspace).await.unwrap();
        let when = format!("{}, a visitor at call {at}", site.name);
        check_gone(&storage, &clock, &gone, &when).await;
        if cutting.calls() < at {
            break;
        }
    }
}

each_store!(additions_during_deletion_are_refused_or_deleted and mixed);

/// A parent is deleted and purged, and its forks have their whole history and name it; when the last one
/// that needs them is gone, the rest of its bytes goes.
async fn purge_keeps_history_that_forks_read(site: Site) {
    let (storage, clock) = (site.fresh(0), Hands::new());
    let world = world(&storage, &clock, "family").await;
    let (manager, sessions) = (manager(&storage, &clock), &storage.sessions);
    let [main, fork, grandchild, child, ..] = world.sessions[..] else { panic!() };
    let refused = manager.purge(main).await.unwrap_err();
    assert_eq!(*refused.kind(), ErrorKind::InvalidInput, "{}: it lives", site.name);
    append_text(&storage, &clock, main, "after the fork").await.unwrap();
    let (of_fork, of_grandchild) = (history(&storage, fork).await, history(&storage, grandchild).await);
    let at = sessions.load(fork).await.unwrap().lineage.base();
    let delete = |id| {
        let storage = storage.clone();
        async move {
            let delete = agent_core::commit::Trigger::Delete(agent_core::state::Reason::UserDeleted);
            storage.sessions.trigger(id, delete).await.unwrap().session.head
        }
    };
    let head = delete(main).await;
    let purged = manager.purge(main).await.unwrap();
    assert_eq!(purged.events, head.get() - at.get(), "{}: what came after the fork", site.name);
    assert_eq!(history(&storage, fork).await, of_fork, "{}", site.name);
    assert_eq!(history(&storage, grandchild).await, of_grandchild, "{}", site.name);

    delete(fork).await;
    assert!(manager.purge(fork).await.unwrap().events > 0, "{}", site.name);
    assert_eq!(manager.purge(main).await.unwrap().events, 0, "{}: through the fork", site.name);
    assert_eq!(history(&storage, grandchild).await, of_grandchild, "{}", site.name);
    let now = sessions.load(grandchild).await.unwrap();
    assert_eq!((now.origin.parent(), now.depth), (Some(fork), 2), "{}", site.name);
    assert_eq!(sessions.load(child).await.unwrap().origin.parent(), Some(main), "{}", site.name);
    let children = agent_core::store::SessionQuery::new().with_parent(main).with_hidden();
    assert_eq!(sessions.list(children).await.unwrap().items.len(), 2, "{}", site.name);

    delete(grandchild).await;
    assert_eq!(manager.purge(main).await.unwrap().events, at.get(), "{}: nobody reads it", site.name);
    assert!(manager.purge(fork).await.unwrap().events > 0, "{}", site.name);
    let left = sessions.read(main, agent_core::store::ReadEvents::first(1)).await.unwrap();
    assert_eq!(left.events, [], "{}", site.name);
}

each_store!(purge_keeps_history_that_forks_read and mixed);

/// Forked at any points, deleted in any order, and purged after each step: every living session has its whole
/// history, and nothing is kept that nobody reads.
async fn deleting_relatives_loses_no_shared_history(site: Site) {
    let random = agent_core::clock::Effects::seeded(11, agent_core::Timestamp::UNIX_EPOCH);
    for round in 0..6 {
        let (storage, clock) = (site.fresh(round), Hands::new());
        family(&storage, &clock, &random, &format!("{}, round {round}", site.name)).await;
    }
}

each_store!(deleting_relatives_loses_no_shared_history and files and mixed);

async fn family(storage: &Storage, clock: &Hands, random: &agent_core::clock::Effects, when: &str) {
    let (manager, effects) = (manager(storage, clock), effects(clock));
    let pick = |of: usize| usize::try_from(random.random_u64() % of as u64).unwrap();
    let workspace = manager.create(NewWorkspace::new("family")).await.unwrap().id;
    let root = NewSession::new(effects.new_session_id(), workspace);
    let mut living = vec![storage.sessions.create(root).await.unwrap().id];
    for _ in 0..8 {
        let from = living[pick(living.len())];
        for n in 0..pick(4) {
            append_text(storage, clock, from, &format!("{n}")).await.unwrap();
        }
        let head = storage.sessions.load(from).await.unwrap().head.get();
        let at = agent_core::Seq::new(1 + pick(usize::try_from(head).unwrap()) as u64);
        living.push(storage.sessions.fork(from, Some(at)).await.unwrap().id);
    }
    let all = living.clone();
    let mut whole = Vec::new();
    for id in &all {
        whole.push(history(storage, *id).await);
    }
    while !living.is_empty() {
        let id = living.swap_remove(pick(living.len()));
        let delete = agent_core::commit::Trigger::Delete(agent_core::state::Reason::UserDeleted);
        storage.sessions.trigger(id, delete).await.unwrap();
        for id in &all {
            if !living.contains(id) {
                manager.purge(*id).await.unwrap();
            }
        }
        let mut needed = std::collections::BTreeSet::new();
        for (id, whole) in all.iter().zip(&whole) {
            if living.contains(id) {
                assert_eq!(history(storage, *id).await, *whole, "{when}");
                let lineage = storage.sessions.load(*id).await.unwrap().lineage.clone();
                needed.extend(whole.iter().map(|event| (lineage.locate(*id, event.seq).0, event.seq)));
            }
        }
        for id in all.iter().filter(|id| !living.contains(id)) {
            let left = storage.sessions.read(*id, agent_core::store::ReadEvents::first(1000)).await.unwrap();
            for event in left.events {
                assert!(needed.contains(&(*id, event.seq)), "{when}: event {} of {id} is kept", event.seq);
            }
        }
    }
}

/// What is damaged is no reason to lose anything: a workspace with a session that cannot be read stays marked,
/// says which one, and is gone once that is.
#[tokio::test]
async fn unreadable_session_blocks_workspace_deletion() {
    let site = Site::new("files").await;
    let (storage, clock) = (site.fresh(0), Hands::new());
    let gone = world(&storage, &clock, "gone").await;
    let log = log_of(site.folder.path(), &gone.main.to_string());
    let whole = std::fs::read(&log).unwrap();
    let mut damaged = whole.clone();
    damaged[20] ^= 1;
    std::fs::write(&log, &damaged).unwrap();
    // Another process, which has not seen it whole.
    let opened = agent_storage_fs::FsStore::open(site.folder.path().join("files")).await.unwrap();
    let storage: Storage = opened.for_tenant(&"round-0".parse().unwrap()).into();
    let manager: WorkspaceManager = manager(&storage, &clock);
    let error = manager.delete(gone.workspace).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Corrupt, "{error}");
    assert!(error.to_string().contains(&gone.main.to_string()), "{error}");
    assert_eq!(std::fs::read(&log).unwrap(), damaged, "nothing was overwritten");
    let report = manager.gc(GcPolicy::days(0)).await.unwrap();
    assert!(!report.damaged.is_empty() && report.finished.is_empty(), "{report:?}");
    std::fs::write(&log, &whole).unwrap();
    manager.delete(gone.workspace).await.unwrap();
    check_gone(&storage, &clock, &gone, "mended").await;
}

pub(crate) fn log_of(folder: &Path, session: &str) -> std::path::PathBuf {
    for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let path = entry.path();
        if path.is_dir() {
            let log = path.join("events.jsonl");
            if path.ends_with(session) && log.exists() {
                return log;
            }
            let found = log_of(&path, session);
            if found.exists() {
                return found;
            }
        }
    }
    Path::new("").to_owned()
}

/// What is deleted leaves the lists at once, and its bytes with the purge.
async fn delete_unlists_and_purge_removes_the_bytes(site: Site) {
    let (storage, clock) = (site.fresh(0), Hands::new());
    let world = world(&storage, &clock, "one").await;
    let main = world.main;
    let delete = agent_core::commit::Trigger::Delete(agent_core::state::Reason::UserDeleted);
    sessions(&storage, &clock).trigger(main, delete).await.unwrap();
    let listed = storage.sessions.list(agent_core::store::SessionQuery::new()).await.unwrap();
    assert!(listed.items.iter().all(|session| session.id != main), "{}", site.name);
    assert!(!history(&storage, main).await.is_empty(), "{}: for an audit, until it is purged", site.name);
    for id in &world.sessions[1..3] {
        sessions(&storage, &clock)
            .trigger(*id, agent_core::commit::Trigger::Delete(agent_core::state::Reason::UserDeleted))
            .await
            .unwrap();
    }
    manager(&storage, &clock).purge(main).await.unwrap();
    let tombstone = storage.sessions.load(main).await.unwrap();
    assert_eq!(tombstone.status.state, SessionState::Deleted, "{}", site.name);
    assert!(tombstone.ended_at.is_some(), "{}", site.name);
    assert_eq!(
        storage.sessions.read(main, agent_core::store::ReadEvents::first(1)).await.unwrap().events,
        [],
        "{}",
        site.name
    );
}

each_store!(delete_unlists_and_purge_removes_the_bytes and mixed);

/// Who follows a session whose next events were purged gets an error, and does not read again and again.
async fn follower_of_purged_events_is_notified(site: Site) {
    let (storage, clock) = (site.fresh(0), Hands::new());
    let main = world(&storage, &clock, "one").await.main;
    let head = storage.sessions.load(main).await.unwrap().head;
    let delete = agent_core::commit::Trigger::Delete(agent_core::state::Reason::UserDeleted);
    sessions(&storage, &clock).trigger(main, delete).await.unwrap();
    manager(&storage, &clock).purge(main).await.unwrap();
    for seen in [agent_core::Seq::ZERO, head] {
        let mut follow = storage.sessions.follow(main, seen);
        let outcome = tokio::time::timeout(std::time::Duration::from_secs(20), async {
            while follow.try_next().await?.is_some() {}
            Ok::<_, agent_core::Error>(())
        });
        let error = outcome.await.expect("an end").unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::Deleted, "{}: {error}", site.name);
    }
}

each_store!(follower_of_purged_events_is_notified and mixed);
