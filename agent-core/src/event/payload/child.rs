//! What a session is told of its children.

use serde::{Deserialize, Serialize};

use crate::base::SessionId;
use crate::model::Status;

/// A child session was made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ChildCreated {
    /// The child.
    pub child: SessionId,
}

impl ChildCreated {
    /// Names the child.
    pub fn new(child: SessionId) -> Self {
        Self { child }
    }
}

/// A child session came to rest or ended.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ChildIdle {
    /// The child.
    pub child: SessionId,
    /// The status it came to.
    pub status: Status,
    /// What it has to say to its parent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<String>,
}

impl ChildIdle {
    /// Names the child and its status.
    pub fn new(child: SessionId, status: Status) -> Self {
        Self { child, status, result: None }
    }

    /// Adds what the child has to say.
    pub fn with_result(mut self, result: impl Into<String>) -> Self {
        self.result = Some(result.into());
        self
    }
}
