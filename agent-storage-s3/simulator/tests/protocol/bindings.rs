//! Bindings are objects that are replaced: a write in doubt must neither count twice nor land after it was refused.

use std::time::Duration;

use agent_core::clock::Effects;
use agent_core::commit::Precondition;
use agent_core::{BindingStore, DeviceId, ErrorKind, Timestamp, WorkspaceId, WriteOutcome};
use agent_storage_s3::S3Store;
use s3_simulator::{Fault, Op, Simulator};

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
