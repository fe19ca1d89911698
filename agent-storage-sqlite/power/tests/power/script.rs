//! The life of a store, and what is seen of it.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use agent_core::clock::Effects;
use agent_core::commit::{Commit, Precondition, Trigger};
use agent_core::event::{Media, Message, NewEvent, Part};
use agent_core::model::{BLOB_CHUNK_BYTES, Workspace};
use agent_core::session::{NewSession, SessionRecord};
use agent_core::state::Reason;
use agent_core::store::{
    BlobInfo, BlobQuery, Purge, PutBlob, ReadBlob, ReadEvents, SessionQuery, SweepBlobs, WorkspaceQuery,
};
use agent_core::{
    BindingStore, BlobName, DeviceId, Error, ErrorKind, Result, SessionId, SessionStore, Timestamp,
    WorkspaceId, WorkspaceStore,
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
    life.append_text(&store, first, &[20]).await;
    life.append_text(&store, first, &[900, 40, 9000]).await;
    life.create(&store, second).await;
    // Another program moves what is in the log into the database; the log starts again from its beginning.
    let moved = Connection::open(path).unwrap();
    moved.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(())).unwrap();
    drop(moved);
    life.append_text(&store, second, &[300]).await;
    store.save_config(place.id, Some("model = 1".to_owned()), Precondition::MustNotExist).await.unwrap();
    life.acknowledged(&store).await;

    // Another handle writes, and this one again.
    let other = open(path, sync).await.unwrap();
    life.append_text(&other, first, &[5, 5]).await;
    life.append_text(&store, first, &[2000]).await;
    drop(other);

    // Blobs: one of two chunks, which a purge removes; an early one of a session; and some that no event names.
    life.put(&store, second, 1, BLOB_CHUNK_BYTES + 1).await;
    life.commit(&store, second, |commit| commit.with_event(showing(&blob(1, BLOB_CHUNK_BYTES + 1)))).await;
    let third = effects.new_session_id();
    life.put(&store, third, 2, 300).await;
    let new = NewSession::new(third, WorkspaceId::DEFAULT);
    let create = Commit::create(&effects, new).with_event(showing(&blob(2, 300)));
    store.commit(create).await.unwrap();
    life.acknowledged(&store).await;
    life.put(&store, first, 3, 5000).await;
    life.commit(&store, first, |commit| commit.with_event(showing(&blob(3, 5000)))).await;
    life.put(&store, first, 4, 6000).await;
    life.put(&store, first, 3, 5000).await;
    store.blobs().sweep(SweepBlobs::of(first)).await.unwrap();
    life.acknowledged(&store).await;
    let deleted =
        life.commit(&store, second, |commit| commit.with_trigger(Trigger::Delete(Reason::UserDeleted))).await;
    // The log is emptied behind a purge.
    store.purge(Purge::new(second, deleted.head)).await.unwrap();
    life.acknowledged(&store).await;
    life.append_text(&store, first, &[700]).await;

    // Moves the log into the file, and removes the log.
    store.close().await.unwrap();
    drop(store);
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    assert!(!Path::new(&log).exists());
    let store = open(path, sync).await.unwrap();
    life.append_text(&store, first, &[60]).await;
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
    ) -> Arc<SessionRecord> {
        let head = SessionStore::load(store, id).await.unwrap().head;
        let done = store.commit(what(Commit::seal(self.effects, id, head))).await.unwrap();
        self.acknowledged(store).await;
        done.session
    }

    async fn put(&mut self, store: &SqliteStore, id: SessionId, seed: u64, size: usize) {
        store.blobs().put(PutBlob::of_bytes(id, blob(seed, size))).await.unwrap();
        self.acknowledged(store).await;
    }

    async fn append_text(&mut self, store: &SqliteStore, id: SessionId, sizes: &[usize]) {
        let texts = sizes.iter().map(|size| NewEvent::user_message("x".repeat(*size)));
        self.commit(store, id, |commit| commit.with_events(texts)).await;
    }
}

pub(crate) fn blob(seed: u64, size: usize) -> Vec<u8> {
    let byte = |n: u64| ((n + (seed << 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8;
    (0..size as u64).map(byte).collect()
}

/// A message that shows a blob.
pub(crate) fn showing(bytes: &[u8]) -> NewEvent {
    let blob = BlobInfo::of(bytes);
    let image = Media::blob("image/png", blob.name, blob.bytes);
    NewEvent::from(Message::new("Look").with_part(Part::Image(image)))
}

/// Reads a whole blob, which checks its name.
async fn check_blob(store: &SqliteStore, id: SessionId, name: BlobName) -> Result<BlobInfo> {
    let bytes = store.blobs().read(ReadBlob::new(id, name)).await?.into_bytes(usize::MAX).await?;
    Ok(BlobInfo::of(&bytes))
}

/// The blobs of a session, each of which is whole. What its events name is there.
pub(crate) async fn blobs(store: &SqliteStore, id: SessionId) -> Result<Vec<BlobInfo>> {
    let page = store.blobs().list(BlobQuery::new(id)).await?;
    assert!(page.damaged.is_empty(), "{:?}", page.damaged);
    for blob in &page.items {
        assert_eq!(check_blob(store, id, blob.name).await?, *blob);
    }
    let events = match store.read(id, ReadEvents::first(100)).await {
        Err(error) if *error.kind() == ErrorKind::NotFound => return Ok(page.items),
        events => events?.events,
    };
    for name in events.iter().flat_map(|event| &event.blobs) {
        assert!(page.items.iter().any(|blob| blob.name == *name), "an event names {name}, which is lost");
    }
    Ok(page.items)
}

/// After a sweep of everything there is nothing but what events name, and what is reported as unfinished.
pub(crate) async fn sweep_all(store: &SqliteStore) -> Result<(), String> {
    let wrong = |error: Error| format!("{error:?}");
    let sessions = SessionStore::list(store, SessionQuery::new().with_hidden()).await.map_err(wrong)?;
    let mut sweeps: Vec<_> = sessions.items.iter().map(|session| SweepBlobs::of(session.id)).collect();
    sweeps.push(SweepBlobs::without_session());
    let mut unfinished = 0_u64;
    for sweep in sweeps {
        unfinished += store.blobs().sweep(sweep).await.map_err(wrong)?.unfinished;
    }
    let left = "SELECT ifnull(sum(octet_length(data)), 0) FROM blob_chunks \
        WHERE blob NOT IN (SELECT blob FROM blobs WHERE state = 'whole' AND named IS NOT NULL)";
    let rows =
        "SELECT count(*) FROM blobs WHERE state <> 'unfinished' AND (state <> 'whole' OR named IS NULL)";
    let conn = Connection::open(store.path()).unwrap();
    let [bytes, rows] = [left, rows].map(|sql| conn.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap());
    if (bytes.unsigned_abs(), rows) != (unfinished, 0) {
        return Err(format!("{unfinished} bytes are unfinished, and {bytes} are left; {rows} rows"));
    }
    for session in &sessions.items {
        blobs(store, session.id).await.map_err(wrong)?;
    }
    Ok(())
}

/// Opens what the loss of power left, and looks at all of it; then it must be sound, and go on.
pub(crate) async fn read_back(path: &Path) -> Result<Seen, String> {
    let wrong = |error: Error| format!("{error:?}");
    let store = open(path, Sync::Off).await.map_err(wrong)?;
    let seen = see(&store).await.map_err(wrong)?;
    let damaged = store.maintenance().check().await.map_err(wrong)?;
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
    let id = done.session.id;
    store.blobs().put(PutBlob::of_bytes(id, "on")).await.map_err(wrong)?;
    let append = Commit::seal(&effects, id, done.last).with_event(showing(b"on"));
    store.commit(append).await.map_err(wrong)?;
    sweep_all(&store).await?;
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
        let _ = writeln!(seen, "{:?}", blobs(store, summary.id).await?);
    }
    let early = store.blobs().sweep(SweepBlobs::without_session().with_dry_run()).await?;
    let _ = writeln!(seen, "{} bytes of blobs of no session", early.bytes);
    Ok(seen)
}
