//! A store beside which something happens, once, at a named call; and whose reply may be lost.

use std::fmt;
use std::sync::{Arc, Mutex};

use agent_core::commit::{Commit, Committed};
use agent_core::store::{DeletedTenant, Page, Pending, Purge, Purged, SessionStoreWrapper};
use agent_core::{
    Backend, Error, ErrorKind, Result, SessionStore, Storage, TenantId, WriteOutcome, async_trait,
};
use futures::future::BoxFuture;

/// A call of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    Commit(TenantId),
    Purge,
    DeleteTenant(TenantId),
    Maintain,
}

type Work = BoxFuture<'static, ()>;

struct Hook {
    at: Box<dyn Fn(&Call) -> bool + Send + Sync>,
    work: Mutex<Option<Work>>,
    loses_reply: bool,
}

/// A backend that does some work before the first call of a kind.
#[derive(Clone)]
pub(crate) struct Hooked {
    under: Arc<dyn Backend>,
    hook: Arc<Hook>,
}

impl fmt::Debug for Hooked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hooked")
    }
}

impl Hooked {
    pub(crate) fn new(
        under: Arc<dyn Backend>,
        at: impl Fn(&Call) -> bool + Send + Sync + 'static,
        work: impl Future<Output = ()> + Send + 'static,
    ) -> Self {
        let work: Work = Box::pin(work);
        let hook = Hook { at: Box::new(at), work: Mutex::new(Some(work)), loses_reply: false };
        Self { under, hook: Arc::new(hook) }
    }

    /// The process dies as soon as that call is done.
    pub(crate) fn losing_the_reply(self) -> Self {
        let Ok(hook) = Arc::try_unwrap(self.hook) else { panic!("it is not in use") };
        Self { hook: Arc::new(Hook { loses_reply: true, ..hook }), ..self }
    }

    /// Whether the call for which it waits has come.
    pub(crate) fn has_come(&self) -> bool {
        self.hook.work.lock().unwrap().is_none()
    }

    async fn call<T>(&self, call: Call, done: impl Future<Output = Result<T>>) -> Result<T> {
        let work = match (self.hook.at)(&call) {
            true => self.hook.work.lock().unwrap().take(),
            false => None,
        };
        let Some(work) = work else { return done.await };
        work.await;
        let done = done.await;
        if self.hook.loses_reply {
            let dead = Error::new(ErrorKind::Poisoned, "the process is dead, says the test");
            return Err(dead.with_outcome(WriteOutcome::Unknown));
        }
        done
    }
}

#[derive(Debug)]
struct HookedSessions(Arc<dyn SessionStore>, Hooked, TenantId);

#[async_trait]
impl SessionStoreWrapper for HookedSessions {
    fn inner(&self) -> &dyn SessionStore {
        &*self.0
    }

    async fn commit(&self, commit: Commit) -> Result<Committed> {
        self.1.call(Call::Commit(self.2.clone()), self.0.commit(commit)).await
    }

    async fn purge(&self, purge: Purge) -> Result<Purged> {
        self.1.call(Call::Purge, self.0.purge(purge)).await
    }
}

#[async_trait]
impl Backend for Hooked {
    fn tenant(&self, tenant: &TenantId) -> Storage {
        let plain = self.under.tenant(tenant);
        let sessions = HookedSessions(plain.sessions.store().clone(), self.clone(), tenant.clone());
        plain.with_session_store(Arc::new(sessions))
    }

    async fn tenants(&self, after: Option<TenantId>) -> Result<Page<TenantId>> {
        self.under.tenants(after).await
    }

    async fn delete_tenant(&self, tenant: &TenantId) -> Result<DeletedTenant> {
        self.call(Call::DeleteTenant(tenant.clone()), self.under.delete_tenant(tenant)).await
    }

    async fn maintain(&self) -> Result<Vec<Pending>> {
        self.call(Call::Maintain, self.under.maintain()).await
    }
}
