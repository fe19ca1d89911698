//! Commit protocol, checked in all interleavings before it was written. The model has two writers, a collector, a
//! purger, two lost answers or requests, one PUT that lands at any time, and heads cached for any time.
//! `docs/decisions/0008` records what was settled with it.

mod model;

use model::{Fault, Protocol};
use stateright::{Checker, HasDiscoveries, Model};

/// In every interleaving no acknowledged commit is lost, none is applied twice, none that was
/// reported as refused lands, a fenced writer never writes, a slot is won once, all is readable, all writers finish.
#[test]
#[ignore = "two minutes; it checks the model in this folder alone, so .ci/full runs it"]
fn every_interleaving_keeps_the_invariants() {
    let checker = Protocol { fault: Fault::None }.checker().threads(2).spawn_bfs().join();
    println!("{} states, {} of them different", checker.state_count(), checker.unique_state_count());
    checker.assert_properties();
    // A smaller space would mean that something is no longer explored.
    assert!(checker.unique_state_count() > 100_000, "{}", checker.unique_state_count());
}

/// The proof that the model sees: each way to get the protocol wrong breaks the property that it should.
#[test]
fn every_planted_fault_is_found() {
    for (fault, broken) in Fault::ALL {
        let found = HasDiscoveries::AnyOf([*broken].into());
        let checker = Protocol { fault: *fault }.checker().finish_when(found).spawn_bfs().join();
        let found = checker.discoveries();
        let path = found.get(broken).unwrap_or_else(|| {
            panic!("{fault:?} does not break {broken:?}, but {:?}", found.keys().collect::<Vec<_>>())
        });
        println!("{fault:?} breaks {broken:?}:");
        for action in path.clone().into_actions() {
            println!("    {action:?}");
        }
    }
}
