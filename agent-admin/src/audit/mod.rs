//! The audit: who did what, when, to which workspace, device, configuration or session.
//!
//! What happens in a session stands in its log. What is done to workspaces and bindings, and what removes a session with
//! its log, leaves no such trace; [`audited`] notes it on an append-only [shelf](Shelf::Audit) of the tenant.
//!
//! Each operation is noted twice: before it is done, and with what became of it. Where the first note cannot be written,
//! nothing is done and the operation fails. Where the second cannot, the operation is done and says so; its first note
//! stays without an outcome, as after a crash or where whoever asked went away.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> agent_core::Result<()> {
//! use agent_admin::audit::{Audit, audited};
//! use agent_core::{MemoryStore, Storage};
//! use agent_core::clock::Effects;
//! use agent_runtime::{NewWorkspace, WorkspaceManager};
//!
//! let effects = Effects::default();
//! let storage = audited(&Storage::from(MemoryStore::new()), &effects, "user:alice".parse()?);
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

mod notes;
mod stores;

use std::sync::Arc;

use crate::audit::notes::Notes;
use agent_core::clock::Effects;
use agent_core::event::{Body, EventType, OperationNoted};
use agent_core::model::Actor;
use agent_core::store::{ReadEvents, Shelf};
use agent_core::{Error, Result, Seq, SessionStore, Storage, Timestamp};

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

/// The same stores, but what is done through these to workspaces, their configuration and devices, and each deletion
/// and purge of a session, is noted in the tenant's [audit](crate::audit) as done by `actor`. Reading is not noted,
/// nor is what only says when something was used.
///
/// An operation that cannot be noted is not done: `Unavailable`, `Full` and the like as the store has it, `Denied`
/// where the audit itself is damaged or gone. No commit through these stores changes or removes the audit.
#[must_use]
pub fn audited(storage: &Storage, effects: &Effects, actor: Actor) -> Storage {
    let notes = Notes { sessions: storage.sessions.clone(), effects: effects.clone(), actor };
    stores::audited(storage, &notes)
}
