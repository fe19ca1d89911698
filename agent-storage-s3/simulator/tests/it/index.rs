//! Index of sessions: what lists show while keys are put, moved, lost and deleted.

use std::collections::BTreeSet;
use std::time::Duration;

use agent_core::clock::Effects;
use agent_core::commit::{Commit, Trigger};
use agent_core::event::NewEvent;
use agent_core::model::Timer;
use agent_core::session::NewSession;
use agent_core::state::SessionState;
use agent_core::store::SessionQuery;
use agent_core::{Backend, SessionId, SessionStore, TenantId, Timestamp, WorkspaceId};
use agent_storage_s3::S3Store;
use bytes::Bytes;
use s3_simulator::{Counts, FaultPlan, Quirks, SimulatedClock, Simulator};

use crate::backend::config;

/// The simulated server's clock starts at the same time.
const START: Timestamp = Timestamp::from_micros(20_500 * 86_400_000_000);

struct World {
    simulator: Simulator,
    effects: Effects,
}

impl World {
    fn new(page_limit: Option<usize>) -> Self {
        let quirks = Quirks { page_limit, ..Quirks::default() };
        let effects = Effects::seeded(1, START).with_clock(std::sync::Arc::new(SimulatedClock::new(START)));
        Self { simulator: Simulator::new(1).with_quirks(quirks), effects }
    }

    async fn open(&self) -> S3Store {
        config(&self.simulator, "handle").with_effects(self.effects.clone()).open().await.unwrap()
    }

    fn creation(&self) -> Commit {
        Commit::create(&self.effects, NewSession::new(self.effects.new_session_id(), WorkspaceId::DEFAULT))
    }

    async fn create(&self, store: &S3Store) -> SessionId {
        store.commit(self.creation()).await.unwrap().session.id
    }

    async fn change(&self, store: &S3Store, id: SessionId, change: impl FnOnce(Commit) -> Commit) {
        let head = store.load(id).await.unwrap().head;
        store.commit(change(Commit::seal(&self.effects, id, head))).await.unwrap();
    }

    /// Keys of the index, and of work.
    fn keys(&self) -> Vec<String> {
        let is_key = |key: &String| key.contains("/idx/") || key.contains("/work/");
        self.simulator.keys().into_iter().filter(is_key).collect()
    }

    /// Keys of the index that belong to a session.
    fn keys_of(&self, id: SessionId) -> Vec<String> {
        self.keys().into_iter().filter(|key| key.contains(&id.to_string())).collect()
    }
}

/// All sessions of a query, each page after the other.
async fn listed(store: &S3Store, query: SessionQuery) -> Vec<SessionId> {
    let (mut all, mut cursor) = (Vec::new(), None);
    loop {
        let page = store.list(query.clone().with_cursor(cursor)).await.unwrap();
        assert_eq!(page.damaged, []);
        all.extend(page.items.iter().map(|item| item.id));
        cursor = page.next;
        if cursor.is_none() {
            return all;
        }
    }
}

fn set(ids: &[SessionId]) -> BTreeSet<SessionId> {
    let set: BTreeSet<_> = ids.iter().copied().collect();
    assert_eq!(set.len(), ids.len(), "each is listed once");
    set
}

/// A commit that is cut off after any of its requests is in the lists exactly if it was made.
#[tokio::test(start_paused = true)]
async fn lists_agree_with_loads_after_any_cut() {
    let (mut made, mut cut) = (0, 0);
    for requests in 0..12 {
        let world = World::new(None);
        let (store, creation) = (world.open().await, world.creation());
        let event = creation.clone().with_event(NewEvent::user_message("hello"));
        world.simulator.set_plan(FaultPlan::healthy());
        let before = world.simulator.requests();
        let stop = async {
            while world.simulator.requests() < before + requests {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::select! {
            biased;
            () = stop => cut += 1,
            done = store.commit(event) => drop(done.unwrap()),
        }
        world.simulator.set_plan(FaultPlan::quiet());
        let fresh = world.open().await;
        let is_made = fresh.load(creation.session).await.is_ok();
        made += usize::from(is_made);
        let due = SessionQuery::new().with_due(START);
        let in_workspace = SessionQuery::new().with_workspace(WorkspaceId::DEFAULT);
        for query in [SessionQuery::new(), due, in_workspace] {
            let found = listed(&fresh, query.clone()).await.len();
            assert_eq!(found, usize::from(is_made), "{requests}: {query:?}");
        }
        assert_eq!(fresh.maintenance().check().await.unwrap(), []);
    }
    assert!(made > 3 && cut > 3, "{made} {cut}");
}

/// Keys that are not in force any more are deleted two minutes later, and not by a store that is closed.
#[tokio::test(start_paused = true)]
async fn superseded_keys_are_deleted_later() {
    let world = World::new(None);
    let store = world.open().await;
    let id = world.create(&store).await;
    world.change(&store, id, |commit| commit.with_trigger(Trigger::Archive)).await;
    assert_eq!(world.keys_of(id).len(), 4, "of both classes");
    tokio::time::sleep(Duration::from_secs(119)).await;
    assert_eq!(world.keys_of(id).len(), 4);
    tokio::time::sleep(Duration::from_secs(2)).await;
    let left = world.keys_of(id);
    assert!(left.len() == 2 && left.iter().all(|key| key.contains("/z/")), "{left:?}");

    world.change(&store, id, |commit| commit.with_trigger(Trigger::Unarchive)).await;
    store.close().await.unwrap();
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(world.keys_of(id).len(), 4);
    // Who lists them deletes them.
    let store = world.open().await;
    let all = SessionQuery::new().with_hidden();
    for query in [all.clone(), all.with_workspace(WorkspaceId::DEFAULT)] {
        assert_eq!(listed(&store, query).await, [id]);
    }
    tokio::time::sleep(Duration::from_secs(121)).await;
    let left = world.keys_of(id);
    assert!(left.len() == 2 && left.iter().all(|key| key.contains("/a/")), "{left:?}");
}

/// A session that moves to the front while a list reads page after page is shown, also if its old key is deleted at
/// once.
#[tokio::test(start_paused = true)]
async fn a_session_that_moves_is_not_left_out() {
    let mut moved = 0;
    for seed in 0..20_u64 {
        let world = World::new(Some(3));
        let store = world.open().await;
        let mut ids = Vec::new();
        for _ in 0..12 {
            ids.push(world.create(&store).await);
            tokio::time::sleep(Duration::from_secs(120)).await;
        }
        let lister = world.open().await;
        world.simulator.set_plan(FaultPlan::healthy());
        tokio::time::sleep(Duration::from_secs(3600)).await;
        let list = listed(&lister, SessionQuery::new().with_limit(50));
        let mover = async {
            tokio::time::sleep(Duration::from_millis(seed * 7)).await;
            for id in ids.iter().take(3) {
                let old = world.keys_of(*id);
                world.change(&store, *id, |commit| commit.with_event(NewEvent::user_message("x"))).await;
                old.iter().for_each(|key| world.simulator.remove_object(key));
                moved += 1;
            }
        };
        let (list, ()) = tokio::join!(list, mover);
        assert_eq!(set(&list), ids.iter().copied().collect(), "seed {seed}");
    }
    assert!(moved > 30);
}

/// The same for work: a session whose timer is due gets an input, so that its key moves to those of what is due at
/// once.
#[tokio::test(start_paused = true)]
async fn due_work_that_moves_is_not_left_out() {
    for delay in 0..120 {
        let world = World::new(None);
        let store = world.open().await;
        let id = world.create(&store).await;
        let timer = || NewEvent::timer_scheduled(Timer::new("daily", START.plus_micros(3_600_000_000)));
        world.change(&store, id, |commit| commit.with_event(timer())).await;
        tokio::time::sleep(Duration::from_secs(7200)).await;
        let lister = world.open().await;
        world.simulator.set_plan(FaultPlan::healthy());
        let query = SessionQuery::new().with_due(START.plus_micros(7_200_000_000));
        let mover = async {
            tokio::time::sleep(Duration::from_millis(delay)).await;
            let old = world.keys_of(id);
            world.change(&store, id, |commit| commit.with_event(NewEvent::user_message("x"))).await;
            old.iter().for_each(|key| world.simulator.remove_object(key));
        };
        let (list, ()) = tokio::join!(listed(&lister, query), mover);
        assert_eq!(list, [id], "after {delay} ms");
    }
}

/// A lost key is named by the check, and is put again by a rebuild.
#[tokio::test(start_paused = true)]
async fn rebuild_puts_lost_keys_again() {
    let world = World::new(None);
    let store = world.open().await;
    let ids = [world.create(&store).await, world.create(&store).await, world.create(&store).await];
    world.change(&store, ids[0], |commit| commit.with_event(NewEvent::user_message("x"))).await;
    world.change(&store, ids[1], |commit| commit.with_trigger(Trigger::Archive)).await;
    assert_eq!(store.maintenance().check().await.unwrap(), []);
    let keys = world.keys();
    world.simulator.remove_object(&world.keys_of(ids[0])[0]);
    let faults = store.maintenance().check().await.unwrap();
    assert_eq!(faults.len(), 1, "{faults:?}");
    let (object, reason) = (&faults[0].object, &faults[0].reason);
    assert!(object.contains(&ids[0].to_string()) && reason.contains("is missing"), "{faults:?}");
    world.keys().iter().for_each(|key| world.simulator.remove_object(key));
    assert_eq!(listed(&store, SessionQuery::new()).await, []);
    assert_eq!(store.maintenance().check().await.unwrap().len(), 7);
    assert_eq!(store.maintenance().rebuild().await.unwrap().sessions, 3);
    assert_eq!(set(&listed(&store, SessionQuery::new()).await), set(&[ids[0], ids[2]]));
    assert_eq!(store.maintenance().check().await.unwrap(), []);
    let is_old = |key: &&String| key.contains(&ids[1].to_string()) && key.contains("/a/");
    assert_eq!((world.keys().len(), keys.iter().filter(is_old).count()), (keys.len() - 2, 2));
    // What is not in force is removed.
    tokio::time::sleep(Duration::from_secs(4000)).await;
    keys.iter().for_each(|key| world.simulator.put_object(key, Bytes::new()));
    assert_eq!(store.maintenance().rebuild().await.unwrap().sessions, 1);
    assert_eq!(world.keys().len(), keys.len() - 2);
}

/// The keys of a creation that was begun and never made are deleted by a list, after 7 days. If it comes after all, it
/// is refused.
#[tokio::test(start_paused = true)]
async fn an_orphan_of_a_creation_is_collected() {
    let world = World::new(None);
    let store = world.open().await;
    let creation = world.creation();
    let other = World::new(None);
    let there = other.open().await;
    there.commit(creation.clone()).await.unwrap();
    for key in other.keys() {
        world.simulator.put_object(&key, Bytes::new());
    }
    tokio::time::sleep(Duration::from_secs(6 * 24 * 3600)).await;
    assert_eq!(listed(&store, SessionQuery::new()).await, []);
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(world.keys().len(), 2, "it may still be made");
    assert_eq!(store.maintenance().check().await.unwrap(), []);
    tokio::time::sleep(Duration::from_secs(24 * 3600)).await;
    assert_eq!(store.maintenance().check().await.unwrap().len(), 1);
    for query in [SessionQuery::new(), SessionQuery::new().with_workspace(WorkspaceId::DEFAULT)] {
        assert_eq!(listed(&store, query).await, []);
    }
    tokio::time::sleep(Duration::from_secs(121)).await;
    assert_eq!(world.keys(), [""; 0]);
    assert_eq!(*store.commit(creation).await.unwrap_err().kind(), agent_core::ErrorKind::Deleted);
}

/// A creation that was cut off long ago, and is sent again while a list or a rebuild gives it up, is refused, or is in all
/// lists for good.
#[tokio::test(start_paused = true)]
async fn an_orphan_that_is_created_meanwhile_keeps_its_keys() {
    let (mut made, mut refused) = (0, 0);
    for delay in (0..240).step_by(4) {
        for rebuilds in [true, false] {
            let world = World::new(None);
            let (store, writer) = (world.open().await, world.open().await);
            let creation = world.creation();
            let other = World::new(None);
            other.open().await.commit(creation.clone()).await.unwrap();
            for key in other.keys() {
                world.simulator.put_object(&key, Bytes::new());
            }
            tokio::time::sleep(Duration::from_secs(8 * 24 * 3600)).await;
            world.simulator.set_plan(FaultPlan::healthy());
            let collects = async {
                match rebuilds {
                    true => drop(store.maintenance().rebuild().await.unwrap()),
                    false => drop(store.list(SessionQuery::new()).await.unwrap()),
                }
            };
            let creates = async {
                tokio::time::sleep(Duration::from_millis(delay)).await;
                writer.commit(creation.clone()).await.is_ok()
            };
            let ((), is_made) = tokio::join!(collects, creates);
            (made, refused) = (made + u64::from(is_made), refused + u64::from(!is_made));
            tokio::time::sleep(Duration::from_secs(300)).await;
            let expected = if is_made { vec![creation.session] } else { Vec::new() };
            assert_eq!(listed(&store, SessionQuery::new()).await, expected, "{delay} {rebuilds}");
            assert_eq!(store.maintenance().check().await.unwrap(), [], "{delay} {rebuilds}");
        }
    }
    assert!(made > 10 && refused > 10, "{made} {refused}");
}

/// A tenant that is deleted leaves no key in the work of all tenants, also of those that were not in force any more.
#[tokio::test(start_paused = true)]
async fn deleted_tenant_leaves_no_keys() {
    let world = World::new(None);
    let (store, other) = (world.open().await, world.open().await.for_tenant(&"other".parse().unwrap()));
    for store in [&store, &other] {
        let id = world.create(store).await;
        let timer = NewEvent::timer_scheduled(Timer::new("t", START.plus_micros(500 * 60_000_000)));
        world.change(store, id, |commit| commit.with_event(timer)).await;
        world.change(store, id, |commit| commit.with_event(NewEvent::user_message("hello"))).await;
    }
    let all = world.keys();
    let of_other = |key: &String| key.contains("/other/");
    assert!(all.iter().filter(|key| key.contains("/work/") && !of_other(key)).count() >= 2, "{all:#?}");
    store.delete_tenant(&TenantId::default()).await.unwrap();
    assert_eq!(world.keys(), all.into_iter().filter(of_other).collect::<Vec<_>>());
}

/// A damaged generation of one tenant does not hide the others: that tenant is listed, and its use names the damage.
#[tokio::test(start_paused = true)]
async fn damaged_generation_hides_no_other_tenant() {
    let world = World::new(None);
    let store = world.open().await;
    let [alpha, beta]: [TenantId; 2] = ["alpha", "beta"].map(|name| name.parse().unwrap());
    for tenant in [&alpha, &beta] {
        world.create(&store.for_tenant(tenant)).await;
    }
    world.simulator.put_object("agents/generations/beta", "garbage");
    let store = world.open().await;
    assert_eq!(store.tenants(None).await.unwrap().items, [alpha.clone(), beta.clone()]);
    assert_eq!(listed(&store.for_tenant(&alpha), SessionQuery::new()).await.len(), 1);
    let error = store.for_tenant(&beta).list(SessionQuery::new()).await.unwrap_err();
    assert_eq!(*error.kind(), agent_core::ErrorKind::Corrupt);
    assert!(error.to_string().contains("agents/generations/beta"), "{error}");
}

/// Tenants with work are found by one list request for all tenants, whatever the rest of them holds; what has more keys
/// takes a request for each 1,000, unless they are one tenant's.
#[tokio::test(start_paused = true)]
async fn busy_tenants_are_found_by_one_request() {
    let world = World::new(None);
    let store = world.open().await;
    let of = |n: usize| -> TenantId { format!("tenant-{n:04}").parse().unwrap() };
    let count = async |until: Timestamp, after: Option<TenantId>| {
        let before = world.simulator.requests();
        let busy = store.busy_tenants(until, after).await.unwrap();
        assert_eq!(busy.next, None);
        let counts = world.simulator.counts_since(before);
        assert_eq!(counts.list, counts.total());
        (busy.items, counts.list)
    };
    assert_eq!(count(START, None).await, (vec![], 1));
    for n in 0..1000 {
        world.create(&store.for_tenant(&of(n))).await;
    }
    assert_eq!(count(START, None).await, (vec![], 1));
    let minutes = |minutes: i64| START.plus_micros(minutes * 60_000_000);
    for (n, due) in [(7, Some(30)), (3, None), (500, Some(20)), (999, None)] {
        let tenant = store.for_tenant(&of(n));
        let id = world.create(&tenant).await;
        let event = match due {
            Some(due) => NewEvent::timer_scheduled(Timer::new("t", minutes(due))),
            None => NewEvent::user_message("hello"),
        };
        world.change(&tenant, id, |commit| commit.with_event(event)).await;
    }
    assert_eq!(count(START, None).await, ([3, 999].map(of).to_vec(), 1));
    assert_eq!(count(minutes(20), None).await, ([3, 500, 999].map(of).to_vec(), 1));
    assert_eq!(count(minutes(30), None).await, ([3, 7, 500, 999].map(of).to_vec(), 1));
    assert_eq!(count(minutes(30), Some(of(3))).await, ([7, 500, 999].map(of).to_vec(), 1));
    // Keys behind the client's back: 3,000 of one tenant, then one each of 1,500 others.
    let key =
        world.keys().into_iter().find(|key| key.contains("/work/") && key.contains("/tenant-0003/")).unwrap();
    let (front, back) = key.split_once("tenant-0003").unwrap();
    for n in 0..3000 {
        world
            .simulator
            .put_object(&format!("{front}tenant-0003{}{n:04}", &back[..back.len() - 4]), Bytes::new());
    }
    assert_eq!(count(minutes(30), None).await, ([3, 7, 500, 999].map(of).to_vec(), 2));
    for n in 1000..2500 {
        world.simulator.put_object(&format!("{front}tenant-{n:04}{back}"), Bytes::new());
    }
    let (busy, lists) = count(START, None).await;
    let expected = [3].into_iter().chain(999..2500).map(of).collect::<Vec<_>>();
    assert_eq!((busy.len(), lists), (expected.len(), 3));
    assert_eq!(busy, expected);
}

async fn cost_of_a_page(sessions: usize) -> Counts {
    let world = World::new(None);
    let store = world.open().await;
    for n in 0..sessions {
        let id = world.create(&store).await;
        if n % 7 == 0 {
            world.change(&store, id, |commit| commit.with_trigger(Trigger::Archive)).await;
        }
    }
    let cold = world.open().await;
    let before = world.simulator.requests();
    let page = cold.list(SessionQuery::new()).await.unwrap();
    assert_eq!(page.items.len(), 50);
    let counts = world.simulator.counts_since(before);
    // Nobody works: a look for work is one request more than that of the generation.
    let before = world.simulator.requests();
    cold.list(SessionQuery::new().with_states([SessionState::Running])).await.unwrap();
    assert_eq!(world.simulator.counts_since(before).total(), 2);
    counts
}

/// A page of 50 costs the same at any number of sessions: one list, and two requests for each that is not known. Those
/// that were archived just before are looked at, too.
#[tokio::test(start_paused = true)]
async fn a_page_costs_the_same_at_any_size() {
    for sessions in [100, 10_000] {
        let counts = cost_of_a_page(sessions).await;
        println!("{sessions} sessions: {counts}");
        assert!(counts.list <= 60 && counts.get <= 60 && counts.put == 0, "{counts} at {sessions}");
    }
}
