//! The audit: who did what, when, to which workspace, device, configuration or session.
//!
//! What happens in a session stands in its log. What is done to workspaces and bindings, and what removes a session with
//! its log, leaves no such trace; [`Storage::audited`] notes it on an append-only [shelf](Shelf::Audit) of the tenant.
//!
//! Each operation is noted twice: before it is done, and with what became of it. Where the first note cannot be written,
//! nothing is done and the operation fails. Where the second cannot, the operation is done and says so; its first note
//! stays without an outcome, as after a crash or where whoever asked went away.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> agent_core::Result<()> {
//! use agent_core::audit::Audit;
//! use agent_core::{Effects, MemoryStore, NewWorkspace, Storage, WorkspaceManager};
//!
//! let effects = Effects::default();
//! let storage = Storage::from(MemoryStore::new()).audited(&effects, "user:alice".parse()?);
//! let manager = WorkspaceManager::new(storage.clone(), effects);
//! let workspace = manager.create(NewWorkspace::new("Notes")).await?;
//!
//! let page = Audit::of(&storage).list(10, None).await?;
//! let created = &page.entries[0];
//! assert_eq!(created.noted.workspace, Some(workspace.id));
//! assert_eq!((created.by.to_string(), created.noted.operation.as_str()), ("user:alice".to_owned(), "workspace.create"));
//! # Ok(())
//! # }
//! ```

mod stores;

pub(crate) use stores::refuse_audit;

use std::future::Future;
use std::sync::Arc;

use tracing::warn;

use crate::base::effects::Effects;
use crate::base::error::{Error, ErrorKind, Result, WriteOutcome};
use crate::base::id::Seq;
use crate::base::timestamp::Timestamp;
use crate::holdings::Shelf;
use crate::session::{
    Actor, Body, EventType, NewEvent, OperationNoted, OperationOutcome, ReadEvents, SessionStore,
    SessionStoreExt,
};
use crate::storage::Storage;

/// Reads the audit of a tenant. Cheap to clone; every method may be dropped at any point.
#[derive(Clone, Debug)]
pub struct Audit {
    sessions: Arc<dyn SessionStore>,
}

/// A note in the audit.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AuditEntry {
    /// What, to which entity, and what became of it.
    pub noted: OperationNoted,
    /// Its place in the audit.
    pub seq: Seq,
    /// Who.
    pub by: Actor,
    /// When, by that clock.
    pub at: Timestamp,
}

/// Notes, the newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct AuditPage {
    /// The notes.
    pub entries: Vec<AuditEntry>,
    /// Where the next page starts: before this note; `None` on the last.
    pub next: Option<Seq>,
}

impl Audit {
    /// The audit that lies in these stores, whoever wrote it. No I/O.
    pub fn of(storage: &Storage) -> Self {
        Self { sessions: storage.sessions.clone() }
    }

    /// The notes, the newest first, `limit` a page; none where nothing was ever noted.
    ///
    /// # Errors
    ///
    /// Those of the store; `Corrupt` for damage among those asked for.
    pub async fn list(&self, limit: usize, before: Option<Seq>) -> Result<AuditPage> {
        let Some(now) = Shelf::Audit.find(&*self.sessions).await? else { return Ok(AuditPage::default()) };
        let end = before.unwrap_or_else(|| now.head.next());
        let read = ReadEvents::last(limit).before(end).kinds([EventType::SESSION_OPERATION_NOTED]);
        let page = self.sessions.read(now.id, read).await?;
        if let Some(damage) = page.damaged.first() {
            return Err(Error::corrupt(format!("session {}: {damage}", now.id)));
        }
        let mut entries = Vec::new();
        for event in page.events.iter().rev() {
            if let Body::SessionOperationNoted(noted) = event.body()? {
                entries.push(AuditEntry { noted, seq: event.seq, by: event.actor.clone(), at: event.at });
            }
        }
        Ok(AuditPage { entries, next: page.next.and_then(|next| next.before) })
    }
}

impl Storage {
    /// The same stores, but what is done through these to workspaces, their configuration and devices, and each deletion
    /// and purge of a session, is noted in the tenant's [audit](crate::audit) as done by `actor`. Reading is not noted,
    /// nor is what only says when something was used.
    ///
    /// An operation that cannot be noted is not done: `Unavailable`, `Full` and the like as the store has it, `Denied`
    /// where the audit itself is damaged or gone. No commit through these stores changes or removes the audit.
    #[must_use]
    pub fn audited(&self, effects: &Effects, actor: Actor) -> Self {
        let notes = Notes { sessions: self.sessions.clone(), effects: effects.clone(), actor };
        stores::audited(self, &notes)
    }
}

/// Writes the audit.
#[derive(Clone, Debug)]
struct Notes {
    sessions: Arc<dyn SessionStore>,
    effects: Effects,
    actor: Actor,
}

impl Notes {
    async fn write(&self, noted: &OperationNoted) -> Result<Seq> {
        let shelf = Shelf::Audit.open(&self.sessions, &self.effects).await?;
        let event = NewEvent::of(&Body::SessionOperationNoted(noted.clone())).with_actor(self.actor.clone());
        Ok(self.sessions.append(&self.effects, shelf.id, shelf.head, vec![event]).await?.last)
    }

    /// Does `operation` between the two notes; `changed` tells whether its result means that there was anything to do.
    async fn around<T: Send>(
        &self,
        noted: OperationNoted,
        operation: impl Future<Output = Result<T>> + Send,
        changed: impl Fn(&T) -> bool + Send,
    ) -> Result<T> {
        let begun = self.write(&noted).await.map_err(not_noted)?;
        let result = operation.await;
        let (outcome, error) = match &result {
            Ok(value) if changed(value) => (OperationOutcome::Done, None),
            Ok(_) => (OperationOutcome::Unchanged, None),
            Err(error) if error.write_outcome() == WriteOutcome::Unknown => {
                (OperationOutcome::Unknown, Some(error.kind().name()))
            }
            Err(error) => (OperationOutcome::Failed, Some(error.kind().name())),
        };
        if let Err(error) = self.write(&noted.ended(begun, outcome, error)).await {
            warn!(%begun, %error, "what became of an operation could not be noted in the audit");
        }
        result
    }
}

/// Nothing was done. A caller must not take what is wrong with the audit for something about the entity.
fn not_noted(error: Error) -> Error {
    use ErrorKind::{Denied, Full, Poisoned, Unavailable};
    let kind = match error.kind() {
        kind @ (Unavailable | Full | Poisoned) => kind.clone(),
        _ => Denied,
    };
    Error::new(kind, "the audit cannot be written, so nothing was done").with_source(error)
}
