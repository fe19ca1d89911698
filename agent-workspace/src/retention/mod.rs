//! Retention: deletion of workspaces and sessions with all their data, on request or by age.
//!
//! - [`delete`](crate::WorkspaceManager::delete) removes a workspace, [`erase`](crate::WorkspaceManager::erase) one session.
//! - [`gc`](crate::WorkspaceManager::gc) collects unused workspaces, and finishes interrupted deletions.
//! - [`sweep`](crate::WorkspaceManager::sweep) suspends, ends, deletes and purges sessions by their age.
//! - [`apply`](crate::WorkspaceManager::apply) does both, by a [`RetentionPolicy`] that is read from one file.
//!
//! Each can be repeated at any time, by several hosts at once, and after a crash at any step.
//!
//! An age is at most [`AGE_MAX`](agent_core::model::AGE_MAX), and computed with the caller's clock. No clock ever ends a run: a lease has expired if its holder is proven
//! dead, or has sent no heartbeat for one ttl on the observer's own monotonic clock.

mod delete;
mod endings;
mod erase;
mod gc;
mod lease;
mod policy;
mod sweep;

use std::fmt;
use std::time::Duration;

use serde::Serialize;

pub use delete::Deletion;
pub use delete::refuse_hidden;
pub use endings::OldSessionAction;
pub use erase::{Erase, Erasure};
pub use gc::{GcPolicy, GcReport};
pub use policy::{RetentionPolicy, RetentionReport};
pub use sweep::{InactivityPolicy, SweepAction, SweepEntry, SweepPolicy, SweepReport};

use agent_core::session::SessionRecord;
use agent_core::store::{NeededBy, ReadEvents};
use agent_core::{Error, ErrorKind, Result, SessionId, SessionStore, Timestamp};

/// Object that a policy covers but that is kept, with the reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
#[doc(alias = "Kept")]
pub struct Retained<T> {
    /// Id of the object.
    pub id: T,
    /// Reason for which it is kept.
    pub reason: RetainReason,
}

impl<T> Retained<T> {
    pub(crate) const fn new(id: T, by: RetainReason) -> Self {
        Self { id, reason: by }
    }
}

/// Reason for which an object is not removed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[non_exhaustive]
#[doc(alias = "Protection")]
pub enum RetainReason {
    /// The workspace is `default`, which is never collected.
    Default,
    /// The object was used more recently than the policy's age.
    #[non_exhaustive]
    Recent {
        /// Time of the last use.
        last_used: Timestamp,
    },
    /// The session is a hidden session, which other sessions read although nothing is written to it.
    #[non_exhaustive]
    Hidden {
        /// Id of the session.
        session: SessionId,
        /// Name of the shared data in the session, for example `area/memory`.
        content: String,
    },
    /// The session is pinned.
    #[non_exhaustive]
    Pinned {
        /// Id of the session.
        session: SessionId,
        /// Reason given for the pin.
        why: String,
    },
    /// The session is run or prepared by a holder that was not found dead.
    #[non_exhaustive]
    Leased {
        /// Id of the session.
        session: SessionId,
        /// Name of the holder of the lease.
        holder: String,
    },
    /// The session has a scheduled run, or a pending question, until this time.
    #[non_exhaustive]
    Scheduled {
        /// Id of the session.
        session: SessionId,
        /// Latest time for which something is scheduled.
        until: Timestamp,
    },
    /// The object, or one of its sessions, was used more recently than it seemed, or meanwhile.
    #[non_exhaustive]
    Used {
        /// Id of the session that was used; `None` if the workspace's record was.
        session: Option<SessionId>,
    },
    /// A session was forked from this one and reads its events.
    #[non_exhaustive]
    NeededBy {
        /// Id of the session that reads the events.
        session: SessionId,
    },
    /// The object is damaged, or damaged data might need it. The text describes the damage for people.
    Damaged(String),
}

impl From<NeededBy> for RetainReason {
    fn from(by: NeededBy) -> Self {
        match by {
            NeededBy::Fork(session) => Self::NeededBy { session },
            NeededBy::Unknown(why) => Self::Damaged(why),
            // A reason of a later version: nothing is removed.
            other => Self::Damaged(format!("{other:?}")),
        }
    }
}

impl fmt::Display for RetainReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("the workspace default is never deleted"),
            Self::Recent { last_used } => write!(f, "used recently, at {last_used}"),
            Self::Hidden { content, .. } => write!(f, "hidden session with shared data ({content})"),
            Self::Pinned { session, why } => write!(f, "session {session} is pinned: {why}"),
            Self::Leased { session, holder } => write!(f, "session {session} is being run by {holder}"),
            Self::Scheduled { session, until } => {
                write!(f, "session {session} has work scheduled until {until}")
            }
            Self::Used { session: Some(session) } => write!(f, "session {session} was used meanwhile"),
            Self::Used { session: None } => f.write_str("used meanwhile"),
            Self::NeededBy { session } => {
                write!(f, "session {session} was forked from it and reads its events")
            }
            Self::Damaged(what) => write!(f, "damaged data: {what}"),
        }
    }
}

/// Checks a time of a policy.
///
/// # Errors
///
/// `InvalidInput` if it is longer than `most`.
fn check_time(noun: &str, time: Duration, most: Duration) -> Result<()> {
    if time <= most {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "{noun} of {} seconds is out of range; give at most {} days",
        time.as_secs(),
        most.as_secs() / (24 * 3600)
    )))
}

/// Returns the time `age` before `now`.
fn before(now: Timestamp, age: Duration) -> Timestamp {
    now.plus_micros(i64::try_from(age.as_micros()).map_or(i64::MIN, |micros| -micros))
}

/// Returns the latest time for which something is scheduled: a timer, or the end of the wait for an answer.
fn planned(session: &SessionRecord) -> Option<Timestamp> {
    let answer = session.action.as_ref().and_then(|action| action.expires_at);
    session.timers.iter().map(|timer| timer.at).max().max(answer)
}

/// Returns the protection of a session that holds data of a newer version of this library, which this one must not
/// change.
fn newer(session: &SessionRecord) -> Option<RetainReason> {
    let what = session.unsupported.as_ref()?;
    let id = session.id;
    Some(RetainReason::Damaged(format!(
        "session {id} contains {what} of a newer version; update this program"
    )))
}

/// Returns whether a session cannot be read: it is damaged, or its key was dropped, is lost, or is another one.
pub(crate) fn is_unread(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Deleted | ErrorKind::Denied)
}

/// Returns whether a session's own log has events, readable or damaged.
pub(crate) async fn has_events(sessions: &dyn SessionStore, id: SessionId) -> Result<bool> {
    match sessions.read(id, ReadEvents::last(1)).await {
        Err(error) if is_unread(&error) => Ok(true),
        page => Ok(!page?.events.is_empty()),
    }
}
