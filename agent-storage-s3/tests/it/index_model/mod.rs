//! Index keys, checked in all interleavings before they were written. The model has one session, two writers, a deleter
//! of keys, a list of several requests, two lost requests or answers, a PUT and a DELETE that land at any time, a
//! writer that is killed, and heads cached for any time. `docs/decisions/0035` records what was settled with it.
#![allow(clippy::print_stdout, reason = "how much was tried is part of the result")]

mod model;

use model::{AS_IT_WAS, Budget, Course, Fault, Index, NOT_MISSING, NOT_TWICE};
use stateright::{Checker, HasDiscoveries, Model};

fn check(course: Course, budget: Budget, at_least: usize) {
    let checker = Index { course, fault: Fault::None, budget }.checker().threads(2).spawn_bfs().join();
    let (steps, states) = (checker.state_count(), checker.unique_state_count());
    println!("{course:?}, {budget:?}: {steps} steps, {states} different states");
    checker.assert_properties();
    // A smaller space would mean that something is no longer explored.
    assert!(states >= at_least, "{course:?}: {states} states");
}

/// In every interleaving the keys in force exist, and all others can be deleted.
#[test]
fn every_interleaving_keeps_the_keys() {
    for (course, writers, _) in Course::ALL {
        check(*course, Budget::WRITERS, *writers);
    }
}

/// In every interleaving a list shows what it should, once, and as it is.
#[test]
#[ignore = "half a minute; it checks the model in this folder alone, so .ci/full runs it"]
fn every_interleaving_is_listed_rightly() {
    for (course, _, lists) in Course::ALL {
        check(*course, Budget::LISTS, *lists);
    }
}

/// Both at once, with as many requests and answers that get lost as in the model of commits.
#[test]
#[ignore = "many minutes; it checks the model in this folder alone, so .ci/full runs it"]
fn all_at_once_keeps_the_invariants() {
    for (course, writers, lists) in Course::ALL {
        check(*course, Budget { lost: 2, ..Budget::WRITERS }, 2 * writers);
        // A purge beside a list is looked at above; here it alone would take as long as all others.
        if *course != Course::Purge {
            check(*course, Budget { deletes: 1, ..Budget::LISTS }, 2 * lists);
            check(*course, Budget { lost: 1, kills: 1, ..Budget::LISTS }, 2 * lists);
        }
    }
}

/// The proof that the model sees: each way to get the protocol wrong breaks the property that it should.
#[test]
fn every_planted_fault_is_found() {
    for (fault, course, broken) in Fault::ALL {
        let found = HasDiscoveries::AnyOf([*broken].into());
        let listed = [AS_IT_WAS, NOT_MISSING, NOT_TWICE].contains(broken);
        let budget = if listed { Budget::LISTS } else { Budget::WRITERS };
        let model = Index { course: *course, fault: *fault, budget };
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
