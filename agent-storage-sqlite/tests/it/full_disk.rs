//! Blobs on a full disk: what is left of a put that fails, and that everything else goes on.
//!
//! The disk is a small file system in memory, which takes the right to mount one. Without it, and also with it, the same
//! is seen with a limit on the size of files, beyond which SQLite's writes fail just so.

#![cfg(unix)]
#![allow(clippy::print_stderr, reason = "says what was not tested")]

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use crate::support::{Site, Worker, content, put, read_blob};
use agent_core::clock::Effects;
use agent_core::session::SessionRecord;
use agent_core::store::{BlobInfo, PutBlob, SweepBlobs};
use agent_core::{Error, ErrorKind, SessionStore, Timestamp, WriteOutcome};
use agent_storage_sqlite::{SqliteConfig, SqliteStore};
use bytes::Bytes;
use futures::{StreamExt, stream};

const MIB: usize = 1 << 20;
const CHUNK: usize = 256 << 10;
const CHUNKS_OF_A_MIB: usize = 4;
/// Size of the small disk.
const DISK_MIB: u32 = 40;
/// SQLite's log has 8 MiB, and at most one transaction of 8 MiB and one removal of 4 MiB more.
const LOG_MIB: u64 = 21;

/// A store in this process, on the small disk.
struct Disk {
    site: Site,
    path: PathBuf,
}

impl Disk {
    fn new(path: &str) -> Self {
        Self { site: Site::new(), path: path.into() }
    }

    async fn open(&self) -> SqliteStore {
        SqliteStore::open(&self.path).await.unwrap()
    }

    fn count(&self, sql: &str) -> usize {
        let conn = rusqlite::Connection::open(&self.path).unwrap();
        conn.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap().try_into().unwrap()
    }

    fn chunks(&self) -> usize {
        self.count("SELECT count(*) FROM blob_chunks")
    }

    /// Nothing of puts that have failed is left.
    fn assert_has_blobs_of(&self, mib: usize) {
        assert_eq!(self.chunks(), mib * CHUNKS_OF_A_MIB);
        assert_eq!(self.count("SELECT count(*) FROM blobs WHERE state <> 'whole'"), 0);
        let mut log = self.path.clone().into_os_string();
        log.push("-wal");
        let log = fs::metadata(log).unwrap().len();
        assert!(log <= LOG_MIB << 20, "the log has {log} bytes");
    }

    async fn append_much(&self, store: &SqliteStore, session: &mut Arc<SessionRecord>) {
        for _ in 0..100 {
            *session = self.site.append_text(store, session, "x".repeat(4000)).await;
        }
    }

    /// Fills the disk with a file of another program.
    fn fill(&self) {
        let mut ballast = File::create(self.path.with_extension("ballast")).unwrap();
        for size in [MIB, 4096] {
            while ballast.write_all(&vec![1; size]).is_ok() {}
        }
    }

    fn make_room(&self) {
        fs::remove_file(self.path.with_extension("ballast")).unwrap();
    }

    /// Puts a blob of 12 MiB. Another program fills the disk before the chunk `at`.
    async fn put_while_it_fills(&self, store: &SqliteStore, session: &SessionRecord, at: usize) -> Error {
        let bytes = content(7, 12 * MIB);
        let blob = BlobInfo::of(&bytes);
        let path = self.path.clone();
        let pieces: Vec<_> = bytes.chunks(CHUNK).map(Bytes::copy_from_slice).collect();
        let pieces = stream::iter(pieces.into_iter().enumerate()).map(move |(n, piece)| {
            if n == at {
                Disk::new(path.to_str().unwrap()).fill();
            }
            Ok(piece)
        });
        store.blobs().put(PutBlob::new(session.id, blob, pieces.boxed())).await.unwrap_err()
    }
}

fn assert_full(error: &Error) {
    assert_eq!(
        (error.kind(), error.write_outcome()),
        (&ErrorKind::Full, WriteOutcome::NotApplied),
        "{error}"
    );
    assert!(error.to_string().contains("make room"), "{error}");
}

/// Runs this program once more, with the same disk, as `order`.
fn other_process(path: &Path, order: &str) {
    let mut program = Command::new(std::env::current_exe().unwrap());
    program
        .args(["--exact", "full_disk::worker", "--nocapture"])
        .env("WORKER_PATH", path)
        .env("WORKER_ORDER", order);
    assert!(program.status().unwrap().success(), "{order}");
}

async fn fill_with_blobs(disk: &Disk) {
    let store = disk.open().await;
    let session = disk.site.session(&store).await;
    let (mut session, named) = disk.site.show(&store, &session, content(1, MIB)).await;
    let mut whole = 0;
    let error = loop {
        match store.blobs().put(PutBlob::of_bytes(session.id, content(10 + whole, 3 * MIB))).await {
            Ok(()) => whole += 1,
            Err(error) => break error,
        }
        assert!(whole < u64::from(DISK_MIB), "the disk is full some time");
    };
    assert_full(&error);
    assert!(whole >= 3, "there was room for {whole} blobs");
    let mib = 1 + 3 * usize::try_from(whole).unwrap();
    disk.assert_has_blobs_of(mib);
    // One that never fits, and several at once.
    let large = store.blobs().put(PutBlob::of_bytes(session.id, content(2, DISK_MIB as usize * MIB))).await;
    assert_full(&large.unwrap_err());
    disk.assert_has_blobs_of(mib);
    let puts = (0..8).map(|n| store.blobs().put(PutBlob::of_bytes(session.id, content(90 + n, 6 * MIB))));
    for put in futures::future::join_all(puts).await {
        assert_full(&put.unwrap_err());
    }
    disk.assert_has_blobs_of(mib);

    disk.append_much(&store, &mut session).await;
    let swept = store.blobs().sweep(SweepBlobs::of(session.id)).await.unwrap();
    assert_eq!((swept.blobs, swept.unfinished), (whole, 0));
    disk.assert_has_blobs_of(1);
    let smaller = put(&store, session.id, content(3, 6 * MIB)).await;
    assert_eq!(read_blob(&store, session.id, smaller.name).await.unwrap(), content(3, 6 * MIB));
    disk.append_much(&store, &mut session).await;
    store.close().await.unwrap();

    other_process(&disk.path, &format!("sweep {}", session.id));
    let store = disk.open().await;
    assert_eq!(read_blob(&store, session.id, named.name).await.unwrap(), content(1, MIB));
    disk.append_much(&store, &mut session).await;
    disk.assert_has_blobs_of(1);
    assert_eq!(store.maintenance().check().await.unwrap(), []);
}

async fn filled_by_others(disk: &Disk) {
    let store = disk.open().await;
    let mut session = disk.site.session(&store).await;
    // The database cannot grow by what is in the log, so that not even a removal is stored.
    assert_full(&disk.put_while_it_fills(&store, &session, 16).await);
    assert_eq!(disk.chunks(), 16, "they cannot be deleted: the disk is full");
    assert_full(&store.commit(disk.site.text_commit(&session, "no".repeat(MIB))).await.unwrap_err());
    disk.make_room();
    let swept = store.blobs().sweep(SweepBlobs::of(session.id)).await.unwrap();
    assert_eq!(swept.unfinished, 0, "a put that has failed is not waited for");
    disk.assert_has_blobs_of(0);

    // The database has free pages now. Text goes on, and what is left of a put is deleted, though no byte is free.
    put(&store, session.id, content(4, 14 * MIB)).await;
    store.blobs().sweep(SweepBlobs::of(session.id)).await.unwrap();
    assert_full(&disk.put_while_it_fills(&store, &session, 40).await);
    disk.append_much(&store, &mut session).await;
    store.blobs().sweep(SweepBlobs::of(session.id)).await.unwrap();
    disk.assert_has_blobs_of(0);
    disk.make_room();
    store.close().await.unwrap();
}

/// What a process leaves that could not discard its put, and ends, goes after the hour.
async fn left_to_others(disk: &Disk) {
    let store = disk.open().await;
    let session = disk.site.session(&store).await;
    assert_full(&disk.put_while_it_fills(&store, &session, 16).await);
    store.close().await.unwrap();
    disk.make_room();
    assert_eq!(disk.chunks(), 16);
    let now = i64::try_from(std::time::UNIX_EPOCH.elapsed().unwrap().as_micros()).unwrap();
    for (minutes, swept) in [(59, (0, 16 * CHUNK as u64)), (61, (1, 0))] {
        let now = Timestamp::from_micros(now + minutes * 60_000_000);
        let store = SqliteConfig::new(&disk.path).with_effects(Effects::seeded(9, now)).open().await.unwrap();
        let found = store.blobs().sweep(SweepBlobs::of(session.id)).await.unwrap();
        assert_eq!((found.blobs, found.unfinished), swept, "after {minutes} minutes");
        store.close().await.unwrap();
    }
    assert_eq!(disk.chunks(), 0);
}

/// The process on the small disk, and the one after it.
#[tokio::test]
async fn worker() {
    let Ok(path) = std::env::var("WORKER_PATH") else { return };
    let (disk, order) = (Disk::new(&path), std::env::var("WORKER_ORDER").unwrap());
    let work = async {
        match &*order {
            "fill" => fill_with_blobs(&disk).await,
            "others" => filled_by_others(&disk).await,
            "left" => left_to_others(&disk).await,
            _ => {
                let id = order.strip_prefix("sweep ").unwrap().parse().unwrap();
                let store = disk.open().await;
                assert_eq!(store.blobs().sweep(SweepBlobs::of(id)).await.unwrap().blobs, 1);
                disk.assert_has_blobs_of(1);
                put(&store, id, content(5, 3 * MIB)).await;
                store.blobs().sweep(SweepBlobs::of(id)).await.unwrap();
                store.close().await.unwrap();
            }
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(120), work).await.expect("it is stuck");
}

fn on_a_small_disk(order: &str) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("agent.db").to_str().unwrap().to_owned();
    let orders = [("WORKER_PATH", path), ("WORKER_ORDER", order.to_owned())];
    match Worker::start_on_a_small_disk(folder.path(), DISK_MIB, "full_disk::worker", &orders) {
        Some(worker) => assert!(worker.succeeded(), "{order}"),
        None => eprintln!("NOT TESTED: {order}: this user may not mount a small file system"),
    }
}

/// A put that fails since the disk is full leaves nothing. Text, sweeps and smaller blobs go on, in this process and the
/// next.
#[test]
fn blobs_leave_room_for_everything_else() {
    on_a_small_disk("fill");
}

/// The same for a limit on the size of files.
#[test]
fn blobs_leave_room_below_a_file_size_limit() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("agent.db").to_str().unwrap().to_owned();
    let orders = [("WORKER_PATH", path), ("WORKER_ORDER", "fill".to_owned())];
    let worker = Worker::start_with_file_limit(DISK_MIB << 11, "full_disk::worker", &orders);
    assert!(worker.succeeded());
}

/// If another program fills the disk during a put, what is left of it goes with the next write that succeeds.
#[test]
fn failed_put_is_discarded_once_there_is_room() {
    on_a_small_disk("others");
}

#[test]
fn failed_put_of_an_ended_process_goes_after_an_hour() {
    on_a_small_disk("left");
}
