//! Branches of a conversation: a message that was said otherwise is a fork at the point before it.

use agent_core::event::Event;
use agent_core::store::Damaged;
use agent_core::{Seq, SessionId};

/// How a conversation goes on after a point, in one session.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Branch {
    /// The session.
    pub session: SessionId,
    /// The first thing that a person said there after the point; `None` where nobody did yet.
    pub message: Option<Event>,
}

/// The branches after a point: siblings, the session where the point lies first, then by their ids, which are minted in
/// the order of time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Branches {
    /// The last event that all have in common.
    pub point: Seq,
    /// The branches.
    pub branches: Vec<Branch>,
    /// What could not be read.
    pub damaged: Vec<Damaged>,
}
