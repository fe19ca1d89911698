//! Payloads about the children of a session.

use serde::{Deserialize, Serialize};

use crate::base::SessionId;
use crate::model::Status;

/// Payload of `session.child_created`: the creation of a child session.
///
/// ```
/// use agent_core::clock::Effects;
/// use agent_core::event::{ChildCreated, EventPayload, NewEvent};
///
/// let child = Effects::default().new_session_id();
/// let event = NewEvent::of(&EventPayload::SessionChildCreated(ChildCreated::new(child)));
/// assert_eq!(event.kind.as_str(), "session.child_created");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ChildCreated {
    /// Id of the child.
    pub child: SessionId,
}

impl ChildCreated {
    /// Creates the payload for this child.
    pub fn new(child: SessionId) -> Self {
        Self { child }
    }
}

/// Payload of `session.child_idle`: a child session became idle or ended.
///
/// ```
/// use agent_core::clock::Effects;
/// use agent_core::event::ChildIdle;
/// use agent_core::model::Status;
/// use agent_core::state::{Reason, SessionState};
///
/// let status = Status::new(SessionState::Idle, Reason::EndTurn);
/// let report = ChildIdle::new(Effects::default().new_session_id(), status).with_result("3 flights found");
/// assert_eq!(report.result.as_deref(), Some("3 flights found"));
/// ```
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ChildIdle {
    /// Id of the child.
    pub child: SessionId,
    /// Status of the child.
    pub status: Status,
    /// Result that the child reports to its parent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<String>,
}

impl ChildIdle {
    /// Creates the payload for this child and its status.
    pub fn new(child: SessionId, status: Status) -> Self {
        Self { child, status, result: None }
    }

    /// Sets the result that the child reports.
    pub fn with_result(mut self, result: impl Into<String>) -> Self {
        self.result = Some(result.into());
        self
    }
}
