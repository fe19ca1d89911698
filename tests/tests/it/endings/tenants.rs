//! The audit of tenants: their deletions stay recorded when they are gone.

use std::sync::Arc;

use agent_admin::audit::{Audit, AuditEntry, audited_backend};
use agent_core::event::{NewEvent, OperationOutcome, RemovedObjects};
use agent_core::model::Actor;
use agent_core::store::{DeletedTenant, Page};
use agent_core::{Backend, ErrorKind, Result, Seq, Storage, TenantId, async_trait};
use agent_runtime::WorkspaceManager;
use agent_tests::{Site, each_store};

use crate::endings::cut::{Cut, Cutting};
use crate::endings::site::device;

fn alice() -> Actor {
    "user:alice".parse().unwrap()
}

fn tenant(name: &str) -> TenantId {
    name.parse().unwrap()
}

/// Makes a tenant with a workspace, a session and a device.
async fn fill(backend: &dyn Backend, tenant: &TenantId) {
    let storage = backend.tenant(tenant);
    let manager = WorkspaceManager::new(storage.clone());
    let workspace = manager.resolve(&device("laptop")).await.unwrap().workspace;
    let main = manager.main_session(&workspace).await.unwrap();
    storage.sessions.append(main.id, main.head, vec![NewEvent::user_message("hello")]).await.unwrap();
}

/// Returns all entries, the oldest first.
async fn entries(backend: &dyn Backend) -> Vec<AuditEntry> {
    let page = Audit::of_tenants(backend).list(1000, None).await.unwrap();
    assert_eq!(page.next, None);
    page.entries.into_iter().rev().collect()
}

async fn has_data(backend: &dyn Backend, tenant: &TenantId) -> bool {
    backend.tenants(None).await.unwrap().items.contains(tenant)
}

/// Who deleted which tenant, when, and what was removed with it can be read when the tenant is gone, through another handle;
/// what fails is recorded too, and the audit itself is not deleted.
async fn deletions_of_tenants_outlive_them(site: Site) {
    let (acme, other) = (tenant("acme"), tenant("other"));
    let plain = site.tenants().await;
    let backend = audited_backend(plain.clone(), alice());
    fill(&*plain, &acme).await;
    fill(&*plain, &other).await;
    assert_eq!(entries(&*plain).await, []);
    backend.delete_tenant(&acme).await.unwrap();
    backend.erase_tenant(&acme).await.unwrap();
    let denied = backend.delete_tenant(&TenantId::audit_of_tenants()).await.unwrap_err();
    assert_eq!(*denied.kind(), ErrorKind::Denied, "{denied}");
    assert!(!has_data(&*plain, &acme).await && has_data(&*plain, &other).await, "{}", site.name);

    let again = site.tenants().await;
    let entries = entries(&*again).await;
    assert_eq!(entries.len(), 4, "{entries:?}");
    let removed = [Some(RemovedObjects::new(1, 1, 1)), Some(RemovedObjects::new(0, 0, 0))];
    for (pair, (removed, outcome)) in
        entries.chunks(2).zip(removed.into_iter().zip([OperationOutcome::Done, OperationOutcome::Unchanged]))
    {
        let [begun, ended] = pair else { unreachable!() };
        for entry in [begun, ended] {
            assert_eq!((entry.audited.operation.as_str(), &entry.by), ("tenant.delete", &alice()));
            assert_eq!(entry.audited.tenant.as_ref(), Some(&acme));
        }
        assert_eq!((begun.audited.outcome, begun.audited.removed), (None, removed), "{}", site.name);
        assert_eq!((ended.audited.begun, ended.audited.outcome), (Some(begun.seq), Some(outcome)));
        assert_eq!(ended.audited.removed, removed, "{}", site.name);
    }
    // Within a tenant, the same backend records as `audited` does.
    WorkspaceManager::new(backend.tenant(&other)).unbind(&device("laptop")).await.unwrap();
    let page = Audit::of(&plain.tenant(&other)).list(1, None).await.unwrap();
    assert_eq!(page.entries[0].audited.operation.as_str(), "device.unbind");
    for backend in [backend, again] {
        backend.close().await.unwrap();
    }
}

each_store!(deletions_of_tenants_outlive_them and files);

/// Backend whose audit of tenants fails or dies at a call, and whose deletion may be interrupted before or after it.
#[derive(Debug)]
struct Breaking {
    under: Arc<dyn Backend>,
    audit: Storage,
    deletion: Option<Cut>,
}

#[async_trait]
impl Backend for Breaking {
    fn tenant(&self, tenant: &TenantId) -> Storage {
        match *tenant == TenantId::audit_of_tenants() {
            true => self.audit.clone(),
            false => self.under.tenant(tenant),
        }
    }

    async fn tenants(&self, after: Option<TenantId>) -> Result<Page<TenantId>> {
        self.under.tenants(after).await
    }

    async fn delete_tenant(&self, tenant: &TenantId) -> Result<DeletedTenant> {
        let lost = || agent_core::Error::new(ErrorKind::Poisoned, "the process is dead, says the test");
        match self.deletion {
            None => self.under.delete_tenant(tenant).await,
            Some(Cut::DiesAfter) => {
                self.under.delete_tenant(tenant).await?;
                Err(lost())
            }
            Some(_) => Err(lost()),
        }
    }
}

/// Whichever call of the audit fails or is the last before the process dies, and if the deletion itself does: no data is gone
/// without an entry, what may have been removed is never recorded as failed, and the repeated deletion is recorded as done.
async fn no_tenant_is_gone_before_it_is_recorded(site: Site) {
    let plain = site.tenants().await;
    let audit = plain.tenant(&TenantId::audit_of_tenants());
    let acme = tenant("acme");
    let mut unrecorded = 0;
    for cut in Cut::ALL {
        for deletion in [None, Some(Cut::Fails), Some(Cut::DiesAfter)] {
            for at in 1.. {
                fill(&*plain, &acme).await;
                let seen = Audit::of(&audit).list(1, None).await.unwrap();
                let seen = seen.entries.first().map_or(Seq::ZERO, |entry| entry.seq);
                let cutting = Cutting::new(&audit, at, cut);
                let under = plain.clone();
                let breaking = Breaking { under, audit: cutting.storage(), deletion };
                let done = audited_backend(Arc::new(breaking), alice()).delete_tenant(&acme).await;
                let new = entries(&*plain).await.into_iter().filter(|entry| entry.seq > seen);
                let new: Vec<_> = new.collect();
                let when = format!("{}, {cut:?} at {at}, {deletion:?}: {done:?}, {new:?}", site.name);
                assert!(has_data(&*plain, &acme).await || !new.is_empty(), "{when}");
                assert!(done.is_err() || !new.is_empty(), "{when}");
                // A repeated deletion may find nothing to count.
                let removed = new.first().and_then(|begun| begun.audited.removed);
                assert!(
                    has_data(&*plain, &acme).await || removed == Some(RemovedObjects::new(1, 1, 1)),
                    "{when}"
                );
                let failed = |entry: &AuditEntry| entry.audited.outcome == Some(OperationOutcome::Failed);
                assert!(!new.iter().any(failed), "{when}");
                unrecorded += usize::from(new.len() == 1 && done.is_ok());

                audited_backend(plain.clone(), alice()).delete_tenant(&acme).await.unwrap();
                let last = entries(&*plain).await.pop().unwrap();
                assert!(!has_data(&*plain, &acme).await && last.audited.outcome.is_some(), "{when}");
                if cutting.calls() < at {
                    break;
                }
            }
        }
    }
    assert!(unrecorded > 0, "{}: what came of it could not be written, and it keeps its result", site.name);
    plain.close().await.unwrap();
}

each_store!(no_tenant_is_gone_before_it_is_recorded and files);
