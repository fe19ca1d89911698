//! Backend that records the deletion of tenants.

use std::future::Future;
use std::sync::Arc;

use async_trait::async_trait;
use futures::TryStreamExt;

use crate::audit::notes::Notes;
use crate::audit::stores::audited;
use agent_core::event::{AuditedOperation, Operation, OperationOutcome, RemovedObjects};
use agent_core::model::Actor;
use agent_core::store::{
    BindingQuery, Damaged, DeletedTenant, ErasableKeys, PAGE_MAX, Page, Pending, SessionQuery,
    WorkspaceQuery, pages,
};
use agent_core::{Backend, Error, ErrorKind, Result, Storage, TenantId, Timestamp};

/// Backend, and the actor whose operations on it are recorded.
#[derive(Debug)]
pub(super) struct AuditedBackend {
    pub(super) backend: Arc<dyn Backend>,
    pub(super) actor: Actor,
}

impl AuditedBackend {
    fn notes(&self, storage: &Storage) -> Notes {
        Notes { sessions: storage.sessions.clone(), actor: self.actor.clone() }
    }

    /// Executes a deletion between its two entries.
    async fn around(
        &self,
        tenant: &TenantId,
        deletion: impl Future<Output = Result<DeletedTenant>> + Send,
    ) -> Result<DeletedTenant> {
        let place = TenantId::audit_of_tenants();
        if *tenant == place {
            let text =
                format!("tenant {place} has the audit of deleted tenants, which can only be appended to");
            return Err(Error::new(ErrorKind::Denied, text));
        }
        let notes = self.notes(&self.backend.tenant(&place));
        let audited = AuditedOperation::new(Operation::DeleteTenant).with_tenant(tenant);
        // Counted before, since a deletion that is cut off and repeated finds only the rest.
        let begun = match there(&self.backend.tenant(tenant)).await {
            Some(there) => notes.begin(&audited.clone().with_removed(there)).await?,
            None => notes.begin(&audited).await?,
        };
        let result = deletion.await;
        let (audited, outcome) = match &result {
            Ok(done) => {
                let removed = RemovedObjects::new(done.workspaces, done.sessions, done.bindings);
                let outcome =
                    if done.is_empty() { OperationOutcome::Unchanged } else { OperationOutcome::Done };
                (audited.with_removed(removed), outcome)
            }
            // Nothing is removed while a session is run.
            Err(error) if matches!(error.kind(), ErrorKind::Busy { .. }) => {
                (audited, OperationOutcome::Failed)
            }
            Err(_) => (audited, OperationOutcome::Unknown),
        };
        notes.end(audited, begun, outcome, result.as_ref().err()).await;
        result
    }
}

/// Returns the number of objects of a tenant; `None` if they cannot be counted, which keeps nobody from deleting them.
async fn there(storage: &Storage) -> Option<RemovedObjects> {
    let workspaces = WorkspaceQuery::new().with_deleting().with_total().with_limit(1);
    let sessions = SessionQuery::new().with_hidden().with_total().with_limit(1);
    let (workspaces, sessions) =
        (storage.workspaces.list(workspaces).await.ok()?, storage.sessions.list(sessions).await.ok()?);
    let mut bindings = pages(BindingQuery::new().with_limit(PAGE_MAX), |query| storage.bindings.list(query));
    let mut devices = 0;
    while let Some(page) = bindings.try_next().await.ok()? {
        devices += page.items.len() as u64;
    }
    Some(RemovedObjects::new(workspaces.total?, sessions.total?, devices))
}

#[async_trait]
impl Backend for AuditedBackend {
    fn tenant(&self, tenant: &TenantId) -> Storage {
        let storage = self.backend.tenant(tenant);
        audited(&storage, &self.notes(&storage))
    }

    async fn tenants(&self, after: Option<TenantId>) -> Result<Page<TenantId>> {
        self.backend.tenants(after).await
    }

    async fn busy_tenants(&self, until: Timestamp, after: Option<TenantId>) -> Result<Page<TenantId>> {
        self.backend.busy_tenants(until, after).await
    }

    async fn delete_tenant(&self, tenant: &TenantId) -> Result<DeletedTenant> {
        self.around(tenant, self.backend.delete_tenant(tenant)).await
    }

    async fn erase_tenant(&self, tenant: &TenantId) -> Result<DeletedTenant> {
        self.around(tenant, self.backend.erase_tenant(tenant)).await
    }

    fn erasable_keys(&self, tenant: &TenantId) -> Option<Arc<dyn ErasableKeys>> {
        self.backend.erasable_keys(tenant)
    }

    async fn check_removal(&self) -> Result<Option<String>> {
        self.backend.check_removal().await
    }

    async fn maintain(&self) -> Result<Vec<Pending>> {
        self.backend.maintain().await
    }

    async fn check_shared(&self) -> Result<Option<Vec<Damaged>>> {
        self.backend.check_shared().await
    }

    async fn close(&self) -> Result<()> {
        self.backend.close().await
    }
}
