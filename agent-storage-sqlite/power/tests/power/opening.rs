//! Any call fails while a file is opened that is new, or that must be mended, and while a copy of it is made.

use std::path::Path;

use agent_core::{ErrorKind, Result};
use agent_storage_sqlite::{SqliteStore, Sync};
use rusqlite::Connection;

use crate::cut::{is_thorough, subsets};
use crate::fault::{Call, EIO, ENOSPC, Fault, Tally};
use crate::model::Disk;
use crate::script::{Seen, live, open, read_back, see};
use crate::{most, vfs, write};

/// What lies there before the file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Before {
    Nothing,
    /// A file whose records, an index and a view are gone; opening it makes them anew.
    Mended,
    /// The same, and for whoever opened it last each call failed from the sync in its COMMIT on, so that its log stays: with
    /// a whole transaction in the system's memory that is not on the disk.
    Left,
}

const FAULTS: [(Fault, bool); 4] = [
    (Fault::Fails(EIO), false),
    (Fault::Fails(EIO), true),
    (Fault::Fails(ENOSPC), true),
    (Fault::DoneButFails(EIO), false),
];

/// Lets the n-th call fail, or all from there on.
fn fail(disk: &Disk, n: usize, fault: Fault, persistent: bool) {
    disk.fail(move |number, _: &Call| (number == n || (persistent && number > n)).then_some(fault));
}

/// What was refused was refused for the reason that there is.
fn honest<T>(done: &Result<T>, context: &str) {
    if let Err(error) = done {
        let fits = matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Full | ErrorKind::Denied);
        assert!(fits, "{context}: {error:?}");
    }
}

/// Takes away what is derived.
fn strip(path: &Path) {
    let conn = Connection::open(path).unwrap();
    conn.execute_batch("DELETE FROM sessions; DROP INDEX workspaces_unowned; DROP VIEW v_runs").unwrap();
}

async fn leave_log(path: &Path, disk: &Disk) {
    let mut syncs = 0;
    disk.fail(move |_, call: &Call| {
        syncs += usize::from(call.name == "sync");
        // The first one is that of the log's header.
        (syncs > 1).then_some(Fault::Fails(EIO))
    });
    open(path, Sync::Full).await.unwrap_err();
    assert!(!disk.heal().is_empty());
    assert!(path.with_extension("db-wal").metadata().unwrap().len() > 4096);
}

/// Opens a file while a call fails, and says what could be seen then and after; `None` where no call failed.
async fn opened(
    before: Before,
    n: usize,
    (fault, persistent): (Fault, bool),
    tally: &mut Tally,
) -> Option<usize> {
    let (folder, disk) = (tempfile::tempdir().unwrap(), Disk::new());
    vfs::note(folder.path(), &disk);
    let path = folder.path().join("agent.db");
    let seen = match before {
        Before::Nothing => {
            let elsewhere = tempfile::tempdir().unwrap();
            see(&open(&elsewhere.path().join("agent.db"), Sync::Off).await.unwrap()).await.unwrap()
        }
        Before::Mended | Before::Left => {
            let states = live(&path, Sync::Full, &disk).await;
            strip(&path);
            states.last().unwrap().clone()
        }
    };
    let began = disk.trace().moments().len();
    if before == Before::Left {
        leave_log(&path, &disk).await;
    }
    fail(&disk, n, fault, persistent);
    let done = open(&path, Sync::Full).await;
    let fired = disk.heal();
    let context = format!("{before:?}, {}", fired.first()?);
    tally.add(&fired);
    honest(&done, &context);
    drop(done);
    // Whoever opens it next finds everything.
    let store = open(&path, Sync::Full).await.unwrap_or_else(|error| panic!("{context}: then {error:?}"));
    assert_eq!(see(&store).await.unwrap(), seen, "{context}");
    drop(store);
    Some(cut(&disk, began, (40, most() / 2), &seen, &context).await)
}

/// Kills it, and has the power go at some moments; whatever is left is opened, and shows everything.
async fn cut(disk: &Disk, began: usize, (step, kept): (usize, usize), seen: &Seen, context: &str) -> usize {
    let trace = disk.trace();
    let later: Vec<_> = trace.moments().into_iter().filter(|moment| moment.events >= began).collect();
    let mut disks = 0;
    for moment in later.iter().rev().step_by(step) {
        judge(&trace.killed(*moment), seen, &format!("{context}; killed after call {}", moment.events)).await;
        disks += 1;
        for kept in subsets(&trace, *moment, kept) {
            let context = format!("{context}; power lost after call {}, kept {kept:?}", moment.events);
            judge(&trace.image(*moment, &kept), seen, &context).await;
            disks += 1;
        }
    }
    disks
}

async fn judge(disk: &Disk, seen: &Seen, context: &str) {
    let folder = tempfile::tempdir().unwrap();
    write(disk, folder.path());
    let there = read_back(&folder.path().join("agent.db")).await;
    assert_eq!(there.as_ref(), Ok(seen), "{context}");
}

async fn any_call_fails(before: Before) {
    let (mut tally, mut disks, mut calls) = (Tally::default(), 0, 0);
    let step = if is_thorough() { 1 } else { 7 };
    for how in FAULTS {
        for n in (0..).step_by(step) {
            let Some(more) = opened(before, n, how, &mut tally).await else { break };
            disks += more;
            calls += 1;
        }
    }
    tally.print_counts("SQLite");
    println!("proof: {disks} SQLite files after a call that failed");
    assert!(calls > 20, "only {calls} calls failed");
}

/// Any call fails, once or from then on, while the tables of a new file are made. The error says why, whoever
/// opens the file next can, and so it is after a kill and the loss of power.
#[tokio::test]
async fn failed_call_during_creation_is_recoverable() {
    any_call_fails(Before::Nothing).await;
}

/// The same while an opener makes anew what is derived, in a file that has lost it.
#[tokio::test]
async fn failed_call_during_rebuild_on_open_loses_nothing() {
    any_call_fails(Before::Mended).await;
}

/// The power may go at any moment while somebody opens a file whose log was left, goes on, and closes it: whatever of it
/// was acknowledged is there.
#[tokio::test]
async fn power_loss_during_wal_recovery_loses_nothing() {
    let (folder, disk) = (tempfile::tempdir().unwrap(), Disk::new());
    vfs::note(folder.path(), &disk);
    let path = folder.path().join("agent.db");
    let seen = live(&path, Sync::Full, &disk).await.pop().unwrap();
    strip(&path);
    leave_log(&path, &disk).await;
    let began = disk.trace().moments().len();
    let store = open(&path, Sync::Full).await.unwrap();
    assert_eq!(see(&store).await.unwrap(), seen);
    store.close().await.unwrap();
    let disks = cut(&disk, began, (1, 16), &seen, "a log that was left").await;
    assert!(disks > 100, "only {disks} disks");
}

/// The same while calls fail.
#[tokio::test]
async fn failed_call_during_wal_recovery_loses_nothing() {
    any_call_fails(Before::Left).await;
}

/// Any call fails, once or from then on, while a copy is made. There is a whole copy or none, nothing is left beside
/// it, the file itself is as it was, and it can be copied when calls fail no more.
#[tokio::test]
async fn failed_call_leaves_a_whole_copy_or_none() {
    let (mut tally, mut calls) = (Tally::default(), 0);
    let (folder, disk) = (tempfile::tempdir().unwrap(), Disk::new());
    vfs::note(folder.path(), &disk);
    let path = folder.path().join("agent.db");
    let seen = live(&path, Sync::Full, &disk).await.pop().unwrap();
    let store = open(&path, Sync::Full).await.unwrap();
    let step = if is_thorough() { 1 } else { 7 };
    for (kind, (fault, persistent)) in FAULTS.into_iter().enumerate() {
        for n in (0..).step_by(step) {
            let copy = folder.path().join(format!("copy {kind} {n}.db"));
            fail(&disk, n, fault, persistent);
            let done = store.backup(&copy).await;
            let fired = disk.heal();
            let Some(first) = fired.first() else {
                assert!(done.is_ok(), "{done:?}");
                break;
            };
            let context = first.to_string();
            tally.add(&fired);
            calls += 1;
            honest(&done, &context);
            assert_eq!(copy.exists(), done.is_ok(), "{context}");
            assert!(!copy.with_added_extension("part").exists(), "{context}");
            if done.is_err() {
                again(&store, &copy, &context).await;
            }
            assert_eq!(read_back(&copy).await.as_ref(), Ok(&seen), "{context}");
            assert_eq!(see(&store).await.unwrap(), seen, "{context}");
        }
    }
    tally.print_counts("SQLite");
    assert!(calls > 20, "only {calls} calls failed");
}

async fn again(store: &SqliteStore, copy: &Path, context: &str) {
    store.backup(copy).await.unwrap_or_else(|error| panic!("{context}: then {error:?}"));
}
