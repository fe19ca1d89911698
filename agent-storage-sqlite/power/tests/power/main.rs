//! The power goes under SQLite, after any of its calls to the system, with any part of what was not synced or not.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::print_stdout, reason = "how much was tried is part of the result")]
#![allow(
    dead_code,
    reason = "of the model of a disk, which lies beside the file store's tests, a part is used here"
)]

mod costs;
#[path = "../../../../agent-storage-fs/power/tests/power/cut.rs"]
mod cut;
mod direct;
mod failed_calls;
#[path = "../../../../agent-storage-fs/tests/disk/fault.rs"]
mod fault;
#[path = "../../../../agent-storage-fs/tests/disk/model.rs"]
mod model;
mod moved_file;
mod opening;
mod script;
mod suite;
mod vfs;
mod writes;

use std::collections::BTreeSet;
use std::path::Path;

use agent_storage_fs::io::{Io, OpenMode};
use agent_storage_sqlite::Sync;
use model::{Disk, Moment, Trace};
use script::{Seen, live, read_back};

/// How many subsets of what was not synced are tried after each call, at most: `AGENT_STORAGE_POWER_SUBSETS=64`.
pub(crate) fn most() -> usize {
    std::env::var("AGENT_STORAGE_POWER_SUBSETS").map_or(2, |text| text.parse().unwrap())
}

/// What the whole of a store's life came to.
struct Life {
    /// What was seen after so many steps.
    states: Vec<Seen>,
    trace: Trace,
}

async fn lived(sync: Sync) -> Life {
    let (folder, disk) = (tempfile::tempdir().unwrap(), Disk::new());
    vfs::note(folder.path(), &disk);
    let states = live(&folder.path().join("agent.db"), sync, &disk).await;
    Life { states, trace: disk.trace() }
}

/// Writes what is left of a disk into a folder.
pub(crate) fn write(disk: &Disk, folder: &Path) {
    for (name, _) in disk.list(Path::new("/")).unwrap() {
        let file = disk.open(&Path::new("/").join(&name), OpenMode::Read).unwrap();
        let mut bytes = vec![0; usize::try_from(file.stat().unwrap().len).unwrap()];
        let count = file.read_at(&mut bytes, 0).unwrap();
        assert_eq!(count, bytes.len());
        std::fs::write(folder.join(name), bytes).unwrap();
    }
}

/// Writes a file to a disk, as SQLite would have.
pub(crate) fn put(disk: &Disk, name: &str, bytes: &[u8]) {
    let file = disk.open(&Path::new("/").join(name), OpenMode::Create).unwrap();
    assert_eq!(file.write_at(bytes, 0).unwrap(), bytes.len());
}

/// How many of the steps are seen on a disk: those up to one, and nothing of a later one. What is damaged, by half, or
/// does not go on fails.
async fn steps_on(life: &Life, disk: &Disk, moment: Moment, kept: &BTreeSet<(usize, u64)>) -> usize {
    let folder = tempfile::tempdir().unwrap();
    write(disk, folder.path());
    let context = || format!("power lost after call {}, kept {kept:?}", moment.events);
    let seen = read_back(&folder.path().join("agent.db")).await;
    let seen = seen.unwrap_or_else(|wrong| panic!("{}: {wrong}", context()));
    // The step after the last acknowledged one may be there. Some states are seen twice: a sweep leads back to one.
    let asked = &life.states[..life.states.len().min(moment.mark + 2)];
    let steps = asked.iter().rposition(|state| *state == seen);
    steps.unwrap_or_else(|| {
        panic!("{}: what is there never was, or was not yet asked for:\n{seen}", context())
    })
}

/// Of the moments between two marks, if there are many, the first, the last and some on the way: the pages of a chunk
/// of a blob are all alike.
pub(crate) fn thinned(moments: Vec<Moment>) -> Vec<Moment> {
    const ENDS: usize = 12;
    let spans = moments.chunk_by(|one, other| one.mark == other.mark);
    let thin = |span: &[Moment]| {
        let is_kept = |n: usize| n < ENDS || n + ENDS >= span.len() || n.is_multiple_of(24);
        span.iter().enumerate().filter(|(n, _)| is_kept(*n)).map(|(_, moment)| *moment).collect::<Vec<_>>()
    };
    spans.flat_map(thin).collect()
}

/// Cuts the power after each call. Returns how many disks were looked at, and on how many of them something was missing
/// that had been acknowledged.
async fn cut(life: &Life) -> (usize, usize) {
    let (mut disks, mut lost) = (0, 0);
    for moment in thinned(life.trace.moments()).into_iter().step_by(if cut::is_thorough() { 1 } else { 2 }) {
        for kept in cut::subsets(&life.trace, moment, most()) {
            let steps = steps_on(life, &life.trace.image(moment, &kept), moment, &kept).await;
            lost += usize::from(steps < moment.mark);
            disks += 1;
        }
    }
    (disks, lost)
}

/// With `sync=full` everything acknowledged is there, nothing by half, and the file is sound and goes on.
#[tokio::test]
async fn full_sync_survives_power_loss_at_any_moment() {
    let life = lived(Sync::Full).await;
    let (disks, lost) = cut(&life).await;
    println!("proof: {disks} SQLite files after the loss of power, sync=full");
    assert!(disks > 250, "only {disks} disks");
    assert_eq!(lost, 0);
}

/// With `sync=normal` the last commits may be gone, which is seen here, and nothing is damaged or there by half.
#[tokio::test]
async fn normal_sync_may_lose_commits_but_not_corrupt() {
    let life = lived(Sync::Normal).await;
    let (disks, lost) = cut(&life).await;
    println!("proof: {disks} SQLite files after the loss of power, sync=normal");
    println!("proof: {lost} of these that lost a commit, as they must be able to");
    assert!(lost > 50, "only {lost} losses were seen");
}

/// Killed at any moment while the power stays, nothing is lost with either.
#[tokio::test]
async fn killed_at_any_moment_nothing_is_lost() {
    for sync in [Sync::Full, Sync::Normal] {
        let life = lived(sync).await;
        for moment in thinned(life.trace.moments()).into_iter().step_by(3) {
            let steps = steps_on(&life, &life.trace.killed(moment), moment, &BTreeSet::new()).await;
            assert!(steps >= moment.mark, "{sync:?}: killed after call {}", moment.events);
        }
    }
}
