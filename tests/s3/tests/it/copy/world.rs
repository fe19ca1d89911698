//! Places for each kind of store, a bucket and a database on a server too; and a store that holds a bit of everything.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

use agent_core::clock::Effects;
use agent_core::commit::{Commit, LeaseRequest, Precondition, RunEnd, Trigger};
use agent_core::event::{Event, NewEvent};
use agent_core::json::RawJson;
use agent_core::model::{Actor, CallId, Patch, Workspace};
use agent_core::session::{NewSession, SessionRecord};
use agent_core::state::{Reason, SessionState};
use agent_core::store::{Binding, BindingQuery, HiddenSession, ReadEvents, SessionQuery, WorkspaceQuery};
use agent_core::{
    DeviceId, Epoch, ErrorKind, MemoryStore, Revision, RunId, SessionId, SessionStoreExt, Storage,
    WorkspaceId,
};
use agent_runtime::documents::{DocumentWrite, Documents};
use agent_runtime::{NewWorkspace, WorkspaceManager};
use agent_storage_fs::FsConfig;
use agent_storage_postgres::PostgresConfig;
use agent_storage_s3::S3Config;
use agent_storage_sqlite::SqliteConfig;
use s3_simulator::Simulator;
use tempfile::TempDir;

use crate::postgres_server::{self, Server};

/// The kinds of stores.
pub(crate) const KINDS: [&str; 5] = ["memory", "files", "sqlite", "s3", "postgres"];

/// Server of all places in PostgreSQL. A process stops it when the program has ended.
static SERVER: LazyLock<Server> = LazyLock::new(Server::start_for_program);

/// A place for a store of one kind.
pub(crate) struct Place {
    kind: &'static str,
    memory: MemoryStore,
    folder: TempDir,
    bucket: Simulator,
    /// Schema in PostgreSQL.
    schema: String,
}

impl Place {
    pub(crate) fn new(kind: &'static str) -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let (folder, schema) =
            (tempfile::tempdir().unwrap(), format!("t{}", COUNT.fetch_add(1, Ordering::Relaxed)));
        Self { kind, memory: MemoryStore::new(), folder, bucket: Simulator::new(1), schema }
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// The stores there, opened again.
    pub(crate) async fn open(&self) -> Storage {
        match self.kind {
            "memory" => self.memory.clone().into(),
            "files" => files(self.path()).await,
            "sqlite" => sqlite(&self.path().join("store.db")).await,
            "postgres" => postgres(&self.schema).await,
            _ => bucket(&self.bucket).await,
        }
    }
}

// Nothing here loses power.

pub(crate) async fn files(folder: &Path) -> Storage {
    FsConfig::new(folder).with_sync(agent_storage_fs::Sync::Off).open().await.unwrap().into()
}

pub(crate) async fn sqlite(file: &Path) -> Storage {
    SqliteConfig::new(file).with_sync(agent_storage_sqlite::Sync::Off).open().await.unwrap().into()
}

async fn postgres(schema: &str) -> Storage {
    let address = postgres_server::address_of(SERVER.address(), postgres_server::OWNER);
    let config = PostgresConfig::from_url(&address).unwrap().with_schema(schema).unwrap();
    config.with_migrate(true).open().await.unwrap().into()
}

pub(crate) async fn bucket(simulator: &Simulator) -> Storage {
    let credentials = [("access_key_id", "any"), ("secret_access_key", "any"), ("region", "us-east-1")];
    let config = credentials
        .iter()
        .fold(S3Config::new("bucket"), |config, (name, value)| config.with_option(name, value).unwrap())
        .with_http_connector(simulator.connector("copy"));
    config.open().await.unwrap().into()
}

/// Who is who in [`fill`].
pub(crate) struct World {
    pub(crate) workspace: WorkspaceId,
    pub(crate) gone: WorkspaceId,
    pub(crate) main: SessionId,
    pub(crate) fork: SessionId,
    pub(crate) running: SessionId,
    pub(crate) run: RunId,
    pub(crate) epoch: Epoch,
    pub(crate) laptop: DeviceId,
}

async fn commit(storage: &Storage, commit: Commit) -> Arc<SessionRecord> {
    storage.sessions.commit(commit).await.unwrap().session
}

async fn append_text(storage: &Storage, id: SessionId, text: &str) -> Arc<SessionRecord> {
    let seen = storage.sessions.load(id).await.unwrap().head;
    let events = vec![NewEvent::user_message(text).with_extra("x", RawJson::parse("1e400").unwrap())];
    storage.sessions.append(id, seen, events).await.unwrap().session
}

async fn delete(storage: &Storage, id: SessionId) {
    storage.sessions.trigger(id, Trigger::Delete(Reason::UserDeleted)).await.unwrap();
}

/// Fills a store with a bit of everything: workspaces with and without configuration, one that is being deleted and one
/// that was; a conversation with more commits than a record remembers, forks of forks, a child, sessions that are
/// archived, running, deleted, purged, purged but for what a fork reads; a hidden session with a document; bindings.
pub(crate) async fn fill(storage: &Storage, effects: &Effects) -> World {
    let manager = WorkspaceManager::new(storage.clone().with_effects(effects.clone()));
    let workspace = manager.create(NewWorkspace::new("first").with_provider("claude")).await.unwrap();
    let other = manager.create(NewWorkspace::new("Küche 안녕")).await.unwrap();
    manager.rename(other.id, "Küche").await.unwrap();
    let config = "provider = 'gemini'\n# a comment\r\n".to_owned();
    storage.workspaces.save_config(workspace.id, Some(config), Precondition::MustNotExist).await.unwrap();
    let laptop: DeviceId = "laptop".parse().unwrap();
    for (device, id) in [(&laptop, workspace.id), (&"../phone 안녕".parse().unwrap(), other.id)] {
        manager.bind(device, id).await.unwrap();
    }

    let main = manager.main_session(&workspace).await.unwrap();
    for n in 0..20 {
        append_text(storage, main.id, &format!("## User {n}\u{0}\r\n")).await;
    }
    let fork = storage.sessions.fork(main.id, None).await.unwrap();
    append_text(storage, fork.id, "in the fork").await;
    let nested = storage.sessions.fork(fork.id, None).await.unwrap();
    append_text(storage, nested.id, "in the fork of the fork").await;
    let child = storage.sessions.create_child(fork.id, Patch::new().with_label("a", "b")).await.unwrap();
    storage.sessions.trigger(child.id, Trigger::Archive).await.unwrap();

    // A run that goes on, with an open call.
    let (running, run) = (manager.new_session(other.id, &Patch::new()).await.unwrap(), effects.new_run_id());
    let begin = Commit::seal(effects, running.id, running.head)
        .with_event(NewEvent::user_message("go on"))
        .with_trigger(Trigger::BeginRun(LeaseRequest::new("a host that is far away", run)));
    let begun = commit(storage, begin).await;
    let call: CallId = "call 1".parse().unwrap();
    let called = Commit::seal(effects, running.id, begun.head)
        .with_fence(run, begun.epoch)
        .with_event(NewEvent::tool_use(call, "ls", RawJson::empty_object()));
    commit(storage, called).await;

    // Deleted; deleted with its fork; purged; purged but for what a fork reads.
    let new = async || manager.new_session(workspace.id, &Patch::new()).await.unwrap().id;
    let deleted = new().await;
    append_text(storage, deleted, "deleted").await;
    let with_it = storage.sessions.fork(deleted, None).await.unwrap().id;
    for id in [deleted, with_it] {
        delete(storage, id).await;
    }
    let purged = new().await;
    append_text(storage, purged, "purged").await;
    let purged_child = storage.sessions.create_child(purged, Patch::new()).await.unwrap().id;
    for id in [purged_child, purged] {
        delete(storage, id).await;
        manager.purge(id).await.unwrap();
    }
    let needed = new().await;
    append_text(storage, needed, "still read").await;
    let reader = storage.sessions.fork(needed, None).await.unwrap().id;
    append_text(storage, needed, "read by nobody").await;
    append_text(storage, reader, "reads on").await;
    delete(storage, needed).await;
    manager.purge(needed).await.unwrap();

    let hidden = HiddenSession::project(workspace.id, "apollo").open(&storage.sessions).await.unwrap();
    let documents = Documents::new(storage.sessions.clone(), hidden.id);
    documents.put(DocumentWrite::new("plan", "to the moon", Actor::AGENT)).await.unwrap();
    // A session whose workspace has no record.
    let lone = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
    storage.sessions.create(lone).await.unwrap();

    let going = Workspace::new(effects.new_workspace_id(), "going", effects.new_session_id(), effects.now());
    let mut going = storage.workspaces.put(going, Precondition::MustNotExist).await.unwrap();
    going.status = agent_core::model::WorkspaceStatus::Deleting;
    storage.workspaces.put(going, Precondition::MustExist).await.unwrap();
    let gone = manager.create(NewWorkspace::new("gone")).await.unwrap();
    let messages = manager.main_session(&gone).await.unwrap();
    append_text(storage, messages.id, "gone").await;
    manager.delete(gone.id).await.unwrap();

    let (workspace, gone) = (workspace.id, gone.id);
    World {
        workspace,
        gone,
        main: main.id,
        fork: fork.id,
        running: running.id,
        run,
        epoch: begun.epoch,
        laptop,
    }
}

/// What there is to see from outside, but for what a copy makes itself.
#[derive(Debug, PartialEq)]
pub(crate) struct Seen {
    pub(crate) workspaces: Vec<(Workspace, Option<String>)>,
    pub(crate) bindings: Vec<Binding>,
    pub(crate) sessions: Vec<SeenSession>,
}

#[derive(Debug, PartialEq)]
pub(crate) struct SeenSession {
    pub(crate) id: SessionId,
    state: SessionState,
    /// Where the log has it.
    record: Option<Arc<SessionRecord>>,
    own: Vec<Event>,
    /// Through its ancestors.
    history: Vec<Event>,
}

pub(crate) async fn read_all(storage: &Storage) -> Seen {
    let mut workspaces = Vec::new();
    let query = WorkspaceQuery::new().with_deleting().with_limit(1000);
    for mut workspace in storage.workspaces.list(query).await.unwrap().items {
        // A store counts for itself.
        workspace.revision = Revision::ZERO;
        let config = storage.workspaces.load_config(workspace.id).await.unwrap();
        workspaces.push((workspace, config));
    }
    let mut bindings = storage.bindings.list(BindingQuery::new().with_limit(1000)).await.unwrap().items;
    let page = storage.sessions.list(SessionQuery::new().with_hidden().with_limit(1000)).await.unwrap();
    assert!(page.damaged.is_empty() && page.next.is_none());
    let mut sessions = Vec::new();
    for item in page.items {
        let (id, state) = (item.id, item.status.state);
        let own = storage.sessions.read(id, ReadEvents::first(1000)).await.unwrap().events;
        let record = storage.sessions.load(id).await.unwrap();
        let is_purged = own.last().is_none_or(|last| last.seq != record.head);
        let history = match state {
            SessionState::Deleted => Vec::new(),
            _ => storage.sessions.history(id, ReadEvents::first(1000)).await.unwrap().events,
        };
        let record = (!is_purged).then_some(record);
        sessions.push(SeenSession { id, state, record, own, history });
    }
    sessions.sort_by_key(|session| session.id);
    workspaces.sort_by_key(|(workspace, _)| workspace.id);
    bindings.sort();
    Seen { workspaces, bindings, sessions }
}

/// Whether a workspace is known to have been deleted.
pub(crate) async fn is_deleted(storage: &Storage, id: WorkspaceId) -> bool {
    storage.workspaces.load(id).await.is_err_and(|error| *error.kind() == ErrorKind::Deleted)
}

/// Ends the run that went on when the store was filled, as its holder would.
pub(crate) async fn end_run(storage: &Storage, effects: &Effects, world: &World) -> agent_core::Result<()> {
    let now = storage.sessions.load(world.running).await?;
    let end = Commit::seal(effects, now.id, now.head)
        .with_fence(world.run, world.epoch)
        .with_trigger(Trigger::EndRun(RunEnd::Completed(Reason::EndTurn)));
    storage.sessions.commit(end).await.map(drop)
}
