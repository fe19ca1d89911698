//! The life of a store, and what is seen of it.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use agent_core::clock::Effects;
use agent_core::commit::{Commit, Precondition, Trigger};
use agent_core::event::NewEvent;
use agent_core::model::Workspace;
use agent_core::session::{NewSession, Session};
use agent_core::state::Reason;
use agent_core::store::{Purge, ReadEvents, SessionQuery, WorkspaceQuery};
use agent_core::{
    BindingStore, DeviceId, Error, Result, SessionId, SessionStore, Timestamp, WorkspaceId, WorkspaceStore,
};
use agent_storage_sqlite::{SqliteConfig, SqliteStore, Sync};
use rusqlite::Connection;

use crate::model::Disk;

/// All that a store shows, in words.
pub(crate) type Seen = String;

pub(crate) const START: Timestamp = Timestamp::from_micros(1_771_151_400_000_000);

pub(crate) async fn open(path: &Path, sync: Sync) -> Result<SqliteStore> {
    SqliteConfig::new(path)
        .with_sync(sync)
        .with_readers(1)
        .with_effects(Effects::seeded(3, START))
        .open()
        .await
}

/// The steps of a life, each of which is acknowledged before the next one begins. After each the disk is told, and what
/// is seen is noted; the first is what is seen before any.
pub(crate) async fn live(path: &Path, sync: Sync, disk: &Disk) -> Vec<Seen> {
    let effects = Effects::seeded(1, START);
    let store = open(path, sync).await.unwrap();
    let mut life = Alive { states: vec![see(&store).await.unwrap()], disk, effects: &effects };
    let [first, second] = [(); 2].map(|()| effects.new_session_id());
    let device: DeviceId = "laptop".parse().unwrap();
    let place = Workspace::new(effects.new_workspace_id(), "place", first, effects.now());

    store.put(place.clone(), Precondition::MustNotExist).await.unwrap();
    life.acknowledged(&store).await;
    store.bind(&device, place.id, Precondition::MustNotExist).await.unwrap();
    life.acknowledged(&store).await;
    life.create(&store, first).await;
    life.say(&store, first, &[20]).await;
    life.say(&store, first, &[900, 40, 9000]).await;
    life.create(&store, second).await;
    // Another program moves what is in the log into the database; the log starts again from its beginning.
    let moved = Connection::open(path).unwrap();
    moved.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(())).unwrap();
    drop(moved);
    life.say(&store, second, &[300]).await;
    store.save_config(place.id, Some("model = 1".to_owned()), Precondition::MustNotExist).await.unwrap();
    life.acknowledged(&store).await;

    // Another handle writes, and this one again.
    let other = open(path, sync).await.unwrap();
    life.say(&other, first, &[5, 5]).await;
    life.say(&store, first, &[2000]).await;
    drop(other);
    let deleted =
        life.commit(&store, second, |commit| commit.with_trigger(Trigger::Delete(Reason::UserDeleted))).await;
    // The log is emptied behind a purge.
    store.purge(Purge::new(second, deleted.head)).await.unwrap();
    life.acknowledged(&store).await;
    life.say(&store, first, &[700]).await;

    // Moves the log into the file, and removes the log.
    store.close().await.unwrap();
    drop(store);
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    assert!(!Path::new(&log).exists());
    let store = open(path, sync).await.unwrap();
    life.say(&store, first, &[60]).await;
    store.unbind(&device).await.unwrap();
    life.acknowledged(&store).await;
    life.states
}

struct Alive<'a> {
    states: Vec<Seen>,
    disk: &'a Disk,
    effects: &'a Effects,
}

impl Alive<'_> {
    async fn acknowledged(&mut self, store: &SqliteStore) {
        self.disk.mark(self.states.len());
        self.states.push(see(store).await.unwrap());
    }

    async fn create(&mut self, store: &SqliteStore, id: SessionId) {
        let new = NewSession::new(id, WorkspaceId::DEFAULT);
        store.commit(Commit::create(self.effects, new)).await.unwrap();
        self.acknowledged(store).await;
    }

    async fn commit(
        &mut self,
        store: &SqliteStore,
        id: SessionId,
        what: impl FnOnce(Commit) -> Commit,
    ) -> Arc<Session> {
        let head = SessionStore::load(store, id).await.unwrap().head;
        let done = store.commit(what(Commit::seal(self.effects, id, head))).await.unwrap();
        self.acknowledged(store).await;
        done.session
    }

    async fn say(&mut self, store: &SqliteStore, id: SessionId, sizes: &[usize]) {
        let texts = sizes.iter().map(|size| NewEvent::user_message("x".repeat(*size)));
        self.commit(store, id, |commit| commit.with_events(texts)).await;
    }
}

/// Opens what the loss of power left, and looks at all of it; then it must be sound, and go on.
pub(crate) async fn look(path: &Path) -> Result<Seen, String> {
    let wrong = |error: Error| format!("{error:?}");
    let store = open(path, Sync::Off).await.map_err(wrong)?;
    let seen = see(&store).await.map_err(wrong)?;
    let damaged = store.check().await.map_err(wrong)?;
    if !damaged.is_empty() {
        return Err(format!("SQLite finds damage: {damaged:?}"));
    }
    let effects = Effects::seeded(2, START);
    let new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
    let first = Commit::create(&effects, new).with_event(NewEvent::user_message("on"));
    let done = store.commit(first).await.map_err(wrong)?;
    let again = SessionStore::load(&store, done.session.id).await.map_err(wrong)?;
    if again != done.session {
        return Err("it does not go on".to_owned());
    }
    Ok(seen)
}

/// All of it, without a write.
pub(crate) async fn see(store: &SqliteStore) -> Result<Seen> {
    let mut seen = Seen::new();
    let workspaces = WorkspaceStore::list(store, WorkspaceQuery::new()).await?;
    let _ = writeln!(seen, "{:?}", (&workspaces.items, &workspaces.damaged));
    for workspace in &workspaces.items {
        let _ = writeln!(seen, "{:?}", store.load_config(workspace.id).await?);
    }
    let _ = writeln!(seen, "{:?}", store.resolve(&"laptop".parse()?).await?);
    let sessions = SessionStore::list(store, SessionQuery::new().with_hidden()).await?;
    let _ = writeln!(seen, "{:?}", sessions.damaged);
    for summary in &sessions.items {
        let record = SessionStore::load(store, summary.id).await?;
        let page = store.read(summary.id, ReadEvents::first(100)).await?;
        let _ = writeln!(seen, "{} {:?}", record.to_json(), page.damaged);
        for event in &page.events {
            let _ = writeln!(seen, "{}", event.to_json());
        }
    }
    Ok(seen)
}
