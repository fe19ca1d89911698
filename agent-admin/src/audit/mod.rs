//! Audit log: the actor, time and object of each administrative operation on workspaces, devices, configuration and
//! sessions.
//!
//! Changes within a session are recorded in its own log. Operations on workspaces and device bindings have no log, and
//! operations that remove a session remove its log, too. [`audited`] records such operations in an append-only [hidden
//! session](HiddenSession::Audit) of the tenant.
//!
//! The deletion of a tenant removes its audit log, too. [`audited_backend`] records it in the audit log of the tenant
//! [`audit-of-tenants`](TenantId::audit_of_tenants), which stays.
//!
//! Each operation is recorded twice: before it is executed, and with its outcome. If the first entry cannot be written,
//! the operation is not executed and fails. If the second entry cannot be written, the operation returns its own result,
//! and its first entry stays without an outcome, as after a crash or if the caller drops the future.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> agent_core::Result<()> {
//! use agent_admin::audit::{Audit, audited};
//! use agent_core::{MemoryStore, Storage};
//! use agent_runtime::{NewWorkspace, WorkspaceManager};
//!
//! let storage = audited(&Storage::from(MemoryStore::new()), "user:alice".parse()?);
//! let manager = WorkspaceManager::new(storage.clone());
//! let workspace = manager.create(NewWorkspace::new("Notes")).await?;
//!
//! let page = Audit::of(&storage).list(10, None).await?;
//! let created = &page.entries[0];
//! assert_eq!(created.audited.workspace, Some(workspace.id));
//! assert_eq!((created.by.to_string(), created.audited.operation.as_str()), ("user:alice".to_owned(), "workspace.create"));
//! # Ok(())
//! # }
//! ```

mod notes;
mod stores;
mod tenants;

use std::sync::Arc;

use crate::audit::notes::Notes;
use agent_core::event::{AuditedOperation, EventPayload, EventType};
use agent_core::model::Actor;
use agent_core::store::{HiddenSession, ReadEvents};
use agent_core::{Backend, Error, Result, Seq, SessionStore, Storage, TenantId, Timestamp};

/// Reader of a tenant's audit log. Cloning is cheap; every method may be dropped at any point.
///
/// [`audited`] creates stores that write the log.
#[derive(Clone, Debug)]
pub struct Audit {
    sessions: Arc<dyn SessionStore>,
}

/// Entry in the audit log.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AuditEntry {
    /// Operation, its object, and its outcome.
    #[doc(alias = "noted")]
    pub audited: AuditedOperation,
    /// Sequence number of the entry.
    pub seq: Seq,
    /// Actor of the operation.
    pub by: Actor,
    /// Time of the entry, by the actor's clock.
    pub at: Timestamp,
}

/// Page of audit entries, newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct AuditPage {
    /// Entries.
    pub entries: Vec<AuditEntry>,
    /// Start of the next page: before this entry; `None` on the last page.
    pub next: Option<Seq>,
}

impl Audit {
    /// Creates a reader of the audit log in these stores, with the entries of all actors. No I/O.
    pub fn of(storage: &Storage) -> Self {
        Self { sessions: storage.sessions.store().clone() }
    }

    /// Creates a reader of the deletions of tenants, which [`audited_backend`] records. No I/O.
    pub fn of_tenants(backend: &dyn Backend) -> Self {
        Self::of(&backend.tenant(&TenantId::audit_of_tenants()))
    }

    /// Lists the entries, newest first, `limit` on a page; the page is empty if nothing was recorded.
    ///
    /// `before` is [`AuditPage::next`] of the page before.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # use agent_core::{MemoryStore, Storage};
    /// # use agent_runtime::{NewWorkspace, WorkspaceManager};
    /// # let plain = Storage::from(MemoryStore::new());
    /// use agent_admin::audit::{Audit, audited};
    ///
    /// let storage = audited(&plain, "user:alice".parse()?);
    /// let manager = WorkspaceManager::new(storage);
    /// for name in ["Support", "Sales"] {
    ///     manager.create(NewWorkspace::new(name)).await?;
    /// }
    /// // Two entries for each operation: its begin, and its outcome.
    /// let page = Audit::of(&plain).list(3, None).await?;
    /// let rest = Audit::of(&plain).list(3, page.next).await?;
    /// assert_eq!((page.entries.len(), rest.entries.len(), rest.next), (3, 1, None));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// Errors of the store; `Corrupt` for damage in the page.
    pub async fn list(&self, limit: usize, before: Option<Seq>) -> Result<AuditPage> {
        let Some(now) = HiddenSession::Audit.find(&*self.sessions).await? else {
            return Ok(AuditPage::default());
        };
        let end = before.unwrap_or_else(|| now.head.next());
        let read =
            ReadEvents::last(limit).with_before(end).with_types([EventType::SESSION_OPERATION_AUDITED]);
        let page = self.sessions.read(now.id, read).await?;
        if let Some(damage) = page.damaged.first() {
            return Err(Error::corrupt(format!("session {}: {damage}", now.id)));
        }
        let mut entries = Vec::new();
        for event in page.events.iter().rev() {
            if let EventPayload::SessionOperationAudited(audited) = event.decode()? {
                entries.push(AuditEntry { audited, seq: event.seq, by: event.actor.clone(), at: event.at });
            }
        }
        Ok(AuditPage { entries, next: page.next.and_then(|next| next.before) })
    }
}

/// Returns the same stores, which record changes in the tenant's [audit log](crate::audit) as made by `actor`.
///
/// The log contains changes of workspaces, of their configuration and devices, and each deletion and purge of a session.
/// Reads are not recorded, nor are updates of last-access times. Each recorded operation costs two more commits.
///
/// An operation that cannot be recorded is not executed: it fails with `Unavailable`, `Full` or `Poisoned` if the store
/// does, and with `Denied` for any other error of the audit log, for example if it is damaged or deleted. No commit
/// through these stores can change or remove the audit log.
///
/// Entries take times and ids from `storage`, also if other effects are set later.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
/// # use agent_core::{MemoryStore, Storage};
/// # use agent_runtime::{NewWorkspace, WorkspaceManager};
/// # let plain = Storage::from(MemoryStore::new());
/// use agent_admin::audit::{Audit, audited};
/// use agent_core::event::OperationOutcome;
///
/// let storage = audited(&plain, "user:alice".parse()?);
/// let manager = WorkspaceManager::new(storage);
/// let workspace = manager.create(NewWorkspace::new("Support")).await?;
/// manager.delete(workspace.id).await?;
///
/// let newest = &Audit::of(&plain).list(1, None).await?.entries[0];
/// assert_eq!(newest.audited.operation.as_str(), "workspace.delete");
/// assert_eq!((newest.audited.outcome, newest.by.to_string().as_str()), (Some(OperationOutcome::Done), "user:alice"));
/// # Ok(()) }
/// ```
#[must_use]
pub fn audited(storage: &Storage, actor: Actor) -> Storage {
    let notes = Notes { sessions: storage.sessions.clone(), actor };
    stores::audited(storage, &notes)
}

/// Returns the same backend, which records each deletion and erasure of a tenant, and the changes within each tenant as
/// [`audited`] does, as made by `actor`.
///
/// Deletions are recorded in the audit log of the tenant [`audit-of-tenants`](TenantId::audit_of_tenants), which is one of
/// the [tenants](Backend::tenants) of the store from then on: with the name of the tenant, the time, the actor, the number of objects
/// that it had and, when it is done, of those that were removed. If the first entry cannot be written, nothing is deleted. An entry without
/// an outcome means that the deletion was interrupted; call it again, which removes what was left and is recorded too.
/// A failure after which objects may be gone has the outcome `unknown`; `failed` says that none is.
///
/// The tenant `audit-of-tenants` cannot be deleted through this backend: `Denied`.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
/// # use std::sync::Arc;
/// # use agent_core::{Backend, MemoryStore, TenantId, WorkspaceId};
/// # use agent_core::commit::Precondition;
/// use agent_admin::audit::{Audit, audited_backend};
///
/// let backend = audited_backend(Arc::new(MemoryStore::new()), "user:alice".parse()?);
/// let acme: TenantId = "acme".parse()?;
/// # let bindings = backend.tenant(&acme).bindings;
/// # bindings.bind(&"laptop".parse()?, WorkspaceId::DEFAULT, Precondition::MustNotExist).await?;
/// backend.delete_tenant(&acme).await?;
///
/// let newest = &Audit::of_tenants(&*backend).list(1, None).await?.entries[0];
/// assert_eq!((newest.audited.operation.as_str(), &newest.audited.tenant), ("tenant.delete", &Some(acme)));
/// assert_eq!(newest.audited.removed.unwrap().devices, 1);
/// # Ok(()) }
/// ```
#[must_use]
pub fn audited_backend(backend: Arc<dyn Backend>, actor: Actor) -> Arc<dyn Backend> {
    Arc::new(tenants::AuditedBackend { backend, actor })
}
