//! A tenant is deleted while another store, which has used it before, writes to it, and requests are lost and late.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use agent_core::clock::Effects;
use agent_core::commit::{Commit, Precondition};
use agent_core::event::NewEvent;
use agent_core::model::Workspace;
use agent_core::session::NewSession;
use agent_core::store::{ReadEvents, SessionQuery, WorkspaceQuery};
use agent_core::{
    Backend, BindingStore, ErrorKind, SessionId, SessionStore, TenantId, Timestamp, WorkspaceId,
    WorkspaceStore,
};
use agent_storage_s3::S3Store;
use s3_simulator::{FaultPlan, Simulator};

use crate::backend::config;

const WORD: &[u8] = b"sesame";

struct World {
    simulator: Simulator,
    effects: Effects,
    tenant: TenantId,
}

impl World {
    fn new(seed: u64) -> Self {
        let start = Timestamp::from_micros(1_771_151_400_000_000);
        let tenant = "acme".parse().unwrap();
        Self { simulator: Simulator::new(seed), effects: Effects::seeded(seed, start), tenant }
    }

    async fn open(&self, client: &str, seed: u64) -> S3Store {
        let effects = Effects::seeded(seed, Timestamp::UNIX_EPOCH);
        config(&self.simulator, client).with_effects(effects).open().await.unwrap()
    }

    /// The objects of former generations, or all, in which somebody's words are.
    fn with_word(&self, former: bool) -> Vec<String> {
        let has = |key: &String| {
            let object = self.simulator.object(key).unwrap();
            object.windows(WORD.len()).any(|part| part == WORD)
        };
        let is_former = |key: &String| !former || !key.contains("/acme/g");
        self.simulator.keys().into_iter().filter(|key| is_former(key) && has(key)).collect()
    }

    fn new_session(&self, workspace: WorkspaceId) -> (SessionId, Commit) {
        let new = NewSession::new(self.effects.new_session_id(), workspace);
        (new.id, Commit::create(&self.effects, new).with_event(NewEvent::user_message("sesame")))
    }

    /// Each session that is listed is whole.
    async fn check(&self, store: &S3Store) {
        let page = SessionStore::list(store, SessionQuery::new().with_hidden()).await.unwrap();
        assert_eq!(page.damaged, []);
        for item in page.items {
            let events = store.read(item.id, ReadEvents::first(100)).await.unwrap().events;
            assert_eq!(events.len() as u64, item.head.get(), "session {}", item.id);
        }
        assert_eq!(WorkspaceStore::list(store, WorkspaceQuery::new()).await.unwrap().damaged, []);
    }
}

/// What another store writes while the tenant is deleted. Returns the sessions that it has created since the deletion
/// had returned.
async fn write(world: &World, store: &S3Store, session: SessionId, deleted: &AtomicBool) -> Vec<SessionId> {
    let (effects, mut late) = (&world.effects, Vec::new());
    for n in 0..12 {
        let is_late = deleted.load(Ordering::SeqCst);
        let (id, create) = world.new_session(WorkspaceId::DEFAULT);
        if store.commit(create).await.is_ok() && is_late {
            late.push(id);
        }
        let Ok(now) = SessionStore::load(store, session).await else { continue };
        assert!(!is_late, "a session of the deleted tenant");
        let append = Commit::seal(effects, session, now.head).with_event(NewEvent::user_message("sesame"));
        let _ = store.commit(append).await;
        let place = Workspace::new(effects.new_workspace_id(), "sesame", session, effects.now());
        let _ = store.bind(&format!("sesame {n}").parse().unwrap(), place.id, Precondition::MustExist).await;
        let _ = store.put(place, Precondition::MustNotExist).await;
    }
    late
}

/// Runs one course; returns how many sessions were created after the deletion.
async fn course(seed: u64, plan: FaultPlan) -> usize {
    let is_healthy = plan.per_mille == 0;
    let world = World::new(seed);
    let (writer, deleter) =
        (world.open("writer", seed * 10 + 1).await, world.open("deleter", seed * 10 + 2).await);
    let store = writer.for_tenant(&world.tenant);
    let (id, create) = world.new_session(WorkspaceId::DEFAULT);
    let mut session = store.commit(create).await.unwrap().session;
    for _ in 0..5 {
        let append =
            Commit::seal(&world.effects, id, session.head).with_event(NewEvent::user_message("sesame"));
        session = store.commit(append).await.unwrap().session;
    }
    world.simulator.set_plan(plan);
    let deleted = Arc::new(AtomicBool::new(false));
    let deletion = async {
        tokio::time::sleep(Duration::from_millis(seed * 37 % 900)).await;
        while let Err(error) = deleter.delete_tenant(&world.tenant).await {
            assert_eq!(*error.kind(), ErrorKind::Unavailable, "{error}");
        }
        deleted.store(true, Ordering::SeqCst);
    };
    let (late, ()) = tokio::join!(write(&world, &store, id, &deleted), deletion);
    world.simulator.set_plan(FaultPlan::quiet());
    if is_healthy {
        assert_eq!(world.with_word(true), [""; 0], "seed {seed}");
    }
    // What is late lands.
    tokio::time::sleep(Duration::from_secs(700)).await;
    let fresh = world.open("fresh", seed * 10 + 3).await.for_tenant(&world.tenant);
    for store in [&store, &fresh] {
        world.check(store).await;
        let error = SessionStore::load(store, id).await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::NotFound, "seed {seed}: {error}");
        for id in &late {
            assert_eq!(SessionStore::load(store, *id).await.unwrap().head.get(), 2, "seed {seed}");
        }
    }
    deleter.delete_tenant(&world.tenant).await.unwrap();
    assert_eq!(world.with_word(false), [""; 0], "seed {seed}");
    assert!(Backend::tenants(&fresh, None).await.unwrap().items.is_empty(), "seed {seed}");
    assert!(deleter.delete_tenant(&world.tenant).await.unwrap().is_empty(), "seed {seed}");
    late.len()
}

/// Of a tenant that is deleted while others write to it no word is left, nothing is there by half, and what was created
/// after the deletion stays.
#[tokio::test(start_paused = true)]
async fn no_word_outlives_a_deletion() {
    let mut late = 0;
    for seed in 0..60 {
        late += course(seed, FaultPlan::healthy()).await;
    }
    assert!(late > 60, "only {late} sessions were created after a deletion");
}

/// The same while requests fail, get lost, and land late or twice.
#[tokio::test(start_paused = true)]
async fn a_deletion_ends_after_any_failure() {
    let mut late = 0;
    for seed in 0..60 {
        late += course(seed, FaultPlan::hostile(80)).await;
    }
    assert!(late > 0);
}

/// A deletion that is cut off after any of its requests is finished by the next one. Who uses the tenant for the first
/// time in between finds all of it or nothing.
#[tokio::test(start_paused = true)]
async fn a_deletion_may_be_cut_off_anywhere() {
    let (mut whole, mut gone) = (0, 0);
    for requests in 0.. {
        let world = World::new(1);
        let store = world.open("writer", 1).await.for_tenant(&world.tenant);
        let mut ids = Vec::new();
        for _ in 0..3 {
            let (id, create) = world.new_session(WorkspaceId::DEFAULT);
            store.commit(create).await.unwrap();
            ids.push(id);
        }
        store
            .bind(&"sesame".parse().unwrap(), WorkspaceId::DEFAULT, Precondition::MustNotExist)
            .await
            .unwrap();
        let deleter = world.open("deleter", 2).await;
        world.simulator.set_plan(FaultPlan::healthy());
        let before = world.simulator.requests();
        let cut = async {
            while world.simulator.requests() < before + requests {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        let is_done = tokio::select! {
            biased;
            () = cut => false,
            done = deleter.delete_tenant(&world.tenant) => done.is_ok(),
        };
        world.simulator.set_plan(FaultPlan::quiet());
        let fresh = world.open("fresh", 3).await.for_tenant(&world.tenant);
        world.check(&fresh).await;
        let there = SessionStore::list(&fresh, SessionQuery::new()).await.unwrap().items.len();
        let bound = fresh.resolve(&"sesame".parse().unwrap()).await.unwrap().is_some();
        assert!((there, bound) == (3, true) || (there, bound) == (0, false), "{there} after {requests}");
        whole += usize::from(bound);
        gone += usize::from(!bound);
        world.open("another", 4).await.delete_tenant(&world.tenant).await.unwrap();
        assert_eq!(world.with_word(false), [""; 0], "after {requests}");
        for id in ids {
            let error = SessionStore::load(&store, id).await.unwrap_err();
            assert_eq!(*error.kind(), ErrorKind::NotFound, "{error}");
        }
        if is_done {
            break;
        }
    }
    assert!(whole > 3 && gone > 10, "{whole} {gone}");
}
