//! Blobs in a bucket, checked in all interleavings before they were written. The model has a session, two writers that
//! put the same bytes, a collector of what no event names, a purge, a fork, lost requests and answers, a PUT and a
//! DELETE that land at any time, and heads cached for any time. `docs/decisions/0037` records what was settled with it.
#![allow(clippy::print_stdout, reason = "how much was tried is part of the result")]

mod model;

use model::{Blobs, Course, Fault};
use stateright::{Checker, HasDiscoveries, Model};

fn check(course: Course, lost: u8, at_least: usize) {
    let checker = Blobs { course, fault: Fault::None, lost }.checker().threads(2).spawn_bfs().join();
    let (steps, states) = (checker.state_count(), checker.unique_state_count());
    println!("{course:?}, {lost} lost: {steps} steps, {states} different states");
    checker.assert_properties();
    // A smaller space would mean that something is no longer explored.
    assert!(states >= at_least, "{course:?}: {states} states");
}

/// In every interleaving the blobs of acknowledged commits are there, and all that no event names can be collected.
#[test]
fn every_interleaving_keeps_the_blobs() {
    for (course, at_least) in Course::ALL {
        check(*course, 1, *at_least);
    }
}

/// As above, with one more request or answer that gets lost.
#[test]
#[ignore = "some minutes; it checks the model in this folder alone, so .ci/full runs it"]
fn more_losses_keep_the_blobs() {
    for (course, at_least) in Course::ALL {
        check(*course, 2, *at_least);
    }
}

/// The proof that the model sees: each way to get the protocol wrong breaks the property that it should.
#[test]
fn every_planted_fault_is_found() {
    for (fault, course, broken) in Fault::ALL {
        let found = HasDiscoveries::AnyOf([*broken].into());
        let model = Blobs { course: *course, fault: *fault, lost: 1 };
        let checker = model.checker().finish_when(found).spawn_bfs().join();
        let states = checker.unique_state_count();
        let found = checker.discoveries();
        let path = found.get(broken).unwrap_or_else(|| {
            panic!("{fault:?} does not break {broken:?}, but {:?}", found.keys().collect::<Vec<_>>())
        });
        println!("{fault:?} breaks {broken:?} in {course:?}, found among {states} states:");
        for action in path.clone().into_actions() {
            println!("    {action:?}");
        }
    }
}
