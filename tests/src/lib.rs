//! Suites that need several crates of the project, or several stores: see `tests/`. Here is what they share: a place for
//! each kind of store, and a macro that makes a test for each of them.

pub mod recorded;

use std::sync::Arc;

use agent_core::{Backend, MemoryStore, Storage, TenantId};
use agent_storage_fs::{FsConfig, Sync as FsSync};
use agent_storage_sqlite::{SqliteConfig, Sync as SqliteSync};
use tempfile::TempDir;

/// Makes a test for each kind of store of an async function that takes a `Site`: `name::memory`, `name::sqlite`, and so on.
///
/// On files it is ignored, and `.ci/full` runs it: what a store of files does is for the suite and its own tests to show. Not ignored are
/// tests whose time is paused, for which there is no database, and those that `docs/guarantees.md` names: `each_store!(name and files)`. What follows a comma goes to `#[tokio::test]`:
/// `each_store!(name, flavor = "multi_thread")`. `each_store!(name on disk)` leaves memory out, `each_store!(name and mixed)` asks of one
/// kind more. The module has a `Site` in scope, whose `Site::new` takes the kind.
#[macro_export]
macro_rules! each_store {
    (@test memory $test:ident [disk] $runtime:tt) => {};
    // Paused time runs ahead of a database.
    (@test sqlite $test:ident $place:tt [start_paused = true $(, $($more:tt)*)?]) => {};
    (@test ignored_on_files $test:ident $place:tt [start_paused = true $(, $($more:tt)*)?]) => {
        $crate::each_store!(@test files $test $place [start_paused = true $(, $($more)*)?]);
    };
    (@test ignored_on_files $test:ident $place:tt [$($runtime:tt)*]) => {
        #[::tokio::test($($runtime)*)]
        #[ignore = "on memory and SQLite it runs with each change; on files in .ci/full"]
        async fn files() {
            super::$test(super::Site::new("files").await).await;
        }
    };
    (@test $store:ident $test:ident $place:tt [$($runtime:tt)*]) => {
        #[::tokio::test($($runtime)*)]
        async fn $store() {
            super::$test(super::Site::new(stringify!($store)).await).await;
        }
    };
    (@tests [$($store:ident)*] $test:ident $place:tt $runtime:tt) => {
        mod $test {
            $($crate::each_store!(@test $store $test $place $runtime);)*
        }
    };
    ($test:ident on disk $(, $($runtime:tt)*)?) => {
        $crate::each_store!(@tests [memory files sqlite] $test [disk] [$($($runtime)*)?]);
    };
    ($test:ident and files $(and $more:ident)? $(, $($runtime:tt)*)?) => {
        $crate::each_store!(@tests [memory files sqlite $($more)?] $test [] [$($($runtime)*)?]);
    };
    ($test:ident $(and $more:ident)? $(, $($runtime:tt)*)?) => {
        // A store more: its name here and above, and how to open it in `Site`.
        $crate::each_store!(@tests [memory ignored_on_files sqlite $($more)?] $test [] [$($($runtime)*)?]);
    };
}

/// Data of a store of some kind, for the time of a test.
#[derive(Debug)]
pub struct Site {
    /// Kind of the store: `memory`, `files`, `sqlite`.
    pub name: &'static str,
    /// Folder of what the store has on disk.
    pub folder: Arc<TempDir>,
    memory: MemoryStore,
    synced: bool,
}

#[allow(clippy::missing_panics_doc, clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]
impl Site {
    /// Creates an empty site.
    pub async fn new(name: &'static str) -> Self {
        Self::within(name, Arc::new(tempfile::tempdir().unwrap()))
    }

    /// Creates a site in a folder.
    #[must_use]
    pub fn within(name: &'static str, folder: Arc<TempDir>) -> Self {
        Self { name, folder, memory: MemoryStore::new(), synced: true }
    }

    /// Turns syncing off, for tests that write a lot and are about something else.
    #[must_use]
    pub fn unsynced(self) -> Self {
        Self { synced: false, ..self }
    }

    /// Opens the stores of the default tenant again, with handles that remember nothing.
    pub async fn open(&self) -> Storage {
        self.tenants().await.tenant(&TenantId::default())
    }

    /// Opens the backend again, for any tenant.
    pub async fn tenants(&self) -> Arc<dyn Backend> {
        let (files, sqlite) = match self.synced {
            true => (FsSync::default(), SqliteSync::default()),
            false => (FsSync::Off, SqliteSync::Off),
        };
        let at = |name| self.folder.path().join(name);
        match self.name {
            "memory" => Arc::new(self.memory.clone()),
            "files" => Arc::new(FsConfig::new(at("files")).with_sync(files).open().await.unwrap()),
            "sqlite" => Arc::new(SqliteConfig::new(at("store.db")).with_sync(sqlite).open().await.unwrap()),
            other => panic!("no kind of store is called {other}"),
        }
    }
}
