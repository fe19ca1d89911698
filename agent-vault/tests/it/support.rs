//! Stores, and a store that is cut at a call.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use agent_core::commit::Precondition;
use agent_core::model::Workspace;
use agent_core::store::{ContentHash, Page, WorkspaceQuery, WorkspaceStoreWrapper};
use agent_core::{
    Backend, Error, ErrorKind, MemoryStore, Result, Revision, TenantId, WorkspaceId, WorkspaceStore,
    WriteOutcome, async_trait,
};
use agent_storage_fs::FsStore;
use agent_storage_sqlite::SqliteStore;
use agent_vault::StorePlace;
use tempfile::TempDir;

pub(crate) const STORES: [&str; 3] = ["memory", "files", "sqlite"];

/// A store in a folder of its own, opened twice, as two processes would.
pub(crate) struct Site {
    pub(crate) folder: TempDir,
    pub(crate) backends: [Arc<dyn Backend>; 2],
}

impl Site {
    pub(crate) async fn new(store: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
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
    pub(crate) fn files_with(&self, bytes: &[u8]) -> Vec<PathBuf> {
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

fn walk(folder: &Path, see: &mut dyn FnMut(&Path)) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { walk(&path, see) } else { see(&path) }
    }
}

/// What happens at the n-th call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    /// It fails, and all others work.
    Fails,
    /// The process dies before it: it and all later calls do nothing.
    DiesBefore,
    /// The process dies after it: it is done, its reply is lost, and all later calls do nothing.
    DiesAfter,
}

impl Cut {
    pub(crate) const ALL: [Self; 3] = [Self::Fails, Self::DiesBefore, Self::DiesAfter];
}

/// A store of workspaces that is cut at a call, counted from 1.
#[derive(Debug)]
pub(crate) struct Cutting {
    under: Arc<dyn WorkspaceStore>,
    calls: AtomicUsize,
    at: usize,
    cut: Cut,
}

impl Cutting {
    pub(crate) fn new(under: Arc<dyn WorkspaceStore>, at: usize, cut: Cut) -> Arc<Self> {
        Arc::new(Self { under, calls: AtomicUsize::new(0), at, cut })
    }

    /// Whether there were as many calls as it takes to be cut.
    pub(crate) fn was_cut(&self) -> bool {
        self.calls.load(Ordering::SeqCst) >= self.at
    }

    async fn call<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        let n = self.calls.fetch_add(1, Ordering::SeqCst) + 1;
        let dead = || Error::new(ErrorKind::Poisoned, "the process is dead, says the test");
        match self.cut {
            Cut::Fails if n == self.at => Err(Error::new(ErrorKind::Full, "no space, says the test")),
            Cut::DiesBefore if n >= self.at => Err(dead()),
            Cut::DiesAfter if n == self.at => {
                let _ = work.await;
                Err(dead().with_outcome(WriteOutcome::Unknown))
            }
            Cut::DiesAfter if n > self.at => Err(dead()),
            _ => work.await,
        }
    }
}

#[async_trait]
impl WorkspaceStoreWrapper for Cutting {
    fn inner(&self) -> &dyn WorkspaceStore {
        &*self.under
    }

    async fn load(&self, id: WorkspaceId) -> Result<Workspace> {
        self.call(self.under.load(id)).await
    }

    async fn put(&self, workspace: Workspace, expect: Precondition<Revision>) -> Result<Workspace> {
        self.call(self.under.put(workspace, expect)).await
    }

    async fn list(&self, query: WorkspaceQuery) -> Result<Page<Workspace>> {
        self.call(self.under.list(query)).await
    }

    async fn delete(&self, id: WorkspaceId) -> Result<()> {
        self.call(self.under.delete(id)).await
    }

    async fn load_config(&self, id: WorkspaceId) -> Result<Option<String>> {
        self.call(self.under.load_config(id)).await
    }

    async fn load_with_config(&self, id: WorkspaceId) -> Result<(Workspace, Option<String>)> {
        self.call(self.under.load_with_config(id)).await
    }

    async fn save_config(
        &self,
        id: WorkspaceId,
        text: Option<String>,
        expect: Precondition<ContentHash>,
    ) -> Result<()> {
        self.call(self.under.save_config(id, text, expect)).await
    }
}
