//! Backend that records the deletion of tenants.

use std::future::Future;
use std::sync::Arc;

use async_trait::async_trait;

use crate::audit::notes::Notes;
use crate::audit::stores::audited;
use agent_core::event::{AuditedOperation, Operation, OperationOutcome, RemovedObjects};
use agent_core::model::Actor;
use agent_core::store::{Damaged, DeletedTenant, Page, Pending};
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
        let begun = notes.begin(&audited).await?;
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
