//! Wrappers of the three stores that record operations.

use std::sync::Arc;

use async_trait::async_trait;

use crate::audit::notes::Notes;
use agent_core::commit::{Commit, Committed, Precondition, Step, Trigger};
use agent_core::event::{AuditedOperation, Event, Operation};
use agent_core::model::{Workspace, WorkspaceStatus};
use agent_core::session::SessionRecord;
use agent_core::state::{Reason, SessionState};
use agent_core::store::{
    BindingStoreWrapper, ContentHash, HiddenSession, Maintenance, MaintenanceWrapper, Purge, Purged,
    SessionStoreWrapper, WorkspaceStoreWrapper,
};
use agent_core::{
    BindingStore, DeviceId, Result, Revision, SessionId, SessionStore, Storage, Timestamp, WorkspaceId,
    WorkspaceStore,
};

/// Store, and the audit log that records operations on it.
#[derive(Debug)]
struct Audited<S: ?Sized> {
    notes: Notes,
    store: Arc<S>,
}

pub(super) fn audited(storage: &Storage, notes: &Notes) -> Storage {
    storage.clone().with_stores(
        Arc::new(Audited { notes: notes.clone(), store: storage.workspaces.clone() }),
        Arc::new(Audited { notes: notes.clone(), store: storage.sessions.store().clone() }),
        Arc::new(Audited { notes: notes.clone(), store: storage.bindings.clone() }),
    )
}

#[async_trait]
impl WorkspaceStoreWrapper for Audited<dyn WorkspaceStore> {
    fn inner(&self) -> &dyn WorkspaceStore {
        &*self.store
    }

    async fn put(&self, workspace: Workspace, expect: Precondition<Revision>) -> Result<Workspace> {
        let operation = match (expect, workspace.status) {
            (Precondition::MustNotExist, _) => Operation::CreateWorkspace,
            (_, WorkspaceStatus::Deleting) => Operation::BeginDeletion,
            _ => Operation::UpdateWorkspace,
        };
        let audited = AuditedOperation::new(operation).with_workspace(workspace.id);
        self.notes.around(audited, self.store.put(workspace, expect), |_| true).await
    }

    async fn delete(&self, id: WorkspaceId) -> Result<()> {
        let audited = AuditedOperation::new(Operation::DeleteWorkspace).with_workspace(id);
        self.notes.around(audited, self.store.delete(id), |()| true).await
    }

    async fn save_config(
        &self,
        id: WorkspaceId,
        text: Option<String>,
        expect: Precondition<ContentHash>,
    ) -> Result<()> {
        let audited = AuditedOperation::new(Operation::Configure).with_workspace(id);
        self.notes.around(audited, self.store.save_config(id, text, expect), |()| true).await
    }
}

#[async_trait]
impl BindingStoreWrapper for Audited<dyn BindingStore> {
    fn inner(&self) -> &dyn BindingStore {
        &*self.store
    }

    async fn bind(
        &self,
        device: &DeviceId,
        to: WorkspaceId,
        expect: Precondition<WorkspaceId>,
    ) -> Result<WorkspaceId> {
        let audited = AuditedOperation::new(Operation::BindDevice).with_device(device).with_workspace(to);
        self.notes.around(audited, self.store.bind(device, to, expect), |bound| *bound == to).await
    }

    async fn unbind(&self, device: &DeviceId) -> Result<bool> {
        let audited = AuditedOperation::new(Operation::UnbindDevice).with_device(device);
        self.notes.around(audited, self.store.unbind(device), |was_bound| *was_bound).await
    }

    async fn unbind_workspace(&self, id: WorkspaceId) -> Result<u64> {
        let audited = AuditedOperation::new(Operation::UnbindWorkspace).with_workspace(id);
        self.notes.around(audited, self.store.unbind_workspace(id), |devices| *devices > 0).await
    }
}

#[async_trait]
impl SessionStoreWrapper for Audited<dyn SessionStore> {
    fn inner(&self) -> &dyn SessionStore {
        &*self.store
    }

    async fn commit(&self, commit: Commit) -> Result<Committed> {
        HiddenSession::refuse_audit(commit.session)?;
        let deletes = |step: &Step| match step {
            Step::Trigger(Trigger::Delete(_)) => true,
            // Restored events may end in a deletion.
            Step::Trigger(Trigger::Restore(events)) => events.iter().any(is_deletion),
            _ => false,
        };
        if !commit.steps.iter().any(deletes) {
            return self.store.commit(commit).await;
        }
        let audited = AuditedOperation::new(Operation::DeleteSession).with_session(commit.session);
        self.notes.around(audited, self.store.commit(commit), |_| true).await
    }

    async fn purge(&self, purge: Purge) -> Result<Purged> {
        HiddenSession::refuse_audit(purge.session)?;
        let audited = AuditedOperation::new(Operation::PurgeSession).with_session(purge.session);
        self.notes.around(audited, self.store.purge(purge), |purged| purged.events > 0).await
    }

    fn maintenance(&self) -> &dyn Maintenance {
        self
    }
}

#[async_trait]
impl MaintenanceWrapper for Audited<dyn SessionStore> {
    fn inner(&self) -> &dyn Maintenance {
        self.store.maintenance()
    }

    async fn delete_damaged(
        &self,
        id: SessionId,
        at: Timestamp,
        reason: Reason,
    ) -> Result<Arc<SessionRecord>> {
        HiddenSession::refuse_audit(id)?;
        let audited = AuditedOperation::new(Operation::DeleteSession).with_session(id);
        self.notes.around(audited, self.store.maintenance().delete_damaged(id, at, reason), |_| true).await
    }
}

/// Returns whether an event of another store deletes its session. An unreadable event counts as a deletion, so that
/// none is missed.
fn is_deletion(event: &Event) -> bool {
    event.transition().map_or(true, |change| change.is_some_and(|change| change.to == SessionState::Deleted))
}
