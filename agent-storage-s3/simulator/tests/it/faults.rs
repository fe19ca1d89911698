//! Effect of each fault on the plain client; a seed replays.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::support::{client, client_without_retries, create, name, path, update};
use agent_core::Timestamp;
use agent_core::clock::Clock;
use futures::TryStreamExt;
use object_store::{ObjectStore, ObjectStoreExt};
use s3_simulator::{Fault, FaultPlan, Op, Seeded, SimulatedClock, Simulator};

/// What the real client makes of each fault of a conditional PUT, with its own retries: whether the write landed
/// cannot be told from what it says.
#[tokio::test(start_paused = true)]
async fn client_errors_do_not_show_whether_a_put_landed() {
    // The fault of the first PUT; requests, what is stored in the end, what the caller sees.
    let of_create = [
        (Fault::ErrorAfter, 2, true, "AlreadyExists"),
        (Fault::TimeoutAfter, 1, true, "Generic"),
        (Fault::ResetAfter, 1, true, "Generic"),
        (Fault::Conflict, 1, false, "AlreadyExists"),
        (Fault::Duplicate, 1, true, "AlreadyExists"),
        (Fault::Refused, 2, true, "Ok"),
        (Fault::Busy, 2, true, "Ok"),
        (Fault::ErrorBefore, 2, true, "Ok"),
        (Fault::Throttled, 2, true, "Ok"),
        (Fault::TimeoutBefore, 1, false, "Generic"),
        (Fault::ResetBefore, 1, false, "Generic"),
        (Fault::Forbidden, 1, false, "PermissionDenied"),
        (Fault::Echo, 1, true, "Ok"),
    ];
    for (fault, requests, landed, seen) in of_create {
        let simulator = Simulator::new(3);
        simulator.next(Op::Create, fault);
        let put = client(&simulator).put_opts(&path("k"), "mine".into(), create()).await;
        let stored = simulator.object("k").is_some();
        assert_eq!((simulator.requests(), stored, name(&put)), (requests, landed, seen), "{fault} on create");
    }
    let of_update = [
        (Fault::ErrorAfter, 2, true, "Precondition"),
        (Fault::TimeoutAfter, 1, true, "Generic"),
        (Fault::ResetAfter, 1, true, "Generic"),
        (Fault::Conflict, 2, true, "Ok"),
        (Fault::Duplicate, 1, true, "Precondition"),
    ];
    for (fault, requests, landed, seen) in of_update {
        let simulator = Simulator::new(3);
        let store = client(&simulator);
        let etag = store.put(&path("k"), "old".into()).await.unwrap().e_tag.unwrap();
        simulator.next(Op::Update, fault);
        let put = store.put_opts(&path("k"), "mine".into(), update(&etag)).await;
        let stored = simulator.object("k").unwrap() == "mine";
        assert_eq!(
            (simulator.requests() - 1, stored, name(&put)),
            (requests, landed, seen),
            "{fault} on update"
        );
    }
}

/// A PUT that was given up lands within ten minutes, and takes a key that was free till then.
#[tokio::test(start_paused = true)]
async fn abandoned_put_can_land_later() {
    let mut delays = BTreeSet::new();
    let mut free = 0;
    for seed in 0..50 {
        let simulator = Simulator::new(seed);
        let store = client_without_retries(&simulator, "a");
        simulator.next(Op::Create, Fault::Late);
        assert_eq!(name(&store.put_opts(&path("k"), "late".into(), create()).await), "Generic");
        free += usize::from(simulator.object("k").is_none());
        tokio::time::sleep(Duration::from_secs(601)).await;
        assert_eq!(simulator.object("k").unwrap(), "late");
        assert_eq!(name(&store.put_opts(&path("k"), "mine".into(), create()).await), "AlreadyExists");
        let (landed, status) = simulator.entries()[0].done[0];
        assert_eq!(status, 200);
        delays.insert(landed.as_secs() / 100);
    }
    assert!(free >= 40, "mostly long after the client has given up: {free} of 50");
    assert!(delays.len() >= 5, "late by all sorts of times: {delays:?}");
}

/// A request that has left is carried out, whether or not the caller still waits.
#[tokio::test(start_paused = true)]
async fn dropped_request_is_still_carried_out() {
    let simulator = Simulator::new(3);
    simulator.set_plan(FaultPlan::healthy());
    let store = client_without_retries(&simulator, "a");
    let key = path("k");
    let put = store.put(&key, "one".into());
    assert!(tokio::time::timeout(Duration::from_millis(1), put).await.is_err());
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(simulator.object("k").unwrap(), "one");
    // One that is never answered has to be given up.
    simulator.next(Op::Put, Fault::Hang);
    let put = store.put(&key, "two".into());
    assert!(tokio::time::timeout(Duration::from_secs(3600), put).await.is_err());
    assert_eq!(simulator.object("k").unwrap(), "two");
}

#[tokio::test(start_paused = true)]
async fn bodies_are_cut_off_and_delayed() {
    let simulator = Simulator::new(3);
    let (once, retrying) = (client_without_retries(&simulator, "a"), client(&simulator));
    simulator.put_object("k", "0123456789");
    simulator.next(Op::Get, Fault::Truncated);
    assert_eq!(name(&once.get(&path("k")).await.unwrap().bytes().await), "Generic");
    simulator.next(Op::Get, Fault::Truncated);
    assert_eq!(retrying.get(&path("k")).await.unwrap().bytes().await.unwrap(), "0123456789");
    simulator.next(Op::Get, Fault::Drip);
    assert_eq!(once.get(&path("k")).await.unwrap().bytes().await.unwrap(), "0123456789");
    simulator.next(Op::List, Fault::Truncated);
    assert_eq!(name(&once.list(None).try_collect::<Vec<_>>().await), "Generic");
}

#[tokio::test(start_paused = true)]
async fn partitioned_client_reaches_nothing() {
    let simulator = Simulator::new(3);
    let (a, b) = (client_without_retries(&simulator, "a"), client_without_retries(&simulator, "b"));
    simulator.cut_off("a", true);
    assert_eq!(name(&a.put(&path("k"), "a".into()).await), "Generic");
    assert_eq!(name(&b.put(&path("k"), "b".into()).await), "Ok");
    simulator.cut_off("a", false);
    assert_eq!(name(&a.put(&path("k"), "a".into()).await), "Ok");
}

#[tokio::test(start_paused = true)]
async fn clocks_advance_and_disagree() {
    let start = Timestamp::from_micros(1_771_151_400_000_000);
    let (right, wrong) =
        (SimulatedClock::new(start), SimulatedClock::new(start).ahead(Duration::from_secs(90)));
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(right.now(), start.plus_micros(10_000_000));
    assert_eq!(wrong.now(), start.plus_micros(100_000_000));
    assert_eq!(
        SimulatedClock::new(start).behind(Duration::from_secs(1)).now(),
        start.plus_micros(-1_000_000)
    );
}

/// Three clients at work on a few keys while everything goes wrong.
async fn a_hostile_hour(seed: u64) -> Simulator {
    let simulator = Simulator::new(seed);
    simulator.set_plan(FaultPlan::hostile(400));
    let clients = ["a", "b", "c"].map(|name| client_without_retries(&simulator, name));
    let tasks = clients.into_iter().enumerate().map(|(n, store)| {
        tokio::spawn(async move {
            let mut seeded = Seeded::new(seed ^ (n as u64) << 32);
            for step in 0..60 {
                let key = path(&format!("k/{}", seeded.below(4)));
                let body = format!("{n} {step}");
                let wait = Duration::from_secs(40);
                let request = async {
                    match seeded.below(5) {
                        0 => drop(store.put_opts(&key, body.into(), create()).await),
                        1 => drop(store.put(&key, body.into()).await),
                        2 => drop(store.list(None).try_collect::<Vec<_>>().await),
                        3 => drop(store.delete(&key).await),
                        _ => {
                            if let Ok(got) = store.get(&key).await {
                                let etag = got.meta.e_tag.clone().unwrap_or_default();
                                drop(got.bytes().await);
                                drop(store.put_opts(&key, body.into(), update(&etag)).await);
                            }
                        }
                    }
                };
                drop(tokio::time::timeout(wait, request).await);
            }
        })
    });
    futures::future::join_all(tasks).await;
    tokio::time::sleep(Duration::from_secs(700)).await;
    simulator
}

/// Two runs of one seed are equal to the byte, those of another are not; and every fault strikes.
#[test]
fn seed_replays_the_same_events() {
    let run = |seed| {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(a_hostile_hour(seed))
    };
    let mut fired = BTreeSet::new();
    let mut traces = BTreeSet::new();
    for seed in 0..20 {
        let (first, second) = (run(seed), run(seed));
        assert_eq!(first.trace(), second.trace(), "seed {seed}");
        assert_eq!(first.keys(), second.keys(), "seed {seed}");
        fired.extend(first.fired().into_keys());
        traces.insert(first.trace());
    }
    assert_eq!(traces.len(), 20);
    assert_eq!(fired, BTreeSet::from(Fault::ALL));
}
