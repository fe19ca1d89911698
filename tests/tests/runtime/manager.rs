//! Devices, workspaces and their main sessions.

use agent_runtime::files::WorkspaceFiles;
use agent_tests::{Site, each_store};
use std::collections::BTreeSet;

use crate::common::{Faulty, Scene, agent, device, read};
use agent_core::clock::Effects;
use agent_core::commit::Precondition;
use agent_core::store::{BindingQuery, SessionQuery, WorkspaceQuery};
use agent_core::{ErrorKind, Storage, WorkspaceId};
use agent_runtime::{EchoProvider, NewWorkspace, Resolution, WorkspaceManager};

fn manager(storage: &Storage) -> WorkspaceManager {
    WorkspaceManager::new(storage.clone())
}

async fn counts(storage: &Storage) -> (usize, usize) {
    let workspaces = storage.workspaces.list(WorkspaceQuery::new()).await.unwrap().items.len();
    let bindings = storage.bindings.list(BindingQuery::new()).await.unwrap().items.len();
    (workspaces, bindings)
}

/// N concurrent first contacts give one workspace, one binding and one main session.
async fn eight_first_contacts_make_one_workspace_one_binding_one_session(site: Site) {
    let (name, storage) = (site.name, site.open().await);
    for round in 0..20 {
        let laptop = device(&format!("laptop {round}"));
        let agent = agent(&storage, EchoProvider::new());
        let tasks: Vec<_> = (0..8)
            .map(|_| {
                let (agent, laptop) = (agent.clone(), laptop.clone());
                tokio::spawn(async move { agent.open(&laptop).await.unwrap().id() })
            })
            .collect();
        let mut sessions = BTreeSet::new();
        for task in tasks {
            sessions.insert(task.await.unwrap());
        }
        assert_eq!(sessions.len(), 1, "{name}");
        assert_eq!(counts(&storage).await, (round + 1, round + 1), "{name}");
    }
    let sessions = storage.sessions.list(SessionQuery::new().with_limit(100)).await.unwrap();
    assert_eq!(sessions.items.len(), 20, "{name}");
}

each_store!(
    eight_first_contacts_make_one_workspace_one_binding_one_session,
    flavor = "multi_thread",
    worker_threads = 4
);

/// A crash between binding and creating leaves work that the next call finishes, under the same id.
async fn crash_between_bind_and_create_keeps_the_id(site: Site) {
    let (name, under) = (site.name, site.open().await);
    let faulty = Faulty::new(under.clone());
    let manager = manager(&faulty.storage());
    let laptop = device("laptop");
    faulty.fail_puts(1);
    let error = manager.resolve(&laptop).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Full, "{name}: the store's error is returned, never solved");
    assert_eq!(counts(&under).await, (0, 1), "{name}");
    let bound = under.bindings.resolve(&laptop).await.unwrap().unwrap();

    let found = manager.resolve(&laptop).await.unwrap();
    assert_eq!((found.workspace.id, found.how), (bound, Resolution::Recreated), "{name}");
    assert_eq!(manager.resolve(&laptop).await.unwrap().how, Resolution::Found, "{name}");
    assert_eq!(counts(&under).await, (1, 1), "{name}");
}

each_store!(crash_between_bind_and_create_keeps_the_id);

/// A device whose workspace was deleted is bound again, which the result shows.
async fn device_of_a_deleted_workspace_is_rebound(site: Site) {
    let (name, storage) = (site.name, site.open().await);
    let manager = manager(&storage);
    let laptop = device("laptop");
    let old = manager.resolve(&laptop).await.unwrap().workspace.id;
    storage.workspaces.delete(old).await.unwrap();
    let new = manager.resolve(&laptop).await.unwrap();
    assert_eq!(new.how, Resolution::Rebound(old), "{name}");
    assert_ne!(new.workspace.id, old, "{name}");
    assert_eq!(storage.bindings.resolve(&laptop).await.unwrap(), Some(new.workspace.id), "{name}");
}

each_store!(device_of_a_deleted_workspace_is_rebound);

/// A bound workspace that cannot be read, for any reason, is not taken for one that is not there: the error is
/// returned as it is, and nothing is created, bound or unbound.
async fn unreadable_workspace_is_not_recreated(site: Site) {
    let (name, under) = (site.name, site.open().await);
    let faulty = Faulty::new(under.clone());
    let manager = manager(&faulty.storage());
    let laptop = device("laptop");
    let before = manager.resolve(&laptop).await.unwrap().workspace;
    let kinds = [
        ErrorKind::Corrupt,
        ErrorKind::Unavailable,
        ErrorKind::Denied,
        ErrorKind::Unsupported,
        ErrorKind::Poisoned,
        ErrorKind::Full,
    ];
    for kind in kinds {
        faulty.fail_load(kind.clone());
        let error = manager.resolve(&laptop).await.unwrap_err();
        assert_eq!(*error.kind(), kind, "{name}");
        assert_eq!(counts(&under).await, (1, 1), "{name}");
        let after = manager.resolve(&laptop).await.unwrap();
        assert_eq!((after.workspace, after.how), (before.clone(), Resolution::Found), "{name}: {kind:?}");
    }
}

each_store!(unreadable_workspace_is_not_recreated);

/// Get-or-create of the default workspace yields one, under concurrency too.
async fn default_workspace_is_created_once(site: Site) {
    let (name, storage) = (site.name, site.open().await);
    let manager = manager(&storage);
    let tasks: Vec<_> = (0..8)
        .map(|_| {
            let manager = manager.clone();
            tokio::spawn(async move { manager.default_workspace().await.unwrap() })
        })
        .collect();
    let mut mains = BTreeSet::new();
    for task in tasks {
        let workspace = task.await.unwrap();
        assert_eq!(workspace.id, WorkspaceId::DEFAULT, "{name}");
        mains.insert(workspace.main_session);
    }
    assert_eq!(mains.len(), 1, "{name}: one record, and so one main session");
}

each_store!(default_workspace_is_created_once, flavor = "multi_thread", worker_threads = 4);

/// Creating an id that exists changes nothing.
async fn a_second_create_is_a_conflict_and_changes_nothing(site: Site) {
    let (name, storage) = (site.name, site.open().await);
    let manager = manager(&storage);
    let first = manager.create(NewWorkspace::new("one").with_provider("p")).await.unwrap();
    let error = manager.create(NewWorkspace::new("two").with_id(first.id)).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Conflict { .. }), "{name}: {error}");
    assert_eq!(manager.load(first.id).await.unwrap(), first, "{name}");
}

each_store!(a_second_create_is_a_conflict_and_changes_nothing);

/// Rename, list, bind, look up, unbind.
async fn workspaces_are_renamed_and_devices_rebound(site: Site) {
    let (name, storage) = (site.name, site.open().await);
    let manager = manager(&storage);
    let one = manager.create(NewWorkspace::new("one")).await.unwrap();
    let two = manager.create(NewWorkspace::new("two")).await.unwrap();
    let tasks: Vec<_> = (0..4)
        .map(|n| {
            let (manager, id) = (manager.clone(), one.id);
            tokio::spawn(async move {
                let key = format!("k{n}");
                let value = agent_core::json::RawJson::parse("1").unwrap();
                manager
                    .update(id, |workspace| workspace.settings.insert(key.as_str(), value.clone()))
                    .await
                    .unwrap();
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let renamed = manager.rename(one.id, "Küche").await.unwrap();
    assert_eq!((renamed.name.as_str(), renamed.settings.len()), ("Küche", 4), "{name}: no change is lost");
    assert_eq!(renamed.main_session, one.main_session, "{name}");

    let (laptop, phone) = (device("laptop"), device("phone"));
    manager.bind(&laptop, one.id).await.unwrap();
    manager.bind(&phone, one.id).await.unwrap();
    manager.bind(&laptop, two.id).await.unwrap();
    let of_one = manager.bindings(BindingQuery::new().with_workspace(one.id)).await.unwrap();
    assert_eq!(of_one.items.iter().map(|b| b.device.as_str()).collect::<Vec<_>>(), ["phone"], "{name}");
    assert!(manager.unbind(&phone).await.unwrap(), "{name}");
    assert!(!manager.unbind(&phone).await.unwrap(), "{name}");
    let absent = agent_core::WorkspaceId::from_uuid(Effects::default().new_uuid());
    assert_eq!(*manager.bind(&phone, absent).await.unwrap_err().kind(), ErrorKind::NotFound, "{name}");
    assert_eq!(manager.list(WorkspaceQuery::new()).await.unwrap().items.len(), 2, "{name}");
}

each_store!(workspaces_are_renamed_and_devices_rebound, flavor = "multi_thread", worker_threads = 4);

/// A prompt counts as access, once a minute, and a workspace that is gone does not fail it.
async fn a_prompt_touches_its_workspace(site: Site) {
    let Scene { name, storage, agent, chat } = Scene::echo(&site).await;
    let id = chat.record().workspace;
    let before = agent.workspaces().load(id).await.unwrap();
    tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    read(chat.prompt("hello").await.unwrap()).await;
    let after = agent.workspaces().load(id).await.unwrap();
    assert!(after.last_accessed > before.last_accessed, "{name}");
    assert_eq!(after.revision, before.revision, "{name}: access is no change of the record");
    tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    read(chat.prompt("hello again").await.unwrap()).await;
    let again = agent.workspaces().load(id).await.unwrap();
    assert_eq!(again.last_accessed, after.last_accessed, "{name}: within a minute");

    storage.workspaces.delete(id).await.unwrap();
    assert_eq!(read(chat.prompt("still there").await.unwrap()).await.0, "still there", "{name}");
}

each_store!(a_prompt_touches_its_workspace);

/// An error of the binding store or the workspace store is handed on, and makes no workspace.
async fn store_error_creates_no_workspace(site: Site) {
    let (name, under) = (site.name, site.open().await);
    let laptop = device("laptop");
    let id = Effects::default().new_workspace_id();
    under.bindings.bind(&laptop, id, Precondition::MustNotExist).await.unwrap();
    let faulty = Faulty::new(under.clone());
    faulty.fail_puts(100);
    let agent = agent(&faulty.storage(), EchoProvider::new());
    for _ in 0..3 {
        assert_eq!(*agent.open(&laptop).await.unwrap_err().kind(), ErrorKind::Full, "{name}");
    }
    assert_eq!(under.bindings.resolve(&laptop).await.unwrap(), Some(id), "{name}: the binding stays");
}

each_store!(store_error_creates_no_workspace);

/// A device whose main session was deleted gets a new one, and any session of the workspace can be made the main.
async fn deleted_main_session_is_replaced_by_one_new(site: Site) {
    let (name, storage) = (site.name, site.open().await);
    let agent = agent(&storage, EchoProvider::new());
    let laptop = device("laptop");
    let old = agent.open(&laptop).await.unwrap();
    let workspace = old.record().workspace;
    old.delete().await.unwrap();
    let tasks: Vec<_> = (0..6)
        .map(|_| {
            let (agent, laptop) = (agent.clone(), laptop.clone());
            tokio::spawn(async move { agent.open(&laptop).await.unwrap().id() })
        })
        .collect();
    let mut sessions = BTreeSet::new();
    for task in tasks {
        sessions.insert(task.await.unwrap());
    }
    assert_eq!(sessions.len(), 1, "{name}");
    assert!(!sessions.contains(&old.id()), "{name}");

    let side = agent.new_session(workspace, &agent_core::model::Patch::new()).await.unwrap();
    agent.workspaces().set_main_session(workspace, side.id()).await.unwrap();
    assert_eq!(agent.open(&laptop).await.unwrap().id(), side.id(), "{name}");
    let elsewhere = agent.open(&device("phone")).await.unwrap().id();
    let error = agent.workspaces().set_main_session(workspace, elsewhere).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::InvalidInput, "{name}: {error}");
}

each_store!(deleted_main_session_is_replaced_by_one_new, flavor = "multi_thread", worker_threads = 4);

/// A hidden session is not made a person's session, and not ended by itself, by any call: what an area holds is there
/// until its workspace goes. A session that only carries the label is a session as any other.
async fn hidden_session_cannot_be_used_or_ended(site: Site) {
    use agent_core::model::{Actor, Patch};
    use agent_core::session::NewSession;
    use agent_core::state::SessionState;
    use agent_core::store::{HiddenSession, WorkspaceArea};
    use agent_runtime::retention::OldSessionAction;
    let (name, storage) = (site.name, site.open().await);
    let (effects, manager) = (Effects::default(), manager(&storage));
    let agent = agent(&storage, EchoProvider::new());
    let main = agent.open(&device("laptop")).await.unwrap();
    let workspace = main.record().workspace;
    let area = WorkspaceFiles::new(&storage, workspace, WorkspaceArea::Memory);
    area.put("a", "kept", Actor::USER).await.unwrap();
    let hidden = HiddenSession::area(workspace, WorkspaceArea::Memory).id();
    for refused in [
        manager.set_main_session(workspace, hidden).await.map(drop).unwrap_err(),
        manager.delete_session(hidden).await.map(drop).unwrap_err(),
        manager.reset(hidden, OldSessionAction::Delete).await.map(drop).unwrap_err(),
        agent.conversation_by_id(hidden).await.unwrap().delete().await.unwrap_err(),
    ] {
        assert_eq!(*refused.kind(), ErrorKind::InvalidInput, "{name}: {refused}");
        assert!(refused.to_string().contains("area/memory"), "{name}: {refused}");
    }
    assert_eq!(storage.workspaces.load(workspace).await.unwrap().main_session, main.id(), "{name}");
    area.put("a", "still", Actor::USER).await.unwrap();
    let new = NewSession::new(effects.new_session_id(), workspace);
    let new = new.with_patch(&Patch::new().with_label(HiddenSession::LABEL, "of books"));
    let own = storage.sessions.create(new).await.unwrap();
    manager.delete_session(own.id).await.unwrap();
    manager.delete(workspace).await.unwrap();
    let gone = storage.sessions.load(hidden).await.unwrap();
    assert_eq!(gone.status.state, SessionState::Deleted, "{name}");
    manager.delete_session(hidden).await.unwrap();
}

each_store!(hidden_session_cannot_be_used_or_ended and files);

/// Workspaces that are created without a name have names that differ; the one of a device can be given.
async fn a_new_workspace_has_a_name_of_its_own(site: Site) {
    let (name, storage) = (site.name, site.open().await);
    let manager = manager(&storage);
    let mut names = BTreeSet::new();
    for _ in 0..20 {
        let made = manager.create(NewWorkspace::default()).await.unwrap();
        let end = made.name.strip_prefix("workspace-").unwrap();
        assert!(end.len() == 8 && made.id.to_string().ends_with(end), "{name}: {made:?}");
        names.insert(made.name);
    }
    assert_eq!(names.len(), 20, "{name}");
    let made = manager.create(NewWorkspace::default().with_id(WorkspaceId::DEFAULT)).await.unwrap();
    assert_eq!(made.name, "default", "{name}");
    let new = NewWorkspace::new("Ann's laptop");
    let found = manager.resolve_or_create(&device("laptop"), &new).await.unwrap();
    assert_eq!((found.workspace.name.as_str(), found.how), ("Ann's laptop", Resolution::Created), "{name}");
    storage.workspaces.delete(found.workspace.id).await.unwrap();
    let again = manager.resolve_or_create(&device("laptop"), &new).await.unwrap();
    assert_eq!(again.how, Resolution::Rebound(found.workspace.id), "{name}");
    assert_eq!(again.workspace.name, "Ann's laptop", "{name}");
}

each_store!(a_new_workspace_has_a_name_of_its_own);
