//! Lost events of a session.

use std::fmt;

use agent_core::Seq;

/// Range of events that could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[doc(alias = "Gap")]
pub struct LostRange {
    /// First lost event.
    pub first: Seq,
    /// Last lost event.
    pub last: Seq,
    /// Description of the damage to the first lost event.
    pub reason: String,
}

impl LostRange {
    /// Returns the numbers of the lost events, without the reason.
    pub(super) fn place(&self) -> String {
        match self.first == self.last {
            true => format!("event {} could not be read", self.first),
            false => format!("events {} to {} could not be read", self.first, self.last),
        }
    }
}

impl fmt::Display for LostRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.first == self.last {
            true => write!(f, "event {}: {}", self.first, self.reason),
            false => write!(f, "events {} to {}: {}", self.first, self.last, self.reason),
        }
    }
}
