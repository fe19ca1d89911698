//! Each target on mutations of its seeds: a few hundred rounds on each change. `AGENT_FUZZ_ROUNDS=100` does a hundred times as many, and
//! `AGENT_FUZZ_SEED=17` repeats a failure.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError};

use agent_fuzz::mutation::{Numbers, mutated};
use agent_fuzz::targets;

/// Memory is counted for the whole process.
static ALONE: Mutex<()> = Mutex::new(());

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap())
}

fn hold(name: &str) {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let target = targets().into_iter().find(|target| target.name == name).unwrap();
    let seeds = (target.seeds)();
    assert!(!seeds.is_empty(), "the golden files are there");
    for seed in &seeds {
        target.check(seed);
    }
    let first =
        number("AGENT_FUZZ_SEED").unwrap_or_else(|| agent_core::clock::Effects::default().random_u64() >> 1);
    for n in 0..target.rounds * number("AGENT_FUZZ_ROUNDS").unwrap_or(1) {
        let input = mutated(&seeds, &mut Numbers::new(first + n));
        let checked = catch_unwind(AssertUnwindSafe(|| target.check(&input)));
        if checked.is_err() {
            panic!("AGENT_FUZZ_SEED={} {name}: {}", first + n, input.escape_ascii());
        }
    }
}

#[test]
fn every_target_has_a_test() {
    let here = include_str!("mutations.rs");
    for target in targets() {
        assert!(here.contains(&format!("hold(\"{}\")", target.name)), "{}", target.name);
    }
}

#[test]
fn events_are_read_or_refused() {
    hold("event");
}

#[test]
fn records_are_read_or_refused() {
    hold("record");
}

#[test]
fn cursors_are_read_or_refused() {
    hold("cursor");
}

#[test]
fn addresses_are_read_or_refused() {
    hold("address");
}

#[test]
fn names_are_read_or_refused() {
    hold("names");
}

#[test]
fn manifests_are_imported_or_refused() {
    hold("manifest");
}

#[test]
fn archives_are_imported_or_refused() {
    hold("archive");
}

#[test]
fn states_are_read_or_refused() {
    hold("state");
}

#[test]
fn transcripts_are_read_or_refused() {
    hold("transcript");
}

#[test]
fn configurations_are_merged_or_refused() {
    hold("configuration");
}

#[test]
fn files_of_a_store_are_read_or_refused() {
    hold("files");
}

#[test]
fn objects_of_a_bucket_are_read_or_refused() {
    hold("objects");
}
