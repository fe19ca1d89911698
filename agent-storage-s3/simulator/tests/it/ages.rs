//! Ages of the remains of a creation or an upload: measured by the server's clock, not by the client's.

use std::sync::Arc;
use std::time::Duration;

use agent_core::clock::Effects;
use agent_core::commit::{Commit, Precondition, Trigger};
use agent_core::event::NewEvent;
use agent_core::json::RawJson;
use agent_core::model::Workspace;
use agent_core::session::NewSession;
use agent_core::store::{PutBlob, SessionQuery, SweepBlobs};
use agent_core::{
    BindingStore, BlobName, DeviceId, SessionId, SessionStore, Timestamp, WorkspaceId, WorkspaceStore,
};
use agent_storage_s3::S3Store;
use bytes::Bytes;
use s3_simulator::{Quirks, SimulatedClock, Simulator};
use tokio::time::sleep;

use crate::backend::config;

/// The simulated server's clock starts at the same time.
const START: Timestamp = Timestamp::from_micros(20_500 * 86_400_000_000);
const DAY: Duration = Duration::from_secs(24 * 3600);
/// After this, what a store puts off is done.
const LATER: Duration = Duration::from_secs(200);
const MARKER: &str = "agents/probe/passed";
const LEFT_BY_A_PROBE: &str = "agents/probe/0123456789abcdef0123456789abcdef/1/a";
const CONTENT: &[u8] = b"some bytes";

struct World {
    simulator: Simulator,
    clock: SimulatedClock,
    effects: Effects,
    session: SessionId,
    workspace: WorkspaceId,
}

impl World {
    fn new(quirks: Quirks) -> Self {
        let clock = SimulatedClock::new(START);
        let effects = Effects::seeded(1, START).with_clock(Arc::new(clock.clone()));
        Self {
            simulator: Simulator::new(1).with_quirks(quirks),
            session: effects.new_session_id(),
            workspace: effects.new_workspace_id(),
            clock,
            effects,
        }
    }

    async fn open(&self, clock: SimulatedClock) -> S3Store {
        let effects = Effects::default().with_clock(Arc::new(clock));
        config(&self.simulator, "handle").with_effects(effects).open().await.unwrap()
    }

    fn keys(&self, part: &str) -> Vec<String> {
        self.simulator.keys().into_iter().filter(|key| key.contains(part)).collect()
    }

    fn creation(&self) -> Commit {
        Commit::create(&self.effects, NewSession::new(self.session, self.workspace))
    }

    /// Leaves what a process has put before what it was about to create: a session with a blob, a workspace, a binding.
    async fn begin(&self) -> Commit {
        let store = self.open(self.clock.clone()).await;
        store.blobs().put(PutBlob::of_bytes(self.session, CONTENT)).await.unwrap();
        store.close().await.unwrap();
        let creation = self.creation();
        // Another bucket shows which keys are put for these objects.
        let other = Self { simulator: Simulator::new(2), ..Self::new(Quirks::default()) };
        let there = other.open(self.clock.clone()).await;
        there.commit(creation.clone()).await.unwrap();
        put_workspace(self, &there).await;
        bind(self, &there).await;
        for key in other.keys("/idx/").into_iter().chain(other.keys("/work/")) {
            self.simulator.put_object(&key, Bytes::new());
        }
        self.simulator.put_object(LEFT_BY_A_PROBE, "third");
        creation
    }
}

fn device() -> DeviceId {
    "laptop".parse().unwrap()
}

async fn put_workspace(world: &World, store: &S3Store) {
    let new = Workspace::new(world.workspace, "Travel", world.session, START);
    store.put(new, Precondition::MustNotExist).await.unwrap();
}

async fn bind(world: &World, store: &S3Store) {
    store.bind(&device(), world.workspace, Precondition::MustNotExist).await.unwrap();
}

/// Everything that deletes by age.
async fn collect(world: &World, store: &S3Store) {
    for query in [SessionQuery::new(), SessionQuery::new().with_workspace(world.workspace)] {
        assert_eq!(SessionStore::list(store, query).await.unwrap().items, []);
    }
    store.blobs().sweep(SweepBlobs::without_session()).await.unwrap();
    store.maintenance().rebuild().await.unwrap();
    world.simulator.remove_object(MARKER);
    world.open(world.clock.clone()).await.close().await.unwrap();
    sleep(LATER).await;
}

/// A store whose clock is a week ahead collects nothing of a creation that is under way: the creation succeeds, with its
/// blob, and so do a new workspace and the binding of a device.
#[tokio::test(start_paused = true)]
async fn a_clock_a_week_ahead_gives_up_no_creation() {
    for days in [0, 8, 4000] {
        let world = World::new(Quirks::default());
        let creation = world.begin().await;
        let before = world.simulator.keys();
        let collector = world.open(world.clock.clone().ahead(days * DAY)).await;
        assert_eq!(collector.maintenance().check().await.unwrap(), [], "{days}");
        collect(&world, &collector).await;
        assert_eq!(world.simulator.keys(), before, "{days}");

        let store = world.open(world.clock.clone()).await;
        store.commit(creation).await.unwrap();
        put_workspace(&world, &store).await;
        bind(&world, &store).await;
        let named = NewEvent::new("x.app.drawn".parse().unwrap(), RawJson::empty_object());
        let head = SessionStore::load(&store, world.session).await.unwrap().head;
        let commit = Commit::seal(&world.effects, world.session, head);
        store.commit(commit.with_event(named.with_blob(BlobName::of(CONTENT)))).await.unwrap();
    }
}

/// A store whose clock is behind, or ahead, collects after the same time by the server's clock as any other.
#[tokio::test(start_paused = true)]
async fn a_wrong_clock_collects_after_a_week_of_the_server() {
    let right = |world: &World| world.clock.clone();
    let behind = |world: &World| world.clock.clone().behind(8 * DAY);
    let far_behind = |world: &World| world.clock.clone().behind(4000 * DAY);
    let ahead = |world: &World| world.clock.clone().ahead(8 * DAY);
    let clocks: [&dyn Fn(&World) -> SimulatedClock; 4] = [&right, &behind, &far_behind, &ahead];
    for (n, clock) in clocks.into_iter().enumerate() {
        let world = World::new(Quirks::default());
        let _creation = world.begin().await;
        sleep(6 * DAY).await;
        let collector = world.open(clock(&world)).await;
        let before = world.simulator.keys();
        collect(&world, &collector).await;
        let left_by_probe = before.iter().filter(|key| *key != LEFT_BY_A_PROBE).cloned();
        assert_eq!(world.simulator.keys(), left_by_probe.collect::<Vec<_>>(), "{n}");

        sleep(2 * DAY).await;
        collect(&world, &collector).await;
        assert_eq!(world.keys("/work/"), [""; 0], "{n}");
        let notes = world.keys("/idx/");
        assert!(notes.len() == 1 && notes[0].contains("/idx/blob/"), "{n}: {notes:?}");
        assert_eq!(world.keys("/b/"), [""; 0], "{n}");
        // A put that was sent before may arrive until then.
        sleep(7 * DAY).await;
        collect(&world, &collector).await;
        assert_eq!(world.keys("/idx/"), [""; 0], "{n}");
    }
}

/// If the server does not say what time it is, nothing is deleted by its age; what is deleted by slots and numbers goes
/// as ever.
#[tokio::test(start_paused = true)]
async fn without_the_time_of_the_server_nothing_is_old() {
    let world = World::new(Quirks { omits_date: true, ..Quirks::default() });
    let creation = world.begin().await;
    sleep(400 * DAY).await;
    let before = world.simulator.keys();
    for clock in [world.clock.clone(), world.clock.clone().ahead(400 * DAY)] {
        let collector = world.open(clock).await;
        assert_eq!(collector.maintenance().check().await.unwrap(), []);
        collect(&world, &collector).await;
        assert_eq!(world.simulator.keys(), before);
    }
    let store = world.open(world.clock.clone()).await;
    store.commit(creation).await.unwrap();
    let head = SessionStore::load(&store, world.session).await.unwrap().head;
    let archive = Commit::seal(&world.effects, world.session, head).with_trigger(Trigger::Archive);
    store.commit(archive).await.unwrap();
    let shown = world.keys("/a/").len();
    sleep(LATER).await;
    assert!(shown > 0 && world.keys("/a/").is_empty());
}

/// Creates a session and archives it, by a store that is closed before it deletes the keys of the first commit.
async fn archived(world: &World) {
    let store = world.open(world.clock.clone()).await;
    let head = store.commit(world.creation()).await.unwrap().session.head;
    let archive = Commit::seal(&world.effects, world.session, head).with_trigger(Trigger::Archive);
    store.commit(archive).await.unwrap();
    store.close().await.unwrap();
}

/// A rebuild deletes keys that are not in force at once if the commit is older than an hour by the server's clock: no
/// list which began before is still read. Else it deletes them two minutes later.
#[tokio::test(start_paused = true)]
async fn rebuild_spares_what_a_list_may_read() {
    for ahead in [Duration::ZERO, 8 * DAY] {
        let world = World::new(Quirks::default());
        archived(&world).await;
        let shown = world.keys("/a/").len();
        assert!(shown > 0);
        for (rest, left) in [(Duration::ZERO, shown), (Duration::from_secs(3700), 0)] {
            sleep(rest).await;
            let rebuilder = world.open(world.clock.clone().ahead(ahead)).await;
            rebuilder.maintenance().rebuild().await.unwrap();
            assert_eq!(world.keys("/a/").len(), left, "{ahead:?} {rest:?}");
            rebuilder.close().await.unwrap();
        }
    }
    // By a clock that is behind, too.
    let world = World::new(Quirks::default());
    archived(&world).await;
    sleep(Duration::from_secs(3700)).await;
    let rebuilder = world.open(world.clock.clone().behind(8 * DAY)).await;
    rebuilder.maintenance().rebuild().await.unwrap();
    assert_eq!(world.keys("/a/"), [""; 0]);
}
