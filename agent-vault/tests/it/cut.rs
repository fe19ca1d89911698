//! A store that is cut at a call.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use agent_core::commit::Precondition;
use agent_core::model::Workspace;
use agent_core::store::{ContentHash, Page, WorkspaceQuery, WorkspaceStoreWrapper};
use agent_core::{
    Error, ErrorKind, Result, Revision, WorkspaceId, WorkspaceStore, WriteOutcome, async_trait,
};

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
