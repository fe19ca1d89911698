//! The folder of the file store.

use agent_core::commit::Precondition;
use agent_core::store::BindingQuery;
use agent_core::{Backend, BindingStore, DeviceId, TenantId, WorkspaceId};
use agent_storage_fs::{FsConfig, FsStore, Sync};

use crate::forms::golden::{self, Files};
use crate::forms::script::{self, check, cursors, effects, go_on};

const FORM: &str = "files";
const CURSORS: &str = "cursors";

/// Number of the logs. Of all numbers in the folder, it changes with everything that an event or a record holds.
fn format() -> u64 {
    FsStore::FORMATS.iter().find(|(name, _)| *name == "events.jsonl").unwrap().1
}

async fn open(root: &std::path::Path) -> FsStore {
    FsConfig::new(root).with_sync(Sync::Off).with_effects(effects(2)).open().await.unwrap()
}

/// Tenant with so many devices that changes are stored in a file of their own.
fn many() -> TenantId {
    "many".parse().unwrap()
}

fn device(n: usize) -> DeviceId {
    format!("device {n:03} {}", "x".repeat(480)).parse().unwrap()
}

async fn bind_many(store: &FsStore) {
    let store = store.for_tenant(&many());
    for n in 0..140 {
        store.bind(&device(n), WorkspaceId::DEFAULT, Precondition::MustNotExist).await.unwrap();
    }
    assert!(store.unbind(&device(3)).await.unwrap());
}

/// Returns the files of a store but its locks, which are empty.
fn stored(root: &std::path::Path) -> Files {
    let mut files = golden::files(root);
    files.retain(|name, _| {
        let name = name.rsplit('/').next().unwrap();
        name != "lock" && !name.ends_with(".lock")
    });
    files.retain(|name, _| !name.contains("index/locks/"));
    files
}

/// Writes files below a folder.
fn place(files: &Files, root: &std::path::Path) {
    for (name, bytes) in files {
        let path = root.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }
}

#[tokio::test]
async fn files_are_written_as_declared() {
    let root = tempfile::tempdir().unwrap();
    let store = open(root.path()).await;
    script::write(&store).await;
    bind_many(&store).await;
    let cursors = cursors(&store).await;
    agent_core::Backend::close(&store).await.unwrap();
    let mut files = stored(root.path());
    for name in [
        "accessed",
        "bindings.changes",
        "bindings.toml",
        "changes",
        "config.toml",
        "deleted",
        "events.jsonl",
        "lease",
        "session.json",
        "session.md",
        "tombstone.json",
        "workspace.toml",
    ] {
        assert!(files.keys().any(|path| path.ends_with(&format!("/{name}"))), "the script writes no {name}");
    }
    assert!(files.keys().any(|path| path.ends_with(".sums")), "the script writes no checksums of chunks");
    files.insert(CURSORS.to_owned(), cursors.into_bytes());
    golden::compare(FORM, format(), &files);
}

#[tokio::test]
async fn golden_files_are_read_whole() {
    let root = tempfile::tempdir().unwrap();
    let mut files = golden::read(FORM, format());
    let cursors = String::from_utf8(files.remove(CURSORS).unwrap()).unwrap();
    place(&files, root.path());
    let store = open(root.path()).await;
    let tenants = store.tenants(None).await.unwrap();
    let expected = ["acme", "default", "many"].map(|name| name.parse::<TenantId>().unwrap());
    assert_eq!((tenants.items.as_slice(), tenants.damaged.len()), (&expected[..], 0));
    go_on(&store, &cursors).await;
    check(&store).await;
    let store = store.for_tenant(&many());
    let bound = BindingStore::list(&store, BindingQuery::new().with_limit(1000)).await.unwrap();
    let devices: Vec<_> = bound.items.into_iter().map(|binding| binding.device).collect();
    assert_eq!(devices, (0..140).filter(|n| *n != 3).map(device).collect::<Vec<_>>());
    assert_eq!(bound.damaged, []);
}
