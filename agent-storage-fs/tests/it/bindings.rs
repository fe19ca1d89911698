//! Bindings of many devices: changes are appended beside `bindings.toml`, and written into it from time to time.
#![allow(dead_code, reason = "of the helpers a part is used here")]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::support::{Call, EIO, Spy};
use agent_core::clock::Effects;
use agent_core::commit::Precondition;
use agent_core::store::BindingQuery;
use agent_core::{BindingStore, DeviceId, ErrorKind, TenantId, Timestamp, WorkspaceId, WriteOutcome};
use agent_storage_fs::{FsConfig, FsStore};

/// Opens the store as another process does. Each change is appended, as if there were many devices.
async fn open(root: &Path) -> FsStore {
    FsConfig::new(root).with_bindings_rewrite_max_bytes(0).open().await.unwrap()
}

fn device(number: u64) -> DeviceId {
    format!("device \"{number}\"").parse().unwrap()
}

async fn bind(store: &FsStore, number: u64, to: WorkspaceId) {
    assert_eq!(store.bind(&device(number), to, Precondition::None).await.unwrap(), to);
}

async fn all(store: &FsStore) -> BTreeMap<DeviceId, WorkspaceId> {
    let page = BindingStore::list(store, BindingQuery::new().with_limit(1000)).await.unwrap();
    assert!(page.damaged.is_empty(), "{:?}", page.damaged);
    page.items.into_iter().map(|binding| (binding.device, binding.workspace)).collect()
}

/// Two processes change bindings in turns, and a third one that reads at the end finds the same.
#[tokio::test]
async fn changes_are_seen_by_others_and_after_reopening() {
    let folder = tempfile::tempdir().unwrap();
    let effects = Effects::seeded(7, Timestamp::UNIX_EPOCH);
    let workspaces: Vec<_> = (0..3).map(|_| effects.new_workspace_id()).collect();
    let stores = [open(folder.path()).await, open(folder.path()).await];
    let (mut expected, mut appended, mut written) = (BTreeMap::new(), 0, 0);
    let roll = |sides: u64| effects.random_u64() % sides;
    for _ in 0..400 {
        let (one, other) = if roll(2) == 0 { (&stores[0], &stores[1]) } else { (&stores[1], &stores[0]) };
        let number = roll(20);
        match roll(20) {
            0 => {
                let id = workspaces[usize::try_from(roll(3)).unwrap()];
                let before = expected.len();
                expected.retain(|_, bound| *bound != id);
                let unbound = one.unbind_workspace(id).await.unwrap();
                assert_eq!(unbound, (before - expected.len()) as u64);
            }
            1..6 => {
                let was = expected.remove(&device(number)).is_some();
                assert_eq!(one.unbind(&device(number)).await.unwrap(), was);
            }
            _ => {
                let to = workspaces[usize::try_from(roll(3)).unwrap()];
                bind(one, number, to).await;
                expected.insert(device(number), to);
            }
        }
        let inspected = device(roll(20));
        assert_eq!(other.resolve(&inspected).await.unwrap(), expected.get(&inspected).copied());
        match folder.path().join("bindings.changes").exists() {
            true => appended += 1,
            false => written += 1,
        }
    }
    assert!(appended > 100 && written > 20, "{appended} {written}");
    for store in [&stores[0], &stores[1], &open(folder.path()).await] {
        assert_eq!(all(store).await, expected);
    }
    // A store with the usual limit reads the same, and writes it into one file with its next change.
    let store = FsConfig::new(folder.path()).open().await.unwrap();
    assert_eq!(all(&store).await, expected);
}

/// A reader beside a writer, which writes `bindings.toml` anew all the time: it never goes back to an earlier binding.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_do_not_go_back() {
    let folder = tempfile::tempdir().unwrap();
    let effects = Effects::seeded(8, Timestamp::UNIX_EPOCH);
    let steps: Vec<_> = (0..300).map(|_| effects.new_workspace_id()).collect();
    let places: BTreeMap<_, _> = steps.iter().enumerate().map(|(at, id)| (*id, at)).collect();
    let (writer, reader) = (open(folder.path()).await, open(folder.path()).await);
    bind(&writer, 0, steps[0]).await;
    let done = Arc::new(AtomicBool::new(false));
    let reads = {
        let done = done.clone();
        tokio::spawn(async move {
            let (mut last, mut reads) = (0, 0);
            while !done.load(Ordering::Acquire) {
                let now = reader.resolve(&device(0)).await.unwrap().expect("it stays bound");
                assert!(places[&now] >= last, "{} after {last}", places[&now]);
                (last, reads) = (places[&now], reads + 1);
            }
            reads
        })
    };
    for step in &steps {
        bind(&writer, 0, *step).await;
    }
    done.store(true, Ordering::Release);
    assert!(reads.await.unwrap() > 100);
}

/// A last line that is not whole was not acknowledged: readers stop before it, and the next change moves it away. A bad
/// line with others behind it is damage, and nothing is written.
#[tokio::test]
async fn torn_ends_are_moved_away_and_damage_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let effects = Effects::seeded(9, Timestamp::UNIX_EPOCH);
    let to = effects.new_workspace_id();
    let path = folder.path().join("bindings.changes");
    {
        let store = open(folder.path()).await;
        // A large file, so that some changes fit beside it.
        for number in 0..20 {
            bind(&store, number, to).await;
        }
        while fs::read_to_string(&path).map_or(0, |text| text.lines().count()) != 3 {
            let number = effects.random_u64() % 1000;
            bind(&store, 1000 + number, effects.new_workspace_id()).await;
        }
    }
    let whole = fs::read(&path).unwrap();
    let text = String::from_utf8(whole.clone()).unwrap();
    let last = text.trim_end().rfind('\n').unwrap() + 1;
    let before = all(&open(folder.path()).await).await;
    let names = |part: &str| {
        let names = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name());
        names.filter(|name| name.to_string_lossy().contains(part)).count()
    };
    for cut in [last, last + 1, whole.len() - 2, whole.len() - 1] {
        fs::write(&path, &whole[..cut]).unwrap();
        let store = open(folder.path()).await;
        let left = all(&store).await;
        assert!(left.len() <= before.len() && left.len() + 1 >= before.len(), "cut at {cut}");
        let kept = names(".damaged-");
        bind(&store, 0, effects.new_workspace_id()).await;
        assert_eq!(names(".damaged-"), kept + usize::from(cut > last), "cut at {cut}");
        assert_eq!(all(&open(folder.path()).await).await, all(&store).await);
    }
    for (what, bytes) in [
        ("a flipped bit", {
            let mut bytes = whole.clone();
            bytes[30] ^= 1;
            bytes
        }),
        ("another tenant's lines", {
            let acme: TenantId = "acme".parse().unwrap();
            let other = FsConfig::new(folder.path()).with_bindings_rewrite_max_bytes(0).open().await.unwrap();
            let other = other.for_tenant(&acme);
            for number in 0..3 {
                bind(&other, number, to).await;
            }
            let mut lines = fs::read(folder.path().join("tenants/acme/bindings.changes")).unwrap();
            lines.extend_from_slice(&whole);
            lines
        }),
    ] {
        fs::write(&path, &bytes).unwrap();
        let store = open(folder.path()).await;
        for error in [
            store.resolve(&device(1)).await.unwrap_err(),
            store.bind(&device(1), to, Precondition::None).await.unwrap_err(),
            store.unbind(&device(1)).await.unwrap_err(),
            store.unbind_workspace(to).await.unwrap_err(),
            BindingStore::list(&store, BindingQuery::new()).await.unwrap_err(),
        ] {
            assert_eq!(*error.kind(), ErrorKind::Corrupt, "{what}: {error}");
            assert!(error.to_string().contains("bindings.changes has a damaged line at byte 0"), "{error}");
        }
        assert_eq!(fs::read(&path).unwrap(), bytes, "{what}");
    }
}

/// What a person writes into a large `bindings.toml` holds at once, also right after the store has written it.
#[tokio::test]
async fn edits_of_a_large_file_are_seen() {
    let folder = tempfile::tempdir().unwrap();
    let effects = Effects::seeded(10, Timestamp::UNIX_EPOCH);
    let (home, work) = (effects.new_workspace_id(), effects.new_workspace_id());
    let store = open(folder.path()).await;
    bind(&store, 1, home).await;
    let path = folder.path().join("bindings.toml");
    let mut now = home;
    for round in 0..20 {
        let next = if now == home { work } else { home };
        assert_eq!(store.resolve(&device(1)).await.unwrap(), Some(now), "round {round}");
        // The same length, in the same file.
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, text.replace(&now.to_string(), &next.to_string())).unwrap();
        now = next;
    }
}

/// Does something with another handle of the store, as another process does it in the middle of a call.
fn meanwhile(root: &Path, work: impl AsyncFnOnce(FsStore) + Send + 'static) {
    let root = root.to_owned();
    let thread = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async { work(open(&root).await).await });
    });
    thread.join().unwrap();
}

/// `bindings.toml` is written anew between the two looks of a reader: it shows no state that never was.
#[tokio::test]
async fn a_file_that_is_written_meanwhile_is_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let effects = Effects::seeded(11, Timestamp::UNIX_EPOCH);
    let [first, second, third] = [(); 3].map(|()| effects.new_workspace_id());
    {
        let store = open(folder.path()).await;
        bind(&store, 1, first).await;
        bind(&store, 1, second).await;
    }
    assert!(folder.path().join("bindings.changes").exists());
    let spy = Spy::new();
    let config =
        FsConfig::new(folder.path()).with_bindings_rewrite_max_bytes(0).with_io(Arc::new(spy.clone()));
    let store = config.open().await.unwrap();
    let (root, is_done) = (folder.path().to_owned(), AtomicBool::new(false));
    spy.fail(move |_, call| {
        if call.name == "open" && call.file() == "bindings.toml" && !is_done.swap(true, Ordering::AcqRel) {
            meanwhile(&root, async move |other| {
                bind(&other, 1, third).await;
                bind(&other, 2, third).await;
                // Writes all of them into one file.
                bind(&other, 3, first).await;
                assert_eq!(other.unbind_workspace(first).await.unwrap(), 1);
            });
        }
        None
    });
    let expected = BTreeMap::from([(device(1), third), (device(2), third)]);
    assert_eq!(all(&store).await, expected);
}

/// A change whose sync fails is taken back, also from a reader that has seen it, when another one of the same length is
/// in its place.
#[tokio::test]
async fn a_change_that_was_taken_back_is_forgotten() {
    let folder = tempfile::tempdir().unwrap();
    let effects = Effects::seeded(12, Timestamp::UNIX_EPOCH);
    let [first, second, third, fourth] = [(); 4].map(|()| effects.new_workspace_id());
    let reader = open(folder.path()).await;
    bind(&reader, 1, first).await;
    bind(&reader, 1, second).await;
    let spy = Spy::new();
    let config = FsConfig::new(folder.path()).with_bindings_rewrite_max_bytes(1 << 20);
    let config = config.with_io(Arc::new(spy.clone()));
    let store = config.open().await.unwrap();
    let (seen, is_done) = (reader.clone(), AtomicBool::new(false));
    spy.fail(move |_, call| {
        if call.name != "sync" || is_done.swap(true, Ordering::AcqRel) {
            return None;
        }
        let seen = seen.clone();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let now = runtime.block_on(seen.resolve(&device(1))).unwrap();
            assert_eq!(now, Some(third), "it is there, and not durable");
        })
        .join()
        .unwrap();
        Some(EIO)
    });
    let error = store.bind(&device(1), third, Precondition::None).await.unwrap_err();
    assert_eq!(error.write_outcome(), WriteOutcome::NotApplied, "{error}");
    bind(&store, 1, fourth).await;
    assert_eq!(reader.resolve(&device(1)).await.unwrap(), Some(fourth));
    assert_eq!(open(folder.path()).await.resolve(&device(1)).await.unwrap(), Some(fourth));
}

/// A change is one write and one sync. Who repeats one of another process, whose sync may have failed, writes it again and
/// syncs it before the answer, once.
#[tokio::test]
async fn a_change_is_one_write_and_one_sync() {
    let folder = tempfile::tempdir().unwrap();
    let effects = Effects::seeded(13, Timestamp::UNIX_EPOCH);
    let to = effects.new_workspace_id();
    {
        let store = FsConfig::new(folder.path()).open().await.unwrap();
        for number in 0..40 {
            bind(&store, number, to).await;
        }
    }
    let watched = async || {
        let spy = Spy::new();
        let config = FsConfig::new(folder.path()).with_bindings_rewrite_max_bytes(100);
        (config.with_io(Arc::new(spy.clone())).open().await.unwrap(), spy)
    };
    let (store, spy) = watched().await;
    bind(&store, 100, to).await;
    spy.take();
    bind(&store, 101, to).await;
    let calls = spy.take();
    let count = |calls: &[Call], name: &str| calls.iter().filter(|call| call.name == name).count();
    assert_eq!(
        (count(&calls, "write"), count(&calls, "sync"), count(&calls, "sync_dir")),
        (1, 1, 0),
        "{calls:?}"
    );

    let (other, spy) = watched().await;
    bind(&other, 101, to).await;
    let calls = spy.take();
    let synced = calls.iter().any(|call| call.name == "sync" && call.file() == "bindings.changes");
    assert!(synced && count(&calls, "write") == 1 && count(&calls, "sync_dir") >= 1, "{calls:?}");
    bind(&other, 101, to).await;
    let calls = spy.take();
    assert_eq!((count(&calls, "sync"), count(&calls, "sync_dir")), (0, 0), "{calls:?}");
    spy.take();
    assert_eq!(other.resolve(&device(7)).await.unwrap(), Some(to));
    let calls = spy.take();
    assert!(calls.len() <= 8 && !calls.iter().any(Call::writes), "{calls:?}");
}
