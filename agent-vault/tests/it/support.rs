//! Stores on this machine. Suites on servers have a module of the same form for theirs.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use agent_core::{Backend, MemoryStore, TenantId, WorkspaceStore};
use agent_storage_fs::FsStore;
use agent_storage_sqlite::SqliteStore;
use agent_vault::StorePlace;
use tempfile::TempDir;

pub(crate) const STORES: [&str; 3] = ["memory", "files", "sqlite"];

/// Those whose bytes can be looked at.
pub(crate) const SEEN: [&str; 2] = ["files", "sqlite"];

/// A store in a folder of its own, opened twice, as two processes would.
pub(crate) struct Site {
    pub(crate) folder: TempDir,
    pub(crate) backends: [Arc<dyn Backend>; 2],
}

impl Site {
    pub(crate) async fn new(store: &str) -> Self {
        Self::on(store, tempfile::tempdir().unwrap()).await
    }

    /// A store with the same bytes, which is in a place of its own.
    pub(crate) async fn copied(&self) -> Self {
        let folder = tempfile::tempdir().unwrap();
        copy(self.folder.path(), folder.path());
        let store = if folder.path().join("agents.db").exists() { "sqlite" } else { "files" };
        Self::on(store, folder).await
    }

    async fn on(store: &str, folder: TempDir) -> Self {
        let backends: [Arc<dyn Backend>; 2] = match store {
            "memory" => {
                let one = Arc::new(MemoryStore::new());
                [one.clone(), one]
            }
            "files" => {
                let path = folder.path().join("agents");
                [Arc::new(FsStore::open(&path).await.unwrap()), Arc::new(FsStore::open(&path).await.unwrap())]
            }
            _ => {
                let path = folder.path().join("agents.db");
                [
                    Arc::new(SqliteStore::open(&path).await.unwrap()),
                    Arc::new(SqliteStore::open(&path).await.unwrap()),
                ]
            }
        };
        Self { folder, backends }
    }

    /// The store of workspaces of the `n`-th process.
    pub(crate) fn workspaces(&self, n: usize) -> Arc<dyn WorkspaceStore> {
        let tenant: TenantId = "keys".parse().unwrap();
        self.backends[n % 2].tenant(&tenant).workspaces
    }

    /// The place of the `n`-th process.
    pub(crate) fn place(&self, n: usize) -> StorePlace {
        StorePlace::new(self.workspaces(n))
    }

    /// The files that hold these bytes.
    #[allow(clippy::unused_async, reason = "that of a server asks it")]
    pub(crate) async fn places_with(&self, bytes: &[u8]) -> Vec<PathBuf> {
        let mut found = Vec::new();
        walk(self.folder.path(), &mut |path| {
            let content = fs::read(path).unwrap();
            if content.windows(bytes.len()).any(|part| part == bytes) {
                found.push(path.to_owned());
            }
        });
        found
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let (from, to) = (entry.as_ref().unwrap().path(), to.join(entry.unwrap().file_name()));
        if from.is_dir() { copy(&from, &to) } else { assert!(fs::copy(from, to).is_ok()) }
    }
}

fn walk(folder: &Path, see: &mut dyn FnMut(&Path)) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { walk(&path, see) } else { see(&path) }
    }
}
