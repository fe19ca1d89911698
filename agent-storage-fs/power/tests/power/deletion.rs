//! The power goes while a tenant is deleted.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use agent_core::clock::Effects;
use agent_core::commit::{Commit, Precondition};
use agent_core::event::NewEvent;
use agent_core::model::Workspace;
use agent_core::session::NewSession;
use agent_core::store::{ReadEvents, SessionQuery};
use agent_core::{
    Backend, BindingStore, ErrorKind, SessionId, SessionStore, TenantId, Timestamp, WorkspaceId,
    WorkspaceStore,
};
use agent_storage_fs::io::{Io, Kind};
use agent_storage_fs::{FsConfig, FsStore};

use crate::cut::subsets;
use crate::model::Disk;

/// How many subsets of what is not safe are tried at one moment, at most.
const SUBSETS: usize = 64;

async fn open(disk: &Disk) -> FsStore {
    let config = FsConfig::new("/store").with_io(Arc::new(disk.clone())).with_transcripts(false);
    config.with_effects(Effects::seeded(9, Timestamp::UNIX_EPOCH)).open().await.unwrap()
}

struct Stock {
    workspace: WorkspaceId,
    sessions: Vec<SessionId>,
}

async fn stock(store: &FsStore, effects: &Effects) -> Stock {
    let workspace = effects.new_workspace_id();
    let sessions = vec![effects.new_session_id(), effects.new_session_id()];
    let new = Workspace::new(workspace, "place", sessions[0], effects.now());
    store.put(new, Precondition::MustNotExist).await.unwrap();
    store.save_config(workspace, Some("a = 1".to_owned()), Precondition::MustNotExist).await.unwrap();
    store.bind(&"laptop".parse().unwrap(), workspace, Precondition::MustNotExist).await.unwrap();
    for id in &sessions {
        let new = Commit::create(effects, NewSession::new(*id, workspace));
        store.commit(new.with_event(NewEvent::user_message("hello"))).await.unwrap();
    }
    Stock { workspace, sessions }
}

impl Stock {
    /// How many of the workspace and its sessions are there, each of them whole.
    async fn there(&self, store: &FsStore) -> usize {
        let absent = |error: &agent_core::Error| assert_eq!(*error.kind(), ErrorKind::NotFound, "{error}");
        let workspace = WorkspaceStore::load(store, self.workspace).await.inspect_err(absent);
        let mut there = usize::from(workspace.is_ok());
        for id in &self.sessions {
            if SessionStore::load(store, *id).await.inspect_err(absent).is_ok() {
                let events = store.read(*id, ReadEvents::first(10)).await.unwrap().events;
                assert_eq!(events.len(), 2);
                there += 1;
            }
        }
        let listed = SessionStore::list(store, SessionQuery::new().with_hidden().with_total()).await.unwrap();
        assert!(listed.damaged.is_empty(), "{:?}", listed.damaged);
        there
    }
}

/// Every name below a folder.
fn names(disk: &Disk, folder: &Path) -> Vec<PathBuf> {
    let mut names = Vec::new();
    for (name, kind) in disk.list(folder).unwrap() {
        let path = folder.join(name);
        if kind == Kind::Folder {
            names.extend(self::names(disk, &path));
        }
        names.push(path);
    }
    names
}

/// The power goes at any moment of a deletion. Either all workspaces and sessions are there or none; another tenant is
/// as it was; and the next deletion leaves no file.
#[tokio::test]
async fn the_power_may_go_during_a_deletion() {
    let mut images = 0;
    for (name, other) in [("default", "other"), ("mine", "default")] {
        let disk = Disk::new();
        let effects = Effects::seeded(1, Timestamp::UNIX_EPOCH);
        let [tenant, other]: [TenantId; 2] = [name, other].map(|name| name.parse().unwrap());
        let store = open(&disk).await;
        let stocked = stock(&store.for_tenant(&tenant), &effects).await;
        let beside = stock(&store.for_tenant(&other), &effects).await;
        let before = disk.trace().moments().len();
        let done = store.delete_tenant(&tenant).await.unwrap();
        assert_eq!((done.workspaces, done.sessions, done.bindings), (1, 2, 1));
        disk.mark(1);
        let trace = disk.trace();
        let (mut kept, mut gone) = (0, 0);
        for moment in trace.moments().into_iter().skip(before) {
            for subset in subsets(&trace, moment, SUBSETS) {
                let left = trace.image(moment, &subset);
                let store = open(&left).await;
                let there = stocked.there(&store.for_tenant(&tenant)).await;
                assert!(there == 0 || (there == 3 && moment.mark == 0), "{there} after {}", moment.events);
                kept += usize::from(there == 3);
                gone += usize::from(there == 0);
                assert_eq!(beside.there(&store.for_tenant(&other)).await, 3);
                store.delete_tenant(&tenant).await.unwrap();
                assert_eq!(stocked.there(&store.for_tenant(&tenant)).await, 0);
                let root = if name == "default" { "/store" } else { "/store/tenants/mine" };
                let rest = names(&left, Path::new(root));
                let is_others = |path: &PathBuf| path.starts_with("/store/tenants") && name == "default";
                let rest: Vec<_> = rest.into_iter().filter(|path| !is_others(path)).collect();
                assert_eq!(rest, [Path::new(root).join("workspaces")], "after {}", moment.events);
                images += 1;
            }
        }
        assert!(kept > 0 && gone > 0, "{kept} {gone}");
    }
    println!("proof: {images} disks after the loss of power");
    assert!(images > 200, "only {images} disks");
}
