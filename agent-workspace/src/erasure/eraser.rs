//! The call that erases, and its steps.

use std::sync::Arc;

use agent_core::store::{ErasableKeys, ErasableRow};
use agent_core::{Backend, ErrorKind, Result, SessionId, SessionStore, Storage, TenantId};
use serde::Serialize;
use tracing::instrument;

use crate::erasure::Subject;
use crate::erasure::person::{Person, find, nothing};
use crate::erasure::plan::{Objects, Plan, pseudonym};
use crate::erasure::receipt::{KeptSession, Receipt, ReceiptContents};

/// Erasure of all that a person or a tenant has.
///
/// It deletes the sessions, removes their bytes from the store (events, blobs, transcripts, labels, and what search indexes have of them), drops
/// their keys if the store is encrypted, and returns a [`Receipt`]. Of each session a tombstone is left with ids, times and counts, in which a
/// pseudonym stands for the owner. The workspaces of an owner are deleted with all that is in them.
///
/// What a living fork of somebody else reads is kept, with its key: the receipt names it and the fork. When that fork is gone, the
/// same erasure removes the rest.
///
/// It does not remove: what others wrote about the person, entries of the audit, exports, backups, the events that a person added to sessions of
/// others.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
/// use std::sync::Arc;
/// use agent_core::event::NewEvent;
/// use agent_core::session::NewSession;
/// use agent_core::{Backend, MemoryStore, TenantId, WorkspaceId};
/// use agent_workspace::erasure::{Eraser, Look, Subject, verify_erased};
///
/// let backend: Arc<dyn Backend> = Arc::new(MemoryStore::new());
/// let tenant = TenantId::default();
/// let alice = backend.tenant(&tenant).for_owner(&"alice".parse()?);
/// let session = alice.sessions.create(NewSession::new(alice.effects().new_session_id(), WorkspaceId::DEFAULT)).await?;
/// alice.sessions.append(session.id, session.head, vec![NewEvent::user_message("My address is 7 Main Street")]).await?;
///
/// let eraser = Eraser::new(backend.clone(), tenant, Subject::Owner("alice".parse()?));
/// let receipt = eraser.run().await?;
/// assert_eq!(receipt.sessions, [session.id]);
/// // Write the receipt down, then:
/// eraser.settle().await?;
///
/// let look = Look::new().with_words(["7 Main Street"]);
/// assert!(verify_erased(&*backend, &receipt, look).await?.left.is_empty());
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Eraser {
    backend: Arc<dyn Backend>,
    plans: Arc<dyn Backend>,
    tenant: TenantId,
    subject: Subject,
    place: String,
}

/// Numbers of what an erasure would remove, as far as they are known before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ErasurePreview {
    /// Number of sessions, deleted ones included.
    pub sessions: u64,
    /// Number of workspaces.
    pub workspaces: u64,
    /// True if the same erasure has begun, and was not settled.
    pub is_begun: bool,
}

impl Eraser {
    /// Creates an erasure. No I/O.
    pub fn new(backend: Arc<dyn Backend>, tenant: TenantId, subject: Subject) -> Self {
        Self { plans: backend.clone(), backend, tenant, subject, place: String::new() }
    }

    /// Sets the name of the store for the receipt, such as its address without a password.
    #[must_use]
    pub fn with_place(self, place: impl Into<String>) -> Self {
        Self { place: place.into(), ..self }
    }

    /// Sets another handle on the same store through which the changes are made, such as one that records them.
    #[must_use]
    pub fn with_changes_through(self, backend: Arc<dyn Backend>) -> Self {
        Self { backend, ..self }
    }

    /// Returns what an erasure would remove. Writes nothing.
    ///
    /// # Errors
    ///
    /// As for [`run`](Self::run).
    pub async fn preview(&self) -> Result<ErasurePreview> {
        let plan = self.plan().await?;
        let mut objects = find(&self.storage(), &*self.stored(), &self.subject).await?.0;
        objects.sessions.extend(&plan.objects.sessions);
        objects.workspaces.extend(&plan.objects.workspaces);
        let (sessions, workspaces) = (objects.sessions.len() as u64, objects.workspaces.len() as u64);
        Ok(ErasurePreview { sessions, workspaces, is_begun: plan.is_stored() })
    }

    /// Erases, and returns the receipt.
    ///
    /// # Interruptions
    ///
    /// What is removed is planned and stored first, in a tenant of its own (`erasure-` and 32 digits), which is one of the tenants of the store
    /// until [`settle`](Self::settle). So the same call again, after an error or a crash at any step, goes on and returns the whole receipt.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future is an interruption.
    ///
    /// # Cost
    ///
    /// Reads the lists of the sessions, the rows of all keys of the tenant, and a page of forks for each session. SQLite rewrites its file in
    /// the end.
    ///
    /// # Errors
    ///
    /// - `NotFound` if there is nothing to erase, and no such erasure has begun.
    /// - `Busy` if a living holder runs one of the sessions.
    /// - `Corrupt` if a session cannot be read: whose it is, or which events its forks read, is not known then. Erase or salvage it first.
    /// - `Unsupported` on a medium that keeps former versions of what is removed
    ///   ([`Backend::check_removal`]): nothing is erased then.
    /// - Those of the store.
    #[instrument(name = "erase_subject", skip(self), fields(subject = self.subject.kind()))]
    pub async fn run(&self) -> Result<Receipt> {
        let unseen = self.backend.check_removal().await.map_err(|error| match error.kind() {
            ErrorKind::Unsupported => error.about(format_args!("nothing is erased")),
            _ => error,
        })?;
        let mut plan = self.plan().await?;
        let keys = self.backend.erasable_keys(&self.tenant);
        let (kept, named) = match self.subject {
            Subject::Tenant => {
                self.plan_all(&mut plan, keys.as_deref()).await?;
                self.backend.delete_tenant(&self.tenant).await?;
                (Vec::new(), Vec::new())
            }
            _ => self.person(keys.as_deref()).erase(&mut plan).await?,
        };
        // Also what an earlier call has put off.
        self.backend.maintain().await?;
        self.receipt(&plan.objects, (kept, named), unseen, keys.as_deref())
    }

    /// Removes the plan, when the receipt is kept elsewhere. Does nothing if something was kept for a fork: then the plan stays, so that the
    /// same erasure can remove the rest later.
    ///
    /// # Errors
    ///
    /// Those of the store; call it again.
    pub async fn settle(&self) -> Result<()> {
        if !self.plan().await?.is_stored() || !self.is_over().await? {
            return Ok(());
        }
        self.plans.erase_tenant(&self.plan_tenant()?).await.map(drop)
    }

    fn plan_tenant(&self) -> Result<TenantId> {
        Plan::tenant(&self.tenant, &self.subject)
    }

    async fn plan(&self) -> Result<Plan> {
        Plan::open(&*self.plans, &self.plan_tenant()?).await
    }

    fn person<'e>(&'e self, keys: Option<&'e dyn ErasableKeys>) -> Person<'e> {
        let (storage, stored) = (self.storage(), self.stored());
        Person { subject: &self.subject, tenant: &self.tenant, storage, stored, keys }
    }

    fn storage(&self) -> Storage {
        self.backend.tenant(&self.tenant)
    }

    /// Returns the sessions as they are stored.
    fn stored(&self) -> Arc<dyn SessionStore> {
        match self.backend.erasable_keys(&self.tenant) {
            Some(keys) => keys.stored(),
            None => self.storage().sessions.store().clone(),
        }
    }

    /// Returns whether no part of the planned sessions is kept.
    async fn is_over(&self) -> Result<bool> {
        let plan = self.plan().await?;
        let keys = self.backend.erasable_keys(&self.tenant);
        let person = self.person(keys.as_deref());
        match self.subject {
            Subject::Tenant => Ok(true),
            _ => Ok(person.kept(&plan.objects.sessions).await?.is_empty()),
        }
    }

    /// Stores the plan of the erasure of a tenant.
    async fn plan_all(&self, plan: &mut Plan, keys: Option<&dyn ErasableKeys>) -> Result<()> {
        let mut objects = find(&self.storage(), &*self.stored(), &self.subject).await?.0;
        if let Some(keys) = keys {
            objects.rows = keys.find(None).await?.into_iter().filter(ErasableRow::is_key).collect();
        }
        if objects.sessions.is_empty() && !plan.is_stored() && !self.is_there().await? {
            return Err(nothing(&self.subject, &self.tenant));
        }
        objects.pseudonym = pseudonym(self.storage().effects());
        plan.add(objects).await
    }

    async fn is_there(&self) -> Result<bool> {
        let mut after = None;
        loop {
            let page = self.backend.tenants(after).await?;
            if page.items.contains(&self.tenant) {
                return Ok(true);
            }
            let Some(last) = page.items.last() else { return Ok(false) };
            after = Some(last.clone());
        }
    }

    fn receipt(
        &self,
        planned: &Objects,
        (kept, named): (Vec<KeptSession>, Vec<SessionId>),
        unseen: Option<String>,
        keys: Option<&dyn ErasableKeys>,
    ) -> Result<Receipt> {
        let is_kept = |id: &SessionId| kept.iter().any(|it| it.session == *id);
        let (subject, pseudonym) = (self.subject.kind().to_owned(), planned.pseudonym.clone());
        let at = self.storage().effects().now();
        let mut body = ReceiptContents::new(self.tenant.clone(), subject, pseudonym, self.place.clone(), at);
        body.sessions = planned.sessions.iter().copied().filter(|id| !is_kept(id)).collect();
        body.workspaces = planned.workspaces.iter().copied().collect();
        let is_dropped = |session: Option<SessionId>| session.is_none_or(|id| !is_kept(&id));
        body.keys = planned.rows.iter().filter(|row| is_dropped(row.session)).cloned().collect();
        (body.kept, body.named) = (kept, named);
        body.unseen = unseen.into_iter().collect();
        body.signed(keys)
    }
}
