//! The power goes, at any moment, with any part of what was not safe on the disk or not; and the disk fails.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::print_stdout, reason = "how much was tried is part of the result")]

mod blobs;
mod cut;
mod deletion;
#[path = "../../../tests/disk/fault.rs"]
mod fault;
#[path = "../../../tests/disk/model.rs"]
mod model;
mod script;

use std::collections::BTreeSet;

use agent_core::Timestamp;
use agent_core::clock::Effects;
use agent_storage_fs::Sync;
use cut::{is_thorough, subsets};
use fault::{Call, EIO, EMFILE, ENOSPC, Fault, Tally};
use model::{Disk, Moment, Trace};
use script::{Outcome, Script, Step, Thing, Value, Wrong, texts};

/// How many subsets of what is not safe are tried at one moment, at most.
const SUBSETS: usize = 64;
/// The same, after a call has failed.
const FEW: usize = 6;

/// Opens what is left of a script's disk, and holds it against what was told.
async fn check(script: &Script, outcomes: &[Outcome], done: usize, disk: &Disk) -> Result<(), Wrong> {
    let seen = script.read_back(disk).await?;
    for (thing, possible) in script.possible(outcomes, done) {
        let value = &seen[&thing];
        if matches!(thing, Thing::Config(_)) && *value == Value::Deleted {
            // It went with its workspace, which has a line of its own.
            continue;
        }
        if !possible.contains(value) {
            return Err(Wrong(format!("{thing:?} is {value:?}, and could be {possible:?}")));
        }
    }
    Ok(())
}

pub(crate) async fn judge(script: &Script, outcomes: &[Outcome], done: usize, disk: &Disk, context: &str) {
    if let Err(Wrong(wrong)) = check(script, outcomes, done, disk).await {
        panic!("{context}, {done} steps behind: {wrong}\n{}", script.story(outcomes));
    }
}

/// Cuts a trace at moments, with subsets of what was not safe. Returns how many disks were looked at.
pub(crate) async fn cut(
    script: &Script,
    outcomes: &[Outcome],
    trace: &Trace,
    moments: &[Moment],
    most: usize,
    after: &[String],
) -> usize {
    let mut images = 0;
    for moment in moments {
        for kept in subsets(trace, *moment, most) {
            let context = format!("{after:?}, power lost after event {}, kept {kept:?}", moment.events);
            judge(script, outcomes, moment.mark, &trace.image(*moment, &kept), &context).await;
            images += 1;
        }
    }
    images
}

/// The power goes after any call, with any part of what was not safe. What was acknowledged is
/// there, nothing is there by half, and the store goes on.
#[tokio::test]
async fn power_loss_at_any_moment_loses_nothing() {
    let script = Script::usual();
    let disk = Disk::new();
    let outcomes = script.run(&disk, Sync::Full).await;
    assert!(outcomes.iter().all(|outcomes| matches!(outcomes, Outcome::Done)), "{outcomes:?}");
    let trace = disk.trace();
    let moments = trace.moments();
    let images = cut(&script, &outcomes, &trace, &moments, SUBSETS, &[]).await;
    println!("proof: {images} disks after the loss of power");
    assert!(images > 1000, "only {images} disks");
}

/// Killed at any moment, the power stays: what the system has is not lost.
#[tokio::test]
async fn kill_at_any_moment_loses_nothing() {
    let script = Script::usual();
    let disk = Disk::new();
    let outcomes = script.run(&disk, Sync::Full).await;
    let trace = disk.trace();
    for moment in trace.moments() {
        let context = format!("killed after event {}", moment.events);
        judge(&script, &outcomes, moment.mark, &trace.killed(moment), &context).await;
    }
}

/// Without syncs nothing is lost by a kill, and the loss of power takes what was acknowledged: the model sees it.
#[tokio::test]
async fn without_syncs_only_power_loss_loses_commits() {
    let script = Script::usual();
    let disk = Disk::new();
    let outcomes = script.run(&disk, Sync::Off).await;
    let trace = disk.trace();
    let mut lost = 0;
    for moment in trace.moments() {
        let context = format!("killed after event {}", moment.events);
        judge(&script, &outcomes, moment.mark, &trace.killed(moment), &context).await;
        let image = trace.image(moment, &BTreeSet::new());
        lost += usize::from(check(&script, &outcomes, moment.mark, &image).await.is_err());
    }
    assert!(lost > 100, "only {lost} losses were seen");
}

/// Lets the n-th call of a script fail, then the power go.
async fn call_fails(
    script: &Script,
    tally: &mut Tally,
    most: usize,
    fails: impl Fn(usize) -> Option<Fault> + Send + 'static,
) -> Option<usize> {
    let disk = Disk::new();
    disk.fail(move |number, _: &Call| fails(number));
    let outcomes = script.run(&disk, Sync::Full).await;
    let fired = disk.heal();
    let first = fired.first()?.to_string();
    tally.add(&fired);
    let trace = disk.trace();
    let moments = trace.moments();
    let last = *moments.last().unwrap();
    judge(script, &outcomes, last.mark, &trace.killed(last), &format!("{first}; killed")).await;
    // The power goes at the end, and at some moments on the way there.
    let some: Vec<_> = moments.iter().rev().step_by(step()).copied().collect();
    Some(cut(script, &outcomes, &trace, &some, most, &[first]).await)
}

pub(crate) async fn each_call_fails(script: &Script, most: usize, fault: Fault, persistent: bool) {
    let (mut failed, mut images, mut tally) = (0, 0, Tally::default());
    for n in (0..).step_by(if is_thorough() { 1 } else { 3 }) {
        let fails = move |number| (number == n || (persistent && number > n)).then_some(fault);
        let Some(more) = call_fails(script, &mut tally, most, fails).await else { break };
        failed += 1;
        images += more;
    }
    tally.print_counts("files");
    println!("proof: {images} disks after the loss of power, with faults before it");
    assert!(failed > 40, "only {failed} calls failed");
}

/// Any one call fails with an I/O error, then the power goes; a failed sync has lost what it was to sync.
#[tokio::test]
async fn single_failed_call_loses_nothing() {
    each_call_fails(&Script::usual(), FEW, Fault::Fails(EIO), false).await;
}

/// From any call on, every call fails.
#[tokio::test]
async fn permanent_failure_after_any_call_loses_nothing() {
    each_call_fails(&Script::usual(), FEW, Fault::Fails(EIO), true).await;
}

/// The disk is full from any call on.
#[tokio::test]
async fn full_disk_after_any_call_loses_nothing() {
    each_call_fails(&Script::usual(), FEW, Fault::Fails(ENOSPC), true).await;
}

/// Any one call finds no more file handles.
#[tokio::test]
async fn exhausted_file_handles_lose_nothing() {
    each_call_fails(&Script::usual(), FEW, Fault::Fails(EMFILE), false).await;
}

/// Any one call does its work and reports an error all the same.
#[tokio::test]
async fn call_done_but_reported_failed_loses_nothing() {
    each_call_fails(&Script::usual(), FEW, Fault::DoneButFails(EIO), false).await;
}

/// Any two calls fail, at most 40 calls apart: the second one meets what is done about the first. Of the first
/// every tenth, or all with `AGENT_STORAGE_DISK_PAIRS=1`, a few hours.
#[tokio::test]
#[ignore = "takes minutes: .ci/full"]
async fn two_failed_calls_lose_nothing() {
    const APART: usize = 40;
    let step = std::env::var("AGENT_STORAGE_DISK_PAIRS").map_or(10, |text| text.parse().unwrap());
    let (script, mut tally, mut images, mut pairs) = (Script::usual(), Tally::default(), 0, 0);
    'all: for n in (0..).step_by(step) {
        for m in n + 1..=n + APART {
            let fails = move |number| (number == n || number == m).then_some(Fault::Fails(EIO));
            let Some(more) = call_fails(&script, &mut tally, FEW, fails).await else { break 'all };
            images += more;
            pairs += 1;
        }
    }
    tally.print_counts("files");
    println!("proof: {pairs} pairs of calls that fail");
    println!("proof: {images} disks after the loss of power, with faults before it");
    assert!(pairs > 1000, "only {pairs} pairs");
}

/// Reads and writes that take half of what they are given, or are interrupted, change nothing but the number of
/// calls.
#[tokio::test]
async fn short_and_interrupted_io_is_not_a_failure() {
    for fault in [Fault::Short, Fault::Interrupted] {
        let script = Script::usual();
        let disk = Disk::new();
        let mut turn = 0u32;
        disk.fail(move |_, call| {
            turn += u32::from(matches!(call.name, "read" | "write"));
            (!turn.is_multiple_of(3)).then_some(fault)
        });
        let outcomes = script.run(&disk, Sync::Full).await;
        assert!(outcomes.iter().all(|outcomes| matches!(outcomes, Outcome::Done)), "{fault:?}: {outcomes:?}");
        let fired = disk.heal();
        assert!(fired.len() > 10, "{fault:?}");
        let mut tally = Tally::default();
        tally.add(&fired);
        tally.print_counts("files");
        let trace = disk.trace();
        let last = *trace.moments().last().unwrap();
        cut(&script, &outcomes, &trace, &[last], SUBSETS, &[]).await;
    }
}

/// A sync fails, and then one of the calls by which its write would be taken back; another process goes on behind bytes
/// that the disk may never have got. What that one acknowledges is there after the loss of power.
#[tokio::test]
async fn a_write_that_is_neither_synced_nor_taken_back_harms_no_later_one() {
    let append = |n: usize, size: usize| Step::Append { session: 0, texts: texts(n, &[size]) };
    let bind = |device, workspace| Step::Bind { device, workspace };
    let steps = vec![
        bind(0, 0),
        bind(1, 0),
        Step::Create { session: 0 },
        append(0, 900),
        append(1, 1200),
        bind(0, 1),
        Step::Switch,
        append(2, 20),
        bind(1, 1),
        append(3, 2000),
        Step::Switch,
        append(4, 10),
        bind(0, 0),
    ];
    let (script, mut images, mut courses) = (Script::of(3, steps), 0, 0);
    for failing in 1..40 {
        for later in 1..=8 {
            let disk = Disk::new();
            let (mut syncs, mut struck) = (0, None);
            disk.fail(move |number, call: &Call| {
                syncs += usize::from(call.name == "sync");
                if syncs == failing && struck.is_none() {
                    struck = Some(number);
                }
                let second = struck.map(|first| first + later);
                (struck == Some(number) || second == Some(number)).then_some(Fault::Fails(EIO))
            });
            let outcomes = script.run(&disk, Sync::Full).await;
            let fired = disk.heal();
            if fired.len() < 2 {
                continue;
            }
            courses += 1;
            let faults: Vec<_> = fired.iter().map(ToString::to_string).collect();
            let trace = disk.trace();
            let moments: Vec<_> = trace.moments().into_iter().rev().step_by(4).collect();
            images += cut(&script, &outcomes, &trace, &moments, 2, &faults).await;
        }
    }
    println!("proof: {images} disks after a sync and a taking back that failed, {courses} courses");
    assert!(courses > 60, "{courses}");
}

/// How many seeds the random scripts are run with, and where they start: `AGENT_STORAGE_DISK_SEEDS=50000`,
/// `AGENT_STORAGE_DISK_SEED=17`.
pub(crate) fn seeds() -> std::ops::Range<u64> {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let first = number("AGENT_STORAGE_DISK_SEED").unwrap_or(0);
    first..first + number("AGENT_STORAGE_DISK_SEEDS").unwrap_or(30)
}

/// After each failed call the power goes at the end, and at every so manieth moment before: `AGENT_STORAGE_DISK_STEP=1`.
fn step() -> usize {
    std::env::var("AGENT_STORAGE_DISK_STEP").map_or(150, |text| text.parse().unwrap())
}

/// Lets some calls fail. Of `course`s that follow each other, every fourth runs on a disk that works.
pub(crate) fn fail_by_chance(disk: &Disk, seed: u64, course: u64) {
    let dice = Effects::seeded(seed ^ 0xfa17, Timestamp::UNIX_EPOCH);
    let rarity = [u64::MAX, 100, 40, 15][usize::try_from(course % 4).unwrap()];
    disk.fail(move |_, _: &Call| {
        let roll = dice.random_u64();
        roll.is_multiple_of(rarity).then(|| match roll / rarity % 5 {
            0 => Fault::DoneButFails(EIO),
            1 => Fault::Fails(ENOSPC),
            2 => Fault::Short,
            3 => Fault::Interrupted,
            _ => Fault::Fails(EIO),
        })
    });
}

/// Any steps, by two processes in turn, some calls failing; then the power goes.
#[tokio::test]
async fn random_steps_and_faults_lose_nothing() {
    let (mut images, mut scripts, mut tally) = (0, 0, Tally::default());
    for seed in seeds() {
        let script = Script::random(seed, 14);
        let disk = Disk::new();
        fail_by_chance(&disk, seed, seed);
        let outcomes = script.run(&disk, Sync::Full).await;
        let fired = disk.heal();
        tally.add(&fired);
        scripts += 1;
        let mut faults: Vec<_> = fired.iter().map(ToString::to_string).collect();
        faults.push(format!("seed {seed}"));
        let trace = disk.trace();
        let moments = trace.moments();
        let some: Vec<_> = moments.iter().rev().step_by(5).copied().collect();
        images += cut(&script, &outcomes, &trace, &some, 8, &faults).await;
    }
    tally.print_counts("files");
    println!("proof: {scripts} random scripts on a disk that fails");
    println!("proof: {images} disks after the loss of power, with faults before it");
    assert!(images > 0);
}
