//! How an operation is noted: before it begins, and when it has ended.

use std::future::Future;
use std::sync::Arc;

use tracing::warn;

use agent_core::clock::Effects;
use agent_core::event::{Body, NewEvent, OperationNoted, OperationOutcome};
use agent_core::model::Actor;
use agent_core::store::Shelf;
use agent_core::{Error, ErrorKind, Result, Seq, SessionStore, SessionStoreExt, WriteOutcome};

/// Writes the audit.
#[derive(Clone, Debug)]
pub(super) struct Notes {
    pub(super) sessions: Arc<dyn SessionStore>,
    pub(super) effects: Effects,
    pub(super) actor: Actor,
}

impl Notes {
    pub(super) async fn write(&self, noted: &OperationNoted) -> Result<Seq> {
        let shelf = Shelf::Audit.open(&self.sessions, &self.effects).await?;
        let event = NewEvent::of(&Body::SessionOperationNoted(noted.clone())).with_actor(self.actor.clone());
        Ok(self.sessions.append(&self.effects, shelf.id, shelf.head, vec![event]).await?.last)
    }

    /// Does `operation` between the two notes; `changed` tells whether its result means that there was anything to do.
    pub(super) async fn around<T: Send>(
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
