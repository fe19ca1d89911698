//! Index of workspaces by last access: what lists show while workspaces are used, deleted, cut off, and their keys lost.

use std::time::Duration;

use agent_core::clock::Effects;
use agent_core::commit::Precondition;
use agent_core::model::{Workspace, WorkspaceStatus};
use agent_core::store::WorkspaceQuery;
use agent_core::{ErrorKind, SessionStore, Timestamp, WorkspaceId, WorkspaceStore, WorkspaceStoreExt};
use agent_storage_s3::S3Store;
use s3_simulator::{Fault, FaultPlan, Op, Quirks, SimulatedClock, Simulator};

use crate::backend::config;

/// The simulated server's clock starts at this time.
const START: Timestamp = Timestamp::from_micros(20_500 * 86_400_000_000);

async fn open(simulator: &Simulator, seed: u64) -> S3Store {
    let clock = std::sync::Arc::new(SimulatedClock::new(START));
    let effects = Effects::seeded(seed, START).with_clock(clock);
    config(simulator, "handle").with_effects(effects).open().await.unwrap()
}

fn minutes(minutes: i64) -> Timestamp {
    START.plus_micros(minutes * 60_000_000)
}

/// A workspace that was last used at a minute.
fn workspace(effects: &Effects, minute: i64) -> Workspace {
    Workspace::new(effects.new_workspace_id(), "name", effects.new_session_id(), minutes(minute))
}

/// Keys of the index of workspaces, without the folder.
fn keys(simulator: &Simulator) -> Vec<String> {
    let keys = simulator.keys().into_iter();
    keys.filter_map(|key| key.split_once("/idx/ws/n/").map(|(_, rest)| rest.to_owned())).collect()
}

/// Workspaces that pages of this size show.
async fn paged(store: &S3Store, limit: usize) -> Vec<Workspace> {
    let (mut all, mut query) = (Vec::new(), WorkspaceQuery::new().with_limit(limit));
    loop {
        let page = WorkspaceStore::list(store, query.clone()).await.unwrap();
        assert_eq!(page.damaged, []);
        all.extend(page.items);
        if page.next.is_none() {
            return all;
        }
        query = query.with_cursor(page.next);
    }
}

async fn listed(store: &S3Store) -> Vec<WorkspaceId> {
    paged(store, 50).await.into_iter().map(|workspace| workspace.id).collect()
}

/// A key stays for less than 15 minutes of use, at any number of writes, and the list is in order all the while.
#[tokio::test(start_paused = true)]
async fn keys_stay_for_15_minutes() {
    let simulator = Simulator::new(1);
    let (store, effects) = (open(&simulator, 1).await, Effects::seeded(7, START));
    let (one, two) = (workspace(&effects, 0), workspace(&effects, 1));
    for new in [&one, &two] {
        store.create(new.clone()).await.unwrap();
    }
    let before = keys(&simulator);
    assert_eq!(before.len(), 2);
    assert_eq!(listed(&store).await, [two.id, one.id]);
    store.save_config(one.id, Some("a = 1".to_owned()), Precondition::MustNotExist).await.unwrap();
    store.touch(one.id, minutes(14)).await.unwrap();
    assert_eq!(keys(&simulator), before, "the key stays");
    // Within a page the order is exact.
    assert_eq!(listed(&store).await, [one.id, two.id]);
    store.touch(one.id, minutes(15)).await.unwrap();
    assert_eq!(keys(&simulator).len(), 3);
    assert_eq!(paged(&store, 1).await.iter().map(|one| one.id).collect::<Vec<_>>(), [one.id, two.id]);
    tokio::time::sleep(Duration::from_secs(200)).await;
    assert_eq!(keys(&simulator).len(), 2, "the former one is deleted");
    assert_eq!(store.maintenance().check().await.unwrap(), []);
    WorkspaceStore::delete(&store, one.id).await.unwrap();
    let mut deleting = WorkspaceStore::load(&store, two.id).await.unwrap();
    deleting.status = WorkspaceStatus::Deleting;
    store.update(deleting).await.unwrap();
    assert_eq!(listed(&store).await, []);
    let all = WorkspaceQuery::new().with_deleting().with_total();
    let page = WorkspaceStore::list(&store, all).await.unwrap();
    assert_eq!((page.total, page.items.len(), page.items[0].id), (Some(1), 1, two.id));
    tokio::time::sleep(Duration::from_secs(200)).await;
    assert_eq!(keys(&simulator).len(), 1);
    assert_eq!(store.maintenance().check().await.unwrap(), []);
}

/// However a creation or a use of a workspace is cut off, the list shows it exactly if it is there, and a rebuild leaves
/// no key but that in force. A creation that was given up can be made again.
#[tokio::test(start_paused = true)]
async fn list_agrees_with_loads_after_any_cut() {
    let (mut made, mut cut, mut pending, mut never) = (0, 0, 0, 0);
    for is_first in [true, false] {
        for requests in 0..8 {
            let (simulator, effects) = (Simulator::new(requests as u64), Effects::seeded(7, START));
            let store = open(&simulator, 1).await;
            let new = workspace(&effects, 0);
            if !is_first {
                store.create(new.clone()).await.unwrap();
            }
            simulator.set_plan(FaultPlan::healthy());
            let before = simulator.requests();
            let stop = async {
                while simulator.requests() < before + requests {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            };
            let write = async {
                match is_first {
                    true => drop(store.create(new.clone()).await.unwrap()),
                    false => store.touch(new.id, minutes(60)).await.unwrap(),
                }
            };
            tokio::select! {
                biased;
                () = stop => cut += 1,
                () = write => {},
            }
            simulator.set_plan(FaultPlan::quiet());
            tokio::time::sleep(Duration::from_secs(700)).await;
            let fresh = open(&simulator, 2).await;
            let now = WorkspaceStore::load(&fresh, new.id).await.ok();
            made += usize::from(now.as_ref().is_some_and(|now| is_first || now.last_accessed == minutes(60)));
            assert_eq!(paged(&fresh, 1).await, now.iter().cloned().collect::<Vec<_>>(), "{requests}");
            assert_eq!(fresh.maintenance().check().await.unwrap(), []);
            pending += usize::from(keys(&simulator).len() > usize::from(now.is_some()));
            tokio::time::sleep(Duration::from_secs(8 * 24 * 3600)).await;
            fresh.maintenance().rebuild().await.unwrap();
            tokio::time::sleep(Duration::from_secs(200)).await;
            assert_eq!(keys(&simulator).len(), usize::from(now.is_some()), "{requests}");
            assert_eq!(WorkspaceStore::load(&fresh, new.id).await.ok(), now);
            assert_eq!(fresh.maintenance().check().await.unwrap(), []);
            if now.is_none() {
                never += 1;
                let error = WorkspaceStore::load(&fresh, new.id).await.unwrap_err();
                assert_eq!(*error.kind(), ErrorKind::NotFound);
                fresh.create(new.clone()).await.unwrap();
            }
            fresh.touch(new.id, minutes(100)).await.unwrap();
            assert_eq!(listed(&fresh).await, [new.id]);
        }
    }
    assert!(made > 3 && cut > 3 && pending > 1 && never > 1, "{made} {cut} {pending} {never}");
}

/// Two stores use and configure one workspace at once: only the key in force is left, and the list shows the workspace.
#[tokio::test(start_paused = true)]
async fn racing_uses_leave_one_key() {
    for seed in 0..40 {
        let (simulator, effects) = (Simulator::new(seed), Effects::seeded(7, START));
        let (a, b) = (open(&simulator, 1).await, open(&simulator, 2).await);
        let new = workspace(&effects, 0);
        a.create(new.clone()).await.unwrap();
        simulator.set_plan(FaultPlan::healthy());
        let using = async |store: &S3Store, gap: i64| {
            for n in 1..4 {
                store.touch(new.id, minutes(n * gap)).await.unwrap();
                let found = WorkspaceStore::load(store, new.id).await.unwrap();
                let _ = store.update(found.with_name("other")).await;
            }
        };
        tokio::join!(using(&a, 14), using(&b, 20));
        simulator.set_plan(FaultPlan::quiet());
        let now = WorkspaceStore::load(&a, new.id).await.unwrap();
        assert_eq!(now.last_accessed, minutes(60), "seed {seed}");
        assert_eq!(paged(&b, 1).await, [now], "seed {seed}");
        assert_eq!(a.maintenance().check().await.unwrap(), [], "seed {seed}");
        tokio::time::sleep(Duration::from_secs(200)).await;
        assert_eq!(keys(&simulator).len(), 1, "seed {seed}");
        assert_eq!(a.maintenance().check().await.unwrap(), [], "seed {seed}");
    }
}

/// The key of a use that is still on its way stays, however often the list is read meanwhile.
#[tokio::test(start_paused = true)]
async fn late_use_finds_its_key() {
    let mut landed = 0;
    for seed in 0..20 {
        let (simulator, effects) = (Simulator::new(seed), Effects::seeded(7, START));
        let (a, b) = (open(&simulator, 1).await, open(&simulator, 2).await);
        let new = workspace(&effects, 0);
        a.create(new.clone()).await.unwrap();
        simulator.next(Op::Update, Fault::Late);
        let using = async {
            let _ = a.touch(new.id, minutes(60)).await;
        };
        let killed = async {
            while simulator.entries().iter().all(|entry| entry.fault.is_none()) {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! { () = using => {}, () = killed => {} }
        for _ in 0..200 {
            let now = WorkspaceStore::load(&b, new.id).await.unwrap();
            assert_eq!(paged(&b, 1).await, [now], "seed {seed}");
            tokio::time::sleep(Duration::from_secs(4)).await;
        }
        let now = WorkspaceStore::load(&b, new.id).await.unwrap();
        landed += usize::from(now.last_accessed == minutes(60));
        assert_eq!(b.maintenance().check().await.unwrap(), [], "seed {seed}");
    }
    assert!(landed > 3, "{landed}");
}

/// A lost key hides a workspace from the list until a rebuild puts it again; `check` names it.
#[tokio::test(start_paused = true)]
async fn lost_keys_of_workspaces_are_put_again() {
    let (simulator, effects) = (Simulator::new(3), Effects::seeded(7, START));
    let store = open(&simulator, 1).await;
    let ids = [0, 1].map(|minute| workspace(&effects, minute));
    for new in &ids {
        store.create(new.clone()).await.unwrap();
    }
    store.touch(ids[0].id, minutes(14)).await.unwrap();
    let mut keys = simulator.keys().into_iter().filter(|key| key.contains("/idx/ws/"));
    simulator.remove_object(&keys.next_back().unwrap());
    assert_eq!(listed(&store).await, [ids[1].id]);
    let [fault] = &store.maintenance().check().await.unwrap()[..] else { panic!("one fault") };
    let text = fault.to_string();
    assert!(text.contains(&ids[0].id.to_string()) && text.contains("run `rebuild`"), "{fault}");
    store.maintenance().rebuild().await.unwrap();
    assert_eq!(listed(&store).await, [ids[0].id, ids[1].id]);
    assert_eq!(store.maintenance().check().await.unwrap(), []);
}

/// A workspace that is used while a list reads page after page of the server is shown, also if its old key is deleted at
/// once.
#[tokio::test(start_paused = true)]
async fn a_workspace_that_moves_is_not_left_out() {
    let mut moved = 0;
    for seed in 0..20_u64 {
        let quirks = Quirks { page_limit: Some(3), ..Quirks::default() };
        let (simulator, effects) = (Simulator::new(seed).with_quirks(quirks), Effects::seeded(7, START));
        let store = open(&simulator, 1).await;
        let mut ids = Vec::new();
        for n in 0..12 {
            ids.push(store.create(workspace(&effects, 2 * n)).await.unwrap().id);
        }
        let lister = open(&simulator, 2).await;
        simulator.set_plan(FaultPlan::healthy());
        let mover = async {
            tokio::time::sleep(Duration::from_millis(seed * 7)).await;
            for id in ids.iter().take(3) {
                let is_its = |key: &String| key.contains("/idx/ws/") && key.contains(&id.to_string());
                let old: Vec<_> = simulator.keys().into_iter().filter(is_its).collect();
                store.touch(*id, minutes(120)).await.unwrap();
                old.iter().for_each(|key| simulator.remove_object(key));
                moved += 1;
            }
        };
        let (mut list, ()) = tokio::join!(listed(&lister), mover);
        list.sort();
        let mut expected = ids.clone();
        expected.sort();
        assert_eq!(list, expected, "seed {seed}");
    }
    assert!(moved > 30);
}

/// Damage to a workspace that was deleted, and that no list shows, is found by the check.
#[tokio::test(start_paused = true)]
async fn check_finds_damage_that_no_list_shows() {
    let (simulator, effects) = (Simulator::new(3), Effects::seeded(7, START));
    let store = open(&simulator, 1).await;
    let new = store.create(workspace(&effects, 0)).await.unwrap();
    WorkspaceStore::delete(&store, new.id).await.unwrap();
    tokio::time::sleep(Duration::from_secs(200)).await;
    let key = simulator.keys().into_iter().find(|key| key.contains("/workspaces/")).unwrap();
    let object = simulator.object(&key).unwrap();
    simulator.put_object(&key, object.slice(..object.len() / 2));
    assert_eq!(listed(&store).await, []);
    let [fault] = &store.maintenance().check().await.unwrap()[..] else { panic!("one fault") };
    assert!(fault.to_string().contains(&new.id.to_string()), "{fault}");
}
