//! Recorder of operations in the audit log: before an operation begins, and after it has ended.

use std::future::Future;

use tracing::warn;

use agent_core::event::{AuditedOperation, EventPayload, NewEvent, OperationOutcome};
use agent_core::model::Actor;
use agent_core::store::HiddenSession;
use agent_core::{Error, ErrorKind, Result, Seq, Sessions, WriteOutcome};

/// Writer of the audit log.
#[derive(Clone, Debug)]
pub(super) struct Notes {
    pub(super) sessions: Sessions,
    pub(super) actor: Actor,
}

impl Notes {
    async fn write(&self, audited: &AuditedOperation) -> Result<Seq> {
        let hidden = HiddenSession::Audit.open(&self.sessions).await?;
        let event = NewEvent::of(&EventPayload::SessionOperationAudited(audited.clone()))
            .with_actor(self.actor.clone());
        Ok(self.sessions.append(hidden.id, hidden.head, vec![event]).await?.last)
    }

    /// Executes `operation` between the two entries; `changed` returns whether its result means that it changed
    /// anything.
    pub(super) async fn around<T: Send>(
        &self,
        audited: AuditedOperation,
        operation: impl Future<Output = Result<T>> + Send,
        changed: impl Fn(&T) -> bool + Send,
    ) -> Result<T> {
        let begun = self.begin(&audited).await?;
        let result = operation.await;
        let outcome = match &result {
            Ok(value) if changed(value) => OperationOutcome::Done,
            Ok(_) => OperationOutcome::Unchanged,
            Err(error) if error.write_outcome() == WriteOutcome::Unknown => OperationOutcome::Unknown,
            Err(_) => OperationOutcome::Failed,
        };
        self.end(audited, begun, outcome, result.as_ref().err()).await;
        result
    }

    /// Writes the entry before an operation.
    pub(super) async fn begin(&self, audited: &AuditedOperation) -> Result<Seq> {
        self.write(audited).await.map_err(not_recorded)
    }

    /// Writes the entry after an operation that was announced at `begun`; a failure of that is logged.
    pub(super) async fn end(
        &self,
        audited: AuditedOperation,
        begun: Seq,
        outcome: OperationOutcome,
        error: Option<&Error>,
    ) {
        let error = error.map(|error| error.kind().name());
        if let Err(error) = self.write(&audited.with_end(begun, outcome, error)).await {
            warn!(%begun, %error, "the outcome of an operation could not be recorded in the audit log");
        }
    }
}

/// Returns the error of an operation that was not executed. Its kind is changed, because a caller must not mistake an
/// error of the audit log for an error of the operation's object.
fn not_recorded(error: Error) -> Error {
    use ErrorKind::{Denied, Full, Poisoned, Unavailable};
    let (kind, remedy) = match error.kind() {
        Full => (Full, "no space is left for its entry in the audit log; make room, then try again"),
        kind @ (Unavailable | Poisoned) => (
            kind.clone(),
            "the store could not write its entry in the audit log; see the cause, then try again",
        ),
        _ => (Denied, "the store refused its entry in the audit log; do what the cause says, then try again"),
    };
    Error::new(kind, format!("the operation was not executed: {remedy}")).with_source(error)
}
