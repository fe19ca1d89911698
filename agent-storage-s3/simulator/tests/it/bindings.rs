//! Bindings are objects that are replaced: a write in doubt must neither count twice nor land after it was refused.

use std::time::Duration;

use agent_core::clock::Effects;
use agent_core::commit::Precondition;
use agent_core::store::BindingQuery;
use agent_core::{BindingStore, DeviceId, ErrorKind, SessionStore, Timestamp, WorkspaceId, WriteOutcome};
use agent_storage_s3::S3Store;
use s3_simulator::{Fault, FaultPlan, Op, Quirks, SimulatedClock, Simulator};

use crate::backend::config;

/// A binding goes from one to two and back while a third's change from one is late: that was refused, so it must not
/// happen. What is bound in the end.
async fn a_late_change(seed: u64) -> (WorkspaceId, WorkspaceId) {
    let simulator = Simulator::new(seed);
    let store = async |n: u64| -> S3Store {
        let effects = Effects::seeded(seed * 10 + n, Timestamp::UNIX_EPOCH);
        config(&simulator, ["a", "b"][n as usize]).with_effects(effects).open().await.unwrap()
    };
    let (a, b) = (store(0).await, store(1).await);
    let effects = Effects::seeded(seed, Timestamp::UNIX_EPOCH);
    let [one, two, three] = [(); 3].map(|()| effects.new_workspace_id());
    let device: DeviceId = "laptop".parse().unwrap();
    a.bind(&device, one, Precondition::MustNotExist).await.unwrap();
    simulator.next(Op::Update, Fault::Late);
    let late = tokio::spawn({
        let (a, device) = (a.clone(), device.clone());
        async move { a.bind(&device, three, Precondition::Matches(one)).await }
    });
    // The request has left; another is faster than the second attempt.
    tokio::task::yield_now().await;
    while simulator.entries().iter().all(|entry| entry.fault.is_none()) {
        tokio::task::yield_now().await;
    }
    b.bind(&device, two, Precondition::Matches(one)).await.unwrap();
    let refused = late.await.unwrap().unwrap_err();
    assert!(matches!(refused.kind(), ErrorKind::Conflict { .. }), "{refused:?}");
    assert_eq!(refused.write_outcome(), WriteOutcome::NotApplied);
    b.bind(&device, one, Precondition::Matches(two)).await.unwrap();
    tokio::time::sleep(Duration::from_secs(700)).await;
    (b.resolve(&device).await.unwrap().unwrap(), one)
}

/// A change of a binding that was refused never happens, however late its request lands, though the binding is
/// by then what it was.
#[tokio::test(start_paused = true)]
async fn a_refused_change_never_lands() {
    for seed in 0..20 {
        let (now, expected) = a_late_change(seed).await;
        assert_eq!(now, expected, "seed {seed}");
    }
}

/// Two stores on one bucket, which give each operation so long, and four devices that are bound to a workspace.
async fn four_bound(
    simulator: &Simulator,
    seed: u64,
    deadline: Duration,
) -> ([S3Store; 2], Effects, WorkspaceId, Vec<DeviceId>) {
    let mut stores = Vec::new();
    for (n, client) in (0..).zip(["a", "b"]) {
        let effects = Effects::seeded(seed * 10 + n, Timestamp::UNIX_EPOCH);
        let config = config(simulator, client).with_effects(effects);
        stores.push(config.with_deadline(deadline).open().await.unwrap());
    }
    let effects = Effects::seeded(seed, Timestamp::UNIX_EPOCH);
    let workspace = effects.new_workspace_id();
    let devices: Vec<DeviceId> = (0..4).map(|n| format!("device {n}").parse().unwrap()).collect();
    for device in &devices {
        stores[0].bind(device, workspace, Precondition::MustNotExist).await.unwrap();
    }
    (stores.try_into().unwrap(), effects, workspace, devices)
}

/// A request of `unbind_workspace` that lands minutes late erases no binding that was made meanwhile.
#[tokio::test(start_paused = true)]
async fn late_unbind_erases_no_newer_bind() {
    for seed in 0..20 {
        let simulator = Simulator::new(seed);
        let long = Duration::from_secs(60);
        let ([a, b], effects, old, devices) = four_bound(&simulator, seed, long).await;
        let new = effects.new_workspace_id();
        simulator.next(Op::Update, Fault::Late);
        let unbinding = tokio::spawn(async move { a.unbind_workspace(old).await });
        while simulator.entries().iter().all(|entry| entry.fault.is_none()) {
            tokio::task::yield_now().await;
        }
        for device in &devices {
            b.bind(device, new, Precondition::None).await.unwrap();
        }
        unbinding.await.unwrap().unwrap();
        tokio::time::sleep(Duration::from_secs(700)).await;
        for device in &devices {
            assert_eq!(b.resolve(device).await.unwrap(), Some(new), "seed {seed}");
        }
    }
}

/// An `unbind_workspace` that fails in the middle says that some may be unbound; none is bound to anything
/// else, and the same again unbinds the rest.
#[tokio::test(start_paused = true)]
async fn partial_unbind_is_finished_by_a_retry() {
    let mut halves = 0;
    for seed in 0..20 {
        let simulator = Simulator::new(seed);
        let short = Duration::from_secs(4);
        let ([a, b], effects, workspace, devices) = four_bound(&simulator, seed, short).await;
        let (other, elsewhere): (DeviceId, _) = ("other".parse().unwrap(), effects.new_workspace_id());
        b.bind(&other, elsewhere, Precondition::MustNotExist).await.unwrap();
        // One of the four gets no answer in its time.
        simulator.next(Op::Update, Fault::TimeoutBefore);
        let cut = async {
            while simulator.entries().iter().all(|entry| entry.fault.is_none()) {
                tokio::task::yield_now().await;
            }
            simulator.cut_off("a", true);
        };
        let (unbound, ()) = tokio::join!(a.unbind_workspace(workspace), cut);
        let error = unbound.unwrap_err();
        assert_eq!(error.write_outcome(), WriteOutcome::Unknown, "seed {seed}: {error:?}");
        let mut left = 0;
        for device in &devices {
            let bound = b.resolve(device).await.unwrap();
            assert!(bound.is_none() || bound == Some(workspace), "seed {seed}: {bound:?}");
            left += u64::from(bound.is_some());
        }
        halves += u64::from(left > 0 && left < 4);
        simulator.cut_off("a", false);
        assert_eq!(a.unbind_workspace(workspace).await.unwrap(), left, "seed {seed}");
        for device in &devices {
            assert_eq!(b.resolve(device).await.unwrap(), None, "seed {seed}");
        }
        assert_eq!(b.resolve(&other).await.unwrap(), Some(elsewhere), "seed {seed}");
    }
    assert!(halves > 0, "none failed in the middle");
}

/// Keys of the index of devices, without the folder.
fn bound_keys(simulator: &Simulator) -> Vec<String> {
    let keys = simulator.keys().into_iter();
    keys.filter_map(|key| key.split_once("/idx/bound/").map(|(_, rest)| rest.to_owned())).collect()
}

/// Devices that a list of a workspace shows.
async fn bound_to(store: &S3Store, workspace: WorkspaceId) -> Vec<DeviceId> {
    let page = BindingStore::list(store, BindingQuery::new().with_workspace(workspace)).await.unwrap();
    assert_eq!(page.damaged, []);
    page.items.into_iter().map(|binding| binding.device).collect()
}

/// The simulated server's clock starts at this time.
const START: Timestamp = Timestamp::from_micros(20_500 * 86_400_000_000);

async fn open(simulator: &Simulator, seed: u64) -> S3Store {
    let clock = std::sync::Arc::new(SimulatedClock::new(START));
    let effects = Effects::seeded(seed, START).with_clock(clock);
    config(simulator, "handle").with_effects(effects).open().await.unwrap()
}

/// However a change of a binding is cut off, the lists of both workspaces say what `resolve` says, and a rebuild leaves no
/// key but that in force.
#[tokio::test(start_paused = true)]
async fn lists_of_devices_agree_with_resolves_after_any_cut() {
    let effects = Effects::seeded(7, START);
    let [one, two] = [(); 2].map(|()| effects.new_workspace_id());
    let device: DeviceId = "laptop".parse().unwrap();
    let (mut made, mut cut, mut pending) = (0, 0, 0);
    for is_first in [true, false] {
        for requests in 0..8 {
            let simulator = Simulator::new(requests as u64);
            let store = open(&simulator, 1).await;
            if !is_first {
                store.bind(&device, one, Precondition::MustNotExist).await.unwrap();
            }
            simulator.set_plan(FaultPlan::healthy());
            let before = simulator.requests();
            let stop = async {
                while simulator.requests() < before + requests {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            };
            tokio::select! {
                biased;
                () = stop => cut += 1,
                done = store.bind(&device, two, Precondition::None) => drop(done.unwrap()),
            }
            simulator.set_plan(FaultPlan::quiet());
            tokio::time::sleep(Duration::from_secs(700)).await;
            let fresh = open(&simulator, 2).await;
            let bound = fresh.resolve(&device).await.unwrap();
            made += usize::from(bound == Some(two));
            for workspace in [one, two] {
                let expected = if bound == Some(workspace) { vec![device.clone()] } else { Vec::new() };
                assert_eq!(bound_to(&fresh, workspace).await, expected, "{requests}");
            }
            assert_eq!(fresh.maintenance().check().await.unwrap(), []);
            pending += usize::from(bound_keys(&simulator).len() > usize::from(bound.is_some()));
            tokio::time::sleep(Duration::from_secs(8 * 24 * 3600)).await;
            fresh.maintenance().rebuild().await.unwrap();
            tokio::time::sleep(Duration::from_secs(200)).await;
            assert_eq!(bound_keys(&simulator).len(), usize::from(bound.is_some()), "{requests}");
            assert_eq!(fresh.resolve(&device).await.unwrap(), bound);
            assert_eq!(fresh.maintenance().check().await.unwrap(), []);
            // The device can be bound as before.
            fresh.bind(&device, one, Precondition::None).await.unwrap();
            assert_eq!(bound_to(&fresh, one).await, std::slice::from_ref(&device));
        }
    }
    assert!(made > 3 && cut > 3 && pending > 1, "{made} {cut} {pending}");
}

/// A lost key hides a device from the list of its workspace until a rebuild puts it again; `check` names it.
#[tokio::test(start_paused = true)]
async fn lost_keys_of_devices_are_put_again() {
    let simulator = Simulator::new(3);
    let store = open(&simulator, 1).await;
    let workspace = Effects::seeded(7, START).new_workspace_id();
    let devices = ["laptop", "phone"].map(|device| device.parse::<DeviceId>().unwrap());
    for device in &devices {
        store.bind(device, workspace, Precondition::MustNotExist).await.unwrap();
    }
    let mut keys = simulator.keys().into_iter().filter(|key| key.contains("/idx/bound/"));
    simulator.remove_object(&keys.next().unwrap());
    assert_eq!(bound_to(&store, workspace).await.len(), 1);
    let [fault] = &store.maintenance().check().await.unwrap()[..] else { panic!("one fault") };
    assert!(fault.to_string().contains("run `rebuild`"), "{fault}");
    store.maintenance().rebuild().await.unwrap();
    assert_eq!(bound_to(&store, workspace).await.len(), 2);
    assert_eq!(store.maintenance().check().await.unwrap(), []);
}

/// Keys of a device that moves are deleted later, and lists show it once meanwhile, also where a page of the server holds few
/// keys.
#[tokio::test(start_paused = true)]
async fn superseded_keys_of_devices_are_deleted() {
    let simulator = Simulator::new(3).with_quirks(Quirks { page_limit: Some(1), ..Quirks::default() });
    let store = open(&simulator, 1).await;
    let effects = Effects::seeded(7, START);
    let [one, two] = [(); 2].map(|()| effects.new_workspace_id());
    let device: DeviceId = "laptop".parse().unwrap();
    for to in [one, two, one, two, one] {
        store.bind(&device, to, Precondition::None).await.unwrap();
    }
    assert_eq!(bound_keys(&simulator).len(), 5);
    assert_eq!(bound_to(&store, one).await, std::slice::from_ref(&device));
    assert_eq!(bound_to(&store, two).await, []);
    tokio::time::sleep(Duration::from_secs(200)).await;
    assert_eq!(bound_keys(&simulator).len(), 1);
    assert_eq!(store.unbind_workspace(two).await.unwrap(), 0);
    assert_eq!(store.unbind_workspace(one).await.unwrap(), 1);
    assert_eq!(bound_to(&store, one).await, []);
}

/// Two stores bind one device to different workspaces at once: each list says what `resolve` says, and only the key in force
/// is left.
#[tokio::test(start_paused = true)]
async fn racing_binds_leave_one_key() {
    for seed in 0..40 {
        let simulator = Simulator::new(seed);
        let (a, b) = (open(&simulator, 1).await, open(&simulator, 2).await);
        let effects = Effects::seeded(7, START);
        let [one, two] = [(); 2].map(|()| effects.new_workspace_id());
        let device: DeviceId = "laptop".parse().unwrap();
        simulator.set_plan(FaultPlan::healthy());
        let bind = async |store: &S3Store, to| {
            for _ in 0..3 {
                store.bind(&device, to, Precondition::None).await.unwrap();
            }
        };
        tokio::join!(bind(&a, one), bind(&b, two));
        simulator.set_plan(FaultPlan::quiet());
        let bound = a.resolve(&device).await.unwrap().unwrap();
        let other = if bound == one { two } else { one };
        assert_eq!(bound_to(&b, bound).await, std::slice::from_ref(&device), "seed {seed}");
        assert_eq!(bound_to(&b, other).await, [], "seed {seed}");
        assert_eq!(a.maintenance().check().await.unwrap(), [], "seed {seed}");
        tokio::time::sleep(Duration::from_secs(200)).await;
        assert_eq!(bound_keys(&simulator).len(), 1, "seed {seed}");
        assert_eq!(a.maintenance().check().await.unwrap(), [], "seed {seed}");
    }
}

/// The key of a write that is still on its way stays, however often the list of its workspace is read meanwhile.
#[tokio::test(start_paused = true)]
async fn late_write_finds_its_key() {
    let mut landed = 0;
    for seed in 0..20 {
        let simulator = Simulator::new(seed);
        let (a, b) =
            (config(&simulator, "a").open().await.unwrap(), config(&simulator, "b").open().await.unwrap());
        let effects = Effects::seeded(7, START);
        let [one, two] = [(); 2].map(|()| effects.new_workspace_id());
        let device: DeviceId = "laptop".parse().unwrap();
        a.bind(&device, one, Precondition::MustNotExist).await.unwrap();
        simulator.next(Op::Update, Fault::Late);
        let binding = async {
            let _ = a.bind(&device, two, Precondition::None).await;
        };
        let killed = async {
            while simulator.entries().iter().all(|entry| entry.fault.is_none()) {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! { () = binding => {}, () = killed => {} }
        for _ in 0..200 {
            let bound = b.resolve(&device).await.unwrap();
            let expected = if bound == Some(two) { vec![device.clone()] } else { Vec::new() };
            assert_eq!(bound_to(&b, two).await, expected, "seed {seed}");
            tokio::time::sleep(Duration::from_secs(4)).await;
        }
        landed += usize::from(b.resolve(&device).await.unwrap() == Some(two));
        assert_eq!(b.maintenance().check().await.unwrap(), [], "seed {seed}");
    }
    assert!(landed > 3, "{landed}");
}
