//! Branches of a conversation: its continuations after a point, each in a session of its own.

use agent_core::event::Event;
use agent_core::store::Damaged;
use agent_core::{Seq, SessionId};

/// Continuation of a conversation after a point, in one session.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Branch {
    /// Id of the session.
    pub session: SessionId,
    /// First message of a person in that session after the point; `None` if there is none yet.
    pub message: Option<Event>,
}

/// Branches after a point: first the session that contains the point, then its forks, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Branches {
    /// Last event that all branches share.
    pub point: Seq,
    /// Branches.
    pub branches: Vec<Branch>,
    /// Objects that could not be read.
    pub damaged: Vec<Damaged>,
}
