//! A backend that is cut at a write, and an erasure through it that the next call finishes.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use agent_core::commit::{Commit, Committed, Precondition};
use agent_core::model::Workspace;
use agent_core::store::{
    BindingStoreWrapper, ContentHash, DeletedTenant, Page, Pending, Purge, Purged, SessionStoreWrapper,
    WorkspaceStoreWrapper,
};
use agent_core::{
    Backend, BindingStore, Error, ErrorKind, Result, Revision, SessionId, SessionStore, Storage, TenantId,
    WorkspaceId, WorkspaceStore, WriteOutcome, async_trait,
};
use agent_vault::Vault;
use agent_workspace::erasure::{Eraser, Look, Receipt, Subject, verify_erased};

use crate::cut::Cut;
use crate::erasure::{ALICE, Scene, WORD, acme, eraser, opened, ring};
use crate::support::Site;

/// Writes of all stores of a backend, of which one is cut.
#[derive(Debug)]
struct Cutter {
    calls: AtomicUsize,
    at: usize,
    cut: Cut,
}

impl Cutter {
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

    fn was_cut(&self) -> bool {
        self.calls.load(Ordering::SeqCst) >= self.at
    }
}

#[derive(Clone, Debug)]
struct CutBackend {
    under: Arc<dyn Backend>,
    cutter: Arc<Cutter>,
}

#[derive(Debug)]
struct CutSessions(Arc<dyn SessionStore>, Arc<Cutter>);

#[derive(Debug)]
struct CutWorkspaces(Arc<dyn WorkspaceStore>, Arc<Cutter>);

#[derive(Debug)]
struct CutBindings(Arc<dyn BindingStore>, Arc<Cutter>);

#[async_trait]
impl SessionStoreWrapper for CutSessions {
    fn inner(&self) -> &dyn SessionStore {
        &*self.0
    }

    async fn commit(&self, commit: Commit) -> Result<Committed> {
        self.1.call(self.0.commit(commit)).await
    }

    async fn purge(&self, purge: Purge) -> Result<Purged> {
        self.1.call(self.0.purge(purge)).await
    }
}

#[async_trait]
impl WorkspaceStoreWrapper for CutWorkspaces {
    fn inner(&self) -> &dyn WorkspaceStore {
        &*self.0
    }

    async fn put(&self, workspace: Workspace, expect: Precondition<Revision>) -> Result<Workspace> {
        self.1.call(self.0.put(workspace, expect)).await
    }

    async fn delete(&self, id: WorkspaceId) -> Result<()> {
        self.1.call(self.0.delete(id)).await
    }

    async fn save_config(
        &self,
        id: WorkspaceId,
        text: Option<String>,
        expect: Precondition<ContentHash>,
    ) -> Result<()> {
        self.1.call(self.0.save_config(id, text, expect)).await
    }
}

#[async_trait]
impl BindingStoreWrapper for CutBindings {
    fn inner(&self) -> &dyn BindingStore {
        &*self.0
    }

    async fn unbind_workspace(&self, id: WorkspaceId) -> Result<u64> {
        self.1.call(self.0.unbind_workspace(id)).await
    }
}

#[async_trait]
impl Backend for CutBackend {
    fn tenant(&self, tenant: &TenantId) -> Storage {
        let plain = self.under.tenant(tenant);
        let sessions = CutSessions(plain.sessions.store().clone(), self.cutter.clone());
        let workspaces = CutWorkspaces(plain.workspaces.clone(), self.cutter.clone());
        let bindings = CutBindings(plain.bindings.clone(), self.cutter.clone());
        plain.with_stores(Arc::new(workspaces), Arc::new(sessions), Arc::new(bindings))
    }

    async fn tenants(&self, after: Option<TenantId>) -> Result<Page<TenantId>> {
        self.under.tenants(after).await
    }

    async fn delete_tenant(&self, tenant: &TenantId) -> Result<DeletedTenant> {
        self.cutter.call(self.under.delete_tenant(tenant)).await
    }

    async fn maintain(&self) -> Result<Vec<Pending>> {
        self.cutter.call(self.under.maintain()).await
    }
}

/// Erases and settles; the receipt is the host's as soon as it is returned.
async fn erased(eraser: &Eraser, host: &mut Option<Receipt>) -> Result<()> {
    let receipt = match eraser.run().await {
        // It was settled, and the reply was lost.
        Err(error) if *error.kind() == ErrorKind::NotFound && host.is_some() => return Ok(()),
        receipt => receipt?,
    };
    *host = Some(receipt);
    eraser.settle().await
}

/// Cuts an erasure at its `at`-th write, and finishes it. Returns whether it was cut.
async fn cut(store: &str, is_sealed: bool, subject: Option<Subject>, at: usize, cut: Cut) -> bool {
    let site = Site::new(store).await;
    let backend = opened(site.backends[0].clone(), is_sealed).await;
    let scene = Scene::new(&*backend).await;
    backend.tenant(&acme()).sessions.update_search_index().await.unwrap();
    let eraser = |backend: &Arc<dyn Backend>| match &subject {
        None => eraser(backend),
        Some(subject) => Eraser::new(backend.clone(), acme(), subject.clone()),
    };
    let cutter = Arc::new(Cutter { calls: AtomicUsize::new(0), at, cut });
    let cutting: Arc<dyn Backend> =
        Arc::new(CutBackend { under: site.backends[0].clone(), cutter: cutter.clone() });
    let mut host = None;
    let first = match is_sealed {
        // The opening makes sure of the keys, and may be cut, too.
        true => match Vault::open(cutting, ring()).await {
            Ok(vault) => erased(&eraser(&(Arc::new(vault) as Arc<dyn Backend>)), &mut host).await,
            Err(error) => Err(error),
        },
        false => erased(&eraser(&cutting), &mut host).await,
    };
    let what = format!("{store}, sealed {is_sealed}, {cut:?} at {at}");
    let was_cut = cutter.was_cut();
    assert!(first.is_err() || !was_cut || host.is_some(), "{what}");
    // Another process finishes.
    let other = opened(site.backends[1].clone(), is_sealed).await;
    erased(&eraser(&other), &mut host).await.unwrap_or_else(|error| panic!("{what}: {error:?}"));
    let receipt = host.unwrap();
    let sessions: BTreeSet<SessionId> = receipt.sessions.iter().copied().collect();
    assert!(sessions.is_superset(&scene.ids()) && receipt.kept.is_empty(), "{what}: {receipt:?}");
    if is_sealed {
        let keys = receipt.keys.iter().filter(|row| row.session.is_some_and(|id| scene.ids().contains(&id)));
        assert_eq!(keys.count(), 3, "{what}: {receipt:?}");
    }
    let look = Look::new().with_words([WORD, ALICE]).with_files([site.folder.path()]);
    assert_eq!(verify_erased(&*other, &receipt, look).await.unwrap().left, [], "{what}");
    let left = other.tenants(None).await.unwrap().items;
    assert!(left.iter().all(|tenant| !tenant.as_str().starts_with("erasure-")), "{what}: {left:?}");
    was_cut
}

/// Cuts at every third write, or at every one with `AGENT_TEST_THOROUGH=1`, which takes minutes. Each way begins one write later.
pub(crate) async fn cut_at_each(store: &str, is_sealed: bool, subject: Option<Subject>, cuts: &[Cut]) {
    let step = if std::env::var_os("AGENT_TEST_THOROUGH").is_some() { 1 } else { 3 };
    for (begin, how) in (0..step).cycle().zip(cuts) {
        let mut at = 1 + begin;
        while cut(store, is_sealed, subject.clone(), at, *how).await {
            at += step;
        }
        assert!(at > 5, "{store}: {at}");
    }
}
