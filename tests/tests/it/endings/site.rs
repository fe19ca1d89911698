//! A place for each kind of store, with room for any number of rounds; a clock; and a world to end.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use agent_core::clock::{Clock, Effects};
use agent_core::commit::Precondition;
use agent_core::event::{Event, NewEvent};
use agent_core::model::Patch;
use agent_core::session::{Fork, SessionRecord};
use agent_core::state::SessionState;
use agent_core::store::{BindingQuery, SessionQuery, WorkspaceQuery};
use agent_core::{
    Backend, DeviceId, ErrorKind, Seq, SessionId, SessionStoreExt, Sessions, Storage, TenantId, Timestamp,
    WorkspaceId,
};
use agent_runtime::{NewWorkspace, WorkspaceManager};
use futures::TryStreamExt;
use tempfile::TempDir;

/// What is said in every world, and must be nowhere when it is gone.
pub(crate) const SECRET: &str = "xyzzy-plugh-4711";

pub(crate) const DAY: Duration = Duration::from_secs(24 * 3600);

/// Where stores of one kind keep their data; of the kind `mixed` workspaces in files, sessions in SQLite, bindings in memory.
pub(crate) struct Site {
    pub(crate) name: &'static str,
    pub(crate) folder: Arc<TempDir>,
    stores: Vec<Arc<dyn Backend>>,
}

impl Site {
    pub(crate) async fn new(name: &'static str) -> Self {
        let (folder, mut stores) = (Arc::new(tempfile::tempdir().unwrap()), Vec::new());
        let kinds = if name == "mixed" { vec!["files", "sqlite", "memory"] } else { vec![name] };
        for kind in kinds {
            // Nothing here loses power; what is cut is the library's work, call by call.
            stores.push(agent_tests::Site::within(kind, folder.clone()).unsynced().tenants().await);
        }
        Self { name, folder, stores }
    }

    /// Stores with nothing in them: those of one tenant.
    pub(crate) fn fresh(&self, round: usize) -> Storage {
        let tenant: TenantId = format!("round-{round}").parse().unwrap();
        let parts: Vec<_> = self.stores.iter().map(|store| store.tenant(&tenant)).collect();
        match &parts[..] {
            [workspaces, sessions, bindings] => Storage::new(
                workspaces.workspaces.clone(),
                sessions.sessions.store().clone(),
                bindings.bindings.clone(),
            ),
            all => all[0].clone(),
        }
    }
}

/// A clock that a test sets.
#[derive(Clone, Debug)]
pub(crate) struct Hands(Arc<AtomicI64>);

impl Clock for Hands {
    fn now(&self) -> Timestamp {
        // Every look is a little later, as in life.
        Timestamp::from_micros(self.0.fetch_add(1, Ordering::SeqCst))
    }
}

impl Hands {
    pub(crate) fn new() -> Self {
        Self(Arc::new(AtomicI64::new(1_771_151_400_000_000)))
    }

    pub(crate) fn forward(&self, by: Duration) {
        self.0.fetch_add(i64::try_from(by.as_micros()).unwrap(), Ordering::SeqCst);
    }

    pub(crate) fn back(&self, by: Duration) {
        self.0.fetch_sub(i64::try_from(by.as_micros()).unwrap(), Ordering::SeqCst);
    }
}

pub(crate) fn effects(clock: &Hands) -> Effects {
    Effects::default().with_clock(Arc::new(clock.clone()))
}

pub(crate) fn manager(storage: &Storage, clock: &Hands) -> WorkspaceManager {
    WorkspaceManager::new(storage.clone().with_effects(effects(clock)))
}

/// Returns the sessions of a storage, with the times of a clock.
pub(crate) fn sessions(storage: &Storage, clock: &Hands) -> Sessions {
    storage.clone().with_effects(effects(clock)).sessions
}

pub(crate) fn device(name: &str) -> DeviceId {
    name.parse().unwrap()
}

/// Says something in a session, as it is now.
pub(crate) async fn append_text(
    storage: &Storage,
    clock: &Hands,
    id: SessionId,
    text: &str,
) -> agent_core::Result<Arc<SessionRecord>> {
    let events = vec![NewEvent::user_message(format!("{text} {SECRET}"))];
    let seen = storage.sessions.load(id).await?.head;
    Ok(sessions(storage, clock).append(id, seen, events).await?.session)
}

/// The own events of a session, from the first that is there.
pub(crate) async fn history(storage: &Storage, id: SessionId) -> Vec<Event> {
    storage.sessions.events(id, Seq::ZERO).try_collect().await.unwrap()
}

/// A workspace, its sessions and devices: with [`world`] two devices, a configuration, a conversation, a fork of it, a fork of the fork, a child, an archived
/// and a deleted session.
#[derive(Clone, Debug)]
pub(crate) struct World {
    pub(crate) workspace: WorkspaceId,
    pub(crate) main: SessionId,
    pub(crate) sessions: Vec<SessionId>,
    pub(crate) devices: [DeviceId; 2],
}

/// A workspace with a device and one message.
pub(crate) async fn small_world(storage: &Storage, clock: &Hands, name: &str) -> World {
    let manager = manager(storage, clock);
    let laptop = device(&format!("{name} laptop"));
    let workspace = manager.resolve(&laptop).await.unwrap().workspace;
    let main = manager.main_session(&workspace).await.unwrap().id;
    append_text(storage, clock, main, "hello").await.unwrap();
    World { workspace: workspace.id, main, sessions: vec![main], devices: [laptop.clone(), laptop] }
}

pub(crate) async fn world(storage: &Storage, clock: &Hands, name: &str) -> World {
    let manager = manager(storage, clock);
    let workspace = manager.create(NewWorkspace::new(name)).await.unwrap();
    let devices = [device(&format!("{name} laptop")), device(&format!("{name} phone"))];
    for device in &devices {
        manager.bind(device, workspace.id).await.unwrap();
    }
    let config = format!("secret = '{SECRET}'");
    storage.workspaces.save_config(workspace.id, Some(config), Precondition::MustNotExist).await.unwrap();
    let sessions = sessions(storage, clock);
    let main = manager.main_session(&workspace).await.unwrap().id;
    for n in 0..3 {
        append_text(storage, clock, main, &format!("message {n}")).await.unwrap();
    }
    let fork = sessions.fork(main, Fork::new().with_open_inputs()).await.unwrap().id;
    append_text(storage, clock, fork, "in the fork").await.unwrap();
    let grandchild = sessions.fork(fork, Fork::new().with_open_inputs()).await.unwrap().id;
    let child = sessions.create_child(main, Patch::new()).await.unwrap().id;
    let archived = manager.new_session(workspace.id, &Patch::new()).await.unwrap().id;
    sessions.trigger(archived, agent_core::commit::Trigger::Archive).await.unwrap();
    let deleted = manager.new_session(workspace.id, &Patch::new()).await.unwrap().id;
    append_text(storage, clock, deleted, "deleted").await.unwrap();
    let delete = agent_core::commit::Trigger::Delete(agent_core::state::Reason::UserDeleted);
    sessions.trigger(deleted, delete).await.unwrap();
    World {
        workspace: workspace.id,
        main,
        sessions: vec![main, fork, grandchild, child, archived, deleted],
        devices,
    }
}

/// Everything that there is to see of a world.
pub(crate) async fn read_all(storage: &Storage, world: &World) -> String {
    let mut seen = format!("{:?}", storage.workspaces.load(world.workspace).await.unwrap());
    let bound = BindingQuery::new().with_workspace(world.workspace);
    seen += &format!("{:?}", storage.bindings.list(bound).await.unwrap().items);
    seen += &format!("{:?}", storage.workspaces.load_config(world.workspace).await.unwrap());
    for id in &world.sessions {
        seen += &format!("{:?}", storage.sessions.load(*id).await.unwrap());
        seen += &format!("{:?}", history(storage, *id).await);
    }
    seen
}

/// Checks that nothing of a world is left but tombstones.
pub(crate) async fn check_gone(storage: &Storage, clock: &Hands, world: &World, when: &str) {
    let id = world.workspace;
    let gone = |error: agent_core::Error| assert_eq!(*error.kind(), ErrorKind::Deleted, "{when}: {error}");
    gone(storage.workspaces.load(id).await.unwrap_err());
    gone(storage.workspaces.load_config(id).await.unwrap_err());
    let listed =
        storage.workspaces.list(WorkspaceQuery::new().with_deleting().with_limit(1000)).await.unwrap();
    assert!(listed.items.iter().all(|workspace| workspace.id != id), "{when}");
    let bound = storage.bindings.list(BindingQuery::new().with_workspace(id)).await.unwrap();
    assert_eq!(bound.items, [], "{when}");
    let mut seen = 0;
    let all = SessionQuery::new().with_workspace(id).with_hidden().with_limit(1000);
    for session in storage.sessions.list(all).await.unwrap().items {
        assert_eq!(session.status.state, SessionState::Deleted, "{when}");
        let left = storage.sessions.read(session.id, agent_core::store::ReadEvents::first(10)).await.unwrap();
        assert_eq!(left.events, [], "{when}: the bytes of session {}", session.id);
        seen += 1;
    }
    assert!(seen >= world.sessions.len(), "{when}: each has its tombstone");
    assert_eq!(
        storage.sessions.list(SessionQuery::new().with_workspace(id)).await.unwrap().items,
        [],
        "{when}"
    );
    let manager = manager(storage, clock);
    let refused = manager.new_session(id, &Patch::new()).await.unwrap_err();
    gone(refused);
    let resolved = manager.resolve(&world.devices[0]).await.unwrap();
    assert_ne!(resolved.workspace.id, id, "{when}: the device has a workspace of its own again");
}
