//! Bindings are objects that are replaced: a write in doubt must neither count twice nor land after it was refused.

use std::time::Duration;

use agent_core::{BindingStore, DeviceId, Effects, ErrorKind, Expect, Timestamp, WorkspaceId, WriteOutcome};
use agent_storage_s3::{Planted, S3Store};
use s3_simulator::{Fault, Op, Simulator};

use crate::backend::config;

/// A binding goes from one to two and back while a third's change from one is late: that was refused, so it must not
/// happen. What is bound in the end.
async fn a_late_change(seed: u64, planted: Option<Planted>) -> (WorkspaceId, WorkspaceId) {
    let simulator = Simulator::new(seed);
    let store = async |n: u64| -> S3Store {
        let effects = Effects::seeded(seed * 10 + n, Timestamp::UNIX_EPOCH);
        let mut config = config(&simulator, ["a", "b"][n as usize]).with_effects(effects);
        if let Some(planted) = planted {
            config = config.with_planted(planted);
        }
        config.open().await.unwrap()
    };
    let (a, b) = (store(0).await, store(1).await);
    let effects = Effects::seeded(seed, Timestamp::UNIX_EPOCH);
    let [one, two, three] = [(); 3].map(|()| effects.new_workspace_id());
    let device: DeviceId = "laptop".parse().unwrap();
    a.bind(&device, one, Expect::Absent).await.unwrap();
    simulator.next(Op::Update, Fault::Late);
    let late = tokio::spawn({
        let (a, device) = (a.clone(), device.clone());
        async move { a.bind(&device, three, Expect::Is(one)).await }
    });
    // The request has left; another is faster than the second attempt.
    tokio::task::yield_now().await;
    while simulator.entries().iter().all(|entry| entry.fault.is_none()) {
        tokio::task::yield_now().await;
    }
    b.bind(&device, two, Expect::Is(one)).await.unwrap();
    let refused = late.await.unwrap().unwrap_err();
    assert!(matches!(refused.kind(), ErrorKind::Conflict { .. }), "{refused:?}");
    assert_eq!(refused.write_outcome(), WriteOutcome::NotApplied);
    b.bind(&device, one, Expect::Is(two)).await.unwrap();
    tokio::time::sleep(Duration::from_secs(700)).await;
    (b.resolve(&device).await.unwrap().unwrap(), one)
}

/// O02, X02: a change of a binding that was refused never happens, however late its request lands, though the binding is
/// by then what it was.
#[tokio::test(start_paused = true)]
async fn o02_x02_a_refused_change_never_lands() {
    for seed in 0..20 {
        let (now, expected) = a_late_change(seed, None).await;
        assert_eq!(now, expected, "seed {seed}");
    }
}

/// X04, T18: where equal objects are equal byte for byte, it does.
#[tokio::test(start_paused = true)]
async fn x04_equal_bodies_are_noticed() {
    let mut landed = 0;
    for seed in 0..20 {
        let (now, expected) = a_late_change(seed, Some(Planted::EqualBodies)).await;
        landed += u32::from(now != expected);
    }
    assert!(landed > 0, "equal bodies go unnoticed");
}
