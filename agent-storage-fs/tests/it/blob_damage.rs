//! Damaged blobs: no read gives other bytes than were put; the log goes on; putting the blob again heals it.

use std::fs;
use std::path::{Path, PathBuf};

use crate::support::{
    LARGE, append_text, content, folder_of, hasty, naming, put, read_whole, session, texts,
};
use agent_admin::verify::verify;
use agent_core::clock::Effects;
use agent_core::store::{BLOB_CHUNK_BYTES, ReadBlob, SweepBlobs};
use agent_core::{BlobName, ErrorKind, Result, Seq, SessionId, SessionStore, SessionStoreExt, Storage};
use agent_storage_fs::FsStore;

/// A session whose first event names two large blobs and a small one.
struct Made {
    store: FsStore,
    effects: Effects,
    id: SessionId,
    blobs: Vec<(BlobName, Vec<u8>)>,
}

impl Made {
    async fn new(root: &Path) -> Self {
        let (store, effects) = (hasty(root).await, Effects::default());
        let id = session(&store, &effects).await.id;
        let mut blobs = Vec::new();
        for (seed, size) in [(1, LARGE), (2, LARGE), (3, 100)] {
            let bytes = content(seed, size);
            blobs.push((put(&store, id, &bytes).await.unwrap(), bytes));
        }
        let names: Vec<_> = blobs.iter().map(|(name, _)| *name).collect();
        store.sessions(&effects).append(id, Seq::new(1), vec![naming(&names)]).await.unwrap();
        Self { store, effects, id, blobs }
    }

    fn path(&self, root: &Path, blob: usize) -> PathBuf {
        folder_of(root, self.id).join("blobs").join(self.blobs[blob].0.to_string())
    }

    /// No range gives other bytes than were put.
    async fn ranges_are_right_or_corrupt(&self, blob: usize, context: &str) {
        let (name, bytes) = &self.blobs[blob];
        let size = bytes.len() as u64;
        for range in
            [0..1, 0..size, size - 1..size, 50..size - 10, size..size + 1, BLOB_CHUNK_BYTES as u64..size]
        {
            let read = ReadBlob::new(self.id, *name).with_range(range.clone());
            let read = async { self.store.blobs().read(read).await?.into_bytes(usize::MAX).await };
            match read.await {
                Ok(read) => {
                    let at = |n: u64| usize::try_from(n.min(size)).unwrap();
                    let expected = &bytes[at(range.start)..at(range.end)];
                    assert!(read == *expected, "{context}: other bytes in {range:?}");
                }
                Err(error) => assert_eq!(*error.kind(), ErrorKind::Corrupt, "{context}: {error}"),
            }
        }
    }

    /// The log is read and written.
    async fn log_goes_on(&self, context: &str) {
        let before = texts(&self.store, self.id).await.len();
        let head = SessionStore::load(&self.store, self.id).await.unwrap().head;
        append_text(&self.store, &self.effects, self.id, head, "on").await;
        assert_eq!(texts(&self.store, self.id).await.len(), before + 1, "{context}");
    }
}

fn is_named<T>(context: &str, path: &Path, remedy: &str, done: Result<T>) {
    let Err(error) = done else { panic!("{context}: nothing is said") };
    assert_eq!(*error.kind(), ErrorKind::Corrupt, "{context}: {error}");
    let text = error.to_string();
    assert!(text.contains(&path.display().to_string()) && text.contains(remedy), "{context}: {text}");
}

fn sums_of(path: &Path) -> PathBuf {
    PathBuf::from(format!("{}.sums", path.display()))
}

type Damage = Box<dyn Fn(&Path, &Path)>;

/// Each kind of damage of a blob of this size: what is done to its file, or beside it; the second path is that of
/// another blob of the same size.
fn damages(size: usize) -> Vec<(String, Damage)> {
    let mut all: Vec<(String, Damage)> = Vec::new();
    for at in [0, size / 2, size - 1] {
        all.push((
            format!("byte {at} is flipped"),
            Box::new(move |path, _| {
                let mut bytes = fs::read(path).unwrap();
                bytes[at] ^= 0x10;
                fs::write(path, bytes).unwrap();
            }),
        ));
    }
    for len in [0, 1, size / 2, size - 1, size + 1, size + BLOB_CHUNK_BYTES] {
        all.push((
            format!("{len} bytes"),
            Box::new(move |path, _| {
                fs::File::options().write(true).open(path).unwrap().set_len(len as u64).unwrap();
            }),
        ));
    }
    if size == LARGE {
        all.push(("no checksums".to_owned(), Box::new(|path, _| fs::remove_file(sums_of(path)).unwrap())));
        for (what, bytes) in
            [("empty", vec![]), ("other", vec![7; 8]), ("short", vec![7; 4]), ("long", vec![7; 12])]
        {
            all.push((
                format!("{what} checksums"),
                Box::new(move |path, _| fs::write(sums_of(path), &bytes).unwrap()),
            ));
        }
        all.push((
            "checksums of another".to_owned(),
            Box::new(|path, other| {
                fs::copy(sums_of(other), sums_of(path)).unwrap();
            }),
        ));
        all.push((
            "another blob with its checksums".to_owned(),
            Box::new(|path, other| {
                fs::copy(other, path).unwrap();
                fs::copy(sums_of(other), sums_of(path)).unwrap();
            }),
        ));
    }
    all.push((
        "another blob".to_owned(),
        Box::new(|path, other| {
            fs::copy(other, path).unwrap();
        }),
    ));
    all
}

/// Whatever happens to the bytes, a read gives those that were put or says what is damaged; the log goes on; putting the
/// blob again heals it.
#[tokio::test]
async fn damaged_blob_never_yields_other_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let made = Made::new(root).await;
    for (blob, other, size) in [(0, 1, LARGE), (2, 0, 100)] {
        let (name, bytes) = &made.blobs[blob];
        let path = made.path(root, blob);
        for (context, damage) in damages(size) {
            let context = format!("{size} bytes, {context}");
            damage(&path, &made.path(root, other));
            is_named(&context, &path, "put the blob again", read_whole(&made.store, made.id, *name).await);
            made.ranges_are_right_or_corrupt(blob, &context).await;
            made.log_goes_on(&context).await;
            let report = verify(&Storage::from(made.store.clone()), |_| ()).await;
            let outcome = format!("{report:?}");
            assert!(outcome.contains(&name.to_string()), "{context}: {outcome}");
            put(&made.store, made.id, bytes).await.unwrap();
            assert!(read_whole(&made.store, made.id, *name).await.unwrap() == *bytes, "{context}");
        }
    }
    // The others are as they were.
    assert!(read_whole(&made.store, made.id, made.blobs[1].0).await.unwrap() == made.blobs[1].1);
}

/// A pipe, a link or a folder in the place of a blob, of its checksums or of all blobs is named and left alone. The log
/// goes on. Moved away, putting the blob again heals it.
#[cfg(unix)]
#[tokio::test]
async fn odd_files_among_blobs_are_named_and_left() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let made = Made::new(root).await;
    let (name, bytes) = &made.blobs[0];
    let (path, kept) = (made.path(root, 0), root.join("kept"));
    let all = path.parent().unwrap().to_owned();
    for place in [path.clone(), sums_of(&path), all.clone()] {
        for odd in ["link", "dangling", "folder", "pipe"] {
            if odd == "folder" && place == all {
                continue;
            }
            let context = format!("a {odd} for {}", place.display());
            fs::rename(&place, &kept).unwrap();
            match odd {
                "link" => std::os::unix::fs::symlink(&kept, &place).unwrap(),
                "dangling" => std::os::unix::fs::symlink("nowhere", &place).unwrap(),
                "folder" => fs::create_dir(&place).unwrap(),
                _ => rustix::fs::mkfifoat(rustix::fs::CWD, &place, rustix::fs::Mode::RWXU).unwrap(),
            }
            is_named(&context, &place, "", read_whole(&made.store, made.id, *name).await);
            is_named(&context, &place, "", put(&made.store, made.id, bytes).await);
            let damaged = made.store.maintenance().check().await.unwrap();
            let text = format!("{damaged:?}");
            assert!(damaged.len() == 1 && text.contains(&place.display().to_string()), "{context}: {text}");
            made.log_goes_on(&context).await;
            // What events name is not looked at by a sweep, except that it does not follow a link.
            let swept = made.store.blobs().sweep(SweepBlobs::of(made.id)).await;
            if place == all {
                is_named(&context, &place, "", swept);
            } else {
                assert_eq!(swept.unwrap().blobs, 0, "{context}");
            }
            assert!(fs::symlink_metadata(&place).is_ok(), "{context}: it was left alone");
            match odd {
                "folder" => fs::remove_dir(&place).unwrap(),
                _ => fs::remove_file(&place).unwrap(),
            }
            if place == all {
                fs::rename(&kept, &place).unwrap();
            } else {
                put(&made.store, made.id, bytes).await.unwrap();
                fs::remove_file(&kept).unwrap();
            }
            assert!(read_whole(&made.store, made.id, *name).await.unwrap() == *bytes, "{context}");
        }
    }
}
