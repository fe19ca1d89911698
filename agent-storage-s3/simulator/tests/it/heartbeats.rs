//! Heartbeats: the contents of the key of a session that runs, by holders that know of their replacement or not.

use std::time::Duration;

use agent_core::clock::Effects;
use agent_core::commit::{Commit, LeaseRequest, Trigger};
use agent_core::event::NewEvent;
use agent_core::session::{NewSession, SessionRecord};
use agent_core::state::{Reason, SessionState};
use agent_core::store::SessionQuery;
use agent_core::{Epoch, SessionId, SessionStore, Timestamp, WorkspaceId};
use agent_storage_s3::S3Store;
use s3_simulator::Simulator;

use crate::backend::config;

struct World {
    simulator: Simulator,
    effects: Effects,
}

impl World {
    fn new() -> Self {
        let effects = Effects::seeded(1, Timestamp::from_micros(1_771_151_400_000_000));
        Self { simulator: Simulator::new(1), effects }
    }

    async fn open(&self, client: &str) -> S3Store {
        config(&self.simulator, client).with_effects(self.effects.clone()).open().await.unwrap()
    }

    /// A session that runs.
    async fn running(&self, store: &S3Store) -> (SessionId, Epoch) {
        let new = NewSession::new(self.effects.new_session_id(), WorkspaceId::DEFAULT);
        let made = store.commit(Commit::create(&self.effects, new)).await.unwrap().session;
        let begin = Commit::seal(&self.effects, made.id, made.head)
            .with_event(NewEvent::user_message("hello"))
            .with_trigger(self.begin());
        (made.id, store.commit(begin).await.unwrap().epoch.unwrap())
    }

    fn begin(&self) -> Trigger {
        Trigger::BeginRun(LeaseRequest::new("holder", self.effects.new_run_id()))
    }

    /// Another run takes the session over, in the key of the first one.
    async fn take_over(&self, store: &S3Store, id: SessionId) -> Epoch {
        let now = store.load(id).await.unwrap();
        let take = Commit::seal(&self.effects, id, now.head)
            .with_trigger(Trigger::LeaseExpired(now.epoch))
            .with_trigger(self.begin());
        store.commit(take).await.unwrap().epoch.unwrap()
    }

    /// The run is ended by somebody else, and the session is at rest.
    async fn suspend(&self, store: &S3Store, id: SessionId) -> SessionRecord {
        let now = store.load(id).await.unwrap();
        let end = Commit::seal(&self.effects, id, now.head)
            .with_trigger(Trigger::LeaseExpired(now.epoch))
            .with_trigger(Trigger::Suspend(Reason::UserPaused));
        (*store.commit(end).await.unwrap().session).clone()
    }

    /// Keys of what runs or is due.
    fn work(&self) -> Vec<String> {
        self.simulator.keys().into_iter().filter(|key| key.contains("/work/")).collect()
    }
}

async fn heartbeat(store: &S3Store, id: SessionId, epoch: Epoch) -> u64 {
    store.leases().status(id, epoch).await.unwrap().heartbeat
}

/// A heartbeat is what the key of the session holds; each is another one, and there is no other object.
#[tokio::test(start_paused = true)]
async fn heartbeat_is_in_the_key_of_the_run() {
    let world = World::new();
    let (store, other) = (world.open("holder").await, world.open("other").await);
    let (id, epoch) = world.running(&store).await;
    let keys = world.simulator.keys();
    assert_eq!(heartbeat(&other, id, epoch).await, 0);
    let mut last = 0;
    for _ in 0..4 {
        store.leases().heartbeat(id, epoch).await.unwrap();
        let body = world.simulator.object(&world.work()[0]).unwrap();
        let now = heartbeat(&other, id, epoch).await;
        assert_eq!(body, format!("{epoch} {now}\n"));
        assert_ne!(now, last);
        last = now;
    }
    assert_eq!(world.simulator.keys(), keys);
}

/// A holder that was replaced does not overwrite the heartbeats of its successor, which has the same key: with them
/// gone, the successor would seem to be silent, or alive for a ttl too long.
#[tokio::test(start_paused = true)]
async fn former_holder_overwrites_no_heartbeat() {
    let world = World::new();
    let (store, next, other) =
        (world.open("holder").await, world.open("next").await, world.open("other").await);
    let (id, epoch) = world.running(&store).await;
    store.leases().heartbeat(id, epoch).await.unwrap();
    let taken = world.take_over(&next, id).await;
    assert_eq!(world.work().len(), 1, "it has the same key");
    // Until the successor sends one, there is none to overwrite.
    store.leases().heartbeat(id, epoch).await.unwrap();
    assert_eq!(heartbeat(&other, id, taken).await, 0);
    let mut last = 0;
    for _ in 0..3 {
        next.leases().heartbeat(id, taken).await.unwrap();
        let now = heartbeat(&other, id, taken).await;
        assert!(now != 0 && now != last, "{now} {last}");
        last = now;
        store.leases().heartbeat(id, epoch).await.unwrap();
        assert_eq!(heartbeat(&other, id, taken).await, last);
    }
    // A handle that knows the former lease only sees that of the new one.
    assert_eq!(heartbeat(&store, id, taken).await, last);
    assert_eq!(heartbeat(&store, id, epoch).await, 0);
}

/// A heartbeat that comes late does not make a key again that was deleted after the run.
#[tokio::test(start_paused = true)]
async fn late_heartbeat_makes_no_key_again() {
    let world = World::new();
    let (store, other) = (world.open("holder").await, world.open("other").await);
    let (id, epoch) = world.running(&store).await;
    store.leases().heartbeat(id, epoch).await.unwrap();
    let ended = world.suspend(&other, id).await;
    assert_eq!((ended.status.state, ended.lease), (SessionState::Suspended, None));
    tokio::time::sleep(Duration::from_secs(121)).await;
    assert_eq!(world.work(), [""; 0]);
    for _ in 0..2 {
        store.leases().heartbeat(id, epoch).await.unwrap();
        assert_eq!(world.work(), [""; 0]);
        assert_eq!(heartbeat(&store, id, epoch).await, 0);
    }
}

/// A run whose key was removed by somebody is listed again with its next heartbeat.
#[tokio::test(start_paused = true)]
async fn heartbeat_puts_a_lost_key_again() {
    let world = World::new();
    let (store, other) = (world.open("holder").await, world.open("other").await);
    let (id, epoch) = world.running(&store).await;
    let running = SessionQuery::new().with_states([SessionState::Running]);
    for _ in 0..2 {
        store.leases().heartbeat(id, epoch).await.unwrap();
        let before = heartbeat(&other, id, epoch).await;
        let work = world.work();
        world.simulator.remove_object(&work[0]);
        assert_eq!(other.list(running.clone()).await.unwrap().items.len(), 0);
        assert_eq!(other.maintenance().check().await.unwrap().len(), 1);
        assert_eq!(heartbeat(&other, id, epoch).await, 0);
        store.leases().heartbeat(id, epoch).await.unwrap();
        assert_ne!(heartbeat(&other, id, epoch).await, before);
        assert_eq!(world.work(), work);
        assert_eq!(other.list(running.clone()).await.unwrap().items.len(), 1);
        assert_eq!(other.maintenance().check().await.unwrap(), []);
    }
}

/// A rebuild that puts a missing key again does not overwrite the heartbeat of a holder that was faster.
#[tokio::test(start_paused = true)]
async fn heartbeats_survive_a_rebuild() {
    let world = World::new();
    let store = world.open("holder").await;
    let (id, epoch) = world.running(&store).await;
    store.leases().heartbeat(id, epoch).await.unwrap();
    let before = heartbeat(&store, id, epoch).await;
    assert_eq!(store.maintenance().rebuild().await.unwrap().sessions, 0);
    assert_eq!(heartbeat(&store, id, epoch).await, before);
    world.simulator.remove_object(&world.work()[0]);
    assert_eq!(store.maintenance().rebuild().await.unwrap().sessions, 1);
    assert_eq!(heartbeat(&store, id, epoch).await, 0);
    store.leases().heartbeat(id, epoch).await.unwrap();
    assert_ne!(heartbeat(&store, id, epoch).await, 0);
}
