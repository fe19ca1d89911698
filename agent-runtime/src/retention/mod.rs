//! Endings: the deletion of a workspace with all that belongs to it, and the removal of what is no longer used.
//!
//! [`delete`](crate::workspaces::WorkspaceManager::delete) is asked for by a person. [`gc`](crate::workspaces::WorkspaceManager::gc) collects
//! workspaces that nobody uses, and finishes what crashed. [`sweep`](crate::workspaces::WorkspaceManager::sweep) sets aside, ends,
//! deletes and purges sessions by their age. All three can be repeated at any time, by several hosts at once, and after
//! a crash at any step.
//!
//! Ages come from the clock of whoever asks. No clock ever ends a run: a lease is over when its holder is proven dead,
//! or has given no sign of life for a whole ttl on the watcher's own monotonic clock.

mod delete;
mod endings;
mod gc;
mod lease;
mod sweep;

use std::fmt;
use std::time::Duration;

pub use delete::Deletion;
pub(crate) use delete::refuse_shelf;
pub use endings::Former;
pub use gc::{GcPolicy, GcReport};
pub use sweep::{Act, Inactive, SweepPolicy, SweepReport, Swept};

use agent_core::session::Session;
use agent_core::store::NeededBy;
use agent_core::{SessionId, Timestamp};

/// Something that is old enough to go, and stays.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Kept<T> {
    /// What stays.
    pub id: T,
    /// Why.
    pub by: Protection,
}

impl<T> Kept<T> {
    pub(crate) const fn new(id: T, by: Protection) -> Self {
        Self { id, by }
    }
}

/// What keeps something from being removed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Protection {
    /// It is the workspace `default`, which is never collected.
    Default,
    /// This session is pinned, for this reason.
    #[non_exhaustive]
    Pinned {
        /// The session.
        session: SessionId,
        /// Why, as whoever pinned it said.
        why: String,
    },
    /// This session is run, or prepared, by somebody who was not seen dead.
    #[non_exhaustive]
    Leased {
        /// The session.
        session: SessionId,
        /// Who holds the lease.
        holder: String,
    },
    /// This session is to run, or an answer may come for it, until then.
    #[non_exhaustive]
    Scheduled {
        /// The session.
        session: SessionId,
        /// The latest moment for which something is planned.
        until: Timestamp,
    },
    /// It, or this session of it, was used more recently than it looked, or meanwhile.
    #[non_exhaustive]
    Used {
        /// The session that was used; `None` where it was the workspace's record.
        session: Option<SessionId>,
    },
    /// This session was forked from it and reads its events.
    #[non_exhaustive]
    NeededBy {
        /// The session that reads them.
        session: SessionId,
    },
    /// What is damaged might need it, or is it. In words.
    Damaged(String),
}

impl From<NeededBy> for Protection {
    fn from(by: NeededBy) -> Self {
        match by {
            NeededBy::Fork(session) => Self::NeededBy { session },
            NeededBy::Unknown(why) => Self::Damaged(why),
            // A reason of a later version: nothing goes.
            other => Self::Damaged(format!("{other:?}")),
        }
    }
}

impl fmt::Display for Protection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("it is the workspace default"),
            Self::Pinned { session, why } => write!(f, "session {session} is pinned: {why}"),
            Self::Leased { session, holder } => write!(f, "session {session} is run by {holder}"),
            Self::Scheduled { session, until } => write!(f, "session {session} has plans until {until}"),
            Self::Used { session: Some(session) } => write!(f, "session {session} is in use"),
            Self::Used { session: None } => f.write_str("it is in use"),
            Self::NeededBy { session } => write!(f, "session {session} was forked from it"),
            Self::Damaged(what) => write!(f, "damage: {what}"),
        }
    }
}

/// The moment `age` before `now`; the earliest there is for an age that reaches beyond.
fn before(now: Timestamp, age: Duration) -> Timestamp {
    now.plus_micros(i64::try_from(age.as_micros()).map_or(i64::MIN, |micros| -micros))
}

/// The latest moment for which something is planned: a wake, or the end of the wait for an answer.
fn planned(session: &Session) -> Option<Timestamp> {
    let answer = session.action.as_ref().and_then(|action| action.expires_at);
    session.wakes.iter().map(|wake| wake.at).max().max(answer)
}

/// What a session holds of a newer version of this library, which this one must not touch.
fn newer(session: &Session) -> Option<Protection> {
    let what = session.newer.as_ref()?;
    Some(Protection::Damaged(format!("session {} holds {what} of a newer version", session.id)))
}
