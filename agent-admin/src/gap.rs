//! What of a session is lost.

use std::fmt;

use agent_core::Seq;

/// Events that could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Gap {
    /// The first of them.
    pub first: Seq,
    /// The last of them.
    pub last: Seq,
    /// What is wrong with the first, in words.
    pub reason: String,
}

impl Gap {
    /// Which events are lost, without the reason.
    pub(super) fn place(&self) -> String {
        match self.first == self.last {
            true => format!("event {} could not be read", self.first),
            false => format!("events {} to {} could not be read", self.first, self.last),
        }
    }
}

impl fmt::Display for Gap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.first == self.last {
            true => write!(f, "event {}: {}", self.first, self.reason),
            false => write!(f, "events {} to {}: {}", self.first, self.last, self.reason),
        }
    }
}
