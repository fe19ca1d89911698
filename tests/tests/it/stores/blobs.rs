//! Blobs as large as hosts have them: in bounded memory, and beside others.

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use agent_core::clock::Effects;
use agent_core::event::{Media, Message, NewEvent, Part};
use agent_core::store::{BlobInfo, BlobStream, PutBlob, ReadBlob};
use agent_core::{BlobName, SessionId, Storage};
use agent_tests::{Site, each_store};
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use sha2::{Digest, Sha256};
use tempfile::TempDir;
use tokio::time::timeout;

use crate::stores::shared::new_session;

/// Environment variable with the kind of store of a process that streams a blob.
const STORE: &str = "AGENT_TEST_BLOB_STORE";
/// Environment variable with the number of mebibytes of the blob.
const MEBIBYTES: &str = "AGENT_TEST_BLOB_MIB";
/// The most memory that putting and reading take, beyond what a small blob took.
const MEMORY_KIB: u64 = 4 << 10;
const STUCK: Duration = Duration::from_secs(600);
const PIECE: u64 = 1 << 20;

fn mebibytes() -> u64 {
    std::env::var(MEBIBYTES).map_or(96, |count| count.parse().unwrap())
}

/// Piece `n` of the blob: no two are alike.
fn piece(n: u64) -> Bytes {
    let mut seed = n.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let words = std::iter::repeat_with(|| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed.to_le_bytes()
    });
    words.take(usize::try_from(PIECE).unwrap() / 8).flatten().collect()
}

fn pieces(count: u64) -> BlobStream {
    stream::iter(0..count).map(|n| Ok(piece(n))).boxed()
}

/// Puts a blob of this many mebibytes, names it in an event, and reads it back.
async fn put_and_read(storage: &Storage, id: SessionId, count: u64) {
    let blob = BlobInfo::of_stream(pieces(count)).await.unwrap();
    storage.sessions.blobs().put(PutBlob::new(id, blob, pieces(count))).await.unwrap();
    let film = Part::Video(Media::blob("video/mp4", blob.name, blob.bytes));
    let events = vec![NewEvent::from(Message::new("Look").with_part(film))];
    let head = storage.sessions.load(id).await.unwrap().head;
    storage.sessions.append(id, head, events).await.unwrap();
    let mut read = storage.sessions.blobs().read(ReadBlob::new(id, blob.name)).await.unwrap();
    let (mut hash, mut bytes) = (Sha256::new(), 0);
    while let Some(piece) = read.content.try_next().await.unwrap() {
        hash.update(&piece);
        bytes += piece.len() as u64;
    }
    assert_eq!(BlobInfo::new(BlobName::from_sha256(hash.finalize().into()), bytes), blob);
}

/// The most memory that this process has had at any moment.
fn peak_kib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// Not a test by itself: what a process does whose memory is measured.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[allow(clippy::print_stdout, reason = "the process that measures reads it")]
async fn a_process_that_streams_a_blob() {
    let Ok(place) = std::env::var(STORE) else { return };
    let (kind, folder) = place.split_once(':').unwrap();
    let kind = if kind == "files" { "files" } else { "sqlite" };
    let folder = Arc::new(TempDir::with_prefix_in("blob", folder).unwrap());
    let site = Site::within(kind, folder).unsynced();
    let storage = site.open().await;
    let id = new_session(&storage, &Effects::default()).await.id;
    // What every store has, its caches and its threads, is there after a first blob.
    timeout(STUCK, put_and_read(&storage, id, 24)).await.unwrap();
    let before = peak_kib();
    timeout(STUCK, put_and_read(&storage, id, mebibytes())).await.unwrap();
    let after = peak_kib();
    println!("memory {:?}", before.zip(after).map(|(before, after)| after - before));
}

/// A blob is put and read in less than 4 MiB of memory, however large it is.
#[allow(clippy::print_stdout, reason = "tells what was measured")]
async fn large_blobs_stream_in_bounded_memory(site: Site) {
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["stores::blobs::a_process_that_streams_a_blob", "--exact", "--nocapture"])
        .env(STORE, format!("{}:{}", site.name, site.folder.path().display()))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let output = tokio::task::spawn_blocking(move || child.wait_with_output().unwrap()).await.unwrap();
    let (reported, failed) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{reported}{failed}");
    let line = reported
        .lines()
        .find_map(|line| line.split_once("memory ").map(|(_, grown)| grown.to_owned()))
        .unwrap();
    println!("{}: {} MiB, memory grown by KiB: {line}", site.name, mebibytes());
    if line == "None" {
        println!("LEFT OUT: this system does not tell how much memory a process takes");
        return;
    }
    let grown: u64 = line.trim_start_matches("Some(").trim_end_matches(')').parse().unwrap();
    assert!(grown <= MEMORY_KIB, "{}: {grown} KiB", site.name);
}

each_store!(large_blobs_stream_in_bounded_memory on disk);

/// Other sessions commit while a blob is put: none of their commits waits for the whole blob.
async fn others_commit_while_a_blob_is_put(site: Site) {
    let site = site.unsynced();
    let (storage, effects) = (site.open().await, Effects::default());
    let (id, other) = (new_session(&storage, &effects).await.id, new_session(&storage, &effects).await);
    let (more, pieces) = tokio::sync::mpsc::unbounded_channel::<u64>();
    let count = 8;
    let blob = BlobInfo::of_stream(self::pieces(count)).await.unwrap();
    let pieces =
        stream::unfold(pieces, async |mut pieces| pieces.recv().await.map(|n| (Ok(piece(n)), pieces)));
    let put = tokio::spawn({
        let sessions = storage.sessions.clone();
        async move { sessions.blobs().put(PutBlob::new(id, blob, pieces.boxed())).await }
    });
    let mut head = other.head;
    for n in 0..count {
        more.send(n).unwrap();
        let events = vec![NewEvent::user_message(format!("{n}"))];
        let committed = timeout(STUCK, storage.sessions.append(other.id, head, events)).await.unwrap();
        head = committed.unwrap().last;
        let error = storage.sessions.blobs().read(ReadBlob::new(id, blob.name)).await.unwrap_err();
        assert_eq!(*error.kind(), agent_core::ErrorKind::NotFound, "{error}");
    }
    assert!(!put.is_finished(), "its stream has not ended");
    drop(more);
    timeout(STUCK, put).await.unwrap().unwrap().unwrap();
    let read = storage.sessions.blobs().read(ReadBlob::new(id, blob.name)).await.unwrap();
    assert_eq!(read.into_bytes(16 << 20).await.unwrap().len() as u64, blob.bytes);
}

each_store!(others_commit_while_a_blob_is_put and files, flavor = "multi_thread");
